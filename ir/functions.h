// The bodies of octavo's own ops: standard ONNX ops that say what the op means. One mechanism serves four users: the
// interpreter runs the body, export writes it as a model-local function, the quantizer expands it, tests compare with it.
//
//  Sdpa (float)   q [B,Sq,H*D] or [B,H,Sq,D], k [B,Sk,G*D] or [B,G,Sk,D], v like k with Dv, mask f32 broadcastable to
//                 [B,H,Sq,Sk] (optional), keep bool broadcastable to the same (optional; false: the key is hidden), slopes
//                 f32 [H] (optional: scores += slope * (key - query - offset) + mask)  ->  [B,Sq,H*Dv] (out_rank 3) or [B,H,Sq,Dv] (out_rank 4)
//                 attributes: num_heads (H), kv_num_heads (G, divides H), head_dim (D), v_head_dim (Dv), q_rank, k_rank,
//                 v_rank, out_rank (3 or 4),
//                 scale (float; scores = (q k^T) * scale; exactly 1.0: no multiply), softcap (float; scores =
//                 tanh(scores / softcap) * softcap before the mask; 0: none), nan_guard (1: NaN probabilities become 0; 2: those of rows
//                 whose scores are all -inf, as in ONNX's Attention, and other NaN stay),
//                 window_left, window_right (query i sees the keys i + offset - left to i + offset + right; -1: no bound;
//                 causal: window_right = 0), bottom_right (1: offset = Sk - Sq, else 0), hidden_value (float, default
//                 -inf: the score of hidden keys), flash (1: the kernel sums over tiles of keys, in memory that does
//                 not grow with them; Sdpa: differs from the body by rounding)
//  QuantizedSdpa       q k v (u8/s8) | q_scale q_zp k_scale k_zp v_scale v_zp | p_scale p_zp | [o_scale] [o_zp] | [mask]
//                 input order: q k v q_scale q_zp k_scale k_zp v_scale v_zp p_scale p_zp o_scale o_zp mask keep slopes
//                 product_scale product_zp scaled_scale scaled_zp masked_scale masked_zp prob_scale prob_zp
//                 (o_* absent: output f32; mask absent: none). Attributes as Sdpa. Scales f32 scalars, zero points
//                 scalars of the operand's dtype; p is u8 or s8. The last four pairs, u8 or s8, each optional: scores are
//                 quantized and dequantized behind the product, the scale, the mask and slopes, probabilities behind the guard,
//                 before p. attribute divisor (float; scores are divided by it behind the scale; 0: not). Neither with fp8 or flash
//                 product_step, p_step (floats, 0: the scale): what a code behind the product, and one of P, stands for when it is
//                 dequantized, so that scales can say how QLinearMatMul rounds. Not with fp8, flash or p_relative
//                 p_relative = 1 (u8 and s8, not with flash): P is not Softmax but e = Exp(s - its row's maximum), so that codes are
//                 relative to the largest of the row, and o is divided by the sum of the row's codes
//                 p_relative = 2: and what rounding leaves of a code goes to the sixteenth key behind it, so that a tail of keys below
//                 half a code keeps its weight; p_scale is 1 / n with n from 1 to 255, p_zp the lowest code (kernels/sdpa/sdpa.h)
//                 flash = 1 (u8 and s8; fp8 stays exact): P is not quantized by the graph's numbers. p_scale and p_zp stand where they
//                 stood and nothing reads them, so that without the attribute the node is exact again. The body has float P; the
//                 kernel rounds it to codes relative to the running maximum and is off by at most
//                 (sum_j C_j |v_j - y|) / (2 l) <= k_len / (2 l) times the spread of v, l >= 255 (kernels/sdpa/sdpa.h), before
//                 the output is quantized
//  QuantizedLinear     x x_scale x_zp w w_scale [bias] [y_scale] [y_zp] [post_scale] [residual]: x u8/s8 [...,K], w s8 [K,N] symmetric,
//                 w_scale f32 [N] (or scalar), bias f32 [N], y_* absent: output f32. post_scale f32 [N]
//                 multiplies after the activation (smoothing of the next Linear's input). residual f32, of the shape of y, is added after
//                 that. attribute activation: "none", "relu", "gelu" (erf), "gelu_tanh", "silu", "sigmoid", "tanh", "quick_gelu"
//                 w_step u4 [ceil(K/16),N] and w_zero u4 of the same shape (absent: 0): w is u4 [K,N], and its codes are w_step * (w - w_zero) of
//                 16 rows each, in -128..127: the same product with weights of 4 bits
//                 attribute per_token = 1: x is u8, x_scale f32 and x_zp u8 are [...,1], one a row of x (QuantizeTokens makes
//                 them), and the product is float(integer sum) * (x_scale * w_scale)
//  QuantizeTokens x f32 [...,K] finite -> u8 [...,K], scale f32 [...,1], zero point u8 [...,1]: a row of lo <= 0 <= hi has
//                 scale max(hi / 255 - lo / 255, 2^-100) and zero point rne(-lo / scale); of a row with a NaN the scale is NaN
//  LinearBlocked  x w w_scale [w_zp] [bias]: x f32 [...,K], w u4/s4/u8/s8 with one scale and zero point a block of
//                 block_size along K: [K,N] with [blocks,N], or with transposed = 1 [N,K] with [N,blocks]; bias f32 [N].
//                 Float: the fused kernel scales sums of blocks, the body weights, so they differ by rounding.
//                 attribute x_bits = 8: each block of a row of x (finite) is rounded to codes of 8 bits on the way, c = rne(x / s) with
//                 s = max(max|x| / 127, 2^-100); the kernel multiplies the codes. 0: x is taken as it is
//  QuantizedQkv        x x_scale x_zp then per branch: w w_scale [bias] [y_scale] [y_zp]; one output per branch, 2..8 branches; per_token
//  SkipLayerNorm  x skip gamma [beta], attributes epsilon, rms -> LayerNormalization(x + skip, axis -1), [x + skip]; with
//                 rms = 1 RMSNormalization, without beta
//  NormQuant      x [skip] gamma [beta] q_scale q_zp [q_gamma] [q_beta] [q_index] -> y f32 (optional output), quantized y (u8, s8 or fp8),
//                 [x + skip]. With q_gamma the quantized output has its own gamma and beta; q_index s64 [m]: its columns are these of them.
//                 Attributes as SkipLayerNorm.
//  CacheAppend    past [B,H,P,D], now [B,H,S,D] of the same type, before s64 [B], rows s64 scalar -> [B,H,rows,D]: of each batch entry b the
//                 first before[b] rows of past, then those of now, then zeros. before is at most P here, whatever it says; where it is
//                 negative, so many of the first rows of now are left out
//  Lookup         x table: x u8 or s8, table u8 or s8 [256] -> table[x], of the shape of x; negative x count from its end, so that the
//                 index is the byte of x
#ifndef OCTAVO_IR_FUNCTIONS_H_
#define OCTAVO_IR_FUNCTIONS_H_

