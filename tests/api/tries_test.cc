// Attempts at one model learn of each other and give what each would give alone.
#include "octavo/api/tries.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <functional>

#include "octavo/ir/onnx/onnx.h"

namespace octavo::api {
namespace {

using ir::DType;
using ir::Graph;

Graph Bert() {
  auto graph = ir::onnx::ReadFile(std::filesystem::path(OCTAVO_SOURCE_DIR) / "tests/data/float/bert.ts17.sdpa.onnx");
  EXPECT_TRUE(graph.has_value()) << graph.error().message;
  return std::move(*graph);
}

std::unique_ptr<quant::DataSource> DataOf(const Graph& model) {
  const std::string rows = model.value(model.inputs()[0]).type.shape->front().symbol();
  EXPECT_FALSE(rows.empty());
  auto data = quant::RandomData(8, quant::InputsOf(model),
                                {.limits = {{"input_ids", 60}, {"token_type_ids", 2}}, .dims = {{rows, 7}}});
  EXPECT_TRUE(data.has_value());
  return std::move(*data);
}

// Counts the passes over the data.
class Counted : public quant::DataSource {
 public:
  explicit Counted(std::unique_ptr<quant::DataSource> data) : data_(std::move(data)) {}
  ir::Result<std::optional<quant::Batch>> Next() override { return ++batches, data_->Next(); }
  void Rewind() override { data_->Rewind(); }
  int64_t size() const override { return data_->size(); }
  std::string Describe() const override { return data_->Describe(); }
  bool random() const override { return data_->random(); }
  int64_t batches = 0;

 private:
  std::unique_ptr<quant::DataSource> data_;
};

OptimizeOptions Way(const char* recipe, const std::function<void(OptimizeOptions&)>& set = {}) {
  OptimizeOptions options;
  options.recipe = recipe, options.threads = 1;
  if (set) set(options);
  return options;
}

class TriesTest : public testing::Test {
 protected:
  TriesTest() : model(Bert()), data(DataOf(model)), tries(model, data) {}

  static std::string Bytes(const ir::Result<Optimized>& result) {
    EXPECT_TRUE(result.has_value()) << result.error().message;
    return result ? *ir::onnx::WriteBytes(result->graph) : "";
  }
  std::string Alone(OptimizeOptions options) {
    const auto own = DataOf(model);
    options.data = own.get();
    return Bytes(Optimize(model, options));
  }

  Graph model;
  Counted data;
  Tries tries;
};

TEST_F(TriesTest, EachIsWhatItWouldBeAlone) {
  const std::vector<OptimizeOptions> ways = {
      Way("int8", [](auto& o) { o.keep_float = {"*attention*"}; }),  // the others need more ranges
      Way("int8"),
      Way("int8", [](auto& o) { o.calibrator = quant::Calibrator::kMinMax; }),
      Way("fp8"),
      Way("int8", [](auto& o) { o.reduce_range = true; }),
      Way("dynamic"),
      Way("dynamic4", [](auto& o) { o.bits = 4; }),  // more are no part of a try
      Way("int8", [](auto& o) { o.dynamic = {"*output/dense*"}; }),
      Way("int8"),
  };
  for (size_t i = 0; i < ways.size(); ++i) {
    SCOPED_TRACE(i);
    EXPECT_TRUE(Bytes(tries.Optimize(ways[i], true)) == Alone(ways[i]));
    if (ways[i].recipe == "int8") continue;  // takes what is fitted already
    OptimizeOptions plain = ways[i];
    plain.fit = false;
    EXPECT_TRUE(Bytes(tries.Optimize(ways[i], false)) == Alone(plain));
  }
}

TEST_F(TriesTest, WhatIsKnownIsNotGatheredAgain) {
  const std::string first = Bytes(tries.Optimize(Way("int8"), true));
  const int64_t seen = data.batches;
  EXPECT_GT(seen, 2 * 7);  // ranges, and what weights are fitted to
  EXPECT_TRUE(Bytes(tries.Optimize(Way("int8"), true)) == first);
  EXPECT_EQ(data.batches, seen);
  // Rows of their own in place of smoothed channels make other weights, which are fitted where that is asked for.
  const OptimizeOptions rows = Way("int8", [](auto& o) { o.dynamic = {"*"}; });
  const std::string plain = Bytes(tries.Optimize(rows, false));
  EXPECT_EQ(data.batches, seen);
  const std::string fitted = Bytes(tries.Optimize(rows, true));
  EXPECT_GT(data.batches, seen);
  EXPECT_FALSE(plain == fitted);
}

TEST_F(TriesTest, NoiseIsOfTheseLayersAlone) {
  const auto early = tries.NoiseOf({"x"}, false, {});
  ASSERT_FALSE(early.has_value());
  EXPECT_EQ(early.error().message,
            "there is nothing to measure: the model has no layer that int8 quantizes, or no batch ran through it");
  const std::string first = Bytes(tries.Optimize(Way("int8"), true));
  const auto layers = tries.Layers({});
  ASSERT_TRUE(layers.has_value()) << layers.error().message;
  std::vector<std::string> all;
  double most = 0, sum = 0;
  for (const LayerLoss& layer : *layers) {
    const auto noise = tries.NoiseOf({layer.node}, false, {});
    ASSERT_TRUE(noise.has_value()) << noise.error().message;
    EXPECT_GT(*noise, 0) << layer.node;
    EXPECT_LT(*noise, 0.1) << layer.node;
    most = std::max(most, *noise), sum += *noise;
    all.push_back(layer.node);
  }
  EXPECT_GE(all.size(), 14);
  const auto whole = tries.NoiseOf(all, false, {});
  ASSERT_TRUE(whole.has_value());
  EXPECT_GT(*whole, most);
  EXPECT_LT(*whole, 4 * sum);
  // The few rows that it measured on are nobody else's.
  const auto again = tries.Optimize(Way("int8"), true);
  EXPECT_TRUE(Bytes(again) == first);
  EXPECT_EQ(again->loss_details.samples, 7);
  const auto own = DataOf(model);
  OptimizeOptions options;
  options.data = own.get();
  EXPECT_EQ(again->losses.begin()->second.SqnrDb(), Optimize(model, options)->losses.begin()->second.SqnrDb());
}

}  // namespace
}  // namespace octavo::api
