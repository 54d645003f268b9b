// A graph that is run while it is built: what every node gives is known, so that the next can be chosen to fit, and a node that the interpreter refuses
// is taken back.
#ifndef OCTAVO_TESTS_PASSES_VARIANT_BUILDER_H_
#define OCTAVO_TESTS_PASSES_VARIANT_BUILDER_H_

#include <map>
#include <random>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "octavo/tests/passes/variants.h"

namespace octavo::passes {

// The graph at hand cannot go on: the maker begins anew.
struct Invalid : std::runtime_error {
  using std::runtime_error::runtime_error;
};

class VariantBuilder {
 public:
  explicit VariantBuilder(uint64_t seed) : rng_(seed) { v_.graph.info.opsets[""] = 23; }

  int64_t Pick(int64_t lo, int64_t hi) { return std::uniform_int_distribution<int64_t>(lo, hi)(rng_); }
  bool Chance(int percent) { return Pick(1, 100) <= percent; }
  template <typename T>
  T Of(std::initializer_list<T> all) {
    return all.begin()[Pick(0, static_cast<int64_t>(all.size()) - 1)];
  }

  // The element type of what is built now.
  ir::DType type = ir::DType::kF32;

  const ir::Shape& Shape(ir::ValueId v) const { return values_.at(v).tensor.shape(); }
  int64_t Rank(ir::ValueId v) const { return static_cast<int64_t>(Shape(v).size()); }
  const ir::Tensor& Value(ir::ValueId v) const { return values_.at(v).tensor; }

  ir::ValueId Input(const ir::Tensor& t);
  ir::ValueId Constant(ir::Tensor t) {
    const ir::ValueId v = v_.graph.AddConstant(t);
    values_[v] = {std::move(t), nullptr};
    return v;
  }
  // An input or a constant.
  ir::ValueId Given(const ir::Tensor& t, int percent_constant) {
    return Chance(percent_constant) ? Constant(t) : Input(t);
  }
  // All outputs; throws Invalid.
  std::vector<ir::ValueId> Nodes(ir::Op op, std::vector<ir::ValueId> in, size_t outputs, ir::Attrs attrs = {});
  ir::ValueId Node(ir::Op op, std::vector<ir::ValueId> in, ir::Attrs attrs = {}) {
    return Nodes(op, std::move(in), 1, std::move(attrs))[0];
  }
  // Two operands in either order.
  ir::ValueId Either(ir::Op op, ir::ValueId a, ir::ValueId b) {
    return Chance(50) ? Node(op, {a, b}) : Node(op, {b, a});
  }

  ir::Tensor As(const ir::Tensor& t, ir::DType to);
  // Normal numbers in `type`.
  ir::Tensor Random(ir::Shape shape, float scale = 1);
  ir::ValueId Ints(std::vector<int64_t> v) {
    const auto n = static_cast<int64_t>(v.size());
    return Constant(ir::Tensor::S64({n}, std::move(v)));
  }
  // A number in `type`, mostly of rank 0.
  ir::ValueId Number(double value);
  // The same a few ulp away, now and then.
  ir::ValueId Nearly(double value) {
    return Number(Chance(92) ? value : value * Of({1 + 1e-7, 1 - 1e-7, 1.0001, 1.1}));
  }
  // A whole exponent, now and then another one. One that is nearly whole makes NaN of a negative base and 0 of -0, and kernels may round to -0.
  ir::ValueId Exponent(double value) { return Number(Chance(92) ? value : value + Of({-1.0, 1.0, 2.0})); }
  // An axis, from either end.
  int64_t Axis(int64_t axis, int64_t rank) { return Chance(50) ? axis : axis - rank; }

  void Output(ir::ValueId v) { v_.graph.AddOutput("y" + std::to_string(v_.graph.outputs().size()), v); }
  Variant Finish(std::string kind);
  Variant& variant() { return v_; }

 private:
  Variant v_;
  std::mt19937_64 rng_;
  std::map<ir::ValueId, ir::RtValue> values_;
};

}  // namespace octavo::passes

#endif  // OCTAVO_TESTS_PASSES_VARIANT_BUILDER_H_
