// Sliding windows over the spatial dims of [N, C, d1, d2, ...]: shared by convolutions and pools.
#ifndef OCTAVO_IR_INTERPRET_WINDOW_H_
#define OCTAVO_IR_INTERPRET_WINDOW_H_

#include <algorithm>

#include "octavo/ir/interpret/call.h"

namespace octavo::ir::interpret {

struct Window {
  std::vector<int64_t> in, kernel, stride, dilation, before, after, out;  // per spatial dim
  int64_t in_size = 1, kernel_size = 1, out_size = 1;                     // products

  size_t dims() const { return in.size(); }
};

// From the attributes strides, dilations, pads, auto_pad and, for pools, ceil_mode.
Result<Window> MakeWindow(const Call& call, const Shape& x, std::vector<int64_t> kernel, bool ceil_mode);

// A list attribute of `size` numbers, each at least `least`; `fallback` where it is absent.
Result<std::vector<int64_t>> WindowAttribute(const Call& call, std::string_view name, size_t size, int64_t fallback,
                                             int64_t least);
// NOTSET, VALID, SAME_UPPER or SAME_LOWER.
Result<std::string> AutoPadOf(const Call& call);
// Fills in the products.
Status CountWindow(Window& w);

// Positions of one window, in order: f(kernel position, flat input position) for those inside the input.
class WindowWalker {
 public:
  explicit WindowWalker(const Window& w)
      : w_(w),
        strides_(StridesOf(w.in)),
        kernel_strides_(StridesOf(w.kernel)),
        at_(w.dims()),
        first_(w.dims()),
        end_(w.dims()),
        k_(w.dims()) {}

  template <typename F>
  void ForInside(int64_t out_position, F f) {
    for (size_t d = w_.dims(); d-- > 0;) {
      at_[d] = out_position % w_.out[d] * w_.stride[d] - w_.before[d];
      out_position /= w_.out[d];
      first_[d] = at_[d] < 0 ? Steps(-at_[d], w_.dilation[d]) : 0;
      end_[d] = std::min(w_.kernel[d], Steps(w_.in[d] - at_[d], w_.dilation[d]));
      if (first_[d] >= end_[d]) return;
    }
    k_ = first_;
    while (true) {
      int64_t p = 0, flat = 0;
      for (size_t d = 0; d < k_.size(); ++d) {
        p += k_[d] * kernel_strides_[d];
        flat += (at_[d] + k_[d] * w_.dilation[d]) * strides_[d];
      }
      f(p, flat);
      size_t d = k_.size();
      while (d-- > 0 && ++k_[d] == end_[d]) k_[d] = first_[d];
      if (d == SIZE_MAX) return;
    }
  }

  // Positions of the window inside the padded input (a ceil_mode window may hang over its end).
  int64_t CountInPadded(int64_t out_position) {
    int64_t count = 1;
    for (size_t d = w_.dims(); d-- > 0;) {
      const int64_t start = out_position % w_.out[d] * w_.stride[d] - w_.before[d];
      out_position /= w_.out[d];
      count *= std::clamp<int64_t>(Steps(w_.in[d] + w_.after[d] - start, w_.dilation[d]), 0, w_.kernel[d]);
    }
    return count;
  }

 private:
  // The first k with k * dilation >= distance; not below 0.
  static int64_t Steps(int64_t distance, int64_t dilation) { return distance <= 0 ? 0 : (distance - 1) / dilation + 1; }

  const Window& w_;
  std::vector<int64_t> strides_, kernel_strides_, at_, first_, end_, k_;
};

}  // namespace octavo::ir::interpret

#endif  // OCTAVO_IR_INTERPRET_WINDOW_H_
