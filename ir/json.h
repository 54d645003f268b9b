// JSON out of files and into files. Nothing in here throws, whatever a text holds and whatever bytes a name has; the header is for the
// rooms that use nlohmann's library, and the only place where they parse or write.
#ifndef OCTAVO_IR_JSON_H_
#define OCTAVO_IR_JSON_H_

#include <concepts>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "octavo/ir/names.h"
#include "octavo/ir/status.h"

namespace octavo::ir {

using Json = nlohmann::json;

// `place` for the sentence. A text of more than `most` bytes is refused, since a byte takes up to thirty once it is parsed; so is one that nests deeper than
// anything of ours.
inline Result<Json> ParseJson(std::string_view text, std::string_view place, size_t most = 1'000'000) {
  constexpr int kMostDepth = 16;
  if (text.size() > most) return Fail("{} has {} bytes, more than {}", place, text.size(), most);
  bool deep = false;
  const auto shallow = [&deep](int depth, Json::parse_event_t, Json&) {
    deep = deep || depth > kMostDepth;
    return !deep;
  };
  Json json = Json::parse(text, shallow, /*allow_exceptions=*/false);
  if (deep) return Fail("{} nests more than {} deep", place, kMostDepth);
  if (json.is_discarded()) return Fail("{} is no JSON; get it again or write it anew", place);
  return json;
}

// What `json` is, where it is a T.
template <typename T>
std::optional<T> As(const Json& json) {
  if constexpr (std::same_as<T, bool>) {
    if (json.is_boolean()) return json.get<bool>();
  } else if constexpr (std::same_as<T, std::string>) {
    if (json.is_string()) return json.get<std::string>();
  } else if constexpr (std::same_as<T, std::vector<std::string>>) {
    if (!json.is_array()) return std::nullopt;
    std::vector<std::string> names;
    for (const Json& one : json) {
      if (!one.is_string()) return std::nullopt;
      names.push_back(one.get<std::string>());
    }
    return names;
  } else if constexpr (std::same_as<T, uint64_t>) {
    if (json.is_number_unsigned()) return json.get<uint64_t>();
  } else if constexpr (std::same_as<T, int64_t>) {
    if (json.is_number_integer() && (!json.is_number_unsigned() || json.get<uint64_t>() <= INT64_MAX))
      return json.get<int64_t>();
  } else {
    static_assert(std::same_as<T, double>);
    if (json.is_number()) return json.get<double>();
  }
  return std::nullopt;
}

// The member of an object, where there is one of that kind.
template <typename T>
std::optional<T> Get(const Json& object, const char* key) {
  if (!object.is_object()) return std::nullopt;
  const auto it = object.find(key);
  return it == object.end() ? std::nullopt : As<T>(*it);
}

// Valid JSON: strings that are no UTF-8 are cleaned (names.h).
template <typename AnyJson>
std::string Dump(const AnyJson& json, int indent = -1) {
  const auto clean = [](const auto& self, AnyJson& node) -> void {
    if (node.is_string()) {
      const auto& text = node.template get_ref<const std::string&>();
      if (!IsUtf8(text)) node = Clean(text, text.size());
    } else if (node.is_array()) {
      for (AnyJson& one : node) self(self, one);
    } else if (node.is_object()) {
      typename AnyJson::object_t members;
      for (auto& [key, value] : node.template get_ref<typename AnyJson::object_t&>()) {
        self(self, value);
        std::string name = IsUtf8(key) ? key : Clean(key, key.size());
        if constexpr (requires { members.emplace_back(name, value); }) {
          members.emplace_back(std::move(name),
                               std::move(value));  // an ordered object looks through all members where it inserts
        } else {
          members.emplace(std::move(name), std::move(value));
        }
      }
      node = std::move(members);
    }
  };
  AnyJson text = json;
  clean(clean, text);
  return text.dump(indent, ' ', false, AnyJson::error_handler_t::replace);
}

}  // namespace octavo::ir

#endif  // OCTAVO_IR_JSON_H_
