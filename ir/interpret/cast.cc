// Cast and CastLike. Where ONNX leaves the result open: a float outside the integer range (or NaN) becomes what x86's
// conversion gives (the smallest int32 or int64), and narrower integers are the low bits of that; integers wrap. To 4
// bits: rounded half to even and saturated, as onnx/subbyte.py does. Strings: strings.cc.
#include <algorithm>
#include <bit>
#include <cmath>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#include "octavo/ir/interpret/call.h"
#include "octavo/ir/interpret/nibbles.h"
#include "octavo/ir/interpret/strings.h"
#include "octavo/ir/interpret/types.h"
#include "octavo/quant/numeric/fp8.h"
#include "octavo/quant/numeric/rounding.h"

namespace octavo::ir::interpret {

namespace {

// Rounds to odd, so that a second rounding to 16 bits gives what one rounding from the double would.
float NarrowForHalf(double d) {
  const auto f = static_cast<float>(d);
  if (static_cast<double>(f) == d || d != d || std::isinf(f)) return f;
  uint32_t bits = std::bit_cast<uint32_t>(f);
  if (std::fabs(static_cast<double>(f)) > std::fabs(d)) --bits;
  return std::bit_cast<float>(bits | 1u);
}

template <typename I, typename C>
I FloatToInt(C x) {
#if defined(__SSE2__)
  // The instruction itself, without the compare and the branch around it.
  if constexpr (sizeof(I) == 8 && std::is_same_v<C, float>) return _mm_cvttss_si64(_mm_set_ss(x));
  if constexpr (sizeof(I) == 8 && std::is_same_v<C, double>) return _mm_cvttsd_si64(_mm_set_sd(x));
#endif
  constexpr C kLimit = static_cast<C>(uint64_t{1} << (sizeof(I) * 8 - 1));
  return x >= -kLimit && x < kLimit ? static_cast<I>(x) : std::numeric_limits<I>::min();
}

template <typename From, typename To>
Compute<To> Convert(Compute<From> x) {
  if constexpr (!kIsFloat<From>) {
    return static_cast<Compute<To>>(x);
  } else if constexpr (kIsFloat<To>) {
    if constexpr (sizeof(To) == 2 && std::is_same_v<Compute<From>, double>) return NarrowForHalf(x);
    return static_cast<Compute<To>>(x);
  } else if constexpr (std::is_same_v<To, uint64_t>) {
    constexpr auto kHalf = static_cast<Compute<From>>(uint64_t{1} << 63);
    if (x >= kHalf && x < 2 * kHalf) return static_cast<uint64_t>(x);
    return static_cast<uint64_t>(FloatToInt<int64_t>(x));
  } else if constexpr (sizeof(To) == 8 || std::is_same_v<To, uint32_t>) {
    return static_cast<To>(FloatToInt<int64_t>(x));
  } else {
    return static_cast<To>(FloatToInt<int32_t>(x));
  }
}

template <typename From, typename To>
void ConvertAll(const Tensor& x, Tensor& y) {
  const From* in = Ptr<From>(x);
  To* out = MutablePtr<To>(y);
  const int64_t n = x.size();
  for (int64_t i = 0; i < n; ++i) out[i] = Down<To>(Convert<From, To>(Up(in[i])));
}

template <typename From>
Status ConvertFrom(const Tensor& x, Tensor& y) {
  if (y.dtype() == DType::kBool) {
    const From* in = Ptr<From>(x);
    auto* out = MutablePtr<uint8_t>(y);
    const int64_t n = x.size();
    for (int64_t i = 0; i < n; ++i) out[i] = Up(in[i]) != 0;
    return {};
  }
  return ForNumbers(y.dtype(), [&]<typename To>() -> Status {
    ConvertAll<From, To>(x, y);
    return {};
  });
}

Tensor FromFp8(const Tensor& x) {
  Tensor y = Tensor::Empty(DType::kF32, x.shape());
  const auto in = x.as<uint8_t>();
  auto out = y.mutable_as<float>();
  const bool e4 = x.dtype() == DType::kE4M3FN;
  for (size_t i = 0; i < in.size(); ++i) out[i] = e4 ? quant::E4M3FNToF32(in[i]) : quant::E5M2ToF32(in[i]);
  return y;
}

Tensor ToFp8(const Tensor& x, DType to, bool saturate) {
  Tensor y = Tensor::Empty(to, x.shape());
  const auto in = x.as<float>();
  auto out = y.mutable_as<uint8_t>();
  const bool e4 = to == DType::kE4M3FN;
  for (size_t i = 0; i < in.size(); ++i) {
    out[i] = e4 ? quant::F32ToE4M3FN(in[i], saturate) : quant::F32ToE5M2(in[i], saturate);
  }
  return y;
}

Tensor ToNibbles(const Tensor& x, DType to) {
  const auto [lo, hi] = quant::RangeOf(to);
  Tensor bytes = Tensor::Empty(DType::kU8, x.shape());
  const auto in = x.as<float>();
  auto out = bytes.mutable_as<uint8_t>();
  for (size_t i = 0; i < in.size(); ++i) {
    out[i] =
        static_cast<uint8_t>(quant::QuantizeOne(in[i], 1.0f, 0, static_cast<int32_t>(lo), static_cast<int32_t>(hi)));
  }
  return PackNibbles(bytes, to);
}

Status Cast(Call& call, DType to) {
  if (to == DType::kUndefined) return Fail("the target element type is not known to octavo");
  OCTAVO_TRY(Tensor y, CastTo(call.T(0), to, call.Int("saturate", 1) != 0));
  call.Return(std::move(y));
  return {};
}

}  // namespace

Result<Tensor> CastTo(const Tensor& x, DType to, bool saturate) {
  const DType from = x.dtype();
  if (from == to) return x;
  if (to == DType::kString) return ToStrings(x);
  if (from == DType::kString) {
    OCTAVO_TRY(Tensor parsed, FromStrings(x, to));
    return CastTo(parsed, to, saturate);
  }
  if (quant::IsFp8(from)) return CastTo(FromFp8(x), to, saturate);
  if (quant::BitsOf(from) == 4) return CastTo(UnpackNibbles(x), to, saturate);
  if (quant::IsFp8(to) || quant::BitsOf(to) == 4) {
    OCTAVO_TRY(Tensor f, CastTo(x, DType::kF32));
    return quant::IsFp8(to) ? ToFp8(f, to, saturate) : ToNibbles(f, to);
  }
  OCTAVO_TRY(Tensor y, Alloc(to, x.shape()));
  if (from == DType::kBool) {  // any non-zero byte is true
    Tensor ones = Tensor::Empty(DType::kU8, x.shape());
    std::ranges::transform(x.as<uint8_t>(), MutablePtr<uint8_t>(ones), [](uint8_t v) { return uint8_t{v != 0}; });
    OCTAVO_TRY_STATUS(ConvertFrom<uint8_t>(ones, y));
    return y;
  }
  OCTAVO_TRY_STATUS(ForNumbers(from, [&]<typename From>() -> Status { return ConvertFrom<From>(x, y); }));
  return y;
}

void RegisterCast(Table& t) {
  t.Set(Op::kCast, [](Call& call) -> Status {
    OCTAVO_TRY(const DType to, TypeAttr(call, "to", DType::kUndefined));
    return Cast(call, to);
  });
  t.Set(Op::kCastLike, [](Call& call) { return Cast(call, call.T(1).dtype()); });
}

}  // namespace octavo::ir::interpret
