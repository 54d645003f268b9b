#include "octavo/runtime/needs.h"

#include <algorithm>

namespace octavo::runtime {

using ir::DType;
using ir::Shape;

void Needs::Add(size_t slot, DType dtype, Form form, Sizes dims) {
  const auto first = static_cast<uint32_t>(codes_.size());
  for (const Size& dim : dims) codes_.push_back(dim.code_);
  lines_.push_back({static_cast<uint32_t>(slot), dtype, form, first, static_cast<uint32_t>(dims.size())});
}

void Needs::Typed(size_t slot, DType dtype) { Add(slot, dtype, Form::kTyped, {}); }
void Needs::Exactly(size_t slot, DType dtype, Sizes dims) { Add(slot, dtype, Form::kExactly, dims); }
void Needs::EndsIn(size_t slot, DType dtype, Sizes dims) { Add(slot, dtype, Form::kEndsIn, dims); }
void Needs::Count(size_t slot, DType dtype, Size elements) { Add(slot, dtype, Form::kCount, {elements}); }
void Needs::BroadcastsTo(size_t slot, DType dtype, Sizes dims) { Add(slot, dtype, Form::kBroadcastsTo, dims); }

void Needs::Of(size_t slot, const ir::Type& type) {
  if (type.dtype == DType::kUndefined && !type.shape) return;
  Add(slot, type.dtype, type.shape ? Form::kExactly : Form::kTyped, {});
  if (!type.shape) return;
  for (const ir::Dim& d : *type.shape) codes_.push_back(d.is_number() && d.number() >= 0 ? d.number() : -1);
  lines_.back().count = static_cast<uint32_t>(type.shape->size());
}

bool Needs::Fits(int64_t code, int64_t dim, Found& found) {
  if (code >= -1) return code == -1 || code == dim;
  int64_t& same = found.sizes[-2 - code];
  if (same < 0) same = dim;
  return same == dim;
}

bool Needs::FitsShape(const Line& line, const Shape& shape, Found& found) const {
  const int64_t* codes = codes_.data() + line.first;
  const size_t rank = shape.size(), count = line.count;
  switch (line.form) {
    case Form::kTyped:
      return true;
    case Form::kExactly:
    case Form::kEndsIn: {
      if (rank < count || (line.form == Form::kExactly && rank != count)) return false;
      const size_t leading = rank - count;
      for (size_t i = 0; i < count; ++i) {
        if (!Fits(codes[i], shape[leading + i], found)) return false;
      }
      if (line.form == Form::kExactly) return true;
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

std::string Needs::Describe(const Line& line, const Found& found) const {
  std::string text = line.dtype == DType::kUndefined ? "" : std::string(quant::Name(line.dtype));
  if (line.form == Form::kTyped) return text;
  std::string dims;
  for (uint32_t i = 0; i < line.count; ++i) {
    const int64_t code = codes_[line.first + i], number = code < -1 ? found.sizes[-2 - code] : code;
    dims += (i == 0 ? "" : ",") + (number < 0 ? "?" : std::to_string(number));
  }
  if (line.form == Form::kCount) return text + " of " + dims + " elements";
  if (line.form == Form::kBroadcastsTo) return text + " that broadcasts to [" + dims + "]";
  if (line.form == Form::kExactly) return text + "[" + dims + "]";
  std::string leading;
  for (size_t i = 0; i < found.rank; ++i) leading += std::to_string((*found.leading)[i]) + ",";
  if (found.leading == nullptr) leading = "...,";
  std::string shape = leading + dims;
  if (dims.empty() && !shape.empty()) shape.pop_back();
  return text + "[" + shape + "]";
}

ir::Status Needs::Check(std::span<const ir::RtValue> operands, std::string_view what) const {
  Found found;
  for (const Line& line : lines_) {
    const ir::Tensor* t = line.slot < operands.size() ? &operands[line.slot].tensor : nullptr;
    if (t == nullptr || !t->defined()) return ir::Fail("{} {} is absent", what, line.slot);
    const bool typed = line.dtype == DType::kUndefined || line.dtype == t->dtype();
    if (typed && FitsShape(line, t->shape(), found)) [[likely]]
      continue;
    return ir::Fail("{} {} is {}{}, expected was {}", what, line.slot, quant::Name(t->dtype()),
                    ir::ToString(t->shape()), Describe(line, found));
  }
  return {};
}

}  // namespace octavo::runtime
