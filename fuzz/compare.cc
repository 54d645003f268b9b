#include "octavo/fuzz/compare.h"

#include <algorithm>
#include <cmath>
#include <format>
#include <optional>

#include "octavo/ir/infer.h"
#include "octavo/quant/numeric/float16.h"

namespace octavo::fuzz {

namespace {

using ir::Op;
using ir::Tensor;
using ir::ValueId;

// What moves values and rounds none; noise there would also cut codes off from the product that multiplies them exactly.
bool Moves(Op op) {
  static constexpr Op kMoves[] = {Op::kConstant, Op::kDequantizeLinear,
                                  Op::kReshape,  Op::kTranspose,
                                  Op::kSlice,    Op::kSplit,
                                  Op::kConcat,   Op::kExpand,
                                  Op::kSqueeze,  Op::kUnsqueeze,
                                  Op::kFlatten,  Op::kGather,
                                  Op::kIdentity, Op::kPad,
                                  Op::kTile,     Op::kWhere,
                                  Op::kCast};
  return std::ranges::count(kMoves, op) != 0;
}

// What is beyond for a type; 0: it is not limited.
float HugeOf(ir::DType t) { return t == ir::DType::kF32 ? kHuge : t == ir::DType::kF16 ? kHugeF16 : 0; }
bool IsLimited(ir::DType t) { return HugeOf(t) != 0; }

// By how much a number of a type is moved; 0: it is not.
float NoiseOf(ir::DType t) {
  return t == ir::DType::kF32 ? kNoise : t == ir::DType::kF16 ? kNoiseF16 : t == ir::DType::kBF16 ? kNoiseBF16 : 0;
}
bool IsNoisy(ir::DType t) { return NoiseOf(t) != 0; }

ValueId AddOp(ir::Graph& graph, Op op, std::vector<ValueId> inputs, ir::NodeId before, ir::Attrs attrs = {}) {
  return graph.node(graph.AddNode(op, std::move(inputs), 1, std::move(attrs), "changed", before)).output();
}

ValueId AddCast(ir::Graph& graph, ValueId value, ir::DType to, ir::NodeId before) {
  return AddOp(graph, Op::kCast, {value}, before, {{"to", static_cast<int64_t>(to)}});
}

ValueId Noise(ir::Graph& graph, ValueId value, ir::NodeId before, float sign) {
  const ir::DType t = graph.value(value).type.dtype;
  const float size = sign * NoiseOf(t);
  if (t != ir::DType::kF32) value = AddCast(graph, value, ir::DType::kF32, before);
  const auto scalar = [&](float x) { return graph.AddConstant(Tensor::ScalarF32(x), {}, before); };
  const auto node = [&](Op op, std::vector<ValueId> inputs) { return AddOp(graph, op, std::move(inputs), before); };
  // Infinities and the lowest float, as masks have them, stay what they are.
  const ValueId bounded = node(Op::kClip, {value, scalar(-1e9f), scalar(1e9f)});
  const ValueId wave = node(Op::kSin, {node(Op::kMul, {bounded, scalar(12345.678f)})});
  const ValueId sum = node(Op::kAdd, {value, node(Op::kMul, {node(Op::kMul, {bounded, wave}), scalar(size)})});
  return t == ir::DType::kF32 ? sum : AddCast(graph, sum, t, before);
}

Tensor TensorOf(ir::DType t, ir::Shape shape, const std::vector<float>& numbers) {
  if (t == ir::DType::kF32) return Tensor::F32(std::move(shape), numbers);
  std::vector<uint16_t> halves(numbers.size());
  std::ranges::transform(numbers, halves.begin(), quant::F32ToF16);
  return Tensor::Of<uint16_t>(t, std::move(shape), halves);
}

ValueId Limit(ir::Graph& graph, ValueId value, Beyond beyond, ir::NodeId before) {
  const ir::DType t = graph.value(value).type.dtype;
  const float huge = HugeOf(t), over = t == ir::DType::kF32 ? 2 * kHuge : 4;  // `huge` times `over` is infinite
  const auto scalar = [&](float x) { return graph.AddConstant(TensorOf(t, {}, {x}), {}, before); };
  const auto node = [&](Op op, std::vector<ValueId> inputs) { return AddOp(graph, op, std::move(inputs), before); };
  if (beyond == Beyond::kHuge) return node(Op::kClip, {value, scalar(-huge), scalar(huge)});
  const Op made = graph.Producer(value)->op;
  if (made == Op::kDiv || made == Op::kReciprocal) return node(Op::kAdd, {value, node(Op::kMul, {value, scalar(0)})});
  return node(Op::kMul, {node(Op::kMul, {value, scalar(over)}), scalar(1 / over)});
}

// Zeros of the padding times NaN: no kernel need multiply by them. So for weights that other ops make of the value, too.
bool MeetsPadding(const ir::Graph& graph, ValueId value) {
  std::vector<ValueId> made{value};
  for (size_t i = 0; i < made.size(); ++i) {
    for (const ir::Use& use : graph.value(made[i]).uses) {
      const ir::Node& n = graph.node(use.node);
      const std::vector<int64_t> pads = n.attrs.Ints("pads");
      const bool padded = std::ranges::any_of(pads, [](int64_t p) { return p != 0; }) || n.attrs.Has("auto_pad");
      if (n.op == Op::kConv && use.slot == 1 && padded) return true;
      if (n.op == Op::kConv || n.outputs.size() != 1 || std::ranges::find(made, n.output()) != made.end()) continue;
      made.push_back(n.output());
    }
  }
  return false;
}

void LimitConstant(ir::Graph& graph, ir::NodeId id, Beyond beyond) {
  const ValueId value = graph.node(id).output();
  const Tensor& before = *graph.ConstantOf(value);
  const float huge = HugeOf(before.dtype());
  const bool without_nan = beyond == Beyond::kHuge && MeetsPadding(graph, value);
  std::vector<float> numbers = before.ToFloats();
  const auto is_huge = [&](float x) { return std::fabs(x) > huge || (without_nan && std::isnan(x)); };
  if (!std::ranges::any_of(numbers, is_huge)) return;
  for (float& x : numbers) {
    if (is_huge(x)) x = std::isnan(x) ? 0 : std::copysign(beyond == Beyond::kHuge ? huge : INFINITY, x);
  }
  graph.ReplaceAllUses(value, graph.AddConstant(TensorOf(before.dtype(), before.shape(), numbers), {}, id));
}

// A scale of the size that results are limited to.
void LimitAttrs(ir::Graph& graph, ir::NodeId id, Beyond beyond) {
  const ir::Attrs attrs = graph.node(id).attrs;
  for (const auto& [name, attr] : attrs.entries()) {
    const auto* x = std::get_if<float>(&attr);
    if (x != nullptr && std::fabs(*x) > kHuge)
      graph.SetAttr(id, name, std::copysign(beyond == Beyond::kHuge ? kHuge : INFINITY, *x));
  }
}

// Every result of such a type that is computed becomes what `change` makes of it by nodes before the node that it is given.
using Change = std::function<ValueId(ir::Graph&, ValueId, ir::NodeId)>;
void ChangeValue(ir::Graph& graph, ValueId value, ir::NodeId before, const Change& change) {
  const std::vector<ir::Use> uses = graph.value(value).uses;
  const ValueId changed = change(graph, value, before);
  for (const ir::Use& use : uses) graph.SetInput(use.node, use.slot, changed);
  for (size_t i = 0; i < graph.outputs().size(); ++i) {
    if (graph.outputs()[i].value == value) graph.SetOutput(i, changed);
  }
}

void ChangeResults(ir::Graph& graph, bool (*is_changed)(ir::DType), const Change& change) {
  for (const ir::NodeId id : graph.NodesInOrder()) {
    if (Moves(graph.node(id).op)) continue;
    const std::vector<ValueId> outputs = graph.node(id).outputs;
    for (const ValueId v : outputs) {
      if (v.valid() && is_changed(graph.value(v).type.dtype)) ChangeValue(graph, v, graph.node(id).next, change);
    }
  }
}

// The same bits, but for those of NaN: its sign and payload are those of an operand, and which one, nothing says.
bool SameNumbers(const Tensor& a, const Tensor& b) {
  if (a.SameBits(b)) return true;
  if (a.dtype() != b.dtype() || a.shape() != b.shape() || !quant::IsFloat(a.dtype())) return false;
  for (int64_t i = 0; i < a.size(); ++i) {
    const double x = a.GetDouble(i), y = b.GetDouble(i);
    if (!(std::isnan(x) && std::isnan(y)) && (x != y || std::signbit(x) != std::signbit(y))) return false;
  }
  return true;
}

bool Same(double x, double y) { return x == y || (std::isnan(x) && std::isnan(y)); }

// By element; empty: none.
using Mask = std::vector<bool>;

// Largest difference and largest magnitude; infinite: they cannot be compared by a number. Without the elements of `but`.
std::pair<double, double> Distance(const Tensor& a, const Tensor& b, const Mask& but = {}) {
  if (a.dtype() != b.dtype()) return {INFINITY, 0};
  // A Loop that never ran makes no slice to tell its sizes by; what types tell of them differs, and is no number.
  if (a.size() == 0 && b.size() == 0 && a.rank() == b.rank()) return {0, 0};
  if (a.shape() != b.shape()) return {INFINITY, 0};
  if (!quant::IsFloat(a.dtype()) && but.empty()) return {a.SameBits(b) ? 0.0 : INFINITY, 0};
  double apart = 0, most = 0;
  for (int64_t i = 0; i < a.size(); ++i) {
    if (!but.empty() && but[static_cast<size_t>(i)]) continue;
    const double x = a.GetDouble(i), y = b.GetDouble(i);
    if (std::isfinite(x)) most = std::max(most, std::fabs(x));
    if (Same(x, y)) continue;
    apart = std::max(apart, quant::IsFloat(a.dtype()) && std::isfinite(x - y) ? std::fabs(x - y) : INFINITY);
  }
  return {apart, most};
}

// The elements that are not the same with and without a limit; empty: none are, or nothing can be told.
Mask OnHugeNumbers(const Tensor& truth, const Tensor& huge, const Tensor& infinite) {
  for (const Tensor* t : {&huge, &infinite}) {
    if (t->dtype() != truth.dtype() || t->shape() != truth.shape() || quant::BitsOf(t->dtype()) == 0) return {};
  }
  Mask mask(static_cast<size_t>(truth.size()));
  for (int64_t i = 0; i < truth.size(); ++i) {
    const double x = truth.GetDouble(i);
    mask[static_cast<size_t>(i)] = !Same(x, huge.GetDouble(i)) || !Same(x, infinite.GetDouble(i));
  }
  return std::ranges::count(mask, true) > 0 ? mask : Mask();
}

// The runs of changed graphs, each made when it is first asked for; null: there is none with as many outputs.
class Again {
 public:
  Again(const ir::Graph& graph, size_t outputs, const RunGraph& run) : graph_(graph), outputs_(outputs), run_(run) {}
  const Tensors* Noisy(float sign) {
    return Get(sign > 0 ? up_ : down_, [&] { return WithNoise(graph_, sign); });
  }
  const Tensors* Limited(Beyond beyond) {
    return Get(beyond == Beyond::kHuge ? huge_ : infinite_, [&] { return WithLimit(graph_, beyond); });
  }

