// Convolutions with channels last: random stacks of layers are near the interpreter, with the same bits for every number of threads, and nothing of
// them is interpreted; a convolution alone, and what has no constant weights, stay as they are.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numeric>
#include <random>

#include "octavo/ir/infer.h"
#include "octavo/ir/interpret.h"
#include "octavo/runtime/model.h"

namespace octavo::runtime {
namespace {

using ir::DType;
using ir::Graph;
using ir::Op;
using ir::Shape;
using ir::Tensor;
using ir::ValueId;
using Ints = std::vector<int64_t>;

Tensor Random(Shape shape, std::mt19937& gen, float mean = 0, float width = 1) {
  Tensor t = Tensor::Empty(DType::kF32, std::move(shape));
  for (float& v : t.mutable_as<float>()) v = mean + width * std::normal_distribution<float>()(gen);
  return t;
}

// Layers one behind the other on [N, C, d...].
struct Stack {
  Stack(std::mt19937& random, size_t spatial, int64_t in_channels) : gen(random), dims(spatial), channels(in_channels) {
    g.info.opsets[""] = 18;
    ir::SymShape shape(spatial + 2);
    for (size_t d = 0; d < shape.size(); ++d) shape[d] = ir::Dim::Symbol("d" + std::to_string(d));
    shape[1] = in_channels;
    x = g.AddInput("x", {DType::kF32, shape});
  }
  ValueId Node(Op op, std::vector<ValueId> in, ir::Attrs attrs = {}) {
    return g.node(g.AddNode(op, std::move(in), 1, std::move(attrs))).output();
  }
  ValueId Const(Shape shape, float mean = 0, float width = 1) {
    return g.AddConstant(Random(std::move(shape), gen, mean, width));
  }
  ValueId Whole(Ints v) { return g.AddConstant(Tensor::S64({static_cast<int64_t>(v.size())}, v)); }
  Shape PerChannel(int64_t n) const {
    Shape s(dims + 1, 1);
    return s[0] = n, s;
  }

