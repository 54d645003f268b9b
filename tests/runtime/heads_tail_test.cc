// Norms of heads, rotary embeddings and appends behind products are the end of the products' step, with the bits of steps of their own.
#include "octavo/runtime/heads_tail.h"

#include <gtest/gtest.h>

#include <functional>
#include <random>
#include <tuple>

#include "octavo/runtime/cache_state.h"
#include "octavo/runtime/model.h"

namespace octavo::runtime {
namespace {

using ir::DType;
using ir::Graph;
using ir::Op;
using ir::Tensor;
using ir::ValueId;

constexpr int64_t kDepth = 96;

// Rotary embeddings: written out, with pairs half of the columns apart or side by side, or the op, whose x has heads or is rows.
enum class Rotary { kNone, kHalf, kPairs, kOp, kOpOfRows };
enum class Cache { kNone, kConcat, kAppend, kScatter, kScatterNd };

struct Form {
  int64_t heads = 4, size = 64;
  bool norm = false;
  Rotary rotary = Rotary::kHalf;
  int64_t rotated = 0;       // columns; 0: all
  bool rows_first = false;   // turned before the heads are in front
  bool interleaved = false;  // of the op
  bool positions = true;     // of the op; else tables of these rows
  Cache append = Cache::kConcat;
  bool codes = false;        // products of codes instead of weights in blocks
  bool packed = false;       // q, k and v by one product and a Split, q read as rows
  bool table_later = false;  // of the rotary embedding
  bool table_of_product = false;
  bool batch_of_table = true;  // else one for all
  bool table_widens = false;   // its batch is another
  bool merged = false;         // the Transpose of v's heads and that in front of ScatterND are one
};

class Maker {
 public:
  explicit Maker(const Form& f) : f_(f) { g.info.opsets[""] = 23; }
  Graph g;
  std::vector<ValueId> products;

