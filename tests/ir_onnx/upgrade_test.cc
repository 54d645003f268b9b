// Old forms of ops become the form of ops.def. The numbers are worked out by hand from the old op's definition and
// compared with what the interpreter makes of the new form.
#include <gtest/gtest.h>

#include <cmath>

#include "octavo/ir/infer.h"
#include "octavo/ir/interpret.h"
#include "octavo/ir/onnx/onnx.h"
#include "octavo/tests/ir_onnx/compare.h"
#include "octavo/tests/ir_onnx/make_model.h"

namespace octavo::tests {
namespace {

// One node over x, read and checked for soundness and for the round trip.
struct OneOp {
  ModelMaker m;
  onnx::NodeProto* node;

  OneOp(int64_t opset, const std::string& op, const std::vector<std::string>& dims,
        const std::vector<std::string>& inputs = {"x"}, const std::vector<std::string>& outputs = {"y"})
      : m(opset) {
    m.Input("x", dims);
    node = &m.Node(op, inputs, outputs, "op");
    for (const auto& o : outputs) {
      if (!o.empty()) m.graph().add_output()->set_name(o);
    }
  }
  ir::Graph Read() const {
    ir::Graph g = m.Read();
    EXPECT_EQ(Defect(g), "");
    auto bytes = ir::onnx::WriteBytes(g);
    EXPECT_TRUE(bytes);
    auto again = ir::onnx::ReadBytes(bytes ? *bytes : "");
    EXPECT_TRUE(again);
    EXPECT_EQ(again ? Difference(g, *again) : "", "");
    EXPECT_GE(g.info.opsets.at(""), 18);
    return g;
  }
};

std::vector<int64_t> ConstantInts(const ir::Graph& g, ir::ValueId v) {
  const ir::Tensor* t = g.ConstantOf(v);
  if (t == nullptr) return {-999};
  return t->ToInts();
}
std::vector<float> Evaluate(const ir::Graph& g, const ir::Shape& shape, const std::vector<float>& x,
                            size_t output = 0) {
  auto outputs = ir::Interpret(g, {{"x", ir::Tensor::F32(shape, x)}});
  if (!outputs) {
    ADD_FAILURE() << outputs.error().message;
    return {};
  }
  return outputs->at(output).ToFloats();
}

TEST(Upgrade, AxesBecomeInputs) {
  for (const char* op : {"ReduceMean", "ReduceMax", "ReduceL2", "ReduceSum", "ReduceProd", "ReduceSumSquare"}) {
    OneOp o(11, op, {"2", "3"});
    Attr(*o.node, "axes", std::vector<int64_t>{1});
    Attr(*o.node, "keepdims", int64_t{0});
    const ir::Graph g = o.Read();
    const ir::Node& n = Find(g, op);
    ASSERT_EQ(n.inputs.size(), 2U) << op;
    EXPECT_EQ(ConstantInts(g, n.inputs[1]), std::vector<int64_t>{1});
    EXPECT_FALSE(n.attrs.Has("axes"));
    EXPECT_EQ(n.attrs.Int("keepdims", 1), 0);
  }
  OneOp mean(17, "ReduceMean", {"2", "3"});
  Attr(*mean.node, "axes", std::vector<int64_t>{-1});
  EXPECT_EQ(Evaluate(mean.Read(), {2, 3}, {1, 2, 6, 4, 5, 9}), (std::vector<float>{3, 6}));
  OneOp all(17, "ReduceMean", {"2", "3"});
  EXPECT_EQ(Find(all.Read(), "ReduceMean").inputs.size(), 1U);
  OneOp modern(13, "ReduceSum", {"2", "3"}, {"x", "axes"});
  modern.m.Ints("axes", {0});
  EXPECT_EQ(Evaluate(modern.Read(), {2, 3}, {1, 2, 6, 4, 5, 9}), (std::vector<float>{5, 7, 15}));
}

TEST(Upgrade, SqueezeUnsqueezeSplitSlice) {
  OneOp squeeze(11, "Squeeze", {"2", "1"});
  Attr(*squeeze.node, "axes", std::vector<int64_t>{1});
  EXPECT_EQ(Find(squeeze.Read(), "Squeeze").inputs.size(), 2U);
  OneOp unsqueeze(12, "Unsqueeze", {"2", "1"});
  Attr(*unsqueeze.node, "axes", std::vector<int64_t>{0, 3});
  {
    const ir::Graph g = unsqueeze.Read();
    EXPECT_EQ(ConstantInts(g, Find(g, "Unsqueeze").inputs[1]), (std::vector<int64_t>{0, 3}));
  }

  OneOp sized(11, "Split", {"4"}, {"x"}, {"a", "b"});
  Attr(*sized.node, "split", std::vector<int64_t>{1, 3});
  {
    const ir::Graph g = sized.Read();
    EXPECT_EQ(Evaluate(g, {4}, {1, 2, 3, 4}, 1), (std::vector<float>{2, 3, 4}));
    EXPECT_FALSE(Find(g, "Split").attrs.Has("num_outputs"));
  }
  OneOp even(13, "Split", {"4"}, {"x"}, {"a", "b"});
  EXPECT_EQ(Evaluate(even.Read(), {4}, {1, 2, 3, 4}, 1), (std::vector<float>{3, 4}));
  // Only the second output is wanted: the slot of the first stays, so that the split stays even.
  OneOp second(13, "Split", {"4"}, {"x"}, {"", "b"});
  EXPECT_EQ(Evaluate(second.Read(), {4}, {1, 2, 3, 4}), (std::vector<float>{3, 4}));

  OneOp slice(9, "Slice", {"4"});
  Attr(*slice.node, "starts", std::vector<int64_t>{1});
  Attr(*slice.node, "ends", std::vector<int64_t>{3});
  EXPECT_EQ(Evaluate(slice.Read(), {4}, {1, 2, 3, 4}), (std::vector<float>{2, 3}));
}

TEST(Upgrade, PadClipTopKDropout) {
  OneOp pad(10, "Pad", {"2"});
  Attr(*pad.node, "pads", std::vector<int64_t>{1, 2});
  Attr(*pad.node, "value", 5.0f);
  EXPECT_EQ(Evaluate(pad.Read(), {2}, {1, 2}), (std::vector<float>{5, 1, 2, 5, 5}));
  OneOp clip(7, "Clip", {"3"});
  Attr(*clip.node, "max", 2.0f);
  {
    const ir::Graph g = clip.Read();
    EXPECT_FALSE(Find(g, "Clip").inputs[1].valid());
    EXPECT_EQ(Evaluate(g, {3}, {-9, 1, 9}), (std::vector<float>{-9, 1, 2}));
  }
  OneOp both(7, "Clip", {"3"});
  Attr(*both.node, "max", 2.0f);
  Attr(*both.node, "min", -2.0f);
  EXPECT_EQ(Evaluate(both.Read(), {3}, {-9, 1, 9}), (std::vector<float>{-2, 1, 2}));
  OneOp top(9, "TopK", {"4"}, {"x"}, {"v", "i"});
  Attr(*top.node, "k", int64_t{2});
  EXPECT_EQ(Evaluate(top.Read(), {4}, {1, 4, 3, 2}), (std::vector<float>{4, 3}));
  OneOp drop(7, "Dropout", {"2"});
  Attr(*drop.node, "ratio", 0.25f);
  {
    const ir::Graph g = drop.Read();
    EXPECT_EQ(g.ConstantOf(Find(g, "Dropout").inputs[1])->GetDouble(0), 0.25);
    EXPECT_EQ(Evaluate(g, {2}, {3, 4}), (std::vector<float>{3, 4}));
  }
}

// Softmax before opset 13 takes all axes from `axis` on as one.
std::vector<float> SoftmaxOfRows(const std::vector<float>& x, size_t row) {
  std::vector<float> y;
  for (size_t i = 0; i < x.size(); i += row) {
    double sum = 0;
    for (size_t j = 0; j < row; ++j) sum += std::exp(static_cast<double>(x[i + j]));
    for (size_t j = 0; j < row; ++j) y.push_back(static_cast<float>(std::exp(static_cast<double>(x[i + j])) / sum));
  }
  return y;
}

TEST(Upgrade, SoftmaxOverSeveralAxes) {
  const std::vector<float> x = {0.5f, -1, 2, 1, 0, 3, -2, 1.5f};
  const auto near = [](const std::vector<float>& a, const std::vector<float>& b) {
    ASSERT_EQ(a.size(), b.size());
    for (size_t i = 0; i < a.size(); ++i) EXPECT_NEAR(a[i], b[i], 1e-6) << i;
  };
  OneOp flat(11, "Softmax", {"n", "2", "2"});  // the default axis 1 of rank 3
  {
    const ir::Graph g = flat.Read();
    EXPECT_EQ(Ops(g), "Flatten Shape Softmax Reshape");
    EXPECT_EQ(g.value(g.outputs()[0].value).name, "y");
    near(Evaluate(g, {2, 2, 2}, x), SoftmaxOfRows(x, 4));
  }
  OneOp last(11, "Softmax", {"n", "2", "2"});
  Attr(*last.node, "axis", int64_t{2});
  {
    const ir::Graph g = last.Read();
    EXPECT_EQ(Ops(g), "Softmax");
    EXPECT_EQ(Find(g, "Softmax").attrs.Int("axis", 0), -1);
    near(Evaluate(g, {2, 2, 2}, x), SoftmaxOfRows(x, 2));
  }
  // The rank comes from inference, not from the file: MatMul gives no value_info here.
  ModelMaker m(11);
  m.Input("x", {"b", "h", "s", "d"}).Input("k", {"b", "h", "d", "s"}).Output("y", {"b", "h", "s", "s"});
  m.Node("MatMul", {"x", "k"}, {"scores"});
  Attr(m.Node("Softmax", {"scores"}, {"y"}), "axis", int64_t{3});
  EXPECT_EQ(Ops(m.Read()), "MatMul Softmax");
  // Paddle declares an output of rank 0, whatever it is: the nodes have the word.
  SetValueInfo(*m.graph().mutable_output(0), "y", {}, 1);
  EXPECT_EQ(Ops(m.Read()), "MatMul Softmax");
  SetValueInfo(*m.graph().add_value_info(), "scores", {"3", "3"}, 1);  // or of a wrong rank
  EXPECT_EQ(Ops(m.Read()), "MatMul Softmax");
  ModelMaker fused(11);  // a rank that comes of an op of ONNX Runtime's
  fused.Input("x", {"b", "h", "s", "d"}).Input("k", {"b", "h", "s", "d"}).Output("y", {"b", "h", "s", "s"});
  onnx::NodeProto& product = fused.Node("FusedMatMul", {"x", "k"}, {"scores"});
  product.set_domain("com.microsoft");
  Attr(product, "transB", int64_t{1});
  Attr(fused.Node("Softmax", {"scores"}, {"y"}), "axis", int64_t{3});
  EXPECT_EQ(Ops(fused.Read()).find("Flatten"), std::string::npos);
  OneOp modern(13, "Softmax", {"n", "2", "2"});
  EXPECT_EQ(Ops(modern.Read()), "Softmax");
  OneOp hard(11, "Hardmax", {"n", "2", "2"});
  EXPECT_EQ(Ops(hard.Read()), "Flatten Shape Hardmax Reshape");
}

TEST(Upgrade, ConstantForms) {
  ModelMaker m(13);
  m.Input("x", {"2"}).Output("y", {"2"});
  Attr(m.Node("Constant", {}, {"f"}), "value_float", 2.5f);
  Attr(m.Node("Constant", {}, {"i"}), "value_int", int64_t{7});
  Attr(m.Node("Constant", {}, {"is"}), "value_ints", std::vector<int64_t>{1, 2});
  Attr(m.Node("Constant", {}, {"fs"}), "value_floats", std::vector<float>{1.5f});
  Attr(m.Node("Constant", {}, {"s"}), "value_string", std::string("text"));
  m.Node("Mul", {"x", "f"}, {"y"});
  const ir::Graph g = m.Read();
  EXPECT_EQ(ToString(g.value(g.FindValue("f")).type), "f32[]");
  EXPECT_EQ(ToString(g.value(g.FindValue("i")).type), "s64[]");
  EXPECT_EQ(ConstantInts(g, g.FindValue("is")), (std::vector<int64_t>{1, 2}));
  EXPECT_EQ(g.ConstantOf(g.FindValue("fs"))->ToFloats(), std::vector<float>{1.5f});
  EXPECT_EQ(g.ConstantOf(g.FindValue("s"))->strings()[0], "text");
  EXPECT_EQ(Evaluate(g, {2}, {1, 2}), (std::vector<float>{2.5f, 5}));
}

TEST(Upgrade, TypedFieldsOfEveryWidth) {
  ModelMaker m(21);
  m.Input("x", {"2"}).Output("x", {"2"});
  const auto add = [&](const char* name, int dtype, int64_t count) -> onnx::TensorProto& {
    auto& t = *m.graph().add_initializer();
    t.set_name(name);
    t.set_data_type(dtype);
    t.add_dims(count);
    return t;
  };
  for (int dtype : {2, 3, 4, 5, 6, 9, 10, 16, 17, 19}) {
    auto& t = add(("t" + std::to_string(dtype)).c_str(), dtype, 2);
    t.add_int32_data(1);
    t.add_int32_data(dtype == 3 || dtype == 5 || dtype == 6 ? -2 : dtype == 9 ? 0 : 200);
  }
  auto& u4 = add("t21", 21, 3);
  u4.add_int32_data(0x92), u4.add_int32_data(0xf5);  // 2, 9, 5 and a nibble that means nothing
  auto& s4 = add("t22", 22, 3);
  s4.set_raw_data("\x9e\xf7");  // -2, -7, 7
  auto& u32 = add("t12", 12, 1);
  u32.add_uint64_data(4000000000U);
  const ir::Graph g = m.Read();
  const auto ints = [&](const std::string& name) { return ConstantInts(g, g.FindValue(name)); };
  EXPECT_EQ(ints("t2"), (std::vector<int64_t>{1, 200}));
  EXPECT_EQ(ints("t3"), (std::vector<int64_t>{1, -2}));
  EXPECT_EQ(ints("t4"), (std::vector<int64_t>{1, 200}));
  EXPECT_EQ(ints("t5"), (std::vector<int64_t>{1, -2}));
  EXPECT_EQ(ints("t6"), (std::vector<int64_t>{1, -2}));
  EXPECT_EQ(ints("t9"), (std::vector<int64_t>{1, 0}));
  EXPECT_EQ(ints("t12"), (std::vector<int64_t>{4000000000}));
  EXPECT_EQ(ints("t21"), (std::vector<int64_t>{2, 9, 5}));
  EXPECT_EQ(ints("t22"), (std::vector<int64_t>{-2, -7, 7}));
  for (int dtype : {10, 16}) {
    EXPECT_EQ(g.ConstantOf(g.FindValue("t" + std::to_string(dtype)))->as<uint16_t>()[1], 200) << dtype;
  }
  const auto again = ir::onnx::ReadBytes(*ir::onnx::WriteBytes(g));
  ASSERT_TRUE(again);
  EXPECT_EQ(Difference(g, *again), "");
  EXPECT_GE(g.info.opsets.at(""), 21);
}

TEST(Upgrade, ResizeAndUpsample) {
  OneOp up(7, "Upsample", {"1", "1", "2", "2"});
  Attr(*up.node, "scales", std::vector<float>{1, 1, 1, 2});
  {
    const ir::Graph g = up.Read();
    const ir::Node& n = Find(g, "Resize");
    EXPECT_EQ(n.attrs.Str("coordinate_transformation_mode", ""), "asymmetric");
    EXPECT_EQ(n.attrs.Str("nearest_mode", ""), "floor");
    EXPECT_EQ(Evaluate(g, {1, 1, 2, 2}, {1, 2, 3, 4}), (std::vector<float>{1, 1, 2, 2, 3, 3, 4, 4}));
  }
}

TEST(Upgrade, GroupNormalizationPerChannel) {
  OneOp o(18, "GroupNormalization", {"1", "4", "1"}, {"x", "s", "b"});
  o.m.Floats("s", {2}, {1, 10}).data_type();
  o.m.Floats("b", {2}, {0, 100});
  Attr(*o.node, "num_groups", int64_t{2});
  Attr(*o.node, "epsilon", 0.0f);
  const ir::Graph g = o.Read();
  EXPECT_EQ(g.info.opsets.at(""), 21);
  const auto y = Evaluate(g, {1, 4, 1}, {1, 3, 5, 9});
  const std::vector<float> want = {-1, 1, 90, 110};
  ASSERT_EQ(y.size(), 4U);
  for (size_t i = 0; i < 4; ++i) EXPECT_NEAR(y[i], want[i], 1e-4);
}

TEST(Upgrade, VendorTwins) {
  OneOp gelu(14, "Gelu", {"2"});
  gelu.node->set_domain("com.microsoft");
  {
    const ir::Graph g = gelu.Read();
    EXPECT_EQ(Find(g, "Gelu").op, ir::Op::kGelu);
    EXPECT_EQ(g.info.opsets.at(""), 20);
  }
  OneOp q(14, "QuantizeLinear", {"2"}, {"x", "s", "z"});
  q.node->set_domain("com.microsoft");
  q.m.Floats("s", {}, {0.5f});
  auto& z = *q.m.graph().add_initializer();
  z.set_name("z");
  z.set_data_type(onnx::TensorProto::UINT16);
  z.add_int32_data(7);
  {
    const ir::Graph g = q.Read();
    EXPECT_EQ(Find(g, "QuantizeLinear").op, ir::Op::kQuantizeLinear);
    EXPECT_EQ(g.info.opsets.at(""), 21) << "16 bits came with opset 21";
  }
  OneOp rms(17, "SimplifiedLayerNormalization", {"n", "2"}, {"x", "s"});
  rms.m.Floats("s", {2}, {1, 2});
  EXPECT_EQ(Ops(rms.Read()), "RMSNormalization");
  OneOp unknown(17, "WordConv", {"n", "2"});
  unknown.node->set_domain("ai.example");
  unknown.m.model.add_opset_import()->set_domain("ai.example");
  unknown.m.model.mutable_opset_import(1)->set_version(3);
  Attr(*unknown.node, "strings", std::string("kept"));
  auto* raw = unknown.node->add_attribute();
  raw->set_name("type");
  raw->set_type(onnx::AttributeProto::TYPE_PROTO);
  raw->mutable_tp()->mutable_tensor_type()->set_elem_type(1);
  {
    const ir::Graph g = unknown.Read();
    EXPECT_EQ(Find(g, "WordConv").domain, "ai.example");
    onnx::ModelProto out;
    ASSERT_TRUE(out.ParseFromString(*ir::onnx::WriteBytes(g)));
    EXPECT_EQ(out.graph().node(0).attribute_size(), 2);
    EXPECT_EQ(out.graph().node(0).attribute(1).tp().tensor_type().elem_type(), 1);
    EXPECT_EQ(out.opset_import(1).version(), 3);
  }
}

TEST(Import, SortsAndKeepsFileOrderOtherwise) {
  ModelMaker m(18);
  m.Input("x", {"2"}).Output("y", {"2"});
  m.Node("Add", {"b", "a"}, {"y"});
  m.Node("Abs", {"x"}, {"b"});
  m.Node("Neg", {"x"}, {"a"});
  EXPECT_EQ(Ops(m.Read()), "Abs Neg Add");
}

// QuantizeTokens had two outputs once, and zero point 128. Such a file carries its own body.
TEST(Import, AnOlderFormOfAnOpOfOursIsWhatItsFileSays) {
  ModelMaker m(18);
  m.Input("x", {"2", "3"}).Output("q", {"2", "3"}).Output("s", {"2", "3"});
  m.Node("QuantizeTokens", {"x"}, {"q", "s"}).set_domain("octavo");
  auto* import = m.model.add_opset_import();
  import->set_domain("octavo");
  import->set_version(1);
  onnx::FunctionProto& f = *m.model.add_functions();
  f.set_domain("octavo");
  f.set_name("QuantizeTokens");
  f.add_input("i0");
  f.add_output("o0");
  f.add_output("o1");
  f.add_opset_import()->set_version(18);
  for (const auto& [op, output] : {std::pair("Neg", "o0"), std::pair("Abs", "o1")}) {
    onnx::NodeProto& n = *f.add_node();
    n.set_op_type(op);
    n.add_input("i0");
    n.add_output(output);
  }
  EXPECT_EQ(Ops(m.Read()), "Neg Abs");
}

// Paddle writes "?" and "_", others "-1", for each dim of an image that may change: two of them are not equal for that.
TEST(Import, DimsWithoutAName) {
  ModelMaker m(18);
  m.Input("x", {"n", "3", "_", "_", "-1", "\xe5\xae\xbd"}).Output("y", {"n", "3", "_", "_", "-1", "\xe5\xae\xbd"});
  m.Node("Neg", {"x"}, {"y"});
  const ir::Graph g = m.Read();
  EXPECT_EQ(ToString(g.value(g.FindValue("x")).type), "f32[n,3,x_d2,x_d3,x_d4,___]");
  EXPECT_EQ(ToString(g.outputs()[0].declared), "f32[n,3,?,?,?,___]");
}

// What people edit: the input is another size, value_info and outputs are not. ONNX Runtime goes by the nodes too.
TEST(Import, FalseShapesGiveWay) {
  ModelMaker m(18);
  m.Input("x", {"4", "6"}).Output("y", {"1", "6"}).Output("z", {"4", "2"});
  SetValueInfo(*m.graph().add_value_info(), "h", {"1", "6"}, 1);
  m.Node("Neg", {"x"}, {"h"});
  m.Node("Abs", {"h"}, {"y"});
  m.Node("Relu", {"h"}, {"z"});
  ir::Graph g = m.Read();
  ASSERT_EQ(g.info.notes.size(), 1u);
  EXPECT_EQ(g.info.notes[0],
            "node 'h' (Neg): output 'h': its shape is [4,6], but the file says [1,6] (and 2 more like it); octavo goes "
            "by the nodes");
  ASSERT_TRUE(ir::Inference::Run(g).has_value());
  EXPECT_EQ(ToString(g.value(g.FindValue("h")).type), "f32[4,6]");
  EXPECT_EQ(ToString(g.value(g.FindValue("z")).type), "f32[4,6]");
  EXPECT_TRUE(ir::onnx::ReadBytes(*ir::onnx::WriteBytes(g))->info.notes.empty())
      << "what is written has no false shapes";
}

// A file declares the sizes of one run.
TEST(Import, SizesThatElementsOfAnInputDecideAreNotBelieved) {
  ModelMaker m(18);
  m.Input("x", {"4", "6"}).Input("to", {"2"}, 7).Output("y", {"3", "8"}).Output("z", {"4", "6"});
  for (const char* name : {"h", "n", "p"}) SetValueInfo(*m.graph().add_value_info(), name, {"3", "8"}, 1);
  for (const char* name : {"k", "c"}) SetValueInfo(*m.graph().add_value_info(), name, {"4", "6"}, 1);
  m.Node("Reshape", {"x", "to"}, {"h"});
  m.Node("Neg", {"h"}, {"n"});
  m.Node("Magic", {"n"}, {"p"}).set_domain("foreign");
  m.Node("Abs", {"p"}, {"y"});
  m.Node("Shape", {"x"}, {"own"});
  m.Node("Reshape", {"n", "own"}, {"k"});  // by sizes alone, of what has other sizes in each run
  m.Node("Reshape", {"x", "own"}, {"c"});
  m.Node("Relu", {"c"}, {"z"});
  auto* import = m.model.add_opset_import();
  import->set_domain("foreign");
  import->set_version(1);
  const ir::Graph g = m.Read();
  const auto type = [&](const char* name) { return ToString(g.value(g.FindValue(name)).type); };
  EXPECT_EQ(type("h"), "f32[*]");
  EXPECT_EQ(type("n"), "f32[*]");
  EXPECT_EQ(type("p"), "f32[3,8]");
  EXPECT_EQ(type("k"), "f32[*]");
  EXPECT_EQ(type("c"), "f32[4,6]");
}

TEST(Import, Dims) {
  ModelMaker m(18);
  m.Input("x", {"?", "batch size", "batch-size", "s", "-1"});
  m.Input("mask", {"s", "p", "p + s"}).Input("odd", {"u + v"}).Output("y", {"?", "k", "batch size", "s", "?"});
  m.Node("Neg", {"x"}, {"y"});
  const ir::Graph g = m.Read();
  const auto type = [&](const char* name) { return ToString(g.value(g.FindValue(name)).type); };
  EXPECT_EQ(type("x"), "f32[x_d0,batch_size,batch_size_1,s,x_d4]") << "equal only where the file says so";
  EXPECT_EQ(type("mask"), "f32[s,p,p + s]") << "both symbols are bound by inputs";
  EXPECT_EQ(type("odd"), "f32[u___v]") << "nothing binds u and v";
  EXPECT_EQ(ToString(g.outputs()[0].declared), "f32[?,k,batch_size,s,?]");
  const auto again = ir::onnx::ReadBytes(*ir::onnx::WriteBytes(g));
  ASSERT_TRUE(again);
  EXPECT_EQ(Difference(g, *again), "");
}

TEST(Import, InitializerThatIsAlsoAnInputIsAConstant) {
  ModelMaker m(11);
  m.Input("x", {"2"}).Input("w", {"2"}).Output("y", {"2"});
  m.Floats("w", {2}, {3, 4});
  m.Node("Mul", {"x", "w"}, {"y"});
  const ir::Graph g = m.Read();
  EXPECT_EQ(g.inputs().size(), 1U);
  EXPECT_EQ(Evaluate(g, {2}, {1, 2}), (std::vector<float>{3, 8}));
}

}  // namespace
}  // namespace octavo::tests
