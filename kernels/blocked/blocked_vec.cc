// The tiles of GemmBlocked, compiled once per target. Sums of a block live in registers, into which assembly adds
// them; the sums over blocks live in L1, for they are touched once a block.
#include <algorithm>
#include <cstring>

#include "octavo/kernels/blocked/blocked.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "octavo/kernels/blocked/blocked_vec.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
// After foreach_target.h:
#include "octavo/kernels/blocked/store-inl.h"
#include "octavo/kernels/tile/decoded-inl.h"
#include "octavo/kernels/tile/rows-inl.h"

#if HWY_TARGET <= HWY_AVX2
HWY_BEFORE_NAMESPACE();
namespace octavo::kernels {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
using D = hn::ScalableTag<float>;
using V = hn::Vec<D>;
using DI = hn::RebindToSigned<D>;
constexpr int kLanes = static_cast<int>(hn::MaxLanes(D()));

// sum = fma(w, a, sum) in the register of the sum. Around the intrinsic GCC 14.2 copies, pinned or not, or spills; fp8's tiles, which it
// serves well, have a fifth fewer instructions with it.
struct FmaEngine {
  static HWY_INLINE void Dot(V& sum, V a, V w) {
    asm("vfmadd231ps %2, %1, %0" : "+v"(sum.raw) : "v"(w.raw), "v"(a.raw));
  }
};

// q - z of one k for a vector of columns. The float whose bits are 0x4B000000 + q is 2^23 + q, and taking 2^23 + z off is
// exact; where the target looks up 16 floats in one instruction, 4-bit codes go that way.
template <int kBits, bool kZeros>
struct Decoder {
  static constexpr bool kTable = kBits == 4 && HWY_TARGET <= HWY_AVX3;
  static constexpr int kSteps = 32 / kBits;  // k in one lane
  V offset;

