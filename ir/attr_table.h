// Which attributes ONNX, ONNX Runtime and octavo give their ops, and of which kind (attrs.def). A node is asked once, when a file is read:
// behind that an attribute of another kind would be the default in silence.
#ifndef OCTAVO_IR_ATTR_TABLE_H_
#define OCTAVO_IR_ATTR_TABLE_H_

#include <span>
#include <string_view>

#include "octavo/ir/attrs.h"
#include "octavo/ir/status.h"

namespace octavo::ir {

struct AttrRule {
  std::string_view name;
  char kind;  // as attrs.def writes it
};
// Null: an op of which nothing is known. ONNX's own domain is "".
const std::vector<AttrRule>* AttrRulesOf(std::string_view domain, std::string_view op);

// Fails where a known op has an attribute of another kind, or one that it does not know; the sentence names the attribute. Names that
// begin with "__" are anybody's, as in ONNX's checker. Whoever adds an attribute to a com.microsoft op leaves the others as they are, so
// there an unknown name is no error: false, the node means something that octavo cannot tell.
Result<bool> CheckAttributes(std::string_view domain, std::string_view op, const Attrs& attrs);

}  // namespace octavo::ir

#endif  // OCTAVO_IR_ATTR_TABLE_H_
