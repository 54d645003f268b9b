// Cast and CastLike. Where ONNX leaves the result open: a float outside the integer range (or NaN) becomes what x86's
// conversion gives (the smallest int32 or int64), and narrower integers are the low bits of that; integers wrap. To 4
// and 2 bits: rounded half to even, then the low bits, as ONNX 1.23 and ONNX Runtime wrap. Strings: strings.cc.
#include <algorithm>
#include <bit>
#include <cmath>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#include "octavo/ir/interpret/call.h"
#include "octavo/ir/interpret/packed.h"
#include "octavo/ir/interpret/strings.h"
#include "octavo/ir/interpret/types.h"
#include "octavo/quant/numeric/fp8.h"
#include "octavo/quant/numeric/stored_float.h"

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

// `yes` where the answer is true, else `no`: a branch would keep loops from becoming vectors.
uint32_t Choose(bool answer, uint32_t yes, uint32_t no) {
  return no ^ ((yes ^ no) & (0u - static_cast<uint32_t>(answer)));
}
// quant::F16ToF32 and quant::F32ToF16 without branches: caches and weights of 16 bits are cast in each run.
float Wide(uint16_t h) {
  const uint32_t exponent = h & 0x7c00u, mantissa = h & 1023u;
  const uint32_t moved = (static_cast<uint32_t>(h & 0x7fffu) << 13) + (112u << 23);
  const auto small = std::bit_cast<uint32_t>(static_cast<float>(static_cast<int32_t>(mantissa)) * 0x1p-24f);
  const uint32_t finite = Choose(exponent == 0, small, moved);
  const uint32_t magnitude = Choose(exponent == 0x7c00u, moved + (112u << 23), finite);
  return std::bit_cast<float>((static_cast<uint32_t>(h & 0x8000u) << 16) | magnitude);
}
uint16_t Narrow(float f) {
  const uint32_t u = std::bit_cast<uint32_t>(f), a = u & 0x7fffffffu;
  const uint32_t normal = (a + 0xfffu + ((a >> 13) & 1u) - 0x38000000u) >> 13;
  const uint32_t small = std::bit_cast<uint32_t>(std::bit_cast<float>(a) + 0.5f) - 0x3f000000u;
  const uint32_t finite = Choose(a < 0x38800000u, small, normal);
  const uint32_t beyond = Choose(a > 0x7f800000u, 0x7e00u, 0x7c00u);
  return static_cast<uint16_t>(((u >> 16) & 0x8000u) | Choose(a >= 0x477ff000u, beyond, finite));
}
bool CastHalves(const Tensor& x, Tensor& y) {
  const int64_t n = x.size();
  if (x.dtype() == DType::kF16 && y.dtype() == DType::kF32) {
    const uint16_t* in = x.as<uint16_t>().data();
    float* out = MutablePtr<float>(y);
    for (int64_t i = 0; i < n; ++i) out[i] = Wide(in[i]);
    return true;
  }
  if (x.dtype() == DType::kF32 && y.dtype() == DType::kF16) {
    const float* in = x.as<float>().data();
    uint16_t* out = y.mutable_as<uint16_t>().data();
    for (int64_t i = 0; i < n; ++i) out[i] = Narrow(in[i]);
    return true;
  }
  return false;
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

Result<Tensor> ToPackedInts(const Tensor& x, DType to) {
  Tensor whole = x;
  if (quant::IsFloat(x.dtype())) {
    OCTAVO_TRY(const Tensor f, CastTo(x, DType::kF64));
    whole = Tensor::Empty(DType::kF64, x.shape());
    std::ranges::transform(f.as<double>(), MutablePtr<double>(whole), [](double v) { return std::nearbyint(v); });
  }
  OCTAVO_TRY(const Tensor wide, CastTo(whole, DType::kS64));
  OCTAVO_TRY(const Tensor bytes, CastTo(wide, DType::kU8));
  return Pack(bytes, to);
}

Tensor FromStored(const Tensor& x) {
  const Tensor codes = quant::IsPacked(x.dtype()) ? Unpack(x) : x;
  Tensor y = Tensor::Empty(DType::kF32, x.shape());
  std::ranges::transform(codes.as<uint8_t>(), MutablePtr<float>(y),
                         [&](uint8_t code) { return quant::StoredToF32(code, x.dtype()); });
  return y;
}

Tensor ToStored(const Tensor& x, DType to, bool saturate, quant::PowerRounding rounding) {
  const bool packed = quant::IsPacked(to);
  Tensor y = Tensor::Empty(packed ? DType::kU8 : to, x.shape());
  std::ranges::transform(x.as<float>(), MutablePtr<uint8_t>(y),
                         [&](float v) { return quant::F32ToStored(v, to, saturate, rounding); });
  return packed ? Pack(y, to) : y;
}

Status Cast(Call& call, DType to) {
  if (to == DType::kUndefined) return Fail("the target element type is not known to octavo");
  const bool saturate = call.Int("saturate", 1) != 0;
  const std::string round = call.node.attrs.Str("round_mode", "up");
  if (to == DType::kE8M0 && round != "up") {
    if (round != "down" && round != "nearest") return Fail("round_mode must be up, down or nearest");
    OCTAVO_TRY(const Tensor f, CastTo(call.T(0), DType::kF32));
    const auto rounding = round == "down" ? quant::PowerRounding::kDown : quant::PowerRounding::kNearest;
    call.Return(ToStored(f, to, saturate, rounding));
    return {};
  }
  OCTAVO_TRY(Tensor y, CastTo(call.T(0), to, saturate));
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
  if (quant::IsStoredFloat(from)) return CastTo(FromStored(x), to, saturate);
  if (quant::IsPacked(from)) return CastTo(Unpack(x), to, saturate);
  if (quant::IsFp8(to) || quant::IsStoredFloat(to)) {
    OCTAVO_TRY(Tensor f, CastTo(x, DType::kF32));
    return quant::IsFp8(to) ? ToFp8(f, to, saturate) : ToStored(f, to, saturate, quant::PowerRounding::kUp);
  }
  if (quant::IsPacked(to)) return ToPackedInts(x, to);
  OCTAVO_TRY(Tensor y, Alloc(to, x.shape()));
  if (from == DType::kBool) {  // any non-zero byte is true
    Tensor ones = Tensor::Empty(DType::kU8, x.shape());
    std::ranges::transform(x.as<uint8_t>(), MutablePtr<uint8_t>(ones), [](uint8_t v) { return uint8_t{v != 0}; });
    OCTAVO_TRY_STATUS(ConvertFrom<uint8_t>(ones, y));
    return y;
  }
  if (CastHalves(x, y)) return y;
  OCTAVO_TRY_STATUS(ForNumbers(from, [&]<typename From>() -> Status { return ConvertFrom<From>(x, y); }));
  return y;
}

namespace {

// The same bits as another type of the same width.
Status BitCast(Call& call) {
  const Tensor& x = call.T(0);
  OCTAVO_TRY(const DType to, TypeAttr(call, "to", DType::kUndefined));
  if (to == DType::kUndefined || to == DType::kString || x.dtype() == DType::kString ||
      quant::BitsOf(to) != quant::BitsOf(x.dtype()))
    return Fail("{} has not the bits of {}", quant::Name(x.dtype()), quant::Name(to));
  Tensor y = Tensor::Empty(to, x.shape());
  std::copy_n(x.as<uint8_t>().data(), x.byte_size(), MutablePtr<uint8_t>(y));
  if (to == DType::kBool) {
    for (uint8_t& b : y.mutable_as<uint8_t>()) b = b != 0;
  }
  call.Return(std::move(y));
  return {};
}

}  // namespace

void RegisterCast(Table& t) {
  t.Set(Op::kBitCast, BitCast);
  t.Set(Op::kCast, [](Call& call) -> Status {
    OCTAVO_TRY(const DType to, TypeAttr(call, "to", DType::kUndefined));
    return Cast(call, to);
  });
  t.Set(Op::kCastLike, [](Call& call) { return Cast(call, call.T(1).dtype()); });
}

}  // namespace octavo::ir::interpret
