#include "octavo/quant/calibrate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "octavo/ir/whole_file.h"

namespace octavo::quant {
namespace {

using ir::Tensor;
using ir::TensorMap;
using ::testing::HasSubstr;

constexpr int64_t kHeads = 3, kWidth = 5;

// What "the model" computes at one position of one text: anything that depends on nothing else.
float Feature(int64_t id, int64_t i) { return std::sin(static_cast<float>(id * 7 + i)) * static_cast<float>(id % 11); }

std::vector<InputSpec> Inputs() {
  const ir::SymShape dims = {ir::Dim::Symbol("batch"), ir::Dim::Symbol("seq")};
  return {{"input_ids", {DType::kS64, dims}}, {"attention_mask", {DType::kS64, dims}}};
}

// Gives one text in all the forms that a transformer has; padded positions hold garbage that grows with the padding.
ir::Result<TensorMap> FakeModel(const TensorMap& inputs) {
  const Tensor& ids = inputs.at("input_ids");
  const Tensor& mask = inputs.at("attention_mask");
  const int64_t batch = ids.shape()[0], seq = ids.shape()[1];
  std::vector<float> hidden, heads, probs, pooled;
  const auto at = [&](int64_t b, int64_t s, int64_t i) {
    return mask.GetInt(b * seq + s) != 0 ? Feature(ids.GetInt(b * seq + s), i) : 1e6f + static_cast<float>(seq);
  };
  for (int64_t b = 0; b < batch; ++b) {
    for (int64_t s = 0; s < seq; ++s) {
      for (int64_t i = 0; i < kWidth; ++i) hidden.push_back(at(b, s, i));
    }
    for (int64_t h = 0; h < kHeads; ++h) {
      for (int64_t s = 0; s < seq; ++s) {
        heads.push_back(at(b, s, h));
        for (int64_t t = 0; t < seq; ++t) probs.push_back(std::fabs(at(b, s, h)) + std::fabs(at(b, t, h)));
      }
    }
    int64_t first = 0;  // real position: a pooled value has none of the padding in it
    while (mask.GetInt(b * seq + first) == 0) ++first;
    pooled.push_back(at(b, first, 0));
  }
  TensorMap out;
  out["hidden"] = Tensor::F32({batch, seq, kWidth}, hidden);
  out["flat"] = Tensor::F32({batch * seq, kWidth}, hidden);
  out["heads"] = Tensor::F32({batch, kHeads, seq, 1}, heads);
  out["merged"] = Tensor::F32({batch * kHeads, seq, 1}, heads);
  out["probs"] = Tensor::F32({batch, kHeads, seq, seq}, probs);
  out["pooled"] = Tensor::F32({batch, 1}, pooled);
  return out;
}

std::vector<Tap> Taps() {
  const std::string mask = "attention_mask";
  return {{.value = "hidden", .mask = mask, .seq_axes = {1}},   {.value = "flat", .mask = mask, .flat = true},
          {.value = "heads", .mask = mask, .seq_axes = {2}},    {.value = "merged", .mask = mask, .seq_axes = {1}},
          {.value = "probs", .mask = mask, .seq_axes = {2, 3}}, {.value = "pooled"}};
}

using Text = std::vector<int64_t>;

std::vector<Text> Texts(std::mt19937& random, size_t n) {
  std::vector<Text> texts(n);
  for (auto& t : texts) {
    for (size_t k = 1 + random() % 9; k > 0; --k) t.push_back(static_cast<int64_t>(random() % 200));
  }
  return texts;
}

// Padded to the longest and `extra` more, at the left for odd `extra`.
TensorMap BatchOf(std::span<const Text> texts, size_t extra) {
  size_t seq = 0;
  for (const auto& t : texts) seq = std::max(seq, t.size() + extra);
  std::vector<int64_t> ids, mask;
  for (const auto& t : texts) {
    const size_t before = extra % 2 == 1 ? seq - t.size() : 0;
    for (size_t s = 0; s < seq; ++s) {
      const bool real = s >= before && s - before < t.size();
      ids.push_back(real ? t[s - before] : 0);
      mask.push_back(real ? 1 : 0);
    }
  }
  const ir::Shape shape = {static_cast<int64_t>(texts.size()), static_cast<int64_t>(seq)};
  return {{"input_ids", Tensor::S64(shape, ids)}, {"attention_mask", Tensor::S64(shape, mask)}};
}

std::vector<TensorMap> Batches(const std::vector<Text>& texts, std::mt19937& random) {
  std::vector<TensorMap> batches;
  for (size_t at = 0; at < texts.size();) {
    const size_t n = std::min<size_t>(texts.size() - at, 1 + random() % 6);
    batches.push_back(BatchOf(std::span(texts).subspan(at, n), random() % 4));
    at += n;
  }
  return batches;
}

const std::vector<std::string> kIds = {"input_ids"};

Calibration Done(std::vector<TensorMap> batches, CalibrateOptions options = {}) {
  options.ids = kIds;
  auto data = InMemoryData(std::move(batches), Inputs());
  auto r = Calibrate(Taps(), *data, FakeModel, options);
  EXPECT_TRUE(r) << r.error().message;
  return r ? std::move(*r) : Calibration{};
}

TEST(Calibrate, BatchesOrderPaddingAndShardsDoNotMatter) {
  for (unsigned seed = 1; seed <= 10; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    auto texts = Texts(random, 25);
    std::vector<TensorMap> one_by_one;
    for (const auto& t : texts) one_by_one.push_back(BatchOf(std::span(&t, 1), 0));
    const Calibration truth = Done(one_by_one);
    EXPECT_EQ(truth.samples, 25u);
    const std::string bytes = truth.ToBytes();
    EXPECT_TRUE(Done(Batches(texts, random)).ToBytes() == bytes);
    std::ranges::shuffle(texts, random);
    EXPECT_TRUE(Done(Batches(texts, random)).ToBytes() == bytes);
    const auto cut = static_cast<ptrdiff_t>(1 + random() % 24);
    Calibration a = Done(Batches({texts.begin(), texts.begin() + cut}, random));
    Calibration b = Done(Batches({texts.begin() + cut, texts.end()}, random));
    Calibration ab = a, ba = b;
    ASSERT_TRUE(ab.Merge(b));
    ASSERT_TRUE(ba.Merge(a));
    EXPECT_TRUE(ab.ToBytes() == bytes);
    EXPECT_TRUE(ba.ToBytes() == bytes);
  }
}

TEST(Calibrate, IdsAreThoseThatNoMaskHides) {
  EXPECT_EQ(Done({BatchOf({{{3, 4}, {5, 6, 7}}}, 2)}).ids, (IdRanges{{"input_ids", {3, 7}}}));
  TensorMap padding = BatchOf({{{9, 9}}}, 0);
  padding["attention_mask"] = Tensor::S64({1, 2}, {0, 1});
  padding["input_ids"] = Tensor::S64({1, 2}, {-8, 9});
  EXPECT_EQ(Done({padding}).ids, (IdRanges{{"input_ids", {9, 9}}}));
  EXPECT_EQ(Done({padding, BatchOf({{{3}, {5}}}, 0)}).ids, (IdRanges{{"input_ids", {3, 9}}}));
}

TEST(Calibrate, DataThatTellsNoIdsLeavesNone) {
  const std::vector<Text> texts = {{3, 4}, {5, 6, 7}};
  const Calibration some = Done({BatchOf(texts, 0)});
  Calibration none = some, both = some;
  none.ids.clear();  // as octavo 0.1 wrote them
  ASSERT_TRUE(both.Merge(none));
  EXPECT_TRUE(both.ids.empty());
  both = none;
  ASSERT_TRUE(both.Merge(some));
  EXPECT_TRUE(both.ids.empty());
  EXPECT_TRUE(Done({BatchOf(texts, 0), BatchOf({{{100}}}, 0)}, {.resume = &none}).ids.empty());
  EXPECT_EQ(Done({BatchOf(texts, 0), BatchOf({{{100}}}, 0)}, {.resume = &some}).ids,
            (IdRanges{{"input_ids", {3, 100}}}));
}

TEST(Calibrate, SeesExactlyTheRealPositions) {
  const std::vector<Text> texts = {{3, 4}, {5, 6, 7}};
  const Calibration c = Done({BatchOf(texts, 2)});
  EXPECT_EQ(c.Find("hidden")->count(), 5u * kWidth);
  EXPECT_EQ(c.Find("flat")->count(), 5u * kWidth);
  EXPECT_EQ(c.Find("heads")->count(), 5u * kHeads);
  EXPECT_EQ(c.Find("merged")->count(), 5u * kHeads);
  EXPECT_EQ(c.Find("probs")->count(), (4u + 9u) * kHeads);
  EXPECT_EQ(c.Find("pooled")->count(), 2u);
  float lo = 0, hi = 0;
  for (const auto& t : texts) {
    for (const int64_t id : t) {
      for (int64_t i = 0; i < kWidth; ++i) lo = std::min(lo, Feature(id, i)), hi = std::max(hi, Feature(id, i));
    }
  }
  for (const char* name : {"hidden", "flat"}) {
    EXPECT_EQ(c.Find(name)->min(), lo);
    EXPECT_EQ(c.Find(name)->max(), hi);
    EXPECT_EQ(c.Find(name)->samples(), 2u);
  }
  EXPECT_EQ(*c.Find("heads"), *c.Find("merged"));
  const Calibration all = Done({BatchOf(texts, 2)}, {.skip_padding = false});
  EXPECT_EQ(all.Find("hidden")->count(), 2u * 5 * kWidth);
  EXPECT_GT(all.Find("hidden")->max(), 1e5f);
  EXPECT_EQ(c.Find("none"), nullptr);
}

TEST(Calibrate, FindsPaddingBySizes) {
  const std::vector<Text> texts = {{3, 4}, {5, 6, 7, 8}};
  const std::vector<Tap> taps = {{.value = "hidden", .by_sizes = true},
                                 {.value = "flat", .by_sizes = true},
                                 {.value = "pooled", .by_sizes = true},
                                 {.value = "heads", .by_sizes = true}};
  auto data = InMemoryData({BatchOf(texts, 0)}, Inputs());
  const auto c = Calibrate(taps, *data, FakeModel);
  ASSERT_TRUE(c) << c.error().message;
  EXPECT_EQ(c->Find("hidden")->count(), 6u * kWidth);
  EXPECT_EQ(c->Find("flat")->count(), 6u * kWidth);
  EXPECT_EQ(c->Find("pooled")->count(), 2u);
  EXPECT_EQ(c->Find("heads")->count(), 8u * kHeads) << "an axis 2 is not guessed by its size";
}

// Whole rows of the last axis, in the order of the data, however the mask is found.
TEST(Calibrate, RowsAreThoseThatAreNoPadding) {
  const std::vector<Text> texts = {{3, 4}, {5, 6, 7, 8}, {9}};
  std::vector<float> want;
  for (const auto& t : texts) {
    for (const int64_t id : t) {
      for (int64_t i = 0; i < kWidth; ++i) want.push_back(Feature(id, i));
    }
  }
  for (const bool by_sizes : {false, true}) {
    std::vector<float> hidden, flat;
    const auto into = [](std::vector<float>& to) {
      return [&to](std::span<const float> rows, size_t width) {
        EXPECT_EQ(width, static_cast<size_t>(kWidth));
        to.insert(to.end(), rows.begin(), rows.end());
      };
    };
    const std::string mask = by_sizes ? "" : "attention_mask";
    std::vector<Tap> taps = {
        {.value = "hidden", .mask = mask, .by_sizes = by_sizes, .rows = into(hidden)},
        {.value = "flat", .mask = mask, .flat = !by_sizes, .by_sizes = by_sizes, .rows = into(flat)}};
    if (!by_sizes) taps[0].seq_axes = {1};
    auto data =
        InMemoryData({BatchOf(std::span(texts).first(2), 3), BatchOf(std::span(texts).subspan(2), 2)}, Inputs());
    const auto c = Calibrate(taps, *data, FakeModel);
    ASSERT_TRUE(c) << c.error().message;
    EXPECT_EQ(hidden, want);
    EXPECT_EQ(flat, want);
  }
}

TEST(Calibrate, SequenceFirst) {
  const std::vector<Text> texts = {{3, 4}, {5, 6, 7}};
  const TensorMap batch = BatchOf(texts, 0);
  auto data = InMemoryData({batch}, Inputs());
  const auto model = [](const TensorMap&) -> ir::Result<TensorMap> {
    return TensorMap{{"x", Tensor::F32({3, 2}, {1, 10, 2, 20, 999, 30})}};  // [seq, batch]
  };
  const std::vector<Tap> taps = {{.value = "x", .mask = "attention_mask", .batch_axis = 1, .seq_axes = {0}}};
  const auto c = Calibrate(taps, *data, model);
  ASSERT_TRUE(c) << c.error().message;
  EXPECT_EQ(c->Find("x")->count(), 5u);
  EXPECT_EQ(c->Find("x")->max(), 30);
  EXPECT_DOUBLE_EQ(c->Find("x")->mean_max(), (2 + 30) / 2.0);
}

TEST(Calibrate, StopsAndGoesOn) {
  std::mt19937 random(8);
  const auto texts = Texts(random, 20);
  const auto batches = Batches(texts, random);
  ASSERT_GT(batches.size(), 3u);
  const std::string truth = Done(batches).ToBytes();
  std::atomic<bool> stop = false;
  std::vector<std::pair<int64_t, int64_t>> seen;
  const auto progress = [&](int64_t done, int64_t total) {
    seen.emplace_back(done, total);
    stop = done == 2;
  };
  const Calibration half = Done(batches, {.progress = progress, .stop = &stop});
  const auto total = static_cast<int64_t>(batches.size());
  EXPECT_EQ(seen, (std::vector<std::pair<int64_t, int64_t>>{{1, total}, {2, total}}));
  EXPECT_LT(half.samples, 20u);
  const auto loaded = Calibration::FromBytes(half.ToBytes(), "half");
  ASSERT_TRUE(loaded);
  EXPECT_TRUE(Done(batches, {.resume = &*loaded}).ToBytes() == truth);
  // Cut into other batches, the place to go on from may lie inside one.
  auto data = InMemoryData({BatchOf(texts, 0)}, Inputs());
  const auto r = Calibrate(Taps(), *data, FakeModel, {.resume = &half});
  ASSERT_FALSE(r);
  EXPECT_THAT(r.error().message, HasSubstr("cannot go on"));
  stop = true;
  const auto nothing = Calibrate(Taps(), *data, FakeModel, {.stop = &stop});
  ASSERT_FALSE(nothing);
  EXPECT_EQ(nothing.error().message,
            "calibration was interrupted before its first row: there is nothing to go on from");
}

TEST(Calibrate, AShardIsOneOfItsOwn) {
  std::mt19937 random(4);
  const Calibration whole = Done(Batches(Texts(random, 4), random));
  Calibration first = whole, second = whole;
  first.shard = "1/2", second.shard = "2/2";
  const auto read = Calibration::FromBytes(first.ToBytes(), "first");
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(read->shard, "1/2");
  EXPECT_NE(first.ToBytes(), whole.ToBytes());
  EXPECT_TRUE(read->CheckShard("1/2"));
  for (const auto& [mine, wanted, words] :
       {std::tuple{"1/2", "2/2", "it was gathered of shard 1/2, not of shard 2/2: go on with the shard"},
        {"1/2", "", "it was gathered of shard 1/2, not of all batches"},
        {"", "1/2", "it was gathered of all batches, not of shard 1/2"}}) {
    Calibration odd = whole;
    odd.shard = mine;
    const ir::Status status = odd.CheckShard(wanted);
    ASSERT_FALSE(status);
    EXPECT_THAT(status.error().message, HasSubstr(words));
  }
  // What shards were merged of is none of them.
  Calibration merged = first, both = whole;
  ASSERT_TRUE(merged.Merge(second));
  ASSERT_TRUE(both.Merge(whole));
  EXPECT_TRUE(merged.ToBytes() == both.ToBytes());
  EXPECT_EQ(ShardName(0, 1), "");
  EXPECT_EQ(ShardName(1, 8), "2/8");
}

// However little room there is: the same bytes, parts no larger than that, and the place to go on from may be any row.
TEST(Calibrate, BatchesInPartsTakeNoMoreThanTheyMay) {
  std::mt19937 random(9);
  const auto texts = Texts(random, 24);
  const auto batches = Batches(texts, random);
  const std::string truth = Done(batches).ToBytes();
  for (const size_t room : {size_t{1}, size_t{700}, size_t{4000}, size_t{1} << 30}) {
    size_t most = 0, runs = 0;
    const Runner watched = [&](const TensorMap& inputs) -> ir::Result<TensorMap> {
      OCTAVO_TRY(TensorMap values, FakeModel(inputs));
      size_t bytes = 0;
      for (const auto& [name, t] : values) bytes += t.byte_size();
      if (inputs.begin()->second.shape()[0] > 2) most = std::max(most, bytes);
      ++runs;
      return values;
    };
    std::atomic<bool> stop = false;
    auto data = InMemoryData(batches, Inputs());
    const auto whole = Calibrate(Taps(), *data, watched, {.ids = kIds, .in_rows = true, .most_bytes = room});
    ASSERT_TRUE(whole) << whole.error().message;
    EXPECT_EQ(whole->ToBytes(), truth) << room;
    EXPECT_LE(most, room);
    EXPECT_TRUE(room > 1 || runs >= 24) << runs;
    const size_t all_runs = runs;
    for (size_t last = 0; last < all_runs; ++last) {
      runs = 0, stop = false;
      const Runner interrupted = [&](const TensorMap& inputs) -> ir::Result<TensorMap> {
        if (runs == last) return stop = true, ir::Fail("interrupted");
        return watched(inputs);
      };
      const auto half =
          Calibrate(Taps(), *data, interrupted, {.ids = kIds, .in_rows = true, .most_bytes = room, .stop = &stop});
      if (!half) {  // before a row was seen
        EXPECT_LT(last, 5u) << half.error().message;
        continue;
      }
      const auto rest =
          Calibrate(Taps(), *data, watched, {.ids = kIds, .resume = &*half, .in_rows = true, .most_bytes = room});
      ASSERT_TRUE(rest) << rest.error().message;
      EXPECT_EQ(rest->ToBytes(), truth) << room << ", interrupted at run " << last;
    }
  }
  // A model that runs no part, whatever it says of its inputs, runs the batch.
  const Runner no_part = [](const TensorMap& inputs) -> ir::Result<TensorMap> {
    if (const int64_t rows = inputs.begin()->second.shape()[0]; rows != 12) return ir::Fail("{} rows", rows);
    return FakeModel(inputs);
  };
  auto all = InMemoryData({BatchOf(std::span(texts).first(12), 0), BatchOf(std::span(texts).last(12), 1)}, Inputs());
  const auto in_one = Calibrate(Taps(), *all, no_part, {.ids = kIds, .in_rows = true, .most_bytes = 1});
  ASSERT_TRUE(in_one) << in_one.error().message;
  EXPECT_EQ(in_one->ToBytes(), truth);
  // Rows of one sequence, which see those before them: the batch is no batch.
  const Runner sums = [](const TensorMap& inputs) -> ir::Result<TensorMap> {
    const Tensor& ids = inputs.at("input_ids");
    Tensor x = Tensor::Zeros(DType::kF32, {ids.shape()[0], 1});
    float sum = 0;
    for (int64_t row = 0; row < ids.shape()[0]; ++row) {
      sum += static_cast<float>(ids.GetInt(row * ids.shape()[1]));
      x.mutable_as<float>()[static_cast<size_t>(row)] = sum;
    }
    return TensorMap{{"x", x}};
  };
  auto sequence = InMemoryData({BatchOf(std::span(texts).first(12), 0)}, Inputs());
  const std::vector<Tap> of_sums = {{.value = "x"}};
  const auto apart = Calibrate(of_sums, *sequence, sums, {.in_rows = true, .most_bytes = 1});
  ASSERT_TRUE(apart) << apart.error().message;
  EXPECT_EQ(apart->ToBytes(), Calibrate(of_sums, *sequence, sums, {})->ToBytes());
  // An error names the row of the batch, not of the part.
  const Runner nan = [](const TensorMap& inputs) -> ir::Result<TensorMap> {
    const Tensor& ids = inputs.at("input_ids");
    const bool bad = ids.shape()[0] == 1 && ids.GetInt(0) == 3;
    Tensor x = Tensor::Zeros(DType::kF32, {ids.shape()[0], 1});
    if (bad) x.mutable_as<float>()[0] = NAN;
    return TensorMap{{"x", x}};
  };
  const std::vector<Text> four = {{1}, {2}, {4}, {3}};
  auto data = InMemoryData({BatchOf(four, 0)}, Inputs());
  const std::vector<Tap> taps = {{.value = "x"}};
  const auto r = Calibrate(taps, *data, nan, {.in_rows = true, .most_bytes = 1});
  ASSERT_FALSE(r);
  EXPECT_THAT(r.error().message, HasSubstr("row 3 of batch 0"));
}

TEST(Calibrate, ErrorsNameValueAndSample) {
  const std::vector<Text> texts = {{1, 2}, {3, 4}};
  const auto error = [&](const Runner& runner, std::vector<Tap> taps, std::vector<TensorMap> batches) {
    auto data = InMemoryData(std::move(batches), Inputs());
    const auto r = Calibrate(taps, *data, runner);
    return r ? "no error" : r.error().message;
  };
  const std::vector<TensorMap> two = {BatchOf(texts, 0), BatchOf(texts, 0)};
  int calls = 0;
  const auto nan = [&](const TensorMap&) -> ir::Result<TensorMap> {
    const float bad = calls++ == 1 ? NAN : 0.0f;
    return TensorMap{{"x", Tensor::F32({2, 2}, {1, 2, 3, bad})}};
  };
  EXPECT_EQ(
      error(nan, {{.value = "x"}}, two),
      "value 'x' has a NaN or infinity in sample 3 (row 1 of batch 1); look for it in the data, or leave the value "
      "unquantized");
  const auto inf = [](const TensorMap&) -> ir::Result<TensorMap> {
    return TensorMap{{"x", Tensor::ScalarF32(INFINITY)}};
  };
  EXPECT_THAT(error(inf, {{.value = "x", .batch_axis = -1}}, two), HasSubstr("in a batch (batch 0)"));
  const auto fails = [](const TensorMap&) -> ir::Result<TensorMap> { return ir::Fail("node 'n' broke"); };
  EXPECT_EQ(error(fails, {{.value = "x"}}, two), "calibration on batch 0 failed: node 'n' broke");
  const auto random = RandomData(1, {{"x", {DType::kF32, ir::SymShape{2}}}}, {}).value();
  EXPECT_THAT(Calibrate({{Tap{.value = "x"}}}, *random, fails).error().message, HasSubstr("give real batches"));
  EXPECT_EQ(error(FakeModel, {{.value = "nope"}}, two), "the model run for calibration gives no value 'nope'");
  EXPECT_THAT(error(FakeModel, {{.value = "input_ids"}}, two), HasSubstr("only float values"));
  EXPECT_THAT(error(FakeModel, {{.value = "hidden", .batch_axis = 3}}, two), HasSubstr("no such batch axis"));
  EXPECT_THAT(error(FakeModel, {{.value = "hidden", .batch_axis = 2}}, two), HasSubstr("does not divide axis 2"));
  EXPECT_THAT(error(FakeModel, {{.value = "hidden", .mask = "none", .seq_axes = {1}}}, two),
              HasSubstr("no mask 'none'"));
  EXPECT_THAT(error(FakeModel, {{.value = "hidden", .mask = "attention_mask", .seq_axes = {2}}}, two),
              HasSubstr("axis 2 is not as long as mask"));
  EXPECT_THAT(error(FakeModel, Taps(), {}), HasSubstr("there is no data"));
}

class CalibFile : public ::testing::Test {
 protected:
  CalibFile() : path_(std::filesystem::temp_directory_path() / std::format("octavo_{}.calib", getpid())) {
    std::mt19937 random(1);
    calibration_ = Done(Batches(Texts(random, 10), random), {.model = "f00d"});
  }
  ~CalibFile() override { std::filesystem::remove(path_); }
  static std::string Error(std::string_view bytes) {
    const auto r = Calibration::FromBytes(bytes, "'x.calib'");
    return r ? "no error" : r.error().message;
  }
  std::filesystem::path path_;
  Calibration calibration_;
};

TEST_F(CalibFile, RoundTrips) {
  ASSERT_TRUE(calibration_.Save(path_));
  const auto back = Calibration::Load(path_);
  ASSERT_TRUE(back) << back.error().message;
  EXPECT_EQ(back->ToBytes(), calibration_.ToBytes());
  EXPECT_EQ(back->model, "f00d");
  EXPECT_EQ(back->samples, 10u);
  EXPECT_TRUE(back->ids == calibration_.ids && back->ids.size() == 1);
  EXPECT_EQ(*back->Find("probs"), *calibration_.Find("probs"));
  EXPECT_TRUE(back->CheckModel("f00d"));
  EXPECT_THAT(back->CheckModel("beef").error().message, HasSubstr("another model"));
  EXPECT_THAT(calibration_.ToBytes(), ::testing::StartsWith("octavo calibration 2\n{\"bytes\":"));
}

TEST_F(CalibFile, EveryTruncationAndEveryFlipIsASentence) {
  const std::string bytes = calibration_.ToBytes();
  std::mt19937 random(2);
  for (int i = 0; i < 600; ++i) {
    const size_t n = random() % bytes.size();
    ASSERT_THAT(Error(std::string_view(bytes).substr(0, n)), HasSubstr("'x.calib'")) << n;
    std::string bad = bytes;
    bad[random() % bad.size()] ^= static_cast<char>(1 + random() % 255);
    ASSERT_THAT(Error(bad), HasSubstr("'x.calib'"));
  }
  EXPECT_THAT(Error(bytes + "x"), HasSubstr("cut off or has something added"));
  EXPECT_THAT(Error("PK\3\4"), HasSubstr("no calibration file"));
  std::string later = bytes;
  later[std::string_view("octavo calibration ").size()] = '9';
  EXPECT_EQ(Error(later), "'x.calib' has format '9', this octavo reads format 3; calibrate again");
}

TEST_F(CalibFile, RefusesToMergeWhatDoesNotBelongTogether) {
  Calibration other = calibration_;
  other.model = "beef";
  EXPECT_THAT(Calibration(calibration_).Merge(other).error().message, HasSubstr("different models"));
  other = calibration_;
  other.skip_padding = false;
  EXPECT_THAT(Calibration(calibration_).Merge(other).error().message, HasSubstr("padding differently"));
  other = calibration_;
  other.values.erase("probs");
  EXPECT_THAT(Calibration(calibration_).Merge(other).error().message, HasSubstr("'probs' is in one"));
  EXPECT_THAT(other.Merge(calibration_).error().message, HasSubstr("'probs' is in one"));
}

TEST_F(CalibFile, SaysWhatItCannotDo) {
  EXPECT_THAT(Calibration::Load("no/such.calib").error().message, HasSubstr("No such file"));
  const auto r = calibration_.Save("no/such/folder/x.calib");
  ASSERT_FALSE(r);
  EXPECT_THAT(r.error().message, HasSubstr("cannot write 'no/such/folder/x.calib'"));
}

}  // namespace
}  // namespace octavo::quant
