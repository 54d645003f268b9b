#include "octavo/ir/op.h"

#include <array>
#include <map>
#include <utility>

namespace octavo::ir {

namespace {
constexpr std::array kInfos = {
#define OCTAVO_OP(Name, domain, min_in, max_in, min_out, max_out) \
  OpInfo{#Name, domain, min_in, max_in, min_out, max_out},
#include "octavo/ir/ops.def"
#undef OCTAVO_OP
};
}  // namespace

const OpInfo& InfoOf(Op op) { return kInfos[static_cast<size_t>(op)]; }

Op OpFromName(std::string_view domain, std::string_view name) {
  static const auto* const table = [] {
    auto* t = new std::map<std::pair<std::string_view, std::string_view>, Op>;
    for (size_t i = 0; i < kInfos.size(); ++i) (*t)[{kInfos[i].domain, kInfos[i].name}] = static_cast<Op>(i);
    return t;
  }();
  const auto it = table->find({domain == "ai.onnx" ? std::string_view("") : domain, name});
  return it == table->end() ? Op::kOpaque : it->second;
}

}  // namespace octavo::ir
