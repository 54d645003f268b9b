#include "octavo/passes/quantize/expert_codes.h"

#include <algorithm>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "octavo/ir/elements.h"
#include "octavo/ir/mapped.h"
#include "octavo/passes/expert_columns.h"
#include "octavo/passes/quantize/quantize.h"
#include "octavo/passes/quantize/steps.h"
#include "octavo/passes/quantize/token_linears.h"

namespace octavo::passes::quantize {

using ir::DType;
using ir::Tensor;

namespace {

// Matrix i of [E,a,b] as [K,N].
Tensor MatrixOf(const Tensor& w, int64_t i, int64_t summed) {
  const int64_t a = w.shape()[1], b = w.shape()[2];
  const auto begin = static_cast<size_t>(w.data() - w.buffer()->data());
  Tensor own = Tensor::View(DType::kF32, {a, b}, w.buffer(), begin + static_cast<size_t>(i * a * b) * sizeof(float));
  if (summed == 1) return own;
  constexpr int64_t kLines = 16;  // of `own` at a time: a line of the result for each is written whole
  Tensor turned = Tensor::Empty(DType::kF32, {b, a});
  const auto from = own.as<float>();
  auto to = turned.mutable_as<float>();
  for (int64_t first = 0; first < a; first += kLines) {
    for (int64_t column = 0; column < b; ++column) {
      for (int64_t row = first; row < std::min(a, first + kLines); ++row)
        to[static_cast<size_t>(column * a + row)] = from[static_cast<size_t>(row * b + column)];
    }
  }
  ir::ForgetPages(own);
  return turned;
}

void PutColumns(const Tensor& part, Tensor& all, int64_t first) {
  const int64_t n = part.shape().back(), width = all.shape().back();
  for (int64_t row = 0; row < part.size() / n; ++row) ir::CopyElements(part, row * n, all, row * width + first, n);
}

// One table of experts in codes.
struct ExpertCodes {
  ValueId weights, scale, zero, step;
};

// All experts side by side, one after the other: `round` makes the parts of one of its matrix, and says why where it has none.
using Parts = std::vector<Tensor>;
using RoundOne = std::function<Result<Parts>(const Tensor& matrix, std::string& why)>;
Result<Parts> SideBySide(const Tensor& w, const ExpertColumns& c, const RoundOne& round, std::string& why) {
  Parts all;
  for (int64_t e = 0; e < c.count; ++e) {
    const Tensor own = MatrixOf(w, e, c.experts.summed);
    OCTAVO_TRY(const Parts parts, round(own, why));
    if (!why.empty()) return Parts();
    for (size_t i = 0; i < parts.size(); ++i) {
      ir::Shape shape = parts[i].shape();
      shape.back() *= c.count;
      if (e == 0) all.push_back(Tensor::Zeros(parts[i].dtype(), std::move(shape)));
      PutColumns(parts[i], all[i], e * c.n);
    }
    ir::ForgetPages(own);
  }
  return all;
}

using Multiply = std::function<ValueId(Rewriter& b, const ExpertCodes& codes, ValueId rows)>;
Result<bool> AsColumns(Graph& graph, PassRun& run, std::string_view pass, const RoundOne& round,
                       const Multiply& multiply) {
  std::vector<NodeId> sites;
  for (const NodeId id : FindSites(graph, run.keep_float).tables) {
    if (ExpertColumnsAt(graph, id)) sites.push_back(id);
  }
  Rewriter b(graph, pass);
  std::map<std::pair<ValueId, int64_t>, ExpertCodes> done;
  for (size_t i = 0; i < sites.size(); ++i) {
    if (!run.step(static_cast<int64_t>(i), static_cast<int64_t>(sites.size())))
      return run.given_up = true, ir::Fail("interrupted");
    const ExpertColumns columns = *ExpertColumnsAt(graph, sites[i]);
    const ValueId table = graph.node(sites[i]).input(0);
    b.At(columns.experts.product, {sites[i], columns.experts.product});
    auto [it, fresh] = done.try_emplace({table, columns.experts.summed});
    if (fresh) {
      std::string why;
      OCTAVO_TRY(const Parts parts, SideBySide(*graph.ConstantOf(table), columns, round, why));
      if (!why.empty()) {
        done.erase(it);
        run.Leave(pass, graph.node(sites[i]), why);
        continue;
      }
      const std::string name = graph.value(table).name;
      it->second = {b.Constant(parts[0], name + "_quantized"), b.Constant(parts[1], name + "_scale"), {}, {}};
      if (parts.size() > 2) it->second.zero = b.Constant(parts[2], name + "_zero_point");
      if (parts.size() > 3) it->second.step = b.Constant(parts[3], name + "_step");
    }
    TakeExpertColumns(b, columns, [&](ValueId rows) { return multiply(b, it->second, rows); });
  }
  return b.changed();
}

// Codes of rows, made at run time, times these columns.
ValueId TokensTimes(Rewriter& b, const ExpertCodes& codes, ValueId rows) {
  const Node& q = b.graph().node(b.CreateN(Op::kQuantizeTokens, {rows}, 3));
  std::vector<ValueId> in{q.output(0), q.output(1), q.output(2), codes.weights, codes.scale};
  if (codes.step) {
    in.resize(12);
    in[10] = codes.step, in[11] = codes.zero;
  }
  return b.Create(Op::kQuantizedLinear, std::move(in), {{"activation", "none"}, {"per_token", int64_t{1}}});
}

// Why products of codes do not take a matrix; empty: they do.
std::string WhyNoTokensOf(const Tensor& matrix) {
  const std::string why = WhyNoTokens(matrix.shape());
  return why.empty() ? why : "stays float: " + why;
}

}  // namespace

Result<bool> ExpertBlocks(Graph& graph, PassRun& run, BlockFormat format) {
  const auto round = [&](const Tensor& matrix, std::string& why) -> Result<Parts> {
    if (why = WhyInFloat(matrix); !why.empty()) return why = "has no blocks: " + why, Parts();
    OCTAVO_TRY(Blocked q, RoundInBlocks(matrix, format, nullptr, run.parallel));
    Parts parts{std::move(q.codes), std::move(q.scale)};
    if (quant::RangeOf(format.dtype).lo == 0) parts.push_back(std::move(q.zero));
    return parts;
  };
  std::map<ValueId, ValueId> floats;
  return AsColumns(graph, run, "weights", round, [&](Rewriter& b, const ExpertCodes& codes, ValueId rows) {
    auto [it, fresh] = floats.try_emplace(codes.weights);
    std::vector<ValueId> in{codes.weights, codes.scale};
    if (codes.zero.valid()) in.push_back(codes.zero);
    if (fresh)
      it->second = b.Create(Op::kDequantizeLinear, std::move(in), {{"axis", int64_t{0}}, {"block_size", format.block}});
    return b.Create(Op::kMatMul, {rows, it->second});
  });
}

Result<bool> ExpertTokens(Graph& graph, PassRun& run) {
  const auto round = [&](const Tensor& matrix, std::string& why) -> Result<Parts> {
    if (why = WhyNoTokensOf(matrix); !why.empty()) return Parts();
    std::optional<ColumnWeights> q = QuantizeWeight(matrix, DType::kS8, run);
    if (!q) return why = "stays float: its weight has values that are not finite", Parts();
    return Parts{std::move(q->codes), std::move(q->scale)};
  };
  return AsColumns(graph, run, "dynamic", round, TokensTimes);
}

Result<bool> ExpertSteps(Graph& graph, PassRun& run) {
  const auto round = [&](const Tensor& matrix, std::string& why) -> Result<Parts> {
    if (why = WhyNoTokensOf(matrix); !why.empty()) return Parts();
    if (why = WhyInFloat(matrix); !why.empty()) return why = "stays float: " + why, Parts();
    OCTAVO_TRY(Stepped q, RoundInSteps(matrix, nullptr, run.parallel));
    return Parts{std::move(q.codes), std::move(q.scale), std::move(q.zero), std::move(q.step)};
  };
  return AsColumns(graph, run, "dynamic4", round, TokensTimes);
}

}  // namespace octavo::passes::quantize
