// Windows of convolutions: what is one step has the interpreter's bits for every number of threads, and what only looks like windows is none.
#include "octavo/ir/unfold.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
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

struct Case {
  DType dtype = DType::kU8;
  Shape x = {2, 6, 7, 5};
  Ints kernel = {3, 3}, strides = {1, 1}, dilations = {1, 1}, pads = {1, 1, 1, 1};
  int padding = 7;  // less than 0: not said
};

Tensor Random(DType dtype, Shape shape, std::mt19937& gen) {
  Tensor t = Tensor::Empty(dtype, std::move(shape));
  for (size_t i = 0; i < t.byte_size(); ++i) t.mutable_data()[i] = static_cast<std::byte>(gen() % 120);
  return t;
}

ValueId Whole(Graph& g, Ints v) {
  const auto n = static_cast<int64_t>(v.size());
  return g.AddConstant(Tensor::S64({n}, std::move(v)));
}
ValueId Make(Graph& g, Op op, std::vector<ValueId> in, ir::Attrs attrs = {}) {
  return g.node(g.AddNode(op, std::move(in), 1, std::move(attrs))).output();
}

// The Slices of all positions; the last one of `wrong` > 0 ends an element too late.
std::vector<ValueId> Slices(Graph& g, ValueId x, const Case& c, int wrong = 0) {
  const size_t dims = c.kernel.size();
  int64_t positions = 1;
  for (const int64_t k : c.kernel) positions *= k;
  std::vector<ValueId> parts;
  for (int64_t i = 0; i < positions; ++i) {
    Ints starts(dims), ends(dims), axes(dims);
    int64_t rest = i;
    for (size_t d = dims; d-- > 0; rest /= c.kernel[d]) {
      const int64_t at = rest % c.kernel[d];
      starts[d] = ir::SliceStart(at, c.dilations[d]), ends[d] = ir::SliceEnd(at, c.kernel[d], c.dilations[d]);
      axes[d] = static_cast<int64_t>(d) + 1;
    }
    if (wrong > 0 && i == 0) ends[0] += 1;
    parts.push_back(Make(g, Op::kSlice, {x, Whole(g, starts), Whole(g, ends), Whole(g, axes), Whole(g, c.strides)}));
  }
  return parts;
}

Graph Net(const Case& c) {
  Graph g;
  g.info.opsets[""] = 18;
  ir::SymShape shape(c.x.size());
  for (size_t d = 0; d < shape.size(); ++d) shape[d] = ir::Dim::Symbol("d" + std::to_string(d));
  ValueId x = g.AddInput("x", {c.dtype, shape});
  if (!c.pads.empty()) {
    Ints pads(2 * c.x.size(), 0);
    for (size_t d = 0; d < c.kernel.size(); ++d)
      pads[d + 1] = c.pads[d], pads[c.x.size() + d + 1] = c.pads[c.kernel.size() + d];
    std::vector<ValueId> in = {x, Whole(g, pads)};
    if (c.padding >= 0) {
      Tensor value = Tensor::Zeros(c.dtype, {});
      value.mutable_data()[0] = static_cast<std::byte>(c.padding);
      in.push_back(g.AddConstant(std::move(value)));
    }
    x = Make(g, Op::kPad, in);
  }
  g.AddOutput("y", Make(g, Op::kConcat, Slices(g, x, c), {{"axis", int64_t{-1}}}));
  EXPECT_TRUE(ir::Inference::Run(g));
  return g;
}

void TheSame(const Case& c, std::mt19937& gen) {
  const Graph g = Net(c);
  const ir::TensorMap x = {{"x", Random(c.dtype, c.x, gen)}};
  const auto want = ir::Interpret(g, x);
  ASSERT_TRUE(want) << want.error().message;
  for (const int threads : {1, 3}) {
    const auto model = Model::Compile(g, {.threads = threads});
    ASSERT_TRUE(model) << model.error().message;
    const auto got = model->Run(x);
    ASSERT_TRUE(got) << got.error().message;
    EXPECT_EQ(got->front().shape(), want->front().shape());
    EXPECT_TRUE(got->front().SameBits(want->front()));
    EXPECT_EQ(model->KernelOfEachStep(), std::vector<std::string>{"unfold"});
  }
}

