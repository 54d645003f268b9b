#include "octavo/passes/quantize/moments.h"

#include <algorithm>
#include <atomic>
#include <cmath>

#include "octavo/kernels/gemm/gemm_f32.h"

namespace octavo::passes::quantize {

namespace {

constexpr int64_t kRowsOfAPart = 256, kRowsAtOnce = 512, kStripe = 128, kSlice = 512;

// to[i][j] += sign * sum_r a[r][i] a[r][j] for j >= the stripe of i: the upper triangle, and a little beside it. a: [rows][k], `stride` apart.
// Cut by shape, not by threads: the bits are the same for any number of them.
bool AddProduct(const float* a, int64_t rows, int64_t k, int64_t stride, float sign, float* to, int64_t to_stride,
                const ParallelFor& parallel) {
  std::atomic<bool> done = true;
  parallel((k + kStripe - 1) / kStripe, [&](int64_t s) {
    const int64_t i = s * kStripe, m = std::min(kStripe, k - i), n = k - i;
    std::vector<float> stripe(static_cast<size_t>(m * n));
    const kernels::MatMulF32Args args{.m = m,
                                      .k = rows,
                                      .n = n,
                                      .a = a + i,
                                      .a_row = 1,
                                      .a_column = stride,
                                      .b = a + i,
                                      .b_row = stride,
                                      .c = stripe.data(),
                                      .c_row = n};
    if (!kernels::MatMulF32(args, {0, 1}).empty()) done = false;
    for (int64_t r = 0; r < m; ++r) {
      for (int64_t c = 0; c < n; ++c) to[(i + r) * to_stride + i + c] += sign * stripe[static_cast<size_t>(r * n + c)];
    }
  });
  return done;
}

// Columns [first, last) of row i of H less what the rows of U from `begin` on took of them.
void TakeOff(float* h, int64_t k, int64_t begin, int64_t i, int64_t first, int64_t last) {
  float* row = h + i * k;
  for (int64_t above = begin; above < i; ++above) {
    const float* other = h + above * k;
    const float share = other[i];
    for (int64_t j = first; j < last; ++j) row[j] -= share * other[j];
  }
}

// The block on the diagonal of rows [begin, end) of U, which is H's less what the rows above took.
bool FactorDiagonal(float* h, int64_t k, int64_t begin, int64_t end) {
  for (int64_t i = begin; i < end; ++i) {
    TakeOff(h, k, begin, i, i, end);
    float* row = h + i * k;
    if (!(row[i] > 0.0f) || !std::isfinite(row[i])) return false;
    const float scale = 1.0f / std::sqrt(row[i]);
    for (int64_t j = i; j < end; ++j) row[j] *= scale;
  }
  return true;
}

// The same rows right of it.
void FactorRest(float* h, int64_t k, int64_t begin, int64_t end, const ParallelFor& parallel) {
  parallel((k - end + kSlice - 1) / kSlice, [&](int64_t slice) {
    const int64_t first = end + slice * kSlice, last = std::min(k, first + kSlice);
    for (int64_t i = begin; i < end; ++i) {
      TakeOff(h, k, begin, i, first, last);
      float* row = h + i * k;
      const float scale = 1.0f / row[i];
      for (int64_t j = first; j < last; ++j) row[j] *= scale;
    }
  });
}

}  // namespace

void SecondMoments::Add(std::span<const float> rows) {
  rows_ += static_cast<int64_t>(rows.size()) / k_;
  if (!halves_.empty()) {
    const auto part = static_cast<size_t>(kRowsOfAPart * k_);
    for (std::span<const float> rest = rows; !rest.empty(); rest = rest.subspan(std::min(part, rest.size())))
      halves_[static_cast<size_t>(parts_++ % 2)].Add(rest.first(std::min(part, rest.size())));
  }
  waiting_.insert(waiting_.end(), rows.begin(), rows.end());
  if (static_cast<int64_t>(waiting_.size()) >= kRowsAtOnce * k_) Flush();
}

void SecondMoments::Flush() {
  const int64_t rows = static_cast<int64_t>(waiting_.size()) / k_;
  if (rows > 0 && !AddProduct(waiting_.data(), rows, k_, k_, 1.0f, sums_.data(), k_, *parallel_)) {
    sums_[0] = std::nanf("");  // Factor gives nothing then
  }
  waiting_.clear();
}

const float* SecondMoments::Sums() {
  Flush();
  return sums_.data();
}

std::optional<Compensation> Factor(SecondMoments moments, const ParallelFor& parallel) {
  const int64_t k = moments.k();
  const float* sums = moments.Sums();
  Compensation c{.v = {sums, sums + k * k}, .weight = {}};
  float* u = c.v.data();
  double mean = 0;
  for (int64_t i = 0; i < k; ++i) mean += static_cast<double>(u[i * k + i]) / static_cast<double>(k);
  if (!(mean > 0) || !std::isfinite(mean)) return {};
  for (int64_t i = 0; i < k; ++i) u[i * k + i] += static_cast<float>(0.1 * mean);
  for (int64_t begin = 0; begin < k; begin += kStripe) {
    const int64_t end = std::min(k, begin + kStripe);
    if (!FactorDiagonal(u, k, begin, end)) return {};
    FactorRest(u, k, begin, end, parallel);
    if (end < k && !AddProduct(u + begin * k + end, end - begin, k - end, k, -1.0f, u + end * k + end, k, parallel))
      return {};
  }
  for (int64_t i = 0; i < k; ++i) {
    const float corner = u[i * k + i];
    c.weight.push_back(corner * corner);
    for (int64_t j = i + 1; j < k; ++j) u[i * k + j] /= corner;
  }
  return c;
}

Status Owed(const Compensation& c, int64_t k, Rows rows, const float* errors, int64_t n, float* owed) {
  if (rows.end == k) {
    std::fill_n(owed, (rows.end - rows.begin) * n, 0.0f);
    return {};
  }
  const kernels::MatMulF32Args product{.m = rows.end - rows.begin,
                                       .k = k - rows.end,
                                       .n = n,
                                       .a = c.v.data() + rows.begin * k + rows.end,
                                       .a_row = k,
                                       .b = errors + rows.end * n,
                                       .b_row = n,
                                       .c = owed,
                                       .c_row = n};
  const std::string why = kernels::MatMulF32(product, {0, 1});
  return why.empty() ? Status() : ir::Fail("{}", why);
}

}  // namespace octavo::passes::quantize
