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

// All but `in`. Nothing: automatic padding, or attributes that disagree with the weights.
std::optional<kernels::ConvShape> ConvShapeOf(const Node& node, const Shape& weights);

// Filters, or groups, in parts of a fixed size, so that one image keeps several threads busy and bits do not depend on their number.
class PreparedConv {
 public:
  struct Part {
    int64_t first_filter, filters, first_channel;
    kernels::ConvF32 conv;
  };
  using Parts = std::vector<Part>;

  // weights: f32 [filters, channels / groups, kernel...]; shape: without `in`.
  PreparedConv(Tensor weights, kernels::ConvShape shape) : weights_(std::move(weights)), shape_(std::move(shape)) {}

  const kernels::ConvShape& shape() const { return shape_; }
  // Null: oneDNN has nothing fast.
  std::shared_ptr<const Parts> For(const std::vector<int64_t>& in, bool bias) const;

 private:
  Tensor weights_;
  kernels::ConvShape shape_;
  mutable std::mutex mutex_;
  mutable std::map<std::vector<int64_t>, std::shared_ptr<const Parts>> prepared_;  // by the spatial dims of the input
};

}  // namespace octavo::runtime

#endif  // OCTAVO_RUNTIME_PREPARED_CONV_H_
