// Products of few rows with K and V where they lie, nothing is packed: both in s16, for CPUs without VNNI, and V also with VNNI.
// Per target, in ymm also where there are zmm, since three ports take them.
//
// s16: bytes stay unsigned (signed ones have their top bit flipped); what their zero point adds is one number a row. The even and
// the odd bytes of a word are a mask and a shift away from s16, without a shuffle: query rows lie in that order.
#if defined(OCTAVO_KERNELS_SDPA_SDPA_DECODE_DIRECT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef OCTAVO_KERNELS_SDPA_SDPA_DECODE_DIRECT_INL_H_
#undef OCTAVO_KERNELS_SDPA_SDPA_DECODE_DIRECT_INL_H_
#else
#define OCTAVO_KERNELS_SDPA_SDPA_DECODE_DIRECT_INL_H_
#endif

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "hwy/highway.h"
#include "octavo/kernels/sdpa/sdpa_layout.h"
#include "octavo/kernels/sdpa/sdpa_pack-inl.h"

#if HWY_TARGET <= HWY_AVX2
HWY_BEFORE_NAMESPACE();
namespace octavo::kernels {
namespace HWY_NAMESPACE {

using Y8 = hwy::HWY_NAMESPACE::Full256<uint8_t>;
using Y16 = hwy::HWY_NAMESPACE::Full256<uint16_t>;
using Y32 = hwy::HWY_NAMESPACE::Full256<int32_t>;
using Y64 = hwy::HWY_NAMESPACE::Full256<int64_t>;
using Y8V = hwy::HWY_NAMESPACE::Vec<Y8>;
using Y16V = hwy::HWY_NAMESPACE::Vec<Y16>;
using Y32V = hwy::HWY_NAMESPACE::Vec<Y32>;
inline constexpr size_t kDirectBytes = internal::kDecodeColumns;  // of a row at a time

// By value: sums that are passed by reference go to the stack in every turn (GCC 14.2).
HWY_INLINE Y32V DirectDot(Y32V acc, Y16V a, Y16V b) {
  Y32V product;
  asm("vpmaddwd %3, %2, %1\n\tvpaddd %1, %0, %0" : "+v"(acc.raw), "=v"(product.raw) : "v"(a.raw), "v"(b.raw));
  return acc;
}
HWY_INLINE Y32V DirectDot(Y32V acc, Y16V a, const int16_t* b) {  // b stays in memory: sums take the registers
  Y32V product;
  asm("vpmaddwd %3, %2, %1\n\tvpaddd %1, %0, %0"
      : "+v"(acc.raw), "=v"(product.raw)
      : "v"(a.raw), "m"(*reinterpret_cast<const __m256i*>(b)));
  return acc;
}

// p: the words of four keys, u8. v: those keys of eight columns, s8. AVX3 has no such form.
HWY_INLINE Y32V QuadDot(Y32V acc, Y32V p, Y16V v) {
#if HWY_TARGET == HWY_AVX2
  asm("%{vex%} vpdpbusd %2, %1, %0" : "+x"(acc.raw) : "x"(p.raw), "x"(v.raw));
#elif HWY_TARGET <= HWY_AVX3_DL
  asm("vpdpbusd %2, %1, %0" : "+v"(acc.raw) : "v"(p.raw), "v"(v.raw));
#else
  static_cast<void>(p), static_cast<void>(v);
#endif
  return acc;
}

// Sixteen words of two bytes, and their even and odd ones. kFlip: the top bit of all.
template <bool kFlip>
HWY_INLINE Y16V WordsOf(Y16V v) {
  namespace hn = hwy::HWY_NAMESPACE;
  if constexpr (kFlip) return hn::Xor(v, hn::Set(Y16(), 0x8080));
  return v;
}
HWY_INLINE Y16V EvenBytes(Y16V words) { return hwy::HWY_NAMESPACE::And(words, hwy::HWY_NAMESPACE::Set(Y16(), 0x00FF)); }
HWY_INLINE Y16V OddBytes(Y16V words) { return hwy::HWY_NAMESPACE::ShiftRight<8>(words); }

// Rows of K or V: 64 keys from `key` on. Where reading whole vectors would leave the last row, a copy with zeros behind.
struct DirectBlock {
  const uint8_t* data;
  int64_t stride;
};
inline DirectBlock BlockAt(const HeadRows<uint8_t>& rows, size_t key, uint8_t* copy) {
  const size_t wide = internal::RoundUp(rows.width, kDirectBytes),
               keys = HWY_MIN(rows.count - key, internal::kDecodeKeys);
  const uint8_t* first = rows.data + static_cast<int64_t>(key) * rows.stride;
  const int64_t left =
      static_cast<int64_t>(rows.count - key - internal::kDecodeKeys) * rows.stride;  // behind the block
  if (keys == internal::kDecodeKeys && left >= static_cast<int64_t>(wide - rows.width)) return {first, rows.stride};
  for (size_t i = 0; i < keys; ++i) {
    std::memcpy(copy + i * wide, first + static_cast<int64_t>(i) * rows.stride, rows.width);
    std::memset(copy + i * wide + rows.width, 0, wide - rows.width);
  }
  std::memset(copy + keys * wide, 0, (internal::kDecodeKeys - keys) * wide);
  return {copy, static_cast<int64_t>(wide)};
}

// A query row less its zero point, even and odd elements of each 32 apart; returns their sum.
inline int32_t DirectQuery(const uint8_t* q, size_t width, bool is_signed, int32_t zero_point, int16_t* out) {
  namespace hn = hwy::HWY_NAMESPACE;
  const uint8_t flip = is_signed ? 0x80 : 0;
  const int32_t zero = zero_point + flip;
  int32_t sum = 0;
  for (size_t at = 0; at < width; at += kDirectBytes) {
    for (size_t i = 0; i < kDirectBytes; ++i) {
      const int32_t x = at + i < width ? (q[at + i] ^ flip) - zero : 0;
      out[at + i / 2 + i % 2 * 16] = static_cast<int16_t>(x);
      sum += x;
    }
  }
  return sum;
}

// Lane i: the sum of the i-th one.
HWY_INLINE Y32V SumsOfEight(Y32V a, Y32V b, Y32V c, Y32V d, Y32V e, Y32V f, Y32V g, Y32V h) {
  namespace hn = hwy::HWY_NAMESPACE;
  const Y32 d32;
  const Y64 d64;
  const auto two = [&](Y32V x, Y32V y)
                       HWY_ATTR { return hn::Add(hn::InterleaveLower(d32, x, y), hn::InterleaveUpper(d32, x, y)); };
  const auto four = [&](Y32V x32, Y32V y32) HWY_ATTR {
    const auto x = hn::BitCast(d64, x32), y = hn::BitCast(d64, y32);
    return hn::Add(hn::BitCast(d32, hn::InterleaveLower(d64, x, y)), hn::BitCast(d32, hn::InterleaveUpper(d64, x, y)));
  };
  const Y32V low = four(two(a, b), two(c, d)), high = four(two(e, f), two(g, h));
  return hn::Add(hn::ConcatUpperLower(d32, high, low), hn::ConcatLowerUpper(d32, high, low));
}

// What a tile of kR rows takes and gives.
struct DirectRows {
  const uint8_t* a;  // words of the first row
  size_t a_stride;   // bytes
  int32_t* out;
  size_t out_stride;  // elements
};

// One key against kR rows: sums of 32 bytes at a time, by name, which keeps them in registers.
template <size_t kR>
struct KeySums {
  Y32V r0, r1, r2, r3;
  HWY_INLINE void Clear() { r0 = r1 = r2 = r3 = hwy::HWY_NAMESPACE::Zero(Y32()); }
  template <bool kSigned>
  HWY_INLINE void Step(const uint8_t* key, const uint8_t* q, size_t stride) {
    const Y16V words = WordsOf<kSigned>(hwy::HWY_NAMESPACE::LoadU(Y16(), reinterpret_cast<const uint16_t*>(key)));
    const Y16V even = EvenBytes(words), odd = OddBytes(words);
    const auto dot = [&](Y32V sum, size_t r) HWY_ATTR {
      const auto* row = reinterpret_cast<const int16_t*>(q + r * stride);
      return DirectDot(DirectDot(sum, even, row), odd, row + 16);
    };
    r0 = dot(r0, 0);
    if constexpr (kR > 1) r1 = dot(r1, 1);
    if constexpr (kR > 2) r2 = dot(r2, 2), r3 = dot(r3, 3);
  }
};

// Sums of kR rows x 8 / kR keys, row by row; key: the first one.
template <size_t kR, bool kSigned>
HWY_INLINE Y32V EightSums(const uint8_t* q, size_t q_stride, const uint8_t* key, int64_t stride, size_t width) {
  KeySums<kR> k0, k1, k2, k3, k4, k5, k6, k7;
  k0.Clear(), k1.Clear(), k2.Clear(), k3.Clear(), k4.Clear(), k5.Clear(), k6.Clear(), k7.Clear();
  for (const uint8_t* end = key + width; key < end; key += kDirectBytes, q += 2 * kDirectBytes) {
    k0.template Step<kSigned>(key, q, q_stride);
    k1.template Step<kSigned>(key + stride, q, q_stride);
    if constexpr (kR > 2) continue;
    k2.template Step<kSigned>(key + 2 * stride, q, q_stride);
    k3.template Step<kSigned>(key + 3 * stride, q, q_stride);
    if constexpr (kR > 1) continue;
    const uint8_t* four = key + 4 * stride;
    k4.template Step<kSigned>(four, q, q_stride);
    k5.template Step<kSigned>(four + stride, q, q_stride);
    k6.template Step<kSigned>(four + 2 * stride, q, q_stride);
    k7.template Step<kSigned>(four + 3 * stride, q, q_stride);
  }
  if constexpr (kR == 1) return SumsOfEight(k0.r0, k1.r0, k2.r0, k3.r0, k4.r0, k5.r0, k6.r0, k7.r0);
  if constexpr (kR == 2) return SumsOfEight(k0.r0, k1.r0, k2.r0, k3.r0, k0.r1, k1.r1, k2.r1, k3.r1);
  return SumsOfEight(k0.r0, k1.r0, k0.r1, k1.r1, k0.r2, k1.r2, k0.r3, k1.r3);
}

// out[r][key] = terms[r] + row r . key, for `keys` keys (a multiple of 8).
template <size_t kR, bool kSigned>
HWY_NOINLINE void KeyTile(const DirectRows& rows, const int32_t* terms, const DirectBlock& k, size_t keys,
                          size_t width) {
  namespace hn = hwy::HWY_NAMESPACE;
  constexpr size_t kKeys = 8 / kR;
  alignas(32) int32_t start[8];
  for (size_t i = 0; i < 8; ++i) start[i] = terms[i / kKeys];
  for (size_t key = 0; key < keys; key += kKeys) {
    const uint8_t* first = k.data + static_cast<int64_t>(key) * k.stride;
    const Y32V sums =
        hn::Add(EightSums<kR, kSigned>(rows.a, rows.a_stride, first, k.stride, width), hn::Load(Y32(), start));
    if constexpr (kR == 1) {
      hn::StoreU(sums, Y32(), rows.out + key);
    } else {
      alignas(32) int32_t all[8];
      hn::Store(sums, Y32(), all);
      for (size_t r = 0; r < kR; ++r) {
        std::memcpy(rows.out + r * rows.out_stride + key, all + r * kKeys, kKeys * sizeof(int32_t));
      }
    }
  }
}

// Eight sums of a row: four columns from p on and four from p + 16, which interleaving within 128 bits puts together.
HWY_INLINE Y32V LoadHalves(const int32_t* p) {
  namespace hn = hwy::HWY_NAMESPACE;
  const hn::Full128<int32_t> d;
  return hn::Combine(Y32(), hn::LoadU(d, p + 16), hn::LoadU(d, p));
}
HWY_INLINE void StoreHalves(Y32V v, int32_t* p) {
  namespace hn = hwy::HWY_NAMESPACE;
  const hn::Full128<int32_t> d;
  hn::StoreU(hn::LowerHalf(d, v), d, p);
  hn::StoreU(hn::UpperHalf(d, v), d, p + 16);
}

// Four bytes of a row of probabilities in every lane.
HWY_INLINE Y32V ProbWord(const uint8_t* p) {
  int32_t word;
  std::memcpy(&word, p, sizeof(word));
  return hwy::HWY_NAMESPACE::Set(Y32(), word);
}
HWY_INLINE Y16V ProbPair(const uint8_t* p) { return hwy::HWY_NAMESPACE::BitCast(Y16(), ProbWord(p)); }

// The sums of 32 columns for one row.
struct ValueSums {
  Y32V c0, c1, c2, c3;
  HWY_INLINE void LoadFrom(const int32_t* p) {
    c0 = LoadHalves(p), c1 = LoadHalves(p + 4), c2 = LoadHalves(p + 8), c3 = LoadHalves(p + 12);
  }
  HWY_INLINE void StoreTo(int32_t* p) const {
    StoreHalves(c0, p), StoreHalves(c1, p + 4), StoreHalves(c2, p + 8), StoreHalves(c3, p + 12);
  }
};

// Whether a tile of kR rows has registers for its probabilities, beside 4 sums a row; else it loads them again.
template <class E, size_t kR>
inline constexpr bool kKeepsProbs = kR == 1 || (HWY_TARGET != HWY_AVX2 && (kR == 2 || E::kPerWord == 4));

// out[r][32 columns] += p[r] . v over the fours of keys in `fours`.
template <class E, size_t kR, bool kSigned>
HWY_NOINLINE void ValueFours(const DirectRows& rows, const uint8_t* fours, size_t count, const uint8_t* v,
                             int64_t stride) {
  namespace hn = hwy::HWY_NAMESPACE;
  const Y8 d8;
  const Y16 d16;
  const size_t p_stride = rows.a_stride, o = rows.out_stride;
  ValueSums s0, s1, s2, s3;
  s0.LoadFrom(rows.out), s1 = s2 = s3 = s0;
  if constexpr (kR > 1) s1.LoadFrom(rows.out + o);
  if constexpr (kR > 2) s2.LoadFrom(rows.out + 2 * o), s3.LoadFrom(rows.out + 3 * o);
  for (size_t i = 0; i < count; ++i) {
    const size_t four = fours[i];
    const uint8_t* p = rows.a + four * 4 * sizeof(typename E::Prob);
    const uint8_t* row = v + static_cast<int64_t>(four) * 4 * stride;
    const auto dot = [&](Y16V quads, Y32V& a0, Y32V& a1, Y32V& a2, Y32V& a3) HWY_ATTR {
      if constexpr (!kKeepsProbs<E, kR>) asm("" : "+r"(p));
      // Eight columns of four keys: bytes v0, v1, v2, v3 (VNNI) or v0, v2, v1, v3 (s16) of each.
      const Y16V words = WordsOf < kSigned == (E::kPerWord == 2) > (quads), even = EvenBytes(words),
                 odd = OddBytes(words);
      const auto all = [&](Y32V sum, const uint8_t* at) HWY_ATTR {
        if constexpr (E::kPerWord == 4) return QuadDot(sum, ProbWord(at), words);
        return DirectDot(DirectDot(sum, even, ProbPair(at)), odd, ProbPair(at + 4));
      };
      a0 = all(a0, p);
      if constexpr (kR > 1) a1 = all(a1, p + p_stride);
      if constexpr (kR > 2) a2 = all(a2, p + 2 * p_stride), a3 = all(a3, p + 3 * p_stride);
    };
    constexpr int64_t kNext = E::kPerWord == 4 ? 1 : 2, kOther = 3 - kNext;  // rows that are interleaved first
    const auto load = [&](int64_t j) HWY_ATTR { return hn::LoadU(d8, row + j * stride); };
    const auto low = [&](int64_t j)
                         HWY_ATTR { return hn::BitCast(d16, hn::InterleaveLower(d8, load(j), load(j + kNext))); };
    const auto high = [&](int64_t j)
                          HWY_ATTR { return hn::BitCast(d16, hn::InterleaveUpper(d8, load(j), load(j + kNext))); };
    const Y16V x = low(0), y = low(kOther);
    dot(hn::InterleaveLower(d16, x, y), s0.c0, s1.c0, s2.c0, s3.c0);
    dot(hn::InterleaveUpper(d16, x, y), s0.c1, s1.c1, s2.c1, s3.c1);
    if constexpr (!kKeepsProbs<E, kR>) asm("" : "+r"(row));
    const Y16V z = high(0), w = high(kOther);
    dot(hn::InterleaveLower(d16, z, w), s0.c2, s1.c2, s2.c2, s3.c2);
    dot(hn::InterleaveUpper(d16, z, w), s0.c3, s1.c3, s2.c3, s3.c3);
  }
  s0.StoreTo(rows.out);
  if constexpr (kR > 1) s1.StoreTo(rows.out + o);
  if constexpr (kR > 2) s2.StoreTo(rows.out + 2 * o), s3.StoreTo(rows.out + 3 * o);
}

// The fours of a block of 64 keys of which some row has a probability, as a list; p: the words of the block. Codes of probabilities
// with scale 1/255 leave at most 510 keys of a row, so most of a long V is never read; relative codes leave all keys of a flat row.
template <class E>
size_t FoursInUse(const uint8_t* p, size_t p_stride, size_t rows, size_t keys, uint8_t* list) {
  namespace hn = hwy::HWY_NAMESPACE;
  using T = std::conditional_t<E::kPerWord == 4, int32_t, int64_t>;  // the words of four keys
  const hn::Full256<T> d;
  constexpr size_t kFours = 32 / sizeof(T);
  uint32_t used = 0;
  for (size_t four = 0; four < keys / 4; four += kFours) {
    auto any = hn::Zero(d);
    for (size_t r = 0; r < rows; ++r) {
      any = hn::Or(any, hn::LoadU(d, reinterpret_cast<const T*>(p + r * p_stride + four * sizeof(T))));
    }
    uint8_t bits[8];
    hn::StoreMaskBits(d, hn::Ne(any, hn::Zero(d)), bits);
    used |= static_cast<uint32_t>(bits[0] & ((1u << kFours) - 1)) << four;
  }
  used &= (1u << (keys / 4)) - 1;
  size_t n = 0;
  for (; used != 0; used &= used - 1) list[n++] = static_cast<uint8_t>(std::countr_zero(used));
  return n;
}

}  // namespace HWY_NAMESPACE
}  // namespace octavo::kernels
HWY_AFTER_NAMESPACE();
#endif  // HWY_TARGET <= HWY_AVX2

#endif  // include guard
