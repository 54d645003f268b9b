// What was there and what became of it: never silent.
#ifndef OCTAVO_PASSES_REPORT_H_
#define OCTAVO_PASSES_REPORT_H_

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "octavo/passes/pass.h"

namespace octavo::passes {

struct Count {
  int found = 0;
  int done = 0;  // fused, or quantized for linears
};

// Weights that no recipe quantizes, by what reads them: "Conv".
struct FloatWeights {
  std::string op;
  int weights = 0;
  int64_t bytes = 0;
};

// Of 1 KB and more: the rest weighs nothing. Most bytes first.
std::vector<FloatWeights> WeightsInFloat(const Graph& finished);

struct Report {
  Count attention, qkv, linear;
  std::vector<FloatWeights> in_float;
  // Each kind in graph order: "attention"; "qkv"; "kv", "qk", "qv", the projections of two operands, as in cross-attention; "shared", other Linears that share an
  // input; "linear"; "experts", weights of a mixture in one tensor; "product", other products with constants, whose kind is "linear" where a pass has made them Linears; "softmax", no attention. The counts are of attention, qkv and linear.
  std::vector<Candidate> candidates;
};

// For tables: the node that names it, and in which branch or body it is, "/core/Softmax (then_branch of If 'choose')".
std::string SourceOf(const Candidate& candidate);

// Takes stock of the canonical graph without those inside of its nodes, before anything is fused: one candidate each, status "left".
Report TakeInventory(const Graph& graph);

// Fills status, rule and reason of every candidate by what stands in the finished graph (by provenance) and, for what was left,
// by what the passes told the run, and counts.
void Judge(const Graph& finished, const PassRun& run, Report& report);

// One candidate, kind "rewrite", for each node that a pass or rule of `names` has replaced, and one for each of them that found nothing, with its nearest miss.
std::vector<Candidate> RewritesOf(std::span<const std::string> names, const PassRun& run);

}  // namespace octavo::passes

#endif  // OCTAVO_PASSES_REPORT_H_
