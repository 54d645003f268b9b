#include "octavo/api/assume.h"

#include <charconv>
#include <format>

#include "octavo/ir/closed.h"
#include "octavo/ir/interpret/call.h"
#include "octavo/ir/names.h"

namespace octavo::api {

namespace {

// "true", "false" or a number.
ir::Result<double> NumberOf(std::string_view text) {
  if (text == "true" || text == "false") return text == "true" ? 1.0 : 0.0;
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size())
    return ir::Fail("assume: {} is no number, true or false", ir::Quoted(text));
  return number;
}

ir::Status Run(ir::Graph& graph, std::string_view name, std::string_view value) {
  OCTAVO_TRY(const double number, NumberOf(value));
  const ir::ValueId input = graph.FindValue(name);
  if (!input.valid() || graph.value(input).producer.valid()) {
    std::string inputs;
    for (const ir::ValueId v : graph.inputs()) inputs += (inputs.empty() ? "" : ", ") + graph.value(v).name;
    return ir::Fail("assume: the model has no input {}; its inputs are {}", ir::Quoted(name), inputs);
  }
  const ir::Type type = graph.value(input).type;
  ir::Shape shape;
  for (const ir::Dim& d : type.shape.value_or(ir::SymShape())) {
    if (d.is_number() && d.number() != 1)
      return ir::Fail("assume: the input {} is {}, and only inputs of one element can be assumed", ir::Quoted(name),
                      ToString(type));
    shape.push_back(1);
  }
  const auto element = static_cast<float>(number);
  OCTAVO_TRY(const ir::Tensor tensor, ir::interpret::CastTo(ir::Tensor::F32(shape, {element}), type.dtype));
  graph.ReplaceAllUses(input, graph.AddConstant(tensor, {}, graph.first()));
  graph.DropInput(input);
  return {};
}

}  // namespace

ir::Status Assume(ir::Graph& graph, std::string_view input, std::string_view value) {
  return ir::Closed("assuming an input", [&] { return Run(graph, input, value); });
}

}  // namespace octavo::api
