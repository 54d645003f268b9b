// Rules of Python as optimize() takes them.
#ifndef OCTAVO_PYTHON_BINDINGS_RULES_H_
#define OCTAVO_PYTHON_BINDINGS_RULES_H_

#include <vector>

#include "octavo/passes/pipelines.h"
#include "octavo/python_bindings/convert.h"

namespace octavo::python {

struct PyRule {
  passes::pattern::Rule rule;
  passes::Placement where;
};

// Plugins first, then the rules. Raises OctavoError where one cannot be added.
void AddRules(const std::vector<PyRule>& rules, const std::vector<Name>& plugins, passes::Registry& registry);

}  // namespace octavo::python

#endif  // OCTAVO_PYTHON_BINDINGS_RULES_H_
