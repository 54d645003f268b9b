// Products at every size where a kernel begins another loop, part or buffer, one below and one above (kernels/thresholds.h): every Arch
// that runs here against the scalar form.
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "octavo/kernels/fp8/fp8.h"
#include "octavo/kernels/gemm/gemm.h"
#include "octavo/kernels/gemm/gemm_f32.h"
#include "octavo/kernels/thresholds.h"
#include "sdpa_testing.h"  // Buffer: scratch with a fence behind it
#include "thresholds_testing.h"

namespace octavo::kernels {
namespace {

std::vector<uint8_t> Bytes(int64_t count) {
  std::vector<uint8_t> bytes(static_cast<size_t>(count));
  for (auto& v : bytes) v = static_cast<uint8_t>(SeededRandom()());
  return bytes;
}

// One product of m x k x n on every Arch. Weights of 8, 7 or 6 bits, rows of u8 or s8, outputs of floats or bytes, and both ways to tune
// change with the sizes, so that each threshold meets several of them.
void ExpectDense(int64_t m, int64_t k, int64_t n) {
  SCOPED_TRACE("int8 " + std::to_string(m) + " x " + std::to_string(k) + " x " + std::to_string(n));
  static int turn = 0;
  ++turn;
  const int narrow = turn % 3;
  std::vector<uint8_t> x = Bytes(m * k), w8 = Bytes(k * n);
  for (auto& v : w8) v = static_cast<uint8_t>(static_cast<int8_t>(v) >> narrow);
  const auto w = PackWeights({.data = w8.data(), .k = k, .n = n});
  ASSERT_TRUE(w.has_value());
  const std::vector<float> scale(static_cast<size_t>(n), 0.01f);
  const DType type = turn % 2 == 0 ? DType::kU8 : DType::kS8, out = turn % 5 == 0 ? DType::kS8 : DType::kF32;
  const auto run = [&](Arch arch) {
    std::vector<uint8_t> y(static_cast<size_t>(m * n * 4));
    Buffer scratch(GemmScratchBytes(arch, type, k));
    GemmArgs args{.x = {x.data(), type, k, 7, 0.02f},
                  .y = {.w = &*w, .w_scale = scale.data(), .y = y.data(), .stride = n}};
    args.y.dtype = out, args.y.scale = 40.0f, args.y.zero_point = 3;
    args.tuning = {.decodes_once = turn % 4 != 0, .one_stream = turn % 7 < 3};
    Gemm(arch, args, {0, m}, {0, ColumnBlocks(n)}, scratch.data());
    EXPECT_TRUE(scratch.FenceStands()) << Name(arch);
    return y;
  };
  ExpectScalarBits(run);
}

TEST(Thresholds, DepthsOfInt8Products) {
  for (const int64_t k : Around(thresholds::kGemmDepths)) {
    for (const int64_t m : {internal::kSmallRows - 1, int64_t{13}, internal::kDecodingRows + 9}) ExpectDense(m, k, 70);
    if (HasFailure()) return;
  }
}

TEST(Thresholds, RowsOfInt8Products) {
  for (const int64_t m : Around(thresholds::kGemmRows)) {
    for (const int64_t k : {5, 70}) ExpectDense(m, k, 70);
    if (HasFailure()) return;
  }
  // Rows at once shrink where the depth grows; right at the depth that is still decoded, too.
  for (const int64_t k : {internal::kMostDecodedK, internal::kMostDecodedK + 4, int64_t{4000}}) {
    for (const int64_t most :
         {internal::MostRowsAtOnce(k, 1), internal::MostRowsAtOnce(k, 2), internal::TileRowsAtOnce(k)}) {
      for (const int64_t m : {most - 1, most, most + 1}) ExpectDense(m, k, 17);
    }
    for (const int64_t m : {internal::kDecodingRows - 1, internal::kDecodingRows, internal::kDecodingRows + 1})
      ExpectDense(m, k, 65);
    if (HasFailure()) return;
  }
}

TEST(Thresholds, ColumnsOfInt8Products) {
  for (const int64_t n : Around(thresholds::kGemmColumns)) {
    for (const int64_t m : {1, 9, 33}) ExpectDense(m, 20, n);
    if (HasFailure()) return;
  }
}

// Rows by weights in blocks, as floats or as codes, with zero points in every block and without.
void ExpectBlocked(int64_t m, int64_t k, bool codes) {
  static int turn = 0;
  ++turn;
  constexpr int64_t kBlocks[] = {32, 16, 48, 128}, n = 70;
  const int64_t block = kBlocks[turn % 4];
  const bool zeros = turn % 3 != 0;  // signed weights without them have theirs in the middle of the codes
  const DType eight = zeros ? DType::kU8 : DType::kS8, four = zeros ? DType::kU4 : DType::kS4;
  const DType type = turn / 4 % 2 == 0 ? eight : four;
  SCOPED_TRACE("blocks of " + std::to_string(block) + (codes ? ", codes " : ", floats ") + std::to_string(m) + " x " +
               std::to_string(k));
  const std::vector<uint8_t> q = Bytes(k * n), z = Bytes((k + block - 1) / block * n);
  std::vector<float> s(z.size()), x(static_cast<size_t>(m * k));
  for (auto& v : s) v = RandomFloat(0.01f, 0.1f);
  for (auto& v : x) v = RandomFloat(-2, 2);
  const auto w = PackBlocked({.data = q.data(),
                              .dtype = type,
                              .k = k,
                              .n = n,
                              .block = block,
                              .scale = s.data(),
                              .zero_point = zeros ? z.data() : nullptr});
  ASSERT_TRUE(w.has_value());
  const auto run = [&](Arch arch) {
    std::vector<float> y(static_cast<size_t>(m * n));
    Buffer scratch(std::max(BlockedScratchBytes(arch, *w), kBlockedInt8ScratchBytes));
    if (codes) {
      Buffer rows(static_cast<size_t>(m * BlockedRowBytes(*w)));
      auto* codes_of_rows = static_cast<uint8_t*>(rows.data());
      QuantizeBlocks(arch, *w, x.data(), k, m, codes_of_rows);
      EXPECT_TRUE(rows.FenceStands());
      BlockedInt8Args args{.x = codes_of_rows, .w = &*w, .y = y.data(), .y_stride = n};
      args.tuning.one_stream = turn % 5 < 2, args.tuning.asks_near = turn % 7 < 3;
      GemmBlockedInt8(arch, args, {0, m}, {0, ColumnBlocks(n)}, scratch.data());
    } else {
      GemmBlocked(arch, {.x = x.data(), .x_stride = k, .w = &*w, .y = y.data(), .y_stride = n}, {0, m},
                  {0, ColumnBlocks(n)}, scratch.data());
    }
    EXPECT_TRUE(scratch.FenceStands()) << Name(arch);
    return y;
  };
  ExpectScalarBits(run);
}

TEST(Thresholds, CodesOfRowsByBlocks) {
  for (const int64_t k : Around(thresholds::kCodeDepths)) {
    for (const int64_t m : {int64_t{1}, internal::kMostCodeRows + 1, 2 * internal::kMostCodeRows + 1}) {
      for (int turn = 0; turn < 3; ++turn) ExpectBlocked(m, k, true);
    }
    if (HasFailure()) return;
  }
  for (const int64_t m : Around(thresholds::kCodeRows)) {
    for (const int64_t k : {int64_t{40}, 2 * internal::kCodeDepthAtOnce + 70}) ExpectBlocked(m, k, true);
    if (HasFailure()) return;
  }
}

TEST(Thresholds, FloatRowsByBlocks) {
  for (const int64_t k : Around(thresholds::kBlockedDepths)) {
    for (const int64_t m : {int64_t{3}, blocked_sizes::kSmallRows + 4}) {
      for (int turn = 0; turn < 3; ++turn) ExpectBlocked(m, k, false);
    }
    if (HasFailure()) return;
  }
  for (const int64_t m : Around(thresholds::kBlockedRows)) {
    for (const int64_t k : {int64_t{40}, 2 * blocked_sizes::kChunk + 70}) ExpectBlocked(m, k, false);
    if (HasFailure()) return;
  }
}

// Codes of 0.5 to 1.875 with either sign: all sums are exact, so that AMX, which adds in another order, agrees too.
void ExpectFp8(int64_t m, int64_t k) {
  SCOPED_TRACE("fp8 " + std::to_string(m) + " x " + std::to_string(k));
  constexpr int64_t n = 70;
  std::vector<uint8_t> x = Bytes(m * k), w8 = Bytes(k * n);
  for (auto* codes : {&x, &w8}) {
    for (uint8_t& c : *codes) c = static_cast<uint8_t>((c & 0x8f) | 0x30);
  }
  const auto w = PackFp8({.data = w8.data(), .dtype = DType::kE4M3FN, .k = k, .n = n});
  ASSERT_TRUE(w.has_value());
  const std::vector<float> scale(static_cast<size_t>(n), 0.01f);
  for (const bool pairs : {false, true}) {
    if (pairs && ExecutionOfPairs(Arch::kAvx512Vnni) != Execution::kNative) continue;  // the trap: fp8_test
    ExpectScalarBits([&](Arch arch) {
      std::vector<float> y(static_cast<size_t>(m * n));
      Fp8Args args{.x = {.data = x.data(), .dtype = DType::kE4M3FN, .stride = k, .scale = 0.02f},
                   .count = 1,
                   .out = {},
                   .bf16_pairs = pairs};
      args.out[0] = {&*w, {.w_scale = scale.data(), .y = y.data(), .stride = n}};
      Buffer scratch(Fp8ScratchBytes(arch, k));
      LinearFp8(arch, args, {0, m}, {0, Fp8Blocks(args)}, scratch.data());
      EXPECT_TRUE(scratch.FenceStands()) << Name(arch);
      return y;
    });
  }
}

TEST(Thresholds, RowsAndDepthsOfFp8) {
  for (const int64_t m : Around(thresholds::kFp8Rows)) ExpectFp8(m, 40);
  for (const int64_t k : Around(thresholds::kFp8Depths)) {
    for (const int64_t m : {3, 6, 19}) ExpectFp8(m, k);
  }
}

// Whole numbers, whose sums are exact.
void ExpectFloats(int64_t m, int64_t k, int64_t n) {
  std::vector<float> x(static_cast<size_t>(m * k)), w(static_cast<size_t>(k * n));
  for (auto* values : {&x, &w}) {
    for (float& v : *values) v = static_cast<float>(RandomInt(-99, 99));
  }
  const auto packed = PackWeightsF32(w.data(), k, n, false);
  ASSERT_TRUE(packed.has_value()) << packed.error();
  std::vector<float> want(static_cast<size_t>(m * n)), y(want.size());
  for (int64_t i = 0; i < m * n; ++i) {
    for (int64_t j = 0; j < k; ++j)
      want[static_cast<size_t>(i)] += x[static_cast<size_t>(i / n * k + j)] * w[static_cast<size_t>(j * n + i % n)];
  }
  GemmF32({x.data(), k, &*packed, nullptr, y.data(), n}, {0, m});
  EXPECT_EQ(y, want) << m << " x " << k << " x " << n;
  AlignedArray<float> panels(static_cast<size_t>(PanelsF32Size(k, n)));
  PackPanelsF32(w.data(), k, n, n, 1, panels.data());
  for (const Arch arch : RunnableArchs()) {
    std::vector<float> own(want.size());
    kPanelsF32Of[arch]({.m = m,
                        .k = k,
                        .n = n,
                        .x = x.data(),
                        .x_stride = k,
                        .panels = panels.data(),
                        .y = own.data(),
                        .y_stride = n});
    EXPECT_EQ(own, want) << Name(arch) << " " << m << " x " << k << " x " << n;
  }
}

TEST(Thresholds, PanelsOfFloats) {
  for (const int64_t m : Around(thresholds::kPanelRows)) {
    for (const int64_t n : Around(thresholds::kPanelsColumns)) ExpectFloats(m, 37, n);
  }
}

}  // namespace
}  // namespace octavo::kernels
