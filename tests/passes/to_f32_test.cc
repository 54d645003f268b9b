// Models in 16 bits become f32 inside: types, masks, attributes, results; what cannot be widened stays as it is and says so.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

#include "octavo/ir/interpret.h"
#include "octavo/ir/verify.h"
#include "octavo/passes/quantize/quantize.h"

namespace octavo::passes::quantize {
namespace {

using ir::DType;
using ir::Tensor;
using ir::Type;

Tensor Half(ir::Shape shape, const std::vector<float>& values, DType t) {
  const auto wide = Tensor::F32(std::move(shape), values);
  Graph g;
  const ValueId c = g.AddConstant(wide);
  g.AddOutput("y", g.node(g.AddNode(Op::kCast, {c}, 1, {{"to", static_cast<int64_t>(t)}})).output());
  return ir::Interpret(g, {})->at(0);
}

struct Maker {
  Graph g;
  DType t;
  explicit Maker(DType type) : t(type) { g.info.opsets[""] = 21; }
  ValueId Node(Op op, std::vector<ValueId> in, ir::Attrs attrs = {}) {
    return g.node(g.AddNode(op, std::move(in), 1, std::move(attrs), "n" + std::to_string(g.node_count()))).output();
  }
  ValueId Weights(ir::Shape shape, uint32_t seed) {
    std::mt19937 rng(seed);
    std::normal_distribution<float> normal;
    std::vector<float> w(static_cast<size_t>(ir::ElementCount(shape)));
    for (float& v : w) v = normal(rng);
    return g.AddConstant(Half(std::move(shape), w, t));
  }
  ValueId Scalar(float v) { return g.AddConstant(Half({}, {v}, t)); }
};

bool AnyHalf(const Graph& g, bool inside) {
  for (const NodeId id : g.NodesInOrder()) {
    const Node& n = g.node(id);
    const bool border = n.op == Op::kCast && n.origin == std::vector<std::string>{"pass:to_f32"};
    if (inside && border) continue;
    for (const ValueId v : n.outputs) {
      const DType t = g.value(v).type.dtype;
      if (t == DType::kF16 || t == DType::kBF16) return true;
    }
  }
  return false;
}

class ToF32Of : public testing::TestWithParam<DType> {};
INSTANTIATE_TEST_SUITE_P(Types, ToF32Of, testing::Values(DType::kF16, DType::kBF16),
                         [](const auto& info) { return std::string(quant::Name(info.param)); });

// x -> MatMul -> Add -> Cast to f32 -> Softmax -> Cast back -> MatMul, with a mask that hides by the lowest number.
TEST_P(ToF32Of, KeepsTypesOutsideAndResults) {
  Maker m(GetParam());
  const ValueId x = m.g.AddInput("x", {m.t, ir::SymShape{ir::Dim::Symbol("b"), 8}});
  const ValueId keep = m.g.AddInput("keep", {DType::kBool, ir::SymShape{ir::Dim::Symbol("b"), 8}});
  const ValueId low = m.Scalar(m.t == DType::kF16 ? -65504.0f : -3e38f);
  const ValueId mask = m.Node(Op::kWhere, {keep, m.Scalar(0), low});
  const ValueId scores = m.Node(Op::kAdd, {m.Node(Op::kMatMul, {x, m.Weights({8, 8}, 1)}), mask});
  const ValueId wide = m.Node(Op::kCast, {scores}, {{"to", static_cast<int64_t>(DType::kF32)}});
  const ValueId soft = m.Node(Op::kSoftmax, {wide}, {{"axis", int64_t{-1}}});
  const ValueId back = m.Node(Op::kCast, {soft}, {{"to", static_cast<int64_t>(m.t)}});
  m.g.AddOutput("y", m.Node(Op::kMatMul, {back, m.Weights({8, 4}, 2)}));
  m.g.AddOutput("x_again", x);
  ASSERT_TRUE(ir::Inference::Run(m.g).has_value());
  Graph after = m.g;
  PassRun context;
  ASSERT_TRUE(ToF32(after, context).value());
  EXPECT_TRUE(ir::VerifyStatus(after).has_value()) << ir::VerifyStatus(after).error().message;
  EXPECT_TRUE(AnyHalf(after, false));
  EXPECT_FALSE(AnyHalf(after, true));
  EXPECT_FALSE(*ToF32(after, context)) << "twice is once";
  EXPECT_EQ(after.value(after.inputs()[0]).type.dtype, m.t);

  std::vector<float> values(3 * 8);
  std::mt19937 rng(3);
  std::normal_distribution<float> normal;
  for (float& v : values) v = normal(rng);
  Tensor bits = Tensor::Zeros(DType::kBool, {3, 8});
  for (size_t i = 0; i < 16; ++i) bits.mutable_as<uint8_t>()[i] = i % 3 != 0;  // the last row sees nothing
  const ir::TensorMap inputs{{"x", Half({3, 8}, values, m.t)}, {"keep", bits}};
  const auto want = ir::Interpret(m.g, inputs), got = ir::Interpret(after, inputs);
  ASSERT_TRUE(want && got);
  EXPECT_TRUE(got->at(1).SameBits(inputs.at("x")));
  ASSERT_EQ(got->at(0).dtype(), m.t);
  const double unit = m.t == DType::kF16 ? 1.0 / 1024 : 1.0 / 128;
  double largest = 0;
  for (int64_t i = 0; i < want->at(0).size(); ++i) {
    EXPECT_NEAR(got->at(0).GetDouble(i), want->at(0).GetDouble(i), 8 * unit) << i;
    largest = std::max(largest, std::fabs(want->at(0).GetDouble(i)));
  }
  EXPECT_GT(largest, 64 * unit) << "nothing was compared";
}

TEST(ToF32, LeavesFloatModelsAlone) {
  Maker m(DType::kF32);
  m.g.AddOutput("y", m.Node(Op::kRelu, {m.g.AddInput("x", {DType::kF32, ir::SymShape{4}})}));
  PassRun context;
  EXPECT_FALSE(*ToF32(m.g, context));
  EXPECT_TRUE(context.log.empty());
}

TEST(ToF32, SaysWhatKeepsAModelInSixteenBits) {
  Maker m(DType::kF16);
  const ValueId x = m.g.AddInput("x", {DType::kF16, ir::SymShape{4}});
  const NodeId strange = m.g.AddOpaque("com.example", "Strange", {x}, 1, {}, "odd");
  m.g.SetOrigin(strange, {"odd"});
  m.g.AddOutput("y", m.Node(Op::kRelu, {m.g.node(strange).output()}));
  PassRun context;
  EXPECT_FALSE(*ToF32(m.g, context));
  ASSERT_EQ(context.log.size(), 1u);
  EXPECT_NE(context.log[0].find("Strange"), std::string::npos) << context.log[0];
  EXPECT_NE(context.log[0].find("odd"), std::string::npos) << context.log[0];
}

// Nothing tells what leaves such an op: 16 bits, perhaps, beside values that would be f32.
TEST(ToF32, AnUnknownOpWithoutATypeKeepsAModelAsItIs) {
  Maker m(DType::kF16);
  const ValueId x = m.g.AddInput("x", {DType::kF16, ir::SymShape{4}});
  const ValueId n = m.g.AddInput("n", {DType::kS64, ir::SymShape{1}});
  const NodeId strange =
      m.g.AddOpaque("com.example", "Strange", {n}, 1, {{"to", static_cast<int64_t>(DType::kF16)}}, "odd");
  m.g.AddOutput("y", m.Node(Op::kRelu, {x}));
  m.g.AddOutput("z", m.g.node(strange).output());
  PassRun context;
  EXPECT_FALSE(*ToF32(m.g, context));
  EXPECT_EQ(m.g.node(strange).attrs.Int("to", 0), static_cast<int64_t>(DType::kF16));
  m.g.SetType(m.g.node(strange).output(), {DType::kS64, ir::SymShape{4}});
  EXPECT_TRUE(*ToF32(m.g, context)) << "its output has nothing to do with 16 bits";
  EXPECT_EQ(m.g.node(strange).attrs.Int("to", 0), static_cast<int64_t>(DType::kF16)) << "its attributes are its own";
}

TEST(ToF32, BitsThatAreReadStay) {
  for (const bool reads : {true, false}) {
    Maker m(DType::kF16);
    const ValueId x = m.g.AddInput("x", {reads ? DType::kF16 : DType::kS16, ir::SymShape{4}});
    const ValueId bits = m.Node(Op::kBitCast, {x}, {{"to", static_cast<int64_t>(reads ? DType::kS16 : DType::kF16)}});
    m.g.AddOutput("y", bits);
    ASSERT_TRUE(ir::Inference::Run(m.g).has_value());
    PassRun context;
    EXPECT_FALSE(*ToF32(m.g, context));
    ASSERT_EQ(context.log.size(), 1u);
    EXPECT_NE(context.log[0].find("reads the bits of its operand"), std::string::npos) << context.log[0];
  }
}

TEST(ToF32, DtypeAttributesFollow) {
  Maker m(DType::kF16);
  const ValueId n = m.g.AddInput("n", {DType::kS64, ir::SymShape{1}});
  const ValueId ones = m.Node(Op::kConstantOfShape, {n}, {{"value", Half({1}, {1.5f}, DType::kF16)}});
  m.g.AddOutput("y", m.Node(Op::kMul, {ones, m.Scalar(2)}));
  ASSERT_TRUE(ir::Inference::Run(m.g).has_value());
  PassRun context;
  ASSERT_TRUE(*ToF32(m.g, context));
  const auto y = ir::Interpret(m.g, {{"n", Tensor::S64({1}, {3})}});
  ASSERT_TRUE(y) << y.error().message;
  EXPECT_EQ(y->at(0).dtype(), DType::kF16);
  EXPECT_EQ(y->at(0).GetDouble(2), 3.0);
}

// Else a state would copy it at each step, from one type to the other.
TEST_P(ToF32Of, ACacheIsAppendedToInItsType) {
  Maker m(GetParam());
  const ValueId past = m.g.AddInput("past", {m.t, ir::SymShape{1, ir::Dim::Symbol("p"), 4}});
  const ValueId x = m.g.AddInput("x", {m.t, ir::SymShape{1, 1, 4}});
  const ValueId fresh = m.Node(Op::kMatMul, {x, m.Weights({4, 4}, 1)});
  const ValueId all = m.Node(Op::kConcat, {past, fresh}, {{"axis", int64_t{1}}});
  m.g.AddOutput("present", all);
  m.g.AddOutput("y", m.Node(Op::kReduceSum, {m.Node(Op::kMul, {all, all})}));
  ASSERT_TRUE(ir::Inference::Run(m.g).has_value());
  Graph after = m.g;
  PassRun context;
  ASSERT_TRUE(ToF32(after, context).value());
  ASSERT_TRUE(ir::VerifyStatus(after).has_value()) << ir::VerifyStatus(after).error().message;
  const Node* append = after.Producer(after.outputs()[0].value);
  ASSERT_TRUE(append != nullptr && append->op == Op::kConcat);
  EXPECT_EQ(append->input(0), after.inputs()[0]) << "the past is copied";
  for (const NodeId id : after.NodesInOrder()) {
    const Op op = after.node(id).op;
    if (op != Op::kMul && op != Op::kMatMul) continue;
    EXPECT_EQ(after.value(after.node(id).output()).type.dtype, DType::kF32);
  }
  std::vector<float> values(12);
  for (size_t i = 0; i < values.size(); ++i) values[i] = 0.37f * static_cast<float>(i) - 1.1f;
  const ir::TensorMap inputs{{"past", Half({1, 3, 4}, values, m.t)}, {"x", Half({1, 1, 4}, {1, -2, 0.5f, 3}, m.t)}};
  const auto want = ir::Interpret(m.g, inputs), got = ir::Interpret(after, inputs);
  ASSERT_TRUE(want && got);
  EXPECT_TRUE(got->at(0).SameBits(want->at(0)));
  EXPECT_NEAR(got->at(1).GetDouble(0), want->at(1).GetDouble(0), want->at(1).GetDouble(0) / 32);
}

}  // namespace
}  // namespace octavo::passes::quantize
