// From the sums of the second product to the output row. Per target.
#if defined(OCTAVO_KERNELS_SDPA_SDPA_STORE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef OCTAVO_KERNELS_SDPA_SDPA_STORE_INL_H_
#undef OCTAVO_KERNELS_SDPA_SDPA_STORE_INL_H_
#else
#define OCTAVO_KERNELS_SDPA_SDPA_STORE_INL_H_
#endif

#include <cstddef>
#include <cstdint>

#include "hwy/highway.h"
#include "octavo/kernels/sdpa/sdpa.h"
#include "octavo/kernels/sdpa/sdpa_probs-inl.h"
#include "octavo/kernels/sdpa/sdpa_rows-inl.h"
#include "octavo/kernels/simd/requant-inl.h"

#if HWY_TARGET <= HWY_AVX2
HWY_BEFORE_NAMESPACE();
namespace octavo::kernels {
namespace HWY_NAMESPACE {

HWY_INLINE F16V OutputAt(const int32_t* acc, F16V scale) {
  namespace hn = hwy::HWY_NAMESPACE;
  return hn::Mul(hn::ConvertTo(F16D(), hn::Load(S32D(), acc)), scale);
}

template <bool kDivide, class Values>
HWY_INLINE void StoreQuantized(const Requant& requant, Values values, size_t width, uint8_t* out) {
  constexpr size_t kLanes = kF16Lanes;
  namespace hn = hwy::HWY_NAMESPACE;
  const auto at = [&](size_t c) HWY_ATTR { return RequantToInt<kDivide>(F16D(), requant, values(c)); };
  const S32D di;
  size_t c = 0;
  for (; c + 4 * kLanes <= width; c += 4 * kLanes) {
    const auto bytes = RequantPack(di, requant, at(c), at(c + kLanes), at(c + 2 * kLanes), at(c + 3 * kLanes));
    hn::StoreU(bytes, hn::Repartition<uint8_t, S32D>(), out + c);
  }
  const hn::Rebind<int8_t, F16D> d8;
  const hn::Repartition<uint8_t, decltype(d8)> du8;
  for (; c < width; c += kLanes) {
    const auto bytes = hn::Xor(hn::BitCast(du8, hn::DemoteTo(d8, at(c))), hn::Set(du8, requant.flip));
    hn::StoreN(bytes, du8, out + c, width - c);
  }
}

// One row to the output; values(c): the floats from column c on.
template <class Values>
HWY_INLINE void StoreValues(const SdpaInt8Args& args, const Requant& requant, Values values, int64_t at) {
  namespace hn = hwy::HWY_NAMESPACE;
  const F16D d;
  const auto width = static_cast<size_t>(args.shape.v_head_size);
  if (args.o_type == quant::DType::kF32) {
    float* out = static_cast<float*>(args.o) + at;
    size_t c = 0;
    for (; c + kF16Lanes <= width; c += kF16Lanes) hn::StoreU(values(c), d, out + c);
    if (c < width) hn::StoreN(values(c), d, out + c, width - c);
  } else if (requant.divide) {
    StoreQuantized<true>(requant, values, width, static_cast<uint8_t*>(args.o) + at);
  } else {
    StoreQuantized<false>(requant, values, width, static_cast<uint8_t*>(args.o) + at);
  }
}

// One row of int32 sums to the output. codes: the sum of the row's, which divides where they are relative.
HWY_INLINE void StoreOutput(const SdpaInt8Args& args, const Requant& requant, const int32_t* acc, int32_t codes,
                            int64_t at) {
  namespace hn = hwy::HWY_NAMESPACE;
  if (args.p_relative) {
    const F16V scale = hn::Set(F16D(), args.v_scale), sum = hn::Set(F16D(), static_cast<float>(HWY_MAX(codes, 1)));
    StoreValues(args, requant, [&](size_t c) HWY_ATTR { return hn::Div(OutputAt(acc + c, scale), sum); }, at);
    return;
  }
  const F16V scale = hn::Set(F16D(), args.ValueScale());
  StoreValues(args, requant, [&](size_t c) HWY_ATTR { return OutputAt(acc + c, scale); }, at);
}

// How sums become the output. By interval: the contract's RN(RN(float(sum) * scale) / o_scale), two roundings, or with relative
// codes RN(RN(RN(float(sum) * v_scale) / codes) / o_scale), three, lies between float(sum) * low and float(sum) * high, so where
// these round to the same integer it is that integer (sdpa_probs-inl.h).
struct OutputForm {
  Requant requant;
  float factor;  // of a sum; relative: times the codes of the row
  bool relative;
  bool by_interval;
};
inline OutputForm OutputFormOf(const SdpaInt8Args& args) {
  OutputForm form{};
  form.relative = args.p_relative;
  if (args.o_type == quant::DType::kF32) return form;
  form.requant = MakeRequant(args.o_scale, args.o_zero_point, args.o_type);
  const double scale = static_cast<double>(args.ValueScale());
  const double factor = scale / static_cast<double>(args.o_scale);
  form.factor = static_cast<float>(factor);
  // Of a sum over the codes it is divided by; the magic number takes 2^22.
  const auto largest = args.p_relative ? 255.0 : 65025.0 * static_cast<double>(args.shape.k_len);
  form.by_interval = !form.requant.divide && scale >= 0x1p-80 && scale <= 0x1p80 && factor >= 0x1p-40 &&
                     factor * largest < 0x1p22 - 1 && args.shape.v_head_size % static_cast<int64_t>(4 * kF16Lanes) == 0;
  return form;
}

// The bounds of the rows whose codes sum to `codes`. Three roundings of the contract and three here are 6 * 2^-24 at most.
struct OutputBounds {
  RowSlots<float> low, high;

