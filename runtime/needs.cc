#include "octavo/runtime/needs.h"

#include <algorithm>
#include <bit>

namespace octavo::runtime {

using ir::DType;
using ir::Shape;

void Needs::Add(size_t slot, DType dtype, Form form, std::span<const Size> dims) {
  constexpr size_t kMost = (1 << 24) - 1;
  OCTAVO_CHECK(slot <= kMost && dims.size() <= kMost, "slot {} of rank {}", slot, dims.size());
  Line line{};
  line.slot = slot & kMost, line.count = dims.size() & kMost;
  line.dtype = static_cast<uint8_t>(dtype), line.form = static_cast<uint8_t>(form);
  words_.push_back(std::bit_cast<int64_t>(line));
  for (const Size& dim : dims) words_.push_back(dim.code_);
}

void Needs::Typed(size_t slot, DType dtype) { Operand(slot, dtype, Form::kTyped, {}); }
void Needs::Exactly(size_t slot, DType dtype, Sizes dims) { Operand(slot, dtype, Form::kExactly, dims); }
void Needs::EndsIn(size_t slot, DType dtype, Sizes dims) { Operand(slot, dtype, Form::kEndsIn, dims); }
void Needs::Count(size_t slot, DType dtype, Size elements) { Operand(slot, dtype, Form::kCount, {elements}); }
void Needs::BroadcastsTo(size_t slot, DType dtype, Sizes dims) { Operand(slot, dtype, Form::kBroadcastsTo, dims); }

void Needs::Operand(size_t slot, DType dtype, Form form, Sizes dims) {
  OCTAVO_CHECK(results_ == words_.size(), "an operand after results");
  Add(slot, dtype, form, {dims.begin(), dims.size()});
  results_ = words_.size();
}

void Needs::AddType(size_t slot, const ir::Type& type) {
  std::vector<Size> dims;
  for (const ir::Dim& d : type.shape.value_or(ir::SymShape{})) {
    dims.push_back(d.is_number() && d.number() >= 0 ? Size(d.number()) : Size::Any());
  }
  Add(slot, type.dtype, type.shape ? Form::kExactly : Form::kTyped, dims);
}

void Needs::Of(size_t slot, const ir::Type& type) {
  OCTAVO_CHECK(results_ == words_.size(), "an operand after results");
  AddType(slot, type);
  results_ = words_.size();
}

void Needs::Makes(size_t slot, const ir::Type& type) { AddType(slot, type); }

bool Needs::Fits(int64_t code, int64_t dim, Found& found) {
  if (code >= -1) return code == -1 || code == dim;
  int64_t& same = found.sizes[-2 - code];
  if (same < 0) same = dim;
  return same == dim;
}

bool Needs::FitsShape(const Line& line, const int64_t* codes, const Shape& shape, Found& found) {
  const size_t rank = shape.size(), count = line.count;
  const auto form = static_cast<Form>(line.form);
  switch (form) {
    case Form::kTyped:
      return true;
    case Form::kExactly:
    case Form::kEndsIn: {
      if (rank < count || (form == Form::kExactly && rank != count)) return false;
      const size_t leading = rank - count;
      for (size_t i = 0; i < count; ++i) {
        if (!Fits(codes[i], shape[leading + i], found)) return false;
      }
      if (form == Form::kExactly) return true;
      if (found.leading == nullptr) found.leading = &shape, found.rank = leading;
      return found.rank == leading &&
             std::equal(shape.begin(), shape.begin() + static_cast<int64_t>(leading), found.leading->begin());
    }
    case Form::kCount:
      return Fits(codes[0], ir::ElementCount(shape), found);
    case Form::kBroadcastsTo:
      if (rank > count) return false;
      for (size_t i = 0; i < rank; ++i) {
        if (shape[i] != 1 && !Fits(codes[count - rank + i], shape[i], found)) return false;
      }
      return true;
  }
  return false;
}

std::string Needs::Describe(const Line& line, const int64_t* codes, const Found& found) {
  const auto dtype = static_cast<DType>(line.dtype);
  const auto form = static_cast<Form>(line.form);
  const std::string text = dtype == DType::kUndefined ? "" : std::string(quant::Name(dtype));
  std::string dims;
  for (uint32_t i = 0; i < line.count; ++i) {
    const int64_t number = codes[i] < -1 ? found.sizes[-2 - codes[i]] : codes[i];
    dims += (i == 0 ? "" : ",") + (number < 0 ? "?" : std::to_string(number));
  }
  switch (form) {
    case Form::kTyped:
      return text.empty() ? "something" : text;
    case Form::kExactly:
      return text + "[" + dims + "]";
    case Form::kCount:
      return text + " of " + dims + " elements";
    case Form::kBroadcastsTo:
      return text + " that broadcasts to [" + dims + "]";
    case Form::kEndsIn:
      break;
  }
  std::string leading = found.leading == nullptr ? "..." : "";
  for (size_t i = 0; i < found.rank; ++i) leading += (i == 0 ? "" : ",") + std::to_string((*found.leading)[i]);
  return text + "[" + leading + (leading.empty() || dims.empty() ? "" : ",") + dims + "]";
}

ir::Status Needs::Compare(std::span<const ir::RtValue> values, size_t begin, size_t end, const char* what) const {
  Found found;
  for (size_t at = begin; at < end;) {
    const Line line = std::bit_cast<Line>(words_[at]);
    const int64_t* codes = words_.data() + at + 1;
    at += 1 + line.count;
    const ir::Tensor* t = line.slot < values.size() ? &values[line.slot].tensor : nullptr;
    if (t == nullptr || !t->defined()) return ir::Fail("{} {} is absent", what, static_cast<size_t>(line.slot));
    const auto dtype = static_cast<DType>(line.dtype);
    const bool typed = dtype == DType::kUndefined || dtype == t->dtype();
    if (typed && FitsShape(line, codes, t->shape(), found)) [[likely]]
      continue;
    return ir::Fail("{} {} is {}{}, expected was {}", what, static_cast<size_t>(line.slot), quant::Name(t->dtype()),
                    ir::ToString(t->shape()), Describe(line, codes, found));
  }
  return {};
}

}  // namespace octavo::runtime
