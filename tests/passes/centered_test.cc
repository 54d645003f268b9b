// Weights of 8 bits around any zero point: the integer form brings them to s8 around 0 with the bits that they had, and the int8 rules take all.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

#include "maker.h"
#include "octavo/ir/infer.h"
#include "octavo/passes/fusions/fusions.h"
#include "octavo/passes/vendor/vendor.h"
#include "same_bits.h"

namespace octavo::passes::vendor {
namespace {

using ir::DType;
using ir::Op;
using ir::Tensor;
using ir::ValueId;

constexpr int64_t kIn = 12, kOut = 7;

enum class Form { kOperator, kCodes, kDynamic };  // QLinearMatMul; DequantizeLinear on both sides; MatMulInteger

struct Case : Maker {
  Case(Form form, DType type, std::vector<int64_t> zeros, int range) : Maker(9), type(type) {
    x = g.AddInput("x", {DType::kF32, ir::SymShape{ir::Dim::Symbol("b"), 5, kIn}});
    zero = Bytes(type, zeros.size() == 1 ? ir::Shape{} : ir::Shape{kOut}, [&](size_t i) { return zeros[i]; });
    scale =
        g.AddConstant(zeros.size() == 1 ? Tensor::ScalarF32(0.01f)
                                        : Tensor::F32({kOut}, {0.01f, 0.02f, 0.015f, 0.03f, 0.005f, 0.01f, 0.012f}));
    const auto code = [&](size_t) { return static_cast<int64_t>(rng() % 256) * range / 256 + (256 - range) / 2; };
    for (int i = 0; i < 2; ++i) {
      const ValueId w = Bytes(type, {kIn, kOut}, [&](size_t at) {
        return (at == 3 ? 255 : at == 4 ? 0 : code(at)) - (type == DType::kS8 ? 128 : 0);
      });
      g.AddOutput("y" + std::to_string(i), Product(form, w));
    }
  }
  ValueId Bytes(DType t, ir::Shape shape, const std::function<int64_t(size_t)>& value) {
    Tensor c = Tensor::Zeros(t, std::move(shape));
    for (size_t i = 0; i < c.byte_size(); ++i) c.mutable_data()[i] = static_cast<std::byte>(value(i));
    return g.AddConstant(std::move(c));
  }
  ValueId Product(Form form, ValueId w) {
    if (form == Form::kDynamic) {
      if (!dynamic.valid()) dynamic = g.AddNode(Op::kDynamicQuantizeLinear, {x}, 3, {}, "dynamic");
      const ir::Node q = g.node(dynamic);
      const ValueId sum = Node(Op::kMatMulInteger, {q.output(0), w, q.output(2), zero});
      return Node(Op::kMul, {Node(Op::kCast, {sum}, {{"to", int64_t{1}}}), Node(Op::kMul, {q.output(1), scale})});
    }
    if (!codes.valid()) codes = Quantize(x, 0.02f, 131);
    if (form == Form::kCodes)
      return Node(Op::kMatMul, {Dequantize(codes, 0.02f, 131),
                                Node(Op::kDequantizeLinear, {w, scale, zero}, {{"axis", int64_t{1}}})});
    const ValueId y = Node(Op::kQLinearMatMul, {codes, Real(0.02f), Zero(DType::kU8, 131), w, scale, zero, Real(0.1f),
                                                Zero(DType::kU8, 120)});
    return Dequantize(y, 0.1f, 120);
  }
  DType type;
  ValueId x, scale, zero, codes;
  ir::NodeId dynamic;
};

ir::TensorMap Inputs() {
  std::mt19937 rng(4);
  Tensor x = Tensor::Empty(DType::kF32, {2, 5, kIn});
  for (float& v : x.mutable_as<float>()) v = std::uniform_real_distribution<float>(-2.5f, 2.5f)(rng);
  return {{"x", x}};
}

int CountOf(const Graph& g, Op op) {
  return static_cast<int>(std::ranges::count_if(g.NodesInOrder(), [&](NodeId id) { return g.node(id).op == op; }));
}

// After the pass: every weight is s8 around 0. How many columns of x are there.
int64_t ColumnsAfter(Case c) {
  EXPECT_TRUE(ir::Inference::Run(c.g));
  Graph after = c.g;
  PassRun run;
  const auto changed = IntegerForm(after, run);
  EXPECT_TRUE(changed && *changed);
  ExpectSameBits(c.g, after, Inputs());
  int64_t columns = 0;
  for (NodeId id : after.NodesInOrder()) {
    const Node& n = after.node(id);
    const Tensor* w = n.op == Op::kDequantizeLinear ? after.ConstantOf(n.input(0)) : nullptr;
    if (w == nullptr) continue;
    EXPECT_EQ(w->dtype(), DType::kS8);
    for (const int64_t z : after.ConstantOf(n.input(2))->ToInts()) EXPECT_EQ(z, 0);
    EXPECT_TRUE(columns == 0 || columns == w->shape()[0]) << "products of one x";
    columns = w->shape()[0];
  }
  EXPECT_LE(CountOf(after, Op::kGather), 1);
  EXPECT_TRUE(ir::Inference::Run(after));
  EXPECT_TRUE(fusions::FuseQuantized(after, run));
  EXPECT_EQ(CountOf(after, Op::kQuantizedLinear), 2);
  ExpectSameBits(c.g, after, Inputs());
  return columns;
}

TEST(CenteredWeights, KeepTheirBitsAroundAnyZeroPoint) {
  for (const Form form : {Form::kOperator, Form::kCodes, Form::kDynamic}) {
    for (const int64_t zero : {0, 1, 90, 127, 128, 129, 200, 255}) {
      SCOPED_TRACE(std::to_string(static_cast<int>(form)) + ", " + std::to_string(zero));
      const int64_t columns = ColumnsAfter({form, DType::kU8, {zero}, 256});
      EXPECT_EQ(columns == kIn, zero == 128);  // both ends of the codes are there
      if (zero == 128) continue;
      EXPECT_EQ(ColumnsAfter({form, DType::kS8, {zero - 128}, 256}), columns);
    }
    ColumnsAfter({form, DType::kU8, {128, 0, 255, 77, 128, 150, 127}, 256});
    EXPECT_EQ(ColumnsAfter({form, DType::kU8, {110}, 100}), kIn + 1) << "one weight is beyond s8";
  }
}

TEST(CenteredWeights, OthersAreLeft) {
  const auto left = [](const std::function<void(Case&)>& change, Case c) {
    change(c);
    EXPECT_TRUE(ir::Inference::Run(c.g));
    PassRun run;
    const auto changed = IntegerForm(c.g, run);
    EXPECT_TRUE(changed && !*changed);
    return CountOf(c.g, Op::kGather);
  };
  EXPECT_EQ(left([](Case&) {}, {Form::kCodes, DType::kS8, {0}, 256}), 0) << "there is nothing to do";
  const auto by_channel = [](Case& c) {  // x has a scale for each of its columns, so none of them can be written again
    for (NodeId id : c.g.NodesInOrder()) {
      const Node n = c.g.node(id);
      if (n.op != Op::kDequantizeLinear || c.g.ConstantOf(n.input(0)) != nullptr) continue;
      c.g.SetAttr(id, "axis", int64_t{2});
      c.g.SetInput(id, 1, c.g.AddConstant(Tensor::F32({kIn}, std::vector<float>(kIn, 0.02f))));
      c.g.SetInput(id, 2, c.Bytes(DType::kU8, {kIn}, [](size_t) { return 131; }));
    }
  };
  EXPECT_EQ(left(by_channel, {Form::kCodes, DType::kU8, {100}, 256}), 0);
  const auto by_row = [](Case& c) {  // so has w for each of its rows, whose zero points are all the same
    for (NodeId id : c.g.NodesInOrder()) {
      const Node n = c.g.node(id);
      if (n.op != Op::kDequantizeLinear || c.g.ConstantOf(n.input(0)) == nullptr) continue;
      c.g.SetAttr(id, "axis", int64_t{-2});
      c.g.SetInput(id, 1, c.g.AddConstant(Tensor::F32({kIn}, std::vector<float>(kIn, 0.02f))));
      c.g.SetInput(id, 2, c.Bytes(DType::kU8, {kIn}, [](size_t) { return 100; }));
    }
  };
  EXPECT_EQ(left(by_row, {Form::kCodes, DType::kU8, {100}, 256}), 0);
}

}  // namespace
}  // namespace octavo::passes::vendor
