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

// One row of int32 sums to the output.
HWY_INLINE void StoreOutput(const SdpaInt8Args& args, const Requant& requant, const int32_t* acc, int64_t at) {
  const F16V scale = hwy::HWY_NAMESPACE::Set(F16D(), args.p_scale * args.v_scale);
  StoreValues(args, requant, [&](size_t c) HWY_ATTR { return OutputAt(acc + c, scale); }, at);
}

}  // namespace HWY_NAMESPACE
}  // namespace octavo::kernels
HWY_AFTER_NAMESPACE();
#endif  // HWY_TARGET <= HWY_AVX2

#endif  // include guard
