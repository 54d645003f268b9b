// Types of values: TypeProto to Type and back, and the names of symbolic dims.
#ifndef OCTAVO_IR_ONNX_SYMBOLS_H_
#define OCTAVO_IR_ONNX_SYMBOLS_H_

#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>

#include "octavo/ir/graph.h"
#include "octavo/ir/names.h"

namespace octavo_onnx {
class GraphProto;
class TensorShapeProto;
class TypeProto;
class ValueInfoProto;
}  // namespace octavo_onnx

namespace octavo::ir::onnx {

// One table per file: equal dim_params become equal symbols, different ones never do, whatever characters they hold.
class Symbols {
 public:
  // Plain names that the inputs of the main graph declare keep their spelling; call first.
  void Reserve(const ::octavo_onnx::GraphProto& graph);

  // Unnamed dynamic dims of a graph input get a fresh symbol "<input>_d0": equal unknown dims are never assumed, yet
  // everything computed from this dim can be related to it. Elsewhere they stay unknown.
  enum class Unnamed { kFreshSymbol, kUnknown };
  // An optional tensor is a tensor here: one that is not given is no operand at all.
  // nullopt: not a tensor, of an element type octavo does not have, or of too many dims.
  std::optional<Type> Read(const ::octavo_onnx::TypeProto& proto, std::string_view value, Unnamed unnamed);

 private:
  Dim Named(const std::string& dim_param);
  std::string Symbol(const std::string& raw);
  std::string Fresh(std::string base);  // no other value's, even if the file uses its spelling

  std::map<std::string, std::string, std::less<>> symbol_of_;  // raw dim_param -> symbol
  UniqueNames taken_;
  std::set<std::string, std::less<>> input_symbols_;  // dim_params that stand alone in some input dim
};

// "sequence", "map", ... or the element type that octavo does not have: for sentences.
std::string DescribeType(const ::octavo_onnx::TypeProto& proto);

void WriteType(const Type& type, ::octavo_onnx::TypeProto* proto);

}  // namespace octavo::ir::onnx

#endif  // OCTAVO_IR_ONNX_SYMBOLS_H_
