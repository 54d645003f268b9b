#include "octavo/fuzz/compare.h"

#include <algorithm>
#include <cmath>
#include <format>

#include "octavo/ir/infer.h"

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

void AddNoise(ir::Graph& graph, ValueId value, ir::NodeId before) {
  const std::vector<ir::Use> uses = graph.value(value).uses;
  const auto scalar = [&](float x) { return graph.AddConstant(Tensor::ScalarF32(x), {}, before); };
  const auto node = [&](Op op, std::vector<ValueId> inputs) {
    return graph.node(graph.AddNode(op, std::move(inputs), 1, {}, "noise", before)).output();
  };
  // Infinities and the lowest float, as masks have them, stay what they are.
  const ValueId bounded = node(Op::kClip, {value, scalar(-1e9f), scalar(1e9f)});
  const ValueId wave = node(Op::kSin, {node(Op::kMul, {bounded, scalar(12345.678f)})});
  const ValueId noise = node(Op::kMul, {node(Op::kMul, {bounded, wave}), scalar(kNoise)});
  const ValueId sum = node(Op::kAdd, {value, noise});
  for (const ir::Use& use : uses) graph.SetInput(use.node, use.slot, sum);
  for (size_t i = 0; i < graph.outputs().size(); ++i) {
    if (graph.outputs()[i].value == value) graph.SetOutput(i, sum);
  }
}

bool IsF32(const ir::Graph& graph, ValueId v) { return v.valid() && graph.value(v).type.dtype == ir::DType::kF32; }

// Largest difference and largest magnitude; infinite: they cannot be compared by a number.
std::pair<double, double> Distance(const Tensor& a, const Tensor& b) {
  if (a.dtype() != b.dtype() || a.shape() != b.shape()) return {INFINITY, 0};
  if (!quant::IsFloat(a.dtype())) return {a.SameBits(b) ? 0.0 : INFINITY, 0};
  double apart = 0, most = 0;
  for (int64_t i = 0; i < a.size(); ++i) {
    const double x = a.GetDouble(i), y = b.GetDouble(i);
    if (std::isfinite(x)) most = std::max(most, std::fabs(x));
    if (x == y || (std::isnan(x) && std::isnan(y))) continue;
    apart = std::max(apart, std::isfinite(x - y) ? std::fabs(x - y) : INFINITY);
  }
  return {apart, most};
}

}  // namespace

bool SameBits(const Tensors& a, const Tensors& b) {
  return std::ranges::equal(a, b, [](const Tensor& x, const Tensor& y) { return x.SameBits(y); });
}

ir::Result<ir::Graph> WithNoise(const ir::Graph& graph) {
  ir::Graph noisy = graph;
  OCTAVO_TRY_STATUS(ir::Inference::Run(noisy).transform([](const auto&) {}));
  for (const ir::NodeId id : noisy.NodesInOrder()) {
    if (Moves(noisy.node(id).op)) continue;
    const std::vector<ValueId> outputs = noisy.node(id).outputs;
    for (const ValueId v : outputs) {
      if (IsF32(noisy, v)) AddNoise(noisy, v, noisy.node(id).next);
    }
  }
  const std::vector<ValueId> inputs = noisy.inputs();
  for (const ValueId v : inputs) {
    if (IsF32(noisy, v)) AddNoise(noisy, v, noisy.first());
  }
  return noisy;
}

Verdict Compare(const Tensors& truth, const Tensors& got, bool half, const std::function<ir::Result<Tensors>()>& noisy,
                std::string* detail) {
  if (SameBits(truth, got)) return Verdict::kEqual;
  std::vector<Tensor> moved;
  for (size_t i = 0; i < truth.size() && i < got.size(); ++i) {
    const auto [apart, most] = Distance(truth[i], got[i]);
    if (apart <= 0x1p-20 * most) continue;  // sixteen halves of the last bit of the largest value
    if (half && apart <= 0x1p-6 * most) continue;
    if (moved.empty()) {
      auto again = noisy();
      if (!again || again->size() != truth.size()) return Verdict::kUnstable;
      moved = std::move(*again);
    }
    const double noise = Distance(truth[i], moved[i]).first;
    if (!(noise <= 0.01 * most) && noise != 0) return Verdict::kUnstable;
    if (apart <= 2 * noise) continue;
    *detail = std::format("output {}: {:.4g} apart, {:.4g} by noise, largest value {:.4g}", i, apart, noise, most);
    return Verdict::kApart;
  }
  if (truth.size() == got.size()) return Verdict::kWithin;
  *detail = std::format("{} outputs, not {}", got.size(), truth.size());
  return Verdict::kApart;
}

}  // namespace octavo::fuzz
