// The closed list of ops octavo knows, from ops.def.
#ifndef OCTAVO_IR_OP_H_
#define OCTAVO_IR_OP_H_

#include <cstdint>
#include <string_view>

namespace octavo::ir {

enum class Op : uint16_t {
#define OCTAVO_OP(Name, domain, min_in, max_in, min_out, max_out) k##Name,
#include "octavo/ir/ops.def"
#undef OCTAVO_OP
};

struct OpInfo {
  std::string_view name;
  std::string_view domain;                               // "" for ONNX's own
  int min_inputs, max_inputs, min_outputs, max_outputs;  // -1: any number
};

const OpInfo& InfoOf(Op op);
// kOpaque where octavo does not know the op. "ai.onnx" is the same as "".
Op OpFromName(std::string_view domain, std::string_view name);

}  // namespace octavo::ir

#endif  // OCTAVO_IR_OP_H_
