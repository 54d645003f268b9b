#include "octavo/passes/guard.h"

#include <format>
#include <utility>

#include "octavo/ir/verify.h"

namespace octavo::passes {

void PassContext::Leave(std::string_view pass, const Node& node, std::string_view why) {
  const std::string name = OriginName(node);
  log.push_back(std::format("{}: {} {}", pass, name, why));
  left[name] = log.back();
}

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

Result<bool> RunAndCheck(const Pass& pass, Graph& graph, PassContext& context) {
  try {
    OCTAVO_TRY(const bool changed, pass.run(graph, context));
    if (!changed) return false;
    OCTAVO_TRY_STATUS(ir::Inference::Run(graph).transform([](const auto&) {}));
    OCTAVO_TRY_STATUS(ir::VerifyStatus(graph));
    return true;
  } catch (const ir::CheckError& e) {
    return ir::Fail("{}", e.what());
  }
}

// What a pass adds to, as it was before.
class Told {
 public:
  explicit Told(const PassContext& c)
      : misses_(c.misses == nullptr ? 0 : c.misses->size()),
        log_(c.log.size()),
        notes_(c.notes.size()),
        candidates_(c.candidates.size()),
        weight_limit_(c.weight_limit),
        own_params_(c.own_params),
        left_(c.left) {}
  void Restore(PassContext& c) const {
    if (c.misses != nullptr) c.misses->resize(misses_);
    c.log.resize(log_);
    c.notes.resize(notes_);
    c.candidates.resize(candidates_);
    c.weight_limit = weight_limit_;
    c.own_params = own_params_;
    c.left = left_;
  }

 private:
  size_t misses_, log_, notes_, candidates_;
  int weight_limit_;
  std::map<std::string, quant::QParams, std::less<>> own_params_;
  std::map<std::string, std::string, std::less<>> left_;
};

}  // namespace

Result<bool> RunPass(const Pass& pass, Graph& graph, PassContext& context) {
  const Graph before = graph;  // shares its tensors
  const Told told(context);
  Result<bool> changed;
  for (const bool careful : {false, true}) {
    const bool was_careful = std::exchange(context.careful, context.careful || careful);
    changed = RunAndCheck(pass, graph, context);
    context.careful = was_careful;
    if (changed || context.given_up) return changed;
    graph = before;
    told.Restore(context);
  }
  context.notes.push_back(std::format("the pass {} was undone, since it went wrong on this model: {}; please report it",
                                      pass.name, changed.error().message));
  return false;
}

}  // namespace octavo::passes
