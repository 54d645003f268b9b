// If, Loop and Scan: graphs within that have something to compute are models of their own, with kernels. What is done with their results, the
// interpreter says.
#include <algorithm>
#include <map>

#include "octavo/ir/interpret/call.h"
#include "octavo/ir/subgraph.h"
#include "octavo/runtime/model.h"
#include "octavo/runtime/step.h"

namespace octavo::runtime {

namespace {

// A graph of scalars and shapes costs more to enter as a model than the interpreter takes for it.
bool IsWorthIt(const Graph& g) {
  const auto computes = [&g](ir::NodeId id) {
    const Node& n = g.node(id);
    switch (n.op) {
      case Op::kMatMul:
      case Op::kGemm:
      case Op::kConv:
      case Op::kMatMulInteger:
      case Op::kQuantizedLinear:
      case Op::kLinearBlocked:
      case Op::kQuantizedQkv:
      case Op::kSdpa:
      case Op::kQuantizedSdpa:
        return true;
      default:
        break;
    }
    return std::ranges::any_of(n.attrs.entries(), [](const auto& entry) {
      const auto* body = std::get_if<ir::GraphRef>(&entry.second);
      return body != nullptr && *body != nullptr && IsWorthIt(**body);
    });
  };
  return std::ranges::any_of(g.NodesInOrder(), computes);
}

struct Body {
  std::vector<std::string> names;  // of the model's inputs, by input of the graph; empty: it has that one as a constant
  Model model;
};

class ControlKernel : public Kernel {
 public:
  ControlKernel(const Graph& graph, const Node& node) : graph_(graph), node_(node) {}
  std::string name() const override { return "models of " + std::string(ir::InfoOf(node_.op).name); }
  bool empty() const { return bodies_.empty(); }

  // Nothing where the graph cannot be compiled: the interpreter then says why, if it is ever taken.
  void Add(const Graph& body, const CompileContext& c) {
    Graph copy = body;
    std::vector<std::string> names;
    const std::vector<ValueId> inputs = copy.inputs();
    for (size_t i = 0; i < inputs.size(); ++i) {
      const size_t slot = node_.inputs.size() - (inputs.size() - i);
      const RtValue* known = slot < node_.inputs.size() && node_.inputs[slot].valid() && IsCapture(i, inputs.size())
                                 ? &c.constants[node_.inputs[slot].index]
                                 : nullptr;
      if (known != nullptr && known->tensor.defined() && known->quant == nullptr) {
        copy.ReplaceAllUses(inputs[i], copy.AddConstant(known->tensor, {}, copy.first()));
        copy.DropInput(inputs[i]);
        names.emplace_back();
        continue;
      }
      ir::Type type = ir::TypeOfBodyInput(c.graph, node_, body, i);
      for (ir::Dim& d : type.shape ? *type.shape : ir::SymShape()) {
        if (!d.is_number()) d = ir::Dim();  // kernels need none of the names, which a run would be held to
      }
      copy.SetType(inputs[i], std::move(type));
      names.push_back(copy.value(inputs[i]).name);
    }
    if (copy.info.opsets.empty()) copy.info = c.graph.info;
    copy.info.limits = c.graph.info.limits;
    copy.info.bytes = c.graph.info.bytes;
    auto model = Model::Compile(std::move(copy), *c.options);
    if (model) bodies_.emplace(&body, Body{std::move(names), std::move(*model)});
  }

  Status Execute(StepCall& call) const override {
    const ir::interpret::RunBody run = [&](const Graph& body, std::span<const RtValue> in) {
      return RunBodyOf(body, in, call);
    };
    OCTAVO_TRY(call.out, ir::interpret::EvalControl(graph_, node_, call.in, call.interrupted, run));
    return {};
  }

 private:
  bool IsCapture(size_t i, size_t inputs) const { return inputs - i <= ir::CapturesOf(node_); }

  Result<std::vector<RtValue>> RunBodyOf(const Graph& body, std::span<const RtValue> in, const StepCall& call) const {
    const auto it = bodies_.find(&body);
    // Codes behind a float tensor, by which the interpreter computes exactly, do not go into a model.
    const bool plain =
        std::ranges::all_of(in, [](const RtValue& v) { return v.quant == nullptr && v.tensor.defined(); });
    if (it == bodies_.end() || !plain || in.size() != it->second.names.size())
      return ir::interpret::RunGraph(body, in, {.interrupted = call.interrupted});
    ir::TensorMap inputs;
    for (size_t i = 0; i < in.size(); ++i) {
      if (!it->second.names[i].empty()) inputs[it->second.names[i]] = in[i].tensor;
    }
    OCTAVO_TRY(std::vector<Tensor> outputs, it->second.model.RunInside(std::move(inputs)));
    std::vector<RtValue> values;
    for (Tensor& t : outputs) values.push_back({std::move(t), nullptr});
    return values;
  }

  const Graph& graph_;
  const Node& node_;
  std::map<const Graph*, Body> bodies_;
};

}  // namespace

KernelPtr MakeControl(const Node& node, const CompileContext& c) {
  if (c.options == nullptr) return nullptr;
  auto kernel = std::make_unique<ControlKernel>(c.graph, node);
  for (const auto& [name, attr] : node.attrs.entries()) {
    const auto* body = std::get_if<ir::GraphRef>(&attr);
    if (body != nullptr && *body != nullptr && IsWorthIt(**body)) kernel->Add(**body, c);
  }
  return kernel->empty() ? nullptr : std::move(kernel);
}

}  // namespace octavo::runtime
