#include "octavo/ir/interpret/window.h"

#include "octavo/ir/names.h"

namespace octavo::ir::interpret {

namespace {

constexpr int64_t kMost =
    int64_t{1} << 31;  // no size, stride or pad beyond this: sums and products below cannot overflow

}  // namespace

Result<std::vector<int64_t>> WindowAttribute(const Call& call, std::string_view name, size_t size, int64_t fallback,
                                             int64_t least) {
  std::vector<int64_t> v = call.node.attrs.Ints(name, std::vector<int64_t>(size, fallback));
  if (v.empty()) v.assign(size, fallback);
  if (v.size() != size) return Fail("{} must have {} elements, not {}", name, size, v.size());
  for (int64_t e : v) {
    if (e < least || e > kMost) return Fail("{} {} is not possible", name, ToString(v));
  }
  return v;
}

namespace {

// One dim: pads by auto_pad, then the number of windows.
Status Place(const std::string& auto_pad, bool ceil_mode, size_t d, Window& w) {
  const int64_t span = (w.kernel[d] - 1) * w.dilation[d] + 1;
  if (auto_pad == "SAME_UPPER" || auto_pad == "SAME_LOWER") {
    w.out[d] = (w.in[d] + w.stride[d] - 1) / w.stride[d];
    const int64_t total = std::max<int64_t>(0, (w.out[d] - 1) * w.stride[d] + span - w.in[d]);
    w.before[d] = auto_pad == "SAME_UPPER" ? total / 2 : total - total / 2;
    w.after[d] = total - w.before[d];
    return {};
  }
  if (auto_pad == "VALID") w.before[d] = w.after[d] = 0;
  const int64_t room = w.in[d] + w.before[d] + w.after[d] - span;
  if (room < 0) return Fail("a window of {} does not fit into {} on spatial axis {}", span, room + span, d);
  w.out[d] = (room + (ceil_mode ? w.stride[d] - 1 : 0)) / w.stride[d] + 1;
  // A last window that would start in the padding after the end is left out.
  if (ceil_mode && (w.out[d] - 1) * w.stride[d] >= w.in[d] + w.before[d]) --w.out[d];
  return {};
}

}  // namespace

Result<std::string> AutoPadOf(const Call& call) {
  std::string auto_pad = call.node.attrs.Str("auto_pad", "NOTSET");
  if (auto_pad.empty()) auto_pad = "NOTSET";
  if (auto_pad != "NOTSET" && auto_pad != "VALID" && auto_pad != "SAME_UPPER" && auto_pad != "SAME_LOWER")
    return Fail("auto_pad is {}; it must be NOTSET, VALID, SAME_UPPER or SAME_LOWER", Quoted(auto_pad));
  return auto_pad;
}

Status CountWindow(Window& w) {
  OCTAVO_TRY_STATUS(CheckShape(DType::kF32, w.in));
  OCTAVO_TRY_STATUS(CheckShape(DType::kF32, w.out));
  OCTAVO_TRY_STATUS(CheckShape(DType::kF32, w.kernel));
  w.in_size = ElementCount(w.in);
  w.kernel_size = ElementCount(w.kernel);
  w.out_size = ElementCount(w.out);
  return {};
}

Result<Window> MakeWindow(const Call& call, const Shape& x, std::vector<int64_t> kernel, bool ceil_mode) {
  if (x.size() < 3) return Fail("the operand must have rank 3 or more: batch, channels, positions");
  Window w;
  const size_t n = x.size() - 2;
  w.in.assign(x.begin() + 2, x.end());
  w.kernel = std::move(kernel);
  if (w.kernel.size() != n) return Fail("a kernel of {} dims for {} spatial dims", w.kernel.size(), n);
  for (size_t d = 0; d < n; ++d) {
    if (w.kernel[d] < 1 || w.kernel[d] > kMost || w.in[d] > kMost)
      return Fail("kernel {} is not possible", ToString(w.kernel));
  }
  OCTAVO_TRY(w.stride, WindowAttribute(call, "strides", n, 1, 1));
  OCTAVO_TRY(w.dilation, WindowAttribute(call, "dilations", n, 1, 1));
  OCTAVO_TRY(const auto pads, WindowAttribute(call, "pads", 2 * n, 0, 0));
  w.before.assign(pads.begin(), pads.begin() + static_cast<int64_t>(n));
  w.after.assign(pads.begin() + static_cast<int64_t>(n), pads.end());
  w.out.assign(n, 0);
  OCTAVO_TRY(const std::string auto_pad, AutoPadOf(call));
  for (size_t d = 0; d < n; ++d) OCTAVO_TRY_STATUS(Place(auto_pad, ceil_mode, d, w));
  OCTAVO_TRY_STATUS(CountWindow(w));
  return w;
}

}  // namespace octavo::ir::interpret
