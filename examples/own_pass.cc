// A pass and a rule of one's own as a plugin: octavo --plugin libown_pass.so optimize IN.onnx -o OUT.onnx --recipe float
#include <octavo/passes/plugin.h>

#include <format>
#include <string>

using octavo::ir::Graph;
using octavo::ir::NodeId;
using octavo::ir::Op;
using octavo::ir::Result;
using octavo::ir::ValueId;
using octavo::passes::Changes;
using octavo::passes::Pass;
using octavo::passes::PassRun;
using octavo::passes::Registry;
using octavo::passes::Rewriter;
using octavo::passes::pattern::Match;
using octavo::passes::pattern::Rule;
using octavo::passes::pattern::RuleBuilder;
using octavo::passes::pattern::Var;

namespace {

// Relu(Relu(x)) is Relu(x). At most `most` of them, an option that `--set drop_relu.most=1` changes.
class DropRelu : public Pass {
 public:
  DropRelu()
      : Pass({.name = "drop_relu",
              .what = "drops a Relu behind another one; exact",
              .options = {{"most", int64_t{1000}, "how many at most"}},
              .version = "1.0"}) {}

  Result<Changes> Run(Graph& graph, PassRun& run) const override {
    int64_t left = run.Option("most", int64_t{1000});
    Rewriter rewriter(graph, info().name);
    for (const NodeId id : graph.NodesInOrder()) {
      if (!graph.IsAlive(id) || graph.node(id).op != Op::kRelu || !graph.IsFrom(graph.node(id).input(0), Op::kRelu))
        continue;
      if (left-- <= 0) break;
      rewriter.At(id, {id});
      rewriter.Replace(graph.node(id).output(), graph.node(id).input(0));
      rewriter.EraseDead(id);
    }
    return Changes{.graph = rewriter.changed()};
  }
};

Rule QuickGelu() {
  RuleBuilder r("quick_gelu", "x * Sigmoid(1.702 x) -> Gelu by tanh");
  const Var x = r.Input("x");
  const Var gate = r.Op("gate", Op::kSigmoid, {r.AnyOrder("steeper", Op::kMul, x, r.Scalar("slope", 1.702, 1e-6))});
  r.Root(r.AnyOrder("product", Op::kMul, x, gate));
  r.Build([=](Rewriter& b, const Match& m) -> ValueId {
    return b.Create(Op::kGelu, {m[x]}, {{"approximate", std::string("tanh")}});
  });
  return r.Finish();
}

void AddAll(Registry& registry, octavo::ir::Status& status) {
  status = registry.Add(std::make_shared<DropRelu>(), {.after = "canonical"});
  if (status) status = registry.Add(QuickGelu(), {.version = "1.0", .after = "canonical"});
}

}  // namespace

OCTAVO_PLUGIN("own_pass", AddAll)
