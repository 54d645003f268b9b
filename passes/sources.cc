#include "octavo/passes/sources.h"

#include <format>
#include <map>
#include <set>
#include <string>

#include "octavo/passes/attention.h"

namespace octavo::passes {

namespace {

// What becomes a candidate of the report.
bool IsCounted(const Node& n) {
  return n.op == Op::kMatMul || n.op == Op::kGemm || n.op == Op::kSoftmax || n.op == Op::kQuantizedLinear ||
         n.op == Op::kLinearBlocked || n.op == Op::kQLinearMatMul || n.op == Op::kMatMulInteger || IsAttentionOp(n);
}

class Names {
 public:
  explicit Names(const Graph& g) {
    for (const NodeId id : g.NodesInOrder()) used_.insert(OriginName(g.node(id)));
  }
  std::string Next(const std::string& name) {
    std::string next;
    int& number = numbers_.try_emplace(name, 1).first->second;
    do {
      next = std::format("{} ({})", name, ++number);
    } while (!used_.insert(next).second);
    return next;
  }

 private:
  std::set<std::string> used_;
  std::map<std::string, int> numbers_;
};

}  // namespace

void TellSourcesApart(Graph& graph) {
  Names names(graph);
  std::set<std::string> closed;  // names whose nodes are over
  std::string run, run_as;       // the name that the nodes at hand share, and what they are called
  std::set<Op> counted;          // of these nodes
  for (const NodeId id : graph.NodesInOrder()) {
    const Node& n = graph.node(id);
    if (n.op == Op::kConstant) continue;
    std::string name = OriginName(n);
    if (name.empty() && n.output().valid())
      name = std::format("{}({})", n.op == Op::kOpaque ? std::string_view(n.op_type) : ir::InfoOf(n.op).name,
                         graph.value(n.output()).name);
    if (name != run) {
      if (!run.empty()) closed.insert(run);
      run = run_as = name;
      counted.clear();
      if (closed.contains(name)) run_as = names.Next(name);
    }
    if (IsCounted(n) && !counted.insert(n.op).second) run_as = names.Next(name);
    if (run_as == OriginName(n)) continue;
    std::vector<std::string> origin = n.origin;
    if (origin.empty()) origin.emplace_back();
    origin[0] = run_as;
    graph.SetOrigin(id, std::move(origin));
  }
}

std::string_view GivenName(std::string_view source) {
  constexpr std::string_view kExpert = "expert ";  // passes/canonical/experts.cc
  const size_t at = source.rfind(" (");
  if (at == std::string_view::npos || !source.ends_with(')')) return source;
  std::string_view number = source.substr(at + 2, source.size() - at - 3);
  if (number.starts_with(kExpert)) number.remove_prefix(kExpert.size());
  const bool is_number = !number.empty() && number.find_first_not_of("0123456789") == std::string_view::npos;
  return is_number ? source.substr(0, at) : source;
}

std::string ByModules(std::string_view source) {
  const size_t node = source.rfind('/');
  if (!source.starts_with('/') || node == 0) return {};
  std::string path;
  std::string_view above;
  for (size_t begin = 1; begin < node;) {
    const size_t end = source.find('/', begin);
    const std::string_view part = source.substr(begin, end - begin);
    begin = end + 1;
    const bool repeats = !above.empty() && part.starts_with(above) && part.substr(above.size()).starts_with('.');
    if (repeats) path.resize(path.size() - above.size());
    if (!repeats && !path.empty() && !part.empty()) path += '.';
    path += part;
    above = part;
  }
  return path.empty() ? path : path + std::string(source.substr(node));
}

}  // namespace octavo::passes
