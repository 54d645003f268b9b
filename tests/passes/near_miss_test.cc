// A graph that is almost attention is not attention, and variants that are it in another way are: one block, damaged or varied in
// one place. Every case says what must fuse, and in every case the optimized graph computes what the original does.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <functional>
#include <random>

#include "octavo/ir/infer.h"
#include "octavo/ir/interpret.h"
#include "octavo/ir/text.h"
#include "octavo/passes/pipelines.h"
#include "octavo/passes/report.h"

namespace octavo::passes {
namespace {

using ir::DType;
using ir::Tensor;

constexpr int64_t kBatch = 2, kRows = 5, kHeads = 4, kDim = 6, kWidth = kHeads * kDim;

class Block {
 public:
  Block() : rng(7) {
    g.info.opsets[""] = 18;
    x = Input("x", {kBatch, kRows, kWidth});
    mask = Input("mask", {kBatch, 1, 1, kRows});
    allowed = g.AddInput("allowed", {DType::kBool, ir::SymShape{1, 1, kRows, kRows}});
  }
  ValueId Input(const std::string& name, ir::SymShape s) { return g.AddInput(name, {DType::kF32, std::move(s)}); }
  ValueId Make(Op op, std::vector<ValueId> in, ir::Attrs a = {}) {
    return g.node(g.AddNode(op, std::move(in), 1, std::move(a), "n" + std::to_string(++made))).output();
  }
  ValueId Scalar(float v) { return g.AddConstant(Tensor::ScalarF32(v)); }
  ValueId Ints(std::vector<int64_t> v) {
    const auto n = static_cast<int64_t>(v.size());
    return g.AddConstant(Tensor::S64({n}, std::move(v)));
  }
  ValueId Weight(ir::Shape shape) {
    std::normal_distribution<float> normal(0, 0.3f);
    Tensor t = Tensor::Empty(DType::kF32, std::move(shape));
    for (float& f : t.mutable_as<float>()) f = normal(rng);
    return g.AddConstant(std::move(t));
  }
  ValueId Linear(ValueId in, int64_t from = kWidth, int64_t to = kWidth) {
    return Make(Op::kAdd, {Make(Op::kMatMul, {in, Weight({from, to})}), Weight({to})});
  }
  ValueId Heads(ValueId v, int64_t heads = kHeads) {
    return Transpose(Make(Op::kReshape, {v, Ints({0, 0, heads, kDim})}), {0, 2, 1, 3});
  }
  ValueId Transpose(ValueId v, std::vector<int64_t> perm) {
    return Make(Op::kTranspose, {v}, {{"perm", std::move(perm)}});
  }
  ValueId Scores(ValueId q, ValueId k) {
    return Make(Op::kMul, {Make(Op::kMatMul, {q, Transpose(k, {0, 1, 3, 2})}), Scalar(0.4f)});
  }
  ValueId Softmax(ValueId s, int64_t axis = -1) { return Make(Op::kSoftmax, {s}, {{"axis", axis}}); }
  void Finish(ValueId p, ValueId v) { Out(Make(Op::kMatMul, {p, v})); }
  void Out(ValueId o) { g.AddOutput("y", Make(Op::kReshape, {Transpose(o, {0, 2, 1, 3}), Ints({kBatch, kRows, -1})})); }

