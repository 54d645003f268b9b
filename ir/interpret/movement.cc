// Ops that move elements by strides: Transpose, Slice, Concat, Split, Expand, Tile, DepthToSpace, SpaceToDepth, Trilu.
#include "octavo/ir/interpret/movement.h"

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

using Operands = std::span<const RtValue>;

bool Has(Operands in, size_t i) { return i < in.size() && in[i].tensor.defined(); }

// One contiguous result that reads operand 0 through `strides` from element `offset`.
Movement Gather(Shape shape, std::vector<int64_t> strides, int64_t offset = 0) {
  Move move{.shape = shape, .from_strides = std::move(strides), .to_strides = StridesOf(shape), .from_offset = offset};
  Movement m;
  m.results.push_back(std::move(shape));
  m.moves.push_back(std::move(move));
  return m;
}

Movement Permute(const Shape& from, std::span<const int64_t> perm) {
  const auto strides = StridesOf(from);
  Shape shape;
  std::vector<int64_t> steps;
  for (int64_t p : perm) {
    shape.push_back(from[static_cast<size_t>(p)]);
    steps.push_back(strides[static_cast<size_t>(p)]);
  }
  return Gather(std::move(shape), std::move(steps));
}

Result<Movement> PlanTranspose(const Node& node, Operands in) {
  const Tensor& x = in[0].tensor;
  std::vector<int64_t> perm = node.attrs.Ints("perm");
  if (perm.empty()) {
    for (int64_t i = x.rank(); i-- > 0;) perm.push_back(i);
  }
  for (const int64_t p : perm) {
    if (p < 0) return Fail("perm {} names an axis from the end", ToString(perm));
  }
  OCTAVO_TRY(perm, Axes(std::move(perm), x.rank(), false));
  if (static_cast<int64_t>(perm.size()) != x.rank()) return Fail("perm {} does not name every axis", ToString(perm));
  return Permute(x.shape(), perm);
}

