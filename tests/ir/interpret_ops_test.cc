// Ops that ONNX's node data of 1.17 lacks (Attention, RotaryEmbedding, RMSNormalization, TensorScatter, Swish) against
// double arithmetic, and corners of the others: orders of summation, empty tensors, bounds, control flow.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "octavo/quant/numeric/math.h"
#include "octavo/tests/ir/interpret_testing.h"

namespace octavo::ir::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr uint32_t kSeed = 4711;

Tensor Random(std::mt19937& rng, Shape shape) {
  Tensor t = Tensor::Empty(DType::kF32, std::move(shape));
  std::normal_distribution<float> d;
  for (float& v : t.mutable_as<float>()) v = d(rng);
  return t;
}

Tensor Ints(std::vector<int64_t> v) {
  const auto n = static_cast<int64_t>(v.size());
  return Tensor::S64({n}, std::move(v));
}

// --- Attention -------------------------------------------------------------------------------------------------

struct Case {
  int64_t heads = 4, groups = 2, queries = 5, keys = 7, past = 0;
  bool causal = false, three = false;
  double cap = 0;
  Tensor mask = {};  // [queries, past + keys], f32 or bool; or undefined
};

double At(const Tensor& t, int64_t b, int64_t h, int64_t s, int64_t d) {
  const Shape& n = t.shape();
  return t.GetDouble(((b * n[1] + h) * n[2] + s) * n[3] + d);
}

// y in double, straight from the definition.
std::vector<double> AttentionTruth(const Case& c, const Tensor& q, const Tensor& k, const Tensor& v) {
  const int64_t batch = q.shape()[0], dim = q.shape()[3], v_dim = v.shape()[3], total = k.shape()[2];
  std::vector<double> y;
  for (int64_t b = 0; b < batch; ++b) {
    for (int64_t h = 0; h < c.heads; ++h) {
      const int64_t g = h / (c.heads / c.groups);
      for (int64_t i = 0; i < c.queries; ++i) {
        std::vector<double> e;
        double sum = 0;
        for (int64_t j = 0; j < total; ++j) {
          double s = 0;
          for (int64_t d = 0; d < dim; ++d) s += At(q, b, h, i, d) * At(k, b, g, j, d);
          s /= std::sqrt(static_cast<double>(dim));
          if (c.cap > 0) s = c.cap * std::tanh(s / c.cap);
          if (c.mask.defined()) {
            const double m = c.mask.GetDouble(i * total + j);
            s += c.mask.dtype() == DType::kBool ? (m != 0 ? 0 : -INFINITY) : m;
          }
          if (c.causal && j > i + c.past) s = -INFINITY;
          e.push_back(std::exp(s));
          sum += e.back();
        }
        for (int64_t d = 0; d < v_dim; ++d) {
          double r = 0;
          for (int64_t j = 0; j < total; ++j) r += sum == 0 ? 0 : e[static_cast<size_t>(j)] / sum * At(v, b, g, j, d);
          y.push_back(r);
        }
      }
    }
  }
  return y;
}

Tensor Cat(const Tensor& past, const Tensor& now) { return Eval1(Op::kConcat, {past, now}, {{"axis", int64_t{2}}}); }

