#include "octavo/ir/interpret/strings.h"

#include <charconv>
#include <cmath>

#include "octavo/ir/interpret/call.h"
#include "octavo/ir/interpret/types.h"

namespace octavo::ir::interpret {

namespace {

template <typename C>
std::string Spell(C x) {
  if constexpr (std::is_floating_point_v<C>) {
    if (std::isnan(x)) return "NaN";
    if (std::isinf(x)) return x > 0 ? "INF" : "-INF";
  }
  char text[64];
  const auto r = std::to_chars(text, text + sizeof(text), x);
  return std::string(text, r.ptr);
}

// A word that is wholly a number of type C.
template <typename C>
bool Read(std::string_view word, C* x) {
  while (!word.empty() && word.front() == ' ') word.remove_prefix(1);
  while (!word.empty() && word.back() == ' ') word.remove_suffix(1);
  if (word.starts_with('+')) word.remove_prefix(1);
  const auto r = std::from_chars(word.data(), word.data() + word.size(), *x);
  return r.ec == std::errc() && r.ptr == word.data() + word.size();
}

template <typename C>
Result<Tensor> ReadAll(const Tensor& t, DType dtype) {
  Tensor y = Tensor::Empty(dtype, t.shape());
  C* out = MutablePtr<C>(y);
  for (size_t i = 0; i < t.strings().size(); ++i) {
    if (!Read(t.strings()[i], &out[i])) return Fail("'{}' is not a number", t.strings()[i]);
  }
  return y;
}

}  // namespace

void ChargeWords(size_t count, size_t bytes) { ChargeWork(count * sizeof(std::string) + bytes); }

Result<Tensor> ToStrings(const Tensor& t) {
  ChargeWords(static_cast<size_t>(t.size()), 0);
  std::vector<std::string> words;
  words.reserve(static_cast<size_t>(t.size()));
  const auto run = [&]<typename T>() -> Status {
    for (int64_t i = 0; i < t.size(); ++i) words.push_back(Spell(Up(Ptr<T>(t)[i])));
    return {};
  };
  if (t.dtype() == DType::kBool) {
    for (uint8_t b : t.as<uint8_t>()) words.push_back(b != 0 ? "1" : "0");
  } else if (quant::IsFp8(t.dtype()) || quant::IsStoredFloat(t.dtype()) || quant::IsPacked(t.dtype())) {
    for (float x : t.ToFloats()) words.push_back(Spell(x));
  } else {
    OCTAVO_TRY_STATUS(ForNumbers(t.dtype(), run));
  }
  return Tensor::Strings(t.shape(), std::move(words));
}

Result<Tensor> FromStrings(const Tensor& t, DType target) {
  if (target == DType::kU64) return ReadAll<uint64_t>(t, DType::kU64);
  if (quant::IsInteger(target)) return ReadAll<int64_t>(t, DType::kS64);
  if (target == DType::kF64) return ReadAll<double>(t, DType::kF64);
  return ReadAll<float>(t, DType::kF32);
}

}  // namespace octavo::ir::interpret