#include <span>
#include <string>
#include <variant>
#include <vector>

#include "octavo/ir/graph.h"

namespace octavo::ir {

inline constexpr int64_t kSdpaGuardMasked = 2;  // nan_guard
inline constexpr int64_t kSdpaDiffused = 2;     // p_relative
inline constexpr int64_t kRowsOfStep = 16;      // of a QuantizedLinear's w_step
// Slots of QuantizedSdpa: the scales of the codes on the way; each zero point stands behind its scale.
inline constexpr size_t kSdpaProductCodes = 16, kSdpaScaledCodes = 18, kSdpaMaskedCodes = 20, kSdpaProbCodes = 22;

// Whether scores or probabilities of an QuantizedSdpa pass through codes on their way, scores are divided, or codes of P have a step.
bool HasScoreSteps(const Node& node);

// Op belongs to octavo's own domain and has a body.
bool HasBody(Op op);
// SkipLayerNorm and NormQuant: norms of what may be a sum, which is input 0 and, where it is there, input 1.
bool IsSkipNorm(Op op);
std::vector<Op> FusedOps();  // all of them

// Every attribute that a node with a body may have, with an empty value of its kind: a runtime that can only ask for attributes by name
// asks for these.
struct FusedAttr {
  const char* name;
  std::variant<int64_t, float, std::string> kind;
};
std::span<const FusedAttr> FusedAttrs();

// A graph whose inputs are the node's present inputs in order (same names "i0", "i1", ... by slot) and whose outputs
// are the node's outputs "o0", "o1", ... It uses standard ops of opset 18 only (with weights of 4 bits: 21). Ranks and dtypes of the inputs come from
// `inputs` (types of the actual inputs; dtype and, for Sdpa, the attributes suffice).
Result<Graph> BodyOf(const Graph& graph, const Node& node);

// Replaces the node by its body, in place, with provenance "pass:expand".
Status Expand(Graph& graph, NodeId node);

}  // namespace octavo::ir

#endif  // OCTAVO_IR_FUNCTIONS_H_