void CheckAttention(const Case& c, const char* what) {
  SCOPED_TRACE(::testing::Message() << what << ", seed " << kSeed);
  std::mt19937 rng(kSeed);
  const int64_t batch = 2, dim = 6, v_dim = 4;
  const Tensor q = Random(rng, {batch, c.heads, c.queries, dim});
  const Tensor k = Random(rng, {batch, c.groups, c.keys, dim}), v = Random(rng, {batch, c.groups, c.keys, v_dim});
  Tensor old_k, old_v, all_k = k, all_v = v;
  if (c.past > 0) {
    old_k = Random(rng, {batch, c.groups, c.past, dim});
    old_v = Random(rng, {batch, c.groups, c.past, v_dim});
    all_k = Cat(old_k, k);
    all_v = Cat(old_v, v);
  }
  Attrs attrs;
  if (c.causal) attrs.Set("is_causal", int64_t{1});
  if (c.cap > 0) attrs.Set("softcap", static_cast<float>(c.cap));
  std::vector<Tensor> in = {q, k, v, c.mask, old_k, old_v};
  if (c.three) {
    for (size_t i = 0; i < 3; ++i) {
      const Shape s = in[i].shape();
      in[i] = Eval1(Op::kTranspose, {in[i]}, {{"perm", std::vector<int64_t>{0, 2, 1, 3}}})
                  .Reshaped({s[0], s[2], s[1] * s[3]});
    }
    attrs.Set("q_num_heads", c.heads);
    attrs.Set("kv_num_heads", c.groups);
  }
  auto r = Eval(Op::kAttention, in, attrs, c.past > 0 ? 3 : 1);
  ASSERT_TRUE(r) << r.error().message;
  Tensor y = (*r)[0].tensor;
  if (c.three) {
    ASSERT_EQ(y.shape(), (Shape{batch, c.queries, c.heads * v_dim}));
    y = Eval1(Op::kTranspose, {y.Reshaped({batch, c.queries, c.heads, v_dim})},
              {{"perm", std::vector<int64_t>{0, 2, 1, 3}}});
  }
  const std::vector<double> want = AttentionTruth(c, q, all_k, all_v);
  ASSERT_EQ(y.size(), static_cast<int64_t>(want.size()));
  for (size_t i = 0; i < want.size(); ++i) ASSERT_NEAR(y.GetDouble(static_cast<int64_t>(i)), want[i], 2e-5) << i;
  if (c.past > 0) {
    EXPECT_TRUE((*r)[1].tensor.SameBits(all_k));
    EXPECT_TRUE((*r)[2].tensor.SameBits(all_v));
  }
}

TEST(Attention, AgreesWithDouble) {
  CheckAttention({}, "plain");
  CheckAttention({.three = true}, "rank 3");
  CheckAttention({.queries = 7, .causal = true}, "causal");
  CheckAttention({.queries = 3, .keys = 3, .past = 4, .causal = true}, "causal with past");
  CheckAttention({.cap = 1.5}, "soft cap");
  Case masked{.queries = 2, .keys = 3, .cap = 2.0};
  masked.mask = Bool({2, 3}, {1, 0, 1, 0, 0, 0});  // the second row is wholly masked: zeros
  CheckAttention(masked, "bool mask");
  masked.mask = Tensor::F32({2, 3}, {0, -1, 2, 0.5f, -INFINITY, 0});
  CheckAttention(masked, "float mask");
}

TEST(Attention, GivesTheScoresOfEachStage) {
  std::mt19937 rng(kSeed);
  const Tensor q = Random(rng, {1, 1, 2, 4}), k = Random(rng, {1, 1, 3, 4}), v = Random(rng, {1, 1, 3, 4});
  const Tensor mask = Tensor::F32({2, 3}, {1, 2, 3, 4, 5, 6});
  Tensor stage[4];
  for (int64_t mode = 0; mode < 4; ++mode) {
    auto r = Eval(Op::kAttention, {q, k, v, mask}, {{"qk_matmul_output_mode", mode}, {"softcap", 0.7f}}, 4);
    ASSERT_TRUE(r) << r.error().message;
    stage[mode] = (*r)[3].tensor;
  }
  for (int64_t i = 0; i < 6; ++i) {
    EXPECT_NEAR(stage[1].GetDouble(i), 0.7 * std::tanh(stage[0].GetDouble(i) / 0.7), 1e-6);
    EXPECT_NEAR(stage[2].GetDouble(i), stage[1].GetDouble(i) + mask.GetDouble(i), 1e-6);
  }
  EXPECT_NEAR(stage[3].GetDouble(0) + stage[3].GetDouble(1) + stage[3].GetDouble(2), 1.0, 1e-6);
}

