// The end of an epilogue, int8 or fp8: from the floats of a tile, behind scale and bias, through activation, post scale and
// residual to what y holds. Per target.
#if defined(OCTAVO_KERNELS_GEMM_FINISH_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef OCTAVO_KERNELS_GEMM_FINISH_INL_H_
#undef OCTAVO_KERNELS_GEMM_FINISH_INL_H_
#else
#define OCTAVO_KERNELS_GEMM_FINISH_INL_H_
#endif

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "hwy/highway.h"
#include "octavo/kernels/elementwise/activations-inl.h"
#include "octavo/kernels/gemm/gemm.h"
#include "octavo/kernels/simd/fp8-inl.h"
#include "octavo/kernels/simd/requant-inl.h"

#if HWY_TARGET <= HWY_AVX2
HWY_BEFORE_NAMESPACE();
namespace octavo::kernels {
namespace HWY_NAMESPACE {

using EpilogueD = hwy::HWY_NAMESPACE::ScalableTag<float>;
using EpilogueV = hwy::HWY_NAMESPACE::Vec<EpilogueD>;

// `rows` x `columns` (at most 64) of y from (row, column) on.
struct OutputTile {
  const GemmOutput* y;
  uint8_t* out;     // element (row, column) lies row * stride + column elements behind it, which may be before y
  int64_t stride;   // elements
  bool by_heads;    // `out` is another place, from which rows are copied (StoreByHeads)
  Requant requant;  // u8, s8
  Fp8Requant fp8;
  int64_t row;
  int64_t column;
  int rows;
  int columns;

