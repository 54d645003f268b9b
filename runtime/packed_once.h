// Weights are packed once for all products of a model that read them in one way: the branches of an If often hold one decoder twice, with caches and without.
#ifndef OCTAVO_RUNTIME_PACKED_ONCE_H_
#define OCTAVO_RUNTIME_PACKED_ONCE_H_

#include <algorithm>
#include <format>
#include <initializer_list>
#include <iterator>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <typeindex>
#include <typeinfo>
#include <utility>
#include <vector>

#include "octavo/ir/mapped.h"
#include "octavo/runtime/model.h"
#include "octavo/runtime/packed_file.h"
#include "octavo/runtime/step.h"

namespace octavo::runtime {

// What was packed, and what a file of packed weights keeps, while a model and the graphs in it are compiled; then each product holds its own.
struct PackedWeightsSet {
  struct Entry {
    std::vector<Tensor> from;  // keep the memory that is in the key
    std::shared_ptr<const void> packed;
  };
  std::map<std::pair<std::type_index, std::string>, Entry> entries;
  std::optional<PackedFile> file = {};
};

// The arrays of packed weights, one matrix behind the other.
template <class T>
PackedFile::Arrays ArraysOf(const T& packed) {
  return packed.Arrays();
}
template <class T>
PackedFile::Arrays ArraysOf(const std::vector<T>& packed) {
  PackedFile::Arrays all;
  for (const T& one : packed) std::ranges::copy(one.Arrays(), std::back_inserter(all));
  return all;
}
// The other way, `count` matrices that are alike; none where these are not their arrays.
template <class T, class Source>
std::optional<std::vector<T>> MatricesOf(const PackedFile::Arrays& arrays, int64_t count, const Source& source) {
  if (arrays.size() != static_cast<size_t>(count) * T::kArrays) return {};
  std::vector<T> all;
  for (int64_t i = 0; i < count; ++i) {
    auto one = T::Of(source, std::span(arrays).subspan(static_cast<size_t>(i) * T::kArrays, T::kArrays));
    if (!one) return {};
    all.push_back(std::move(*one));
  }
  return all;
}

// What a file of packed weights has none of.
struct NotKept {};

// What `make`, which gives a T or an error, packs of these constants, null where one is absent. `how`: all else that it depends on. `again` makes it of the arrays
// that a file has (ArraysOf), or none of them. Null where it refuses.
template <class T, class Make, class Again = NotKept>
std::shared_ptr<const T> PackedOnce(const CompileContext& c, std::initializer_list<const Tensor*> of,
                                    const std::string& how, const Make& make, const Again& again = {}) {
  const auto packed = [&]() -> std::shared_ptr<const T> {
    auto made = make();
    return made ? std::make_shared<const T>(std::move(*made)) : nullptr;
  };
  if (c.options == nullptr || c.options->packed == nullptr) return packed();
  PackedWeightsSet& set = *c.options->packed;
  const auto kept = [&]() -> std::shared_ptr<const T> {
    if constexpr (!std::is_same_v<Again, NotKept>) {
      if (!set.file) return packed();
      const ContentHash key = PackedFile::KeyOf(std::format("{} {}", typeid(T).name(), how), of);
      PackedFile::Arrays arrays = set.file->Find(key);
      if (std::optional<T> found = again(arrays)) {
        set.file->Keep(key, std::move(arrays), false);
        return std::make_shared<const T>(std::move(*found));
      }
      const std::shared_ptr<const T> made = packed();
      if (made != nullptr) set.file->Keep(key, ArraysOf(*made), true);
      return made;
    } else {
      return packed();
    }
  };
  std::vector<Tensor> from;
  std::string where = how;
  for (const Tensor* t : of) {
    if (t != nullptr) from.push_back(*t);
    where += t == nullptr ? std::string(" none")
                          : std::format(" {} {} {}", quant::Name(t->dtype()), ir::ToString(t->shape()),
                                        static_cast<const void*>(t->data()));
  }
  auto [it, fresh] = set.entries.try_emplace({std::type_index(typeid(T)), std::move(where)});
  if (fresh) {
    it->second = {std::move(from), kept()};
    for (const Tensor& t : it->second.from) ir::ForgetPages(t);  // a run reads what was packed
  }
  return std::static_pointer_cast<const T>(it->second.packed);
}

}  // namespace octavo::runtime

#endif  // OCTAVO_RUNTIME_PACKED_ONCE_H_