TEST(Attention, RefusesWhatDoesNotFit) {
  std::mt19937 rng(kSeed);
  const Tensor q = Random(rng, {1, 3, 2, 4}), k = Random(rng, {1, 2, 3, 4});
  EXPECT_THAT(ErrorOf(Op::kAttention, {q, k, k}), HasSubstr("do not fit"));
  EXPECT_THAT(ErrorOf(Op::kAttention, {k, k, k, Tensor::F32({5, 3}, std::vector<float>(15))}), HasSubstr("mask"));
  EXPECT_THAT(ErrorOf(Op::kAttention, {q.Reshaped({3, 2, 4}), q.Reshaped({3, 2, 4}), q.Reshaped({3, 2, 4})}),
              HasSubstr("heads"));
}

// --- other ops without node data -------------------------------------------------------------------------------

TEST(RotaryEmbedding, RotatesPairs) {
  std::mt19937 rng(kSeed);
  const int64_t batch = 2, heads = 3, length = 4, dim = 8, half = 3;  // 6 of 8 dims are rotated
  const Tensor x = Random(rng, {batch, heads, length, dim});
  const Tensor cos = Random(rng, {10, half}), sin = Random(rng, {10, half});
  const Tensor at = Tensor::S64({batch, length}, {3, 1, 4, 1, 5, 9, 2, 6});
  for (const bool interleaved : {false, true}) {
    const Tensor y = Eval1(Op::kRotaryEmbedding, {x, cos, sin, at},
                           {{"rotary_embedding_dim", int64_t{6}}, {"interleaved", int64_t{interleaved}}});
    ASSERT_TRUE(y.defined());
    for (int64_t line = 0; line < batch * heads * length; ++line) {
      const int64_t row = at.GetInt(line / (heads * length) * length + line % length);
      for (int64_t i = 0; i < half; ++i) {
        const int64_t p = line * dim + (interleaved ? 2 * i : i), q = line * dim + (interleaved ? 2 * i + 1 : i + half);
        const double c = cos.GetDouble(row * half + i), s = sin.GetDouble(row * half + i);
        EXPECT_NEAR(y.GetDouble(p), c * x.GetDouble(p) - s * x.GetDouble(q), 1e-6);
        EXPECT_NEAR(y.GetDouble(q), s * x.GetDouble(p) + c * x.GetDouble(q), 1e-6);
      }
      EXPECT_EQ(y.GetDouble(line * dim + 7), x.GetDouble(line * dim + 7));
    }
  }
  for (const int64_t odd : {10, -1}) {  // -1 is no last row
    EXPECT_THAT(ErrorOf(Op::kRotaryEmbedding, {x, cos, sin, Tensor::S64({batch, length}, {0, 0, 0, 0, 0, 0, 0, odd})},
                        {{"rotary_embedding_dim", int64_t{6}}}),
                HasSubstr(std::format("position {} is outside of caches of 10 rows", odd)));
  }
}

// As ONNX's bodies have it, whose last step is a Mul: DiffLlama's norm of heads.
TEST(RowNorms, AScaleMayDifferFromRowToRow) {
  const Tensor x = Tensor::F32({2, 3, 2}, {1, 2, 3, -4, 5, 7, -7, 8, 9, 1, 0.5f, 2});
  const Tensor scale = Tensor::F32({3, 2}, {2, 3, 0.1f, 0.7f, -5, 11}), one = Tensor::F32({2}, {1, 1});
  for (const Op op : {Op::kRMSNormalization, Op::kLayerNormalization}) {
    const Tensor want = Eval1(Op::kMul, {Eval1(op, {x, one}, {}), scale});
    EXPECT_TRUE(Eval1(op, {x, scale}, {}).SameBits(want));
    EXPECT_TRUE(Eval1(op, {x, scale.Reshaped({1, 3, 2})}, {}).SameBits(want));
    EXPECT_TRUE(Eval1(op, {x, one.Reshaped({1, 1, 2})}, {}).SameBits(Eval1(op, {x, one}, {})));
  }
}