  Tensor Random(DType type, const ir::Shape& shape) {
    Tensor t = Tensor::Zeros(type, shape);
    if (type == DType::kF32) {
      for (float& v : t.mutable_as<float>()) v = std::uniform_real_distribution<float>(-2, 2)(gen_);
    } else {
      for (size_t i = 0; i < t.byte_size(); ++i) t.mutable_data()[i] = static_cast<std::byte>(gen_());
    }
    return t;
  }
  ValueId Constant(DType type, const ir::Shape& shape) { return g.AddConstant(Random(type, shape)); }
  ValueId Node(Op op, std::vector<ValueId> in, ir::Attrs attrs = {}) {
    return g.node(g.AddNode(op, std::move(in), 1, std::move(attrs))).output();
  }
  ValueId Product(ValueId x, int64_t n) {
    const ValueId bias = Constant(DType::kF32, {n});
    if (f_.codes) {
      if (!scale_.valid()) {
        Tensor zero = Tensor::Zeros(DType::kU8, {});
        zero.mutable_data()[0] = std::byte{117};
        scale_ = g.AddConstant(Tensor::ScalarF32(0.01f)), zero_ = g.AddConstant(zero);
      }
      products.push_back(Node(Op::kQuantizedLinear,
                              {x, scale_, zero_, Constant(DType::kS8, {kDepth, n}), Constant(DType::kF32, {n}), bias}));
    } else {
      products.push_back(Node(Op::kLinearBlocked,
                              {x, Constant(DType::kU4, {kDepth, n}), Constant(DType::kF32, {3, n}), ValueId{}, bias},
                              {{"block_size", int64_t{32}}, {"transposed", int64_t{0}}, {"x_bits", int64_t{8}}}));
    }
    return products.back();
  }
  int64_t rotated() const { return f_.rotated == 0 ? f_.size : f_.rotated; }
  ValueId Transposed(ValueId y, std::vector<int64_t> perm = {0, 2, 1, 3}) {
    return Node(Op::kTranspose, {y}, {{"perm", std::move(perm)}});
  }
  ValueId Rows(ValueId y) {
    y = Node(Op::kReshape, {y, g.AddConstant(Tensor::S64({4}, {0, 0, f_.heads, f_.size}))});
    if (f_.norm) y = Node(Op::kRMSNormalization, {y, Constant(DType::kF32, {f_.size})}, {{"axis", int64_t{-1}}});
    return y;
  }
  ValueId Ints(const std::vector<int64_t>& v) { return g.AddConstant(Tensor::S64({std::ssize(v)}, v)); }
  ValueId Slice(ValueId x, int64_t begin, int64_t end, int64_t step = 1) {
    return Node(Op::kSlice, {x, Ints({begin}), Ints({end}), Ints({3}), Ints({step})});
  }
  ValueId Turned(ValueId x) {
    const ir::Attrs last = {{"axis", int64_t{-1}}};
    const int64_t n = rotated();
    if (f_.rotary == Rotary::kHalf)
      return Node(Op::kConcat, {Node(Op::kNeg, {Slice(x, n / 2, 1000)}), Slice(x, 0, n / 2)}, last);
    const auto stacked = [&](ValueId v) { return Node(Op::kUnsqueeze, {v, Ints({4})}); };
    const ValueId pairs =
        Node(Op::kConcat, {stacked(Node(Op::kNeg, {Slice(x, 1, 1000, 2)})), stacked(Slice(x, 0, 1000, 2))}, last);
    return f_.rows_first ? Node(Op::kReshape, {pairs, Ints({0, 0, f_.heads, n})})
                         : Node(Op::kReshape, {pairs, Ints({0, f_.heads, 0, n})});
  }
  ValueId Rotated(ValueId x) {
    if (f_.rotary == Rotary::kOp || f_.rotary == Rotary::kOpOfRows) {
      ir::Attrs attrs = {{"interleaved", int64_t{f_.interleaved}}, {"rotary_embedding_dim", f_.rotated}};
      if (f_.rotary == Rotary::kOpOfRows) attrs.Set("num_heads", f_.heads);
      return Node(Op::kRotaryEmbedding, f_.positions ? std::vector{x, cos, sin, positions} : std::vector{x, cos, sin},
                  attrs);
    }
    const bool part = f_.rotated != 0;
    const ValueId y = part ? Slice(x, 0, rotated()) : x;
    const ValueId sum = Node(Op::kAdd, {Node(Op::kMul, {y, cos}), Node(Op::kMul, {Turned(y), sin})});
    return part ? Node(Op::kConcat, {sum, Slice(x, rotated(), 1000)}, {{"axis", int64_t{-1}}}) : sum;
  }
  // Of what a product makes to [B,H,S,size].
  ValueId Heads(ValueId y, bool turns) {
    if (turns && f_.rotary == Rotary::kOpOfRows) y = Rotated(y);
    y = Rows(y);
    if (turns && f_.rows_first) y = Rotated(y);
    y = Transposed(y);
    return turns && !f_.rows_first && f_.rotary != Rotary::kOpOfRows ? Rotated(y) : y;
  }
  ValueId Appended(ValueId past, ValueId y, bool rows_first) {
    if (f_.append == Cache::kConcat) return Node(Op::kConcat, {past, y}, {{"axis", int64_t{2}}});
    if (f_.append == Cache::kScatter)
      return Node(Op::kTensorScatter, {past, y, before}, {{"mode", std::string("circular")}});
    if (f_.append == Cache::kScatterNd) {
      const std::vector<int64_t> front = {2, 0, 1, 3};
      const ValueId now = Transposed(y, rows_first ? std::vector<int64_t>{1, 0, 2, 3} : front);
      return Transposed(Node(Op::kScatterND, {Transposed(past, front), places, now}), {1, 2, 0, 3});
    }
    return Node(Op::kCacheAppend, {past, y, before, total});
  }
  ValueId cos, sin, positions, before, total, places;

