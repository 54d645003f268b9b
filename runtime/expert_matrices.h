// The matrices of experts as kernels have them, out of one product with all of them side by side.
#ifndef OCTAVO_RUNTIME_EXPERT_MATRICES_H_
#define OCTAVO_RUNTIME_EXPERT_MATRICES_H_

#include <memory>
#include <string>
#include <vector>

#include "octavo/kernels/gemm/gemm.h"
#include "octavo/runtime/step.h"

namespace octavo::runtime {

class ExpertMatrices {
 public:
  virtual ~ExpertMatrices() = default;
  const std::string& name() const { return name_; }
  int64_t count() const { return count_; }
  int64_t k() const { return k_; }
  int64_t n() const { return n_; }

  // Operands of the step: rows, and what belongs to each.
  virtual void Need(Needs& needs) const = 0;
  // Of `rows` rows as the product reads them, one expert after the other.
  virtual int64_t Bytes(int64_t rows) const = 0;
  // Row `from` of the operands to place `at` of `rows` there.
  virtual void Take(const StepCall& call, int64_t from, int64_t at, int64_t rows, std::byte* sorted) const = 0;
  // Some rows of those in `sorted` times column blocks of an expert. y: [rows, n].
  virtual void Multiply(size_t expert, const std::byte* sorted, int64_t all_rows, kernels::Range rows,
                        kernels::Range blocks, float* y) const = 0;

 protected:
  std::string name_;
  int64_t count_ = 0, k_ = 0, n_ = 0;
};

// Of a LinearBlocked, or of a QuantizedLinear whose rows have scales of their own, with `count` experts of `n` columns. Null: no kernel has such.
std::unique_ptr<ExpertMatrices> MatricesOfExperts(const Node& product, const CompileContext& c, int64_t count,
                                                  int64_t n);
// Whether there are, without packing them.
bool HasMatricesOfExperts(const Node& product, const CompileContext& c, int64_t count, int64_t n);
// Of the product's operands those that are the step's.
size_t OperandsOfExperts(const Node& product);

}  // namespace octavo::runtime

#endif  // OCTAVO_RUNTIME_EXPERT_MATRICES_H_
