#include "octavo/ir/onnx/modules.h"

#include <onnx_messages.pb.h>

#include <algorithm>
#include <optional>

#include "octavo/ir/json.h"
#include "octavo/ir/names.h"

namespace octavo::ir::onnx {

namespace pb = ::octavo_onnx;

namespace {

constexpr std::string_view kScopes = "pkg.torch.onnx.name_scopes", kClasses = "pkg.torch.onnx.class_hierarchy",
                           kNamespace = "namespace";
// What is written for each of many nodes must not multiply long names: more is no module of torch's.
constexpr size_t kMostDepth = 16, kMostBytes = 200, kMostJson = 8'000'000;

using Texts = std::vector<std::string>;

// A list of strings as Python's repr writes it; empty where it is none.
Texts FromPython(std::string_view text) {
  Texts all;
  if (!text.starts_with('[') || !text.ends_with(']')) return {};
  text = text.substr(1, text.size() - 2);
  for (size_t at = 0; at < text.size();) {
    const char quote = text[at];
    if (quote != '\'' && quote != '"') return {};
    std::string one;
    for (++at; at < text.size() && text[at] != quote; ++at) {
      if (text[at] == '\\' && at + 1 < text.size()) ++at;
      one += text[at];
    }
    if (at == text.size() || all.size() > kMostDepth) return {};
    all.push_back(std::move(one));
    if (++at == text.size()) break;
    if (text.substr(at, 2) != ", ") return {};
    at += 2;
  }
  return all;
}

// "name: class/name: class/...", where the other two are missing: tools that keep one entry alone keep this one, which viewers read.
void FromNamespace(std::string_view text, Texts& scopes, Texts& classes) {
  while (!text.empty() && scopes.size() <= kMostDepth) {
    const std::string_view one = text.substr(0, text.find('/'));
    const size_t colon = one.find(": ");
    if (colon == std::string_view::npos) return scopes.clear();
    scopes.emplace_back(one.substr(0, colon));
    classes.emplace_back(one.substr(colon + 2));
    text.remove_prefix(std::min(one.size() + 1, text.size()));
  }
  if (!text.empty()) scopes.clear();
}

std::string ToPython(const Texts& texts) {
  std::string list = "[";
  for (const std::string& text : texts) {
    list += list.size() == 1 ? "'" : ", '";
    for (const char c : text) {
      if (c == '\'' || c == '\\') list += '\\';
      list += c;
    }
    list += '\'';
  }
  return list + "]";
}

// "a" and "a.b" have "a.b.c" in them, and so has "".
bool Holds(std::string_view module, std::string_view path) {
  return module.empty() || (path.starts_with(module) && (path.size() == module.size() || path[module.size()] == '.'));
}

std::string_view Metadata(const pb::NodeProto& node, std::string_view key) {
  for (const auto& entry : node.metadata_props()) {
    if (entry.key() == key) return entry.value();
  }
  return {};
}

void Add(pb::NodeProto* proto, std::string_view key, std::string value) {
  auto* entry = proto->add_metadata_props();
  entry->set_key(std::string(key));
  entry->set_value(std::move(value));
}

}  // namespace

Modules::Modules(const std::map<std::string, std::string>& metadata) {
  const auto it = metadata.find(std::string(kKey));
  if (it == metadata.end()) return;
  const auto json = ParseJson(it->second, kKey, kMostJson);
  if (!json || !json->is_object()) return;
  for (const auto& [path, name] : json->items()) {
    const auto text = As<std::string>(name);
    if (text && path.size() <= kMostBytes && text->size() <= kMostBytes) classes_[path] = *text;
  }
}

void Modules::Keep(std::map<std::string, std::string>& metadata) const {
  if (classes_.empty()) return;
  nlohmann::ordered_json json = nlohmann::ordered_json::object();
  for (const auto& [path, name] : classes_) json[path] = name;
  metadata[std::string(kKey)] = Dump(json);
}

std::string Modules::Read(const pb::NodeProto& node) {
  // The last one is the node's own.
  Texts scopes = FromPython(Metadata(node, kScopes)), classes = FromPython(Metadata(node, kClasses));
  if (scopes.empty() && classes.empty()) FromNamespace(Metadata(node, kNamespace), scopes, classes);
  if (scopes.size() < 2 || scopes.size() != classes.size()) return {};
  const size_t modules = scopes.size() - 1;
  for (size_t i = 0; i < modules; ++i) {
    const bool inside = i == 0 || (scopes[i] != scopes[i - 1] && Holds(scopes[i - 1], scopes[i]));
    const bool plain = IsUtf8(scopes[i]) && IsUtf8(classes[i]) && scopes[i].find_first_of("/\n") == std::string::npos;
    if (!inside || !plain || scopes[i].size() > kMostBytes || classes[i].size() > kMostBytes) return {};
  }
  // "_empty_nn_module_stack_from_metadata_hook" and the like: the exporter does not know.
  if (!scopes[0].empty()) return {};
  for (size_t i = 0; i < modules; ++i) classes_.emplace(scopes[i], classes[i]);
  return scopes[modules - 1];
}

std::string_view Modules::PathIn(std::string_view source) const {
  const size_t slash = source.find('/');
  if (slash == std::string_view::npos) return {};
  const auto it = classes_.find(source.substr(0, slash));
  return it == classes_.end() ? std::string_view() : std::string_view(it->first);
}

void Modules::Write(const std::vector<std::string>& origin, pb::NodeProto* proto) const {
  if (classes_.empty()) return;
  std::optional<std::string_view> path;
  for (const std::string& source : origin) {
    const std::string_view other = PathIn(source);
    if (other.empty()) continue;
    if (!path) path = other;
    while (!Holds(*path, other)) {
      const size_t dot = path->rfind('.');
      path = path->substr(0, dot == std::string_view::npos ? 0 : dot);
    }
  }
  if (!path) return;
  Texts scopes, classes;
  std::string tree;
  for (size_t end = 0; end <= path->size(); ++end) {
    const bool whole = end == 0 || end == path->size() || (*path)[end] == '.';
    const auto it = whole ? classes_.find(path->substr(0, end)) : classes_.end();
    if (it == classes_.end() || scopes.size() == kMostDepth) continue;
    scopes.push_back(it->first);
    classes.push_back(it->second);
    tree += it->first + ": " + it->second + "/";
  }
  const std::string op = (proto->domain().empty() ? "" : proto->domain() + ".") + proto->op_type();
  scopes.push_back(proto->name());
  classes.push_back(op);
  Add(proto, kNamespace, tree + proto->name() + ": " + op);
  Add(proto, kClasses, ToPython(classes));
  Add(proto, kScopes, ToPython(scopes));
}

}  // namespace octavo::ir::onnx
