// Attention of one layer: softmax(q k^T * scale + mask) v, per batch and head, float32 or int8 (exact mode: the
// probabilities are quantized where the graph says so). Bit-identical on every Arch, except that fp8 on AMX
// adds products in another order (tile/amx.h), within the same bound of the exact sums.
//
// int8, for one query row i and head h, with the kv head h / (heads / kv_heads):
//   acc_j = sum_d (q - q_zp)(k_j - k_zp)                  exact int32
//   s_j   = float(acc_j) * (q_scale * k_scale);  product_codes
//           scale != 1: s_j = s_j * scale;  divisor != 0: s_j = s_j / divisor;  scaled_codes
//           softcap != 0: s_j = quant::Tanh(s_j / softcap) * softcap
//           mask, alibi: s_j = s_j + (slope_h * float(j - i - offset) + mask_j), as far as there;  masked_codes
//           hidden by the window or the bool mask: s_j = hidden_value
//           (*_codes, where there are any: x = float(QuantizeOne(x, scale, zp) - zp) * back())
//   prob  = quant::SoftmaxRow(s);  guard (SdpaGuard);  prob_codes
//   p_j   = quant::QuantizeOne(prob_j, p_scale, p_zp)
//   o_c   = float(sum_j (p_j - p_zp)(v_jc - v_zp)) * ValueScale(), then as it is or QuantizeOne(o_scale, o_zp)
// p_relative: codes of exponentials instead of probabilities, so relative to the largest of the row, and their own sum divides:
//   e_j   = quant::Exp(s_j - RowMax(s));  p_j = quant::QuantizeOne(e_j, p_scale, p_zp), all p_zp where the sum of e_j is no number
//   l     = float(max(1, sum_j (p_j - p_zp)));  o_c = (float(sum_j (p_j - p_zp)(v_jc - v_zp)) * v_scale) / l, then as above
//   Flat rows keep their codes, where those of probabilities with scale 1/255 lose all beyond 510 keys; the weights sum to 1.
// p_diffused, with p_relative and p_scale = 1 / n: what rounding leaves of a key goes to the sixteenth key behind it, so that a tail of keys below half a
//   code keeps its weight: c = rest_(j mod 16) + the integer nearest to float(e_j * (256 n)), each rest 128 at first;
//   p_j = p_zp + c div 256, and the rest is c mod 256. All p_zp where the sum of e_j is no number; l as above.
// fp8 (all of q, k, v, p fp8, each E4M3FN or E5M2; o fp8 or float): acc_j and the sum over j are floats, products added one after
//   the other from 0 in order of d and of j (exact products: with or without FMA), p_j = quant::QuantizeFp8One(prob_j, p_scale).
// float: acc_j = fma over d in order from 0; s, softmax and guard as above; o_c = fma(prob_j, v_jc, o_c) over j in
// order, then + 0 where there is a window or a bool mask.
//
// Keys that the window (in SdpaDecode also the bool mask) hides from all rows of a block are neither multiplied nor looked at. That changes no bit: their
// probability is exactly 0. A block with a row where it is not (nothing but hidden keys, or a NaN) takes all keys.
// float and fp8: the products 0 * v of hidden keys are left out, so an infinite v there may or may not make the output NaN. And a
// NaN in a hidden row of K is hidden too, as in a graph that selects (Where); one that adds -inf makes the row NaN.
#ifndef OCTAVO_KERNELS_SDPA_SDPA_H_
#define OCTAVO_KERNELS_SDPA_SDPA_H_

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>

#include "octavo/kernels/arch/arch.h"
#include "octavo/kernels/tile/tile.h"
#include "octavo/quant/numeric/dtype.h"

