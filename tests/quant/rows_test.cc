// Rows of batches: when they stand alone, and that nothing else is cut into them.
#include "octavo/quant/rows.h"

#include <gtest/gtest.h>

#include "octavo/quant/dataset.h"

namespace octavo::quant {
namespace {

using ir::DType;
using ir::Tensor;

Tensor Counting(ir::Shape shape) {
  Tensor t = Tensor::Zeros(DType::kF32, std::move(shape));
  for (int64_t i = 0; i < t.size(); ++i) t.mutable_as<float>()[static_cast<size_t>(i)] = static_cast<float>(i);
  return t;
}

// What a model makes of x [rows, 4, 2].
bool Alone(const std::function<Tensor(const Tensor&)>& model) {
  const Runner run = [&](const ir::TensorMap& in) -> ir::Result<ir::TensorMap> {
    return ir::TensorMap{{"y", model(in.at("x"))}};
  };
  return RowsStandAlone({{"x", Counting({3, 4, 2})}}, 3, run, false);
}

TEST(Rows, StandAloneWhereTheFirstAxisIsTheirs) {
  EXPECT_TRUE(Alone([](const Tensor& x) { return x; }));
  EXPECT_TRUE(Alone([](const Tensor& x) { return x.Reshaped({4 * x.shape()[0], 2}); }));  // [b * h, d]
  EXPECT_FALSE(Alone([](const Tensor& x) { return x.Reshaped({1, x.size()}); }));
  EXPECT_FALSE(Alone([](const Tensor& x) { return x.Reshaped({2, x.size() / 2}); }));
  EXPECT_FALSE(Alone([](const Tensor& x) { return x.Reshaped({1, 1, x.size()}); }));
  EXPECT_FALSE(Alone([](const Tensor&) { return Counting({4}); }));  // no row has a part in it
}

TEST(Rows, ConsistOfThem) {
  EXPECT_TRUE(ConsistOfRows({{"y", Counting({6, 2})}}, 3));
  EXPECT_FALSE(ConsistOfRows({{"y", Counting({1, 12})}}, 3));
  EXPECT_FALSE(ConsistOfRows({{"y", Counting({})}}, 1));
  EXPECT_FALSE(ConsistOfRows({{"y", Counting({4, 2})}}, 0));
}

// A list of Python may be another each time it is read.
TEST(Rows, DataThatChangesIsRefused) {
  class Shrinking : public DataSource {
   public:
    ir::Result<std::optional<Batch>> Next() override { return Batch{"batch 0", {{"x", Counting({2, 4})}}}; }
    void Rewind() override {}
    int64_t size() const override { return 1; }
    std::string Describe() const override { return "a list"; }
  } data;
  const auto part = PartOf(data, {{4}, true}, [](int64_t sample) { return sample == 3; }, 4);
  const auto batch = part->Next();
  ASSERT_FALSE(batch);
  EXPECT_EQ(batch.error().message,
            "batch 0 had 4 samples when they were counted and has others now: give data that is the same each time it "
            "is read");
}

}  // namespace
}  // namespace octavo::quant
