// Sentences of refusals that no other test reads (refused_sentences_test.py): for each a graph that is refused by it and by nothing before it.
#include <gtest/gtest.h>

#include <functional>
#include <limits>

#include "octavo/ir/interpret.h"
#include "octavo/kernels/catalog.h"
#include "octavo/passes/diagnose.h"
#include "octavo/passes/fusions/fusions.h"
#include "octavo/passes/pipelines.h"
#include "octavo/passes/quantize/quantize.h"
#include "octavo/passes/report.h"
#include "octavo/tests/passes/maker.h"

namespace octavo::passes {
namespace {

using fusions::Rule;
using ir::Dim;
using ir::DType;
using ir::SymShape;
using ir::Tensor;

struct Graphs : Maker {
  Graphs() : Maker(11) {}
  ValueId In(SymShape shape, DType t = DType::kF32) {
    return g.AddInput("in" + std::to_string(g.inputs().size()), {t, std::move(shape)});
  }
  ValueId Unknown(DType t = DType::kF32) { return g.AddInput("in" + std::to_string(g.inputs().size()), {t, {}}); }
  ValueId Filled(ir::Shape shape, float v = 0.5f) {
    Tensor t = Tensor::Zeros(DType::kF32, std::move(shape));
    for (float& x : t.mutable_as<float>()) x = v;
    return g.AddConstant(std::move(t));
  }
  ValueId Codes(ir::Shape shape, DType t = DType::kS8) { return g.AddConstant(Tensor::Zeros(t, std::move(shape))); }
  ValueId Perm(ValueId x, std::vector<int64_t> perm) { return Node(Op::kTranspose, {x}, {{"perm", std::move(perm)}}); }
  ValueId Reshape(ValueId x, std::vector<int64_t> shape) { return Node(Op::kReshape, {x, Ints(std::move(shape))}); }
  // Softmax(q k^T) v.
  void Attention(ValueId q, ValueId kt, ValueId v, ValueId mask = {}) {
    ValueId s = Node(Op::kMatMul, {q, kt});
    if (mask.valid()) s = Node(Op::kAdd, {s, mask});
    g.AddOutput("y", Node(Op::kMatMul, {Node(Op::kSoftmax, {s}), v}));
  }
  ir::Attrs Heads(int64_t heads, int64_t kv_heads) {
    return {{"num_heads", heads},       {"kv_num_heads", kv_heads}, {"head_dim", int64_t{4}},
            {"v_head_dim", int64_t{4}}, {"q_rank", int64_t{4}},     {"k_rank", int64_t{4}},
            {"v_rank", int64_t{4}},     {"out_rank", int64_t{4}},   {"scale", 1.0f}};
  }
};

// Nothing is fused by the rule, and the reason that reached deepest is this one.
void Refuses(const std::string& sentence, Rule rule, const std::function<void(Graphs&)>& build) {
  SCOPED_TRACE(sentence);
  Graphs m;
  build(m);
  ASSERT_TRUE(ir::Inference::Run(m.g));
  PassRun context;
  std::vector<NearMiss> misses;
  context.misses = &misses;
  const Result<bool> changed = pattern::ApplyRules({rule}, m.g, context);
  ASSERT_TRUE(changed) << changed.error().message;
  EXPECT_FALSE(*changed);
  const NearMiss* deepest = nullptr;
  for (const NearMiss& miss : misses) {
    if (deepest == nullptr || miss.matched > deepest->matched) deepest = &miss;
  }
  ASSERT_NE(deepest, nullptr);
  EXPECT_NE(deepest->reason.find(sentence), std::string::npos) << deepest->reason;
}

TEST(Refusals, OfTheAttentionOp) {
  const auto op = [](Graphs& m, std::vector<ValueId> in, size_t outputs, ir::Attrs attrs = {}) {
    const NodeId id = m.g.AddNode(Op::kAttention, std::move(in), outputs, std::move(attrs), "attention");
    for (size_t i = 0; i < outputs; ++i) m.g.AddOutput("y" + std::to_string(i), m.g.node(id).output(i));
  };
  const auto qkv = [](Graphs& m) {
    return std::vector<ValueId>{m.In({1, 2, 5, 4}), m.In({1, 2, 5, 4}), m.In({1, 2, 5, 4})};
  };
  Refuses("it has a past of only one of K and V", fusions::AttentionOp(), [&](Graphs& m) {
    auto in = qkv(m);
    in.resize(5);
    in[4] = m.In({1, 2, 3, 4});
    op(m, in, 1);
  });
  Refuses("it has a past and nonpad_kv_seqlen, which ONNX does not allow together", fusions::AttentionOp(),
          [&](Graphs& m) {
            auto in = qkv(m);
            in.resize(4);
            for (int i = 0; i < 2; ++i) in.push_back(m.In({1, 2, 3, 4}));
            in.push_back(m.In({1}, DType::kS64));
            op(m, in, 1);
          });
  for (const float cap : {-1.0f, std::numeric_limits<float>::quiet_NaN()}) {
    Refuses("its softcap is negative or NaN", fusions::AttentionOp(),
            [&](Graphs& m) { op(m, qkv(m), 1, {{"softcap", cap}}); });
  }
  Refuses("its scale is negative, and it multiplies by the square root of it", fusions::AttentionOp(),
          [&](Graphs& m) { op(m, qkv(m), 1, {{"scale", -1.0f}}); });
  Refuses("its mask has type f64[5,5]", fusions::AttentionOp(), [&](Graphs& m) {
    auto in = qkv(m);
    in.push_back(m.In({5, 5}, DType::kF64));
    op(m, in, 1);
  });
  Refuses("its mask covers 3 of 5 keys", fusions::AttentionOp(), [&](Graphs& m) {
    auto in = qkv(m);
    in.push_back(m.In({5, 3}));
    op(m, in, 1);
  });
}

TEST(Refusals, OfTheDecomposedAttention) {
  Refuses("the mask 'in0' may be wider than the scores: [1,1,5,5] and [1,2,s,5]", fusions::Sdpa(), [](Graphs& m) {
    const ValueId mask = m.In({1, 1, 5, 5});
    m.Attention(m.In({1, 2, Dim::Symbol("s"), 4}), m.In({1, 2, 4, 5}), m.In({1, 2, 5, 4}), mask);
  });
  Refuses("the mask 'in0' has type f32[1,1,1,5,5]", fusions::Sdpa(), [](Graphs& m) {
    const ValueId mask = m.In({1, 1, 1, 5, 5});
    m.Attention(m.In({1, 2, 5, 4}), m.In({1, 2, 4, 5}), m.In({1, 2, 5, 4}), mask);
  });
  Refuses(
      "q, k^T and v are not known to have rank 4 (batch, heads, rows, columns) or 3: they are f32[5,4], f32[4,5] and "
      "f32[5,4]",
      fusions::Sdpa(), [](Graphs& m) { m.Attention(m.In({5, 4}), m.In({4, 5}), m.In({5, 4})); });
  Refuses("the number of heads or the head size is not a number: q is [1,h,5,4]", fusions::Sdpa(), [](Graphs& m) {
    const Dim h = Dim::Symbol("h");
    m.Attention(m.In({1, h, 5, 4}), m.In({1, h, 4, 5}), m.In({1, h, 5, 4}));
  });
  Refuses("heads disagree: q [1,2,5,4], k^T [1,2,4,5], v [1,1,5,4]", fusions::Sdpa(),
          [](Graphs& m) { m.Attention(m.In({1, 2, 5, 4}), m.In({1, 2, 4, 5}), m.In({1, 1, 5, 4})); });
  Refuses("batches disagree: q [b,2,5,4], k^T [1,2,4,5], v [1,2,5,4]", fusions::Sdpa(),
          [](Graphs& m) { m.Attention(m.In({Dim::Symbol("b"), 2, 5, 4}), m.In({1, 2, 4, 5}), m.In({1, 2, 5, 4})); });
}

// tanh(s / 0) * 0 is 0 for every score; a soft cap of 0 would say that there is none.
TEST(Refusals, OfASoftCapOfZero) {
  Refuses("scores are divided by 0 before Tanh", fusions::Sdpa(), [](Graphs& m) {
    const ValueId s = m.Node(Op::kMatMul, {m.In({1, 2, 5, 4}), m.In({1, 2, 4, 5})});
    const ValueId capped = m.Node(Op::kMul, {m.Node(Op::kTanh, {m.Node(Op::kDiv, {s, m.Real(0)})}), m.Real(0)});
    m.g.AddOutput("y", m.Node(Op::kMatMul, {m.Node(Op::kSoftmax, {capped}), m.In({1, 2, 5, 4})}));
  });
}

TEST(Refusals, OfHeadSplitsAndMerges) {
  Refuses("the head split does not go from rank 3 to rank 4", fusions::SdpaSplitQ(Op::kSdpa), [](Graphs& m) {
    const ValueId q = m.Perm(m.Reshape(m.In({5, 8}), {1, 5, 2, 4}), {0, 2, 1, 3});
    m.g.AddOutput("y", m.Node(Op::kSdpa, {q, m.In({1, 2, 5, 4}), m.In({1, 2, 5, 4})}, m.Heads(2, 2)));
  });
  const auto repeated = [](Graphs& m, ValueId k, int64_t groups, int64_t times) {
    const ValueId five = m.Node(Op::kUnsqueeze, {k, m.Ints({2})});
    return m.Reshape(m.Node(Op::kExpand, {five, m.Ints({1, groups, times, 5, 4})}), {1, groups * times, 5, 4});
  };
  Refuses("K and V are not repeated alike, head by head", fusions::SdpaRepeat(Op::kSdpa), [&](Graphs& m) {
    const ValueId k = repeated(m, m.In({1, 2, 5, 4}), 2, 2), v = repeated(m, m.In({1, 1, 5, 4}), 1, 4);
    m.g.AddOutput("y", m.Node(Op::kSdpa, {m.In({1, 4, 5, 4}), k, v}, m.Heads(4, 4)));
  });
  Refuses("the heads are grouped already", fusions::SdpaRepeat(Op::kSdpa), [&](Graphs& m) {
    const ValueId k = repeated(m, m.In({1, 1, 5, 4}), 1, 2), v = repeated(m, m.In({1, 1, 5, 4}), 1, 2);
    m.g.AddOutput("y", m.Node(Op::kSdpa, {m.In({1, 4, 5, 4}), k, v}, m.Heads(4, 2)));
  });
  Refuses("the head merge does not go from rank 4 to rank 3 or 2", fusions::SdpaMerge(Op::kSdpa), [](Graphs& m) {
    const ValueId y = m.Node(Op::kSdpa, {m.In({1, 2, 5, 4}), m.In({1, 2, 5, 4}), m.In({1, 2, 5, 4})}, m.Heads(2, 2));
    m.g.AddOutput("y", m.Reshape(m.Perm(y, {0, 2, 1, 3}), {-1}));
  });
}

// (x - mean(x)) / deviation * gamma + beta, with this mean.
void Norm(Graphs& m, ValueId x, ValueId mean) {
  const ValueId d = m.Node(Op::kSub, {x, mean});
  const ValueId var = m.Node(Op::kReduceMean, {m.Node(Op::kMul, {d, d}), m.Ints({-1})});
  const ValueId root = m.Node(Op::kSqrt, {m.Node(Op::kAdd, {var, m.Real(1e-5f)})});
  m.g.AddOutput("y", m.Node(Op::kAdd, {m.Node(Op::kMul, {m.Node(Op::kDiv, {d, root}), m.Filled({8})}), m.Filled({8})}));
}

TEST(Refusals, OfNorms) {
  Refuses("its axes are not one constant", fusions::LayerNorm(), [](Graphs& m) {
    const ValueId x = m.In({2, 8});
    Norm(m, x, m.Node(Op::kReduceMean, {x, m.Ints({0, 1})}));
  });
  Refuses("it drops the dimension", fusions::LayerNorm(), [](Graphs& m) {
    const ValueId x = m.In({8, 8});
    Norm(m, x, m.Node(Op::kReduceMean, {x, m.Ints({-1})}, {{"keepdims", int64_t{0}}}));
  });
  Refuses("the mean or deviation output is used", fusions::SkipLayerNorm(Op::kLayerNormalization), [](Graphs& m) {
    const ValueId sum = m.Node(Op::kAdd, {m.In({2, 8}), m.In({2, 8})});
    const NodeId norm = m.g.AddNode(Op::kLayerNormalization, {sum, m.Filled({8})}, 2, {}, "norm");
    for (size_t i = 0; i < 2; ++i) m.g.AddOutput("y" + std::to_string(i), m.g.node(norm).output(i));
  });
  Refuses("the mean or deviation of the norm is used", fusions::NormQuant(Op::kLayerNormalization), [](Graphs& m) {
    const NodeId norm = m.g.AddNode(Op::kLayerNormalization, {m.In({2, 8}), m.Filled({8})}, 2, {}, "norm");
    m.g.AddOutput("mean", m.g.node(norm).output(1));
    m.g.AddOutput("y", m.Quantize(m.g.node(norm).output(), 0.1f, 128));
  });
  Refuses("the norm is not f32", fusions::NormQuant(Op::kLayerNormalization), [](Graphs& m) {
    const auto half = [&](ValueId v) { return m.Node(Op::kCast, {v}, {{"to", static_cast<int64_t>(DType::kF16)}}); };
    const ValueId norm = m.Node(Op::kLayerNormalization, {m.In({2, 8}, DType::kF16), half(m.Filled({8}))});
    const ValueId scale = m.g.AddConstant(Tensor::Of<uint16_t>(DType::kF16, {}, std::vector<uint16_t>{0x2e66}));
    m.g.AddOutput("y", m.Node(Op::kQuantizeLinear, {norm, scale, m.Zero(DType::kU8, 128)}));
  });
}

TEST(Refusals, OfInt8Linears) {
  const auto product = [](Graphs& m, ValueId scale, int64_t axis) {
    const ValueId w = m.Node(Op::kDequantizeLinear, {m.Codes({16, 8}), scale}, {{"axis", axis}});
    return m.Node(Op::kMatMul, {m.Coded(m.In({2, 16}), 0.1f, 128), w});
  };
  Refuses("the weight's scale is neither per tensor nor per output column (16 values, axis 0)",
          fusions::LinearInt8(false, false), [&](Graphs& m) { m.g.AddOutput("y", product(m, m.Filled({16}), 0)); });
  Refuses("its gate has the slope 1.7019999, the kernel's is 1.702", fusions::LinearInt8(false, true), [&](Graphs& m) {
    const ValueId y = m.Node(Op::kAdd, {product(m, m.Filled({8}), 1), m.Filled({8})}),
                  slope = m.Real(std::nextafter(1.702f, 1.0f));
    m.g.AddOutput("y", m.Node(Op::kMul, {y, m.Node(Op::kSigmoid, {m.Node(Op::kMul, {y, slope})})}));
  });
  Refuses("the product is f16, for which there is no kernel: its scales must be f32", fusions::LinearInt8(false, false),
          [](Graphs& m) {
            const ValueId scale = m.g.AddConstant(Tensor::Of<uint16_t>(DType::kF16, {}, std::vector<uint16_t>{0x2e66}));
            const ValueId x =
                m.Node(Op::kDequantizeLinear, {m.In({2, 16}, DType::kU8), scale, m.Zero(DType::kU8, 128)});
            m.g.AddOutput("y", m.Node(Op::kMatMul, {x, m.Node(Op::kDequantizeLinear, {m.Codes({16, 8}), scale})}));
          });
  Refuses("the Linear's output is quantized already, or has a residual", fusions::LinearResidual(false), [](Graphs& m) {
    std::vector<ValueId> in{m.In({2, 16}, DType::kU8), m.Real(0.1f), m.Zero(DType::kU8, 128), m.Codes({16, 8}),
                            m.Real(0.1f)};
    in.resize(10);
    in[9] = m.In({2, 8});
    m.g.AddOutput("y", m.Node(Op::kAdd, {m.Node(Op::kLinearInt8, in), m.In({2, 8})}));
  });
}

TEST(Refusals, OfBlocks) {
  Refuses("the blocks of the weight lie along its columns, not along k", fusions::LinearBlocked(false), [](Graphs& m) {
    const ValueId w = m.Node(Op::kDequantizeLinear, {m.Codes({32, 64}), m.Filled({32, 2})},
                             {{"axis", int64_t{1}}, {"block_size", int64_t{32}}});
    m.g.AddOutput("y", m.Node(Op::kMatMul, {m.In({2, 32}), w}));
  });
}

TEST(Refusals, OfInt8Attention) {
  Refuses("q, k, v, P and the output are partly fp8, partly integers", fusions::SdpaInt8(false), [](Graphs& m) {
    const auto real = [&](SymShape shape, DType t) { return m.Dequantize(m.In(std::move(shape), t), 0.1f, 0, t); };
    const ValueId s = m.Node(Op::kMatMul, {real({1, 2, 5, 4}, DType::kU8), real({1, 2, 4, 5}, DType::kE4M3FN)});
    const ValueId p = m.Coded(m.Node(Op::kSoftmax, {s}), 1 / 255.0f, 0);
    m.g.AddOutput("y", m.Node(Op::kMatMul, {p, real({1, 2, 5, 4}, DType::kU8)}));
  });
  Refuses("attention between its codes is not f32, for which there is no kernel", fusions::SdpaInt8(false),
          [](Graphs& m) {
            const ValueId scale = m.g.AddConstant(Tensor::Of<uint16_t>(DType::kF16, {}, std::vector<uint16_t>{0x2e66}));
            const ValueId zero = m.Zero(DType::kU8, 0);
            const auto real = [&](ValueId q) { return m.Node(Op::kDequantizeLinear, {q, scale, zero}); };
            const ValueId s =
                m.Node(Op::kMatMul, {real(m.In({1, 2, 5, 4}, DType::kU8)), real(m.In({1, 2, 4, 5}, DType::kU8))});
            const ValueId p = m.Node(Op::kQuantizeLinear, {m.Node(Op::kSoftmax, {s}), scale, zero});
            m.g.AddOutput("y", m.Node(Op::kMatMul, {real(p), real(m.In({1, 2, 5, 4}, DType::kU8))}));
          });
}

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
