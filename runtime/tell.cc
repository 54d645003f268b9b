#include "octavo/runtime/tell.h"

#include <format>
#include <map>

#include "octavo/ir/log.h"
#include "octavo/ir/names.h"
#include "octavo/kernels/arch/quota.h"
#include "octavo/runtime/host_threads.h"

namespace octavo::runtime {

using ir::Log, ir::LogLevel;

namespace {

// Where a number of threads comes from.
std::string FromOf(int asked, int count) {
  if (CompileForHost::Is()) return "of the host";
  if (asked > 0) return asked == count ? "as asked for" : "a child of fork has no others";
  return kernels::DefaultThreads().from;
}

}  // namespace

std::string CalledOf(const Graph& graph) {
  return graph.name.empty() ? "a model without a name" : ir::Quoted(graph.name);
}

void TellCompiled(const Model::State& s, const CompileOptions& asked) {
  // Bodies of If and Loop, and what is compiled to see numbers, are of less interest.
  const bool inner = asked.packed != nullptr || asked.rows_alone;
  const LogLevel level = inner ? LogLevel::kDebug : LogLevel::kInfo;
  if (!ir::Logs(level)) return;
  std::map<std::string, int> count;
  for (const Step& step : s.steps) ++count[step.kernel->name()];
  std::string kinds;
  for (const auto& [kernel, steps] : count) kinds += std::format("{}{} {}", kinds.empty() ? "" : ", ", steps, kernel);
  Log(level, "{} is compiled: path {}, threads {} ({}), steps {}: {}", CalledOf(s.graph), kernels::Name(s.options.arch),
      s.threads->count(), FromOf(asked.threads, s.threads->count()), s.steps.size(), kinds);
  for (const Step& step : s.steps) {
    const Node& n = s.graph.node(step.node);
    if (step.kernel->name() == InterpreterOf(n.op))
      Log(LogLevel::kDebug, "node '{}' runs slowly: no kernel serves {}", DisplayName(n), ir::InfoOf(n.op).name);
  }
}

void TellPlanned(const Model::State& s, const std::vector<int64_t>& key, size_t arena_bytes) {
  if (!ir::Logs(LogLevel::kDebug)) return;
  std::string shapes;
  size_t at = 0;
  for (const PortInfo& port : s.inputs) {
    const auto rank = static_cast<size_t>(key[at]);
    const auto* const sizes = key.data() + at + 1;
    shapes +=
        std::format("{}{} {}", shapes.empty() ? "" : ", ", port.name, ir::ToString(ir::Shape(sizes, sizes + rank)));
    at += rank + 1;
  }
  Log(LogLevel::kDebug, "{}: memory is planned for {}: {} bytes", CalledOf(s.graph), shapes, arena_bytes);
}

void TellFallback(const Model::State& s, const Step& step) {
  const Node& n = s.graph.node(step.node);
  const std::string kernel = step.kernel->name();
  if (kernel != InterpreterOf(n.op))
    Log(LogLevel::kInfo, "node '{}' runs slowly: {} does not take its operands, so the interpreter has them",
        DisplayName(n), kernel);
}

}  // namespace octavo::runtime