namespace octavo::kernels {

struct SdpaShape {
  int64_t batch = 1;
  int64_t heads = 1;
  int64_t kv_heads = 1;  // divides heads
  int64_t q_len = 1;
  int64_t k_len = 1;
  int64_t head_size = 1;    // of q and k, 1..1024
  int64_t v_head_size = 1;  // of v and the output, 1..1024
};

// In elements. The elements of a head are contiguous. [B,S,H*D]: {S*H*D, D, H*D}; [B,H,S,D]: {H*S*D, S*D, D}.
struct SdpaStrides {
  int64_t batch = 0;
  int64_t head = 0;
  int64_t row = 0;
};

// Added to the scores. Strides in elements, 0 where broadcast; `col` is 0 or 1.
struct SdpaMask {
  const float* data = nullptr;  // null: none
  int64_t batch = 0;
  int64_t head = 0;
  int64_t row = 0;
  int64_t col = 1;
};

// Query i sees the keys from i + offset - left to i + offset + right; -1: no bound on that side. Causal: right = 0.
struct SdpaWindow {
  int64_t left = -1;
  int64_t right = -1;
  bool bottom_right = false;  // adds k_len - q_len to offset: the last query is at the last key
  int64_t offset = 0;         // where query 0 stands among the keys
};

// One byte a key, 0: hidden. Strides as SdpaMask.
struct SdpaBoolMask {
  const uint8_t* data = nullptr;  // null: none
  int64_t batch = 0;
  int64_t head = 0;
  int64_t row = 0;
  int64_t col = 1;
};

// What decides beside the scores which keys count, and how much.
struct SdpaVisibility {
  SdpaWindow window;
  SdpaBoolMask keep;
  float hidden_value = -std::numeric_limits<float>::infinity();  // the score of a hidden key
  const float* alibi = nullptr;  // a slope for each head of Q; null: none. `offset` as the window's
};

// Rows without meaning. A NaN in Q or K, or two infinities, make scores and so the probabilities of a row NaN; so does a row that is
// masked wholly, whose scores are all -inf.
enum class SdpaGuard : uint8_t {
  kNone,    // they stay NaN, as Softmax has it
  kNan,     // all NaN become 0: a graph that says Where(IsNaN(p), 0, p)
  kMasked,  // rows of nothing but -inf become 0, all other NaN stay: ONNX's Attention
};

// Where the keys of an operand lie that lies in many places, some of which other sequences share: a table has a place for each kSdpaPlaceKeys
// keys, the last for what is left.
inline constexpr int64_t kSdpaPlaceKeys = 64;
struct SdpaPlace {
  const float* data = nullptr;  // of the first of them
  SdpaStrides strides;
};

struct SdpaFloatArgs {
  SdpaShape shape;
  const float* q = nullptr;
  const float* k = nullptr;
  const float* v = nullptr;
  float* o = nullptr;
  // SdpaDecode and SdpaSplitKv: rows of codes (quant/numeric/coded_row.h) with strides in bytes. The bits are those of their values.
  int k_bits = 0, v_bits = 0;                                // of a code; 0: floats
  const SdpaPlace *k_places = nullptr, *v_places = nullptr;  // the same; null: k and v with their strides
  SdpaStrides q_strides, k_strides, v_strides, o_strides;
  SdpaMask mask;
  SdpaVisibility visibility;
  float scale = 1.0f;    // exactly 1: no multiply
  float softcap = 0.0f;  // s = Tanh(s / softcap) * softcap before the mask; exactly 0: not capped
  SdpaGuard guard = SdpaGuard::kNone;
};

// Scores, or probabilities, that pass through codes of 8 bits between two steps.
struct SdpaScoreCodes {
  quant::DType type = quant::DType::kF32;  // kU8 or kS8; kF32: they do not
  float scale = 1.0f;
  int32_t zero_point = 0;
  float step = 0.0f;  // what a code stands for on the way back; 0: scale

  float back() const { return step != 0.0f ? step : scale; }
  bool exist() const { return type != quant::DType::kF32; }
};

struct SdpaInt8Args {
  SdpaShape shape;
  const void* q = nullptr;
  const void* k = nullptr;
  const void* v = nullptr;
  void* o = nullptr;
  SdpaStrides q_strides, k_strides, v_strides, o_strides;
  SdpaMask mask;
  SdpaVisibility visibility;
  float scale = 1.0f;
  float softcap = 0.0f;  // s = Tanh(s / softcap) * softcap before the mask; exactly 0: not capped
  SdpaGuard guard = SdpaGuard::kNone;
  // kU8 or kS8; the output also kF32 (then o_scale and o_zero_point are not used). Or all fp8, which has no zero points.
  quant::DType q_type = quant::DType::kU8, k_type = quant::DType::kU8, v_type = quant::DType::kU8,
               p_type = quant::DType::kU8, o_type = quant::DType::kF32;
  float q_scale = 1.0f, k_scale = 1.0f, v_scale = 1.0f, p_scale = 1.0f, o_scale = 1.0f;
  int32_t q_zero_point = 0, k_zero_point = 0, v_zero_point = 0, p_zero_point = 0, o_zero_point = 0;
  bool bf16_pairs = GainsByBf16Pairs(DetectedFeatures());  // fp8: vdpbf16ps may be used (fp8.h); it changes no bit
  // Steps on the way from the product to p: not for fp8 and SdpaDecode; SdpaFlash has all but prob_codes.
  SdpaScoreCodes product_codes, scaled_codes, masked_codes, prob_codes;
  float divisor = 0.0f;  // s = s / divisor behind the scale; exactly 0: not divided
  // What a code of P stands for in the second product; 0: p_scale. With it, and the step of product_codes, products round as QLinearMatMul does.
  // Not for fp8, flash and p_relative.
  float p_step = 0.0f;
  // Codes relative to the row's largest probability; p_zero_point is the lowest code, and there are no prob_codes. Not for fp8; those of
  // SdpaFlash always are.
  bool p_relative = false;
  // With p_relative: rests of codes go to later keys. SdpaFlash has none.
  bool p_diffused = false;

