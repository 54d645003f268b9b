// Runs every kernel that the catalog can name and says how: by this CPU, or through the trap. `./dev test` reads the
// lines "kernel NAME HOW" and fails if one was executed nowhere.
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>
#include <type_traits>
#include <vector>

#include "octavo/kernels/blocked/blocked_int8.h"
#include "octavo/kernels/catalog.h"
#include "octavo/kernels/conv/conv_f32.h"
#include "octavo/kernels/elementwise/elementwise.h"
#include "octavo/kernels/fp8/fp8.h"
#include "octavo/kernels/gemm/gemm_f32.h"
#include "octavo/kernels/gemm/panels_f32.h"
#include "octavo/kernels/norm/norm.h"
#include "octavo/kernels/qkv/qkv.h"
#include "octavo/kernels/quantize/quantize.h"
#include "octavo/kernels/sdpa/sdpa.h"
#include "octavo/kernels/softmax/softmax.h"
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

// How attention is asked for: rows in blocks, tiles of keys, few rows by one thread and by three; and with keys that are hidden.
struct Attention {
  enum { kRows, kFlash, kFew } way = kRows;
  bool hides = false;
};

void Append(std::vector<uint8_t>& all, const std::vector<uint8_t>& more) {
  all.insert(all.end(), more.begin(), more.end());
}

template <class Args>
void RunAttention(Arch arch, Attention how, const Args& args, std::vector<uint8_t>& all) {
  const SdpaShape& s = args.shape;
  if (how.way == Attention::kRows) {
    AlignedArray<uint8_t> packed(SdpaPackedBytes(arch, args)), scratch(SdpaScratchBytes(arch, args));
    SdpaHeads(arch, args, 0, s.heads, packed.data(), scratch.data());
  } else if (how.way == Attention::kFlash) {
    AlignedArray<uint8_t> scratch(SdpaFlashScratchBytes(arch, args, s.q_len));
    for (int64_t head = 0; head < s.heads; ++head) SdpaFlash(arch, args, 0, head, 0, s.q_len, scratch.data());
  } else {
    AlignedArray<uint8_t> scratch(SdpaDecodeScratchBytes(arch, args)), shared(SdpaSplitKvBytes(arch, args, 3));
    for (int step = 0; step < kSplitKvSteps; ++step) {
      for (int64_t part = 0; part < 3; ++part) {
        SdpaSplitKv(arch, args, 0, 0, {step, part, 3}, shared.data(), scratch.data());
      }
    }
    const auto* o = reinterpret_cast<const uint8_t*>(args.o);
    const int64_t elements = s.heads * s.q_len * s.v_head_size;
    Append(all, {o, o + elements * static_cast<int64_t>(std::is_same_v<Args, SdpaFloatArgs> ? 4 : 1)});
    SdpaDecode(arch, args, 0, 0, scratch.data());
  }
}

template <class Args>
std::vector<uint8_t> Attend(Arch arch, Attention how, Args args, size_t element_bytes, int64_t value_head) {
  const int64_t queries = how.way == Attention::kFew ? 3 : kQueries;
  const int64_t keys = how.way == Attention::kFlash ? kSdpaFlashKeys + kKeys
                       : how.way == Attention::kFew ? 2 * 64 + kKeys
                                                    : kKeys;
  args.shape = {1, 2, 1, queries, keys, kHead, value_head};
  args.q_strides = {0, kHead, 2 * kHead}, args.o_strides = {0, value_head, 2 * value_head};
  args.k_strides = {0, 0, kHead}, args.v_strides = {0, 0, value_head};
  std::vector<uint8_t> keep(static_cast<size_t>(keys), 1);
  for (size_t i = 0; i < keep.size(); i += 5) keep[i] = 0;
  if (how.hides) {
    args.visibility.window = {keys - 9, 2, true};
    args.visibility.keep = {keep.data(), 0, 0, 0, 1};
  }
  std::vector<uint8_t> o(static_cast<size_t>(queries * 2 * value_head) * element_bytes), all;
  args.o = reinterpret_cast<decltype(args.o)>(o.data());
  RunAttention(arch, how, args, all);
  Append(all, o);
  return all;
}