TEST(RmsNormalization, AgreesWithDouble) {
  std::mt19937 rng(kSeed);
  const Tensor x = Random(rng, {3, 37}), g = Random(rng, {37});
  const Tensor y = Eval1(Op::kRMSNormalization, {x, g}, {{"epsilon", 1e-6f}});
  ASSERT_TRUE(y.defined());
  for (int64_t r = 0; r < 3; ++r) {
    double squares = 0;
    for (int64_t i = 0; i < 37; ++i) squares += x.GetDouble(r * 37 + i) * x.GetDouble(r * 37 + i);
    const double scale = 1 / std::sqrt(squares / 37 + 1e-6);
    for (int64_t i = 0; i < 37; ++i)
      EXPECT_NEAR(y.GetDouble(r * 37 + i), x.GetDouble(r * 37 + i) * scale * g.GetDouble(i), 1e-5);
  }
}

TEST(TensorScatter, WritesAtEachBatchsPosition) {
  const Tensor x = Tensor::F32({2, 4, 1}, {0, 0, 0, 0, 0, 0, 0, 0}), u = Tensor::F32({2, 2, 1}, {1, 2, 3, 4});
  EXPECT_THAT(Eval1(Op::kTensorScatter, {x, u, Ints({1, 2})}).ToFloats(), ElementsAre(0, 1, 2, 0, 0, 0, 3, 4));
  EXPECT_THAT(Eval1(Op::kTensorScatter, {x, u, Ints({1, 3})}, {{"mode", std::string("circular")}}).ToFloats(),
              ElementsAre(0, 1, 2, 0, 4, 0, 0, 3));
  EXPECT_THAT(ErrorOf(Op::kTensorScatter, {x, u, Ints({1, 3})}), HasSubstr("write position 3"));
}

TEST(Swish, IsXTimesSigmoid) {
  const Tensor y = Eval1(Op::kSwish, {Tensor::F32({2}, {1.0f, -2.0f})}, {{"alpha", 1.5f}});
  EXPECT_NEAR(y.GetDouble(0), 1 / (1 + std::exp(-1.5)), 1e-6);
  EXPECT_NEAR(y.GetDouble(1), -2 / (1 + std::exp(3.0)), 1e-6);
}

// --- orders that kernels share ---------------------------------------------------------------------------------

TEST(Reduce, LastAxisIsSum16AndOthersAreSequential) {
  std::mt19937 rng(kSeed);
  const Tensor x = Random(rng, {3, 50, 33});
  const Tensor last = Eval1(Op::kReduceSum, {x, Ints({-1})}), mean = Eval1(Op::kReduceMean, {x, Ints({2})});
  const Tensor middle = Eval1(Op::kReduceSum, {x, Ints({1})}, {{"keepdims", int64_t{0}}});
  for (int64_t r = 0; r < 150; ++r) {
    const float sum = quant::Sum16(x.as<float>().data() + r * 33, 33);
    EXPECT_EQ(last.as<float>()[static_cast<size_t>(r)], sum);
    EXPECT_EQ(mean.as<float>()[static_cast<size_t>(r)], sum / 33.0f);
  }
  for (int64_t b = 0; b < 3; ++b) {
    for (int64_t j = 0; j < 33; ++j) {
      float sum = 0;
      for (int64_t i = 0; i < 50; ++i) sum += x.as<float>()[static_cast<size_t>((b * 50 + i) * 33 + j)];
      EXPECT_EQ(middle.as<float>()[static_cast<size_t>(b * 33 + j)], sum);
    }
  }
}

TEST(MatMul, AddsInOrderOfK) {
  std::mt19937 rng(kSeed);
  // beyond the blocks of 128 and 512 that the loops use
  const int64_t m = 3, k = 300, n = 700;
  const Tensor a = Random(rng, {m, k}), b = Random(rng, {k, n});
  const Tensor y = Eval1(Op::kMatMul, {a, b});
  ASSERT_TRUE(y.defined());
  for (int64_t i = 0; i < m; ++i) {
    for (int64_t j = 0; j < n; ++j) {
      volatile float sum = 0;  // no fused multiply-add, no reordering
      for (int64_t p = 0; p < k; ++p) {
        volatile float product =
            a.as<float>()[static_cast<size_t>(i * k + p)] * b.as<float>()[static_cast<size_t>(p * n + j)];
        sum = sum + product;
      }
      ASSERT_EQ(y.as<float>()[static_cast<size_t>(i * n + j)], sum) << i << "," << j;
    }
  }
}

