// FlexAttention: attention whose scores and probabilities go through graphs of the node.
#include <cmath>

#include "octavo/ir/interpret/doubles.h"

namespace octavo::ir::interpret {

namespace {

struct Flex {
  int64_t batch = 0, heads = 0, groups = 0, queries = 0, keys = 0, width = 0, v_width = 0;
  double scale = 1;
  Tensor q, k, v;
};

Result<Flex> PlanFlex(const Call& call) {
  Flex p;
  const Shape &q = call.T(0).shape(), &k = call.T(1).shape(), &v = call.T(2).shape();
  if (q.size() != 4 || k.size() != 4 || v.size() != 4) return Fail("Q, K and V must have rank 4");
  p.batch = q[0], p.heads = q[1], p.queries = q[2], p.width = q[3], p.groups = k[1], p.keys = k[2], p.v_width = v[3];
  if (k[0] != p.batch || v[0] != p.batch || k[3] != p.width || v[1] != p.groups || v[2] != p.keys || p.groups < 1 ||
      p.heads % p.groups != 0)
    return Fail("Q, K and V do not fit each other");
  p.scale = call.node.attrs.Has("scale") ? static_cast<double>(call.Float("scale", 1.0f))
                                         : 1 / std::sqrt(static_cast<double>(p.width));
  OCTAVO_TRY(p.q, Doubles(call.T(0)));
  OCTAVO_TRY(p.k, Doubles(call.T(1)));
  OCTAVO_TRY(p.v, Doubles(call.T(2)));
  return p;
}

// The scores through the graph of that attribute, in the type of the softmax; as they are where there is none.
Status Modify(const Call& call, std::string_view name, DType precision, Tensor& scores) {
  const GraphRef graph = call.node.attrs.Subgraph(name);
  if (graph == nullptr) return {};
  std::vector<RtValue> in(1);
  OCTAVO_TRY(in[0].tensor, CastTo(scores, precision));
  // Sizes that the graph declares are folded in it (subgraph.h), so they must be those of the scores.
  const auto& declared = graph->inputs().empty() ? std::nullopt : graph->value(graph->inputs()[0]).type.shape;
  const auto differs = [&](size_t d) {
    return (*declared)[d].is_number() && (*declared)[d].number() != scores.shape()[d];
  };
  if (declared && (declared->size() != 4 || differs(0) || differs(1) || differs(2) || differs(3)))
    return Fail("{} declares scores of {}, and they are {}; export the model without the shape", name,
                ToString(*declared), ToString(scores.shape()));
  const auto captures = static_cast<size_t>(std::max<int64_t>(0, call.Int("octavo_captures", 0)));
  if (captures > call.in.size()) return Fail("it has more captures than inputs");
  in.insert(in.end(), call.in.end() - static_cast<int64_t>(captures), call.in.end());
  OCTAVO_TRY(const auto out, RunGraph(*graph, in, {.interrupted = call.interrupted}));
  if (out.size() != 1 || out[0].tensor.shape() != scores.shape())
    return Fail("{} must give one tensor of the shape of the scores", name);
  OCTAVO_TRY(scores, Doubles(out[0].tensor));
  return {};
}

// Rows without a key that counts have probabilities 0, as Attention's.
void SoftmaxRows(Tensor& scores, int64_t n) {
  for (int64_t row = 0; n > 0 && row < scores.size() / n; ++row) {
    double* x = Out(scores) + row * n;
    double top = -INFINITY, sum = 0;
    for (int64_t i = 0; i < n; ++i) top = x[i] > top || x[i] != x[i] ? x[i] : top;
    for (int64_t i = 0; i < n; ++i) sum += x[i] = top == -INFINITY ? 0 : std::exp(x[i] - top);
    for (int64_t i = 0; i < n && sum != 0; ++i) x[i] /= sum;
  }
}

Result<Tensor> Scores(const Flex& p) {
  OCTAVO_TRY(Tensor scores, AllocZeros(DType::kF64, {p.batch, p.heads, p.queries, p.keys}));
  for (int64_t i = 0; i < scores.size(); ++i) {
    const int64_t row = i / p.keys, head = row / p.queries;
    const int64_t kv = head / p.heads * p.groups + head % p.heads / (p.heads / p.groups);
    const double *q = In(p.q) + row * p.width, *k = In(p.k) + (kv * p.keys + i % p.keys) * p.width;
    for (int64_t d = 0; d < p.width; ++d) Out(scores)[i] += q[d] * k[d] * p.scale;
  }
  return scores;
}

Status FlexAttention(Call& call) {
  const DType type = call.T(0).dtype();
  OCTAVO_TRY(const DType precision,
             TypeAttr(call, "softmax_precision", type == DType::kF64 ? DType::kF64 : DType::kF32));
  if (!quant::IsComputedFloat(precision)) return BadType(precision);
  OCTAVO_TRY(const Flex p, PlanFlex(call));
  OCTAVO_TRY(Tensor scores, Scores(p));
  OCTAVO_TRY_STATUS(Modify(call, "score_mod", precision, scores));
  if (scores.buffer().use_count() > 1) {  // what a graph handed through
    Tensor copy = Tensor::Empty(DType::kF64, scores.shape());
    std::copy_n(In(scores), scores.size(), Out(copy));
    scores = std::move(copy);
  }
  SoftmaxRows(scores, p.keys);
  OCTAVO_TRY_STATUS(Modify(call, "prob_mod", precision, scores));
  OCTAVO_TRY(Tensor y, AllocZeros(DType::kF64, {p.batch, p.heads, p.queries, p.v_width}));
  for (int64_t row = 0; row < p.batch * p.heads * p.queries; ++row) {
    const int64_t head = row / p.queries, kv = head / p.heads * p.groups + head % p.heads / (p.heads / p.groups);
    for (int64_t j = 0; j < p.keys; ++j) {
      const double weight = In(scores)[row * p.keys + j], *v = In(p.v) + (kv * p.keys + j) * p.v_width;
      for (int64_t d = 0; d < p.v_width; ++d) Out(y)[row * p.v_width + d] += weight * v[d];
    }
  }
  return ReturnAs(call, y, type);
}

}  // namespace

void RegisterFlex(Table& t) { t.Set(Op::kFlexAttention, FlexAttention); }

}  // namespace octavo::ir::interpret