// Codes of probabilities and of exponentials, with 8 and with 7 bits; whole vectors of output columns, which some forms finish in
// registers, and a tail.
std::vector<uint8_t> Int8Attention(Arch arch, Attention how, const std::vector<uint8_t>& data) {
  std::vector<uint8_t> all;
  for (int way = 0; way < 8; ++way) {
    SdpaInt8Args args;
    args.q = data.data(), args.k = data.data() + 1000, args.v = data.data() + 3000;
    args.q_zero_point = 120, args.k_zero_point = 130, args.v_zero_point = 7;
    args.q_scale = args.k_scale = 0.02f, args.v_scale = 0.1f, args.scale = 0.25f;
    args.o_type = DType::kS8, args.o_scale = 0.3f;
    args.p_relative = (way & 1) != 0, args.p_scale = (way & 2) != 0 ? 1 / 128.0f : 1 / 255.0f;
    Append(all, Attend(arch, how, args, 1, (way & 4) != 0 ? 64 : kHead));
  }
  return all;
}

std::vector<uint8_t> FloatAttention(Arch arch, Attention how, const std::vector<uint8_t>& data) {
  std::vector<float> values(data.size());
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(data[i]) * 0.01f - 1.0f;
  SdpaFloatArgs args;
  args.q = values.data(), args.k = values.data() + 1000, args.v = values.data() + 2000, args.scale = 0.25f;
  return Attend(arch, how, args, 4, kHead);
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

std::vector<uint8_t> Fp8Attention(Arch arch, Attention how, bool pairs, const std::vector<uint8_t>& data) {
  std::vector<uint8_t> codes = data;
  for (uint8_t& c : codes) c = static_cast<uint8_t>((c & 0x8f) | 0x30);  // as above; those of P V have 22 bits
  SdpaInt8Args args;
  args.bf16_pairs = pairs;
  args.q = codes.data(), args.k = codes.data() + 1000, args.v = codes.data() + 3000;
  args.q_type = args.k_type = args.v_type = args.p_type = args.o_type = DType::kE4M3FN;
  args.p_scale = 1.0f / 448, args.o_scale = 0.01f;
  return Attend(arch, how, args, 1, kHead);
}

void AppendFloats(std::vector<uint8_t>& all, const std::vector<float>& y) {
  const auto* bytes = reinterpret_cast<const uint8_t*>(y.data());
  Append(all, {bytes, bytes + y.size() * sizeof(float)});
}

// Codes and floats, and the tail of a row.
std::vector<uint8_t> Normalized(Arch arch, const std::vector<float>& x) {
  std::vector<uint8_t> all;
  for (const bool rms : {false, true}) {
    for (const DType type : {DType::kU8, DType::kS8, DType::kE4M3FN}) {
      std::vector<float> y(5 * kWidth), sum(5 * kWidth), scratch(3 * kWidth);
      std::vector<uint8_t> q(5 * kWidth);
      NormRows(arch,
               {.n = kWidth,
                .x = x.data(),
                .x_stride = kWidth,
                .skip = x.data() + 1000,
                .skip_stride = kWidth,
                .gamma = x.data() + 2000,
                .beta = rms ? nullptr : x.data() + 3000,
                .rms = rms,
                .sum = sum.data(),
                .sum_stride = kWidth,
                .y = y.data(),
                .y_stride = kWidth,
                .q = q.data(),
                .q_stride = kWidth,
                .q_type = type,
                .q_scale = 0.01f},
               0, 5, scratch.data());
      AppendFloats(all, y), AppendFloats(all, sum), Append(all, q);
    }
  }
  return all;
}

std::vector<uint8_t> Quantized(Arch arch, Family family, const std::vector<float>& x,
                               const std::vector<uint8_t>& data) {
  std::vector<uint8_t> all;
  for (const DType type : {DType::kU8, DType::kS8, DType::kE4M3FN, DType::kE5M2}) {
    if (family == Family::kQuantize) {
      std::vector<uint8_t> q(1001);
      QuantizeLinear(arch, x.data(), 1001, 0.02f, quant::IsFp8(type) ? 0 : 3, type, q.data());
      Append(all, q);
    } else {
      std::vector<float> y(1001);
      // No NaN among codes of fp8: its bits are not a part of the contract.
      std::vector<uint8_t> codes = data;
      for (uint8_t& c : codes) c = quant::IsFp8(type) ? c & 0xbf : c;
      DequantizeLinear(arch, codes.data(), type, 1001, 0.02f, quant::IsFp8(type) ? 0 : 3, y.data());
      AppendFloats(all, y);
    }
  }
  return all;
}

std::vector<uint8_t> Elementwise(Arch arch, Family family, const std::vector<float>& x,
                                 const std::vector<uint8_t>& data) {
  std::vector<uint8_t> all;
  std::vector<float> y(1001);
  if (family == Family::kLookup) {
    uint8_t table[256];
    std::copy_n(data.begin(), 256, table);
    std::vector<uint8_t> bytes(1001);
    Lookup(arch, data.data() + 256, table, bytes.data(), 1001);
    return bytes;
  }
  for (int op = 0; family == Family::kUnary && op < kUnaryOps; ++op) {
    std::vector<float> positive = x;
    for (float& v : positive) v = v < 0 && static_cast<UnaryOp>(op) == UnaryOp::kSqrt ? -v : v;
    Unary(arch, static_cast<UnaryOp>(op), positive.data(), y.data(), 1001, {-0.5f, 1.5f});
    AppendFloats(all, y);
  }
  for (int op = 0; family == Family::kBinary && op < kBinaryOps; ++op) {
    for (const int64_t col : {0, 1}) {
      Binary(arch, static_cast<BinaryOp>(op), {x.data(), 91, 1}, {x.data() + 2000, 91, col}, y.data(), 91, 0, 11, 91);
      AppendFloats(all, y);
    }
  }
  return all;
}

// Whole numbers, whose sums are exact in any order.
std::vector<uint8_t> FloatProducts(Arch arch, Family family, const std::vector<uint8_t>& data) {
  std::vector<float> x(data.begin(), data.begin() + 9000), y(20 * kWidth);
  const float *a = x.data(), *b = a + 1000, *bias = a + 500;
  if (family == Family::kPanelsF32) {
    AlignedArray<float> panels(static_cast<size_t>(PanelsF32Size(kDepth, kWidth)));
    PackPanelsF32(b, kDepth, kWidth, kWidth, 1, panels.data());
    for (const int64_t m : {13, 1, 2, 3, 4}) {
      kPanelsF32Of[arch]({.m = m,
                          .k = kDepth,
                          .n = kWidth,
                          .x = a,
                          .x_stride = kDepth,
                          .panels = panels.data(),
                          .bias = bias,
                          .y = y.data(),
                          .y_stride = kWidth});
    }
  } else {
    const ConvShape shape{.channels = 3,
                          .filters = 5,
                          .in = {19, 20},
                          .kernel = {3, 3},
                          .stride = {1, 1},
                          .dilation = {1, 1},
                          .before = {1, 1},
                          .after = {1, 1}};
    const auto conv = ConvF32::Make(shape, x.data() + 2000, true);
    EXPECT_TRUE(conv) << conv.error();
    if (conv) {
      EXPECT_EQ(conv->Run(x.data(), x.data() + 4000, y.data()), "");
    }
  }
  std::vector<uint8_t> all;
  AppendFloats(all, y);
  return all;
}

std::vector<uint8_t> Plain(Arch arch, Family family, const std::vector<uint8_t>& data) {
  std::vector<float> x(6000);
  for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(data[i]) * 0.02f - 2.5f;
  std::vector<uint8_t> all;
  switch (family) {
    case Family::kNorm:
      return Normalized(arch, x);
    case Family::kSoftmax: {
      std::vector<float> y(5 * kWidth);
      SoftmaxRows(arch, x.data(), kWidth, y.data(), kWidth, 5, kWidth);
      AppendFloats(all, y);
      return all;
    }
    case Family::kQuantize:
    case Family::kDequantize:
      return Quantized(arch, family, x, data);
    case Family::kMinMax: {
      const MinMax range = FindMinMax(arch, x.data(), 1001);
      AppendFloats(all, {range.min, range.max, range.has_nan ? 1.0f : 0.0f});
      return all;
    }
    case Family::kUnary:
    case Family::kBinary:
    case Family::kLookup:
      return Elementwise(arch, family, x, data);
    default:
      return FloatProducts(arch, family, data);
  }
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
    kFp8Attention,
    kPlain
  } kind;
  int64_t m = 0;
  bool pairs = false;  // with vdpbf16ps
  Attention attention = {};
  Family family = Family::kNorm;
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
  if (way.kind == Way::kPlain) return Plain(arch, way.family, data);
  if (way.kind == Way::kFp8Attention) return Fp8Attention(arch, way.attention, way.pairs, data);
  return way.kind == Way::kFloatAttention ? FloatAttention(arch, way.attention, data)
                                          : Int8Attention(arch, way.attention, data);
}

