// fp8 attention on the float tiles: K and V become floats while they are packed, a query row when it is read, and
// probabilities are rounded to values of their type where they stand.
#include <algorithm>
#include <cstring>

#include "octavo/kernels/sdpa/sdpa_fp8.h"
#include "octavo/kernels/sdpa/sdpa_layout.h"
#include "octavo/kernels/sdpa/sdpa_ref.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "octavo/kernels/sdpa/sdpa_fp8_vec.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
#include "octavo/kernels/sdpa/sdpa_blocks-inl.h"
#include "octavo/kernels/sdpa/sdpa_pack-inl.h"
#include "octavo/kernels/sdpa/sdpa_rows-inl.h"
#include "octavo/kernels/sdpa/sdpa_softmax-inl.h"
#include "octavo/kernels/sdpa/sdpa_tile-inl.h"
#include "octavo/kernels/simd/fp8-inl.h"

#if HWY_TARGET <= HWY_AVX2
HWY_BEFORE_NAMESPACE();
namespace octavo::kernels {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
using internal::MakeSdpaLayout;
using internal::SdpaLayout;

// Four values of a row from column `at` on, 0 beyond it.
template <bool kE4M3>
HWY_INLINE WordV LoadValues(const HeadRows<uint8_t>& rows, size_t row, size_t at) {
  const hn::Full128<float> d;
  const hn::Rebind<uint8_t, decltype(d)> d8;
  if (row >= rows.count || at >= rows.width) return hn::Zero(Words());
  const uint8_t* p = rows.data + static_cast<int64_t>(row) * rows.stride + at;
  const size_t n = rows.width - at;
  const auto codes = n >= 4 ? hn::LoadU(d8, p) : hn::LoadN(d8, p, n);
  return hn::BitCast(Words(), Fp8ToFloat<kE4M3>(d, codes, hn::Set(d, kE4M3 ? 256.0f : 1.0f)));
}

template <bool kE4M3>
void PackKeys(const HeadRows<uint8_t>& k, const SdpaLayout& l, uint8_t* out) {
  PackRowsAsColumns(
      l.k16, l.d_steps, [&](size_t row, size_t step) HWY_ATTR { return LoadValues<kE4M3>(k, row, step); }, out);
}

template <bool kE4M3>
void PackValues(const HeadRows<uint8_t>& v, const SdpaLayout& l, uint8_t* out) {
  for (size_t row = 0; row < v.count; ++row) {
    for (size_t at = 0; at < l.v16; at += 4) {
      auto* p = reinterpret_cast<uint32_t*>(out + (at / 16) * v.count * 64 + row * 64) + at % 16;
      hn::Store(LoadValues<kE4M3>(v, row, at), Words(), p);
    }
  }
}

bool IsE4M3(quant::DType t) { return t == quant::DType::kE4M3FN; }

void PackFp8Head(const SdpaInt8Args& args, int64_t batch, int64_t kv_head, void* packed) {
  const SdpaShape& s = args.shape;
  const SdpaLayout l = MakeSdpaLayout(s, FloatEngine::kPerWord);
  const auto k = RowsOf<uint8_t>(args.k, args.k_strides, batch, kv_head, s.k_len, s.head_size);
  const auto v = RowsOf<uint8_t>(args.v, args.v_strides, batch, kv_head, s.k_len, s.v_head_size);
  auto* out = static_cast<uint8_t*>(packed);
  (IsE4M3(args.k_type) ? PackKeys<true> : PackKeys<false>)(k, l, out);
  (IsE4M3(args.v_type) ? PackValues<true> : PackValues<false>)(v, l, out + l.v_at);
}

// What stands between the codes of probabilities and output.
struct Fp8Ends {
  Fp8Requant p, o;
};

// e of one row to the values of the codes of e / sum; rows.keys is padded with e = 0.
HWY_INLINE void RoundProbabilities(const Fp8Requant& p, const ScoreRows& rows, size_t r, float sum_value) {
  const Fp8D d;
  const Fp8V sum = hn::Set(d, sum_value), reciprocal = hn::Set(d, 1.0f / sum_value);
  float* row = rows.Row(r);
  for (size_t i = 0; i < rows.keys; i += hn::MaxLanes(d)) {
    const Fp8V e = hn::Load(d, row + i);
    Fp8V prob;
    if (p.divide) {
      prob = hn::Div(e, sum);
    } else {  // the quotient as in ProbToInt; where its remainder underflows, the code is 0 either way
      prob = hn::Mul(e, reciprocal);
      prob = hn::MulAdd(hn::NegMulAdd(prob, sum, e), reciprocal, prob);
    }
    hn::Store(Fp8Rounded(p, prob), d, row + i);
  }
}

HWY_INLINE void Scale(float* row, size_t n, float factor) {
  const Fp8D d;
  const Fp8V f = hn::Set(d, factor);
  for (size_t i = 0; i < n; i += hn::MaxLanes(d)) hn::Store(hn::Mul(hn::Load(d, row + i), f), d, row + i);
}

template <size_t kR>
bool Fp8Block(const Block<SdpaInt8Args>& block, const Fp8Ends& ends, const Span& span) {
  const SdpaInt8Args& args = block.args;
  const SdpaLayout& l = block.layout;
  uint8_t* q = block.scratch + l.q_at;
  const auto* source =
      static_cast<const uint8_t*>(args.q) + OffsetOf(args.q_strides, block.batch, block.head, block.row);
  for (size_t r = 0; r < kR; ++r) {
    (IsE4M3(args.q_type) ? DecodeFp8<true> : DecodeFp8<false>)(source + static_cast<int64_t>(r) * args.q_strides.row,
                                                               static_cast<size_t>(args.shape.head_size), 1.0f,
                                                               reinterpret_cast<float*>(q + r * l.q_stride));
  }
  const ScoreRows rows = {block.scratch + l.scores_at, l.score_stride, static_cast<size_t>(args.shape.k_len)};
  const TileArgs<float> scores = {q,
                                  l.q_stride,
                                  l.d_steps,
                                  l.d_steps * 64,
                                  reinterpret_cast<float*>(rows.base) + span.begin,
                                  l.score_stride / 4,
                                  nullptr};
  TileRows<FloatEngine, kR>(scores, block.packed + span.begin * l.d_steps * 4, nullptr,
                            (span.padded - span.begin) / 16);
  for (size_t r = 0; r < kR; ++r)
    Scale(rows.Row(r) + span.begin, span.padded - span.begin, args.q_scale * args.k_scale);
  alignas(64) float sum[kRowSlots];
  if (!Softmax<kR, false>(block, rows, 1.0f, span, sum)) return false;
  const ScoreRows part = Part(rows, span.begin, span.end);
  for (size_t r = 0; r < kR; ++r) {
    if (sum[r] != sum[r] && args.nan_guard) {
      std::memset(part.Row(r), 0, (span.padded - span.begin) * sizeof(float));
    } else {
      RoundProbabilities(ends.p, part, r, sum[r]);
    }
  }
  auto* out = reinterpret_cast<float*>(block.scratch + l.out_at);
  const TileArgs<float> values = {part.base, l.score_stride, part.keys, l.k_steps * 64, out, l.v16, nullptr};
  TileRows<FloatEngine, kR>(values, block.packed + l.v_at + span.begin * 64, nullptr, l.v16 / 16);
  const auto width = static_cast<size_t>(args.shape.v_head_size);
  for (size_t r = 0; r < kR; ++r) {
    float* y = out + r * l.v16;
    Scale(y, l.v16, args.p_scale * args.v_scale);
    const int64_t at = OffsetOf(args.o_strides, block.batch, block.head, block.row + static_cast<int64_t>(r));
    if (args.o_type == quant::DType::kF32) {
      std::memcpy(static_cast<float*>(args.o) + at, y, width * sizeof(float));
    } else {
      EncodeFp8(ends.o, y, width, static_cast<uint8_t*>(args.o) + at);
    }
  }
  return true;
}

void RowsFp8(const SdpaInt8Args& args, int64_t batch, int64_t head, int64_t begin, int64_t end, const void* packed,
             void* scratch) {
  const SdpaShape& s = args.shape;
  const SdpaLayout l = MakeSdpaLayout(s, FloatEngine::kPerWord);
  const Fp8Ends ends = {MakeFp8Requant(args.p_scale, args.p_type),
                        args.o_type == quant::DType::kF32 ? Fp8Requant{} : MakeFp8Requant(args.o_scale, args.o_type)};
  ForBlocks(begin, end, [&](auto rows, int64_t row) HWY_ATTR {
    constexpr size_t kR = decltype(rows)::value;
    const Block<SdpaInt8Args> block = {
        args, l, static_cast<const uint8_t*>(packed), static_cast<uint8_t*>(scratch), batch, head, row};
    const Span span = MakeSpan(s, internal::SpanOf(args.visibility.window, s, row, static_cast<int64_t>(kR)));
    if (!Fp8Block<kR>(block, ends, span)) Fp8Block<kR>(block, ends, MakeSpan(s, {0, s.k_len + 63}));
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace octavo::kernels
HWY_AFTER_NAMESPACE();
#endif  // HWY_TARGET <= HWY_AVX2

#if HWY_ONCE
#include "octavo/kernels/simd/dispatch.h"

namespace octavo::kernels::internal {
namespace {

using PackFn = void(const SdpaInt8Args&, int64_t, int64_t, void*);
using RowsFn = void(const SdpaInt8Args&, int64_t, int64_t, int64_t, int64_t, const void*, void*);

void PackNothing(const SdpaInt8Args&, int64_t, int64_t, void*) {}
void Reference(const SdpaInt8Args& args, int64_t batch, int64_t head, int64_t begin, int64_t end, const void*,
               void* scratch) {
  SdpaFp8Reference(args, batch, head, begin, end, static_cast<float*>(scratch));
}

constexpr PerArch<PackFn> kPack = {&PackNothing, &N_AVX2::PackFp8Head, &N_AVX3::PackFp8Head, &N_AVX3_DL::PackFp8Head};
constexpr PerArch<RowsFn> kRows = {&Reference, &N_AVX2::RowsFp8, &N_AVX3::RowsFp8, &N_AVX3_DL::RowsFp8};

}  // namespace

size_t SdpaFp8PackedBytes(Arch arch, const SdpaInt8Args& args) {
  return arch == Arch::kScalar ? 0 : MakeSdpaLayout(args.shape, 1).packed_bytes;
}
size_t SdpaFp8ScratchBytes(Arch arch, const SdpaInt8Args& args) {
  if (arch == Arch::kScalar) return static_cast<size_t>(args.shape.k_len) * sizeof(float);
  return MakeSdpaLayout(args.shape, 1).scratch_bytes;
}
void SdpaFp8Pack(Arch arch, const SdpaInt8Args& args, int64_t batch, int64_t kv_head, void* packed) {
  kPack[arch](args, batch, kv_head, packed);
}
void SdpaFp8Rows(Arch arch, const SdpaInt8Args& args, int64_t batch, int64_t head, int64_t begin, int64_t end,
                 const void* packed, void* scratch) {
  kRows[arch](args, batch, head, begin, end, packed, scratch);
}

}  // namespace octavo::kernels::internal
#endif  // HWY_ONCE
