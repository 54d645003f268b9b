// Inference over chains of nodes as exporters write them, and over many.
#include <gtest/gtest.h>

#include <chrono>

#include "octavo/ir/infer.h"
#include "octavo/ir/text.h"

namespace octavo::ir {
namespace {

// A graph under construction; "Type" prints as ToString prints it.
struct Builder {
  Graph g;
  std::optional<Inference> inference;

  ValueId In(std::string name, DType dtype, std::initializer_list<const char*> dims) {
    SymShape shape;
    for (const char* d : dims) shape.push_back(*Dim::Parse(d));
    return g.AddInput(std::move(name), {dtype, shape});
  }
  ValueId Ints(std::vector<int64_t> v) {
    const auto n = static_cast<int64_t>(v.size());
    return g.AddConstant(Tensor::S64({n}, std::move(v)));
  }
  ValueId Int(int64_t v) { return g.AddConstant(Tensor::ScalarS64(v)); }
  ValueId Add(Op op, std::vector<ValueId> inputs, Attrs attrs = {}) {
    return g.node(g.AddNode(op, std::move(inputs), 1, std::move(attrs))).outputs[0];
  }
  void Run() {
    auto r = Inference::Run(g);
    ASSERT_TRUE(r.has_value()) << r.error().message;
    inference = std::move(*r);
  }
  std::string Of(ValueId v) { return ToString(g.value(v).type); }
  std::string Elements(ValueId v) const {
    const SymContents* c = inference->Contents(v);
    return c == nullptr ? "none" : ToString(*c);
  }
};

constexpr DType kF = DType::kF32;

// The chain that TorchScript writes for x.view(b, s, -1, 32).transpose(1, 2).
TEST(InferChains, HeadSplitOfTorchScript) {
  Builder b;
  const ValueId x = b.In("x", kF, {"batch", "seq", "384"});
  const ValueId shape = b.Add(Op::kShape, {x});
  std::vector<ValueId> parts;
  for (int64_t i = 0; i < 2; ++i) {
    parts.push_back(b.Add(Op::kUnsqueeze, {b.Add(Op::kGather, {shape, b.Int(i)}), b.Ints({0})}));
  }
  parts.push_back(b.Ints({-1}));
  parts.push_back(b.Ints({32}));
  const ValueId target = b.Add(Op::kConcat, parts, {{"axis", int64_t{0}}});
  const ValueId split = b.Add(Op::kReshape, {x, target});
  const ValueId turned = b.Add(Op::kTranspose, {split}, {{"perm", std::vector<int64_t>{0, 2, 1, 3}}});
  const ValueId keys = b.Add(Op::kTranspose, {split}, {{"perm", std::vector<int64_t>{0, 2, 3, 1}}});
  const ValueId scores = b.Add(Op::kMatMul, {turned, keys});
  // Merge by the shape of the attention output, which is another tensor.
  const ValueId out =
      b.Add(Op::kTranspose, {b.Add(Op::kMatMul, {scores, turned})}, {{"perm", std::vector<int64_t>{0, 2, 1, 3}}});
  const ValueId s = b.Add(Op::kShape, {out});
  const ValueId heads = b.Add(Op::kGather, {s, b.Int(2)});
  const ValueId width = b.Add(Op::kGather, {s, b.Int(3)});
  const ValueId all = b.Add(Op::kUnsqueeze, {b.Add(Op::kMul, {heads, width}), b.Ints({0})});
  const ValueId first = b.Add(Op::kSlice, {s, b.Ints({0}), b.Ints({2})});
  const ValueId merged = b.Add(Op::kReshape, {out, b.Add(Op::kConcat, {first, all}, {{"axis", int64_t{0}}})});
  b.Run();
  EXPECT_EQ(b.Elements(target), "[batch,seq,-1,32]");
  EXPECT_EQ(b.Of(split), "f32[batch,seq,12,32]");
  EXPECT_EQ(b.Of(turned), "f32[batch,12,seq,32]");
  EXPECT_EQ(b.Of(scores), "f32[batch,12,seq,seq]");
  EXPECT_EQ(b.Of(merged), "f32[batch,seq,384]");
}

// 10,000 nodes of shape chains: near linear, a few microseconds a node at most (the limit leaves room for slow machines
// and sanitizers).
TEST(InferChains, LargeGraphsAreQuick) {
  Builder b;
  ValueId x = b.In("x", kF, {"batch", "seq", "384"});
  while (b.g.node_count() < 10000) {
    const ValueId shape = b.Add(Op::kShape, {x});
    const ValueId head = b.Add(Op::kSlice, {shape, b.Ints({0}), b.Ints({2})});
    const ValueId target = b.Add(Op::kConcat, {head, b.Ints({12, 32})}, {{"axis", int64_t{0}}});
    const ValueId split = b.Add(Op::kReshape, {x, target});
    const ValueId back = b.Add(Op::kReshape, {split, b.Ints({0, 0, -1})});
    x = b.Add(Op::kAdd, {back, x});
  }
  const auto start = std::chrono::steady_clock::now();
  b.Run();
  const double us = std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start).count();
  RecordProperty("us_per_node", std::to_string(us / static_cast<double>(b.g.node_count())));
  EXPECT_LT(us / static_cast<double>(b.g.node_count()), 200);
  EXPECT_EQ(b.Of(x), "f32[batch,seq,384]");
}

// A name of 100 KB in the sizes of 1,000 values would take 100 MB of a file of 130 KB.
TEST(InferChains, LongNamesAreForgottenBeyondABudget) {
  Builder b;
  const ValueId x = b.g.AddInput("x", {kF, SymShape{Dim::Symbol(std::string(100'000, 'n')), 4}});
  const ValueId first = b.Add(Op::kRelu, {x});
  ValueId y = first;
  for (int i = 0; i < 1000; ++i) y = b.Add(Op::kRelu, {y});
  b.Run();
  EXPECT_GT(b.Of(first).size(), 100'000u);
  EXPECT_EQ(b.Of(y), "f32[?,4]");
}

}  // namespace
}  // namespace octavo::ir
