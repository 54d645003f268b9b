// If, Loop, functions: captures become inputs and become outer names again.
#include <gtest/gtest.h>

#include "octavo/ir/infer.h"
#include "octavo/ir/onnx/onnx.h"
#include "octavo/tests/ir_onnx/compare.h"
#include "octavo/tests/ir_onnx/make_model.h"

namespace octavo::tests {
namespace {

ir::Graph Again(const ir::Graph& g) {
  auto bytes = ir::onnx::WriteBytes(g);
  if (!bytes) {
    ADD_FAILURE() << bytes.error().message;
    return {};
  }
  auto again = ir::onnx::ReadBytes(*bytes);
  if (!again) {
    ADD_FAILURE() << again.error().message;
    return {};
  }
  return std::move(*again);
}

ModelMaker IfModel() {
  ModelMaker m(16);
  m.Input("c", {}, 9).Input("x", {"n"}).Output("y", {"n"});
  m.Floats("w", {1}, {2.0f});
  m.Node("Neg", {"x"}, {"negative"}, "outer");
  auto& branch = m.Node("If", {"c"}, {"y"}, "choose");
  auto& yes = SubgraphOf(branch, "then_branch");
  yes.set_name("yes");
  AddNode(yes, "Mul", {"x", "w"}, {"yes_y"});
  SetValueInfo(*yes.add_output(), "yes_y", {"n"}, 1);
  auto& no = SubgraphOf(branch, "else_branch");
  no.set_name("no");
  AddNode(no, "Add", {"negative", "x"}, {"no_y"});
  SetValueInfo(*no.add_output(), "no_y", {"n"}, 1);
  return m;
}

TEST(Subgraph, CapturesOfBothBranchesAreOneList) {
  const ir::Graph g = IfModel().Read();
  const ir::Node& n = Find(g, "If");
  ASSERT_EQ(n.inputs.size(), 4U);  // the condition; negative and x (else_branch comes first by name); w
  EXPECT_EQ(n.attrs.Int("octavo_captures", 0), 3);
  EXPECT_EQ(g.value(n.inputs[1]).name, "negative");
  EXPECT_EQ(g.value(n.inputs[2]).name, "x");
  EXPECT_EQ(g.value(n.inputs[3]).name, "w");
  for (const char* branch : {"then_branch", "else_branch"}) {
    const ir::GraphRef sub = n.attrs.Subgraph(branch);
    ASSERT_TRUE(sub);
    ASSERT_EQ(sub->inputs().size(), 3U);
    EXPECT_EQ(ToString(sub->value(sub->inputs()[1]).type), "f32[n]");
  }
  EXPECT_EQ(Defect(g), "");
  EXPECT_EQ(Difference(g, Again(g)), "");
}

// Paddle writes them into its loops; ONNX Runtime goes by the nodes.
TEST(Subgraph, FalseShapesInsideGiveWay) {
  ModelMaker m(16);
  m.Input("trips", {}, 7).Input("c", {}, 9).Input("x", {"4", "6"}).Output("y", {"4", "6"});
  auto& body = SubgraphOf(m.Node("Loop", {"trips", "", "x"}, {"y"}, "outer"), "body");
  SetValueInfo(*body.add_input(), "i", {}, 7);
  SetValueInfo(*body.add_input(), "cond", {}, 9);
  SetValueInfo(*body.add_input(), "carried", {"4", "6"}, 1);
  AddNode(body, "Identity", {"cond"}, {"cond_out"});
  auto& branch = AddNode(body, "If", {"c"}, {"next"}, "inner");
  for (const char* name : {"else_branch", "then_branch"}) {
    auto& inside = SubgraphOf(branch, name);
    AddNode(inside, "Neg", {"carried"}, {std::string(name) + "_a"});
    SetValueInfo(*inside.add_value_info(), std::string(name) + "_a", {"1"}, 1);
    AddNode(inside, "Relu", {std::string(name) + "_a"}, {std::string(name) + "_b"});
    SetValueInfo(*inside.add_output(), std::string(name) + "_b", {"7", "6"}, 1);
  }
  SetValueInfo(*body.add_output(), "cond_out", {}, 9);
  SetValueInfo(*body.add_output(), "next", {"4", "6"}, 1);
  ir::Graph g = m.Read();
  ASSERT_EQ(g.info.notes.size(), 1u);
  EXPECT_EQ(g.info.notes[0],
            "node 'outer' (Loop): in its graph 'body': node 'inner' (If): in its graph 'then_branch': node "
            "'then_branch_a' (Neg): output 'then_branch_a': its shape is [4,6], but the file says [1] (and 3 more like "
            "it); octavo goes by the nodes");
  EXPECT_EQ(Defect(g), "");
  ASSERT_TRUE(ir::Inference::Run(g).has_value());
  EXPECT_EQ(ToString(g.value(g.FindValue("y")).type), "f32[4,6]");
  EXPECT_TRUE(Again(g).info.notes.empty()) << "what is written has no false shapes";
}

TEST(Subgraph, NamesAreOuterNamesInTheFile) {
  ir::Graph g = IfModel().Read();
  g.SetName(g.FindValue("negative"), "renamed");
  const std::string bytes = *ir::onnx::WriteBytes(g);
  onnx::ModelProto model;
  ASSERT_TRUE(model.ParseFromString(bytes));
  const auto& node = model.graph().node(1);
  ASSERT_EQ(node.op_type(), "If");
  EXPECT_EQ(node.input_size(), 1);
  ASSERT_EQ(node.attribute_size(), 2);
  EXPECT_EQ(node.attribute(0).name(), "else_branch");
  EXPECT_EQ(node.attribute(0).g().input_size(), 0);
  EXPECT_EQ(node.attribute(0).g().node(0).input(0), "renamed");
}

TEST(Subgraph, OutputThatIsAnOuterValue) {
  ModelMaker m = IfModel();
  auto& no = *m.graph().mutable_node(1)->mutable_attribute(1)->mutable_g();
  no.clear_node();
  no.mutable_output(0)->set_name("negative");
  const ir::Graph g = m.Read();
  const ir::GraphRef sub = Find(g, "If").attrs.Subgraph("else_branch");
  EXPECT_EQ(sub->outputs()[0].value, sub->inputs()[0]);
  const ir::Graph again = Again(g);  // through an Identity now
  EXPECT_EQ(Ops(*Find(again, "If").attrs.Subgraph("else_branch")), "Identity");
}

TEST(Subgraph, InnerNameHidesOuterName) {
  ModelMaker m = IfModel();
  auto& yes = *m.graph().mutable_node(1)->mutable_attribute(0)->mutable_g();
  yes.mutable_node(0)->set_output(0, "negative");  // the other branch captures a value of this name
  yes.mutable_output(0)->set_name("negative");
  const ir::Graph g = m.Read();
  const ir::GraphRef sub = Find(g, "If").attrs.Subgraph("then_branch");
  EXPECT_TRUE(sub->IsFrom(sub->outputs()[0].value, ir::Op::kMul));
  EXPECT_EQ(Defect(g), "");
}

TEST(Subgraph, LoopBodyCapturesThroughTwoLevels) {
  ModelMaker m(16);
  m.Input("trips", {}, 7).Input("x", {"n"}).Output("y", {"n"});
  auto& loop = m.Node("Loop", {"trips", "", "x"}, {"y"}, "loop");
  auto& body = SubgraphOf(loop, "body");
  body.set_name("body");
  SetValueInfo(*body.add_input(), "i", {}, 7);
  SetValueInfo(*body.add_input(), "go", {}, 9);
  SetValueInfo(*body.add_input(), "state", {"n"}, 1);
  auto& inner = AddNode(body, "If", {"go"}, {"next"}, "inner");
  for (const char* name : {"then_branch", "else_branch"}) {
    auto& branch = SubgraphOf(inner, name);
    branch.set_name(name);
    AddNode(branch, "Add", {"state", "x"}, {std::string(name) + "_out"});
    SetValueInfo(*branch.add_output(), std::string(name) + "_out", {"n"}, 1);
  }
  AddNode(body, "Identity", {"go"}, {"go_on"});
  SetValueInfo(*body.add_output(), "go_on", {}, 9);
  SetValueInfo(*body.add_output(), "next", {"n"}, 1);
  const ir::Graph g = m.Read();
  const ir::Node& n = Find(g, "Loop");
  ASSERT_EQ(n.inputs.size(), 4U);
  EXPECT_FALSE(n.inputs[1].valid());
  EXPECT_EQ(n.attrs.Int("octavo_captures", 0), 1);
  const ir::GraphRef sub = n.attrs.Subgraph("body");
  ASSERT_EQ(sub->inputs().size(), 4U);
  EXPECT_EQ(Find(*sub, "If").inputs.size(), 3U);
  EXPECT_EQ(Difference(g, Again(g)), "");
}

onnx::FunctionProto& AddFunction(ModelMaker& m, const std::string& name, int64_t opset) {
  auto& f = *m.model.add_functions();
  f.set_domain("test");
  f.set_name(name);
  f.add_input("a");
  f.add_input("b");
  f.add_output("r");
  auto* import = f.add_opset_import();
  import->set_version(opset);
  auto* own = f.add_opset_import();
  own->set_domain("test");
  own->set_version(1);
  return f;
}
void AddFunctionNode(onnx::FunctionProto& f, const std::string& op, const std::vector<std::string>& in,
                     const std::string& out) {
  auto& n = *f.add_node();
  n.set_op_type(op);
  for (const auto& i : in) n.add_input(i);
  n.add_output(out);
}

TEST(Function, InlinedNestedWithAttributesAndAbsentInputs) {
  ModelMaker m(18);
  auto* own = m.model.add_opset_import();
  own->set_domain("test");
  own->set_version(1);
  m.Input("x", {"n"}).Output("y", {"n"}).Output("z", {"n"});
  for (const char* out : {"y", "z"}) {
    auto& call = m.Node("Outer", {"x"}, {out}, std::string("call_") + out);
    call.set_domain("test");
    if (out[0] == 'y') Attr(call, "alpha", 0.5f);
  }
  auto& inner = AddFunction(m, "Inner", 18);
  AddFunctionNode(inner, "LeakyRelu", {"a"}, "r");
  inner.add_attribute("slope");
  auto* ref = inner.mutable_node(0)->add_attribute();
  ref->set_name("alpha");
  ref->set_ref_attr_name("slope");
  ref->set_type(onnx::AttributeProto::FLOAT);
  auto& outer = AddFunction(m, "Outer", 18);
  AddFunctionNode(outer, "Neg", {"a"}, "t");
  AddFunctionNode(outer, "Inner", {"t"}, "r");
  outer.mutable_node(1)->set_domain("test");
  auto* pass = outer.mutable_node(1)->add_attribute();
  pass->set_name("slope");
  pass->set_ref_attr_name("alpha");
  pass->set_type(onnx::AttributeProto::FLOAT);
  const ir::Graph g = m.Read();
  EXPECT_EQ(Ops(g), "Neg LeakyRelu Neg LeakyRelu");
  EXPECT_EQ(Find(g, "LeakyRelu").attrs.Float("alpha", -1), 0.5f);
  EXPECT_EQ(g.value(g.outputs()[0].value).name, "y");
  EXPECT_FALSE(g.Producer(g.outputs()[1].value)->attrs.Has("alpha"));
  EXPECT_EQ(Find(g, "LeakyRelu").origin, std::vector<std::string>{"call_y"});
  EXPECT_EQ(Defect(g), "");
  EXPECT_EQ(Difference(g, Again(g)), "");
}

TEST(Function, UsesItsOwnOpset) {
  ModelMaker m(18);
  m.Input("x", {"n", "4", "4"}).Output("y", {"n", "4", "4"});
  m.Node("F", {"x"}, {"y"}).set_domain("test");
  auto& f = AddFunction(m, "F", 11);
  AddFunctionNode(f, "Softmax", {"a"}, "r");
  EXPECT_EQ(Ops(m.Read()), "Flatten Shape Softmax Reshape");
}

TEST(Function, ThatCallsItselfIsRefused) {
  ModelMaker m(18);
  m.Input("x", {"n"}).Output("y", {"n"});
  m.Node("F", {"x"}, {"y"}, "call").set_domain("test");
  auto& f = AddFunction(m, "F", 18);
  AddFunctionNode(f, "F", {"a"}, "r");
  f.mutable_node(0)->set_domain("test");
  EXPECT_NE(m.Error().find("calls itself"), std::string::npos) << m.Error();
}

TEST(Function, ALongChainIsToldFromOneThatCallsItself) {
  ModelMaker m(18);
  m.Input("x", {"n"}).Output("y", {"n"});
  m.Node("F0", {"x"}, {"y"}, "call").set_domain("test");
  for (int i = 0; i < 70; ++i) {
    auto& f = AddFunction(m, std::format("F{}", i), 18);
    AddFunctionNode(f, i < 69 ? std::format("F{}", i + 1) : "Relu", {"a"}, "r");
    if (i < 69) f.mutable_node(0)->set_domain("test");
  }
  EXPECT_NE(m.Error().find("the function 'F64' is called through 64 others"), std::string::npos) << m.Error();
}

TEST(Function, DoublingChainIsBounded) {
  ModelMaker m(18);
  m.Input("x", {"n"}).Output("y", {"n"});
  m.Node("F0", {"x"}, {"y"}, "call").set_domain("test");
  for (int i = 0; i < 40; ++i) {
    auto& f = AddFunction(m, "F" + std::to_string(i), 18);
    const std::string next = i == 39 ? "Neg" : "F" + std::to_string(i + 1);
    AddFunctionNode(f, next, {"a"}, "t");
    AddFunctionNode(f, next, {"t"}, "r");
    if (i != 39) f.mutable_node(0)->set_domain("test"), f.mutable_node(1)->set_domain("test");
  }
  EXPECT_NE(m.Error().find("functions inlined the model has more than"), std::string::npos);
}

TEST(Function, OctavoOpIsTheOpAgain) {
  ir::Graph g;
  g.name = "g";
  const auto v = [&](const char* name, ir::DType t, ir::SymShape shape) {
    return g.AddInput(name, {t, std::move(shape)});
  };
  const ir::ValueId x = v("x", ir::DType::kU8, {ir::Dim::Symbol("n"), 4});
  const ir::ValueId xs = g.AddConstant(ir::Tensor::ScalarF32(0.1f), "xs");
  const ir::ValueId xz = g.AddConstant(ir::Tensor::Of<uint8_t>(ir::DType::kU8, {}, std::vector<uint8_t>{3}), "xz");
  const std::vector<int8_t> weights = {1, -2, 3, 4, 5, 6, -7, 8};
  const ir::ValueId w = g.AddConstant(ir::Tensor::Of<int8_t>(ir::DType::kS8, {4, 2}, weights), "w");
  const ir::ValueId ws = g.AddConstant(ir::Tensor::F32({2}, {0.5f, 0.25f}), "ws");
  for (int i = 0; i < 3; ++i) {
    const std::string activation = i == 2 ? "relu" : "none";
    const ir::NodeId n = g.AddNode(ir::Op::kQuantizedLinear, {x, xs, xz, w, ws}, 1, {{"activation", activation}},
                                   "linear" + std::to_string(i));
    g.SetOrigin(n, {"first", "second", "pass:quantized_linear"});
    g.AddOutput("y" + std::to_string(i), g.node(n).output(), {ir::DType::kF32, {{ir::Dim::Symbol("n"), 2}}});
  }
  onnx::ModelProto model;
  ASSERT_TRUE(model.ParseFromString(*ir::onnx::WriteBytes(g)));
  ASSERT_EQ(model.functions_size(), 2) << "equal bodies are shared";
  EXPECT_EQ(model.functions(0).name(), "QuantizedLinear__1");
  EXPECT_EQ(model.functions(0).domain(), "octavo");
  EXPECT_EQ(model.functions(0).attribute(0), "activation");
  EXPECT_EQ(model.graph().node(1).op_type(), "QuantizedLinear__1");
  EXPECT_EQ(model.graph().node(2).op_type(), "QuantizedLinear__2");
  const ir::Graph again = Again(g);
  EXPECT_EQ(Ops(again), "QuantizedLinear QuantizedLinear QuantizedLinear");
  EXPECT_EQ(Find(again, "QuantizedLinear").origin,
            (std::vector<std::string>{"first", "second", "pass:quantized_linear"}));
  EXPECT_EQ(Find(again, "QuantizedLinear").attrs.Str("activation", ""), "none");
  EXPECT_EQ(Difference(again, Again(again)), "");
  // A runtime that does not know octavo runs the body: so does a reader to whom the domain is foreign.
  for (auto& f : *model.mutable_functions()) f.set_domain("foreign");
  for (auto& n : *model.mutable_graph()->mutable_node()) n.set_domain("foreign");
  auto foreign = ir::onnx::ReadBytes(model.SerializeAsString());
  ASSERT_TRUE(foreign) << foreign.error().message;
  EXPECT_EQ(Defect(*foreign), "");
  EXPECT_EQ(Find(*foreign, "MatMul").inputs.size(), 2U);
  auto expanded = ir::onnx::WriteBytes(g, {.functions = false});
  ASSERT_TRUE(expanded) << expanded.error().message;
  ASSERT_TRUE(model.ParseFromString(*expanded));
  EXPECT_EQ(model.functions_size(), 0);
  EXPECT_NE(Ops(*ir::onnx::ReadBytes(*expanded)).find("MatMul"), std::string::npos);
}

}  // namespace
}  // namespace octavo::tests
