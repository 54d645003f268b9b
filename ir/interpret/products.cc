#include "octavo/ir/interpret/products.h"

#include <algorithm>

#include "octavo/ir/interpret/strided.h"
#include "octavo/ir/interpret/types.h"

// Wider vectors where the CPU has them; the bits are the same, because nothing is contracted or reordered. The
// sanitizers' runtimes are not up yet when the resolvers of the clones run.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(__SANITIZE_ADDRESS__) && \
    !defined(__SANITIZE_THREAD__)
#define OCTAVO_CLONES __attribute__((target_clones("default", "avx2", "avx512f")))
#else
#define OCTAVO_CLONES
#endif

namespace octavo::ir::interpret {

namespace {

// Four steps of k at once, still added one after the other. Blocks of k and n keep the part of b in use in the cache.
template <typename A, typename B, typename C>
[[gnu::always_inline]] inline void Multiply(const A* a, const B* b, C* c, int64_t m, int64_t k, int64_t n) {
  constexpr int64_t kDepth = 128, kWidth = 512;
  for (int64_t j0 = 0; j0 < n; j0 += kWidth) {
    const int64_t width = std::min(kWidth, n - j0);
    for (int64_t k0 = 0; k0 < k; k0 += kDepth) {
      const int64_t end = std::min(k, k0 + kDepth);
      for (int64_t i = 0; i < m; ++i) {
        C* __restrict y = c + i * n + j0;
        const A* x = a + i * k;
        int64_t p = k0;
        for (; p + 4 <= end; p += 4) {
          const C x0 = x[p], x1 = x[p + 1], x2 = x[p + 2], x3 = x[p + 3];
          const B* __restrict b0 = b + p * n + j0;
          const B* __restrict b1 = b0 + n;
          const B* __restrict b2 = b1 + n;
          const B* __restrict b3 = b2 + n;
          for (int64_t j = 0; j < width; ++j) {
            y[j] = (((y[j] + x0 * static_cast<C>(b0[j])) + x1 * static_cast<C>(b1[j])) + x2 * static_cast<C>(b2[j])) +
                   x3 * static_cast<C>(b3[j]);
          }
        }
        for (; p < end; ++p) {
          const C x0 = x[p];
          const B* __restrict b0 = b + p * n + j0;
          for (int64_t j = 0; j < width; ++j) y[j] = y[j] + x0 * static_cast<C>(b0[j]);
        }
      }
    }
  }
}

}  // namespace

OCTAVO_CLONES void MultiplyF32(const float* a, const float* b, float* c, int64_t m, int64_t k, int64_t n) {
  Multiply(a, b, c, m, k, n);
}
OCTAVO_CLONES void MultiplyF64(const double* a, const double* b, double* c, int64_t m, int64_t k, int64_t n) {
  Multiply(a, b, c, m, k, n);
}
OCTAVO_CLONES void MultiplyS16(const int16_t* a, const int16_t* b, int32_t* c, int64_t m, int64_t k, int64_t n) {
  Multiply(a, b, c, m, k, n);
}
void MultiplyS16Wide(const int16_t* a, const int16_t* b, int64_t* c, int64_t m, int64_t k, int64_t n) {
  Multiply(a, b, c, m, k, n);
}
void MultiplyU64(const uint64_t* a, const uint64_t* b, uint64_t* c, int64_t m, int64_t k, int64_t n) {
  Multiply(a, b, c, m, k, n);
}

Result<MatMulShape> MatMulShapeOf(const Shape& a_shape, const Shape& b_shape) {
  if (a_shape.empty() || b_shape.empty()) return Fail("a scalar cannot be multiplied as a matrix");
  Shape a = a_shape, b = b_shape;
  if (a.size() == 1) a.insert(a.begin(), 1);
  if (b.size() == 1) b.push_back(1);
  MatMulShape s;
  s.m = a[a.size() - 2];
  s.k = a.back();
  s.n = b.back();
  if (b[b.size() - 2] != s.k) return Fail("inner dims {} and {} differ", s.k, b[b.size() - 2]);
  const Shape a_outer(a.begin(), a.end() - 2), b_outer(b.begin(), b.end() - 2);
  OCTAVO_TRY(s.result, BroadcastShapes(a_outer, b_outer));
  OCTAVO_TRY_STATUS(CheckShape(DType::kS64, s.result));
  const auto a_steps = BroadcastStrides(a_outer, s.result), b_steps = BroadcastStrides(b_outer, s.result);
  std::vector<int64_t> index(s.result.size(), 0);
  const int64_t batches = s.m == 0 || s.n == 0 ? 0 : ElementCount(s.result);  // none where nothing is computed
  ChargeWork(2 * static_cast<size_t>(batches) * sizeof(int64_t));
  int64_t at_a = 0, at_b = 0;
  for (int64_t i = 0; i < batches; ++i) {
    s.a_batch.push_back(at_a);
    s.b_batch.push_back(at_b);
    for (size_t d = index.size(); d-- > 0;) {
      at_a += a_steps[d];
      at_b += b_steps[d];
      if (++index[d] < s.result[d]) break;
      at_a -= a_steps[d] * s.result[d];
      at_b -= b_steps[d] * s.result[d];
      index[d] = 0;
    }
  }
  // One matrix b for all batches: the batches of a are more rows.
  if (batches > 1 && std::all_of(s.b_batch.begin(), s.b_batch.end(), [](int64_t v) { return v == 0; }) &&
      s.a_batch.back() == batches - 1) {
    s.m *= batches;
    s.a_batch = s.b_batch = {0};
  }
  if (a_shape.size() > 1) s.result.push_back(a[a.size() - 2]);
  if (b_shape.size() > 1) s.result.push_back(s.n);
  return s;
}

Result<std::vector<int16_t>> CenteredBy(const Tensor& q, const Tensor& zero) {
  if (!quant::IsInt8(q.dtype())) return BadType(q.dtype());
  if (zero.dtype() != q.dtype()) return Fail("the zero point {} has another type than {}", Describe(zero), Describe(q));
  OCTAVO_TRY(const Shape shape, BroadcastShapes(zero.shape(), q.shape()));
  if (shape != q.shape()) return Fail("the zero point {} does not fit {}", Describe(zero), Describe(q));
  std::vector<int16_t> out = WorkVector<int16_t>(q.size());
  const auto space = MakeSpace<2>(shape, {StridesOf(shape), BroadcastStrides(zero.shape(), shape)});
  const int64_t step = space.strides.back()[1];
  const auto run = [&]<typename T>() {
    ForEachRow(space, [&](const std::array<int64_t, 2>& at) {
      const T* x = Ptr<T>(q) + at[0];
      const T* z = Ptr<T>(zero) + at[1];
      int16_t* y = out.data() + at[0];
      for (int64_t i = 0; i < space.dims.back(); ++i) y[i] = static_cast<int16_t>(x[i] - z[i * step]);
    });
  };
  q.dtype() == DType::kS8 ? run.operator()<int8_t>() : run.operator()<uint8_t>();
  return out;
}

Result<std::vector<int16_t>> Centered(const Tensor& q, const Tensor& zero, int64_t axis) {
  if (!zero.defined()) return CenteredBy(q, Tensor::Zeros(q.dtype(), {}));
  if (zero.size() == 1) return CenteredBy(q, zero.Reshaped({}));
  if (axis < 0 || axis >= q.rank() || zero.size() != q.shape()[static_cast<size_t>(axis)]) {
    return Fail("the zero point {} does not fit axis {} of {}", Describe(zero), axis, Describe(q));
  }
  Shape spread(q.shape().size(), 1);
  spread[static_cast<size_t>(axis)] = zero.size();
  return CenteredBy(q, zero.Reshaped(std::move(spread)));
}

IntProduct MultiplyCentered(const MatMulShape& s, const std::vector<int16_t>& a, const std::vector<int16_t>& b) {
  IntProduct p;
  const auto batches = static_cast<int64_t>(s.a_batch.size());
  const int64_t size = batches * s.m * s.n;
  const bool wide = s.k > kMaxExactDepth;
  if (wide) {
    p.wide = WorkVector<int64_t>(size);
  } else {
    p.narrow = WorkVector<int32_t>(size);
  }
  for (int64_t i = 0; i < batches; ++i) {
    const int16_t* x = a.data() + s.a_batch[static_cast<size_t>(i)] * s.m * s.k;
    const int16_t* w = b.data() + s.b_batch[static_cast<size_t>(i)] * s.k * s.n;
    if (wide) {
      MultiplyS16Wide(x, w, p.wide.data() + i * s.m * s.n, s.m, s.k, s.n);
    } else {
      MultiplyS16(x, w, p.narrow.data() + i * s.m * s.n, s.m, s.k, s.n);
    }
  }
  return p;
}

Result<Tensor> MatMulF32(const Tensor& a, const Tensor& b) {
  OCTAVO_TRY(const MatMulShape s, MatMulShapeOf(a.shape(), b.shape()));
  OCTAVO_TRY(Tensor y, AllocZeros(DType::kF32, s.result));
  for (size_t i = 0; i < s.a_batch.size() && y.size() > 0; ++i) {
    MultiplyF32(Ptr<float>(a) + s.a_batch[i] * s.m * s.k, Ptr<float>(b) + s.b_batch[i] * s.k * s.n,
                MutablePtr<float>(y) + static_cast<int64_t>(i) * s.m * s.n, s.m, s.k, s.n);
  }
  return y;
}

}  // namespace octavo::ir::interpret
