// Rules of If, Loop and Scan: their subgraphs are inferred in a copy, with the types (and for If the elements) of what
// they are given. Captures are the last inputs of node and subgraph alike (ops.def).
#include <algorithm>
#include <deque>
#include <memory>

#include "octavo/ir/infer_rules.h"

namespace octavo::ir {

namespace {

// What both types agree on.
Type Join(const Type& a, const Type& b) {
  Type out;
  if (a.dtype == b.dtype) out.dtype = a.dtype;
  if (!a.shape || !b.shape || a.shape->size() != b.shape->size()) return out;
  out.shape = a.shape;
  for (size_t i = 0; i < out.shape->size(); ++i) {
    if (!ProvablyEqual((*a.shape)[i], (*b.shape)[i])) (*out.shape)[i] = Dim();
  }
  return out;
}

bool Same(const Type& a, const Type& b) {
  if (a.dtype != b.dtype || a.shape.has_value() != b.shape.has_value()) return false;
  return !a.shape ||
         std::ranges::equal(*a.shape, *b.shape, [](const Dim& x, const Dim& y) { return SameRepresentation(x, y); });
}

// Values that take each other's place must be of one element type, or what was chosen for the one meets the other.
Status OneDtype(const Inferrer& c, const Type& a, const Type& b, std::string_view what, size_t i) {
  if (a.dtype == b.dtype || a.dtype == DType::kUndefined || b.dtype == DType::kUndefined) return {};
  return c.Refuse("{} {} is {} and {}; it must have one element type", what, i, quant::Name(a.dtype),
                  quant::Name(b.dtype));
}

// What a body is given, and what came of it. Bodies do not change (GraphRef), but the graph around one is inferred before every pass:
// what a body of 100,000 nodes gives is computed once for the same types.
struct SeenBody {
  static constexpr size_t kMost = 32, kWorthIt = 64;  // bodies that are remembered; nodes of one
  std::weak_ptr<const Graph> body;
  std::vector<Type> inputs;
  std::vector<std::optional<SymContents>> contents;
  std::vector<Type> outputs;

