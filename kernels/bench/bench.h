// What the kernel pair reaches on this CPU beside what this CPU can do and beside oneDNN, all measured in one run on one
// thread: `octavo bench --kernels`. Each sample of ours is followed by one of each peer and of the peak loop, so that all
// see the same clock, and the fastest samples are compared: what disturbs a sample only ever makes it longer. Peers displace
// the weights of kernel 1 from L2, as the other layers of a model do; kernel 2 and its peers find Q, K and V in the caches,
// as kernel 1 leaves them.
#ifndef OCTAVO_KERNELS_BENCH_BENCH_H_
#define OCTAVO_KERNELS_BENCH_BENCH_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "octavo/kernels/arch/arch.h"

namespace octavo::kernels::bench {

struct Options {
  Arch arch = BestArch();
  double seconds = 1.0;  // per row
  std::function<void(std::string_view row, int64_t done, int64_t total)> progress;
  const std::atomic<bool>* stop = nullptr;
  // A standing pool: runs task(0) .. task(n - 1) on `threads` threads. Without one, nothing is said of threads.
  int threads = 1;
  std::function<void(int64_t n, const std::function<void(int64_t)>& task)> parallel;
};

// Kernel 1, 768 -> 3 x 768, u8 in, u8 out, s8 weights with column scales, bias.
struct LinearRow {
  int64_t m = 0;
  double mac_per_cycle = 0;
  double of_peak = 0;            // of the dot product loop; 0: no such loop
  double weights_gb_s = 0;       // m = 1: weights read from beyond L2
  double of_bandwidth = 0;       // of the rate of plain loads over as many bytes
  double read_bound = 0;         // MAC/cycle if the weights were only read, from where they lie
  double hot_of_peak = 0;        // 768 -> 768 alone, just run before: what memory takes is not in it
  double certified_of_peak = 0;  // CPUs without VNNI: with weights of 7 bits
  double over_onednn_int8 = 0, over_onednn_f32 = 0;  // its time / ours
  double certified_over_onednn_int8 = 0;  // CPUs without VNNI: with weights of 7 bits, where its sums are right
  double speedup = 0;                     // by Options::threads, in wall time; 0: not measured
};

// Kernel 2, exact mode, 12 heads of 64, u8 operands and output.
struct AttentionRow {
  int64_t s = 0;
  bool mask = false;
  double cycles_per_score = 0;
  double relative_cycles_per_score =
      0;  // with codes of exponentials whose rests go on (p_diffused), as recipe int8 has them
  double over_onednn_int8 = 0, over_onednn_f32 = 0;  // its matmul + softmax + matmul / ours
  double over_graph_int8 = 0, over_graph_f32 = 0;    // its Graph API's one partition / ours; 0: no such peer
  double speedup = 0;                                // as LinearRow's
};

struct Report {
  std::string cpu;
  Arch arch = Arch::kScalar;
  double clock_ghz = 0;
  std::string dot, fma;  // the instructions of the peak loops
  double dot_mac_per_cycle = 0, fma_per_cycle = 0, read_gb_s = 0;
  int onednn_int8_codes_off = 0;  // of oneDNN's int8 product, at the ends of the ranges; more than 1: its sums saturate
  bool onednn_limited = true;     // oneDNN is kept to the same instructions
  std::string graph_int8_problem, graph_f32_problem;  // why oneDNN Graph is no peer in the first such row; empty: it is
  std::vector<LinearRow> linear;
  std::vector<AttentionRow> attention;
  int threads = 1;       // of the speedups
  bool complete = true;  // false: stopped
};

Report Measure(const Options& options);

}  // namespace octavo::kernels::bench

#endif  // OCTAVO_KERNELS_BENCH_BENCH_H_
