#include "octavo/ir/infer.h"

#include <algorithm>
#include <array>
#include <map>
#include <set>

#include "octavo/ir/infer_rules.h"
#include "octavo/ir/names.h"

namespace octavo::ir {

namespace {

constexpr size_t kOpCount = static_cast<size_t>(Op::kOpaque) + 1;

Rule FindRule(Op op) {
  for (const auto family : {ElementwiseRule, MovementRule, IndexingRule, ReduceRule, ProductRule, ConvRule,
                            AttentionRule, QuantRule, ControlRule, VisionRule, SignalRule}) {
    if (const Rule rule = family(op)) return rule;
  }
  return nullptr;
}

Rule RuleOf(const Node& node) {
  static const auto* const table = [] {
    auto* t = new std::array<Rule, kOpCount>;
    for (size_t i = 0; i < kOpCount; ++i) (*t)[i] = FindRule(static_cast<Op>(i));
    return t;
  }();
  return node.op == Op::kOpaque ? OpaqueRule(node) : (*table)[static_cast<size_t>(node.op)];
}

bool SameType(const Type& a, const Type& b) {
  return a.dtype == b.dtype && a.shape.has_value() == b.shape.has_value() &&
         (!a.shape ||
          std::ranges::equal(*a.shape, *b.shape, [](const Dim& x, const Dim& y) { return SameRepresentation(x, y); }));
}

// Not known, or by no name: a name that a file has for it says more.
bool IsVague(const Dim& d) { return !d.known() || (!d.is_number() && d.ToString() == "?"); }

// Adds to `inferred` what only `old` knows. The error says where they contradict each other; `inferred` is then as it was.
Status Refine(Type& inferred, const Type& old) {
  if (inferred.dtype != DType::kUndefined && old.dtype != DType::kUndefined && old.dtype != inferred.dtype) {
    return Fail("its element type is {}, but the file says {}", quant::Name(inferred.dtype), quant::Name(old.dtype));
  }
  if (inferred.shape && old.shape) {
    bool agree = inferred.shape->size() == old.shape->size();
    for (size_t i = 0; agree && i < old.shape->size(); ++i) {
      const Dim &found = (*inferred.shape)[i], &said = (*old.shape)[i];
      agree = !found.is_number() || !said.is_number() || found.number() == said.number();
    }
    if (!agree) return Fail("its shape is {}, but the file says {}", ToString(*inferred.shape), ToString(*old.shape));
  }
  if (inferred.dtype == DType::kUndefined) inferred.dtype = old.dtype;
  if (!old.shape) return {};
  if (!inferred.shape) inferred.shape = old.shape;
  for (size_t i = 0; i < old.shape->size(); ++i) {
    Dim& found = (*inferred.shape)[i];
    const Dim& said = (*old.shape)[i];
    if (!found.known() || (IsVague(found) && !IsVague(said))) found = said;
  }
  return {};
}

// Elements are kept for rank 0 to 2; the length of a vector tells a size that its shape does not know.
bool FitsContents(SymShape& shape, size_t count) {
  if (shape.size() > 2) return false;
  if (shape.empty()) return count == 1;
  if (shape.size() == 2) {
    const Dim cells = shape[0] * shape[1];
    return cells.is_number() && cells.number() == static_cast<int64_t>(count);
  }
  if (shape[0].is_number()) return shape[0].number() == static_cast<int64_t>(count);
  shape[0] = Dim(static_cast<int64_t>(count));
  return true;
}

// Arithmetic on Dims does not wrap as that of a narrow type does.
void ForgetWrapped(DType dtype, SymContents& contents) {
  if (!quant::IsInteger(dtype) || dtype == DType::kS64 || dtype == DType::kU64) return;
  const quant::IntRange range = dtype == DType::kU32 ? quant::IntRange{0, UINT32_MAX} : quant::RangeOf(dtype);
  for (Dim& d : contents) {
    if (d.is_number() && (d.number() < range.lo || d.number() > range.hi)) d = Dim();
  }
}

}  // namespace

bool SameShape(const Graph& graph, ValueId a, ValueId b) {
  const auto &x = graph.value(a).type.shape, &y = graph.value(b).type.shape;
  return x && y && ProvablyEqual(*x, *y);
}

// A product with a number above 1, which no run makes 1.
static bool IsNeverOne(const Dim& d) {
  constexpr int64_t kFactors[] = {2, 3, 5, 7, 11, 13};
  return std::ranges::any_of(kFactors, [&](int64_t f) { return ExactDiv(d, Dim(f)).known(); });
}

Dim BroadcastDim(const Dim& a, const Dim& b) {
  if (a.is_number()) {
    if (a.number() == 1) return b;
    if (!b.is_number() || b.number() == 1 || b.number() == a.number()) return a;
    return {};
  }
  // A number other than 1 wins against what is not known: the run would fail otherwise.
  if (b.is_number()) return b.number() == 1 ? a : b;
  if (ProvablyEqual(a, b)) return a;
  // [4*b,s,d] times [4*c,d,t]: neither is repeated for the other, so they are one size or the run fails.
  return IsNeverOne(a) && IsNeverOne(b) ? a : Dim();
}

void ForgetNegative(MaybeShape& shape) {
  if (!shape) return;
  for (Dim& d : *shape) {
    if (d.is_number() && d.number() < 0) d = Dim();
  }
}

bool Meet(Dim& into, const Dim& other) {
  if (!other.known()) return true;
  if (!into.known() || (other.is_number() && !into.is_number())) {
    into = other;
    return true;
  }
  return !into.is_number() || !other.is_number() || into.number() == other.number();
}

Result<MaybeShape> BroadcastShapes(const Inferrer& c, const SymShape* a, const SymShape* b) {
  if (a == nullptr || b == nullptr) return std::nullopt;
  if (a->size() < b->size()) std::swap(a, b);
  SymShape out = *a;
  const size_t skip = a->size() - b->size();
  for (size_t i = 0; i < b->size(); ++i) {
    const Dim& x = (*a)[skip + i];
    const Dim& y = (*b)[i];
    if (x.is_number() && y.is_number() && x.number() != y.number() && x.number() != 1 && y.number() != 1) {
      return c.Refuse("the shapes {} and {} do not broadcast", ToString(*a), ToString(*b));
    }
    out[skip + i] = BroadcastDim(x, y);
  }
  return MaybeShape(std::move(out));
}

Result<DType> CommonType(const Inferrer& c, std::span<const size_t> inputs) {
  DType common = DType::kUndefined;
  for (const size_t i : inputs) {
    const DType type = c.DtypeOf(i);
    if (type == DType::kUndefined) continue;
    if (common == DType::kUndefined) common = type;
    if (type != common) {
      return c.Refuse("its inputs are {} and {}; they must have one element type", quant::Name(common),
                      quant::Name(type));
    }
  }
  return common;
}

Result<MaybeShape> Broadcast(const Inferrer& c, std::span<const size_t> inputs) {
  MaybeShape out = c.CopyOf(inputs[0]);
  for (const size_t i : inputs.subspan(1)) {
    if (!out) return out;
    OCTAVO_TRY(out, BroadcastShapes(c, &*out, c.ShapeOf(i)));
  }
  return out;
}

Dim ProductOf(std::span<const Dim> dims) {
  Dim product(1);
  for (const Dim& d : dims) product = product * d;
  return product;
}

DType DTypeOfAttr(const Inferrer& c, std::string_view attr) {
  const int64_t number = c.node().attrs.Int(attr, 0);
  return quant::IsDType(number) ? static_cast<DType>(number) : DType::kUndefined;
}

Status SameAsFirst(Inferrer& c) {
  c.Set(0, c.DtypeOf(0), c.CopyOf(0));
  return {};
}

// --- Inferrer ------------------------------------------------------------------------------------------------------

const SymShape* Inferrer::ShapeOf(size_t input) const {
  if (!Has(input)) return nullptr;
  const MaybeShape& shape = graph_.value(node_->inputs[input]).type.shape;
  return shape ? &*shape : nullptr;
}

const SymContents* Inferrer::ContentsOf(ValueId v) const {
  if (const SymContents* contents = inference_.Contents(v)) return contents;
  return v.index < own_contents_.size() && own_contents_[v.index] ? &*own_contents_[v.index] : nullptr;
}

const Tensor* Inferrer::Constant(size_t input) const {
  const Tensor* t = Has(input) ? graph_.ConstantOf(node_->inputs[input]) : nullptr;
  return t != nullptr && quant::BitsOf(t->dtype()) > 0 ? t : nullptr;
}

std::optional<std::vector<int64_t>> Inferrer::Numbers(size_t input) const {
  const SymContents* contents = Contents(input);
  if (contents == nullptr) return std::nullopt;
  std::vector<int64_t> numbers;
  numbers.reserve(contents->size());
  for (const Dim& d : *contents) {
    if (!d.is_number()) return std::nullopt;
    numbers.push_back(d.number());
  }
  return numbers;
}

std::string Inferrer::Label() const {
  const std::string_view op = node_->op == Op::kOpaque ? std::string_view(node_->op_type) : InfoOf(node_->op).name;
  std::string name = node_->name;
  for (const ValueId v : node_->outputs) {
    if (name.empty() && v.valid()) name = graph_.value(v).name;
  }
  return std::format("node {} ({})", Quoted(name), Clean(op));
}

Result<int64_t> Inferrer::Axis(int64_t axis, int64_t rank) const {
  if (axis < -rank || axis >= rank) return Refuse("axis {} does not exist in a tensor of rank {}", axis, rank);
  return axis < 0 ? axis + rank : axis;
}

void Inferrer::Set(size_t output, DType dtype, MaybeShape shape) {
  ForgetNegative(shape);
  if (output < types_.size()) types_[output] = Type{dtype, std::move(shape)};
}

void Inferrer::SetContents(size_t output, SymContents contents) {
  if (output < new_contents_.size() && contents.size() <= kMaxContents) new_contents_[output] = std::move(contents);
}

void Inferrer::ComesOutEven(Dim product, Dim whole) {
  constexpr size_t kMost = 16;  // different ones in a graph; real ones have one or two
  for (int64_t p = 2; p <= 64; ++p) {
    for (Dim a = ExactDiv(product, Dim(p)), b = ExactDiv(whole, Dim(p)); a.known() && b.known();
         a = ExactDiv(product, Dim(p)), b = ExactDiv(whole, Dim(p))) {
      product = a, whole = b;
    }
  }
  const auto known = [&](const auto& pair) { return ProvablyEqual(pair.first, product); };
  if (even_.size() >= kMost || ProvablyEqual(product, whole) || std::ranges::any_of(even_, known)) return;
  even_.emplace_back(std::move(product), std::move(whole));
}

void Inferrer::Seed(ValueId input, SymContents contents) {
  if (inference_.contents_.size() <= input.index) inference_.contents_.resize(graph_.value_capacity());
  inference_.contents_[input.index] = std::move(contents);
}

Status Inferrer::Forgiven(Type& inferred, const Type& declared, FalseShape found) {
  if (false_shapes_ == nullptr || !Refine(inferred, {declared.dtype, {}})) return Fail("{}", found.sentence);
  false_shapes_->push_back(std::move(found));
  return {};
}

void Inferrer::TellWithin(std::string_view attr, std::vector<FalseShape> found) {
  for (FalseShape& f : found) {
    f.sentence = std::format("{}: in its graph '{}': {}", Label(), attr, f.sentence);
    f.within.emplace(f.within.begin(), at_, attr);
    false_shapes_->push_back(std::move(f));
  }
}

// Beyond what symbolic sizes may take they are forgotten.
void Inferrer::Spend(std::vector<Dim>& dims) {
  for (Dim& d : dims) {
    if (!d.known() || d.is_number()) continue;
    work_.text += d.ToString().size();
    if (work_.text > InferenceWork::kMostText) d = Dim();
  }
}

Status Inferrer::Store(size_t output) {
  const ValueId v = node_->outputs[output];
  if (!v.valid()) return {};
  const Value& value = graph_.value(v);
  Type& refined = types_[output];
  if (refined.shape && refined.shape->size() > kMaxRank) {
    return Refuse("output {} would have rank {}; octavo takes tensors of rank {} at most", Quoted(value.name),
                  refined.shape->size(), kMaxRank);
  }
  if (refined.shape) Spend(*refined.shape);
  if (new_contents_[output]) Spend(*new_contents_[output]);
  if (auto ok = Refine(refined, value.type); !ok) {
    std::string sentence = std::format("{}: output {}: {}", Label(), Quoted(value.name), ok.error().message);
    OCTAVO_TRY_STATUS(Forgiven(refined, value.type, {std::move(sentence), v, {}, {}}));
  }
  auto& contents = new_contents_[output];
  if (contents) ForgetWrapped(refined.dtype, *contents);
  if (contents && refined.shape && FitsContents(*refined.shape, contents->size())) {
    const bool own = quant::IsFloat(refined.dtype) || refined.shape->size() > 1;
    (own ? own_contents_ : inference_.contents_)[v.index] = std::move(contents);
  }
  for (const auto& [product, whole] : even_) {
    for (Dim& d : refined.shape ? std::span<Dim>(*refined.shape) : std::span<Dim>()) {
      if (ProvablyEqual(d, product)) d = whole;
    }
  }
  for (Dim& d : refined.shape&& names_sizes_ ? std::span<Dim>(*refined.shape) : std::span<Dim>()) {
    if (!d.known()) d = Dim::Nameless();
  }
  if (!SameType(refined, value.type)) graph_.SetType(v, std::move(refined));
  return {};
}

Status Inferrer::Visit(const Node& node) {
  node_ = &node;
  // One slot at least: rules look at output 0 even of a node that has none.
  const size_t slots = std::max<size_t>(node.outputs.size(), 1);
  types_.assign(slots, Type{});
  new_contents_.assign(slots, std::nullopt);
  if (const Rule rule = RuleOf(node)) {
    OCTAVO_TRY_STATUS(rule(*this));
    InferContents(*this);
  }
  for (size_t i = 0; i < node.outputs.size(); ++i) OCTAVO_TRY_STATUS(Store(i));
  return {};
}

Status Inferrer::MergeDeclared(size_t i) {
  const GraphOutput& output = graph_.outputs()[i];
  if (!graph_.IsAlive(output.value)) return {};
  Type merged = graph_.value(output.value).type;
  if (auto ok = Refine(merged, output.declared); !ok) {
    std::string sentence = std::format("graph output {}: {}", Quoted(output.name), ok.error().message);
    OCTAVO_TRY_STATUS(Forgiven(merged, output.declared, {std::move(sentence), output.value, i, {}}));
  }
  if (!SameType(merged, graph_.value(output.value).type)) graph_.SetType(output.value, std::move(merged));
  return {};
}

Status Inferrer::Run() {
  inference_.contents_.resize(graph_.value_capacity());
  own_contents_.resize(graph_.value_capacity());
  for (at_ = graph_.first(); at_.valid(); at_ = graph_.node(at_).next) {
    if (work_.repeating > 0) ++work_.repeated;
    OCTAVO_TRY_STATUS(Visit(graph_.node(at_)));
  }
  for (size_t i = 0; i < graph_.outputs().size(); ++i) OCTAVO_TRY_STATUS(MergeDeclared(i));
  return {};
}

Result<Inference> Inference::Run(Graph& graph) {
  Inference inference;
  InferenceWork work;
  Inferrer inferrer(graph, inference, work);
  inferrer.NameSizes();
  OCTAVO_TRY_STATUS(inferrer.Run());
  if (UnifySizes(graph)) OCTAVO_TRY_STATUS(inferrer.Run());  // for what is computed of them
  return inference;
}

namespace {

using Found = std::vector<const Inferrer::FalseShape*>;

// Those of one body are dropped together: each body is copied once.
void Drop(Graph& graph, const Found& found, size_t depth) {
  std::map<std::pair<NodeId, std::string>, Found> within;
  for (const Inferrer::FalseShape* f : found) {
    if (depth < f->within.size()) {
      within[f->within[depth]].push_back(f);
    } else if (f->output) {
      graph.DeclareOutput(*f->output, {graph.outputs()[*f->output].declared.dtype, {}});
    } else {
      graph.SetType(f->value, {graph.value(f->value).type.dtype, {}});
    }
  }
  for (const auto& [place, inner] : within) {
    const auto& [node, attr] = place;
    Graph body = *graph.node(node).attrs.Subgraph(attr);
    Drop(body, inner, depth + 1);
    graph.SetAttr(node, attr, std::make_shared<const Graph>(std::move(body)));
  }
}

}  // namespace

std::vector<std::string> DropFalseShapes(Graph& graph) {
  Graph copy = graph;  // types are to stay as declared
  Inference inference;
  InferenceWork work;
  Inferrer inferrer(copy, inference, work);
  std::vector<Inferrer::FalseShape> found;
  inferrer.Forgive(&found);
  // Beyond an error of another kind nothing is known; whoever infers next tells it.
  if (!inferrer.Run() && found.empty()) return {};
  std::vector<std::string> sentences;
  // An output of a graph has two declared shapes, and a loop's body is looked at more than once.
  std::set<std::pair<std::vector<std::pair<NodeId, std::string>>, ValueId>> told;
  Found all;
  for (const Inferrer::FalseShape& f : found) all.push_back(&f);
  Drop(graph, all, 0);
  for (Inferrer::FalseShape& f : found) {
    if (told.emplace(std::move(f.within), f.value).second) sentences.push_back(std::move(f.sentence));
  }
  return sentences;
}

}  // namespace octavo::ir
