// Scan of opset 8, whose operands have a batch in front of the sequence.
#include <utility>

#include "octavo/ir/onnx/upgrade.h"

namespace octavo::ir::onnx {

// Before: Scan-8(, states [B,...], x [B,S,...]) -> states [B,...], y [B,S,...]
// After:  Scan(states, x) over B whose body is Scan(states, x) over S
Status ScanFrom8(Draft& d, GraphBuilder&) {
  const GraphRef body = d.attrs.Subgraph("body");
  const int64_t scans = d.attrs.Int("num_scan_inputs", 0);
  if (body == nullptr || d.inputs.empty() || scans < 1) return Fail("it has no body or no scan inputs");
  if (d.input(0).valid())
    return Fail("its sequences have lengths of their own (sequence_lens); export it with opset 9 or later");
  const size_t operands = d.inputs.size() - 1;  // and captures
  if (body->inputs().size() != operands || static_cast<size_t>(scans) + d.captures > operands ||
      body->outputs().size() != d.outputs.size())
    return Fail("the body's inputs and outputs do not fit the op's");
  const size_t states = operands - d.captures - static_cast<size_t>(scans);

  Attrs inner{{"body", body}, {"num_scan_inputs", scans}};
  if (d.attrs.Has("directions")) inner.Set("scan_input_directions", d.attrs.Ints("directions"));
  if (d.captures != 0) inner.Set("octavo_captures", static_cast<int64_t>(d.captures));
  Graph one;  // entry of the batch
  one.name = body->name;
  std::vector<ValueId> in;
  for (size_t i = 0; i < operands; ++i) {
    const Value& v = body->value(body->inputs()[i]);
    Type type = v.type;
    if (i >= states && i < operands - d.captures) type.shape.reset();  // the whole sequence
    in.push_back(one.AddInput(v.name, std::move(type)));
  }
  const NodeId scan = one.AddNode(Op::kScan, std::move(in), d.outputs.size(), std::move(inner), d.name);
  one.SetOrigin(scan, d.origin);
  for (size_t i = 0; i < d.outputs.size(); ++i) one.AddOutput(body->outputs()[i].name, one.node(scan).output(i));

  d.inputs.erase(d.inputs.begin());
  d.attrs.Erase("directions");
  d.attrs.Set("body", GraphRef(std::make_shared<const Graph>(std::move(one))));
  d.attrs.Set("num_scan_inputs", static_cast<int64_t>(operands - d.captures));
  return {};
}

}  // namespace octavo::ir::onnx
