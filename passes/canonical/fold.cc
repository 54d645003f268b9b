// fold: what can be known before the run is not computed in it.
// Before: Reshape(x, Concat(Gather(Shape(h), 0), Gather(Shape(h), 1), [-1], [32]))     h [batch, seq, 384]
// After:  Reshape(x, Constant [0, 0, 12, 32])
// Untouched: DequantizeLinear of a constant (it says how a weight is stored; a single number is none, nor is a bias of 32 bits), control flow, octavo's own ops, results
// that would bloat the model. Integer arithmetic is the interpreter's: Div, Mod and Pow as Python does them on ints.
#include "octavo/passes/canonical/fold.h"

#include <algorithm>
#include <cmath>

#include "octavo/ir/functions.h"
#include "octavo/ir/interpret.h"
#include "octavo/passes/canonical/canonical.h"

namespace octavo::passes::canonical {

namespace {

constexpr double kSmallBytes = 64 * 1024;           // always folded: no model notices 64 KB
constexpr double kLargestBytes = 64.0 * (1 << 20);  // a result above it stays a computation
constexpr double kLargestGrowth = 4;
constexpr double kSmallTable = 1 << 20, kShareOfModel = 1.0 / 16;  // what a table of positions may add to the file
constexpr double kMostMultiplies = 1 << 28;                        // about a second in the interpreter's plain loops
constexpr double kMostOfMatMul = 1 << 30;                          // whose loops are vectors: 0.2 s

bool IsFoldable(const Graph& g, const Node& n) {
  switch (n.op) {
    case Op::kDequantizeLinear: {
      const Tensor* codes = g.ConstantOf(n.input(0));
      return codes != nullptr && (codes->size() == 1 || codes->dtype() == DType::kS32);
    }
    case Op::kConstant:
    case Op::kIf:
    case Op::kLoop:
    case Op::kScan:
    case Op::kDropout:
      return false;
    default:
      return !n.inputs.empty() && ir::CanEval(n.op) && !ir::HasBody(n.op);
  }
}

// Bytes of the results by inference; nullopt where a shape is not known.
std::optional<double> ResultBytes(const Graph& g, const Node& n) {
  double bytes = 0;
  for (ValueId v : n.outputs) {
    if (!v.valid()) continue;
    const Type& t = g.value(v).type;
    if (!t.shape) return {};
    double count = 1;
    for (const Dim& d : *t.shape) {
      if (!d.is_number()) return {};
      count *= static_cast<double>(d.number());
    }
    bytes += count * quant::BitsOf(t.dtype) / 8;
  }
  return bytes;
}

bool WorthEvaluating(const Graph& g, const Node& n) {
  double in_bytes = 0, product = 1;
  for (ValueId v : n.inputs) {
    if (!v.valid()) continue;
    const Tensor& t = *g.ConstantOf(v);
    in_bytes += static_cast<double>(t.byte_size());
    product *= static_cast<double>(t.size()) + 1;
  }
  // These replace one constant by another of the same size: the old one is freed.
  if (n.op == Op::kTranspose || n.op == Op::kIdentity || IsReshapeLike(n.op)) return true;
  // At most M*K * K*N elements in, M*K*N multiplies: bounded by the product of the sizes.
  const bool product_op = n.op == Op::kMatMul || n.op == Op::kGemm || n.op == Op::kConv || n.op == Op::kEinsum;
  const auto out_bytes = ResultBytes(g, n);
  if (n.op == Op::kMatMul && out_bytes) {
    const Tensor& a = *g.ConstantOf(n.input(0));
    const double depth = a.rank() > 0 ? static_cast<double>(a.shape().back()) : 1;
    if (*out_bytes / static_cast<double>(sizeof(float)) * depth > kMostOfMatMul) return false;
  } else if (product_op && product > kMostMultiplies * 1024 && in_bytes > kSmallBytes) {
    return false;
  }
  // Results whose size depends on the data and is not inferred are never larger than a few times the input, but for
  // these.
  if (!out_bytes) {
    return in_bytes <= kSmallBytes && n.op != Op::kRange && n.op != Op::kExpand && n.op != Op::kTile &&
           n.op != Op::kConstantOfShape && n.op != Op::kPad && n.op != Op::kOneHot && n.op != Op::kResize;
  }
  if (*out_bytes <= kSmallBytes) return true;
  // Tables of positions would be made in each run, and their products quantized: coordinates that become hundreds of channels (Swin V2), embeddings that are
  // resized or repeated (SAM 2). What is behind them is mostly smaller again.
  const bool floats = g.value(n.output()).type.dtype == DType::kF32;
  const bool table = floats && (product_op || n.op == Op::kResize || n.op == Op::kTile);
  const double share = table ? std::max(kSmallTable, kShareOfModel * static_cast<double>(g.info.bytes)) : 0;
  return *out_bytes <= kLargestBytes && *out_bytes <= std::max(kLargestGrowth * in_bytes, share);
}

bool FoldNode(Rewriter& rw, NodeId id, const ir::Inference& inference) {
  const Graph& g = rw.graph();
  const Node& n = g.node(id);
  if (n.op == Op::kConstant) return false;
  rw.At(id, {id});
  if (const ValueId same = UnchangedInput(g, n); same.valid()) {
    ReplaceNode(rw, id, same);
    return true;
  }
  return FoldContents(rw, id, inference) || FoldConstants(rw, id) || SimplifyCastOrConcat(rw, id) ||
         FoldReshapeTarget(rw, id) || FoldCopiedDims(rw, id) || FoldExpandTarget(rw, id) || InlineIf(rw, id) ||
         RootShapeAtInput(rw, id, inference);
}

}  // namespace

bool FoldConstants(Rewriter& rw, NodeId id) {
  const Graph& g = rw.graph();
  const Node& n = g.node(id);
  if (!IsFoldable(g, n)) return false;
  std::vector<ir::RtValue> inputs;
  for (ValueId v : n.inputs) {
    const Tensor* t = g.ConstantOf(v);
    if (v.valid() && t == nullptr) return false;
    inputs.push_back({v.valid() ? *t : Tensor{}, nullptr});
  }
  if (!WorthEvaluating(g, n)) return false;
  const auto results = ir::EvalNode(g, n, inputs);
  if (!results) return false;  // the run says what is wrong, where the user can see the data
  const std::vector<ValueId> outputs = n.outputs;
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (HasUses(g, outputs[i]) && (i >= results->size() || !(*results)[i].tensor.defined())) return false;
  }
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (HasUses(g, outputs[i])) rw.Replace(outputs[i], rw.Constant((*results)[i].tensor));
  }
  rw.EraseDead(id);
  return true;
}

