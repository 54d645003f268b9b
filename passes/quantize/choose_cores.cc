// choose_cores: which attention cores stay float, because 8-bit probabilities lose what tells their rows apart.
// A code of P is a 255th of the row's largest exponential. Where one key draws most of the attention, the tail of the others lies below half a code and is
// lost, a quarter of the mass at times, and no scale of a Linear repairs that. So each core is run on the calibration data twice, over codes of Q, K and V: P
// in float, and in codes. The noise is set against how much rows differ from the mean of all: what all rows have in common hides no noise between them.
// Where that leaves less than `db`, the core stays float; its projections stay int8 (docs/lab/quantization.md has figures).
// Changes run.keep_float and run.core_db alone. Left: cores without ranges, fp8, and where there is no data to run.
#include <algorithm>
#include <cmath>
#include <format>
#include <limits>

#include "octavo/passes/quantize/quantize.h"
#include "octavo/passes/rewriter.h"

namespace octavo::passes::quantize {

using ir::DType;
using ir::Tensor;

namespace {

// Sums over the rows of a core's output, and of what codes add to it.
struct Core {
  NodeId node;
  std::vector<double> channels = {};  // sum of each
  double power = 0, noise = 0, rows = 0;
};

double Kept(const Core& core) {
  double common = 0;
  for (const double sum : core.channels) common += sum / core.rows * sum;
  const double differ = core.power - common;
  if (core.noise == 0) return std::numeric_limits<double>::infinity();
  return differ > 0 ? 10 * std::log10(differ / core.noise) : -std::numeric_limits<double>::infinity();
}

// The graph with two more cores for each: over values that codes of Q, K and V stand for, and with P in codes, too. In pairs, the output of the first and
// what the second adds to it.
class Probe {
 public:
  Probe(const Graph& graph, const PassRun& run) : g_(graph), run_(run), b_(g_, "choose_cores") {}

  // False: a range is not known.
  bool Add(NodeId id) {
    const Node n = g_.node(id);
    std::vector<ValueId> inputs(16);
    for (size_t i = 0; i < 3; ++i) {
      const quant::QParams* params = ParamsOf(g_.value(n.input(i)).name, run_);
      if (params == nullptr || quant::IsFp8(params->dtype)) return false;
      inputs[3 + 2 * i] = b_.Constant(Tensor::ScalarF32(params->scale));
      inputs[4 + 2 * i] = b_.Constant(ZeroPoint(*params));
    }
    b_.At(id, {id});
    std::vector<ValueId> floats = n.inputs;
    for (size_t i = 0; i < 3; ++i) {
      inputs[i] = b_.Create(Op::kQuantizeLinear, {n.input(i), inputs[3 + 2 * i], inputs[4 + 2 * i]});
      floats[i] = b_.Create(Op::kDequantizeLinear, {inputs[i], inputs[3 + 2 * i], inputs[4 + 2 * i]});
    }
    inputs[9] = b_.Constant(Tensor::ScalarF32(run_.weight_limit < 127 ? 1 / 128.0f : 1 / 255.0f));
    inputs[10] = b_.Constant(ZeroPoint({DType::kU8, 0.0f, 0}));
    for (size_t i = 0; i < 3; ++i) inputs[13 + i] = n.input(3 + i);  // masks and slopes
    while (!inputs.back().valid()) inputs.pop_back();
    ir::Attrs attrs = n.attrs;
    attrs.Set("p_relative", int64_t{1});
    attrs.Set("nan_guard", int64_t{0});  // codes of NaN are 0
    const ValueId coded = b_.Create(Op::kSdpaInt8, std::move(inputs), std::move(attrs));
    const ValueId exact = b_.Create(Op::kSdpa, std::move(floats), n.attrs);
    values_.push_back(exact);
    values_.push_back(b_.Create(Op::kSub, {coded, exact}));
    return true;
  }

  Status Run(std::vector<Core>& cores) {
    OCTAVO_CHECK(g_.SortTopologically(), "a core over codes made a cycle");
    OCTAVO_TRY_STATUS(ir::Inference::Run(g_).transform([](const auto&) {}));
    return run_.evidence.rows(g_, values_, [&cores](size_t i, std::span<const float> rows, size_t width) {
      Core& core = cores[i / 2];
      double power = 0;
      for (const float x : rows) power += static_cast<double>(x) * x;
      if (i % 2 == 1) {
        core.noise += power;
        return;
      }
      core.power += power;
      core.rows += static_cast<double>(rows.size() / width);
      core.channels.resize(width);
      for (size_t at = 0; at < rows.size(); ++at) core.channels[at % width] += rows[at];
    });
  }

 private:
  Graph g_;
  const PassRun& run_;
  Rewriter b_;
  std::vector<ValueId> values_;
};

// A name that no other site has; the first, where all are shared.
std::string NameOf(const Graph& graph, NodeId id) {
  const Sites sites = FindSites(graph);
  const auto others = [&](const std::string& name, const std::vector<NodeId>& nodes) {
    return std::ranges::any_of(nodes, [&](NodeId other) { return other != id && IsNamed({name}, graph.node(other)); });
  };
  for (const std::string& name : graph.node(id).origin) {
    if (!name.starts_with("pass:") && !others(name, sites.linears) && !others(name, sites.attentions) &&
        !others(name, sites.tables))
      return name;
  }
  return OriginName(graph.node(id));
}

Status Measure(const Graph& graph, PassRun& run) {
  Probe probe(graph, run);
  std::vector<Core> cores;
  for (const NodeId id : FindSites(graph, run.keep_float).attentions) {
    if (!run.core_db.contains(OriginName(graph.node(id))) && probe.Add(id)) cores.push_back({.node = id});
  }
  if (cores.empty()) return {};
  if (const Status measured = probe.Run(cores); !measured) return run.given_up = true, measured;
  for (const Core& core : cores) {
    if (core.rows > 0) run.core_db[OriginName(graph.node(core.node))] = Kept(core);
  }
  return {};
}

}  // namespace

Result<bool> ChooseCores(Graph& graph, PassRun& run) {
  const auto least = run.Option<double>("db", kCoreDb);
  if (least <= 0) return false;
  if (run.evidence.rows) OCTAVO_TRY_STATUS(Measure(graph, run));
  int chosen = 0;
  double worst = least;
  for (const NodeId id : FindSites(graph, run.keep_float).attentions) {
    const Node& n = graph.node(id);
    const auto kept = run.core_db.find(OriginName(n));
    if (kept == run.core_db.end()) continue;
    run.log.push_back(
        std::format("choose_cores: probabilities of 8 bits leave {:.1f} dB of {}", kept->second, OriginName(n)));
    if (kept->second >= least) continue;
    run.keep_float.push_back(NameOf(graph, id));
    run.Leave(
        "choose_cores", n,
        std::format("stays float: probabilities of 8 bits would leave {:.1f} dB of what tells its rows apart, less "
                    "than the {:g} of choose_cores.db",
                    kept->second, least));
    ++chosen, worst = std::min(worst, kept->second);
  }
  if (chosen > 0) {
    run.notes.push_back(std::format(
        "{} float: probabilities of 8 bits would leave down to {:.0f} dB of what tells {} rows apart (--set "
        "choose_cores.db={:g} says from where on; 0 is never)",
        chosen == 1 ? "1 attention core stays" : std::format("{} attention cores stay", chosen), worst,
        chosen == 1 ? "its" : "their", least));
  }
  return false;
}

}  // namespace octavo::passes::quantize
