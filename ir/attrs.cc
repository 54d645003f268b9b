#include "octavo/ir/attrs.h"

#include <algorithm>
#include <bit>

#include "octavo/ir/graph.h"
#include "octavo/ir/text.h"

namespace octavo::ir {

namespace {

auto Position(auto& entries, std::string_view name) {
  return std::lower_bound(entries.begin(), entries.end(), name,
                          [](const Attrs::Entry& e, std::string_view n) { return e.first < n; });
}

template <typename T>
const T* Get(const Attr* a) {
  return a == nullptr ? nullptr : std::get_if<T>(a);
}

bool SameAttr(const Attr& a, const Attr& b) {
  if (a.index() != b.index()) return false;
  if (const auto* t = std::get_if<Tensor>(&a)) return t->SameBits(std::get<Tensor>(b));
  if (const auto* g = std::get_if<GraphRef>(&a)) {
    const auto& h = std::get<GraphRef>(b);
    return *g == h || ToText(**g) == ToText(*h);
  }
  if (const auto* f = std::get_if<float>(&a)) {
    return std::bit_cast<uint32_t>(*f) == std::bit_cast<uint32_t>(std::get<float>(b));
  }
  return a == b;
}

}  // namespace

void Attrs::Set(std::string_view name, Attr value) {
  const auto it = Position(entries_, name);
  if (it != entries_.end() && it->first == name) {
    it->second = std::move(value);
  } else {
    entries_.insert(it, {std::string(name), std::move(value)});
  }
}

void Attrs::Erase(std::string_view name) {
  const auto it = Position(entries_, name);
  if (it != entries_.end() && it->first == name) entries_.erase(it);
}

const Attr* Attrs::Find(std::string_view name) const {
  const auto it = Position(entries_, name);
  return it != entries_.end() && it->first == name ? &it->second : nullptr;
}

int64_t Attrs::Int(std::string_view name, int64_t fallback) const {
  const auto* v = Get<int64_t>(Find(name));
  return v ? *v : fallback;
}
float Attrs::Float(std::string_view name, float fallback) const {
  const auto* v = Get<float>(Find(name));
  return v ? *v : fallback;
}
std::string Attrs::Str(std::string_view name, std::string_view fallback) const {
  const auto* v = Get<std::string>(Find(name));
  return v ? *v : std::string(fallback);
}
std::vector<int64_t> Attrs::Ints(std::string_view name, std::vector<int64_t> fallback) const {
  const auto* v = Get<std::vector<int64_t>>(Find(name));
  return v ? *v : std::move(fallback);
}
Tensor Attrs::TensorOr(std::string_view name, Tensor fallback) const {
  const auto* v = Get<Tensor>(Find(name));
  return v ? *v : std::move(fallback);
}
GraphRef Attrs::Subgraph(std::string_view name) const {
  const auto* v = Get<GraphRef>(Find(name));
  return v ? *v : nullptr;
}

bool Attrs::Same(const Attrs& other) const {
  return std::equal(entries_.begin(), entries_.end(), other.entries_.begin(), other.entries_.end(),
                    [](const Entry& a, const Entry& b) { return a.first == b.first && SameAttr(a.second, b.second); });
}

}  // namespace octavo::ir
