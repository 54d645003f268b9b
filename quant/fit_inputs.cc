#include <algorithm>
#include <cmath>
#include <limits>

#include "octavo/ir/closed.h"
#include "octavo/ir/names.h"
#include "octavo/quant/dataset.h"
#include "octavo/quant/numeric/float16.h"

namespace octavo::quant {

namespace {

using ir::DType;
using ir::Fail;
using ir::Result;
using ir::Status;
using ir::Tensor;

struct IntLimits {
  int64_t lo = std::numeric_limits<int64_t>::min();
  int64_t hi = std::numeric_limits<int64_t>::max();
};

IntLimits LimitsOf(DType t) {
  if (t == DType::kS64) return {};
  if (t == DType::kU64) return {0, std::numeric_limits<int64_t>::max()};
  if (t == DType::kU32) return {0, UINT32_MAX};
  if (t == DType::kBool) return {0, 1};
  const auto [lo, hi] = RangeOf(t);
  return {lo, hi};
}

template <typename T>
void FillInts(Tensor& out, const Tensor& in) {
  auto to = out.mutable_as<T>();
  for (size_t i = 0; i < to.size(); ++i) to[i] = static_cast<T>(in.GetInt(static_cast<int64_t>(i)));
}

Result<Tensor> ConvertInts(const Tensor& in, DType want, const std::string& place) {
  const IntLimits limits = LimitsOf(want);
  for (int64_t i = 0; i < in.size(); ++i) {
    const int64_t v = in.GetInt(i);
    // A u64 beyond int64 reads as negative, which no source type but s64 means.
    if (v < limits.lo || v > limits.hi || (v < 0 && in.dtype() == DType::kU64)) {
      return Fail("{} is {}, the model wants {}, and element {} ({}) does not fit", place, Name(in.dtype()), Name(want),
                  i, v);
    }
  }
  Tensor out = Tensor::Empty(want, in.shape());
  switch (BitsOf(want)) {
    case 8:
      FillInts<uint8_t>(out, in);
      break;
    case 16:
      FillInts<uint16_t>(out, in);
      break;
    case 32:
      FillInts<uint32_t>(out, in);
      break;
    default:
      FillInts<uint64_t>(out, in);
      break;
  }
  return out;
}

Result<Tensor> ConvertFloats(const Tensor& in, DType want, const std::string& place) {
  Tensor out = Tensor::Empty(want, in.shape());
  for (int64_t i = 0; i < in.size(); ++i) {
    const double v = in.GetDouble(i);
    const auto at = static_cast<size_t>(i);
    if (want == DType::kF64) {
      out.mutable_as<double>()[at] = v;
    } else if (want == DType::kF32) {
      out.mutable_as<float>()[at] = static_cast<float>(v);
    } else {
      const auto f = static_cast<float>(v);
      out.mutable_as<uint16_t>()[at] = want == DType::kF16 ? F32ToF16(f) : F32ToBF16(f);
    }
    const double back = out.GetDouble(i);
    if (back != v && !(std::isnan(back) && std::isnan(v))) {
      return Fail(
          "{} is {}, the model wants {}, and element {} ({}) would be rounded; convert it yourself if that is meant",
          place, Name(in.dtype()), Name(want), i, v);
    }
  }
  return out;
}

Result<Tensor> Convert(const Tensor& in, DType want, const std::string& place) {
  const bool whole = (IsInteger(in.dtype()) || in.dtype() == DType::kBool) &&
                     (IsInteger(want) || want == DType::kBool) && BitsOf(want) >= 8;
  if (whole) return ConvertInts(in, want, place);
  const bool wide = want == DType::kF64 || want == DType::kF32 || want == DType::kF16 || want == DType::kBF16;
  if (IsFloat(in.dtype()) && wide) return ConvertFloats(in, want, place);
  return Fail("{} is {}, but the model wants {}", place, Name(in.dtype()), Name(want));
}

Status CheckNumbers(const Tensor& t, const std::string& place) {
  if (!IsFloat(t.dtype())) return {};
  if (t.dtype() == DType::kF32 && std::ranges::none_of(t.as<float>(), [](float v) { return std::isnan(v); })) return {};
  for (int64_t i = 0; i < t.size(); ++i) {
    if (std::isnan(t.GetDouble(i))) {
      return Fail("{} has a NaN at element {} of shape {}; calibration data must be numbers", place, i,
                  ir::ToString(t.shape()));
    }
  }
  return {};
}

// Symbols get their sizes here, so that the same symbol in two arrays must have one size.
Status CheckShape(const Tensor& t, const ir::Type& want, std::map<std::string, int64_t>& symbols,
                  const std::string& place) {
  if (!want.shape) return {};
  if (t.shape().size() != want.shape->size()) {
    return Fail("{} has shape {}, but the model wants rank {}: {}", place, ir::ToString(t.shape()), want.shape->size(),
                ir::ToString(*want.shape));
  }
  for (size_t i = 0; i < t.shape().size(); ++i) {
    const ir::Dim& dim = (*want.shape)[i];
    const int64_t size = t.shape()[i];
    if (dim.is_number() && dim.number() != size) {
      return Fail("{} has shape {}, but the model wants {}", place, ir::ToString(t.shape()), ir::ToString(*want.shape));
    }
    const std::string symbol = dim.symbol();
    if (symbol.empty()) continue;
    const auto [it, fresh] = symbols.emplace(symbol, size);
    if (!fresh && it->second != size) {
      return Fail("{} has shape {}, so '{}' of {} is {}, but another array says {}", place, ir::ToString(t.shape()),
                  symbol, ir::ToString(*want.shape), size, it->second);
    }
  }
  return {};
}

}  // namespace

std::vector<InputSpec> InputsOf(const ir::Graph& graph) {
  std::vector<InputSpec> specs;
  for (const ir::ValueId id : graph.inputs()) specs.push_back({graph.value(id).name, graph.value(id).type});
  return specs;
}

std::string NamesOf(const std::vector<InputSpec>& inputs) {
  std::string names;
  for (const InputSpec& input : inputs) {
    if (names.size() < 1000) names += (names.empty() ? "" : ", ") + ir::Clean(input.name);
  }
  return names;
}

namespace {

// What hands ids on as they are: exporters put a Reshape or a Cast between an input and its table.
bool KeepsIds(ir::Op op) {
  using ir::Op;
  constexpr Op kOps[] = {Op::kReshape, Op::kCast,   Op::kUnsqueeze, Op::kSqueeze,  Op::kFlatten,
                         Op::kSlice,   Op::kExpand, Op::kIdentity,  Op::kTranspose};
  return std::ranges::find(kOps, op) != std::end(kOps);
}

// The fewest rows of a table that `v` indexes, at most `steps` nodes away; 0: none is known.
int64_t LimitOf(const ir::Graph& g, ir::ValueId v, int steps = 16) {
  int64_t least = 0;
  for (const ir::Use& u : g.value(v).uses) {
    const ir::Node& n = g.node(u.node);
    int64_t limit = 0;
    if (u.slot == 0 && steps > 0 && KeepsIds(n.op)) {
      limit = LimitOf(g, n.output(), steps - 1);
    } else if (u.slot == 1 && n.op == ir::Op::kGather && n.attrs.Int("axis", 0) == 0) {
      const auto& table = g.value(n.inputs[0]).type.shape;
      if (table && !table->empty() && (*table)[0].is_number()) limit = (*table)[0].number();
    }
    if (limit > 0) least = least == 0 ? limit : std::min(least, limit);
  }
  return least;
}

}  // namespace

std::map<std::string, int64_t> IdLimits(const ir::Graph& graph) {
  std::map<std::string, int64_t> limits;
  for (ir::ValueId in : graph.inputs()) {
    const ir::Type& type = graph.value(in).type;
    if (!IsInteger(type.dtype)) continue;
    if (const int64_t limit = LimitOf(graph, in); limit > 0) limits[graph.value(in).name] = limit;
  }
  return limits;
}

namespace {

Result<ir::TensorMap> Fit(ir::TensorMap arrays, const std::vector<InputSpec>& inputs, std::string_view place,
                          Numbers numbers) {
  std::map<std::string, int64_t> symbols;
  ir::TensorMap out;
  for (const auto& [name, type] : inputs) {
    const auto it = arrays.find(name);
    if (it == arrays.end()) return Fail("{} has no array {}, which the model needs", place, ir::Quoted(name));
    Tensor tensor = std::move(it->second);
    arrays.erase(it);
    const std::string what = std::format("array {} of {}", ir::Quoted(name), place);
    if (type.dtype != DType::kUndefined && tensor.dtype() != type.dtype) {
      OCTAVO_TRY(tensor, Convert(tensor, type.dtype, what));
    }
    OCTAVO_TRY_STATUS(CheckShape(tensor, type, symbols, what));
    if (numbers == Numbers::kMustBe) OCTAVO_TRY_STATUS(CheckNumbers(tensor, what));
    out.emplace(name, std::move(tensor));
  }
  if (!arrays.empty()) {
    return Fail("{} has an array {}, which is no input of the model; its inputs are: {}", place,
                ir::Quoted(arrays.begin()->first), NamesOf(inputs));
  }
  return out;
}

}  // namespace

Result<ir::TensorMap> FitInputs(ir::TensorMap arrays, const std::vector<InputSpec>& inputs, std::string_view place,
                                Numbers numbers) {
  return ir::Closed(place, [&] { return Fit(std::move(arrays), inputs, place, numbers); });
}

}  // namespace octavo::quant
