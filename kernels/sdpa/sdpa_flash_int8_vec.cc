// Flash attention in int8: tiles of keys outside, blocks of rows inside, as in float. Exponentials go to codes in registers, since
// their scale is known before their sum is: no store and load of e, one FMA for the code instead of the exact mode's two.
#include <algorithm>
#include <cstring>
#include <limits>

#include "octavo/kernels/sdpa/sdpa_layout.h"
#include "octavo/kernels/sdpa/sdpa_ref.h"
#include "octavo/kernels/sdpa/sdpa_window.h"
#include "octavo/quant/numeric/math.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "octavo/kernels/sdpa/sdpa_flash_int8_vec.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
#include "octavo/kernels/sdpa/sdpa_blocks-inl.h"
#include "octavo/kernels/sdpa/sdpa_int8-inl.h"
#include "octavo/kernels/sdpa/sdpa_softmax-inl.h"
#include "octavo/kernels/sdpa/sdpa_store-inl.h"

#if HWY_TARGET <= HWY_AVX2
HWY_BEFORE_NAMESPACE();
namespace octavo::kernels {
namespace HWY_NAMESPACE {

// What is kept for each row of a call, and the tile at hand.
struct FlashRows {
  uint8_t* q;
  size_t q_stride;
  float* o;
  size_t o_stride;
  int32_t* terms;
  float *max, *sum;
};

struct CodeRow {
  F16V from, factor, magic;
  HWY_INLINE explicit CodeRow(float value) {
    namespace hn = hwy::HWY_NAMESPACE;
    from = hn::Set(F16D(), value), factor = hn::Set(F16D(), 255.0f), magic = hn::Set(F16D(), kProbMagic);
  }
  // kProbMagic + 255 e: the code in the low byte.
  HWY_INLINE F16V At(const float* s) const {
    namespace hn = hwy::HWY_NAMESPACE;
    return hn::MulAdd(ExpNonPositive(F16D(), hn::Sub(hn::Load(F16D(), s), from)), factor, magic);
  }
};

#if HWY_TARGET == HWY_AVX2
// By way of memory: two exponentials in flight and their packing need one register more than 16, and GCC 14 then keeps an
// intermediate on the stack in every turn.
template <class E>
HWY_INLINE F16V CodesInTurn(const CodeRow& row, float* s, size_t padded, typename E::Prob* p) {
  namespace hn = hwy::HWY_NAMESPACE;
  const F16D d;
  const S32D d32;
  F16V total = hn::Zero(d);
  for (size_t i = 0; i < padded; i += 8) {
    const F16V a = row.At(s + i);
    total = hn::Add(total, hn::Sub(a, row.magic));
    hn::Store(a, d, s + i);
  }
  for (size_t i = 0; i < padded; i += 16) {
    const auto words = LowHalves(hn::BitCast(d32, hn::Load(d, s + i)), hn::BitCast(d32, hn::Load(d, s + i + 8)));
    if constexpr (E::kPerWord == 4) {
      hn::Store(hn::DemoteTo(hn::Full128<uint8_t>(), words), hn::Full128<uint8_t>(), p + i);
    } else {
      hn::Store(words, hn::Full256<int16_t>(), p + i);
    }
  }
  return total;
}
#endif

// Scores of one row, which are lost, to codes, and the sum of these, which is exact: below 2^24. NaN where an exponential is.
template <class E>
HWY_INLINE float Codes(float* s, size_t padded, float from, typename E::Prob* p) {
  namespace hn = hwy::HWY_NAMESPACE;
  const CodeRow row(from);
#if HWY_TARGET == HWY_AVX2
  return hn::ReduceSum(F16D(), CodesInTurn<E>(row, s, padded, p));
#else
  const S32D d32;
  F16V total = hn::Zero(F16D());
  size_t i = 0;
#if HWY_TARGET <= HWY_AVX3_DL
  constexpr int32_t kNanBit = 0x20000000;  // kProbMagic + 0 .. 255 does not have it
  const auto ones = hn::Set(hn::Full512<int8_t>(), int8_t{1});
  S32V sums = hn::Zero(d32), seen = sums;
  const auto at = [&](size_t k) HWY_ATTR { return hn::BitCast(d32, row.At(s + k)); };
  for (; i + 64 <= padded; i += 64) {
    const S32V a = at(i), b = at(i + 16), c = at(i + 32), d = at(i + 48);
    seen = hn::Or3(seen, a, hn::Or3(b, c, d));
    const auto bytes = LowBytes(a, b, c, d);
    hn::Store(bytes, hn::Full512<uint8_t>(), p + i);
    sums = hn::SumOfMulQuadAccumulate(d32, bytes, ones, sums);
  }
  if (!hn::AllTrue(d32, hn::Eq(hn::And(seen, hn::Set(d32, kNanBit)), hn::Zero(d32)))) {
    return std::numeric_limits<float>::quiet_NaN();
  }
  total = hn::ConvertTo(F16D(), sums);
#endif
  for (; i < padded; i += 16) {
    const F16V a = row.At(s + i);
    total = hn::Add(total, hn::Sub(a, row.magic));
#if HWY_TARGET == HWY_AVX3
    hn::Store(LowHalves(hn::BitCast(d32, a)), hn::Full256<int16_t>(), p + i);
#else
    hn::Store(hn::Vec128<uint8_t>{_mm512_cvtepi32_epi8(hn::BitCast(d32, a).raw)}, hn::Full128<uint8_t>(), p + i);
#endif
  }
  return hn::ReduceSum(F16D(), total);
#endif
}

// o = o * change + float(sums).
HWY_INLINE void AccumulateSums(const int32_t* sums, float change, size_t v16, float* o) {
  namespace hn = hwy::HWY_NAMESPACE;
  const F16D d;
  const F16V factor = hn::Set(d, change);
  for (size_t c = 0; c < v16; c += kF16Lanes) {
    const F16V add = hn::ConvertTo(d, hn::Load(S32D(), sums + c));
    hn::Store(hn::Add(hn::Mul(hn::Load(d, o + c), factor), add), d, o + c);
  }
}

// Where hidden keys count for nothing, those that no row of the block sees are left out.
HWY_INLINE Span FlashSpan(const SdpaInt8Args& tile, int64_t row, int64_t rows) {
  const bool vanish = tile.visibility.hidden_value == -std::numeric_limits<float>::infinity();
  return MakeSpan(tile.shape, internal::SpanOf(vanish ? tile.visibility.window : SdpaWindow{}, tile.shape, row, rows));
}

// kR rows, from row `at` of the call on.
template <class E, size_t kR>
void FlashInt8Block(const Block<SdpaInt8Args>& block, const FlashRows& state, size_t at) {
  const SdpaInt8Args& tile = block.args;
  const internal::SdpaLayout& l = block.layout;
  const Int8Forms forms = FormsOf(tile);
  const Span span = FlashSpan(tile, block.row, static_cast<int64_t>(kR));
  const ScoreRows rows = {block.scratch + l.scores_at, l.score_stride, static_cast<size_t>(tile.shape.k_len)};
  const TileArgs<int32_t> products = {state.q + at * state.q_stride,
                                      state.q_stride,
                                      l.d_steps,
                                      l.d_steps * 64,
                                      reinterpret_cast<int32_t*>(rows.base) + span.begin,
                                      l.score_stride / 4,
                                      forms.k_zero == 0 ? nullptr : state.terms + at};
  TileRows<E, kR>(products, block.packed + span.begin * l.d_steps * 4,
                  reinterpret_cast<const int32_t*>(block.packed + l.k_columns_at) + span.begin,
                  (span.padded - span.begin) / 16);
  RowSlots<float> now;
  float change[kR];
  const float factor = tile.q_scale * tile.k_scale;
  if (internal::HasWindow(tile.visibility.window) || tile.visibility.keep.data != nullptr) {
    VisibleScores<kR, true>(block, rows, factor, span, now);
  } else {
    MaskedScores<kR, true>(block, rows, span.begin, span.end, factor, now);
  }
  alignas(64) int32_t terms[internal::kSdpaRows] = {};
  uint8_t* p = block.scratch + l.p_at;
  for (size_t r = 0; r < kR; ++r) {
    float &max = state.max[at + r], &sum = state.sum[at + r];
    now[r] = now[r] > max ? now[r] : max;
    const float from = now[r] == -std::numeric_limits<float>::infinity() ? 0.0f : now[r];
    change[r] = max == from ? 1.0f : quant::Exp(max - from);
    max = now[r];
    const float total = Codes<E>(rows.Row(r) + span.begin, span.padded - span.begin, from,
                                 reinterpret_cast<typename E::Prob*>(p + r * l.p_stride) + span.begin);
    sum = sum * change[r] + total;
    // A row with a NaN is one to the end, whatever its codes.
    terms[r] = total == total ? -forms.v_zero * static_cast<int32_t>(total) : 0;
  }
  const size_t begin = span.begin / E::kPerWord;
  auto* sums = reinterpret_cast<int32_t*>(block.scratch + l.out_at);
  const TileArgs<int32_t> values = {p + begin * 4, l.p_stride, span.padded / E::kPerWord - begin,  l.k_steps * 64,
                                    sums,          l.v16,      forms.v_zero == 0 ? nullptr : terms};
  TileRows<E, kR>(values, block.packed + l.v_at + begin * 64,
                  reinterpret_cast<const int32_t*>(block.packed + l.v_columns_at), l.v16 / 16);
  for (size_t r = 0; r < kR; ++r)
    AccumulateSums(sums + r * l.v16, change[r], l.v16, state.o + (at + r) * state.o_stride);
}

// One row of the output.
HWY_INLINE void StoreFlash(const SdpaInt8Args& args, const Requant& requant, const float* o, float sum_value,
                           int64_t at) {
  namespace hn = hwy::HWY_NAMESPACE;
  const F16D d;
  const bool meaning = internal::HasMeaning(args.guard, sum_value);
  const F16V sum = hn::Set(d, sum_value), scale = hn::Set(d, args.v_scale), none = hn::Zero(d);
  StoreValues(
      args, requant,
      [&](size_t c) HWY_ATTR { return meaning ? hn::Mul(hn::Div(hn::Load(d, o + c), sum), scale) : none; }, at);
}

// Rows [begin, end), at most kFlashRows.
template <class E>
void FlashChunk(const SdpaInt8Args& args, const FlashRows& state, uint8_t* packed, uint8_t* work, int64_t batch,
                int64_t head, int64_t begin, int64_t end) {
  const SdpaShape& s = args.shape;
  const int64_t kv_head = head / (s.heads / s.kv_heads), rows = end - begin;
  const internal::SdpaLayout whole =
      internal::MakeSdpaLayout(internal::TileOf(args, 0, kSdpaFlashKeys).shape, E::kPerWord);
  const auto* q = static_cast<const uint8_t*>(args.q);
  for (int64_t i = 0; i < rows; ++i) {
    const auto at = static_cast<size_t>(i);
    PrepareQuery<E>(args, FormsOf(args), q + OffsetOf(args.q_strides, batch, head, begin + i), whole,
                    state.q + at * state.q_stride, &state.terms[i]);
    state.max[i] = -std::numeric_limits<float>::infinity(), state.sum[i] = 0.0f;
  }
  std::memset(state.o, 0, static_cast<size_t>(rows) * state.o_stride * sizeof(float));
  for (int64_t first = 0; first < s.k_len; first += kSdpaFlashKeys) {
    const SdpaInt8Args tile = internal::TileOf(args, first, std::min(kSdpaFlashKeys, s.k_len - first));
    if (internal::IsIdle(tile, begin, rows)) continue;
    const internal::SdpaLayout l = internal::MakeSdpaLayout(tile.shape, E::kPerWord);
    PackKeys<E>(tile, RowsOf<uint8_t>(tile.k, tile.k_strides, batch, kv_head, tile.shape.k_len, s.head_size), l.k16,
                l.d_steps, packed, reinterpret_cast<int32_t*>(packed + l.k_columns_at));
    PackValues<E>(tile, RowsOf<uint8_t>(tile.v, tile.v_strides, batch, kv_head, tile.shape.k_len, s.v_head_size), l.k16,
                  l.k_steps, l.v16, packed + l.v_at, reinterpret_cast<int32_t*>(packed + l.v_columns_at));
    ForBlocks(begin, end, [&](auto count, int64_t row) HWY_ATTR {
      constexpr size_t kR = decltype(count)::value;
      if (internal::IsIdle(tile, row, kR)) return;
      FlashInt8Block<E, kR>({tile, l, packed, work, batch, head, row}, state, static_cast<size_t>(row - begin));
    });
  }
}

template <class E>
void FlashInt8(const SdpaInt8Args& given, int64_t batch, int64_t head, int64_t begin, int64_t end, void* scratch) {
  SdpaInt8Args args = given;
  args.p_type = quant::DType::kU8, args.p_zero_point = 0;
  const internal::SdpaFlashLayout l = internal::MakeSdpaFlashLayout(args.shape, E::kPerWord, end - begin);
  const internal::SdpaLayout tile =
      internal::MakeSdpaLayout(internal::TileOf(args, 0, kSdpaFlashKeys).shape, E::kPerWord);
  auto* at = static_cast<uint8_t*>(scratch);
  const FlashRows state = {at + l.q_at,
                           tile.q_stride,
                           reinterpret_cast<float*>(at + l.o_at),
                           tile.v16,
                           reinterpret_cast<int32_t*>(at + l.terms_at),
                           reinterpret_cast<float*>(at + l.max_at),
                           reinterpret_cast<float*>(at + l.sum_at)};
  const Requant requant =
      args.o_type == quant::DType::kF32 ? Requant{} : MakeRequant(args.o_scale, args.o_zero_point, args.o_type);
  for (; begin < end; begin += internal::kFlashRows) {
    const int64_t to = std::min(end, begin + internal::kFlashRows);
    FlashChunk<E>(args, state, at, at + l.work_at, batch, head, begin, to);
    for (int64_t i = begin; i < to; ++i) {
      StoreFlash(args, requant, state.o + static_cast<size_t>(i - begin) * state.o_stride, state.sum[i - begin],
                 OffsetOf(args.o_strides, batch, head, i));
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

void FlashReference(const SdpaInt8Args& args, int64_t batch, int64_t head, int64_t begin, int64_t end, void* scratch) {
  internal::SdpaFlashReference(args, batch, head, begin, end, static_cast<float*>(scratch));
}

struct Form {
  std::string_view name;
  Tile tile;
  decltype(&FlashReference) run;
  size_t per_word;  // values in a word; 0: one tile of scores and one row of sums are all
};
constexpr Forms<Form> kForms = {
    .scalar = {"scalar", Tile{}, &FlashReference, 0},
    .avx2 = {"avx2", internal::kSdpaYmmTile, &N_AVX2::FlashInt8<N_AVX2::S16Engine>, 2},
    .avx512 = {"avx512", internal::kSdpaZmmTile, &N_AVX3::FlashInt8<N_AVX3::S16Engine>, 2},
    .avx512vnni = {"avx512vnni", internal::kSdpaZmmTile, &N_AVX3_DL::FlashInt8<N_AVX3_DL::VnniEngine>, 4},
    .avxvnni = Form{"avxvnni", internal::kSdpaYmmTile, &N_AVX2::FlashInt8<N_AVX2::VnniEngine>, 4}};

}  // namespace

std::string_view internal::SdpaFlashInt8Form(Arch arch) { return kForms[arch].name; }

Tile SdpaFlashTile(Arch arch, const SdpaInt8Args&) { return kForms[arch].tile; }

size_t SdpaFlashScratchBytes(Arch arch, const SdpaInt8Args& args, int64_t rows) {
  const size_t per_word = kForms[arch].per_word;
  return per_word == 0 ? static_cast<size_t>(kSdpaFlashKeys + args.shape.v_head_size) * sizeof(float)
                       : internal::MakeSdpaFlashLayout(args.shape, per_word, rows).bytes;
}

void SdpaFlash(Arch arch, const SdpaInt8Args& args, int64_t batch, int64_t head, int64_t begin, int64_t end,
               void* scratch) {
  kForms[arch].run(args, batch, head, begin, end, scratch);
}

}  // namespace octavo::kernels
#endif  // HWY_ONCE
