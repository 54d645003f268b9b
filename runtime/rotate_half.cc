#include "octavo/runtime/rotate_half.h"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

namespace octavo::runtime {

namespace {

using ir::NodeId;

bool IsOne(const CompileContext& c, ValueId v, std::initializer_list<int64_t> allowed) {
  const Tensor* t = c.Constant(v);
  return t != nullptr && t->size() == 1 && (t->dtype() == DType::kS64 || t->dtype() == DType::kS32) &&
         std::ranges::find(allowed, t->GetInt(0)) != allowed.end();
}

// v = x[..., begin : begin + half] of [B,H,S,2 half].
bool IsHalf(const CompileContext& c, ValueId v, ValueId x, int64_t begin, int64_t half, std::vector<NodeId>& nodes) {
  const Node* slice = OnlyMaker(c, v, Op::kSlice, nodes);
  if (slice == nullptr || slice->input(0) != x || !IsOne(c, slice->input(1), {begin})) return false;
  const auto& shape = c.graph.value(v).type.shape;  // says where it ends
  return shape && shape->size() == 4 && shape->back().is_number() && shape->back().number() == half &&
         IsOne(c, slice->input(3), {3, -1}) && (!slice->input(4) || IsOne(c, slice->input(4), {1}));
}

bool IsTable(const CompileContext& c, ValueId v, int64_t dim) {
  const auto& type = c.graph.value(v).type;
  return type.dtype == DType::kF32 && type.shape && !type.shape->empty() && type.shape->size() <= 4 &&
         type.shape->back().is_number() && type.shape->back().number() == dim;
}

// x is factor `a` of `plain`, and the other products' factor is x turned by half.
std::optional<Chain> Match(const CompileContext& c, NodeId root, size_t plain, size_t a, size_t b) {
  Chain chain;
  chain.nodes = {root};
  const Node& add = c.graph.node(root);
  const Node* straight = OnlyMaker(c, add.input(plain), Op::kMul, chain.nodes);
  const Node* crossed = OnlyMaker(c, add.input(1 - plain), Op::kMul, chain.nodes);
  if (straight == nullptr || crossed == nullptr) return {};
  const ValueId x = straight->input(a), cos = straight->input(1 - a), sin = crossed->input(1 - b);
  const auto& type = c.graph.value(x).type;
  if (type.dtype != DType::kF32 || !type.shape || type.shape->size() != 4 || !type.shape->back().is_number()) return {};
  const int64_t dim = type.shape->back().number();
  if (dim < 2 || dim % 2 != 0 || !IsTable(c, cos, dim) || !IsTable(c, sin, dim)) return {};
  const Node* turned = OnlyMaker(c, crossed->input(b), Op::kConcat, chain.nodes);
  if (turned == nullptr || turned->inputs.size() != 2) return {};
  const int64_t axis = turned->attrs.Int("axis", 0);
  const Node* negated = OnlyMaker(c, turned->input(0), Op::kNeg, chain.nodes);
  if ((axis != 3 && axis != -1) || negated == nullptr) return {};
  if (!IsHalf(c, negated->input(0), x, dim / 2, dim / 2, chain.nodes)) return {};
  if (!IsHalf(c, turned->input(1), x, 0, dim / 2, chain.nodes)) return {};
  chain.inputs = {x, cos, sin};
  chain.rotates = dim;
  return chain;
}

class RotateHalfKernel : public Kernel {
 public:
  explicit RotateHalfKernel(int64_t dim) : dim_(dim) {
    const auto batch = Needs::Size::Same(0), heads = Needs::Size::Same(1), rows = Needs::Size::Same(2);
    needs.Exactly(0, DType::kF32, {batch, heads, rows, dim});
    for (const size_t slot : {1, 2}) {
      needs.BroadcastsTo(slot, DType::kF32, {batch, heads, rows, dim});
      needs.EndsIn(slot, DType::kF32, {dim});
    }
  }
  std::string name() const override { return "rotary"; }
  Status Execute(StepCall& call) const override {
    const Tensor& x = call.T(0);
    const Shape& s = x.shape();
    const auto cos_strides = TableStrides(call.T(1)), sin_strides = TableStrides(call.T(2));
    const auto *cos = call.T(1).as<float>().data(), *sin = call.T(2).as<float>().data(), *in = x.as<float>().data();
    float* out = call.Allocate(0, DType::kF32, s).mutable_as<float>().data();
    const int64_t lines = s[0] * s[1] * s[2];
    const int64_t parts = PartsOf(lines, std::max(int64_t{1}, kElementGrain / dim_), call.threads->count());
    call.threads->For(parts, [&](int64_t i) {
      const Part part = PartOf(lines, parts, i, 1);
      for (int64_t line = part.begin; line < part.end; ++line) {
        const std::array<int64_t, 3> at = {line / (s[1] * s[2]), line / s[2] % s[1], line % s[2]};
        const auto row = [&](const std::array<int64_t, 3>& strides) {
          return at[0] * strides[0] + at[1] * strides[1] + at[2] * strides[2];
        };
        RotateHalf(in + line * dim_, cos + row(cos_strides), sin + row(sin_strides), dim_, out + line * dim_);
      }
    });
    return {};
  }

 private:
  int64_t dim_;
};

}  // namespace

void RotateHalf(const float* x, const float* cos, const float* sin, int64_t dim, float* y) {
  const int64_t half = dim / 2;
  for (int64_t i = 0; i < half; ++i) {
    const float a = x[i], b = x[i + half];
    y[i] = a * cos[i] + -b * sin[i];
    y[i + half] = b * cos[i + half] + a * sin[i + half];
  }
}

std::array<int64_t, 3> TableStrides(const Tensor& table) {
  std::array<int64_t, 3> strides{};
  int64_t step = table.shape().back();
  for (int64_t d = table.rank() - 2; d >= 0; --d) {
    const int64_t size = table.shape()[static_cast<size_t>(d)];
    strides[static_cast<size_t>(d + 4 - table.rank())] = size == 1 ? 0 : step;
    step *= size;
  }
  return strides;
}

std::vector<Chain> FindRotateHalves(const CompileContext& c) {
  std::vector<Chain> found;
  const std::vector<NodeId> order = c.graph.NodesInOrder();
  for (const NodeId id : order) {
    if (c.graph.node(id).op != Op::kAdd || c.Constant(c.graph.node(id).output()) != nullptr) continue;
    std::optional<Chain> chain;
    for (size_t i = 0; i < 8 && !chain; ++i) chain = Match(c, id, i & 1, i >> 1 & 1, i >> 2);
    if (!chain) continue;
    std::ranges::sort(chain->nodes, [&c](NodeId a, NodeId b) { return c.graph.Before(a, b); });
    found.push_back(std::move(*chain));
  }
  return found;
}

KernelPtr MakeRotateHalf(const Chain& chain, const CompileContext& c) {
  auto kernel = std::make_unique<RotateHalfKernel>(chain.rotates);
  kernel->otherwise = MakeNodes(chain, c, "rotary of single nodes");
  return kernel;
}

}  // namespace octavo::runtime