using WaysByName = std::map<std::string, Way>;

void AddProducts(Arch arch, WaysByName& ways) {
  LinearQuery linear{.y = {DType::kU8}, .k = kDepth, .n = {kWidth}};
  LinearQuery qkv{.y = {DType::kU8, DType::kU8, DType::kU8}, .k = kDepth, .n = {kWidth, kWidth, kWidth}};
  for (const int64_t m : {5, 45}) {
    linear.m = qkv.m = m;
    ways.try_emplace(ChooseLinear(linear, arch).kernel, Way{arch, Way::kLinear, m});
    ways.try_emplace(ChooseQkv(qkv, arch).kernel, Way{arch, Way::kQkv, m});
  }
  ways.try_emplace(ChooseBlocked({}, arch).kernel, Way{arch, Way::kBlocked});
  ways.try_emplace(ChooseBlocked({.x_bits = 8}, arch).kernel, Way{arch, Way::kBlockedInt8});
  linear.x = linear.w = qkv.x = qkv.w = DType::kE4M3FN;
  for (const bool pairs : {false, true}) {
    linear.bf16_pairs = qkv.bf16_pairs = pairs;
    ways.try_emplace(ChooseLinear(linear, arch).kernel, Way{arch, Way::kFp8Linear, 0, pairs});
    ways.try_emplace(ChooseQkv(qkv, arch).kernel, Way{arch, Way::kFp8Qkv, 0, pairs});
  }
}

