// The tiles of LinearFp8, compiled once per target. Few rows decode weights in registers, so that each is read once; more
// rows decode 64 columns of 128 k (32 KB) and reuse them. Sums stay in registers over such a chunk and are pinned after
// every step (kernels.md 10.2).
#include <algorithm>
#include <cstring>

#include "octavo/kernels/fp8/fp8.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "octavo/kernels/fp8/fp8_vec.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
#include "octavo/kernels/fp8/fp8_amx-inl.h"
#include "octavo/kernels/fp8/fp8_epilogue-inl.h"
#include "octavo/kernels/fp8/fp8_layout.h"
#include "octavo/kernels/simd/fp8-inl.h"

#if HWY_TARGET <= HWY_AVX2
HWY_BEFORE_NAMESPACE();
namespace octavo::kernels {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
using internal::Fp8Layout;
constexpr int kLanes = static_cast<int>(hn::MaxLanes(Fp8D()));
using Codes = hn::ScalableTag<uint16_t>;
constexpr int kLoads = 32 / static_cast<int>(hn::MaxLanes(Codes()));  // vectors of codes in the 64 of one k

HWY_INLINE void Pin(Fp8V& v) { asm("" : "+v"(v.raw)); }

// Two vectors of weights: the lower or the upper bytes of 16-bit lanes.
template <bool kE4M3, bool kUpper>
HWY_INLINE void Weights(hn::Vec<Codes> codes, Fp8V* out) {
  const hn::Half<Codes> half;
  const auto values = Fp8ToHalf<kE4M3>(kUpper ? codes : hn::ShiftLeft<8>(codes));
  out[0] = HalfToFloat(Fp8D(), hn::LowerHalf(half, values));
  out[1] = HalfToFloat(Fp8D(), hn::UpperHalf(half, values));
}

// acc[kRows][64], the columns of vector `load` of the codes, all of k. kHalves 2: lower and upper bytes, 1: as `kUpper`.
template <bool kE4M3, int kRows, int kHalves, bool kUpper>
HWY_NOINLINE void SmallTile(const uint8_t* HWY_RESTRICT w, int64_t k, int load, const float* HWY_RESTRICT x,
                            int64_t stride, float* HWY_RESTRICT acc) {
  constexpr int kV = 2 * kHalves;
  const Fp8D d;
  const Codes d16;
  const uint8_t* from = w + load * (64 / kLoads);
  Fp8V sum[kRows][kV];
  HWY_UNROLL(8)
  for (int r = 0; r < kRows; ++r) {
    HWY_UNROLL(8)
    for (int v = 0; v < kV; ++v) sum[r][v] = hn::Zero(d);
  }
  for (int64_t i = 0; i < k; ++i) {
    const auto codes = hn::Load(d16, reinterpret_cast<const uint16_t*>(from + i * 64));
    Fp8V b[kV];
    Weights<kE4M3, kHalves == 1 && kUpper>(codes, b);
    if constexpr (kHalves == 2) Weights<kE4M3, true>(codes, b + 2);
    HWY_UNROLL(8)
    for (int r = 0; r < kRows; ++r) {
      const Fp8V a = hn::Set(d, x[r * stride + i]);
      HWY_UNROLL(8)
      for (int v = 0; v < kV; ++v) {
        sum[r][v] = hn::MulAdd(b[v], a, sum[r][v]);
        Pin(sum[r][v]);
      }
    }
  }
  HWY_UNROLL(8)
  for (int r = 0; r < kRows; ++r) {
    HWY_UNROLL(8)
    for (int v = 0; v < kV; ++v) {
      const int half = kHalves == 2 ? v / 2 : kUpper;
      hn::Store(sum[r][v], d, acc + r * 64 + half * 32 + load * (32 / kLoads) + v % 2 * kLanes);
    }
  }
}

// As many sums as registers allow: 24 zmm or 8 ymm.
template <bool kE4M3, int kRows>
void SmallRows(const uint8_t* w, int64_t k, const float* x, int64_t stride, float* acc) {
  if constexpr (kLoads == 1 && kRows <= 6) {
    SmallTile<kE4M3, kRows, 2, false>(w, k, 0, x, stride, acc);
  } else if constexpr (kLoads == 2 && kRows > 4) {
    SmallRows<kE4M3, 4>(w, k, x, stride, acc);
    SmallRows<kE4M3, kRows - 4>(w, k, x + 4 * stride, stride, acc + 4 * 64);
  } else {
    for (int load = 0; load < kLoads; ++load) {
      SmallTile<kE4M3, kRows, 1, false>(w, k, load, x, stride, acc);
      SmallTile<kE4M3, kRows, 1, true>(w, k, load, x, stride, acc);
    }
  }
}

template <bool kE4M3>
void Small(const uint8_t* w, int64_t k, const float* x, int64_t stride, int64_t rows, float* acc) {
  using Fn = void(const uint8_t*, int64_t, const float*, int64_t, float*);
  constexpr Fn* kFns[] = {SmallRows<kE4M3, 1>, SmallRows<kE4M3, 2>, SmallRows<kE4M3, 3>, SmallRows<kE4M3, 4>,
                          SmallRows<kE4M3, 5>, SmallRows<kE4M3, 6>, SmallRows<kE4M3, 7>, SmallRows<kE4M3, 8>};
  kFns[rows - 1](w, k, x, stride, acc);
}

// [length][64] floats.
template <bool kE4M3>
HWY_NOINLINE void DecodeChunk(const uint8_t* HWY_RESTRICT w, int64_t length, float* HWY_RESTRICT out) {
  const Fp8D d;
  const Codes d16;
  for (int64_t i = 0; i < length; ++i, w += 64, out += 64) {
    for (int load = 0; load < kLoads; ++load) {
      const auto codes = hn::Load(d16, reinterpret_cast<const uint16_t*>(w + load * (64 / kLoads)));
      Fp8V b[4];
      Weights<kE4M3, false>(codes, b);
      Weights<kE4M3, true>(codes, b + 2);
      float* to = out + load * (32 / kLoads);
      hn::Store(b[0], d, to);
      hn::Store(b[1], d, to + kLanes);
      hn::Store(b[2], d, to + 32);
      hn::Store(b[3], d, to + 32 + kLanes);
    }
  }
}

// Adds a chunk to acc [kRows][64], kV vectors of columns of it; w: [length][64] decoded. first: acc begins with 0.
template <int kRows, int kV>
HWY_NOINLINE void FloatTile(const float* HWY_RESTRICT x, int64_t stride, const float* HWY_RESTRICT w, int64_t length,
                            bool first, float* HWY_RESTRICT acc) {
  const Fp8D d;
  Fp8V sum[kRows][kV];
  HWY_UNROLL(8)
  for (int r = 0; r < kRows; ++r) {
    HWY_UNROLL(8)
    for (int v = 0; v < kV; ++v) sum[r][v] = first ? hn::Zero(d) : hn::Load(d, acc + r * 64 + v * kLanes);
  }
  for (int64_t i = 0; i < length; ++i) {
    Fp8V b[kV];
    HWY_UNROLL(8)
    for (int v = 0; v < kV; ++v) b[v] = hn::Load(d, w + i * 64 + v * kLanes);
    HWY_UNROLL(8)
    for (int r = 0; r < kRows; ++r) {
      const Fp8V a = hn::Set(d, x[r * stride + i]);
      HWY_UNROLL(8)
      for (int v = 0; v < kV; ++v) {
        sum[r][v] = hn::MulAdd(b[v], a, sum[r][v]);
        Pin(sum[r][v]);
      }
    }
  }
  HWY_UNROLL(8)
  for (int r = 0; r < kRows; ++r) {
    HWY_UNROLL(8)
    for (int v = 0; v < kV; ++v) hn::Store(sum[r][v], d, acc + r * 64 + v * kLanes);
  }
}

constexpr int kTileVectors = HWY_TARGET == HWY_AVX2 ? 2 : 4;

// 1 to 6 rows x 64 columns.
void FloatRows(const float* x, int64_t stride, int64_t rows, const float* w, int64_t length, bool first, float* acc) {
  using Fn = void(const float*, int64_t, const float*, int64_t, bool, float*);
  constexpr Fn* kFns[] = {FloatTile<1, kTileVectors>, FloatTile<2, kTileVectors>, FloatTile<3, kTileVectors>,
                          FloatTile<4, kTileVectors>, FloatTile<5, kTileVectors>, FloatTile<6, kTileVectors>};
  for (int c = 0; c < 64; c += kTileVectors * kLanes) kFns[rows - 1](x, stride, w + c, length, first, acc + c);
}

// Never one or two rows at the end, whose few chains cannot hide the latency of an FMA, if it can be helped.
HWY_INLINE int64_t RowsOfTile(int64_t left) { return left > 9 ? 6 : left > 6 ? (left + 1) / 2 : left; }

// Rows of x as floats, times what the weights' decoding leaves out.
void DecodeRows(const Fp8Args& args, int64_t first, int64_t rows, int64_t k, float unit, const Fp8Layout& l,
                float* out) {
  const auto* x = static_cast<const uint8_t*>(args.x.data) + first * args.x.stride;
  for (int64_t r = 0; r < rows; ++r, x += args.x.stride, out += l.x_stride) {
    if (args.x.dtype == quant::DType::kE4M3FN) {
      DecodeFp8<true>(x, static_cast<size_t>(k), unit, out);
    } else {
      DecodeFp8<false>(x, static_cast<size_t>(k), unit, out);
    }
  }
}

// 64 columns of one output for the decoded rows, which are rows first.. of y.
template <bool kE4M3>
void RunBlock(const Fp8Args& args, const Fp8Output& out, int64_t block, int64_t first, int64_t rows, bool small,
              const Fp8Layout& l, float* scratch) {
  const float* x = scratch;
  float* acc = scratch + l.acc_at;
  float* decoded = scratch + l.decoded_at;
  const uint8_t* w = out.w->Block(block);
  const int64_t k = out.w->k();
  const Fp8Epilogue epilogue(args.x.scale, out, block);
  if (small) {
    Small<kE4M3>(w, k, x, l.x_stride, rows, acc);
    epilogue.Run(acc, first, rows);
    return;
  }
  for (int64_t at = 0; at < k; at += internal::kFp8Chunk) {
    const int64_t length = std::min(k - at, internal::kFp8Chunk);
    DecodeChunk<kE4M3>(w + at * 64, length, decoded);
    for (int64_t r = 0; r < rows;) {
      const int64_t count = RowsOfTile(rows - r);
      FloatRows(x + r * l.x_stride + at, l.x_stride, count, decoded, length, at == 0, acc + r * 64);
      if (at + length == k) epilogue.Run(acc + r * 64, first + r, count);
      r += count;
    }
  }
}

void Run(const Fp8Args& args, Range rows, Range blocks, void* memory) {
  if (args.count == 0) return;
  const int64_t k = args.out[0].w->k();
  const Fp8Layout l = internal::MakeFp8Layout(k);
  auto* scratch = static_cast<float*>(memory);
  const bool small = rows.end - rows.begin <= internal::kFp8SmallRows;
  float unit = 0.0f;  // of the rows as they are decoded; 0: not yet
  for (int64_t first = rows.begin; first < rows.end; first += l.rows) {
    const int64_t count = std::min(rows.end - first, l.rows);
    int64_t begin = 0;  // block at which output i begins
    unit = 0.0f;
    for (int i = 0; i < args.count; ++i) {
      const Fp8Output& out = args.out[i];
      const int64_t own = ColumnBlocks(out.w->n());
      const Range part{std::max<int64_t>(blocks.begin - begin, 0), std::min(blocks.end - begin, own)};
      begin += own;
      if (part.begin >= part.end) continue;
      const bool e4m3 = out.w->dtype() == quant::DType::kE4M3FN;
      if (const float wanted = e4m3 ? 256.0f : 1.0f; wanted != unit) {
        unit = wanted;
        DecodeRows(args, first, count, k, unit, l, scratch);
      }
      for (int64_t b = part.begin; b < part.end; ++b) {
        (e4m3 ? RunBlock<true> : RunBlock<false>)(args, out, b, first, count, small, l, scratch);
      }
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace octavo::kernels
HWY_AFTER_NAMESPACE();
#endif  // HWY_TARGET <= HWY_AVX2

#if HWY_ONCE
#include "octavo/kernels/simd/dispatch.h"

namespace octavo::kernels {
namespace {

void Reference(const Fp8Args& args, Range rows, Range blocks, void*) { LinearFp8Reference(args, rows, blocks); }

void Tiles(const Fp8Args& args, Range rows, Range blocks, void* scratch) {
  N_AVX3_DL::RunFp8Tiles(args, rows, blocks, scratch);
}

constexpr PerArch<decltype(Reference)> kRun = {&Reference,      &N_AVX2::Run, &N_AVX3::Run,
                                               &N_AVX3_DL::Run, nullptr,      &Tiles};

}  // namespace

size_t Fp8ScratchBytes(Arch arch, int64_t k) {
  if (arch == Arch::kScalar) return 0;
  if (arch == Arch::kAmx) return static_cast<size_t>(internal::MakeFp8TileLayout(k).bytes);
  return static_cast<size_t>(internal::MakeFp8Layout(k).floats) * sizeof(float);
}

void LinearFp8(Arch arch, const Fp8Args& args, Range rows, Range blocks, void* scratch) {
  if (rows.begin < rows.end) kRun[arch](args, rows, blocks, scratch);
}

}  // namespace octavo::kernels
#endif  // HWY_ONCE
