// ONNX Attention as ONNX 1.18 to 1.21 defined it: the mask is added before the soft cap (so that masked keys leak
// through the cap), and qk_matmul_output_mode 1 is after the mask, 2 after the cap. ONNX 1.22 exchanged both without a
// new opset. Here such a node becomes one of the corrected op where that is possible - without a cap, or without
// anything masked, only the mode changes - and standard ops where it is not.
#include <limits>

#include "octavo/ir/vendor/core.h"
#include "octavo/ir/vendor/lower.h"

namespace octavo::ir::vendor {

namespace {

constexpr size_t kMask = 3, kPastKey = 4, kPastValue = 5, kValid = 6;

bool Masks(const Node& n) {
  return n.input(kMask).valid() || n.attrs.Int("is_causal", 0) != 0 || n.input(kValid).valid();
}

// After the mask and after the cap are the same place where one of the two is missing.
int64_t NewMode(const Node& n, bool capped) {
  const int64_t mode = n.attrs.Int("qk_matmul_output_mode", 0);
  if (mode != 1 && mode != 2) return mode;
  if (!capped) return 2;
  return mode == 1 ? 0 : 1;  // nothing is masked
}

Result<ValueId> AdditiveMask(Site& s, const Core& core) {
  ValueId mask = s.In(kMask);
  if (mask.valid() && s.DTypeOf(mask) == DType::kBool) {
    mask = s.Make(Op::kWhere, {mask, s.Float(0.0f), s.Float(-std::numeric_limits<float>::infinity())});
  }
  if (s.attrs().Int("is_causal", 0) == 0) return mask;
  const ValueId keys = s.DimScalar(core.k, 2), queries = s.DimScalar(core.q, 2);
  const ValueId past = s.Has(kPastKey) ? s.DimScalar(s.In(kPastKey), 2) : ValueId{};
  ValueId last = s.Count(queries);
  if (past.valid()) last = s.Make(Op::kAdd, {last, past});
  const ValueId seen = s.Make(Op::kLessOrEqual, {s.Count(keys), s.Unsqueeze(last, {1})});
  const ValueId causal = s.Make(Op::kWhere, {seen, s.Float(0.0f), s.Float(-std::numeric_limits<float>::infinity())});
  return Sum(s, mask, causal);
}

Status Decompose(Site& s) {
  const int64_t rank = s.Rank(s.In(0));
  if (s.DTypeOf(s.In(0)) != DType::kF32 || (rank != 3 && rank != 4) || s.Has(kValid)) {
    return s.Refuse(
        "it is capped and masked in the order of ONNX before 1.22, of a form that octavo cannot rewrite (float16, or "
        "nonpad_kv_seqlen); "
        "export it with PyTorch 2.13 or later");
  }
  Core core{.scale = s.attrs().Float("scale", 0.0f), .softcap = s.attrs().Float("softcap", 0.0f)};
  core.heads = rank == 4 ? s.SizeOf(s.In(0), 1) : s.attrs().Int("q_num_heads", 0);
  core.kv_heads = rank == 4 ? s.SizeOf(s.In(1), 1) : s.attrs().Int("kv_num_heads", 0);
  if (core.heads <= 0 || core.kv_heads <= 0) return s.Refuse("its numbers of heads are not known");
  core.dim = HeadSize(s, s.In(0), core.heads);
  const auto split = [&](size_t i, int64_t heads) { return rank == 4 ? s.In(i) : SplitHeads(s, s.In(i), heads); };
  core.q = split(0, core.heads);
  core.k = Appended(s, s.In(kPastKey), split(1, core.kv_heads));
  core.v = Appended(s, s.In(kPastValue), split(2, core.kv_heads));
  OCTAVO_TRY(core.mask, AdditiveMask(s, core));
  core.mask_first = true;
  Trace trace;
  const ValueId merged = Attend(s, core, &trace);
  s.Return(0, rank == 4 ? trace.heads : merged);
  if (s.Wants(1)) s.Return(1, core.k);
  if (s.Wants(2)) s.Return(2, core.v);
  const ValueId scores[] = {trace.scaled, trace.masked, trace.capped, trace.probabilities};
  if (s.Wants(3)) s.Return(3, scores[s.attrs().Int("qk_matmul_output_mode", 0) & 3]);
  return {};
}

}  // namespace

Status AttentionBefore122(Graph& graph, const Graph& typed) {
  for (NodeId id : graph.NodesInOrder()) {
    const Node& n = graph.node(id);
    if (n.op != Op::kAttention) continue;
    const bool capped = n.attrs.Float("softcap", 0.0f) > 0;
    if (capped && Masks(n)) {
      Site site(graph, typed, id);
      OCTAVO_TRY_STATUS(Decompose(site));
      site.Commit();
    } else if (n.attrs.Has("qk_matmul_output_mode")) {
      graph.SetAttr(id, "qk_matmul_output_mode", NewMode(n, capped));
    }
  }
  return {};
}

}  // namespace octavo::ir::vendor
