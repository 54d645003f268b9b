// From the int32 sums of a tile to the output: scale, bias, activation, store or quantize. Per target.
#if defined(OCTAVO_KERNELS_GEMM_EPILOGUE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef OCTAVO_KERNELS_GEMM_EPILOGUE_INL_H_
#undef OCTAVO_KERNELS_GEMM_EPILOGUE_INL_H_
#else
#define OCTAVO_KERNELS_GEMM_EPILOGUE_INL_H_
#endif

#include <bit>
#include <cstdint>
#include <cstring>

#include "hwy/cache_control.h"
#include "hwy/highway.h"
#include "octavo/kernels/gemm/finish-inl.h"
#include "octavo/kernels/gemm/fixed-inl.h"
#include "octavo/kernels/gemm/gemm.h"

#if HWY_TARGET <= HWY_AVX2
HWY_BEFORE_NAMESPACE();
namespace octavo::kernels {
namespace HWY_NAMESPACE {

// What the epilogue needs of one block of 64 columns. No bias is -0.0f, the only value whose addition changes nothing.
struct BlockColumns {
  alignas(64) int32_t init[64];
  alignas(64) float scale[64];  // of the weights times that of x; of the weights alone where each row has its own
  alignas(64) float bias[64];
  alignas(64) int32_t sums[64];  // of the weights; filled where each row has its zero point
  FixedColumns fixed;            // filled where rows are many enough to pay for it
};

// A tile and its sums, [6][64].
struct EpilogueTile;
using EpilogueFn = void (*)(EpilogueTile& tile);
struct EpilogueTile : OutputTile {
  EpilogueFn store;       // ChooseStore
  EpilogueFn store_rows;  // by_heads: how rows come to where they are copied from
  int32_t* acc;
  const BlockColumns* columns_of;
  const float* row_scale;         // of all rows of y; null: none
  const uint8_t* row_zero_point;  // likewise
  const int32_t* begin;           // what StoreFixed adds to each row of sums; null: nothing
};

// Where the floats come from, unless FinishTile has passed over them.
template <bool kRelu>
struct FromSums {
  const int32_t* acc;
  const BlockColumns* c;
  HWY_INLINE EpilogueV operator()(int row, int column) const {
    namespace hn = hwy::HWY_NAMESPACE;
    const EpilogueD d;
    const hn::RebindToSigned<EpilogueD> di;
    EpilogueV y = hn::ConvertTo(d, hn::Load(di, acc + row * 64 + column));
    y = hn::Add(hn::Mul(y, hn::Load(d, c->scale + column)), hn::Load(d, c->bias + column));
    if constexpr (kRelu) y = hn::Max(hn::Zero(d), y);  // maxps: the second operand for NaN and for two zeros
    return y;
  }
};
// The same where each row of x has its scale, and its zero point: float(sum) * (row scale * column scale) + bias.
template <bool kZeros>
struct FromSumsOfTokens {
  const int32_t* acc;
  const BlockColumns* c;
  const float* row_scale;  // of the tile's first row
  const uint8_t* row_zero_point;

  HWY_INLINE explicit FromSumsOfTokens(const EpilogueTile& t)
      : acc(t.acc),
        c(t.columns_of),
        row_scale(t.row_scale + t.row),
        row_zero_point(kZeros ? t.row_zero_point + t.row : nullptr) {}
  HWY_INLINE EpilogueV operator()(int row, int column) const {
    namespace hn = hwy::HWY_NAMESPACE;
    const EpilogueD d;
    const hn::RebindToSigned<EpilogueD> di;
    auto sum = hn::Load(di, acc + row * 64 + column);
    if constexpr (kZeros) sum = hn::Sub(sum, hn::Mul(hn::Set(di, row_zero_point[row]), hn::Load(di, c->sums + column)));
    EpilogueV y = hn::ConvertTo(d, sum);
    y = hn::Mul(y, hn::Mul(hn::Set(d, row_scale[row]), hn::Load(d, c->scale + column)));
    return hn::Add(y, hn::Load(d, c->bias + column));
  }
};
// out[64] = a + b, wrapping.
HWY_INLINE void AddRow(const int32_t* a, const int32_t* b, int32_t* out) {
  namespace hn = hwy::HWY_NAMESPACE;
  const FixedD d;
  for (int c = 0; c < 64; c += kFixedLanes) hn::Store(hn::Add(hn::Load(d, a + c), hn::Load(d, b + c)), d, out + c);
}

// Rows of a tile as the contract says, a bit each, where fixed point leaves a doubt: rare, and kept out of the loops.
HWY_NOINLINE void StoreRowsInDoubt(const EpilogueTile& t, uint32_t doubt) {
  for (; doubt != 0; doubt &= doubt - 1) {
    const int row = std::countr_zero(doubt);
    alignas(64) int32_t sums[64];
    std::memcpy(sums, t.acc + row * 64, sizeof(sums));
    if (t.begin != nullptr) AddRow(sums, t.begin, sums);
    EpilogueTile one = t;
    one.acc = sums;
    one.row += row;
    one.rows = 1;
    t.y->activation == Activation::kRelu ? StoreBytes<false>(one, FromSums<true>{one.acc, one.columns_of})
                                         : StoreBytes<false>(one, FromSums<false>{one.acc, one.columns_of});
  }
}

template <bool kPlain, bool kBegins>
HWY_NOINLINE void StoreFixed(EpilogueTile& t) {
  namespace hn = hwy::HWY_NAMESPACE;
  const hn::DFromV<FixedBytes> d8;
  constexpr int kBytes = 4 * kFixedLanes;
  const int64_t stride = t.stride;
  uint32_t doubt = 0;
  for (int c = 0; c < t.columns; c += kBytes) {
    const FixedFour four(t.columns_of->fixed, c);
    uint8_t* out = t.out + t.row * stride + t.column + c;
    const int32_t* acc = t.acc + c;
    for (int r = 0; r < t.rows; ++r, out += stride, acc += 64) {
      const auto at = [&](int i) HWY_ATTR {
        const FixedV sum = hn::Load(FixedD(), acc + i * kFixedLanes);
        return kBegins ? hn::Add(sum, hn::Load(FixedD(), t.begin + c + i * kFixedLanes)) : sum;
      };
      bool certain;
      const FixedBytes bytes = four.Of<kPlain>(at(0), at(1), at(2), at(3), &certain);
      if (HWY_UNLIKELY(!certain)) doubt |= 1u << r;
      StoreFirst(d8, bytes, out, t.columns - c);
    }
  }
  if (HWY_UNLIKELY(doubt != 0)) StoreRowsInDoubt(t, doubt);
}

#if HWY_TARGET <= HWY_AVX3_DL
// The end of a tile of 64 columns whose sums are in registers: bytes from there, without a buffer between. Sums of rows
// in doubt go to it.
template <bool kPlain>
struct FixedFinish {
  const FixedColumns* columns;
  uint8_t* out;
  int64_t stride;
  int32_t* acc;
  uint32_t* doubt;

