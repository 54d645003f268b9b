#include "octavo/tests/passes/variant_builder.h"

#include "octavo/ir/infer.h"

namespace octavo::passes {

using ir::DType;
using ir::Op;
using ir::Tensor;
using ir::ValueId;

ValueId VariantBuilder::Input(const Tensor& t) {
  const std::string name = "in" + std::to_string(v_.graph.inputs().size());
  ir::Type declared{t.dtype(), ir::SymShape()};
  const int64_t style = Pick(0, 9);
  for (const int64_t d : t.shape()) {
    const bool number = style < 4 || (style < 8 && Chance(50));
    // A symbol for each size: equal names are equal sizes. Or one of its own.
    const std::string symbol =
        Chance(70) ? "n" + std::to_string(d) : name + "_" + std::to_string(declared.shape->size());
    declared.shape->push_back(number ? ir::Dim(d) : style == 7 ? ir::Dim() : ir::Dim::Symbol(symbol));
  }
  if (style == 9) declared.shape.reset();
  const ValueId v = v_.graph.AddInput(name, std::move(declared));
  v_.inputs[name] = t;
  values_[v] = {t, nullptr};
  return v;
}

std::vector<ValueId> VariantBuilder::Nodes(Op op, std::vector<ValueId> in, size_t outputs, ir::Attrs attrs) {
  // What -1 is where there are no elements is anybody's guess.
  if (op == Op::kReshape && Value(in[0]).size() == 0) throw Invalid("a Reshape of nothing");
  std::vector<ir::RtValue> given;
  for (const ValueId v : in) given.push_back(v.valid() ? values_.at(v) : ir::RtValue());
  const std::string name =
      Chance(90) ? "node" + std::to_string(v_.graph.node_capacity()) : Of<const char*>({"", "fc", "block.fc"});
  const ir::NodeId id = v_.graph.AddNode(op, std::move(in), outputs, std::move(attrs), name);
  auto results = ir::EvalNode(v_.graph, v_.graph.node(id), given);
  if (!results) throw Invalid(results.error().message);
  std::vector<ValueId> made = v_.graph.node(id).outputs;
  for (size_t i = 0; i < outputs; ++i) values_[made[i]] = (*results)[i];
  return made;
}

Tensor VariantBuilder::As(const Tensor& t, DType to) {
  if (t.dtype() == to) return t;
  ir::Graph g;
  const ir::NodeId cast = g.AddNode(Op::kCast, {g.AddConstant(t)}, 1, {{"to", static_cast<int64_t>(to)}});
  const std::vector<ir::RtValue> in{{t, nullptr}};
  return ir::EvalNode(g, g.node(cast), in).value()[0].tensor;
}

Tensor VariantBuilder::Random(ir::Shape shape, float scale) {
  std::normal_distribution<float> normal(0, scale);
  Tensor t = Tensor::Empty(DType::kF32, std::move(shape));
  for (float& x : t.mutable_as<float>()) x = normal(rng_);
  return As(t, type);
}

ValueId VariantBuilder::Number(double value) {
  const size_t rank = Chance(85) ? 0 : static_cast<size_t>(Pick(1, 4));
  return Constant(As(Tensor::Of<double>(DType::kF64, ir::Shape(rank, 1), std::vector<double>{value}), type));
}

Variant VariantBuilder::Finish(std::string kind) {
  v_.kind = std::move(kind);
  // Inner values that leave the graph, too.
  const std::vector<ir::NodeId> nodes = v_.graph.NodesInOrder();
  if (Chance(15)) {
    const ir::Node& n = v_.graph.node(nodes[static_cast<size_t>(Pick(0, static_cast<int64_t>(nodes.size()) - 1))]);
    if (n.output().valid()) Output(n.output());
  }
  ir::Graph copy = v_.graph;
  if (auto inferred = ir::Inference::Run(copy); !inferred) throw Invalid(inferred.error().message);
  auto outputs = ir::Interpret(v_.graph, v_.inputs);
  if (!outputs) throw Invalid(outputs.error().message);
  v_.outputs = std::move(*outputs);
  return std::move(v_);
}

}  // namespace octavo::passes
