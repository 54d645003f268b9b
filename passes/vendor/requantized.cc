// Before: y = QLinearMatMul(a, a_scale, a_zp, b, b_scale, b_zp, y_scale, y_zp)
// After:  y = QuantizeLinear(MatMul(DequantizeLinear(a, 1, a_zp), DequantizeLinear(b, m, b_zp)), 1, y_zp),  m = a_scale * b_scale / y_scale
// Exact: both mean rint(float(integer product) * m) + y_zp (ir/interpret/qproducts.cc), which no other way to write the three scales does. So
// the rules for Q/DQ graphs serve these files, with the bits that they have.
#include "octavo/passes/vendor/requantized.h"

#include <algorithm>
#include <cmath>

#include "octavo/quant/numeric/code8.h"

namespace octavo::passes::vendor {

using ir::DType;
using ir::Tensor;

namespace {

// The slots of the operands, and of what would be the result; scale and zero point stand behind each.
constexpr size_t kA = 0, kB = 3, kY = 5;

bool IsOne(const Tensor* t) { return t != nullptr && t->size() == 1; }

// As many numbers as the right matrix, a constant, has columns.
bool IsColumns(const Graph& g, const Node& n, const Tensor* t) {
  const Tensor* b = g.ConstantOf(n.input(kB));
  return t != nullptr && b != nullptr && b->rank() == 2 && t->rank() == 1 && t->size() == b->shape()[1];
}

Tensor Multipliers(const Graph& g, const Node& n) {
  const auto floats = [&](size_t slot) { return g.ConstantOf(n.input(slot + 1))->ToFloats(); };
  std::vector<float> m = floats(kB);
  const size_t zeros = static_cast<size_t>(g.ConstantOf(n.input(kB + 2))->size());
  if (m.size() < zeros) m.assign(zeros, m[0]);
  const float a = floats(kA)[0], y = floats(kY)[0];
  for (float& b : m) b = a * b / y;
  return m.size() == 1 ? Tensor::ScalarF32(m[0]) : Tensor::F32({static_cast<int64_t>(m.size())}, m);
}

}  // namespace

std::string WhyNotDequantized(const Graph& g, const Node& n) {
  for (const size_t slot : {kA, kB, kY}) {
    const Tensor *scale = g.ConstantOf(n.input(slot + 1)), *zero = g.ConstantOf(n.input(slot + 2));
    const auto fits = [&](const Tensor* t) { return IsOne(t) || (slot == kB && IsColumns(g, n, t)); };
    if (!fits(scale) || !fits(zero))
      return "a scale or zero point of QLinearMatMul is neither one constant number nor one for each column of a "
             "constant matrix, for which no kernel rounds";
    if (scale->dtype() != DType::kF32) return "the scales of QLinearMatMul are not float32, for which no kernel rounds";
    if (!quant::IsInt8(zero->dtype()))
      return "QLinearMatMul is not of integers of 8 bits, for which there is no kernel";
  }
  const std::vector<float> m = Multipliers(g, n).ToFloats();
  if (!std::ranges::all_of(m, [](float x) { return x > 0 && std::isfinite(x); }))
    return "the scales of QLinearMatMul give a factor that is no positive number";
  return {};
}

bool DequantizeProduct(Rewriter& rw, NodeId id) {
  const Graph& g = rw.graph();
  const Node n = g.node(id);
  if (!WhyNotDequantized(g, n).empty()) return false;
  const Tensor m = Multipliers(g, n);
  const auto zero = [&](size_t slot, size_t count) {  // in the form of its scale
    const Tensor& t = *g.ConstantOf(n.input(slot + 2));
    if (count == 1) return rw.Constant(t.Reshaped({}));
    if (t.size() > 1) return n.input(slot + 2);
    const std::vector<uint8_t> all(count, static_cast<uint8_t>(t.GetInt(0)));
    return rw.Constant(Tensor::Of<uint8_t>(t.dtype(), {static_cast<int64_t>(count)}, all));
  };
  rw.At(id, {id});
  const ValueId one = rw.Constant(Tensor::ScalarF32(1.0f));
  const ValueId a = rw.Create(Op::kDequantizeLinear, {n.input(kA), one, zero(kA, 1)});
  const ValueId b =
      rw.Create(Op::kDequantizeLinear, {n.input(kB), rw.Constant(m), zero(kB, static_cast<size_t>(m.size()))},
                {{"axis", int64_t{1}}});
  const ValueId product = rw.Create(Op::kMatMul, {a, b});
  rw.Replace(n.output(), rw.Create(Op::kQuantizeLinear, {product, one, zero(kY, 1)}));
  rw.EraseDead(id);
  return true;
}

}  // namespace octavo::passes::vendor
