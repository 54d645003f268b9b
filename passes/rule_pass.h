// A pass that is a list of rules.
#ifndef OCTAVO_PASSES_RULE_PASS_H_
#define OCTAVO_PASSES_RULE_PASS_H_

#include <span>
#include <utility>
#include <vector>

#include "octavo/passes/pattern/pattern.h"

namespace octavo::passes {

class RulePass : public FunctionPass {
 public:
  // Applies the rules in order, each over the whole graph.
  RulePass(PassInfo info, std::vector<pattern::Rule> rules) : RulePass(std::move(info), std::move(rules), nullptr) {}
  // Runs a function that applies them, and more.
  RulePass(PassInfo info, std::vector<pattern::Rule> rules, Function run)
      : FunctionPass(
            std::move(info),
            run ? std::move(run) : [this](Graph& g, PassRun& r) { return pattern::ApplyRules(rules_, g, r); }),
        rules_(std::move(rules)) {}
  std::span<const pattern::Rule> rules() const override { return rules_; }

 private:
  std::vector<pattern::Rule> rules_;
};

}  // namespace octavo::passes

#endif  // OCTAVO_PASSES_RULE_PASS_H_
