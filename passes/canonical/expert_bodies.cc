#include "octavo/passes/canonical/expert_bodies.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "octavo/passes/canonical/expert_choice.h"

namespace octavo::passes::canonical {

namespace {

constexpr size_t kMostSteps = 64;

bool AllEqual(const std::vector<ValueId>& values) {
  return std::ranges::all_of(values, [&](ValueId v) { return v == values.front(); });
}

// One number for each column, or one for all.
bool IsRow(const Tensor& t) { return t.size() > 0 && (t.size() == 1 || t.shape().back() == t.size()); }

// Split or Slice along the last axis, by numbers.
bool IsPartOfColumns(const Graph& g, const Node& n) {
  const int64_t last = RankOf(g, n.input(0)) - 1;
  if (n.op == Op::kSplit) return n.attrs.Int("axis", 0) == -1 || n.attrs.Int("axis", 0) == last;
  if (n.op != Op::kSlice || n.inputs.size() < 4) return false;
  const auto axes = ConstInts(g, n.input(3));
  return axes == Ints{-1} || axes == Ints{last};
}

bool StartsAlike(const SymShape& a, const SymShape& b) {
  return a.size() == b.size() && ProvablyEqual(SymShape(a.begin(), a.end() - 1), SymShape(b.begin(), b.end() - 1));
}

}  // namespace

bool ExpertBodies::Plan(const std::vector<ValueId>& ys) {
  const SymShape *y = ShapeOf(g_, ys.front()), *index = ShapeOf(g_, index_);
  if (y == nullptr || index == nullptr || y->empty() || index->empty()) return false;
  if (!places_.front().valid() && !StartsAlike(*y, *index)) return false;
  const auto last = Find(ys);
  return last && std::ranges::any_of(steps_, [](const Step& s) { return s.kind == Kind::kProduct; }) &&
         steps_[*last].kind != Kind::kShared && steps_[*last].kind != Kind::kOwn;
}

std::optional<size_t> ExpertBodies::Find(Values values) {
  for (ValueId& v : values) {
    const ValueId behind = BehindViews(g_, v);
    const SymShape *in = ShapeOf(g_, behind), *out = ShapeOf(g_, v);
    if (behind == v || in->empty() || out->empty() || g_.ConstantOf(behind) != nullptr) continue;
    if (ProvablyEqual(in->back(), out->back())) v = behind;
  }
  if (const auto known = known_.find(values); known != known_.end()) return known->second;
  std::optional<Step> step = StepOf(values);
  if (!step || steps_.size() >= kMostSteps) return {};
  steps_.push_back(std::move(*step));
  known_[std::move(values)] = steps_.size() - 1;
  return steps_.size() - 1;
}

std::optional<ExpertBodies::Step> ExpertBodies::StepOf(const Values& values) {
  if (auto step = Constants(values)) return step;
  if (auto step = Rows(values)) return step;
  const Node* first = g_.Producer(values.front());
  if (first == nullptr) return {};
  const auto output = std::ranges::find(first->outputs, values.front()) - first->outputs.begin();
  for (const ValueId v : values) {
    const Node* n = g_.Producer(v);
    const bool same = n != nullptr && n->op == first->op && n->inputs.size() == first->inputs.size() &&
                      n->attrs.Same(first->attrs) && n->outputs.size() == first->outputs.size();
    if (!same || n->output(static_cast<size_t>(output)) != v) return {};
  }
  auto step = first->op == Op::kMatMul ? Product(values) : Operation(values);
  if (step) step->output = static_cast<size_t>(output);
  return step;
}

ValueId ExpertBodies::Operand(const Values& values, size_t expert, size_t slot) const {
  return g_.Producer(values[expert])->input(slot);
}

// Entry e of one constant for each expert e, perhaps transposed.
bool ExpertBodies::AreEntries(Step& step) const {
  for (size_t e = 0; e < step.values.size(); ++e) {
    const Node* n = g_.Producer(step.values[e]);
    const bool flipped = n != nullptr && n->op == Op::kTranspose && PermOf(*n, 2) == Ints{1, 0};
    if (flipped) n = g_.Producer(BehindViews(g_, n->input(0)));
    if (n == nullptr || n->op != Op::kGather || n->attrs.Int("axis", 0) != 0) return false;
    const Tensor* all = g_.ConstantOf(n->input(0));
    const auto experts = static_cast<int64_t>(step.values.size());
    if (all == nullptr || !IsPlainFloat(all->dtype()) || all->shape().front() != experts) return false;
    if (ExpertAt(g_, n->input(1), experts) != static_cast<int64_t>(e)) return false;
    if (e > 0 && (step.source != n->input(0) || step.flipped != flipped)) return false;
    step.source = n->input(0), step.flipped = flipped;
  }
  return true;
}

std::optional<ExpertBodies::Step> ExpertBodies::Constants(const Values& values) const {
  Step step{.kind = Kind::kOwn, .values = values};
  const Tensor* first = g_.ConstantOf(values.front());
  if (first == nullptr) {
    const bool rows = AreEntries(step) && !step.flipped && g_.ConstantOf(step.source)->rank() == 2;
    return rows ? std::optional(std::move(step)) : std::nullopt;
  }
  if (!IsRow(*first)) return {};
  if (AllEqual(values)) return Step{.kind = Kind::kShared, .values = values};
  for (const ValueId v : values) {
    const Tensor* t = g_.ConstantOf(v);
    if (t == nullptr || t->dtype() != first->dtype() || t->shape() != first->shape()) return {};
  }
  return IsPlainFloat(first->dtype()) ? std::optional(std::move(step)) : std::nullopt;
}

// What all tokens bring, or the rows of those that chose an expert.
std::optional<ExpertBodies::Step> ExpertBodies::Rows(const Values& values) const {
  const SymShape& index = *ShapeOf(g_, index_);
  if (!places_.front().valid()) {
    const SymShape* x = ShapeOf(g_, values.front());
    if (!AllEqual(values) || x == nullptr || x->empty() || !StartsAlike(*x, index)) return {};
    return Step{.kind = Kind::kRows, .values = values, .source = values.front()};
  }
  Step step{.kind = Kind::kRows, .values = values};
  for (size_t e = 0; e < values.size(); ++e) {
    const Node* n = g_.Producer(values[e]);
    const bool tuples = n != nullptr && n->op == Op::kGatherND && n->attrs.Int("batch_dims", 0) == 0;
    if (n == nullptr || (n->op != Op::kGather && !tuples) || !AreTokensOf(g_, n->input(1), places_[e])) return {};
    const SymShape* x = ShapeOf(g_, n->input(0));
    if (x == nullptr || x->size() < 2 || !x->back().is_number() || x->back().number() < 1) return {};
    const int64_t rank = RankOf(g_, n->input(0)), indexed = RankOf(g_, n->input(1)), along = n->attrs.Int("axis", 0);
    const int64_t axis = tuples ? 0 : (along + rank) % rank;
    if (indexed != (tuples ? 2 : 1) || axis == rank - 1) return {};
    for (int64_t i = 0; i + 1 < rank; ++i) {
      const Dim& d = (*x)[static_cast<size_t>(i)];
      if (i == axis ? !ProvablyEqual(d, index.front()) : !IsNumber(d, 1)) return {};
    }
    if (e > 0 && step.source != n->input(0)) return {};
    step.source = n->input(0);
  }
  return step;
}

std::optional<ExpertBodies::Step> ExpertBodies::Product(const Values& values) {
  Values x, w;
  for (size_t e = 0; e < values.size(); ++e) x.push_back(Operand(values, e, 0)), w.push_back(Operand(values, e, 1));
  Step step{.kind = Kind::kProduct, .values = w};
  const Tensor* first = g_.ConstantOf(w.front());
  if (first == nullptr && (!AreEntries(step) || g_.ConstantOf(step.source)->rank() != 3)) return {};
  for (size_t e = 0; first != nullptr && e < w.size(); ++e) {
    const Tensor* t = g_.ConstantOf(w[e]);
    const bool fits = t != nullptr && t->rank() == 2 && t->size() > 0 && t->shape() == first->shape() &&
                      t->dtype() == first->dtype() && IsPlainFloat(t->dtype());
    if (!fits) return {};
  }
  const auto rows = Find(x);
  if (!rows || steps_[*rows].kind == Kind::kShared || steps_[*rows].kind == Kind::kOwn) return {};
  step.operands = {*rows};
  return step;
}

// No operand has its rows along another dim than the result.
bool ExpertBodies::HaveSameRows(const Node& node, const Step& step) const {
  const SymShape* y = ShapeOf(g_, node.output(step.output));
  if (y == nullptr) return false;
  for (size_t i = 0; i < step.operands.size(); ++i) {
    const Kind kind = steps_[step.operands[i]].kind;
    if (kind == Kind::kShared || kind == Kind::kOwn) continue;
    const SymShape* x = ShapeOf(g_, node.input(i));
    if (x == nullptr || x->size() != y->size()) return false;
    for (size_t d = 0; d + 1 < y->size(); ++d) {
      if (IsNumber((*x)[d], 1) != IsNumber((*y)[d], 1)) return false;
    }
  }
  return true;
}

std::optional<ExpertBodies::Step> ExpertBodies::Operation(const Values& values) {
  const Node& first = *g_.Producer(values.front());
  const bool part = IsPartOfColumns(g_, first);
  if (!part && !IsElementwise(first.op)) return {};
  Step step{.kind = Kind::kOp, .values = values, .node = g_.value(values.front()).producer};
  bool rows = false;
  for (size_t slot = 0; slot < first.inputs.size(); ++slot) {
    Values operand;
    for (size_t e = 0; e < values.size(); ++e) operand.push_back(Operand(values, e, slot));
    const bool number = slot > 0 && (part || first.op == Op::kClip);
    if (!operand.front().valid() || number) {  // bounds and sizes, which no expert has of its own
      if (!AllEqual(operand) || (operand.front().valid() && g_.ConstantOf(operand.front()) == nullptr)) return {};
      continue;
    }
    const auto found = Find(operand);
    if (!found) return {};
    step.operands.push_back(*found);
    rows = rows || (steps_[*found].kind != Kind::kShared && steps_[*found].kind != Kind::kOwn);
  }
  return rows && HaveSameRows(first, step) ? std::optional(std::move(step)) : std::nullopt;
}

// The constants of all experts one behind the other.
Tensor ExpertBodies::Stacked(const Step& step, const ir::Shape& shape) const {
  Tensor all = Tensor::Empty(g_.ConstantOf(step.values.front())->dtype(), shape);
  std::byte* at = all.mutable_data();
  for (const ValueId v : step.values) {
    const Tensor& t = *g_.ConstantOf(v);
    std::memcpy(at, t.data(), t.byte_size());
    at += t.byte_size();
  }
  return all;
}

// Of the chosen experts, out of all in `shape`.
ValueId ExpertBodies::Taken(Rewriter& rw, const Step& step, const ir::Shape& shape) const {
  const Tensor* all = step.source.valid() ? g_.ConstantOf(step.source) : nullptr;
  const bool there = all != nullptr && all->shape() == shape;
  const ValueId table = there ? step.source : rw.Constant(all ? all->Reshaped(shape) : Stacked(step, shape));
  return rw.Create(Op::kGather, {table, index_}, {{"axis", int64_t{0}}});
}

// [..,K] -> [..,k,1,K]
ValueId ExpertBodies::BuildRows(Rewriter& rw, ValueId x) const {
  const SymShape& index = *ShapeOf(g_, index_);
  const auto rank = static_cast<int64_t>(index.size());
  if (RankOf(g_, x) != rank) x = rw.Create(Op::kReshape, {x, MakeInts(rw, {-1, ShapeOf(g_, x)->back().number()})});
  Ints places(index.size() + 2, 1);
  places[index.size() - 1] = index.back().number();
  const ValueId wide = rw.Create(Op::kUnsqueeze, {x, MakeInts(rw, {rank - 1, rank})});
  return rw.Create(Op::kExpand, {wide, MakeInts(rw, std::move(places))});
}

ValueId ExpertBodies::BuildOp(Rewriter& rw, const Step& step, const Values& built) const {
  const Node& node = g_.node(step.node);
  Values in = node.inputs;
  Attrs attrs = node.attrs;
  const bool part = IsPartOfColumns(g_, node);
  for (size_t i = 0; i < step.operands.size(); ++i) in[i] = built[step.operands[i]];
  if (part && node.op == Op::kSlice) in[3] = MakeInts(rw, {-1});
  if (node.op == Op::kSplit) attrs.Set("axis", int64_t{-1});
  const size_t outputs = node.outputs.size();
  return rw.graph().node(rw.CreateN(node.op, std::move(in), outputs, std::move(attrs))).output(step.output);
}

ValueId ExpertBodies::Build(Rewriter& rw) const {
  const auto experts = static_cast<int64_t>(places_.size());
  Values built;
  for (const Step& step : steps_) {
    switch (step.kind) {
      case Kind::kRows:
        built.push_back(BuildRows(rw, step.source));
        break;
      case Kind::kShared: {
        const Tensor& t = *g_.ConstantOf(step.values.front());
        built.push_back(t.rank() <= 1 ? step.values.front() : rw.Constant(t.Reshaped({t.size()})));
        break;
      }
      case Kind::kOwn: {
        const Tensor* t = g_.ConstantOf(step.values.front());
        const int64_t n = step.source.valid() ? g_.ConstantOf(step.source)->shape()[1] : t->size();
        built.push_back(Taken(rw, step, {experts, 1, n}));
        break;
      }
      case Kind::kProduct: {
        const Tensor* t = g_.ConstantOf(step.source.valid() ? step.source : step.values.front());
        const ir::Shape& s = t->shape();
        ValueId w = Taken(rw, step, step.source.valid() ? s : ir::Shape{experts, s[0], s[1]});
        if (step.flipped) w = rw.Create(Op::kTranspose, {w}, {{"perm", LastTwoSwapped(RankOf(g_, index_) + 2)}});
        built.push_back(rw.Create(Op::kMatMul, {built[step.operands.front()], w}));
        break;
      }
      case Kind::kOp:
        built.push_back(BuildOp(rw, step, built));
        break;
    }
  }
  return built.back();
}

}  // namespace octavo::passes::canonical
