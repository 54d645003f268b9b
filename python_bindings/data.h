// Data and progress as Python gives them, for the calls that work through batches.
#ifndef OCTAVO_PYTHON_BINDINGS_DATA_H_
#define OCTAVO_PYTHON_BINDINGS_DATA_H_

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "octavo/python_bindings/convert.h"

namespace octavo::python {

using ProgressFn = std::function<void(const std::string&, int64_t, int64_t)>;

// Paths as the command line takes them, or an iterable of dicts.
std::unique_ptr<quant::DataSource> OpenData(const py::object& data, const ir::Graph& graph, Passes passes);

// Between two batches or two Linears: tells Python, and Ctrl-C ends the work there. What Python raises stays pending until the work has ended.
void Step(const std::optional<ProgressFn>& progress, std::string_view stage, int64_t done, int64_t total);

}  // namespace octavo::python

#endif  // OCTAVO_PYTHON_BINDINGS_DATA_H_
