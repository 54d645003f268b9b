// The ops of ai.onnx.ml that stand in front of and behind models: LabelEncoder, Binarizer, ArrayFeatureExtractor.
#include <map>
#include <optional>

#include "octavo/ir/interpret/call.h"
#include "octavo/ir/interpret/indices.h"
#include "octavo/ir/interpret/strings.h"
#include "octavo/ir/interpret/types.h"

namespace octavo::ir::interpret {

namespace {

// keys_* and values_* are lists of one of three types, or a tensor.
Result<Tensor> ListAttr(const Call& call, const std::string& stem) {
  const auto list = [&]<typename T>(std::string_view suffix) {
    const Attr* attr = call.node.attrs.Find(stem + std::string(suffix));
    return attr == nullptr ? nullptr : std::get_if<std::vector<T>>(attr);
  };
  const auto size = [](const auto* v) { return Shape{static_cast<int64_t>(v->size())}; };
  if (const auto* v = list.operator()<int64_t>("_int64s")) return Tensor::S64(size(v), *v);
  if (const auto* v = list.operator()<float>("_floats")) return Tensor::F32(size(v), *v);
  if (const auto* v = list.operator()<std::string>("_strings")) return Tensor::Strings(size(v), *v);
  const Tensor t = call.node.attrs.TensorOr(stem + "_tensor");
  if (!t.defined()) return Fail("it has no {}", stem);
  return t;
}

Tensor DefaultFor(const Call& call, DType type) {
  const Tensor given = call.node.attrs.TensorOr("default_tensor");
  if (given.defined()) return given;
  if (type == DType::kString) return Tensor::Strings({}, {call.node.attrs.Str("default_string", "_Unused")});
  if (type == DType::kF32) return Tensor::ScalarF32(call.Float("default_float", -0.0f));
  return Tensor::ScalarS64(call.Int("default_int64", -1));
}

// What is compared: a number (all NaN are one key) or a text.
struct Key {
  double number = 0;
  int64_t whole = 0;
  bool nan = false;
  std::string_view text = {};
  auto operator<=>(const Key& o) const {
    if (nan != o.nan) return nan <=> o.nan;
    if (whole != o.whole) return whole <=> o.whole;
    if (number != o.number) return number < o.number ? std::strong_ordering::less : std::strong_ordering::greater;
    return text <=> o.text;
  }
};
Key KeyOf(const Tensor& t, int64_t i) {
  if (t.dtype() == DType::kString) return {.text = t.strings()[static_cast<size_t>(i)]};
  if (!quant::IsFloat(t.dtype())) return {.whole = t.GetInt(i)};
  const double v = t.GetDouble(i);
  return v != v ? Key{.nan = true} : Key{.number = v};
}

Status LabelEncoder(Call& call) {
  const Tensor& x = call.T(0);
  OCTAVO_TRY(const Tensor keys, ListAttr(call, "keys"));
  OCTAVO_TRY(const Tensor values, ListAttr(call, "values"));
  const Tensor other = DefaultFor(call, values.dtype());
  if (keys.dtype() != x.dtype()) return Fail("the keys are {}", Describe(keys));
  if (values.size() != keys.size() || other.dtype() != values.dtype() || other.size() != 1)
    return Fail("values {} and default {} do not fit the keys {}", Describe(values), Describe(other), Describe(keys));
  std::map<Key, int64_t> places;
  ChargeWork(static_cast<size_t>(keys.size()) * 2 * sizeof(Key));
  for (int64_t i = 0; i < keys.size(); ++i) places[KeyOf(keys, i)] = i;
  std::vector<int64_t> found = WorkVector<int64_t>(x.size());
  for (int64_t i = 0; i < x.size(); ++i) {
    const auto it = places.find(KeyOf(x, i));
    found[static_cast<size_t>(i)] = it == places.end() ? -1 : it->second;
  }
  if (values.dtype() == DType::kString) {
    size_t bytes = 0;
    const auto word = [&](int64_t i) -> const std::string& {
      return i < 0 ? other.strings()[0] : values.strings()[static_cast<size_t>(i)];
    };
    for (const int64_t i : found) bytes += word(i).size();
    ChargeWords(found.size(), bytes);
    std::vector<std::string> words;
    for (const int64_t i : found) words.push_back(word(i));
    call.Return(Tensor::Strings(x.shape(), std::move(words)));
    return {};
  }
  OCTAVO_TRY(Tensor y, Alloc(values.dtype(), x.shape()));
  OCTAVO_TRY_STATUS(ForSizes(values.dtype(), [&]<typename T>() -> Status {
    for (size_t i = 0; i < found.size(); ++i)
      MutablePtr<T>(y)[i] = found[i] < 0 ? *Ptr<T>(other) : Ptr<T>(values)[found[i]];
    return {};
  }));
  call.Return(std::move(y));
  return {};
}

Status Binarizer(Call& call) {
  const Tensor& x = call.T(0);
  const float threshold = call.Float("threshold", 0.0f);
  Tensor y = Tensor::Empty(x.dtype(), x.shape());
  OCTAVO_TRY_STATUS(ForNumbers(x.dtype(), [&]<typename T>() -> Status {
    for (int64_t i = 0; i < x.size(); ++i) {
      const bool above = static_cast<double>(Up(Ptr<T>(x)[i])) > static_cast<double>(threshold);
      MutablePtr<T>(y)[i] = Down<T>(static_cast<Compute<T>>(above));
    }
    return {};
  }));
  call.Return(std::move(y));
  return {};
}

// Columns of the last axis; a vector is one row.
Status ArrayFeatureExtractor(Call& call) {
  const Tensor& x = call.T(0);
  if (x.rank() < 1) return Fail("the operand is a scalar");
  const int64_t n = x.shape().back();
  OCTAVO_TRY(const auto columns, IndicesInto(call.T(1), n));
  Shape shape = x.rank() == 1 ? Shape{1, 0} : x.shape();
  shape.back() = static_cast<int64_t>(columns.size());
  OCTAVO_TRY(Tensor y, Alloc(x.dtype(), shape));
  OCTAVO_TRY_STATUS(ForSizes(x.dtype(), [&]<typename T>() -> Status {
    const auto count = static_cast<int64_t>(columns.size());
    for (int64_t i = 0; i < y.size(); ++i)
      MutablePtr<T>(y)[i] = Ptr<T>(x)[i / count * n + columns[static_cast<size_t>(i % count)]];
    return {};
  }));
  call.Return(std::move(y));
  return {};
}

}  // namespace

void RegisterTables(Table& t) {
  t.Set(Op::kLabelEncoder, LabelEncoder);
  t.Set(Op::kBinarizer, Binarizer);
  t.Set(Op::kArrayFeatureExtractor, ArrayFeatureExtractor);
}

}  // namespace octavo::ir::interpret