TEST(MatMul, BroadcastsBatchesAndVectors) {
  std::mt19937 rng(kSeed);
  const Tensor a = Random(rng, {2, 1, 3, 4}), b = Random(rng, {5, 4, 2});
  const Tensor y = Eval1(Op::kMatMul, {a, b});
  ASSERT_EQ(y.shape(), (Shape{2, 5, 3, 2}));
  for (int64_t i = 0; i < y.size(); ++i) {
    const int64_t c = i % 2, r = i / 2 % 3, q = i / 6 % 5, p = i / 30;
    double want = 0;
    for (int64_t d = 0; d < 4; ++d) want += a.GetDouble((p * 3 + r) * 4 + d) * b.GetDouble((q * 4 + d) * 2 + c);
    EXPECT_NEAR(y.GetDouble(i), want, 1e-5);
  }
  EXPECT_EQ(Eval1(Op::kMatMul, {Random(rng, {4}), Random(rng, {4})}).shape(), (Shape{}));
  EXPECT_EQ(Eval1(Op::kMatMul, {Random(rng, {4}), Random(rng, {3, 4, 2})}).shape(), (Shape{3, 2}));
  EXPECT_EQ(Eval1(Op::kMatMul, {Random(rng, {3, 0}), Random(rng, {0, 2})}).ToFloats(), std::vector<float>(6, 0.0f));
  EXPECT_EQ(Eval1(Op::kMatMul, {Random(rng, {0, 4}), Random(rng, {4, 2})}).shape(), (Shape{0, 2}));
  EXPECT_THAT(ErrorOf(Op::kMatMul, {a, a}), HasSubstr("inner dims 4 and 3"));
  EXPECT_THAT(Eval1(Op::kMatMul, {S32({1, 2}, {1 << 20, 3}), S32({2, 1}, {1 << 12, 5})}).ToInts(),
              ElementsAre(15));  // wraps
}

TEST(Einsum, AgreesWithTheDefinition) {
  std::mt19937 rng(kSeed);
  const Tensor a = Random(rng, {2, 3, 4}), b = Random(rng, {4, 3, 5}), c = Random(rng, {5, 2});
  const Tensor y = Eval1(Op::kEinsum, {a, b, c}, {{"equation", std::string("bij,jik,kb->ib")}});
  ASSERT_EQ(y.shape(), (Shape{3, 2}));
  for (int64_t i = 0; i < 3; ++i) {
    for (int64_t n = 0; n < 2; ++n) {
      double want = 0;
      for (int64_t j = 0; j < 4; ++j) {
        for (int64_t k = 0; k < 5; ++k) {
          want += a.GetDouble((n * 3 + i) * 4 + j) * b.GetDouble((j * 3 + i) * 5 + k) * c.GetDouble(k * 2 + n);
        }
      }
      EXPECT_NEAR(y.GetDouble(i * 2 + n), want, 1e-4);
    }
  }
  // a label of one operand only; an ellipsis with broadcasting; a repeated label
  EXPECT_NEAR(Eval1(Op::kEinsum, {c}, {{"equation", std::string("ab->")}}).GetDouble(0),
              quant::Sum16(c.as<float>().data(), 10), 1e-5);
  EXPECT_EQ(Eval1(Op::kEinsum, {a, Random(rng, {1, 4, 6})}, {{"equation", std::string("...ij,...jk")}}).shape(),
            (Shape{2, 3, 6}));
  EXPECT_NEAR(Eval1(Op::kEinsum, {Tensor::F32({2, 2}, {1, 2, 3, 4})}, {{"equation", std::string("ii")}}).GetDouble(0),
              5, 0);
  EXPECT_THAT(ErrorOf(Op::kEinsum, {a, c}, {{"equation", std::string("bij,bj->i")}}), HasSubstr("sizes"));
  EXPECT_THAT(ErrorOf(Op::kEinsum, {a}, {{"equation", std::string("ij->i")}}), HasSubstr("rank 3"));
}

