// MaxPool and AveragePool of images, channels first and last: bands of rows have the bits of whole windows.
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <random>

#include "octavo/ir/interpret.h"
#include "octavo/runtime/model.h"

namespace octavo::runtime {
namespace {

using ir::DType;
using ir::Graph;
using ir::Op;
using ir::Tensor;
using ir::ValueId;
using Ints = std::vector<int64_t>;

Tensor Random(ir::Shape shape, std::mt19937& gen) {
  Tensor t = Tensor::Empty(DType::kF32, std::move(shape));
  for (float& v : t.mutable_as<float>()) v = std::normal_distribution<float>()(gen);
  return t;
}

// Windows of all kinds over images of one to three dims, channels first and last, some of them cut into bands.
TEST(Pools, WindowsHaveTheBitsOfTheInterpreter) {
  const uint64_t seed = std::random_device()();
  SCOPED_TRACE(seed);
  std::mt19937 gen(seed);
  const auto some = [&](int64_t least, int64_t most) { return std::uniform_int_distribution(least, most)(gen); };
  for (int i = 0; i < 120; ++i) {
    const size_t dims = static_cast<size_t>(some(1, 3));
    const bool last = i % 2 != 0;
    Ints sizes, kernel, strides, dilations, pads, first = {0, static_cast<int64_t>(dims) + 1}, back = {0};
    for (size_t d = 0; d < dims; ++d) {
      sizes.push_back(dims == 3 ? some(7, 12) : i % 5 == 0 ? some(150, 260) : some(9, 40));
      kernel.push_back(some(1, 4)), strides.push_back(some(1, 3)), dilations.push_back(some(1, 2));
      first.push_back(static_cast<int64_t>(d) + 1), back.push_back(static_cast<int64_t>(d) + 2);
    }
    back.push_back(1);
    for (size_t d = 0; d < 2 * dims; ++d) pads.push_back(some(0, kernel[d % dims] - 1));
    const Op op = some(0, 1) == 0 ? Op::kMaxPool : Op::kAveragePool;
    ir::Attrs attrs = {{"kernel_shape", kernel},
                       {"strides", strides},
                       {"dilations", dilations},
                       {"pads", pads},
                       {"ceil_mode", some(0, 1)}};
    if (op == Op::kAveragePool) attrs.Set("count_include_pad", some(0, 1));
    ir::Shape shape = {2, 3};
    shape.insert(last ? shape.end() - 1 : shape.end(), sizes.begin(), sizes.end());
    Graph g;
    g.info.opsets[""] = 20;
    const auto node = [&](Op of, ValueId in, ir::Attrs with) {
      return g.node(g.AddNode(of, {in}, 1, std::move(with))).output();
    };
    ValueId x = g.AddInput("x", {DType::kF32, ir::SymShape(shape.begin(), shape.end())});
    if (last) x = node(Op::kTranspose, x, {{"perm", first}});
    x = node(op, x, attrs);
    g.AddOutput("y", last ? node(Op::kTranspose, x, {{"perm", back}}) : x);
    const auto model = Model::Compile(g, {.threads = 2});
    ASSERT_TRUE(model) << model.error().message;
    EXPECT_TRUE(std::ranges::any_of(model->KernelOfEachStep(),
                                    [](const std::string& name) { return name.starts_with("pool "); }));
    Tensor image = Random(shape, gen);
    using Limits = std::numeric_limits<float>;
    for (const float value : {Limits::quiet_NaN(), -0.0f, 0.0f, -Limits::infinity()})
      image.mutable_as<float>()[static_cast<size_t>(some(0, image.size() - 1))] = value;
    const auto want = ir::Interpret(g, {{"x", image}}), got = model->Run({{"x", image}});
    ASSERT_TRUE(want && got);
    EXPECT_TRUE((*got)[0].SameBits((*want)[0])) << ir::InfoOf(op).name << " of dims " << dims << ", " << i;
  }
}

// A window's step beyond its image takes no memory.
TEST(Pools, StridesBeyondTheImage) {
  std::mt19937 gen(8);
  Graph g;
  g.info.opsets[""] = 18;
  const auto node = [&](Op op, ValueId in, ir::Attrs attrs) {
    return g.node(g.AddNode(op, {in}, 1, std::move(attrs))).output();
  };
  const ValueId x = g.AddInput("x", {DType::kF32, ir::SymShape{2, 9, 9, 16}});
  const ir::Attrs window = {{"kernel_shape", Ints{2, 2}}, {"strides", Ints{1 << 20, 1 << 20}}};
  g.AddOutput("y",
              node(Op::kTranspose, node(Op::kMaxPool, node(Op::kTranspose, x, {{"perm", Ints{0, 3, 1, 2}}}), window),
                   {{"perm", Ints{0, 2, 3, 1}}}));
  const auto model = Model::Compile(g, {.threads = 1});
  ASSERT_TRUE(model) << model.error().message;
  const ir::TensorMap in = {{"x", Random({2, 9, 9, 16}, gen)}};
  const auto want = ir::Interpret(g, in), got = model->Run(in);
  ASSERT_TRUE(want && got) << got.error().message;
  EXPECT_TRUE((*got)[0].SameBits((*want)[0]));
}

}  // namespace
}  // namespace octavo::runtime
