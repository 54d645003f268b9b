// com.microsoft FusedMatMul (and its older name TransposeMatMul): transposes, product, factor. FusedGemm: Gemm and
// activation.
#include <algorithm>

#include "octavo/ir/vendor/rules.h"

namespace octavo::ir::vendor {

namespace {

// transBatch moves the first axis behind the batch axes, trans exchanges the last two: one permutation.
std::vector<int64_t> Permutation(int64_t rank, bool trans, bool batch) {
  std::vector<int64_t> perm(static_cast<size_t>(rank));
  for (int64_t i = 0; i < rank; ++i) perm[static_cast<size_t>(i)] = i;
  if (rank >= 2 && batch) std::rotate(perm.begin(), perm.begin() + 1, perm.end() - 1);
  if (rank >= 2 && trans) std::swap(perm[perm.size() - 1], perm[perm.size() - 2]);
  return perm;
}

}  // namespace

Status FusedMatMul(Site& s) {
  const char* const trans[] = {"transA", "transB"};
  const char* const batch[] = {"transBatchA", "transBatchB"};
  ValueId operands[2];
  for (size_t i = 0; i < 2; ++i) {
    const bool t = s.attrs().Int(trans[i], 0) != 0, b = s.attrs().Int(batch[i], 0) != 0;
    if ((t || b) && s.Rank(s.In(i)) < 0) {
      return s.Refuse("{} is set and the file does not tell the rank of '{}'; give it a shape", t ? trans[i] : batch[i],
                      i == 0 ? "A" : "B");
    }
  }
  for (size_t i = 0; i < 2; ++i) {
    const bool t = s.attrs().Int(trans[i], 0) != 0, b = s.attrs().Int(batch[i], 0) != 0;
    operands[i] = s.In(i);
    if ((t || b) && s.Rank(s.In(i)) >= 2) operands[i] = s.Transpose(s.In(i), Permutation(s.Rank(s.In(i)), t, b));
  }
  ValueId y = s.Make(Op::kMatMul, {operands[0], operands[1]});
  const float alpha = s.attrs().Float("alpha", 1.0f);
  if (alpha != 1.0f) y = s.Make(Op::kMul, {y, s.Float(alpha)});
  s.Return(0, y);
  return {};
}

Status FusedGemm(Site& s) {
  const std::string name = s.attrs().Str("activation", "");
  const float alpha = s.attrs().Float("activation_alpha", 0.01f);
  Op op = Op::kIdentity;
  Attrs attrs;
  if (name == "Relu") op = Op::kRelu;
  if (name == "Sigmoid") op = Op::kSigmoid;
  if (name == "Tanh") op = Op::kTanh;
  if (name == "LeakyRelu") {
    op = Op::kLeakyRelu;
    attrs.Set("alpha", alpha);
  }
  if (op == Op::kIdentity && !name.empty()) {
    return s.Refuse(
        "activation '{}' is none of Relu, LeakyRelu, Sigmoid and Tanh; export the activation as an op of its own",
        name);
  }
  const ValueId y = s.Make(Op::kGemm, {s.In(0), s.In(1), s.In(2)},
                           {{"alpha", s.attrs().Float("alpha", 1.0f)},
                            {"beta", s.attrs().Float("beta", 1.0f)},
                            {"transA", s.attrs().Int("transA", 0)},
                            {"transB", s.attrs().Int("transB", 0)}});
  s.Return(0, name.empty() ? y : s.Make(op, {y}, std::move(attrs)));
  return {};
}

}  // namespace octavo::ir::vendor