// --- bounds ----------------------------------------------------------------------------------------------------

// Lines go side by side, 64 at a time: sums are those of each line by itself.
TEST(Sums, AlongAnyAxis) {
  std::mt19937 rng(kSeed);
  for (const int64_t inner : {1, 3, 64, 150}) {
    for (int flags = 0; flags < 4; ++flags) {
      const bool exclusive = flags % 2 != 0, reverse = flags / 2 != 0;
      const Tensor x = Random(rng, {2, 5, inner});
      const Tensor y = Eval1(Op::kCumSum, {x, Tensor::S64({}, {1})},
                             {{"exclusive", int64_t{exclusive}}, {"reverse", int64_t{reverse}}});
      for (int64_t line = 0; line < 2 * inner; ++line) {
        float sum = 0;
        for (int64_t j = 0; j < 5; ++j) {
          const auto at = static_cast<size_t>((line / inner * 5 + (reverse ? 4 - j : j)) * inner + line % inner);
          const float next = sum + x.as<float>()[at];
          ASSERT_EQ(y.as<float>()[at], exclusive ? sum : next);
          sum = next;
        }
      }
    }
  }
}

TEST(Bounds, AreSentences) {
  const Tensor x = Tensor::F32({2, 3}, {1, 2, 3, 4, 5, 6});
  EXPECT_THAT(ErrorOf(Op::kGather, {x, Ints({3})}, {{"axis", int64_t{1}}}),
              AllOf(HasSubstr("index 3"), HasSubstr("size 3")));
  EXPECT_THAT(ErrorOf(Op::kGather, {x, Ints({-3})}), HasSubstr("index -3"));
  EXPECT_THAT(ErrorOf(Op::kGatherND, {x, Tensor::S64({1, 2}, {1, 3})}), HasSubstr("index 3"));
  EXPECT_THAT(ErrorOf(Op::kGatherElements, {x, Tensor::S64({2, 1}, {0, 2})}), HasSubstr("index 2"));
  EXPECT_THAT(ErrorOf(Op::kScatterND, {x, Tensor::S64({1, 1}, {2}), Tensor::F32({1, 3}, {0, 0, 0})}),
              HasSubstr("index 2"));
  EXPECT_THAT(ErrorOf(Op::kReshape, {x, Ints({4, 2})}), AllOf(HasSubstr("6 elements"), HasSubstr("[4,2]")));
  EXPECT_THAT(ErrorOf(Op::kReshape, {x, Ints({-1, -1})}), HasSubstr("second -1"));
  EXPECT_EQ(Eval1(Op::kReshape, {Tensor::Zeros(DType::kF32, {0, 3, 8}), Ints({0, 0, -1, 4})}).shape(),
            (Shape{0, 3, 2, 4}));  // as inference has it for any batch
  EXPECT_THAT(ErrorOf(Op::kReshape, {x, Ints({0, 0, 0})}), HasSubstr("dim 2"));
  EXPECT_THAT(ErrorOf(Op::kExpand, {x, Ints({-2, 3})}), HasSubstr("negative"));
  EXPECT_THAT(ErrorOf(Op::kExpand, {x, Ints({int64_t{1} << 40, 2, 3})}), HasSubstr("64 GB"));
  EXPECT_THAT(ErrorOf(Op::kConstantOfShape, {Ints({int64_t{1} << 62, int64_t{1} << 62, 4})}), HasSubstr("64 GB"));
  EXPECT_THAT(ErrorOf(Op::kRange, {Tensor::ScalarS64(0), Tensor::ScalarS64(INT64_MAX), Tensor::ScalarS64(1)}),
              HasSubstr("too long"));
  EXPECT_THAT(ErrorOf(Op::kRange, {Tensor::ScalarF32(0), Tensor::ScalarF32(1), Tensor::ScalarF32(0)}),
              HasSubstr("step"));
  EXPECT_THAT(ErrorOf(Op::kTile, {x, Ints({int64_t{1} << 62, 2})}), HasSubstr("64 GB"));
  EXPECT_THAT(ErrorOf(Op::kSplit, {x, Ints({1, 1})}, {{"axis", int64_t{1}}}, 2), HasSubstr("add up to 3"));
  EXPECT_THAT(ErrorOf(Op::kSqueeze, {x, Ints({0})}), HasSubstr("size 2"));
  EXPECT_THAT(ErrorOf(Op::kTranspose, {x}, {{"perm", std::vector<int64_t>{0, 0}}}), HasSubstr("twice"));
  EXPECT_THAT(ErrorOf(Op::kConcat, {x, Tensor::F32({3, 2}, {1, 2, 3, 4, 5, 6})}, {{"axis", int64_t{0}}}),
              HasSubstr("does not fit"));
  EXPECT_THAT(ErrorOf(Op::kSlice, {x, Ints({0}), Ints({1}), Ints({0}), Ints({0})}), HasSubstr("step of 0"));
  EXPECT_THAT(ErrorOf(Op::kTopK, {x, Ints({4})}, {}, 2), HasSubstr("4 elements"));
  EXPECT_THAT(ErrorOf(Op::kPad, {x, Ints({0, -4, 0, 0})}), HasSubstr("crop"));
  EXPECT_THAT(ErrorOf(Op::kSoftmax, {x}, {{"axis", int64_t{2}}}), HasSubstr("axis 2"));
  EXPECT_THAT(ErrorOf(Op::kConv, {Tensor::Zeros(DType::kF32, {1, 3, 4, 4}), Tensor::Zeros(DType::kF32, {2, 2, 3, 3})}),
              HasSubstr("groups"));
  EXPECT_THAT(ErrorOf(Op::kAveragePool, {Tensor::Zeros(DType::kF32, {1, 3, 4, 4})},
                      {{"kernel_shape", std::vector<int64_t>{5, 5}}}),
              HasSubstr("does not fit"));
}

