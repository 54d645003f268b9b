#include "octavo/api/passes_json.h"

#include "octavo/ir/json.h"

namespace octavo::api {

namespace {

using nlohmann::ordered_json;

ordered_json ToJson(const passes::Pass& pass) {
  const passes::PassInfo& p = pass.info();
  ordered_json j{{"name", p.name},
                 {"what", p.what},
                 {"takes", Name(p.takes)},
                 {"leaves", Name(p.leaves)},
                 {"needs", Name(p.needs)},
                 {"version", pass.own() ? ordered_json(nullptr) : ordered_json(p.version)},
                 {"options", ordered_json::array()},
                 {"rules", ordered_json::array()}};
  for (const passes::OptionInfo& o : p.options) {
    ordered_json option{{"name", o.name}, {"what", o.what}};
    std::visit([&](const auto& v) { option["default"] = v; }, o.otherwise);
    j["options"].push_back(std::move(option));
  }
  for (const passes::pattern::Rule& rule : pass.rules())
    j["rules"].push_back({{"name", rule.name}, {"what", rule.doc}});
  return j;
}

}  // namespace

std::string PassesJson(const passes::Registry& registry) {
  ordered_json j{{"schema", 1}, {"passes", ordered_json::array()}, {"recipes", ordered_json::array()}};
  for (const auto& pass : registry.passes()) j["passes"].push_back(ToJson(*pass));
  for (const passes::Recipe& recipe : passes::Recipes()) {
    ordered_json r{{"name", recipe.name}, {"what", recipe.what}, {"passes", ordered_json::array()}};
    for (const std::string& name : registry.Placed(recipe.passes)) {
      const passes::Pass* pass = registry.Find(name);
      r["passes"].push_back(pass != nullptr
                                ? ToJson(*pass)
                                : ordered_json{{"name", name}, {"what", "ranges of activations are gathered here"}});
    }
    j["recipes"].push_back(std::move(r));
  }
  return ir::Dump(j, 1);
}

}  // namespace octavo::api