  Graph g;
  std::mt19937 rng;
  ValueId x, mask, allowed;
  int made = 0;
};

struct Fused {
  int cores = -1, groups = -1;
  std::string reasons = {};
  Graph graph = {};
};
Fused Optimize(const Graph& g) {
  Fused f{.graph = g};
  PassRun context;
  std::vector<NearMiss> misses;
  context.misses = &misses;
  Status s = RunPasses({"canonical"}, f.graph, context);
  Report report = TakeInventory(f.graph);
  if (s) s = RunPasses({"fuse_float", "qkv_float", "canonical"}, f.graph, context);
  EXPECT_TRUE(s) << s.error().message;
  Judge(f.graph, context, report);
  for (const Candidate& c : report.candidates) f.reasons += c.reason + "\n";
  f.cores = report.attention.done;
  f.groups = report.qkv.done;
  return f;
}

Tensor Random(const ir::Type& type, std::mt19937& rng) {
  ir::Shape shape;
  for (const ir::Dim& d : *type.shape) shape.push_back(d.number());
  Tensor t = Tensor::Zeros(type.dtype, shape);
  std::normal_distribution<float> normal;
  if (type.dtype == DType::kF32) {
    for (float& f : t.mutable_as<float>()) f = normal(rng);
  } else {
    for (uint8_t& b : t.mutable_as<uint8_t>()) b = rng() % 4 != 0;
  }
  return t;
}

// What fuses, and that the numbers stay.
void Expect(const std::string& name, const std::function<void(Block&)>& build, int cores, int groups,
            const std::string& reason = "") {
  SCOPED_TRACE(name);
  Block b;
  build(b);
  const Fused f = Optimize(b.g);
  EXPECT_EQ(f.cores, cores) << f.reasons << ir::ToText(f.graph, {.elide_constants_above = 8});
  EXPECT_EQ(f.groups, groups) << f.reasons;
  EXPECT_NE(f.reasons.find(reason), std::string::npos) << "told: " << f.reasons;
  std::mt19937 rng(3);
  ir::TensorMap inputs;
  for (ValueId v : b.g.inputs()) inputs[b.g.value(v).name] = Random(b.g.value(v).type, rng);
  const auto want = ir::Interpret(b.g, inputs), got = ir::Interpret(f.graph, inputs);
  ASSERT_TRUE(want) << want.error().message;
  ASSERT_TRUE(got) << got.error().message;
  for (size_t output = 0; output < want->size(); ++output) {
    double size = 0;
    ASSERT_EQ((*want)[output].shape(), (*got)[output].shape()) << "output " << output;
    for (int64_t i = 0; i < (*want)[output].size(); ++i) {
      const double a = (*want)[output].GetDouble(i), c = (*got)[output].GetDouble(i);
      size = std::max(size, std::fabs(a));
      if (std::isnan(a) && std::isnan(c)) continue;
      ASSERT_NEAR(a, c, 2e-5) << "output " << output << " element " << i;  // sums of 24 and 5 terms of size 1: 40 ulp
    }
    EXPECT_GT(size, 0.05);
  }
}

TEST(NearMiss, TheBlockItself) {
  Expect(
      "plain",
      [](Block& b) {
        b.Finish(b.Softmax(b.Make(Op::kAdd, {b.Scores(b.Heads(b.Linear(b.x)), b.Heads(b.Linear(b.x))), b.mask})),
                 b.Heads(b.Linear(b.x)));
      },
      1, 1);
}

TEST(NearMiss, MustNotFuse) {
  const auto damaged = [](const std::function<ValueId(Block&, ValueId)>& scores,
                          const std::function<ValueId(Block&, ValueId)>& p) {
    return [=](Block& b) {
      const ValueId q = b.Heads(b.Linear(b.x)), k = b.Heads(b.Linear(b.x)), v = b.Heads(b.Linear(b.x));
      b.Finish(p(b, scores(b, b.Scores(q, k))), v);
    };
  };
  const auto same = [](Block&, ValueId s) { return s; };
  const auto softmax = [](Block& b, ValueId s) { return b.Softmax(s); };
  Expect("softmax over the queries", damaged(same, [](Block& b, ValueId s) { return b.Softmax(s, 2); }), 0, 1,
         "axis 2 is not the last one");
  Expect("softmax over the heads", damaged(same, [](Block& b, ValueId s) { return b.Softmax(s, 1); }), 0, 1,
         "axis 1 is not the last one");
  Expect("sigmoid", damaged(same, [](Block& b, ValueId s) { return b.Make(Op::kSigmoid, {s}); }), 0, 1);
  Expect("no softmax", damaged(same, same), 0, 1);
  Expect("log softmax",
         damaged(same, [](Block& b, ValueId s) { return b.Make(Op::kLogSoftmax, {s}, {{"axis", int64_t{-1}}}); }), 0,
         0);
  Expect("a guard that writes one",
         damaged(same,
                 [](Block& b, ValueId s) {
                   const ValueId p = b.Softmax(s);
                   return b.Make(Op::kWhere, {b.Make(Op::kIsNaN, {p}), b.Scalar(1), p});
                 }),
         0, 1, "does not write zero");
  Expect("a scale for every key", damaged([](Block& b, ValueId s) { return b.Make(Op::kMul, {s, b.mask}); }, softmax),
         0, 1);
  Expect(
      "P on the right",
      [](Block& b) {
        const ValueId p = b.Softmax(b.Scores(b.Heads(b.Linear(b.x)), b.Heads(b.Linear(b.x))));
        b.Out(b.Transpose(b.Make(Op::kMatMul, {b.Transpose(b.Heads(b.Linear(b.x)), {0, 1, 3, 2}), p}), {0, 1, 3, 2}));
      },
      0, 0);
}

TEST(NearMiss, AnotherActivationForK) {
  Expect(
      "k reads 2x",
      [](Block& b) {
        const ValueId other = b.Make(Op::kMul, {b.x, b.Scalar(2)});
        b.Finish(b.Softmax(b.Scores(b.Heads(b.Linear(b.x)), b.Heads(b.Linear(other)))), b.Heads(b.Linear(b.x)));
      },
      1, 0);
  Expect(
      "k's weight is an input",
      [](Block& b) {
        const ValueId k = b.Make(Op::kMatMul, {b.x, b.Input("w_k", {kWidth, kWidth})});
        b.Finish(b.Softmax(b.Scores(b.Heads(b.Linear(b.x)), b.Heads(k))), b.Heads(b.Linear(b.x)));
      },
      1, 0, "w_k");
}

TEST(NearMiss, KeepsItsMeaningWhereItFuses) {
  const auto varied = [](const std::function<ValueId(Block&, ValueId)>& scores) {
    return [=](Block& b) {
      const ValueId q = b.Heads(b.Linear(b.x)), k = b.Heads(b.Linear(b.x)), v = b.Heads(b.Linear(b.x));
      b.Finish(b.Softmax(scores(b, b.Scores(q, k))), v);
    };
  };
  const float low = std::numeric_limits<float>::lowest(), inf = std::numeric_limits<float>::infinity();
  Expect(
      "a factor for each query after the softmax",
      [](Block& b) {
        const ValueId p = b.Softmax(b.Scores(b.Heads(b.Linear(b.x)), b.Heads(b.Linear(b.x))));
        b.Finish(b.Make(Op::kMul, {p, b.Transpose(b.mask, {0, 1, 3, 2})}), b.Heads(b.Linear(b.x)));
      },
      1, 1);
  Expect(
      "scale on v",
      [](Block& b) {
        const ValueId v = b.Make(Op::kMul, {b.Heads(b.Linear(b.x)), b.Scalar(3)});
        b.Finish(b.Softmax(b.Scores(b.Heads(b.Linear(b.x)), b.Heads(b.Linear(b.x)))), v);
      },
      1, 1);
  for (float masked : {low, -inf, -1e4f}) {
    Expect("where", varied([=](Block& b, ValueId s) { return b.Make(Op::kWhere, {b.allowed, s, b.Scalar(masked)}); }),
           1, 1);
    Expect("masked_fill",
           varied([=](Block& b, ValueId s) { return b.Make(Op::kWhere, {b.allowed, b.Scalar(masked), s}); }), 1, 1);
  }
  Expect("where, then bias", varied([=](Block& b, ValueId s) {
           return b.Make(Op::kAdd, {b.mask, b.Make(Op::kWhere, {b.allowed, s, b.Scalar(low)})});
         }),
         1, 1);
  Expect("bias, then scale",
         varied([](Block& b, ValueId s) { return b.Make(Op::kMul, {b.Make(Op::kAdd, {b.mask, s}), b.Scalar(0.7f)}); }),
         1, 1);
  Expect("bias, scale, where, bias", varied([=](Block& b, ValueId s) {
           s = b.Make(Op::kDiv, {b.Make(Op::kAdd, {s, b.Weight({1, kHeads, kRows, kRows})}), b.Scalar(1.3f)});
           return b.Make(Op::kSub, {b.Make(Op::kWhere, {b.allowed, s, b.Scalar(low)}), b.mask});
         }),
         1, 1);
  Expect("softcap", varied([](Block& b, ValueId s) {
           return b.Make(Op::kMul, {b.Make(Op::kTanh, {b.Make(Op::kDiv, {s, b.Scalar(5)})}), b.Scalar(5)});
         }),
         1, 1);
  Expect("softcap with two constants, then mask", varied([](Block& b, ValueId s) {
           s = b.Make(Op::kMul, {b.Scalar(3), b.Make(Op::kTanh, {b.Make(Op::kMul, {s, b.Scalar(0.2f)})})});
           return b.Make(Op::kAdd, {s, b.mask});
         }),
         1, 1);
  Expect(
      "probabilities are an output",
      [](Block& b) {
        const ValueId p = b.Softmax(b.Scores(b.Heads(b.Linear(b.x)), b.Heads(b.Linear(b.x))));
        b.Finish(p, b.Heads(b.Linear(b.x)));
        b.g.AddOutput("p", p);
      },
      1, 1);
  Expect(
      "scores are an output",
      [](Block& b) {
        const ValueId s = b.Scores(b.Heads(b.Linear(b.x)), b.Heads(b.Linear(b.x)));
        b.Finish(b.Softmax(s), b.Heads(b.Linear(b.x)));
        b.g.AddOutput("s", s);
      },
      1, 1);
  Expect("mask inside the cap", varied([](Block& b, ValueId s) {
           s = b.Make(Op::kTanh, {b.Make(Op::kDiv, {b.Make(Op::kAdd, {s, b.mask}), b.Scalar(5)})});
           return b.Make(Op::kMul, {s, b.Scalar(5)});
         }),
         0, 1);
}

TEST(NearMiss, Einsum) {
  const auto einsum = [](Block& b, const char* equation, ValueId x, ValueId y) {
    return b.Make(Op::kEinsum, {x, y}, {{"equation", std::string(equation)}});
  };
  const auto heads = [](Block& b) { return b.Make(Op::kReshape, {b.Linear(b.x), b.Ints({0, 0, kHeads, kDim})}); };
  Expect(
      "heads last",
      [=](Block& b) {
        const ValueId s = b.Make(Op::kMul, {einsum(b, "bihd,bjhd->bhij", heads(b), heads(b)), b.Scalar(0.4f)});
        b.Out(b.Transpose(einsum(b, "bhij, bjhd -> bihd", b.Softmax(s), heads(b)), {0, 2, 1, 3}));
      },
      1, 1);
  Expect(
      "projections too",
      [=](Block& b) {
        const auto project = [&] { return einsum(b, "bsd,dhk->bhsk", b.x, b.Weight({kWidth, kHeads, kDim})); };
        const ValueId q = project(), k = project(), v = project();
        const ValueId o = einsum(b, "bhqk,bhkd->bqhd", b.Softmax(einsum(b, "bhqd,bhkd->bhqk", q, k)), v);
        b.g.AddOutput("y", einsum(b, "bqhd,hde->bqe", o, b.Weight({kHeads, kDim, kWidth})));
      },
      1, 1);
  Expect(
      "summed over the wrong axis",
      [=](Block& b) {  // heads of q against heads of k
        const ValueId s = einsum(b, "bihd,bihe->bide", heads(b), heads(b));
        b.Out(einsum(b, "bide,bihe->bhid", b.Softmax(s), heads(b)));
      },
      1, 1);
}

TEST(NearMiss, AttentionOp) {
  const auto op = [](Block& b, std::vector<ValueId> in, size_t outputs, ir::Attrs attrs) {
    attrs.Set("q_num_heads", kHeads);
    attrs.Set("kv_num_heads", kHeads / 2);
    const NodeId id = b.g.AddNode(Op::kAttention, std::move(in), outputs, std::move(attrs), "attention");
    b.g.AddOutput("y", b.g.node(id).output());
    for (size_t i = 1; i < outputs; ++i) b.g.AddOutput("y" + std::to_string(i), b.g.node(id).output(i));
  };
  const auto qkv = [](Block& b) {
    return std::vector<ValueId>{b.Linear(b.x), b.Linear(b.x, kWidth, kWidth / 2), b.Linear(b.x, kWidth, kWidth / 2)};
  };
  const auto cached = [=](Block& b) {
    std::vector<ValueId> in = qkv(b);
    in.push_back({});
    for (const char* name : {"past_k", "past_v"}) in.push_back(b.Input(name, {kBatch, kHeads / 2, 3, kDim}));
    return in;
  };
  Expect("plain", [=](Block& b) { op(b, qkv(b), 1, {}); }, 1, 1);
  Expect("causal", [=](Block& b) { op(b, qkv(b), 1, {{"is_causal", int64_t{1}}}); }, 1, 1);
  Expect("softcap", [=](Block& b) { op(b, qkv(b), 1, {{"softcap", 2.0f}}); }, 1, 1);
  Expect(
      "softcap and causal", [=](Block& b) { op(b, qkv(b), 1, {{"softcap", 2.0f}, {"is_causal", int64_t{1}}}); }, 1, 1);
  Expect("cache", [=](Block& b) { op(b, cached(b), 3, {}); }, 1, 1);
  Expect("cache and causal", [=](Block& b) { op(b, cached(b), 3, {{"is_causal", int64_t{1}}}); }, 1, 1);
  Expect("present without past", [=](Block& b) { op(b, qkv(b), 3, {}); }, 1, 1);
  Expect("scores wanted", [=](Block& b) { op(b, qkv(b), 4, {}); }, 0, 1, "its output 3, the scores, is used");
  Expect(
      "bool mask",
      [=](Block& b) {
        std::vector<ValueId> in = qkv(b);
        in.push_back(b.allowed);
        op(b, in, 1, {});
      },
      1, 1);
}

TEST(NearMiss, RepeatedHeads) {
  const auto grouped = [](const std::function<ValueId(Block&, ValueId)>& repeat) {
    return [=](Block& b) {
      const ValueId q = b.Heads(b.Linear(b.x));
      const ValueId k = b.Heads(b.Linear(b.x, kWidth, 2 * kDim), 2), v = b.Heads(b.Linear(b.x, kWidth, 2 * kDim), 2);
      b.Finish(b.Softmax(b.Scores(q, repeat(b, k))), repeat(b, v));
    };
  };
  const auto merge = [](Block& b, ValueId v) {
    return b.Make(Op::kReshape, {v, b.Ints({kBatch, kHeads, kRows, kDim})});
  };
  Expect("expand", grouped([=](Block& b, ValueId k) {
           return merge(
               b, b.Make(Op::kExpand, {b.Make(Op::kUnsqueeze, {k, b.Ints({2})}), b.Ints({kBatch, 2, 2, kRows, kDim})}));
         }),
         1, 1);
  Expect("expand in front: other heads", grouped([=](Block& b, ValueId k) {
           return merge(
               b, b.Make(Op::kExpand, {b.Make(Op::kUnsqueeze, {k, b.Ints({1})}), b.Ints({kBatch, 2, 2, kRows, kDim})}));
         }),
         1, 1);
  Expect("tile of five dims", grouped([=](Block& b, ValueId k) {
           return merge(b, b.Make(Op::kTile, {b.Make(Op::kUnsqueeze, {k, b.Ints({2})}), b.Ints({1, 1, 2, 1, 1})}));
         }),
         1, 1);
  Expect("tile of four dims: other heads",
         grouped([=](Block& b, ValueId k) { return b.Make(Op::kTile, {k, b.Ints({1, 2, 1, 1})}); }), 1, 1);
  Expect("concat of five dims", grouped([=](Block& b, ValueId k) {
           const ValueId five = b.Make(Op::kUnsqueeze, {k, b.Ints({2})});
           return merge(b, b.Make(Op::kConcat, {five, five}, {{"axis", int64_t{2}}}));
         }),
         1, 1);
  Expect("gather", grouped([=](Block& b, ValueId k) {
           return b.Make(Op::kGather, {k, b.Ints({0, 0, 1, 1})}, {{"axis", int64_t{1}}});
         }),
         1, 1);
  Expect("gather: other heads", grouped([=](Block& b, ValueId k) {
           return b.Make(Op::kGather, {k, b.Ints({0, 1, 0, 1})}, {{"axis", int64_t{1}}});
         }),
         1, 1);
  Expect(
      "one head for all",
      [](Block& b) {
        const ValueId k = b.Heads(b.Linear(b.x, kWidth, kDim), 1), v = b.Heads(b.Linear(b.x, kWidth, kDim), 1);
        b.Finish(b.Softmax(b.Scores(b.Heads(b.Linear(b.x)), k)), v);
      },
      1, 1);
}

TEST(NearMiss, PackedProjections) {
  // The axis of Q, K and V in the unpacked shape, and how a part is taken.
  for (int64_t axis : {2, 3, 4}) {
    for (int how = 0; how < 3; ++how) {
      Expect(
          "axis " + std::to_string(axis) + ", how " + std::to_string(how),
          [=](Block& b) {
            std::vector<int64_t> shape{kBatch, kRows, kHeads, kDim};
            shape.insert(shape.begin() + axis, 3);
            const ValueId five = b.Make(Op::kReshape, {b.Linear(b.x, kWidth, 3 * kWidth), b.Ints(shape)});
            std::vector<ValueId> part;
            if (how == 0) {
              for (int64_t i = 0; i < 3; ++i)
                part.push_back(b.Make(Op::kGather, {five, b.g.AddConstant(Tensor::S64({}, {i}))}, {{"axis", axis}}));
            } else if (how == 1) {
              const NodeId split = b.g.AddNode(Op::kSplit, {five, b.Ints({1, 1, 1})}, 3, {{"axis", axis}}, "split");
              for (size_t i = 0; i < 3; ++i)
                part.push_back(b.Make(Op::kSqueeze, {b.g.node(split).output(i), b.Ints({axis})}));
            } else {  // V's place holds K and the other way round
              for (int64_t i : {0, 2, 1}) {
                part.push_back(
                    b.Make(Op::kSqueeze,
                           {b.Make(Op::kSlice, {five, b.Ints({i}), b.Ints({i + 1}), b.Ints({axis})}), b.Ints({axis})}));
              }
            }
            for (ValueId& v : part) v = b.Transpose(v, {0, 2, 1, 3});
            b.Finish(b.Softmax(b.Scores(part[0], part[1])), part[2]);
          },
          1, 1);
    }
  }
}

}  // namespace
}  // namespace octavo::passes
