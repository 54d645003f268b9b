// Before: Conv(Pad(x, pads), W, b)     zeros around the spatial axes, as TensorFlow's "same" padding with a stride is written
// After:  Conv(x, W, b), pads as attribute
// Exact: the convolution reads the same zeros. A Pad that something else reads stays for it.
#include <algorithm>

#include "octavo/passes/fusions/fusions.h"

namespace octavo::passes::fusions {

using namespace pattern;  // NOLINT: the vocabulary of rules
using ir::Op;
using Ints = std::vector<int64_t>;

namespace {

constexpr int64_t kMostPadding = int64_t{1} << 30;  // sums stay sizes

std::optional<Ints> IntsOf(const Match& m, ValueId v) {
  const ir::Tensor* t = v.valid() ? m.graph().ConstantOf(v) : nullptr;
  return t != nullptr && t->dtype() == ir::DType::kS64 ? std::optional(t->ToInts()) : std::nullopt;
}

// What both put around the spatial axes, all beginnings before all ends; nothing where it cannot be said by a Conv.
std::optional<Ints> Together(const Match& m, Var pad, Var conv) {
  const Node &p = m.at(pad), &c = m.at(conv);
  const auto pads = IntsOf(m, p.input(1));
  const ir::Tensor* value = p.input(2).valid() ? m.graph().ConstantOf(p.input(2)) : nullptr;
  const bool zeros = !p.input(2).valid() || (value != nullptr && value->size() == 1 && value->GetDouble(0) == 0.0);
  if (!pads || !zeros || p.input(3).valid() || p.attrs.Str("mode", "constant") != "constant") return {};
  const std::string auto_pad = c.attrs.Str("auto_pad", "NOTSET");
  if (auto_pad != "NOTSET" && auto_pad != "VALID") return {};
  const size_t rank = pads->size() / 2;
  if (pads->size() % 2 != 0 || rank < 3) return {};
  Ints sums = auto_pad == "NOTSET" && c.attrs.Has("pads") ? c.attrs.Ints("pads") : Ints(2 * (rank - 2), 0);
  if (sums.size() != 2 * (rank - 2)) return {};
  for (size_t i = 0; i < pads->size(); ++i) {
    const int64_t more = (*pads)[i];
    if (more < 0 || more > kMostPadding || (i % rank < 2 && more != 0)) return {};
    if (i % rank < 2) continue;
    int64_t& sum = sums[i < rank ? i - 2 : i - 4];
    if (sum < 0 || sum > kMostPadding) return {};
    sum += more;
  }
  return sums;
}

}  // namespace

Rule ConvPad() {
  RuleBuilder r("conv_pad", "Pad of zeros -> Conv becomes Conv");
  const Var x = r.Input("x"), pad = r.MayEscape(r.Open(r.Op("pad", Op::kPad, {x})));
  const Var conv = r.Open(r.Op("conv", Op::kConv, {pad}));
  r.Root(conv);
  r.Guard([=](const Match& m) {
    return Together(m, pad, conv) ? Ok()
                                  : Illegal("the Pad puts something else than zeros, or not around pixels alone");
  });
  r.Build([=](Rewriter& b, const Match& m) {
    const Node& c = m.at(conv);
    std::vector<ValueId> in = c.inputs;
    in[0] = m[x];
    ir::Attrs attrs = c.attrs;
    attrs.Erase("auto_pad"), attrs.Set("pads", *Together(m, pad, conv));
    return b.Create(Op::kConv, std::move(in), std::move(attrs));
  });
  return r.Finish();
}

}  // namespace octavo::passes::fusions
