// Mixtures of experts: products by one matrix for each expert as Linears (canonical/experts.cc), matrices that Gather takes as codes
// (quantize/tables.cc), routers that stay float (experts.h), and what the report says of them.
#include "octavo/passes/experts.h"

#include <gmock/gmock.h>

#include <cmath>
#include <format>

#include "octavo/passes/fusions/fusions.h"
#include "octavo/passes/pattern/pattern.h"
#include "octavo/passes/pipelines.h"
#include "octavo/passes/quantize/quantize.h"
#include "octavo/passes/report.h"
#include "octavo/tests/passes/canonical_support.h"

namespace octavo::passes::canonical {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kExperts = 3;

struct Mixture : Builder {
  ValueId Product(ValueId x, int64_t k, int64_t n, bool bias = true) {
    const ValueId y = Op1(Op::kMatMul, {x, W({kExperts, k, n}, start += 0.1f)});
    return bias ? Op1(Op::kAdd, {y, W({kExperts, 1, n}, start)}) : y;
  }
  ValueId Summed(ValueId y) {
    const ValueId share = In("share", {kExperts, Sym("s"), 1});
    return Op1(Op::kReduceSum, {Op1(Op::kMul, {y, share}), Axis({0})}, Attrs{{"keepdims", int64_t{0}}});
  }
  float start = 0.1f;
};

TEST(CanonicalExperts, WhatAllExpertsReadIsOneLinear) {
  for (size_t rank : {2u, 3u}) {
    Mixture m;
    const ValueId x = rank == 2 ? m.In("x", {Sym("s"), 8}) : m.In("x", {1, Sym("s"), 8});
    m.Out(m.Product(x, 8, 4, rank == 3));
    const std::string ops = Check(m.g, ExpertLinears);
    EXPECT_EQ(ops, rank == 3 ? "MatMul Add Reshape Transpose" : "MatMul Reshape Transpose");
  }
}

TEST(CanonicalExperts, AnExpandIsSharedToo) {
  Mixture m;
  const ValueId x = m.In("x", {1, 5, 8});
  m.Out(m.Product(m.Op1(Op::kExpand, {x, m.Axis({kExperts, 1, 1})}), 8, 4));
  EXPECT_EQ(Check(m.g, ExpertLinears), "MatMul Add Reshape Transpose");
}

TEST(CanonicalExperts, WhatEachExpertReadsIsALinearEach) {
  Mixture m;
  const ValueId hidden = m.Op1(Op::kRelu, {m.Product(m.In("x", {1, Sym("s"), 8}), 8, 4)});
  m.Out(m.Product(hidden, 4, 8));
  EXPECT_EQ(Check(m.g, ExpertLinears),
            "MatMul Add Reshape Transpose Relu Split MatMul Add MatMul Add MatMul Add Concat");
  Mixture summed;  // no product before it, but the sum behind it
  summed.Out(summed.Summed(summed.Product(summed.In("x", {kExperts, Sym("s"), 4}), 4, 8, false)));
  EXPECT_EQ(Check(summed.g, ExpertLinears), "Split MatMul MatMul MatMul Concat Mul ReduceSum");
}

TEST(CanonicalExperts, DimsInFrontStay) {
  Mixture shared;
  shared.Out(shared.Product(shared.In("x", {2, 1, Sym("s"), 8}), 8, 4));
  EXPECT_EQ(Check(shared.g, ExpertLinears), "MatMul Add Reshape Transpose");
  Mixture each;
  const ValueId hidden = each.Op1(Op::kRelu, {each.Product(each.In("x", {2, 1, Sym("s"), 8}), 8, 4)});
  each.Out(each.Product(hidden, 4, 8));
  EXPECT_EQ(Check(each.g, ExpertLinears),
            "MatMul Add Reshape Transpose Relu Split MatMul Add MatMul Add MatMul Add Concat");
  Mixture wide;  // a dim of 1 in front of the matrices
  wide.Out(wide.Op1(Op::kMatMul, {wide.In("x", {2, 1, Sym("s"), 8}), wide.W({1, kExperts, 8, 4})}));
  EXPECT_EQ(Check(wide.g, ExpertLinears), "MatMul Reshape Transpose");
}

// W x for columns x, as `einsum('eck,bk->bec')` of one token is written.
TEST(CanonicalExperts, MatricesOnTheLeft) {
  Mixture m;
  const ValueId x = m.In("x", {Sym("s"), 1, 8, 1});
  const ValueId hidden = m.Op1(Op::kRelu, {m.Op1(Op::kMatMul, {m.W({kExperts, 4, 8}), x})});
  m.Out(m.Op1(Op::kMatMul, {m.W({kExperts, 6, 4}), hidden}));
  EXPECT_EQ(Check(m.g, ExpertLinears),
            "Transpose MatMul Reshape Transpose Transpose Relu Transpose Split MatMul MatMul MatMul Concat Transpose");
}

// Products that neither meet each other nor a sum are experts where a router chooses among as many.
TEST(CanonicalExperts, ARouterTellsThatTheyAre) {
  for (const int64_t choices : {kExperts, kExperts + 1}) {
    Mixture m;
    const ValueId scores = m.Op1(Op::kMatMul, {m.In("t", {5, 8}), m.W({8, choices})});
    const ValueId best = m.Op1(Op::kArgMax, {scores}, Attrs{{"axis", int64_t{-1}}, {"keepdims", int64_t{1}}});
    m.Out(m.Op1(Op::kGatherElements, {scores, best}, Attrs{{"axis", int64_t{1}}}), "chosen");
    m.Out(m.Product(m.In("x", {kExperts, Sym("s"), 4}), 4, 8, false));
    EXPECT_EQ(Check(m.g, ExpertLinears).find("Split") != std::string::npos, choices == kExperts);
  }
}

TEST(CanonicalExperts, EachExpertHasANameOfItsOwn) {
  Mixture m;
  m.Out(m.Summed(m.Product(m.In("x", {kExperts, Sym("s"), 4}), 4, 8)));
  PassRun run;
  ASSERT_TRUE(ExpertLinears(m.g, run));
  std::vector<std::string> names;
  for (const Candidate& c : TakeInventory(m.g).candidates) {
    if (c.kind == "linear") names.push_back(c.nodes[0].substr(c.nodes[0].find(" (")));
  }
  EXPECT_EQ(names, (std::vector<std::string>{" (expert 0)", " (expert 1)", " (expert 2)"}));
}

TEST(CanonicalExperts, OthersStay) {
  const auto stays = [](SymShape x, ir::Shape w) {
    Mixture m;
    m.Out(m.Op1(Op::kMatMul, {m.In("x", std::move(x)), m.W(std::move(w))}));
    return Check(m.g, ExpertLinears) == "MatMul";
  };
  EXPECT_TRUE(stays({3, Sym("s"), 4}, {3, 4, 8}));        // alone, as positions of heads
  EXPECT_TRUE(stays({2, 3, Sym("s"), 4}, {3, 4, 8}));     // alone too
  EXPECT_TRUE(stays({2, 1, Sym("s"), 4}, {2, 3, 4, 8}));  // two kinds of matrices
  EXPECT_TRUE(stays({1, Sym("s"), 4}, {1, 4, 8}));        // one matrix
  EXPECT_TRUE(stays({1, Sym("s"), 4}, {257, 4, 1}));      // too many
  EXPECT_FALSE(stays({1, Sym("s"), 4}, {256, 4, 1}));
}

// What tokens were sent to: y = x W[index] for weights [E,k,n], or as W[index] x for [E,n,k].
struct Sent : Builder {
  static constexpr int64_t kRows = 16, kColumns = 24;
  enum class Form { kRight, kLeft, kFlipped, kNd };
  explicit Sent(Form form) {
    const ValueId index = In("index", form == Form::kNd ? SymShape{5, 1} : SymShape{5}, DType::kS64);
    const bool left = form == Form::kLeft || form == Form::kFlipped;
    const ValueId w = left ? W({kExperts, kColumns, kRows}) : W({kExperts, kRows, kColumns});
    const ValueId x = form == Form::kLeft ? In("x", {5, kRows, 1}) : In("x", {5, 1, kRows});
    ValueId taken = Op1(form == Form::kNd ? Op::kGatherND : Op::kGather, {w, index});
    if (form == Form::kFlipped) taken = Transpose(taken, {0, 2, 1});
    Out(form == Form::kLeft ? Op1(Op::kMatMul, {taken, x}) : Op1(Op::kMatMul, {x, taken}));
  }
};

TEST(Experts, MatricesThatTokensWereSentToBecomeCodes) {
  for (const Sent::Form form : {Sent::Form::kRight, Sent::Form::kLeft, Sent::Form::kFlipped, Sent::Form::kNd}) {
    const Sent m(form);
    Graph g = m.g;
    PassRun run;
    ASSERT_TRUE(ir::Inference::Run(g));
    Report report = TakeInventory(g);
    ASSERT_TRUE(quantize::QuantizeTables(g, run).value_or(false));
    Judge(g, run, report);
    ASSERT_EQ(report.candidates.size(), 1u);
    EXPECT_EQ(report.candidates[0].kind, "experts");
    EXPECT_EQ(report.candidates[0].status, "quantized");
    EXPECT_EQ(report.candidates[0].nodes.size(), 2u);
    // One scale for each output: half a step of each of the weights that are summed. Weights are below 2.5, x below 2.
    const double tolerance = Sent::kRows * 2.0 * 2.5 / 127 / 2;
    const ir::TensorMap in = RandomInputs(m.g, {}, 1);
    const auto want = ir::Interpret(m.g, in), got = ir::Interpret(g, in);
    ASSERT_TRUE(want && got);
    EXPECT_LE(WorstDifference((*want)[0], (*got)[0]), tolerance);
    EXPECT_GT(WorstDifference((*want)[0], (*got)[0]), 0);
    int scales = 0;
    for (NodeId id : g.NodesInOrder()) {
      const ir::Tensor* t = g.node(id).op == Op::kConstant ? g.ConstantOf(g.node(id).output()) : nullptr;
      if (t == nullptr || t->dtype() != DType::kF32) continue;
      EXPECT_EQ(t->size(), kExperts * Sent::kColumns);
      ++scales;
    }
    EXPECT_EQ(scales, 1);
  }
}

// In blocks, and with activations in codes, experts are columns of a product with all of them, which an index takes.
TEST(Experts, AreColumnsOfOneProduct) {
  const std::string blocks = "DequantizeLinear MatMul Reshape", tokens = "QuantizeTokens QuantizedLinear Reshape";
  for (const Sent::Form form : {Sent::Form::kRight, Sent::Form::kLeft, Sent::Form::kFlipped, Sent::Form::kNd}) {
    for (const bool in_blocks : {true, false}) {
      const Sent m(form);
      Graph g = m.g;
      PassRun run;
      ASSERT_TRUE(ir::Inference::Run(g));
      Report report = TakeInventory(g);
      ASSERT_TRUE((in_blocks ? quantize::Weights8 : quantize::Dynamic)(g, run).value_or(false));
      const std::string ops = Ops(g), made = in_blocks ? blocks : tokens;
      EXPECT_EQ(ops, form == Sent::Form::kNd ? "Squeeze " + made + " GatherND Unsqueeze"
                                             : "Squeeze " + made + " Unsqueeze GatherND Unsqueeze");
      if (in_blocks) {
        ASSERT_TRUE(ir::Inference::Run(g));
        ASSERT_TRUE(pattern::ApplyRules(fusions::BlockRules(), g, run).value_or(false));
      }
      Judge(g, run, report);
      ASSERT_EQ(report.candidates.size(), 1u);
      EXPECT_EQ(report.candidates[0].kind + " " + report.candidates[0].status, "experts quantized");
      // Half a step of 127 of each weight (below 2.5) times x (below 2); x has steps of its range / 255 times the weights, or none.
      const double tolerance = Sent::kRows * (2.0 * 2.5 / 127 / 2 + (in_blocks ? 0.0 : 2.5 * 4.0 / 255 / 2));
      const ir::TensorMap in = RandomInputs(m.g, {}, 1);
      const auto want = ir::Interpret(m.g, in), got = ir::Interpret(g, in);
      ASSERT_TRUE(want && got);
      EXPECT_LE(WorstDifference((*want)[0], (*got)[0]), tolerance);
      EXPECT_GT(WorstDifference((*want)[0], (*got)[0]), 0);
    }
  }
}

TEST(Experts, OneIndexForAllRowsTakesColumnsToo) {
  for (const bool fixed : {true, false}) {
    Builder b;
    const ValueId taken = b.Op1(Op::kGather, {b.W({kExperts, 16, 25}), b.In("index", {}, DType::kS64)});
    b.Out(b.Op1(Op::kMatMul, {b.In("x", fixed ? SymShape{5, 16} : SymShape{2, Sym("s"), 16}), taken}));
    Graph g = b.g;
    PassRun run;
    ASSERT_TRUE(ir::Inference::Run(g));
    ASSERT_TRUE(quantize::Weights4(g, run).value_or(false));
    EXPECT_EQ(Ops(g), "DequantizeLinear MatMul Reshape Gather");
    const ir::TensorMap in = RandomInputs(b.g, {}, 1);
    const auto want = ir::Interpret(b.g, in), got = ir::Interpret(g, in);
    ASSERT_TRUE(want && got);
    EXPECT_LE(WorstDifference((*want)[0], (*got)[0]), 16 * 2.0 * 2.5 / 15);  // a step of each weight at most
    EXPECT_GT(WorstDifference((*want)[0], (*got)[0]), 0);
  }
}

// Rows that broadcast, views between, and matrices that are no numbers.
TEST(Experts, WhatHasNoColumnsKeepsItsForm) {
  const auto stays = [](const Builder& b, const std::string& in_blocks, const std::string& of_tokens) {
    for (const bool blocks : {true, false}) {
      Graph g = b.g;
      PassRun run;
      EXPECT_TRUE(ir::Inference::Run(g));
      EXPECT_FALSE((blocks ? quantize::Weights4 : quantize::Dynamic)(g, run).value_or(true));
      EXPECT_THAT(run.log.empty() ? "" : run.log[0], HasSubstr(blocks ? in_blocks : of_tokens));
    }
  };
  const auto product = [](SymShape x, SymShape index, Tensor w) {
    Builder b;
    const ValueId taken =
        b.Op1(Op::kGather, {b.g.AddConstant(std::move(w)), b.In("index", std::move(index), DType::kS64)});
    b.Out(b.Op1(Op::kMatMul, {b.In("x", std::move(x)), taken}));
    return b;
  };
  const Tensor w = Tensor::Zeros(DType::kF32, {kExperts, 16, 24});
  stays(product({1, 1, 16}, {5}, w), "", "");                // one row for all
  stays(product({Sym("a"), 1, 16}, {Sym("b")}, w), "", "");  // which it may be
  stays(product({5, 3, 16}, {5}, w), "", "");                // several rows of each
  stays(product({1, 16}, {5}, w), "", "");
  Tensor infinite = Tensor::Zeros(DType::kF32, {kExperts, 16, 24});
  infinite.mutable_as<float>()[500] = INFINITY;
  stays(product({5, 1, 16}, {5}, infinite), "has no blocks: its weight has values that are not finite",
        "stays float: its weight has values that are not finite");
}

TEST(Experts, WhatStaysFloatSaysWhy) {
  const auto reason = [](Graph g, bool quantize) {
    PassRun run;
    EXPECT_TRUE(ir::Inference::Run(g));
    Report report = TakeInventory(g);
    if (quantize) {
      EXPECT_TRUE(quantize::QuantizeTables(g, run));
    }
    Judge(g, run, report);
    EXPECT_EQ(report.candidates.at(0).status, "left");
    return report.candidates.at(0).reason;
  };
  const Sent m(Sent::Form::kRight);
  EXPECT_THAT(reason(m.g, false),
              HasSubstr("this recipe leaves experts in float, or their matrices are too small to pay"));
  Sent half(Sent::Form::kRight), wild(Sent::Form::kRight);
  const auto replace = [](Graph& g, Tensor w) {
    const NodeId gather = g.value(g.inputs()[0]).uses.front().node;
    g.SetInput(gather, 0, g.AddConstant(std::move(w)));
  };
  replace(half.g, Tensor::Zeros(DType::kF16, {kExperts, Sent::kRows, Sent::kColumns}));
  for (const ValueId v : half.g.inputs()) {
    const ir::Type& type = half.g.value(v).type;
    if (type.dtype == DType::kF32) half.g.SetType(v, {DType::kF16, type.shape});
  }
  EXPECT_THAT(reason(half.g, true), HasSubstr("its weights are no float32, which alone is quantized"));
  Tensor w = Tensor::Zeros(DType::kF32, {kExperts, Sent::kRows, Sent::kColumns});
  w.mutable_as<float>()[100] = INFINITY;
  replace(wild.g, std::move(w));
  EXPECT_THAT(reason(wild.g, true), HasSubstr("(not finite)"));
}

// An Einsum of taken matrices becomes a product behind views of them: the scale stands in front of these then.
TEST(Experts, MatricesBehindOtherViewsBecomeCodesToo) {
  Builder b;
  const ValueId taken = b.Op1(Op::kGather, {b.W({kExperts, 16, 24}), b.In("index", {5, 2}, DType::kS64)});
  const ValueId rows = b.Op1(Op::kReshape, {b.Transpose(taken, {0, 2, 1, 3}), b.Axis({5, 16, 48})});
  b.Out(b.Op1(Op::kMatMul, {b.In("x", {5, 1, 16}), rows}));
  Graph g = b.g;
  PassRun run;
  ASSERT_TRUE(ir::Inference::Run(g));
  Report report = TakeInventory(g);
  ASSERT_TRUE(quantize::QuantizeTables(g, run).value_or(false));
  Judge(g, run, report);
  ASSERT_EQ(report.candidates.size(), 1u);
  EXPECT_EQ(report.candidates[0].kind + " " + report.candidates[0].status, "experts quantized");
  Builder sum;  // and before it becomes one
  sum.Out(sum.Op1(
      Op::kEinsum,
      {sum.In("x", {5, 16}), sum.Op1(Op::kGather, {sum.W({kExperts, 16, 24}), sum.In("index", {5, 2}, DType::kS64)})},
      Attrs{{"equation", std::string("td,tkdf->tkf")}}));
  EXPECT_EQ(TakeInventory(sum.g).candidates.at(0).kind, "experts");
  const ir::TensorMap in = RandomInputs(b.g, {}, 1);
  const auto want = ir::Interpret(b.g, in), got = ir::Interpret(g, in);
  ASSERT_TRUE(want && got);
  EXPECT_LE(WorstDifference((*want)[0], (*got)[0]), 16 * 2.0 * 2.5 / 127 / 2);
  EXPECT_GT(WorstDifference((*want)[0], (*got)[0]), 0);
}

// Every product with a constant of matrices is in the list, with why it is no Linear.
TEST(Experts, OtherProductsAreListed) {
  const auto reason = [](const Builder& b) {
    const std::vector<OtherProduct> all = OtherProducts(b.g);
    return all.size() == 1 ? all[0].reason : std::format("{} entries", all.size());
  };
  Builder heads, left, einsum, conv, codes, outer;
  heads.Out(heads.Op1(Op::kMatMul, {heads.In("x", {3, 5, 8}), heads.W({3, 8, 4})}));
  EXPECT_EQ(
      reason(heads),
      "its constant has a matrix for each entry of a batch, as positions of heads: octavo quantizes products with "
      "one matrix");
  left.Out(left.Op1(Op::kMatMul, {left.W({4, 5}), left.In("x", {3, 5, 8})}));
  EXPECT_EQ(reason(left), "its constant is the left operand: what it multiplies is no row of activations");
  einsum.Out(einsum.Op1(Op::kEinsum, {einsum.In("x", {5, 8}), einsum.W({8, 8})},
                        Attrs{{"equation", std::string("ab,bb->ab")}}));
  EXPECT_EQ(reason(einsum), "octavo knows no products that Einsum 'ab,bb->ab' is");
  conv.Out(conv.Op1(Op::kConv, {conv.In("x", {1, 8, 5, 5}), conv.W({4, 8, 1, 1})}));
  EXPECT_EQ(
      reason(conv),
      "it is a convolution: recipes int8 and dynamic quantize those of 64 channels and filters or more, over more than "
      "one position; beside depthwise ones dynamic leaves kernel 1");
  const ValueId q = codes.g.AddConstant(Tensor::Zeros(DType::kS8, {3, 8, 4}));
  const ValueId scale = codes.g.AddConstant(Tensor::ScalarF32(0.1f));
  codes.Out(codes.Op1(Op::kMatMul, {codes.In("x", {3, 5, 8}), codes.Op1(Op::kDequantizeLinear, {q, scale})}));
  EXPECT_EQ(reason(codes), "its constant is codes already, and is no matrix of its own: it is multiplied as floats");
  Builder blocks;  // which a Linear has too
  const ValueId rows = blocks.g.AddConstant(Tensor::Zeros(DType::kU8, {4, 32}));
  const ValueId steps = blocks.g.AddConstant(Tensor::Zeros(DType::kF32, {4, 2}));
  const ValueId floats =
      blocks.Op1(Op::kDequantizeLinear, {rows, steps}, Attrs{{"axis", int64_t{1}}, {"block_size", int64_t{16}}});
  blocks.Out(blocks.Op1(Op::kMatMul, {blocks.In("x", {5, 32}), blocks.Transpose(floats, {1, 0})}));
  EXPECT_EQ(reason(blocks), "0 entries");
  EXPECT_EQ(TakeInventory(blocks.g).candidates.at(0).kind, "linear");
  Builder none;  // no channels, no numbers
  none.Out(
      none.Op1(Op::kConv, {none.In("x", {1, 0, 5, 5}), none.g.AddConstant(Tensor::Zeros(DType::kF32, {4, 0, 3, 3}))}));
  EXPECT_EQ(reason(none), "0 entries");
  // Frequencies and positions: no weights.
  outer.Out(outer.Op1(Op::kMatMul, {outer.W({1, 16, 1}), outer.In("x", {1, 1, 5})}));
  EXPECT_EQ(reason(outer), "0 entries");
  Report report = TakeInventory(heads.g);
  Judge(heads.g, {}, report);
  ASSERT_EQ(report.candidates.size(), 1u);
  EXPECT_EQ(report.candidates[0].kind + " " + report.candidates[0].status, "product left");
}

TEST(Experts, ARouterMayChooseByArgMax) {
  const auto routes = [](bool chooses) {
    Builder b;
    const ValueId x = b.In("x", {5, 8});
    const ValueId scores = b.Op1(Op::kMatMul, {x, b.W({8, 4})});
    const ValueId best = b.Op1(Op::kArgMax, {scores}, Attrs{{"axis", int64_t{-1}}, {"keepdims", int64_t{1}}});
    b.Out(chooses ? b.Op1(Op::kGatherElements, {scores, best}, Attrs{{"axis", int64_t{1}}})
                  : b.Cast(best, DType::kS32));
    return IsRouter(b.g, b.g.value(scores).producer);
  };
  EXPECT_TRUE(routes(true));
  EXPECT_FALSE(routes(false));  // a class that goes out of the model
}

}  // namespace
}  // namespace octavo::passes::canonical
