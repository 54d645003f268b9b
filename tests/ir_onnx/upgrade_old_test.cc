// Ops of opset 1 to 10 whose meaning was another: what they give was worked out by hand from the old definition.
#include <gtest/gtest.h>

#include "octavo/ir/infer.h"
#include "octavo/ir/interpret.h"
#include "octavo/ir/onnx/onnx.h"
#include "octavo/tests/ir_onnx/compare.h"
#include "octavo/tests/ir_onnx/make_model.h"

namespace octavo::tests {
namespace {

using ir::Tensor;

// Read, run, written and run again.
std::vector<float> Ran(const ModelMaker& m, const ir::TensorMap& inputs, size_t output = 0) {
  ir::Graph g = m.Read();
  EXPECT_EQ(Defect(g), "");
  auto types = ir::Inference::Run(g);
  EXPECT_TRUE(types) << types.error().message;
  auto first = ir::Interpret(g, inputs);
  auto bytes = ir::onnx::WriteBytes(g);
  if (!first || !bytes) {
    ADD_FAILURE() << (first ? bytes.error().message : first.error().message);
    return {};
  }
  auto again = ir::onnx::ReadBytes(*bytes);
  EXPECT_TRUE(again && ir::Interpret(*again, inputs)->at(output).ToFloats() == first->at(output).ToFloats());
  return first->at(output).ToFloats();
}

struct OneOp {
  ModelMaker m;
  onnx::NodeProto* node;
  OneOp(int64_t opset, const std::string& op, const std::vector<std::string>& dims,
        const std::vector<std::string>& inputs = {"x"})
      : m(opset) {
    m.Input("x", dims);
    node = &m.Node(op, inputs, {"y"}, "op");
    m.graph().add_output()->set_name("y");
  }
};

std::vector<float> On(const OneOp& o, const ir::Shape& shape, const std::vector<float>& x) {
  return Ran(o.m, {{"x", Tensor::F32(shape, x)}});
}

// A bias of channels: the second operand lies along the dims of the first from `axis` on.
TEST(Before7, TheSecondOperandLiesWhereAxisSays) {
  for (const char* op : {"Add", "Sub", "Mul"}) {
    OneOp o(6, op, {"1", "2", "k"}, {"x", "b"});
    o.m.Floats("b", {2}, {10, 20});
    Attr(*o.node, "broadcast", int64_t{1});
    Attr(*o.node, "axis", int64_t{1});
    const auto want = [&](float x, float b) { return *op == 'A' ? x + b : *op == 'S' ? x - b : x * b; };
    EXPECT_EQ(On(o, {1, 2, 3}, {1, 2, 3, 4, 5, 6}),
              (std::vector<float>{want(1, 10), want(2, 10), want(3, 10), want(4, 20), want(5, 20), want(6, 20)}))
        << op;
  }
  OneOp suffix(6, "Add", {"2", "2"}, {"x", "b"});
  suffix.m.Floats("b", {2}, {10, 20});
  Attr(*suffix.node, "broadcast", int64_t{1});
  EXPECT_EQ(On(suffix, {2, 2}, {1, 2, 3, 4}), (std::vector<float>{11, 22, 13, 24}));
}

TEST(Before7, ASlopeIsThatOfAChannel) {
  OneOp o(6, "PRelu", {"1", "2", "2"}, {"x", "slope"});
  o.m.Floats("slope", {2}, {0.5f, 0.25f});
  EXPECT_EQ(On(o, {1, 2, 2}, {-4, 4, -4, 8}), (std::vector<float>{-2, 4, -1, 8}));
}

TEST(Before7, AttributesThatAreInputsNow) {
  OneOp reshape(1, "Reshape", {"2", "3"});
  Attr(*reshape.node, "shape", std::vector<int64_t>{3, 2});
  Attr(*reshape.node, "consumed_inputs", std::vector<int64_t>{0});
  EXPECT_EQ(On(reshape, {2, 3}, {1, 2, 3, 4, 5, 6}), (std::vector<float>{1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(ToString(reshape.m.Read().outputs()[0].declared), "?");
  OneOp pad(1, "Pad", {"2"});
  Attr(*pad.node, "paddings", std::vector<int64_t>{1, 0});
  EXPECT_EQ(On(pad, {2}, {1, 2}), (std::vector<float>{0, 1, 2}));
  OneOp cast(1, "Cast", {"2"});
  Attr(*cast.node, "to", std::string("INT32"));
  EXPECT_EQ(On(cast, {2}, {1.5f, -2.5f}), (std::vector<float>{1, -2}));
  OneOp join(1, "Concat", {"2", "1"}, {"x", "x"});
  EXPECT_EQ(On(join, {2, 1}, {1, 2}), (std::vector<float>{1, 1, 2, 2})) << "along axis 1 where none is named";
  OneOp selu(1, "Selu", {"1"});
  EXPECT_EQ(On(selu, {1}, {2}), (std::vector<float>{2 * 1.0507f})) << "opset 6 has more digits";
}

TEST(Before7, OfInferenceAlone) {
  OneOp drop(6, "Dropout", {"2"});
  Attr(*drop.node, "is_test", int64_t{1});
  EXPECT_EQ(On(drop, {2}, {1, 2}), (std::vector<float>{1, 2}));
  EXPECT_NE(OneOp(6, "Dropout", {"2"}).m.Error().find("training mode (is_test is 0)"), std::string::npos);
}

TEST(Before7, WhatHasAFormOfItsOwnSaysSo) {
  EXPECT_NE(OneOp(1, "Upsample", {"1", "1", "2", "2"})
                .m.Error()
                .find("Upsample of opset 1 has a form of its own; octavo reads it of opset 7 or later"),
            std::string::npos);
  EXPECT_NE(OneOp(5, "Tile", {"2"}, {"x", "x"}).m.Error().find("Tile of opset 5 has a form of its own"),
            std::string::npos);
  struct Wrong {
    const char* op;
    int64_t opset;
    const char* attribute;
    const char* sentence;
  };
  for (const auto& [op, opset, attribute, sentence] :
       {Wrong{"Reshape", 1, "", "has no shape"}, Wrong{"Pad", 1, "", "has no paddings"},
        Wrong{"Cast", 1, "", "names no type"}, Wrong{"PRelu", 1, "", "has no slope"},
        Wrong{"Cast", 1, "to", "names a type that there is none of"},
        Wrong{"Add", 6, "broadcast", "attribute 'broadcast', which Add does not know"}}) {
    OneOp o(opset, op, {"2"}, *op == 'A' ? std::vector<std::string>{"x", "x"} : std::vector<std::string>{"x"});
    if (*attribute != 0) Attr(*o.node, attribute, std::string("what"));
    EXPECT_NE(o.m.Error().find(sentence), std::string::npos) << op << ": " << o.m.Error();
  }
  OneOp slope(6, "PRelu", {"2"}, {"x", "x"});
  EXPECT_NE(slope.m.Error().find("has a slope that is no vector of constants"), std::string::npos);
  OneOp end(6, "Add", {"2", "2"}, {"x", "x"});
  Attr(*end.node, "broadcast", int64_t{1});
  Attr(*end.node, "axis", int64_t{-1});
  EXPECT_NE(end.m.Error().find("has an axis that is counted from the end"), std::string::npos);
  OneOp lone(6, "Add", {"2", "2"}, {"x"});
  Attr(*lone.node, "broadcast", int64_t{1});
  Attr(*lone.node, "axis", int64_t{1});
  EXPECT_NE(lone.m.Error().find("lacks an operand"), std::string::npos);
}

// state' = state + x * w, where w is captured; the sequence of each batch entry by itself.
struct OldScan {
  ModelMaker m{8};
  onnx::NodeProto* scan;
  explicit OldScan(bool lengths = false) {
    m.Input("s", {"b", "1"}).Input("x", {"b", "t", "1"}).Input("w", {"1"});
    if (lengths) m.Input("n", {"b"}, 7);
    scan = &m.Node("Scan", {lengths ? "n" : "", "s", "x"}, {"last", "all"}, "op");
    Attr(*scan, "num_scan_inputs", int64_t{1});
    onnx::GraphProto& body = SubgraphOf(*scan, "body");
    SetValueInfo(*body.add_input(), "before", {"1"}, 1);
    SetValueInfo(*body.add_input(), "now", {"1"}, 1);
    AddNode(body, "Mul", {"now", "w"}, {"weighed"});
    AddNode(body, "Add", {"before", "weighed"}, {"after"});
    AddNode(body, "Identity", {"after"}, {"told"});
    SetValueInfo(*body.add_output(), "after", {"1"}, 1);
    SetValueInfo(*body.add_output(), "told", {"1"}, 1);
    for (const char* name : {"last", "all"}) m.graph().add_output()->set_name(name);
  }
  std::vector<float> Output(size_t i) const {
    return Ran(m,
               {{"s", Tensor::F32({2, 1}, {100, 200})},
                {"x", Tensor::F32({2, 3, 1}, {1, 2, 3, 4, 5, 6})},
                {"w", Tensor::F32({1}, {2})}},
               i);
  }
};

TEST(Scan8, HasABatchInFront) {
  EXPECT_EQ(OldScan().Output(0), (std::vector<float>{112, 230}));
  EXPECT_EQ(OldScan().Output(1), (std::vector<float>{102, 106, 112, 208, 218, 230}));
  OldScan back;
  Attr(*back.scan, "directions", std::vector<int64_t>{1});
  EXPECT_EQ(back.Output(1), (std::vector<float>{106, 110, 112, 212, 222, 230}));
}

TEST(Scan8, LengthsOfItsOwnAreRefused) {
  EXPECT_NE(OldScan(true).m.Error().find("its sequences have lengths of their own (sequence_lens)"), std::string::npos);
  OldScan more;
  more.scan->add_output("third");
  EXPECT_NE(more.m.Error().find("the body's inputs and outputs do not fit the op's"), std::string::npos);
  OldScan none;
  none.scan->mutable_attribute(0)->set_i(0);
  EXPECT_NE(none.m.Error().find("it has no body or no scan inputs"), std::string::npos);
}

// Rounds down where it enlarges, up where it shrinks, each dim by itself, whoever knows the scales when.
TEST(Resize10, RoundsEachDimItsOwnWay) {
  for (const bool known : {true, false}) {
    OneOp o(10, "Resize", {"2", "4"}, {"x", "scales"});
    ir::TensorMap inputs{{"x", Tensor::F32({2, 4}, {1, 2, 3, 4, 5, 6, 7, 8})}};
    if (known) {
      o.m.Floats("scales", {2}, {1.5f, 0.6f});
    } else {
      o.m.Input("scales", {"2"});
      inputs["scales"] = Tensor::F32({2}, {1.5f, 0.6f});
    }
    // Rows 0, 1/1.5 and 2/1.5: 0, 0 and 1. Columns 0 and 1/0.6: 0 and 2.
    EXPECT_EQ(Ran(o.m, inputs), (std::vector<float>{1, 3, 1, 3, 5, 7})) << known;
  }
}

// An optional tensor is a tensor that must be given.
TEST(Optional, OfATensorIsATensor) {
  ModelMaker m(18);
  auto* type = m.graph().add_input()->mutable_type()->mutable_optional_type()->mutable_elem_type();
  m.graph().mutable_input(0)->set_name("x");
  type->mutable_tensor_type()->set_elem_type(1);
  type->mutable_tensor_type()->mutable_shape()->add_dim()->set_dim_value(2);
  m.Node("OptionalGetElement", {"x"}, {"y"});
  m.Node("OptionalHasElement", {"x"}, {"has"});
  for (const char* name : {"y", "has"}) m.graph().add_output()->set_name(name);
  const ir::TensorMap inputs{{"x", Tensor::F32({2}, {3, 4})}};
  EXPECT_EQ(Ran(m, inputs), (std::vector<float>{3, 4}));
  EXPECT_EQ(Ran(m, inputs, 1), (std::vector<float>{1}));
  EXPECT_FALSE(ir::Interpret(m.Read(), {}));
}

}  // namespace
}  // namespace octavo::tests