  HWY_INLINE OutputBounds(const OutputForm& form, const RowSlots<int32_t>& codes) {
    namespace hn = hwy::HWY_NAMESPACE;
    const hn::Full256<float> d;
    const hn::Full256<int32_t> di;
    auto factor = hn::Set(d, form.factor);
    if (form.relative) factor = hn::Div(factor, hn::ConvertTo(d, hn::Max(hn::Load(di, codes.at), hn::Set(di, 1))));
    hn::Store(hn::Mul(factor, hn::Set(d, 1 - 0x1.cp-22f)), d, low.at);
    hn::Store(hn::Mul(factor, hn::Set(d, 1 + 0x1.cp-22f)), d, high.at);
  }
};

// Sums that are complete; else something that adds what is missing (TileTerms).
struct NoTerms {
  HWY_INLINE S32V OfRow(size_t) const { return hwy::HWY_NAMESPACE::Zero(S32D()); }
  HWY_INLINE S32V Add(S32V sums, size_t, S32V) const { return sums; }
};

// kR rows of sums, `stride` apart, of which the first goes to `at`: 6.25 operations a vector instead of 13.25. False: an
// integer is in doubt, and what was written holds nothing.
template <size_t kR, class Terms = NoTerms>
HWY_INLINE bool StoreByInterval(const SdpaInt8Args& args, const OutputForm& form, const OutputBounds& bounds,
                                const int32_t* acc, size_t stride, int64_t at, const Terms& terms = {}) {
  namespace hn = hwy::HWY_NAMESPACE;
  const F16D d;
  const S32D di;
  F16V low, high;
  const F16V magic = hn::Set(d, kRoundMagic);
  const S32V offset = hn::Set(di, form.requant.offset);
  S32V doubt = hn::Zero(di), of_row = doubt;
  const int32_t* row = acc;
  const auto value = [&](size_t c) HWY_ATTR {
    const F16V x = hn::ConvertTo(d, terms.Add(hn::Load(di, row + c), c, of_row));
    const S32V a = hn::BitCast(di, hn::MulAdd(x, low, magic));
    doubt = OrXor(doubt, a, hn::BitCast(di, hn::MulAdd(x, high, magic)));
    return hn::Add(a, offset);
  };
  for (size_t r = 0; r < kR; ++r, row += stride) {
    low = hn::Set(d, bounds.low[r]), high = hn::Set(d, bounds.high[r]), of_row = terms.OfRow(r);
    auto* out = static_cast<uint8_t*>(args.o) + at + static_cast<int64_t>(r) * args.o_strides.row;
    for (size_t c = 0; c < static_cast<size_t>(args.shape.v_head_size); c += 4 * kF16Lanes) {
      const auto bytes = RequantPack(di, form.requant, value(c), value(c + kF16Lanes), value(c + 2 * kF16Lanes),
                                     value(c + 3 * kF16Lanes));
      hn::StoreU(bytes, hn::Repartition<uint8_t, S32D>(), out + c);
    }
  }
  return hn::AllTrue(di, hn::Eq(doubt, hn::Zero(di)));
}

// codes: the sums of the rows'.
template <size_t kR>
HWY_INLINE void StoreOutputs(const SdpaInt8Args& args, const OutputForm& form, const int32_t* acc, size_t stride,
                             const RowSlots<int32_t>& codes, int64_t at) {
  if (form.by_interval && StoreByInterval<kR>(args, form, OutputBounds(form, codes), acc, stride, at)) return;
  for (size_t r = 0; r < kR; ++r)
    StoreOutput(args, form.requant, acc + r * stride, codes[r], at + static_cast<int64_t>(r) * args.o_strides.row);
}

}  // namespace HWY_NAMESPACE
}  // namespace octavo::kernels
HWY_AFTER_NAMESPACE();
#endif  // HWY_TARGET <= HWY_AVX2

#endif  // include guard
