// layer_norm_terms.cc: a norm as two terms, as TensorFlow and Keras write it, fires within its bound; other axes and vectors keep it.
#include <gtest/gtest.h>

#include "octavo/tests/passes/rule_graphs.h"

namespace octavo::passes::fusions {
namespace {

struct Form {
  bool keras = false;  // -mean * f + beta instead of beta - mean * f, 1 / root instead of Reciprocal, vectors [1,1,8]
  int64_t axis = -1;
  bool beta = true;     // false: with keras alone
  bool wanted = false;  // the factor is read by another, too
};

void Terms(Graphs& m, Form form = {}) {
  const ValueId x = m.Input("x", {2, 3, 8});
  const auto mean = [&](ValueId v) {
    return m.Node(Op::kReduceMean, {v, m.Ints({form.axis})}, {{"keepdims", int64_t{1}}});
  };
  const auto vector = [&](float at) {
    return form.keras ? m.g.AddConstant(ir::Tensor::F32({1, 1, 8}, std::vector<float>(8, at))) : m.Vector(8, at);
  };
  const ValueId of_x = mean(x), d = m.Node(Op::kSub, {x, of_x});
  const ValueId root = m.Node(Op::kSqrt, {m.Node(Op::kAdd, {mean(m.Node(Op::kMul, {d, d})), m.Real(1e-3f)})});
  const ValueId inverse = form.keras ? m.Node(Op::kDiv, {m.Real(1.0f), root}) : m.Node(Op::kReciprocal, {root});
  const ValueId factor = m.Node(Op::kMul, {inverse, vector(0.5f)}), beta = vector(-0.2f);
  ValueId offset;
  if (form.keras) {
    const ValueId back = m.Node(Op::kMul, {m.Node(Op::kNeg, {of_x}), factor});
    offset = form.beta ? m.Node(Op::kAdd, {back, beta}) : back;
  } else {
    const ValueId moved = m.Node(Op::kMul, {of_x, factor});
    offset = form.beta ? m.Node(Op::kSub, {beta, moved}) : m.Node(Op::kNeg, {moved});
  }
  m.g.AddOutput("y", m.Node(Op::kAdd, {m.Node(Op::kMul, {x, factor}), offset}));
  if (form.wanted) m.g.AddOutput("factor", m.Node(Op::kNeg, {factor}));
}

TEST(LayerNormTermsRule, Fires) {
  for (const Form form : {Form{}, Form{.beta = false}, Form{.keras = true}, Form{.keras = true, .beta = false}}) {
    Graphs b(3, 18);
    Terms(b, form);
    const Fused f = Fuse(b.g);
    EXPECT_EQ(CountOf(f.graph, Op::kLayerNormalization), 1) << DeepestReason(f, "layer_norm_terms");
    EXPECT_EQ(CountOf(f.graph, Op::kReduceMean), 0);
    EXPECT_LT(Difference(b.g, f.graph, {{"x", Random({2, 3, 8}, 1)}}), 4e-6);  // terms of up to 4, 2^-22 of them
  }
}

TEST(LayerNormTermsRule, WhatStays) {
  EXPECT_EQ(CountAfter(FuseFloat, Op::kLayerNormalization, [](Graphs& m) { Terms(m, {.axis = 1}); }), 0);
  EXPECT_EQ(CountAfter(FuseFloat, Op::kLayerNormalization, [](Graphs& m) { Terms(m, {.wanted = true}); }), 0);
}

TEST(LayerNormTermsRule, RefusesWithASentence) {
  Refuses("its axis 1 is not the last one", LayerNormTerms(true), [](Graphs& m) { Terms(m, {.axis = 1}); });
  const auto with = [](ir::Shape gamma) {
    return [gamma](Graphs& m) {
      const ValueId x = m.In({2, 3, 8}), of_x = m.Node(Op::kReduceMean, {x, m.Ints({-1})});
      const ValueId d = m.Node(Op::kSub, {x, of_x});
      const ValueId var = m.Node(Op::kReduceMean, {m.Node(Op::kMul, {d, d}), m.Ints({-1})});
      const ValueId root = m.Node(Op::kSqrt, {m.Node(Op::kAdd, {var, m.Real(1e-3f)})});
      const ValueId factor = m.Node(Op::kMul, {m.Node(Op::kReciprocal, {root}), m.Filled(gamma)});
      const ValueId offset = m.Node(Op::kSub, {m.Filled({8}), m.Node(Op::kMul, {of_x, factor})});
      m.g.AddOutput("y", m.Node(Op::kAdd, {m.Node(Op::kMul, {x, factor}), offset}));
    };
  };
  const std::string sentence = "gamma or beta is no vector of the last dimension";
  Refuses(sentence, LayerNormTerms(true), with({1}));           // one number for all
  Refuses(sentence, LayerNormTerms(true), with({3, 8}));        // one vector for each row
  Refuses(sentence, LayerNormTerms(true), with({1, 1, 1, 8}));  // would give the result a dimension more
}

}  // namespace
}  // namespace octavo::passes::fusions
