#include "octavo/kernels/sdpa/sdpa_ref.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <type_traits>

#include "octavo/kernels/sdpa/sdpa_window.h"
#include "octavo/quant/numeric/math.h"
#include "octavo/quant/numeric/rounding.h"

namespace octavo::kernels::internal {
namespace {

int64_t Offset(const SdpaStrides& strides, int64_t batch, int64_t head, int64_t row) {
  return batch * strides.batch + head * strides.head + row * strides.row;
}

// Element i of u8 or s8 data, less its zero point.
int32_t Centered(const void* data, quant::DType type, int64_t i, int32_t zero_point) {
  const int32_t q =
      type == quant::DType::kU8 ? static_cast<const uint8_t*>(data)[i] : static_cast<const int8_t*>(data)[i];
  return q - zero_point;
}

int32_t Quantize(float x, quant::DType type, float scale, int32_t zero_point) {
  const auto [lo, hi] = quant::RangeOf(type);
  return quant::QuantizeOne(x, scale, zero_point, static_cast<int32_t>(lo), static_cast<int32_t>(hi));
}

float ThroughCodes(const SdpaScoreCodes& codes, float s) {
  if (!codes.exist()) return s;
  return static_cast<float>(Quantize(s, codes.type, codes.scale, codes.zero_point) - codes.zero_point) * codes.back();
}

// Scale, mask and window of one row of scores, in place.
template <typename Args>
void Scores(const Args& args, int64_t batch, int64_t head, int64_t row, float* s) {
  const SdpaMask& mask = args.mask;
  const SdpaVisibility& see = args.visibility;
  const SdpaBoolMask& keep = see.keep;
  const KeyRange visible = VisibleKeys(see.window, args.shape, row);
  const int64_t position = row + WindowOffset(see.window, args.shape);
  const auto coded = [&](SdpaScoreCodes SdpaInt8Args::* codes, float x) {
    if constexpr (std::is_same_v<Args, SdpaInt8Args>) return ThroughCodes(args.*codes, x);
    return x;
  };
  for (int64_t j = 0; j < args.shape.k_len; ++j) {
    s[j] = coded(&SdpaInt8Args::product_codes, s[j]);
    if (args.scale != 1.0f) s[j] = s[j] * args.scale;
    if constexpr (std::is_same_v<Args, SdpaInt8Args>) s[j] = args.divisor != 0.0f ? s[j] / args.divisor : s[j];
    s[j] = coded(&SdpaInt8Args::scaled_codes, s[j]);
    if (args.softcap != 0.0f) s[j] = quant::Tanh(s[j] / args.softcap) * args.softcap;
    float bias = 0.0f;
    if (mask.data != nullptr) {
      bias = mask.data[batch * mask.batch + head * mask.head + row * mask.row + j * mask.col];
    }
    if (see.alibi != nullptr) {
      const float slope = see.alibi[head] * static_cast<float>(j - position);
      bias = mask.data != nullptr ? slope + bias : slope;
    }
    if (mask.data != nullptr || see.alibi != nullptr) s[j] = s[j] + bias;
    s[j] = coded(&SdpaInt8Args::masked_codes, s[j]);
    const bool hidden =
        j < visible.begin || j >= visible.end ||
        (keep.data != nullptr && keep.data[batch * keep.batch + head * keep.head + row * keep.row + j * keep.col] == 0);
    if (hidden) s[j] = see.hidden_value;
  }
}

// float(acc_j) * (q_scale * k_scale) of one row.
void Products(const SdpaInt8Args& args, int64_t batch, int64_t head, int64_t i, float* row) {
  const SdpaShape& shape = args.shape;
  const int64_t kv_head = head / (shape.heads / shape.kv_heads);
  const int64_t q = Offset(args.q_strides, batch, head, i);
  for (int64_t j = 0; j < shape.k_len; ++j) {
    const int64_t k = Offset(args.k_strides, batch, kv_head, j);
    int32_t acc = 0;
    for (int64_t d = 0; d < shape.head_size; ++d) {
      acc += Centered(args.q, args.q_type, q + d, args.q_zero_point) *
             Centered(args.k, args.k_type, k + d, args.k_zero_point);
    }
    row[j] = static_cast<float>(acc) * (args.q_scale * args.k_scale);
  }
}

template <typename Args>
void Probabilities(const Args& args, int64_t batch, int64_t head, int64_t row, float* s) {
  const int64_t keys = args.shape.k_len;
  Scores(args, batch, head, row, s);
  const bool masked = std::all_of(s, s + keys, [](float x) { return x == -std::numeric_limits<float>::infinity(); });
  quant::SoftmaxRow(s, keys, s);
  if (masked && args.guard == SdpaGuard::kMasked) std::fill(s, s + keys, 0.0f);
  for (int64_t j = 0; args.guard == SdpaGuard::kNan && j < keys; ++j) s[j] = s[j] != s[j] ? 0.0f : s[j];
}

inline __attribute__((always_inline)) void MultiplyAddImpl(float a, const float* x, int64_t stride, int64_t n,
                                                           float* sum) {
  for (int64_t i = 0; i < n; ++i) sum[i] = std::fma(a, x[i * stride], sum[i]);
}
// As in quant/numeric/math.cc: the same bits with and without the instruction, but no call into libm for each fma.
__attribute__((target("avx2,fma"))) void MultiplyAddFma(float a, const float* x, int64_t stride, int64_t n,
                                                        float* sum) {
  MultiplyAddImpl(a, x, stride, n, sum);
}
const bool kHasFma = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");

// sum[i] = fma(a, x[i * stride], sum[i]).
void MultiplyAdd(float a, const float* x, int64_t stride, int64_t n, float* sum) {
  kHasFma ? MultiplyAddFma(a, x, stride, n, sum) : MultiplyAddImpl(a, x, stride, n, sum);
}

}  // namespace

void SdpaReference(const SdpaFloatArgs& args, int64_t batch, int64_t head, int64_t begin, int64_t end, float* row) {
  const SdpaShape& shape = args.shape;
  const int64_t kv_head = head / (shape.heads / shape.kv_heads);
  const float* k = args.k + Offset(args.k_strides, batch, kv_head, 0);
  const float* v = args.v + Offset(args.v_strides, batch, kv_head, 0);
  for (int64_t i = begin; i < end; ++i) {
    const float* q = args.q + Offset(args.q_strides, batch, head, i);
    float* o = args.o + Offset(args.o_strides, batch, head, i);
    for (int64_t j = 0; j < shape.k_len; ++j) row[j] = 0.0f;
    for (int64_t d = 0; d < shape.head_size; ++d) MultiplyAdd(q[d], k + d, args.k_strides.row, shape.k_len, row);
    Probabilities(args, batch, head, i, row);
    for (int64_t c = 0; c < shape.v_head_size; ++c) o[c] = 0.0f;
    for (int64_t j = 0; j < shape.k_len; ++j) MultiplyAdd(row[j], v + j * args.v_strides.row, 1, shape.v_head_size, o);
    // A product of 0 can turn a sum of -0 into 0: with this, leaving such products out changes nothing.
    for (int64_t c = 0; c < shape.v_head_size && Hides(args.visibility); ++c) o[c] = o[c] + 0.0f;
  }
}

namespace {

// The sum of the softmax's contract: sixteen lanes, then halves.
float SumOfLanes(const float* x, int64_t n) {
  float lanes[16] = {};
  for (int64_t i = 0; i < n; ++i) lanes[i % 16] += x[i];
  for (int half = 8; half > 0; half /= 2) {
    for (int i = 0; i < half; ++i) lanes[i] += lanes[i + half];
  }
  return lanes[0];
}

// One tile of keys of one row: its scores, then the running maximum, sum and output.
void FlashTile(const SdpaFloatArgs& tile, int64_t batch, int64_t head, int64_t i, float* row, float* sums, float* max,
               float* sum, float* o) {
  const SdpaShape& shape = tile.shape;
  const int64_t kv_head = head / (shape.heads / shape.kv_heads);
  const float* k = tile.k + Offset(tile.k_strides, batch, kv_head, 0);
  const float* v = tile.v + Offset(tile.v_strides, batch, kv_head, 0);
  const float* q = tile.q + Offset(tile.q_strides, batch, head, i);
  for (int64_t j = 0; j < shape.k_len; ++j) row[j] = 0.0f;
  for (int64_t d = 0; d < shape.head_size; ++d) MultiplyAdd(q[d], k + d, tile.k_strides.row, shape.k_len, row);
  Scores(tile, batch, head, i, row);
  float now = *max;
  for (int64_t j = 0; j < shape.k_len; ++j) now = row[j] > now ? row[j] : now;
  const float from = std::isinf(now) && now < 0 ? 0.0f : now;  // nothing seen yet: every e is 0
  const float change = quant::Exp(*max - from);
  for (int64_t j = 0; j < shape.k_len; ++j) row[j] = quant::Exp(row[j] - from);
  *sum = *sum * change + SumOfLanes(row, shape.k_len);
  *max = now;
  for (int64_t c = 0; c < shape.v_head_size; ++c) sums[c] = 0.0f;
  for (int64_t j = 0; j < shape.k_len; ++j) MultiplyAdd(row[j], v + j * tile.v_strides.row, 1, shape.v_head_size, sums);
  for (int64_t c = 0; c < shape.v_head_size; ++c) o[c] = o[c] * change + sums[c];
}

}  // namespace

void SdpaFlashReference(const SdpaFloatArgs& args, int64_t batch, int64_t head, int64_t begin, int64_t end,
                        float* scratch) {
  const SdpaShape& shape = args.shape;
  for (int64_t i = begin; i < end; ++i) {
    float* o = args.o + Offset(args.o_strides, batch, head, i);
    float max = -std::numeric_limits<float>::infinity(), sum = 0.0f;
    for (int64_t c = 0; c < shape.v_head_size; ++c) o[c] = 0.0f;
    for (int64_t first = 0; first < shape.k_len; first += kSdpaFlashKeys) {
      const SdpaFloatArgs tile = TileOf(args, first, std::min(kSdpaFlashKeys, shape.k_len - first));
      FlashTile(tile, batch, head, i, scratch, scratch + kSdpaFlashKeys, &max, &sum, o);
    }
    const bool meaning = HasMeaning(args.guard, sum);
    for (int64_t c = 0; c < shape.v_head_size; ++c) o[c] = meaning ? o[c] / sum + 0.0f : 0.0f;
  }
}

void SdpaProbabilities(const SdpaInt8Args& args, int64_t batch, int64_t head, int64_t row, float* s) {
  Probabilities(args, batch, head, row, s);
}

namespace {

// The codes of exponentials, less their zero point, whose rests go on to later keys.
float Diffuse(const SdpaInt8Args& args, float* row) {
  int32_t rests[16], sum = 0;
  std::fill_n(rests, 16, 128);
  const float factor = 256.0f * args.LargestCode();
  for (int64_t j = 0; j < args.shape.k_len; ++j) {
    int32_t& rest = rests[j % 16];
    rest += static_cast<int32_t>(std::nearbyint(row[j] * factor));
    row[j] = static_cast<float>(rest / 256);
    sum += rest / 256;
    rest %= 256;
  }
  return static_cast<float>(sum);
}

// Scores to p_j - p_zp; returns what their sums are divided by, in floats. Exact: whole numbers below 2^24.
float CodesOfRow(const SdpaInt8Args& args, int64_t batch, int64_t head, int64_t i, float* row) {
  const int64_t keys = args.shape.k_len;
  float sum = 0.0f;
  if (args.p_relative) {
    Scores(args, batch, head, i, row);
    const float max = quant::RowMax(row, keys);
    for (int64_t j = 0; j < keys; ++j) sum += row[j] = quant::Exp(row[j] - max);
  } else {
    Probabilities(args, batch, head, i, row);
    for (int64_t j = 0; j < keys; ++j) row[j] = ThroughCodes(args.prob_codes, row[j]);
  }
  const bool nothing = sum != sum;
  if (args.p_diffused && !nothing) return std::max(1.0f, Diffuse(args, row));
  float codes = 0.0f;
  for (int64_t j = 0; j < keys; ++j) {
    const int32_t code = Quantize(row[j], args.p_type, args.p_scale, args.p_zero_point) - args.p_zero_point;
    codes += row[j] = nothing ? 0.0f : static_cast<float>(code);
  }
  return args.p_relative ? std::max(1.0f, codes) : 1.0f;
}

}  // namespace

void SdpaReference(const SdpaInt8Args& args, int64_t batch, int64_t head, int64_t begin, int64_t end, float* row) {
  if (quant::IsFp8(args.q_type)) return SdpaFp8Reference(args, batch, head, begin, end, row);
  const SdpaShape& shape = args.shape;
  const int64_t kv_head = head / (shape.heads / shape.kv_heads);
  const float value_scale = args.ValueScale();
  for (int64_t i = begin; i < end; ++i) {
    const int64_t o = Offset(args.o_strides, batch, head, i);
    Products(args, batch, head, i, row);
    const float divisor = CodesOfRow(args, batch, head, i, row);
    for (int64_t c = 0; c < shape.v_head_size; ++c) {
      int32_t acc = 0;
      for (int64_t j = 0; j < shape.k_len; ++j) {
        const int64_t v = Offset(args.v_strides, batch, kv_head, j) + c;
        acc += static_cast<int32_t>(row[j]) * Centered(args.v, args.v_type, v, args.v_zero_point);
      }
      const float y = static_cast<float>(acc) * value_scale / divisor;
      if (args.o_type == quant::DType::kF32) {
        static_cast<float*>(args.o)[o + c] = y;
      } else {
        static_cast<uint8_t*>(args.o)[o + c] =
            static_cast<uint8_t>(Quantize(y, args.o_type, args.o_scale, args.o_zero_point));
      }
    }
  }
}

namespace {

struct RunningRow {
  float max = -std::numeric_limits<float>::infinity(), sum = 0.0f;
  float* o;
};

// `row`: scores, then codes.
void FlashTile(const SdpaInt8Args& tile, int64_t batch, int64_t head, int64_t i, float* row, RunningRow* running) {
  const SdpaShape& shape = tile.shape;
  const int64_t kv_head = head / (shape.heads / shape.kv_heads);
  Products(tile, batch, head, i, row);
  Scores(tile, batch, head, i, row);
  float now = running->max;
  for (int64_t j = 0; j < shape.k_len; ++j) now = row[j] > now ? row[j] : now;
  const float from = std::isinf(now) && now < 0 ? 0.0f : now;
  const float change = quant::Exp(running->max - from);
  float sum = 0.0f;  // below 2^24: exact
  for (int64_t j = 0; j < shape.k_len; ++j) {
    row[j] = static_cast<float>(std::nearbyint(static_cast<double>(quant::Exp(row[j] - from)) * 255.0));
    sum += row[j];
  }
  running->max = now;
  running->sum = running->sum * change + sum;
  for (int64_t c = 0; c < shape.v_head_size; ++c) {
    int32_t acc = 0;
    for (int64_t j = 0; j < shape.k_len; ++j) {
      const int64_t v = Offset(tile.v_strides, batch, kv_head, j) + c;
      const int32_t p = row[j] == row[j] ? static_cast<int32_t>(row[j]) : 0;  // a NaN is in the sum
      acc += p * Centered(tile.v, tile.v_type, v, tile.v_zero_point);
    }
    running->o[c] = running->o[c] * change + static_cast<float>(acc);
  }
}

}  // namespace

void SdpaFlashReference(const SdpaInt8Args& args, int64_t batch, int64_t head, int64_t begin, int64_t end,
                        float* scratch) {
  const SdpaShape& shape = args.shape;
  for (int64_t i = begin; i < end; ++i) {
    RunningRow running{.o = scratch + kSdpaFlashKeys};
    std::fill(running.o, running.o + shape.v_head_size, 0.0f);
    for (int64_t first = 0; first < shape.k_len; first += kSdpaFlashKeys) {
      FlashTile(TileOf(args, first, std::min(kSdpaFlashKeys, shape.k_len - first)), batch, head, i, scratch, &running);
    }
    const bool meaning = HasMeaning(args.guard, running.sum);
    const int64_t o = Offset(args.o_strides, batch, head, i);
    for (int64_t c = 0; c < shape.v_head_size; ++c) {
      const float y = meaning ? running.o[c] / running.sum * args.v_scale : 0.0f;
      if (args.o_type == quant::DType::kF32) {
        static_cast<float*>(args.o)[o + c] = y;
      } else {
        static_cast<uint8_t*>(args.o)[o + c] =
            static_cast<uint8_t>(Quantize(y, args.o_type, args.o_scale, args.o_zero_point));
      }
    }
  }
}

}  // namespace octavo::kernels::internal
