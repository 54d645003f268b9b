// Attention and kernels over rows at every size where a kernel begins another loop, part or buffer, one below and one above
// (kernels/thresholds.h): every Arch that runs here against the scalar form.
#include <cstdint>
#include <string>
#include <vector>

#include "octavo/kernels/elementwise/elementwise.h"
#include "octavo/kernels/norm/norm.h"
#include "octavo/kernels/quantize/quantize.h"
#include "octavo/kernels/softmax/softmax.h"
#include "octavo/kernels/thresholds.h"
#include "sdpa_testing.h"
#include "thresholds_testing.h"

namespace octavo::kernels {
namespace {

std::vector<Arch> VectorForms() {
  std::vector<Arch> archs = RunnableArchs();
  std::erase(archs, Arch::kScalar);
  return archs;
}

size_t OutBytes(const Problem& p) { return p.out_elements * (p.int8.o_type == DType::kF32 ? 4 : 1); }

template <class Args>
std::vector<uint8_t> Flash(Arch arch, Args args, size_t out_bytes) {
  Buffer out(out_bytes), scratch(SdpaFlashScratchBytes(arch, args, args.shape.q_len));
  args.o = reinterpret_cast<decltype(args.o)>(out.data());
  for (int64_t head = 0; head < args.shape.heads; ++head) {
    SdpaFlash(arch, args, 0, head, 0, args.shape.q_len, scratch.data());
  }
  EXPECT_TRUE(out.FenceStands() && scratch.FenceStands());
  const auto* bytes = static_cast<const uint8_t*>(out.data());
  return {bytes, bytes + out_bytes};
}

template <class Args>
std::vector<uint8_t> Decode(Arch arch, Args args, size_t out_bytes) {
  Buffer out(out_bytes), scratch(SdpaDecodeScratchBytes(arch, args));
  args.o = reinterpret_cast<decltype(args.o)>(out.data());
  SdpaDecode(arch, args, 0, 0, scratch.data());
  EXPECT_TRUE(out.FenceStands() && scratch.FenceStands());
  const auto* bytes = static_cast<const uint8_t*>(out.data());
  return {bytes, bytes + out_bytes};
}

enum Forms : unsigned { kExact = 1, kFlash = 2, kDecode = 4, kFloat = 8, kInt8 = 16, kAll = 31 };

// Probabilities as the recipes have them in turns: codes of 1/255, relative codes of 1/128 and of 1/255, these mostly diffused, whatever is drawn.
void SetProbabilities(SdpaInt8Args& a, int turn) {
  if (turn % 4 == 3) return;
  a.p_type = DType::kU8, a.p_zero_point = 0, a.p_scale = turn % 4 == 1 ? 1 / 128.0f : 1 / 255.0f;
  a.p_relative = turn % 4 != 0, a.p_diffused = a.p_relative && turn % 3 != 0;
}

void ExpectAttention(const SdpaShape& shape, unsigned forms) {
  static int turn = 0;
  ++turn;
  const auto seed = static_cast<uint32_t>(RandomInt(0, 1 << 30));
  SCOPED_TRACE(std::to_string(shape.q_len) + " rows, " + std::to_string(shape.k_len) + " keys, heads of " +
               std::to_string(shape.head_size) + " and " + std::to_string(shape.v_head_size) + ", seed " +
               std::to_string(seed) + ", turn " + std::to_string(turn));
  const auto p = MakeProblem(shape, seed);
  SetProbabilities(p->int8, turn);
  const size_t int8_bytes = OutBytes(*p), float_bytes = p->out_elements * 4;
  const bool int8_floats = p->int8.o_type == DType::kF32;
  const bool few = shape.heads / shape.kv_heads * shape.q_len <= kSdpaDecodeRows;
  const auto expect = [&](const char* form, auto run, const auto& args, size_t bytes, bool floats) {
    SCOPED_TRACE(form);
    const auto want = run(Arch::kScalar, args, bytes);
    for (const Arch arch : VectorForms()) {
      SCOPED_TRACE(std::string(Name(arch)));
      ExpectSame(run(arch, args, bytes), want, floats);
    }
  };
  const auto exact = [](Arch arch, const auto& args, size_t bytes) { return Attend(arch, args, bytes, false); };
  const auto flash = [](Arch arch, const auto& args, size_t bytes) { return Flash(arch, args, bytes); };
  const auto decode = [](Arch arch, const auto& args, size_t bytes) { return Decode(arch, args, bytes); };
  if ((forms & kInt8) != 0) {
    if ((forms & kExact) != 0) expect("exact int8", exact, p->int8, int8_bytes, int8_floats);
    if ((forms & kFlash) != 0) expect("flash int8", flash, p->int8, int8_bytes, int8_floats);
    if ((forms & kDecode) != 0 && few) expect("decode int8", decode, p->int8, int8_bytes, int8_floats);
  }
  if ((forms & kFloat) != 0) {
    if ((forms & kExact) != 0) expect("exact float", exact, p->real, float_bytes, true);
    if ((forms & kFlash) != 0) expect("flash float", flash, p->real, float_bytes, true);
    if ((forms & kDecode) != 0 && few) expect("decode float", decode, p->real, float_bytes, true);
  }
}

TEST(Thresholds, KeysOfAttention) {
  for (const int64_t keys : Around(thresholds::kSdpaKeys)) {
    for (const int64_t rows : {1, 4, 13}) {
      for (int turn = 0; turn < 4; ++turn) ExpectAttention({1, 2, 1, rows, keys, 8, 20}, kAll);
    }
    if (HasFailure()) return;
  }
  for (const int64_t keys : Around(thresholds::kSdpaLongKeys)) {
    for (int turn = 0; turn < 4; ++turn) {
      const auto p = MakeProblem({1, 1, 1, 7, keys, 4, 4}, static_cast<uint32_t>(turn));
      if (keys <= SdpaMostKeys(p->int8)) ExpectAttention({1, 1, 1, 7, keys, 4, 4}, kInt8 | kFlash);
    }
    if (HasFailure()) return;
  }
}

TEST(Thresholds, RowsOfAttention) {
  for (const int64_t rows : Around(thresholds::kSdpaRowsAtOnce)) {
    for (const int64_t keys : {17, 70, 300})
      ExpectAttention({1, 1, 1, rows, keys, 8, 8}, kExact | kDecode | kFloat | kInt8);
    if (HasFailure()) return;
  }
  for (const int64_t rows : Around(thresholds::kSdpaFlashRowsAtOnce)) {
    for (const int64_t keys : {int64_t{17}, kSdpaFlashKeys + 9})
      ExpectAttention({1, 1, 1, rows, keys, 8, 8}, kFlash | kFloat | kInt8);
    if (HasFailure()) return;
  }
}

TEST(Thresholds, HeadSizesOfAttention) {
  for (const int64_t size : Around(thresholds::kSdpaHeads)) {
    for (const int64_t rows : {3, 7}) {
      ExpectAttention({1, 1, 1, rows, 70, size, 8}, kAll);
      ExpectAttention({1, 1, 1, rows, 70, 8, size}, kAll);
    }
    if (HasFailure()) return;
  }
}

// Rows of n elements through all kernels that know no other size.
std::vector<uint8_t> RowKernels(Arch arch, int64_t n, const std::vector<float>& x, const std::vector<uint8_t>& codes) {
  std::vector<uint8_t> all, bytes(static_cast<size_t>(n));
  std::vector<float> y(static_cast<size_t>(n)), sum(y.size()), scratch(3 * y.size());
  const auto keep = [&all](const auto& values) {
    const auto* p = reinterpret_cast<const uint8_t*>(values.data());
    all.insert(all.end(), p, p + values.size() * sizeof(values[0]));
  };
  for (const bool rms : {false, true}) {
    NormRows(arch,
             {.n = n,
              .x = x.data(),
              .skip = x.data() + 200,
              .gamma = x.data() + 400,
              .beta = rms ? nullptr : x.data() + 600,
              .rms = rms,
              .sum = sum.data(),
              .y = y.data(),
              .q = bytes.data(),
              .q_scale = 0.02f,
              .q_zero_point = 100},
             0, 1, scratch.data());
    keep(y), keep(sum), keep(bytes);
  }
  SoftmaxRows(arch, x.data(), n, y.data(), n, 1, n), keep(y);
  for (const DType type : {DType::kU8, DType::kS8, DType::kE4M3FN, DType::kE5M2}) {
    QuantizeLinear(arch, x.data(), n, 0.02f, quant::IsFp8(type) ? 0 : 3, type, bytes.data()), keep(bytes);
    DequantizeLinear(arch, codes.data(), type, n, 0.02f, quant::IsFp8(type) ? 0 : 3, y.data()), keep(y);
  }
  const MinMax range = FindMinMax(arch, x.data(), n);
  keep(std::vector<float>{range.min, range.max});
  for (int op = 0; op < kUnaryOps; ++op) {
    const bool root =
        static_cast<UnaryOp>(op) == UnaryOp::kSqrt;  // of what is not negative: the bits of a NaN are free
    Unary(arch, static_cast<UnaryOp>(op), x.data() + (root ? 800 : 0), y.data(), n, {-0.5f, 1.5f}), keep(y);
  }
  for (int op = 0; op < kBinaryOps; ++op) {
    for (const int64_t col : {0, 1}) {
      Binary(arch, static_cast<BinaryOp>(op), {x.data(), 0, 1}, {x.data() + 200, 0, col}, y.data(), 0, 0, 1, n),
          keep(y);
    }
  }
  uint8_t table[256];
  for (int i = 0; i < 256; ++i) table[i] = static_cast<uint8_t>(i * 7 + 3);
  Lookup(arch, codes.data(), table, bytes.data(), n), keep(bytes);
  return all;
}

TEST(Thresholds, TailsOfRows) {
  std::vector<float> x(1000);
  std::vector<uint8_t> codes(200);
  for (size_t i = 0; i < x.size(); ++i) x[i] = i < 800 ? RandomFloat(-3, 3) : RandomFloat(0.1f, 3);
  for (auto& c : codes) c = static_cast<uint8_t>(RandomInt(0, 255)) & 0xbf;  // no NaN of fp8
  for (const int64_t n : Around(thresholds::kVectors)) {
    SCOPED_TRACE(std::to_string(n) + " elements");
    ExpectScalarBits([&](Arch arch) { return RowKernels(arch, n, x, codes); });
  }
}

}  // namespace
}  // namespace octavo::kernels
