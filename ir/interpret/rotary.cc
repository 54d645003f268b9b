// RotaryEmbedding (opset 23): (cos*x1 - sin*x2, sin*x1 + cos*x2) on the first rotary_embedding_dim elements of each
// head.
#include "octavo/ir/interpret/call.h"
#include "octavo/ir/interpret/heads.h"
#include "octavo/ir/interpret/strided.h"
#include "octavo/ir/interpret/types.h"

namespace octavo::ir::interpret {

Result<Tensor> SplitHeads(const Tensor& x, int64_t heads, std::string_view what) {
  if (x.rank() == 4) return x;
  if (x.rank() != 3) return Fail("{} must have rank 3 or 4", what);
  if (quant::BitsOf(x.dtype()) < 8) return BadType(x.dtype());
  if (heads < 1 || x.shape()[2] % heads != 0)
    return Fail("{} heads do not divide the {} columns of {}", heads, x.shape()[2], what);
  const int64_t s = x.shape()[1], d = x.shape()[2] / heads;
  OCTAVO_TRY(Tensor y,
             Alloc(x.dtype(), {x.shape()[0], heads, s, d}));  // heads may be anything where there are no columns
  CopyStrided(x.data(), std::vector<int64_t>{s * heads * d, d, heads * d, 1}, y.mutable_data(), StridesOf(y.shape()),
              y.shape(), static_cast<size_t>(quant::BitsOf(x.dtype()) / 8));
  return y;
}

Tensor MergeHeads(const Tensor& x) {
  const int64_t h = x.shape()[1], s = x.shape()[2], d = x.shape()[3];
  const Shape shape = {x.shape()[0], s, h, d};
  Tensor y = Tensor::Empty(x.dtype(), shape);
  CopyStrided(x.data(), std::vector<int64_t>{h * s * d, d, s * d, 1}, y.mutable_data(), StridesOf(shape), shape,
              static_cast<size_t>(quant::BitsOf(x.dtype()) / 8));
  return y.Reshaped({shape[0], s, h * d});
}

namespace {

struct Rotation {
  int64_t batch, heads, length, dim, half;  // half of the rotated dims
  bool interleaved;
  std::vector<int64_t> rows;  // cache row of [batch, length]
};

// The cache is [max, half] with positions, else [batch or 1, length, half].
Status PlaceRows(const Call& call, Rotation& r) {
  const Tensor &cos = call.T(1), &sin = call.T(2);
  if (cos.shape() != sin.shape() || cos.dtype() != call.T(0).dtype() || sin.dtype() != cos.dtype()) {
    return Fail("the caches of cos and sin must have equal shapes and the operand's type");
  }
  const bool by_position = call.Has(3);
  ChargeWork(static_cast<size_t>(r.batch * r.length) * sizeof(int64_t));
  if (cos.rank() != (by_position ? 2 : 3) || cos.shape().back() != r.half) {
    return Fail("the caches must have rank {} and {} columns", by_position ? 2 : 3, r.half);
  }
  if (by_position) {
    const Tensor& positions = call.T(3);
    if (positions.rank() != 2 || (positions.shape()[0] != r.batch && positions.shape()[0] != 1) ||
        positions.shape()[1] != r.length) {
      return Fail("the positions must be [{},{}]", r.batch, r.length);
    }
    OCTAVO_TRY(const auto rows, IntsOf(positions, "the positions"));
    for (const int64_t row : rows) {  // -1 is no last row, as it is of Gather: ONNX Runtime refuses it, too
      if (row < 0 || row >= cos.shape()[0])
        return Fail("position {} is outside of caches of {} rows", row, cos.shape()[0]);
    }
    for (int64_t i = 0; i < r.batch * r.length; ++i) {
      r.rows.push_back(rows[static_cast<size_t>(i % positions.size())]);
    }
    return {};
  }
  if ((cos.shape()[0] != r.batch && cos.shape()[0] != 1) || cos.shape()[1] != r.length) {
    return Fail("the caches must be [{} or 1,{},{}]", r.batch, r.length, r.half);
  }
  for (int64_t i = 0; i < r.batch * r.length; ++i) r.rows.push_back(i % (cos.shape()[0] * r.length));
  return {};
}

template <typename T>
void Rotate(const Rotation& r, const Tensor& x, const Tensor& cos, const Tensor& sin, Tensor& y) {
  for (int64_t line = 0; line < r.batch * r.heads * r.length; ++line) {
    const int64_t b = line / (r.heads * r.length), s = line % r.length;
    const int64_t row = r.rows[static_cast<size_t>(b * r.length + s)];
    const T* c = Ptr<T>(cos) + row * r.half;
    const T* n = Ptr<T>(sin) + row * r.half;
    const T* in = Ptr<T>(x) + line * r.dim;
    T* out = MutablePtr<T>(y) + line * r.dim;
    for (int64_t i = 2 * r.half; i < r.dim; ++i) out[i] = in[i];
    for (int64_t i = 0; i < r.half; ++i) {
      const int64_t p = r.interleaved ? 2 * i : i, q = r.interleaved ? 2 * i + 1 : i + r.half;
      const auto x1 = Up(in[p]), x2 = Up(in[q]), co = Up(c[i]), si = Up(n[i]);
      out[p] = Down<T>(co * x1 - si * x2);
      out[q] = Down<T>(si * x1 + co * x2);
    }
  }
}

Status RotaryEmbedding(Call& call) {
  const bool three = call.T(0).rank() == 3;
  OCTAVO_TRY(const Tensor x, SplitHeads(call.T(0), call.Int("num_heads", 0), "the operand"));
  const Shape& s = x.shape();
  const int64_t wanted = call.Int("rotary_embedding_dim", 0);
  const int64_t rotated = wanted == 0 ? s[3] : wanted;
  if (rotated < 0 || rotated > s[3] || rotated % 2 != 0) return Fail("{} of {} dims cannot be rotated", rotated, s[3]);
  Rotation r{s[0], s[1], s[2], s[3], rotated / 2, call.Int("interleaved", 0) != 0, {}};
  OCTAVO_TRY_STATUS(PlaceRows(call, r));
  Tensor y = Tensor::Empty(x.dtype(), s);
  OCTAVO_TRY_STATUS(ForFloats(x.dtype(), [&]<typename T>() -> Status {
    Rotate<T>(r, x, call.T(1), call.T(2), y);
    return {};
  }));
  call.Return(three ? MergeHeads(y) : std::move(y));
  return {};
}

}  // namespace

void RegisterRotary(Table& t) { t.Set(Op::kRotaryEmbedding, RotaryEmbedding); }

}  // namespace octavo::ir::interpret
