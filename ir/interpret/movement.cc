// Ops that move elements by strides: Transpose, Slice, Concat, Split, Expand, Tile, DepthToSpace, SpaceToDepth, Trilu.
#include <algorithm>
#include <cstring>

#include "octavo/ir/interpret/call.h"
#include "octavo/ir/interpret/strided.h"
#include "octavo/ir/interpret/types.h"

namespace octavo::ir::interpret {

namespace {

Result<size_t> ElementBytes(DType t) {
  const int bits = quant::BitsOf(t);
  if (bits < 8) return BadType(t);
  return static_cast<size_t>(bits / 8);
}

// A contiguous tensor of `shape` that reads x through `strides` from element `offset`.
Result<Tensor> Gathered(const Tensor& x, Shape shape, std::span<const int64_t> strides, int64_t offset = 0) {
  OCTAVO_TRY(const size_t bytes, ElementBytes(x.dtype()));
  OCTAVO_TRY(Tensor y, Alloc(x.dtype(), std::move(shape)));
  CopyStrided(x.data() + offset * static_cast<int64_t>(bytes), strides, y.mutable_data(), StridesOf(y.shape()),
              y.shape(), bytes);
  return y;
}

Result<Tensor> Permuted(const Tensor& x, std::span<const int64_t> perm) {
  const auto strides = StridesOf(x.shape());
  Shape shape;
  std::vector<int64_t> steps;
  for (int64_t p : perm) {
    shape.push_back(x.shape()[static_cast<size_t>(p)]);
    steps.push_back(strides[static_cast<size_t>(p)]);
  }
  return Gathered(x, std::move(shape), steps);
}

Status Transpose(Call& call) {
  const Tensor& x = call.T(0);
  std::vector<int64_t> perm = call.node.attrs.Ints("perm");
  if (perm.empty()) {
    for (int64_t i = x.rank(); i-- > 0;) perm.push_back(i);
  }
  OCTAVO_TRY(perm, Axes(std::move(perm), x.rank(), false));
  if (static_cast<int64_t>(perm.size()) != x.rank()) return Fail("perm {} does not name every axis", ToString(perm));
  OCTAVO_TRY(Tensor y, Permuted(x, perm));
  call.Return(std::move(y));
  return {};
}

Status Slice(Call& call) {
  const Tensor& x = call.T(0);
  OCTAVO_TRY(const auto starts, IntsOf(call.T(1), "starts"));
  OCTAVO_TRY(const auto ends, IntsOf(call.T(2), "ends"));
  std::vector<int64_t> axes(starts.size()), steps(starts.size(), 1);
  for (size_t i = 0; i < axes.size(); ++i) axes[i] = static_cast<int64_t>(i);
  if (call.Has(3)) {
    OCTAVO_TRY(axes, IntsOf(call.T(3), "axes"));
  }
  if (call.Has(4)) {
    OCTAVO_TRY(steps, IntsOf(call.T(4), "steps"));
  }
  if (ends.size() != starts.size() || axes.size() != starts.size() || steps.size() != starts.size()) {
    return Fail("starts, ends, axes and steps must have equal lengths");
  }
  OCTAVO_TRY(axes, Axes(std::move(axes), x.rank(), false));
  Shape shape = x.shape();
  auto strides = StridesOf(x.shape());
  int64_t offset = 0;
  for (size_t i = 0; i < axes.size(); ++i) {
    const auto a = static_cast<size_t>(axes[i]);
    const int64_t d = x.shape()[a], step = steps[i];
    if (step == 0 || step == INT64_MIN) return Fail("a step of {} is not possible", step);
    const int64_t least = step > 0 ? 0 : -1, most = step > 0 ? d : d - 1;
    const auto bound = [&](int64_t v, int64_t lo) { return std::clamp(v < 0 ? v + d : v, lo, most); };
    const int64_t start = bound(starts[i], d == 0 ? least : 0);
    const int64_t end = ends[i] < -d ? least : bound(ends[i], least);
    const int64_t span = step > 0 ? end - start : start - end;
    const int64_t pace = step > 0 ? step : -step;
    shape[a] = span <= 0 ? 0 : (span - 1) / pace + 1;
    offset += shape[a] == 0 ? 0 : start * strides[a];
    strides[a] = shape[a] <= 1 ? 0 : strides[a] * step;
  }
  OCTAVO_TRY(Tensor y, Gathered(x, std::move(shape), strides, offset));
  call.Return(std::move(y));
  return {};
}

Status Concat(Call& call) {
  const Tensor& first = call.T(0);
  OCTAVO_TRY(const size_t bytes, ElementBytes(first.dtype()));
  OCTAVO_TRY(const int64_t axis, Axis(call.Int("axis", 0), first.rank()));
  const auto a = static_cast<size_t>(axis);
  Shape shape = first.shape();
  for (size_t i = 1; i < call.in.size(); ++i) {
    const Tensor& t = call.T(i);
    if (!call.Has(i)) return Fail("operand {} is absent", i);
    bool fits = t.dtype() == first.dtype() && t.rank() == first.rank();
    for (size_t d = 0; fits && d < shape.size(); ++d) fits = d == a || t.shape()[d] == shape[d];
    if (!fits) return Fail("operand {} does not fit the first one along axis {}", i, axis);
    if (__builtin_add_overflow(shape[a], t.shape()[a], &shape[a])) return Fail("the sizes overflow");
  }
  OCTAVO_TRY(Tensor y, Alloc(first.dtype(), shape));
  const size_t outer = static_cast<size_t>(Count(shape, 0, a));
  const size_t inner = static_cast<size_t>(Count(shape, a + 1, shape.size())) * bytes;
  const size_t row = static_cast<size_t>(shape[a]) * inner;
  std::byte* to = y.mutable_data();
  for (const RtValue& v : call.in) {
    const size_t part = static_cast<size_t>(v.tensor.shape()[a]) * inner;
    if (part == 0) continue;
    for (size_t o = 0; o < outer; ++o) std::memcpy(to + o * row, v.tensor.data() + o * part, part);
    to += part;
  }
  call.Return(std::move(y));
  return {};
}

Result<std::vector<int64_t>> SplitSizes(const Call& call, int64_t dim) {
  const auto parts = static_cast<int64_t>(call.out.size());
  if (call.Has(1)) {
    OCTAVO_TRY(auto sizes, IntsOf(call.T(1), "split"));
    int64_t sum = 0;
    for (int64_t s : sizes) {
      if (s < 0 || s > dim) return Fail("a part of size {} is not possible", s);
      sum += s;
    }
    if (sum != dim) return Fail("the parts {} do not add up to {}", ToString(sizes), dim);
    if (static_cast<int64_t>(sizes.size()) != parts) return Fail("{} parts for {} outputs", sizes.size(), parts);
    return sizes;
  }
  if (call.Int("num_outputs", parts) != parts) return Fail("num_outputs is not the number of outputs, {}", parts);
  const int64_t size = (dim + parts - 1) / parts;
  std::vector<int64_t> sizes;
  for (int64_t i = 0; i < parts; ++i) sizes.push_back(std::max<int64_t>(0, std::min(size, dim - i * size)));
  return sizes;
}

Status Split(Call& call) {
  const Tensor& x = call.T(0);
  OCTAVO_TRY(const int64_t axis, Axis(call.Int("axis", 0), x.rank()));
  const auto a = static_cast<size_t>(axis);
  OCTAVO_TRY(const auto sizes, SplitSizes(call, x.shape()[a]));
  const auto strides = StridesOf(x.shape());
  int64_t offset = 0;
  for (size_t i = 0; i < sizes.size(); ++i) {
    Shape shape = x.shape();
    shape[a] = sizes[i];
    OCTAVO_TRY(Tensor y, Gathered(x, std::move(shape), strides, sizes[i] == 0 ? 0 : offset * strides[a]));
    call.Return(std::move(y), i);
    offset += sizes[i];
  }
  return {};
}

Status Expand(Call& call) {
  const Tensor& x = call.T(0);
  OCTAVO_TRY(const auto target, IntsOf(call.T(1), "the target shape"));
  OCTAVO_TRY_STATUS(CheckShape(x.dtype(), target));
  OCTAVO_TRY(Shape shape, BroadcastShapes(x.shape(), target));
  if (shape == x.shape()) {
    call.Return(x);
    return {};
  }
  const auto strides = BroadcastStrides(x.shape(), shape);
  OCTAVO_TRY(Tensor y, Gathered(x, std::move(shape), strides));
  call.Return(std::move(y));
  return {};
}

// One axis after the other becomes two, (repeat, dim): strides 0 and the dim's own.
Status Tile(Call& call) {
  const Tensor& x = call.T(0);
  OCTAVO_TRY(const auto repeats, IntsOf(call.T(1), "repeats"));
  if (static_cast<int64_t>(repeats.size()) != x.rank()) {
    return Fail("{} repeats for a tensor of rank {}", repeats.size(), x.rank());
  }
  OCTAVO_TRY_STATUS(CheckShape(x.dtype(), repeats));
  const auto strides = StridesOf(x.shape());
  Shape shape, spread;
  std::vector<int64_t> steps;
  for (size_t i = 0; i < repeats.size(); ++i) {
    int64_t size = 0;
    if (__builtin_mul_overflow(repeats[i], x.shape()[i], &size)) return Fail("the result's shape overflows");
    shape.push_back(size);
    spread.insert(spread.end(), {repeats[i], x.shape()[i]});
    steps.insert(steps.end(), {0, strides[i]});
  }
  OCTAVO_TRY_STATUS(CheckShape(x.dtype(), shape));
  OCTAVO_TRY(Tensor y, Gathered(x, std::move(spread), steps));
  call.Return(y.Reshaped(std::move(shape)));
  return {};
}

Result<int64_t> BlockOf(const Call& call) {
  if (call.T(0).rank() != 4) return Fail("the operand must have rank 4");
  const int64_t b = call.Int("blocksize", 0);
  if (b <= 0 || b > (1 << 16)) return Fail("blocksize {} is not possible", b);
  return b;
}

Status DepthToSpace(Call& call) {
  const Tensor& x = call.T(0);
  OCTAVO_TRY(const int64_t b, BlockOf(call));
  const Shape& s = x.shape();
  if (s[1] % (b * b) != 0) return Fail("{} channels are no multiple of blocksize^2", s[1]);
  const std::string mode = call.node.attrs.Str("mode", "DCR");
  if (mode != "DCR" && mode != "CRD") return Fail("mode is '{}'; it must be DCR or CRD", mode);
  const int64_t c = s[1] / (b * b);
  const bool dcr = mode == "DCR";
  const Tensor six = x.Reshaped(dcr ? Shape{s[0], b, b, c, s[2], s[3]} : Shape{s[0], c, b, b, s[2], s[3]});
  OCTAVO_TRY(Tensor y, dcr ? Permuted(six, std::vector<int64_t>{0, 3, 4, 1, 5, 2})
                           : Permuted(six, std::vector<int64_t>{0, 1, 4, 2, 5, 3}));
  call.Return(y.Reshaped({s[0], c, s[2] * b, s[3] * b}));
  return {};
}

Status SpaceToDepth(Call& call) {
  const Tensor& x = call.T(0);
  OCTAVO_TRY(const int64_t b, BlockOf(call));
  const Shape& s = x.shape();
  if (s[2] % b != 0 || s[3] % b != 0) return Fail("height and width are no multiples of blocksize {}", b);
  OCTAVO_TRY(Tensor y,
             Permuted(x.Reshaped({s[0], s[1], s[2] / b, b, s[3] / b, b}), std::vector<int64_t>{0, 3, 5, 1, 2, 4}));
  call.Return(y.Reshaped({s[0], s[1] * b * b, s[2] / b, s[3] / b}));
  return {};
}

Status Trilu(Call& call) {
  const Tensor& x = call.T(0);
  if (x.rank() < 2) return Fail("the operand must have rank 2 or more");
  int64_t k = 0;
  if (call.Has(1)) {
    OCTAVO_TRY(k, IntOf(call.T(1), "k"));
  }
  const bool upper = call.Int("upper", 1) != 0;
  OCTAVO_TRY(const size_t bytes, ElementBytes(x.dtype()));
  Tensor y = Tensor::Zeros(x.dtype(), x.shape());
  const int64_t cols = x.shape().back(), rows = x.shape()[x.shape().size() - 2];
  const int64_t lines = cols == 0 ? 0 : x.size() / cols;
  k = std::clamp(k, -rows, cols);  // beyond that nothing changes, and the sum below cannot overflow
  for (int64_t line = 0; line < lines; ++line) {
    const int64_t diagonal = line % rows + k;
    const int64_t from = upper ? std::clamp<int64_t>(diagonal, 0, cols) : 0;
    const int64_t to = upper ? cols : std::clamp<int64_t>(diagonal + 1, 0, cols);
    const auto start = static_cast<size_t>(line * cols + from) * bytes;
    std::memcpy(y.mutable_data() + start, x.data() + start, static_cast<size_t>(to - from) * bytes);
  }
  call.Return(std::move(y));
  return {};
}

}  // namespace

void RegisterMovement(Table& t) {
  t.Set(Op::kTranspose, Transpose);
  t.Set(Op::kSlice, Slice);
  t.Set(Op::kConcat, Concat);
  t.Set(Op::kSplit, Split);
  t.Set(Op::kExpand, Expand);
  t.Set(Op::kTile, Tile);
  t.Set(Op::kDepthToSpace, DepthToSpace);
  t.Set(Op::kSpaceToDepth, SpaceToDepth);
  t.Set(Op::kTrilu, Trilu);
}

}  // namespace octavo::ir::interpret
