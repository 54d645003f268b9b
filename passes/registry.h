// Every pass and rule that pipelines may name: octavo's own, and those that a caller or a plugin adds.
//
//   passes::Registry registry;                                        // octavo's own
//   registry.Add(QuickGelu(), {.version = "1.0", .after = "fuse_float"});   // a rule, which recipes now run behind fuse_float
//   options.registry = &registry;                                     // api::OptimizeOptions
#ifndef OCTAVO_PASSES_REGISTRY_H_
#define OCTAVO_PASSES_REGISTRY_H_

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "octavo/passes/pass.h"
#include "octavo/passes/pattern/pattern.h"

namespace octavo::passes {

// Where recipes run an added pass. Both empty: nowhere; a pipeline names it.
struct Placement {
  std::string version = "1";  // of the rule, for the metadata of files; a pass brings its own (PassInfo::version)
  std::string after = {};     // behind the first pass of that name, in each recipe that has it
  std::string before = {};    // or before it
};

class Registry {
 public:
  Registry();  // octavo's own passes
  static const Registry& Own();

  // An error where the name is taken, `after` or `before` names no pass or both are given, or a name or version is missing. The same pass twice
  // is harmless.
  [[nodiscard]] Status Add(std::shared_ptr<const Pass> pass, Placement where = {});
  // A pass of that one rule, with its name.
  [[nodiscard]] Status Add(pattern::Rule rule, Placement where);

  const Pass* Find(std::string_view name) const;  // null: none
  // In no particular order, octavo's own first.
  std::span<const std::shared_ptr<const Pass>> passes() const { return passes_; }
  // Every rule that a pass applies, each name once.
  std::vector<const pattern::Rule*> rules() const;
  // "canonical, fold, ...", for sentences.
  std::string Names() const;

  // A recipe's passes with those that were added for it.
  std::vector<std::string> Placed(std::vector<std::string> recipe) const;

 private:
  struct Place {
    std::string name, anchor;
    bool behind;
  };
  std::vector<std::shared_ptr<const Pass>> passes_;
  std::vector<Place> places_;
};

}  // namespace octavo::passes

#endif  // OCTAVO_PASSES_REGISTRY_H_
