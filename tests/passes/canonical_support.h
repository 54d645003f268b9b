// Small graphs for the tests of the canonical passes: built in a line per node, run on random data before and after.
#ifndef OCTAVO_TESTS_PASSES_CANONICAL_SUPPORT_H_
#define OCTAVO_TESTS_PASSES_CANONICAL_SUPPORT_H_

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "octavo/ir/interpret.h"
#include "octavo/ir/text.h"
#include "octavo/ir/verify.h"
#include "octavo/passes/canonical/canonical.h"

namespace octavo::passes::canonical {

using ir::Attrs;
using ir::Dim;
using ir::DType;
using ir::SymShape;
using ir::Tensor;
using Ints = std::vector<int64_t>;
using PassFn = Result<bool> (*)(Graph&, PassRun&);

inline Dim Sym(std::string_view name) { return Dim::Symbol(name); }

struct Builder {
  ir::Graph g;
  ValueId In(const char* name, SymShape shape, DType dtype = DType::kF32) {
    return g.AddInput(name, ir::Type{dtype, std::move(shape)});
  }
  ValueId Op1(Op op, std::vector<ValueId> in, Attrs attrs = {}) {
    const NodeId n = g.AddNode(op, std::move(in), 1, std::move(attrs));
    g.SetOrigin(n, {"node" + std::to_string(n.index)});
    return g.node(n).output();
  }
  ValueId Axis(Ints v) {
    const int64_t n = static_cast<int64_t>(v.size());
    return g.AddConstant(Tensor::S64({n}, std::move(v)));
  }
  ValueId I(int64_t v) { return g.AddConstant(Tensor::ScalarS64(v)); }
  ValueId F(float v) { return g.AddConstant(Tensor::ScalarF32(v)); }
  // A weight with different values everywhere.
  ValueId W(ir::Shape shape, float start = 0.1f) {
    std::vector<float> v(static_cast<size_t>(ir::ElementCount(shape)));
    for (size_t i = 0; i < v.size(); ++i) v[i] = start + 0.37f * static_cast<float>((i * 7) % 11) - 1.5f;
    return g.AddConstant(Tensor::F32(std::move(shape), std::move(v)));
  }
  ValueId Reshape(ValueId x, Ints target) { return Op1(Op::kReshape, {x, Axis(std::move(target))}); }
  ValueId Transpose(ValueId x, Ints perm) { return Op1(Op::kTranspose, {x}, Attrs{{"perm", std::move(perm)}}); }
  ValueId Unsqueeze(ValueId x, Ints axes) { return Op1(Op::kUnsqueeze, {x, Axis(std::move(axes))}); }
  // Dim `axis` of x as a scalar, or as a vector of one.
  ValueId DimOf(ValueId x, int64_t axis, bool vector = true) {
    const ValueId d = Op1(Op::kGather, {Op1(Op::kShape, {x}), I(axis)}, Attrs{{"axis", int64_t{0}}});
    return vector ? Unsqueeze(d, {0}) : d;
  }
  ValueId Concat(std::vector<ValueId> v, int64_t axis = 0) {
    return Op1(Op::kConcat, std::move(v), Attrs{{"axis", axis}});
  }
  ValueId Cast(ValueId x, DType to) { return Op1(Op::kCast, {x}, Attrs{{"to", static_cast<int64_t>(to)}}); }
  void Out(ValueId v, const char* name = "y") { g.AddOutput(name, v); }
};

inline size_t Count(const std::string& ops, const std::string& op) {
  size_t count = 0;
  for (size_t at = 0; (at = (" " + ops + " ").find(" " + op + " ", at)) != std::string::npos; ++at) ++count;
  return count;
}

// "Reshape Transpose MatMul": the ops in order, without constants.
inline std::string Ops(const Graph& g) {
  std::string s;
  for (NodeId id : g.NodesInOrder()) {
    if (g.node(id).op == Op::kConstant) continue;
    s += (s.empty() ? "" : " ") + std::string(ir::InfoOf(g.node(id).op).name);
  }
  return s;
}

inline uint32_t Seed() {
  static const uint32_t seed = [] {
    const uint32_t s = std::random_device{}();
    ::testing::Test::RecordProperty("seed", static_cast<int>(s));
    printf("random seed %u\n", s);
    return s;
  }();
  return seed;
}

// Random inputs: floats in [-2, 2), integers in [0, 3), bools.
inline ir::TensorMap RandomInputs(const Graph& g, const std::map<std::string, int64_t>& sizes, uint32_t salt) {
  std::mt19937 rng(Seed() + salt);
  ir::TensorMap in;
  for (ValueId v : g.inputs()) {
    const ir::Type& t = g.value(v).type;
    ir::Shape shape;
    for (const Dim& d : *t.shape) {
      const auto size = d.Evaluate([&](std::string_view s) -> std::optional<int64_t> {
        const auto it = sizes.find(std::string(s));
        return it == sizes.end() ? std::nullopt : std::optional(it->second);
      });
      shape.push_back(size.value_or(3));
    }
    Tensor x = Tensor::Zeros(t.dtype, shape);
    if (t.dtype == DType::kF32) {
      for (float& f : x.mutable_as<float>()) f = std::uniform_real_distribution<float>(-2, 2)(rng);
    } else if (t.dtype == DType::kS64) {
      for (int64_t& i : x.mutable_as<int64_t>()) i = static_cast<int64_t>(rng() % 3);
    } else {
      for (uint8_t& i : x.mutable_as<uint8_t>()) i = static_cast<uint8_t>(t.dtype == DType::kBool ? rng() % 2 : rng());
    }
    in[g.value(v).name] = x;
  }
  return in;
}

inline double WorstDifference(const Tensor& a, const Tensor& b) {
  if (a.shape() != b.shape() || a.dtype() != b.dtype()) return INFINITY;
  double worst = 0;
  for (int64_t i = 0; i < a.size(); ++i) {
    const double x = a.GetDouble(i), y = b.GetDouble(i);
    if (x == y || (std::isnan(x) && std::isnan(y))) continue;
    worst = std::max(worst, std::isnan(x - y) ? INFINITY : std::abs(x - y));
  }
  return worst;
}

inline double Largest(const Tensor& a) {
  double largest = 0;
  for (int64_t i = 0; i < a.size(); ++i) {
    if (std::isfinite(a.GetDouble(i))) largest = std::max(largest, std::abs(a.GetDouble(i)));
  }
  return largest;
}

// Runs `pass`, then checks: legal, idempotent, outputs and their names kept, and the same results for two sets of sizes
// (same bits where `tolerance` is 0; it is for numbers of up to 1, and grows with larger ones). Returns the ops afterwards.
inline std::string Check(const Graph& before, PassFn pass, double tolerance = 0) {
  Graph after = before;
  PassRun context;
  auto result = pass(after, context);
  if (!result) return "error: " + result.error().message;
  const Status legal = ir::VerifyStatus(after);
  EXPECT_TRUE(legal) << legal.error().message;
  Graph again = after;
  auto second = pass(again, context);
  EXPECT_TRUE(second && !*second) << "a second run changes the graph again\n" << ir::ToText(after) << ir::ToText(again);
  const ir::TextOptions bare{.types = false};  // inference alone is no change
  EXPECT_EQ(*result, ir::ToText(before, bare) != ir::ToText(after, bare))
      << "the pass does not say rightly whether it changed";
  EXPECT_EQ(before.outputs().size(), after.outputs().size());
  uint32_t salt = 0;
  for (const auto& sizes :
       {std::map<std::string, int64_t>{{"b", 2}, {"s", 5}, {"t", 4}}, {{"b", 1}, {"s", 1}, {"t", 1}}}) {
    const ir::TensorMap in = RandomInputs(before, sizes, ++salt);
    const auto want = ir::Interpret(before, in), got = ir::Interpret(after, in);
    EXPECT_TRUE(want) << want.error().message;
    EXPECT_TRUE(got) << got.error().message << "\n" << ir::ToText(after);
    if (!want || !got) continue;
    for (size_t i = 0; i < want->size(); ++i) {
      EXPECT_EQ(before.outputs()[i].name, after.outputs()[i].name);
      if (tolerance == 0) {
        EXPECT_TRUE((*want)[i].SameBits((*got)[i]))
            << "output " << i << " differs by " << WorstDifference((*want)[i], (*got)[i]) << "\n"
            << ir::ToText(after);
      } else {
        EXPECT_LE(WorstDifference((*want)[i], (*got)[i]), tolerance * std::max(1.0, Largest((*want)[i])));
      }
    }
  }
  return Ops(after);
}

}  // namespace octavo::passes::canonical

#endif  // OCTAVO_TESTS_PASSES_CANONICAL_SUPPORT_H_
