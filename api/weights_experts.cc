#include "octavo/api/weights_experts.h"

#include <algorithm>
#include <charconv>
#include <format>
#include <optional>
#include <utility>

namespace octavo::api {

using ir::Shape;
using ir::gguf::TensorInfo;

namespace {

constexpr std::string_view kKinds[] = {"weight", "bias"};

// Bytes of one row of the last dim; 0: not known, or no row of whole blocks.
int64_t RowBytes(const TensorInfo& t) {
  const ir::gguf::Form* form = ir::gguf::FormOf(t.type);
  if (form == nullptr || t.shape.empty() || t.shape.back() % form->elements != 0) return 0;
  return t.shape.back() / form->elements * form->bytes;
}

// Bytes of one expert's part of a tensor of all; 0: not known.
int64_t ExpertBytes(const TensorInfo& t) {
  const int64_t experts = t.shape.empty() ? 0 : t.shape.front();
  const auto size = static_cast<int64_t>(t.data.size());
  return RowBytes(t) > 0 && experts > 0 && size % experts == 0 ? size / experts : 0;
}

// "blk.3.ffn_gate.17.weight" is expert 17 of "blk.3.ffn_gate_exps.weight".
std::optional<std::pair<std::string, int64_t>> PartOf(const std::string& name) {
  const size_t kind = name.rfind('.'),
               number = kind == std::string::npos || kind == 0 ? kind : name.rfind('.', kind - 1);
  if (number == std::string::npos || name.find(".ffn_") == std::string::npos) return {};
  int64_t expert = 0;
  const char *begin = name.data() + number + 1, *end = name.data() + kind;
  if (const auto read = std::from_chars(begin, end, expert); read.ptr != end || begin == end || expert < 0) return {};
  return std::pair{name.substr(0, number) + "_exps" + name.substr(kind), expert};
}

}  // namespace

GgufTensors::GgufTensors(const ir::gguf::File& file, const std::set<Shape>& stacked) {
  Named tensors;
  std::vector<std::string> order;
  for (const TensorInfo& t : file.tensors()) tensors[t.name] = t, order.push_back(t.name);
  if (!stacked.empty()) Join(tensors, stacked);
  std::vector<std::string> stems;  // "blk.3.ffn_gate"
  for (const auto& [name, t] : tensors) {
    if (name.ends_with("_exps.weight") && t.shape.size() == 3) stems.push_back(name.substr(0, name.size() - 12));
  }
  for (const std::string& stem : stems) {
    const auto it = tensors.find(stem + "_exps.weight");
    if (it == tensors.end() || stacked.contains(it->second.shape)) continue;
    const Shape& s = it->second.shape;
    if (stem.ends_with("ffn_gate") && stacked.contains({s[0], 2 * s[1], s[2]})) {
      JoinGateAndUp(tensors, stem.substr(0, stem.size() - 8), file.architecture() == "gpt-oss");
    } else if (!stacked.contains({s[0], 2 * s[1], s[2]})) {
      Split(tensors, stem);
    }
  }
  for (const auto& [name, t] : tensors) {
    if (file.Find(name) == nullptr) order.push_back(name);
  }
  for (const std::string& name : order) {  // the file's, then what was made of them
    const auto it = tensors.find(name);
    if (it == tensors.end()) continue;
    by_name_[name] = all_.size();
    all_.push_back(std::move(it->second));
  }
}

const TensorInfo* GgufTensors::Find(std::string_view name) const {
  const auto it = by_name_.find(name);
  return it == by_name_.end() ? nullptr : &all_[it->second];
}

// One tensor of each expert becomes one of all, where the model has those.
void GgufTensors::Join(Named& tensors, const std::set<Shape>& stacked) {
  std::map<std::string, std::vector<std::string>> parts;
  for (const auto& [name, t] : tensors) {
    const auto part = PartOf(name);
    if (!part || part->second >= static_cast<int64_t>(tensors.size())) continue;
    std::vector<std::string>& of = parts[part->first];
    of.resize(std::max(of.size(), static_cast<size_t>(part->second) + 1));
    of[static_cast<size_t>(part->second)] = name;
  }
  for (const auto& [name, of] : parts) {
    const auto same = [&](const std::string& part) {
      const auto it = tensors.find(part);
      return it != tensors.end() && it->second.type == tensors[of[0]].type && it->second.shape == tensors[of[0]].shape;
    };
    if (tensors.contains(name) || !std::ranges::all_of(of, same)) continue;
    TensorInfo all = tensors[of[0]];
    all.name = name;
    all.shape.insert(all.shape.begin(), static_cast<int64_t>(of.size()));
    Shape twice = all.shape;
    if (twice.size() == 3) twice[1] *= 2;
    if (all.shape.size() == 3 && !stacked.contains(all.shape) && !stacked.contains(twice)) continue;
    std::vector<std::byte>& bytes = bytes_.emplace_back();
    for (const std::string& part : of) {
      bytes.insert(bytes.end(), tensors[part].data.begin(), tensors[part].data.end());
      tensors.erase(part);
    }
    all.data = bytes;
    tensors[name] = std::move(all);
  }
}

// in_turns: a row of gate, a row of up; else those of gate come first. The same with their biases.
void GgufTensors::JoinGateAndUp(Named& tensors, const std::string& layer, bool in_turns) {
  for (const std::string_view kind : kKinds) {
    const auto gate = tensors.find(std::format("{}ffn_gate_exps.{}", layer, kind)),
               up = tensors.find(std::format("{}ffn_up_exps.{}", layer, kind));
    if (gate == tensors.end() || up == tensors.end()) continue;
    const TensorInfo &a = gate->second, &b = up->second;
    const int64_t own = ExpertBytes(a);
    const bool is_bias = a.shape.size() == 2;
    const int64_t row = is_bias && own > 0 ? own / a.shape[1] : RowBytes(a);
    if (own == 0 || a.type != b.type || a.shape != b.shape || a.data.size() != b.data.size() || row == 0) continue;
    std::vector<std::byte>& bytes = bytes_.emplace_back();
    const int64_t piece = in_turns ? row : own;
    for (auto at = a.data.begin(), other = b.data.begin(); at != a.data.end(); at += piece, other += piece) {
      bytes.insert(bytes.end(), at, at + piece);
      bytes.insert(bytes.end(), other, other + piece);
    }
    TensorInfo both{std::format("{}ffn_gate_up_exps.{}", layer, kind), a.type, a.shape, bytes};
    both.shape[1] *= 2;
    tensors.erase(gate), tensors.erase(up);
    tensors[both.name] = std::move(both);
  }
}

// One tensor of all experts becomes one of each.
void GgufTensors::Split(Named& tensors, const std::string& stem) {
  for (const std::string_view kind : kKinds) {
    const auto it = tensors.find(std::format("{}_exps.{}", stem, kind));
    if (it == tensors.end() || ExpertBytes(it->second) == 0) continue;
    const TensorInfo all = it->second;
    tensors.erase(it);
    const auto bytes = static_cast<size_t>(ExpertBytes(all));
    for (int64_t e = 0; e < all.shape[0]; ++e) {
      TensorInfo one{std::format("{}.{}.{}", stem, e, kind), all.type, Shape(all.shape.begin() + 1, all.shape.end()),
                     all.data.subspan(static_cast<size_t>(e) * bytes, bytes)};
      tensors[one.name] = std::move(one);
    }
  }
}

}  // namespace octavo::api
