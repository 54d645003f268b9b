// Steps that move elements: the interpreter's bits for every number of threads, views where nothing need be copied, and memory of
// outputs that is used again only when nobody holds it.
#include <gtest/gtest.h>

#include <random>

#include "octavo/ir/interpret.h"
#include "octavo/runtime/model.h"
#include "octavo/runtime/pool.h"

namespace octavo::runtime {
namespace {

using ir::DType;
using ir::Graph;
using ir::Op;
using ir::Shape;
using ir::Tensor;
using ir::ValueId;

Tensor Random(DType dtype, Shape shape, std::mt19937& gen) {
  Tensor t = Tensor::Empty(dtype, std::move(shape));
  for (size_t i = 0; i < t.byte_size(); ++i) t.mutable_data()[i] = static_cast<std::byte>(gen() % 120);
  return t;
}

struct Case {
  Graph g;
  ir::TensorMap inputs;
};

// A chain of random movements; every value in between is an output too, or not.
Case RandomCase(std::mt19937& gen) {
  Case c;
  c.g.info.opsets[""] = 18;
  constexpr DType kTypes[] = {DType::kF32, DType::kU8, DType::kF16, DType::kS64, DType::kBool};
  const DType dtype = kTypes[gen() % 5];
  Shape shape;
  for (size_t i = 0, rank = 1 + gen() % 4; i < rank; ++i) shape.push_back(gen() % 5 == 0 ? 1 : 1 + gen() % 40);
  c.inputs["x"] = Random(dtype, shape, gen);
  ValueId x = c.g.AddInput("x", {dtype, ir::SymShape(shape.size())});
  const auto ints = [&](std::vector<int64_t> v) {
    const auto n = static_cast<int64_t>(v.size());
    return c.g.AddConstant(Tensor::S64({n}, std::move(v)));
  };
  for (size_t step = 0, steps = 1 + gen() % 4; step < steps; ++step) {
    const size_t a = gen() % shape.size();
    const auto axis = static_cast<int64_t>(a);
    const int64_t dim = shape[a];
    const std::string name = "n" + std::to_string(step);
    switch (gen() % 4) {
      case 0: {
        std::vector<int64_t> perm(shape.size());
        for (size_t i = 0; i < perm.size(); ++i) perm[i] = static_cast<int64_t>(i);
        std::shuffle(perm.begin(), perm.end(), gen);
        Shape next;
        for (const int64_t p : perm) next.push_back(shape[static_cast<size_t>(p)]);
        shape = next;
        x = c.g.node(c.g.AddNode(Op::kTranspose, {x}, 1, {{"perm", perm}}, name)).output();
        break;
      }
      case 1: {  // now and then nothing is left, or all, or backwards
        const int64_t pace =
            gen() % 3 == 0 ? -1 - static_cast<int64_t>(gen() % 2) : 1 + static_cast<int64_t>(gen() % 2);
        const int64_t from = pace < 0 ? -1 : static_cast<int64_t>(gen() % static_cast<uint64_t>(dim + 1));
        const int64_t to = pace < 0 ? -dim - 1 : gen() % 3 == 0 ? INT64_MAX : dim;
        const ValueId begin = ints({from}), end = ints({to}), axes = ints({axis}), paces = ints({pace});
        x = c.g.node(c.g.AddNode(Op::kSlice, {x, begin, end, axes, paces}, 1, {}, name)).output();
        shape[a] = pace < 0 ? (dim - 1) / -pace + 1 : dim <= from ? 0 : (dim - from - 1) / pace + 1;
        if (shape[a] == 0) step = steps;
        break;
      }
      case 2: {
        std::vector<ValueId> parts = {x};
        for (size_t i = 0, more = gen() % 3; i < more; ++i) {
          Shape other = shape;
          other[a] = static_cast<int64_t>(gen() % 30);
          const std::string input = "x" + std::to_string(step) + "_" + std::to_string(i);
          c.inputs[input] = Random(dtype, other, gen);
          parts.push_back(c.g.AddInput(input, {dtype, ir::SymShape(other.size())}));
          shape[a] += other[a];
        }
        std::shuffle(parts.begin(), parts.end(), gen);
        x = c.g.node(c.g.AddNode(Op::kConcat, std::move(parts), 1, {{"axis", axis}}, name)).output();
        break;
      }
      default: {
        const int64_t first = static_cast<int64_t>(gen() % static_cast<uint64_t>(dim + 1));
        const ir::NodeId n = c.g.AddNode(Op::kSplit, {x, ints({first, dim - first})}, 2, {{"axis", axis}}, name);
        const bool second = first == 0 || (first < dim && gen() % 2 == 0);
        shape[a] = second ? dim - first : first;
        x = c.g.node(n).outputs[second ? 1 : 0];
      }
    }
    if (step + 1 < steps && gen() % 3 == 0) c.g.AddOutput(name, x);
  }
  c.g.AddOutput("y", x);
  return c;
}

TEST(Movement, EqualsTheInterpreter) {
  int64_t large = 0;
  for (uint32_t seed = 0; seed < 600; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937 gen(seed);
    const Case c = RandomCase(gen);
    const auto want = ir::Interpret(c.g, c.inputs);
    ASSERT_TRUE(want) << want.error().message;
    for (const int threads : {1, 3}) {
      auto model = Model::Compile(c.g, {.threads = threads});
      ASSERT_TRUE(model) << model.error().message;
      for (int run = 0; run < 2; ++run) {  // the second one by its plan
        const auto got = model->Run(c.inputs);
        ASSERT_TRUE(got) << got.error().message;
        ASSERT_EQ(got->size(), want->size());
        for (size_t i = 0; i < want->size(); ++i) ASSERT_TRUE((*got)[i].SameBits((*want)[i])) << "output " << i;
      }
    }
    large += want->back().byte_size() > 65536;
  }
  EXPECT_GT(large, 20);  // some are cut into tasks
}

// Columns of codes in any order, some again, some from the end; floats, other axes and columns that are not there stay the interpreter's.
TEST(Movement, ColumnsEqualTheInterpreter) {
  std::mt19937 gen(17);
  const auto kernel = [&](DType dtype, Shape shape, std::vector<int64_t> index, int64_t axis) {
    Graph g;
    g.info.opsets[""] = 18;
    ir::SymShape open(shape.begin(), shape.end());
    open[0] = ir::Dim::Symbol("n");
    const auto n = static_cast<int64_t>(index.size());
    const ValueId x = g.AddInput("x", {dtype, open}), columns = g.AddConstant(Tensor::S64({n}, std::move(index)));
    g.AddOutput("y", g.node(g.AddNode(Op::kGather, {x, columns}, 1, {{"axis", axis}}, "n")).output());
    const ir::TensorMap inputs = {{"x", Random(dtype, shape, gen)}};
    const auto want = ir::Interpret(g, inputs);
    auto model = Model::Compile(g, {.threads = 2});
    EXPECT_TRUE(model) << model.error().message;
    const auto got = model->Run(inputs);
    EXPECT_EQ(want.has_value(), got.has_value());
    if (want && got) {
      EXPECT_TRUE((*got)[0].SameBits((*want)[0]));
    }
    return model->KernelOfEachStep()[0];
  };
  for (int trial = 0; trial < 60; ++trial) {
    const int64_t dim = 1 + static_cast<int64_t>(gen() % 40), rows = trial % 9 == 0 ? 3000 : static_cast<int64_t>(gen() % 9);
    std::vector<int64_t> index;
    for (int64_t i = 0; trial % 2 == 0 && i < dim; ++i) index.push_back(i);
    for (size_t i = 0, more = gen() % 50; i < more; ++i)
      index.push_back(static_cast<int64_t>(gen() % static_cast<uint64_t>(2 * dim)) - dim);
    const bool three = trial % 3 == 0;
    const Shape shape = three ? Shape{rows, 2, dim} : Shape{rows, dim};
    EXPECT_EQ(kernel(trial % 4 < 2 ? DType::kU8 : DType::kS8, shape, index, trial % 5 == 0 ? (three ? 2 : 1) : -1),
              "move columns");
  }
  EXPECT_EQ(kernel(DType::kF32, {3, 4}, {0, 2}, -1), "interpreter Gather");
  EXPECT_EQ(kernel(DType::kU8, {3, 4}, {0, 2}, 0), "interpreter Gather");
  EXPECT_EQ(kernel(DType::kU8, {3, 4}, {0, 4}, 1), "interpreter Gather");
  EXPECT_EQ(kernel(DType::kU8, {3, 4}, {-5}, 1), "interpreter Gather");
}

// Caches that grow, keep their length or are cut; entries of all lengths, below zero and beyond the past; in place where the run holds
// the past alone.
TEST(Movement, CacheAppendEqualsItsBody) {
  const uint32_t seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 gen(seed);
  for (int trial = 0; trial < 300; ++trial) {
    const auto any = [&](int64_t least, int64_t most) {
      return least + static_cast<int64_t>(gen() % static_cast<uint64_t>(most - least + 1));
    };
    const int64_t batch = any(1, 3), heads = any(1, 4), old = any(0, 9), fresh = any(0, 5), columns = any(1, 70);
    const int64_t rows = trial % 3 == 0 ? old : any(0, 16);
    const DType dtype = trial % 2 == 0 ? DType::kF32 : DType::kS8;
    Graph g;
    g.info.opsets[""] = 18;
    const ValueId past = g.AddInput("past", {dtype, ir::SymShape(4)}),
                  now = g.AddInput("now", {dtype, ir::SymShape(4)});
    const ValueId before = g.AddInput("before", {DType::kS64, ir::SymShape(1)});
    const ValueId count = g.AddInput("rows", {DType::kS64, ir::SymShape{}});
    g.AddOutput("y", g.node(g.AddNode(Op::kCacheAppend, {past, now, before, count}, 1, {}, "n")).output());
    std::vector<int64_t> at;
    for (int64_t b = 0; b < batch; ++b)
      at.push_back(gen() % 8 == 0 ? (gen() % 2 == 0 ? INT64_MIN : INT64_MAX) : any(-7, 12));
    ir::TensorMap inputs = {{"past", Random(dtype, {batch, heads, old, columns}, gen)},
                            {"now", Random(dtype, {batch, heads, fresh, columns}, gen)},
                            {"before", Tensor::S64({batch}, at)},
                            {"rows", Tensor::ScalarS64(rows)}};
    const auto want = ir::Interpret(g, inputs);
    ASSERT_TRUE(want) << want.error().message;
    auto model = Model::Compile(g, {.threads = 1 + trial % 2});
    ASSERT_TRUE(model) << model.error().message;
    ASSERT_EQ(model->KernelOfEachStep(), std::vector<std::string>{"cache_append"});
    const auto kept = model->Run(inputs);
    ASSERT_TRUE(kept) << kept.error().message;
    EXPECT_TRUE(kept->at(0).SameBits(want->at(0))) << "trial " << trial;
    const std::byte* memory = inputs["past"].data();
    const auto own = model->Run(std::move(inputs));
    ASSERT_TRUE(own) << own.error().message;
    EXPECT_TRUE(own->at(0).SameBits(want->at(0))) << "trial " << trial << ", in place";
    if (rows == old && want->at(0).size() > 0) {
      EXPECT_EQ(own->at(0).data(), memory) << "trial " << trial;
    }
    if (HasFailure()) return;
    inputs = {{"past", Random(dtype, {1, 1, 2, 3}, gen)}, {"now", Random(dtype, {1, 1, 1, 3}, gen)}};
    inputs["before"] = Tensor::S64({1}, {2}), inputs["rows"] = Tensor::ScalarS64(-1);
    const auto refused = model->Run(inputs);
    ASSERT_FALSE(refused);
    EXPECT_NE(refused.error().message.find("a cache of -1 rows cannot be"), std::string::npos)
        << refused.error().message;
  }
}

// All forms, and positions that the step leaves to the interpreter: from the end, and none that there are.
TEST(Movement, RotaryEqualsTheInterpreter) {
  const uint32_t seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 gen(seed);
  const auto any = [&](int64_t least, int64_t most) {
    return least + static_cast<int64_t>(gen() % static_cast<uint64_t>(most - least + 1));
  };
  const auto floats = [&](Shape shape) {
    Tensor t = Tensor::Empty(DType::kF32, std::move(shape));
    for (float& v : t.mutable_as<float>()) v = static_cast<float>(any(-999, 999)) / 313;
    return t;
  };
  for (int trial = 0; trial < 300; ++trial) {
    const int64_t batch = any(1, 3), heads = any(1, 5), rows = any(1, trial % 10 == 0 ? 300 : 9), half = any(1, 20);
    const int64_t dim = 2 * half + (gen() % 2 == 0 ? 0 : any(0, 9)), most = any(1, 40), how = trial % 20;
    const bool three = gen() % 2 == 0;
    const Shape shape = three ? Shape{batch, rows, heads * dim} : Shape{batch, heads, rows, dim};
    ir::TensorMap inputs = {{"x", floats(shape)}, {"cos", floats({most, half})}, {"sin", floats({most, half})}};
    Tensor at = Tensor::Empty(DType::kS64, {batch, rows});
    for (int64_t& v : at.mutable_as<int64_t>()) v = any(how == 1 ? -most : 0, how == 2 ? most : most - 1);
    inputs["at"] = at;
    Graph g;
    g.info.opsets[""] = 23;
    ir::SymShape open(shape.size());
    open.back() = ir::Dim(shape.back());
    std::vector<ValueId> in = {g.AddInput("x", {DType::kF32, open})};
    for (const char* name : {"cos", "sin"}) in.push_back(g.AddInput(name, {DType::kF32, ir::SymShape(2)}));
    in.push_back(g.AddInput("at", {DType::kS64, ir::SymShape(2)}));
    ir::Attrs attrs = {{"interleaved", any(0, 1)}, {"rotary_embedding_dim", 2 * half}};
    if (three) attrs.Set("num_heads", heads);
    g.AddOutput("y", g.node(g.AddNode(Op::kRotaryEmbedding, in, 1, attrs, "n")).output());
    auto model = Model::Compile(g, {.threads = 1 + trial % 2});
    ASSERT_TRUE(model) << model.error().message;
    ASSERT_EQ(model->KernelOfEachStep(), std::vector<std::string>{"rotary"});
    const auto want = ir::Interpret(g, inputs), got = model->Run(inputs);
    ASSERT_EQ(want.has_value(), got.has_value()) << "trial " << trial;
    if (want) {
      ASSERT_TRUE(got->at(0).SameBits(want->at(0))) << "trial " << trial;
    }
  }
}

TEST(Movement, PartsThatLieTogetherAreViews) {
  Graph g;
  g.info.opsets[""] = 18;
  const ValueId x = g.AddInput("x", {DType::kF32, ir::SymShape(3)});
  const ir::NodeId split =
      g.AddNode(Op::kSplit, {x, g.AddConstant(Tensor::S64({2}, {64, 32}))}, 2, {{"axis", int64_t{-1}}}, "split");
  g.AddOutput("y", g.node(g.AddNode(Op::kNeg, {g.node(split).outputs[1]}, 1, {}, "neg")).output());
  auto model = Model::Compile(g, {.threads = 1});
  ASSERT_TRUE(model) << model.error().message;
  std::mt19937 gen(1);
  for (const int64_t tokens : {1, 5}) {  // one token: its parts lie together
    const ir::TensorMap in = {{"x", Random(DType::kF32, {1, tokens, 96}, gen)}};
    ASSERT_TRUE(model->Run(in));
    const auto got = model->Run(in), want = ir::Interpret(g, in);
    ASSERT_TRUE(got && want);
    EXPECT_TRUE((*got)[0].SameBits((*want)[0]));
    EXPECT_EQ(model->arena_bytes() == 0, tokens == 1);
  }
}

// A transposed DequantizeLinear keeps its integers, so that the product behind it is exact: such moves are the interpreter's.
TEST(Movement, KeepsTheIntegersOfADequantizedTensor) {
  std::mt19937 gen(3);
  Graph g;
  g.info.opsets[""] = 18;
  const ValueId q = g.AddInput("q", {DType::kU8, ir::SymShape(2)}), scale = g.AddConstant(Tensor::ScalarF32(0.013f));
  const auto node = [&](Op op, std::vector<ValueId> in) {
    return g.node(g.AddNode(op, std::move(in), 1, {}, "n" + std::to_string(g.node_count()))).output();
  };
  const ValueId x = node(Op::kTranspose, {node(Op::kDequantizeLinear, {q, scale})});
  const ValueId w = node(Op::kDequantizeLinear, {g.AddInput("w", {DType::kU8, ir::SymShape(2)}), scale});
  g.AddOutput("y", node(Op::kMatMul, {x, w}));
  const ir::TensorMap in = {{"q", Random(DType::kU8, {700, 5}, gen)}, {"w", Random(DType::kU8, {700, 6}, gen)}};
  auto model = Model::Compile(g, {.threads = 1});
  ASSERT_TRUE(model) << model.error().message;
  const auto got = model->Run(in), want = ir::Interpret(g, in);
  ASSERT_TRUE(got && want);
  EXPECT_TRUE((*got)[0].SameBits((*want)[0]));
}

TEST(Pool, GivesMemoryAgainWhenNobodyHoldsIt) {
  const Pool pool;
  Tensor a = pool.Take(DType::kF32, {100, 1000});
  const Tensor b = pool.Take(DType::kF32, {100, 1000});
  const std::byte* first = a.data();
  EXPECT_NE(first, b.data());
  EXPECT_TRUE(a.sole());
  Tensor view = a.Reshaped({1000, 100});
  a = {};
  EXPECT_EQ(pool.idle_bytes(), 0u);  // the view still holds it
  EXPECT_NE(pool.Take(DType::kF32, {100, 1000}).data(), first);
  view = {};
  const Tensor c = pool.Take(DType::kF32, {100, 1000}), d = pool.Take(DType::kF32, {100, 1000});
  EXPECT_TRUE(c.data() == first || d.data() == first);
}

TEST(Pool, GrowingShapesFindTheBlockOfTheStepBefore) {
  const Pool pool;
  const std::byte* last = nullptr;
  int fresh = 0;
  for (int64_t tokens = 512; tokens < 768; ++tokens) {
    const Tensor cache = pool.Take(DType::kF32, {12, tokens, 64});
    fresh += cache.data() != last;
    last = cache.data();
  }
  EXPECT_LE(fresh, 10);  // of 256
}

TEST(Pool, KeepsNoMoreThanWasInUse) {
  const Pool pool;
  size_t most = 0;
  for (int64_t size = 20000; size < 400000; size += 12345) {
    const Tensor t = pool.Take(DType::kF32, {size});
    most = std::max(most, t.byte_size());
    EXPECT_LE(pool.idle_bytes(), most + most / 8);
  }
  EXPECT_GT(pool.idle_bytes(), 0u);
}

TEST(Pool, MayDieBeforeItsTensors) {
  Tensor t;
  {
    const Pool pool;
    t = pool.Take(DType::kU8, {1 << 20});
  }
  t.mutable_data()[(1 << 20) - 1] = std::byte{7};
}

TEST(Pool, OutputsOfARunOutliveTheNextOne) {
  Graph g;
  g.info.opsets[""] = 18;
  const ValueId x = g.AddInput("x", {DType::kF32, ir::SymShape(2)});
  g.AddOutput("y", g.node(g.AddNode(Op::kTranspose, {x}, 1, {}, "t")).output());
  auto model = Model::Compile(g, {.threads = 2});
  ASSERT_TRUE(model) << model.error().message;
  std::mt19937 gen(2);
  const Tensor a = Random(DType::kF32, {300, 200}, gen), b = Random(DType::kF32, {300, 200}, gen);
  auto first = model->Run({{"x", a}}), second = model->Run({{"x", b}});
  ASSERT_TRUE(first && second);
  const auto want = ir::Interpret(g, {{"x", a}});
  EXPECT_TRUE((*first)[0].SameBits((*want)[0]));
  const std::byte* place = (*second)[0].data();
  second->clear();
  EXPECT_EQ((*model->Run({{"x", b}}))[0].data(), place);
  EXPECT_TRUE((*first)[0].SameBits((*want)[0]));
}

}  // namespace
}  // namespace octavo::runtime
