// Float32 convolutions by oneDNN, always on the calling thread: callers split the work. A fixed (CPU, shape) gives fixed bits.
#ifndef OCTAVO_KERNELS_CONV_CONV_F32_H_
#define OCTAVO_KERNELS_CONV_CONV_F32_H_

#include <cstdint>
#include <expected>
#include <memory>
#include <string>
#include <vector>

namespace octavo::kernels {

// One image, [channels][in...] -> [filters][out...], or [in...][channels] -> [out...][filters]. The vectors have an element for each of one to
// three spatial dims.
struct ConvShape {
  int64_t channels = 0, filters = 0;  // of all groups
  int64_t groups = 1;                 // divides both
  std::vector<int64_t> in, kernel, stride, dilation;
  std::vector<int64_t> before, after;  // zeros around the input, at least 0
  bool channels_last = false;
  bool transposed = false;  // ONNX ConvTranspose: windows of the result; w is [channels][filters / groups][kernel...]

  // (in + before + after - dilation * (kernel - 1) - 1) / stride + 1; 0 where the window does not fit. Transposed: (in - 1) * stride - before - after
  // + dilation * (kernel - 1) + 1.
  std::vector<int64_t> Out() const;
};

// Weights in the layout that oneDNN prefers for this shape. Immutable; safe to share among threads.
class ConvF32 {
 public:
  ConvF32(ConvF32&&) noexcept;
  ConvF32& operator=(ConvF32&&) noexcept;
  ~ConvF32();

  // w: [filters][channels / groups][kernel...] but for `transposed`, copied. A sentence where oneDNN has nothing fast for the shape, or where it makes
  // no sense. `like`: made of the same weights, which are shared where both want them in one layout.
  static std::expected<ConvF32, std::string> Make(const ConvShape& shape, const float* w, bool bias,
                                                  const ConvF32* like = nullptr);

  // bias: a value for each filter, if Make was told of one. Empty, or oneDNN's reason in a sentence.
  std::string Run(const float* x, const float* bias, float* y) const;

 private:
  struct State;
  explicit ConvF32(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace octavo::kernels

#endif  // OCTAVO_KERNELS_CONV_CONV_F32_H_