  bool Is(const GraphRef& other) const {
    return !body.owner_before(other) && !other.owner_before(body) && !body.expired();
  }
  bool SameGiven(const std::vector<Type>& types, const std::vector<std::optional<SymContents>>& elements) const {
    const auto same = [](const std::optional<SymContents>& a, const std::optional<SymContents>& b) {
      return a.has_value() == b.has_value() &&
             (!a || std::ranges::equal(*a, *b, [](const Dim& x, const Dim& y) { return SameRepresentation(x, y); }));
    };
    return std::ranges::equal(inputs, types, Same) && std::ranges::equal(contents, elements, same);
  }
};
std::deque<SeenBody>& SeenBodies() {
  thread_local std::deque<SeenBody> seen;
  return seen;
}

Result<std::vector<Type>> InferBody(Inferrer& c, std::string_view attr, const Graph& body,
                                    const std::vector<Type>& inputs,
                                    const std::vector<std::optional<SymContents>>& contents) {
  InferenceWork& work = c.work();
  Graph copy = body;
  Inference inference;
  Inferrer inner(copy, inference, work);
  for (size_t i = 0; i < inputs.size(); ++i) {
    Type type = inputs[i];
    const Type& declared = copy.value(copy.inputs()[i]).type;
    if (type.dtype == DType::kUndefined) type.dtype = declared.dtype;
    if (!type.shape) type.shape = declared.shape;
    copy.SetType(copy.inputs()[i], std::move(type));
    if (contents[i]) inner.Seed(copy.inputs()[i], *contents[i]);
  }
  std::vector<Inferrer::FalseShape> found;
  if (c.forgives()) inner.Forgive(&found);
  ++work.nesting;
  const Status status = inner.Run();
  --work.nesting;
  c.TellWithin(attr, std::move(found));
  if (!status) return c.Refuse("in its graph '{}': {}", attr, status.error().message);
  std::vector<Type> outputs;
  for (const GraphOutput& o : copy.outputs()) {
    outputs.push_back(copy.IsAlive(o.value) ? copy.value(o.value).type : o.declared);
  }
  return outputs;
}

// Types of the outputs of the subgraph `attr`, given the types of its inputs; elements of captures go in as well.
Result<std::vector<Type>> RunSubgraph(Inferrer& c, std::string_view attr, const std::vector<Type>& inputs) {
  const GraphRef body = c.node().attrs.Subgraph(attr);
  if (body == nullptr) return c.Refuse("it has no graph attribute '{}'", attr);
  if (body->inputs().size() != inputs.size()) {
    return c.Refuse("the graph '{}' has {} inputs, {} are given", attr, body->inputs().size(), inputs.size());
  }
  if (c.work().nesting >= kMaxNesting) return c.Refuse("graphs are nested deeper than {}", kMaxNesting);
  const auto captures = static_cast<size_t>(std::max<int64_t>(c.node().attrs.Int("octavo_captures", 0), 0));
  std::vector<std::optional<SymContents>> contents(inputs.size());
  for (size_t i = 0; i < inputs.size(); ++i) {
    const size_t from_end = inputs.size() - i;
    if (from_end > captures || from_end > c.node().inputs.size()) continue;
    if (const SymContents* of_input = c.Contents(c.node().inputs.size() - from_end)) contents[i] = *of_input;
  }
  const bool remembers = body->node_count() >= SeenBody::kWorthIt && c.work().repeating == 0 && !c.forgives();
  std::deque<SeenBody>& seen = SeenBodies();
  for (const SeenBody& s : seen) {
    if (remembers && s.Is(body) && s.SameGiven(inputs, contents)) return s.outputs;
  }
  auto outputs = InferBody(c, attr, *body, inputs, contents);
  if (!outputs || !remembers) return outputs;
  std::erase_if(seen, [](const SeenBody& s) { return s.body.expired(); });
  if (seen.size() >= SeenBody::kMost) seen.pop_front();
  seen.push_back({body, inputs, std::move(contents), *outputs});
  return outputs;
}

Type TypeOfInput(const Inferrer& c, size_t i) { return c.Has(i) ? c.graph().value(c.node().inputs[i]).type : Type{}; }

Status If(Inferrer& c) {
  const auto captures = static_cast<size_t>(std::max<int64_t>(c.node().attrs.Int("octavo_captures", 0), 0));
  if (captures + 1 != c.node().inputs.size()) {
    return c.Refuse("it has {} inputs for {} captures", c.node().inputs.size(), captures);
  }
  std::vector<Type> inputs;
  for (size_t i = 1; i < c.node().inputs.size(); ++i) inputs.push_back(TypeOfInput(c, i));
  const auto condition = c.Numbers(0);
  const bool decided = condition && condition->size() == 1;
  std::optional<std::vector<Type>> outputs;
  for (const std::string_view branch : {"then_branch", "else_branch"}) {
    if (decided && ((*condition)[0] != 0) != (branch == "then_branch")) continue;
    OCTAVO_TRY(std::vector<Type> types, RunSubgraph(c, branch, inputs));
    if (types.size() != c.node().outputs.size()) {
      return c.Refuse("its {} has {} outputs, {} are needed", branch, types.size(), c.node().outputs.size());
    }
    for (size_t i = 0; outputs && i < types.size(); ++i) {
      OCTAVO_TRY_STATUS(OneDtype(c, (*outputs)[i], types[i], "output", i));
      types[i] = Join((*outputs)[i], types[i]);
    }
    outputs = std::move(types);
  }
  for (size_t i = 0; i < outputs->size(); ++i) c.Set(i, (*outputs)[i].dtype, (*outputs)[i].shape);
  return {};
}

// Types that the carried values have in every iteration: the initial ones, weakened until the body keeps them.
Result<std::vector<Type>> FixedPoint(Inferrer& c, std::vector<Type>& inputs, size_t first, size_t count,
                                     size_t first_out) {
  for (int round = 0;; ++round) {
    // Without a shape to begin with nothing is left to weaken: one look is enough.
    for (size_t i = 0; i < count && c.work().spent(); ++i) inputs[first + i].shape.reset();
    c.work().repeating += round > 0 ? 1 : 0;
    auto outputs = RunSubgraph(c, "body", inputs);
    c.work().repeating -= round > 0 ? 1 : 0;
    if (!outputs) return outputs;
    if (outputs->size() < first_out + count) return c.Refuse("its body has only {} outputs", outputs->size());
    bool stable = true;
    for (size_t i = 0; i < count; ++i) {
      Type &in = inputs[first + i], &out = (*outputs)[first_out + i];
      OCTAVO_TRY_STATUS(OneDtype(c, in, out, "carried value", i));
      // After a few rounds a dim that still changes is given up with the whole shape, so that this ends.
      Type joined = Join(in, out);
      joined.dtype = in.dtype != DType::kUndefined ? in.dtype : out.dtype;
      if (Same(joined, in)) continue;
      stable = false;
      if (round >= 3) joined.shape.reset();
      in = std::move(joined);
    }
    if (stable) return outputs;
  }
}

Status Loop(Inferrer& c) {
  const auto captures = static_cast<size_t>(std::max<int64_t>(c.node().attrs.Int("octavo_captures", 0), 0));
  const size_t given = c.node().inputs.size();
  if (given < 2 + captures) return c.Refuse("it has {} inputs for {} captures", given, captures);
  const size_t carried = given - 2 - captures;
  std::vector<Type> inputs = {{DType::kS64, std::nullopt}, {DType::kBool, std::nullopt}};
  for (size_t i = 2; i < given; ++i) inputs.push_back(TypeOfInput(c, i));
  OCTAVO_TRY(const std::vector<Type> outputs, FixedPoint(c, inputs, 2, carried, 1));
  if (outputs.size() != c.node().outputs.size() + 1) {
    return c.Refuse("its body has {} outputs, {} are needed", outputs.size(), c.node().outputs.size() + 1);
  }
  for (size_t i = 0; i < c.node().outputs.size(); ++i) {
    Type type = i < carried ? inputs[2 + i] : outputs[1 + i];
    if (i >= carried && type.shape) type.shape->insert(type.shape->begin(), Dim());  // one slice per iteration
    c.Set(i, type.dtype, std::move(type.shape));
  }
  return {};
}

Status Scan(Inferrer& c) {
  const auto captures = static_cast<size_t>(std::max<int64_t>(c.node().attrs.Int("octavo_captures", 0), 0));
  const auto scanned = static_cast<size_t>(std::max<int64_t>(c.node().attrs.Int("num_scan_inputs", 0), 0));
  const size_t given = c.node().inputs.size();
  if (given < captures + scanned) return c.Refuse("it has {} inputs for {} captures", given, captures);
  const size_t states = given - captures - scanned;
  const std::vector<int64_t> in_axes = c.node().attrs.Ints("scan_input_axes", std::vector<int64_t>(scanned, 0));
  if (in_axes.size() != scanned) return c.Refuse("scan_input_axes names {} of {} inputs", in_axes.size(), scanned);
  std::vector<Type> inputs;
  Dim length;
  for (size_t i = 0; i < given; ++i) {
    Type type = TypeOfInput(c, i);
    if (i >= states && i < states + scanned && type.shape) {
      OCTAVO_TRY(const int64_t axis, c.Axis(in_axes[i - states], static_cast<int64_t>(type.shape->size())));
      if (!Meet(length, (*type.shape)[static_cast<size_t>(axis)])) return c.Refuse("its scan inputs differ in length");
      type.shape->erase(type.shape->begin() + axis);
    }
    inputs.push_back(std::move(type));
  }
  OCTAVO_TRY(const std::vector<Type> outputs, FixedPoint(c, inputs, 0, states, 0));
  if (outputs.size() != c.node().outputs.size()) {
    return c.Refuse("its body has {} outputs, {} are needed", outputs.size(), c.node().outputs.size());
  }
  const std::vector<int64_t> out_axes = c.node().attrs.Ints("scan_output_axes");
  for (size_t i = 0; i < outputs.size(); ++i) {
    Type type = i < states ? inputs[i] : outputs[i];
    if (i >= states && type.shape) {
      const int64_t wish = i - states < out_axes.size() ? out_axes[i - states] : 0;
      OCTAVO_TRY(const int64_t axis, c.Axis(wish, static_cast<int64_t>(type.shape->size()) + 1));
      type.shape->insert(type.shape->begin() + axis, length);
    }
    c.Set(i, type.dtype, std::move(type.shape));
  }
  return {};
}

}  // namespace

Rule ControlRule(Op op) {
  switch (op) {
    case Op::kIf:
      return If;
    case Op::kLoop:
      return Loop;
    case Op::kScan:
      return Scan;
    default:
      return nullptr;
  }
}

}  // namespace octavo::ir
