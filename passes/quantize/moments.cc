#include "octavo/passes/quantize/moments.h"

#include <algorithm>
#include <cmath>

#include "octavo/kernels/gemm/gemm_f32.h"
#include "octavo/kernels/gemm/gram.h"

namespace octavo::passes::quantize {

namespace {

constexpr int64_t kRowsOfAPart = 256, kStripe = 128, kSlice = 512;
// Products of codes of 12 bits: so many rows fit in 32 bits.
constexpr int64_t kRowsAtOnce = 256, kPairs = kRowsAtOnce / 2, kPanel = kernels::kGramColumns;
static_assert(kRowsAtOnce * int64_t{quant::Moments::kLargest} * quant::Moments::kLargest < int64_t{1} << 31);

// to[i][j] += sign * sum_r a[r][i] a[r][j] for j >= the stripe of i: the upper triangle, and a little beside it. a: [rows][k], `stride` apart.
// Cut by shape, not by threads: the bits are the same for any number of them.
void AddProduct(const float* a, int64_t rows, int64_t k, int64_t stride, float sign, float* to, int64_t to_stride,
                const ParallelFor& parallel) {
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
    kernels::MatMulF32(args, {0, 1});
    for (int64_t r = 0; r < m; ++r) {
      for (int64_t c = 0; c < n; ++c) to[(i + r) * to_stride + i + c] += sign * stripe[static_cast<size_t>(r * n + c)];
    }
  });
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

void SecondMoments::Through(const Columns& columns) {
  columns_ = columns, sums_ = quant::Moments(columns.channels);
  for (SecondMoments& half : halves_) half.Through(columns);
}

void SecondMoments::Halve() { halves_.assign(2, *this); }

void SecondMoments::Add(std::span<const float> rows) {
  if (halves_.empty()) return AddRows(rows);
  const auto part = static_cast<size_t>(kRowsOfAPart * sums_.k());
  for (std::span<const float> rest = rows; !rest.empty(); rest = rest.subspan(std::min(part, rest.size())))
    halves_[static_cast<size_t>(parts_++ % 2)].AddRows(rest.first(std::min(part, rest.size())));
}

void SecondMoments::AddRows(std::span<const float> rows) {
  const int64_t k = sums_.k(), panels = (k + kPanel - 1) / kPanel;
  codes_.resize(static_cast<size_t>(k));
  for (; !rows.empty(); rows = rows.subspan(static_cast<size_t>(k))) {
    sums_.CountRows(1);
    const auto exponent = quant::Moments::Code(rows.first(static_cast<size_t>(k)), codes_.data());
    if (!exponent) continue;
    Waiting& waiting = waiting_[*exponent];
    if (waiting.rows == 0) waiting.panels.assign(static_cast<size_t>(panels * kPairs * kPanel * 2), 0);
    int16_t* to = waiting.panels.data() + waiting.rows / 2 * kPanel * 2 + waiting.rows % 2;
    for (int64_t i = 0; i < k; ++i)
      to[(i / kPanel * kPairs * kPanel + i % kPanel) * 2] = codes_[static_cast<size_t>(i)];
    if (++waiting.rows == kRowsAtOnce) Flush(*exponent, waiting);
  }
}

void SecondMoments::Flush(int exponent, Waiting& waiting) {
  if (waiting.rows == 0) return;
  const auto [sums, shift] = sums_.Of(exponent);
  const int64_t k = sums_.k(), panels = (k + kPanel - 1) / kPanel;
  const kernels::Arch arch = kernels::BestArch();
  (*parallel_)(panels, [&, sums = sums, shift = shift](int64_t at) {
    int32_t product[kPanel * kPanel];
    kernels::GramArgs args{
        .pairs = (waiting.rows + 1) / 2, .a = waiting.panels.data() + at * kPairs * kPanel * 2, .c = product};
    for (int64_t other = at; other < panels; ++other) {
      args.b = waiting.panels.data() + other * kPairs * kPanel * 2;
      kernels::Gram(arch, args);
      for (int64_t i = at * kPanel; i < std::min(k, (at + 1) * kPanel); ++i) {
        const int64_t first = std::max(i, other * kPanel), last = std::min(k, (other + 1) * kPanel);
        const int32_t* row = product + i % kPanel * kPanel - other * kPanel;
        int64_t* to = sums + sums_.Index(i, i) - i;
        for (int64_t j = first; j < last; ++j) to[j] += int64_t{row[j]} << shift;
      }
    }
  });
  waiting.rows = 0;
}

void SecondMoments::FlushAll() {
  for (auto& [exponent, waiting] : waiting_) Flush(exponent, waiting);
  waiting_.clear();
}

std::vector<SecondMoments> SecondMoments::TakeHalves() {
  for (SecondMoments& half : halves_) {
    half.FlushAll();
    const Status merged = sums_.Merge(half.sums_);
    OCTAVO_CHECK(merged.has_value(), "halves of other rows");
  }
  return std::exchange(halves_, {});
}

quant::Moments SecondMoments::Take() {
  TakeHalves();
  FlushAll();
  return std::exchange(sums_, quant::Moments(sums_.k()));
}

quant::Moments SecondMoments::Copy() {
  FlushAll();
  quant::Moments all = sums_;
  for (SecondMoments& half : halves_) {
    half.FlushAll();
    const Status merged = all.Merge(half.sums_);
    OCTAVO_CHECK(merged.has_value(), "halves of other rows");
  }
  return all;
}

std::vector<float> SecondMoments::Sums() {
  TakeHalves();
  FlushAll();
  const int64_t k = this->k();
  const quant::Moments& sums = borrowed_ != nullptr ? *borrowed_ : sums_;
  std::vector<float> h(static_cast<size_t>(k * k));
  (*parallel_)(k, [&](int64_t i) {
    for (int64_t j = i; j < k; ++j) {
      double sum = 0;
      if (!columns_) {
        sum = sums.At(i, j);
      } else {
        const int64_t a = columns_->index[static_cast<size_t>(i)], b = columns_->index[static_cast<size_t>(j)];
        sum = sums.At(std::min(a, b), std::max(a, b)) / columns_->divisor[static_cast<size_t>(a)] /
              columns_->divisor[static_cast<size_t>(b)];
      }
      h[static_cast<size_t>(i * k + j)] = static_cast<float>(sum);
    }
  });
  return h;
}

std::optional<Compensation> Factor(SecondMoments moments, const ParallelFor& parallel) {
  const int64_t k = moments.k();
  Compensation c{.v = moments.Sums(), .weight = {}};
  float* u = c.v.data();
  double mean = 0;
  for (int64_t i = 0; i < k; ++i) mean += static_cast<double>(u[i * k + i]) / static_cast<double>(k);
  if (!(mean > 0) || !std::isfinite(mean)) return {};
  for (int64_t i = 0; i < k; ++i) u[i * k + i] += static_cast<float>(0.1 * mean);
  for (int64_t begin = 0; begin < k; begin += kStripe) {
    const int64_t end = std::min(k, begin + kStripe);
    if (!FactorDiagonal(u, k, begin, end)) return {};
    FactorRest(u, k, begin, end, parallel);
    if (end < k) AddProduct(u + begin * k + end, end - begin, k - end, k, -1.0f, u + end * k + end, k, parallel);
  }
  for (int64_t i = 0; i < k; ++i) {
    const float corner = u[i * k + i];
    c.weight.push_back(corner * corner);
    for (int64_t j = i + 1; j < k; ++j) u[i * k + j] /= corner;
  }
  return c;
}

void Owed(const Compensation& c, int64_t k, Rows rows, const float* errors, int64_t n, float* owed) {
  if (rows.end == k) {
    std::fill_n(owed, (rows.end - rows.begin) * n, 0.0f);
    return;
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
  kernels::MatMulF32(product, {0, 1});
}

}  // namespace octavo::passes::quantize
