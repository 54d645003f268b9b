// Graphs with Q/DQ nodes, written as the tests of the passes read them. A test adds its own ops by deriving.
#ifndef OCTAVO_TESTS_PASSES_MAKER_H_
#define OCTAVO_TESTS_PASSES_MAKER_H_

#include <random>
#include <string>
#include <utility>
#include <vector>

#include "octavo/ir/graph.h"
#include "octavo/quant/numeric/code8.h"

namespace octavo::passes {

struct Maker {
  ir::Graph g;
  std::mt19937 rng;

  explicit Maker(uint32_t seed, int opset = 21) : rng(seed) { g.info.opsets[""] = opset; }

  // The only output of the new node.
  ir::ValueId Node(ir::Op op, std::vector<ir::ValueId> in, ir::Attrs attrs = {}) {
    return g.node(g.AddNode(op, std::move(in), 1, std::move(attrs), "n" + std::to_string(g.node_count()))).output();
  }
  ir::ValueId Real(float v) { return g.AddConstant(ir::Tensor::ScalarF32(v)); }
  ir::ValueId Ints(std::vector<int64_t> v) {
    const auto n = static_cast<int64_t>(v.size());
    return g.AddConstant(ir::Tensor::S64({n}, std::move(v)));
  }
  // The zero point that is `code` steps above the lowest value of t; fp8 has none but 0.
  ir::ValueId Zero(ir::DType t, int64_t code) {
    ir::Tensor zero = ir::Tensor::Zeros(t, {});
    const int64_t lowest = t == ir::DType::kS8 ? 128 : 0;
    if (quant::IsInt8(t)) zero.mutable_as<uint8_t>()[0] = static_cast<uint8_t>(code - lowest);
    return g.AddConstant(std::move(zero));
  }
  ir::ValueId Quantize(ir::ValueId x, float scale, int64_t zero, ir::DType t = ir::DType::kU8) {
    return Node(ir::Op::kQuantizeLinear, {x, Real(scale), Zero(t, zero)});
  }
  ir::ValueId Dequantize(ir::ValueId q, float scale, int64_t zero, ir::DType t = ir::DType::kU8) {
    return Node(ir::Op::kDequantizeLinear, {q, Real(scale), Zero(t, zero)});
  }
  // Through codes and back.
  ir::ValueId Coded(ir::ValueId x, float scale, int64_t zero, ir::DType t = ir::DType::kU8) {
    return Dequantize(Quantize(x, scale, zero, t), scale, zero, t);
  }
};

}  // namespace octavo::passes

#endif  // OCTAVO_TESTS_PASSES_MAKER_H_
