// own_rule MODEL.onnx: x * Sigmoid(1.702 x), the GELU of CLIP, becomes the op Gelu, by a rule of one's own.
#include <octavo/octavo.h>

#include <cstdio>
#include <utility>

using octavo::ir::Op;
using octavo::passes::Rewriter;
using octavo::passes::pattern::Match;
using octavo::passes::pattern::Rule;
using octavo::passes::pattern::RuleBuilder;
using octavo::passes::pattern::Var;

namespace {

Rule QuickGelu() {
  RuleBuilder r("quick_gelu", "x * Sigmoid(1.702 x) -> Gelu by tanh");
  const Var x = r.Input("x");
  const Var gate = r.Op("gate", Op::kSigmoid, {r.AnyOrder("steeper", Op::kMul, x, r.Scalar("slope", 1.702, 1e-6))});
  r.Root(r.AnyOrder("product", Op::kMul, x, gate));
  r.Build(
      [=](Rewriter& b, const Match& m) { return b.Create(Op::kGelu, {m[x]}, {{"approximate", std::string("tanh")}}); });
  return r.Finish();
}

octavo::ir::Status Optimize(const char* path) {
  octavo::passes::Registry registry;
  OCTAVO_TRY_STATUS(registry.Add(QuickGelu(), {.version = "1.0", .after = "canonical"}));
  OCTAVO_TRY(octavo::ir::Graph graph, octavo::ir::onnx::ReadFile(path));
  octavo::api::OptimizeOptions options;
  options.recipe = "float";
  options.registry = &registry;
  OCTAVO_TRY(const octavo::api::Optimized result, octavo::api::Optimize(std::move(graph), options));
  for (const octavo::passes::Candidate& c : result.report.candidates) {
    if (c.rule == "quick_gelu")
      std::printf("%s at %s: %s %s\n", c.rule.c_str(), c.nodes[0].c_str(), c.status.c_str(), c.reason.c_str());
  }
  return {};
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return std::fprintf(stderr, "usage: own_rule MODEL.onnx\n"), 2;
  const auto done = Optimize(argv[1]);
  if (!done) std::fprintf(stderr, "%s\n", done.error().message.c_str());
  return done ? 0 : 1;
}
