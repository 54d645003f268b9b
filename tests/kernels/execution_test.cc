// Runs every kernel that the catalog can name and says how: by this CPU, or through the trap. `./dev test` reads the
// lines "kernel NAME HOW" and fails if one was executed nowhere.
#include <cstdlib>
#include <cstring>
#include <map>
#include <vector>

#include "octavo/kernels/blocked/blocked_int8.h"
#include "octavo/kernels/catalog.h"
#include "octavo/kernels/fp8/fp8.h"
#include "octavo/kernels/qkv/qkv.h"
#include "octavo/kernels/sdpa/sdpa.h"
#include "testing.h"

namespace octavo::kernels {
namespace {

using quant::DType;

// Odd sizes with tails everywhere.
constexpr int64_t kDepth = 71, kWidth = 101, kQueries = 19, kKeys = 37, kHead = 24;

std::vector<uint8_t> RandomBytes(int64_t count) {
  std::vector<uint8_t> bytes(static_cast<size_t>(count));
  for (auto& v : bytes) v = static_cast<uint8_t>(RandomInt(0, 255));
  return bytes;
}

// Bytes of all outputs of `branches` products of m rows.
std::vector<uint8_t> Products(Arch arch, int64_t m, int branches, const std::vector<uint8_t>& data, Tuning tuning) {
  const std::vector<float> scale(kWidth, 0.01f);
  std::vector<PackedWeights> w;
  QkvArgs args;
  args.x = {data.data(), DType::kS8, kDepth, 5, 0.02f};
  args.count = branches, args.tuning = tuning;
  std::vector<uint8_t> y(static_cast<size_t>(m * kWidth * branches));
  for (int i = 0; i < branches; ++i) {
    w.push_back(*PackWeights({.data = data.data() + 100 * (i + 1), .k = kDepth, .n = kWidth}));
  }
  for (int i = 0; i < branches; ++i) {
    args.branch[i] = {.w = &w[static_cast<size_t>(i)],
                      .w_scale = scale.data(),
                      .y = y.data() + m * kWidth * i,
                      .dtype = DType::kU8,
                      .scale = 2.5f,
                      .zero_point = 100,
                      .stride = kWidth};
  }
  AlignedArray<uint8_t> scratch(GemmScratchBytes(arch, DType::kS8, kDepth));
  if (branches == 1) {
    Gemm(arch, {args.x, args.branch[0], tuning}, {0, m}, {0, ColumnBlocks(kWidth)}, scratch.data());
  } else {
    Qkv(arch, args, {0, m}, {0, QkvBlocks(args)}, scratch.data());
  }
  return y;
}

template <class Args>
std::vector<uint8_t> Attend(Arch arch, Args args, size_t element_bytes, int64_t value_head) {
  args.shape = {1, 2, 1, kQueries, kKeys, kHead, value_head};
  args.q_strides = {0, kHead, 2 * kHead}, args.o_strides = {0, value_head, 2 * value_head};
  args.k_strides = {0, 0, kHead}, args.v_strides = {0, 0, value_head};
  std::vector<uint8_t> o(static_cast<size_t>(kQueries * 2 * value_head) * element_bytes);
  args.o = reinterpret_cast<decltype(args.o)>(o.data());
  AlignedArray<uint8_t> packed(SdpaPackedBytes(arch, args)), scratch(SdpaScratchBytes(arch, args));
  SdpaHeads(arch, args, 0, 2, packed.data(), scratch.data());
  return o;
}

void Append(std::vector<uint8_t>& all, const std::vector<uint8_t>& more) {
  all.insert(all.end(), more.begin(), more.end());
}

// Codes of probabilities and of exponentials, with 8 and with 7 bits; whole vectors of output columns, which some forms finish in
// registers, and a tail; rows in blocks, and few of them, which read K and V where they lie.
std::vector<uint8_t> Int8Attention(Arch arch, const std::vector<uint8_t>& data) {
  std::vector<uint8_t> all;
  for (int way = 0; way < 8; ++way) {
    SdpaInt8Args args;
    args.q = data.data(), args.k = data.data() + 1000, args.v = data.data() + 3000;
    args.q_zero_point = 120, args.k_zero_point = 130, args.v_zero_point = 7;
    args.q_scale = args.k_scale = 0.02f, args.v_scale = 0.1f, args.scale = 0.25f;
    args.o_type = DType::kS8, args.o_scale = 0.3f;
    args.p_relative = (way & 1) != 0, args.p_scale = (way & 2) != 0 ? 1 / 128.0f : 1 / 255.0f;
    const int64_t value_head = (way & 4) != 0 ? 64 : kHead;
    Append(all, Attend(arch, args, 1, value_head));
    args.shape = {1, 2, 1, 3, kKeys, kHead, value_head};
    args.q_strides = {0, kHead, 2 * kHead}, args.o_strides = {0, value_head, 2 * value_head};
    args.k_strides = {0, 0, kHead}, args.v_strides = {0, 0, value_head};
    std::vector<uint8_t> few(static_cast<size_t>(3 * 2 * value_head));
    args.o = few.data();
    AlignedArray<uint8_t> scratch(SdpaDecodeScratchBytes(arch, args));
    SdpaDecode(arch, args, 0, 0, scratch.data());
    Append(all, few);
  }
  return all;
}

std::vector<uint8_t> FloatAttention(Arch arch, const std::vector<uint8_t>& data) {
  std::vector<float> values(4000);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(data[i]) * 0.01f - 1.0f;
  SdpaFloatArgs args;
  args.q = values.data(), args.k = values.data() + 1000, args.v = values.data() + 2000, args.scale = 0.25f;
  return Attend(arch, args, 4, kHead);
}

// Weights of 4 and 8 bits in blocks of 48, with zero points and without. Floats: seven rows stream the weights, the rest decodes
// them first. `int8`: rows as codes, one and several.
std::vector<uint8_t> Blocked(Arch arch, bool int8, const std::vector<uint8_t>& data) {
  std::vector<uint8_t> all;
  std::vector<float> values(30 * kDepth), y(30 * kWidth);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(data[i]) * 0.01f - 1.0f;
  for (const DType type : {DType::kU4, DType::kS8}) {
    for (const bool zeros : {false, true}) {
      const auto w = PackBlocked({.data = data.data(),
                                  .dtype = type,
                                  .k = kDepth,
                                  .n = kWidth,
                                  .block = 48,
                                  .scale = values.data(),
                                  .zero_point = zeros ? data.data() + 9000 : nullptr});
      AlignedArray<uint8_t> scratch(std::max(BlockedScratchBytes(arch, *w), kBlockedInt8ScratchBytes));
      AlignedArray<uint8_t> rows(static_cast<size_t>(30 * BlockedRowBytes(*w)));
      const BlockedArgs args{.x = values.data(), .x_stride = kDepth, .w = &*w, .y = y.data(), .y_stride = kWidth};
      const BlockedInt8Args codes{.x = rows.data(), .w = &*w, .y = y.data(), .y_stride = kWidth};
      if (int8) QuantizeBlocks(arch, *w, values.data(), kDepth, 30, rows.data());
      for (const Range r : {Range{0, int8 ? 1 : 7}, Range{int8 ? 1 : 7, 30}}) {
        if (int8) {
          GemmBlockedInt8(arch, codes, r, {0, ColumnBlocks(kWidth)}, scratch.data());
        } else {
          GemmBlocked(arch, args, r, {0, ColumnBlocks(kWidth)}, scratch.data());
        }
      }
      const auto* bytes = reinterpret_cast<const uint8_t*>(y.data());
      all.insert(all.end(), bytes, bytes + y.size() * sizeof(float));
    }
  }
  return all;
}

// Three rows decode weights in registers, the rest to memory first.
std::vector<uint8_t> Fp8Products(Arch arch, bool pairs, int branches, const std::vector<uint8_t>& data) {
  const std::vector<float> scale(kWidth, 0.001f);
  std::vector<uint8_t> codes = data, y(static_cast<size_t>(30 * kWidth * branches));
  for (uint8_t& c : codes)
    c = static_cast<uint8_t>((c & 0x8f) | 0x30);  // 0.5 to 0.9375 and 1 to 1.875: sums are exact in any order
  std::vector<PackedFp8> w;
  Fp8Args args{.x = {.data = codes.data(), .dtype = DType::kE4M3FN, .stride = kDepth, .scale = 0.02f},
               .count = branches,
               .out = {},
               .bf16_pairs = pairs};
  for (int i = 0; i < branches; ++i) {
    w.push_back(*PackFp8({.data = codes.data() + 100 * (i + 1), .dtype = DType::kE4M3FN, .k = kDepth, .n = kWidth}));
  }
  for (int i = 0; i < branches; ++i) {
    args.out[i] = {&w[static_cast<size_t>(i)],
                   {.w_scale = scale.data(),
                    .y = y.data() + 30 * kWidth * i,
                    .dtype = DType::kE4M3FN,
                    .scale = 1e-5f,
                    .stride = kWidth}};
  }
  AlignedArray<uint8_t> scratch(Fp8ScratchBytes(arch, kDepth));
  LinearFp8(arch, args, {0, 3}, {0, Fp8Blocks(args)}, scratch.data());
  LinearFp8(arch, args, {3, 30}, {0, Fp8Blocks(args)}, scratch.data());
  return y;
}

std::vector<uint8_t> Fp8Attention(Arch arch, bool pairs, const std::vector<uint8_t>& data) {
  std::vector<uint8_t> codes = data;
  for (uint8_t& c : codes) c = static_cast<uint8_t>((c & 0x8f) | 0x30);  // as above; those of P V have 22 bits
  SdpaInt8Args args;
  args.bf16_pairs = pairs;
  args.q = codes.data(), args.k = codes.data() + 1000, args.v = codes.data() + 3000;
  args.q_type = args.k_type = args.v_type = args.p_type = args.o_type = DType::kE4M3FN;
  args.p_scale = 1.0f / 448, args.o_scale = 0.01f;
  return Attend(arch, args, 1, kHead);
}

// One way to reach a kernel: the class of shapes that the catalog was asked for.
struct Way {
  Arch arch;
  enum {
    kLinear,
    kQkv,
    kBlocked,
    kBlockedInt8,
    kFp8Linear,
    kFp8Qkv,
    kInt8Attention,
    kFloatAttention,
    kFp8Attention
  } kind;
  int64_t m;
  bool pairs = false;  // with vdpbf16ps
};

Execution ExecutionOf(const Way& way) { return way.pairs ? ExecutionOfPairs(way.arch) : ExecutionOf(way.arch); }

std::vector<uint8_t> RunWay(const Way& way, Arch arch, const std::vector<uint8_t>& data) {
  if (way.kind == Way::kLinear || way.kind == Way::kQkv) {
    // Both ways to read weights without VNNI, whichever this CPU takes.
    std::vector<uint8_t> y = Products(arch, way.m, way.kind == Way::kQkv ? 3 : 1, data, {true, true});
    const std::vector<uint8_t> other = Products(arch, way.m, way.kind == Way::kQkv ? 3 : 1, data, {false, false});
    y.insert(y.end(), other.begin(), other.end());
    return y;
  }
  if (way.kind == Way::kBlocked || way.kind == Way::kBlockedInt8)
    return Blocked(arch, way.kind == Way::kBlockedInt8, data);
  if (way.kind == Way::kFp8Linear || way.kind == Way::kFp8Qkv)
    return Fp8Products(arch, way.pairs, way.kind == Way::kFp8Qkv ? 3 : 1, data);
  if (way.kind == Way::kFp8Attention) return Fp8Attention(arch, way.pairs, data);
  return way.kind == Way::kFloatAttention ? FloatAttention(arch, data) : Int8Attention(arch, data);
}

// Every name of the catalog with the first Arch that leads to it.
std::map<std::string, Way> Ways() {
  std::map<std::string, Way> ways;
  LinearQuery linear{.y = {DType::kU8}, .k = kDepth, .n = {kWidth}};
  LinearQuery qkv{.y = {DType::kU8, DType::kU8, DType::kU8}, .k = kDepth, .n = {kWidth, kWidth, kWidth}};
  SdpaQuery int8{.heads = 2, .kv_heads = 1, .head_size = kHead, .value_head_size = kHead};
  SdpaQuery real = int8;
  real.q = real.k = real.v = real.p = real.out = DType::kF32;
  SdpaQuery fp8 = int8;
  fp8.q = fp8.k = fp8.v = fp8.p = fp8.out = DType::kE4M3FN;
  LinearQuery fp8_linear = linear, fp8_qkv = qkv;
  fp8_linear.x = fp8_linear.w = fp8_qkv.x = fp8_qkv.w = DType::kE4M3FN;
  std::vector<Arch> archs = VectorArchs();
  archs.insert(archs.begin(), Arch::kScalar);
  for (const Arch arch : archs) {
    for (const int64_t m : {5, 45}) {
      linear.m = qkv.m = m;
      ways.try_emplace(ChooseLinear(linear, arch).kernel, Way{arch, Way::kLinear, m});
      ways.try_emplace(ChooseQkv(qkv, arch).kernel, Way{arch, Way::kQkv, m});
    }
    ways.try_emplace(ChooseBlocked({}, arch).kernel, Way{arch, Way::kBlocked, 0});
    ways.try_emplace(ChooseBlocked({.x_bits = 8}, arch).kernel, Way{arch, Way::kBlockedInt8, 0});
    for (const bool pairs : {false, true}) {
      fp8_linear.bf16_pairs = fp8_qkv.bf16_pairs = fp8.bf16_pairs = pairs;
      ways.try_emplace(ChooseLinear(fp8_linear, arch).kernel, Way{arch, Way::kFp8Linear, 0, pairs});
      ways.try_emplace(ChooseQkv(fp8_qkv, arch).kernel, Way{arch, Way::kFp8Qkv, 0, pairs});
      ways.try_emplace(ChooseSdpa(fp8, arch).kernel, Way{arch, Way::kFp8Attention, 0, pairs});
    }
    ways.try_emplace(ChooseSdpa(int8, arch).kernel, Way{arch, Way::kInt8Attention, 0});
    ways.try_emplace(ChooseSdpa(real, arch).kernel, Way{arch, Way::kFloatAttention, 0});
  }
  return ways;
}

TEST(Execution, OfEveryKernelInTheCatalog) {
  const auto ways = Ways();
  const bool in_bochs = std::getenv("OCTAVO_IN_BOCHS") != nullptr;
  const std::vector<uint8_t> data = RandomBytes(20000);
  int elsewhere = 0;
  for (const std::string& name : KernelNames()) {
    const auto found = ways.find(name);
    ASSERT_NE(found, ways.end()) << name << " is in the catalog and no query leads to it";
    const Way& way = found->second;
    const Execution execution = ExecutionOf(way);
    if (execution == Execution::kNone) {
      std::printf("kernel %s not-here\n", name.c_str());
      ++elsewhere;
      continue;
    }
    if (execution == Execution::kTrap) trap::Install();
    const trap::Counts before = trap::Executed();
    const std::vector<uint8_t> got = RunWay(way, way.arch, data), want = RunWay(way, Arch::kScalar, data);
    ASSERT_TRUE(got == want) << name;
    ASSERT_NE(got, std::vector<uint8_t>(got.size(), got[0])) << name << ": one value everywhere proves nothing";
    ASSERT_EQ(trap::TakeProblem(), "") << name;
    const trap::Counts after = trap::Executed();
    if (execution == Execution::kTrap) {
      // Without its own instructions it was another kernel that ran.
      ASSERT_GT(way.arch == Arch::kAmx ? after.tile - before.tile : after.vector - before.vector, 0u) << name;
    }
    const char* how = execution == Execution::kTrap ? "trap" : "native";
    std::printf("kernel %s %s%s\n", name.c_str(), how, in_bochs ? "-in-bochs" : "");
  }
  if (elsewhere > 0) GTEST_SKIP() << elsewhere << " kernels cannot run here; ./dev test runs them in Bochs";
}

}  // namespace
}  // namespace octavo::kernels
