// Int8 weights fitted to the data of calibration: nearer on rows that it did not hold, the same file for any number of threads, nothing
// where there is no data.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <random>

#include "octavo/api/attempt.h"
#include "octavo/api/optimize.h"
#include "octavo/ir/interpret.h"
#include "octavo/ir/onnx/onnx.h"

namespace octavo::api {
namespace {

using ir::Graph;
using ir::Tensor;

// Two Linears of one input, whose rows have few directions in common; k is no multiple of a block.
class Fit : public testing::Test {
 protected:
  static constexpr int64_t kDepth = 150, kWidth = 40;

  Fit() : mix_(Random({6, kDepth})) {
    g.info.opsets[""] = 18;
    const ir::ValueId x = g.AddInput("x", {ir::DType::kF32, ir::SymShape{ir::Dim::Symbol("s"), kDepth}});
    for (const char* name : {"a", "b"}) {
      const ir::ValueId w = g.AddConstant(Random({kDepth, kWidth}), std::string("w_") + name);
      g.AddOutput(name, g.node(g.AddNode(ir::Op::kMatMul, {x, w}, 1, {}, name)).output());
    }
    seen_ = {{{"x", Batch(300)}}, {{"x", Batch(400)}}};
    unseen_ = Batch(200);
  }

  Tensor Random(ir::Shape shape) {
    Tensor t = Tensor::Empty(ir::DType::kF32, std::move(shape));
    for (float& x : t.mutable_as<float>()) x = normal_(rng_);
    return t;
  }
  Tensor Batch(int64_t rows) {
    Tensor x = Random({rows, kDepth});
    const Tensor common = Random({rows, 6});
    for (int64_t i = 0; i < rows * kDepth; ++i) {
      double v = 0.3 * x.GetDouble(i);
      for (int64_t c = 0; c < 6; ++c)
        v += common.GetDouble(i / kDepth * 6 + c) * mix_.GetDouble(c * kDepth + i % kDepth);
      x.mutable_as<float>()[static_cast<size_t>(i)] = static_cast<float>(v);
    }
    return x;
  }
  std::unique_ptr<quant::DataSource> Data() { return quant::InMemoryData(seen_, quant::InputsOf(g)); }
  Optimized With(const char* recipe, const std::function<void(OptimizeOptions&)>& set) {
    OptimizeOptions options;
    options.recipe = recipe;
    set(options);
    auto result = Optimize(g, options);
    EXPECT_TRUE(result.has_value()) << result.error().message;
    return std::move(*result);
  }
  // Squared error of the weights' products alone, on rows that were not seen.
  double ErrorOfWeights(const Graph& graph) {
    const Tensor& x = unseen_;
    double sum = 0;
    for (const char* name : {"w_a", "w_b"}) {
      const Tensor &w = *g.ConstantOf(g.FindValue(name)),
                   &q = *graph.ConstantOf(graph.FindValue(std::string(name) + "_quantized"));
      const Tensor& scale = *graph.ConstantOf(graph.FindValue(std::string(name) + "_scale"));
      for (int64_t r = 0; r < 200; ++r) {
        for (int64_t n = 0; n < kWidth; ++n) {
          double error = 0;
          for (int64_t k = 0; k < kDepth; ++k)
            error += x.GetDouble(r * kDepth + k) *
                     (w.GetDouble(k * kWidth + n) - q.GetDouble(k * kWidth + n) * scale.GetDouble(n));
          sum += error * error;
        }
      }
    }
    return sum;
  }

  Graph g;