  void Conv(int64_t filters, int64_t kernel, int64_t stride, int64_t groups, int64_t dilation = 1) {
    Shape w(dims + 2, kernel);
    w[0] = filters, w[1] = channels / groups;
    const float width =
        1 / std::sqrt(static_cast<float>(w[1]) * std::pow(static_cast<float>(kernel), static_cast<float>(dims)));
    std::vector<ValueId> in = {x, Const(w, 0, width)};
    if (gen() % 2 == 0) in.push_back(Const({filters}));
    x = Node(Op::kConv, in,
             {{"pads", Ints(2 * dims, kernel / 2 * dilation)},
              {"strides", Ints(dims, stride)},
              {"dilations", Ints(dims, dilation)},
              {"group", groups}});
    channels = filters;
  }
  void Up() {
    Shape w(dims + 2, 2);
    w[0] = channels, w[1] = 24;
    x = Node(Op::kConvTranspose, {x, Const(w, 0, 0.3f), Const({24})}, {{"strides", Ints(dims, 2)}});
    channels = 24;
  }
  void Gate() {
    const ValueId before = x;
    Ints axes(dims);
    std::iota(axes.begin(), axes.end(), 2);
    x = gen() % 2 == 0 ? Node(Op::kGlobalAveragePool, {x}) : Node(Op::kReduceMean, {x, Whole(axes)});
    Conv(channels, 1, 1, 1);
    x = Node(Op::kMul, {before, Node(Op::kSigmoid, {x})});
  }
  void Resize(const char* mode, float by) {
    std::vector<float> scales(dims + 2, by);
    scales[0] = scales[1] = 1;
    const ValueId s = g.AddConstant(Tensor::F32({static_cast<int64_t>(dims) + 2}, scales));
    x = Node(Op::kResize, {x, ValueId{}, s},
             {{"mode", std::string(mode)}, {"coordinate_transformation_mode", std::string("half_pixel")}});
  }
  void Pool(Op op) {
    x = Node(op, {x},
             {{"kernel_shape", Ints(dims, 3)},
              {"strides", Ints(dims, 2)},
              {"pads", Ints(2 * dims, 1)},
              {"ceil_mode", static_cast<int64_t>(gen() % 2)}});
  }
  Ints Perm(bool to_last) const {  // [N, C, ...] to [N, ..., C], or back
    Ints perm(dims + 2);
    std::iota(perm.begin(), perm.end(), to_last ? 1 : -1);
    perm[0] = 0, perm[to_last ? dims + 1 : 1] = to_last ? 1 : static_cast<int64_t>(dims) + 1;
    return perm;
  }
  void Turn(bool to_last) { x = Node(Op::kTranspose, {x}, {{"perm", Perm(to_last)}}); }
  void Linear(int64_t columns) {
    Turn(true);
    x = Node(Op::kAdd,
             {Node(Op::kMatMul, {x, Const({channels, columns}, 0, 1 / std::sqrt(static_cast<float>(channels)))}),
              Const({columns})});
    Turn(false), channels = columns;
  }
  void Windows(int64_t columns) {  // of two elements along the last axis
    Turn(true);
    const ValueId axis = Whole({static_cast<int64_t>(dims)}), one = Whole({1});
    const ValueId first = Node(Op::kSlice, {x, Whole({0}), Whole({-1}), axis, one}),
                  second = Node(Op::kSlice, {x, one, Whole({INT64_MAX}), axis, one});
    x = Node(Op::kConcat, {first, second}, {{"axis", static_cast<int64_t>(dims) + 1}});
    x = Node(Op::kMatMul, {x, Const({2 * channels, columns}, 0, 0.1f)});
    Turn(false), channels = columns;
  }
  void Random1() {
    switch (gen() % 12) {
      case 0:
        return Conv(8 * (1 + static_cast<int64_t>(gen() % 5)) + static_cast<int64_t>(gen() % 3), 1, 1, 1);
      case 1:
        return Conv(channels, 3, 1, channels);
      case 2:
        return Conv(17, 3, 2, 1);
      case 3:
        return Conv(channels, 3, 1, 1, 2);
      case 4:
        return Gate();
      case 5:
        return Pool(gen() % 2 == 0 ? Op::kMaxPool : Op::kAveragePool);
      case 6:
        return Resize(gen() % 2 == 0 ? "nearest" : "linear", gen() % 2 == 0 ? 2.0f : 1.5f);
      case 7:
        return Up();
      case 8:
        x = Node(Op::kRelu, {x});
        return;
      case 10:
        return Linear(20);
      case 9:
        x = Node(Op::kAdd, {Node(Op::kMul, {x, Const(PerChannel(channels), 1, 0.1f)}), Const(PerChannel(channels))});
        return;
      default: {
        const ValueId before = x;
        Conv(channels, 3, 1, 1);
        x = gen() % 2 == 0 ? Node(Op::kAdd, {x, before})
                           : Node(Op::kConcat, {before, x},
                                  {{"axis", gen() % 2 == 0 ? int64_t{1} : -static_cast<int64_t>(dims) - 1}});
        if (g.node(g.value(x).producer).op == Op::kConcat) channels *= 2;
      }
    }
  }
  void Tokens() {
    x = Node(Op::kReshape, {x, Whole({0, channels, -1})});
    x = Node(Op::kTranspose, {x}, {{"perm", gen() % 2 == 0 ? Ints{0, 2, 1} : Ints{2, 0, 1}}});
  }

