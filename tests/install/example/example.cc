// A program of a user of the library: builds a graph of one MatMul and runs it.
#include <cstdio>

#include "octavo/ir/graph.h"
#include "octavo/ir/interpret.h"

using octavo::ir::Graph;
using octavo::ir::Op;
using octavo::ir::Tensor;

int main() {
  Graph graph;
  const auto x = graph.AddInput("x", {octavo::ir::DType::kF32, octavo::ir::SymShape{2, 3}});
  const auto w = graph.AddConstant(Tensor::F32({3, 2}, {7, 8, 9, 10, 11, 12}));
  const auto product = graph.AddNode(Op::kMatMul, {x, w}, 1);
  graph.AddOutput("y", graph.node(product).output());

  const auto outputs = octavo::ir::Interpret(graph, {{"x", Tensor::F32({2, 3}, {1, 2, 3, 4, 5, 6})}});
  if (!outputs) {
    std::fprintf(stderr, "%s\n", outputs.error().message.c_str());
    return 1;
  }
  std::printf("2 x 3 times 3 x 2:");
  for (const float value : outputs->front().as<float>()) std::printf(" %g", value);
  std::printf("\n");
}
