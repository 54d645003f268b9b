// Caches with room for rows to come: appended in place, copied when full or when another tensor went on from the same row.
#include "octavo/runtime/room.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>
#include <tuple>
#include <vector>

#include "octavo/ir/infer.h"
#include "octavo/runtime/cache_state.h"
#include "octavo/runtime/cache_windows.h"
#include "octavo/runtime/caches.h"
#include "octavo/runtime/model.h"

namespace octavo::runtime {
namespace {

using ir::Shape;
using ir::Tensor;

Tensor Counted(Shape shape, float from) {
  Tensor t = Tensor::Zeros(ir::DType::kF32, std::move(shape));
  std::iota(t.mutable_as<float>().begin(), t.mutable_as<float>().end(), from);
  return t;
}

// [2, 3, rows, 4]: past, then now.
Tensor Joined(const Tensor& past, const Tensor& now) {
  const int64_t a = past.shape()[2], b = now.shape()[2];
  Tensor t = Tensor::Zeros(ir::DType::kF32, {2, 3, a + b, 4});
  for (int64_t head = 0; head < 6; ++head) {
    float* to = t.mutable_as<float>().data() + head * (a + b) * 4;
    std::copy_n(past.as<float>().data() + head * a * 4, a * 4, to);
    std::copy_n(now.as<float>().data() + head * b * 4, b * 4, to + a * 4);
  }
  return t;
}

TEST(Room, RowsAreAppendedWhereTheyLie) {
  const Threads threads(2);
  Tensor want = Counted({2, 3, 2, 4}, 1), got = IntoRoom(want, 2, 7);
  const std::byte* memory = got.data();
  for (const int64_t rows : {1, 3, 0, 1, 5}) {
    const Tensor now = Counted({2, 3, rows, 4}, 1000);
    want = Joined(want, now), got = AppendRows(got, now, threads);
    EXPECT_EQ(got.shape(), want.shape());
    EXPECT_TRUE(Dense(got).SameBits(want));
    EXPECT_EQ(got.data() == memory, want.shape()[2] <= 7) << want.shape()[2];
  }
}

TEST(Room, TheSecondThatGoesOnFromARowGetsACopy) {
  const Threads threads(1);
  const Tensor past = Counted({2, 3, 2, 4}, 1), in_room = IntoRoom(past, 2, 9);
  const Tensor a = Counted({2, 3, 1, 4}, 100), b = Counted({2, 3, 2, 4}, 200);
  const Tensor first = AppendRows(in_room, a, threads), second = AppendRows(in_room, b, threads);
  EXPECT_EQ(first.data(), in_room.data());
  EXPECT_NE(second.data(), in_room.data());
  EXPECT_TRUE(Dense(first).SameBits(Joined(past, a)));
  EXPECT_TRUE(Dense(second).SameBits(Joined(past, b)));
  EXPECT_TRUE(Dense(in_room).SameBits(past));
}

TEST(Room, RowsOfCodesAreWithinHalfAStepOfTheFloats) {
  const Threads threads(2);
  Tensor want = Counted({2, 3, 2, 4}, 1), got = IntoRoom(want, 2, 7, 8);
  EXPECT_TRUE(IsCoded(got));
  for (const int64_t rows : {1, 3, 0, 9}) {
    const Tensor now = Counted({2, 3, rows, 4}, -100);
    const Tensor before = Dense(got);
    want = Joined(want, now), got = AppendRows(got, now, threads);
    const Tensor all = Dense(got);
    ASSERT_EQ(all.shape(), want.shape());
    for (size_t row = 0; row < all.as<float>().size(); row += 4) {
      const std::span<const float> exact = want.as<float>().subspan(row, 4), coded = all.as<float>().subspan(row, 4);
      float most = 0;
      for (const float x : exact) most = std::max(most, std::abs(x));
      // Half a step, and the roundings of scale, quotient and product: 2^-22 of the largest.
      for (size_t i = 0; i < 4; ++i) EXPECT_LE(std::abs(exact[i] - coded[i]), most * (0.5 / 127 + 0x1p-22)) << row;
    }
    EXPECT_TRUE(Dense(CutRows(got, 2, before.shape()[2])).SameBits(before)) << "rows that were there, " << rows;
  }
  EXPECT_EQ(MemoryOf(got) % (6 * (4 + 16)), 0u);  // a scale and 16 bytes of codes a row
}

// Whose present is read by attention, or by a kernel that knows no strides.
ir::Graph Decoder(bool readers_know_rooms) {
  ir::Graph g;
  const ir::Dim all = ir::Dim::Symbol("past");
  const auto now = g.AddInput("now", {ir::DType::kF32, ir::SymShape{1, 3, ir::Dim::Symbol("rows"), 4}});
  const auto past = g.AddInput("past", {ir::DType::kF32, ir::SymShape{1, 3, all, 4}});
  const auto present = g.node(g.AddNode(ir::Op::kConcat, {past, now}, 1, {{"axis", int64_t{-2}}}, "append")).output();
  g.AddOutput("present", present);
  if (readers_know_rooms) {
    const ir::Attrs attrs = {{"num_heads", int64_t{3}},
                             {"kv_num_heads", int64_t{3}},
                             {"head_dim", int64_t{4}},
                             {"v_head_dim", int64_t{4}},
                             {"scale", 0.5f}};
    g.AddOutput("y", g.node(g.AddNode(ir::Op::kSdpa, {now, present, present}, 1, attrs, "attention")).output());
  } else {
    g.AddOutput("y", g.node(g.AddNode(ir::Op::kNeg, {present}, 1, {}, "reader")).output());
  }
  return g;
}

TEST(CacheState, EveryReaderGetsTheRowsThatAreThere) {
  for (const bool know : {true, false}) {
    auto model = Model::Compile(Decoder(know), {.threads = 2});
    ASSERT_TRUE(model.has_value()) << model.error().message;
    ASSERT_EQ(model->caches().size(), 1u);
    EXPECT_TRUE(model->caches()[0].in_room);
    CacheState state;
    Tensor past = Tensor::Zeros(ir::DType::kF32, {1, 3, 0, 4});
    for (const int64_t rows : {5, 1, 1, 90, 1}) {
      const Tensor now = Counted({1, 3, rows, 4}, static_cast<float>(rows) / 8);
      const auto want = model->Run({{"past", past}, {"now", now}});
      const auto got = model->Run({{"now", now}}, state);
      ASSERT_TRUE(want && got) << got.error().message;
      EXPECT_TRUE((*got)[1].SameBits((*want)[1])) << know << " " << rows;
      EXPECT_FALSE((*got)[0].defined());
      past = (*want)[0];
      EXPECT_TRUE(state.Tensors()[0].SameBits(past));
      EXPECT_EQ(state.length(), past.shape()[2]);
    }
  }
}

TEST(CacheState, ACopyGoesOnByItself) {
  auto model = Model::Compile(Decoder(true), {.threads = 1});
  ASSERT_TRUE(model.has_value());
  CacheState first(16);
  ASSERT_TRUE(model->Run({{"now", Counted({1, 3, 4, 4}, 1)}}, first).has_value());
  CacheState second(first);
  const Tensor a = Counted({1, 3, 1, 4}, 50), b = Counted({1, 3, 1, 4}, -9);
  ASSERT_TRUE(model->Run({{"now", a}}, first) && model->Run({{"now", b}}, second));
  const auto row = [](const CacheState& s) { return s.Tensors()[0].as<float>()[4 * 4]; };
  EXPECT_EQ(row(first), 50);
  EXPECT_EQ(row(second), -9);
  second.Reset();
  EXPECT_EQ(second.length(), 0);
  EXPECT_EQ(first.length(), 5);
}

TEST(CacheState, ACutStateLeavesItsCopyAlone) {
  auto model = Model::Compile(Decoder(true), {.threads = 1});
  ASSERT_TRUE(model.has_value());
  CacheState state(16);
  ASSERT_TRUE(model->Run({{"now", Counted({1, 3, 4, 4}, 1)}}, state).has_value());
  const void* memory = state.Tensors()[0].data();
  {
    const CacheState copy(state);
    const Tensor before = copy.Tensors()[0];
    ASSERT_TRUE(state.Cut(2).has_value());
    ASSERT_TRUE(model->Run({{"now", Counted({1, 3, 1, 4}, 90)}}, state).has_value());
    EXPECT_TRUE(copy.Tensors()[0].SameBits(before));
  }
  EXPECT_EQ(state.length(), 3);
  EXPECT_EQ(state.Tensors()[0].as<float>()[2 * 4], 90);
  ASSERT_TRUE(state.Cut(1).has_value());  // alone again: written over
  ASSERT_TRUE(model->Run({{"now", Counted({1, 3, 1, 4}, 70)}}, state).has_value());
  EXPECT_EQ(state.Tensors()[0].as<float>()[1 * 4], 70);
  EXPECT_NE(state.Tensors()[0].data(), memory);
  EXPECT_EQ(state.Cut(3).error().message, "3 rows of a state that has 2; give 0 to 2");
  EXPECT_EQ(state.Cut(-1).error().message, "-1 rows of a state that has 2; give 0 to 2");
  EXPECT_TRUE(state.Cut(0).has_value());
  EXPECT_EQ(state.length(), 0);
}

TEST(CacheState, AFailedRunLeavesTheRows) {
  auto model = Model::Compile(Decoder(true), {.threads = 1});
  ASSERT_TRUE(model.has_value());
  CacheState state;
  ASSERT_TRUE(model->Run({{"now", Counted({1, 3, 4, 4}, 1)}}, state).has_value());
  const Tensor before = state.Tensors()[0];
  EXPECT_FALSE(model->Run({{"now", Counted({2, 3, 1, 4}, 1)}}, state).has_value());
  EXPECT_TRUE(state.Tensors()[0].SameBits(before));
  EXPECT_TRUE(model->Run({{"now", Counted({1, 3, 1, 4}, 1)}}, state).has_value());
}

TEST(CacheState, Refuses) {
  auto model = Model::Compile(Decoder(true), {.threads = 1}), other = Model::Compile(Decoder(true), {.threads = 1});
  ASSERT_TRUE(model && other);
  const Tensor now = Counted({1, 3, 1, 4}, 1);
  CacheState state;
  const auto sentence = [&](const Model& m, ir::TensorMap inputs) {
    const auto result = m.Run(std::move(inputs), state);
    return result ? std::string() : result.error().message;
  };
  EXPECT_EQ(sentence(*model, {{"now", now}, {"past", now}}),
            "input 'past' is a cache that the state keeps; leave it out");
  EXPECT_EQ(sentence(*model, {{"now", now}}), "");
  EXPECT_EQ(sentence(*other, {{"now", now}}), "the state is of another model; make one for each");
  ir::Graph plain;
  const auto x = plain.AddInput("x", {ir::DType::kF32, ir::SymShape{1}});
  plain.AddOutput("y", plain.node(plain.AddNode(ir::Op::kNeg, {x}, 1, {}, "n")).output());
  auto without = Model::Compile(std::move(plain));
  ASSERT_TRUE(without.has_value());
  state.Reset();
  EXPECT_EQ(
      sentence(*without, {{"x", Counted({1}, 1)}}),
      "the model has no caches for a state to keep (no output is an input with rows appended); run it without one");
}

// Attention of `now` over all rows.
ir::Graph AttentionAlone() {
  ir::Graph g;
  const auto now = g.AddInput("now", {ir::DType::kF32, ir::SymShape{1, 3, ir::Dim::Symbol("rows"), 4}});
  const auto all = g.AddInput("all", {ir::DType::kF32, ir::SymShape{1, 3, ir::Dim::Symbol("keys"), 4}});
  const ir::Attrs attrs = {{"num_heads", int64_t{3}},
                           {"kv_num_heads", int64_t{3}},
                           {"head_dim", int64_t{4}},
                           {"v_head_dim", int64_t{4}},
                           {"scale", 0.5f}};
  g.AddOutput("y", g.node(g.AddNode(ir::Op::kSdpa, {now, all, all}, 1, attrs, "attention")).output());
  return g;
}

TEST(CacheState, OfCodesHasTheBitsOfTheRoundedRows) {
  auto truth = Model::Compile(AttentionAlone(), {.threads = 1});
  for (const int threads : {1, 2, 5}) {
    for (const auto& [know, codes] : {std::pair(true, CacheCodes::kInt8),
                                      {false, CacheCodes::kInt8},
                                      {true, CacheCodes::kInt4},
                                      {false, CacheCodes::kInt4}}) {
      const bool bytes = codes == CacheCodes::kInt8;
      auto model = Model::Compile(Decoder(know), {.threads = threads});
      ASSERT_TRUE(model && truth);
      CacheState state(0, codes), plain;
      for (const int64_t rows : {5, 1, 1, 90, 1, 2600, 1}) {
        Tensor now = Counted({1, 3, rows, 4}, static_cast<float>(rows) / 8);
        for (float& x : now.mutable_as<float>()) x = std::sin(x * x);
        const auto got = model->Run({{"now", now}}, state);
        ASSERT_TRUE(got && model->Run({{"now", now}}, plain)) << got.error().message;
        const Tensor all = state.Tensors()[0];
        if (know) {
          const auto want = truth->Run({{"now", now}, {"all", all}});
          ASSERT_TRUE(want.has_value());
          EXPECT_TRUE((*got)[1].SameBits((*want)[0])) << rows << " rows, " << threads << " threads";
        } else {
          const std::span<const float> negated = (*got)[1].as<float>(), x = all.as<float>();
          for (size_t i = 0; i < x.size(); ++i) ASSERT_EQ(negated[i], -x[i]);
        }
        const Tensor floats = plain.Tensors()[0];
        const std::span<const float> exact = floats.as<float>(), x = all.as<float>();
        for (size_t i = 0; i < x.size(); ++i) ASSERT_NEAR(x[i], exact[i], bytes ? 0.51 / 127 : 1.01 / 8);
      }
      EXPECT_EQ(state.length(), 2699);
      EXPECT_EQ(state.bytes() * 16, plain.bytes() * (bytes ? 20 : 12));  // 4 floats a row; a scale and 16 codes
      CacheState copy(state);
      ASSERT_TRUE(state.Cut(3).has_value());
      EXPECT_EQ(state.length(), 3);
      EXPECT_EQ(copy.length(), 2699);
    }
  }
}

// A prompt that many go on from lies in memory once; each has the bits that it has alone.
TEST(CacheState, CopiesShareThePrompt) {
  using Runs = std::vector<std::pair<float, int64_t>>;
  for (const CacheCodes codes : {CacheCodes::kNone, CacheCodes::kInt8, CacheCodes::kInt4}) {
    for (const bool know : {true, false}) {
      auto model = Model::Compile(Decoder(know), {.threads = 2});
      ASSERT_TRUE(model.has_value());
      const auto run = [&](CacheState& state, float from, int64_t rows) {
        const auto got = model->Run({{"now", Counted({1, 3, rows, 4}, from)}}, state);
        EXPECT_TRUE(got.has_value());
        return got ? (*got)[1] : Tensor();
      };
      const auto go_on = [&](CacheState& state, CacheState& truth, const Runs& runs) {
        for (const auto& [from, rows] : runs)
          EXPECT_TRUE(run(state, from, rows).SameBits(run(truth, from, rows))) << from << " " << rows;
        EXPECT_TRUE(state.Tensors()[0].SameBits(truth.Tensors()[0]));
      };
      CacheState prompt(1000, codes), of_prompt(2000, codes), of_a(2000, codes), of_b(2000, codes), of_c(2000, codes);
      for (CacheState* state : {&prompt, &of_prompt, &of_a, &of_b, &of_c}) run(*state, -700, 500);
      CacheState a(prompt), b(prompt);
      go_on(prompt, of_prompt, {{9, 1}});
      go_on(a, of_a, {{1, 20}, {2, 1}, {3, 70}, {4, 1}});
      go_on(b, of_b, {{5, 1}, {6, 20}});
      CacheState c(b);
      go_on(b, of_b, {{7, 1}, {8, 3}, {2, 200}, {2, 1}});
      run(of_c, 5, 1), run(of_c, 6, 20);
      go_on(c, of_c, {{9, 5}, {10, 1}});
      EXPECT_LT(3 * a.bytes(), prompt.bytes());
      EXPECT_LT(3 * c.bytes(), prompt.bytes());
      ASSERT_TRUE(a.Cut(10) && of_a.Cut(10) && b.Cut(470) && of_b.Cut(470));
      go_on(a, of_a, {{3, 2}, {4, 1}});
      go_on(b, of_b, {{3, 2}, {4, 1}});
      go_on(prompt, of_prompt, {{9, 3}});
    }
  }
}

// A decoder of 3 query heads on `heads` whose attention sees `left` rows in front of its own, and a mask; with a reader of all rows, so that none may go.
ir::Graph Sliding(int64_t left, int64_t heads, bool flash, bool whole) {
  ir::Graph g;
  const ir::Dim rows = ir::Dim::Symbol("rows"), past_rows = ir::Dim::Symbol("past");
  const auto q = g.AddInput("q", {ir::DType::kF32, ir::SymShape{1, 3, rows, 4}});
  const auto now = g.AddInput("now", {ir::DType::kF32, ir::SymShape{1, heads, rows, 4}});
  const auto past = g.AddInput("past", {ir::DType::kF32, ir::SymShape{1, heads, past_rows, 4}});
  const auto mask = g.AddInput("mask", {ir::DType::kF32, ir::SymShape{1, 1, 1, past_rows + rows}});
  const auto present = g.node(g.AddNode(ir::Op::kConcat, {past, now}, 1, {{"axis", int64_t{2}}}, "append")).output();
  g.AddOutput("present", present);
  const ir::Attrs attrs = {
      {"num_heads", int64_t{3}}, {"kv_num_heads", heads}, {"head_dim", int64_t{4}},     {"v_head_dim", int64_t{4}},
      {"scale", 0.5f},           {"window_left", left},   {"window_right", int64_t{0}}, {"bottom_right", int64_t{1}},
      {"flash", int64_t{flash}}};
  g.AddOutput("y", g.node(g.AddNode(ir::Op::kSdpa, {q, present, present, mask}, 1, attrs, "attention")).output());
  if (whole) g.AddOutput("n", g.node(g.AddNode(ir::Op::kNeg, {present}, 1, {}, "reader")).output());
  return g;
}

Tensor Waves(Shape shape, double seed) {
  Tensor t = Counted(std::move(shape), 0);
  for (float& x : t.mutable_as<float>()) x = static_cast<float>(std::sin(seed + x * x));
  return t;
}

// What a run of `rows` more gives, whatever is gone: the mask hides every seventh key.
ir::TensorMap SlidingInputs(int64_t heads, int64_t before, int64_t rows) {
  Tensor mask = Tensor::Zeros(ir::DType::kF32, {1, 1, 1, before + rows});
  for (int64_t i = 3; i < before; i += 7) mask.mutable_as<float>()[static_cast<size_t>(i)] = -INFINITY;
  const auto seed = static_cast<double>(before);
  return {{"q", Waves({1, 3, rows, 4}, seed)}, {"now", Waves({1, heads, rows, 4}, seed + 0.5)}, {"mask", mask}};
}

TEST(CacheState, RowsInFrontOfTheWindowGo) {
  for (const CacheCodes codes : {CacheCodes::kNone, CacheCodes::kInt8, CacheCodes::kInt4}) {
    for (const auto& [heads, flash, threads] : {std::tuple(3, false, 1), {1, false, 5}, {1, true, 2}, {3, true, 1}}) {
      auto model = Model::Compile(Sliding(40, heads, flash, false), {.threads = threads});
      auto truth = Model::Compile(Sliding(40, heads, flash, true), {.threads = threads});
      ASSERT_TRUE(model && truth);
      CacheState state(100000, codes), whole(0, codes);
      int64_t most = 0;
      for (int64_t i = 0, chunk = 1; i < 240; ++i, chunk = i % 40 == 0 ? 300 : i % 9 == 0 ? 12 : 1) {
        const ir::TensorMap inputs = SlidingInputs(heads, state.length(), chunk);
        const auto got = model->Run(inputs, state), want = truth->Run(inputs, whole);
        ASSERT_TRUE(got && want) << got.error().message;
        ASSERT_TRUE((*got)[1].SameBits((*want)[1])) << i << ": " << chunk << " rows, " << threads << " threads";
        most = std::max(most, state.bytes());
      }
      EXPECT_EQ(state.length(), whole.length());
      const int64_t of_row = heads * (codes == CacheCodes::kNone ? 16 : codes == CacheCodes::kInt8 ? 20 : 12);
      EXPECT_LE(most, of_row * (flash ? 704 : 256)) << "104 rows, a unit of 64 or 512, and 64 to come";
    }
  }
}

TEST(CacheState, RowsThatAreGoneCannotComeBack) {
  auto model = Model::Compile(Sliding(40, 3, false, false), {.threads = 1});
  auto truth = Model::Compile(Sliding(40, 3, false, true), {.threads = 1});
  ASSERT_TRUE(model && truth);
  CacheState state, whole;
  const auto run = [&](CacheState& a, CacheState& b, int64_t rows) {
    const ir::TensorMap inputs = SlidingInputs(3, a.length(), rows);
    const auto got = model->Run(inputs, a), want = truth->Run(inputs, b);
    return got && want && (*got)[1].SameBits((*want)[1]);
  };
  ASSERT_TRUE(run(state, whole, 500));
  EXPECT_EQ(state.least(), 384 + 40);
  EXPECT_EQ(state.Cut(423).error().message,
            "423 rows of a state whose attention sees a window, in front of which rows are gone; give 424 to 500, or "
            "reset it");
  const Tensor some = state.Tensors()[0], all = whole.Tensors()[0];
  EXPECT_EQ(some.shape(), all.shape());
  EXPECT_EQ(some.as<float>()[383 * 4], 0);
  EXPECT_EQ(some.as<float>()[384 * 4], all.as<float>()[384 * 4]);
  CacheState copy(state), of_copy(whole);
  ASSERT_TRUE(state.Cut(424) && whole.Cut(424));
  for (const int64_t rows : {1, 1, 20, 100, 1}) {
    EXPECT_TRUE(run(state, whole, rows)) << rows;
    EXPECT_TRUE(run(copy, of_copy, rows)) << rows;
  }
}

// Caches stay whole where a row in front may be read: by queries that are not the last rows, or behind a window that not all readers have.
TEST(CacheState, OnlyWindowsLetRowsGo) {
  const auto stay = [](ir::Graph g) {
    EXPECT_TRUE(ir::Inference::Run(g).has_value());
    return FindWindows(g, FindCaches(g)).at(0).stay;
  };
  EXPECT_EQ(stay(Sliding(40, 3, true, false)), 104);
  EXPECT_EQ(stay(Sliding(40, 3, true, true)), 0);
  const auto with = [](const char* attr, int64_t value) {
    ir::Graph g = Sliding(40, 3, false, false);
    for (const ir::NodeId id : g.NodesInOrder()) {
      if (g.node(id).op == ir::Op::kSdpa) g.SetAttr(id, attr, value);
    }
    return g;
  };
  EXPECT_EQ(stay(with("window_right", 3)), 104);
  EXPECT_EQ(stay(with("bottom_right", 0)), 0);
  EXPECT_EQ(stay(with("window_left", -1)), 0);
  ir::Graph other = Sliding(40, 3, false, false);
  const auto present = other.outputs()[0].value;
  ir::Attrs attrs = other.node(other.value(other.outputs()[1].value).producer).attrs;
  const auto more = other.AddInput("more", {ir::DType::kF32, ir::SymShape{1, 3, ir::Dim::Symbol("queries"), 4}});
  other.AddOutput("z", other.node(other.AddNode(ir::Op::kSdpa, {more, present, present}, 1, attrs, "other")).output());
  EXPECT_EQ(stay(std::move(other)), 0) << "queries that may stand further in front";
}

// A tree of texts: each lies behind what its parent had, in memory of its own for its own rows alone.
TEST(CacheState, CopiesOfCopiesShareTheirFronts) {
  for (const CacheCodes codes : {CacheCodes::kNone, CacheCodes::kInt8, CacheCodes::kInt4}) {
    auto model = Model::Compile(Decoder(true), {.threads = 2});
    ASSERT_TRUE(model.has_value());
    const auto run = [&](CacheState& state, int64_t rows) {
      return model->Run({{"now", Waves({1, 3, rows, 4}, static_cast<double>(state.length() + rows))}}, state)
          .value()[1];
    };
    std::vector<std::unique_ptr<CacheState>> states, truths;
    std::vector<int64_t> chunks = {300};
    run(*states.emplace_back(std::make_unique<CacheState>(0, codes)), 300);
    for (const int64_t rows : {90, 130, 70, 200}) {
      states.push_back(std::make_unique<CacheState>(*states.back()));
      run(*states[states.size() - 2], 1);  // so that the copy finds its place taken
      truths.push_back(std::make_unique<CacheState>(0, codes));
      for (const int64_t before : chunks) run(*truths.back(), before);
      EXPECT_TRUE(run(*states.back(), rows).SameBits(run(*truths.back(), rows)));
      EXPECT_TRUE(states.back()->Tensors()[0].SameBits(truths.back()->Tensors()[0]));
      chunks.push_back(rows);
      const int64_t of_row = 3 * (codes == CacheCodes::kNone ? 16 : codes == CacheCodes::kInt8 ? 20 : 12);
      EXPECT_LE(states.back()->bytes(), (64 + rows + rows / 2 + 2 * 64) * of_row) << rows;
    }
    CacheState& last = *states.back();
    for (const int64_t cut : {700, 400, 350, 20}) {
      ASSERT_TRUE(last.Cut(cut) && truths.back()->Cut(cut));
      EXPECT_TRUE(run(last, 3).SameBits(run(*truths.back(), 3))) << cut;
      EXPECT_TRUE(run(last, 1).SameBits(run(*truths.back(), 1))) << cut;
    }
  }
}

TEST(CacheState, CodesAreOfRowsOfFloatsThatGrow) {
  CacheState state(8, CacheCodes::kInt8);
  ir::Graph g;
  const auto past = g.AddInput("past", {ir::DType::kF32, ir::SymShape{1, 2, 6, 4}});
  const auto now = g.AddInput("now", {ir::DType::kF32, ir::SymShape{1, 2, 1, 4}});
  const auto at = g.AddInput("at", {ir::DType::kS64, ir::SymShape{1}});
  g.AddOutput("present", g.node(g.AddNode(ir::Op::kTensorScatter, {past, now, at}, 1, {}, "append")).output());
  auto model = Model::Compile(std::move(g), {.threads = 1});
  ASSERT_TRUE(model.has_value());
  const auto got = model->Run({{"now", Counted({1, 2, 1, 4}, 7)}, {"at", Tensor::S64({1}, {0})}}, state);
  ASSERT_FALSE(got.has_value());
  EXPECT_EQ(got.error().message,
            "no cache of the model can be kept as int8, which takes f32 [batch, heads, rows, size] that grow by rows; "
            "make the state "
            "without");
}

// A cache of fixed length: TensorScatter writes where it lies.
ir::Graph Fixed(ir::Dim length) {
  ir::Graph g;
  const auto past = g.AddInput("past", {ir::DType::kF32, ir::SymShape{1, 2, length, 4}});
  const auto now = g.AddInput("now", {ir::DType::kF32, ir::SymShape{1, 2, 1, 4}});
  const auto at = g.AddInput("at", {ir::DType::kS64, ir::SymShape{1}});
  g.AddOutput("present", g.node(g.AddNode(ir::Op::kTensorScatter, {past, now, at}, 1, {}, "append")).output());
  return g;
}

TEST(CacheState, CachesOfFixedLengthAreWrittenInPlace) {
  auto model = Model::Compile(Fixed(6), {.threads = 1});
  ASSERT_TRUE(model.has_value());
  ASSERT_EQ(model->caches().size(), 1u);
  EXPECT_EQ(model->caches()[0].axis, -1);
  CacheState state;
  const void* memory = nullptr;
  for (int64_t i = 0; i < 3; ++i) {
    ASSERT_TRUE(model->Run({{"now", Counted({1, 2, 1, 4}, 7)}, {"at", Tensor::S64({1}, {i})}}, state).has_value());
    const Tensor cache = state.Tensors()[0];
    EXPECT_EQ(i > 0, cache.data() == memory);
    memory = cache.data();
    EXPECT_EQ(cache.as<float>()[static_cast<size_t>(i) * 4], 7);
    EXPECT_EQ(cache.as<float>()[static_cast<size_t>(i + 1) * 4], 0);
  }
  EXPECT_FALSE(model->Run({{"now", Counted({1, 2, 1, 4}, 7)}, {"at", Tensor::S64({1}, {9})}}, state).has_value());
  const auto after = model->Run({{"now", Counted({1, 2, 1, 4}, 7)}, {"at", Tensor::S64({1}, {0})}}, state);
  ASSERT_FALSE(after.has_value());
  EXPECT_EQ(after.error().message, "the caches of this state were lost in a run that failed; reset it and begin anew");

  auto open = Model::Compile(Fixed(ir::Dim::Symbol("length")), {.threads = 1});
  ASSERT_TRUE(open.has_value());
  CacheState unknown, known(5);
  const ir::TensorMap inputs = {{"now", Counted({1, 2, 1, 4}, 7)}, {"at", Tensor::S64({1}, {0})}};
  const auto refused = open->Run(inputs, unknown);
  ASSERT_FALSE(refused.has_value());
  EXPECT_NE(refused.error().message.find("of a length that nothing tells; make the state for a number of tokens"),
            std::string::npos);
  EXPECT_TRUE(open->Run(inputs, known).has_value());
  EXPECT_EQ(known.Cut(0).error().message,
            "a cache of fixed length, or of fewer than 8 bits, cannot be cut; reset the state, or keep a copy of it");
}

}  // namespace
}  // namespace octavo::runtime
