#include <cmath>

#include "octavo/ir/gguf/gguf.h"
#include "octavo/ir/gguf/super_blocks.h"
#include "octavo/ir/names.h"
#include "octavo/quant/numeric/float16.h"

namespace octavo::ir::gguf {

namespace {

const uint8_t* RowOf(const TensorInfo& t, int64_t row, int64_t bytes) {
  return reinterpret_cast<const uint8_t*>(t.data.data()) + row * bytes;
}

void Read(const Form& form, const uint8_t* in, Block& out) {
  form.elements == 256 ? ReadSuperBlock(form.type, in, out) : ReadBlock(form.type, in, out);
}

// Row i of what is made is row order[i].
int64_t Source(std::span<const int64_t> order, int64_t row) {
  return order.empty() ? row : order[static_cast<size_t>(row)];
}

// A type without groups: its elements one after another.
void ReadFloats(const Form& form, const uint8_t* in, float* out) {
  switch (form.type) {
    case Type::kF32:
      std::memcpy(out, in, 4);
      return;
    case Type::kF16:
      *out = Half(in);
      return;
    case Type::kBF16:
      *out = quant::BF16ToF32(static_cast<uint16_t>(in[0] | in[1] << 8));
      return;
    default:
      break;
  }
  // Q4_1, Q5_1: code * d + m
  const bool five = form.type == Type::kQ5_1;
  const float d = Half(in), m = Half(in + 2);
  const uint8_t* q = in + (five ? 8 : 4);
  for (int k = 0; k < 32; ++k) {
    const int high = five ? in[4 + k / 8] >> (k % 8) & 1 : 0;
    out[k] = static_cast<float>((q[k % 16] >> (k / 16 * 4) & 15) | high << 4) * d + m;
  }
}

// The row, block after block; f(index of the block, block).
template <typename F>
void EachBlock(const Form& form, const uint8_t* row, int64_t k, F&& f) {
  Block block;
  for (int64_t b = 0; b < k / form.elements; ++b) {
    Read(form, row + b * form.bytes, block);
    f(b, block);
  }
}

std::unexpected<Error> NotFinite(const TensorInfo& t) {
  return ir::Fail(
      "weights: the tensor {} has a scale or a value that is not finite: the file is damaged, fetch it again",
      Quoted(t.name));
}

bool AllFinite(const Tensor& t) {
  for (const float v : t.as<float>()) {
    if (!std::isfinite(v)) return false;
  }
  return true;
}

}  // namespace

Result<Blocks> BlocksOf(const TensorInfo& tensor, std::span<const int64_t> order, bool whole_bytes) {
  const Form& form = *FormOf(tensor.type);
  const int64_t rows = tensor.shape[0], k = tensor.shape[1];
  const bool packed = !whole_bytes && quant::BitsOf(form.codes) == 4;
  Blocks out;
  out.group = form.group;
  out.codes = Tensor::Empty(packed ? form.codes : DType::kS8, {rows, k});
  out.scale = Tensor::Empty(DType::kF32, {rows, k / form.group});
  if (form.mins) {
    out.min_codes = Tensor::Empty(DType::kS8, {rows, k / 16});
    out.min_scales = Tensor::Empty(DType::kF32, {rows, k / 256});
  }
  for (int64_t row = 0; row < rows; ++row) {
    const uint8_t* in = RowOf(tensor, Source(order, row), k / form.elements * form.bytes);
    EachBlock(form, in, k, [&](int64_t b, const Block& block) {
      const auto at = static_cast<size_t>(row * k + b * form.elements), n = static_cast<size_t>(form.elements);
      if (packed) {
        uint8_t* to = out.codes.mutable_as<uint8_t>().data() + at / 2;
        for (size_t i = 0; i < n; i += 2)
          to[i / 2] = static_cast<uint8_t>((block.codes[i] & 15) | (block.codes[i + 1] & 15) << 4);
      } else {
        std::memcpy(out.codes.mutable_as<int8_t>().data() + at, block.codes, n);
      }
      const auto group = static_cast<size_t>(form.group);
      std::memcpy(out.scale.mutable_as<float>().data() + at / group, block.scales, n / group * sizeof(float));
      if (!form.mins) return;
      std::memcpy(out.min_codes.mutable_as<int8_t>().data() + at / 16, block.mins, 16);
      out.min_scales.mutable_as<float>()[at / 256] = -block.min_scale;
    });
  }
  if (!AllFinite(out.scale) || (form.mins && !AllFinite(out.min_scales))) return NotFinite(tensor);
  return out;
}

Result<Tensor> FloatsOf(const TensorInfo& tensor, std::span<const int64_t> order) {
  const Form& form = *FormOf(tensor.type);
  const int64_t k = tensor.shape.empty() ? 1 : tensor.shape.back(), rows = ElementCount(tensor.shape) / k;
  Tensor out = Tensor::Empty(DType::kF32, tensor.shape);
  for (int64_t row = 0; row < rows; ++row) {
    const uint8_t* in = RowOf(tensor, Source(order, row), k / form.elements * form.bytes);
    float* to = out.mutable_as<float>().data() + row * k;
    if (form.group == 0) {
      for (int64_t b = 0; b < k / form.elements; ++b) ReadFloats(form, in + b * form.bytes, to + b * form.elements);
      continue;
    }
    EachBlock(form, in, k, [&](int64_t b, const Block& block) {
      for (int64_t i = 0; i < form.elements; ++i) {
        const float product = static_cast<float>(block.codes[i]) * block.scales[i / form.group];
        to[b * form.elements + i] =
            form.mins ? product - static_cast<float>(block.mins[i / 16]) * block.min_scale : product;
      }
    });
  }
  if (!AllFinite(out)) return NotFinite(tensor);
  return out;
}

}  // namespace octavo::ir::gguf
