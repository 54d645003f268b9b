#include "octavo/kernels/qkv/qkv.h"

#include <algorithm>
#include <iterator>
#include <vector>

#include "octavo/kernels/forms.h"
#include "testing.h"

namespace octavo::kernels {
namespace {

using quant::DType;

struct Branch {
  PackedWeights w;
  std::vector<float> scale, bias, post, residual;
  std::vector<uint8_t> y;
};

// Branches of different widths, types, scales and zero points over one x.
struct Problem {
  int64_t m, k;
  std::vector<uint8_t> x;
  std::vector<Branch> branches;
  QkvArgs args;
};

void AddBranch(Problem& p, int64_t n) {
  Branch b;
  std::vector<int8_t> w(static_cast<size_t>(p.k * n));
  for (auto& v : w) v = static_cast<int8_t>(RandomInt(-128, 127));
  auto packed = PackWeights({.data = w.data(), .k = p.k, .n = n});
  ASSERT_TRUE(packed.has_value());
  b.w = std::move(*packed);
  for (int64_t i = 0; i < n; ++i) {
    b.scale.push_back(RandomFloat(0.001f, 0.02f));
    b.bias.push_back(RandomFloat(-3, 3));
  }
  p.branches.push_back(std::move(b));
}

Problem RandomProblem() {
  Problem p{};
  p.m = RandomInt(1, 40);
  p.k = RandomInt(1, 120);
  p.x.resize(static_cast<size_t>(p.m * p.k));
  for (auto& v : p.x) v = static_cast<uint8_t>(RandomInt(0, 255));
  const bool is_unsigned = RandomInt(0, 1) == 0;
  p.args.x = {p.x.data(), is_unsigned ? DType::kU8 : DType::kS8, p.k, RandomInt(0, 127), 0.03f};
  p.args.count = RandomInt(2, kMaxBranches);
  for (int i = 0; i < p.args.count; ++i) AddBranch(p, RandomInt(1, 150));
  for (int i = 0; i < p.args.count; ++i) {
    Branch& b = p.branches[static_cast<size_t>(i)];
    GemmOutput& y = p.args.branch[i];
    y.w = &b.w;
    y.w_scale = b.scale.data();
    y.bias = RandomInt(0, 2) == 0 ? nullptr : b.bias.data();
    y.activation = RandomInt(0, 3) == 0 ? Activation::kRelu : Activation::kNone;
    y.dtype = std::vector{DType::kU8, DType::kS8, DType::kF32}[static_cast<size_t>(RandomInt(0, 2))];
    y.scale = RandomFloat(0.05f, 0.5f);
    y.zero_point = RandomInt(0, 127);
    y.stride = b.w.n() + RandomInt(0, 4);
    b.y.assign(static_cast<size_t>(p.m * y.stride) * (y.dtype == DType::kF32 ? 4 : 1), 0xA5);
  }
  return p;
}

// Points the outputs at `outputs`, which are fresh.
QkvArgs WithOutputs(const Problem& p, std::vector<std::vector<uint8_t>>& outputs) {
  QkvArgs args = p.args;
  outputs.clear();
  for (const Branch& b : p.branches) outputs.push_back(b.y);
  for (int i = 0; i < args.count; ++i) args.branch[i].y = outputs[static_cast<size_t>(i)].data();
  return args;
}

TEST(Shares, ColumnsFirstAndEven) {
  const auto is = [](int64_t rows, int64_t blocks, int threads, int64_t by_rows, int64_t by_blocks) {
    const Shares s = SharesOf(Arch::kAvx512Vnni, rows, blocks, threads);
    EXPECT_EQ(s.rows, by_rows) << rows << " x " << blocks << " by " << threads;
    EXPECT_EQ(s.blocks, by_blocks) << rows << " x " << blocks << " by " << threads;
  };
  is(64, 36, 1, 1, 1);
  for (const int64_t rows : {1, 4, 16, 64, 384, 4096}) is(rows, 36, 2, 1, 2);
  is(128, 6, 4, 2, 2);   // four shares of columns: two blocks for two threads, one for the others
  is(1000, 1, 2, 2, 1);  // nothing to split but rows
  is(5, 1, 8, 1, 1);
}

TEST(Shares, NeverSlowerThanOneThreadAndNeverEmpty) {
  for (int trial = 0; trial < 2000; ++trial) {
    const int64_t rows = RandomInt(1, 600), blocks = RandomInt(1, 50);
    const int threads = RandomInt(1, 64);
    const Arch arch = kArchs[RandomInt(0, std::size(kArchs) - 1)];
    const Shares s = SharesOf(arch, rows, blocks, threads);
    ASSERT_GE(s.rows, 1);
    ASSERT_GE(s.blocks, 1);
    ASSERT_LE(s.blocks, blocks);
    ASSERT_LE(s.rows, std::max<int64_t>(rows / GemmTile(arch).share, 1));
    ASSERT_LE(s.rows * s.blocks, 2 * threads);
    if (blocks >= threads && threads > 1) {
      ASSERT_GT(s.rows * s.blocks, 1) << rows << " x " << blocks << " by " << threads;
    }
  }
}

class QkvArch : public ArchTest {};

TEST_P(QkvArch, EqualsSeparateReferences) {
  for (int trial = 0; trial < 80; ++trial) {
    const Problem p = RandomProblem();
    std::vector<std::vector<uint8_t>> want, got;
    const QkvArgs separate = WithOutputs(p, want);
    for (int i = 0; i < separate.count; ++i) {
      GemmReference({separate.x, separate.branch[i]}, {0, p.m}, {0, ColumnBlocks(separate.branch[i].w->n())});
      ASSERT_NE(want[static_cast<size_t>(i)], p.branches[static_cast<size_t>(i)].y);
    }
    const QkvArgs args = WithOutputs(p, got);
    AlignedArray<uint8_t> scratch(GemmScratchBytes(GetParam(), args.x.dtype, p.k));
    // In two pieces whose border lies anywhere, also within a branch.
    const int64_t blocks = QkvBlocks(args);
    const int64_t border = RandomInt(0, static_cast<int>(blocks));
    Qkv(GetParam(), args, {0, p.m}, {border, blocks}, scratch.data());
    Qkv(GetParam(), args, {0, p.m}, {0, border}, scratch.data());
    for (size_t i = 0; i < want.size(); ++i) ASSERT_TRUE(want[i] == got[i]) << "trial " << trial << " branch " << i;
  }
}

// AMX finishes the rows of a block between the products of the next one (gemm/amx-inl.h): all kinds of epilogue one
// after the other, every tail of rows, one step of k and more, several groups of rows, and two calls whose first must
// leave nothing behind.
Problem ManyBlocks(int64_t m, int64_t k) {
  Problem p{};
  p.m = m, p.k = k;
  p.x.resize(static_cast<size_t>(m * k));
  for (auto& v : p.x) v = static_cast<uint8_t>(RandomInt(0, 255));
  const bool is_unsigned = RandomInt(0, 1) == 0;
  p.args.x = {p.x.data(), is_unsigned ? DType::kU8 : DType::kS8, k, RandomInt(0, 127), 0.03f};
  p.args.count = RandomInt(2, 4);
  for (int i = 0; i < p.args.count; ++i) AddBranch(p, RandomInt(0, 2) == 0 ? 64 * RandomInt(1, 4) : RandomInt(1, 260));
  for (int i = 0; i < p.args.count; ++i) {
    Branch& b = p.branches[static_cast<size_t>(i)];
    const int64_t n = b.w.n();
    GemmOutput& y = p.args.branch[i];
    y = {.w = &b.w, .w_scale = b.scale.data(), .bias = RandomInt(0, 2) == 0 ? nullptr : b.bias.data()};
    y.activation = RandomInt(0, 1) == 0 ? static_cast<Activation>(RandomInt(0, 7)) : Activation::kNone;
    if (RandomInt(0, 4) == 0) {
      for (int64_t j = 0; j < n; ++j) b.post.push_back(RandomFloat(-2, 2));
      y.post_scale = b.post.data();
    }
    if (RandomInt(0, 4) == 0) {
      y.residual_stride = n + RandomInt(0, 5);
      for (int64_t j = 0; j < m * y.residual_stride; ++j) b.residual.push_back(RandomFloat(-4, 4));
      y.residual = b.residual.data();
    }
    constexpr DType kTypes[] = {DType::kU8,   DType::kS8,     DType::kU8,  DType::kF32,
                                DType::kBF16, DType::kE4M3FN, DType::kE5M2};
    y.dtype = kTypes[RandomInt(0, 6)];
    y.scale = RandomFloat(0.5f, 2.0f);  // codes of about 20 to 100: few saturate
    y.zero_point = y.dtype == DType::kS8 ? RandomInt(-40, 40) : RandomInt(90, 160);
    y.stride = n + RandomInt(0, 4);
    const size_t bytes = y.dtype == DType::kF32 ? 4 : y.dtype == DType::kBF16 ? 2 : 1;
    b.y.assign(static_cast<size_t>(m * y.stride) * bytes, 0xA5);
  }
  return p;
}

TEST_P(QkvArch, BlocksAfterBlocks) {
  constexpr int64_t kDepths[] = {64, 64, 65, 100, 128, 192, 200, 512, 640, 777, 1100};
  // AVX-VNNI in the trap: a signal for each product.
  const int step = GetParam() == Arch::kAvxVnni && ExecutionOf(GetParam()) == Execution::kTrap ? 16 : 1;
  for (int m = 1; m <= 66; m += step) {
    const int64_t rows = m <= 50 ? m : RandomInt(60, 200), k = kDepths[RandomInt(0, 10)];
    const Problem problems[] = {ManyBlocks(rows, k), ManyBlocks(RandomInt(9, 50), k)};
    std::vector<std::vector<uint8_t>> want[2], got[2];
    const QkvArgs calls[] = {WithOutputs(problems[0], got[0]), WithOutputs(problems[1], got[1])};
    AlignedArray<uint8_t> scratch(
        std::max(GemmScratchBytes(GetParam(), DType::kU8, k), GemmScratchBytes(GetParam(), DType::kS8, k)));
    for (int call = 0; call < 2; ++call) {
      Qkv(GetParam(), calls[call], {0, problems[call].m}, {0, QkvBlocks(calls[call])}, scratch.data());
    }
    for (int call = 0; call < 2; ++call) {
      const Problem& p = problems[call];
      const QkvArgs separate = WithOutputs(p, want[call]);
      for (int i = 0; i < separate.count; ++i) {
        GemmReference({separate.x, separate.branch[i]}, {0, p.m}, {0, ColumnBlocks(separate.branch[i].w->n())});
        const std::vector<uint8_t>& y = want[call][static_cast<size_t>(i)];
        ASSERT_NE(y, p.branches[static_cast<size_t>(i)].y);
        ASSERT_TRUE(y == got[call][static_cast<size_t>(i)])
            << "call " << call << ", m " << p.m << ", k " << k << ", branch " << i;
      }
    }
  }
}

// [batch][head][row][size] has the codes of [batch][row][head][size], whatever the heads' width: a block of 64 columns holds a part of
// one, one or several.
TEST_P(QkvArch, HeadMajorIsTheTransposeOfRowMajor) {
  constexpr struct {
    int64_t batch, rows, heads, size;
  } kShapes[] = {{1, 13, 2, 64}, {3, 7, 3, 32}, {2, 5, 2, 80}, {5, 1, 4, 8}, {2, 17, 1, 128}, {1, 40, 3, 20}};
  for (const auto& s : kShapes) {
    const int64_t m = s.batch * s.rows, n = s.heads * s.size;
    for (const DType dtype : {DType::kU8, DType::kF32, DType::kBF16, DType::kE4M3FN}) {
      Problem p{};
      p.m = m, p.k = 70;
      p.x.resize(static_cast<size_t>(m * p.k));
      for (auto& v : p.x) v = static_cast<uint8_t>(RandomInt(0, 255));
      AddBranch(p, n);
      p.branches[0].residual.resize(static_cast<size_t>(m * n));
      for (auto& v : p.branches[0].residual) v = RandomFloat(-4, 4);
      p.args.x = {p.x.data(), DType::kU8, p.k, 100, 0.03f};
      p.args.count = 1;
      GemmOutput& y = p.args.branch[0];
      y = {.w = &p.branches[0].w, .w_scale = p.branches[0].scale.data(), .bias = p.branches[0].bias.data()};
      if (RandomInt(0, 1) == 0) y.residual = p.branches[0].residual.data(), y.residual_stride = n;
      y.dtype = dtype, y.scale = 1.0f, y.zero_point = 120, y.stride = n;
      const auto bytes = static_cast<size_t>(quant::BitsOf(dtype) / 8);
      std::vector<uint8_t> row_major(static_cast<size_t>(m * n) * bytes, 0xA5), want = row_major, got = row_major;
      AlignedArray<uint8_t> scratch(GemmScratchBytes(GetParam(), DType::kU8, p.k));
      y.y = row_major.data();
      Qkv(GetParam(), p.args, {0, m}, {0, QkvBlocks(p.args)}, scratch.data());
      for (int64_t i = 0; i < m * n; ++i) {
        const int64_t column = i % n, row = i / n % s.rows, batch = i / n / s.rows;
        const int64_t to = ((batch * s.heads + column / s.size) * s.rows + row) * s.size + column % s.size;
        std::copy_n(row_major.begin() + i * static_cast<int64_t>(bytes), bytes,
                    want.begin() + to * static_cast<int64_t>(bytes));
      }
      y.y = got.data(), y.stride = s.size;
      y.heads = {.size = s.size, .head_stride = s.rows * s.size, .rows = s.rows, .batch_stride = s.rows * n};
      Qkv(GetParam(), p.args, {0, m}, {0, QkvBlocks(p.args)}, scratch.data());
      ASSERT_NE(want, std::vector<uint8_t>(want.size(), 0xA5));
      ASSERT_TRUE(got == want) << "batch " << s.batch << ", rows " << s.rows << ", heads " << s.heads << " of "
                               << s.size << " as " << quant::Name(dtype);
    }
  }
}

TEST_P(QkvArch, BlocksOutsideOfTheRangeStayUntouched) {
  const Problem p = RandomProblem();
  std::vector<std::vector<uint8_t>> got;
  const QkvArgs args = WithOutputs(p, got);
  AlignedArray<uint8_t> scratch(GemmScratchBytes(GetParam(), args.x.dtype, p.k));
  const int64_t first = ColumnBlocks(args.branch[0].w->n());
  Qkv(GetParam(), args, {0, p.m}, {first, first + ColumnBlocks(args.branch[1].w->n())}, scratch.data());
  for (size_t i = 0; i < got.size(); ++i) EXPECT_EQ(got[i] == p.branches[i].y, i != 1) << i;
}

std::vector<Arch> AllForms() {
  std::vector<Arch> archs = VectorArchs();
  archs.insert(archs.begin(), Arch::kScalar);
  return archs;
}
INSTANTIATE_TEST_SUITE_P(All, QkvArch, ::testing::ValuesIn(AllForms()), ArchTestName);

}  // namespace
}  // namespace octavo::kernels
