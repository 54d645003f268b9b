// Attention in Q/DQ as the quantizer leaves it, for the passes that change the codes of its probabilities.
#ifndef OCTAVO_TESTS_PASSES_CODED_ATTENTION_H_
#define OCTAVO_TESTS_PASSES_CODED_ATTENTION_H_

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

#include "octavo/ir/infer.h"
#include "octavo/ir/interpret.h"
#include "octavo/tests/passes/maker.h"

namespace octavo::passes::coded {

using ir::DType;
using ir::Graph;
using ir::Op;
using ir::Tensor;
using ir::TensorMap;
using ir::ValueId;

struct CodedForm {
  bool guard = false, reader = false, quantized_output = true;
  float p_scale = 1 / 255.0f;
  int64_t p_zero = 0;
};

// Attention of 2 heads of 8 in Q/DQ: codes q [1,2,3,8], kT [1,2,8,keys], v [1,2,keys,8].
struct Attention : Maker {
  explicit Attention(const CodedForm& f) : Maker(3) {
    const auto input = [&](const char* name, ir::SymShape shape, float scale, int64_t zero) {
      return Dequantize(g.AddInput(name, {DType::kU8, std::move(shape)}), scale, zero);
    };
    const ir::Dim keys = ir::Dim::Symbol("keys");
    const ValueId q = input("q", {1, 2, 3, 8}, 0.01f, 128), k = input("k", {1, 2, 8, keys}, 0.01f, 120),
                  v = input("v", {1, 2, keys, 8}, 0.02f, 100);
    const ValueId mask = g.AddInput("mask", {DType::kF32, ir::SymShape{1, 1, 3, keys}});
    scores = Node(Op::kAdd, {Node(Op::kMul, {Node(Op::kMatMul, {q, k}), Real(0.35f)}), mask});
    ValueId p = Node(Op::kSoftmax, {scores}, {{"axis", int64_t{-1}}});
    if (f.guard) p = Node(Op::kWhere, {Node(Op::kIsNaN, {p}), Real(0.0f), p});
    codes = Quantize(p, f.p_scale, f.p_zero);
    if (f.reader) g.AddOutput("codes", codes);
    ValueId o = Node(Op::kMatMul, {Dequantize(codes, f.p_scale, f.p_zero), v});
    if (f.quantized_output) o = Quantize(o, 0.02f, 100);
    g.AddOutput("o", o);
    EXPECT_TRUE(ir::Inference::Run(g).has_value());
  }
  ValueId scores, codes;
};

// Queries that weigh `keys` keys nearly alike; the last row sees none.
inline TensorMap Inputs(int64_t keys, bool hide_all) {
  std::mt19937 rng(9);
  const auto bytes = [&](ir::Shape shape) {
    Tensor t = Tensor::Empty(DType::kU8, std::move(shape));
    for (uint8_t& b : t.mutable_as<uint8_t>()) b = static_cast<uint8_t>(rng());
    return t;
  };
  Tensor mask = Tensor::Zeros(DType::kF32, {1, 1, 3, keys});
  for (int64_t j = 0; hide_all && j < keys; ++j)
    mask.mutable_as<float>()[static_cast<size_t>(2 * keys + j)] = -INFINITY;
  return {{"q", bytes({1, 2, 3, 8})}, {"k", bytes({1, 2, 8, keys})}, {"v", bytes({1, 2, keys, 8})}, {"mask", mask}};
}

inline std::vector<Tensor> Interpreted(const Graph& g, const TensorMap& inputs) {
  auto out = ir::Interpret(g, inputs);
  EXPECT_TRUE(out.has_value()) << out.error().message;
  return *out;
}

// As real numbers, from the codes.
inline double Off(const std::vector<Tensor>& got, const std::vector<Tensor>& want) {
  double error = 0, size = 0;
  for (int64_t i = 0; i < want[0].size(); ++i) {
    error += std::pow(got[0].GetDouble(i) - want[0].GetDouble(i), 2);
    size += std::pow(want[0].GetDouble(i), 2);
  }
  EXPECT_GT(size, 0);
  return std::sqrt(error / size);
}

inline Graph WithFloatProbs(Graph g, ValueId codes) {
  const ir::Node q = g.node(g.value(codes).producer);
  const ir::Node dq = g.node(g.value(codes).uses[0].node);
  g.ReplaceAllUses(dq.output(), q.input(0));
  return g;
}

}  // namespace octavo::passes::coded

#endif  // OCTAVO_TESTS_PASSES_CODED_ATTENTION_H_