 private:
  const Tensors* Get(std::optional<Tensors>& kept, const std::function<ir::Result<ir::Graph>()>& make) {
    if (!kept) {
      auto outputs = make().and_then(run_);
      kept = outputs && outputs->size() == outputs_ ? std::move(*outputs) : Tensors();
    }
    return kept->empty() ? nullptr : &*kept;
  }

  const ir::Graph& graph_;
  const size_t outputs_;
  const RunGraph& run_;
  std::optional<Tensors> up_, down_, huge_, infinite_;
};

// ", element 3 is nan where the truth is 1": the first that no number tells apart; empty: there is none.
std::string OddElement(const Tensor& truth, const Tensor& got) {
  if (truth.dtype() != got.dtype() || truth.shape() != got.shape()) return ", its type or shape";
  for (int64_t e = 0; e < truth.size() && quant::IsFloat(truth.dtype()); ++e) {
    const double x = truth.GetDouble(e), y = got.GetDouble(e);
    if (!Same(x, y) && !std::isfinite(x - y)) return std::format(", element {} is {} where the truth is {}", e, y, x);
  }
  return {};
}

// Of output i. Not kEqual.
Verdict CompareOne(const Tensors& truth, const Tensors& got, size_t i, bool half, Again& again, std::string* detail) {
  const auto near = [&](double apart, double most) {  // sixteen halves of the last bit of the largest value
    return apart <= 0x1p-20 * most || (half && apart <= 0x1p-6 * most);
  };
  const auto [apart, most] = Distance(truth[i], got[i]);
  if (near(apart, most)) return Verdict::kWithin;
  const Tensors *up = again.Noisy(1), *down = again.Noisy(-1);
  if (up == nullptr || down == nullptr) return Verdict::kUnstable;
  const auto moved = [&](const Mask& but) {
    return std::max(Distance(truth[i], (*up)[i], but).first, Distance(truth[i], (*down)[i], but).first);
  };
  const double noise = moved({});
  if (!(noise <= 0.01 * most) && noise != 0) return Verdict::kUnstable;
  if (apart <= 2 * noise) return Verdict::kWithin;
  const Tensors *huge = again.Limited(Beyond::kHuge), *infinite = again.Limited(Beyond::kInfinite);
  if (huge != nullptr && infinite != nullptr) {
    if (const Mask but = OnHugeNumbers(truth[i], (*huge)[i], (*infinite)[i]); !but.empty()) {
      const auto [rest, most_of_rest] = Distance(truth[i], got[i], but);
      if (near(rest, most_of_rest) || rest <= 2 * moved(but)) return Verdict::kUnstable;
    }
  }
  *detail = std::format("output {}: {:.4g} apart, {:.4g} by noise, largest value {:.4g}{}", i, apart, noise, most,
                        OddElement(truth[i], got[i]));
  return Verdict::kApart;
}

}  // namespace

bool SameBits(const Tensors& a, const Tensors& b) { return std::ranges::equal(a, b, SameNumbers); }

ir::Result<ir::Graph> WithNoise(const ir::Graph& graph, float sign) {
  ir::Graph noisy = graph;
  OCTAVO_TRY_STATUS(ir::Inference::Run(noisy).transform([](const auto&) {}));
  const Change noise = [&](ir::Graph& g, ValueId v, ir::NodeId before) { return Noise(g, v, before, sign); };
  ChangeResults(noisy, IsNoisy, noise);
  const std::vector<ValueId> inputs = noisy.inputs();
  for (const ValueId v : inputs) {
    if (IsNoisy(noisy.value(v).type.dtype)) ChangeValue(noisy, v, noisy.first(), noise);
  }
  return noisy;
}

ir::Result<ir::Graph> WithLimit(const ir::Graph& graph, Beyond beyond) {
  ir::Graph limited = graph;
  OCTAVO_TRY_STATUS(ir::Inference::Run(limited).transform([](const auto&) {}));
  for (const ir::NodeId id : limited.NodesInOrder()) {
    LimitAttrs(limited, id, beyond);
    if (limited.node(id).op != Op::kConstant) continue;
    if (IsLimited(limited.value(limited.node(id).output()).type.dtype)) LimitConstant(limited, id, beyond);
  }
  ChangeResults(limited, IsLimited,
                [&](ir::Graph& g, ValueId v, ir::NodeId before) { return Limit(g, v, beyond, before); });
  return limited;
}

Verdict Compare(const ir::Graph& graph, const Tensors& truth, const Tensors& got, bool half, const RunGraph& run,
                std::string* detail) {
  if (SameBits(truth, got)) return Verdict::kEqual;
  if (truth.size() != got.size()) {
    *detail = std::format("{} outputs, not {}", got.size(), truth.size());
    return Verdict::kApart;
  }
  Again again(graph, truth.size(), run);
  Verdict worst = Verdict::kWithin;
  for (size_t i = 0; i < truth.size(); ++i) worst = std::max(worst, CompareOne(truth, got, i, half, again, detail));
  return worst;
}

}  // namespace octavo::fuzz
