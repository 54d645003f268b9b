// conv_linears: convolutions are Linears over their windows with the same sums, codes stand before the windows, and what the pass leaves alone.
#include <gtest/gtest.h>

#include "octavo/ir/unfold.h"
#include "octavo/passes/canonical/canonical.h"
#include "octavo/passes/pipelines.h"
#include "octavo/passes/quantize/quantize.h"
#include "octavo/tests/passes/rule_graphs.h"

namespace octavo::passes::quantize {
namespace {

using ir::Tensor;

constexpr int64_t kChannels = 64, kFilters = 72;

struct Options {
  size_t dims = 2;
  bool bias = true;
  int64_t kernel = 1, stride = 1, groups = 1, channels = kChannels, filters = kFilters, size = 3;
  bool weights = true;
  int64_t dilation = 1;
  std::vector<int64_t> pads = {};  // before and behind each axis
  const char* auto_pad = "NOTSET";
};

// Whole numbers, whose sums are exact in any order.
Tensor Wholes(ir::Shape shape) {
  Tensor t = Tensor::Zeros(ir::DType::kF32, std::move(shape));
  for (int64_t i = 0; i < t.size(); ++i)
    t.mutable_as<float>()[static_cast<size_t>(i)] = static_cast<float>(i * 7919 % 31 - 15);
  return t;
}

Tensor Image(const Options& o) {
  ir::Shape shape(o.dims + 2, o.size);
  shape[0] = 2, shape[1] = o.channels;
  return Wholes(shape);
}

Graphs Net(const Options& o) {
  Graphs m;
  ir::SymShape shape(o.dims + 2, ir::Dim(o.size));
  shape[0] = ir::Dim::Symbol("n"), shape[1] = o.channels;
  ir::Shape w(o.dims + 2, o.kernel);
  w[0] = o.filters, w[1] = o.channels / o.groups;
  const ValueId x = m.Input("x", shape);
  std::vector<ValueId> in = {x,
                             o.weights ? m.g.AddConstant(Wholes(w)) : m.Input("w", ir::SymShape(w.begin(), w.end()))};
  if (o.bias) in.push_back(m.Reals({o.filters}));
  ir::Attrs attrs{{"strides", std::vector<int64_t>(o.dims, o.stride)},
                  {"dilations", std::vector<int64_t>(o.dims, o.dilation)},
                  {"group", o.groups},
                  {"auto_pad", std::string(o.auto_pad)}};
  if (!o.pads.empty()) attrs.Set("pads", o.pads);
  m.g.AddOutput("y", m.Node(Op::kRelu, {m.Node(Op::kConv, in, std::move(attrs))}));
  EXPECT_TRUE(ir::Inference::Run(m.g));
  return m;
}

TEST(ConvLinears, TheSameBits) {
  for (const Options& o : {Options{}, Options{.bias = false}, Options{.dims = 1}, Options{.dims = 3, .bias = false},
                           Options{.channels = 65, .size = 5}}) {
    const Graphs m = Net(o);
    Graph after = m.g;
    PassRun run;
    const auto changed = ConvLinears(after, run);
    ASSERT_TRUE(changed && *changed);
    EXPECT_EQ(CountOf(after, Op::kConv), 0);
    EXPECT_EQ(CountOf(after, Op::kMatMul), 1);
    EXPECT_EQ(CountOf(after, Op::kAdd), o.bias);
    EXPECT_EQ(CountOf(after, Op::kTranspose), 2);
    EXPECT_EQ(CountOf(after, Op::kSlice), 0);
    Tensor x = Image(o);
    for (float& v : x.mutable_as<float>()) v = std::sin(v);  // sums of kernel 1 have their order
    const auto want = ir::Interpret(m.g, {{"x", x}}), got = ir::Interpret(after, {{"x", x}});
    ASSERT_TRUE(want && got);
    EXPECT_TRUE(got->front().SameBits(want->front()));
    const auto again = ConvLinears(after, run);
    EXPECT_TRUE(again && !*again);
  }
}

const std::vector<Options>& Kernels() {
  static const std::vector<Options> all = {
      {.kernel = 3, .size = 5, .pads = {1, 1, 1, 1}},
      {.kernel = 3, .size = 5},
      {.kernel = 3, .stride = 2, .size = 7, .pads = {1, 1, 1, 1}},
      {.kernel = 3, .stride = 2, .size = 6, .pads = {0, 0, 1, 1}},
      {.kernel = 3, .size = 7, .dilation = 2, .pads = {2, 0, 1, 3}},
      {.kernel = 2, .stride = 2, .size = 4},
      {.stride = 2, .size = 5},
      {.pads = {1, 0, 0, 2}},
      {.stride = 2, .size = 4, .auto_pad = "SAME_UPPER"},
      {.dims = 1, .kernel = 3, .size = 9, .pads = {1, 1}},
      {.dims = 1, .bias = false, .kernel = 5, .stride = 3, .size = 20, .auto_pad = "VALID"},
      {.dims = 3, .kernel = 2, .size = 3, .pads = {0, 1, 0, 1, 0, 0}},
  };
  return all;
}

TEST(ConvLinears, WindowsOfOtherKernels) {
  for (const Options& o : Kernels()) {
    SCOPED_TRACE(std::to_string(&o - Kernels().data()));
    const Graphs m = Net(o);
    Graph after = m.g;
    PassRun run;
    const auto changed = ConvLinears(after, run);
    ASSERT_TRUE(changed && *changed);
    EXPECT_EQ(CountOf(after, Op::kConv), 0);
    const ir::TensorMap x = {{"x", Image(o)}};
    const auto want = ir::Interpret(m.g, x), got = ir::Interpret(after, x);
    ASSERT_TRUE(want && got) << (got ? "" : got.error().message);
    EXPECT_TRUE(got->front().SameBits(want->front()));
    for (const NodeId id : after.NodesInOrder()) {
      if (after.node(id).op != Op::kMatMul || o.kernel == 1) continue;
      const std::optional<ir::Unfold> unfold = ir::UnfoldAt(after, after.node(id).input(0));
      ASSERT_TRUE(unfold);
      EXPECT_EQ(unfold->windows.kernel, std::vector<int64_t>(o.dims, o.kernel));
      EXPECT_EQ(unfold->windows.strides, std::vector<int64_t>(o.dims, o.stride));
      EXPECT_EQ(unfold->windows.dilations, std::vector<int64_t>(o.dims, o.dilation));
    }
  }
}

// Before they are quantized, windows are many times what they were made of.
TEST(ConvLinears, CodesStandBeforeWindows) {
  for (const Options& o : Kernels()) {
    if (o.kernel == 1) continue;  // one Slice, of which fewer elements are left
    SCOPED_TRACE(std::to_string(&o - Kernels().data()));
    Graphs m = Net(o);
    PassRun run;
    ASSERT_TRUE(ConvLinears(m.g, run));
    for (const NodeId id : m.g.NodesInOrder()) {
      if (m.g.node(id).op != Op::kMatMul) continue;
      const ValueId q = m.Coded(m.g.node(id).input(0), 0.25f, 77);
      const NodeId made[] = {m.g.value(m.g.node(m.g.value(q).producer).input(0)).producer, m.g.value(q).producer};
      m.g.SetInput(id, 0, q);
      for (const NodeId n : made) {
        for (const ValueId v : m.g.node(n).inputs) {
          if (m.g.ConstantOf(v) != nullptr) m.g.MoveBefore(m.g.value(v).producer, id);
        }
        m.g.MoveBefore(n, id);
      }
    }
    ASSERT_TRUE(ir::Inference::Run(m.g));
    Graph after = m.g;
    const auto changed = canonical::Qdq(after, run);
    ASSERT_TRUE(changed && *changed);
    for (const NodeId id : after.NodesInOrder()) {
      if (after.node(id).op != Op::kQuantizeLinear) continue;
      EXPECT_EQ(after.value(after.node(id).input(0)).name, "x");
    }
    const ir::TensorMap x = {{"x", Image(o)}};
    const auto want = ir::Interpret(m.g, x), got = ir::Interpret(after, x);
    ASSERT_TRUE(want && got) << (got ? "" : got.error().message);
    EXPECT_TRUE(got->front().SameBits(want->front()));
  }
}

TEST(ConvLinears, KeepTheirNames) {
  Graph g = Net({}).g;
  for (const NodeId id : g.NodesInOrder()) {
    if (g.node(id).op == Op::kConv) g.SetOrigin(id, {"stage1/expand"});
  }
  PassRun run;
  ASSERT_TRUE(ConvLinears(g, run));
  for (const NodeId id : g.NodesInOrder()) {
    if (g.node(id).op != Op::kMatMul) continue;
    EXPECT_TRUE(IsNamed({"stage1/*"}, g.node(id)));
  }
}

TEST(ConvLinears, LeavesOtherConvolutions) {
  for (const Options& o : {Options{.kernel = 3}, Options{.kernel = 6, .size = 9}, Options{.groups = 2, .channels = 128},
                           Options{.channels = 63}, Options{.filters = 63}, Options{.size = 1},
                           Options{.weights = false}, Options{.kernel = 3, .auto_pad = "SAME_UPPER"},
                           Options{.kernel = 3, .groups = 2, .channels = 128, .size = 9}}) {
    Graph g = Net(o).g;
    PassRun run;
    const auto changed = ConvLinears(g, run);
    ASSERT_TRUE(changed);
    EXPECT_FALSE(*changed);
  }
}

// A depthwise convolution, an op and one of `kernel`, or the other way round.
Graph Separable(bool depthwise_first, Op between, int64_t kernel, int64_t groups = kChannels) {
  Graphs m;
  ValueId v = m.Input("x", {2, kChannels, 9, 9});
  for (const bool depthwise : {depthwise_first, !depthwise_first}) {
    const ValueId w = m.g.AddConstant(Wholes(
        {kChannels, depthwise ? kChannels / groups : kChannels, depthwise ? 3 : kernel, depthwise ? 3 : kernel}));
    const ValueId y = m.Node(Op::kConv, {v, w}, {{"group", depthwise ? groups : int64_t{1}}});
    if (depthwise != depthwise_first) {
      m.g.AddOutput("y", m.Node(Op::kRelu, {y}));
    } else if (between == Op::kMul) {  // by a gate, as of SiLU
      v = m.Node(Op::kMul, {y, m.Node(Op::kSigmoid, {y})});
    } else {
      v = m.Node(between, {y});
    }
  }
  EXPECT_TRUE(ir::Inference::Run(m.g));
  return m.g;
}

TEST(ConvLinears, BesideDepthwiseOnesByOption) {
  const auto converted = [](const Graph& net, bool separable) {
    Graph g = net;
    PassRun run;
    const PassOptions options = {{"separable", separable}};
    run.options = &options;
    const auto changed = ConvLinears(g, run);
    return changed && *changed;
  };
  for (const bool depthwise_first : {false, true}) {
    for (const Op between : {Op::kHardSwish, Op::kMul, Op::kRelu}) {
      EXPECT_FALSE(converted(Separable(depthwise_first, between, 1), false));
      EXPECT_TRUE(converted(Separable(depthwise_first, between, 1), true));
    }
    // A softmax between is not element-wise, a larger kernel has more to gain, and groups of two channels are not depthwise.
    EXPECT_TRUE(converted(Separable(depthwise_first, Op::kSoftmax, 1), false));
    EXPECT_TRUE(converted(Separable(depthwise_first, Op::kRelu, 3), false));
    EXPECT_TRUE(converted(Separable(depthwise_first, Op::kRelu, 1, kChannels / 2), false));
  }
}

// Conv(DequantizeLinear(x), DequantizeLinear(w)), as quantizers write it. Scales are powers of two, so that floats are exact.
struct CodedOptions {
  bool each = true;            // a scale for each filter
  int64_t zero = 0, axis = 0;  // of weights
  bool x_zero = true, bias = true;
  ir::DType weights = ir::DType::kS8;
};
Graphs CodedNet(const CodedOptions& o) {
  Graphs m;
  const ValueId x = m.Input("x", {2, kChannels, 5, 6}, ir::DType::kU8);
  Tensor w = Tensor::Empty(o.weights, {kFilters, kChannels, 3, 3});
  for (int64_t i = 0; i < w.size(); ++i)
    w.mutable_as<uint8_t>()[static_cast<size_t>(i)] = static_cast<uint8_t>(i * 7919 % 61 - 30);
  Tensor zero = Tensor::Zeros(o.weights, o.each ? ir::Shape{kFilters} : ir::Shape{});
  zero.mutable_as<uint8_t>()[0] = static_cast<uint8_t>(o.zero);
  const ValueId scale = o.each ? m.Filled({kFilters}, 0.5f) : m.Real(0.5f);
  std::vector<ValueId> of_x = {x, m.Real(0.25f)};
  if (o.x_zero) of_x.push_back(m.Zero(ir::DType::kU8, 77));
  std::vector<ValueId> in = {
      m.Node(Op::kDequantizeLinear, of_x),
      m.Node(Op::kDequantizeLinear, {m.g.AddConstant(w), scale, m.g.AddConstant(zero)}, {{"axis", o.axis}})};
  if (o.bias) in.push_back(m.Filled({kFilters}, 3.5f));
  const ValueId y =
      m.Node(Op::kConv, in, {{"pads", std::vector<int64_t>{1, 0, 2, 1}}, {"strides", std::vector<int64_t>{2, 1}}});
  m.g.AddOutput("y", m.Quantize(y, 16.0f, 100));
  EXPECT_TRUE(ir::Inference::Run(m.g));
  return m;
}

TEST(ConvLinears, ThatArriveQuantized) {
  for (const CodedOptions& o :
       {CodedOptions{}, CodedOptions{.each = false}, CodedOptions{.x_zero = false}, CodedOptions{.bias = false}}) {
    const Graphs m = CodedNet(o);
    Graph after = m.g;
    PassRun run;
    ASSERT_TRUE(ConvLinears(after, run));
    ASSERT_TRUE(canonical::Canonicalize(after, run));
    ASSERT_TRUE(fusions::FuseQuantized(after, run));
    EXPECT_EQ(CountOf(after, Op::kQuantizedLinear), 1);
    EXPECT_EQ(CountOf(after, Op::kConv) + CountOf(after, Op::kMatMul) + CountOf(after, Op::kDequantizeLinear), 0);
    Tensor x = Tensor::Empty(ir::DType::kU8, {2, kChannels, 5, 6});
    for (int64_t i = 0; i < x.size(); ++i)
      x.mutable_as<uint8_t>()[static_cast<size_t>(i)] = static_cast<uint8_t>(i * 7919);
    const auto want = ir::Interpret(m.g, {{"x", x}}), got = ir::Interpret(after, {{"x", x}});
    ASSERT_TRUE(want && got) << (got ? "" : got.error().message);
    EXPECT_TRUE(got->front().SameBits(want->front()));
  }
  for (const CodedOptions& o :
       {CodedOptions{.zero = 1}, CodedOptions{.axis = 1}, CodedOptions{.weights = ir::DType::kU8}}) {
    Graph g = CodedNet(o).g;
    PassRun run;
    const auto changed = ConvLinears(g, run);
    EXPECT_TRUE(changed && !*changed);
  }
}

// Where its codes cost nothing: fp8 has no product that is faster than floats on most CPUs.
TEST(ConvLinears, RecipesOfInt8HaveIt) {
  for (const Recipe& recipe : Recipes()) {
    const std::string_view name = recipe.name;
    const bool wanted = name == "int8" || name == "dynamic" || name == "quantized";
    EXPECT_EQ(std::ranges::contains(recipe.passes, "conv_linears"), wanted) << recipe.name;
    EXPECT_EQ(PipelineOfRecipe(name)->options.contains("conv_linears"), name == "dynamic") << recipe.name;
  }
}

}  // namespace
}  // namespace octavo::passes::quantize
