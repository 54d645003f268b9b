// auto_pads: pads that a convolution takes from its sizes (Keras' and TensorFlow's "same") as numbers, which kernels and rules read.
// Before: Conv(x [1,3,224,224], W [64,3,7,7]) {auto_pad = "SAME_UPPER", strides = [2,2]}   After: Conv(x, W) {pads = [2,2,3,3], strides = [2,2]}
// Exact: the windows are the same. With a stride of 1, and of a ConvTranspose, pads do not depend on the image.
// Untouched: a stride beside an image whose size is no number; a ConvTranspose that leaves gaps behind its windows, or is told its output_shape.
#include <algorithm>

#include "octavo/passes/canonical/canonical.h"
#include "octavo/passes/canonical/util.h"

namespace octavo::passes::canonical {

namespace {

constexpr int64_t kMost = int64_t{1} << 30;  // of a size: products of two do not overflow

// A list of whole numbers, one for each spatial axis; nothing where it is another one.
std::optional<Ints> PerAxis(const Node& n, const char* name, size_t dims, int64_t otherwise) {
  const Ints v = n.attrs.Has(name) ? n.attrs.Ints(name) : Ints(dims, otherwise);
  const auto fits = [&](int64_t e) { return e >= otherwise && e <= kMost; };
  return v.size() == dims && std::ranges::all_of(v, fits) ? std::optional(v) : std::nullopt;
}

// How many elements of padding an axis has in all; negative: nobody knows.
int64_t Padding(const Node& n, const Dim* size, int64_t span, int64_t stride, int64_t more) {
  if (n.op == Op::kConvTranspose) return more + span - stride;
  if (stride == 1) return span - 1;
  if (size == nullptr || !size->is_number() || size->number() < 1 || size->number() > kMost) return -1;
  return std::max<int64_t>(0, ((size->number() - 1) / stride) * stride + span - size->number());
}

std::optional<Ints> PadsOf(const Graph& g, const Node& n) {
  const std::string auto_pad = n.attrs.Str("auto_pad", "NOTSET");
  const bool upper = auto_pad == "SAME_UPPER";
  if (!upper && auto_pad != "SAME_LOWER") return {};
  const SymShape *x = ShapeOf(g, n.input(0)), *w = ShapeOf(g, n.input(n.op == Op::kQLinearConv ? 3 : 1));
  if (w == nullptr || w->size() < 3 || (x != nullptr && x->size() != w->size())) return {};
  const size_t dims = w->size() - 2;
  const auto strides = PerAxis(n, "strides", dims, 1), dilations = PerAxis(n, "dilations", dims, 1);
  const auto more = PerAxis(n, "output_padding", dims, 0);
  if (!strides || !dilations || !more || !n.attrs.Ints("output_shape").empty()) return {};
  Ints pads(2 * dims);
  for (size_t d = 0; d < dims; ++d) {
    const Dim& kernel = (*w)[2 + d];
    if (!kernel.is_number() || kernel.number() < 1 || kernel.number() > kMost) return {};
    const int64_t span = (kernel.number() - 1) * (*dilations)[d] + 1;
    const int64_t total = Padding(n, x == nullptr ? nullptr : &(*x)[2 + d], span, (*strides)[d], (*more)[d]);
    if (total < 0 || total > kMost) return {};
    pads[d] = upper ? total / 2 : total - total / 2;
    pads[dims + d] = total - pads[d];
  }
  return pads;
}

bool IsConvolution(Op op) {
  return op == Op::kConv || op == Op::kConvTranspose || op == Op::kConvInteger || op == Op::kQLinearConv;
}

}  // namespace

Result<bool> AutoPads(Graph& graph, PassRun&) {
  OCTAVO_TRY([[maybe_unused]] const ir::Inference inference, ir::Inference::Run(graph));
  Rewriter rw(graph, "auto_pads");
  for (const NodeId id : graph.NodesInOrder()) {
    const Node& n = graph.node(id);
    const auto pads = IsConvolution(n.op) ? PadsOf(graph, n) : std::nullopt;
    if (!pads) continue;
    rw.SetAttr(id, "pads", *pads);
    rw.SetAttr(id, "auto_pad", std::string("NOTSET"));
  }
  return rw.changed();
}

}  // namespace octavo::passes::canonical
