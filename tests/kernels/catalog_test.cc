#include "octavo/kernels/catalog.h"

#include <algorithm>
#include <cstdio>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "octavo/kernels/gemm/gemm.h"

namespace octavo::kernels {
namespace {

using quant::DType;
using ::testing::HasSubstr;

LinearQuery Linear() { return {.y = {DType::kU8}, .k = 384, .n = {1536}, .activation = "gelu"}; }
LinearQuery Qkv() { return {.y = {DType::kU8, DType::kU8, DType::kS8}, .k = 384, .n = {384, 384, 128}}; }
SdpaQuery Sdpa() { return {.heads = 12, .kv_heads = 4, .head_size = 32, .value_head_size = 32}; }

constexpr CpuFeatures kServerWithTiles{.avx2 = true,
                                       .avx_vnni = true,
                                       .avx512 = true,
                                       .avx512_vnni = true,
                                       .avx512_ice_lake = true,
                                       .avx512_bf16 = true,
                                       .amx_tile = true,
                                       .amx_int8 = true,
                                       .amx_bf16 = true,
                                       .tile_state = true,
                                       .bf16_pairs = true};

struct Cpu {
  const char* name;
  CpuFeatures features;
  const char* linear;  // and qkv
  const char* small;
  const char* sdpa;
  const char* fp8;  // linear, qkv and attention
};

// CPUs that nobody here owns, by what CPUID says of them.
const Cpu kCpus[] = {
    {"Zen 3", {.avx2 = true, .four_pipes = true}, "6x8_s16_avx2", "m8_s16_avx2", "avx2", "avx2"},
    {"Alder Lake", {.avx2 = true, .avx_vnni = true}, "6x16_avxvnni", "m8_avxvnni", "avxvnni", "avx2"},
    {"Skylake-X", {.avx2 = true, .avx512 = true}, "6x16_s16_avx512", "m8_s16_avx512", "avx512", "avx512"},
    // VNNI, but not the other extensions that the zmm VNNI code is compiled with.
    {"Cascade Lake",
     {.avx2 = true, .avx512 = true, .avx512_vnni = true},
     "6x16_s16_avx512",
     "m8_s16_avx512",
     "avx512",
     "avx512"},
    // The same, and vdpbf16ps, with which it multiplies no faster than with FMA.
    {"Cooper Lake",
     {.avx2 = true, .avx512 = true, .avx512_vnni = true, .avx512_bf16 = true, .bf16_pairs = true},
     "6x16_s16_avx512",
     "m8_s16_avx512",
     "avx512",
     "avx512"},
    {"Ice Lake",
     {.avx2 = true, .avx512 = true, .avx512_vnni = true, .avx512_ice_lake = true},
     "6x64_avx512vnni",
     "m8_avx512vnni",
     "avx512vnni",
     "avx512vnni"},
    {"Zen 4",
     {.avx2 = true,
      .avx512 = true,
      .avx512_vnni = true,
      .avx512_ice_lake = true,
      .avx512_bf16 = true,
      .bf16_pairs = true,
      .four_pipes = true,
      .zen4 = true},
     "6x64_avx512vnni",
     "m8_avx512vnni",
     "avx512vnni",
     "avx512bf16"},
    {"a Zen that adds the products of a pair in another way",
     {.avx2 = true,
      .avx512 = true,
      .avx512_vnni = true,
      .avx512_ice_lake = true,
      .avx512_bf16 = true,
      .four_pipes = true,
      .zen4 = true},
     "6x64_avx512vnni",
     "m8_avx512vnni",
     "avx512vnni",
     "avx512vnni"},
    {"Sapphire Rapids whose system grants no tiles",
     {.avx2 = true,
      .avx_vnni = true,
      .avx512 = true,
      .avx512_vnni = true,
      .avx512_ice_lake = true,
      .avx512_bf16 = true,
      .amx_tile = true,
      .amx_int8 = true,
      .amx_bf16 = true,
      .bf16_pairs = true},
     "6x64_avx512vnni",
     "m8_avx512vnni",
     "avx512vnni",
     "avx512vnni"},
    {"Sapphire Rapids", kServerWithTiles, "32x32_amx", "m8_avx512vnni", "amx", "amx"},
    {"Granite Rapids", kServerWithTiles, "32x32_amx", "m8_avx512vnni", "amx", "amx"},
};

TEST(Catalog, ChoosesByNameForCpus) {
  for (const Cpu& cpu : kCpus) {
    const Arch arch = ArchsOf(cpu.features).back();
    LinearQuery one = Linear(), eight = Qkv(), nine = Qkv();
    one.m = 1, eight.m = 8, nine.m = 9;
    EXPECT_EQ(ChooseLinear(Linear(), arch).kernel, std::string("linear_int8_") + cpu.linear) << cpu.name;
    EXPECT_EQ(ChooseQkv(nine, arch).kernel, std::string("qkv_int8_") + cpu.linear) << cpu.name;
    EXPECT_EQ(ChooseLinear(one, arch).kernel, std::string("linear_int8_") + cpu.small) << cpu.name;
    EXPECT_EQ(ChooseQkv(eight, arch).kernel, std::string("qkv_int8_") + cpu.small) << cpu.name;
    EXPECT_EQ(ChooseSdpa(Sdpa(), arch).kernel, std::string("sdpa_int8_") + cpu.sdpa) << cpu.name;
    one.bf16_pairs = nine.bf16_pairs = GainsByBf16Pairs(cpu.features);
    one.x = one.w = nine.x = nine.w = DType::kE4M3FN;
    EXPECT_EQ(ChooseLinear(one, arch).kernel, std::string("linear_fp8_") + cpu.fp8) << cpu.name;
    EXPECT_EQ(ChooseQkv(nine, arch).kernel, std::string("qkv_fp8_") + cpu.fp8) << cpu.name;
    SdpaQuery sdpa = Sdpa();
    sdpa.q = sdpa.k = sdpa.v = sdpa.p = sdpa.out = DType::kE4M3FN, sdpa.bf16_pairs = GainsByBf16Pairs(cpu.features);
    EXPECT_EQ(ChooseSdpa(sdpa, arch).kernel, std::string("sdpa_fp8_") + cpu.fp8) << cpu.name;
  }
  SdpaQuery floats = Sdpa();
  floats.q = floats.k = floats.v = floats.p = floats.out = DType::kF32;
  EXPECT_EQ(ChooseSdpa(floats, Arch::kAvx512).kernel, "sdpa_f32_avx512");
  EXPECT_EQ(ChooseSdpa(floats, Arch::kAvxVnni).kernel, "sdpa_f32_avx2");
  EXPECT_EQ(ChooseLinear(Linear(), Arch::kScalar).kernel, "linear_int8_scalar");
}

TEST(Catalog, WhatIsTunedIsAFunctionOfTheCpu) {
  const auto tuning = [](std::string_view name) {
    const auto cpu = std::ranges::find(kCpus, name, &Cpu::name);
    const Tuning t = TuningOf(cpu->features);
    return std::tuple(t.decodes_once, t.one_stream, t.asks_near);
  };
  EXPECT_EQ(tuning("Zen 3"), std::tuple(false, false, false));
  EXPECT_EQ(tuning("Zen 4"), std::tuple(false, true, false));
  EXPECT_EQ(tuning("Ice Lake"), std::tuple(true, false, false));
  EXPECT_EQ(tuning("Alder Lake"), std::tuple(true, true, true));
}

TEST(Catalog, EveryChoiceIsListedAndChosenOrRefusedNeverBoth) {
  const std::vector<std::string> names = KernelNames();
  for (Arch arch : {Arch::kScalar, Arch::kAvx2, Arch::kAvxVnni, Arch::kAvx512, Arch::kAvx512Vnni, Arch::kAmx}) {
    for (const Choice& choice : {ChooseLinear(Linear(), arch), ChooseQkv(Qkv(), arch), ChooseSdpa(Sdpa(), arch)}) {
      EXPECT_TRUE(choice.ok());
      EXPECT_EQ(choice.refusal, "");
      EXPECT_EQ(std::ranges::count(names, choice.kernel), 1) << choice.kernel;
    }
    const bool runs = std::ranges::count(SupportedArchs(), arch) != 0;
    std::printf("%-32s %s\n", ChooseLinear(Linear(), arch).kernel.c_str(), runs ? "runs" : "not run on this CPU");
  }
}

template <class Query, class Change>
std::string Refusal(Choice (*choose)(const Query&, Arch), Query query, Change change) {
  change(query);
  const Choice choice = choose(query, Arch::kAvx512Vnni);
  EXPECT_FALSE(choice.ok()) << choice.kernel;
  return choice.refusal;
}

TEST(Catalog, RefusesLinearsWithASentence) {
  const auto linear = [](auto change) { return Refusal(&ChooseLinear, Linear(), change); };
  EXPECT_THAT(linear([](auto& q) { q.x = DType::kS16; }), HasSubstr("the activation is s16"));
  EXPECT_THAT(linear([](auto& q) { q.w = DType::kF32; }), HasSubstr("the weights are f32"));
  EXPECT_THAT(linear([](auto& q) { q.y = {DType::kF16}; }), HasSubstr("output 0 is f16"));
  EXPECT_THAT(linear([](auto& q) { q.k = 70000; }), HasSubstr("k is 70000, and beyond 65793"));
  EXPECT_THAT(linear([](auto& q) { q.k = -1; }), HasSubstr("depth k"));
  EXPECT_THAT(linear([](auto& q) { q.activation = "mish"; }), HasSubstr("no activation 'mish'"));
  EXPECT_THAT(linear([](auto& q) { q.n = {1, 2}; }), HasSubstr("one branch, this query has 2"));
  const auto qkv = [](auto change) { return Refusal(&ChooseQkv, Qkv(), change); };
  EXPECT_THAT(qkv([](auto& q) { q.n = {384}; }), HasSubstr("2 to 8 branches, this query has 1"));
  EXPECT_THAT(qkv([](auto& q) { q.n.resize(9); }), HasSubstr("this query has 9"));
  EXPECT_THAT(qkv([](auto& q) { q.n[2] = 0; }), HasSubstr("width of branch 2"));
  EXPECT_THAT(qkv([](auto& q) { q.y.pop_back(); }), HasSubstr("one output type per branch"));
}

TEST(Catalog, ChoosesAndRefusesWeightsInBlocks) {
  EXPECT_EQ(ChooseBlocked({}, Arch::kAvx2).kernel, "linear_blocked_avx2");
  EXPECT_EQ(ChooseBlocked({}, Arch::kAmx).kernel, "linear_blocked_avx512vnni");
  EXPECT_EQ(ChooseBlocked({.w = DType::kS8, .block = 1024}, Arch::kScalar).kernel, "linear_blocked_scalar");
  EXPECT_THAT(ChooseBlocked({.block = 40}, Arch::kAvx2).refusal, HasSubstr("multiples of 16"));
  EXPECT_THAT(ChooseBlocked({.w = DType::kF32}, Arch::kAvx2).refusal, HasSubstr("4- and 8-bit integers"));
  EXPECT_EQ(ChooseBlocked({.x_bits = 8}, Arch::kAvx2).kernel, "linear_blocked_int8_avx2");
  EXPECT_EQ(ChooseBlocked({.x_bits = 8}, Arch::kAvxVnni).kernel, "linear_blocked_int8_avxvnni");
  EXPECT_EQ(ChooseBlocked({.x_bits = 8}, Arch::kAmx).kernel, "linear_blocked_int8_amx");
  EXPECT_THAT(ChooseBlocked({.block = 1024, .x_bits = 8}, Arch::kAvx2).refusal, HasSubstr("up to 512"));
  EXPECT_THAT(ChooseBlocked({.x_bits = 4}, Arch::kAvx2).refusal, HasSubstr("floats or 8 bits"));
}

TEST(Catalog, ChoosesAndRefusesFp8) {
  LinearQuery q = Linear();
  q.x = q.w = DType::kE4M3FN, q.y = {DType::kE5M2}, q.k = 70000;  // no integer that could overflow
  EXPECT_EQ(ChooseLinear(q, Arch::kAmx).kernel, "linear_fp8_amx");
  EXPECT_EQ(ChooseLinear(q, Arch::kAvxVnni).kernel, "linear_fp8_avx2");
  q.w = DType::kS8;
  EXPECT_THAT(ChooseLinear(q, Arch::kAvx2).refusal, HasSubstr("the activation is fp8, the weights are s8"));
  LinearQuery integers = Linear();
  integers.y = {DType::kE4M3FN};
  EXPECT_EQ(ChooseLinear(integers, Arch::kAvx512Vnni).kernel, "linear_int8_6x64_avx512vnni");
  integers.y = {DType::kF16};
  EXPECT_THAT(ChooseLinear(integers, Arch::kAvx2).refusal, HasSubstr("output 0 is f16"));
  LinearQuery three = Qkv();
  three.x = three.w = DType::kE5M2;
  EXPECT_EQ(ChooseQkv(three, Arch::kAvx512).kernel, "qkv_fp8_avx512");
  SdpaQuery s = Sdpa();
  s.q = s.k = s.v = s.p = s.out = DType::kE4M3FN;
  EXPECT_EQ(ChooseSdpa(s, Arch::kAvx512Vnni).kernel, "sdpa_fp8_avx512vnni");
  s.out = DType::kU8;
  EXPECT_THAT(ChooseSdpa(s, Arch::kAvx2).refusal, HasSubstr("fp8 attention writes fp8 or f32"));
}

TEST(Catalog, RefusesAttentionWithASentence) {
  const auto sdpa = [](auto change) { return Refusal(&ChooseSdpa, Sdpa(), change); };
  EXPECT_THAT(sdpa([](auto& q) { q.head_size = 264; }), HasSubstr("head sizes are 264 and 32"));
  EXPECT_THAT(sdpa([](auto& q) { q.kv_heads = 5; }), HasSubstr("12 query heads are no multiple of 5"));
  EXPECT_THAT(sdpa([](auto& q) { q.kv_heads = 0; }), HasSubstr("number of heads is not known"));
  EXPECT_THAT(sdpa([](auto& q) { q.p = DType::kF32; }), HasSubstr("u8, u8, u8, f32"));
  EXPECT_THAT(sdpa([](auto& q) { q.out = DType::kBF16; }), HasSubstr("the output is bf16"));
}

TEST(Catalog, ChoosesAttentionByRowsKeysAndWhatIsHidden) {
  const auto name = [](auto change, Arch arch) {
    SdpaQuery query = Sdpa();
    change(query);
    return ChooseSdpa(query, arch).kernel;
  };
  // Beyond 33,025 keys the int32 sums could end, whatever the zero points are.
  EXPECT_EQ(name([](auto& q) { q.kv_length = 33025; }, Arch::kAmx), "sdpa_int8_amx");
  EXPECT_EQ(name([](auto& q) { q.kv_length = 33026; }, Arch::kAmx), "sdpa_int8_flash_avx512vnni");
  EXPECT_EQ(name([](auto& q) { q.kv_length = int64_t{1} << 40; }, Arch::kAvx2), "sdpa_int8_flash_avx2");
  EXPECT_EQ(name([](auto& q) { q.flash = q.hides = true; }, Arch::kAvxVnni), "sdpa_int8_flash_window_avxvnni");
  EXPECT_EQ(name([](auto& q) { q.hides = true; }, Arch::kAmx), "sdpa_int8_window_amx");
  EXPECT_EQ(name([](auto& q) { q.q_length = 1, q.heads = q.kv_heads = 2; }, Arch::kAmx), "sdpa_int8_decode_avx512vnni");
  EXPECT_EQ(name([](auto& q) { q.q_length = 4, q.heads = 2, q.kv_heads = 1; }, Arch::kAvx512),
            "sdpa_int8_decode_avx512");
  EXPECT_EQ(name([](auto& q) { q.q_length = 5, q.heads = 2, q.kv_heads = 1; }, Arch::kAvx512), "sdpa_int8_avx512");
  const auto floats = [](auto& q) { q.q = q.k = q.v = q.p = q.out = DType::kF32, q.heads = 2, q.kv_heads = 1; };
  EXPECT_EQ(name([&](auto& q) { floats(q), q.q_length = 8; }, Arch::kAvx2), "sdpa_f32_decode_avx2");
  EXPECT_EQ(name([&](auto& q) { floats(q), q.kv_length = 1 << 20; }, Arch::kAvxVnni), "sdpa_f32_avx2");
  const auto fp8 = [](auto& q) { q.q = q.k = q.v = q.p = q.out = DType::kE4M3FN; };
  EXPECT_EQ(name([&](auto& q) { fp8(q), q.kv_length = 1 << 20, q.q_length = 1, q.flash = true; }, Arch::kAvx2),
            "sdpa_fp8_avx2");
}

TEST(Catalog, NamesWhatHasOneFormForAllSizes) {
  const std::vector<std::string> names = KernelNames();
  EXPECT_EQ(KernelOf(Family::kNorm, Arch::kAvxVnni), "norm_avx2");
  EXPECT_EQ(KernelOf(Family::kLookup, Arch::kAvx512), "lookup_scalar");
  EXPECT_EQ(KernelOf(Family::kLookup, Arch::kAmx), "lookup_avx512vnni");
  EXPECT_EQ(KernelOf(Family::kPanelsF32, Arch::kAvx2), "linear_f32_panels_avx2");
  EXPECT_EQ(KernelOf(Family::kPanelsF32, Arch::kScalar), "linear_f32_panels_scalar");
  EXPECT_EQ(KernelOf(Family::kConvF32, Arch::kAmx), "conv_f32_onednn");
  for (int i = 0; i < kFamilies; ++i) {
    for (Arch arch : {Arch::kScalar, Arch::kAvx2, Arch::kAvxVnni, Arch::kAvx512, Arch::kAvx512Vnni, Arch::kAmx}) {
      EXPECT_EQ(std::ranges::count(names, KernelOf(static_cast<Family>(i), arch)), 1)
          << KernelOf(static_cast<Family>(i), arch);
    }
  }
}

}  // namespace
}  // namespace octavo::kernels
