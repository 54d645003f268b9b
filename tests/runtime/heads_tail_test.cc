// Norms of heads, rotary embeddings and appends behind products are the end of the products' step, with the bits of steps of their own.
#include "octavo/runtime/heads_tail.h"

#include <gtest/gtest.h>

#include <random>

#include "octavo/runtime/cache_state.h"
#include "octavo/runtime/model.h"

namespace octavo::runtime {
namespace {

using ir::DType;
using ir::Graph;
using ir::Op;
using ir::Tensor;
using ir::ValueId;

constexpr int64_t kDepth = 96;

struct Form {
  int64_t heads = 4, size = 64;
  bool norm = false, rotary = true, append = true;
  bool codes = false;          // products of codes instead of weights in blocks
  bool packed = false;         // q, k and v by one product and a Split, q read as rows
  bool table_later = false;    // of the rotary embedding
  bool batch_of_table = true;  // else one for all
  bool table_widens = false;   // its batch is another
};

class Maker {
 public:
  explicit Maker(const Form& f) : f_(f) { g.info.opsets[""] = 23; }
  Graph g;
  std::vector<ValueId> products;

  Tensor Random(DType type, const ir::Shape& shape) {
    Tensor t = Tensor::Zeros(type, shape);
    if (type == DType::kF32) {
      for (float& v : t.mutable_as<float>()) v = std::uniform_real_distribution<float>(-2, 2)(gen_);
    } else {
      for (size_t i = 0; i < t.byte_size(); ++i) t.mutable_data()[i] = static_cast<std::byte>(gen_());
    }
    return t;
  }
  ValueId Constant(DType type, const ir::Shape& shape) { return g.AddConstant(Random(type, shape)); }
  ValueId Node(Op op, std::vector<ValueId> in, ir::Attrs attrs = {}) {
    return g.node(g.AddNode(op, std::move(in), 1, std::move(attrs))).output();
  }
  ValueId Product(ValueId x, int64_t n) {
    const ValueId bias = Constant(DType::kF32, {n});
    if (f_.codes) {
      Tensor zero = Tensor::Zeros(DType::kU8, {});
      zero.mutable_data()[0] = std::byte{117};
      products.push_back(
          Node(Op::kQuantizedLinear, {x, g.AddConstant(Tensor::ScalarF32(0.01f)), g.AddConstant(zero),
                                      Constant(DType::kS8, {kDepth, n}), Constant(DType::kF32, {n}), bias}));
    } else {
      products.push_back(Node(Op::kLinearBlocked,
                              {x, Constant(DType::kU4, {kDepth, n}), Constant(DType::kF32, {3, n}), ValueId{}, bias},
                              {{"block_size", int64_t{32}}, {"transposed", int64_t{0}}, {"x_bits", int64_t{8}}}));
    }
    return products.back();
  }
  ValueId Heads(ValueId y) {
    y = Node(Op::kReshape, {y, g.AddConstant(Tensor::S64({4}, {0, 0, f_.heads, f_.size}))});
    if (f_.norm) y = Node(Op::kRMSNormalization, {y, Constant(DType::kF32, {f_.size})}, {{"axis", int64_t{-1}}});
    return Node(Op::kTranspose, {y}, {{"perm", std::vector<int64_t>{0, 2, 1, 3}}});
  }
  ValueId Rotary(ValueId x, ValueId cos, ValueId sin) {
    const auto slice = [&](int64_t begin, int64_t end) {
      return Node(Op::kSlice, {x, g.AddConstant(Tensor::S64({1}, {begin})), g.AddConstant(Tensor::S64({1}, {end})),
                               g.AddConstant(Tensor::S64({1}, {3}))});
    };
    const ValueId turned =
        Node(Op::kConcat, {Node(Op::kNeg, {slice(f_.size / 2, 1000)}), slice(0, f_.size / 2)}, {{"axis", int64_t{-1}}});
    return Node(Op::kAdd, {Node(Op::kMul, {x, cos}), Node(Op::kMul, {turned, sin})});
  }

