// Ops on pictures, and on the order of elements, where the ONNX node tests are silent: other ranks and types, negative axes, empty
// tensors, NaN, and the sentences.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "octavo/tests/ir/interpret_testing.h"

namespace octavo::ir::testing {
namespace {

using ::testing::HasSubstr;
using Ints = std::vector<int64_t>;

Tensor Counting(Shape shape, float step = 1.0f) {
  Tensor t = Tensor::Empty(DType::kF32, std::move(shape));
  for (int64_t i = 0; i < t.size(); ++i) t.mutable_as<float>()[static_cast<size_t>(i)] = static_cast<float>(i) * step;
  return t;
}
std::vector<float> Floats(const Tensor& t) { return t.ToFloats(); }

// ConvTranspose is the transpose of Conv: <conv(x), y> = <x, conv_transpose(y)>, whatever strides, pads, dilations and groups are.
TEST(Vision, ConvTransposeIsTheTransposeOfConv) {
  const Attrs attrs = {
      {"dilations", Ints{2, 1}}, {"group", int64_t{2}}, {"pads", Ints{1, 0, 2, 1}}, {"strides", Ints{2, 3}}};
  const Tensor x = Counting({1, 4, 9, 8}, 0.01f), w = Counting({6, 2, 3, 2}, 0.1f);
  const Tensor image = Eval1(Op::kConv, {x, w}, attrs);
  ASSERT_TRUE(image.defined());
  const Tensor y = Counting(image.shape(), 0.02f);
  Attrs wanted = attrs;
  wanted.Set("output_padding", Ints{0, 1});  // the size is ambiguous: 8 columns, 7 of which windows reach
  const Tensor back = Eval1(Op::kConvTranspose, {y, w}, wanted);
  ASSERT_TRUE(back.defined());
  double left = 0, right = 0;
  for (int64_t i = 0; i < y.size(); ++i) left += image.GetDouble(i) * y.GetDouble(i);
  ASSERT_EQ(back.shape()[1], 4);
  for (int64_t c = 0; c < 4; ++c) {
    for (int64_t h = 0; h < std::min<int64_t>(9, back.shape()[2]); ++h) {
      for (int64_t k = 0; k < std::min<int64_t>(8, back.shape()[3]); ++k)
        right += x.GetDouble((c * 9 + h) * 8 + k) * back.GetDouble((c * back.shape()[2] + h) * back.shape()[3] + k);
    }
  }
  EXPECT_NEAR(left, right, 1e-5 * std::fabs(left));  // sums of 2,000 products, rounded to float once each
  EXPECT_THAT(ErrorOf(Op::kConvTranspose, {y, w}, {{"group", int64_t{4}}}), HasSubstr("do not make 4 groups"));
  EXPECT_THAT(ErrorOf(Op::kConvTranspose, {y, w}, {{"group", int64_t{2}}, {"pads", Ints{9, 9, 9, 9}}}),
              HasSubstr("leave nothing"));
}

// Many channels have the windows of one told once: each is as it is alone.
TEST(Vision, PoolsTakeEachChannelAlone) {
  const Attrs attrs = {
      {"kernel_shape", Ints{3, 2}}, {"strides", Ints{2, 1}}, {"pads", Ints{1, 0, 1, 1}}, {"dilations", Ints{1, 2}}};
  Tensor x = Counting({2, 3, 7, 6});
  for (float& v : x.mutable_as<float>()) v = std::sin(v);
  for (const Op op : {Op::kMaxPool, Op::kAveragePool}) {
    const Tensor all = Eval1(op, {x}, attrs);
    ASSERT_TRUE(all.defined());
    const auto part = static_cast<size_t>(all.size() / 6);
    for (size_t line = 0; line < 6; ++line) {
      const auto values = x.as<float>().subspan(line * 42, 42);
      const Tensor one = Eval1(op, {Tensor::F32({1, 1, 7, 6}, {values.begin(), values.end()})}, attrs);
      const std::vector<float> found = Floats(all), want = Floats(one);
      ASSERT_EQ(want.size(), part);
      EXPECT_TRUE(std::equal(want.begin(), want.end(), found.begin() + static_cast<std::ptrdiff_t>(line * part)));
    }
  }
}

TEST(Vision, GridSampleTakesAnyCoordinate) {
  const Tensor x = Counting({1, 1, 4});
  const Tensor grid = Tensor::F32({1, 6, 1}, {-1, 0, 1, NAN, INFINITY, -1e30f});
  const Tensor inside = Eval1(Op::kGridSample, {x, grid}, {{"align_corners", int64_t{1}}});
  EXPECT_EQ(Floats(inside), (std::vector<float>{0, 1.5f, 3, 0, 0, 0}));
  for (const char* mode : {"linear", "nearest", "cubic"}) {
    for (const char* padding : {"zeros", "border", "reflection"}) {
      const Tensor y =
          Eval1(Op::kGridSample, {x, grid}, {{"mode", std::string(mode)}, {"padding_mode", std::string(padding)}});
      ASSERT_TRUE(y.defined()) << mode << padding;
      for (int64_t i = 0; i < y.size(); ++i)
        EXPECT_TRUE(std::isfinite(y.GetDouble(i))) << mode << " " << padding << " " << i;
    }
  }
  EXPECT_EQ(Eval1(Op::kGridSample, {Counting({1, 2, 0}), grid}).shape(), (Shape{1, 2, 6}));
  EXPECT_THAT(ErrorOf(Op::kGridSample, {x, grid}, {{"mode", std::string("quartic")}}),
              HasSubstr("mode 'quartic' is not"));
  EXPECT_THAT(ErrorOf(Op::kGridSample, {x, Counting({1, 6, 2})}), HasSubstr("the grid must be"));
}

TEST(Vision, RegionsOutsideOfThePicture) {
  const Tensor x = Counting({1, 1, 4, 4}), where = Tensor::S64({1}, {0});
  const Tensor far = Tensor::F32({1, 4}, {100, 100, 104, 104});
  EXPECT_EQ(Floats(Eval1(Op::kRoiAlign, {x, far, where})), (std::vector<float>{0}));
  EXPECT_THAT(ErrorOf(Op::kRoiAlign, {x, Tensor::F32({1, 4}, {0, 0, 1e9f, 1}), where}), HasSubstr("more than 4096"));
  EXPECT_THAT(ErrorOf(Op::kRoiAlign, {x, Tensor::F32({1, 4}, {0, 0, NAN, 1}), where}), HasSubstr("points a bin"));
  EXPECT_THAT(ErrorOf(Op::kRoiAlign, {x, far, Tensor::S64({1}, {1})}), HasSubstr("index 1 is outside"));
  EXPECT_EQ(Floats(Eval1(Op::kMaxRoiPool, {x, Tensor::F32({1, 5}, {0, 0, 0, 3, 3})}, {{"pooled_shape", Ints{2, 2}}})),
            (std::vector<float>{5, 7, 13, 15}));
  EXPECT_THAT(ErrorOf(Op::kMaxRoiPool, {x, Tensor::F32({1, 5}, {NAN, 0, 0, 3, 3})}, {{"pooled_shape", Ints{2, 2}}}),
              HasSubstr("does not exist"));
}

TEST(Vision, BoxesOfEqualScoresStayInOrder) {
  const Tensor boxes = Tensor::F32({1, 3, 4}, {0, 0, 1, 1, 0, 0, 1, 1, 5, 5, 6, 6}),
               scores = Tensor::F32({1, 1, 3}, {0.5f, 0.5f, 0.5f});
  const Tensor most = Tensor::S64({}, {3});
  EXPECT_EQ(Eval1(Op::kNonMaxSuppression, {boxes, scores, most}).ToInts(), (Ints{0, 0, 0, 0, 0, 2}));
  EXPECT_EQ(Eval1(Op::kNonMaxSuppression, {boxes, scores}).shape(), (Shape{0, 3}));  // none is asked for
  EXPECT_EQ(Eval1(Op::kNonMaxSuppression, {Counting({1, 0, 4}), Counting({1, 2, 0}), most}).shape(), (Shape{0, 3}));
}

TEST(Vision, UniqueOfEveryType) {
  const auto run = [](const Tensor& x, const Attrs& attrs) { return Eval(Op::kUnique, {x}, attrs, 4); };
  auto words = run(Tensor::Strings({3}, {"b", "a", "b"}), {{"sorted", int64_t{0}}});
  ASSERT_TRUE(words);
  EXPECT_EQ((*words)[0].tensor.strings(), (std::vector<std::string>{"b", "a"}));
  EXPECT_EQ((*words)[2].tensor.ToInts(), (Ints{0, 1, 0}));
  auto nans = run(Tensor::F32({4}, {NAN, 1, NAN, -0.0f}), {});
  ASSERT_TRUE(nans);
  EXPECT_EQ((*nans)[1].tensor.ToInts(), (Ints{3, 1, 0}));  // NaN last, and once
  EXPECT_EQ((*nans)[3].tensor.ToInts(), (Ints{1, 1, 2}));
  auto columns = run(S32({2, 3}, {1, 0, 1, 2, 5, 2}), {{"axis", int64_t{-1}}});
  ASSERT_TRUE(columns);
  EXPECT_EQ((*columns)[0].tensor.ToInts(), (Ints{0, 1, 5, 2}));
  auto none = run(Counting({0}), {});
  ASSERT_TRUE(none);
  EXPECT_EQ((*none)[0].tensor.shape(), (Shape{0}));
  EXPECT_THAT(ErrorOf(Op::kUnique, {Counting({2})}, {{"axis", int64_t{1}}}), HasSubstr("axis 1 is outside"));
}

TEST(Vision, OrderOfNarrowElements) {
  const Tensor s4 = Make<uint8_t>(DType::kS4, {3, 1}, {0x21, 0x03});  // 1 2 3
  EXPECT_EQ(Eval1(Op::kReverseSequence, {s4, Tensor::S64({1}, {2})}).ToInts(), (Ints{2, 1, 3}));
  EXPECT_THAT(ErrorOf(Op::kReverseSequence, {s4, Tensor::S64({1}, {4})}),
              HasSubstr("a sequence of length 4 in 3 steps"));
  const Tensor u2 = Make<uint8_t>(DType::kU2, {5}, {0xe4, 0x01});  // 0 1 2 3 1
  EXPECT_EQ(Eval1(Op::kCenterCropPad, {u2, Tensor::S64({1}, {3})}).ToInts(), (Ints{1, 2, 3}));
  EXPECT_EQ(Eval1(Op::kCenterCropPad, {u2, Tensor::S64({1}, {8})}).ToInts(), (Ints{0, 0, 1, 2, 3, 1, 0, 0}));
  EXPECT_EQ(Eval1(Op::kCenterCropPad, {Tensor::Strings({1}, {"a"}), Tensor::S64({1}, {3})}).strings(),
            (std::vector<std::string>{"", "a", ""}));
  EXPECT_THAT(ErrorOf(Op::kCenterCropPad, {u2, Tensor::S64({1}, {-1})}), HasSubstr("negative dim"));
}

}  // namespace
}  // namespace octavo::ir::testing