 private:
  ValueId scale_ = {}, zero_ = {};  // of codes
  Form f_;
  std::mt19937 gen_{7};
};

const ir::Dim kBatch = ir::Dim::Symbol("b"), kRows = ir::Dim::Symbol("s"), kPast = ir::Dim::Symbol("p");
constexpr int64_t kPositions = 300;
constexpr int64_t kFixed = 140;  // rows of a cache that does not grow

bool IsOp(const Form& f) { return f.rotary == Rotary::kOp || f.rotary == Rotary::kOpOfRows; }

ir::SymShape TableOf(const Form& f, int64_t rotated) {
  const ir::Dim batch = f.table_widens ? ir::Dim::Symbol("t") : f.batch_of_table ? kBatch : ir::Dim(1);
  if (IsOp(f)) return f.positions ? ir::SymShape{kPositions, rotated / 2} : ir::SymShape{batch, kRows, rotated / 2};
  return f.rows_first ? ir::SymShape{batch, kRows, 1, rotated} : ir::SymShape{batch, 1, kRows, rotated};
}

void Attend(Maker& m, const Form& f) {
  Graph& g = m.g;
  const ValueId x = g.AddInput("x", {f.codes ? DType::kU8 : DType::kF32, ir::SymShape{kBatch, kRows, kDepth}});
  m.cos = g.AddInput("cos", {DType::kF32, TableOf(f, m.rotated())});
  m.sin = g.AddInput("sin", {DType::kF32, TableOf(f, m.rotated())});
  m.positions = g.AddInput("positions", {DType::kS64, ir::SymShape{kBatch, kRows}});
  m.before = g.AddInput("before", {DType::kS64, ir::SymShape{kBatch}});
  m.total = g.AddInput("total", {DType::kS64, ir::SymShape{}});
  m.places = g.AddInput("places", {DType::kS64, ir::SymShape{kRows, 1}});
  std::vector<ValueId> qkv;
  if (f.packed) {
    const int64_t n = f.heads * f.size;
    const ir::NodeId split = g.AddNode(Op::kSplit, {m.Product(x, 3 * n), g.AddConstant(Tensor::S64({3}, {n, n, n}))}, 3,
                                       {{"axis", int64_t{-1}}});
    qkv = g.node(split).outputs;
  } else {
    for (int i = 0; i < 3; ++i) qkv.push_back(m.Product(x, f.heads * f.size));
  }
  if (f.table_later)
    m.cos =
        m.Node(Op::kCos, {f.table_of_product
                              ? m.Node(Op::kAdd, {m.cos, m.Node(Op::kReduceMax, {qkv[0]}, {{"keepdims", int64_t{0}}})})
                              : m.cos});
  for (size_t i = 0; i < 3; ++i) {
    if (i == 0 && f.packed) {
      g.AddOutput("q", qkv[i]);
      continue;
    }
    const bool rows_first = f.merged && i == 2;
    ValueId y = rows_first ? m.Rows(qkv[i]) : m.Heads(qkv[i], f.rotary != Rotary::kNone && i < 2);
    const std::string name = std::string(1, "qkv"[i]);
    const bool appends = f.append != Cache::kNone && i > 0;
    if (appends)
      y = m.Appended(g.AddInput("past." + name, {DType::kF32, ir::SymShape{kBatch, f.heads, kPast, f.size}}), y,
                     rows_first);
    g.AddOutput(appends ? "present." + name : name, y);
  }
}

ir::TensorMap InputsOf(Maker& m, const Form& f, int64_t rows, int64_t old) {
  ir::TensorMap inputs = {{"x", m.Random(f.codes ? DType::kU8 : DType::kF32, {2, rows, kDepth})}};
  ir::Shape table;
  for (const ir::Dim& d : TableOf(f, m.rotated()))
    table.push_back(d.is_number() ? d.number() : ProvablyEqual(d, kRows) ? rows : 2);
  for (const char* name : {"cos", "sin"}) inputs[name] = m.Random(DType::kF32, table);
  Tensor at = Tensor::Zeros(DType::kS64, {2, rows});
  for (int64_t i = 0; i < 2 * rows; ++i)
    at.mutable_as<int64_t>()[static_cast<size_t>(i)] = i % 7 == 6 && !IsOp(f) ? -1 - i : i % kPositions;
  inputs["positions"] = at;
  inputs["before"] = Tensor::S64({2}, {old, old});
  inputs["total"] = Tensor::ScalarS64(old + rows);
  Tensor places = Tensor::Zeros(DType::kS64, {rows, 1});  // from the end, too, and one twice
  for (int64_t i = 0; i < rows; ++i)
    places.mutable_as<int64_t>()[static_cast<size_t>(i)] = i == 4 ? old + 2 : i % 7 == 3 ? old + i - kFixed : old + i;
  inputs["places"] = places;
  return inputs;
}

// Steps; the outputs are those of the graph whose products are outputs, too, by hand and in a state.
size_t Steps(const Form& f) {
  Maker m(f);
  Attend(m, f);
  Graph apart = m.g;
  for (size_t i = 0; i < m.products.size(); ++i) apart.AddOutput("p" + std::to_string(i), m.products[i]);
  auto truth = Model::Compile(std::move(apart), {.threads = 1});
  EXPECT_TRUE(truth) << truth.error().message;
  size_t steps = 0;
  for (const int threads : {1, 2, 5}) {
    auto model = Model::Compile(m.g, {.threads = threads});
    EXPECT_TRUE(model) << model.error().message;
    steps = model->KernelOfEachStep().size();
    const bool grows = f.append == Cache::kConcat || f.append == Cache::kAppend;
    CacheState state;
    ir::TensorMap caches;
    int64_t old = 0;
    for (const char* name : {"past.k", "past.v"}) {
      if (f.append != Cache::kNone) caches[name] = m.Random(DType::kF32, {2, f.heads, grows ? 0 : kFixed, f.size});
    }
    for (const int64_t rows : {5, 1, 1, 130, 1}) {
      ir::TensorMap inputs = InputsOf(m, f, rows, old);
      const auto kept = grows ? model->Run(inputs, state) : ir::Result<std::vector<Tensor>>(std::vector<Tensor>(3));
      inputs.insert(caches.begin(), caches.end());
      const auto want = truth->Run(inputs), got = model->Run(inputs);
      EXPECT_TRUE(want && got && kept) << (got ? "" : got.error().message) << (want ? "" : want.error().message);
      if (!want || !got || !kept) return 0;
      for (size_t i = 0; i < got->size(); ++i) {
        EXPECT_TRUE((*got)[i].SameBits((*want)[i]))
            << "output " << i << ", " << rows << " rows, " << threads << " threads";
        EXPECT_TRUE(!(*kept)[i].defined() || (*kept)[i].SameBits((*want)[i])) << "in a state, output " << i;
      }
      if (f.append != Cache::kNone) caches["past.k"] = (*want)[1], caches["past.v"] = (*want)[2];
      if (grows) {
        EXPECT_TRUE(state.Tensors()[0].SameBits((*want)[1]) && state.Tensors()[1].SameBits((*want)[2])) << rows;
      }
      old += rows;
    }
  }
  return steps;
}

TEST(HeadsTail, NormRotaryAndAppendAreOneStepWithTheProducts) {
  for (const int64_t size : {64, 128, 96, 80, 32}) {
    EXPECT_EQ(Steps({.size = size}), 1u) << size;
    EXPECT_EQ(Steps({.heads = 3, .size = size, .norm = true}), 1u) << size;
  }
  EXPECT_EQ(Steps({.norm = true, .rotary = Rotary::kNone, .append = Cache::kNone}), 1u);
  EXPECT_EQ(Steps({.rotary = Rotary::kNone}), 1u);
  EXPECT_EQ(Steps({.append = Cache::kNone, .batch_of_table = false}), 1u);
}

TEST(HeadsTail, RotaryEmbeddingsOfAllForms) {
  for (const Rotary rotary : {Rotary::kHalf, Rotary::kPairs}) {
    EXPECT_EQ(Steps({.rotary = rotary, .rotated = 32}), 1u);
    EXPECT_EQ(Steps({.rotary = rotary, .rows_first = true}), 1u);
    EXPECT_EQ(Steps({.size = 80, .rotary = rotary, .rotated = 20, .rows_first = true, .batch_of_table = false}), 1u);
  }
  for (const bool interleaved : {false, true}) {
    for (const bool positions : {false, true}) {
      const Form form = {.rotary = Rotary::kOp, .interleaved = interleaved, .positions = positions};
      EXPECT_EQ(Steps(form), 1u) << interleaved << positions;
    }
    EXPECT_EQ(
        Steps({.size = 32, .rotary = Rotary::kOp, .rotated = 8, .interleaved = interleaved, .append = Cache::kNone}),
        1u);
    EXPECT_EQ(Steps({.rotary = Rotary::kOpOfRows, .interleaved = interleaved}), 1u);
  }
  EXPECT_EQ(Steps({.size = 80, .rotary = Rotary::kOp, .positions = false, .packed = true, .batch_of_table = false}),
            1u);
}

TEST(HeadsTail, CachesThatAreWrittenByOps) {
  EXPECT_EQ(Steps({.append = Cache::kAppend}), 1u);
  EXPECT_EQ(Steps({.rotary = Rotary::kOp, .append = Cache::kAppend, .codes = true}), 1u);
  EXPECT_EQ(Steps({.size = 80, .append = Cache::kScatter}), 1u);
  EXPECT_EQ(Steps({.append = Cache::kScatter, .packed = true}), 1u);
  EXPECT_EQ(Steps({.append = Cache::kScatterNd}), 1u);
  EXPECT_EQ(Steps({.size = 32, .norm = true, .append = Cache::kScatterNd, .merged = true}), 1u);
  EXPECT_EQ(Steps({.size = 80, .append = Cache::kScatterNd, .packed = true}), 1u);
  EXPECT_EQ(Steps({.rotary = Rotary::kOp, .append = Cache::kScatterNd, .codes = true}), 1u);
}

// ScatterND writes where the cache lies if it was given away.
TEST(HeadsTail, RowsThatScatterNdWritesGoIntoACacheThatWasGivenAway) {
  const Form f = {.append = Cache::kScatterNd};
  Maker m(f);
  Attend(m, f);
  Graph apart = m.g;  // every product is read, so that none has a tail
  for (size_t i = 0; i < m.products.size(); ++i) apart.AddOutput("p" + std::to_string(i), m.products[i]);
  auto truth = Model::Compile(std::move(apart), {.threads = 1}), model = Model::Compile(m.g, {.threads = 2});
  ASSERT_TRUE(truth && model);
  ir::TensorMap inputs = InputsOf(m, f, 5, 10);
  for (const char* name : {"past.k", "past.v"}) inputs[name] = m.Random(DType::kF32, {2, f.heads, kFixed, f.size});
  const auto want = truth->Run(inputs), kept = model->Run(inputs);
  const std::byte* memory = inputs["past.k"].data();
  const auto taken = model->Run(std::move(inputs));
  ASSERT_TRUE(want && kept && taken);
  for (size_t i = 0; i < 3; ++i) EXPECT_TRUE((*taken)[i].SameBits((*want)[i]) && (*kept)[i].SameBits((*want)[i])) << i;
  EXPECT_EQ((*taken)[1].data(), memory);
}

TEST(HeadsTail, PartsOfAPackedProductToo) {
  EXPECT_EQ(Steps({.packed = true}), 1u);
  EXPECT_EQ(Steps({.size = 80, .rotary = Rotary::kNone, .packed = true}), 1u);
}

TEST(HeadsTail, OfProductsOfCodesToo) {
  EXPECT_EQ(Steps({.codes = true}), 1u);
  EXPECT_EQ(Steps({.size = 80, .norm = true, .append = Cache::kNone, .codes = true}), 1u);
  EXPECT_EQ(Steps({.codes = true, .packed = true}), 1u);
}

TEST(HeadsTail, WhatIsWrittenLaterComesInFront) { EXPECT_EQ(Steps({.append = Cache::kNone, .table_later = true}), 2u); }

TEST(HeadsTail, WhatComesLaterStaysAStep) {
  EXPECT_GT(Steps({.append = Cache::kNone, .table_later = true, .table_of_product = true}), 2u);
  EXPECT_GT(Steps({.append = Cache::kNone, .table_widens = true}), 1u);
}

// Rows of each batch entry go to places of their own, out of the cache too; what is not written is 0, and a cache that was given away is
// written where it lies.
TEST(HeadsTail, EntriesHaveRowsOfTheirOwn) {
  const Form f = {.append = Cache::kAppend};
  Maker m(f);
  Attend(m, f);
  Graph apart = m.g;
  for (size_t i = 0; i < m.products.size(); ++i) apart.AddOutput("p" + std::to_string(i), m.products[i]);
  auto truth = Model::Compile(std::move(apart), {.threads = 1}), model = Model::Compile(m.g, {.threads = 2});
  ASSERT_TRUE(truth && model);
  ASSERT_EQ(model->KernelOfEachStep().size(), 1u);
  for (const auto& [first, second, total] :
       {std::tuple{0, 7, 12}, {3, 9, 9}, {-2, 4, 6}, {-9, 99, 20}, {9, 9, 3}, {1, 1, 0}, {5, 2, 9}}) {
    ir::TensorMap inputs = InputsOf(m, f, 3, 0);
    inputs["before"] = Tensor::S64({2}, {first, second});
    inputs["total"] = Tensor::ScalarS64(total);
    for (const char* name : {"past.k", "past.v"}) inputs[name] = m.Random(DType::kF32, {2, f.heads, 9, f.size});
    const auto want = truth->Run(inputs), got = model->Run(inputs);
    ASSERT_TRUE(want && got) << (got ? "" : got.error().message);
    for (size_t i = 0; i < 3; ++i)
      EXPECT_TRUE((*got)[i].SameBits((*want)[i])) << first << " " << second << " " << total;
    const std::byte* memory = inputs["past.k"].data();
    const auto taken = model->Run(std::move(inputs));
    ASSERT_TRUE(taken.has_value());
    for (size_t i = 0; i < 3; ++i) EXPECT_TRUE((*taken)[i].SameBits((*want)[i])) << "in place";
    EXPECT_EQ((*taken)[1].data() == memory, total == 9);
  }
}

TEST(HeadsTail, SaysWhatTheOpsSay) {
  const auto sentence = [](const Form& f, const std::function<void(ir::TensorMap&)>& change) {
    Maker m(f);
    Attend(m, f);
    auto model = Model::Compile(m.g, {.threads = 1});
    ir::TensorMap inputs = InputsOf(m, f, 3, 0);
    for (const char* name : {"past.k", "past.v"}) inputs[name] = m.Random(DType::kF32, {2, f.heads, 9, f.size});
    change(inputs);
    const auto result = model->Run(inputs);
    return result ? std::string() : result.error().message;
  };
  const auto has = [](const std::string& all, const char* part) {
    return all.find(part) != std::string::npos ? part : all;
  };
  const char* index = "position 300 is outside of caches of 300 rows";
  EXPECT_EQ(has(sentence({.rotary = Rotary::kOp},
                         [](auto& in) { in["positions"] = Tensor::S64({2, 3}, {0, 1, 2, 3, 4, 300}); }),
                index),
            index);
  const char* write = "write position 10 is outside axis of size 9";
  EXPECT_EQ(
      has(sentence({.append = Cache::kScatter}, [](auto& in) { in["before"] = Tensor::S64({2}, {0, 10}); }), write),
      write);
  const char* place = "index 9 is outside axis 0 of size 9";
  EXPECT_EQ(
      has(sentence({.append = Cache::kScatterNd}, [](auto& in) { in["places"] = Tensor::S64({3, 1}, {0, 9, 1}); }),
          place),
      place);
  const char* rows = "a cache of -1 rows cannot be; its input rows must not be negative";
  EXPECT_EQ(has(sentence({.append = Cache::kAppend}, [](auto& in) { in["total"] = Tensor::ScalarS64(-1); }), rows),
            rows);
  const char* tables = "the caches must be [2 or 1,3,32]";
  EXPECT_EQ(has(sentence({.rotary = Rotary::kOp, .positions = false, .table_widens = true},
                         [](auto& in) {
                           for (const char* name : {"cos", "sin"}) in[name] = Tensor::Zeros(DType::kF32, {3, 3, 32});
                         }),
                tables),
            tables);
}

}  // namespace
}  // namespace octavo::runtime
