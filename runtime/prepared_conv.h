// What the steps of Conv and ConvInteger share: the shape that a node fixes, and oneDNN's convolutions for the sizes seen so far.
#ifndef OCTAVO_RUNTIME_PREPARED_CONV_H_
#define OCTAVO_RUNTIME_PREPARED_CONV_H_

#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "octavo/kernels/conv/conv_f32.h"
#include "octavo/runtime/step.h"

namespace octavo::runtime {

// All but `in`, of Conv or ConvTranspose. Nothing: automatic padding, or attributes that disagree with the weights.
std::optional<kernels::ConvShape> ConvShapeOf(const Node& node, const Shape& weights);

// An image in parts of a fixed size, so that it keeps several threads busy and bits do not depend on their number: filters, or groups, where channels
// stand first, rows of the result where they stand last; whole where it is transposed. Each part of the result lies in one piece.
class PreparedConv {
 public:
  struct Part {
    int64_t x, y, size;  // where it begins in the image and in the result, and how much of that it makes: elements
    int64_t first_filter;
    std::shared_ptr<const kernels::ConvF32> conv;
  };
  struct Parts {
    std::vector<Part> parts;
    Shape out;  // spatial dims of the result
  };

  // weights: f32 [filters, channels / groups, kernel...] but for `transposed`; shape: without `in`.
  PreparedConv(Tensor weights, kernels::ConvShape shape) : weights_(std::move(weights)), shape_(std::move(shape)) {}

  const kernels::ConvShape& shape() const { return shape_; }
  // Null: oneDNN has nothing fast.
  std::shared_ptr<const Parts> For(const std::vector<int64_t>& in, bool bias) const;

 private:
  using Convs = std::map<std::vector<int64_t>, std::shared_ptr<const kernels::ConvF32>>;
  std::shared_ptr<const Parts> ByFilters(kernels::ConvShape whole, bool bias) const;
  std::shared_ptr<const Parts> ByRows(kernels::ConvShape whole, bool bias) const;
  std::shared_ptr<const Parts> Whole(const kernels::ConvShape& whole, bool bias) const;

  Tensor weights_;
  kernels::ConvShape shape_;
  mutable std::mutex mutex_;
  mutable std::map<std::vector<int64_t>, std::shared_ptr<const Parts>> prepared_;  // by the spatial dims of the input
  mutable std::shared_ptr<const kernels::ConvF32> like_;  // by rows: the first, whose weights the others share
};

}  // namespace octavo::runtime

#endif  // OCTAVO_RUNTIME_PREPARED_CONV_H_
