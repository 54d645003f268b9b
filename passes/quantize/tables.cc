// Codes of tables that a Gather reads: embeddings with a scale for each row, experts with one for each output of each matrix.
#include "octavo/ir/mapped.h"
#include "octavo/passes/experts.h"
#include "octavo/passes/quantize/quantize.h"
#include "octavo/quant/numeric/code8.h"

namespace octavo::passes::quantize {

using ir::DType;
using ir::Tensor;

namespace {

constexpr size_t kTableBytes = 65536;  // smaller tables do not pay for two gathers and a multiply
constexpr int64_t kExpertSize =
    256;  // elements of one matrix, of which every token takes a copy: neither do smaller ones

}  // namespace

bool IsFloatTable(const Graph& g, const Node& n) {
  if (n.op != Op::kGather || n.attrs.Int("axis", 0) != 0) return false;
  const Tensor* t = g.ConstantOf(n.inputs[0]);
  return t != nullptr && t->dtype() == DType::kF32 && t->rank() == 2 && t->byte_size() >= kTableBytes;
}

bool AreFloatExperts(const Graph& g, NodeId gather) {
  if (!ExpertsAt(g, gather)) return false;
  const Tensor& t = *g.ConstantOf(g.node(gather).inputs[0]);
  return t.dtype() == DType::kF32 && t.shape()[1] * t.shape()[2] >= kExpertSize;
}

std::optional<ColumnWeights> QuantizeTable(const Tensor& t, int64_t summed) {
  ir::Shape shape = t.shape();
  shape[static_cast<size_t>(summed)] = 1;
  // Each scale is that of every `stride`th of `count` elements.
  const int64_t count = t.shape()[static_cast<size_t>(summed)];
  int64_t stride = 1;
  for (size_t i = static_cast<size_t>(summed) + 1; i < shape.size(); ++i) stride *= shape[i];
  const int64_t block = count * stride, blocks = block == 0 ? 0 : t.size() / block;
  std::vector<float> scales(static_cast<size_t>(blocks * stride));
  ColumnWeights out{Tensor::Empty(DType::kS8, t.shape()), {}};
  const auto from = t.as<float>();
  auto to = out.codes.mutable_as<int8_t>();
  for (int64_t b = 0; b < blocks; ++b) {
    const std::span<float> own(scales.data() + b * stride, static_cast<size_t>(stride));
    const auto at = static_cast<size_t>(b * block), size = static_cast<size_t>(block);
    if (quant::ChannelScales(from.subspan(at, size), count, stride, 1, DType::kS8, own) >= 0) return std::nullopt;
    for (size_t i = 0; i < size; ++i) {
      const float scale = own[i % static_cast<size_t>(stride)];
      to[at + i] = static_cast<int8_t>(quant::QuantizeOne(from[at + i], scale, 0, -127, 127));
    }
  }
  out.scale = Tensor::Of<float>(DType::kF32, std::move(shape), scales);
  ir::ForgetPages(t);
  return out;
}

}  // namespace octavo::passes::quantize
