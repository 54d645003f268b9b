// Inference on senseless nodes: any op with any inputs, sizes and attributes. A sentence or a type, never a crash (the
// sanitizer build is the judge), and a type never contradicts itself in a second run.
#include <gtest/gtest.h>

#include <random>

#include "octavo/ir/infer.h"
#include "octavo/ir/text.h"

namespace octavo::ir {
namespace {

class Senseless {
 public:
  explicit Senseless(uint64_t seed) : rng_(seed) {}

  Graph Make(Op op) {
    Graph g;
    std::vector<ValueId> values;
    for (size_t i = Below(9); i > 0; --i) values.push_back(Source(g));
    Attrs attrs;
    static const char* const kInts[] = {"axis",
                                        "to",
                                        "keepdims",
                                        "start",
                                        "end",
                                        "dtype",
                                        "batch_dims",
                                        "allowzero",
                                        "num_outputs",
                                        "blocksize",
                                        "N",
                                        "num_heads",
                                        "kv_num_heads",
                                        "q_num_heads",
                                        "out_rank",
                                        "octavo_captures",
                                        "num_scan_inputs",
                                        "ceil_mode",
                                        "stash_type",
                                        "output_dtype"};
    static const char* const kLists[] = {"perm",      "axes", "kernel_shape",    "strides",
                                         "dilations", "pads", "scan_input_axes", "scan_output_axes"};
    for (const char* name : kInts) {
      if (Below(3) == 0) attrs.Set(name, Number());
    }
    for (const char* name : kLists) {
      if (Below(3) == 0) attrs.Set(name, Numbers());
    }
    if (Below(2) == 0) attrs.Set("auto_pad", std::string("SAME_UPPER"));
    static const char* const kEquations[] = {"ij,jk->ik", "...i,...i->...", "",   "->", "i..j", ",,",
                                             "abc",       "...->...",       "..."};
    attrs.Set("equation", std::string(kEquations[Below(std::size(kEquations))]));
    if (Below(2) == 0) attrs.Set("value", Elements());
    for (const char* name : {"body", "then_branch", "else_branch"}) {
      if (Below(3) != 0) attrs.Set(name, GraphRef(std::make_shared<const Graph>(Body())));
    }
    const NodeId id = g.AddNode(op, values, Below(4), attrs);
    for (const ValueId v : g.node(id).outputs) g.AddOutput("o", v);
    return g;
  }

 private:
  size_t Below(size_t n) { return rng_() % n; }

  int64_t Number() {
    static const int64_t kOdd[] = {INT64_MIN, INT64_MAX, INT32_MAX, INT32_MIN, -1, 0, 1, 2, 1 << 30, 300};
    return Below(3) == 0 ? kOdd[Below(std::size(kOdd))] : static_cast<int64_t>(Below(6)) - 2;
  }
  std::vector<int64_t> Numbers() {
    std::vector<int64_t> out(Below(5));
    for (auto& e : out) e = Number();
    return out;
  }
  Tensor Elements() {
    std::vector<int64_t> v = Numbers();
    switch (Below(5)) {
      case 0:
        return Tensor::ScalarS64(Number());
      case 1:
        return Tensor::F32({3}, {1e30f, -0.5f, 2});
      case 2:
        return Tensor::Strings({1}, {"x"});
      case 3:
        return v.size() == 4 ? Tensor::S64({2, 2}, v) : Tensor();
      default:
        return Tensor::S64({static_cast<int64_t>(v.size())}, v);
    }
  }
  ValueId Source(Graph& g) {
    if (Below(6) == 0) return {};
    if (Below(2) == 0) {
      Tensor t = Elements();
      if (t.defined()) return g.AddConstant(std::move(t));
    }
    Type type;
    if (Below(8) != 0) type.dtype = Below(2) == 0 ? DType::kF32 : DType::kS64;
    if (Below(6) != 0) {
      type.shape.emplace();
      for (size_t i = Below(5); i > 0; --i) {
        const size_t kind = Below(4);
        type.shape->push_back(kind == 0 ? Dim() : kind == 1 ? Dim::Symbol(Below(2) == 0 ? "a" : "b") : Dim(Number()));
      }
    }
    const ValueId v = g.AddInput("x", type);
    if (Below(3) != 0 || type.dtype != DType::kF32) return v;
    return g.node(g.AddNode(Op::kShape, {v}, 1)).outputs[0];
  }
  Graph Body() {
    Graph g;
    std::vector<ValueId> values;
    for (size_t i = Below(4); i > 0; --i) values.push_back(g.AddInput("x", {}));
    if (!values.empty()) {
      values.push_back(g.node(g.AddNode(Op::kConcat, {values[0], values.back()}, 1)).outputs[0]);
    }
    for (size_t i = Below(4); i > 0 && !values.empty(); --i) g.AddOutput("o", values[Below(values.size())]);
    return g;
  }

  std::mt19937_64 rng_;
};

TEST(InferFuzz, SenselessNodesGiveTypesOrSentences) {
  int fine = 0;
  int refused = 0;
  for (size_t op = 0; op < static_cast<size_t>(Op::kOpaque); ++op) {
    for (uint64_t seed = 1; seed <= 150; ++seed) {
      SCOPED_TRACE(testing::Message() << InfoOf(static_cast<Op>(op)).name << " seed " << seed);
      Graph g = Senseless(seed * 1000 + op).Make(static_cast<Op>(op));
      const auto r = Inference::Run(g);
      if (!r) {
        ++refused;
        EXPECT_FALSE(r.error().message.empty());
        continue;
      }
      ++fine;
      const std::string once = ToText(g);
      const auto again = Inference::Run(g);
      ASSERT_TRUE(again.has_value()) << again.error().message << "\n" << once;
      EXPECT_EQ(ToText(g), once);
    }
  }
  EXPECT_GT(fine, 1000);
  EXPECT_GT(refused, 1000);
}

}  // namespace
}  // namespace octavo::ir
