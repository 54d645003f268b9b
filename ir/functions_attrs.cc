// Which ops have a body, and the attributes that they have in all.
#include <algorithm>
#include <span>
#include <string>
#include <vector>

#include "octavo/ir/functions.h"

namespace octavo::ir {

bool HasScoreSteps(const Node& node) {
  for (const size_t slot : {kSdpaProductCodes, kSdpaScaledCodes, kSdpaMaskedCodes, kSdpaProbCodes}) {
    if (node.input(slot).valid()) return true;
  }
  return node.attrs.Float("divisor", 0.0f) != 0.0f || node.attrs.Float("p_step", 0.0f) != 0.0f;
}

std::span<const FusedAttr> FusedAttrs() {
  constexpr int64_t kInt = 0;
  static const FusedAttr attrs[] = {{"activation", std::string()},
                                    {"block_size", kInt},
                                    {"bottom_right", kInt},
                                    {"divisor", 0.0f},
                                    {"epsilon", 0.0f},
                                    {"flash", kInt},
                                    {"head_dim", kInt},
                                    {"hidden_value", 0.0f},
                                    {"k_rank", kInt},
                                    {"kv_num_heads", kInt},
                                    {"nan_guard", kInt},
                                    {"num_heads", kInt},
                                    {"out_rank", kInt},
                                    {"p_relative", kInt},
                                    {"p_step", 0.0f},
                                    {"per_token", kInt},
                                    {"product_step", 0.0f},
                                    {"q_rank", kInt},
                                    {"rms", kInt},
                                    {"scale", 0.0f},
                                    {"softcap", 0.0f},
                                    {"transposed", kInt},
                                    {"v_head_dim", kInt},
                                    {"v_rank", kInt},
                                    {"window_left", kInt},
                                    {"window_right", kInt},
                                    {"x_bits", kInt}};
  return attrs;
}

bool HasBody(Op op) { return InfoOf(op).domain == "octavo"; }

bool IsSkipNorm(Op op) {
  const Operand* second = OperandsOf(op).At(1);
  return second != nullptr && second->name == "skip";
}

std::vector<Op> FusedOps() {
  std::vector<Op> ops = {
#define OCTAVO_OP(Name, domain, min_in, max_in, min_out, max_out) Op::k##Name,
#include "octavo/ir/ops.def"
#undef OCTAVO_OP
  };
  std::erase_if(ops, [](Op op) { return !HasBody(op); });
  return ops;
}

}  // namespace octavo::ir
