// From scores to exponentials, for kR query rows at a time: every pass is short, and one row alone would
// leave the machine waiting for the end of each (0.2 to 0.3 cycles a score). Per target.
#if defined(OCTAVO_KERNELS_SDPA_SDPA_ROWS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef OCTAVO_KERNELS_SDPA_SDPA_ROWS_INL_H_
#undef OCTAVO_KERNELS_SDPA_SDPA_ROWS_INL_H_
#else
#define OCTAVO_KERNELS_SDPA_SDPA_ROWS_INL_H_
#endif

#include <cstddef>
#include <cstdint>
#include <limits>

#include "hwy/highway.h"
#include "octavo/kernels/elementwise/activations-inl.h"
#include "octavo/kernels/simd/exp-inl.h"
#include "octavo/kernels/simd/lanes16-inl.h"

#if HWY_TARGET <= HWY_AVX2
HWY_BEFORE_NAMESPACE();
namespace octavo::kernels {
namespace HWY_NAMESPACE {

// Sixteen int32 lanes, beside F16.
using S32D = hwy::HWY_NAMESPACE::RebindToSigned<F16D>;
using S32V = hwy::HWY_NAMESPACE::Vec<S32D>;

// The rows of a block: row r begins at base + r * stride bytes.
struct ScoreRows {
  uint8_t* base;
  size_t stride;
  size_t keys;

