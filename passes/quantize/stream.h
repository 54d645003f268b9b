// The residual stream of a transformer: values of one width that are sums of each other and of what products give, and that norms and products read.
#ifndef OCTAVO_PASSES_QUANTIZE_STREAM_H_
#define OCTAVO_PASSES_QUANTIZE_STREAM_H_

#include <compare>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "octavo/passes/pass.h"

namespace octavo::passes::quantize {

// An operand.
struct Slot {
  NodeId node;
  size_t slot;
  auto operator<=>(const Slot&) const = default;
};

bool IsNorm(const Node& n);
size_t GammaSlot(const Node& n);  // beta's is behind it
// A constant of f32; null: something else.
const ir::Tensor* Floats(const Graph& g, ValueId v);
// The last dimension; -1: not a number.
int64_t WidthOf(const Graph& g, ValueId v);

// What changes where a whole stream is multiplied by one orthogonal matrix R.
class Stream {
 public:
  Stream(const Graph& g, int64_t width) : g_(g), width_(width) {}

  // From the operand of a norm to everything that turns with it. False: a part of it cannot.
  bool Follow(NodeId norm);

  std::set<NodeId> norms;           // hand on rows without gamma and beta, turned
  std::map<Slot, ValueId> columns;  // constants whose last axis turns, and the vector that scales it first
  std::map<Slot, NodeId> rows;      // weights of Linears whose first axis turns, and the norm in front of them
  std::set<Slot> entries;           // operands that are not turned, so that a product with R stands in front
  // Turned values, and what else reads them, behind a product with R'; that is graph outputs, too. Values behind a norm, and the norm.
  std::map<ValueId, std::vector<Slot>> exits, ends;
  std::map<ValueId, NodeId> norm_of;    // of the keys of `ends`
  std::map<ValueId, ValueId> replaced;  // products times a vector by the products, whose columns have taken it

  // Elements of the weights that turn, and of the products that come in.
  int64_t Weights() const;
  int64_t Products() const;

 private:
  // A product, perhaps with its bias, times a vector.
  struct ScaledLinear {
    size_t slot;  // of the vector
    std::optional<Slot> bias;
    NodeId product;
  };

  void Norm(NodeId id);
  void Behind(ValueId y, NodeId norm);
  bool HasVectors(const Node& norm) const;
  bool IsLinear(Slot s) const;
  void Operand(Slot s);
  void Take(ValueId v);
  bool Turns(ValueId v) const;
  bool SameWidth(const Node& n) const;
  std::optional<size_t> Scalar(const Node& n) const;
  std::optional<ScaledLinear> Scaled(const Node& n) const;
  bool IsView(const Node& n) const;
  void From(ValueId v);
  void Into(ValueId v, Slot s);

  const Graph& g_;
  int64_t width_;
  bool legal_ = true;
  std::vector<ValueId> work_;
  std::set<ValueId> turned_;
};

}  // namespace octavo::passes::quantize

#endif  // OCTAVO_PASSES_QUANTIZE_STREAM_H_