bool FoldContents(Rewriter& rw, NodeId id, const ir::Inference& inference) {
  const Graph& g = rw.graph();
  const std::vector<ValueId> outputs = g.node(id).outputs;
  bool folded = false;
  for (ValueId v : outputs) {
    const ir::SymContents* contents = v.valid() ? inference.Contents(v) : nullptr;
    if (contents == nullptr || !HasUses(g, v)) continue;
    const Type type = g.value(v).type;
    if ((type.dtype != DType::kS64 && type.dtype != DType::kS32) || !type.shape || type.shape->size() > 1) continue;
    Ints numbers;
    for (const Dim& d : *contents) {
      if (d.is_number()) numbers.push_back(d.number());
    }
    if (numbers.size() != contents->size()) continue;
    ir::Shape shape;
    if (type.shape->size() == 1) shape.push_back(static_cast<int64_t>(numbers.size()));
    if (shape.empty() && numbers.size() != 1) continue;
    if (type.dtype == DType::kS64) {
      rw.Replace(v, rw.Constant(Tensor::S64(std::move(shape), std::move(numbers))));
    } else {
      const std::vector<int32_t> narrow(numbers.begin(), numbers.end());
      rw.Replace(v, rw.Constant(Tensor::Of<int32_t>(DType::kS32, std::move(shape), narrow)));
    }
    folded = true;
  }
  if (folded) rw.EraseDead(id);
  return folded;
}

Result<bool> Fold(Graph& graph, PassRun&) {
  bool changed = false;
  for (int sweep = 0; sweep < kMaxSweeps; ++sweep) {
    OCTAVO_TRY(const ir::Inference inference, ir::Inference::Run(graph));
    Rewriter rw(graph, "fold");
    for (NodeId id : graph.NodesInOrder()) {
      if (graph.IsAlive(id)) FoldNode(rw, id, inference);
    }
    if (!rw.changed()) break;
    changed = true;
  }
  return changed;
}

}  // namespace octavo::passes::canonical
