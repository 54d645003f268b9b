#include "octavo/kernels/bench/bench.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <format>
#include <limits>
#include <optional>
#include <random>

#include "octavo/kernels/bench/onednn.h"
#include "octavo/kernels/bench/onednn_graph.h"
#include "octavo/kernels/bench/peak.h"
#include "octavo/kernels/qkv/qkv.h"
#include "octavo/kernels/sdpa/sdpa.h"
#include "octavo/kernels/simd/aligned.h"
#include "octavo/kernels/simd/weights.h"

namespace octavo::kernels::bench {
namespace {

constexpr int64_t kWidth = 768, kHeads = 12, kHeadSize = 64;
constexpr int64_t kColdBytes = int64_t{96} << 20;  // more than the L2 of any core, and than most shares of an L3
// Sets of weights, 1.8 MB each; the float product displaces the first kind from L2.
constexpr int64_t kSetsInL3 = 2, kSetsBeyondAllL2 = 4;

// The work of a row, done in turns; the fastest time of each. Cycles are that time at the clock right behind it: a core that has
// just multiplied tiles runs slower than one that has not (Granite Rapids 3.1 and 3.7 GHz). It rises within some 10 us, so cycles there
// are up to 15 % too many; shares and ratios are of times.
class Turns {
 public:
  // warm: each work runs for kWarm before it is timed, and as long together, so that it finds its operands as what comes before it in
  // a model leaves them, not displaced by its peers, and the clock as it leaves it itself: a call of 6 us behind a peer's tiles runs
  // at theirs, and reading the time of the thread is 3 % of it.
  explicit Turns(bool warm = false) : warm_(warm) {}
  // Returns the index of its time. Empty work: its time stays infinite.
  // warm: as the constructor's, for this work alone.
  size_t Add(std::function<void()> work, bool warm = false) {
    work_.push_back(std::move(work));
    warms_.push_back(warm || warm_);
    fastest_.push_back(std::numeric_limits<double>::infinity());
    clocks_.push_back(0);
    return work_.size() - 1;
  }
  bool Run(const Options& options) {
    for (const auto& w : work_) {
      if (w) w();
    }
    const auto start = std::chrono::steady_clock::now();
    for (int round = 0;
         round < 5 || std::chrono::steady_clock::now() - start < std::chrono::duration<double>(options.seconds);
         ++round) {
      for (size_t i = 0; i < work_.size(); ++i) {
        if (!work_[i]) continue;
        const double seconds = warms_[i] ? WarmSeconds(work_[i]) : Seconds(work_[i]);
        if (seconds < fastest_[i]) fastest_[i] = seconds, clocks_[i] = ClockGhz();
      }
      if (options.stop != nullptr && *options.stop) return false;
    }
    return true;
  }
  double operator[](size_t i) const { return fastest_[i]; }
  double Cycles(size_t i) const { return fastest_[i] * 1e9 * clocks_[i]; }
  double clock_ghz(size_t i) const { return clocks_[i]; }

 private:
  static constexpr double kWarm = 200e-6;
  static double WarmSeconds(const std::function<void()>& work) {
    const int calls = std::max(1, static_cast<int>(kWarm / Seconds(work)));
    const auto all = [&] {
      for (int i = 0; i < calls; ++i) work();
    };
    all();
    return Seconds(all) / calls;
  }

  bool warm_;
  std::vector<std::function<void()>> work_;
  std::vector<bool> warms_;
  std::vector<double> fastest_, clocks_;
};

// x[m, 768] and `copies` sets of weights for Q, K and V, used one after the other.
struct LinearProblem {
  AlignedArray<uint8_t> x, y;  // on lines, as a model's arenas are
  std::vector<float> scale, bias;
  std::vector<PackedWeights> w;
  std::vector<QkvArgs> args;
  AlignedArray<uint8_t> scratch;
  size_t next = 0;