  // For tiles of these rows; column and columns are set.
  HWY_INLINE void SetOutput(const GemmOutput& output, Range of_rows) {
    y = &output;
    out = static_cast<uint8_t*>(output.y), stride = output.stride, by_heads = false;
    if (quant::IsInt8(output.dtype)) requant = MakeRequant(output.scale, output.zero_point, output.dtype);
    if (quant::IsFp8(output.dtype)) fp8 = MakeFp8Requant(output.scale, output.dtype);
    const HeadMajor& h = output.heads;
    if (h.size == 0) return;
    by_heads =
        column / h.size != (column + columns - 1) / h.size || of_rows.begin / h.rows != (of_rows.end - 1) / h.rows;
    if (by_heads) return;
    row = of_rows.begin;  // one head of one batch: row-major, from another place
    SetOrigin(out + output.At(row, column) * Bytes(), stride);
  }
  // Element (row, column) lies at `at`.
  HWY_INLINE void SetOrigin(uint8_t* at, int64_t elements) {
    stride = elements;
    out = reinterpret_cast<uint8_t*>(reinterpret_cast<intptr_t>(at) - (row * stride + column) * Bytes());
  }
  HWY_INLINE int64_t Bytes() const { return quant::BitsOf(y->dtype) / 8; }
};

// Rows of a tile [rows][64] to where the heads of y have them; whole pieces of 32 bytes without a call of memcpy.
inline HWY_NOINLINE void CopyByHeads(const OutputTile& t, const uint8_t* tile) {
  namespace hn = hwy::HWY_NAMESPACE;
  const hn::CappedTag<uint8_t, 32> d8;
  const HeadMajor& h = t.y->heads;
  const int64_t bytes = quant::BitsOf(t.y->dtype) / 8;
  const int64_t first_batch = t.row / h.rows, first_row = t.row % h.rows;
  for (int64_t c = 0, head = t.column / h.size, column = t.column % h.size; c < t.columns; ++head, column = 0) {
    const int64_t count = std::min<int64_t>(h.size - column, t.columns - c);
    uint8_t* of_head = static_cast<uint8_t*>(t.y->y) + (head * h.head_stride + column) * bytes;
    const uint8_t* from = tile + c * bytes;
    for (int64_t r = 0, batch = first_batch, row = first_row; r < t.rows; ++r, ++row, from += 64 * bytes) {
      if (row == h.rows) ++batch, row = 0;
      uint8_t* to = of_head + (batch * h.batch_stride + row * t.y->stride) * bytes;
      int64_t i = 0;
      for (; i + 32 <= count * bytes; i += 32) hn::StoreU(hn::LoadU(d8, from + i), d8, to + i);
      if (i < count * bytes) std::memcpy(to + i, from + i, static_cast<size_t>(count * bytes - i));
    }
    c += count;
  }
}

// Head-major outputs that lie in several heads or batches: store(tile) fills rows of 64 columns, at most six, that are copied from there.
template <class Tile, class Store>
HWY_INLINE void StoreByHeads(Tile& t, Store store) {
  alignas(64) uint8_t rows[6 * 64 * sizeof(float)];
  t.SetOrigin(rows, 64);
  store(t);
  CopyByHeads(t, rows);
}

// Floats of a tile, [rows][64].
struct FromFloats {
  const float* values;
  HWY_INLINE EpilogueV operator()(int row, int column) const {
    return hwy::HWY_NAMESPACE::Load(EpilogueD(), values + row * 64 + column);
  }
};

template <class Source>
HWY_INLINE void StoreFloats(const OutputTile& t, Source source) {
  namespace hn = hwy::HWY_NAMESPACE;
  const EpilogueD d;
  constexpr int kLanes = static_cast<int>(hn::MaxLanes(d));
  auto* out = reinterpret_cast<float*>(t.out) + t.row * t.stride + t.column;
  for (int r = 0; r < t.rows; ++r, out += t.stride) {
    for (int c = 0; c < t.columns; c += kLanes) {
      const EpilogueV v = source(r, c);
      if (t.columns - c >= kLanes) {
        hn::StoreU(v, d, out + c);
      } else {
        hn::StoreN(v, d, out + c, static_cast<size_t>(t.columns - c));
      }
    }
  }
}

// Round to nearest even, NaN stays NaN: quant::F32ToBF16.
template <class Source>
HWY_INLINE void StoreBf16(const OutputTile& t, Source source) {
  namespace hn = hwy::HWY_NAMESPACE;
  const EpilogueD d;
  const hn::RebindToUnsigned<EpilogueD> du;
  const hn::Rebind<uint16_t, EpilogueD> d16;
  constexpr int kLanes = static_cast<int>(hn::MaxLanes(d));
  auto* out = reinterpret_cast<uint16_t*>(t.out) + t.row * t.stride + t.column;
  for (int r = 0; r < t.rows; ++r, out += t.stride) {
    for (int c = 0; c < t.columns; c += kLanes) {
      const EpilogueV v = source(r, c);
      const auto bits = hn::BitCast(du, v), high = hn::ShiftRight<16>(bits);
      const auto half = hn::Add(hn::And(high, hn::Set(du, 1u)), hn::Set(du, 0x7fffu));
      const auto rounded = hn::ShiftRight<16>(hn::Add(bits, half)), quiet = hn::Or(high, hn::Set(du, 0x40u));
      const auto words = hn::TruncateTo(d16, hn::IfThenElse(hn::RebindMask(du, hn::IsNaN(v)), quiet, rounded));
      if (t.columns - c >= kLanes) {
        hn::StoreU(words, d16, out + c);
      } else {
        hn::StoreN(words, d16, out + c, static_cast<size_t>(t.columns - c));
      }
    }
  }
}

// At most 64 bytes of which the first `count` exist.
template <class D8, class V8>
HWY_INLINE void StoreFirst(D8 d8, V8 bytes, uint8_t* out, int count) {
  namespace hn = hwy::HWY_NAMESPACE;
  if (count >= static_cast<int>(hn::MaxLanes(d8))) {
    hn::StoreU(bytes, d8, out);
  } else {
    alignas(64) uint8_t rest[64];
    hn::Store(bytes, d8, rest);
    std::memcpy(out, rest, static_cast<size_t>(count));
  }
}

template <bool kDivide, class Source>
HWY_INLINE void StoreBytes(const OutputTile& t, Source source) {
  namespace hn = hwy::HWY_NAMESPACE;
  const EpilogueD d;
  const hn::Repartition<uint8_t, EpilogueD> d8;
  constexpr int kLanes = static_cast<int>(hn::MaxLanes(d));
  uint8_t* out = t.out + t.row * t.stride + t.column;
  const Requant q = t.requant;
  for (int r = 0; r < t.rows; ++r, out += t.stride) {
    for (int c = 0; c < t.columns; c += 4 * kLanes) {
      const auto bytes = RequantBytes<kDivide>(d, q, source(r, c), source(r, c + kLanes), source(r, c + 2 * kLanes),
                                               source(r, c + 3 * kLanes));
      StoreFirst(d8, bytes, out + c, t.columns - c);
    }
  }
}

template <class Source>
HWY_INLINE void StoreTile(const OutputTile& t, Source source) {
  if (t.y->dtype == quant::DType::kF32) {
    StoreFloats(t, source);
  } else if (t.y->dtype == quant::DType::kBF16) {
    StoreBf16(t, source);
  } else if (t.requant.divide) {
    StoreBytes<true>(t, source);
  } else {
    StoreBytes<false>(t, source);
  }
}

template <class Op>
HWY_INLINE void InPlace(float* values, int rows, Op op) {
  const EpilogueD d;
  constexpr int kLanes = static_cast<int>(hwy::HWY_NAMESPACE::MaxLanes(d));
  for (int i = 0; i < rows * 64; i += kLanes) {
    hwy::HWY_NAMESPACE::Store(op(d, hwy::HWY_NAMESPACE::Load(d, values + i)), d, values + i);
  }
}

inline HWY_NOINLINE void ActivateInPlace(Activation activation, float* values, int rows) {
  switch (activation) {
#define OCTAVO_ACTIVATION(Name, name, scalar, vector) \
  case Activation::k##Name:                           \
    return InPlace(values, rows, [](auto d, auto v) HWY_ATTR { return vector; });
#include "octavo/kernels/gemm/activations.def"
#undef OCTAVO_ACTIVATION
    case Activation::kNone:
      return;
  }
}

HWY_INLINE void AddResidual(const OutputTile& t, float* values) {
  namespace hn = hwy::HWY_NAMESPACE;
  const EpilogueD d;
  constexpr int kLanes = static_cast<int>(hn::MaxLanes(d));
  const float* from = t.y->residual + t.row * t.y->residual_stride + t.column;
  for (int r = 0; r < t.rows; ++r, from += t.y->residual_stride, values += 64) {
    int c = 0;
    for (; c + kLanes <= t.columns; c += kLanes) {
      hn::Store(hn::Add(hn::Load(d, values + c), hn::LoadU(d, from + c)), d, values + c);
    }
    if (c == t.columns) continue;
    const auto rest = hn::LoadN(d, from + c, static_cast<size_t>(t.columns - c));
    hn::Store(hn::Add(hn::Load(d, values + c), rest), d, values + c);
  }
}

// What follows scale and bias; values [rows][64], aligned, are overwritten.
inline HWY_NOINLINE void FinishTile(const OutputTile& t, float* values) {
  namespace hn = hwy::HWY_NAMESPACE;
  const EpilogueD d;
  constexpr int kLanes = static_cast<int>(hn::MaxLanes(d));
  ActivateInPlace(t.y->activation, values, t.rows);
  if (t.y->post_scale != nullptr) {
    alignas(64) float scale[64] = {};
    std::memcpy(scale, t.y->post_scale + t.column, static_cast<size_t>(t.columns) * sizeof(float));
    for (int r = 0; r < t.rows; ++r) {
      for (int c = 0; c < 64; c += kLanes) {
        float* at = values + r * 64 + c;
        hn::Store(hn::Mul(hn::Load(d, at), hn::Load(d, scale + c)), d, at);
      }
    }
  }
  if (t.y->residual != nullptr) AddResidual(t, values);
  if (!quant::IsFp8(t.y->dtype)) return StoreTile(t, FromFloats{values});
  uint8_t* out = t.out + t.row * t.stride + t.column;
  for (int r = 0; r < t.rows; ++r)
    EncodeFp8(t.fp8, values + r * 64, static_cast<size_t>(t.columns), out + r * t.stride);
}

}  // namespace HWY_NAMESPACE
}  // namespace octavo::kernels
HWY_AFTER_NAMESPACE();
#endif  // HWY_TARGET <= HWY_AVX2

#endif  // include guard
