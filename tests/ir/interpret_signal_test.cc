// Recurrent nets, signals, drawn numbers, texts and labels where the ONNX node tests are silent.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "octavo/tests/ir/interpret_testing.h"

namespace octavo::ir::testing {
namespace {

using ::testing::HasSubstr;
using Ints = std::vector<int64_t>;
using Words = std::vector<std::string>;

Tensor Wave(Shape shape, double step) {
  Tensor t = Tensor::Empty(DType::kF32, std::move(shape));
  for (int64_t i = 0; i < t.size(); ++i)
    t.mutable_as<float>()[static_cast<size_t>(i)] = static_cast<float>(std::sin(static_cast<double>(i + 1) * step));
  return t;
}

// Backward is forward on the reversed sequence; both directions together are the two side by side; batch first is a transposition.
TEST(Recurrent, DirectionsAndLayoutsAgree) {
  for (const auto& [op, gates] : {std::pair{Op::kRNN, 1}, {Op::kGRU, 3}, {Op::kLSTM, 4}}) {
    SCOPED_TRACE(InfoOf(op).name);
    const Tensor x = Wave({3, 1, 2}, 0.7), w = Wave({1, gates * 4, 2}, 0.3), r = Wave({1, gates * 4, 4}, 0.2);
    const Tensor turned = Eval1(Op::kReverseSequence, {x, Tensor::S64({1}, {3})});
    const auto run = [&](const Tensor& in, const char* direction) {
      return Eval1(op, {in, w, r}, {{"direction", std::string(direction)}, {"hidden_size", int64_t{4}}});
    };
    const Tensor forward = run(turned, "forward"), backward = run(x, "reverse");
    ASSERT_TRUE(forward.defined() && backward.defined());
    for (int64_t t = 0; t < 3; ++t) {
      for (int64_t i = 0; i < 4; ++i) EXPECT_EQ(forward.GetDouble(t * 4 + i), backward.GetDouble((2 - t) * 4 + i));
    }
    const Tensor first = Eval1(op, {x.Reshaped({1, 3, 2}), w, r}, {{"layout", int64_t{1}}});
    EXPECT_EQ(first.shape(), (Shape{1, 3, 1, 4}));
    EXPECT_EQ(first.ToFloats(), run(x, "forward").ToFloats());
    EXPECT_EQ(Eval1(op, {Wave({0, 1, 2}, 1), w, r}).shape(), (Shape{0, 1, 1, 4}));
    EXPECT_THAT(ErrorOf(op, {x, w, Wave({1, gates * 4, 5}, 1)}), HasSubstr("expected ["));
    EXPECT_THAT(ErrorOf(op, {x, w, r, {}, S32({1}, {4})}), HasSubstr("a sequence of length 4 in 3 steps"));
    EXPECT_THAT(ErrorOf(op, {x, w, r},
                        {{"activations", Words(op == Op::kLSTM  ? 3
                                               : op == Op::kGRU ? 2
                                                                : 1,
                                               "Tan")}}),
                HasSubstr("the activation 'Tan' is not one of ONNX"));
  }
}

// Beyond its length a sequence gives zeros, and the last state is that of its end.
TEST(Recurrent, LengthsEndSequences) {
  const Tensor x = Wave({3, 2, 2}, 0.7), w = Wave({1, 4, 2}, 0.3), r = Wave({1, 4, 4}, 0.2);
  const auto out = Eval(Op::kRNN, {x, w, r, {}, S32({2}, {3, 1})}, {}, 2);
  ASSERT_TRUE(out);
  const Tensor &y = (*out)[0].tensor, &last = (*out)[1].tensor;
  for (int64_t i = 0; i < 4; ++i) {
    EXPECT_EQ(last.GetDouble(4 + i), y.GetDouble(4 + i));
    EXPECT_EQ(y.GetDouble((2 + 1) * 4 + i), 0.0);
  }
  // Backward a sequence of one step is that step.
  const Tensor back = Eval1(Op::kRNN, {x, w, r, {}, S32({2}, {3, 1})}, {{"direction", std::string("reverse")}});
  for (int64_t i = 0; i < 4; ++i) EXPECT_EQ(back.GetDouble(4 + i), y.GetDouble(4 + i));
}

// A transform and its inverse give the signal back, of lengths that are primes, powers and products.
TEST(Signal, DftThereAndBack) {
  for (const int64_t n : {1, 2, 7, 8, 12, 30, 97}) {
    const Tensor x = Wave({2, n, 1}, 0.37);
    const Tensor whole = Eval1(Op::kDFT, {x});
    EXPECT_EQ(whole.shape(), (Shape{2, n, 2}));
    const Tensor back = Eval1(Op::kDFT, {whole}, {{"inverse", int64_t{1}}});
    const Tensor half = Eval1(Op::kDFT, {x}, {{"onesided", int64_t{1}}});
    EXPECT_EQ(half.shape(), (Shape{2, n / 2 + 1, 2}));
    const Tensor real =
        Eval1(Op::kDFT, {half, Tensor::ScalarS64(n)}, {{"inverse", int64_t{1}}, {"onesided", int64_t{1}}});
    ASSERT_EQ(real.shape(), (Shape{2, n, 1}));
    for (int64_t i = 0; i < x.size(); ++i) {  // rounded to float twice: 2^-23 of sums of n
      EXPECT_NEAR(back.GetDouble(2 * i), x.GetDouble(i), 1e-6 * static_cast<double>(n)) << n;
      EXPECT_NEAR(real.GetDouble(i), x.GetDouble(i), 1e-6 * static_cast<double>(n)) << n;
    }
  }
  EXPECT_THAT(ErrorOf(Op::kDFT, {Wave({2, 4, 1}, 1), {}, Tensor::ScalarS64(2)}), HasSubstr("must not be the last one"));
  EXPECT_THAT(ErrorOf(Op::kDFT, {Wave({2, 4, 3}, 1)}), HasSubstr("must be 1 (real) or 2 (complex)"));
  EXPECT_THAT(ErrorOf(Op::kSTFT, {Wave({1, 4, 1}, 1), Tensor::ScalarS64(0)}), HasSubstr("every 0 in a signal of 4"));
  EXPECT_THAT(ErrorOf(Op::kHannWindow, {Tensor::ScalarS64(-1)}), HasSubstr("negative dim"));
}

TEST(Random, IsAFunctionOfTheSeed) {
  const auto draw = [](float seed) {
    return Eval1(Op::kRandomNormal, {}, {{"mean", 3.0f}, {"scale", 2.0f}, {"seed", seed}, {"shape", Ints{10000}}});
  };
  const Tensor a = draw(1), b = draw(2);
  EXPECT_TRUE(a.SameBits(draw(1)));
  EXPECT_FALSE(a.SameBits(b));
  double mean = 0, square = 0;
  for (int64_t i = 0; i < a.size(); ++i) mean += a.GetDouble(i) / 10000;
  for (int64_t i = 0; i < a.size(); ++i) square += (a.GetDouble(i) - mean) * (a.GetDouble(i) - mean) / 10000;
  EXPECT_NEAR(mean, 3, 5 * 2 / 100.0);  // five deviations of the mean of 10,000
  EXPECT_NEAR(square, 4, 5 * 4 * std::sqrt(2.0) / 100);
  const Tensor u =
      Eval1(Op::kRandomUniform, {}, {{"high", 3.0f}, {"low", -1.0f}, {"seed", 1.0f}, {"shape", Ints{1000}}});
  for (int64_t i = 0; i < u.size(); ++i) EXPECT_TRUE(u.GetDouble(i) >= -1 && u.GetDouble(i) <= 3);
  const Tensor p = Tensor::F32({3}, {0, 1, 0.5f});
  const Tensor coin = Eval1(Op::kBernoulli, {p}, {{"seed", 7.0f}, {"dtype", static_cast<int64_t>(DType::kS64)}});
  EXPECT_EQ(coin.GetInt(0), 0);
  EXPECT_EQ(coin.GetInt(1), 1);
  const Tensor certain = Tensor::F32({1, 3}, {-1e30f, 0, -1e30f});
  EXPECT_EQ(Eval1(Op::kMultinomial, {certain}, {{"sample_size", int64_t{4}}, {"seed", 0.0f}}).ToInts(),
            (Ints{1, 1, 1, 1}));
  EXPECT_THAT(ErrorOf(Op::kBernoulli, {p}), HasSubstr("give it a seed"));
  EXPECT_THAT(ErrorOf(Op::kRandomNormal, {}, {{"seed", 0.0f}, {"shape", Ints{1 << 20, 1 << 20}}}),
              HasSubstr("exceed 64 GB"));
}

TEST(Text, Splits) {
  const auto split = [](const char* text, Attrs attrs) {
    const auto r = Eval(Op::kStringSplit, {Tensor::Strings({1}, {text})}, std::move(attrs), 2);
    return r ? (*r)[0].tensor.strings() : Words{"an error"};
  };
  EXPECT_EQ(split("  a\tb  c ", {}), (Words{"a", "b", "c"}));
  EXPECT_EQ(split(" a  b c ", {{"maxsplit", int64_t{1}}}), (Words{"a", "b c"}));
  EXPECT_EQ(split("a,,b,", {{"delimiter", std::string(",")}}), (Words{"a", "", "b", ""}));
  EXPECT_EQ(split("", {}), Words{});
  EXPECT_EQ(Eval1(Op::kStringConcat, {Tensor::Strings({2, 1}, {"a", "b"}), Tensor::Strings({2}, {"x", "y"})}).strings(),
            (Words{"ax", "ay", "bx", "by"}));
  EXPECT_THAT(ErrorOf(Op::kStringNormalizer, {Tensor::Strings({1}, {"\xc3\xa4"})},
                      {{"case_change_action", std::string("UPPER")}}),
              HasSubstr("depend on a locale"));
  EXPECT_THAT(ErrorOf(Op::kTfIdfVectorizer, {S32({2}, {1, 2})},
                      {{"mode", std::string("TF")},
                       {"ngram_counts", Ints{0, 9}},
                       {"ngram_indexes", Ints{0}},
                       {"pool_int64s", Ints{1}}}),
              HasSubstr("does not fit a pool of 1"));
}

TEST(Tables, LabelsOfNaNAndOfRepeatedKeys) {
  const Tensor x = Tensor::F32({4}, {NAN, 1, 2, 3});
  const Attrs attrs = {{"default_string", std::string("?")},
                       {"keys_floats", std::vector<float>{1, NAN, 1}},
                       {"values_strings", Words{"a", "b", "c"}}};
  EXPECT_EQ(Eval1(Op::kLabelEncoder, {x}, attrs).strings(), (Words{"b", "c", "?", "?"}));
  EXPECT_THAT(ErrorOf(Op::kLabelEncoder, {x}, {}), HasSubstr("it has no keys"));
  EXPECT_EQ(Eval1(Op::kArrayFeatureExtractor, {Tensor::F32({3}, {1, 2, 3}), Tensor::S64({2}, {-1, 0})}).shape(),
            (Shape{1, 2}));
}

// State after the whole is state after the parts.
TEST(LinearAttention, GoesOnWhereItStopped) {
  const Attrs attrs = {{"kv_num_heads", int64_t{1}}, {"q_num_heads", int64_t{2}}};
  const Tensor q = Wave({1, 4, 4}, 0.5), k = Wave({1, 4, 2}, 0.3), v = Wave({1, 4, 3}, 0.9);
  const Tensor g = Wave({1, 4, 1}, -0.2), beta = Wave({1, 4, 1}, 0.6);
  const auto part = [](const Tensor& t, int64_t from, int64_t to) {
    return Eval1(Op::kSlice, {t, Tensor::S64({1}, {from}), Tensor::S64({1}, {to}), Tensor::S64({1}, {1})});
  };
  const auto run = [&](int64_t from, int64_t to, const Tensor& past) {
    return Eval(
        Op::kLinearAttention,
        {part(q, from, to), part(k, from, to), part(v, from, to), past, part(g, from, to), part(beta, from, to)}, attrs,
        2);
  };
  const auto whole = run(0, 4, {}), first = run(0, 1, {});
  ASSERT_TRUE(whole && first);
  const auto rest = run(1, 4, (*first)[1].tensor);
  ASSERT_TRUE(rest);
  for (int64_t i = 0; i < 6; ++i) {  // the state was rounded to float once more
    EXPECT_NEAR((*rest)[1].tensor.GetDouble(i), (*whole)[1].tensor.GetDouble(i), 1e-6);
  }
  EXPECT_THAT(ErrorOf(Op::kLinearAttention, {q, k, v}, attrs, 2), HasSubstr("decay is absent"));
}

}  // namespace
}  // namespace octavo::ir::testing
