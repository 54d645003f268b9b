// cse: common subexpressions.
// Before: a = Unsqueeze(x, [1])   b = Unsqueeze(x, [1])   After: a, for both
// Same op, same inputs, same attributes bit for bit; constants by their bytes. Add, Mul and other exactly commutative
// ops in either order. Never merged: random ops, Dropout in training, control flow, ops of domains we do not know.
#include <algorithm>
#include <bit>
#include <string_view>
#include <unordered_map>

#include "octavo/passes/canonical/canonical.h"
#include "octavo/passes/canonical/util.h"

namespace octavo::passes::canonical {

namespace {

uint64_t Mix(uint64_t h, uint64_t x) {
  h ^= x + 0x9e3779b97f4a7c15u + (h << 6) + (h >> 2);
  return h * 0xff51afd7ed558ccdu;
}

uint64_t HashBytes(uint64_t h, std::string_view bytes) { return Mix(h, std::hash<std::string_view>{}(bytes)); }

// A sample: both ends and the size. Large weights are compared byte by byte only where the samples agree.
uint64_t HashTensor(uint64_t h, const Tensor& t) {
  h = Mix(h, static_cast<uint64_t>(t.dtype()));
  for (int64_t d : t.shape()) h = Mix(h, static_cast<uint64_t>(d));
  if (t.dtype() == DType::kString || t.byte_size() == 0) return h;
  const std::string_view bytes(reinterpret_cast<const char*>(t.data()), t.byte_size());
  constexpr size_t kSample = 512;
  h = HashBytes(h, bytes.substr(0, kSample));
  return bytes.size() > kSample ? HashBytes(h, bytes.substr(std::max(bytes.size() - kSample, kSample))) : h;
}

uint64_t HashAttr(uint64_t h, const ir::Attr& attr) {
  h = Mix(h, attr.index());
  if (const auto* i = std::get_if<int64_t>(&attr)) return Mix(h, static_cast<uint64_t>(*i));
  if (const auto* f = std::get_if<float>(&attr)) return Mix(h, std::bit_cast<uint32_t>(*f));
  if (const auto* s = std::get_if<std::string>(&attr)) return HashBytes(h, *s);
  if (const auto* v = std::get_if<Ints>(&attr)) {
    for (int64_t i : *v) h = Mix(h, static_cast<uint64_t>(i));
  }
  if (const auto* t = std::get_if<Tensor>(&attr)) return HashTensor(h, *t);
  return h;  // rarer kinds: told apart by Attrs::Same
}

bool HasSubgraph(const Node& n) {
  return std::any_of(n.attrs.entries().begin(), n.attrs.entries().end(),
                     [](const ir::Attrs::Entry& e) { return std::holds_alternative<ir::GraphRef>(e.second); });
}

// A second run of the node on the same inputs gives the same results.
bool IsRepeatable(const Graph& g, const Node& n) {
  if (n.outputs.empty() || HasSubgraph(n)) return false;
  if (n.op == Op::kDropout) {
    return !n.input(2).valid() || ConstScalar(g, n.input(2)) == 0.0 || ConstInts(g, n.input(2)) == Ints{0};
  }
  if (n.op != Op::kOpaque) return true;
  if (!n.domain.empty() && n.domain != "ai.onnx" && n.domain != "com.microsoft") return false;
  for (std::string_view random : {"Random", "Bernoulli", "Multinomial", "Dropout", "Sampl", "Search"}) {
    if (n.op_type.find(random) != std::string::npos) return false;
  }
  return true;
}

bool IsCommutative(const Node& n) {
  switch (n.op) {
    case Op::kAdd:
    case Op::kMul:
    case Op::kAnd:
    case Op::kOr:
    case Op::kXor:
    case Op::kEqual:
      return n.inputs.size() == 2;
    default:
      return false;
  }
}

std::vector<ValueId> KeyInputs(const Node& n) {
  std::vector<ValueId> inputs = n.inputs;
  while (!inputs.empty() && !inputs.back().valid()) inputs.pop_back();  // an absent optional at the end
  if (IsCommutative(n)) std::sort(inputs.begin(), inputs.end());
  return inputs;
}

uint64_t HashNode(const Node& n) {
  uint64_t h = Mix(static_cast<uint64_t>(n.op), n.outputs.size());
  if (n.op == Op::kOpaque) h = HashBytes(HashBytes(h, n.op_type), n.domain);
  for (ValueId v : KeyInputs(n)) h = Mix(h, v.index);
  for (const auto& [name, value] : n.attrs.entries()) h = HashAttr(HashBytes(h, name), value);
  return h;
}

bool SameNode(const Node& a, const Node& b) {
  if (a.op != b.op || a.domain != b.domain || a.op_type != b.op_type || a.outputs.size() != b.outputs.size())
    return false;
  for (size_t i = 0; i < a.outputs.size(); ++i) {
    if (!a.outputs[i].valid() && b.outputs[i].valid()) return false;  // the first does not make what is asked for
  }
  return KeyInputs(a) == KeyInputs(b) && a.attrs.Same(b.attrs);
}

}  // namespace

Result<bool> Cse(Graph& graph, PassRun&) {
  Rewriter rw(graph, "cse");
  std::unordered_map<uint64_t, std::vector<NodeId>> seen;
  seen.reserve(graph.node_count());
  for (NodeId id : graph.NodesInOrder()) {
    const Node& n = graph.node(id);
    if (!IsRepeatable(graph, n)) continue;
    std::vector<NodeId>& bucket = seen[HashNode(n)];
    const auto first =
        std::find_if(bucket.begin(), bucket.end(), [&](NodeId other) { return SameNode(graph.node(other), n); });
    if (first == bucket.end()) {
      bucket.push_back(id);
      continue;
    }
    const std::vector<ValueId> from = n.outputs, to = graph.node(*first).outputs;
    for (size_t i = 0; i < from.size(); ++i) {
      if (from[i].valid()) rw.Replace(from[i], to[i]);
    }
    graph.Erase(id);
  }
  return rw.changed();
}

}  // namespace octavo::passes::canonical