 private:
  std::mt19937 rng_{9};
  std::normal_distribution<float> normal_;
  Tensor mix_;
  std::vector<ir::TensorMap> seen_;
  Tensor unseen_;
};

TEST_F(Fit, ErrorsCancelOnRowsThatWereNotSeen) {
  for (const char* recipe : {"int8", "dynamic", "fp8"}) {
    for (const bool reduce_range : {false, true}) {
      if (reduce_range && std::string(recipe) == "fp8") continue;
      double error[2];
      for (const bool fit : {false, true}) {
        const auto data = Data();
        const Optimized r =
            With(recipe, [&](OptimizeOptions& o) { o.reduce_range = reduce_range, o.fit = fit, o.data = data.get(); });
        error[fit] = ErrorOfWeights(r.graph);
        EXPECT_EQ(std::ranges::count(r.pipeline.passes, "fit_weights"), fit ? 1 : 0);
      }
      EXPECT_LT(error[1], 0.25 * error[0]) << recipe;
      EXPECT_GT(error[1], 0.0);
    }
  }
}

// Rows that have nothing in common teach nothing of other rows; one half of the data says so of the other.
TEST_F(Fit, TooLittleDataIsTold) {
  const auto told = [](const Optimized& r) {
    return std::ranges::count_if(r.notes, [](const auto& n) {
      return n.starts_with(
                 "there is too little calibration data to fit weights to: those of 'a', fitted to one half") &&
             n.ends_with("give more batches, or leave the fit out (fit=False)");
    });
  };
  std::vector<ir::TensorMap> few;
  for (int i = 0; i < 4; ++i) few.push_back({{"x", Random({9, kDepth})}});
  for (const char* recipe : {"int8", "fp8", "dynamic4", "weights4"}) {
    SCOPED_TRACE(recipe);
    const auto enough = Data(), little = quant::InMemoryData(few, quant::InputsOf(g));
    EXPECT_EQ(told(With(recipe, [&](OptimizeOptions& o) { o.data = enough.get(); })), 0);
    EXPECT_EQ(told(With(recipe, [&](OptimizeOptions& o) { o.data = little.get(); })), 1);
    EXPECT_EQ(told(With(recipe, [&](OptimizeOptions& o) { o.data = little.get(), o.fit = false; })), 0);
  }
  // One call of one row: there are no halves.
  const auto one = quant::InMemoryData({{{"x", Random({1, kDepth})}}}, quant::InputsOf(g));
  EXPECT_EQ(told(With("int8", [&](OptimizeOptions& o) { o.data = one.get(); })), 0);
}

TEST_F(Fit, TheFileDoesNotDependOnThreads) {
  std::string bytes[2];
  for (const int threads : {1, 2}) {
    const auto data = Data();
    const Optimized r = With("int8", [&](OptimizeOptions& o) { o.threads = threads, o.data = data.get(); });
    bytes[threads - 1] = *ir::onnx::WriteBytes(r.graph);
  }
  EXPECT_EQ(bytes[0], bytes[1]);
}

TEST_F(Fit, RangesAloneFitNothingAndSaySo) {
  const auto data = Data();
  auto task = PrepareCalibration(g, {});
  ASSERT_TRUE(task.has_value());
  const auto ranges = RunCalibration(*task, *data, {});
  ASSERT_TRUE(ranges.has_value());
  const Optimized of_ranges = With("int8", [&](OptimizeOptions& o) { o.calibration = &*ranges; });
  data->Rewind();
  const Optimized nearest = With("int8", [&](OptimizeOptions& o) { o.fit = false, o.data = data.get(); });
  EXPECT_EQ(ErrorOfWeights(of_ranges.graph), ErrorOfWeights(nearest.graph));
  EXPECT_EQ(
      std::ranges::count_if(of_ranges.notes, [](const auto& n) { return n.starts_with("a .calib file holds ranges"); }),
      1);
  EXPECT_TRUE(std::ranges::none_of(nearest.notes, [](const auto& n) { return n.contains("fitted"); }));
  const Optimized without = With("dynamic", [](OptimizeOptions&) {});
  EXPECT_TRUE(without.notes.empty());
}

// A file of moments fits as the data itself does, to the byte, however its rows were cut and by how many threads.
TEST_F(Fit, AFileOfMomentsFitsAsTheDataDoes) {
  const auto data = Data();
  for (const char* recipe : {"int8", "dynamic", "weights4", "dynamic4"}) {
    SCOPED_TRACE(recipe);
    const Optimized of_data = With(recipe, [&](OptimizeOptions& o) { o.data = data.get(), o.held_out = 0; });
    auto task = PrepareCalibration(g, {});
    ASSERT_TRUE(task.has_value());
    std::string bytes;
    for (const int64_t shards : {1, 2}) {
      quant::Calibration sum;
      for (int64_t i = shards; i-- > 0;) {
        const auto part = quant::ShardOf(Data(), i, shards);
        OptimizeOptions options;
        options.moments = true, options.threads = 1 + static_cast<int>(i);
        const auto calibration = RunCalibration(*task, *part, options);
        ASSERT_TRUE(calibration.has_value()) << calibration.error().message;
        if (i == shards - 1) {
          sum = *calibration;
        } else {
          ASSERT_TRUE(sum.Merge(*calibration).has_value());
        }
      }
      EXPECT_TRUE(bytes.empty() || bytes == sum.ToBytes()) << shards;
      bytes = sum.ToBytes();
      const auto read = quant::Calibration::FromBytes(bytes, "it");
      ASSERT_TRUE(read.has_value()) << read.error().message;
      const Optimized of_file = With(recipe, [&](OptimizeOptions& o) { o.calibration = &*read; });
      EXPECT_EQ(*ir::onnx::WriteBytes(of_file.graph), *ir::onnx::WriteBytes(of_data.graph));
      EXPECT_TRUE(std::ranges::none_of(of_file.notes, [](const auto& n) { return n.contains("fitted"); }));
    }
  }
}

// A Linear behind a norm with channels that stick out reads columns of what was calibrated.
TEST_F(Fit, AFileOfMomentsKnowsSmoothedColumns) {
  const ir::ValueId x = g.AddInput("z", {ir::DType::kF32, ir::SymShape{ir::Dim::Symbol("s"), kDepth}});
  Tensor gamma = Random({kDepth});
  for (const size_t channel : {3u, 70u}) gamma.mutable_as<float>()[channel] = 40.0f;
  const ir::ValueId norm =
      g.node(g.AddNode(ir::Op::kLayerNormalization, {x, g.AddConstant(std::move(gamma), "gamma")}, 1, {}, "norm"))
          .output();
  const ir::ValueId w = g.AddConstant(Random({kDepth, kWidth}), "w_n");
  g.AddOutput("n", g.node(g.AddNode(ir::Op::kMatMul, {norm, w}, 1, {}, "n")).output());
  std::vector<ir::TensorMap> batches;
  for (int i = 0; i < 2; ++i) batches.push_back({{"x", Batch(300)}, {"z", Batch(300)}});
  const auto data = quant::InMemoryData(batches, quant::InputsOf(g));
  auto task = PrepareCalibration(g, {});
  ASSERT_TRUE(task.has_value());
  OptimizeOptions options;
  options.moments = true;
  const auto calibration = RunCalibration(*task, *data, options);
  ASSERT_TRUE(calibration.has_value()) << calibration.error().message;
  const Optimized of_file = With("int8", [&](OptimizeOptions& o) { o.calibration = &*calibration; });
  const Optimized of_data = With("int8", [&](OptimizeOptions& o) { o.data = data.get(), o.held_out = 0; });
  const Optimized unfitted =
      With("int8", [&](OptimizeOptions& o) { o.data = data.get(), o.held_out = 0, o.fit = false; });
  const auto codes = [](const Optimized& r) {
    return *r.unfused.ConstantOf(r.unfused.FindValue("w_n_smooth_quantized"));
  };
  ASSERT_GT(codes(of_file).shape()[0], kDepth) << "nothing was split";
  EXPECT_TRUE(codes(of_file).SameBits(codes(of_data)));
  EXPECT_FALSE(codes(of_file).SameBits(codes(unfitted)));
  EXPECT_EQ(*ir::onnx::WriteBytes(of_file.graph), *ir::onnx::WriteBytes(of_data.graph));
}

TEST_F(Fit, MomentsAreForAllShardsOrNone) {
  const auto data = Data();
  auto task = PrepareCalibration(g, {});
  ASSERT_TRUE(task.has_value());
  OptimizeOptions options;
  auto without = RunCalibration(*task, *data, options);
  options.moments = true;
  auto with = RunCalibration(*task, *data, options);
  ASSERT_TRUE(with.has_value() && without.has_value());
  EXPECT_THAT(without->Merge(*with).error().message,
              testing::HasSubstr("gather all of them with moments=True, or none"));
  EXPECT_THAT(RunCalibration(*task, *data, options, &*without).error().message,
              testing::HasSubstr("has no moments, so go on without moments=True, or begin anew"));
  // A calibration that has some goes on with them.
  options.moments = false;
  const auto again = RunCalibration(*task, *data, options, &*with);
  ASSERT_TRUE(again.has_value()) << again.error().message;
  EXPECT_EQ(again->ToBytes(), with->ToBytes()) << "nothing of the data was left";
  // Those of another model are refused by recipes that gather no ranges, too.
  with->model = "other";
  options = {};
  options.recipe = "dynamic", options.calibration = &*with;
  EXPECT_THAT(Optimize(g, options).error().message, testing::HasSubstr("was made with another model"));
  options.recipe = "weights4", options.calibration = &*without;
  EXPECT_THAT(Optimize(g, options).error().message, testing::HasSubstr("a file of octavo.calibrate(moments=True)"));
}

// What one attempt has fitted the next one takes; other weights are fitted anew.
TEST_F(Fit, AttemptsShareCodes) {
  const auto data = Data();
  int64_t batches = 0;
  OptimizeOptions options;
  options.data = data.get();
  options.progress = [&](std::string_view stage, int64_t, int64_t) { batches += stage == "calibrate"; };
  Evidence evidence;
  auto first = OptimizeOnce(g, options, evidence);
  ASSERT_TRUE(first.has_value()) << first.error().message;
  const int64_t both = batches;
  EXPECT_EQ(evidence.fitted.size(), 2u);
  options.dynamic = {"b"};
  auto second = OptimizeOnce(g, options, evidence);
  ASSERT_TRUE(second.has_value()) << second.error().message;
  EXPECT_EQ(batches, both) << "the data went through the model once more";
  EXPECT_EQ(ErrorOfWeights(first->graph), ErrorOfWeights(second->graph));
  options.reduce_range = true;
  ASSERT_TRUE(OptimizeOnce(g, options, evidence).has_value());
  EXPECT_GT(batches, both);
  EXPECT_EQ(evidence.fitted.size(), 4u);
}

}  // namespace
}  // namespace octavo::api