  // `most`: the largest weight; 64 gives panels that are certified (PackedWeights::SafeQuads).
  LinearProblem(int64_t m, Arch arch, int64_t copies, int most = 127)
      : x(static_cast<size_t>(m * kWidth)),
        y(static_cast<size_t>(3 * m * kWidth)),
        scratch(GemmScratchBytes(arch, quant::DType::kU8, kWidth)) {
    std::mt19937 random(7);
    for (size_t i = 0; i < x.size(); ++i) x.data()[i] = static_cast<uint8_t>(random());
    std::memset(y.data(), 0, y.size());
    scale.assign(kWidth, 0.001f);
    bias.assign(kWidth, 0.25f);
    std::vector<int8_t> weights(static_cast<size_t>(kWidth * kWidth));
    for (auto& v : weights)
      v = static_cast<int8_t>(static_cast<int>(random() % static_cast<unsigned>(2 * most + 1)) - most);
    w.reserve(static_cast<size_t>(3 * copies));
    for (int64_t c = 0; c < copies; ++c) {
      QkvArgs& a = args.emplace_back();
      a.x = {x.data(), quant::DType::kU8, kWidth, 128, 0.02f};
      a.count = 3;
      for (int b = 0; b < 3; ++b) {
        w.push_back(*PackWeights({.data = weights.data(), .k = kWidth, .n = kWidth}));
        a.branch[b] = {.w = &w.back(),
                       .w_scale = scale.data(),
                       .bias = bias.data(),
                       .activation = Activation::kNone,
                       .y = y.data() + b * m * kWidth,
                       .dtype = quant::DType::kU8,
                       .scale = 0.05f,
                       .zero_point = 120,
                       .stride = kWidth};
      }
    }
  }
  void Run(Arch arch, int64_t m) {
    const QkvArgs& a = args[next++ % args.size()];
    Qkv(arch, a, {0, m}, {0, QkvBlocks(a)}, scratch.data());
  }
};

// One thread and all of them in turns, by the wall clock: how many times the first takes longer. 0: there are no others.
double Speedup(const Options& options, const std::function<void()>& one, const std::function<void()>& all) {
  if (options.threads < 2 || !options.parallel) return 0;
  const auto wall = [](const std::function<void()>& work) {
    const auto start = std::chrono::steady_clock::now();
    work();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  };
  double alone = std::numeric_limits<double>::infinity(), together = alone;
  const auto start = std::chrono::steady_clock::now();
  for (int round = 0;
       round < 5 || std::chrono::steady_clock::now() - start < std::chrono::duration<double>(options.seconds / 2);
       ++round) {
    alone = std::min(alone, wall(one));
    // Several in a row, as the steps of a model are: the pool's threads sleep while one works alone, and waking them is not
    // what a step costs.
    for (int call = 0; call < 4; ++call) together = std::min(together, wall(all));
  }
  return alone / together;
}

// So many sets of weights that no L2 has the next one.
double MeasureSpeedup(int64_t m, const Options& options) {
  LinearProblem problem(m, options.arch, kSetsBeyondAllL2);
  const int64_t blocks = QkvBlocks(problem.args[0]);
  const Shares shares = SharesOf(options.arch, m, blocks, options.threads);
  const size_t bytes = (GemmScratchBytes(options.arch, quant::DType::kU8, kWidth) + 63) / 64 * 64;
  AlignedArray<uint8_t> scratch(static_cast<size_t>(shares.rows * shares.blocks) * bytes);
  const auto share = [&](int64_t i) {
    const int64_t r = i / shares.blocks, c = i % shares.blocks;
    Qkv(options.arch, problem.args[problem.next % problem.args.size()],
        {m * r / shares.rows, m * (r + 1) / shares.rows},
        {blocks * c / shares.blocks, blocks * (c + 1) / shares.blocks},
        scratch.data() + static_cast<size_t>(i) * bytes);
  };
  return Speedup(
      options, [&] { problem.Run(options.arch, m); },
      [&] {
        ++problem.next;
        options.parallel(shares.rows * shares.blocks, share);
      });
}

LinearRow MeasureLinear(int64_t m, const Options& options, Report& report) {
  const int64_t weight_bytes = 3 * kWidth * kWidth;
  const bool cold = m == 1;
  const int64_t copies = cold ? kColdBytes / weight_bytes : kSetsInL3;
  LinearProblem ours(m, options.arch, copies);
  std::vector<std::unique_ptr<OneDnnInt8>> int8;
  int8.reserve(static_cast<size_t>(copies));
  for (int64_t c = 0; c < copies; ++c) int8.push_back(std::make_unique<OneDnnInt8>(m, kWidth, 3 * kWidth));
  size_t turn = 0;
  OneDnnFloat in_float(m, kWidth, 3 * kWidth, false);
  const PeakLoop dot = DotPeak(options.arch);
  // Read plainly where as many weights lie, as often as each set of them: all at once in every round would stay in a large L3
  // that the weights, each once in `copies` rounds, have left.
  const int64_t read_bytes = copies * weight_bytes;
  WeightArray<uint8_t> plain(static_cast<size_t>(read_bytes));
  std::memset(plain.data(), 1, plain.size());
  int64_t read_turn = 0;
  const bool certifies = options.arch == Arch::kAvx2 || options.arch == Arch::kAvx512;
  LinearProblem hot(m, options.arch, 1);
  hot.args[0].count = 1;  // 0.6 MB of weights stay in L2
  std::optional<LinearProblem> seven_bits;
  if (certifies) seven_bits.emplace(m, options.arch, copies, 64);

  Turns turns;
  const size_t mine = turns.Add([&] { ours.Run(options.arch, m); });
  const size_t theirs = turns.Add([&] { int8[turn++ % int8.size()]->Run(); });
  const size_t floats = turns.Add([&] { in_float.Run(); });
  const size_t peak = turns.Add(dot.run);
  const size_t read =
      turns.Add([&] { ReadAll(options.arch, plain.data() + read_turn++ * weight_bytes % read_bytes, weight_bytes); });
  const size_t certified = turns.Add(!certifies ? std::function<void()>() : [&] { seven_bits->Run(options.arch, m); });
  const size_t resident = turns.Add([&] { hot.Run(options.arch, m); }, true);
  report.complete &= turns.Run(options);
  report.onednn_int8_codes_off = std::max(report.onednn_int8_codes_off, int8[0]->CodesOff());

  LinearRow row{.m = m};
  const auto macs = static_cast<double>(m * weight_bytes);
  row.mac_per_cycle = macs / turns.Cycles(mine);
  if (dot.macs != 0) row.of_peak = macs / turns[mine] / (static_cast<double>(dot.macs) / turns[peak]);
  row.hot_of_peak = row.of_peak * turns[mine] / (3 * turns[resident]);
  if (cold) {
    row.weights_gb_s = static_cast<double>(weight_bytes) / turns[mine] * 1e-9;
    report.read_gb_s = static_cast<double>(weight_bytes) / turns[read] * 1e-9;
    row.of_bandwidth = row.weights_gb_s / report.read_gb_s;
  }
  row.read_bound = row.mac_per_cycle * turns[mine] / turns[read];
  if (certifies) {
    row.certified_of_peak = row.of_peak * turns[mine] / turns[certified];
    row.certified_over_onednn_int8 = turns[theirs] / turns[certified];
  }
  row.over_onednn_int8 = turns[theirs] / turns[mine];
  row.over_onednn_f32 = turns[floats] / turns[mine];
  row.speedup = MeasureSpeedup(m, options);
  return row;
}

struct AttentionProblem {
  SdpaInt8Args args;
  AlignedArray<uint8_t> q, k, v, o;
  AlignedArray<float> mask;
  AlignedArray<uint8_t> packed, scratch;

