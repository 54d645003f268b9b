// Ops that change the shape only: the result shares the operand's bytes. And Shape, Size, Constant.
#include <algorithm>

#include "octavo/ir/interpret/call.h"

namespace octavo::ir::interpret {

namespace {

Status Identity(Call& call) {
  call.out[0] = {call.T(0), nullptr};
  return {};
}

Status Reshape(Call& call) {
  const Tensor& x = call.T(0);
  OCTAVO_TRY(Shape shape, IntsOf(call.T(1), "the target shape"));
  const bool zero_is_zero = call.Int("allowzero", 0) != 0;
  // What the target does not copy must share what it does not copy of: so a batch of 0 has the columns of any other.
  int64_t inferred = -1, known = 1, have = 1, rest = 1;
  std::vector<bool> copied(x.shape().size(), false);
  for (size_t i = 0; i < shape.size(); ++i) {
    if (shape[i] == 0 && !zero_is_zero) {
      if (i >= x.shape().size())
        return Fail("dim {} of the target {} copies a dim that does not exist", i, ToString(shape));
      shape[i] = x.shape()[i];
      copied[i] = true;
    }
    if (shape[i] == -1 && inferred < 0) {
      inferred = static_cast<int64_t>(i);
      continue;
    }
    if (shape[i] < 0) return Fail("the target shape {} has a second -1 or a negative dim", ToString(shape));
    const bool own = i >= copied.size() || !copied[i];
    if (__builtin_mul_overflow(known, shape[i], &known) || __builtin_mul_overflow(rest, own ? shape[i] : 1, &rest))
      return Fail("the target shape {} overflows", ToString(shape));
  }
  for (size_t i = 0; i < copied.size(); ++i) have *= copied[i] ? 1 : x.shape()[i];
  if (inferred >= 0) {
    if (rest == 0 ? have != 0 : have % rest != 0) {
      return Fail("{} elements cannot be arranged as {}", x.size(), ToString(shape));
    }
    shape[static_cast<size_t>(inferred)] = rest == 0 ? 0 : have / rest;
  } else if (known != x.size()) {
    return Fail("{} elements cannot be arranged as {}", x.size(), ToString(shape));
  }
  call.Return(x.Reshaped(std::move(shape)));
  return {};
}

Status Flatten(Call& call) {
  const Tensor& x = call.T(0);
  int64_t axis = call.Int("axis", 1);
  if (axis < -x.rank() || axis > x.rank()) return Fail("axis {} is outside a tensor of rank {}", axis, x.rank());
  if (axis < 0) axis += x.rank();
  const auto split = static_cast<size_t>(axis);
  call.Return(x.Reshaped({Count(x.shape(), 0, split), Count(x.shape(), split, x.shape().size())}));
  return {};
}

Status Squeeze(Call& call) {
  const Tensor& x = call.T(0);
  std::vector<int64_t> axes;
  if (call.Has(1)) {
    OCTAVO_TRY(axes, IntsOf(call.T(1), "the axes"));
    OCTAVO_TRY(axes, Axes(std::move(axes), x.rank()));
  } else {
    for (int64_t i = 0; i < x.rank(); ++i) {
      if (x.shape()[static_cast<size_t>(i)] == 1) axes.push_back(i);
    }
  }
  Shape shape;
  for (int64_t i = 0; i < x.rank(); ++i) {
    const int64_t d = x.shape()[static_cast<size_t>(i)];
    if (!std::binary_search(axes.begin(), axes.end(), i)) {
      shape.push_back(d);
    } else if (d != 1) {
      return Fail("axis {} has size {}, only 1 can be squeezed", i, d);
    }
  }
  call.Return(x.Reshaped(std::move(shape)));
  return {};
}

Status Unsqueeze(Call& call) {
  const Tensor& x = call.T(0);
  OCTAVO_TRY(std::vector<int64_t> axes, IntsOf(call.T(1), "the axes"));
  const int64_t rank = x.rank() + static_cast<int64_t>(axes.size());
  OCTAVO_TRY(axes, Axes(std::move(axes), rank));
  Shape shape;
  size_t from = 0;
  for (int64_t i = 0; i < rank; ++i) {
    shape.push_back(std::binary_search(axes.begin(), axes.end(), i) ? 1 : x.shape()[from++]);
  }
  call.Return(x.Reshaped(std::move(shape)));
  return {};
}

Status ShapeOf(Call& call) {
  const Shape& s = call.T(0).shape();
  const auto rank = static_cast<int64_t>(s.size());
  const auto bound = [rank](int64_t v) { return std::clamp<int64_t>(v < 0 ? v + rank : v, 0, rank); };
  const int64_t start = bound(call.Int("start", 0));
  const int64_t end = std::max(start, bound(call.Int("end", rank)));
  call.Return(Tensor::S64({end - start}, std::vector<int64_t>(s.begin() + start, s.begin() + end)));
  return {};
}

Status Size(Call& call) {
  call.Return(Tensor::ScalarS64(call.T(0).size()));
  return {};
}

Status Constant(Call& call) {
  Tensor t = call.node.attrs.TensorOr("value");
  if (!t.defined()) return Fail("the constant has no value");
  call.Return(std::move(t));
  return {};
}

}  // namespace

void RegisterViews(Table& t) {
  t.Set(Op::kIdentity, Identity);
  t.Set(Op::kReshape, Reshape);
  t.Set(Op::kFlatten, Flatten);
  t.Set(Op::kSqueeze, Squeeze);
  t.Set(Op::kUnsqueeze, Unsqueeze);
  t.Set(Op::kShape, ShapeOf);
  t.Set(Op::kSize, Size);
  t.Set(Op::kConstant, Constant);
}

}  // namespace octavo::ir::interpret