  std::mt19937& gen;
  size_t dims;
  int64_t channels;
  Graph g;
  ValueId x;
};

int Count(const Model& model, std::string_view word) {
  int n = 0;
  for (const std::string& name : model.KernelOfEachStep()) n += name.find(word) != std::string::npos ? 1 : 0;
  return n;
}

void Check(const Graph& g, const Shape& shape, std::mt19937& gen, bool pooled = true) {
  const auto one = Model::Compile(g, {.threads = 1}), three = Model::Compile(g, {.threads = 3});
  ASSERT_TRUE(one && three) << one.error().message;
  for (const char* window :
       {"interpreter Conv", "interpreter Max", "interpreter Average", "interpreter Global", "interpreter Resize"})
    EXPECT_EQ(Count(*one, window), 0) << window;
  EXPECT_EQ(pooled ? Count(*one, "interpreter Reduce") : 0, 0);
  const ir::TensorMap x = {{"x", Random(shape, gen)}};
  const auto want = ir::Interpret(g, x);
  const auto a = one->Run(x), b = three->Run(x);
  ASSERT_TRUE(want && a && b) << (a ? want.error().message : a.error().message);
  ASSERT_EQ((*a)[0].shape(), (*want)[0].shape());
  EXPECT_TRUE((*a)[0].SameBits((*b)[0])) << "threads";
  double error = 0, signal = 0;
  for (int64_t i = 0; i < (*want)[0].size(); ++i) {
    const double w = (*want)[0].GetDouble(i);
    error += std::pow((*a)[0].GetDouble(i) - w, 2), signal += w * w;
  }
  EXPECT_LE(error, 1e-11 * signal);  // 110 dB: other orders of float sums, a dozen layers one behind the other
}

TEST(ChannelsLast, RandomStacks) {
  for (uint32_t seed = 0; seed < 60; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937 gen(seed);
    const size_t dims = seed % 8 == 6 ? 3 : seed % 4 == 3 ? 1 : 2;
    Stack s(gen, dims, 3);
    s.Conv(16, 3, 2, 1), s.Conv(24, 1, 1, 1);
    for (int i = 0; i < 6; ++i) s.Random1();
    if (dims > 1 && gen() % 2 == 0) s.Tokens();
    s.g.AddOutput("y", s.x);
    Shape shape(dims + 2, dims == 3 ? 9 : dims == 2 ? 26 : 300);
    shape[0] = 1 + static_cast<int64_t>(gen() % 3), shape[1] = 3;
    if (dims == 2 && seed % 3 == 0) shape[2] = 131;  // several parts of rows
    Check(s.g, shape, gen);
  }
}

TEST(ChannelsLast, OneTransposeInAndOneOut) {
  std::mt19937 gen(1);
  Stack s(gen, 2, 3);
  s.Conv(16, 3, 2, 1), s.x = s.Node(Op::kRelu, {s.x}), s.Gate(), s.Pool(Op::kMaxPool), s.Conv(16, 3, 1, 16), s.Up(),
                       s.Resize("nearest", 2);
  s.g.AddOutput("y", s.x);
  const auto model = Model::Compile(s.g, {.threads = 1});
  ASSERT_TRUE(model) << model.error().message;
  EXPECT_EQ(Count(*model, "move Transpose"), 2);
  EXPECT_EQ(Count(*model, "conv_f32+Relu onednn"), 1);
  EXPECT_EQ(Count(*model, "pool "), 2);
}

// The tokens of a vision transformer lie as the image does.
TEST(ChannelsLast, TokensNeedNoTranspose) {
  std::mt19937 gen(2);
  Stack s(gen, 2, 3);
  s.Conv(16, 3, 2, 1), s.Conv(24, 3, 2, 1);
  s.x = s.Node(Op::kReshape, {s.x, s.Whole({0, 24, -1})}),
  s.x = s.Node(Op::kTranspose, {s.x}, {{"perm", Ints{0, 2, 1}}});
  s.g.AddOutput("y", s.x);
  const auto model = Model::Compile(s.g, {.threads = 1});
  ASSERT_TRUE(model);
  EXPECT_EQ(Count(*model, "move Transpose"), 1);
  Check(s.g, {2, 3, 24, 20}, gen);
}

// Convolutions that are Linears over their windows, and none that is left.
TEST(ChannelsLast, WindowsOfALineNeedNoTranspose) {
  std::mt19937 gen(4);
  Stack s(gen, 1, 64);
  s.Windows(24), s.x = s.Node(Op::kRelu, {s.x}), s.Windows(16);
  s.g.AddOutput("y", s.x);
  ASSERT_TRUE(ir::Inference::Run(s.g));
  const auto model = Model::Compile(s.g, {.threads = 1});
  ASSERT_TRUE(model);
  EXPECT_EQ(Count(*model, "move Transpose"), 2);
  EXPECT_EQ(Count(*model, "unfold"), 2);
  Check(s.g, {2, 64, 30}, gen);
}

// Linears alone with sums and activations between them: [N, C, H, W] is an image. Where as many Transposes would come as go, it stays.
TEST(ChannelsLast, ImagesBetweenLinears) {
  for (const int others : {0, 1, 3}) {
    std::mt19937 gen(5);
    Stack s(gen, 2, 24);
    s.Linear(24), s.x = s.Node(Op::kRelu, {s.x});
    for (int i = 0; i < others; ++i)
      s.x = s.Node(Op::kAdd,
                   {s.x, s.g.AddInput("other" + std::to_string(i), {DType::kF32, ir::SymShape{2, 24, 12, 10}})});
    s.Linear(24), s.g.AddOutput("y", s.x);
    const auto model = Model::Compile(s.g, {.threads = 1});
    ASSERT_TRUE(model);
    EXPECT_EQ(Count(*model, "move Transpose"), others == 0 ? 2 : others == 1 ? 3 : 4);
    if (others == 0) Check(s.g, {2, 24, 12, 10}, gen);
  }
}

// Convolutions of kernel 1 that are Linears, and codes in front of them.
TEST(ChannelsLast, LinearsBetweenNeedNoTranspose) {
  std::mt19937 gen(8);
  Stack s(gen, 2, 3);
  s.Conv(16, 3, 2, 1), s.Linear(24), s.x = s.Node(Op::kRelu, {s.x}), s.Conv(24, 3, 1, 24);
  const ValueId scale = s.g.AddConstant(Tensor::ScalarF32(0.05f)),
                zero = s.g.AddConstant(Tensor::Zeros(DType::kS8, {}));
  s.x = s.Node(Op::kQuantizeLinear, {s.x, scale, zero}), s.Turn(true);
  s.g.AddOutput("codes", s.x);
  s.x = s.Node(Op::kDequantizeLinear, {s.x, scale, zero});
  s.Turn(false), s.x = s.Node(Op::kRelu, {s.x}), s.Conv(8, 3, 1, 1), s.Turn(true);
  s.g.AddOutput("y", s.x);
  const auto model = Model::Compile(s.g, {.threads = 2});
  ASSERT_TRUE(model) << model.error().message;
  EXPECT_EQ(Count(*model, "move Transpose"), 1);  // of x
  EXPECT_EQ(Count(*model, "+QuantizeLinear onednn"), 1);
  const ir::TensorMap x = {{"x", Random({2, 3, 30, 22}, gen)}};
  const auto want = ir::Interpret(s.g, x), got = model->Run(x);
  ASSERT_TRUE(want && got);
  int64_t other =
      0;  // a float next to a rounding point may get the next code, one of some 1e5 by sums in another order
  for (int64_t i = 0; i < (*want)[0].size(); ++i) {
    const double off = std::abs((*got)[0].GetDouble(i) - (*want)[0].GetDouble(i));
    EXPECT_LE(off, 1), other += off != 0;
  }
  EXPECT_LE(other, 2);
  for (int64_t i = 0; i < (*want)[1].size(); ++i)
    EXPECT_NEAR((*got)[1].GetDouble(i), (*want)[1].GetDouble(i), 1e-4 + 0.05 * static_cast<double>(other));
}

TEST(ChannelsLast, OneConvolutionBesideATransposeTurns) {
  std::mt19937 gen(9);
  Stack s(gen, 2, 3);
  s.Conv(16, 3, 2, 1), s.x = s.Node(Op::kRelu, {s.x}), s.Turn(true);
  s.g.AddOutput("y", s.x);
  const auto model = Model::Compile(s.g, {.threads = 1});
  ASSERT_TRUE(model);
  EXPECT_EQ(Count(*model, "move Transpose"), 1);
  EXPECT_EQ(Count(*model, "conv_f32+Relu onednn"), 1);
  Check(s.g, {2, 3, 24, 20}, gen);
}

// The norm of tokens behind is no image's, though its means are over the last axis; and what stands first does not read what is turned later.
TEST(ChannelsLast, TokensBehindAConvolutionStay) {
  std::mt19937 gen(10);
  Stack s(gen, 1, 16);
  s.Turn(true), s.x = s.Node(Op::kMatMul, {s.x, s.Const({16, 16}, 0, 0.25f)});
  const ValueId tokens = s.x;
  s.Turn(false), s.Conv(16, 3, 1, 2), s.x = s.Node(Op::kSin, {s.x}), s.Turn(true);
  s.x = s.Node(Op::kAdd, {s.Node(Op::kCast, {s.x}, {{"to", int64_t{1}}}), tokens});
  const ValueId mean = s.Node(Op::kReduceMean, {s.x, s.Whole({2})});
  s.x = s.Node(Op::kSub, {s.x, mean}), s.Turn(false), s.Turn(true);
  s.x = s.Node(Op::kMul, {s.x, s.Node(Op::kReduceMean, {s.Node(Op::kMul, {s.x, s.x}), s.Whole({2})})});
  s.g.AddOutput("y", s.x);
  Check(s.g, {2, 16, 27}, gen, /*pooled=*/false);
  const auto model = Model::Compile(s.g, {.threads = 1});
  ASSERT_TRUE(model);
  EXPECT_EQ(Count(*model, "pool "), 0);
}

TEST(ChannelsLast, OneConvolutionStaysAsItIs) {
  std::mt19937 gen(3);
  Stack s(gen, 2, 3);
  s.Conv(16, 3, 2, 1), s.x = s.Node(Op::kRelu, {s.x});
  s.g.AddOutput("y", s.x);
  const auto model = Model::Compile(s.g, {.threads = 1});
  ASSERT_TRUE(model);
  EXPECT_EQ(model->KernelOfEachStep()[0], "conv_f32 onednn");
  EXPECT_EQ(Count(*model, "Transpose"), 0);
}

TEST(ChannelsLast, PoolsHaveTheBitsOfTheInterpreter) {
  std::mt19937 gen(7);
  const ir::Attrs window = {{"kernel_shape", Ints{3, 2}}, {"strides", Ints{2, 1}}, {"pads", Ints{1, 0, 1, 1}}};
  ir::Attrs padded = window;
  padded.Set("count_include_pad", int64_t{1});
  const std::vector<std::pair<Op, ir::Attrs>> pools = {{Op::kMaxPool, window},
                                                       {Op::kAveragePool, window},
                                                       {Op::kAveragePool, padded},
                                                       {Op::kGlobalAveragePool, {}},
                                                       {Op::kReduceMean, {}}};
  for (const auto& [op, attrs] : pools) {
    SCOPED_TRACE(ir::InfoOf(op).name);
    Stack s(gen, 2, 5);  // [N, H, W, 5] between Transposes
    const ValueId first = s.Node(Op::kTranspose, {s.g.AddInput("image", {DType::kF32, ir::SymShape{2, 19, 23, 5}})},
                                 {{"perm", Ints{0, 3, 1, 2}}});
    std::vector<ValueId> in = {first};
    if (op == Op::kReduceMean) in.push_back(s.Whole({-1, -2}));
    s.g.AddOutput("y", s.Node(Op::kTranspose, {s.Node(op, in, attrs)}, {{"perm", Ints{0, 2, 3, 1}}}));
    const auto model = Model::Compile(s.g, {.threads = 2});
    ASSERT_TRUE(model) << model.error().message;
    EXPECT_EQ(Count(*model, "pool "), 1);
    Tensor image = Random({2, 19, 23, 5}, gen);
    image.mutable_as<float>()[7] = std::numeric_limits<float>::quiet_NaN();
    image.mutable_as<float>()[12] = -0.0f, image.mutable_as<float>()[17] = 0.0f;
    const ir::TensorMap x = {{"image", image}, {"x", Random({1, 5, 1, 1}, gen)}};
    const auto want = ir::Interpret(s.g, x), got = model->Run(x);
    ASSERT_TRUE(want && got);
    EXPECT_TRUE((*got)[0].SameBits((*want)[0]));
  }
}

// Between the same Transposes stand means that are none of pixels.
TEST(ChannelsLast, MeansOverOtherAxes) {
  std::mt19937 gen(6);
  for (const Ints& axes : {Ints{1}, Ints{2}, Ints{1, 2}, Ints{0, 1}, Ints{1, 2, 3}, Ints{2, 3}, Ints{-1, -2}}) {
    Graph g;
    g.info.opsets[""] = 18;
    const auto node = [&](Op op, std::vector<ValueId> in, ir::Attrs attrs) {
      return g.node(g.AddNode(op, std::move(in), 1, std::move(attrs))).output();
    };
    const ValueId x = g.AddInput("x", {DType::kF32, ir::SymShape{2, 5, 6, 7}});
    const ValueId named = g.AddConstant(Tensor::S64({static_cast<int64_t>(axes.size())}, axes));
    const ValueId mean = node(Op::kReduceMean, {node(Op::kTranspose, {x}, {{"perm", Ints{0, 3, 1, 2}}}), named}, {});
    g.AddOutput("y", node(Op::kTranspose, {mean}, {{"perm", Ints{0, 2, 3, 1}}}));
    const auto model = Model::Compile(g, {.threads = 1});
    ASSERT_TRUE(model) << model.error().message;
    const bool over_pixels = axes == Ints({2, 3}) || axes == Ints({-1, -2});
    EXPECT_EQ(Count(*model, "pool "), over_pixels ? 1 : 0);
    const ir::TensorMap in = {{"x", Random({2, 5, 6, 7}, gen)}};
    const auto want = ir::Interpret(g, in), got = model->Run(in);
    ASSERT_TRUE(want && got);
    ASSERT_EQ((*got)[0].shape(), (*want)[0].shape());
    for (int64_t e = 0; e < (*want)[0].size(); ++e) EXPECT_NEAR((*got)[0].GetDouble(e), (*want)[0].GetDouble(e), 1e-6);
  }
}

// Values that others read too: the graph's outputs and shapes are those of channels first.
TEST(ChannelsLast, OutputsInBetween) {
  std::mt19937 gen(4);
  Stack s(gen, 2, 3);
  s.Conv(16, 3, 2, 1);
  s.g.AddOutput("first", s.x);
  s.x = s.Node(Op::kHardSwish, {s.x});
  s.g.AddOutput("second", s.x);
  s.Conv(16, 1, 1, 1);
  s.g.AddOutput("third", s.x);
  const auto model = Model::Compile(s.g, {.threads = 2});
  ASSERT_TRUE(model) << model.error().message;
  const ir::TensorMap x = {{"x", Random({2, 3, 30, 22}, gen)}};
  const auto want = ir::Interpret(s.g, x), got = model->Run(x);
  ASSERT_TRUE(want && got) << got.error().message;
  for (size_t i = 0; i < 3; ++i) {
    ASSERT_EQ((*got)[i].shape(), (*want)[i].shape());
    for (int64_t e = 0; e < (*want)[i].size(); ++e) EXPECT_NEAR((*got)[i].GetDouble(e), (*want)[i].GetDouble(e), 1e-4);
  }
}

TEST(ChannelsLast, WhatDoesNotFitSaysSo) {
  std::mt19937 gen(5);
  Stack s(gen, 2, 3);
  s.Conv(16, 3, 2, 1), s.Conv(8, 3, 1, 1), s.Pool(Op::kMaxPool);
  s.g.AddOutput("y", s.x);
  const auto model = Model::Compile(s.g, {.threads = 1});
  ASSERT_TRUE(model);
  EXPECT_FALSE(model->Run({{"x", Random({1, 4, 20, 20}, gen)}}));
  EXPECT_FALSE(model->Run({{"x", Random({1, 3, 20}, gen)}}));
  EXPECT_TRUE(model->Run({{"x", Random({1, 3, 1, 1}, gen)}}));
}

// An image without rows has some once it is padded.
TEST(ChannelsLast, PaddingAloneIsTheInterpreters) {
  for (const bool alone : {false, true}) {
    std::mt19937 gen(7);
    Stack s(gen, 2, 3);
    s.x = s.Node(Op::kConv, {s.x, s.Const({8, 3, 1, 1}), s.Const({8})}, {{"pads", Ints{1, 0, 1, 0}}});
    if (!alone) s.channels = 8, s.Conv(4, 1, 1, 1);
    s.g.AddOutput("y", s.x);
    for (const Shape& shape : {Shape{2, 3, 0, 7}, Shape{0, 3, 4, 7}, Shape{0, 3, 0, 7}}) Check(s.g, shape, gen);
  }
}

// A target of 0 would copy the size that stands in its place, which is another with channels last.
TEST(ChannelsLast, ImagesWithoutPixelsBecomeTokens) {
  std::mt19937 gen(8);
  Stack s(gen, 2, 3);
  s.g.SetType(s.x, {DType::kF32, ir::SymShape{2, 3, 5, 1}});
  s.Conv(6, 1, 1, 1), s.Conv(4, 1, 1, 1);
  const ValueId scales = s.g.AddConstant(Tensor::F32({4}, std::vector<float>{1, 1, 1, 0.5f}));
  s.x = s.Node(Op::kResize, {s.x, {}, scales}, {{"coordinate_transformation_mode", "asymmetric"}});
  s.x = s.Node(Op::kReshape, {s.x, s.Whole({0, 4, -1})});
  s.g.AddOutput("y", s.Node(Op::kTranspose, {s.x}, {{"perm", Ints{0, 2, 1}}}));
  Check(s.g, {2, 3, 5, 1}, gen);
}

}  // namespace
}  // namespace octavo::runtime
