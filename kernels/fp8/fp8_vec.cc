// The tiles of LinearFp8, compiled once per target. Few rows decode weights in registers, so that each is read once; more
// rows decode 64 columns of 128 k (32 KB) and reuse them. Sums stay in registers over such a chunk.
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
#include "octavo/kernels/fp8/fp8_pairs-inl.h"
#include "octavo/kernels/simd/fp8-inl.h"
#include "octavo/kernels/tile/decoded-inl.h"
#include "octavo/kernels/tile/rows-inl.h"

#if HWY_TARGET <= HWY_AVX2
HWY_BEFORE_NAMESPACE();
namespace octavo::kernels {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
using internal::Fp8Layout;
constexpr int kLanes = static_cast<int>(hn::MaxLanes(Fp8D()));
using Codes = hn::ScalableTag<uint16_t>;
constexpr int kLoads = 32 / static_cast<int>(hn::MaxLanes(Codes()));  // vectors of codes in the 64 of one k

// Pinned after every step, or GCC copies sums.
struct FmaEngine {
  static HWY_INLINE void Dot(Fp8V& acc, Fp8V a, Fp8V b) {
    acc = hn::MulAdd(b, a, acc);
    asm("" : "+v"(acc.raw));
  }
};

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
      for (int v = 0; v < kV; ++v) FmaEngine::Dot(sum[r][v], a, b[v]);
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
void SmallFloats(const uint8_t* w, int64_t k, const float* x, int64_t stride, int64_t rows, float* acc) {
  WithRows<internal::kFp8SmallRows>(rows, [&]<int kRows>() { SmallRows<kE4M3, kRows>(w, k, x, stride, acc); });
}

// [length][64] floats.
template <bool kE4M3>
HWY_NOINLINE void DecodeFloats(const uint8_t* HWY_RESTRICT w, int64_t length, float* HWY_RESTRICT out) {
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

// The sums of a chunk go on from those of the chunks before, acc [rows][64].
struct ChunkSums {
  float* acc;
  bool first;  // acc begins with 0

  ChunkSums From(int column) const { return {acc + column, first}; }
  HWY_INLINE DecodedV First(int r, int v) const {
    return first ? hn::Zero(DecodedD()) : hn::Load(DecodedD(), acc + r * 64 + v * kLanes);
  }
  HWY_INLINE void Last(int r, int v, DecodedV sum) const { hn::Store(sum, DecodedD(), acc + r * 64 + v * kLanes); }
};

// How LinearFp8 multiplies: in floats, or in pairs of bf16 (PairForm).
struct FloatForm {
  using Engine = FmaEngine;
  static constexpr int64_t kPerWord = 1;
  static constexpr int64_t kSmallRows = internal::kFp8SmallRows;
  // What the decoding of the weights leaves to the rows (fp8-inl.h).
  static float Unit(quant::DType type) { return type == quant::DType::kE4M3FN ? 256.0f : 1.0f; }

  static void DecodeRows(const GemmInput& x, int64_t first, int64_t rows, int64_t k, float unit, const Fp8Layout& l,
                         float* out) {
    const auto* codes = static_cast<const uint8_t*>(x.data) + first * x.stride;
    for (int64_t r = 0; r < rows; ++r, codes += x.stride, out += l.x_stride) {
      (x.dtype == quant::DType::kE4M3FN ? DecodeFp8<true> : DecodeFp8<false>)(codes, static_cast<size_t>(k), unit, out);
    }
  }
  static void Small(quant::DType type, const uint8_t* w, int64_t k, const float* x, int64_t stride, int64_t rows,
                    float* acc) {
    (type == quant::DType::kE4M3FN ? SmallFloats<true> : SmallFloats<false>)(w, k, x, stride, rows, acc);
  }
  static void DecodeChunk(quant::DType type, const uint8_t* w, int64_t length, float* out) {
    (type == quant::DType::kE4M3FN ? DecodeFloats<true> : DecodeFloats<false>)(w, length, out);
  }
};

// 64 columns of one output for the decoded rows, which are rows first.. of y.
template <class F>
void RunBlock(const Fp8Args& args, const Fp8Output& out, int64_t block, int64_t first, int64_t rows, bool small,
              const Fp8Layout& l, float* scratch) {
  const float* x = scratch;
  float* acc = scratch + l.acc_at;
  float* decoded = scratch + l.decoded_at;
  const uint8_t* w = out.w->Block(block);
  const int64_t k = out.w->k();
  const Fp8Epilogue epilogue(args.x.scale, out, block, {first, first + rows});
  if (small) {
    F::Small(out.w->dtype(), w, k, x, l.x_stride, rows, acc);
    epilogue.Run(acc, first, rows);
    return;
  }
  for (int64_t at = 0; at < k; at += internal::kFp8Chunk) {
    const int64_t length = std::min(k - at, internal::kFp8Chunk);
    const int64_t words = (length + F::kPerWord - 1) / F::kPerWord;
    F::DecodeChunk(out.w->dtype(), w + at * 64, length, decoded);
    for (int64_t r = 0; r < rows;) {
      const int64_t count = RowsOfTile(rows - r, kDecodedRows);
      DecodedRows<typename F::Engine>(x + r * l.x_stride + at / F::kPerWord, l.x_stride, count, decoded, words,
                                      ChunkSums{acc + r * 64, at == 0});
      if (at + length == k) epilogue.Run(acc + r * 64, first + r, count);
      r += count;
    }
  }
}

template <class F>
void Run(const Fp8Args& args, Range rows, Range blocks, void* memory) {
  if (args.count == 0) return;
  const int64_t k = args.out[0].w->k();
  const Fp8Layout l = internal::MakeFp8Layout(k, F::kPerWord);
  auto* scratch = static_cast<float*>(memory);
  const bool small = rows.end - rows.begin <= F::kSmallRows;
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
      if (const float wanted = F::Unit(out.w->dtype()); wanted != unit) {
        unit = wanted;
        F::DecodeRows(args.x, first, count, k, unit, l, scratch);
      }
      for (int64_t b = part.begin; b < part.end; ++b) RunBlock<F>(args, out, b, first, count, small, l, scratch);
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace octavo::kernels
HWY_AFTER_NAMESPACE();
#endif  // HWY_TARGET <= HWY_AVX2

#if HWY_ONCE
#include "octavo/kernels/forms.h"

namespace octavo::kernels {
namespace {

void Reference(const Fp8Args& args, Range rows, Range blocks, void*) { LinearFp8Reference(args, rows, blocks); }

void Tiles(const Fp8Args& args, Range rows, Range blocks, void* scratch) {
  N_AVX3_DL::RunFp8Tiles(args, rows, blocks, scratch);
}

size_t NoScratch(int64_t) { return 0; }
size_t FloatScratch(int64_t k) { return static_cast<size_t>(internal::MakeFp8Layout(k).floats) * sizeof(float); }
// Pairs need less for a row, but take more rows at once.
size_t PairScratch(int64_t k) { return static_cast<size_t>(internal::MakeFp8Layout(k, 2).floats) * sizeof(float); }
size_t TileScratch(int64_t k) { return static_cast<size_t>(internal::MakeFp8TileLayout(k).bytes); }

struct Form {
  std::string_view name;
  Tile tile;
  decltype(&Reference) run;
  size_t (*scratch)(int64_t k);
};
// Fewer rows than 96 do not pay for decoding the weights once more in each thread.
constexpr Tile Decoded(int64_t columns) {
  return {.rows = N_AVX2::kDecodedRows, .columns = columns, .depth = internal::kFp8Chunk, .share = 96};
}
constexpr Tile kAmxTile = {.rows = 32, .columns = 32, .share = 96};
constexpr Forms<Form> kForms = {
    .scalar = {"scalar", Tile{}, &Reference, &NoScratch},
    .avx2 = {"avx2", Decoded(N_AVX2::kDecodedColumns), &N_AVX2::Run<N_AVX2::FloatForm>, &FloatScratch},
    .avx512 = {"avx512", Decoded(N_AVX3::kDecodedColumns), &N_AVX3::Run<N_AVX3::FloatForm>, &FloatScratch},
    .avx512vnni = {"avx512vnni", Decoded(N_AVX3_DL::kDecodedColumns), &N_AVX3_DL::Run<N_AVX3_DL::FloatForm>,
                   &FloatScratch},
    .amx = Form{"amx", kAmxTile, &Tiles, &TileScratch}};
constexpr Form kPairs = {"avx512bf16", Decoded(N_AVX3_DL::kDecodedColumns), &N_AVX3_DL::Run<N_AVX3_DL::PairForm>,
                         &PairScratch};

const Form& FormOf(Arch arch, bool bf16_pairs) { return Fp8InPairs(arch, bf16_pairs) ? kPairs : kForms[arch]; }

}  // namespace

std::string_view internal::LinearFp8Form(Arch arch, bool bf16_pairs) { return FormOf(arch, bf16_pairs).name; }

Tile Fp8Tile(Arch arch, bool bf16_pairs) { return FormOf(arch, bf16_pairs).tile; }

// Enough for whichever form an Arch then runs.
size_t Fp8ScratchBytes(Arch arch, int64_t k) {
  return std::max(FormOf(arch, false).scratch(k), FormOf(arch, true).scratch(k));
}

void LinearFp8(Arch arch, const Fp8Args& args, Range rows, Range blocks, void* scratch) {
  if (rows.begin < rows.end) FormOf(arch, args.bf16_pairs).run(args, rows, blocks, scratch);
}

}  // namespace octavo::kernels
#endif  // HWY_ONCE