  float ValueScale() const { return p_relative ? v_scale : (p_step != 0.0f ? p_step : p_scale) * v_scale; }
  // p_diffused: the code of the largest of a row.
  float LargestCode() const { return std::nearbyint(1.0f / p_scale); }
  bool HasScoreSteps() const {
    return product_codes.exist() || scaled_codes.exist() || masked_codes.exist() || divisor != 0.0f;
  }
  bool HasSteps() const { return HasScoreSteps() || prob_codes.exist(); }
};

// Empty: can run on every Arch. Otherwise one sentence with the reason: sizes out of range, kv_heads that do not divide
// heads, more keys than SdpaMostKeys, a zero point outside its type, a scale that is not a positive number.
std::string SdpaRefusal(const SdpaFloatArgs& args);
std::string SdpaRefusal(const SdpaInt8Args& args);

// The most keys for which int32 holds every sum (p - p_zp)(v - v_zp): 33,025 at worst, 65,793 with p_zp the lowest code and v_zp in the
// middle. Beyond them SdpaFlash serves what the graph says, within its bound but not with the exact form's bits; there codes of
// probabilities, which would all be 0 in flat rows, are left out. fp8 and float sums are floats and have no such limit.
int64_t SdpaMostKeys(const SdpaInt8Args& args);

// The work is done in two steps, so that the caller can split it among threads. Pack brings K and V of one (batch, kv
// head) into the order that the kernel reads; it is shared by all heads of the group and all their rows. Rows computes
// the query rows [begin, end) of one (batch, head). Scratch belongs to one thread. Both buffers are 64-byte aligned and
// need not be cleared. Bytes may be 0.
Tile SdpaTile(Arch arch, const SdpaFloatArgs& args);  // how threads split rows
Tile SdpaTile(Arch arch, const SdpaInt8Args& args);
size_t SdpaPackedBytes(Arch arch, const SdpaFloatArgs& args);
size_t SdpaPackedBytes(Arch arch, const SdpaInt8Args& args);
size_t SdpaScratchBytes(Arch arch, const SdpaFloatArgs& args);
size_t SdpaScratchBytes(Arch arch, const SdpaInt8Args& args);
void SdpaPack(Arch arch, const SdpaFloatArgs& args, int64_t batch, int64_t kv_head, void* packed);
void SdpaPack(Arch arch, const SdpaInt8Args& args, int64_t batch, int64_t kv_head, void* packed);
void SdpaRows(Arch arch, const SdpaFloatArgs& args, int64_t batch, int64_t head, int64_t begin, int64_t end,
              const void* packed, void* scratch);
void SdpaRows(Arch arch, const SdpaInt8Args& args, int64_t batch, int64_t head, int64_t begin, int64_t end,
              const void* packed, void* scratch);

// Both steps for the flat heads [begin, end) of batch * heads, all rows; K and V are packed when the group changes.
// `packed` and `scratch` belong to this call.
void SdpaHeads(Arch arch, const SdpaFloatArgs& args, int64_t begin, int64_t end, void* packed, void* scratch);
void SdpaHeads(Arch arch, const SdpaInt8Args& args, int64_t begin, int64_t end, void* packed, void* scratch);

// Few query rows against many keys (decoding): all rows of all heads that share one kv head. K and V are read where they lie and
// are not packed before. The bits of SdpaRows. Float: K and V come from memory once, scratch grows with group * q_len * k_len;
// int8: once for each kSdpaDecodeRows rows, and not for fp8 operands or HasSteps().
inline constexpr int64_t kSdpaDecodeRows = 8;
size_t SdpaDecodeScratchBytes(Arch arch, const SdpaFloatArgs& args);
size_t SdpaDecodeScratchBytes(Arch arch, const SdpaInt8Args& args);
void SdpaDecode(Arch arch, const SdpaFloatArgs& args, int64_t batch, int64_t kv_head, void* scratch);
void SdpaDecode(Arch arch, const SdpaInt8Args& args, int64_t batch, int64_t kv_head, void* scratch);

// The same, and the same bits, by several threads for one kv head (split-KV): the steps 0 to kSplitKvSteps - 1 one after the other, in
// each of them the parts 0 to parts - 1, in any order and at once. `shared` (64-byte aligned, need not be cleared) belongs to the
// (batch, kv head), scratch (SdpaDecodeScratchBytes) to one thread. int8: at most kSdpaDecodeRows rows of all heads.
inline constexpr int kSplitKvSteps = 4;
struct SplitKvPart {
  int step = 0;
  int64_t part = 0, parts = 1;
};
size_t SdpaSplitKvBytes(Arch arch, const SdpaFloatArgs& args, int64_t parts);
size_t SdpaSplitKvBytes(Arch arch, const SdpaInt8Args& args, int64_t parts);
void SdpaSplitKv(Arch arch, const SdpaFloatArgs& args, int64_t batch, int64_t kv_head, const SplitKvPart& part,
                 void* shared, void* scratch);
void SdpaSplitKv(Arch arch, const SdpaInt8Args& args, int64_t batch, int64_t kv_head, const SplitKvPart& part,
                 void* shared, void* scratch);

// Flash: rows [begin, end) of one (batch, head) over tiles of kSdpaFlashKeys keys with a running maximum m and sum l. K and V
// are read where they lie, and scratch does not grow with the keys. For each tile with the scores s (as above) of a row:
//   m' = max(m, max s);  c = Exp(m - m');  e_j = Exp(s_j - m');  l = l * c + sum e_j;  o = o * c + (fma of e_j, v_j in order)
// and in the end o / l. Bit-identical on every Arch, but not the exact mode's bits: where that divides before it adds V, this
// does after, and every new maximum rounds o and l once more (one tile in kSdpaFlashKeys keys: at most 2^-23 of o each).
inline constexpr int64_t kSdpaFlashKeys = 512;
Tile SdpaFlashTile(Arch arch, const SdpaFloatArgs& args);
Tile SdpaFlashTile(Arch arch, const SdpaInt8Args& args);
size_t SdpaFlashScratchBytes(Arch arch, const SdpaFloatArgs& args, int64_t rows);
void SdpaFlash(Arch arch, const SdpaFloatArgs& args, int64_t batch, int64_t head, int64_t begin, int64_t end,
               void* scratch);

// int8 flash (integers, not fp8): p_type, p_scale, p_zero_point, p_relative and prob_codes are not used, since the codes of P are
// relative to the running maximum, u8 with zero point 0. For each tile, with the scores s of the exact int8 form and m', c, e as above:
//   p_j = the integer nearest to e_j * 255 (exact product, half to even);  l = l * c + float(sum p_j), NaN if an e_j is NaN
//   o_c = o_c * c + float(sum_j p_j (v_jc - v_zp))
// and in the end y = (o_c / l) * v_scale, then as it is or QuantizeOne(o_scale, o_zp). A row without meaning is what the guard says.
// Against attention of the dequantized q, k and v with real numbers, beside the roundings of the scores (1 + eps in each e_j) and of
// the last quantization:
//   |y_c - exact| <= (sum_j C_j |x_jc - exact|) / (2 l),  x the dequantized v, C_j = exp(m of j's tile - last m) <= 1 and only keys
// that are not hidden: half a code for each key. l is at least 255, and about 255 * k_len / spread of P: flat rows keep their
// codes, where the exact mode with scale 1/255 loses all beyond 510 keys.
// Bit-identical on every Arch. Up to 384 rows share a packed tile; scratch grows neither with keys nor with more rows than that.
std::string SdpaFlashRefusal(const SdpaInt8Args& args);  // as SdpaRefusal; every number of keys is safe
size_t SdpaFlashScratchBytes(Arch arch, const SdpaInt8Args& args, int64_t rows);
void SdpaFlash(Arch arch, const SdpaInt8Args& args, int64_t batch, int64_t head, int64_t begin, int64_t end,
               void* scratch);

}  // namespace octavo::kernels

#endif  // OCTAVO_KERNELS_SDPA_SDPA_H_
