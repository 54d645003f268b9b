// What is told of calibration data that may not be what the model will get, and that nothing is told of other data.
#include "octavo/api/data_notes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "octavo/api/optimize.h"

namespace octavo::api {
namespace {

using ir::DType;
using ir::Graph;
using ir::Op;
using ir::Tensor;
using ir::ValueId;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr int64_t kWidth = 32, kRows = 4000;

// ids -> a row of a table each -> Linear "fc" -> + -> y; and "gain" [b, s, 32], which a Linear of its own reads.
class DataNotes : public testing::Test {
 protected:
  DataNotes() {
    g.info.opsets[""] = 18;
    const ir::Dim b = ir::Dim::Symbol("b"), s = ir::Dim::Symbol("tokens");
    const ValueId ids = g.AddInput("input_ids", {DType::kS64, ir::SymShape{b, s}});
    const ValueId mask = g.AddInput("attention_mask", {DType::kS64, ir::SymShape{b, s}});
    const ValueId gain = g.AddInput("gain", {DType::kF32, ir::SymShape{b, s, kWidth}});
    const auto add = [&](Op op, std::vector<ValueId> in, const char* name) {
      return g.node(g.AddNode(op, std::move(in), 1, {}, name)).output();
    };
    const ValueId x = add(Op::kGather, {g.AddConstant(Random({kRows, kWidth}), "table"), ids}, "gather");
    const ValueId y = add(Op::kMatMul, {x, g.AddConstant(Random({kWidth, 48}), "w")}, "fc");
    const ValueId z = add(Op::kMatMul, {gain, g.AddConstant(Random({kWidth, 48}), "v")}, "fc2");
    g.AddOutput("y", add(Op::kAdd, {y, z}, "add"));
    g.AddOutput("m", g.node(g.AddNode(Op::kCast, {mask}, 1, {{"to", int64_t{1}}}, "cast")).output());
  }

  Tensor Random(ir::Shape shape) {
    Tensor t = Tensor::Empty(DType::kF32, std::move(shape));
    for (float& v : t.mutable_as<float>()) v = normal_(rng_);
    return t;
  }
  struct How {
    int64_t limit = kRows, ones = -1;      // ids below; 1s of each row of the mask, -1: all
    bool long_ones = false, flat = false;  // texts of two lengths; gain is 0.5 throughout
    int64_t still = 0, batches = 6;        // channels of gain that are 0
  };
  std::vector<std::string> NotesOf(const How& how) {
    std::vector<ir::TensorMap> batches;
    for (int64_t i = 0; i < how.batches; ++i) {
      const int64_t length = how.long_ones && i == 3 ? 20 : 12;
      Tensor ids = Tensor::Empty(DType::kS64, {8, length}), mask = Tensor::Empty(DType::kS64, {8, length});
      for (int64_t& id : ids.mutable_as<int64_t>())
        id = static_cast<int64_t>(rng_() % static_cast<uint64_t>(how.limit));
      for (int64_t at = 0; int64_t& m : mask.mutable_as<int64_t>()) m = how.ones < 0 || at++ % length < how.ones;
      Tensor gain = Random({8, length, kWidth});
      for (int64_t at = 0; float& v : gain.mutable_as<float>()) {
        if (how.flat) v = 0.5f;
        if (at++ % kWidth < how.still) v = 0;
      }
      batches.push_back({{"input_ids", ids}, {"attention_mask", mask}, {"gain", gain}});
    }
    const auto data = quant::InMemoryData(std::move(batches), quant::InputsOf(g));
    OptimizeOptions options;
    options.data = data.get(), options.fit = false, options.threads = 1;
    const auto done = Optimize(g, options);
    EXPECT_TRUE(done.has_value()) << done.error().message;
    return done->notes;
  }

  Graph g;

 private:
  std::mt19937 rng_{11};
  std::normal_distribution<float> normal_;
};

TEST_F(DataNotes, NothingIsSaidOfGoodData) {
  EXPECT_THAT(NotesOf({.long_ones = true}), ElementsAre());
  EXPECT_THAT(NotesOf({.ones = 9}), ElementsAre());     // of one length, but padded
  EXPECT_THAT(NotesOf({.batches = 3}), ElementsAre());  // chance
  EXPECT_THAT(NotesOf({.limit = kRows / 8, .long_ones = true}), ElementsAre());
  EXPECT_THAT(NotesOf({.long_ones = true, .still = 3}), ElementsAre());  // of 32
}

TEST_F(DataNotes, OneLengthIsTold) {
  EXPECT_THAT(NotesOf({}), ElementsAre("all 6 batches have tokens = 12 and no padding: the ranges are not those of "
                                       "shorter or longer texts, unless all are as long"));
}

// Images [b, 3, height, 8], of which each row is multiplied and, where there are places, gets a place's number.
TEST_F(DataNotes, OneSizeOfAnImageIsToldIfTheModelTakesOthers) {
  const auto notes = [this](bool places, int64_t other) {
    Graph image;
    image.info.opsets[""] = 18;
    const ValueId x =
        image.AddInput("x", {DType::kF32, ir::SymShape{ir::Dim::Symbol("b"), 3, ir::Dim::Symbol("height"), 64}});
    ValueId y =
        image.node(image.AddNode(Op::kMatMul, {x, image.AddConstant(Random({64, 32}), "w")}, 1, {}, "fc")).output();
    if (places) y = image.node(image.AddNode(Op::kAdd, {y, image.AddConstant(Random({6, 32}), "places")}, 1)).output();
    image.AddOutput("y", y);
    std::vector<ir::TensorMap> batches;
    for (int i = 0; i < 6; ++i) batches.push_back({{"x", Random({2, 3, i == 3 ? other : 6, 64})}});
    const auto data = quant::InMemoryData(std::move(batches), quant::InputsOf(image));
    OptimizeOptions options;
    options.data = data.get(), options.fit = false, options.threads = 1;
    const auto done = Optimize(image, options);
    EXPECT_TRUE(done.has_value()) << done.error().message;
    return done->notes;
  };
  EXPECT_THAT(notes(false, 6), ElementsAre("all 6 batches have height = 6: the ranges are not those of other sizes, "
                                           "unless all inputs are such"));
  EXPECT_THAT(notes(false, 7), ElementsAre());
  EXPECT_THAT(notes(true, 6), ElementsAre());
}

TEST_F(DataNotes, IdsOfFewRowsAreTold) {
  EXPECT_THAT(NotesOf({.limit = 100, .long_ones = true}),
              ElementsAre(HasSubstr("of the 4000 rows of their table: did this model's tokenizer make them?")));
  EXPECT_THAT(NotesOf({.limit = 100, .long_ones = true, .batches = 3}), ElementsAre());  // few ids
}

TEST_F(DataNotes, WhatNeverChangesIsTold) {
  EXPECT_THAT(NotesOf({.long_ones = true, .flat = true}),
              ElementsAre("'gain' of 2 calibrated activations have one value in all of the data: is it what the model "
                          "will get?"));
  EXPECT_THAT(NotesOf({.long_ones = true, .still = 9}),
              ElementsAre("9 of 32 channels of 'gain' never change in the data: what they will hold beside it is cut "
                          "off, unless the data is more varied"));
}

}  // namespace
}  // namespace octavo::api
