// Weights are packed once for all products of a model that read them in one way: the branches of an If often hold one decoder twice, with caches and without.
#ifndef OCTAVO_RUNTIME_PACKED_ONCE_H_
#define OCTAVO_RUNTIME_PACKED_ONCE_H_

#include <format>
#include <initializer_list>
#include <map>
#include <memory>
#include <string>
#include <typeindex>
#include <utility>
#include <vector>

#include "octavo/ir/mapped.h"
#include "octavo/runtime/model.h"
#include "octavo/runtime/step.h"

namespace octavo::runtime {

// What was packed while a model and the graphs in it are compiled; then each product holds its own.
struct PackedWeightsSet {
  struct Entry {
    std::vector<Tensor> from;  // keep the memory that is in the key
    std::shared_ptr<const void> packed;
  };
  std::map<std::pair<std::type_index, std::string>, Entry> entries;
};

// What `make`, which gives a T or an error, packs of these constants, null where one is absent. `how`: all else that it depends on. Null where it refuses.
template <class T, class Make>
std::shared_ptr<const T> PackedOnce(const CompileContext& c, std::initializer_list<const Tensor*> of, std::string how,
                                    const Make& make) {
  const auto packed = [&]() -> std::shared_ptr<const T> {
    auto made = make();
    return made ? std::make_shared<const T>(std::move(*made)) : nullptr;
  };
  if (c.options == nullptr || c.options->packed == nullptr) return packed();
  std::vector<Tensor> from;
  for (const Tensor* t : of) {
    if (t != nullptr) from.push_back(*t);
    how += t == nullptr ? std::string(" none")
                        : std::format(" {} {} {}", quant::Name(t->dtype()), ir::ToString(t->shape()),
                                      static_cast<const void*>(t->data()));
  }
  auto [it, fresh] = c.options->packed->entries.try_emplace({std::type_index(typeid(T)), std::move(how)});
  if (fresh) {
    it->second = {std::move(from), packed()};
    for (const Tensor& t : it->second.from) ir::ForgetPages(t);  // a run reads what was packed
  }
  return std::static_pointer_cast<const T>(it->second.packed);
}

}  // namespace octavo::runtime

#endif  // OCTAVO_RUNTIME_PACKED_ONCE_H_