  HWY_INLINE void Begin(const uint8_t* zeros) {
    const D d;
    if constexpr (kZeros) {
      const hn::Rebind<uint8_t, D> d8;
      const V z = hn::ConvertTo(d, hn::PromoteTo(DI(), hn::LoadU(d8, zeros)));
      offset = hn::Add(z, hn::Set(d, kTable ? -8.0f : 8388608.0f));
    } else {
      offset = hn::Set(d, kBits == 4 ? 8388616.0f : 8388736.0f);
    }
  }
  template <int kStep>
  HWY_INLINE V At(hn::Vec<DI> codes) const {
    const D d;
    const DI di;
    const auto shifted = kStep == 0 ? codes : hn::ShiftRight<kStep * kBits>(codes);
#if HWY_TARGET <= HWY_AVX3
    if constexpr (kTable) {
      alignas(64) static constexpr float kValues[16] = {-8, -7, -6, -5, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 6, 7};
      // The lookup reads the low four bits of a lane, whatever stands above them.
      const V w = hn::TableLookupLanes(hn::Load(d, kValues), hn::Indices512<float>{shifted.raw});
      return kZeros ? hn::Sub(w, offset) : w;
    }
#endif
    const auto magic = hn::OrAnd(hn::Set(di, 0x4B000000), shifted, hn::Set(di, (1 << kBits) - 1));
    return hn::Sub(hn::BitCast(d, magic), offset);
  }
};

template <class Dec, int kRows, int kV, int kStep>
HWY_INLINE void Step(const Dec (&decoders)[kV], const hn::Vec<DI> (&codes)[kV], const float* x, int64_t stride,
                     V (&sum)[kRows][kV]) {
  const D d;
  V w[kV];
  HWY_UNROLL(8)
  for (int v = 0; v < kV; ++v) w[v] = decoders[v].template At<kStep>(codes[v]);
  HWY_UNROLL(8)
  for (int r = 0; r < kRows; ++r) {
    const V a = hn::Set(d, x[r * stride + kStep]);
    HWY_UNROLL(8)
    for (int v = 0; v < kV; ++v) FmaEngine::Dot(sum[r][v], a, w[v]);
  }
}

// The first `count` k of one 32-bit lane, at most kSteps.
template <class Dec, int kRows, int kV, int kStep = 0>
HWY_INLINE void Steps(const Dec (&decoders)[kV], const hn::Vec<DI> (&codes)[kV], const float* x, int64_t stride,
                      int count, V (&sum)[kRows][kV]) {
  if constexpr (kStep < Dec::kSteps) {
    if (kStep >= count) return;
    Step<Dec, kRows, kV, kStep>(decoders, codes, x, stride, sum);
    Steps<Dec, kRows, kV, kStep + 1>(decoders, codes, x, stride, count, sum);
  }
}

// kV vectors of columns from `column` (of 64) on, all of k. acc: [kRows][64].
template <int kBits, bool kZeros, int kRows, int kV>
HWY_NOINLINE void SmallTile(const PackedBlocked& w, int64_t first_panel, int column, const float* HWY_RESTRICT x,
                            int64_t stride, float* HWY_RESTRICT acc) {
  const D d;
  const DI di;
  using Dec = Decoder<kBits, kZeros>;
  const uint8_t* record[kV];
  const uint8_t* zeros[kV];
  for (int v = 0; v < kV; ++v) {
    const int at = column + v * kLanes;
    const int64_t panel = std::min(first_panel + at / 16, w.panels() - 1);  // one that does not exist is not stored
    record[v] = w.Panel(panel) + at % 16 * 4;
    zeros[v] = kZeros ? w.Zeros(panel) + at % 16 : nullptr;
  }
  const auto at = [&](int r, int v) HWY_ATTR { return acc + r * 64 + column + v * kLanes; };
  for (int r = 0; r < kRows; ++r) {
    for (int v = 0; v < kV; ++v) hn::Store(hn::Zero(d), d, at(r, v));
  }
  const int64_t k = w.k(), block = w.block(), record_bytes = w.record_bytes();
  for (int64_t begin = 0; begin < k; begin += block) {
    const int64_t length = std::min(block, k - begin);
    Dec decoders[kV];
    V sum[kRows][kV];
    HWY_UNROLL(8)
    for (int v = 0; v < kV; ++v) decoders[v].Begin(zeros[v]);
    HWY_UNROLL(8)
    for (int r = 0; r < kRows; ++r) {
      HWY_UNROLL(8)
      for (int v = 0; v < kV; ++v) sum[r][v] = hn::Zero(d);
    }
    hn::Vec<DI> codes[kV];
    const auto load = [&](int64_t i) HWY_ATTR {
      HWY_UNROLL(8)
      for (int v = 0; v < kV; ++v) {
        codes[v] = hn::LoadU(di, reinterpret_cast<const int32_t*>(record[v] + 64 + i / Dec::kSteps * 64));
      }
    };
    int64_t i = 0;
    for (; i + Dec::kSteps <= length; i += Dec::kSteps) {
      load(i);
      Steps<Dec, kRows, kV>(decoders, codes, x + begin + i, stride, Dec::kSteps, sum);
    }
    if (i < length) {  // not inside the loop, where GCC 14.2 takes registers for it: sums went to the stack
      load(i);
      Steps<Dec, kRows, kV>(decoders, codes, x + begin + i, stride, static_cast<int>(length - i), sum);
    }
    HWY_UNROLL(8)
    for (int v = 0; v < kV; ++v) {
      const V scale = hn::LoadU(d, reinterpret_cast<const float*>(record[v]));
      HWY_UNROLL(8)
      for (int r = 0; r < kRows; ++r) hn::Store(hn::MulAdd(sum[r][v], scale, hn::Load(d, at(r, v))), d, at(r, v));
      record[v] += record_bytes;
      if constexpr (kZeros) zeros[v] += 16;
    }
  }
}

// Vectors at a time, so that sums, codes and a row fit into the registers (16 ymm or 32 zmm).
constexpr int SmallVectors(int rows) {
  if (HWY_TARGET == HWY_AVX2) return rows == 1 ? 4 : rows <= 3 ? 2 : 1;
  return rows <= 4 ? 4 : 2;
}

template <int kBits, bool kZeros, int kRows>
void SmallRows(const PackedBlocked& w, int64_t panel, int columns, const float* x, int64_t stride, float* acc) {
  constexpr int kV = SmallVectors(kRows);
  for (int c = 0; c < columns; c += kV * kLanes) SmallTile<kBits, kZeros, kRows, kV>(w, panel, c, x, stride, acc);
}

template <int kBits, bool kZeros>
void Small(const PackedBlocked& w, int64_t panel, int columns, const float* x, int64_t stride, int64_t rows,
           float* acc) {
  WithRows<blocked_sizes::kSmallRows>(
      rows, [&]<int kRows>() { SmallRows<kBits, kZeros, kRows>(w, panel, columns, x, stride, acc); });
}

// [steps][64] of q - z for blocks [first, first + count), rounded up to whole lanes of k.
template <int kBits, bool kZeros>
HWY_NOINLINE void DecodeChunk(const PackedBlocked& w, int64_t first_panel, int64_t first, int64_t count, float* out) {
  const D d;
  const DI di;
  using Dec = Decoder<kBits, kZeros>;
  for (int column = 0; column < 64; column += kLanes) {
    const int64_t panel = std::min(first_panel + column / 16, w.panels() - 1);
    for (int64_t b = first; b < first + count; ++b) {
      Dec decoder;
      decoder.Begin(kZeros ? w.Zeros(panel) + b * 16 + column % 16 : nullptr);
      const uint8_t* codes = w.Panel(panel) + b * w.record_bytes() + 64 + column % 16 * 4;
      float* to = out + (b - first) * w.block() * 64 + column;
      for (int64_t i = 0; i < w.block(); i += Dec::kSteps, codes += 64) {
        const auto c = hn::LoadU(di, reinterpret_cast<const int32_t*>(codes));
        hn::Store(decoder.template At<0>(c), d, to + i * 64);
        hn::Store(decoder.template At<1>(c), d, to + i * 64 + 64);
        hn::Store(decoder.template At<2>(c), d, to + i * 64 + 128);
        hn::Store(decoder.template At<3>(c), d, to + i * 64 + 192);
        if constexpr (kBits == 4) {
          hn::Store(decoder.template At<4>(c), d, to + i * 64 + 256);
          hn::Store(decoder.template At<5>(c), d, to + i * 64 + 320);
          hn::Store(decoder.template At<6>(c), d, to + i * 64 + 384);
          hn::Store(decoder.template At<7>(c), d, to + i * 64 + 448);
        }
      }
    }
  }
}

// The sums of a block, times its scale, are added to acc [rows][64].
struct BlockSums {
  const float* const* scale;  // of each vector of columns
  float* acc;

