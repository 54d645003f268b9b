// A valid model that runs unfused never fails because octavo fuses it, and keeps its numbers. Random graphs around what the rules look for, which the
// interpreter ran (tests/passes/variants.h), through every recipe. OCTAVO_VARIANTS says how many, OCTAVO_SEED replays a run from its first graph.
#include "octavo/tests/passes/variants.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <format>
#include <limits>
#include <map>
#include <random>

#include "octavo/api/optimize.h"
#include "octavo/fuzz/compare.h"
#include "octavo/ir/text.h"
#include "octavo/runtime/model.h"

namespace octavo::api {
namespace {

using ir::DType;
using ir::Graph;
using ir::Tensor;
using passes::Variant;

uint64_t FromEnvironment(const char* name, uint64_t fallback) {
  const char* text = std::getenv(name);
  return text != nullptr ? std::strtoull(text, nullptr, 10) : fallback;
}

// What is never exceeded, whatever Measured says: far below what a wrong broadcast does.
double Tolerance(DType t) {
  return t == DType::kF64 ? 1e-9 : t == DType::kF32 ? 1e-3 : quant::IsFp8(t) ? 1.0 / 8 : 3e-2;
}

// Empty, or how `got` differs.
std::string Differs(const Tensor& want, const Tensor& got, DType coarsest = DType::kF64) {
  if (want.dtype() != got.dtype() || want.shape() != got.shape())
    return std::format("{}{} became {}{}", quant::Name(want.dtype()), ir::ToString(want.shape()),
                       quant::Name(got.dtype()), ir::ToString(got.shape()));
  if (!quant::IsFloat(want.dtype())) {
    int64_t most = 0;  // codes move by one where what they round does
    for (int64_t i = 0; i < want.size(); ++i) most = std::max(most, std::abs(want.GetInt(i) - got.GetInt(i)));
    return most > 1 ? std::format("a code is {} off", most) : "";
  }
  double size = 0;
  for (int64_t i = 0; i < want.size(); ++i) {
    if (std::isfinite(want.GetDouble(i))) size = std::max(size, std::fabs(want.GetDouble(i)));
  }
  const double bound = size * std::max(Tolerance(want.dtype()), Tolerance(coarsest));
  for (int64_t i = 0; i < want.size(); ++i) {
    const double a = want.GetDouble(i), b = got.GetDouble(i);
    if (std::isnan(a) ? std::isnan(b) || want.dtype() == DType::kF16 : a == b || std::fabs(a - b) <= bound) continue;
    if (want.dtype() == DType::kF16 && !std::isfinite(a)) continue;  // what overflows in 16 bits need not in f32
    return std::format("element {} is {}, was {}", i, b, a);
  }
  return "";
}

// 16-bit floats are no longer rounded after every op, which moves codes by one and what a norm makes of small rows by a few hundredths: as fp8 does.
DType CoarsestOf(const Variant& v) {
  const bool half = std::ranges::any_of(v.inputs, [](const auto& in) { return in.second.dtype() == DType::kF16; });
  return half ? DType::kE4M3FN : DType::kF64;
}

// By how much `want`, what `graph` gave, moves where each of its numbers is a little off, and twice that is the bound: a norm of nearly constant
// rows makes much of it, most graphs nothing (fuzz/compare.h). Where there are codes, which move by one or not at all, the tolerance above stands alone.
std::string Measured(const Graph& graph, const Variant& v, const std::vector<Tensor>& want,
                     const std::vector<Tensor>& got) {
  if (v.quantized) return "";
  const auto interpret = [&](const Graph& g) { return ir::Interpret(g, v.inputs); };
  std::string apart;
  fuzz::Compare(graph, want, got, CoarsestOf(v) != DType::kF64, interpret, &apart);
  return apart;
}

// Whether roundings alone move float outputs as far as they are apart: each number is up to 2^-21 of itself off, which another order of eight summands is.
// A variance of rounding errors alone (the mean of deviations themselves, beside an epsilon of their size) is worth no more. In f16 each is up to 2^-10 of
// itself off, and its root may then be of a number below 0: where the noise makes a NaN, any number is as good.
bool RoundingDoes(const Graph& graph, const Variant& v, const std::vector<Tensor>& want,
                  const std::vector<Tensor>& got) {
  const auto apart = [](const Tensor& a, const Tensor& b) {
    double most = a.shape() == b.shape() ? 0 : INFINITY;
    for (int64_t i = 0; a.shape() == b.shape() && i < a.size(); ++i) {
      const double x = a.GetDouble(i), y = b.GetDouble(i);
      if (x != y && !(std::isnan(x) && std::isnan(y)))
        most = std::max(most, std::isfinite(x - y) ? std::fabs(x - y) : INFINITY);
    }
    return most;
  };
  std::vector<double> moved(want.size(), 0);
  const bool half = CoarsestOf(v) != DType::kF64;
  const float off = half ? 1 : 0x1p-21f / fuzz::kNoise;  // of kNoise, which knows 16 bits
  for (const float sign : {off, -off}) {
    const auto noisy =
        fuzz::WithNoise(graph, sign).and_then([&](const Graph& g) { return ir::Interpret(g, v.inputs); });
    if (!noisy) return false;
    for (size_t i = 0; i < want.size(); ++i) moved[i] = std::max(moved[i], apart(want[i], (*noisy)[i]));
  }
  for (size_t i = 0; i < want.size(); ++i) {
    if (want[i].dtype() != (half ? DType::kF16 : DType::kF32) || (!half && !std::isfinite(moved[i]))) return false;
    if (apart(want[i], got[i]) > 2 * moved[i]) return false;
  }
  return true;
}

// coarsest: of the types that the graph computes in.
std::string Differ(const std::vector<Tensor>& want, const std::vector<Tensor>& got, DType coarsest) {
  for (size_t i = 0; i < want.size(); ++i) {
    if (std::string d = Differs(want[i], got[i], coarsest); !d.empty()) return std::format("output {}: {}", i, d);
  }
  return "";
}

std::string OtherBits(const std::vector<Tensor>& want, const std::vector<Tensor>& got) {
  for (size_t i = 0; i < want.size(); ++i) {
    if (!want[i].SameBits(got[i])) return std::format("output {} has other bits: {}", i, Differs(want[i], got[i]));
  }
  return "";
}

ir::Result<std::vector<Tensor>> Run(const Graph& g, const ir::TensorMap& inputs) {
  OCTAVO_TRY(const runtime::Model model, runtime::Model::Compile(g, {.threads = 1}));
  return model.Run(inputs);
}

struct Told {
  std::string wrong = {};  // empty: all is well
  bool unfused_fails = false;
  bool by_rounding = false;  // it is off by more than the tolerance, as roundings alone are
};

Told Try(const Variant& v, const std::string& recipe, Optimized* result) {
  OptimizeOptions options;
  options.recipe = recipe;
  options.threads = 1;
  const auto data = quant::InMemoryData({v.inputs}, quant::InputsOf(v.graph));
  if (recipe == "int8" || recipe == "fp8") options.data = data.get();
  if (!Run(v.graph, v.inputs)) return {"", true};  // the runtime's own limit, whatever is fused
  auto optimized = Optimize(v.graph, options);
  if (!optimized && optimized.error().message.find("has a NaN or infinity") != std::string::npos)
    return {};  // as is right
  if (!optimized) return {"optimize: " + optimized.error().message};
  *result = std::move(*optimized);
  for (const std::string& note : result->notes) {
    if (note.find("please report") != std::string::npos) return {note};
  }
  for (const passes::NearMiss& m : result->misses) {
    if (m.reason.find("please report") != std::string::npos) return {m.rule + ": " + m.reason};
  }
  auto interpreted = ir::Interpret(result->graph, v.inputs);
  if (!interpreted) return {"interpreted: " + interpreted.error().message};
  auto ran = Run(result->graph, v.inputs);
  if (!ran) return {"compiled and run: " + ran.error().message};
  Told told;
  const bool approximate = recipe != "float" && recipe != "quantized";
  if (!approximate) {
    if (std::string d = Differ(v.outputs, *interpreted, CoarsestOf(v)); !d.empty()) {
      if (!RoundingDoes(v.graph, v, v.outputs, *interpreted)) return {"interpreted: " + d};
      told.by_rounding = true;
    }
    if (std::string d = Measured(v.graph, v, v.outputs, *interpreted); !d.empty()) return {"interpreted: " + d};
  }
  for (size_t i = 0; i < v.outputs.size(); ++i) {
    if (v.outputs[i].dtype() != (*ran)[i].dtype() || v.outputs[i].shape() != (*ran)[i].shape())
      return {Differs(v.outputs[i], (*ran)[i])};
  }
  if (std::string d = Differ(*interpreted, *ran, CoarsestOf(v)); !d.empty() && !approximate) {
    if (!RoundingDoes(result->graph, v, *interpreted, *ran)) return {"on kernels: " + d};
    told.by_rounding = true;
  }
  if (std::string d = Measured(result->graph, v, *interpreted, *ran); !d.empty() && !approximate)
    return {"on kernels: " + d};
  if (result->unfused.node_count() == 0) return told;
  auto unfused = ir::Interpret(result->unfused, v.inputs);
  if (!unfused) return {"unfused: " + unfused.error().message};
  if (std::string d = OtherBits(*unfused, *interpreted); !d.empty()) return {"of the unfused codes " + d};
  return told;
}

TEST(Variants, FuseWithoutHarm) {
  const uint64_t first = FromEnvironment("OCTAVO_SEED", std::random_device{}()),
                 count = FromEnvironment("OCTAVO_VARIANTS", 2000);
  std::printf("OCTAVO_SEED=%llu\n", static_cast<unsigned long long>(first));
  std::fflush(stdout);  // also where the process ends
  const char* const real[] = {"float", "int8", "float", "dynamic", "fp8", "float", "weights8", "int8", "dynamic4"};
  std::map<std::string, int> kinds, fused, undone;
  int unfused_fails = 0, by_rounding = 0;
  for (uint64_t i = 0; i < count; ++i) {
    const Variant v = passes::MakeVariant(first + i);
    const std::string recipe = v.quantized ? (i % 4 == 0 ? "float" : "quantized") : real[(first + i) % std::size(real)];
    Optimized result;
    const Told told = Try(v, recipe, &result);
    unfused_fails += told.unfused_fails ? 1 : 0;
    by_rounding += told.by_rounding ? 1 : 0;
    ++kinds[v.kind];
    EXPECT_EQ(told.wrong, "") << "OCTAVO_SEED=" << first + i << " OCTAVO_VARIANTS=1, " << v.kind << ", recipe "
                              << recipe << "\n"
                              << ir::ToText(v.graph, {.elide_constants_above = 4});
    for (const passes::NearMiss& m : result.misses) {
      if (m.reason.find("does not stand for") != std::string::npos) ++undone[m.rule];
    }
    for (ir::NodeId id : result.graph.NodesInOrder()) {
      const ir::Node& n = result.graph.node(id);
      const bool ours = std::ranges::any_of(n.origin, [](const auto& o) { return o.starts_with("pass:"); });
      if (ours && n.op != ir::Op::kConstant) ++fused[std::string(ir::InfoOf(n.op).name)];
    }
  }
  for (const auto& [kind, n] : kinds) std::printf("%s %d; ", kind.c_str(), n);
  std::printf("%d that the runtime refuses as they are; %d apart by roundings alone\nmade:", unfused_fails,
              by_rounding);
  for (const auto& [op, n] : fused) std::printf(" %s %d", op.c_str(), n);
  std::printf("\nundone:");
  for (const auto& [rule, n] : undone) std::printf(" %s %d", rule.c_str(), n);
  std::printf("\n");
  EXPECT_LE(unfused_fails * 20, static_cast<int>(count));
  EXPECT_LE(by_rounding, 1 + static_cast<int>(count / 500));  // they are rare, or the excuse is too wide
  if (count < 500) return;
  for (const char* op : {"Gelu", "LayerNormalization", "RMSNormalization", "SkipLayerNorm", "NormQuant", "Sdpa",
                         "QuantizedSdpa", "QuantizedLinear", "Lookup"})
    EXPECT_GT(fused[op], 0) << op;
}

}  // namespace
}  // namespace octavo::api
