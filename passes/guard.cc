#include "octavo/passes/guard.h"

#include <algorithm>
#include <format>
#include <iterator>
#include <utility>

#include "octavo/ir/attr_table.h"
#include "octavo/ir/names.h"
#include "octavo/ir/verify.h"

namespace octavo::passes {

std::string Contradiction(const ir::Type& was, const ir::Type& is) {
  constexpr ir::DType kUnknown = ir::DType::kUndefined;
  bool agree = was.dtype == kUnknown || is.dtype == kUnknown || was.dtype == is.dtype;
  if (was.shape && is.shape) {
    agree = agree && was.shape->size() == is.shape->size();
    for (size_t i = 0; agree && i < was.shape->size(); ++i) {
      const ir::Dim &a = (*was.shape)[i], &b = (*is.shape)[i];
      agree = !ProvablyDifferent(a, b);
    }
  }
  return agree ? "" : std::format("{} instead of {}", ToString(is), ToString(was));
}

namespace {

// The new nodes as a graph of their own; what they read from outside are its inputs, with their types, and its constants.
class Part {
 public:
  Part(const Graph& whole, size_t first) : whole_(whole) {
    for (size_t i = first; i < whole.node_capacity(); ++i) {
      const NodeId id{static_cast<uint32_t>(i)};
      if (whole.IsAlive(id)) Copy(whole.node(id));
    }
  }

  std::string WhyWrong() {
    if (auto inferred = ir::Inference::Run(graph_); !inferred) return inferred.error().message;
    for (const auto& [there, here] : here_) {
      std::string wrong = Contradiction(whole_.value(there).type, graph_.value(here).type);
      if (!wrong.empty()) return "it would give " + wrong;
    }
    return {};
  }

 private:
  ValueId Input(ValueId v) {
    if (!v.valid()) return {};
    const auto known = here_.find(v);
    if (known != here_.end()) return known->second;
    const ir::Tensor* constant = whole_.ConstantOf(v);
    const ir::Value& value = whole_.value(v);
    return here_[v] = constant != nullptr ? graph_.AddConstant(*constant) : graph_.AddInput(value.name, value.type);
  }

  void Copy(const Node& n) {
    std::vector<ValueId> inputs;
    inputs.reserve(n.inputs.size());
    for (const ValueId v : n.inputs) inputs.push_back(Input(v));
    const NodeId id = n.op == Op::kOpaque
                          ? graph_.AddOpaque(n.domain, n.op_type, std::move(inputs), n.outputs.size(), n.attrs, n.name)
                          : graph_.AddNode(n.op, std::move(inputs), n.outputs.size(), n.attrs, n.name);
    for (size_t i = 0; i < n.outputs.size(); ++i) {
      if (n.outputs[i].valid()) here_[n.outputs[i]] = graph_.node(id).outputs[i];
    }
  }