  BlockSums From(int column) const { return {scale + column / kLanes, acc + column}; }
  HWY_INLINE V First(int, int) const { return hn::Zero(D()); }
  HWY_INLINE void Last(int r, int v, V sum) const {
    float* at = acc + r * 64 + v * kLanes;
    hn::Store(hn::MulAdd(sum, hn::LoadU(D(), scale[v]), hn::Load(D(), at)), D(), at);
  }
};

// Many rows: 64 columns of a few blocks are decoded and multiplied by all rows while they are in L1.
template <int kBits, bool kZeros>
void Large(const PackedBlocked& w, int64_t first_panel, const float* x, int64_t stride, int64_t rows, float* decoded,
           float* acc) {
  std::memset(acc, 0, static_cast<size_t>(rows) * 64 * sizeof(float));
  const int64_t at_once = blocked_sizes::ChunkBlocks(w.block());
  for (int64_t first = 0; first < w.blocks(); first += at_once) {
    const int64_t count = std::min(at_once, w.blocks() - first);
    DecodeChunk<kBits, kZeros>(w, first_panel, first, count, decoded);
    for (int64_t b = first; b < first + count; ++b) {
      const float* scale[64 / kLanes];
      for (int v = 0; v < 64 / kLanes; ++v) {
        const int64_t panel = std::min<int64_t>(first_panel + v * kLanes / 16, w.panels() - 1);
        scale[v] = reinterpret_cast<const float*>(w.Panel(panel) + b * w.record_bytes()) + v * kLanes % 16;
      }
      const int64_t length = std::min(w.block(), w.k() - b * w.block());
      const float* weights = decoded + (b - first) * w.block() * 64;
      for (int64_t r = 0; r < rows; r += kDecodedRows) {
        DecodedRows<FmaEngine>(x + r * stride + b * w.block(), stride, std::min<int64_t>(kDecodedRows, rows - r),
                               weights, length, BlockSums{scale, acc + r * 64});
      }
    }
  }
}

template <int kBits, bool kZeros>
void RunBlocked(const BlockedArgs& args, Range rows, Range blocks, void* scratch) {
  const PackedBlocked& w = *args.w;
  auto* acc = static_cast<float*>(scratch);
  float* decoded = acc + blocked_sizes::kRowsAtOnce * 64;
  const bool small = rows.end - rows.begin <= blocked_sizes::kSmallRows;
  for (int64_t first = rows.begin; first < rows.end; first += blocked_sizes::kRowsAtOnce) {
    const int64_t count = std::min(rows.end - first, blocked_sizes::kRowsAtOnce);
    const float* x = args.x + first * args.x_stride;
    for (int64_t b = blocks.begin; b < blocks.end; ++b) {
      const auto columns = static_cast<int>(std::min<int64_t>(w.n() - b * kColumnBlock, kColumnBlock));
      if (small) {
        Small<kBits, kZeros>(w, b * 4, columns, x, args.x_stride, count, acc);
      } else {
        Large<kBits, kZeros>(w, b * 4, x, args.x_stride, count, decoded, acc);
      }
      StoreRows(args, acc, first, count, b * kColumnBlock, columns);
    }
  }
}

void RunAny(const BlockedArgs& args, Range rows, Range blocks, void* scratch) {
  const bool zeros = args.w->Zeros(0) != nullptr;
  if (args.w->bits() == 4) return (zeros ? RunBlocked<4, true> : RunBlocked<4, false>)(args, rows, blocks, scratch);
  return (zeros ? RunBlocked<8, true> : RunBlocked<8, false>)(args, rows, blocks, scratch);
}

}  // namespace HWY_NAMESPACE
}  // namespace octavo::kernels
HWY_AFTER_NAMESPACE();
#endif  // HWY_TARGET <= HWY_AVX2

