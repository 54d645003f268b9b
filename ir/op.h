// The closed list of ops octavo knows, from ops.def.
#ifndef OCTAVO_IR_OP_H_
#define OCTAVO_IR_OP_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

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
// kOpaque where octavo does not know the op. "ai.onnx" is the same as "". Octavo's own ops are known by their old names too.
Op OpFromName(std::string_view domain, std::string_view name);

// What files of 0.1.0 call some of octavo's own ops.
struct OldName {
  std::string_view name;
  Op op;
};
std::span<const OldName> OldNames();

// What an op of octavo's own takes or gives, by its line in ops.def.
struct Operand {
  std::string_view name;
  bool optional = false;  // a node may leave it out
  bool is_f32 = false;    // a result of this type whatever the inputs are
};
struct Operands {
  std::vector<Operand> once, each;  // `each` comes again and again behind `once`: once for each branch

  const Operand* At(size_t slot) const;  // null: beyond the last
  // Up to the last that every node has; of `each` there is one group at least.
  size_t least() const;
};
// Of octavo's own ops; empty for others.
const Operands& OperandsOf(Op op);
const Operands& ResultsOf(Op op);

// Whether the op takes a node that leaves this input out: beyond min_inputs, and some before.
bool MayBeAbsent(Op op, size_t slot);

}  // namespace octavo::ir

#endif  // OCTAVO_IR_OP_H_
