// int8 attention of few rows (decoding), the exact mode's bits: K and V are read once, where they lie, for all rows of all
// heads that share them. Tiles of 64 keys are brought into panels in L1 (0.05 cycles a byte with AVX-512, against 0.2 that
// memory takes); nothing is written but scores and probabilities.
#include <algorithm>
#include <cstring>

#include "octavo/kernels/sdpa/sdpa_layout.h"
#include "octavo/kernels/sdpa/sdpa_ref.h"
#include "octavo/kernels/sdpa/sdpa_window.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "octavo/kernels/sdpa/sdpa_decode_int8_vec.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
#include "octavo/kernels/sdpa/sdpa_blocks-inl.h"
#include "octavo/kernels/sdpa/sdpa_int8-inl.h"
#include "octavo/kernels/sdpa/sdpa_softmax-inl.h"
#include "octavo/kernels/sdpa/sdpa_store-inl.h"
#include "octavo/kernels/sdpa/sdpa_tile-inl.h"

#if HWY_TARGET <= HWY_AVX2
HWY_BEFORE_NAMESPACE();
namespace octavo::kernels {
namespace HWY_NAMESPACE {

// Rows [first, first + count) of the group, counted head by head.
struct DecodeRows {
  const SdpaInt8Args& args;
  const internal::SdpaDecodeLayout& layout;
  uint8_t* scratch;
  int64_t batch, kv_head, first, count;

