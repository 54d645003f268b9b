// Propagation of the elements of small integer tensors: moving elements about. Arithmetic is in infer_arithmetic.cc.
// Runs after the op's rule, so that the inferred output shapes can be asked. An element that cannot be told is unknown.
#include <algorithm>
#include <limits>

#include "octavo/ir/infer_arithmetic.h"
#include "octavo/ir/infer_rules.h"

namespace octavo::ir {

namespace {

// The number of elements of output `i` where it is small enough to be listed.
std::optional<size_t> CountOf(const Inferrer& c, size_t i = 0) {
  const MaybeShape& shape = c.InferredShape(i);
  if (!shape || shape->size() > 1) return std::nullopt;
  if (shape->empty()) return 1;
  const Dim& d = (*shape)[0];
  if (!d.is_number() || d.number() < 0 || d.number() > static_cast<int64_t>(kMaxContents)) return std::nullopt;
  return static_cast<size_t>(d.number());
}

void Constant(Inferrer& c) {
  const Tensor* t = std::get_if<Tensor>(c.node().attrs.Find("value"));
  if (t == nullptr || t->rank() > 2 || t->size() > static_cast<int64_t>(kMaxContents)) return;
  const bool whole = quant::IsInteger(t->dtype()) || t->dtype() == DType::kBool;
  if (!whole && t->dtype() != DType::kF32) return;
  SymContents out;
  out.reserve(static_cast<size_t>(t->size()));
  for (int64_t i = 0; i < t->size(); ++i) {
    if (whole) {
      out.emplace_back(t->GetInt(i));
      continue;
    }
    const double v = t->GetDouble(i);
    if (!(v > -kWholeFloats && v < kWholeFloats) || v != static_cast<double>(static_cast<int64_t>(v))) return;
    out.emplace_back(static_cast<int64_t>(v));
  }
  c.SetContents(0, std::move(out));
}

void ShapeOfTensor(Inferrer& c) {
  const SymShape* from = c.ShapeOf(0);
  const auto count = CountOf(c);
  if (from == nullptr || !count) return;
  const auto rank = static_cast<int64_t>(from->size());
  int64_t start = c.node().attrs.Int("start", 0);
  start = std::clamp(start < 0 ? start + rank : start, int64_t{0}, rank);
  c.SetContents(0, SymContents(from->begin() + start, from->begin() + start + static_cast<int64_t>(*count)));
}

void Size(Inferrer& c) {
  if (const SymShape* from = c.ShapeOf(0)) c.SetContents(0, {ProductOf(*from)});
}

// Same elements in the same order: views, and casts among whole numbers.
void Same(Inferrer& c) {
  if (const SymContents* from = c.Contents(0)) c.SetContents(0, *from);
}

void Transpose(Inferrer& c) {
  const SymContents* from = c.Contents(0);
  const SymShape* shape = c.ShapeOf(0);
  if (from == nullptr || shape == nullptr) return;
  const std::vector<int64_t> perm = c.node().attrs.Ints("perm");  // empty: reversed
  if (shape->size() < 2 || (!perm.empty() && perm[0] == 0)) return c.SetContents(0, *from);
  if (!(*shape)[1].is_number()) return;
  const auto columns = static_cast<size_t>((*shape)[1].number());
  SymContents out;
  for (size_t column = 0; column < columns; ++column) {
    for (size_t i = column; i < from->size(); i += columns) out.push_back((*from)[i]);
  }
  c.SetContents(0, std::move(out));
}

// Rows of a matrix, as torch reverses pads: [::-1] on axis 0.
void SliceRows(Inferrer& c, const SymContents& data, const SymShape& from, int64_t start, int64_t step) {
  const MaybeShape& to = c.InferredShape(0);
  const auto axes = c.Numbers(3);
  const bool rows = !c.Has(3) || (axes && axes->size() == 1 && ((*axes)[0] == 0 || (*axes)[0] == -2));
  if (!rows || !to || to->size() != 2 || !(*to)[0].is_number() || !from[1].is_number() || !from[0].is_number()) return;
  const int64_t columns = from[1].number();
  SymContents out;
  for (int64_t i = 0; i < (*to)[0].number(); ++i) {
    const int64_t row = start + i * step;
    if (row < 0 || row >= from[0].number()) return;
    out.insert(out.end(), data.begin() + row * columns, data.begin() + (row + 1) * columns);
  }
  c.SetContents(0, std::move(out));
}

void Gather(Inferrer& c) {
  const SymContents* data = c.Contents(0);
  const SymShape* shape = c.ShapeOf(0);
  const auto indices = c.Numbers(1);
  if (data == nullptr || shape == nullptr || shape->size() != 1 || !indices) return;
  const auto count = static_cast<int64_t>(data->size());
  SymContents out;
  for (const int64_t i : *indices) {
    const int64_t place = i < 0 ? i + count : i;
    out.push_back(place >= 0 && place < count ? (*data)[static_cast<size_t>(place)] : Dim());
  }
  c.SetContents(0, std::move(out));
}

// Indices are constants of rank 1 or 2 with depth 1, as exporters write shape[i].
void GatherND(Inferrer& c) {
  const SymContents* data = c.Contents(0);
  const SymShape* shape = c.ShapeOf(0);
  const Tensor* indices = c.Constant(1);
  if (data == nullptr || shape == nullptr || shape->size() != 1 || indices == nullptr || indices->rank() < 1 ||
      !quant::IsInteger(indices->dtype()) || indices->shape().back() != 1 ||
      indices->size() > static_cast<int64_t>(kMaxContents)) {
    return;
  }
  const auto count = static_cast<int64_t>(data->size());
  SymContents out;
  for (int64_t i = 0; i < indices->size(); ++i) {
    const int64_t at = indices->GetInt(i);
    const int64_t place = at < 0 ? at + count : at;
    out.push_back(place >= 0 && place < count ? (*data)[static_cast<size_t>(place)] : Dim());
  }
  c.SetContents(0, std::move(out));
}

void Slice(Inferrer& c) {
  const SymContents* data = c.Contents(0);
  const SymShape* shape = c.ShapeOf(0);
  const auto starts = c.Numbers(1);
  if (data == nullptr || shape == nullptr || shape->empty() || !starts || starts->size() != 1) return;
  const auto steps = c.Numbers(4);
  if ((c.Has(4) && !steps) || !(*shape)[0].is_number()) return;
  const int64_t step = steps ? (*steps)[0] : 1;
  const int64_t size = (*shape)[0].number();
  const int64_t wish = (*starts)[0] < 0 ? (*starts)[0] + size : (*starts)[0];
  const int64_t start = std::clamp(wish, int64_t{0}, std::max<int64_t>(step < 0 ? size - 1 : size, 0));
  if (shape->size() == 2) return SliceRows(c, *data, *shape, start, step);
  const auto count = CountOf(c);
  if (!count) return;
  SymContents out;
  for (size_t i = 0; i < *count; ++i) {
    const int64_t place = start + static_cast<int64_t>(i) * step;
    if (place < 0 || place >= size) return;
    out.push_back((*data)[static_cast<size_t>(place)]);
  }
  c.SetContents(0, std::move(out));
}

void Concat(Inferrer& c) {
  SymContents out;
  for (size_t i = 0; i < c.node().inputs.size(); ++i) {
    const SymShape* shape = c.ShapeOf(i);
    if (shape == nullptr || shape->size() != 1) return;
    if (const SymContents* part = c.Contents(i)) {
      out.insert(out.end(), part->begin(), part->end());
    } else {
      const Dim& d = (*shape)[0];
      if (!d.is_number() || d.number() < 0 || d.number() > static_cast<int64_t>(kMaxContents)) return;
      out.resize(out.size() + static_cast<size_t>(d.number()));
    }
    if (out.size() > kMaxContents) return;
  }
  if (std::ranges::any_of(out, [](const Dim& d) { return d.known(); })) c.SetContents(0, std::move(out));
}

void Split(Inferrer& c) {
  const SymContents* data = c.Contents(0);
  const SymShape* shape = c.ShapeOf(0);
  if (data == nullptr || shape == nullptr || shape->size() != 1) return;
  size_t begin = 0;
  for (size_t i = 0; i < c.node().outputs.size(); ++i) {
    const auto count = CountOf(c, i);
    if (!count || begin + *count > data->size()) return;
    const auto first = data->begin() + static_cast<int64_t>(begin);
    c.SetContents(i, SymContents(first, first + static_cast<int64_t>(*count)));
    begin += *count;
  }
}

void ConstantOfShape(Inferrer& c) {
  const Tensor value = c.node().attrs.TensorOr("value");
  const auto count = CountOf(c);
  if (!count || !value.defined() || value.size() != 1) return;
  if (quant::IsInteger(value.dtype()) || value.dtype() == DType::kBool) {
    c.SetContents(0, SymContents(*count, Dim(value.GetInt(0))));
  }
}

void Expand(Inferrer& c) {
  const SymContents* from = c.Contents(0);
  const auto count = CountOf(c);
  if (from == nullptr || !count) return;
  if (from->size() == *count) return c.SetContents(0, *from);
  if (from->size() == 1) c.SetContents(0, SymContents(*count, (*from)[0]));
}

void Tile(Inferrer& c) {
  const SymContents* from = c.Contents(0);
  const auto count = CountOf(c);
  if (from == nullptr || !count || from->empty()) return;  // the count is of a vector or scalar
  SymContents out;
  for (size_t i = 0; i < *count; ++i) out.push_back((*from)[i % from->size()]);
  c.SetContents(0, std::move(out));
}

void Range(Inferrer& c) {
  const auto start = c.Numbers(0);
  const auto step = c.Numbers(2);
  const auto count = CountOf(c);
  if (!start || !step || !count || start->size() != 1 || step->size() != 1) return;
  SymContents out;
  for (size_t i = 0; i < *count; ++i) out.push_back(Dim((*start)[0]) + Dim((*step)[0]) * Dim(static_cast<int64_t>(i)));
  c.SetContents(0, std::move(out));
}

void ScatterInto(Inferrer& c) {
  const SymContents* data = c.Contents(0);
  const Tensor* indices = c.Constant(1);
  const SymContents* updates = c.Contents(2);
  if (data == nullptr || indices == nullptr || !quant::IsInteger(indices->dtype())) return;
  if (c.node().attrs.Str("reduction", "none") != "none" || c.ShapeOf(0) == nullptr || c.ShapeOf(0)->size() != 1) return;
  SymContents out = *data;
  for (int64_t i = 0; i < indices->size(); ++i) {
    int64_t place = indices->GetInt(i);
    if (place < 0) place += static_cast<int64_t>(out.size());
    if (place < 0 || place >= static_cast<int64_t>(out.size())) return;
    const bool known = updates != nullptr && i < static_cast<int64_t>(updates->size());
    out[static_cast<size_t>(place)] = known ? (*updates)[static_cast<size_t>(i)] : Dim();
  }
  c.SetContents(0, std::move(out));
}

void Negated(Inferrer& c) {
  const SymContents* from = c.Contents(0);
  if (from == nullptr) return;
  SymContents out;
  for (const Dim& d : *from) out.push_back(Dim(0) - d);
  c.SetContents(0, std::move(out));
}

using Step = void (*)(Inferrer&);

Step MovingStep(Op op) {
  switch (op) {
    case Op::kConstant:
      return Constant;
    case Op::kShape:
      return ShapeOfTensor;
    case Op::kSize:
      return Size;
    case Op::kIdentity:
    case Op::kReshape:
    case Op::kSqueeze:
    case Op::kUnsqueeze:
      return Same;
    case Op::kNeg:
      return Negated;
    case Op::kTranspose:
      return Transpose;
    case Op::kGather:
      return Gather;
    case Op::kGatherND:
      return GatherND;
    case Op::kSlice:
      return Slice;
    case Op::kConcat:
      return Concat;
    case Op::kSplit:
      return Split;
    case Op::kConstantOfShape:
      return ConstantOfShape;
    case Op::kExpand:
      return Expand;
    case Op::kTile:
      return Tile;
    case Op::kRange:
      return Range;
    case Op::kScatterElements:
    case Op::kScatterND:
      return ScatterInto;
    default:
      return nullptr;
  }
}

}  // namespace

void InferContents(Inferrer& c) {
  if (const Step step = MovingStep(c.node().op)) return step(c);
  InferArithmetic(c);
}

}  // namespace octavo::ir
