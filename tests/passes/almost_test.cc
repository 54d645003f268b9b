// Graphs that a rule would take if it asked less: one for each guard without which the result would be wrong (tests/mutants). Each
// stays as it is, and its twin that does mean the same fuses, so that nothing else keeps it from fusing.
#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "maker.h"
#include "octavo/ir/infer.h"
#include "octavo/passes/fusions/fusions.h"

namespace octavo::passes::fusions {
namespace {

using ir::DType;
using ir::SymShape;
using ir::Tensor;

struct Maker : passes::Maker {
  Maker() : passes::Maker(3, 18) {}
  ValueId Input(const char* name, SymShape shape, DType type = DType::kF32) {
    return g.AddInput(name, {type, std::move(shape)});
  }
  ValueId Reals(ir::Shape shape) {
    Tensor t = Tensor::Empty(DType::kF32, std::move(shape));
    for (float& v : t.mutable_as<float>()) v = std::uniform_real_distribution<float>(0.5f, 1.5f)(rng);
    return g.AddConstant(std::move(t));
  }
  ValueId Transpose(ValueId x, std::vector<int64_t> perm) {
    return Node(Op::kTranspose, {x}, {{"perm", std::move(perm)}});
  }
  ValueId Norm(ValueId x) {
    return Node(Op::kLayerNormalization, {x, Reals({8}), Reals({8})}, {{"axis", int64_t{-1}}});
  }
};

using Pass = Result<bool> (*)(Graph&, PassRun&);

// How many nodes of the kind the pass leaves or makes.
int CountAfter(Pass pass, Op op, const std::function<void(Maker&)>& build) {
  Maker m;
  build(m);
  EXPECT_TRUE(ir::Inference::Run(m.g).has_value());
  PassRun context;
  const auto changed = pass(m.g, context);
  EXPECT_TRUE(changed.has_value()) << changed.error().message;
  int count = 0;
  for (NodeId id : m.g.NodesInOrder()) count += m.g.node(id).op == op;
  return count;
}

TEST(Almost, AGeluHasAHalf) {
  const auto gelu = [](float half) {
    return [half](Maker& m) {
      const ValueId x = m.Input("x", {2, 9});
      const ValueId erf = m.Node(Op::kErf, {m.Node(Op::kDiv, {x, m.Real(1.41421356f)})});
      const ValueId sum = m.Node(Op::kAdd, {erf, m.Real(1.0f)});
      m.g.AddOutput("y", m.Node(Op::kMul, {m.Node(Op::kMul, {x, sum}), m.Real(half)}));
    };
  };
  EXPECT_EQ(CountAfter(FuseFloat, Op::kGelu, gelu(0.5f)), 1);
  EXPECT_EQ(CountAfter(FuseFloat, Op::kGelu, gelu(0.6f)), 0);
}

TEST(Almost, ASumThatBroadcastsIsNoSkip) {
  const auto sum = [](SymShape skip) {
    return [skip](Maker& m) {
      m.g.AddOutput("y", m.Norm(m.Node(Op::kAdd, {m.Input("x", {2, 3, 8}), m.Input("skip", skip)})));
    };
  };
  EXPECT_EQ(CountAfter(FuseFloat, Op::kSkipLayerNorm, sum({2, 3, 8})), 1);
  EXPECT_EQ(CountAfter(FuseFloat, Op::kSkipLayerNorm, sum({1, 3, 8})), 0);
  EXPECT_EQ(CountAfter(FuseFloat, Op::kSkipLayerNorm, sum({ir::Dim::Symbol("n"), 3, 8})), 0);
}

// x - mean over its deviation; `wanted`: what in between leaves the graph or is read by another node.
TEST(Almost, WhatLiesInsideAndIsWantedStays) {
  enum class Wanted { kNothing, kOutput, kReader };
  const auto chain = [](Wanted wanted) {
    return [wanted](Maker& m) {
      const ValueId x = m.Input("x", {2, 3, 8});
      const ValueId d = m.Node(Op::kSub, {x, m.Node(Op::kReduceMean, {x, m.Ints({-1})})});
      const ValueId variance = m.Node(Op::kReduceMean, {m.Node(Op::kMul, {d, d}), m.Ints({-1})});
      const ValueId root = m.Node(Op::kSqrt, {m.Node(Op::kAdd, {variance, m.Real(1e-5f)})});
      const ValueId normal = m.Node(Op::kDiv, {d, root});
      m.g.AddOutput("y", m.Node(Op::kAdd, {m.Node(Op::kMul, {normal, m.Reals({8})}), m.Reals({8})}));
      if (wanted == Wanted::kOutput) m.g.AddOutput("normal", normal);
      if (wanted == Wanted::kReader) m.g.AddOutput("root", m.Node(Op::kNeg, {root}));
    };
  };
  EXPECT_EQ(CountAfter(FuseFloat, Op::kLayerNormalization, chain(Wanted::kNothing)), 1);
  EXPECT_EQ(CountAfter(FuseFloat, Op::kLayerNormalization, chain(Wanted::kOutput)), 0);
  EXPECT_EQ(CountAfter(FuseFloat, Op::kLayerNormalization, chain(Wanted::kReader)), 0);
}

// q, k, v of 4 heads; `scores` varies what stands before the softmax.
std::function<void(Maker&)> Attention(const std::function<ValueId(Maker&, ValueId)>& scores,
                                      std::vector<int64_t> back = {}) {
  return [=](Maker& m) {
    const ValueId q = m.Input("q", {2, 4, 5, 6}), k = m.Input("k", {2, 4, 5, 6}), v = m.Input("v", {2, 4, 5, 6});
    const ValueId s = scores(m, m.Node(Op::kMatMul, {q, m.Transpose(k, {0, 1, 3, 2})}));
    ValueId o = m.Node(Op::kMatMul, {m.Node(Op::kSoftmax, {s}, {{"axis", int64_t{-1}}}), v});
    if (!back.empty()) o = m.Node(Op::kReshape, {m.Transpose(o, back), m.Ints({2, 5, 24})});
    m.g.AddOutput("y", o);
  };
}

TEST(Almost, ACapHasOneConstant) {
  const auto cap = [](float by, float times) {
    return Attention([=](Maker& m, ValueId s) {
      return m.Node(Op::kMul, {m.Node(Op::kTanh, {m.Node(Op::kDiv, {s, m.Real(by)})}), m.Real(times)});
    });
  };
  EXPECT_EQ(CountAfter(FuseFloat, Op::kSdpa, cap(5, 5)), 1);
  EXPECT_EQ(CountAfter(FuseFloat, Op::kSdpa, cap(5, 4)), 0);
}

TEST(Almost, HeadsAreMergedByOneTranspose) {
  const auto plain = [](Maker&, ValueId s) { return s; };
  EXPECT_EQ(CountAfter(FuseFloat, Op::kReshape, Attention(plain, {0, 2, 1, 3})), 0);
  EXPECT_EQ(CountAfter(FuseFloat, Op::kReshape, Attention(plain, {0, 2, 3, 1})), 1);  // columns between heads
}

TEST(Almost, VIsRepeatedAsK) {
  const auto grouped = [](int64_t groups_of_v) {
    return [groups_of_v](Maker& m) {
      const auto repeated = [&](const char* name, int64_t groups) {
        const ValueId five = m.Node(Op::kUnsqueeze, {m.Input(name, {2, groups, 5, 6}), m.Ints({2})});
        const ValueId wide = m.Node(Op::kExpand, {five, m.Ints({2, groups, 4 / groups, 5, 6})});
        return m.Node(Op::kReshape, {wide, m.Ints({2, 4, 5, 6})});
      };
      const ValueId q = m.Input("q", {2, 4, 5, 6}), k = repeated("k", 2), v = repeated("v", groups_of_v);
      const ValueId s = m.Node(Op::kMatMul, {q, m.Transpose(k, {0, 1, 3, 2})});
      m.g.AddOutput("y", m.Node(Op::kMatMul, {m.Node(Op::kSoftmax, {s}, {{"axis", int64_t{-1}}}), v}));
    };
  };
  EXPECT_EQ(CountAfter(FuseFloat, Op::kExpand, grouped(2)), 0);
  EXPECT_EQ(CountAfter(FuseFloat, Op::kExpand, grouped(1)), 2);
}

// x of u8 [2,5,16] times [16,8].
ValueId Linear(Maker& m, ValueId x, ValueId scale, ValueId zero) {
  Tensor w = Tensor::Empty(DType::kS8, {16, 8});
  for (uint8_t& v : w.mutable_as<uint8_t>()) v = static_cast<uint8_t>(m.rng());
  return m.Node(Op::kLinearInt8, {x, scale, zero, m.g.AddConstant(std::move(w)), m.Reals({8})});
}

TEST(Almost, BranchesOfOneProductHaveOneZeroPoint) {
  const auto branches = [](int64_t zero_of_k) {
    return [zero_of_k](Maker& m) {
      const ValueId x = m.Input("x", {2, 5, 16}, DType::kU8), scale = m.Real(0.02f);
      const ValueId q = Linear(m, x, scale, m.Zero(DType::kU8, 100));
      const ValueId k = Linear(m, x, scale, m.Zero(DType::kU8, zero_of_k));
      const ValueId v = Linear(m, x, scale, m.Zero(DType::kU8, 100));
      const ValueId s = m.Node(Op::kMatMul, {q, m.Transpose(k, {0, 2, 1})});
      m.g.AddOutput("y", m.Node(Op::kMatMul, {m.Node(Op::kSoftmax, {s}, {{"axis", int64_t{-1}}}), v}));
    };
  };
  EXPECT_EQ(CountAfter(FuseQkvInt8, Op::kLinearInt8, branches(100)), 0);
  EXPECT_EQ(CountAfter(FuseQkvInt8, Op::kLinearInt8, branches(90)), 1);
}

TEST(Almost, AResidualHasEveryRow) {
  const auto residual = [](SymShape shape) {
    return [shape](Maker& m) {
      const ValueId y = Linear(m, m.Input("x", {2, 5, 16}, DType::kU8), m.Real(0.02f), m.Zero(DType::kU8, 100));
      m.g.AddOutput("y", m.Node(Op::kAdd, {y, m.Input("residual", shape)}));
    };
  };
  EXPECT_EQ(CountAfter(FuseInt8, Op::kAdd, residual({2, 5, 8})), 0);
  EXPECT_EQ(CountAfter(FuseInt8, Op::kAdd, residual({1, 5, 8})), 1);
}

TEST(Almost, TwinsHaveOneEpsilon) {
  const auto twins = [](float epsilon) {
    return [epsilon](Maker& m) {
      const ValueId x = m.Input("x", {2, 3, 8}), skip = m.Input("skip", {2, 3, 8});
      m.g.AddOutput("y", m.Node(Op::kSkipLayerNorm, {x, skip, m.Reals({8}), m.Reals({8})}, {{"epsilon", epsilon}}));
      const NodeId coded =
          m.g.AddNode(Op::kNormQuant, {x, skip, m.Reals({8}), m.Reals({8}), m.Real(0.1f), m.Zero(DType::kU8, 9)}, 2,
                      {{"epsilon", 1e-5f}}, "coded");
      m.g.DropOutput(coded, 0);
      m.g.AddOutput("q", m.g.node(coded).output(1));
    };
  };
  EXPECT_EQ(CountAfter(FuseTwinNorms, Op::kSkipLayerNorm, twins(1e-5f)), 0);
  EXPECT_EQ(CountAfter(FuseTwinNorms, Op::kSkipLayerNorm, twins(1e-6f)), 1);
}

}  // namespace
}  // namespace octavo::passes::fusions
