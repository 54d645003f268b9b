// Which Linears belong to one attention (passes/attention.h), whatever stands between them and it; what becomes of them, and what the report says of the rest.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "octavo/passes/attention.h"
#include "octavo/passes/pipelines.h"
#include "octavo/passes/report.h"
#include "octavo/tests/passes/rule_graphs.h"

namespace octavo::passes {
namespace {

using ::testing::HasSubstr;

// Heads of 4 over sequences [2,s,16].
struct Streams : Graphs {
  ValueId Linear(ValueId x, int64_t columns = 16) {
    return Node(Op::kMatMul, {x, g.AddConstant(Random({16, columns}, rng()))});
  }
  ValueId Heads(ValueId x) { return Perm(Reshape(x, {2, -1, 4, 4}), {0, 2, 1, 3}); }
  ValueId Join(std::vector<ValueId> parts, int64_t axis = 2) {
    return Node(Op::kConcat, std::move(parts), {{"axis", axis}});
  }
  void Attend(ValueId q, ValueId k, ValueId v, const char* name = "y") {
    const ValueId s = Node(Op::kMul, {Node(Op::kMatMul, {q, Perm(k, {0, 1, 3, 2})}), Real(0.5f)});
    const ValueId o = Node(Op::kMatMul, {Node(Op::kSoftmax, {s}, {{"axis", int64_t{-1}}}), v});
    g.AddOutput(name, Reshape(Perm(o, {0, 2, 1, 3}), {2, -1, 16}));
  }
  // x * c + (-x2, x1) * s, as rotary embeddings turn pairs.
  ValueId Turned(ValueId x) {
    const auto half = [&](int64_t from) {
      return Node(Op::kSlice, {x, Ints({from}), Ints({from + 2}), Ints({3}), Ints({1})});
    };
    const ValueId turned = Join({Node(Op::kNeg, {half(2)}), half(0)}, 3);
    return Node(Op::kAdd, {Node(Op::kMul, {x, Reals({5, 4})}), Node(Op::kMul, {turned, Reals({5, 4})})});
  }
  ValueId RmsOf(ValueId x) { return Node(Op::kRMSNormalization, {x, Reals({4})}, {{"axis", int64_t{-1}}}); }
};

struct Seen {
  std::vector<Candidate> groups;  // qkv, kv, qk, qv, shared
  double difference = 0;
};

// The float recipe; also that its numbers stay.
Seen Optimized(const std::function<void(Streams&)>& build) {
  Streams m;
  build(m);
  Graph after = m.g;
  PassRun run;
  EXPECT_TRUE(RunPasses({"canonical"}, after, run));
  Report report = TakeInventory(after);
  EXPECT_TRUE(RunPasses({"fuse_float", "qkv_float", "canonical"}, after, run));
  Judge(after, run, report);
  Seen seen;
  for (const Candidate& c : report.candidates) {
    if (c.kind.starts_with("q") || c.kind == "kv" || c.kind == "shared") seen.groups.push_back(c);
  }
  ir::TensorMap inputs;
  for (ValueId v : m.g.inputs()) {
    ir::Shape shape;
    for (const ir::Dim& d : *m.g.value(v).type.shape) shape.push_back(d.number());
    inputs[m.g.value(v).name] = Random(std::move(shape), 7 + v.index);
  }
  seen.difference = Difference(m.g, after, inputs);
  return seen;
}

// "qkv 3 fused, kv 1 fused"
std::string Summary(const Seen& seen) {
  std::string s;
  for (const Candidate& c : seen.groups)
    s += (s.empty() ? "" : ", ") + c.kind + " " + std::to_string(c.nodes.size()) + " " + c.status;
  return s;
}

constexpr double kRounding = 1e-5;  // of sums of 16 products of about 1, several times

TEST(Groups, EachStreamOfAJointAttentionIsOne) {
  const Seen seen = Optimized([](Streams& m) {
    std::vector<ValueId> q, k, v;
    for (int64_t length : {5, 7, 3}) {
      const ValueId x = m.In({2, length, 16});
      q.push_back(m.RmsOf(m.Heads(m.Linear(x))));
      k.push_back(m.RmsOf(m.Heads(m.Linear(x))));
      v.push_back(m.Heads(m.Linear(x)));
    }
    m.Attend(m.Join(q), m.Join(k), m.Join(v));
  });
  EXPECT_EQ(Summary(seen), "qkv 3 fused, qkv 3 fused, qkv 3 fused");
  EXPECT_LT(seen.difference, kRounding);
}

TEST(Groups, ANormBehindTheRotaryEmbeddingHidesNothing) {
  const Seen seen = Optimized([](Streams& m) {
    const ValueId x = m.In({2, 5, 16});
    m.Attend(m.RmsOf(m.Turned(m.Heads(m.Linear(x)))), m.RmsOf(m.Turned(m.Heads(m.Linear(x)))), m.Heads(m.Linear(x)));
  });
  EXPECT_EQ(Summary(seen), "qkv 3 fused");
  EXPECT_LT(seen.difference, kRounding);
}

TEST(Groups, TwoOperandsOfThreeAreOneToo) {
  const auto attention = [](const char* of_q, const char* of_k, const char* of_v) {
    return Optimized([&](Streams& m) {
      const ValueId x = m.Input("x", {2, 5, 16}), z = m.Input("z", {2, 5, 16});
      const auto from = [&](const char* name) { return m.Heads(m.Linear(*name == 'x' ? x : z)); };
      m.Attend(from(of_q), from(of_k), from(of_v));
    });
  };
  EXPECT_EQ(Summary(attention("z", "x", "x")), "kv 2 fused");
  EXPECT_EQ(Summary(attention("x", "x", "z")), "qk 2 fused, qkv 1 left");  // and why v is not in it
  EXPECT_EQ(Summary(attention("x", "z", "x")), "qv 2 fused, qkv 1 left");
  EXPECT_LT(attention("x", "x", "z").difference, kRounding);
}

// Pegasus X: tokens that see all take k and v of the others too, whose own attention has q, k and v.
TEST(Groups, KAndVOfTwoAttentionsAreMergedWithTheQOfOne) {
  const Seen seen = Optimized([](Streams& m) {
    const ValueId x = m.In({2, 5, 16}), global = m.In({2, 3, 16});
    const ValueId k = m.Heads(m.Linear(x)), v = m.Heads(m.Linear(x));
    m.Attend(m.Heads(m.Linear(global)), m.Join({m.Heads(m.Linear(global)), k}), m.Join({m.Heads(m.Linear(global)), v}));
    m.Attend(m.Heads(m.Linear(x)), k, v, "local");
  });
  EXPECT_EQ(Summary(seen), "qkv 3 fused, kv 2 fused, qkv 3 fused");
}

TEST(Groups, OneLinearOfKAndVIsPacked) {
  const Seen seen = Optimized([](Streams& m) {
    const ValueId x = m.In({2, 5, 16}), z = m.In({2, 7, 16});
    const NodeId split = m.g.AddNode(Op::kSplit, {m.Linear(z, 32), m.Ints({16, 16})}, 2, {{"axis", int64_t{2}}});
    m.Attend(m.Heads(m.Linear(x)), m.Heads(m.g.node(split).output(0)), m.Heads(m.g.node(split).output(1)));
  });
  EXPECT_EQ(Summary(seen), "kv 1 fused");
  EXPECT_EQ(seen.groups[0].rule, "packed");
  const Seen same = Optimized([](Streams& m) {  // keys that are the values as well
    const ValueId x = m.In({2, 5, 16}), z = m.Heads(m.Linear(m.In({2, 7, 16})));
    m.Attend(m.Heads(m.Linear(x)), z, z);
  });
  EXPECT_EQ(Summary(same), "qkv 1 left");  // q reads another activation; k and v are no pair
}

TEST(Groups, LearnedKeysAreAttentionToo) {
  Streams m;
  const ValueId q = m.Heads(m.Linear(m.In({2, 5, 16})));
  m.Attend(q, m.g.AddConstant(Random({2, 4, 7, 4}, 1)), m.g.AddConstant(Random({2, 4, 7, 4}, 2)));
  PassRun run;
  ASSERT_TRUE(RunPasses({"fold"}, m.g, run));  // K's Transpose is a constant now
  const std::vector<AttentionCore> cores = FindAttentionCores(m.g);
  ASSERT_EQ(cores.size(), 1u);
  EXPECT_EQ(cores[0].q, q);
  EXPECT_NE(m.g.ConstantOf(cores[0].k), nullptr);
}

TEST(Groups, KeysThatAreWrittenInPlaceComeFromTheirLinear) {
  const Seen seen = Optimized([](Streams& m) {
    const ValueId x = m.In({2, 5, 16});
    std::vector<int64_t> first;
    for (int64_t b : {0, 1}) {
      for (int64_t h = 0; h < 4; ++h) first.insert(first.end(), {b, h});
    }
    const ValueId where = m.g.AddConstant(ir::Tensor::S64({2, 4, 2}, first));
    const ValueId k = m.Node(Op::kScatterND, {m.Filled({2, 4, 5, 4}, 0.0f), where, m.Heads(m.Linear(x))});
    m.Attend(m.Heads(m.Linear(x)), k, m.Heads(m.Linear(x)));
  });
  EXPECT_EQ(Summary(seen), "qkv 3 fused");
}

TEST(Groups, OthersThatShareAnInputSayThatNoAttentionTakesThem) {
  const Seen seen = Optimized([](Streams& m) {
    const ValueId x = m.In({2, 5, 16});
    m.g.AddOutput("y", m.Node(Op::kMul, {m.Linear(x), m.Node(Op::kSigmoid, {m.Linear(x)})}));
  });
  EXPECT_EQ(Summary(seen), "shared 2 left");
  EXPECT_THAT(seen.groups[0].reason, HasSubstr("2 Linears read graph input 'in0', but no attention that octavo found "
                                               "takes them as q, k or v; only such are merged"));
}

// Keys of two attentions, as decoder layers read one memory of positions: attention takes both, but not one.
TEST(Groups, ProjectionsOfDifferentAttentionsSayThat) {
  const Seen seen = Optimized([](Streams& m) {
    const ValueId memory = m.In({2, 5, 16});
    for (int layer = 0; layer < 2; ++layer)
      m.Attend(m.Heads(m.Linear(m.In({2, 5, 16}))), m.Heads(m.Linear(memory)), m.Heads(m.Linear(m.In({2, 5, 16}))));
  });
  const auto shared = std::ranges::find(seen.groups, "shared", &Candidate::kind);
  ASSERT_NE(shared, seen.groups.end()) << Summary(seen);
  EXPECT_THAT(shared->reason, HasSubstr("they project for different attentions; only those of one are merged"));
}

// What `qkv_float` leaves it says by name, and the report repeats it.
TEST(Groups, WhatIsNotMergedHasAReason) {
  const auto reason = [](const std::function<void(Streams&)>& build) {
    const Seen seen = Optimized(build);
    EXPECT_EQ(Summary(seen).find("fused"), std::string::npos);
    EXPECT_EQ(seen.groups.at(0).rule, "qkv_float");
    return seen.groups.at(0).reason;
  };
  EXPECT_THAT(reason([](Streams& m) {
                const ValueId x = m.In({2, 5, 16});
                ValueId q = m.Linear(x);
                for (int i = 0; i < 6; ++i) q = m.Node(Op::kAdd, {q, m.Node(Op::kTanh, {m.Linear(x)})});
                m.Attend(m.Heads(q), m.Heads(m.Linear(x)), m.Heads(m.Linear(x)));
              }),
              HasSubstr("is one of 9 projections of one attention, and at most 8 are merged"));
  EXPECT_THAT(reason([](Streams& m) {
                const ValueId x = m.In({2, 5, 16});
                const ValueId w = m.Node(Op::kDequantizeLinear, {m.Codes({16, 16}), m.Real(0.1f)});
                m.Attend(m.Heads(m.Linear(x)), m.Heads(m.Node(Op::kMatMul, {x, w})), m.Heads(m.Linear(x)));
              }),
              HasSubstr("is not merged: the weight or bias of 'n"));
  EXPECT_THAT(reason([](Streams& m) {
                const ValueId x = m.In({2, 5, 16});
                m.Attend(m.Heads(m.Linear(m.Coded(x, 0.1f, 128))), m.Heads(m.Linear(x)), m.Heads(m.Linear(x)));
              }),
              HasSubstr("reads another form of the activation"));
}

TEST(Groups, AnActivationOfUnknownRankIsNotMerged) {
  Streams m;
  const ValueId x = m.g.AddInput("x", {ir::DType::kF32, std::nullopt});
  const auto heads = [&](ValueId v) { return m.Reshape(v, {2, 4, -1, 4}); };
  m.Attend(heads(m.Linear(x)), heads(m.Linear(x)), heads(m.Linear(x)));
  ASSERT_TRUE(ir::Inference::Run(m.g));
  PassRun run;
  EXPECT_FALSE(fusions::FuseQkvFloat(m.g, run).value_or(true));
  ASSERT_EQ(run.decisions.size(), 1u);
  EXPECT_THAT(run.decisions[0].reason, HasSubstr("is not merged: the rank of what it reads is not known"));
}

// Convolutions as projections: passes/canonical/pointwise.cc makes Linears of those that are products, and of the others the report says why not.
TEST(Groups, ConvolutionsThatStaySayWhy) {
  struct Conv {
    int64_t kernel = 1, groups = 1, stride = 1;
    bool constant = true, alone = true;
  };
  const auto seen = [](const Conv& c) {
    return Optimized([&](Streams& m) {
      const ValueId x = m.In({2, 16, 5});
      const ir::Shape shape{16, 16 / c.groups, c.kernel};
      const auto conv = [&](bool this_one) {
        const ValueId w = !this_one || c.constant ? m.g.AddConstant(Random(shape, m.rng()))
                                                  : m.Node(Op::kTanh, {m.In({shape.begin(), shape.end()})});
        return m.Node(Op::kConv, {x, w}, {{"group", c.groups}, {"strides", std::vector<int64_t>{c.stride}}});
      };
      const auto heads = [&](ValueId v) { return m.Perm(m.Reshape(v, {2, 4, 4, -1}), {0, 1, 3, 2}); };
      const ValueId q = conv(true);
      m.Attend(heads(q), heads(c.alone ? conv(false) : q), heads(conv(false)));
    });
  };
  EXPECT_EQ(Summary(seen({})), "qkv 3 fused");
  EXPECT_EQ(Summary(seen({.alone = false})), "qkv 2 fused");
  EXPECT_LT(seen({}).difference, kRounding);
  const auto reason = [&](const Conv& c) { return seen(c).groups.back().reason; };
  EXPECT_THAT(reason({.groups = 4}), HasSubstr("q's projection Conv 'n"));
  EXPECT_THAT(reason({.groups = 4}),
              HasSubstr("stays a convolution: it has 4 groups, and as one product it would multiply 4 times as much"));
  EXPECT_THAT(reason({.kernel = 3}), HasSubstr("its kernel reaches beyond one position, which no product does"));
  EXPECT_THAT(reason({.stride = 2}), HasSubstr("its stride leaves positions out"));
  EXPECT_THAT(reason({.constant = false}), HasSubstr("stays a convolution: its weight is not a constant"));
}

// MViT: a convolution behind the Linear, and what is no view behind that.
TEST(Groups, WhatAConvolutionMakesOfAProjectionIsNoLinear) {
  const Seen seen = Optimized([](Streams& m) {
    const ValueId x = m.In({2, 5, 16});
    const auto pooled = [&] {
      const ValueId w = m.g.AddConstant(Random({16, 1, 3}, m.rng()));
      const ValueId y = m.Node(Op::kConv, {m.Perm(m.Linear(x), {0, 2, 1}), w},
                               {{"group", int64_t{16}}, {"pads", std::vector<int64_t>{1, 1}}});
      return m.Heads(m.Perm(m.Node(Op::kTanh, {y}), {0, 2, 1}));
    };
    m.Attend(pooled(), pooled(), pooled());
  });
  ASSERT_FALSE(seen.groups.empty());
  EXPECT_THAT(seen.groups[0].reason, HasSubstr("no Linear makes q: it comes from Conv 'n"));
}

TEST(Groups, AConvolutionAloneOnItsActivationStaysWhereItsChannelsAreReadToo) {
  const Seen seen = Optimized([](Streams& m) {
    const auto conv = [&] {
      return m.Node(Op::kConv, {m.In({2, 16, 5}), m.g.AddConstant(Random({16, 16, 1}, m.rng()))});
    };
    const auto heads = [&](ValueId v) { return m.Perm(m.Reshape(v, {2, 4, 4, -1}), {0, 1, 3, 2}); };
    const ValueId q = conv();
    m.Attend(heads(q), heads(conv()), heads(conv()));
    m.g.AddOutput("channels", m.Node(Op::kRelu, {q}));
  });
  EXPECT_EQ(Summary(seen), "qkv 1 left");
  EXPECT_THAT(
      seen.groups[0].reason,
      HasSubstr("something else reads its channels as well, it is in 16 bits with a bias, or its sizes are not known"));
}

// Q and K are one product, which the core's name leads to, and V comes from elsewhere.
TEST(Groups, WhatNoLinearMakesIsNotFusedByTheNameOfItsCore) {
  for (const std::string why : {"no Linear makes v: it comes from Conv 'n'", ""}) {
    Streams m;
    const ValueId x = m.In({2, 5, 16});
    const NodeId made = m.g.value(m.Node(Op::kQuantizedQkv, {x, x})).producer;
    Report report;
    report.candidates.push_back(
        {.kind = "qkv", .nodes = {OriginName(m.g.node(made))}, .status = "left", .rule = "", .reason = why});
    Judge(m.g, PassRun(), report);
    EXPECT_EQ(report.candidates[0].status, why.empty() ? "fused" : "left");
    EXPECT_EQ(report.candidates[0].reason, why);
  }
}

// A gate behind V is in the epilogue of its product, so Q and K alone are merged.
TEST(Groups, AnActivationInAProductKeepsItApart) {
  Streams m;
  const ValueId x = m.In({2, 5, 16});
  const auto name = [&](ValueId v) { return OriginName(m.g.node(m.g.value(v).producer)); };
  const std::string merged = name(m.Node(Op::kQuantizedQkv, {x, x}));
  const std::string gated = name(m.Node(Op::kQuantizedLinear, {x, x}, {{"activation", std::string("sigmoid")}}));
  Report report;
  report.candidates.push_back({.kind = "qkv", .nodes = {merged, gated}, .status = "left", .rule = "", .reason = ""});
  Judge(m.g, PassRun(), report);
  EXPECT_EQ(report.candidates[0].status, "quantized");
  EXPECT_EQ(report.candidates[0].reason,
            "'" + gated +
                "' has the activation sigmoid in it, which no merged product has; the others are one where they can");
}

// Products that stay apart in the file are one step at run time where they read one activation in the same way.
TEST(Groups, ProductsOfOneStepAreFused) {
  for (const bool alike : {true, false}) {
    Streams m;
    const ValueId x = m.In({2, 5, 16}), w = m.In({16, 16}), other = m.In({16, 8});
    Report report;
    for (const char* kind : {"qkv", "shared"}) {
      Candidate c{.kind = kind, .nodes = {}, .status = "left", .rule = "", .reason = "before"};
      for (int i = 0; i < 3; ++i) {
        const bool last = i == 2 && !alike;  // with rows in codes
        const ValueId y = m.Node(Op::kLinearBlocked, {x, w, other}, {{"x_bits", int64_t{last ? 8 : 0}}});
        c.nodes.push_back(OriginName(m.g.node(m.g.value(y).producer)));
      }
      report.candidates.push_back(std::move(c));
    }
    Judge(m.g, PassRun(), report);
    for (const Candidate& c : report.candidates) {
      EXPECT_EQ(c.status, alike ? "fused" : "left");
      EXPECT_EQ(c.reason, alike ? "one step at run time, apart in the file" : "before");
    }
    EXPECT_EQ(report.qkv.done, alike ? 1 : 0);
  }
}

TEST(Groups, AProductOfTwoIsNoGroupOfThree) {
  Streams m;
  const ValueId x = m.In({2, 5, 16});
  ir::Graph& g = m.g;
  const NodeId made = g.value(m.Node(Op::kQuantizedQkv, {x, x})).producer;
  Report report;
  const std::string name = OriginName(g.node(made));
  report.candidates.push_back({.kind = "qkv", .nodes = {name, name, name}, .status = "left", .rule = "", .reason = ""});
  Judge(g, PassRun(), report);
  EXPECT_EQ(report.candidates[0].status, "quantized");
}

}  // namespace
}  // namespace octavo::passes
