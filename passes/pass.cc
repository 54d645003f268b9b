#include "octavo/passes/pass.h"

#include <format>
#include <utility>

#include "octavo/passes/pattern/pattern.h"

namespace octavo::passes {

void PassRun::Leave(std::string_view pass, const Node& node, std::string_view why) {
  std::string name = OriginName(node);
  log.push_back(std::format("{}: {} {}", pass, name, why));
  decisions.push_back({.node = std::move(name),
                       .fate = Decision::Fate::kLeft,
                       .rule = std::string(pass),
                       .reason = log.back(),
                       .culprit = {}});
}

std::string_view Name(Form form) {
  switch (form) {
    case Form::kAny:
      return "any";
    case Form::kFloat:
      return "float";
    case Form::kQdq:
      return "qdq";
    case Form::kFp8:
      return "fp8";
    case Form::kInt8:
      return "int8";
    case Form::kBlocks:
      return "blocks";
  }
  return "?";
}

std::string_view Name(Need need) { return need == Need::kRanges ? "ranges" : need == Need::kMoments ? "moments" : ""; }

std::span<const pattern::Rule> Pass::rules() const { return {}; }

Result<Changes> FunctionPass::Run(Graph& graph, PassRun& run) const {
  std::vector<Decision> before = std::exchange(run.decisions, {});
  Result<bool> changed = run_(graph, run);
  std::vector<Decision> made = std::exchange(run.decisions, std::move(before));
  if (!changed) return std::unexpected(std::move(changed).error());
  return Changes{.graph = *changed, .decisions = std::move(made)};
}

}  // namespace octavo::passes
