#include "octavo/ir/tensor.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "octavo/ir/attrs.h"

namespace octavo::ir {
namespace {

// Bytes on the stack, seen through a Buffer.
class Lent : public Buffer {
 public:
  Lent(void* data, size_t size) {
    data_ = static_cast<std::byte*>(data);
    size_ = size;
  }
};

TEST(Tensor, ReadsEveryDType) {
  const auto one = [](DType t, std::vector<uint8_t> bytes, int64_t count) {
    return Tensor::Of<uint8_t>(t, {count}, bytes);
  };
  EXPECT_EQ(one(DType::kS4, {0x8f, 0x07}, 3).ToInts(), (std::vector<int64_t>{-1, -8, 7}));
  EXPECT_EQ(one(DType::kU4, {0x8f, 0x07}, 3).ToInts(), (std::vector<int64_t>{15, 8, 7}));
  EXPECT_EQ(one(DType::kS8, {0x80, 0x7f}, 2).ToInts(), (std::vector<int64_t>{-128, 127}));
  EXPECT_EQ(one(DType::kU16, {0xff, 0xff}, 1).ToInts(), (std::vector<int64_t>{65535}));
  EXPECT_EQ(one(DType::kS16, {0xff, 0xff}, 1).ToInts(), (std::vector<int64_t>{-1}));
  EXPECT_EQ(one(DType::kU32, {0xff, 0xff, 0xff, 0xff}, 1).ToInts(), (std::vector<int64_t>{4294967295}));
  EXPECT_EQ(one(DType::kS32, {0xff, 0xff, 0xff, 0xff}, 1).ToInts(), (std::vector<int64_t>{-1}));
  EXPECT_EQ(one(DType::kBool, {1, 0}, 2).ToInts(), (std::vector<int64_t>{1, 0}));
  EXPECT_EQ(one(DType::kBF16, {0x80, 0x3f, 0x00, 0xc0}, 2).ToFloats(), (std::vector<float>{1, -2}));
  EXPECT_EQ(one(DType::kF16, {0x00, 0x3c, 0x01, 0x00}, 2).ToFloats(), (std::vector<float>{1, 0x1p-24f}));
  EXPECT_EQ(one(DType::kE4M3FN, {0x7e, 0x01, 0xb8}, 3).ToFloats(), (std::vector<float>{448, 0x1p-9f, -1}));
  EXPECT_EQ(one(DType::kE5M2, {0x7b, 0x01, 0xbc}, 3).ToFloats(), (std::vector<float>{57344, 0x1p-16f, -1}));
  EXPECT_EQ(Tensor::Of<uint64_t>(DType::kU64, {1}, std::vector<uint64_t>{UINT64_MAX}).GetDouble(0), 0x1p64);
  EXPECT_EQ(Tensor::Of<double>(DType::kF64, {1}, std::vector<double>{-1.5}).GetDouble(0), -1.5);
}

TEST(Tensor, ShapesAndSizes) {
  EXPECT_EQ(ElementCount({}), 1);
  EXPECT_EQ(Tensor::Zeros(DType::kU4, {3}).byte_size(), 2u);
  EXPECT_EQ(Tensor::Zeros(DType::kF32, {2, 0}).byte_size(), 0u);
  EXPECT_EQ(Tensor::Zeros(DType::kF32, {2, 3}).Reshaped({6}).shape(), (Shape{6}));
  EXPECT_EQ(reinterpret_cast<uintptr_t>(Tensor::Empty(DType::kS8, {1}).data()) % 64, 0u);
  EXPECT_FALSE(Tensor().defined());
  EXPECT_THROW((void)Tensor::Zeros(DType::kF32, {2}).Reshaped({3}), CheckError);
}

TEST(Tensor, BitsDecideEquality) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_TRUE(Tensor::F32({1}, {nan}).SameBits(Tensor::F32({1}, {nan})));
  EXPECT_FALSE(Tensor::F32({1}, {0.0f}).SameBits(Tensor::F32({1}, {-0.0f})));
  EXPECT_FALSE(Tensor::F32({1}, {0.0f}).SameBits(Tensor::F32({1, 1}, {0.0f})));
  EXPECT_TRUE(Tensor::Strings({2}, {"a", ""}).SameBits(Tensor::Strings({2}, {"a", ""})));
  EXPECT_FALSE(Tensor::Strings({2}, {"a", ""}).SameBits(Tensor::Strings({2}, {"", "a"})));
  EXPECT_NE(Tensor::S64({1}, {1}).Hash(), Tensor::S64({1}, {2}).Hash());
  EXPECT_NE(Tensor::S64({1}, {1}).Hash(), Tensor::S64({}, {1}).Hash());
  EXPECT_NE(Tensor::Strings({2}, {"ab", ""}).Hash(), Tensor::Strings({2}, {"a", "b"}).Hash());
  EXPECT_EQ(Tensor::F32({1}, {nan}).Hash(), Tensor::F32({1}, {nan}).Hash());
}

TEST(Tensor, ViewsShareBytes) {
  alignas(8) float data[4] = {1, 2, 3, 4};
  const auto owner = std::make_shared<Lent>(data, sizeof(data));
  const Tensor t = Tensor::View(DType::kF32, {2}, owner, 8);
  EXPECT_EQ(t.ToFloats(), (std::vector<float>{3, 4}));
  EXPECT_EQ(static_cast<const void*>(t.data()), &data[2]);
  EXPECT_THROW((void)Tensor::View(DType::kF32, {3}, owner, 8), CheckError);
}

TEST(Tensor, AListOfManyNumbersIsNotShownWhole) {
  EXPECT_EQ(ToString(Shape{}), "[]");
  EXPECT_EQ(ToString(Shape{2, 3}), "[2,3]");
  EXPECT_TRUE(ToString(Shape(64, 1)).ends_with(",1]"));
  const std::string many = ToString(Shape(200'000, 7));
  EXPECT_TRUE(many.starts_with("[7,7,") && many.ends_with(",7,... 200000 in all]")) << many.substr(0, 300);
  EXPECT_LT(many.size(), 200u);
}

TEST(Attrs, SortedTypedAndComparedByBits) {
  Attrs a{{"b", int64_t{1}}, {"a", 2.0f}};
  EXPECT_EQ(a.entries()[0].first, "a");
  EXPECT_EQ(a.Int("b", 7), 1);
  EXPECT_EQ(a.Int("a", 7), 7);  // another kind
  EXPECT_EQ(a.Float("a", 0), 2.0f);
  EXPECT_EQ(a.Str("none", "x"), "x");
  a.Set("b", int64_t{3});
  EXPECT_EQ(a.entries().size(), 2u);
  EXPECT_EQ(a.Int("b", 0), 3);
  a.Erase("b");
  EXPECT_FALSE(a.Has("b"));
  const float nan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_TRUE((Attrs{{"f", nan}}.Same(Attrs{{"f", nan}})));
  EXPECT_FALSE((Attrs{{"f", 0.0f}}.Same(Attrs{{"f", -0.0f}})));
  EXPECT_FALSE((Attrs{{"f", 0.0f}}.Same(Attrs{{"f", int64_t{0}}})));
  EXPECT_TRUE((Attrs{{"t", Tensor::F32({1}, {nan})}}.Same(Attrs{{"t", Tensor::F32({1}, {nan})}})));
}

}  // namespace
}  // namespace octavo::ir
