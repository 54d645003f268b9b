// The windows of a convolution (ir/unfold.h) as rows, any of them at a time.
#ifndef OCTAVO_RUNTIME_WINDOW_ROWS_H_
#define OCTAVO_RUNTIME_WINDOW_ROWS_H_

#include <array>
#include <optional>

#include "octavo/ir/unfold.h"
#include "octavo/runtime/tail.h"

namespace octavo::runtime {

class WindowRows {
 public:
  using Sizes = std::array<int64_t, 3>;  // of up to three spatial axes; those that are not there are 1
  struct Image {
    Sizes in, out;
    int64_t images = 0, channels = 0;
    int64_t rows() const { return images * out[0] * out[1] * out[2]; }
    int64_t lines() const { return images * out[0] * out[1]; }
  };

  // `padding`: one element of the dtype; undefined: 0.
  WindowRows(const ir::Windows& w, DType dtype, Tensor padding);

  int64_t positions() const { return kernel_[0] * kernel_[1] * kernel_[2]; }
  size_t dims() const { return dims_; }
  DType dtype() const { return dtype_; }
  // x [B, in..., C]. Nothing: of another rank, or more elements than any memory holds.
  std::optional<Image> Of(const Shape& x) const;
  // [B, out..., last]
  Shape Result(const Image& image, int64_t last) const;
  // Rows [begin, end), one behind the other.
  void Make(const Image& image, const std::byte* x, int64_t begin, int64_t end, std::byte* to) const;

 private:
  void Line(const Image& image, const std::byte* x, Sizes at, int64_t end, std::byte* to) const;
  void Run(const std::byte* x, int64_t size, int64_t first, int64_t pixel, std::byte* to) const;
  void Fill(std::byte* to, int64_t bytes) const;

  size_t dims_;
  DType dtype_;
  Sizes kernel_, strides_, dilations_, before_, after_;
  int64_t element_;  // bytes
  Tensor padding_;
};

// What the runtime makes of the windows of a value; nothing: it is none, or nothing serves them.
std::optional<WindowRows> WindowRowsOf(const CompileContext& c, const ir::Unfold& unfold);

// A product by rows whose activation is windows that it alone reads makes them itself, so many at a time that they stay in a cache: all of them are as
// large as the image times the positions of a window.
void TakeWindows(const CompileContext& c, Made& made);

}  // namespace octavo::runtime

#endif  // OCTAVO_RUNTIME_WINDOW_ROWS_H_
