#include "octavo/passes/unfold.h"

#include <algorithm>

#include "octavo/passes/canonical/util.h"

namespace octavo::passes {

using canonical::Ints;
using ir::Dim;
using ir::Graph;
using ir::Node;
using ir::SymShape;
using ir::Tensor;
using ir::ValueId;
using ir::Windows;

namespace {

bool All(const Ints& values, int64_t wanted) {
  return std::ranges::all_of(values, [&](int64_t v) { return v == wanted; });
}
bool AtLeast(const Ints& values, int64_t least) {
  return std::ranges::all_of(values, [&](int64_t v) { return v >= least; });
}

}  // namespace

std::optional<Windows> WindowsOf(const Graph& g, const Node& n, const Tensor& weights) {
  using canonical::ShapeOf;
  if (n.op != ir::Op::kConv || n.attrs.Int("group", 1) != 1) return {};
  const SymShape *x = ShapeOf(g, n.input(0)), *y = ShapeOf(g, n.output());
  const size_t rank = weights.shape().size(), dims = rank - 2;
  if (rank < 3 || rank > 5 || weights.size() == 0 || x == nullptr || y == nullptr) return {};
  if (x->size() != rank || y->size() != rank || !canonical::IsNumber((*x)[1], weights.shape()[1])) return {};
  const ir::DType dtype = canonical::DTypeOf(g, n.output());
  if (n.input(2).valid()) {
    const Tensor* bias = g.ConstantOf(n.input(2));
    const bool wide = dtype == ir::DType::kF32 || dtype == ir::DType::kF64;
    if (!wide || bias == nullptr || bias->shape() != ir::Shape{weights.shape()[0]} || bias->dtype() != dtype) return {};
  }
  const std::string auto_pad = n.attrs.Str("auto_pad", "NOTSET");
  const bool one = std::all_of(weights.shape().begin() + 2, weights.shape().end(), [](int64_t k) { return k == 1; });
  if (auto_pad != "NOTSET" && auto_pad != "VALID" && !one) return {};  // kernel 1 is padded by nothing
  const auto ints = [&](const char* name, size_t count, int64_t otherwise) {
    return n.attrs.Has(name) ? n.attrs.Ints(name) : Ints(count, otherwise);
  };
  const Ints pads = auto_pad != "NOTSET" ? Ints(2 * dims, 0) : ints("pads", 2 * dims, 0);
  Windows w{.kernel = Ints(weights.shape().begin() + 2, weights.shape().end()),
            .strides = ints("strides", dims, 1),
            .dilations = ints("dilations", dims, 1)};
  if (pads.size() != 2 * dims || w.strides.size() != dims || w.dilations.size() != dims) return {};
  if (n.attrs.Has("kernel_shape") && n.attrs.Ints("kernel_shape") != w.kernel) return {};
  if (!AtLeast(pads, 0) || !AtLeast(w.strides, 1) || !AtLeast(w.dilations, 1)) return {};
  w.before.assign(pads.begin(), pads.begin() + static_cast<int64_t>(dims));
  w.after.assign(pads.begin() + static_cast<int64_t>(dims), pads.end());
  return w;
}

bool IsPointwise(const Graph& g, const Node& n) {
  const Tensor* weights = g.ConstantOf(n.input(1));
  if (weights == nullptr || !canonical::IsPlainFloat(weights->dtype())) return false;
  const std::optional<Windows> w = WindowsOf(g, n, *weights);
  return w && All(w->kernel, 1) && All(w->strides, 1) && !w->padded();
}

Tensor WindowMatrix(const Tensor& w) {
  const int64_t filters = w.shape()[0], channels = w.shape()[1], positions = w.size() / (filters * channels);
  const size_t bytes = static_cast<size_t>(quant::BitsOf(w.dtype())) / 8;
  Tensor m = Tensor::Empty(w.dtype(), {positions * channels, filters});
  std::byte* to = m.mutable_data();
  for (int64_t i = 0; i < filters * channels; ++i) {
    for (int64_t p = 0; p < positions; ++p)
      std::copy_n(w.data() + static_cast<size_t>(i * positions + p) * bytes, bytes,
                  to + static_cast<size_t>((p * channels + i % channels) * filters + i / channels) * bytes);
  }
  return m;
}

namespace {

ValueId Padded(Rewriter& rw, ValueId x, const Windows& w, ValueId padding) {
  const Graph& g = rw.graph();
  SymShape shape = *canonical::ShapeOf(g, x);
  Ints pads(2 * shape.size(), 0);
  for (size_t d = 0; d < w.kernel.size(); ++d) {
    pads[d + 1] = w.before[d], pads[shape.size() + d + 1] = w.after[d];
    shape[d + 1] = shape[d + 1] + Dim(w.before[d]) + Dim(w.after[d]);
  }
  std::vector<ValueId> in = {x, canonical::MakeInts(rw, pads)};
  if (padding.valid()) in.push_back(padding);
  return canonical::Make(rw, ir::Op::kPad, std::move(in), {}, {g.value(x).type.dtype, std::move(shape)});
}

}  // namespace

ValueId MakeUnfold(Rewriter& rw, ValueId x, const Windows& w, ValueId padding, const SymShape& out) {
  if (w.padded()) x = Padded(rw, x, w, padding);
  const ir::DType dtype = rw.graph().value(x).type.dtype;
  SymShape shape = *canonical::ShapeOf(rw.graph(), x);
  std::ranges::copy(out, shape.begin() + 1);
  Ints cut, strides;  // axes of x that Slices shorten, and their steps
  for (size_t d = 0; d < w.kernel.size(); ++d) {
    if (w.kernel[d] > 1 || w.strides[d] > 1)
      cut.push_back(static_cast<int64_t>(d) + 1), strides.push_back(w.strides[d]);
  }
  if (cut.empty()) return x;
  const ValueId axes = canonical::MakeInts(rw, cut), steps = canonical::MakeInts(rw, strides);
  std::vector<ValueId> parts;
  for (int64_t i = 0; i < w.positions(); ++i) {
    Ints starts(cut.size()), ends(cut.size());
    int64_t rest = i;
    for (size_t j = cut.size(); j-- > 0;) {
      const auto d = static_cast<size_t>(cut[j]) - 1;
      const int64_t at = rest % w.kernel[d];
      starts[j] = ir::SliceStart(at, w.dilations[d]), ends[j] = ir::SliceEnd(at, w.kernel[d], w.dilations[d]);
      rest /= w.kernel[d];
    }
    parts.push_back(canonical::Make(rw, ir::Op::kSlice,
                                    {x, canonical::MakeInts(rw, starts), canonical::MakeInts(rw, ends), axes, steps},
                                    {}, {dtype, shape}));
  }
  if (parts.size() == 1) return parts[0];
  shape.back() = shape.back() * Dim(w.positions());
  const auto axis = static_cast<int64_t>(shape.size()) - 1;
  return canonical::Make(rw, ir::Op::kConcat, std::move(parts), {{"axis", axis}}, {dtype, std::move(shape)});
}

}  // namespace octavo::passes
