// Flash attention in float: tiles of keys outside, blocks of rows inside, so that a tile is packed once a call. One row alone
// (decoding) waits for memory: it packs K by 64 keys, which stay in L1, and reads V where it lies.
#include <algorithm>
#include <cstring>
#include <limits>

#include "octavo/kernels/sdpa/sdpa_layout.h"
#include "octavo/kernels/sdpa/sdpa_ref.h"
#include "octavo/quant/numeric/math.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "octavo/kernels/sdpa/sdpa_flash_vec.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
#include "octavo/kernels/sdpa/sdpa_blocks-inl.h"
#include "octavo/kernels/sdpa/sdpa_softmax-inl.h"

#if HWY_TARGET <= HWY_AVX2
HWY_BEFORE_NAMESPACE();
namespace octavo::kernels {
namespace HWY_NAMESPACE {

// o[c] = o[c] * change + sums[c].
HWY_INLINE void Accumulate(const float* sums, float change, size_t width, float* o) {
  const F16 factor = Set16(change);
  for (size_t c = 0; c < width; c += 16) {
    const size_t n = HWY_MIN(width - c, size_t{16});
    StoreN16(Add16(Mul16(LoadN16(o + c, n), factor), Load16(sums + c)), o + c, n);
  }
}

HWY_INLINE TileArgs<float> ScoreArgs(const Block<SdpaFloatArgs>& block, const ScoreRows& rows) {
  const SdpaFloatArgs& tile = block.args;
  const internal::SdpaLayout& l = block.layout;
  const float* q = tile.q + OffsetOf(tile.q_strides, block.batch, block.head, block.row);
  return {reinterpret_cast<const uint8_t*>(q),
          static_cast<size_t>(tile.q_strides.row) * 4,
          l.d_steps,
          l.d_steps * 64,
          reinterpret_cast<float*>(rows.base),
          l.score_stride / 4,
          nullptr};
}

// The products of one row; `pack` holds 64 keys.
inline void RowScores(const Block<SdpaFloatArgs>& block, const ScoreRows& rows, const HeadRows<float>& k,
                      uint8_t* pack) {
  const internal::SdpaLayout& l = block.layout;
  TileArgs<float> args = ScoreArgs(block, rows);
  for (size_t at = 0; at < l.k16; at += 64) {
    const HeadRows<float> part = {k.data + static_cast<int64_t>(at) * k.stride, k.stride, k.count - at, k.width};
    const size_t columns = HWY_MIN(l.k16 - at, size_t{64});
    PackRowsAsColumns(
        columns, l.d_steps, [&](size_t row, size_t step) HWY_ATTR { return LoadFloats(part, row, step); }, pack);
    TileRows<FloatEngine, 1>(args, pack, nullptr, columns / 16);
    args.out += 64;
  }
}

// sums = e . V of one row.
inline void RowValues(const float* e, const HeadRows<float>& v, float* sums) {
  size_t c = 0;
  for (; c + 64 <= v.width; c += 64) {
    F16 s0 = Set16(0.0f), s1 = s0, s2 = s0, s3 = s0;
    const float* row = v.data + c;
    for (size_t j = 0; j < v.count; ++j, row += v.stride) {
      const F16 x = Set16(e[j]);
      s0 = MulAdd16(x, Load16(row), s0);
      s1 = MulAdd16(x, Load16(row + 16), s1);
      s2 = MulAdd16(x, Load16(row + 32), s2);
      s3 = MulAdd16(x, Load16(row + 48), s3);
    }
    Store16(s0, sums + c), Store16(s1, sums + c + 16), Store16(s2, sums + c + 32), Store16(s3, sums + c + 48);
  }
  for (; c < v.width; c += 16) {
    F16 s = Set16(0.0f);
    const float* row = v.data + c;
    for (size_t j = 0; j < v.count; ++j, row += v.stride) {
      s = MulAdd16(Set16(e[j]), LoadN16(row, HWY_MIN(v.width - c, size_t{16})), s);
    }
    Store16(s, sums + c);
  }
}

// kAlone: K and V are not packed before; `pack` holds 64 keys.
template <size_t kR, bool kAlone>
void FlashBlock(const Block<SdpaFloatArgs>& block, int64_t kv_head, uint8_t* pack, float* max, float* sum) {
  const SdpaFloatArgs& tile = block.args;
  const internal::SdpaLayout& l = block.layout;
  const auto keys = static_cast<size_t>(tile.shape.k_len);
  const ScoreRows rows = {block.scratch + l.scores_at, l.score_stride, keys};
  if constexpr (kAlone) {
    RowScores(block, rows,
              RowsOf<float>(tile.k, tile.k_strides, block.batch, kv_head, tile.shape.k_len, tile.shape.head_size),
              pack);
  } else {
    TileRows<FloatEngine, kR>(ScoreArgs(block, rows), block.packed, nullptr, l.k16 / 16);
  }
  const SdpaVisibility& see = tile.visibility;
  RowSlots<float> now, tile_sum;
  float from[kR], change[kR];
  if (internal::HasWindow(see.window) || see.keep.data != nullptr) {
    VisibleScores<kR, false>(block, rows, 1.0f, Span{0, keys, l.k16, true}, now);
  } else {
    MaskedScores<kR, false>(block, rows, 0, keys, 1.0f, now);
  }
  for (size_t r = 0; r < kR; ++r) {
    now[r] = now[r] > max[r] ? now[r] : max[r];
    from[r] = now[r] == -std::numeric_limits<float>::infinity() ? 0.0f : now[r];
    change[r] = quant::Exp(max[r] - from[r]);
    max[r] = now[r];
  }
  ExpPass<kR>(rows, from, tile_sum);
  auto* sums = reinterpret_cast<float*>(block.scratch + l.out_at);
  if constexpr (kAlone) {
    RowValues(rows.Row(0),
              RowsOf<float>(tile.v, tile.v_strides, block.batch, kv_head, tile.shape.k_len, tile.shape.v_head_size),
              sums);
  } else {
    const TileArgs<float> values = {rows.base, l.score_stride, l.k_steps, l.k_steps * 64, sums, l.v16, nullptr};
    TileRows<FloatEngine, kR>(values, block.packed + l.v_at, nullptr, l.v16 / 16);
  }
  for (size_t r = 0; r < kR; ++r) {
    sum[r] = sum[r] * change[r] + tile_sum[r];
    float* o = tile.o + OffsetOf(tile.o_strides, block.batch, block.head, block.row + static_cast<int64_t>(r));
    Accumulate(sums + r * l.v16, change[r], static_cast<size_t>(tile.shape.v_head_size), o);
  }
}

void FlashRows(const SdpaFloatArgs& args, int64_t batch, int64_t head, int64_t begin, int64_t end, void* scratch) {
  const SdpaShape& s = args.shape;
  const int64_t kv_head = head / (s.heads / s.kv_heads), rows = end - begin;
  const internal::SdpaLayout whole = internal::MakeSdpaLayout(internal::TileOf(args, 0, kSdpaFlashKeys).shape, 1);
  auto* packed = static_cast<uint8_t*>(scratch);
  uint8_t* work = packed + internal::RoundUp(whole.packed_bytes, 64);
  auto* max = reinterpret_cast<float*>(work + internal::RoundUp(whole.scratch_bytes, 64));
  float* sum = max + rows;
  const auto width = static_cast<size_t>(s.v_head_size);
  for (int64_t i = 0; i < rows; ++i) {
    max[i] = -std::numeric_limits<float>::infinity(), sum[i] = 0.0f;
    std::memset(args.o + OffsetOf(args.o_strides, batch, head, begin + i), 0, width * sizeof(float));
  }
  for (int64_t first = 0; first < s.k_len; first += kSdpaFlashKeys) {
    const SdpaFloatArgs tile = internal::TileOf(args, first, std::min(kSdpaFlashKeys, s.k_len - first));
    if (internal::IsIdle(tile, begin, rows)) continue;
    const internal::SdpaLayout l = internal::MakeSdpaLayout(tile.shape, 1);
    if (rows == 1) {
      FlashBlock<1, true>({tile, l, packed, work, batch, head, begin}, kv_head, packed, max, sum);
      continue;
    }
    PackFloat(tile, batch, kv_head, packed);
    ForBlocks(begin, end, [&](auto count, int64_t row) HWY_ATTR {
      constexpr size_t kR = decltype(count)::value;
      if (internal::IsIdle(tile, row, kR)) return;
      FlashBlock<kR, false>({tile, l, packed, work, batch, head, row}, kv_head, packed, max + (row - begin),
                            sum + (row - begin));
    });
  }
  for (int64_t i = 0; i < rows; ++i) {
    float* o = args.o + OffsetOf(args.o_strides, batch, head, begin + i);
    const bool meaning = internal::HasMeaning(args.guard, sum[i]);
    for (size_t c = 0; c < width; ++c) o[c] = meaning ? o[c] / sum[i] + 0.0f : 0.0f;
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

void FlashReference(const SdpaFloatArgs& args, int64_t batch, int64_t head, int64_t begin, int64_t end, void* scratch) {
  internal::SdpaFlashReference(args, batch, head, begin, end, static_cast<float*>(scratch));
}

size_t ReferenceBytes(const SdpaFloatArgs& args, int64_t) {
  return static_cast<size_t>(kSdpaFlashKeys + args.shape.v_head_size) * sizeof(float);
}
size_t TileBytes(const SdpaFloatArgs& args, int64_t rows) {
  SdpaShape tile = args.shape;
  tile.k_len = kSdpaFlashKeys;
  const internal::SdpaLayout l = internal::MakeSdpaLayout(tile, 1);
  return internal::RoundUp(l.packed_bytes, 64) + internal::RoundUp(l.scratch_bytes, 64) +
         2 * static_cast<size_t>(rows) * sizeof(float);
}

struct Form {
  std::string_view name;
  Tile tile;
  decltype(&FlashReference) run;
  size_t (*scratch)(const SdpaFloatArgs& args, int64_t rows);
};
constexpr Forms<Form> kForms = {
    .scalar = {"scalar", Tile{}, &FlashReference, &ReferenceBytes},
    .avx2 = {"avx2", internal::kSdpaYmmTile, &N_AVX2::FlashRows, &TileBytes},
    .avx512 = {"avx512", internal::kSdpaZmmTile, &N_AVX3::FlashRows, &TileBytes},
    .avx512vnni = {"avx512vnni", internal::kSdpaZmmTile, &N_AVX3_DL::FlashRows, &TileBytes}};

}  // namespace

std::string_view internal::SdpaFlashF32Form(Arch arch) { return kForms[arch].name; }

Tile SdpaFlashTile(Arch arch, const SdpaFloatArgs&) { return kForms[arch].tile; }

size_t SdpaFlashScratchBytes(Arch arch, const SdpaFloatArgs& args, int64_t rows) {
  return kForms[arch].scratch(args, rows);
}

void SdpaFlash(Arch arch, const SdpaFloatArgs& args, int64_t batch, int64_t head, int64_t begin, int64_t end,
               void* scratch) {
  kForms[arch].run(args, batch, head, begin, end, scratch);
}

}  // namespace octavo::kernels
#endif  // HWY_ONCE