  AttentionProblem(int64_t s, bool with_mask, bool relative, Arch arch)
      : q(Size(s)), k(Size(s)), v(Size(s)), o(Size(s)), mask(static_cast<size_t>(s)) {
    for (size_t i = 0; i < q.size(); ++i) {
      q.data()[i] = static_cast<uint8_t>(i * 37 % 251);
      k.data()[i] = static_cast<uint8_t>(i * 91 % 253);
      v.data()[i] = static_cast<uint8_t>(i * 53 % 241);
    }
    std::fill_n(mask.data(), s, 0.0f);
    SdpaInt8Args& a = args;
    a.shape = {1, kHeads, kHeads, s, s, kHeadSize, kHeadSize};
    a.q = q.data(), a.k = k.data(), a.v = v.data(), a.o = o.data();
    a.q_strides = a.k_strides = a.v_strides = a.o_strides = {0, kHeadSize, kHeads * kHeadSize};
    a.o_type = quant::DType::kU8;
    a.q_zero_point = a.k_zero_point = a.v_zero_point = a.o_zero_point = 121;
    a.q_scale = a.k_scale = a.v_scale = a.o_scale = 0.02f, a.p_scale = 1 / 255.0f;
    a.scale = 1 / std::sqrt(static_cast<float>(kHeadSize));
    a.p_relative = a.p_diffused = relative;
    if (with_mask) a.mask.data = mask.data();
    packed = AlignedArray<uint8_t>(SdpaPackedBytes(arch, a));
    scratch = AlignedArray<uint8_t>(SdpaScratchBytes(arch, a));
  }
  static size_t Size(int64_t s) { return static_cast<size_t>(kHeads * s * kHeadSize); }
};

AttentionRow MeasureAttention(int64_t s, bool mask, const Options& options, Report& report) {
  AttentionProblem ours(s, mask, false, options.arch), relative(s, mask, true, options.arch);
  OneDnnAttention int8(kHeads, s, kHeadSize, true), floats(kHeads, s, kHeadSize, false);
  OneDnnGraphAttention graph_int8(ours.args, true), graph_floats(ours.args, false);
  if (report.graph_int8_problem.empty()) report.graph_int8_problem = graph_int8.problem();
  if (report.graph_f32_problem.empty()) report.graph_f32_problem = graph_floats.problem();
  Turns turns(true);  // kernel 1 has just written Q, K and V
  const size_t mine =
      turns.Add([&] { SdpaHeads(options.arch, ours.args, 0, kHeads, ours.packed.data(), ours.scratch.data()); });
  const size_t mine_relative = turns.Add(
      [&] { SdpaHeads(options.arch, relative.args, 0, kHeads, relative.packed.data(), relative.scratch.data()); });
  const size_t theirs = turns.Add([&] { int8.Run(); });
  const size_t in_float = turns.Add([&] { floats.Run(); });
  const auto peer = [&](OneDnnGraphAttention& graph) {
    return turns.Add(graph.problem().empty() ? [&] { graph.Run(); } : std::function<void()>());
  };
  const size_t fused = peer(graph_int8), fused_float = peer(graph_floats);
  report.complete &= turns.Run(options);
  std::vector<AlignedArray<uint8_t>> packed, scratch;
  for (int i = 0; i < options.threads; ++i) {
    packed.emplace_back(ours.packed.size()), scratch.emplace_back(ours.scratch.size());
  }
  const auto share = [&](int64_t i) {
    const auto at = static_cast<size_t>(i);
    SdpaHeads(options.arch, ours.args, kHeads * i / options.threads, kHeads * (i + 1) / options.threads,
              packed[at].data(), scratch[at].data());
  };
  const double speedup = Speedup(
      options, [&] { SdpaHeads(options.arch, ours.args, 0, kHeads, ours.packed.data(), ours.scratch.data()); },
      [&] { options.parallel(options.threads, share); });
  return {.s = s,
          .mask = mask,
          .cycles_per_score = turns.Cycles(mine) / static_cast<double>(kHeads * s * s),
          .relative_cycles_per_score = turns.Cycles(mine_relative) / static_cast<double>(kHeads * s * s),
          .over_onednn_int8 = turns[theirs] / turns[mine],
          .over_onednn_f32 = turns[in_float] / turns[mine],
          .over_graph_int8 = graph_int8.problem().empty() ? turns[fused] / turns[mine] : 0,
          .over_graph_f32 = graph_floats.problem().empty() ? turns[fused_float] / turns[mine] : 0,
          .speedup = speedup};
}

void MeasurePeaks(const Options& options, Report& report) {
  const PeakLoop dot = DotPeak(options.arch), fma = FmaPeak(options.arch);
  Turns turns;
  const size_t d = turns.Add(dot.run), f = turns.Add(fma.run);
  report.complete &=
      turns.Run({.arch = options.arch, .seconds = 0.2, .progress = {}, .stop = options.stop, .parallel = {}});
  report.clock_ghz = turns.clock_ghz(d);
  report.dot = dot.instruction;
  report.fma = fma.instruction;
  const auto rate = [&](const PeakLoop& loop, size_t i) {
    return loop.macs == 0 ? 0 : static_cast<double>(loop.macs) / turns.Cycles(i);
  };
  report.dot_mac_per_cycle = rate(dot, d);
  report.fma_per_cycle = rate(fma, f);
}

}  // namespace

Report Measure(const Options& options) {
  Report report;
  report.cpu = CpuDescription();
  report.arch = options.arch;
  report.threads = options.threads;
  report.onednn_limited = LimitOneDnn(options.arch);
  int64_t done = 0;
  const auto tell = [&](const std::string& row) {
    if (options.progress) options.progress(row, done++, 14);
  };
  tell("peaks");
  MeasurePeaks(options, report);
  for (int64_t m : {1, 4, 16, 64, 128, 384, 1024}) {
    if (!report.complete) return report;
    tell(std::format("kernel 1, M = {}", m));
    report.linear.push_back(MeasureLinear(m, options, report));
  }
  for (int64_t s : {128, 384, 1024}) {
    for (bool mask : {true, false}) {
      if (!report.complete) return report;
      tell(std::format("kernel 2, S = {}{}", s, mask ? ", float mask" : ""));
      report.attention.push_back(MeasureAttention(s, mask, options, report));
    }
  }
  return report;
}

}  // namespace octavo::kernels::bench
