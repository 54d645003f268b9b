#include "octavo/fuzz/work.h"

#include <algorithm>
#include <map>
#include <string>

namespace octavo::fuzz {

namespace {

using ir::Graph;
using ir::Node;
using ir::Op;
using ir::ValueId;

class Sizes {
 public:
  Sizes(const Graph& typed, const ir::TensorMap& inputs) : graph_(typed) {
    for (const ValueId v : typed.inputs()) {
      const auto given = inputs.find(typed.value(v).name);
      const auto& shape = typed.value(v).type.shape;
      if (given == inputs.end() || !shape) continue;
      for (size_t i = 0; i < std::min(shape->size(), given->second.shape().size()); ++i) {
        if (const std::string symbol = (*shape)[i].symbol(); !symbol.empty())
          symbols_[symbol] = given->second.shape()[i];
      }
    }
  }

  // From the end where `axis` is negative; 1 where nothing is known.
  double Dim(ValueId v, int axis) const {
    if (!v.valid() || !graph_.value(v).type.shape) return 1;
    const ir::SymShape& shape = *graph_.value(v).type.shape;
    const auto rank = static_cast<int>(shape.size());
    const int i = axis < 0 ? axis + rank : axis;
    if (i < 0 || i >= rank) return 1;
    const auto known = shape[static_cast<size_t>(i)].Evaluate([&](std::string_view name) -> std::optional<int64_t> {
      const auto at = symbols_.find(name);
      return at == symbols_.end() ? std::nullopt : std::optional(at->second);
    });
    return static_cast<double>(std::max<int64_t>(known.value_or(1), 0));
  }

  int Rank(ValueId v) const {
    return v.valid() && graph_.value(v).type.shape ? static_cast<int>(graph_.value(v).type.shape->size()) : 0;
  }

  double Elements(ValueId v) const {
    double elements = 1;
    for (int i = 0; i < Rank(v); ++i) elements *= Dim(v, i);
    return elements;
  }

  // Multiply-adds for one element of a product's output.
  double Depth(const Node& node) const {
    const ValueId a = node.input(0), b = node.input(1);
    switch (node.op) {
      case Op::kMatMul:
      case Op::kMatMulInteger:
      case Op::kQLinearMatMul:
      case Op::kLinearBlocked:
      case Op::kQuantizedLinear:
        return Dim(a, -1);
      case Op::kGemm:
        return std::max(Dim(a, 0), Dim(a, 1));
      case Op::kConv:
      case Op::kConvInteger:
        return Elements(b) / std::max(1.0, Dim(b, 0));
      case Op::kConvTranspose:  // each element of an image meets all filters, however small the result is
        // (by a walk, where no kernel serves it, which takes some ten times as long as a product)
        return 10 * Elements(a) * Elements(b) / std::max(1.0, Dim(b, 0)) / std::max(1.0, Elements(node.output()));
      case Op::kMaxPool:
      case Op::kAveragePool:
      case Op::kLpPool: {
        double window = 1;
        for (const int64_t size : node.attrs.Ints("kernel_shape")) window *= static_cast<double>(size);
        return std::max(1.0, window);
      }
      case Op::kQLinearConv:
        return Elements(node.input(3)) / std::max(1.0, Dim(node.input(3), 0));
      case Op::kEinsum: {
        double most = 1;
        for (int i = 0; i < Rank(a); ++i) most = std::max(most, Dim(a, i));
        return most;
      }
      case Op::kSdpa:
      case Op::kAttention:  // a product for the scores and one for the output
        return 2 * std::max(Dim(b, -2), Dim(a, -1));
      default:
        return 0;
    }
  }

 private:
  const Graph& graph_;
  std::map<std::string, int64_t, std::less<>> symbols_;
};

}  // namespace

double DeclaredWork(const Graph& typed, const ir::TensorMap& inputs) {
  const Sizes sizes(typed, inputs);
  double work = 0;
  for (const ir::NodeId id : typed.NodesInOrder()) {
    const Node& node = typed.node(id);
    if (node.op == Op::kConstant) continue;
    for (const ValueId v : node.inputs) work += v.valid() ? 10 * sizes.Elements(v) : 0;
    for (const ValueId v : node.outputs) work += v.valid() ? 10 * sizes.Elements(v) : 0;
    work += sizes.Elements(node.output()) * sizes.Depth(node);
  }
  return work;
}

}  // namespace octavo::fuzz