  HWY_INLINE float* Row(size_t r) const { return reinterpret_cast<float*>(base + r * stride); }
  HWY_INLINE ScoreRows From(size_t r) const { return {base + r * stride, stride, keys}; }
};

// Rows that a pass keeps in registers: with 16 ymm, the sums or maxima of more go to the stack and back in every turn.
template <size_t kR>
inline constexpr size_t kScoreRowsAtOnce = kF16Lanes == 16 ? kR : HWY_MIN(kR, size_t{2});
// Masks of the rows; `row` and `col` are strides in elements.
struct MaskRows {
  const float* data;
  int64_t row;
  int64_t col;
};

HWY_INLINE F16 ConvertScores(const float* p, F16 factor) {
  namespace hn = hwy::HWY_NAMESPACE;
  const auto f = [&](const float* q, F16V scale) HWY_ATTR {
    return hn::Mul(hn::ConvertTo(F16D(), hn::Load(S32D(), reinterpret_cast<const int32_t*>(q))), scale);
  };
  return OCTAVO_F16(f(p, factor.a), f(p + 8, factor.b));
}

template <bool kInt, bool kScale>
HWY_INLINE F16 ScoreAt(const float* p, F16 factor, F16 scale) {
  F16 s;
  if constexpr (kInt) {
    s = ConvertScores(p, factor);
  } else {
    s = Load16(p);
  }
  if constexpr (kScale) s = Mul16(s, scale);
  return s;
}

// s = float(acc) * factor (kInt), * scale (kScale), + mask (kMask), stored over acc; -inf beyond the keys. m[r]: the
// maximum of each lane.
template <size_t kR, bool kInt, bool kScale, bool kMask>
HWY_INLINE void ScoreLanes(const ScoreRows& rows, F16 factor, F16 scale, const MaskRows& mask, F16* max) {
  constexpr float kLow = -std::numeric_limits<float>::infinity();
  const size_t whole = rows.keys / 16 * 16;
  const size_t rest = rows.keys - whole;
  F16 m[kR];
  HWY_UNROLL(6)
  for (size_t r = 0; r < kR; ++r) m[r] = Set16(kLow);
  if (!kMask || mask.col != 0) {
    for (size_t i = 0; i < whole; i += 16) {
      HWY_UNROLL(6)
      for (size_t r = 0; r < kR; ++r) {
        float* p = rows.Row(r) + i;
        F16 s = ScoreAt<kInt, kScale>(p, factor, scale);
        if constexpr (kMask) s = Add16(s, Load16(mask.data + static_cast<int64_t>(r) * mask.row + i));
        m[r] = Max16(s, m[r]);
        Store16(s, p);
      }
    }
  } else {  // one number for all keys of a row
    for (size_t r = 0; r < kR; ++r) {
      const F16 add = Set16(mask.data[static_cast<int64_t>(r) * mask.row]);
      for (size_t i = 0; i < whole; i += 16) {
        float* p = rows.Row(r) + i;
        const F16 s = Add16(ScoreAt<kInt, kScale>(p, factor, scale), add);
        m[r] = Max16(s, m[r]);
        Store16(s, p);
      }
    }
  }
  if (rest != 0) {
    for (size_t r = 0; r < kR; ++r) {
      float* p = rows.Row(r) + whole;
      F16 s = ScoreAt<kInt, kScale>(p, factor, scale);
      if constexpr (kMask) {
        const float* add = mask.data + static_cast<int64_t>(r) * mask.row;
        s = Add16(s, mask.col != 0 ? LoadN16(add + whole, rest) : Set16(*add));
      }
      Store16(s, p);
      for (size_t i = rest; i < 16; ++i) p[i] = kLow;
      m[r] = Max16(Load16(p), m[r]);
    }
  }
  HWY_UNROLL(6)
  for (size_t r = 0; r < kR; ++r) max[r] = m[r];
}

// max[r]: over the row.
template <size_t kR, bool kInt, bool kScale, bool kMask>
HWY_INLINE void ScorePass(const ScoreRows& rows, float factor, float scale, const MaskRows& mask,
                          RowSlots<float>& max) {
  constexpr size_t kOnce = kScoreRowsAtOnce<kR>;
  static_assert(kR % kOnce == 0);
  F16 lanes[kR];
  for (size_t r = 0; r < kR; r += kOnce) {
    const MaskRows part = {kMask ? mask.data + static_cast<int64_t>(r) * mask.row : nullptr, mask.row, mask.col};
    ScoreLanes<kOnce, kInt, kScale, kMask>(rows.From(r), Set16(factor), Set16(scale), part, lanes + r);
  }
  FoldRows<kR>(lanes, MaxOp(), max);
}

// s = Tanh(s / cap) * cap over scores that ScorePass has written; what lies beyond the keys is set anew by the next one.
template <size_t kR>
HWY_INLINE void CapPass(const ScoreRows& rows, float cap_value) {
  const F16 cap = Set16(cap_value);
  for (size_t r = 0; r < kR; ++r) {
    for (size_t i = 0; i < rows.keys; i += 16) {
      float* p = rows.Row(r) + i;
      const F16 x = Div16(Load16(p), cap);
      Store16(Mul16(OCTAVO_F16(Tanh(F16D(), x.a), Tanh(F16D(), x.b)), cap), p);
    }
  }
}

#if HWY_TARGET == HWY_AVX2
// e = Exp(s - max) of one row, over s; the sum in the sixteen lanes of the contract. Exactly 0 beyond the keys.
HWY_INLINE F16 ExpRow(const ScoreRows& rows, size_t r, float max) {
  const F16 m = Set16(max);
  F16 total = Set16(0.0f);
  float* p = rows.Row(r);
  for (size_t i = 0; i < rows.keys; i += 16) {
    const F16 x = Sub16(Load16(p + i), m);
    const F16 e = F16{ExpNonPositive(F16D(), x.a), ExpNonPositive(F16D(), x.b)};
    Store16(e, p + i);
    total = Add16(total, e);
  }
  return total;
}
#else
// The same of kR rows; `halves` holds the first halves of their first keys, and in the end those of the rows from `next`
// on, so that the chain of one set of rows does not have to end before the next one begins.
template <size_t kR>
HWY_INLINE void ExpRows(const ScoreRows& rows, const float* max, size_t next, ExpHalves<kR>& halves, F16* total) {
  F16V m[kR], m_next[kR], x[kR], e[kR], t[kR];
  const auto each = [](auto f) HWY_ATTR {
    HWY_UNROLL(6)
    for (size_t r = 0; r < kR; ++r) f(r);
  };
  const auto second = [&](size_t i) HWY_ATTR {
    halves.Second(x, e);
    each([&](size_t r) HWY_ATTR { Store16(F16{e[r]}, rows.Row(r) + i), t[r] = hwy::HWY_NAMESPACE::Add(t[r], e[r]); });
  };
  each([&](size_t r) HWY_ATTR { m[r] = Set16(max[r]).a, m_next[r] = Set16(max[next + r]).a, t[r] = Set16(0.0f).a; });
  size_t i = 0;
  for (; i + 16 < rows.keys; i += 16) {
    each([&](size_t r) HWY_ATTR { x[r] = Sub16(Load16(rows.Row(r) + i + 16), F16{m[r]}).a; });
    second(i);
  }
  each([&](size_t r) HWY_ATTR { x[r] = Sub16(Load16(rows.Row(next + r)), F16{m_next[r]}).a; });
  second(i);
  each([&](size_t r) HWY_ATTR { total[r] = F16{t[r]}; });
}
#endif

// e = Exp(s - max), over s, and the sums of the rows.
template <size_t kR>
HWY_INLINE void ExpPass(const ScoreRows& rows, const float* max, RowSlots<float>& sum) {
  F16 total[kR];
#if HWY_TARGET == HWY_AVX2
  for (size_t r = 0; r < kR; ++r) total[r] = ExpRow(rows, r, max[r]);
#else
  constexpr size_t kOnce = kR % 3 == 0 ? 3 : kR % 2 == 0 ? 2 : 1;
  F16V x[kOnce];
  HWY_UNROLL(6)
  for (size_t r = 0; r < kOnce; ++r) x[r] = Sub16(Load16(rows.Row(r)), Set16(max[r])).a;
  ExpHalves<kOnce> halves;
  halves.First(x);
  HWY_UNROLL(6)
  for (size_t r = 0; r < kR; r += kOnce) {
    ExpRows<kOnce>(rows.From(r), max + r, r + kOnce < kR ? kOnce : 0, halves, total + r);
  }
#endif
  FoldRows<kR>(total, AddOp(), sum);
}

// e / sum, over e. NaN rows stay NaN.
HWY_INLINE void DividePass(const ScoreRows& rows, size_t r, float sum) {
  const F16 s = Set16(sum);
  float* p = rows.Row(r);
  for (size_t i = 0; i < rows.keys; i += 16) Store16(Div16(Load16(p + i), s), p + i);
}

}  // namespace HWY_NAMESPACE
}  // namespace octavo::kernels
HWY_AFTER_NAMESPACE();
#endif  // HWY_TARGET <= HWY_AVX2

#endif  // include guard
