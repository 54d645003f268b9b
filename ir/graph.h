// Graph: nodes and SSA values in stores, addressed by typed 32-bit handles, with ordered use lists.
// The list of nodes is in topological order, always; Verify (verify.h) checks it.
// Handles of erased things are never reused. All mutation goes through the members below; passes use
// passes/rewriter.h, which adds provenance.
#ifndef OCTAVO_IR_GRAPH_H_
#define OCTAVO_IR_GRAPH_H_

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "octavo/ir/attrs.h"
#include "octavo/ir/dim.h"
#include "octavo/ir/limits.h"
#include "octavo/ir/op.h"
#include "octavo/ir/tensor.h"

namespace octavo::ir {

template <typename Tag>
struct Id {
  static constexpr uint32_t kNone = UINT32_MAX;
  uint32_t index = kNone;
  bool valid() const { return index != kNone; }
  explicit operator bool() const { return valid(); }
  auto operator<=>(const Id&) const = default;
};
using NodeId = Id<struct NodeTag>;
using ValueId = Id<struct ValueTag>;  // an invalid ValueId as an input: an optional input that is absent

struct Type {
  DType dtype = DType::kUndefined;  // kUndefined: not known (yet)
  std::optional<SymShape> shape;    // nullopt: rank not known
};
std::string ToString(const Type& type);  // "f32[batch,seq,384]", "f32[*]", "?"

struct Use {
  NodeId node;
  uint32_t slot;  // index into Node::inputs
  bool operator==(const Use&) const = default;
};

struct Value {
  std::string name;  // unique within the graph; the ONNX name where there is one
  Type type;
  NodeId producer;            // invalid: graph input
  uint32_t output_index = 0;  // which output of the producer
  std::vector<Use> uses;      // in order of creation; graph outputs are not in it
  bool alive = true;
};

struct Node {
  Op op = Op::kOpaque;
  std::string domain, op_type;  // only for kOpaque
  std::string name;             // the ONNX node name, or one made by a pass
  std::vector<ValueId> inputs;
  std::vector<ValueId> outputs;  // may hold invalid ids: an output nobody wants
  Attrs attrs;
  std::vector<std::string> origin;  // names of the ONNX nodes it came from, then "pass:NAME" entries
  NodeId prev, next;
  bool alive = true;

  ValueId input(size_t i) const { return i < inputs.size() ? inputs[i] : ValueId{}; }
  ValueId output(size_t i = 0) const { return i < outputs.size() ? outputs[i] : ValueId{}; }
};

// For people: the node's name; one that has none in its file is called after its op and output, "MatMul(y)".
std::string DisplayName(const Node& node);
// First origin that names a source node, else the node's own name.
std::string OriginName(const Node& node);

// A graph output keeps its own name, whatever value is bound to it.
struct GraphOutput {
  std::string name;
  ValueId value;
  Type declared;  // as the file declares it
};

// What an ONNX model carries besides nodes.
struct ModelInfo {
  int64_t ir_version = 8;
  std::map<std::string, int64_t> opsets;  // domain -> version; "" is ONNX's own
  std::string producer_name, producer_version, domain, doc;
  int64_t model_version = 0;
  std::map<std::string, std::string> metadata;
  std::vector<std::string> notes;  // what the reader of the file found wrong and mended, a sentence each; not written
  Limits limits;                   // as the caller of the reader set them; not written
  int64_t bytes = 0;               // of the file and of the external data that it names; 0: from no file
};

class Graph {
 public:
  Graph() = default;
  Graph(const Graph&) = default;  // a deep copy but for tensors, which are shared; handles stay valid in the copy
  Graph& operator=(const Graph&) = default;
  Graph(Graph&&) = default;
  Graph& operator=(Graph&&) = default;

  std::string name;
  std::string doc;
  ModelInfo info;

