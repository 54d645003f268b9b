#include "octavo/ir/attr_table.h"

#include <algorithm>
#include <map>
#include <utility>

#include "octavo/ir/functions.h"

namespace octavo::ir {

namespace {

using Key = std::pair<std::string_view, std::string_view>;
using Table = std::map<Key, std::vector<AttrRule>>;

struct Row {
  std::string_view domain, op, attrs;
};
constexpr Row kRows[] = {
#define OCTAVO_ATTRS(domain, op, attrs) {domain, op, attrs},
#include "octavo/ir/attrs.def"
#undef OCTAVO_ATTRS
};

// By the index of the variant Attr.
constexpr std::string_view kKinds = "ifsIFStgp";
constexpr std::string_view kWords[] = {"an integer",         "a float",          "a text",
                                       "a list of integers", "a list of floats", "a list of texts",
                                       "a tensor",           "a graph",          "a value that octavo does not read"};
static_assert(std::variant_size_v<Attr> == kKinds.size() && std::size(kWords) == kKinds.size());

std::string_view WordOf(char kind) { return kWords[kKinds.find(kind)]; }

std::vector<AttrRule> Parse(std::string_view text) {
  std::vector<AttrRule> rules;
  while (!text.empty()) {
    const size_t colon = text.find(':');
    rules.push_back({text.substr(0, colon), text[colon + 1]});
    text.remove_prefix(std::min(colon + 3, text.size()));
  }
  return rules;
}

std::vector<AttrRule> OwnRules() {
  std::vector<AttrRule> rules;
  for (const FusedAttr& a : FusedAttrs()) rules.push_back({a.name, kKinds[a.kind.index()]});
  return rules;
}

Table MakeTable() {
  Table table;
  for (const Row& row : kRows) table[{row.domain, row.op}] = Parse(row.attrs);
  for (const Op op : FusedOps()) table[{InfoOf(op).domain, InfoOf(op).name}] = OwnRules();
  return table;
}

}  // namespace

const std::vector<AttrRule>* AttrRulesOf(std::string_view domain, std::string_view op) {
  static const Table* const table = new Table(MakeTable());
  const auto it = table->find({domain, op});
  return it == table->end() ? nullptr : &it->second;
}

Result<bool> CheckAttributes(std::string_view domain, std::string_view op, const Attrs& attrs) {
  const std::vector<AttrRule>* rules = AttrRulesOf(domain, op);
  bool known = true;
  for (const auto& [name, value] : attrs.entries()) {
    if (rules == nullptr || name == "octavo_captures" || name.starts_with("__")) continue;
    const auto rule = std::ranges::find(*rules, std::string_view(name), &AttrRule::name);
    const char kind = kKinds[value.index()];
    if (rule == rules->end()) {
      if (domain != "com.microsoft") return Fail("it has the attribute '{}', which {} does not know", name, op);
      known = false;
    } else if (rule->kind != kind) {
      return Fail("its attribute '{}' is {}; {} takes {}", name, WordOf(kind), op, WordOf(rule->kind));
    }
  }
  return known;
}

}  // namespace octavo::ir
