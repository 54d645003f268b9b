// Sentences of refusals that no other test reads (refused_sentences_test.py): for each a graph that is refused by it and by nothing before it.
#include <gtest/gtest.h>

#include <functional>
#include <limits>

#include "octavo/kernels/catalog.h"
#include "octavo/passes/diagnose.h"
#include "octavo/passes/pipelines.h"
#include "octavo/passes/quantize/quantize.h"
#include "octavo/passes/report.h"
#include "octavo/tests/passes/rule_graphs.h"

namespace octavo::passes {
namespace {

using fusions::Rule;
using ir::Dim;
using ir::DType;
using ir::SymShape;
using ir::Tensor;

// What every rule may say.
TEST(Refusals, OfTheMatcher) {
  const auto gelu = [](Graphs& m, ValueId x, ValueId divisor, ValueId again) {
    const ValueId erf = m.Node(Op::kErf, {m.Node(Op::kDiv, {x, divisor})});
    return m.Node(Op::kMul, {m.Node(Op::kMul, {again, m.Node(Op::kAdd, {erf, m.Real(1)})}), m.Real(0.5f)});
  };
  Refuses("'x' is graph input 'in1' here but graph input 'in0' there", fusions::GeluErf(), [&](Graphs& m) {
    const ValueId x = m.In({2, 3}), other = m.In({2, 3});
    m.g.AddOutput("y", gelu(m, x, m.Real(1.41421356f), other));
  });
  Refuses("'sqrt2' is not a constant: it is graph input 'in1'", fusions::GeluErf(), [&](Graphs& m) {
    const ValueId x = m.In({2, 3}), divisor = m.In({});
    m.g.AddOutput("y", gelu(m, x, divisor, x));
  });
  Refuses("'q' (graph input 'in0') has dtype f64", fusions::Sdpa(), [](Graphs& m) {
    const ValueId q = m.In({1, 2, 5, 4}, DType::kF64);
    m.Attention(q, m.In({1, 2, 4, 5}, DType::kF64), m.In({1, 2, 5, 4}, DType::kF64));
  });
  Refuses("'sqrt2' has 3 elements, not one", fusions::GeluErf(), [&](Graphs& m) {
    const ValueId x = m.In({2, 3});
    m.g.AddOutput("y", gelu(m, x, m.Filled({3}, 1.41421356f), x));
  });
  Refuses("'sqrt2' is 1.4142, not 1.4142135", fusions::GeluErf(), [&](Graphs& m) {
    const ValueId x = m.In({2, 3});
    m.g.AddOutput("y", gelu(m, x, m.Real(1.4142f), x));
  });
  Refuses("is also a graph output and must be kept", fusions::GeluErf(), [&](Graphs& m) {
    const ValueId x = m.In({2, 3});
    const ValueId y = gelu(m, x, m.Real(1.41421356f), x);
    m.g.AddOutput("y", y);
    m.g.AddOutput("inner", m.g.Producer(y)->input(0));
  });
  Refuses("is also used by Neg", fusions::GeluErf(), [&](Graphs& m) {
    const ValueId x = m.In({2, 3});
    const ValueId y = gelu(m, x, m.Real(1.41421356f), x);
    m.g.AddOutput("y", y);
    m.g.AddOutput("z", m.Node(Op::kNeg, {m.g.Producer(y)->input(0)}));
  });
  Refuses("'erf' should be Erf but is Tanh", fusions::GeluErf(), [&](Graphs& m) {
    const ValueId x = m.In({2, 3});
    const ValueId tanh = m.Node(Op::kTanh, {m.Node(Op::kDiv, {x, m.Real(1.41421356f)})});
    m.g.AddOutput("y", m.Node(Op::kMul, {m.Node(Op::kMul, {x, m.Node(Op::kAdd, {tanh, m.Real(1)})}), m.Real(0.5f)}));
  });
  Refuses("its perm is [0,1,3,2], not [0,2,1,3]", fusions::SdpaSplitQ(Op::kSdpa), [](Graphs& m) {
    const ValueId q = m.Perm(m.Reshape(m.In({1, 2, 20}), {1, 2, 4, 5}), {0, 1, 3, 2});
    m.g.AddOutput("y", m.Node(Op::kSdpa, {q, m.In({1, 2, 5, 4}), m.In({1, 2, 5, 4})}, m.Heads(2, 2)));
  });
}

// A rule that asks for shapes, as none of octavo's does at the moment.
Rule Shaped(std::vector<std::string> x, std::vector<std::string> y) {
  pattern::RuleBuilder r("shaped", "x + y -> x");
  const pattern::Var a = r.Input("a", {.shape = std::move(x)}), b = r.Input("b", {.shape = std::move(y)});
  r.Root(r.Op("sum", Op::kAdd, {a, b}));
  r.Guard([](const pattern::Match&) { return pattern::NotWorth("never"); });
  r.Build([=](Rewriter&, const pattern::Match& m) { return m[a]; });
  return r.Finish();
}

TEST(Refusals, OfShapes) {
  const auto refuses = [](const std::string& sentence, std::vector<std::string> x, std::vector<std::string> y,
                          SymShape of_x, SymShape of_y) {
    Graphs m;
    m.g.AddOutput("s", m.Node(Op::kAdd, {m.In(std::move(of_x)), m.In(std::move(of_y))}));
    ASSERT_TRUE(ir::Inference::Run(m.g));
    const pattern::Attempt a = pattern::TryMatch(Shaped(std::move(x), std::move(y)), m.g, m.g.outputs()[0].value, true);
    EXPECT_EQ(a.reason, sentence);
  };
  refuses("'a' has too few dimensions", {"...", "M", "N"}, {"N"}, {4}, {4});
  refuses("'a' (graph input 'in0') has shape [3,4]", {"N"}, {"N"}, {3, 4}, {4});
  refuses("dimension N of 'b' is 1, elsewhere 4", {"N"}, {"N"}, {4}, {1});
  refuses("never", {"N"}, {"N"}, {4}, {4});
  Graphs m;
  const NodeId clip = m.g.AddNode(Op::kClip, {m.In({2}), {}, m.Real(1)}, 1, {}, "clip");
  m.g.AddOutput("y", m.g.node(clip).output());
  pattern::RuleBuilder r("clipped", "");
  r.Root(r.Open(r.Op("clip", Op::kClip, {r.Input("x"), r.Scalar("least")})));
  r.Build([](Rewriter&, const pattern::Match&) { return ValueId{}; });
  EXPECT_EQ(pattern::TryMatch(r.Finish(), m.g, m.g.outputs()[0].value, true).reason, "'least' is absent");
}

TEST(Refusals, OfTheCatalog) {
  using kernels::Arch;
  EXPECT_EQ(kernels::ChooseSdpa({.q = DType::kF32,
                                 .k = DType::kF32,
                                 .v = DType::kF32,
                                 .p = DType::kF32,
                                 .out = DType::kU8,
                                 .heads = 1,
                                 .kv_heads = 1,
                                 .head_size = 8,
                                 .value_head_size = 8},
                                Arch::kScalar)
                .refusal,
            "float attention writes f32, not u8");
}

TEST(Refusals, OfProjections) {
  const auto reason = [](const std::function<void(Graphs&)>& build) {
    Graphs m;
    build(m);
    EXPECT_TRUE(ir::Inference::Run(m.g));
    for (const Candidate& c : TakeInventory(m.g).candidates) {
      if (!c.reason.empty()) return c.reason;
    }
    return std::string();
  };
  const auto attend = [](Graphs& m, ValueId q, ValueId k, ValueId v) {
    m.g.AddOutput("y",
                  m.Node(Op::kMatMul, {m.Node(Op::kSoftmax, {m.Node(Op::kMatMul, {q, m.Perm(k, {0, 2, 1})})}), v}));
  };
  const auto linear = [](Graphs& m, ValueId x) { return m.Node(Op::kMatMul, {x, m.Filled({4, 4})}); };
  EXPECT_EQ(reason([&](Graphs& m) {
              const ValueId x = m.In({1, 5, 4}), w = m.In({4, 4});
              attend(m, linear(m, x), m.Node(Op::kMatMul, {x, w}), linear(m, x));
            }),
            "k's projection MatMul 'n2' has a weight that is not a constant: it is graph input 'in1'; store the weight "
            "in the file as an "
            "initializer");
  EXPECT_NE(reason([&](Graphs& m) {
              const ValueId x = m.In({1, 5, 4}), w = m.Node(Op::kMul, {m.Filled({4, 4}), m.In({4, 4})});
              attend(m, linear(m, x), m.Node(Op::kMatMul, {x, w}), linear(m, x));
            }).find("it is computed by Mul 'n"),
            std::string::npos);
  EXPECT_EQ(reason([&](Graphs& m) {
              const ValueId x = m.In({1, 5, 4});
              attend(m, linear(m, x), linear(m, x), m.In({1, 5, 4}));
            }),
            "no Linear makes v: it comes from graph input 'in1'");
  EXPECT_NE(
      reason([&](Graphs& m) {
        const ValueId x = m.In({1, 5, 4}), other = m.In({1, 5, 4}), third = m.In({1, 5, 4});
        attend(m, linear(m, x), linear(m, other), linear(m, third));
      }).find("q, k and v do not read one activation: q reads graph input 'in0', k reads graph input 'in1', v reads"),
      std::string::npos);
  EXPECT_EQ(Describe(Graph(), {}), "an absent input");
  EXPECT_NE(reason([&](Graphs& m) {
              const ValueId x = m.In({1, 5, 4});
              const ValueId s = m.Node(Op::kMatMul, {linear(m, x), m.Perm(linear(m, x), {0, 2, 1})});
              const ValueId p = m.Node(Op::kSoftmax, {m.Node(Op::kClip, {s, m.Real(-1)})});
              m.g.AddOutput("y", m.Node(Op::kMatMul, {p, linear(m, x)}));
            }).find("before their Softmax, which no form of attention here has"),
            std::string::npos);
}

TEST(Refusals, OfAttentionOfOtherKinds) {
  const auto reason = [](auto scores_of, auto probabilities_of) {
    Graphs m;
    const ValueId x = m.In({1, 3, 5, 4});
    const ValueId s = m.Node(Op::kMatMul, {x, m.Perm(x, {0, 1, 3, 2})});
    const auto softmax = [&](ValueId v) { return m.Node(Op::kSoftmax, {v}); };
    const ValueId p = probabilities_of(m, softmax(scores_of(m, s)), softmax);
    m.g.AddOutput("y", m.Node(Op::kMatMul, {p, x}));
    EXPECT_TRUE(ir::Inference::Run(m.g));
    std::string all;
    for (const AttentionCore& core : FindAttentionCores(m.g)) all += WhyNotAttention(m.g, core);
    return all;
  };
  const auto same_s = [](Graphs&, ValueId s) { return s; };
  const auto same_p = [](Graphs&, ValueId p, auto) { return p; };
  const auto mix = [](Graphs& m, ValueId v) {
    return m.Perm(m.Node(Op::kMatMul, {m.Perm(v, {0, 2, 3, 1}), m.Filled({3, 3})}), {0, 3, 1, 2});
  };
  EXPECT_EQ(reason(same_s, same_p), "");
  EXPECT_NE(reason(mix, same_p).find("gives each head scores of all heads before the Softmax (talking heads), so no"),
            std::string::npos);
  EXPECT_NE(reason([](Graphs& m, ValueId s) { return m.Node(Op::kConv, {s, m.Filled({3, 3, 1, 1})}); }, same_p)
                .find("gives each head scores of all heads before the Softmax (talking heads), so no head"),
            std::string::npos);
  EXPECT_NE(reason(same_s, [&](Graphs& m, ValueId p, auto) { return mix(m, p); })
                .find("gives each head probabilities of all heads (talking heads), so no head has an attention"),
            std::string::npos);
  EXPECT_NE(
      reason(
          [](Graphs& m, ValueId s) {
            return m.Node(Op::kConcat, {s, m.Node(Op::kMul, {s, m.Real(2)})}, {{"axis", int64_t{-1}}});
          },
          [](Graphs& m, ValueId p, auto) { return m.Node(Op::kSlice, {p, m.Ints({0}), m.Ints({5}), m.Ints({3})}); })
          .find("joins scores of several products before their Softmax, and attention here has one product"),
      std::string::npos);
  const auto hide = [](Graphs& m, ValueId s) {
    return m.Node(Op::kWhere, {m.Node(Op::kGreater, {s, m.Real(0)}), s, m.Real(-100)});
  };
  EXPECT_NE(reason(hide, same_p).find("which of them are hidden (sparse attention), and a mask here is another value"),
            std::string::npos);
  EXPECT_NE(reason([](Graphs& m, ValueId s) { return m.Node(Op::kMul, {s, m.In({5, 5})}); }, same_p)
                .find("multiplies or divides the scores by more than one number a head, which is no scale and no mask"),
            std::string::npos);
  EXPECT_NE(
      reason(same_s, [](Graphs& m, ValueId p, auto softmax) { return m.Node(Op::kAdd, {p, softmax(m.In({5, 5}))}); })
          .find("(gated attention), and attention here has one Softmax"),
      std::string::npos);
}

TEST(Refusals, OfPipelines) {
  const auto error = [](const char* json) { return PipelineFromJson(json).error().message; };
  EXPECT_EQ(error("[]"), "the pipeline is not a JSON object");
  EXPECT_NE(error(R"({"octavo_pipeline": 2})").find("the pipeline does not say \"octavo_pipeline\": 1"),
            std::string::npos);
  const std::string none = error(R"({"octavo_pipeline": 1})"),
                    number = error(R"({"octavo_pipeline": 1, "passes": [1]})");
  EXPECT_TRUE(none == "the pipeline has no list \"passes\"" ||
              none == "the pipeline's \"passes\" must be a list of names")
      << none;
  EXPECT_TRUE(number == "the pipeline's \"passes\" must be names" ||
              number == "the pipeline's \"passes\" must be a list of names")
      << number;
  EXPECT_EQ(error(R"({"octavo_pipeline": 1, "passes": ["calibrate", "calibrate"]})"),
            "the pipeline calibrates more than once");
  EXPECT_EQ(PipelineOfGraph(Graph()).error().message,
            "the file carries no pipeline: it was not made by octavo optimize");
  EXPECT_NE(PipelineOfRecipe("int9").error().message.find("there is no recipe 'int9': use float"), std::string::npos);
}

}  // namespace
}  // namespace octavo::passes
