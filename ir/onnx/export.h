// Export: names are settled first (NameTable), then one pass per graph.
#ifndef OCTAVO_IR_ONNX_EXPORT_H_
#define OCTAVO_IR_ONNX_EXPORT_H_

#include <map>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "octavo/ir/graph.h"
#include "octavo/ir/names.h"
#include "octavo/ir/onnx/modules.h"
#include "octavo/ir/onnx/onnx.h"

namespace octavo_onnx {
class AttributeProto;
class FunctionProto;
class GraphProto;
class ModelProto;
class NodeProto;
class TensorProto;
}  // namespace octavo_onnx

namespace octavo::ir::onnx {

namespace pb = ::octavo_onnx;

// What goes to the file beside the model: equal memory is written once.
class DataFile {
 public:
  // Location in the model: a file name without folder.
  explicit DataFile(std::string location) : location_(std::move(location)) {}
  void Place(const Tensor& tensor, pb::TensorProto* proto);
  const std::string& location() const { return location_; }
  struct Piece {
    Tensor tensor;
    int64_t offset;
  };
  const std::vector<Piece>& pieces() const { return pieces_; }

 private:
  std::string location_;
  int64_t end_ = 0;
  std::vector<Piece> pieces_;
  std::map<std::pair<const void*, size_t>, int64_t> placed_;
};

class Exporter {
 public:
  Exporter(const WriteOptions& options, DataFile* data) : options_(options), data_(data) {}
  Status Model(const Graph& graph, pb::ModelProto* model);

 private:
  struct Names {
    const Names* outer = nullptr;
    std::vector<std::string> of;  // by value index
    UniqueNames taken;
    bool Taken(const std::string& name) const;
    std::string Take(std::string_view wish);  // made unique
  };
  using Aliases = std::vector<std::pair<std::string, ValueId>>;  // outputs that need an Identity

  // `captured`: names of the outer values that the last inputs stand for.
  Status WriteGraph(const Graph& graph, const Names* outer, std::span<const std::string> captured,
                    pb::GraphProto* proto);
  Status SettleNames(const Graph& graph, std::span<const std::string> captured, Names& names, Aliases& aliases,
                     pb::GraphProto* proto);
  Status WriteNodes(const Graph& graph, const Names& names, pb::GraphProto* proto);
  // `node_names`: of this graph so far; ONNX Runtime refuses a graph with two nodes of one name.
  Status WriteNode(const Graph& graph, const Node& node, const Names& names, UniqueNames& node_names,
                   pb::NodeProto* proto);
  Status WriteAttributes(const Node& node, const Names& names, std::span<const std::string> captured,
                         pb::NodeProto* proto);
  void WriteConstant(const Tensor& tensor, const std::string& name, pb::TensorProto* proto);
  // Name of the function for an octavo op, defined on first use.
  Result<std::string> FunctionOf(const Graph& graph, const Node& node);
  Status WriteFunction(const Graph& graph, const Node& node, pb::FunctionProto* function);

  const WriteOptions& options_;
  DataFile* data_;  // null: everything inline
  pb::ModelProto* model_ = nullptr;
  int64_t opset_ = 0;
  Modules modules_;
  std::map<std::string, std::string> functions_;  // serialized body -> name
  std::map<std::string, int> function_count_;     // per op
};

// export_attention.cc: the graph with Sdpa as ONNX Attention where that means the same.
Graph WithOnnxAttention(const Graph& graph);

// Bytes that the constants of the graph and its subgraphs take.
int64_t ConstantBytes(const Graph& graph);

}  // namespace octavo::ir::onnx

#endif  // OCTAVO_IR_ONNX_EXPORT_H_