TEST(Slices, ClampLikeOnnx) {
  const Tensor x = Tensor::S64({5}, {0, 1, 2, 3, 4});
  const auto slice = [&](int64_t s, int64_t e, int64_t step) {
    const Tensor y = Eval1(Op::kSlice, {x, Ints({s}), Ints({e}), Ints({0}), Ints({step})});
    return y.defined() ? y.ToInts() : std::vector<int64_t>{-99};
  };
  EXPECT_THAT(slice(1, INT64_MAX, 2), ElementsAre(1, 3));
  EXPECT_THAT(slice(-1, INT64_MIN, -2), ElementsAre(4, 2, 0));
  EXPECT_THAT(slice(100, 0, -1), ElementsAre(4, 3, 2, 1));
  EXPECT_THAT(slice(3, 1, 1), ElementsAre());
  EXPECT_THAT(slice(INT64_MIN, 2, 1), ElementsAre(0, 1));
  EXPECT_THAT(slice(4, -7, INT64_MIN + 1), ElementsAre(4));
}

TEST(Empty, TensorsPassThrough) {
  const Tensor x = Tensor::Zeros(DType::kF32, {2, 0, 3});
  EXPECT_EQ(Eval1(Op::kReduceSum, {x, Ints({1})}).ToFloats(), std::vector<float>(6, 0.0f));
  EXPECT_EQ(Eval1(Op::kReduceMax, {x, Ints({1})}).GetDouble(0), -INFINITY);
  EXPECT_EQ(Eval1(Op::kSoftmax, {x}).shape(), x.shape());
  EXPECT_EQ(Eval1(Op::kConcat, {x, Tensor::Zeros(DType::kF32, {2, 4, 3})}, {{"axis", int64_t{1}}}).shape(),
            (Shape{2, 4, 3}));
  EXPECT_EQ(Eval1(Op::kTranspose, {x}).shape(), (Shape{3, 0, 2}));
  EXPECT_EQ(Eval1(Op::kReshape, {x, Ints({-1, 3})}).shape(), (Shape{0, 3}));
  EXPECT_EQ(Eval1(Op::kGather, {x, Tensor::S64({0}, {})}).shape(), (Shape{0, 0, 3}));
  EXPECT_EQ(Eval1(Op::kNonZero, {x}).shape(), (Shape{3, 0}));
  EXPECT_THAT(ErrorOf(Op::kArgMax, {x}, {{"axis", int64_t{1}}}), HasSubstr("empty"));
}