 private:
  Form f_;
  std::mt19937 gen_{7};
};

const ir::Dim kBatch = ir::Dim::Symbol("b"), kRows = ir::Dim::Symbol("s"), kPast = ir::Dim::Symbol("p");

void Attend(Maker& m, const Form& f) {
  Graph& g = m.g;
  const ValueId x = g.AddInput("x", {f.codes ? DType::kU8 : DType::kF32, ir::SymShape{kBatch, kRows, kDepth}});
  const ir::SymShape table{f.table_widens     ? ir::Dim::Symbol("t")
                           : f.batch_of_table ? kBatch
                                              : ir::Dim(1),
                           1, kRows, f.size};
  ValueId cos = g.AddInput("cos", {DType::kF32, table});
  const ValueId sin = g.AddInput("sin", {DType::kF32, table});
  std::vector<ValueId> qkv;
  if (f.packed) {
    const int64_t n = f.heads * f.size;
    const ir::NodeId split = g.AddNode(Op::kSplit, {m.Product(x, 3 * n), g.AddConstant(Tensor::S64({3}, {n, n, n}))}, 3,
                                       {{"axis", int64_t{-1}}});
    qkv = g.node(split).outputs;
  } else {
    for (int i = 0; i < 3; ++i) qkv.push_back(m.Product(x, f.heads * f.size));
  }
  if (f.table_later) cos = m.Node(Op::kCos, {cos});
  for (size_t i = 0; i < 3; ++i) {
    if (i == 0 && f.packed) {
      g.AddOutput("q", qkv[i]);
      continue;
    }
    ValueId y = m.Heads(qkv[i]);
    if (f.rotary && i < 2) y = m.Rotary(y, cos, sin);
    const std::string name = std::string(1, "qkv"[i]);
    if (f.append && i > 0) {
      const ValueId past = g.AddInput("past." + name, {DType::kF32, ir::SymShape{kBatch, f.heads, kPast, f.size}});
      y = m.Node(Op::kConcat, {past, y}, {{"axis", int64_t{2}}});
    }
    g.AddOutput(f.append && i > 0 ? "present." + name : name, y);
  }
}

// Steps; the outputs are those of the graph whose products are outputs, too, by hand and in a state.
size_t Steps(const Form& f) {
  Maker m(f);
  Attend(m, f);
  Graph apart = m.g;
  for (size_t i = 0; i < m.products.size(); ++i) apart.AddOutput("p" + std::to_string(i), m.products[i]);
  auto truth = Model::Compile(std::move(apart), {.threads = 1});
  EXPECT_TRUE(truth) << truth.error().message;
  size_t steps = 0;
  for (const int threads : {1, 2, 5}) {
    auto model = Model::Compile(m.g, {.threads = threads});
    EXPECT_TRUE(model) << model.error().message;
    steps = model->KernelOfEachStep().size();
    CacheState state;
    ir::TensorMap caches;
    for (const char* name : {"past.k", "past.v"}) {
      if (f.append) caches[name] = Tensor::Zeros(DType::kF32, {2, f.heads, 0, f.size});
    }
    for (const int64_t rows : {5, 1, 1, 130, 1}) {
      const int64_t of_table = f.batch_of_table ? 2 : 1;
      ir::TensorMap inputs = {{"x", m.Random(f.codes ? DType::kU8 : DType::kF32, {2, rows, kDepth})},
                              {"cos", m.Random(DType::kF32, {of_table, 1, rows, f.size})},
                              {"sin", m.Random(DType::kF32, {of_table, 1, rows, f.size})}};
      const auto kept = f.append ? model->Run(inputs, state) : model->Run(inputs);
      inputs.insert(caches.begin(), caches.end());
      const auto want = truth->Run(inputs), got = model->Run(inputs);
      EXPECT_TRUE(want && got && kept) << (got ? "" : got.error().message);
      if (!want || !got || !kept) return 0;
      for (size_t i = 0; i < got->size(); ++i) {
        EXPECT_TRUE((*got)[i].SameBits((*want)[i]))
            << "output " << i << ", " << rows << " rows, " << threads << " threads";
        EXPECT_TRUE(!(*kept)[i].defined() || (*kept)[i].SameBits((*want)[i])) << "in a state, output " << i;
      }
      if (f.append) {
        caches["past.k"] = (*want)[1], caches["past.v"] = (*want)[2];
        EXPECT_TRUE(state.Tensors()[0].SameBits((*want)[1]) && state.Tensors()[1].SameBits((*want)[2])) << rows;
      }
    }
  }
  return steps;
}

TEST(HeadsTail, NormRotaryAndAppendAreOneStepWithTheProducts) {
  for (const int64_t size : {64, 128, 96, 80, 32}) {
    EXPECT_EQ(Steps({.size = size}), 1u) << size;
    EXPECT_EQ(Steps({.heads = 3, .size = size, .norm = true}), 1u) << size;
  }
  EXPECT_EQ(Steps({.norm = true, .rotary = false, .append = false}), 1u);
  EXPECT_EQ(Steps({.rotary = false}), 1u);
  EXPECT_EQ(Steps({.append = false, .batch_of_table = false}), 1u);
}

TEST(HeadsTail, PartsOfAPackedProductToo) {
  EXPECT_EQ(Steps({.packed = true}), 1u);
  EXPECT_EQ(Steps({.size = 80, .rotary = false, .packed = true}), 1u);
}

TEST(HeadsTail, OfProductsOfCodesToo) {
  EXPECT_EQ(Steps({.codes = true}), 3u);  // a step for each product
  EXPECT_EQ(Steps({.size = 80, .norm = true, .append = false, .codes = true}), 3u);
  EXPECT_EQ(Steps({.codes = true, .packed = true}), 1u);
}

TEST(HeadsTail, WhatComesLaterStaysAStep) {
  EXPECT_GT(Steps({.append = false, .table_later = true}), 1u);
  EXPECT_GT(Steps({.append = false, .table_widens = true}), 1u);
}

}  // namespace
}  // namespace octavo::runtime
