// What weights are fitted to: which errors of W the products x W notice.
//
// E = W - Wq costs sum |x E|^2 = tr(E' H E) over the rows x of the calibration data, with H = sum x' x. Its Cholesky factor H = U' U turns
// that into sum_k |u_kk (e_k + sum_{j>k} v_kj e_j)|^2, v_kj = u_kj / u_kk, so that, from the last row of W to the first, each code
// is the nearest to w_k + sum_{j>k} v_kj e_j: it makes up for what the rows behind it lost. Babai's nearest plane; with the rows the other
// way round it is GPTQ (Frantar et al., 2022, arXiv 2210.17323; Chen et al., 2025, arXiv 2507.18553), but no inverse is needed.
#ifndef OCTAVO_PASSES_QUANTIZE_MOMENTS_H_
#define OCTAVO_PASSES_QUANTIZE_MOMENTS_H_

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "octavo/passes/pass.h"
#include "octavo/quant/moments.h"

namespace octavo::passes::quantize {

// H of one activation.
class SecondMoments {
 public:
  // parallel: outlives the moments.
  SecondMoments(int64_t k, const ParallelFor& parallel) : sums_(k), parallel_(&parallel) {}
  int64_t k() const { return columns_ ? static_cast<int64_t>(columns_->index.size()) : sums_.k(); }
  // From here on H is that of columns made of the rows that Add gets (PassRun::columns).
  void Through(const Columns& columns);
  // Whole rows.
  void Add(std::span<const float> rows);
  // All that was added.
  quant::Moments Take();
  // The same, and it stays.
  quant::Moments Copy();
  // H is that of rows that another has seen; sums outlive this.
  void Borrow(const quant::Moments& sums) { borrowed_ = &sums; }
  // H of all rows so far, [k][k]; the lower triangle is not filled.
  std::vector<float> Sums();
  // From here on also of two halves of the rows, so that one can judge what was learned of the other: calls of Add go to them in turns, long ones in parts.
  void Halve();
  std::vector<SecondMoments> TakeHalves();
  bool empty() const { return borrowed_ == nullptr && sums_.rows() == 0; }

 private:
  struct Waiting {
    std::vector<int16_t> panels;  // [panel][pair][column][row of the pair]
    int64_t rows = 0;
  };
  void AddRows(std::span<const float> rows);
  void Flush(int exponent, Waiting& waiting);
  void FlushAll();

  quant::Moments sums_;
  const quant::Moments* borrowed_ = nullptr;
  const ParallelFor* parallel_;
  std::map<int, Waiting> waiting_;  // rows by their exponents; some hundred make one product
  std::vector<int16_t> codes_;
  int64_t parts_ = 0;
  std::vector<SecondMoments> halves_;  // two of them have all rows, until they are taken
  std::optional<Columns> columns_;
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
void Owed(const Compensation& c, int64_t k, Rows rows, const float* errors, int64_t n, float* owed);

}  // namespace octavo::passes::quantize

#endif  // OCTAVO_PASSES_QUANTIZE_MOMENTS_H_
