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

// Positions of one window: f(kernel position, flat input position) for those inside the input.
class WindowWalker {
 public:
  explicit WindowWalker(const Window& w) : w_(w), strides_(StridesOf(w.in)), at_(w.dims()), k_(w.dims()) {}

  template <typename F>
  void ForInside(int64_t out_position, F f) {
    for (size_t d = w_.dims(); d-- > 0;) {
      at_[d] = out_position % w_.out[d] * w_.stride[d] - w_.before[d];
      out_position /= w_.out[d];
    }
    std::fill(k_.begin(), k_.end(), 0);
    for (int64_t p = 0; p < w_.kernel_size; ++p) {
      int64_t flat = 0;
      bool inside = true;
      for (size_t d = 0; d < k_.size(); ++d) {
        const int64_t i = at_[d] + k_[d] * w_.dilation[d];
        inside &= i >= 0 && i < w_.in[d];
        flat += i * strides_[d];
      }
      if (inside) f(p, flat);
      for (size_t d = k_.size(); d-- > 0;) {
        if (++k_[d] < w_.kernel[d]) break;
        k_[d] = 0;
      }
    }
  }

  // Positions of the window inside the padded input (a ceil_mode window may hang over its end).
  int64_t CountInPadded(int64_t out_position) {
    int64_t count = 1;
    for (size_t d = w_.dims(); d-- > 0;) {
      const int64_t start = out_position % w_.out[d] * w_.stride[d] - w_.before[d];
      out_position /= w_.out[d];
      int64_t n = 0;
      for (int64_t k = 0; k < w_.kernel[d]; ++k) n += start + k * w_.dilation[d] < w_.in[d] + w_.after[d];
      count *= n;
    }
    return count;
  }

 private:
  const Window& w_;
  std::vector<int64_t> strides_, at_, k_;
};

}  // namespace octavo::ir::interpret

#endif  // OCTAVO_IR_INTERPRET_WINDOW_H_
