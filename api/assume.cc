#include "octavo/api/assume.h"

#include <algorithm>
#include <charconv>
#include <format>

#include "octavo/ir/closed.h"
#include "octavo/ir/interpret/call.h"
#include "octavo/ir/names.h"
#include "octavo/passes/pipelines.h"
#include "octavo/quant/dataset.h"

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
    return ir::Fail("assume: the model has no input {}; its inputs are: {}", ir::Quoted(name),
                    quant::NamesOf(quant::InputsOf(graph)));
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

std::ptrdiff_t Ifs(const ir::Graph& graph) {
  return std::ranges::count_if(graph.NodesInOrder(), [&](ir::NodeId id) { return graph.node(id).op == ir::Op::kIf; });
}

ir::Result<ir::Graph> Branch(ir::Graph graph, std::string_view input, std::string_view value) {
  const std::ptrdiff_t before = Ifs(graph);
  OCTAVO_TRY_STATUS(Run(graph, input, value));
  passes::PassRun run;
  OCTAVO_TRY_STATUS(passes::RunPasses({"fold", "dce"}, graph, run, {}));
  if (Ifs(graph) >= before)
    return ir::Fail(
        "split_if: no If is decided by the input {} alone; an input that decides other things becomes a constant by "
        "assume",
        ir::Quoted(input));
  const std::vector<ir::ValueId> inputs = graph.inputs();
  for (const ir::ValueId v : inputs) {
    if (graph.value(v).uses.empty() && !graph.IsGraphOutput(v)) graph.DropInput(v);
  }
  return graph;
}

}  // namespace

ir::Result<ir::Graph> BranchOf(ir::Graph graph, std::string_view input, std::string_view value) {
  return ir::Closed("taking a branch", [&] { return Branch(std::move(graph), input, value); });
}

ir::Status Assume(ir::Graph& graph, std::string_view input, std::string_view value) {
  return ir::Closed("assuming an input", [&] { return Run(graph, input, value); });
}

}  // namespace octavo::api
