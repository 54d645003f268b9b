// DFT, STFT, the windows and MelWeightMatrix.
#include <algorithm>
#include <cmath>
#include <numbers>

#include "octavo/ir/interpret/doubles.h"

namespace octavo::ir::interpret {

namespace {

constexpr double kPi = std::numbers::pi;

struct Complex {
  double re = 0, im = 0;
  Complex operator*(Complex o) const { return {re * o.re - im * o.im, re * o.im + im * o.re}; }
  void operator+=(Complex o) { re += o.re, im += o.im; }
};

// out[k] = sum over j of in[j * step] e^(2 pi i j k / n), i's sign by the roots; split by the smallest prime factor of n, so that lengths
// that are no primes take n log n.
class Transform {
 public:
  Transform(int64_t n, bool inverse) : n_(n), roots_(WorkVector<Complex>(n)), spare_(WorkVector<Complex>(n)) {
    for (int64_t i = 0; i < n; ++i) {
      const double angle = (inverse ? 2 : -2) * kPi * static_cast<double>(i) / static_cast<double>(n);
      roots_[static_cast<size_t>(i)] = {std::cos(angle), std::sin(angle)};
    }
  }
  void Run(const Complex* in, Complex* out) { Run(in, out, n_, 1, spare_.data()); }

 private:
  void Run(const Complex* in, Complex* out, int64_t n, int64_t step, Complex* spare) {
    if (n == 1) {
      *out = *in;
      return;
    }
    int64_t p = 2;
    while (n % p != 0) p = p * p > n ? n : p + 1;
    const int64_t m = n / p;
    for (int64_t r = 0; r < p; ++r) Run(in + r * step, spare + r * m, m, step * p, out + r * m);
    for (int64_t k = 0; k < n; ++k) {
      Complex sum;
      for (int64_t r = 0; r < p; ++r) sum += spare[r * m + k % m] * roots_[static_cast<size_t>(r * k % n * step)];
      out[k] = sum;
    }
  }

