// Whether two models would say the same: of outputs whose rows are scores or probabilities of classes.
#ifndef OCTAVO_QUANT_AGREEMENT_H_
#define OCTAVO_QUANT_AGREEMENT_H_

#include <cstdint>
#include <string_view>

#include "octavo/ir/tensor.h"
#include "octavo/quant/error.h"

namespace octavo::quant {

// What the rows of an output, along its last axis, are.
enum class RowKind : uint8_t {
  kVector,         // floats of any meaning: hidden states, embeddings
  kLogits,         // scores whose softmax counts
  kProbabilities,  // not below 0, and each row sums to 1
};
// "vector", "logits", "probabilities".
std::string_view NameOf(RowKind kind);
// Logits by their name, or by a vocabulary's width; probabilities by what they are.
RowKind KindOf(std::string_view name, const ir::Tensor& output);

class Agreement {
 public:
  // Tensors of one shape; rows with a number that is not finite on either side count as different, and nowhere else. The kind of the
  // first stays.
  void Add(RowKind kind, const ir::Tensor& want, const ir::Tensor& got);

  RowKind kind() const { return kind_; }
  int64_t rows() const { return rows_; }
  // Of the rows, how many have their largest number at the same place; 1 where there are none.
  double Top1() const { return rows_ == 0 ? 1 : static_cast<double>(same_) / static_cast<double>(rows_); }
  // Mean over rows of the Kullback-Leibler divergence of `got` from `want`, in nats.
  double KlError() const { return StandardError(kl_, kl_squares_, finite_); }
  double MeanKl() const { return finite_ == 0 ? 0 : kl_ / static_cast<double>(finite_); }

 private:
  RowKind kind_ = RowKind::kVector;
  int64_t rows_ = 0, same_ = 0, finite_ = 0;
  double kl_ = 0, kl_squares_ = 0;
};

}  // namespace octavo::quant

#endif  // OCTAVO_QUANT_AGREEMENT_H_