  // --- reading -------------------------------------------------------------------------------------------------
  const Node& node(NodeId id) const;
  const Value& value(ValueId id) const;
  const std::vector<ValueId>& inputs() const { return inputs_; }
  const std::vector<GraphOutput>& outputs() const { return outputs_; }
  NodeId first() const { return first_; }
  NodeId last() const { return last_; }
  // All live nodes in order. A snapshot, so the graph may be changed while it is walked; check IsAlive then.
  std::vector<NodeId> NodesInOrder() const;
  size_t node_count() const { return live_nodes_; }
  size_t value_capacity() const { return values_.size(); }  // bound of ValueId::index, for side tables
  size_t node_capacity() const { return nodes_.size(); }
  bool IsAlive(NodeId id) const { return id.valid() && id.index < nodes_.size() && nodes_[id.index].alive; }
  bool IsAlive(ValueId id) const { return id.valid() && id.index < values_.size() && values_[id.index].alive; }

  // Null where the value is a graph input (or invalid).
  const Node* Producer(ValueId v) const;
  // Producer's op is `op`.
  bool IsFrom(ValueId v, Op op) const;
  // The tensor of a value that a Constant node makes; null otherwise.
  const Tensor* ConstantOf(ValueId v) const;
  bool IsGraphOutput(ValueId v) const;
  // Exactly one use and not a graph output.
  bool HasOneUse(ValueId v) const;
  // Invalid if there is none of that name.
  ValueId FindValue(std::string_view name) const;
  bool Before(NodeId a, NodeId b) const;  // a stands before b in the order (amortized O(1))

  // --- writing -------------------------------------------------------------------------------------------------
  ValueId AddInput(std::string name, Type type);
  void DropInput(ValueId input);  // nothing may use it
  void AddOutput(std::string name, ValueId value, Type declared = {});
  void SetOutput(size_t i, ValueId value);  // the output's name stays
  void DeclareOutput(size_t i, Type declared);
  // A new node before `before` (at the end if invalid) with `output_count` fresh values. Output names are derived from
  // `name` (made unique); rename with SetName.
  NodeId AddNode(Op op, std::vector<ValueId> inputs, size_t output_count, Attrs attrs = {}, std::string name = {},
                 NodeId before = {});
  NodeId AddOpaque(std::string domain, std::string op_type, std::vector<ValueId> inputs, size_t output_count,
                   Attrs attrs = {}, std::string name = {}, NodeId before = {});
  // A Constant node; its type is filled in.
  ValueId AddConstant(Tensor tensor, std::string name = {}, NodeId before = {});
  void SetInput(NodeId node, size_t slot, ValueId value);  // slot may be one past the end
  void SetAttr(NodeId node, std::string_view name, Attr value);
  void EraseAttr(NodeId node, std::string_view name);
  void SetType(ValueId value, Type type);
  void SetName(ValueId value, std::string name);  // made unique by a suffix if taken
  void SetNodeName(NodeId node, std::string name);
  void SetOrigin(NodeId node, std::vector<std::string> origin);
  void DropOutput(NodeId node, size_t i);  // the output value must be unused; its slot becomes invalid
  // Every use of `from`, and every graph output bound to it, becomes `to`.
  void ReplaceAllUses(ValueId from, ValueId to);
  // The node's outputs must be unused.
  void Erase(NodeId node);
  void MoveBefore(NodeId node, NodeId before);  // at the end if invalid
  // Restores the topological order after surgery (stable). False if there is a cycle; the graph is then unchanged.
  bool SortTopologically();

  std::string UniqueName(std::string_view wish) const;

 private:
  Node& mutable_node(NodeId id);
  Value& mutable_value(ValueId id);
  ValueId NewValue(std::string name, NodeId producer, uint32_t index);
  void Link(NodeId id, NodeId before);
  void Unlink(NodeId id);
  void Renumber() const;

  std::deque<Node> nodes_;  // chunked: references stay valid while it grows
  std::deque<Value> values_;
  std::vector<ValueId> inputs_;
  std::vector<GraphOutput> outputs_;
  std::map<std::string, ValueId, std::less<>> by_name_;
  NodeId first_, last_;
  size_t live_nodes_ = 0;
  mutable std::map<std::string, int64_t, std::less<>> next_suffix_;
  mutable std::vector<uint64_t> position_;  // by node index: order labels with gaps
  mutable bool numbered_ = false;
};

}  // namespace octavo::ir

#endif  // OCTAVO_IR_GRAPH_H_
