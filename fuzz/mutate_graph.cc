// Mutations of a graph's nodes, edges, inputs and outputs.
#include <algorithm>

#include "octavo/fuzz/mutator.h"
#include "octavo/fuzz/values.h"

namespace octavo::fuzz {

// Mostly the main graph, else one of an If, Loop or Scan in it.
pb::GraphProto& Mutator::SomeGraph() {
  std::vector<pb::GraphProto*> graphs{model_.mutable_graph()};
  for (pb::NodeProto& node : *graphs[0]->mutable_node()) {
    for (pb::AttributeProto& a : *node.mutable_attribute()) {
      if (a.has_g()) graphs.push_back(a.mutable_g());
    }
  }
  return random_.OneIn(3) ? *random_.Of(graphs) : *graphs[0];
}

pb::NodeProto* Mutator::SomeNode(pb::GraphProto& graph) {
  return graph.node_size() == 0 ? nullptr : graph.mutable_node(random_.Int(graph.node_size()));
}

std::string Mutator::Fresh() { return "fuzz" + std::to_string(fresh_++); }

std::string Mutator::SomeValue(const pb::GraphProto& graph) {
  switch (random_.Int(4)) {
    case 0:
      if (graph.input_size() > 0) return graph.input(random_.Int(graph.input_size())).name();
      break;
    case 1:
      if (graph.initializer_size() > 0) return graph.initializer(random_.Int(graph.initializer_size())).name();
      break;
    default:
      if (graph.node_size() == 0) break;
      const pb::NodeProto& node = graph.node(random_.Int(graph.node_size()));
      if (node.output_size() > 0) return node.output(random_.Int(node.output_size()));
  }
  return names_.empty() ? "x" : random_.Of(names_);
}

pb::NodeProto& Mutator::AddNodeAt(pb::GraphProto& graph, int index) {
  graph.add_node();
  for (int i = graph.node_size() - 1; i > index; --i) graph.mutable_node()->SwapElements(i, i - 1);
  pb::NodeProto& node = *graph.mutable_node(index);
  node.set_name(Fresh());
  return node;
}

void Mutator::Rewire() {
  pb::GraphProto& graph = SomeGraph();
  pb::NodeProto* node = SomeNode(graph);
  if (node == nullptr) return;
  if (node->input_size() == 0 || random_.OneIn(6)) return node->add_input(SomeValue(graph));
  const int at = random_.Int(node->input_size());
  switch (random_.Int(5)) {
    case 0:
      return node->set_input(at, "");
    case 1:
      return (void)node->mutable_input()->RemoveLast();
    default:
      return node->set_input(at, SomeValue(graph));
  }
}

void Mutator::SwapInputs() {
  pb::NodeProto* node = SomeNode(SomeGraph());
  if (node == nullptr || node->input_size() < 2) return;
  node->mutable_input()->SwapElements(random_.Int(node->input_size()), random_.Int(node->input_size()));
}

// The readers of a node's output read its input instead; the node stays or goes.
void Mutator::Bypass() {
  pb::GraphProto& graph = SomeGraph();
  if (graph.node_size() == 0) return;
  const int at = random_.Int(graph.node_size());
  const pb::NodeProto node = graph.node(at);
  if (node.output_size() == 0) return;
  const std::string from = node.output(random_.Int(node.output_size()));
  const std::string to = node.input_size() > 0 ? node.input(random_.Int(node.input_size())) : SomeValue(graph);
  for (pb::NodeProto& reader : *graph.mutable_node()) {
    for (std::string& input : *reader.mutable_input()) {
      if (input == from) input = to;
    }
  }
  if (random_.OneIn(2)) graph.mutable_node()->DeleteSubrange(at, 1);
}

// Another op of as many inputs, most times.
void Mutator::RenameOp() {
  pb::NodeProto* node = SomeNode(SomeGraph());
  if (node == nullptr) return;
  for (int attempt = 0; attempt < 20; ++attempt) {
    const OpName& op = random_.Of(KnownOps());
    if (op.inputs >= 0 && op.inputs != node->input_size() && !random_.OneIn(10)) continue;
    node->set_op_type(std::string(op.name));
    node->set_domain(std::string(op.domain));
    if (!op.domain.empty() && random_.OneIn(2)) {
      auto* opset = model_.add_opset_import();
      opset->set_domain(std::string(op.domain)), opset->set_version(1);
    }
    return;
  }
}

// An op between a value and one of its readers, or all of them.
void Mutator::InsertOp() {
  pb::GraphProto& graph = SomeGraph();
  if (graph.node_size() == 0) return;
  const int at = random_.Int(graph.node_size());
  if (graph.node(at).input_size() == 0) return;
  const int slot = random_.Int(graph.node(at).input_size());
  const std::string from = graph.node(at).input(slot), made = Fresh();
  static constexpr const char* kSame[] = {"Identity", "Identity", "Neg",     "Relu",    "Abs",  "Cast", "Transpose",
                                          "Dropout",  "Sigmoid",  "Tanh",    "Softmax", "Gelu", "Exp",  "Sqrt",
                                          "Not",      "Shape",    "Flatten", "Mul",     "Add",  "Where"};
  const std::string op = random_.Of(kSame);
  const auto all = [&](int first) {
    for (int i = first; i < graph.node_size(); ++i) {
      for (std::string& input : *graph.mutable_node(i)->mutable_input()) {
        if (input == from) input = made;
      }
    }
  };
  if (random_.OneIn(3))
    all(at);
  else
    graph.mutable_node(at)->set_input(slot, made);
  pb::NodeProto& node = AddNodeAt(graph, at);
  node.set_op_type(op);
  node.add_input(from), node.add_output(made);
  if (op == "Cast") {
    auto* to = node.add_attribute();
    to->set_name("to"), to->set_type(pb::AttributeProto::INT), to->set_i(random_.OneIn(2) ? 1 : 1 + random_.Int(22));
  }
  if (op == "Mul" || op == "Add") {
    pb::TensorProto& scalar =
        AddScalar(graph, pb::TensorProto::FLOAT, random_.OneIn(2) ? (op == "Mul" ? 1.0 : 0.0) : SomeFloat(random_, 1));
    for (int rank = random_.Int(4); rank > 0; --rank) scalar.add_dims(1);
    node.add_input(scalar.name());
  }
  if (op == "Where")
    node.mutable_input()->Clear(), node.add_input(from), node.add_input(from), node.add_input(SomeValue(graph));
}

// A quantized edge, as calibration would make it.
void Mutator::InsertQuantize() {
  pb::GraphProto& graph = *model_.mutable_graph();
  if (graph.node_size() == 0) return;
  const int at = random_.Int(graph.node_size());
  if (graph.node(at).input_size() == 0) return;
  const int slot = random_.Int(graph.node(at).input_size());
  const std::string from = graph.node(at).input(slot);
  const int type = random_.OneIn(6) ? 17 : random_.OneIn(2) ? pb::TensorProto::UINT8 : pb::TensorProto::INT8;
  const std::string scale =
      AddScalar(graph, pb::TensorProto::FLOAT, random_.OneIn(8) ? SomeFloat(random_, 1) : 0.02).name();
  const std::string zero = AddScalar(graph, type, type == pb::TensorProto::UINT8 ? random_.Int(256) : 0).name();
  const std::string code = Fresh(), made = Fresh();
  graph.mutable_node(at)->set_input(slot, made);
  const auto node = [&](int index, const char* op, const std::string& in, const std::string& out) {
    pb::NodeProto& n = AddNodeAt(graph, index);
    n.set_op_type(op), n.add_output(out);
    n.add_input(in), n.add_input(scale), n.add_input(zero);
  };
  node(at, "QuantizeLinear", from, code);
  node(at + 1, "DequantizeLinear", code, made);
}

void Mutator::AddOutput() {
  pb::GraphProto& graph = *model_.mutable_graph();
  const std::string name = SomeValue(graph);
  auto* output = graph.add_output();
  output->set_name(name);
  if (random_.OneIn(3)) output->mutable_type()->mutable_tensor_type()->set_elem_type(1);
}

// A second node that computes the same, read by some.
void Mutator::Twin() {
  pb::GraphProto& graph = SomeGraph();
  if (graph.node_size() == 0) return;
  const int at = random_.Int(graph.node_size());
  pb::NodeProto twin = graph.node(at);
  for (std::string& output : *twin.mutable_output()) {
    const std::string made = Fresh();
    for (int i = at + 1; i < graph.node_size(); ++i) {
      for (std::string& input : *graph.mutable_node(i)->mutable_input()) {
        if (input == output && random_.OneIn(2)) input = made;
      }
    }
    output = made;
  }
  if (random_.OneIn(2)) twin.set_name(Fresh());
  pb::NodeProto& node = AddNodeAt(graph, at);
  node.Swap(&twin);
}

void Mutator::InputType() {
  pb::GraphProto& graph = SomeGraph();
  auto& ports = random_.OneIn(4)   ? *graph.mutable_output()
                : random_.OneIn(4) ? *graph.mutable_value_info()
                                   : *graph.mutable_input();
  if (ports.empty()) return;
  auto* type = ports.Mutable(random_.Int(ports.size()))->mutable_type()->mutable_tensor_type();
  if (random_.OneIn(4)) return type->set_elem_type(random_.OneIn(3) ? random_.Int(30) : 1 + random_.Int(16));
  auto* shape = type->mutable_shape();
  if (shape->dim_size() == 0 || random_.OneIn(6)) {
    shape->add_dim()->set_dim_value(SomeSize(random_));
    return;
  }
  auto* dim = shape->mutable_dim(random_.Int(shape->dim_size()));
  switch (random_.Int(6)) {
    case 0:
      return (void)shape->mutable_dim()->RemoveLast();
    case 1:
      return dim->set_dim_param(random_.OneIn(2) ? "batch" : Fresh());
    case 2:
      return dim->clear_value();
    case 3:
      return dim->set_dim_value(SomeInt(random_, dim->dim_value()));
    default:
      return dim->set_dim_value(SomeSize(random_));
  }
}

// A node with its constants, or a function, of the other model.
void Mutator::Borrow() {
  if (other_ == nullptr) return;
  pb::GraphProto& graph = SomeGraph();
  const pb::GraphProto& from = other_->graph();
  if (other_->functions_size() > 0 && random_.OneIn(3)) {
    *model_.add_functions() = other_->functions(random_.Int(other_->functions_size()));
    return;
  }
  if (from.node_size() == 0) return;
  const int first = random_.Int(from.node_size());
  const std::string prefix = Fresh();
  for (int i = first; i < std::min(from.node_size(), first + 1 + random_.Int(6)); ++i) {
    pb::NodeProto& node = *graph.add_node();
    node = from.node(i);
    for (std::string& output : *node.mutable_output()) output = prefix + output;
    for (std::string& input : *node.mutable_input()) {
      const std::string name = input;
      const auto constant = std::ranges::find_if(from.initializer(), [&](const auto& t) { return t.name() == name; });
      if (constant != from.initializer().end() && constant->ByteSizeLong() < 20000) {
        *graph.add_initializer() = *constant;
        graph.mutable_initializer(graph.initializer_size() - 1)->set_name(prefix + name);
      }
      input = !name.empty() && random_.OneIn(3) && constant == from.initializer().end() ? SomeValue(graph)
              : name.empty()                                                            ? name
                                                                                        : prefix + name;
    }
    if (node.output_size() > 0 && random_.OneIn(2)) graph.add_output()->set_name(node.output(0));
  }
}

}  // namespace octavo::fuzz
