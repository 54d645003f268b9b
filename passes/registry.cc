#include "octavo/passes/registry.h"

#include <algorithm>
#include <set>
#include <utility>

#include "octavo/ir/names.h"
#include "octavo/passes/own.h"
#include "octavo/passes/rule_pass.h"

namespace octavo::passes {

namespace {

// What pipelines of 0.1.0 call passes that take fp8 as well.
constexpr std::pair<std::string_view, std::string_view> kOldNames[] = {{"fuse_int8", "fuse_quantized"},
                                                                       {"qkv_int8", "quantized_qkv"}};

}  // namespace

Registry::Registry() : passes_(OwnPasses()) {}

const Registry& Registry::Own() {
  static const auto* const own = new Registry;
  return *own;
}

const Pass* Registry::Find(std::string_view name) const {
  for (const auto& [old, now] : kOldNames) name = name == old ? now : name;
  const auto it = std::ranges::find_if(passes_, [name](const auto& p) { return p->info().name == name; });
  return it == passes_.end() ? nullptr : it->get();
}

Status Registry::Add(std::shared_ptr<const Pass> pass, Placement where) {
  if (pass == nullptr || pass->info().name.empty()) return ir::Fail("a pass needs a name");
  const std::string& name = pass->info().name;
  if (pass->own()) return ir::Fail("the pass {} has no version, which files record: give it one", ir::Quoted(name));
  if (const Pass* known = Find(name)) {
    if (known->info().version == pass->info().version && known->info().what == pass->info().what) return {};
    return ir::Fail("there is a pass {} already: give yours another name", ir::Quoted(name));
  }
  if (!where.after.empty() && !where.before.empty())
    return ir::Fail("the pass {} has two places, after {} and before {}: give one", ir::Quoted(name),
                    ir::Quoted(where.after), ir::Quoted(where.before));
  for (std::string* anchor : {&where.after, &where.before}) {
    if (anchor->empty()) continue;
    const Pass* beside = Find(*anchor);
    if (beside == nullptr)
      return ir::Fail("{} cannot stand beside {}, which is no pass; there are: {}", ir::Quoted(name),
                      ir::Quoted(*anchor), Names());
    *anchor = beside->info().name;
  }
  if (!where.after.empty())
    places_.push_back({name, std::move(where.after), true});
  else if (!where.before.empty())
    places_.push_back({name, std::move(where.before), false});
  passes_.push_back(std::move(pass));
  return {};
}

Status Registry::Add(pattern::Rule rule, Placement where) {
  PassInfo info{.name = rule.name, .what = rule.doc, .version = where.version};
  std::vector<pattern::Rule> rules;
  rules.push_back(std::move(rule));
  return Add(std::make_shared<RulePass>(std::move(info), std::move(rules)), std::move(where));
}

std::vector<const pattern::Rule*> Registry::rules() const {
  std::vector<const pattern::Rule*> all;
  std::set<std::string_view> seen;
  for (const auto& pass : passes_) {
    for (const pattern::Rule& rule : pass->rules()) {
      if (seen.insert(rule.name).second) all.push_back(&rule);
    }
  }
  return all;
}

std::string Registry::Names() const {
  std::string names;
  for (const auto& p : passes_) names += (names.empty() ? "" : ", ") + p->info().name;
  return names;
}

std::vector<std::string> Registry::Placed(std::vector<std::string> recipe) const {
  for (auto place = places_.begin(); place != places_.end(); ++place) {
    auto at = std::ranges::find(recipe, place->anchor);
    if (at == recipe.end()) continue;
    if (place->behind) {
      // Those that were added behind the same pass stay in the order in which they were added.
      const auto same = [&](const std::string& name) {
        return std::any_of(places_.begin(), place,
                           [&](const Place& p) { return p.name == name && p.behind && p.anchor == place->anchor; });
      };
      do ++at;
      while (at != recipe.end() && same(*at));
    }
    recipe.insert(at, place->name);
  }
  return recipe;
}

}  // namespace octavo::passes