void AddAttention(Arch arch, WaysByName& ways) {
  for (const auto way : {Attention::kRows, Attention::kFlash, Attention::kFew}) {
    for (const bool hides : {false, true}) {
      SdpaQuery query{.heads = 2, .kv_heads = 1, .head_size = kHead, .value_head_size = kHead};
      query.hides = hides, query.flash = way == Attention::kFlash,
      query.q_length = way == Attention::kFew ? 3 : kQueries;
      const Attention how = {way, hides};
      ways.try_emplace(ChooseSdpa(query, arch).kernel, Way{arch, Way::kInt8Attention, 0, false, how});
      query.q = query.k = query.v = query.p = query.out = DType::kF32;
      ways.try_emplace(ChooseSdpa(query, arch).kernel, Way{arch, Way::kFloatAttention, 0, false, how});
      query.q = query.k = query.v = query.p = query.out = DType::kE4M3FN;
      for (const bool pairs : {false, true}) {
        query.bf16_pairs = pairs;
        ways.try_emplace(ChooseSdpa(query, arch).kernel,
                         Way{arch, Way::kFp8Attention, 0, pairs, {Attention::kRows, hides}});
      }
    }
  }
}

// Every name of the catalog with the first Arch that leads to it.
WaysByName Ways() {
  WaysByName ways;
  std::vector<Arch> archs = VectorArchs();
  archs.insert(archs.begin(), Arch::kScalar);
  for (const Arch arch : archs) {
    AddProducts(arch, ways);
    AddAttention(arch, ways);
    for (int i = 0; i < kFamilies; ++i) {
      const auto family = static_cast<Family>(i);
      ways.try_emplace(KernelOf(family, arch), Way{.arch = arch, .kind = Way::kPlain, .family = family});
    }
  }
  return ways;
}

TEST(Execution, OfEveryKernelInTheCatalog) {
  const auto ways = Ways();
  const bool in_bochs = std::getenv("OCTAVO_IN_BOCHS") != nullptr;
  const std::vector<uint8_t> data = RandomBytes(40000);
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
