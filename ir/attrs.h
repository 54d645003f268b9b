// Attributes of a node: a small map, sorted by name, so that printing, hashing and comparing are deterministic.
#ifndef OCTAVO_IR_ATTRS_H_
#define OCTAVO_IR_ATTRS_H_

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "octavo/ir/tensor.h"

namespace octavo::ir {

class Graph;

// An attribute that octavo does not model (sparse tensor, type): its serialized AttributeProto, kept for export.
struct RawAttr {
  std::string bytes;
  bool operator==(const RawAttr&) const = default;
};
// Subgraphs are immutable once attached; replace the attribute to change one.
using GraphRef = std::shared_ptr<const Graph>;

using Attr = std::variant<int64_t, float, std::string, std::vector<int64_t>, std::vector<float>,
                          std::vector<std::string>, Tensor, GraphRef, RawAttr>;

class Attrs {
 public:
  using Entry = std::pair<std::string, Attr>;
  Attrs() = default;
  Attrs(std::initializer_list<Entry> entries) {
    for (const auto& e : entries) Set(e.first, e.second);
  }

  void Set(std::string_view name, Attr value);
  void Erase(std::string_view name);
  const Attr* Find(std::string_view name) const;  // null: absent
  bool Has(std::string_view name) const { return Find(name) != nullptr; }

  // The value, or `fallback` if absent or of another kind.
  int64_t Int(std::string_view name, int64_t fallback) const;
  float Float(std::string_view name, float fallback) const;
  std::string Str(std::string_view name, std::string_view fallback) const;
  std::vector<int64_t> Ints(std::string_view name, std::vector<int64_t> fallback = {}) const;
  Tensor TensorOr(std::string_view name, Tensor fallback = {}) const;
  GraphRef Subgraph(std::string_view name) const;

  const std::vector<Entry>& entries() const { return entries_; }
  bool empty() const { return entries_.empty(); }
  // Bit-wise equality (tensors by SameBits, graphs by text).
  bool Same(const Attrs& other) const;

 private:
  std::vector<Entry> entries_;
};

}  // namespace octavo::ir

#endif  // OCTAVO_IR_ATTRS_H_