  int64_t n_;
  std::vector<Complex> roots_, spare_;
};

// --- DFT -------------------------------------------------------------------------------------------------------

// Operand and result as [outer, along, inner, parts].
struct Spectrum {
  bool inverse = false, onesided = false;
  int64_t axis = 0, from = 0, n = 0, to = 0, outer = 1, inner = 1, in_parts = 1, out_parts = 2;
};

Result<Spectrum> PlanDft(const Call& call) {
  Spectrum p;
  const Shape& xs = call.T(0).shape();
  if (xs.size() < 2 || (xs.back() != 1 && xs.back() != 2)) return Fail("the last dim must be 1 (real) or 2 (complex)");
  int64_t axis = -2;
  if (call.Has(2)) {
    OCTAVO_TRY(axis, IntOf(call.T(2), "the axis"));
  }
  OCTAVO_TRY(p.axis, Axis(axis, call.T(0).rank()));
  if (p.axis == call.T(0).rank() - 1) return Fail("the axis must not be the last one, of real and imaginary parts");
  p.inverse = call.Int("inverse", 0) != 0, p.onesided = call.Int("onesided", 0) != 0;
  const auto a = static_cast<size_t>(p.axis);
  p.from = xs[a];
  p.n = p.onesided && p.inverse ? 2 * (p.from - 1) : p.from;
  if (call.Has(1)) {
    OCTAVO_TRY(p.n, IntOf(call.T(1), "dft_length"));
  }
  if (p.n < 1 || p.n > (int64_t{1} << 31)) return Fail("a transform of length {}", p.n);
  p.outer = Count(xs, 0, a), p.inner = Count(xs, a + 1, xs.size() - 1);
  p.in_parts = xs.back();
  p.out_parts = p.onesided && p.inverse ? 1 : 2;
  if (p.onesided && !p.inverse && p.in_parts == 2) return Fail("a onesided transform takes real numbers only");
  p.to = p.onesided && !p.inverse ? p.n / 2 + 1 : p.n;
  return p;
}

Status Dft(Call& call) {
  const DType type = call.T(0).dtype();
  OCTAVO_TRY(const Spectrum p, PlanDft(call));
  Shape shape = call.T(0).shape();
  shape[static_cast<size_t>(p.axis)] = p.to;
  shape.back() = p.out_parts;
  OCTAVO_TRY(const Tensor x, Doubles(call.T(0)));
  OCTAVO_TRY(Tensor y, AllocZeros(DType::kF64, shape));
  std::vector<Complex> in = WorkVector<Complex>(p.n), out = WorkVector<Complex>(p.n);
  Transform transform(p.n, p.inverse);
  const double scale = p.inverse ? 1 / static_cast<double>(p.n) : 1;
  for (int64_t line = 0; line < p.outer * p.inner; ++line) {
    const auto at = [&](int64_t i, int64_t size, int64_t parts) {
      return ((line / p.inner * size + i) * p.inner + line % p.inner) * parts;
    };
    std::ranges::fill(in, Complex{});
    for (int64_t i = 0; i < std::min(p.n, p.from); ++i) {
      const double* v = In(x) + at(i, p.from, p.in_parts);
      in[static_cast<size_t>(i)] = {v[0], p.in_parts == 2 ? v[1] : 0};
    }
    // The other half of a real signal's spectrum is the mirrored conjugate.
    for (int64_t i = p.n / 2 + 1; p.onesided && p.inverse && i < p.n; ++i) {
      const Complex mirror = in[static_cast<size_t>(p.n - i)];
      in[static_cast<size_t>(i)] = {mirror.re, -mirror.im};
    }
    transform.Run(in.data(), out.data());
    for (int64_t i = 0; i < p.to; ++i) {
      double* v = Out(y) + at(i, p.to, p.out_parts);
      v[0] = out[static_cast<size_t>(i)].re * scale;
      if (p.out_parts == 2) v[1] = out[static_cast<size_t>(i)].im * scale;
    }
  }
  return ReturnAs(call, y, type);
}

// --- STFT ------------------------------------------------------------------------------------------------------

// signal [batch, length, 1 or 2], step, window [frame], frame -> [batch, frames, bins, 2]
Status Stft(Call& call) {
  const DType type = call.T(0).dtype();
  const Shape xs = call.T(0).rank() == 2 ? Shape{call.T(0).shape()[0], call.T(0).shape()[1], 1} : call.T(0).shape();
  if (xs.size() != 3 || (xs[2] != 1 && xs[2] != 2)) return Fail("the signal must be [batch, length, 1 or 2]");
  OCTAVO_TRY(const int64_t step, IntOf(call.T(1), "frame_step"));
  int64_t frame = xs[1];
  if (call.Has(2)) {
    if (call.T(2).rank() != 1) return Fail("the window must have rank 1");
    frame = call.T(2).shape()[0];
  }
  if (call.Has(3)) {
    OCTAVO_TRY(frame, IntOf(call.T(3), "frame_length"));
  }
  if (step < 1 || frame < 1 || frame > xs[1])
    return Fail("frames of {} every {} in a signal of {}", frame, step, xs[1]);
  if (call.Has(2) && call.T(2).shape()[0] != frame)
    return Fail("the window has {} elements, the frame {}", call.T(2).shape()[0], frame);
  const bool onesided = call.Int("onesided", 1) != 0;
  if (onesided && xs[2] == 2) return Fail("a onesided transform takes real numbers only");
  OCTAVO_TRY(const Tensor x, Doubles(call.T(0)));
  Tensor window;
  if (call.Has(2)) {
    OCTAVO_TRY(window, Doubles(call.T(2)));
  }
  const int64_t frames = (xs[1] - frame) / step + 1, bins = onesided ? frame / 2 + 1 : frame;
  OCTAVO_TRY(Tensor y, AllocZeros(DType::kF64, {xs[0], frames, bins, 2}));
  std::vector<Complex> in = WorkVector<Complex>(frame), out = WorkVector<Complex>(frame);
  Transform transform(frame, false);
  for (int64_t i = 0; i < xs[0] * frames; ++i) {
    const double* v = In(x) + (i / frames * xs[1] + i % frames * step) * xs[2];
    for (int64_t j = 0; j < frame; ++j) {
      const double w = window.defined() ? In(window)[j] : 1.0;
      in[static_cast<size_t>(j)] = {v[j * xs[2]] * w, xs[2] == 2 ? v[j * 2 + 1] * w : 0};
    }
    transform.Run(in.data(), out.data());
    for (int64_t k = 0; k < bins; ++k) {
      Out(y)[(i * bins + k) * 2] = out[static_cast<size_t>(k)].re;
      Out(y)[(i * bins + k) * 2 + 1] = out[static_cast<size_t>(k)].im;
    }
  }
  return ReturnAs(call, y, type);
}

// --- tables ----------------------------------------------------------------------------------------------------

// a0 - a1 cos(2 pi i / n) + a2 cos(4 pi i / n)
Status WindowTable(Call& call, double a0, double a1, double a2) {
  OCTAVO_TRY(const DType type, TypeAttr(call, "output_datatype", DType::kF32));
  OCTAVO_TRY(const int64_t size, IntOf(call.T(0), "the size"));
  OCTAVO_TRY(Tensor y, AllocZeros(DType::kF64, {size}));
  const auto n = static_cast<double>(call.Int("periodic", 1) != 0 ? size : size - 1);
  for (int64_t i = 0; i < size; ++i) {
    const double angle = n > 0 ? 2 * kPi * static_cast<double>(i) / n : kPi;  // a window of one element is 1
    Out(y)[i] = a0 - a1 * std::cos(angle) + a2 * std::cos(2 * angle);
  }
  return ReturnAs(call, y, type);
}

Result<double> NumberOf(const Tensor& t) {
  if (t.size() != 1 || (!quant::IsComputedFloat(t.dtype()) && !quant::IsInteger(t.dtype())))
    return Fail("{} is not one number", Describe(t));
  return t.GetDouble(0);
}

Status MelWeightMatrix(Call& call) {
  OCTAVO_TRY(const DType type, TypeAttr(call, "output_datatype", DType::kF32));
  OCTAVO_TRY(const int64_t bands, IntOf(call.T(0), "num_mel_bins"));
  OCTAVO_TRY(const int64_t length, IntOf(call.T(1), "dft_length"));
  OCTAVO_TRY(const double rate, NumberOf(call.T(2)));
  OCTAVO_TRY(const double lower, NumberOf(call.T(3)));
  OCTAVO_TRY(const double upper, NumberOf(call.T(4)));
  if (bands < 0 || bands > (int64_t{1} << 31) || length < 0 || !(rate > 0) || !(lower >= 0) || !(upper >= lower))
    return Fail("bands, length, rate or edges are not possible");
  const int64_t bins = length / 2 + 1;
  OCTAVO_TRY_STATUS(CheckShape(DType::kF64, Shape{bands + 2}));
  OCTAVO_TRY(Tensor y, AllocZeros(DType::kF64, {bins, bands}));
  const double low = 2595 * std::log10(1 + lower / 700),
               step = (2595 * std::log10(1 + upper / 700) - low) / static_cast<double>(bands + 2);
  const auto edge = [&](int64_t i) {  // the bin at which band i begins
    const double hertz = 700 * (std::pow(10, (low + static_cast<double>(i) * step) / 2595) - 1);
    return std::clamp(std::floor(static_cast<double>(length + 1) * hertz / rate), 0.0, static_cast<double>(bins));
  };
  for (int64_t band = 0; band < bands; ++band) {
    const auto left = static_cast<int64_t>(edge(band)), top = static_cast<int64_t>(edge(band + 1)),
               right = static_cast<int64_t>(edge(band + 2));
    if (left == top && top < bins) Out(y)[top * bands + band] = 1;
    for (int64_t i = left; left != top && i <= std::min(top, bins - 1); ++i) {
      Out(y)[i * bands + band] = static_cast<double>(i - left) / static_cast<double>(top - left);
    }
    for (int64_t i = top; top != right && i < std::min(right, bins); ++i) {
      Out(y)[i * bands + band] = static_cast<double>(right - i) / static_cast<double>(right - top);
    }
  }
  return ReturnAs(call, y, type);
}

}  // namespace

void RegisterSignal(Table& t) {
  t.Set(Op::kDFT, Dft);
  t.Set(Op::kSTFT, Stft);
  t.Set(Op::kHannWindow, [](Call& call) { return WindowTable(call, 0.5, 0.5, 0); });
  t.Set(Op::kHammingWindow, [](Call& call) { return WindowTable(call, 25.0 / 46, 1 - 25.0 / 46, 0); });
  t.Set(Op::kBlackmanWindow, [](Call& call) { return WindowTable(call, 0.42, 0.5, 0.08); });
  t.Set(Op::kMelWeightMatrix, MelWeightMatrix);
}

}  // namespace octavo::ir::interpret
