// Import: one FileContext per model file, one GraphBuilder per graph (main graph or subgraph), one Scope per namespace
// of value names (a graph, or the body of an inlined function within it).
#ifndef OCTAVO_IR_ONNX_IMPORT_H_
#define OCTAVO_IR_ONNX_IMPORT_H_

#include <map>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "octavo/ir/graph.h"
#include "octavo/ir/memory.h"
#include "octavo/ir/names.h"
#include "octavo/ir/onnx/external.h"
#include "octavo/ir/onnx/modules.h"
#include "octavo/ir/onnx/symbols.h"

namespace octavo_onnx {
class AttributeProto;
class FunctionProto;
class GraphProto;
class ModelProto;
class NodeProto;
class TensorProto;
}  // namespace octavo_onnx
namespace google::protobuf {
template <typename T>
class RepeatedPtrField;
}

namespace octavo::ir::onnx {

namespace pb = ::octavo_onnx;

using Opsets = std::map<std::string, int64_t, std::less<>>;                      // "ai.onnx" is spelled ""
using Bindings = std::map<std::string, const pb::AttributeProto*, std::less<>>;  // a function call's attributes
using NodeList = google::protobuf::RepeatedPtrField<pb::NodeProto>;

struct Function {
  const pb::FunctionProto* proto;
  Opsets opsets;
  int64_t cost;  // of a call, in nodes
};

class FileContext {
 public:
  FileContext(ExternalFiles external, int64_t most_nodes) : files(std::move(external)), most_nodes_(most_nodes) {}
  ExternalFiles files;
  Symbols symbols;
  Modules modules;
  std::map<std::tuple<std::string, std::string, std::string>, Function> functions;
  std::vector<const Function*> active;  // being inlined: a function that calls itself has no end
  bool attention_before_122 = false;
  bool placed = false;  // the error at hand names a node of a function

  // Before as many nodes are made: bounds what a small file can blow up to.
  Status Spend(int64_t nodes);
  // The tensor of an attribute. One of a function's body is the same for all its calls.
  Result<Tensor> Read(const pb::TensorProto& proto);

 private:
  int64_t nodes_ = 0, most_nodes_;
  std::vector<MemoryCharge> memory_;  // of the nodes
  int64_t charged_nodes_ = 0;
  std::unordered_map<const pb::TensorProto*, Tensor> tensors_;
};

struct Scope {
  std::unordered_map<std::string_view, ValueId> values;  // invalid: an optional input that the call left out
  const Opsets* opsets = nullptr;
  const Bindings* bindings = nullptr;  // null outside functions
  bool in_function = false;
  std::string prefix;                             // of names made by an inlined function; a stem
  std::map<std::string_view, std::string> named;  // the function's outputs -> names at the call
  std::vector<std::string> origin;                // of the call
};

// A node on its way from the file's form to the form of ops.def.
struct Draft {
  std::string domain, op_type, name;
  int64_t version = 0;  // of the domain's opset
  std::vector<ValueId> inputs;
  std::vector<std::string_view> outputs;  // names in the scope; empty: not wanted
  Attrs attrs;
  std::vector<std::string> origin;
  size_t captures = 0;
  Scope* scope = nullptr;

  ValueId input(size_t i) const { return i < inputs.size() ? inputs[i] : ValueId{}; }
  bool wants(size_t i) const { return i < outputs.size() && !outputs[i].empty(); }
  // For sentences: node 'name' (Op).
  std::string Describe() const;
};

struct Capture {
  std::string_view name;
  Type type;
};

class GraphBuilder {
 public:
  explicit GraphBuilder(FileContext& file) : file_(file) {}

  // `constants`: the initializers of the graph, already read (the main graph's are taken out of the proto, not copied).
  Result<Graph> Build(const pb::GraphProto& proto, std::vector<Tensor> constants, const Opsets& opsets,
                      const Bindings* bindings, std::span<const Capture> captures, bool main);

