// What weights are fitted to: which errors of W the products x W notice.
//
// E = W - Wq costs sum |x E|^2 = tr(E' H E) over the rows x of the calibration data, with H = sum x' x. Its Cholesky factor H = U' U turns
// that into sum_k |u_kk (e_k + sum_{j>k} v_kj e_j)|^2, v_kj = u_kj / u_kk, so that, from the last row of W to the first, each code
// is the nearest to w_k + sum_{j>k} v_kj e_j: it makes up for what the rows behind it lost. Babai's nearest plane; with the rows the other
// way round it is GPTQ (Frantar et al., 2022, arXiv 2210.17323; Chen et al., 2025, arXiv 2507.18553), but no inverse is needed.
#ifndef OCTAVO_PASSES_QUANTIZE_MOMENTS_H_
#define OCTAVO_PASSES_QUANTIZE_MOMENTS_H_

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "octavo/passes/pass.h"

namespace octavo::passes::quantize {

// H of one activation, in f32.
class SecondMoments {
 public:
  // parallel: outlives the moments.
  SecondMoments(int64_t k, const ParallelFor& parallel)
      : k_(k), parallel_(&parallel), sums_(static_cast<size_t>(k * k)) {}
  int64_t k() const { return k_; }
  // Whole rows, k values each.
  void Add(std::span<const float> rows);
  // Of all rows so far; the lower triangle is not filled.
  const float* Sums();
  // From here on also of two halves of the rows, so that one can judge what was learned of the other: calls of Add go to them in turns, long ones in parts.
  void Halve() { halves_.assign(2, SecondMoments(k_, *parallel_)); }
  std::vector<SecondMoments> TakeHalves() { return std::exchange(halves_, {}); }
  bool empty() const { return rows_ == 0; }

 private:
  void Flush();
  int64_t k_;
  const ParallelFor* parallel_;
  std::vector<float> sums_;     // [k][k]
  std::vector<float> waiting_;  // rows; some hundred make one product
  int64_t rows_ = 0, parts_ = 0;
  std::vector<SecondMoments> halves_;
};

// v_kj for j > k of [k][k], and u_kk^2.
struct Compensation {
  std::vector<float> v, weight;
};
// H gets a tenth of its mean diagonal on the diagonal, since data is never all there is. MiniLM on other texts, dB with 1 % (GPTQ's) and 10 %: data of
// 200 tokens 14.0 and 15.1 (4 bits), 21.0 and 21.5 (7 bits); of 6,000 the same. Nothing: H is zero, or not finite.
std::optional<Compensation> Factor(SecondMoments moments, const ParallelFor& parallel);

// Whether codes of w [k,n] that are fitted to one half of the data are nearer to w on the other half than the nearest codes are. Nothing: they are, or it
// cannot be told; else how much farther they are, as a share. limit: of the codes.
std::optional<double> LostByFitting(const ir::Tensor& w, int limit, std::vector<SecondMoments> halves,
                                    const ParallelFor& parallel);

// owed [rows][n] = sum over j behind the rows of v_kj e_j. errors: [k][n].
struct Rows {
  int64_t begin, end;
};
Status Owed(const Compensation& c, int64_t k, Rows rows, const float* errors, int64_t n, float* owed);

}  // namespace octavo::passes::quantize

#endif  // OCTAVO_PASSES_QUANTIZE_MOMENTS_H_
