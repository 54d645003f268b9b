#include "octavo/kernels/sdpa/sdpa.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

namespace octavo::kernels {
namespace {

constexpr int64_t kMaxHeadSize = 1024;  // scratch grows with it; no known model is near
constexpr int64_t kMaxHeads = 1 << 20;  // so that products with it do not overflow
constexpr int64_t kMaxRows = 1 << 30;   // of Q and of K: positions are int32 in vectors

std::string ShapeRefusal(const SdpaShape& s) {
  if (s.batch < 0 || s.q_len < 0 || s.heads < 1 || s.kv_heads < 1 || s.heads > kMaxHeads)
    return "A size of the attention is negative, zero or beyond all models.";
  if (s.q_len > kMaxRows || s.k_len > kMaxRows) {
    return "The attention has " + std::to_string(s.q_len) + " queries and " + std::to_string(s.k_len) +
           " keys; the kernels take up to " + std::to_string(kMaxRows) + " of each.";
  }
  if (s.k_len < 1) return "The attention has no keys, so its softmax has no meaning.";
  if (s.heads % s.kv_heads != 0) {
    return "The " + std::to_string(s.heads) + " heads of Q are no multiple of the " + std::to_string(s.kv_heads) +
           " heads of K and V.";
  }
  if (s.head_size < 1 || s.head_size > kMaxHeadSize || s.v_head_size < 1 || s.v_head_size > kMaxHeadSize) {
    return "The head sizes are " + std::to_string(s.head_size) + " and " + std::to_string(s.v_head_size) +
           "; the attention kernels take 1 to " + std::to_string(kMaxHeadSize) + ".";
  }
  return "";
}

std::string QuantRefusal(const char* what, quant::DType type, float scale, int32_t zero_point) {
  if (!quant::IsInt8(type)) return std::string("The ") + what + " of an int8 attention must be u8 or s8.";
  const auto [lo, hi] = quant::RangeOf(type);
  if (zero_point < lo || zero_point > hi) return std::string("The zero point of ") + what + " is outside its type.";
  if (!(scale > 0.0f) || std::isinf(scale)) return std::string("The scale of ") + what + " is not a positive number.";
  return "";
}

std::string Fp8Refusal(const SdpaInt8Args& a) {
  if (a.HasSteps()) return "The scores of an fp8 attention pass through no codes and are not divided.";
  for (const quant::DType type : {a.q_type, a.k_type, a.v_type, a.p_type}) {
    if (!quant::IsFp8(type)) return "Q, K, V and the probabilities of an fp8 attention must all be fp8.";
  }
  if (a.o_type != quant::DType::kF32 && !quant::IsFp8(a.o_type)) return "An fp8 attention writes fp8 or f32.";
  for (const float scale : {a.q_scale, a.k_scale, a.v_scale, a.p_scale, a.o_scale}) {
    if (!(scale > 0.0f) || std::isinf(scale)) return "A scale of the fp8 attention is not a positive number.";
  }
  return "";
}

// Largest |q - zero_point|.
int64_t Span(quant::DType type, int32_t zero_point) {
  const auto [lo, hi] = quant::RangeOf(type);
  return std::max(hi - zero_point, zero_point - lo);
}

std::string VisibilityRefusal(const SdpaVisibility& v) {
  if (v.window.left < -1 || v.window.right < -1) return "The window of the attention is negative.";
  if (!(v.hidden_value < 0.0f)) return "The score of hidden keys is not negative.";
  return "";
}

template <typename Args>
void Heads(Arch arch, const Args& args, int64_t begin, int64_t end, void* packed, void* scratch) {
  const int64_t group = args.shape.heads / args.shape.kv_heads;
  for (int64_t i = begin; i < end; ++i) {
    const int64_t batch = i / args.shape.heads;
    const int64_t head = i % args.shape.heads;
    if (i == begin || head % group == 0) SdpaPack(arch, args, batch, head / group, packed);
    SdpaRows(arch, args, batch, head, 0, args.shape.q_len, packed, scratch);
  }
}

}  // namespace

std::string SdpaRefusal(const SdpaFloatArgs& args) {
  const std::string refusal = ShapeRefusal(args.shape);
  return refusal.empty() ? VisibilityRefusal(args.visibility) : refusal;
}

std::string SdpaRefusal(const SdpaInt8Args& args) {
  std::string refusal = ShapeRefusal(args.shape);
  if (refusal.empty()) refusal = VisibilityRefusal(args.visibility);
  if (quant::IsFp8(args.q_type)) return refusal.empty() ? Fp8Refusal(args) : refusal;
  if (refusal.empty()) refusal = QuantRefusal("Q", args.q_type, args.q_scale, args.q_zero_point);
  if (refusal.empty()) refusal = QuantRefusal("K", args.k_type, args.k_scale, args.k_zero_point);
  if (refusal.empty()) refusal = QuantRefusal("V", args.v_type, args.v_scale, args.v_zero_point);
  if (refusal.empty()) refusal = QuantRefusal("the probabilities", args.p_type, args.p_scale, args.p_zero_point);
  if (refusal.empty() && args.o_type != quant::DType::kF32) {
    refusal = QuantRefusal("the output", args.o_type, args.o_scale, args.o_zero_point);
  }
  // Whatever the scale of scores is, they are what the graph says: 0, infinite or NaN then.
  for (const SdpaScoreCodes& codes : {args.product_codes, args.scaled_codes, args.masked_codes}) {
    if (refusal.empty() && codes.exist()) refusal = QuantRefusal("the scores", codes.type, 1.0f, codes.zero_point);
  }
  if (const SdpaScoreCodes& codes = args.prob_codes; refusal.empty() && codes.exist())
    refusal = QuantRefusal("the probabilities on the way", codes.type, codes.scale, codes.zero_point);
  if (refusal.empty() && args.p_relative) {
    if (args.p_zero_point != (args.p_type == quant::DType::kU8 ? 0 : -128))
      refusal = "The zero point of relative probabilities is not their lowest code.";
    if (args.prob_codes.exist()) refusal = "Relative probabilities do not pass through codes of their own.";
  }
  if (refusal.empty() && args.p_diffused) {
    const float codes = args.LargestCode();
    if (!args.p_relative || !(codes >= 1.0f && codes <= 255.0f) || args.p_scale != 1.0f / codes)
      refusal = "Diffused probabilities are relative ones with a scale of 1 / n, n from 1 to 255.";
  }
  if (!refusal.empty()) return refusal;
  if (args.shape.k_len > SdpaMostKeys(args)) {
    return "With " + std::to_string(args.shape.k_len) +
           " keys the int32 sum of probabilities times V could overflow; at most " +
           std::to_string(SdpaMostKeys(args)) + " are safe with these zero points, and flash takes any number.";
  }
  return "";
}

int64_t SdpaMostKeys(const SdpaInt8Args& args) {
  if (quant::IsFp8(args.q_type)) return std::numeric_limits<int64_t>::max();
  return INT32_MAX / (Span(args.p_type, args.p_zero_point) * Span(args.v_type, args.v_zero_point));
}

std::string SdpaFlashRefusal(const SdpaInt8Args& args) {
  if (quant::IsFp8(args.q_type)) return "int8 flash attention takes u8 and s8; fp8 has the exact form only.";
  SdpaInt8Args tile = args;  // the sums of one tile at a time
  if (args.shape.k_len <= kMaxRows) tile.shape.k_len = std::min(args.shape.k_len, kSdpaFlashKeys);
  tile.p_type = quant::DType::kU8, tile.p_scale = 1.0f / 255.0f, tile.p_zero_point = 0;
  tile.p_relative = tile.p_diffused = false, tile.prob_codes = {};
  return SdpaRefusal(tile);
}

void SdpaHeads(Arch arch, const SdpaFloatArgs& args, int64_t begin, int64_t end, void* packed, void* scratch) {
  Heads(arch, args, begin, end, packed, scratch);
}
void SdpaHeads(Arch arch, const SdpaInt8Args& args, int64_t begin, int64_t end, void* packed, void* scratch) {
  Heads(arch, args, begin, end, packed, scratch);
}

}  // namespace octavo::kernels