  // --- for the rules in upgrade.cc and vendor.cc ---------------------------------------------------------------
  Graph& graph() { return g_; }
  // A constant, a one-output node, or a node with the draft's named outputs; named after the draft and `hint`.
  ValueId Constant(const Draft& d, std::string_view hint, Tensor tensor);
  ValueId Ints(const Draft& d, std::string_view hint, std::vector<int64_t> values);
  ValueId Emit(const Draft& d, std::string_view hint, Op op, std::vector<ValueId> inputs, Attrs attrs = {});
  // As Emit; the value is output `i` of the draft where that is wanted.
  ValueId EmitOutput(const Draft& d, size_t i, std::string_view hint, Op op, std::vector<ValueId> inputs,
                     Attrs attrs = {});
  // Rank of v; -1: not known.
  int64_t RankOf(ValueId v) const;
  DType DTypeOf(ValueId v) const { return v.valid() ? g_.value(v).type.dtype : DType::kUndefined; }

 private:
  Status AddInputs(const pb::GraphProto& proto, std::span<const Capture> captures, bool main);
  Status AddInitializers(const pb::GraphProto& proto, std::vector<Tensor> constants);
  Status AddOutputs(const pb::GraphProto& proto, bool main);
  Status BuildNodes(const NodeList& nodes, Scope& scope);
  Status At(const pb::NodeProto& node, const Scope& scope, const Status& status);
  Status Order(std::span<const pb::NodeProto* const> nodes, const Scope& scope, std::vector<uint32_t>& order);
  Status AddConstantNode(const pb::NodeProto& node, Scope& scope);
  Status AddNode(const pb::NodeProto& node, Scope& scope);
  Status Inline(const pb::NodeProto& node, const Function& function, Scope& scope);
  Result<Attrs> ReadAttributes(const pb::NodeProto& node, Scope& scope, std::vector<ValueId>& captured);
  Result<GraphRef> ReadSubgraph(const pb::GraphProto& proto, Scope& scope, std::span<const std::string_view> names,
                                std::span<const ValueId> captured);
  Status Finish(Draft& draft);
  static Status CheckInputs(Op op, std::span<const ValueId> inputs);
  static Status CheckSubgraphs(Op op, const Draft& d);
  Status Define(Scope& scope, std::string_view name, ValueId value, std::string_view by);
  std::string IrName(const Scope& scope, std::string_view name);
  std::string Fresh(const Draft& d, std::string_view hint);
  static std::string NodeName(const Draft& d, std::string_view hint);
  void NameOutputs(NodeId id, const std::vector<std::string>& names);
  NodeId Place(NodeId id);
  void SetDeclaredType(ValueId v);

  FileContext& file_;
  Graph g_;
  Status emitted_;  // whether every node that a rule emitted has the inputs it needs
  Scope top_;
  UniqueNames names_;                                                 // every value name of the file's graph and ours
  std::unordered_map<std::string_view, const pb::TypeProto*> types_;  // value_info
  NodeId first_node_;  // the first node that is no Constant: constants stand before it, as initializers do in a file
};

// attributes.cc
// One attribute, refs to a function's attributes resolved already; subgraphs are not its business.
Result<Attr> ReadAttribute(const pb::AttributeProto& proto, FileContext& file);
// The tensor a Constant node of any form holds; `name` tells the form: value, value_ints, ...
Result<Tensor> ReadConstant(const pb::AttributeProto& proto, std::string_view name, FileContext& file);
// The attribute that `proto` stands for within a function call; null: the call leaves it out.
const pb::AttributeProto* Resolve(const pb::AttributeProto& proto, const Bindings* bindings);

// contents.cc
// Names that the graph reads and does not define, in order of appearance.
std::vector<std::string_view> FreeNames(const pb::GraphProto& graph);

// upgrade.cc, vendor.cc: bring a draft to the form of ops.def; may emit other nodes before it.
// An output that such a node already makes is cleared in the draft.
Status Upgrade(Draft& draft, GraphBuilder& builder);
Status FromVendor(Draft& draft, GraphBuilder& builder);
// softmax_form.cc: softmax over several trailing axes (before opset 13) once ranks are known.
void ResolveSoftmax(Graph& graph);
// sequences.cc: sequences whose elements are known become tensors.
void ResolveSequences(Graph& graph);
inline constexpr std::string_view kFlattenSoftmax = "octavo_flatten";

}  // namespace octavo::ir::onnx

#endif  // OCTAVO_IR_ONNX_IMPORT_H_
