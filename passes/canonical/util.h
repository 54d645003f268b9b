// What the canonical passes share: short questions about a graph, and typed creation of nodes.
#ifndef OCTAVO_PASSES_CANONICAL_UTIL_H_
#define OCTAVO_PASSES_CANONICAL_UTIL_H_

#include <optional>
#include <vector>

#include "octavo/passes/pass.h"
#include "octavo/passes/rewriter.h"

namespace octavo::passes::canonical {

using ir::Attrs;
using ir::Dim;
using ir::DType;
using ir::SymShape;
using ir::Tensor;
using ir::Type;
using Ints = std::vector<int64_t>;

// Sweeps of one pass over the graph before it gives up on reaching a fixed point: a guard against rules that undo each
// other, which the tests' second run would show.
inline constexpr int kMaxSweeps = 16;

// --- questions -------------------------------------------------------------------------------------------------
inline const Type& TypeOf(const Graph& g, ValueId v) { return g.value(v).type; }
inline DType DTypeOf(const Graph& g, ValueId v) { return v.valid() ? g.value(v).type.dtype : DType::kUndefined; }
// Null where the rank is not known.
const SymShape* ShapeOf(const Graph& g, ValueId v);
// -1 where it is not known.
int64_t RankOf(const Graph& g, ValueId v);
// All elements of an integer Constant.
std::optional<Ints> ConstInts(const Graph& g, ValueId v);
// The only element of a numeric Constant of one element.
std::optional<double> ConstScalar(const Graph& g, ValueId v);
// The same, where arithmetic with x keeps x's rank: [1,1,1] makes three dims of two, and of a rank that is not known nobody knows.
std::optional<double> ConstScalarBeside(const Graph& g, ValueId v, ValueId x);
// Constant, or DequantizeLinear of a Constant: what a quantizer leaves of a weight.
bool IsConstantLike(const Graph& g, ValueId v);
// Made by DequantizeLinear, views aside: next to it a graph keeps its bits.
bool IsDequantized(const Graph& g, ValueId v);
// f16, bf16, f32, f64.
bool IsPlainFloat(DType d);
bool IsPlainInteger(DType d);  // signed and unsigned of 8 bits and more; not bool
bool IsNumber(const Dim& d, int64_t n);
// Reshape, Squeeze, Unsqueeze, Flatten: the same elements in the same order under another shape.
bool IsReshapeLike(Op op);
// One result element per position, operands broadcast (Where, Cast, Clip, comparisons included).
bool IsElementwise(Op op);
bool HasUses(const Graph& g, ValueId v);
// The MatMul that alone reads v, through views, as its first operand; invalid: there is none.
NodeId ProductBehind(const Graph& g, ValueId v);
// perm of a Transpose of that rank; the default is the reverse.
Ints PermOf(const Node& node, int64_t rank);
bool IsIdentityPerm(const Ints& perm);
// That of a Transpose that makes columns of rows.
Ints LastTwoSwapped(int64_t rank);
// The axes (not negative, sorted) that a Squeeze removes or an Unsqueeze adds (counted in the output).
std::optional<Ints> AxesOf(const Graph& g, const Node& node);
// Along the axis (not negative) alone, which stays.
bool ReducesAlong(const Graph& g, const Node& n, Op op, int64_t axis, int64_t rank);
SymShape Permuted(const SymShape& shape, const Ints& perm);
// Broadcast of shapes; unknown dims where it cannot be told.
SymShape BroadcastShapes(const std::vector<const SymShape*>& shapes);

// --- views -----------------------------------------------------------------------------------------------------
// A constant Reshape target that turns `in` into `out` (both of equal element count): 0 copies, numbers where known,
// at most one -1. Leading dims that stay are 0, so a head split reads [0,0,H,D] for static shapes too. Empty where two
// dims would have to be inferred, or where a 0 in `out` makes -1 ambiguous.
std::optional<Ints> ReshapeTarget(const SymShape& in, const SymShape& out);
// Splits of `fine` into consecutive non-empty groups whose products are the dims of `coarse`.
std::optional<std::vector<Ints>> GroupDims(const SymShape& fine, const SymShape& coarse);

// --- writing ---------------------------------------------------------------------------------------------------
// As Rewriter::Create, and the type is set, so that later rules of the same sweep know the shape.
ValueId Make(Rewriter& rw, Op op, std::vector<ValueId> inputs, Attrs attrs, Type type);
ValueId MakeInts(Rewriter& rw, Ints values);
ValueId MakeTranspose(Rewriter& rw, ValueId x, Ints perm);
// Whether MakeReshape can: every dim of `out` but one is a number or a dim of `in` or of `also`.
bool CanReshape(const SymShape& in, const SymShape& out, const SymShape& also = {});
// The target is a constant where ReshapeTarget has one, else it reads dims of x (Shape and Concat); with `also`, dims that x has not got are read from that
// instead of left to -1. Invalid where CanReshape says no.
ValueId MakeReshape(Rewriter& rw, ValueId x, const SymShape& out, ValueId also = {});
// Output 0 of `node` is replaced by `to`, and what is dead then is erased.
void ReplaceNode(Rewriter& rw, NodeId node, ValueId to);

}  // namespace octavo::passes::canonical

#endif  // OCTAVO_PASSES_CANONICAL_UTIL_H_