  int64_t Head(int64_t i) const {
    return kv_head * (args.shape.heads / args.shape.kv_heads) + (first + i) / args.shape.q_len;
  }
  int64_t Row(int64_t i) const { return (first + i) % args.shape.q_len; }
  uint8_t* tile() const { return scratch + layout.tile_at; }
};

HWY_INLINE HeadRows<uint8_t> TileRowsOf(HeadRows<uint8_t> rows, size_t first) {
  rows.data += static_cast<int64_t>(first) * rows.stride;
  rows.count = HWY_MIN(rows.count - first, internal::kDecodeKeys);
  return rows;
}

template <class E>
void DecodeScores(const DecodeRows& d, const Span& span) {
  const SdpaInt8Args& args = d.args;
  const SdpaShape& s = args.shape;
  const SdpaLayout &l = d.layout.rows, &t = d.layout.tile;
  alignas(64) int32_t terms[kSdpaDecodeRows];
  for (int64_t i = 0; i < d.count; ++i) {
    const auto* q = static_cast<const uint8_t*>(args.q) + OffsetOf(args.q_strides, d.batch, d.Head(i), d.Row(i));
    PrepareQuery<E>(args, q, l, d.scratch + l.q_at + static_cast<size_t>(i) * l.q_stride, &terms[i]);
  }
  const auto k = RowsOf<uint8_t>(args.k, args.k_strides, d.batch, d.kv_head, s.k_len, s.head_size);
  auto* columns = reinterpret_cast<int32_t*>(d.tile() + t.k_columns_at);
  for (size_t key = span.begin; key < span.padded; key += internal::kDecodeKeys) {
    const size_t width = HWY_MIN(span.padded - key, internal::kDecodeKeys);
    PackKeys<E>(args, TileRowsOf(k, key), width, l.d_steps, d.tile(), columns);
    ForBlocks(0, d.count, [&](auto rows, int64_t i) HWY_ATTR {
      const auto at = static_cast<size_t>(i);
      auto* out = reinterpret_cast<int32_t*>(d.scratch + l.scores_at + at * l.score_stride) + key;
      const TileArgs<int32_t> products = {d.scratch + l.q_at + at * l.q_stride,
                                          l.q_stride,
                                          l.d_steps,
                                          l.d_steps * 64,
                                          out,
                                          l.score_stride / 4,
                                          FormsOf(args).k_zero == 0 ? nullptr : terms + i};
      TileRows<E, decltype(rows)::value>(products, d.tile(), columns, width / 16);
    });
  }
}

// From the scores of one row to its words of P; false: a hidden key counts, so all keys are needed.
template <class E>
bool DecodeProbs(const DecodeRows& d, const ProbQuant& quant, const Span& span, int64_t i, int32_t* term) {
  const SdpaInt8Args& args = d.args;
  const SdpaLayout& l = d.layout.rows;
  const auto at = static_cast<size_t>(i);
  const ScoreRows row = {d.scratch + l.scores_at + at * l.score_stride, l.score_stride,
                         static_cast<size_t>(args.shape.k_len)};
  const Block<SdpaInt8Args> block = {args, l, nullptr, d.scratch, d.batch, d.Head(i), d.Row(i)};
  alignas(64) float sum[kRowSlots];
  if (!Softmax<1, true>(block, row, args.q_scale * args.k_scale, span, sum)) return false;
  int32_t row_sum = 0;
  QuantizeSpan<E>(quant, row, 0, span, l.k16, sum[0], d.scratch + l.p_at + at * l.p_stride, &row_sum);
  *term = static_cast<int32_t>(-static_cast<int64_t>(FormsOf(args).v_zero) * row_sum);
  return true;
}

template <class E>
void DecodeValues(const DecodeRows& d, const ProbQuant& quant, const Span& span, const int32_t* terms) {
  const SdpaInt8Args& args = d.args;
  const SdpaShape& s = args.shape;
  const SdpaLayout &l = d.layout.rows, &t = d.layout.tile;
  const bool all = E::kPerWord == 4 && quant.zero != 0;  // a probability of 0 is not the word 0
  const size_t begin = all ? 0 : span.begin, end = all ? l.k16 : span.padded;
  const auto v = RowsOf<uint8_t>(args.v, args.v_strides, d.batch, d.kv_head, s.k_len, s.v_head_size);
  auto* columns = reinterpret_cast<int32_t*>(d.tile() + t.v_columns_at);
  auto* total = reinterpret_cast<int32_t*>(d.scratch + l.out_at);
  auto* part = reinterpret_cast<int32_t*>(d.scratch + d.layout.part_at);
  const S32D d32;
  for (size_t key = begin; key < end; key += internal::kDecodeKeys) {
    const size_t k16 = HWY_MIN(end - key, internal::kDecodeKeys), steps = k16 / E::kPerWord;
    PackValues<E>(args, TileRowsOf(v, key), k16, steps, l.v16, d.tile() + t.v_at, columns);
    ForBlocks(0, d.count, [&](auto rows, int64_t i) HWY_ATTR {
      const auto at = static_cast<size_t>(i);
      const uint8_t* p = d.scratch + l.p_at + at * l.p_stride + key / E::kPerWord * 4;
      const TileArgs<int32_t> values = {p,
                                        l.p_stride,
                                        steps,
                                        steps * 64,
                                        (key == begin ? total : part) + at * l.v16,
                                        l.v16,
                                        key == begin && FormsOf(args).v_zero != 0 ? terms + i : nullptr};
      TileRows<E, decltype(rows)::value>(values, d.tile() + t.v_at, columns, l.v16 / 16);
    });
    if (key == begin) continue;
    for (size_t c = 0; c < static_cast<size_t>(d.count) * l.v16; c += kF16Lanes) {
      hn::Store(hn::Add(hn::Load(d32, total + c), hn::Load(d32, part + c)), d32, total + c);
    }
  }
}

template <class E>
bool DecodeSpan(const DecodeRows& d, const ProbQuant& quant, const Span& span) {
  alignas(64) int32_t terms[kSdpaDecodeRows] = {};
  DecodeScores<E>(d, span);
  for (int64_t i = 0; i < d.count; ++i) {
    if (!DecodeProbs<E>(d, quant, span, i, &terms[i])) return false;
  }
  DecodeValues<E>(d, quant, span, terms);
  return true;
}

template <class E>
void Decode(const SdpaInt8Args& args, int64_t batch, int64_t kv_head, void* scratch) {
  const SdpaShape& s = args.shape;
  const internal::SdpaDecodeLayout l = internal::MakeSdpaDecodeLayout(s, E::kPerWord);
  const Requant requant =
      args.o_type == quant::DType::kF32 ? Requant{} : MakeRequant(args.o_scale, args.o_zero_point, args.o_type);
  const ProbQuant quant = ProbQuantOf<E>(args);
  const int64_t rows = s.heads / s.kv_heads * s.q_len;
  for (int64_t first = 0; first < rows; first += kSdpaDecodeRows) {
    const DecodeRows d = {args,    l,     static_cast<uint8_t*>(scratch),         batch,
                          kv_head, first, std::min(rows - first, kSdpaDecodeRows)};
    if (!DecodeSpan<E>(d, quant, MakeSpan(s, internal::SpanOfGroup(args, batch, kv_head)))) {
      DecodeSpan<E>(d, quant, MakeSpan(s, {0, s.k_len + 63}));
    }
    for (int64_t i = 0; i < d.count; ++i) {
      StoreOutput(args, requant,
                  reinterpret_cast<int32_t*>(d.scratch + l.rows.out_at) + static_cast<size_t>(i) * l.rows.v16,
                  OffsetOf(args.o_strides, batch, d.Head(i), d.Row(i)));
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

void DecodeReference(const SdpaInt8Args& args, int64_t batch, int64_t kv_head, void* scratch) {
  const int64_t group = args.shape.heads / args.shape.kv_heads;
  for (int64_t head = kv_head * group; head < (kv_head + 1) * group; ++head) {
    internal::SdpaReference(args, batch, head, 0, args.shape.q_len, static_cast<float*>(scratch));
  }
}

using DecodeFn = void(const SdpaInt8Args&, int64_t, int64_t, void*);
constexpr PerArch<DecodeFn> kDecode = {&DecodeReference, &N_AVX2::Decode<N_AVX2::S16Engine>,
                                       &N_AVX3::Decode<N_AVX3::S16Engine>, &N_AVX3_DL::Decode<N_AVX3_DL::VnniEngine>,
                                       &N_AVX2::Decode<N_AVX2::VnniEngine>};

}  // namespace

size_t SdpaDecodeScratchBytes(Arch arch, const SdpaInt8Args& args) {
  if (arch == Arch::kScalar) return static_cast<size_t>(args.shape.k_len) * sizeof(float);
  return internal::MakeSdpaDecodeLayout(args.shape, arch == Arch::kAvx2 || arch == Arch::kAvx512 ? 2 : 4).bytes;
}

void SdpaDecode(Arch arch, const SdpaInt8Args& args, int64_t batch, int64_t kv_head, void* scratch) {
  kDecode[arch](args, batch, kv_head, scratch);
}

}  // namespace octavo::kernels
#endif  // HWY_ONCE
