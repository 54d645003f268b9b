// Ops that draw numbers. ONNX does not say which; octavo's are a function of the seed and the place of the element alone, the same on every
// machine and in every run. Without a seed there is no meaning to repeat, so it is an error.
#include <bit>
#include <cmath>
#include <numbers>

#include "octavo/ir/interpret/doubles.h"

namespace octavo::ir::interpret {

namespace {

// The i-th of a sequence of numbers: splitmix64, which is a function of a counter.
class Source {
 public:
  static Result<Source> Of(const Call& call) {
    if (!call.node.attrs.Has("seed")) return Fail("it draws at random, and ONNX leaves open what; give it a seed");
    return Source(std::bit_cast<uint32_t>(call.Float("seed", 0.0f)));
  }
  uint64_t Bits(int64_t i) const {
    uint64_t z = (seed_ << 32) + (static_cast<uint64_t>(i) + 1) * 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }
  // In [0, 1).
  double Uniform(int64_t i) const { return static_cast<double>(Bits(i) >> 11) * 0x1p-53; }
  // Box and Muller: two numbers for one.
  double Normal(int64_t i) const {
    const double radius = std::sqrt(-2 * std::log(1 - Uniform(2 * i)));
    return radius * std::cos(2 * std::numbers::pi * Uniform(2 * i + 1));
  }

 private:
  explicit Source(uint64_t seed) : seed_(seed) {}
  uint64_t seed_;
};

template <typename F>
Status Fill(Call& call, Shape shape, DType type, F draw) {
  if (!quant::IsComputedFloat(type)) return BadType(type);
  OCTAVO_TRY(Tensor y, AllocZeros(DType::kF64, std::move(shape)));
  for (int64_t i = 0; i < y.size(); ++i) Out(y)[i] = draw(i);
  return ReturnAs(call, y, type);
}

Status Draw(Call& call, bool normal, bool like) {
  OCTAVO_TRY(const Source source, Source::Of(call));
  OCTAVO_TRY(const DType type, TypeAttr(call, "dtype", like ? call.T(0).dtype() : DType::kF32));
  Shape shape = like ? call.T(0).shape() : call.node.attrs.Ints("shape");
  if (normal) {
    const double mean = call.Float("mean", 0.0f), scale = call.Float("scale", 1.0f);
    return Fill(call, std::move(shape), type, [&](int64_t i) { return mean + scale * source.Normal(i); });
  }
  const double low = call.Float("low", 0.0f), high = call.Float("high", 1.0f);
  return Fill(call, std::move(shape), type, [&](int64_t i) { return low + (high - low) * source.Uniform(i); });
}

// 1 with the probability that the operand says.
Status Bernoulli(Call& call) {
  OCTAVO_TRY(const Source source, Source::Of(call));
  OCTAVO_TRY(const DType type, TypeAttr(call, "dtype", call.T(0).dtype()));
  OCTAVO_TRY(const Tensor p, Doubles(call.T(0)));
  OCTAVO_TRY(Tensor y, AllocZeros(DType::kBool, p.shape()));
  for (int64_t i = 0; i < y.size(); ++i) MutablePtr<uint8_t>(y)[i] = source.Uniform(i) < In(p)[i];
  OCTAVO_TRY(y, CastTo(y, type));
  call.Return(std::move(y));
  return {};
}

// x [batch, classes] of log probabilities, not normalized -> class numbers [batch, sample_size]
Status Multinomial(Call& call) {
  OCTAVO_TRY(const Source source, Source::Of(call));
  OCTAVO_TRY(const DType type, TypeAttr(call, "dtype", DType::kS32));
  if (type != DType::kS32 && type != DType::kS64) return BadType(type);
  const int64_t samples = call.Int("sample_size", 1);
  if (call.T(0).rank() != 2 || call.T(0).shape()[1] < 1 || samples < 0)
    return Fail("the operand must be [batch, classes]");
  const int64_t batch = call.T(0).shape()[0], classes = call.T(0).shape()[1];
  OCTAVO_TRY(const Tensor x, Doubles(call.T(0)));
  OCTAVO_TRY(Tensor y, AllocZeros(DType::kS64, {batch, samples}));
  std::vector<double> sums = WorkVector<double>(classes);
  for (int64_t b = 0; b < batch; ++b) {
    double top = -INFINITY, sum = 0;
    for (int64_t c = 0; c < classes; ++c) top = std::fmax(top, In(x)[b * classes + c]);
    for (int64_t c = 0; c < classes; ++c) sums[static_cast<size_t>(c)] = sum += std::exp(In(x)[b * classes + c] - top);
    for (int64_t i = b * samples; i < (b + 1) * samples; ++i) {
      const double at = source.Uniform(i) * sum;
      int64_t c = 0;
      while (c + 1 < classes && !(at < sums[static_cast<size_t>(c)])) ++c;
      MutablePtr<int64_t>(y)[i] = c;
    }
  }
  OCTAVO_TRY(y, CastTo(y, type));
  call.Return(std::move(y));
  return {};
}

}  // namespace

void RegisterRandom(Table& t) {
  t.Set(Op::kBernoulli, Bernoulli);
  t.Set(Op::kMultinomial, Multinomial);
  t.Set(Op::kRandomNormal, [](Call& call) { return Draw(call, true, false); });
  t.Set(Op::kRandomNormalLike, [](Call& call) { return Draw(call, true, true); });
  t.Set(Op::kRandomUniform, [](Call& call) { return Draw(call, false, false); });
  t.Set(Op::kRandomUniformLike, [](Call& call) { return Draw(call, false, true); });
}

}  // namespace octavo::ir::interpret
