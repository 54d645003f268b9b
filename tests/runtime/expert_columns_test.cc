// Columns of the experts that rows were sent to, out of a product with those of all: one step with the bits of the single nodes, which reads the chosen
// experts alone.
#include <gtest/gtest.h>

#include <cstdio>
#include <random>
#include <vector>

#include "octavo/runtime/expert_rows.h"
#include "octavo/runtime/model.h"

namespace octavo::runtime {
namespace {

using ir::DType;
using ir::Op;
using ir::Shape;
using ir::Tensor;
using ir::ValueId;

constexpr int64_t kExperts = 5, kDepth = 70;  // blocks of 32, the last one shorter

struct Form {
  DType codes = DType::kU4;
  bool zeros = true, bias = true, transposed = false, shown = false;
  int64_t n = 40, x_bits = 8;
  size_t dims = 1;  // of the index; 0: one for all rows
  DType index = DType::kS64;
};

ValueId Made(ir::Graph& g, Op op, std::vector<ValueId> in, ir::Attrs attrs = {}) {
  return g.node(g.AddNode(op, std::move(in), 1, std::move(attrs))).output();
}

Tensor Random(DType type, Shape shape, std::mt19937& rng) {
  Tensor t = Tensor::Zeros(type, std::move(shape));
  if (type == DType::kF32) {
    for (float& v : t.mutable_as<float>()) v = std::uniform_real_distribution<float>(-1, 1)(rng);
  } else {
    for (uint8_t& v : t.mutable_as<uint8_t>()) v = static_cast<uint8_t>(rng());
  }
  return t;
}

// `shown`: what stands between is an output too, so that each node is a step.
ir::Graph Product(const Form& f, std::mt19937 rng) {
  ir::Graph g;
  ir::SymShape rows, which;
  for (size_t i = 0; i < std::max<size_t>(f.dims, 1); ++i) rows.push_back(ir::Dim::Symbol("t" + std::to_string(i)));
  for (size_t i = 0; i < f.dims; ++i) which.push_back(ir::Dim::Symbol("i" + std::to_string(i)));
  if (f.dims > 0) which.push_back(1);
  std::vector<int64_t> split(rows.size(), 0);
  split.insert(split.end(), {kExperts, f.n});
  rows.push_back(kDepth);
  const ValueId x = g.AddInput("x", {DType::kF32, rows}), index = g.AddInput("index", {f.index, which});
  const int64_t all = kExperts * f.n, blocks = (kDepth + 31) / 32;
  const auto matrix = [&](int64_t lines, DType type) {
    return g.AddConstant(Random(type, f.transposed ? Shape{all, lines} : Shape{lines, all}, rng));
  };
  std::vector<ValueId> in{x, matrix(kDepth, f.codes), matrix(blocks, DType::kF32)};
  in.push_back(f.zeros ? matrix(blocks, f.codes) : ValueId{});
  in.push_back(f.bias ? g.AddConstant(Random(DType::kF32, {all}, rng)) : ValueId{});
  while (!in.back().valid()) in.pop_back();
  const ValueId wide =
      Made(g, Op::kLinearBlocked, in,
           {{"block_size", int64_t{32}}, {"transposed", int64_t{f.transposed ? 1 : 0}}, {"x_bits", f.x_bits}});
  const auto rank = static_cast<int64_t>(split.size());
  const ValueId target = g.AddConstant(Tensor::S64({rank}, split));
  const ValueId apart = Made(g, Op::kReshape, {wide, target});
  if (f.shown) g.AddOutput("apart", apart);
  g.AddOutput("y", f.dims == 0 ? Made(g, Op::kGather, {apart, index}, {{"axis", rank - 2}})
                               : Made(g, Op::kGatherND, {apart, index}, {{"batch_dims", rank - 2}}));
  return g;
}

// The kernel of the one step, whose results and sentences are those of the single nodes. "": several steps.
std::string Served(Form f, Shape x, Shape index, const std::vector<int64_t>& which = {3, 0, -2, 1, 4, 4}) {
  static const uint32_t seed = std::random_device{}();
  printf("random seed %u\n", seed);
  std::mt19937 rng(seed);
  std::string name;
  Tensor chosen = Tensor::Zeros(f.index, f.dims == 0 ? Shape{} : index);
  for (int64_t i = 0; i < chosen.size(); ++i) {
    const int64_t e = which[static_cast<size_t>(i) % which.size()];
    if (f.index == DType::kS32) {
      chosen.mutable_as<int32_t>()[static_cast<size_t>(i)] = static_cast<int32_t>(e);
    } else {
      chosen.mutable_as<int64_t>()[static_cast<size_t>(i)] = e;
    }
  }
  x.push_back(kDepth);
  const ir::TensorMap inputs = {{"x", Random(DType::kF32, std::move(x), rng)}, {"index", chosen}};
  for (const int threads : {1, 3}) {
    auto model = Model::Compile(Product(f, rng), {.threads = threads});
    Form apart = f;
    apart.shown = true;
    auto single = Model::Compile(Product(apart, rng), {.threads = 1});
    EXPECT_TRUE(model && single);
    if (!model || !single) return {};
    for (int run = 0; run < 2; ++run) {  // the second one by a plan
      const auto want = single->Run(inputs), got = model->Run(inputs);
      EXPECT_EQ(want.has_value(), got.has_value()) << (got ? "" : got.error().message);
      if (want && got) {
        EXPECT_TRUE(got->back().SameBits(want->back()));
      } else if (!want && !got) {
        const auto said = [](const std::string& s) {  // behind the kernel's name
          const size_t at = s.find("): ");
          return at == std::string::npos ? s : s.substr(at);
        };
        EXPECT_EQ(said(got.error().message), said(want.error().message));
      }
    }
    const auto names = model->KernelOfEachStep();
    name = names.size() == 1 ? std::string(names[0].substr(0, names[0].find(' '))) : "";
    EXPECT_GT(single->KernelOfEachStep().size(), 1u);
  }
  return name;
}

TEST(ExpertColumns, OneStepWithTheBitsOfTheSingleNodes) {
  for (const DType codes : {DType::kU4, DType::kS4, DType::kU8, DType::kS8}) {
    for (const int64_t x_bits : {0, 8}) {
      for (const bool transposed : {false, true}) {
        for (const int64_t n : {40, 7, 64}) {  // of 4 bits and 7 columns experts begin within a byte
          SCOPED_TRACE(testing::Message()
                       << quant::Name(codes) << " x_bits " << x_bits << " turned " << transposed << " n " << n);
          const Form f{
              .codes = codes, .zeros = n == 40, .bias = n != 7, .transposed = transposed, .n = n, .x_bits = x_bits};
          const std::string name =
              std::string("experts_blocked") + (quant::BitsOf(codes) == 4 ? "4" : "8") + (x_bits == 8 ? "_int8" : "");
          for (const int64_t tokens : {1, 6, 150}) EXPECT_EQ(Served(f, {tokens}, {tokens, 1}), name);
        }
      }
    }
  }
}

TEST(ExpertColumns, SeveralDimsAndNoRows) {
  const std::string name = "experts_blocked4_int8";
  EXPECT_EQ(Served({.dims = 2}, {3, 2}, {3, 2, 1}), name);
  EXPECT_EQ(Served({.dims = 3}, {2, 3, 2}, {2, 3, 2, 1}), name);
  EXPECT_EQ(Served({}, {0}, {0, 1}), name);
  EXPECT_EQ(Served({.dims = 0}, {9}, {}), name);  // one expert for all
  EXPECT_EQ(Served({.dims = 0, .index = DType::kS32}, {9}, {}, {-1}), name);
  EXPECT_EQ(Served({}, {40}, {40, 1}, {2}), name);  // in order, of one expert
  EXPECT_EQ(Served({}, {6}, {6, 1}, {0, 0, 1, 2, 4}), name);
}

TEST(ExpertColumns, WhatDoesNotFitIsWhatTheSingleNodesSay) {
  const std::string name = "experts_blocked4_int8";
  EXPECT_EQ(Served({}, {6}, {6, 1}, {5}), name);  // no such expert
  EXPECT_EQ(Served({}, {6}, {6, 1}, {-6, 0}), name);
  EXPECT_EQ(Served({}, {6}, {5, 1}), name);
  EXPECT_EQ(Served({}, {1}, {6, 1}), name);
  EXPECT_EQ(Served({.dims = 2}, {3, 2}, {3, 3, 1}), name);
  EXPECT_EQ(Served({.shown = true}, {6}, {6, 1}), "");
}

// Which weights a run reads: those of the experts with rows.
TEST(ExpertRows, TheChosenAlone) {
  const auto chosen = [](std::vector<int64_t> index, int64_t each = 1) {
    const auto n = static_cast<int64_t>(index.size());
    const auto rows = SortByExpert(Tensor::S64({n}, std::move(index)), each, 5);
    return rows ? rows->Chosen() : std::vector<size_t>{99};
  };
  EXPECT_EQ(chosen({3, 0, 3}), (std::vector<size_t>{0, 3}));
  EXPECT_EQ(chosen({-1}, 7), (std::vector<size_t>{4}));
  EXPECT_EQ(chosen({}), std::vector<size_t>());
  EXPECT_EQ(chosen({5}), std::vector<size_t>{99});
  EXPECT_EQ(chosen({0, -6}), std::vector<size_t>{99});
}

TEST(ExpertRows, ThoseOfAnExpertStandTogetherInTheirOrder) {
  const auto rows = SortByExpert(Tensor::S64({5}, {3, 0, 3, 1, 0}), 1, 4);
  ASSERT_TRUE(rows);
  EXPECT_EQ(rows->order, (std::vector<int64_t>{1, 4, 3, 0, 2}));
  EXPECT_EQ(rows->first, (std::vector<int64_t>{0, 2, 3, 3, 5}));
  EXPECT_FALSE(rows->in_order);
}

}  // namespace
}  // namespace octavo::runtime