  // The lines of `rows` rows arrive while they are multiplied.
  HWY_INLINE void Begin(int rows) const {
    const uint8_t* line = out;
    for (int r = 0; r < rows; ++r, line += stride) hwy::Prefetch(line);
  }
  struct End {
    FixedFour four;
    FixedFinish to;
    HWY_INLINE explicit End(const FixedFinish& finish) : four(*finish.columns, 0), to(finish) {}

    template <class Row>
    HWY_INLINE void Store(int r, const Row& row) {
      namespace hn = hwy::HWY_NAMESPACE;
      bool certain;
      const FixedBytes bytes = four.template Of<kPlain>(row.c0, row.c1, row.c2, row.c3, &certain);
      if (HWY_UNLIKELY(!certain)) {
        row.Store(to.acc + r * 64);
        *to.doubt |= 1u << r;
      }
      hn::StoreU(bytes, hn::DFromV<FixedBytes>(), to.out);
      to.out += to.stride;
    }
  };
};
#endif

template <class Source>
HWY_INLINE void FillValues(int rows, Source source, float* values) {
  const EpilogueD d;
  constexpr int kLanes = static_cast<int>(hwy::HWY_NAMESPACE::MaxLanes(d));
  for (int r = 0; r < rows; ++r) {
    for (int c = 0; c < 64; c += kLanes) hwy::HWY_NAMESPACE::Store(source(r, c), d, values + r * 64 + c);
  }
}

// Activations, what follows them and fp8 codes take passes over a buffer in L1.
HWY_NOINLINE void EpilogueInPasses(EpilogueTile& t) {
  alignas(64) float values[6 * 64];
  if (t.row_zero_point != nullptr) {
    FillValues(t.rows, FromSumsOfTokens<true>(t), values);
  } else if (t.row_scale != nullptr) {
    FillValues(t.rows, FromSumsOfTokens<false>(t), values);
  } else {
    FillValues(t.rows, FromSums<false>{t.acc, t.columns_of}, values);
  }
  FinishTile(t, values);
}

template <bool kRelu>
HWY_NOINLINE void EpilogueOfSums(EpilogueTile& t) {
  StoreTile(t, FromSums<kRelu>{t.acc, t.columns_of});
}

template <bool kZeros>
HWY_NOINLINE void EpilogueOfTokens(EpilogueTile& t) {
  StoreFloats(t, FromSumsOfTokens<kZeros>(t));
}

// How tiles become output, chosen once a block: inlined into the loop over tiles, the choice and its eight ways cost 45
// cycles a tile of 2300, and 4,700 instructions a form.
inline EpilogueFn EpilogueOf(const EpilogueTile& t) {
  // Something follows the activation.
  const bool scaled = t.y->post_scale != nullptr || t.y->residual != nullptr || quant::IsFp8(t.y->dtype);
  const bool relu = t.y->activation == Activation::kRelu, none = t.y->activation == Activation::kNone;
  const FixedColumns& fixed = t.columns_of->fixed;
  if (fixed.digits != 0) {
    if (t.begin != nullptr) return fixed.IsPlain() ? &StoreFixed<true, true> : &StoreFixed<false, true>;
    return fixed.IsPlain() ? &StoreFixed<true, false> : &StoreFixed<false, false>;
  }
  if (scaled || !(relu || none)) return &EpilogueInPasses;
  if (t.row_scale != nullptr) {
    if (!none || t.y->dtype != quant::DType::kF32) return &EpilogueInPasses;
    return t.row_zero_point != nullptr ? &EpilogueOfTokens<true> : &EpilogueOfTokens<false>;
  }
  return relu ? &EpilogueOfSums<true> : &EpilogueOfSums<false>;
}

HWY_NOINLINE void EpilogueByHeads(EpilogueTile& t) {
  StoreByHeads(t, [](EpilogueTile& rows) HWY_ATTR { rows.store_rows(rows); });
}

HWY_INLINE void ChooseStore(EpilogueTile& t) {
  t.store = EpilogueOf(t);
  if (t.by_heads) t.store_rows = t.store, t.store = &EpilogueByHeads;
}

}  // namespace HWY_NAMESPACE
}  // namespace octavo::kernels
HWY_AFTER_NAMESPACE();
#endif  // HWY_TARGET <= HWY_AVX2

#endif  // include guard
