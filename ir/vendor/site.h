// The place of one vendor node while its standard form is built in front of it.
#ifndef OCTAVO_IR_VENDOR_SITE_H_
#define OCTAVO_IR_VENDOR_SITE_H_

#include <format>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "octavo/ir/graph.h"

namespace octavo::ir::vendor {

class Site {
 public:
  // `typed`: a copy of the graph in which types were inferred; values made since then are not in it.
  Site(Graph& graph, const Graph& typed, NodeId node);

  // --- what is there ---------------------------------------------------------------------------------------------
  const Attrs& attrs() const { return node_.attrs; }
  const std::string& op() const { return node_.op_type; }
  bool Has(size_t input) const { return node_.input(input).valid(); }
  ValueId In(size_t input) const { return node_.input(input); }
  // Somebody reads output `i`.
  bool Wants(size_t i) const;
  Type TypeOf(ValueId v) const;
  DType DTypeOf(ValueId v) const { return TypeOf(v).dtype; }
  int64_t Rank(ValueId v) const;                           // -1: not known
  int64_t SizeOf(ValueId v, int axis) const;               // -1: not known; a negative axis counts from the back
  bool SameSize(ValueId a, ValueId b, size_t axis) const;  // provably; of an axis from the front
  const Tensor* Const(ValueId v) const { return v.valid() ? graph_.ConstantOf(v) : nullptr; }
  // Nothing but this node reads it, and that once.
  bool IsReadOnce(ValueId v) const { return graph_.HasOneUse(v); }
  template <typename... Args>
  std::unexpected<Error> Refuse(std::format_string<Args...> text, Args&&... args) const {
    return RefuseText(std::format(text, std::forward<Args>(args)...));
  }

  // --- what is made ----------------------------------------------------------------------------------------------
  ValueId Make(Op op, std::vector<ValueId> inputs, Attrs attrs = {});
  std::vector<ValueId> MakeN(Op op, std::vector<ValueId> inputs, size_t outputs, Attrs attrs = {});
  ValueId Constant(Tensor tensor);
  ValueId Float(float v) { return Constant(Tensor::ScalarF32(v)); }
  ValueId Int(int64_t v) { return Constant(Tensor::ScalarS64(v)); }
  ValueId Ints(std::vector<int64_t> v);
  ValueId Reshape(ValueId x, std::vector<int64_t> shape) { return Make(Op::kReshape, {x, Ints(std::move(shape))}); }
  ValueId Transpose(ValueId x, std::vector<int64_t> perm);
  ValueId Unsqueeze(ValueId x, std::vector<int64_t> axes) { return Make(Op::kUnsqueeze, {x, Ints(std::move(axes))}); }
  ValueId Cast(ValueId x, DType to);
  // Size of one axis at run time: s64 [1], or a scalar.
  ValueId Dim(ValueId x, int64_t axis);
  ValueId DimScalar(ValueId x, int64_t axis) { return Make(Op::kSqueeze, {Dim(x, axis), Ints({0})}); }
  // 0, 1, ... n - 1 as s64; n is a scalar.
  ValueId Count(ValueId n) { return Make(Op::kRange, {Int(0), n, Int(1)}); }
  // A scale or zero point of one element as a scalar; others as they are.
  ValueId AsScalar(ValueId v);
  ValueId Dequantize(ValueId x, ValueId scale, ValueId zero, int64_t axis = 1);
  ValueId Quantize(ValueId x, ValueId scale, ValueId zero);

  // Refuse a node with inputs beyond `known` or without one that is needed; one whose outputs are read but were not returned.
  Status CheckInputs(size_t known, std::span<const size_t> needed) const;
  Status CheckOutputs() const;

  // Output `i` of the node is `v`.
  void Return(size_t i, ValueId v) { returned_.emplace_back(i, v); }

  // --- the end: either replaces the node, or takes back all that was made ------------------------------------------
  void Commit();
  void Undo();

 private:
  std::unexpected<Error> RefuseText(const std::string& text) const;

  Graph& graph_;
  const Graph& typed_;
  NodeId id_;
  Node node_;  // a copy: the store may grow
  NodeId constants_before_;
  std::vector<NodeId> made_;
  std::vector<std::pair<size_t, ValueId>> returned_;
};

}  // namespace octavo::ir::vendor

#endif  // OCTAVO_IR_VENDOR_SITE_H_
