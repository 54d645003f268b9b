// A step may hand on what inference did not foresee: If, Loop and Scan take what their graphs give. Such a run ends with a sentence, or
// returns what Model::outputs promises; a kernel never sees a value of another dtype, rank or size than it was made for.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>

#include "families.h"
#include "octavo/runtime/model.h"

namespace octavo::runtime {
namespace {

using ir::DType;
using ir::Graph;
using ir::GraphRef;
using ir::Op;
using ir::Tensor;
using ir::ValueId;
using testing::Families;
using testing::Family;
using testing::Maker;
using testing::Sizes;

// x in some other form.
struct Deviation {
  const char* name;
  std::function<ValueId(Graph&, ValueId)> of;
};

ValueId Make(Graph& g, Op op, std::vector<ValueId> in, ir::Attrs attrs = {}) {
  return g.node(g.AddNode(op, std::move(in), 1, std::move(attrs))).output();
}
ValueId Ints(Graph& g, int64_t v) { return g.AddConstant(Tensor::S64({1}, {v})); }

std::vector<Deviation> Deviations() {
  const auto cast = [](DType to) {
    return [to](Graph& g, ValueId x) { return Make(g, Op::kCast, {x}, {{"to", static_cast<int64_t>(to)}}); };
  };
  const auto doubled = [](int64_t axis) {
    return [axis](Graph& g, ValueId x) { return Make(g, Op::kConcat, {x, x}, {{"axis", axis}}); };
  };
  return {
      {"as_s8", cast(DType::kS8)},
      {"as_f32", cast(DType::kF32)},
      {"as_f64", cast(DType::kF64)},
      {"as_bool", cast(DType::kBool)},
      {"higher", [](Graph& g, ValueId x) { return Make(g, Op::kUnsqueeze, {x, Ints(g, 0)}); }},
      {"lower", [](Graph& g, ValueId x) { return Make(g, Op::kReshape, {x, Ints(g, -1)}); }},
      {"wider", doubled(-1)},
      {"longer", doubled(0)},
      {"narrower", [](Graph& g, ValueId x) { return Make(g, Op::kSlice, {x, Ints(g, 0), Ints(g, -1), Ints(g, -1)}); }},
      {"empty", [](Graph& g, ValueId x) { return Make(g, Op::kSlice, {x, Ints(g, 0), Ints(g, 0), Ints(g, -1)}); }}};
}

GraphRef Branch(const Deviation* deviation) {
  Graph g;
  const ValueId x = g.AddInput("x", {});
  g.AddOutput("y", deviation != nullptr ? deviation->of(g, x) : Make(g, Op::kIdentity, {x}));
  return std::make_shared<const Graph>(std::move(g));
}

// y = x, and in the branch that runs its deviation.
ValueId ByIf(Graph& g, ValueId x, const Deviation& d) {
  const ValueId no = g.node(g.AddNode(Op::kNot, {g.inputs()[0]}, 1)).output();  // nothing that inference knows
  return Make(g, Op::kIf, {no, x},
              {{"then_branch", Branch(nullptr)}, {"else_branch", Branch(&d)}, {"octavo_captures", int64_t{1}}});
}

// x is carried through one iteration.
ValueId ByLoop(Graph& g, ValueId x, const Deviation& d) {
  Graph body;
  body.AddInput("i", {DType::kS64, ir::SymShape{}});
  const ValueId go = body.AddInput("go", {DType::kBool, ir::SymShape{}});
  const ValueId carried = body.AddInput("x", g.value(x).type);
  body.AddOutput("again", go);
  body.AddOutput("y", d.of(body, carried));
  return Make(g, Op::kLoop, {g.AddConstant(Tensor::ScalarS64(1)), ValueId{}, x},
              {{"body", GraphRef(std::make_shared<const Graph>(std::move(body)))}});
}

// x is the state of one step over a sequence.
ValueId ByScan(Graph& g, ValueId x, const Deviation& d) {
  Graph body;
  const ValueId state = body.AddInput("x", g.value(x).type);
  body.AddInput("slice", {DType::kF32, ir::SymShape{}});
  body.AddOutput("y", d.of(body, state));
  return Make(g, Op::kScan, {x, g.AddConstant(Tensor::F32({1}, {0.0f}))},
              {{"num_scan_inputs", int64_t{1}}, {"body", GraphRef(std::make_shared<const Graph>(std::move(body)))}});
}

struct Way {
  const char* name;
  ValueId (*by)(Graph&, ValueId, const Deviation&);
};
constexpr Way kWays[] = {{"if", ByIf}, {"loop", ByLoop}, {"scan", ByScan}};

bool Fits(const Tensor& t, const ir::Type& type) {
  if (type.dtype != DType::kUndefined && type.dtype != t.dtype()) return false;
  if (!type.shape) return true;
  if (type.shape->size() != t.shape().size()) return false;
  for (size_t i = 0; i < t.shape().size(); ++i) {
    const ir::Dim& d = (*type.shape)[i];
    if (d.is_number() && d.number() != t.shape()[i]) return false;
  }
  return true;
}

struct Counts {
  int not_compiled = 0, refused = 0, served = 0;
};

void Try(const Family& family, const std::function<ValueId(Graph&, ValueId)>& through, Counts& counts) {
  Maker maker(1);
  maker.graph.AddInput("condition", {DType::kBool, ir::SymShape{}});
  maker.family = family.name, maker.through = through;
  family.add(maker);
  std::mt19937 gen(2);
  ir::TensorMap inputs = maker.Inputs({.batch = 2, .rows = 40, .keys = 90}, gen);
  inputs["condition"] = Tensor::Of<uint8_t>(DType::kBool, {}, std::vector<uint8_t>{1});
  const auto model = Model::Compile(maker.graph, {.threads = 2});
  if (!model) return static_cast<void>(++counts.not_compiled);
  for (int run = 0; run < 2; ++run) {
    const auto got = model->Run(inputs);
    if (!got) {
      ++counts.refused;
      EXPECT_EQ(got.error().message.find("octavo is at fault"), std::string::npos) << got.error().message;
      continue;
    }
    ++counts.served;
    ASSERT_EQ(got->size(), model->outputs().size());
    for (size_t i = 0; i < got->size(); ++i) {
      EXPECT_TRUE(Fits((*got)[i], model->outputs()[i].type))
          << ToString(model->outputs()[i].type) << " was promised, " << quant::Name((*got)[i].dtype())
          << ir::ToString((*got)[i].shape()) << " came";
    }
  }
}

TEST(Deviations, EndInASentenceOrAsPromised) {
  Counts counts;
  for (const Family& family : Families()) {
    for (const Deviation& d : Deviations()) {
      for (const auto& [name, by] : kWays) {
        SCOPED_TRACE(family.name + " " + d.name + " " + name);
        Try(family, [&](Graph& g, ValueId x) { return by(g, x, d); }, counts);
      }
    }
  }
  std::printf("not compiled %d, refused %d, served %d\n", counts.not_compiled, counts.refused, counts.served);
  EXPECT_GT(counts.not_compiled + counts.refused, 200);
}

// Through the same control flow, but with the values that inference expects, everything runs.
TEST(Deviations, NoneIsNoError) {
  const Deviation none{"none", [](Graph& g, ValueId x) { return Make(g, Op::kIdentity, {x}); }};
  for (const Family& family : Families()) {
    for (const auto& [name, by] : kWays) {
      SCOPED_TRACE(family.name + " " + name);
      Counts counts;
      Try(family, [&](Graph& g, ValueId x) { return by(g, x, none); }, counts);
      EXPECT_EQ(counts.served, 2);
    }
  }
}

// A mask whose sizes have names of their own may be wider than the scores when the run comes: then the body says what the graph means.
TEST(Deviations, MasksThatWidenTheScoresMeanWhatTheBodySays) {
  Graph g;
  g.info.opsets[""] = 21;
  const auto input = [&](const char* name, const char* rows, ir::Dim last) {
    return g.AddInput(name, {DType::kF32, ir::SymShape{ir::Dim::Symbol("b"), ir::Dim(2), ir::Dim::Symbol(rows), last}});
  };
  std::vector<ValueId> in = {
      input("q", "s", ir::Dim(4)), input("k", "t", ir::Dim(4)), input("v", "t", ir::Dim(4)),
      g.AddInput("mask", {DType::kF32, ir::SymShape{ir::Dim::Symbol("m"), ir::Dim::Symbol("n")}})};
  const ir::Attrs attrs = {{"num_heads", int64_t{2}}, {"head_dim", int64_t{4}}, {"scale", 0.5f}};
  g.AddOutput("y", g.node(g.AddNode(Op::kSdpa, std::move(in), 1, attrs)).output());
  const auto model = Model::Compile(g, {.threads = 1}), plain = Model::Compile(g, {.threads = 1, .kernels = false});
  ASSERT_TRUE(model && plain);
  ASSERT_EQ(model->KernelOfEachStep()[0].find("sdpa_f32"), 0u);
  const auto wave = [](ir::Shape shape, float step) {
    Tensor t = Tensor::Zeros(DType::kF32, std::move(shape));
    float at = 0;
    for (float& x : t.mutable_as<float>()) x = std::sin(at += step);
    return t;
  };
  for (const auto& [rows, wanted] : {std::pair{int64_t{3}, int64_t{3}}, {int64_t{1}, int64_t{3}}}) {
    const ir::TensorMap inputs{{"q", wave({1, 2, rows, 4}, 0.7f)},
                               {"k", wave({1, 2, 5, 4}, 0.9f)},
                               {"v", wave({1, 2, 5, 4}, 1.1f)},
                               {"mask", wave({3, 5}, 1.3f)}};
    const auto got = model->Run(inputs), want = plain->Run(inputs);
    ASSERT_TRUE(got && want) << rows;
    ASSERT_EQ((*got)[0].shape(), (ir::Shape{1, 2, wanted, 4}));
    ASSERT_EQ((*want)[0].shape(), (*got)[0].shape());
    for (size_t i = 0; i < (*want)[0].as<float>().size(); ++i) {
      EXPECT_NEAR((*got)[0].as<float>()[i], (*want)[0].as<float>()[i], 1e-6);  // sums of 5 numbers below 1
    }
  }
  ir::TensorMap wrong{{"q", wave({1, 2, 2, 4}, 1)},
                      {"k", wave({1, 2, 5, 4}, 1)},
                      {"v", wave({1, 2, 5, 4}, 1)},
                      {"mask", wave({3, 5}, 1)}};
  EXPECT_FALSE(model->Run(wrong));
}

// So may batches that have names of their own; those that the graph tells are the same are an error where they differ.
TEST(Deviations, BatchesThatDifferMeanWhatTheBodySays) {
  const auto model_of = [](const char* of_keys) {
    Graph g;
    g.info.opsets[""] = 21;
    const auto input = [&](const char* name, const char* batch) {
      return g.AddInput(name, {DType::kF32, ir::SymShape{ir::Dim::Symbol(batch), ir::Dim(2), ir::Dim(3), ir::Dim(4)}});
    };
    std::vector<ValueId> in = {input("q", "b"), input("k", of_keys), input("v", of_keys)};
    const ir::Attrs attrs = {{"num_heads", int64_t{2}}, {"head_dim", int64_t{4}}, {"scale", 0.5f}};
    g.AddOutput("y", g.node(g.AddNode(Op::kSdpa, std::move(in), 1, attrs)).output());
    return g;
  };
  const auto inputs = [](int64_t q, int64_t k) {
    const auto wave = [](int64_t batch, float step) {
      Tensor t = Tensor::Zeros(DType::kF32, {batch, 2, 3, 4});
      float at = 0;
      for (float& x : t.mutable_as<float>()) x = std::sin(at += step);
      return t;
    };
    return ir::TensorMap{{"q", wave(q, 0.7f)}, {"k", wave(k, 0.9f)}, {"v", wave(k, 1.1f)}};
  };
  const auto model = Model::Compile(model_of("c"), {.threads = 1}),
             plain = Model::Compile(model_of("c"), {.threads = 1, .kernels = false}),
             same = Model::Compile(model_of("b"), {.threads = 1});
  ASSERT_TRUE(model && plain && same);
  EXPECT_EQ(model->KernelOfEachStep()[0].find("sdpa_f32"), 0u);
  for (const auto& [q, k] : {std::pair{int64_t{2}, int64_t{2}}, {1, 3}, {3, 1}}) {
    const auto got = model->Run(inputs(q, k)), want = plain->Run(inputs(q, k));
    ASSERT_TRUE(got && want) << q << ", " << k;
    ASSERT_EQ((*got)[0].shape(), (ir::Shape{std::max(q, k), 2, 3, 4}));
    for (size_t i = 0; i < (*want)[0].as<float>().size(); ++i) {
      EXPECT_NEAR((*got)[0].as<float>()[i], (*want)[0].as<float>()[i], 1e-6);  // sums of 4 numbers below 1
    }
    EXPECT_EQ(same->Run(inputs(q, k)).has_value(), q == k);
  }
  EXPECT_FALSE(model->Run(inputs(3, 2)));
}

}  // namespace
}  // namespace octavo::runtime