  const Graph& whole_;
  Graph graph_;
  std::map<ValueId, ValueId> here_;
};

}  // namespace

std::string WhyWrong(const Graph& graph, size_t first) { return Part(graph, first).WhyWrong(); }

namespace {

// Octavo's own passes are tested; another one may have written "approximte", which would be the default in silence.
Status CheckAttributes(const Graph& graph, size_t first) {
  for (size_t i = first; i < graph.node_capacity(); ++i) {
    const NodeId id{static_cast<uint32_t>(i)};
    if (!graph.IsAlive(id) || graph.node(id).op == Op::kOpaque) continue;
    const Node& n = graph.node(id);
    const auto known = ir::CheckAttributes(ir::InfoOf(n.op).domain, ir::InfoOf(n.op).name, n.attrs);
    if (!known) return ir::Fail("node {}: {}", ir::Quoted(n.name), known.error().message);
  }
  return {};
}

Result<Changes> Checked(const Pass& pass, Graph& graph, PassRun& run) {
  const size_t first = graph.node_capacity();
  OCTAVO_TRY(Changes changes, pass.Run(graph, run));
  if (changes.graph) {
    if (!pass.own()) OCTAVO_TRY_STATUS(CheckAttributes(graph, first));
    OCTAVO_TRY_STATUS(ir::Inference::Run(graph).transform([](const auto&) {}));
    OCTAVO_TRY_STATUS(ir::VerifyStatus(graph));
  }
  return changes;
}

// What a pass that is not octavo's own throws is its error. Octavo's own throw where memory lacks, or where the caller's functions do: others hear that.
Result<Changes> RunAndCheck(const Pass& pass, Graph& graph, PassRun& run) {
  try {
    return Checked(pass, graph, run);
  } catch (const ir::CheckError& e) {
    return ir::Fail("{}", e.what());
  } catch (const std::bad_alloc&) {
    throw;
  } catch (const StopWork&) {
    throw;
  } catch (const std::exception& e) {
    if (pass.own()) throw;
    return ir::Fail("{}", e.what());
  } catch (...) {
    if (pass.own()) throw;
    return ir::Fail("it threw an exception of a type that has no words");
  }
}

// What a pass adds to, as it was before.
class Told {
 public:
  explicit Told(const PassRun& c)
      : misses_(c.misses == nullptr ? 0 : c.misses->size()),
        log_(c.log.size()),
        notes_(c.notes.size()),
        candidates_(c.candidates.size()),
        decisions_(c.decisions.size()),
        weight_limit_(c.weight_limit),
        own_params_(c.own_params) {}
  void Restore(PassRun& c) const {
    if (c.misses != nullptr) c.misses->resize(misses_);
    c.log.resize(log_);
    c.notes.resize(notes_);
    c.candidates.resize(candidates_);
    c.weight_limit = weight_limit_;
    c.own_params = own_params_;
    c.decisions.resize(decisions_);
  }

 private:
  size_t misses_, log_, notes_, candidates_, decisions_;
  int weight_limit_;
  std::map<std::string, quant::QParams, std::less<>> own_params_;
};

}  // namespace

namespace {

// A pass that is not octavo's own need not say what it has replaced: new nodes tell it, or, where there are none, those that are gone.
void TellRewritten(const std::string& name, const Graph& before, const Graph& after, std::vector<Decision>& decisions) {
  const auto told = [&](const Decision& d) { return d.fate == Decision::Fate::kRewritten && d.rule == name; };
  const auto tell = [&](const Graph& g, NodeId id) {
    if (g.node(id).op == Op::kConstant) return;
    decisions.push_back({.node = OriginName(g.node(id)),
                         .fate = Decision::Fate::kRewritten,
                         .rule = name,
                         .reason = {},
                         .culprit = {}});
  };
  if (std::ranges::any_of(decisions, told)) return;
  for (const NodeId id : after.NodesInOrder()) {
    if (!before.IsAlive(id)) tell(after, id);
  }
  if (std::ranges::any_of(decisions, told)) return;
  for (const NodeId id : before.NodesInOrder()) {
    if (!after.IsAlive(id)) tell(before, id);
  }
}

}  // namespace

Result<bool> RunPass(const Pass& pass, Graph& graph, PassRun& run) {
  const Graph before = graph;  // shares its tensors
  const Told told(run);
  std::string why;
  for (const bool careful : {false, true}) {
    const bool was_careful = std::exchange(run.careful, run.careful || careful);
    Result<Changes> changes = RunAndCheck(pass, graph, run);
    run.careful = was_careful;
    if (changes) {
      if (!pass.own() && changes->graph) TellRewritten(pass.info().name, before, graph, changes->decisions);
      std::ranges::move(changes->decisions, std::back_inserter(run.decisions));
      return changes->graph;
    }
    if (run.given_up) return std::unexpected(std::move(changes).error());
    why = std::move(changes).error().message;
    graph = before;
    told.Restore(run);
  }
  run.notes.push_back(std::format("the pass {} was undone, since it went wrong on this model: {}{}", pass.info().name,
                                  why, pass.own() ? "; please report it" : ""));
  return false;
}

}  // namespace octavo::passes
