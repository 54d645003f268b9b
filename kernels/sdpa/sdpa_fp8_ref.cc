// The truth of fp8 attention, one output at a time.
#include "octavo/kernels/fp8/fp8.h"
#include "octavo/kernels/sdpa/sdpa_ref.h"
#include "octavo/quant/numeric/code8.h"

namespace octavo::kernels::internal {
namespace {

int64_t Offset(const SdpaStrides& strides, int64_t batch, int64_t head, int64_t row) {
  return batch * strides.batch + head * strides.head + row * strides.row;
}

struct Values {
  const uint8_t* codes;
  const std::array<float, 256>& of;
  float operator[](int64_t i) const { return of[codes[i]]; }
};
Values ValuesOf(const void* data, quant::DType type) { return {static_cast<const uint8_t*>(data), Fp8Values(type)}; }

}  // namespace

void SdpaFp8Reference(const SdpaInt8Args& args, int64_t batch, int64_t head, int64_t begin, int64_t end, float* row) {
  const SdpaShape& shape = args.shape;
  const int64_t kv_head = head / (shape.heads / shape.kv_heads);
  const Values q = ValuesOf(args.q, args.q_type), k = ValuesOf(args.k, args.k_type), v = ValuesOf(args.v, args.v_type);
  const auto& of_p = Fp8Values(args.p_type);
  const float score_scale = args.q_scale * args.k_scale, value_scale = args.p_scale * args.v_scale;
  for (int64_t i = begin; i < end; ++i) {
    const int64_t at_q = Offset(args.q_strides, batch, head, i);
    const int64_t at_o = Offset(args.o_strides, batch, head, i);
    for (int64_t j = 0; j < shape.k_len; ++j) {
      const int64_t at_k = Offset(args.k_strides, batch, kv_head, j);
      float acc = 0.0f;
      for (int64_t d = 0; d < shape.head_size; ++d) acc += q[at_q + d] * k[at_k + d];
      row[j] = acc * score_scale;
    }
    SdpaProbabilities(args, batch, head, i, row);
    for (int64_t j = 0; j < shape.k_len; ++j) row[j] = of_p[quant::QuantizeFp8One(row[j], args.p_scale, args.p_type)];
    for (int64_t c = 0; c < shape.v_head_size; ++c) {
      float acc = 0.0f;
      for (int64_t j = 0; j < shape.k_len; ++j) acc += row[j] * v[Offset(args.v_strides, batch, kv_head, j) + c];
      const float y = acc * value_scale;
      if (args.o_type == quant::DType::kF32) {
        static_cast<float*>(args.o)[at_o + c] = y;
      } else {
        static_cast<uint8_t*>(args.o)[at_o + c] = quant::QuantizeFp8One(y, args.o_scale, args.o_type);
      }
    }
  }
}

}  // namespace octavo::kernels::internal
