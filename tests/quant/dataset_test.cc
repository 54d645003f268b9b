#include "octavo/quant/dataset.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <fstream>

#include "octavo/ir/npz/npz.h"

namespace octavo::quant {
namespace {

namespace fs = std::filesystem;
using ir::Dim;
using ir::SymShape;
using ir::Tensor;
using ir::TensorMap;
using ::testing::HasSubstr;

std::vector<InputSpec> Specs() {
  const SymShape dims = {Dim::Symbol("b"), Dim::Symbol("s")};
  return {
      {"ids", {DType::kS64, dims}}, {"mask", {DType::kS64, dims}}, {"x", {DType::kF32, SymShape{Dim::Symbol("b"), 2}}}};
}

TensorMap Good(int64_t first = 5) {
  return {{"ids", Tensor::S64({1, 3}, {first, 6, 7})},
          {"mask", Tensor::S64({1, 3}, {1, 1, 0})},
          {"x", Tensor::F32({1, 2}, {0.5f, -1})}};
}

TEST(FitInputs, SaysWhatIsWrong) {
  const auto error = [](TensorMap m) {
    const auto r = FitInputs(std::move(m), Specs(), "'a.npz'");
    return r ? "no error" : r.error().message;
  };
  const auto with = [](const char* name, Tensor t) {
    TensorMap m = Good();
    m[name] = std::move(t);
    return m;
  };
  EXPECT_EQ(error(Good()), "no error");
  TensorMap missing = Good();
  missing.erase("mask");
  EXPECT_EQ(error(missing), "'a.npz' has no array 'mask', which the model needs");
  EXPECT_EQ(error(with("y", Tensor::ScalarF32(1))),
            "'a.npz' has an array 'y', which is no input of the model; its inputs are: ids, mask, x");
  EXPECT_EQ(error(with("x", Tensor::S64({1, 2}, {1, 2}))), "array 'x' of 'a.npz' is s64, but the model wants f32");
  EXPECT_EQ(error(with("ids", Tensor::F32({1, 3}, {1, 2, 3}))),
            "array 'ids' of 'a.npz' is f32, but the model wants s64");
  EXPECT_EQ(error(with("ids", Tensor::S64({3}, {1, 2, 3}))),
            "array 'ids' of 'a.npz' has shape [3], but the model wants rank 2: [b,s]");
  EXPECT_EQ(error(with("x", Tensor::F32({1, 3}, {1, 2, 3}))),
            "array 'x' of 'a.npz' has shape [1,3], but the model wants [b,2]");
  EXPECT_EQ(error(with("mask", Tensor::S64({1, 4}, {1, 1, 1, 1}))),
            "array 'mask' of 'a.npz' has shape [1,4], so 's' of [b,s] is 4, but another array says 3");
  EXPECT_EQ(error(with("x", Tensor::F32({1, 2}, {0, NAN}))),
            "array 'x' of 'a.npz' has a NaN at element 1 of shape [1,2]; calibration data must be numbers");
  EXPECT_EQ(error(with("x", Tensor::F32({1, 2}, {0, -INFINITY}))), "no error") << "additive masks hold -inf";
}

TEST(FitInputs, ConvertsWhatLosesNothing) {
  const auto fit = [](Tensor t, DType want) -> ir::Result<Tensor> {
    auto r = FitInputs({{"x", std::move(t)}}, {{"x", {want, std::nullopt}}}, "p");
    if (!r) return std::unexpected(r.error());
    return r->at("x");
  };
  const auto s32 = Tensor::Of<int32_t>(DType::kS32, {3}, std::vector<int32_t>{-5, 0, INT32_MAX});
  EXPECT_EQ(fit(s32, DType::kS64).value(), Tensor::S64({3}, {-5, 0, INT32_MAX}));
  EXPECT_EQ(fit(Tensor::S64({3}, {-5, 0, INT32_MAX}), DType::kS32).value(), s32);
  EXPECT_THAT(fit(Tensor::S64({2}, {1, 1ll << 31}), DType::kS32).error().message, HasSubstr("element 1 (2147483648)"));
  EXPECT_FALSE(fit(s32, DType::kU64));
  EXPECT_FALSE(fit(Tensor::S64({1}, {2}), DType::kBool));
  EXPECT_EQ(fit(Tensor::S64({2}, {1, 0}), DType::kBool).value().ToInts(), (std::vector<int64_t>{1, 0}));
  EXPECT_EQ(fit(Tensor::Of<uint16_t>(DType::kU16, {1}, std::vector<uint16_t>{65535}), DType::kS64).value(),
            Tensor::S64({1}, {65535}));
  EXPECT_FALSE(fit(Tensor::Of<uint64_t>(DType::kU64, {1}, std::vector<uint64_t>{UINT64_MAX}), DType::kS64));
  const auto f64 = Tensor::Of<double>(DType::kF64, {2}, std::vector<double>{0.5, -INFINITY});
  EXPECT_EQ(fit(f64, DType::kF32).value(), Tensor::F32({2}, {0.5f, -INFINITY}));
  EXPECT_THAT(fit(Tensor::Of<double>(DType::kF64, {1}, std::vector<double>{0.1}), DType::kF32).error().message,
              HasSubstr("would be rounded"));
  EXPECT_EQ(fit(Tensor::F32({1}, {1.5f}), DType::kF16).value().GetDouble(0), 1.5);
  EXPECT_EQ(fit(Tensor::F32({1}, {1.5f}), DType::kBF16).value().GetDouble(0), 1.5);
  EXPECT_FALSE(fit(Tensor::F32({1}, {70000}), DType::kF16));
  EXPECT_FALSE(fit(Tensor::F32({1}, {1}), DType::kE4M3FN));
}

class DataFolder : public ::testing::Test {
 protected:
  void SetUp() override {
    dir_ = fs::temp_directory_path() /
           std::format("octavo_data_{}_{}", ::testing::UnitTest::GetInstance()->current_test_info()->name(), getpid());
    fs::create_directories(dir_);
  }
  void TearDown() override { fs::remove_all(dir_); }
  std::string Error(const std::string& where, const DataOptions& options = {}) {
    const auto r = OpenData(where, Specs(), options);
    return r ? "no error" : r.error().message;
  }
  // First id of every batch.
  static std::vector<int64_t> Firsts(DataSource& data) {
    std::vector<int64_t> ids;
    for (;;) {
      const auto batch = data.Next();
      EXPECT_TRUE(batch) << batch.error().message;
      if (!batch || !*batch) return ids;
      ids.push_back((*batch)->inputs.at("ids").GetInt(0));
    }
  }
  fs::path dir_;
};

TEST_F(DataFolder, NpzFilesByName) {
  for (const int64_t i : {2, 0, 1}) ASSERT_TRUE(ir::WriteNpz(dir_ / std::format("{}.npz", i), Good(100 + i)));
  std::ofstream(dir_ / "README.md") << "not data";
  auto data = OpenData(dir_.string(), Specs());
  ASSERT_TRUE(data) << data.error().message;
  EXPECT_EQ((*data)->size(), 3);
  EXPECT_FALSE((*data)->random());
  EXPECT_EQ(Firsts(**data), (std::vector<int64_t>{100, 101, 102}));
  (*data)->Rewind();
  EXPECT_EQ(Firsts(**data), (std::vector<int64_t>{100, 101, 102}));
  EXPECT_THAT((*data)->Describe(), HasSubstr("3 batches from '"));
  auto one = OpenData((dir_ / "1.npz").string(), Specs());
  ASSERT_TRUE(one);
  EXPECT_EQ(Firsts(**one), std::vector<int64_t>{101});
  TensorMap bad = Good();
  bad["x"] = Tensor::F32({1, 2}, {NAN, 0});
  ASSERT_TRUE(ir::WriteNpz(dir_ / "0.npz", bad));
  (*data)->Rewind();
  const auto r = (*data)->Next();
  ASSERT_FALSE(r);
  EXPECT_THAT(r.error().message, HasSubstr("0.npz' has a NaN at element 0"));
}

TEST_F(DataFolder, OnnxTestFolders) {
  const auto reader = [](const fs::path& path, const ir::Limits&) -> ir::Result<std::pair<std::string, Tensor>> {
    std::ifstream in(path);
    std::string name, kind;
    int64_t v = 0;
    in >> name >> kind >> v;
    return std::pair(name, kind == "x" ? Tensor::F32({1, 2}, {0, 1}) : Tensor::S64({1, 3}, {v, 1, 1}));
  };
  for (const int i : {10, 9}) {
    const fs::path set = dir_ / std::format("test_data_set_{}", i);
    fs::create_directories(set);
    std::ofstream(set / "input_0.pb") << "- ids " << i;
    std::ofstream(set / "input_1.pb") << "- mask 1";
    std::ofstream(set / "input_2.pb") << "- x";
    std::ofstream(set / "output_0.pb") << "- y";
  }
  EXPECT_THAT(Error(dir_.string()), HasSubstr("cannot be read here"));
  auto data = OpenData(dir_.string(), Specs(), {.read_tensor_file = reader});
  ASSERT_TRUE(data) << data.error().message;
  EXPECT_EQ(Firsts(**data), (std::vector<int64_t>{9, 10})) << "in the order of the numbers";
  // Named tensors go by name, whatever their order.
  const fs::path one = dir_ / "test_data_set_9";
  std::ofstream(one / "input_0.pb") << "x x";
  std::ofstream(one / "input_1.pb") << "mask mask 1";
  std::ofstream(one / "input_2.pb") << "ids ids 77";
  auto single = OpenData(one.string(), Specs(), {.read_tensor_file = reader});
  ASSERT_TRUE(single) << single.error().message;
  EXPECT_EQ(Firsts(**single), std::vector<int64_t>{77});
  fs::remove(one / "input_2.pb");
  (*single)->Rewind();
  EXPECT_THAT((*single)->Next().error().message, HasSubstr("has 2 input_N.pb files, but the model has 3 inputs"));
}

TEST_F(DataFolder, WhatIsNotData) {
  EXPECT_THAT(Error((dir_ / "none").string()), HasSubstr("there is no '"));
  EXPECT_THAT(Error(dir_.string()), HasSubstr("holds no data"));
  std::ofstream(dir_ / "x.txt") << "text";
  auto text = OpenData((dir_ / "x.txt").string(), Specs());
  ASSERT_TRUE(text);
  EXPECT_THAT((*text)->Next().error().message, HasSubstr("as a numpy .npz archive"));
  for (const char* where :
       {"random:", "random:0", "random:-1", "random:x", "random:3x", "random:99999999999999999999"}) {
    EXPECT_THAT(Error(where), HasSubstr("is not random:N")) << where;
  }
}

TEST(MemoryData, ChecksToo) {
  TensorMap bad = Good();
  bad.erase("x");
  auto data = InMemoryData({Good(), bad}, Specs());
  EXPECT_EQ(data->size(), 2);
  ASSERT_TRUE(data->Next());
  EXPECT_EQ(data->Next().error().message, "batch 1 has no array 'x', which the model needs");
}

// Ids reach their tables by way of views: GPT-2 and CLIP reshape them first.
TEST(IdLimits, ThroughViews) {
  using ir::Op;
  ir::Graph g;
  g.info.opsets[""] = 18;
  const auto table = [&](int64_t rows) { return g.AddConstant(Tensor::Zeros(DType::kF32, {rows, 4})); };
  const auto node = [&](Op op, std::vector<ir::ValueId> in, ir::Attrs attrs = {}) {
    return g.node(g.AddNode(op, std::move(in), 1, std::move(attrs))).output();
  };
  const auto in = [&](const char* name, DType type) { return g.AddInput(name, {type, SymShape{2, 3}}); };
  const ir::ValueId ids = in("ids", DType::kS32), direct = in("direct", DType::kS64), mask = in("mask", DType::kS64);
  const ir::ValueId flat = g.AddConstant(Tensor::S64({1}, {-1}));
  const ir::ValueId wide = node(Op::kCast, {ids}, {{"to", int64_t{7}}});
  g.AddOutput("a", node(Op::kGather, {table(50), node(Op::kReshape, {wide, flat})}));
  g.AddOutput("b", node(Op::kGather, {table(20), wide}));
  g.AddOutput("c", node(Op::kGather, {table(7), direct}));
  g.AddOutput("d", node(Op::kNeg, {mask}));
  EXPECT_EQ(IdLimits(g), (std::map<std::string, int64_t>{{"direct", 7}, {"ids", 20}}));
}

TEST(RandomData, OfADecoderFitsTogether) {
  const Dim b = Dim::Symbol("b"), s = Dim::Symbol("s"), past = Dim::Symbol("past"), all = Dim::Symbol("all");
  const std::vector<InputSpec> specs = {{"past_key_values.0.key", {DType::kF32, SymShape{b, 2, past, 16}}},
                                        {"input_ids", {DType::kS64, SymShape{b, s}}},
                                        {"attention_mask", {DType::kS64, SymShape{b, all}}}};
  auto data = RandomData(5, specs, {}).value();
  for (int i = 0; i < 5; ++i) {
    const TensorMap inputs = data->Next().value()->inputs;
    const int64_t before = inputs.at("past_key_values.0.key").shape()[2], now = inputs.at("input_ids").shape()[1];
    EXPECT_GE(before, 4);
    EXPECT_LE(before + now, 32);
    EXPECT_EQ(inputs.at("attention_mask").shape()[1], before + now);
  }
  auto asked = RandomData(1, specs, {.dims = {{"past", 7}, {"s", 3}}}).value();
  EXPECT_EQ(asked->Next().value()->inputs.at("attention_mask").shape()[1], 10);
}

TEST(RandomData, IsPlausibleAndTheSameAgain) {
  const Dim b = Dim::Symbol("b"), s = Dim::Symbol("s"), past = Dim::Symbol("past");
  const std::vector<InputSpec> specs = {{"input_ids", {DType::kS64, SymShape{b, s}}},
                                        {"token_type_ids", {DType::kS64, SymShape{b, s}}},
                                        {"position_ids", {DType::kS32, SymShape{b, s}}},
                                        {"attention_mask", {DType::kS64, SymShape{b, past + s}}},
                                        {"bool_mask", {DType::kBool, SymShape{b, past + s}}},
                                        {"pixels", {DType::kF32, SymShape{b, 3, 64, 64}}},
                                        {"half", {DType::kF16, SymShape{b, 2}}}};
  auto data = RandomData(5, specs, {.limits = {{"input_ids", 10}}, .dims = {{"past", 7}}}).value();
  EXPECT_TRUE(data->random());
  EXPECT_THAT(data->Describe(), HasSubstr("5 random batches"));
  std::vector<TensorMap> first;
  int64_t zeros = 0, lengths = 0, last_length = 0;
  double sum = 0, squares = 0, n = 0;
  for (int i = 0; i < 5; ++i) {
    auto batch = data->Next().value();
    ASSERT_TRUE(batch);
    const TensorMap& m = batch->inputs;
    const int64_t length = m.at("input_ids").shape()[1];
    EXPECT_EQ(m.at("input_ids").shape()[0], 4);
    EXPECT_EQ(m.at("attention_mask").shape(), (ir::Shape{4, length + 7}));
    lengths += length != last_length;
    last_length = length;
    for (const int64_t id : m.at("input_ids").ToInts()) EXPECT_TRUE(id >= 0 && id < 10);
    for (const int64_t id : m.at("token_type_ids").ToInts()) EXPECT_TRUE(id == 0 || id == 1);
    EXPECT_EQ(m.at("position_ids").GetInt(length + 2), 2);
    EXPECT_EQ(m.at("attention_mask").ToInts(), m.at("bool_mask").ToInts()) << "one text, one length";
    for (const int64_t v : m.at("attention_mask").ToInts()) zeros += v == 0;
    EXPECT_EQ(m.at("attention_mask").GetInt(0), 1);
    for (const float x : m.at("pixels").ToFloats()) sum += x, squares += x * x, ++n;
    first.push_back(m);
  }
  EXPECT_FALSE(data->Next().value());
  EXPECT_GT(zeros, 0) << "some padding";
  EXPECT_GT(lengths, 2);
  EXPECT_NEAR(sum / n, 0, 0.02);
  EXPECT_NEAR(squares / n, 1, 0.03);
  data->Rewind();
  for (const auto& m : first) EXPECT_EQ(data->Next().value()->inputs, m);
  // Known bits: the stream is the same on every machine and in every version.
  EXPECT_EQ(first[0].at("input_ids").Hash(),
            RandomData(1, specs, {.limits = {{"input_ids", 10}}, .dims = {{"past", 7}}})
                .value()
                ->Next()
                .value()
                ->inputs.at("input_ids")
                .Hash());
}

TEST(RandomData, RefusesWhatItCannotMake) {
  const auto error = [](ir::Type type) {
    auto data = RandomData(1, {{"x", std::move(type)}}).value();
    const auto r = data->Next();
    return r ? "no error" : r.error().message;
  };
  EXPECT_THAT(error({DType::kF32, std::nullopt}), HasSubstr("input 'x' has no declared rank"));
  EXPECT_THAT(error({DType::kString, SymShape{2}}), HasSubstr("has type string"));
  EXPECT_THAT(error({DType::kF32, SymShape{1 << 20, 1 << 20}}), HasSubstr("too large for random data"));
  EXPECT_EQ(error({DType::kF32, SymShape{Dim(), Dim()}}), "no error");
  EXPECT_EQ(error({DType::kU8, SymShape{}}), "no error");
}

}  // namespace
}  // namespace octavo::quant