#if HWY_ONCE
#include "octavo/kernels/forms.h"

namespace octavo::kernels {
namespace {

void Reference(const BlockedArgs& args, Range rows, Range blocks, void*) { GemmBlockedReference(args, rows, blocks); }

size_t NoScratch(const PackedBlocked&) { return 0; }
size_t DecodedScratch(const PackedBlocked& w) {
  const int64_t decoded = blocked_sizes::ChunkBlocks(w.block()) * w.block();
  return static_cast<size_t>(blocked_sizes::kRowsAtOnce + decoded) * 64 * sizeof(float);
}

struct Form {
  std::string_view name;
  Tile tile;
  decltype(&Reference) run;
  size_t (*scratch)(const PackedBlocked& w);
};
constexpr Tile Decoded(int64_t columns) {
  return {.rows = N_AVX2::kDecodedRows, .columns = columns, .depth = blocked_sizes::kChunk, .share = 48};
}
constexpr Forms<Form> kForms = {
    .scalar = {"scalar", Tile{}, &Reference, &NoScratch},
    .avx2 = {"avx2", Decoded(N_AVX2::kDecodedColumns), &N_AVX2::RunAny, &DecodedScratch},
    .avx512 = {"avx512", Decoded(N_AVX3::kDecodedColumns), &N_AVX3::RunAny, &DecodedScratch},
    .avx512vnni = {"avx512vnni", Decoded(N_AVX3_DL::kDecodedColumns), &N_AVX3_DL::RunAny, &DecodedScratch}};

}  // namespace

std::string_view internal::BlockedForm(Arch arch) { return kForms[arch].name; }

Tile BlockedTile(Arch arch) { return kForms[arch].tile; }

size_t BlockedScratchBytes(Arch arch, const PackedBlocked& w) { return kForms[arch].scratch(w); }

void GemmBlocked(Arch arch, const BlockedArgs& args, Range rows, Range blocks, void* scratch) {
  if (rows.begin < rows.end) kForms[arch].run(args, rows, blocks, scratch);
}

}  // namespace octavo::kernels
#endif  // HWY_ONCE
