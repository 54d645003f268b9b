#include <cstdio>
#include <format>
#include <nlohmann/json.hpp>

#include "octavo/cli/cli.h"
#include "octavo/kernels/bench/bench.h"
#include "octavo/runtime/threads.h"

namespace octavo::cli {

namespace {

using kernels::bench::Report;

std::string Ratio(double r) { return r == 0 ? "-" : std::format("{:.2f}x", r); }
std::string Share(double s) { return s == 0 ? "-" : std::format("{:.0f} %", s * 100); }

// What was not measured has no ratio.
nlohmann::ordered_json RatioOrNull(double r) { return r == 0 ? nlohmann::ordered_json() : nlohmann::ordered_json(r); }

// oneDNN's only exact int8 form without VNNI, u8 x u8, runs by its reference loops.
std::string SaturationNote(const Report& r) {
  if (r.onednn_int8_codes_off <= 1) return {};
  return std::format(
      "oneDNN int8 saturates here: at the ends of the ranges its codes are {} away. With weights of 7 bits it does "
      "not.\n",
      r.onednn_int8_codes_off);
}

void PrintTable(const Report& r) {
  std::printf(
      "%s; kernels for %s\nclock %.2f GHz; at most %.1f MAC/cycle (%s), %.1f float FMA/cycle (%s); reads %.1f GB/s\n",
      r.cpu.c_str(), std::string(Name(r.arch)).c_str(), r.clock_ghz, r.dot_mac_per_cycle, r.dot.c_str(),
      r.fma_per_cycle, r.fma.c_str(), r.read_gb_s);
  if (!r.onednn_limited) std::printf("oneDNN was in use before and is not kept to these instructions\n");
  std::printf("\nkernel 1, 768 -> 3 x 768, u8 x s8 -> u8 with bias and scales, one thread\n");
  std::vector<std::vector<std::string>> rows{{"M", "MAC/cycle", "of peak", "weights in L2", "7-bit weights",
                                              "read bound", "weights GB/s", "of reads", "to oneDNN int8",
                                              "7-bit weights", "to oneDNN fp32", std::format("{} threads", r.threads)}};
  for (const auto& l : r.linear) {
    rows.push_back({std::to_string(l.m), std::format("{:.1f}", l.mac_per_cycle), Share(l.of_peak), Share(l.hot_of_peak),
                    Share(l.certified_of_peak), std::format("{:.0f}", l.read_bound),
                    l.weights_gb_s == 0 ? "" : std::format("{:.1f}", l.weights_gb_s),
                    l.weights_gb_s == 0 ? "" : Share(l.of_bandwidth), Ratio(l.over_onednn_int8),
                    Ratio(l.certified_over_onednn_int8), Ratio(l.over_onednn_f32), Ratio(l.speedup)});
  }
  std::printf(
      "%s%s\nkernel 2, exact mode, 12 heads of 64, one thread (oneDNN: matmul, softmax, matmul; Graph: one "
      "partition)\n",
      Table(rows, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}).c_str(), SaturationNote(r).c_str());
  rows = {{"S", "mask", "cycles/score", "relative P", "to oneDNN int8", "to oneDNN fp32", "to oneDNN Graph int8",
           "to oneDNN Graph fp32", std::format("{} threads", r.threads)}};
  for (const auto& a : r.attention) {
    rows.push_back({std::to_string(a.s), a.mask ? "float" : "none", std::format("{:.2f}", a.cycles_per_score),
                    std::format("{:.2f}", a.relative_cycles_per_score), Ratio(a.over_onednn_int8),
                    Ratio(a.over_onednn_f32), Ratio(a.over_graph_int8), Ratio(a.over_graph_f32), Ratio(a.speedup)});
  }
  std::printf("%s", Table(rows, {0, 2, 3, 4, 5, 6, 7, 8}).c_str());
  for (const std::string* problem : {&r.graph_int8_problem, &r.graph_f32_problem}) {
    if (problem->empty()) continue;
    std::printf("%s: %s\n", problem == &r.graph_int8_problem ? "int8" : "fp32", problem->c_str());
  }
}

void PrintJson(const Report& r) {
  nlohmann::ordered_json json = {{"schema", 1},
                                 {"cpu", r.cpu},
                                 {"arch", Name(r.arch)},
                                 {"clock_ghz", r.clock_ghz},
                                 {"dot", {{"instruction", r.dot}, {"mac_per_cycle", r.dot_mac_per_cycle}}},
                                 {"fma", {{"instruction", r.fma}, {"fma_per_cycle", r.fma_per_cycle}}},
                                 {"read_gb_s", r.read_gb_s},
                                 {"threads", r.threads},
                                 {"onednn_limited", r.onednn_limited},
                                 {"onednn_int8_codes_off", r.onednn_int8_codes_off},
                                 {"onednn_graph_int8_problem", r.graph_int8_problem},
                                 {"onednn_graph_f32_problem", r.graph_f32_problem},
                                 {"complete", r.complete}};
  auto& linear = json["kernel1"] = nlohmann::ordered_json::array();
  for (const auto& l : r.linear) {
    linear.push_back({{"m", l.m},
                      {"k", 768},
                      {"n", 3 * 768},
                      {"mac_per_cycle", l.mac_per_cycle},
                      {"of_peak", l.of_peak},
                      {"hot_of_peak", l.hot_of_peak},
                      {"certified_of_peak", l.certified_of_peak},
                      {"read_bound_mac_per_cycle", l.read_bound},
                      {"weights_gb_s", l.weights_gb_s},
                      {"of_bandwidth", l.of_bandwidth},
                      {"over_onednn_int8", l.over_onednn_int8},
                      {"certified_over_onednn_int8", RatioOrNull(l.certified_over_onednn_int8)},
                      {"over_onednn_f32", RatioOrNull(l.over_onednn_f32)},
                      {"speedup", l.speedup}});
  }
  auto& attention = json["kernel2"] = nlohmann::ordered_json::array();
  for (const auto& a : r.attention) {
    attention.push_back({{"s", a.s},
                         {"heads", 12},
                         {"head_size", 64},
                         {"mask", a.mask},
                         {"cycles_per_score", a.cycles_per_score},
                         {"relative_cycles_per_score", a.relative_cycles_per_score},
                         {"over_onednn_int8", a.over_onednn_int8},
                         {"over_onednn_f32", a.over_onednn_f32},
                         {"over_onednn_graph_int8", RatioOrNull(a.over_graph_int8)},
                         {"over_onednn_graph_f32", RatioOrNull(a.over_graph_f32)},
                         {"speedup", a.speedup}});
  }
  std::printf("%s\n", json.dump(1).c_str());
}

}  // namespace

int BenchKernels(double seconds, int threads, bool json) {
  std::string problem;
  const runtime::Threads pool(threads);
  kernels::bench::Options options{
      .arch = kernels::BestArch(&problem), .seconds = seconds, .progress = {}, .stop = &Interrupted(), .parallel = {}};
  options.threads = pool.count();
  options.parallel = [&](int64_t n, const std::function<void(int64_t)>& task) { pool.For(n, task); };
  if (!problem.empty()) return Fail(problem);
  Progress progress(!json);
  options.progress = [&](std::string_view row, int64_t done, int64_t total) { progress.Show(row, done, total); };
  const Report report = kernels::bench::Measure(options);
  progress.Done();
  if (json) {
    PrintJson(report);
  } else {
    PrintTable(report);
  }
  return report.complete ? kOk : kInterrupted;
}

}  // namespace octavo::cli
