// Random shapes, scales, zero points, outputs, alignments and splits among two threads: every path that runs here
// against the scalar truth, bit for bit.
#include <cmath>
#include <map>
#include <thread>
#include <vector>

#include "octavo/kernels/gemm/gemm.h"
#include "octavo/kernels/qkv/qkv.h"
#include "testing.h"

namespace octavo::kernels {
namespace {

using quant::DType;

constexpr int kCases = 10000;

// Small numbers are drawn often: tails and edges lie there, and the trap takes a microsecond for each instruction.
int Size(int most) { return RandomInt(0, 3) == 0 ? RandomInt(1, most) : RandomInt(1, (most + 3) / 4); }

struct Case {
  int64_t m, k;
  std::vector<uint8_t> x;
  size_t x_offset;
  std::vector<PackedWeights> w;
  std::vector<std::vector<float>> scale, bias, post, residual;
  std::vector<float> row_scale;
  std::vector<uint8_t> row_zero;
  QkvArgs args;
};

GemmOutput RandomOutput(Case& c, size_t i, int64_t n) {
  GemmOutput y;
  y.w = &c.w[i];
  y.w_scale_per_column = RandomInt(0, 1) == 0;
  c.scale[i].resize(static_cast<size_t>(y.w_scale_per_column ? n : 1));
  for (auto& v : c.scale[i]) v = std::ldexp(RandomFloat(1, 2), RandomInt(-12, -3));
  c.bias[i].resize(static_cast<size_t>(n));
  for (auto& v : c.bias[i]) v = RandomFloat(-4, 4);
  y.w_scale = c.scale[i].data();
  y.bias = RandomInt(0, 2) == 0 ? nullptr : c.bias[i].data();
  y.activation = RandomInt(0, 2) == 0 ? static_cast<Activation>(RandomInt(0, 7)) : Activation::kNone;
  if (RandomInt(0, 5) == 0) {
    c.post[i].resize(static_cast<size_t>(n));
    for (auto& v : c.post[i]) v = RandomFloat(-2, 2);
    y.post_scale = c.post[i].data();
  }
  if (RandomInt(0, 5) == 0) {
    y.residual_stride = n + RandomInt(0, 5);
    c.residual[i].resize(static_cast<size_t>(c.m * y.residual_stride));
    for (auto& v : c.residual[i]) v = RandomFloat(-4, 4);
    y.residual = c.residual[i].data();
  }
  constexpr DType kTypes[] = {DType::kU8, DType::kS8, DType::kF32, DType::kBF16, DType::kE4M3FN, DType::kE5M2};
  y.dtype = kTypes[RandomInt(0, 5)];
  y.scale = std::ldexp(RandomFloat(1, 2), RandomInt(0, 9) == 0 ? RandomInt(-130, 120) : RandomInt(-6, 2));
  y.zero_point = y.dtype == DType::kU8 ? RandomInt(0, 255) : RandomInt(-128, 127);
  y.stride = n + RandomInt(0, 5);
  if (RandomInt(0, 3) == 0) {  // by heads, the last of which may have fewer columns; batches of any number of rows
    HeadMajor& h = y.heads;
    h.size = Size(static_cast<int>(n)), h.rows = RandomInt(1, static_cast<int>(c.m));
    y.stride = h.size + RandomInt(0, 5);
    h.head_stride = h.rows * y.stride + RandomInt(0, 5);
    h.batch_stride = (n + h.size - 1) / h.size * h.head_stride + RandomInt(0, 5);
  }
  return y;
}

Case RandomCase() {
  Case c{};
  c.m = Size(40), c.k = Size(100);
  const int64_t stride = c.k + RandomInt(0, 5);
  c.x_offset = static_cast<size_t>(RandomInt(0, 63));
  c.x.resize(c.x_offset + static_cast<size_t>(c.m * stride));
  for (auto& v : c.x) v = static_cast<uint8_t>(RandomInt(0, 255));
  const bool is_unsigned = RandomInt(0, 1) == 0;
  c.args.x = {c.x.data() + c.x_offset, is_unsigned ? DType::kU8 : DType::kS8, stride,
              is_unsigned ? RandomInt(0, 255) : RandomInt(-128, 127), std::ldexp(RandomFloat(1, 2), RandomInt(-9, -3))};
  if (RandomInt(0, 3) == 0) {  // one scale a row
    for (int64_t i = 0; i < c.m; ++i) c.row_scale.push_back(std::ldexp(RandomFloat(1, 2), RandomInt(-9, -3)));
    c.args.x.row_scale = c.row_scale.data();
    if (is_unsigned && RandomInt(0, 1) == 0) {  // and one zero point
      for (int64_t i = 0; i < c.m; ++i) c.row_zero.push_back(static_cast<uint8_t>(RandomInt(0, 255)));
      c.args.x.row_zero_point = c.row_zero.data(), c.args.x.zero_point = 0;
    }
  }
  c.args.tuning = {.decodes_once = RandomInt(0, 1) != 0, .one_stream = RandomInt(0, 1) != 0};
  c.args.count = RandomInt(0, 2) == 0 ? RandomInt(2, 4) : 1;
  const auto count = static_cast<size_t>(c.args.count);
  c.w.resize(count), c.scale.resize(count), c.bias.resize(count), c.post.resize(count), c.residual.resize(count);
  for (size_t i = 0; i < count; ++i) {
    const int64_t n = Size(count == 1 ? 140 : 70);
    std::vector<int8_t> w(static_cast<size_t>(c.k * n));
    const int most = RandomInt(0, 2) == 0 ? 64 : 127;  // 64: certified panels
    for (auto& v : w) v = static_cast<int8_t>(RandomInt(-most, most));
    auto packed = PackWeights({.data = w.data(), .k = c.k, .n = n});
    EXPECT_TRUE(packed.has_value());
    c.w[i] = std::move(*packed);
    c.args.branch[i] = RandomOutput(c, i, n);
  }
  return c;
}

using Outputs = std::vector<std::vector<uint8_t>>;

// Fresh outputs, filled with a pattern so that writes outside are seen.
QkvArgs WithOutputs(const Case& c, Outputs* outputs) {
  QkvArgs args = c.args;
  outputs->clear();
  for (int i = 0; i < args.count; ++i) {
    const DType dtype = args.branch[i].dtype;
    const size_t bytes = dtype == DType::kF32 ? 4 : dtype == DType::kBF16 ? 2 : 1;
    const HeadMajor& h = args.branch[i].heads;
    const int64_t size = h.size == 0 ? c.m * args.branch[i].stride : (c.m + h.rows - 1) / h.rows * h.batch_stride;
    outputs->emplace_back(static_cast<size_t>(size) * bytes, 0xA5);
  }
  for (int i = 0; i < args.count; ++i) args.branch[i].y = (*outputs)[static_cast<size_t>(i)].data();
  return args;
}

void Run(Arch arch, const QkvArgs& args, Range rows, Range blocks) {
  AlignedArray<uint8_t> scratch(GemmScratchBytes(arch, args.x.dtype, args.branch[0].w->k()));
  Qkv(arch, args, rows, blocks, scratch.data());
}

// By one thread, or by two that share the rows or the columns.
void RunSomehow(Arch arch, const QkvArgs& args, int64_t m) {
  const int64_t blocks = QkvBlocks(args);
  const int how = RandomInt(0, 9);
  if (how > 1) return Run(arch, args, {0, m}, {0, blocks});
  const int64_t row = how == 0 ? RandomInt(0, static_cast<int>(m)) : m;
  const int64_t block = how == 0 ? blocks : RandomInt(0, static_cast<int>(blocks));
  std::thread other([&] { Run(arch, args, {0, row}, {0, block}); });
  how == 0 ? Run(arch, args, {row, m}, {0, blocks}) : Run(arch, args, {0, m}, {block, blocks});
  other.join();
}

// The trap takes microseconds for each vpdpbusd ymm, so AVX-VNNI leaves the largest cases to the other paths there.
bool TooLong(Arch arch, const Case& c) {
  if (arch != Arch::kAvxVnni || ExecutionOf(arch) != Execution::kTrap) return false;
  return c.m * ((c.k + 3) / 4) * 8 * QkvBlocks(c.args) > 2000;
}

TEST(Property, EveryPathGivesTheBitsOfTheScalarOne) {
  const std::vector<Arch> archs = RunnableArchs();
  ASSERT_GE(archs.size(), 2u) << "no vector path runs here";
  int64_t moved = 0;
  std::map<Arch, int> compared;
  for (int trial = 0; trial < kCases; ++trial) {
    const Case c = RandomCase();
    Outputs want, got;
    const QkvArgs truth = WithOutputs(c, &want);
    for (int i = 0; i < truth.count; ++i) {
      GemmReference({truth.x, truth.branch[i]}, {0, c.m}, {0, ColumnBlocks(truth.branch[i].w->n())});
    }
    for (const auto& y : want) moved += std::ranges::count(y, 0xA5) != static_cast<int64_t>(y.size()) ? 1 : 0;
    for (const Arch arch : archs) {
      if (TooLong(arch, c)) continue;
      ++compared[arch];
      const QkvArgs args = WithOutputs(c, &got);
      RunSomehow(arch, args, c.m);
      ASSERT_TRUE(got == want) << Name(arch) << " case " << trial << " m " << c.m << " k " << c.k << " n "
                               << args.branch[0].w->n() << " branches " << args.count;
    }
    ASSERT_EQ(trap::TakeProblem(), "");
  }
  for (const auto& [arch, count] : compared) {
    std::printf("%s: %d cases\n", std::string(Name(arch)).c_str(), count);
    EXPECT_GE(count, kCases / 2) << Name(arch);
  }
  EXPECT_GE(moved, kCases) << "outputs that nothing was written to";
}

}  // namespace
}  // namespace octavo::kernels