TEST(Unfold, TheInterpretersBits) {
  std::mt19937 gen(20261128);
  TheSame({}, gen);
  TheSame({.dtype = DType::kF32}, gen);
  TheSame({.padding = -1}, gen);
  TheSame({.pads = {}}, gen);
  TheSame({.x = {1, 40, 33, 64}}, gen);
  TheSame({.x = {2, 9, 8, 5}, .strides = {2, 3}, .dilations = {2, 1}, .pads = {0, 2, 1, 0}}, gen);
  TheSame({.x = {2, 9, 8, 5}, .dilations = {1, 2}}, gen);
  TheSame({.dtype = DType::kF16, .x = {3, 11, 4}, .kernel = {4}, .strides = {2}, .dilations = {1}, .pads = {2, 3}},
          gen);
  TheSame({.x = {2, 4, 5, 6, 3},
           .kernel = {2, 1, 3},
           .strides = {1, 2, 1},
           .dilations = {1, 1, 2},
           .pads = {0, 0, 1, 1, 0, 2}},
          gen);
  TheSame({.x = {2, 1, 1, 5}, .pads = {2, 3, 2, 3}}, gen);  // windows of padding alone
  TheSame({.x = {0, 6, 7, 5}}, gen);                        // no image
  TheSame({.x = {2, 0, 7, 5}, .pads = {2, 1, 2, 1}}, gen);  // an image without lines
  TheSame({.x = {2, 2, 7, 5}, .pads = {}}, gen);            // less than a window
  TheSame({.x = {2, 6, 7, 0}}, gen);                        // no channels
}

TEST(Unfold, RandomWindows) {
  const auto seed = static_cast<uint32_t>(std::random_device{}());
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 gen(seed);
  for (int i = 0; i < 60; ++i) {
    Case c;
    const size_t dims = 1 + gen() % 3;
    c.dtype = gen() % 2 == 0 ? DType::kU8 : DType::kF32;
    c.x.assign(dims + 2, 1 + gen() % 3), c.kernel.resize(dims), c.strides.resize(dims), c.dilations.resize(dims);
    c.pads.assign(2 * dims, 0);
    for (size_t d = 0; d < dims; ++d) {
      c.x[d + 1] = 1 + gen() % 9, c.kernel[d] = 1 + gen() % 3;
      c.strides[d] = 1 + gen() % 3, c.dilations[d] = c.kernel[d] == 1 ? 1 : 1 + gen() % 3;
      c.pads[d] = gen() % 3, c.pads[dims + d] = gen() % 3;
    }
    c.kernel[gen() % dims] = 2 + gen() % 2;
    TheSame(c, gen);
  }
}

// A product whose windows nobody else reads makes them itself, several thousand at a time, with what is added to each: the interpreter's bits.
TEST(Unfold, ProductsMakeTheirWindows) {
  std::mt19937 gen(11);
  for (const bool per_token : {false, true}) {
    for (const Shape& shape : {Shape{2, 6, 7, 64}, Shape{1, 130, 120, 64}, Shape{0, 6, 7, 64}, Shape{2, 1, 1, 64}}) {
      Graph g;
      g.info.opsets[""] = 18;
      ir::SymShape any(4);
      for (size_t d = 0; d < 3; ++d) any[d] = ir::Dim::Symbol("d" + std::to_string(d));
      any[3] = 64;
      const ValueId x = g.AddInput("x", {per_token ? DType::kF32 : DType::kU8, any});
      const ValueId padded = Make(g, Op::kPad, {x, Whole(g, {0, 1, 1, 0, 0, 1, 1, 0})});
      const ValueId windows = Make(g, Op::kConcat, Slices(g, padded, {.strides = {1, 2}}), {{"axis", int64_t{3}}});
      std::vector<ValueId> in = {windows, g.AddConstant(Tensor::ScalarF32(0.5f)),
                                 g.AddConstant(Random(DType::kU8, {}, gen))};
      if (per_token) {
        const ir::NodeId codes = g.AddNode(Op::kQuantizeTokens, {windows}, 3, {});
        in = g.node(codes).outputs;
      }
      Tensor scale = Tensor::Empty(DType::kF32, {40}), bias = scale;
      for (size_t i = 0; i < 40; ++i) scale.mutable_as<float>()[i] = 0.01f * static_cast<float>(i + 1);
      in.push_back(g.AddConstant(Random(DType::kS8, {576, 40}, gen)));
      in.push_back(g.AddConstant(scale));
      const ValueId y =
          Make(g, Op::kQuantizedLinear, in, {{"per_token", int64_t{per_token}}, {"activation", std::string("none")}});
      ir::SymShape like(4);
      like[3] = 40;
      const ValueId more = g.AddInput("more", {DType::kF32, like});
      ASSERT_TRUE(ir::Inference::Run(g));
      ir::SymShape of_y = *g.value(y).type.shape;
      g.SetType(more, {DType::kF32, of_y});
      g.AddOutput("y", Make(g, Op::kRelu, {Make(g, Op::kAdd, {y, more})}));
      ASSERT_TRUE(ir::Inference::Run(g));
      Shape result = shape;
      result[2] = (shape[2] + 1) / 2, result[3] = 40;
      Tensor image = per_token ? Tensor::Empty(DType::kF32, shape) : Random(DType::kU8, shape, gen);
      Tensor beside = Tensor::Empty(DType::kF32, result);
      for (Tensor* t : {&image, &beside}) {
        if (t->dtype() != DType::kF32) continue;
        for (float& v : t->mutable_as<float>()) v = std::normal_distribution<float>()(gen);
      }
      const ir::TensorMap inputs = {{"x", image}, {"more", beside}};
      const auto want = ir::Interpret(g, inputs);
      ASSERT_TRUE(want) << want.error().message;
      for (const int threads : {1, 3}) {
        const auto model = Model::Compile(g, {.threads = threads});
        ASSERT_TRUE(model) << model.error().message;
        ASSERT_EQ(model->KernelOfEachStep().size(), 1u);
        EXPECT_TRUE(model->KernelOfEachStep()[0].starts_with("unfold+")) << model->KernelOfEachStep()[0];
        const auto got = model->Run(inputs);
        ASSERT_TRUE(got) << got.error().message;
        EXPECT_EQ(got->front().shape(), want->front().shape());
        EXPECT_TRUE(got->front().SameBits(want->front()));
      }
    }
  }
}