Result<Movement> PlanSlice(const Node&, Operands in) {
  const Tensor& x = in[0].tensor;
  OCTAVO_TRY(const auto starts, IntsOf(in[1].tensor, "starts"));
  OCTAVO_TRY(const auto ends, IntsOf(in[2].tensor, "ends"));
  std::vector<int64_t> axes(starts.size()), steps(starts.size(), 1);
  for (size_t i = 0; i < axes.size(); ++i) axes[i] = static_cast<int64_t>(i);
  if (Has(in, 3)) {
    OCTAVO_TRY(axes, IntsOf(in[3].tensor, "axes"));
  }
  if (Has(in, 4)) {
    OCTAVO_TRY(steps, IntsOf(in[4].tensor, "steps"));
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
  return Gather(std::move(shape), std::move(strides), offset);
}

Result<Movement> PlanConcat(const Node& node, Operands in) {
  const Tensor& first = in[0].tensor;
  OCTAVO_TRY(const int64_t axis, Axis(node.attrs.Int("axis", 0), first.rank()));
  const auto a = static_cast<size_t>(axis);
  Movement m;
  Shape shape = first.shape();
  shape[a] = 0;
  for (size_t i = 0; i < in.size(); ++i) {
    if (!Has(in, i)) return Fail("operand {} is absent", i);
    const Tensor& t = in[i].tensor;
    bool fits = t.dtype() == first.dtype() && t.rank() == first.rank();
    for (size_t d = 0; fits && d < shape.size(); ++d) fits = d == a || t.shape()[d] == shape[d];
    if (!fits) return Fail("operand {} does not fit the first one along axis {}", i, axis);
    m.moves.push_back({.from = i, .shape = t.shape(), .from_strides = StridesOf(t.shape()), .to_offset = shape[a]});
    if (__builtin_add_overflow(shape[a], t.shape()[a], &shape[a])) return Fail("the sizes overflow");
  }
  OCTAVO_TRY_STATUS(CheckShape(first.dtype(), shape));
  const std::vector<int64_t> strides = StridesOf(shape);
  for (Move& move : m.moves) move.to_strides = strides, move.to_offset *= strides[a];
  m.results.push_back(std::move(shape));
  return m;
}

Result<std::vector<int64_t>> SplitSizes(const Node& node, Operands in, int64_t dim) {
  const auto parts = static_cast<int64_t>(node.outputs.size());
  if (Has(in, 1)) {
    OCTAVO_TRY(auto sizes, IntsOf(in[1].tensor, "split"));
    int64_t sum = 0;
    for (int64_t s : sizes) {
      if (s < 0 || s > dim) return Fail("a part of size {} is not possible", s);
      sum += s;
    }
    if (sum != dim) return Fail("the parts {} do not add up to {}", ToString(sizes), dim);
    if (static_cast<int64_t>(sizes.size()) != parts) return Fail("{} parts for {} outputs", sizes.size(), parts);
    return sizes;
  }
  if (node.attrs.Int("num_outputs", parts) != parts) return Fail("num_outputs is not the number of outputs, {}", parts);
  const int64_t size = (dim + parts - 1) / parts;
  std::vector<int64_t> sizes;
  sizes.reserve(static_cast<size_t>(parts));
  for (int64_t i = 0; i < parts; ++i) sizes.push_back(std::max<int64_t>(0, std::min(size, dim - i * size)));
  return sizes;
}

Result<Movement> PlanSplit(const Node& node, Operands in) {
  const Tensor& x = in[0].tensor;
  OCTAVO_TRY(const int64_t axis, Axis(node.attrs.Int("axis", 0), x.rank()));
  const auto a = static_cast<size_t>(axis);
  OCTAVO_TRY(const auto sizes, SplitSizes(node, in, x.shape()[a]));
  const auto strides = StridesOf(x.shape());
  Movement m;
  int64_t offset = 0;
  for (size_t i = 0; i < sizes.size(); ++i) {
    Shape shape = x.shape();
    shape[a] = sizes[i];
    m.moves.push_back({.to = i,
                       .shape = shape,
                       .from_strides = strides,
                       .to_strides = StridesOf(shape),
                       .from_offset = sizes[i] == 0 ? 0 : offset * strides[a]});
    m.results.push_back(std::move(shape));
    offset += sizes[i];
  }
  return m;
}

Result<Movement> PlanExpand(const Node&, Operands in) {
  const Tensor& x = in[0].tensor;
  OCTAVO_TRY(const auto target, IntsOf(in[1].tensor, "the target shape"));
  OCTAVO_TRY_STATUS(CheckShape(x.dtype(), target));
  OCTAVO_TRY(Shape shape, BroadcastShapes(x.shape(), target));
  OCTAVO_TRY_STATUS(CheckShape(x.dtype(), shape));
  auto strides = BroadcastStrides(x.shape(), shape);
  return Gather(std::move(shape), std::move(strides));
}

// One axis after the other becomes two, (repeat, dim): strides 0 and the dim's own.
Result<Movement> PlanTile(const Node&, Operands in) {
  const Tensor& x = in[0].tensor;
  OCTAVO_TRY(const auto repeats, IntsOf(in[1].tensor, "repeats"));
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
  Movement m = Gather(std::move(spread), std::move(steps));
  m.results[0] = std::move(shape);
  return m;
}

Status MakeMoves(Call& call, const Movement& m) {
  const DType dtype = call.T(0).dtype();
  OCTAVO_TRY(const size_t bytes, ElementBytes(dtype));
  std::vector<Tensor> results;
  for (const Shape& shape : m.results) {
    OCTAVO_TRY(Tensor y, Alloc(dtype, shape));
    results.push_back(std::move(y));
  }
  for (const Move& move : m.moves) {
    MakeMove(move, call.T(move.from).data(), results[move.to].mutable_data(), bytes);
  }
  for (size_t i = 0; i < results.size(); ++i) call.Return(std::move(results[i]), i);
  return {};
}

template <MovementPlanner kPlan>
Status Moved(Call& call) {
  OCTAVO_TRY(const Movement m, kPlan(call.node, call.in));
  return MakeMoves(call, m);
}

Status Expand(Call& call) {
  OCTAVO_TRY(const Movement m, PlanExpand(call.node, call.in));
  if (m.results[0] != call.T(0).shape()) return MakeMoves(call, m);
  call.Return(call.T(0));
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
  const Shape six = dcr ? Shape{s[0], b, b, c, s[2], s[3]} : Shape{s[0], c, b, b, s[2], s[3]};
  Movement m =
      dcr ? Permute(six, std::vector<int64_t>{0, 3, 4, 1, 5, 2}) : Permute(six, std::vector<int64_t>{0, 1, 4, 2, 5, 3});
  m.results[0] = {s[0], c, s[2] * b, s[3] * b};
  return MakeMoves(call, m);
}

Status SpaceToDepth(Call& call) {
  const Tensor& x = call.T(0);
  OCTAVO_TRY(const int64_t b, BlockOf(call));
  const Shape& s = x.shape();
  if (s[2] % b != 0 || s[3] % b != 0) return Fail("height and width are no multiples of blocksize {}", b);
  const std::string mode = call.node.attrs.Str("mode", "DCR");
  if (mode != "DCR" && mode != "CRD") return Fail("mode is '{}'; it must be DCR or CRD", mode);
  const Shape six = {s[0], s[1], s[2] / b, b, s[3] / b, b};
  Movement m = mode == "DCR" ? Permute(six, std::vector<int64_t>{0, 3, 5, 1, 2, 4})
                             : Permute(six, std::vector<int64_t>{0, 1, 3, 5, 2, 4});
  m.results[0] = {s[0], s[1] * b * b, s[2] / b, s[3] / b};
  return MakeMoves(call, m);
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

MovementPlanner MovementPlannerOf(Op op) {
  switch (op) {
    case Op::kTranspose:
      return PlanTranspose;
    case Op::kSlice:
      return PlanSlice;
    case Op::kConcat:
      return PlanConcat;
    case Op::kSplit:
      return PlanSplit;
    default:
      return nullptr;
  }
}

void MakeMove(const Move& move, const std::byte* from, std::byte* to, size_t element) {
  const auto bytes = static_cast<int64_t>(element);
  CopyStrided(from + move.from_offset * bytes, move.from_strides, to + move.to_offset * bytes, move.to_strides,
              move.shape, element);
}

void RegisterMovement(Table& t) {
  t.Set(Op::kTranspose, Moved<PlanTranspose>);
  t.Set(Op::kSlice, Moved<PlanSlice>);
  t.Set(Op::kConcat, Moved<PlanConcat>);
  t.Set(Op::kSplit, Moved<PlanSplit>);
  t.Set(Op::kExpand, Expand);
  t.Set(Op::kTile, Moved<PlanTile>);
  t.Set(Op::kDepthToSpace, DepthToSpace);
  t.Set(Op::kSpaceToDepth, SpaceToDepth);
  t.Set(Op::kTrilu, Trilu);
}

}  // namespace octavo::ir::interpret