TEST(Views, ShareTheBytes) {
  const Tensor x = Tensor::F32({2, 3}, {1, 2, 3, 4, 5, 6});
  EXPECT_EQ(Eval1(Op::kReshape, {x, Ints({3, 2})}).data(), x.data());
  EXPECT_EQ(Eval1(Op::kUnsqueeze, {x, Ints({1})}).data(), x.data());
  EXPECT_EQ(Eval1(Op::kFlatten, {x}).data(), x.data());
  EXPECT_EQ(Eval1(Op::kIdentity, {x}).data(), x.data());
}

TEST(Nibbles, MoveAsElements) {
  // 4-bit values 1..6 in rows of three: rows start in the middle of a byte
  const Tensor x = Eval1(Op::kCast, {Tensor::S64({2, 3}, {1, 2, 3, -4, -5, -6})}, {{"to", int64_t{22}}});
  ASSERT_EQ(x.dtype(), DType::kS4);
  const Tensor t = Eval1(Op::kTranspose, {x});
  ASSERT_EQ(t.dtype(), DType::kS4);
  EXPECT_THAT(t.ToInts(), ElementsAre(1, -4, 2, -5, 3, -6));
  EXPECT_THAT(Eval1(Op::kGather, {x, Ints({1})}).ToInts(), ElementsAre(-4, -5, -6));
}

// --- control flow ----------------------------------------------------------------------------------------------

TEST(Interpret, ChecksInputsAndReportsNodes) {
  Graph g;
  const ValueId x = g.AddInput("x", {DType::kF32, SymShape{Dim::Symbol("n"), 2}});
  const ValueId y = g.node(g.AddNode(Op::kRelu, {x}, 1, {}, "relu")).output();
  g.AddOutput("y", y);
  g.AddOutput("again", x);
  std::vector<std::string> seen;
  InterpretOptions options;
  options.on_node = [&](const Node& n, std::span<const RtValue> out) {
    seen.push_back(n.name + std::to_string(out.size()));
  };
  const auto r = Interpret(g, {{"x", Tensor::F32({1, 2}, {-1, 2})}}, options);
  ASSERT_TRUE(r) << r.error().message;
  EXPECT_THAT((*r)[0].ToFloats(), ElementsAre(0, 2));
  EXPECT_THAT((*r)[1].ToFloats(), ElementsAre(-1, 2));
  EXPECT_THAT(seen, ElementsAre("relu1"));
  const auto message = [&](const TensorMap& in) {
    const auto result = Interpret(g, in);
    return result ? std::string() : result.error().message;
  };
  EXPECT_THAT(message({}), HasSubstr("'x'"));
  EXPECT_THAT(message({{"x", Tensor::S64({1, 2}, {1, 2})}}), HasSubstr("declares f32[n,2]"));
  EXPECT_THAT(message({{"x", Tensor::F32({2}, {1, 2})}}), HasSubstr("declares"));
  EXPECT_THAT(message({{"x", Tensor::F32({1, 3}, {1, 2, 3})}}), HasSubstr("declares"));
  EXPECT_THAT(message({{"x", Tensor::F32({1, 2}, {1, 2})}, {"z", Tensor::F32({1}, {1})}}), HasSubstr("no input 'z'"));
}

}  // namespace
}  // namespace octavo::ir::testing