// What looks like windows and is none; the model runs as it is.
TEST(Unfold, OthersAreNone) {
  const auto none = [](const std::function<ValueId(Graph&, ValueId)>& build) {
    Graph g;
    g.info.opsets[""] = 18;
    const ValueId x = g.AddInput("x", {DType::kU8, ir::SymShape{2, 6, 7, 5}});
    const ValueId y = build(g, x);
    g.AddOutput("y", y);
    ASSERT_TRUE(ir::Inference::Run(g));
    EXPECT_FALSE(ir::UnfoldAt(g, y));
    const auto model = Model::Compile(g, {.threads = 1});
    ASSERT_TRUE(model);
    EXPECT_FALSE(std::ranges::contains(model->KernelOfEachStep(), "unfold"));
  };
  const auto joined = [](Graph& g, std::vector<ValueId> parts, int64_t axis = -1) {
    return Make(g, Op::kConcat, std::move(parts), {{"axis", axis}});
  };
  none([&](Graph& g, ValueId x) { return joined(g, Slices(g, x, {.kernel = {1, 3}}), 1); });
  none([&](Graph& g, ValueId x) {
    std::vector<ValueId> parts = Slices(g, x, {});
    std::swap(parts[1], parts[2]);
    return joined(g, parts);
  });
  none([&](Graph& g, ValueId x) {
    std::vector<ValueId> parts = Slices(g, x, {});
    parts.pop_back();
    return joined(g, parts);
  });
  none([&](Graph& g, ValueId x) {
    std::vector<ValueId> parts = Slices(g, x, {.kernel = {2, 2}});
    g.AddOutput("part", parts[1]);
    return joined(g, parts);
  });
  none([&](Graph& g, ValueId x) {
    const ValueId other = Make(g, Op::kNeg, {Make(g, Op::kCast, {x}, {{"to", static_cast<int64_t>(DType::kF32)}})});
    const ValueId one = Make(g, Op::kAbs, {other});
    std::vector<ValueId> parts = Slices(g, one, {.kernel = {1, 2}}), more = Slices(g, other, {.kernel = {1, 2}});
    return joined(g, {parts[0], more[1]});
  });
  Graph g;  // an end that is another one
  g.info.opsets[""] = 18;
  const ValueId x = g.AddInput("x", {DType::kU8, ir::SymShape{2, ir::Dim::Symbol("h"), 7, 5}});
  const Case two{.kernel = {2, 1}, .strides = {2, 1}};
  const ValueId y = joined(g, Slices(g, x, two, 1));
  EXPECT_FALSE(ir::UnfoldAt(g, y));
}

}  // namespace
}  // namespace octavo::runtime
