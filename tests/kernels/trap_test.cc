// The trap against a plain model: random configurations and data for the tile instructions as the assembler encodes
// them, and every refusal that a CPU would answer with a fault.
#include "trap/trap.h"

#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "octavo/kernels/tile/amx.h"
#include "testing.h"
#include "trap/machine.h"

namespace octavo::kernels {
namespace {

using ::testing::HasSubstr;

// On a CPU with AMX the same instructions run natively, and the model judges the CPU; its faults end the process, so
// refusals are only provoked under the trap.
bool AmxIsNative() { return ExecutionOf(Arch::kAmx) == Execution::kNative; }

using Move = void (*)(void*, ptrdiff_t);
using Dot = void (*)();

template <int... kTile>
constexpr std::array<Move, 8> Loads(std::integer_sequence<int, kTile...>) {
  return {[](void* p, ptrdiff_t stride) { tile::Load<kTile>(p, stride); }...};
}
template <int... kTile>
constexpr std::array<Move, 8> Stores(std::integer_sequence<int, kTile...>) {
  return {[](void* p, ptrdiff_t stride) { tile::Store<kTile>(p, stride); }...};
}
template <int... kTile>
constexpr std::array<Dot, 8> Zeros(std::integer_sequence<int, kTile...>) {
  return {[] { tile::Zero<kTile>(); }...};
}
constexpr auto kTiles = std::make_integer_sequence<int, 8>();
constexpr std::array<Move, 8> kLoad = Loads(kTiles), kStore = Stores(kTiles);
constexpr std::array<Dot, 8> kZero = Zeros(kTiles);

// Three different tiles and the four signs.
struct DotCase {
  int c, a, b;
  std::array<Dot, 4> dot;  // uu, us, su, ss
};
template <int kC, int kA, int kB>
constexpr DotCase MakeDot() {
  return {
      kC, kA, kB, {tile::DotUU<kC, kA, kB>, tile::DotUS<kC, kA, kB>, tile::DotSU<kC, kA, kB>, tile::DotSS<kC, kA, kB>}};
}
constexpr DotCase kDots[] = {MakeDot<0, 1, 2>(), MakeDot<7, 6, 5>(), MakeDot<3, 7, 0>(), MakeDot<5, 2, 7>(),
                             MakeDot<4, 0, 6>(), MakeDot<1, 3, 4>(), MakeDot<6, 5, 1>(), MakeDot<2, 4, 3>()};

using Bytes = std::vector<uint8_t>;
Bytes RandomBytes(size_t count) {
  Bytes bytes(count);
  for (auto& v : bytes) v = static_cast<uint8_t>(RandomInt(0, 255));
  return bytes;
}

class Tiles : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!AmxIsNative()) trap::Install();
    trap::TakeProblem();
  }
  void TearDown() override {
    tile::Release();
    EXPECT_EQ(trap::TakeProblem(), "");
  }
};

// C += A B by the definition: element (m, k) of A is a byte, element (k, n) of B is byte 4 n + k % 4 of row k / 4.
TEST_F(Tiles, DotProductsOfRandomShapes) {
  for (int trial = 0; trial < 400; ++trial) {
    const DotCase& d = kDots[RandomInt(0, 7)];
    const int sign = RandomInt(0, 3);
    const int rows = RandomInt(1, 16), columns = RandomInt(1, 16), quads = RandomInt(1, 16);
    tile::TileConfig config;
    const auto set = [&config](int t, int r, int bytes) {
      config.rows[t] = static_cast<uint8_t>(r);
      config.row_bytes[t] = static_cast<uint16_t>(bytes);
    };
    set(d.c, rows, 4 * columns), set(d.a, rows, 4 * quads), set(d.b, quads, 4 * columns);
    const int stride_a = 4 * quads + RandomInt(0, 9), stride_b = 4 * columns + RandomInt(0, 9);
    const int stride_c = 4 * columns + 4 * RandomInt(0, 3);
    Bytes a = RandomBytes(static_cast<size_t>(rows * stride_a)), b = RandomBytes(static_cast<size_t>(quads * stride_b));
    Bytes c = RandomBytes(static_cast<size_t>(rows * stride_c)), got(c.size(), 0xA5), want(c.size(), 0xA5);
    tile::LoadConfig(config);
    kLoad[static_cast<size_t>(d.a)](a.data(), stride_a);
    kLoad[static_cast<size_t>(d.b)](b.data(), stride_b);
    kLoad[static_cast<size_t>(d.c)](c.data(), stride_c);
    d.dot[static_cast<size_t>(sign)]();
    kStore[static_cast<size_t>(d.c)](got.data(), stride_c);
    for (int m = 0; m < rows; ++m) {
      for (int n = 0; n < columns; ++n) {
        int64_t sum = 0;
        for (int k = 0; k < 4 * quads; ++k) {
          const uint8_t av = a[static_cast<size_t>(m * stride_a + k)];
          const uint8_t bv = b[static_cast<size_t>(k / 4 * stride_b + 4 * n + k % 4)];
          sum += int64_t{sign >= 2 ? static_cast<int8_t>(av) : av} * (sign % 2 == 1 ? static_cast<int8_t>(bv) : bv);
        }
        int32_t start;
        std::memcpy(&start, c.data() + m * stride_c + 4 * n, 4);
        const auto total = static_cast<int32_t>(static_cast<uint64_t>(start + sum));
        std::memcpy(want.data() + m * stride_c + 4 * n, &total, 4);
      }
    }
    ASSERT_TRUE(got == want) << "trial " << trial << " " << rows << "x" << columns << "x" << 4 * quads << " sign "
                             << sign;
    ASSERT_EQ(trap::TakeProblem(), "");
  }
}

// bf16 values with few bits, so that every sum is exact in any order; then one pair whose rounding and order are known.
TEST_F(Tiles, Bf16DotProducts) {
  for (int trial = 0; trial < 100; ++trial) {
    const int rows = RandomInt(1, 16), columns = RandomInt(1, 16), pairs = RandomInt(1, 16);
    tile::TileConfig config;
    config.rows[0] = config.rows[1] = static_cast<uint8_t>(rows), config.rows[2] = static_cast<uint8_t>(pairs);
    config.row_bytes[0] = config.row_bytes[2] = static_cast<uint16_t>(4 * columns);
    config.row_bytes[1] = static_cast<uint16_t>(4 * pairs);
    const auto fill = [](std::vector<uint16_t>& v) {
      for (uint16_t& x : v) {
        const auto f = static_cast<float>(RandomInt(-30, 30)) * 0.125f;
        uint32_t bits;
        std::memcpy(&bits, &f, 4);
        x = static_cast<uint16_t>(bits >> 16);
      }
    };
    std::vector<uint16_t> a(static_cast<size_t>(rows * pairs * 2)), b(static_cast<size_t>(pairs * columns * 2));
    fill(a), fill(b);
    std::vector<float> c(static_cast<size_t>(rows * columns), 3.5f), got(c.size());
    tile::LoadConfig(config);
    tile::Load<0>(c.data(), 4 * columns);
    tile::Load<1>(a.data(), 4 * pairs);
    tile::Load<2>(b.data(), 4 * columns);
    tile::DotBf16<0, 1, 2>();
    tile::Store<0>(got.data(), 4 * columns);
    const auto value = [](uint16_t x) {
      const uint32_t bits = static_cast<uint32_t>(x) << 16;
      float f;
      std::memcpy(&f, &bits, 4);
      return f;
    };
    for (int m = 0; m < rows; ++m) {
      for (int n = 0; n < columns; ++n) {
        float want = 3.5f;
        for (int k = 0; k < 2 * pairs; ++k) {
          want += value(a[static_cast<size_t>(m * pairs * 2 + k)]) *
                  value(b[static_cast<size_t>((k / 2 * columns + n) * 2 + k % 2)]);
        }
        ASSERT_EQ(got[static_cast<size_t>(m * columns + n)], want) << rows << "x" << columns << "x" << 2 * pairs;
      }
    }
  }
  // 2^24 + (1 + 1): the pairs are added first; one after the other, both would be lost.
  tile::TileConfig one;
  one.rows[0] = one.rows[1] = one.rows[2] = 1, one.row_bytes[0] = one.row_bytes[1] = one.row_bytes[2] = 4;
  const uint16_t ones[2] = {0x3F80, 0x3F80}, tiny[2] = {0x0001, 0x0001};
  float big = 0x1p24f, got = 0;
  tile::LoadConfig(one);
  tile::Load<0>(&big, 4), tile::Load<1>(ones, 4), tile::Load<2>(ones, 4);
  tile::DotBf16<0, 1, 2>();
  tile::Store<0>(&got, 4);
  EXPECT_EQ(got, 0x1p24f + 2);
  tile::Zero<0>(), tile::Load<2>(tiny, 4);
  tile::DotBf16<0, 1, 2>();
  tile::Store<0>(&got, 4);
  EXPECT_EQ(got, 0.0f);  // subnormal operands are 0
}

TEST_F(Tiles, LoadZeroStoreOfEveryTile) {
  for (int trial = 0; trial < 100; ++trial) {
    tile::TileConfig config;
    for (int t = 0; t < 8; ++t) {
      config.rows[t] = static_cast<uint8_t>(RandomInt(1, 16));
      config.row_bytes[t] = static_cast<uint16_t>(4 * RandomInt(1, 16));
    }
    tile::LoadConfig(config);
    std::array<Bytes, 8> data;
    for (size_t t = 0; t < 8; ++t) {
      data[t] = RandomBytes(16 * 64);
      kLoad[t](data[t].data(), RandomInt(0, 1) * 64);
      kLoad[t](data[t].data(), t % 2 == 0 ? 64 : 0);  // 0: every row is row 0
    }
    const size_t cleared = static_cast<size_t>(RandomInt(0, 7));
    kZero[cleared]();
    tile::TileConfig back;
    tile::StoreConfig(&back);
    ASSERT_EQ(std::memcmp(&back, &config, sizeof(config)), 0);
    for (size_t t = 0; t < 8; ++t) {
      Bytes got(16 * 80, 0xA5), want = got;
      kStore[t](got.data(), 80);
      for (size_t r = 0; r < config.rows[t]; ++r) {
        const uint8_t* from = data[t].data() + (t % 2 == 0 ? r * 64 : 0);
        for (size_t i = 0; i < config.row_bytes[t]; ++i) want[r * 80 + i] = t == cleared ? 0 : from[i];
      }
      ASSERT_TRUE(got == want) << "tile " << t;
    }
  }
}

class Refusals : public Tiles {
 protected:
  void SetUp() override {
    if (AmxIsNative()) GTEST_SKIP() << "this CPU has AMX and would end the process";
    Tiles::SetUp();
  }
  // What the trap says to a configuration of tiles 0, 1, 2, then C0 += A1 B2.
  template <class Change>
  std::string Dot(Change change) {
    tile::TileConfig config = tile::kWholeTiles;
    change(config);
    tile::LoadConfig(config);
    tile::DotUS<0, 1, 2>();
    return trap::TakeProblem();
  }
};

TEST_F(Refusals, ConfigurationsThatNoCpuTakes) {
  EXPECT_EQ(Dot([](auto&) {}), "");
  EXPECT_THAT(Dot([](auto& c) { c.palette = 2; }), HasSubstr("palette 2"));
  EXPECT_THAT(Dot([](auto& c) { c.reserved[3] = 1; }), HasSubstr("reserved byte 5 = 1"));
  EXPECT_THAT(Dot([](auto& c) { c.reserved_row_bytes[0] = 1; }), HasSubstr("reserved byte 32"));
  EXPECT_THAT(Dot([](auto& c) { c.reserved_rows[7] = 9; }), HasSubstr("reserved byte 63 = 9"));
  EXPECT_THAT(Dot([](auto& c) { c.rows[5] = 17; }), HasSubstr("tile 5 17 rows of 64 bytes"));
  EXPECT_THAT(Dot([](auto& c) { c.row_bytes[6] = 65; }), HasSubstr("tile 6 16 rows of 65 bytes"));
  EXPECT_THAT(Dot([](auto& c) { c.rows[7] = 0; }), HasSubstr("tile 7 0 rows of 64 bytes"));
  EXPECT_THAT(Dot([](auto& c) { c.start_row = 3; }), HasSubstr("start row 3"));
}

TEST_F(Refusals, DotProductsOfTilesThatDoNotFit) {
  EXPECT_THAT(Dot([](auto& c) { c.rows[0] = 15; }), HasSubstr("TDPBUSD: 15 rows of sums, 16 of A"));
  EXPECT_THAT(Dot([](auto& c) { c.row_bytes[1] = 60; }), HasSubstr("15 quads in A, 16 rows in B"));
  EXPECT_THAT(Dot([](auto& c) { c.row_bytes[2] = 32; }), HasSubstr("64 bytes a row of sums, 32 of B"));
  EXPECT_THAT(Dot([](auto& c) { c.row_bytes[0] = 62; }), HasSubstr("tile 0 has rows of 62 bytes"));
  EXPECT_THAT(Dot([](auto& c) { c.rows[2] = 0, c.row_bytes[2] = 0; }), HasSubstr("tile 2, which has no rows"));
  EXPECT_THAT(Dot([](auto& c) { c.palette = 0; }), HasSubstr("before LDTILECFG"));
  tile::Release();
  uint8_t bytes[64] = {};
  tile::Load<3>(bytes, 0);
  EXPECT_THAT(trap::TakeProblem(), HasSubstr("TILELOADD before LDTILECFG"));
}

// A CPU with AMX takes such a configuration, and TILEZERO, but moves no such rows (tried on one).
TEST_F(Refusals, MovesOfRowsThatAreNotWholeWords) {
  tile::TileConfig config = tile::kWholeTiles;
  config.row_bytes[3] = 62;
  uint8_t bytes[16 * 64] = {};
  tile::LoadConfig(config);
  tile::Zero<3>();
  EXPECT_EQ(trap::TakeProblem(), "");
  tile::Load<3>(bytes, 64);
  EXPECT_THAT(trap::TakeProblem(), HasSubstr("TILELOADD of tile 3, which has rows of 62 bytes"));
  tile::Store<3>(bytes, 64);
  EXPECT_THAT(trap::TakeProblem(), HasSubstr("TILESTORED of tile 3, which has rows of 62 bytes"));
}

// Bytes that no assembler writes.
TEST(Decoder, RefusesEncodingsThatFault) {
  trap::TileFile tiles;
  const auto problem = [&tiles](std::vector<uint8_t> code) {
    code.resize(16);
    trap::Machine m;
    m.rip = code.data();
    m.tiles = &tiles;
    return trap::Execute(m).problem;
  };
  EXPECT_EQ(problem({0xC4, 0xE2, 0x78, 0x49, 0xC0}), "");                              // TILERELEASE
  EXPECT_THAT(problem({0xC4, 0xE2, 0x7C, 0x49, 0xC0}), HasSubstr("VEX.L"));            // L = 1
  EXPECT_THAT(problem({0xC4, 0xE2, 0xF8, 0x49, 0xC0}), HasSubstr("VEX.W"));            // W = 1
  EXPECT_THAT(problem({0xC4, 0xE2, 0x70, 0x49, 0xC0}), HasSubstr("third operand"));    // vvvv
  EXPECT_THAT(problem({0xC4, 0xE2, 0x7B, 0x4B, 0x00}), HasSubstr("base and stride"));  // TILELOADD without SIB
  tiles.configured = true;
  EXPECT_THAT(problem({0xC4, 0x62, 0x7B, 0x49, 0xC0}), HasSubstr("tile 8"));  // TILEZERO tmm8
  for (int t = 0; t < 8; ++t) tiles.rows[t] = 16, tiles.row_bytes[t] = 64;
  EXPECT_THAT(problem({0xC4, 0xE2, 0x73, 0x5E, 0xC1}), HasSubstr("TDPBSSD with one tile twice: 0, 1, 1"));
  trap::Machine m;
  const uint8_t ret[16] = {0xC3};
  m.rip = ret;
  EXPECT_FALSE(trap::Execute(m).known);
}

// vpdpbusd ymm of the VEX form, low and high registers and from memory, against plain loops.
TEST(VexDot, EqualsPlainLoops) {
  if (ExecutionOf(Arch::kAvxVnni) == Execution::kNone) GTEST_SKIP() << Name(Arch::kAvxVnni) << ": not run on this CPU";
  if (ExecutionOf(Arch::kAvxVnni) == Execution::kTrap) trap::Install();
  for (int trial = 0; trial < 300; ++trial) {
    const Bytes a = RandomBytes(32), b = RandomBytes(32), start = RandomBytes(32);
    Bytes got[3] = {Bytes(32), Bytes(32), Bytes(32)};
    asm volatile(
        "vmovdqu (%0), %%ymm1\n\tvmovdqu (%1), %%ymm2\n\tvmovdqu (%2), %%ymm3\n\t%{vex%} vpdpbusd %%ymm2, %%ymm1, "
        "%%ymm3\n\t"
        "vmovdqu %%ymm3, (%3)\n\tvmovdqu (%0), %%ymm14\n\tvmovdqu (%1), %%ymm9\n\tvmovdqu (%2), %%ymm12\n\t"
        "%{vex%} vpdpbusd %%ymm9, %%ymm14, %%ymm12\n\tvmovdqu %%ymm12, (%4)\n\tvmovdqu (%2), %%ymm15\n\t"
        "%{vex%} vpdpbusd (%1), %%ymm14, %%ymm15\n\tvmovdqu %%ymm15, (%5)"
        :
        : "r"(a.data()), "r"(b.data()), "r"(start.data()), "r"(got[0].data()), "r"(got[1].data()), "r"(got[2].data())
        : "memory", "xmm1", "xmm2", "xmm3", "xmm9", "xmm12", "xmm14", "xmm15");
    for (size_t lane = 0; lane < 8; ++lane) {
      int32_t first;
      std::memcpy(&first, start.data() + 4 * lane, 4);
      int64_t sum = first;
      for (size_t i = 4 * lane; i < 4 * lane + 4; ++i) sum += int64_t{a[i]} * static_cast<int8_t>(b[i]);
      const auto want = static_cast<int32_t>(static_cast<uint64_t>(sum));
      for (const Bytes& g : got) {
        int32_t v;
        std::memcpy(&v, g.data() + 4 * lane, 4);
        ASSERT_EQ(v, want) << "trial " << trial << " lane " << lane;
      }
    }
  }
  EXPECT_EQ(trap::TakeProblem(), "");
}

// Bytes as floats and bf16 whose subnormal numbers are 0.
float FlushedAt(const Bytes& bytes, size_t at, bool bf16) {
  uint32_t bits = 0;
  std::memcpy(reinterpret_cast<uint8_t*>(&bits) + (bf16 ? 2 : 0), bytes.data() + at, bf16 ? 2 : 4);
  if ((bits & 0x7F800000u) == 0) bits &= 0x80000000u;
  return std::bit_cast<float>(bits);
}
float Flushed(float x) { return std::fpclassify(x) == FP_SUBNORMAL ? std::copysign(0.0f, x) : x; }

// tdpbf16ps as the manual's pseudo-code has it, rounded at every step: a chain of the even products of a row, one of the odd ones,
// their sum, and its sum with C. A CPU with AMX is judged by it (a Granite Rapids does so).
TEST_F(Tiles, Bf16AddsTwoChainsAndThenC) {
  int other_order = 0;
  for (int trial = 0; trial < 50; ++trial) {
    Bytes a = RandomBytes(1024), b = RandomBytes(1024), c = RandomBytes(1024), got(1024);
    for (Bytes* v : {&a, &b, &c}) {  // exponents near 0, so that the order counts; some bf16 are subnormal
      const size_t step = v == &c ? 4 : 2;
      for (size_t i = step - 2; i < v->size(); i += step) {
        const bool tiny = step == 2 && RandomInt(0, 31) == 0;
        (*v)[i + 1] = static_cast<uint8_t>(((*v)[i + 1] & 0x80) | (tiny ? 0 : 0x3C | ((*v)[i + 1] & 3))),
                 (*v)[i] &= 0x7F;
      }
    }
    tile::LoadConfig(tile::kWholeTiles);
    tile::Load<0>(c.data(), 64), tile::Load<1>(a.data(), 64), tile::Load<2>(b.data(), 64);
    tile::DotBf16<0, 1, 2>();
    tile::Store<0>(got.data(), 64);
    for (size_t m = 0; m < 16; ++m) {
      for (size_t n = 0; n < 16; ++n) {
        float even = 0.0f, odd = 0.0f, chain = FlushedAt(c, m * 64 + 4 * n, false), result;
        for (size_t k = 0; k < 16; ++k) {
          const size_t at_a = m * 64 + 4 * k, at_b = k * 64 + 4 * n;
          const float a0 = FlushedAt(a, at_a, true), a1 = FlushedAt(a, at_a + 2, true);
          const float b0 = FlushedAt(b, at_b, true), b1 = FlushedAt(b, at_b + 2, true);
          even = Flushed(std::fma(a0, b0, even)), odd = Flushed(std::fma(a1, b1, odd));
          chain = std::fma(a1, b1, std::fma(a0, b0, chain));
        }
        const float want = Flushed(FlushedAt(c, m * 64 + 4 * n, false) + Flushed(even + odd));
        std::memcpy(&result, got.data() + m * 64 + 4 * n, 4);
        ASSERT_EQ(std::bit_cast<uint32_t>(result), std::bit_cast<uint32_t>(want))
            << "trial " << trial << " " << m << " " << n;
        other_order += chain != want;
      }
    }
  }
  EXPECT_GT(other_order, 1000) << "the data do not tell orders apart";
}

// vdpbf16ps zmm: registers below and above 16, from memory with either kind of displacement, one word for all lanes.
TEST(PairDot, AddsTheUpperProductThenTheLower) {
  if (ExecutionOfPairs(Arch::kAvx512) == Execution::kNone)
    GTEST_SKIP() << Name(Arch::kAvx512) << ": not run on this CPU";
  if (ExecutionOfPairs(Arch::kAvx512) == Execution::kTrap) trap::Install();
  int different = 0, wrong[5] = {};
  for (int trial = 0; trial < 2000; ++trial) {
    Bytes a = RandomBytes(64), b = RandomBytes(64), start = RandomBytes(64);
    if (trial % 2 != 0) {  // exponents near 0, so that the order of the products counts
      for (Bytes* v : {&a, &b, &start}) {
        const size_t step = v == &start ? 4 : 2;
        for (size_t i = step - 2; i < 64; i += step) {
          (*v)[i + 1] = static_cast<uint8_t>(((*v)[i + 1] & 0x80) | 0x3C | ((*v)[i + 1] & 3)), (*v)[i] &= 0x7F;
        }
      }
    }
    Bytes far(64 + 4096), got[5] = {Bytes(64), Bytes(64), Bytes(64), Bytes(64), Bytes(64)};
    std::memcpy(far.data() + 4096, b.data(), 64);
    uint8_t* out[] = {got[0].data(), got[1].data(), got[2].data(), got[3].data(), got[4].data()};
    asm volatile(
        "vmovups (%0), %%zmm17\n\tvmovups (%1), %%zmm30\n\tvmovups (%2), %%zmm21\n\tvmovaps %%zmm21, %%zmm3\n\t"
        "vmovaps %%zmm17, %%zmm9\n\tvmovaps %%zmm30, %%zmm2\n\tvmovaps %%zmm21, %%zmm12\n\tvmovaps %%zmm21, %%zmm31\n\t"
        "vmovaps %%zmm21, %%zmm0\n\tvdpbf16ps %%zmm30, %%zmm17, %%zmm21\n\tvdpbf16ps %%zmm2, %%zmm9, %%zmm3\n\t"
        "vdpbf16ps -64(%5), %%zmm17, %%zmm12\n\tvdpbf16ps 4096(%4), %%zmm9, %%zmm31\n\t"
        "vdpbf16ps 4(%1)%{1to16%}, %%zmm17, %%zmm0\n\t"
        "mov (%3), %%rax\n\tvmovups %%zmm21, (%%rax)\n\tmov 8(%3), %%rax\n\tvmovups %%zmm3, (%%rax)\n\t"
        "mov 16(%3), %%rax\n\tvmovups %%zmm12, (%%rax)\n\tmov 24(%3), %%rax\n\tvmovups %%zmm31, (%%rax)\n\t"
        "mov 32(%3), %%rax\n\tvmovups %%zmm0, (%%rax)\n\tvzeroupper"
        :
        : "r"(a.data()), "r"(b.data()), "r"(start.data()), "r"(out), "r"(far.data()), "r"(b.data() + 64)
        : "memory", "rax", "xmm0", "xmm2", "xmm3", "xmm9", "xmm12");
    for (size_t lane = 0; lane < 16; ++lane) {
      for (size_t form = 0; form < 5; ++form) {
        const size_t at = 4 * lane, other = form == 4 ? 4 : at;
        const float sum = FlushedAt(start, at, false), upper_a = FlushedAt(a, at + 2, true),
                    lower_a = FlushedAt(a, at, true);
        const float upper_b = FlushedAt(b, other + 2, true), lower_b = FlushedAt(b, other, true);
        const float want = Flushed(std::fma(lower_a, lower_b, Flushed(std::fma(upper_a, upper_b, sum))));
        const float swapped = Flushed(std::fma(upper_a, upper_b, Flushed(std::fma(lower_a, lower_b, sum))));
        float v;
        std::memcpy(&v, got[form].data() + at, 4);
        if (std::isnan(want) && std::isnan(v)) continue;
        wrong[form] += std::bit_cast<uint32_t>(v) != std::bit_cast<uint32_t>(want);
        different += std::bit_cast<uint32_t>(want) != std::bit_cast<uint32_t>(swapped);
      }
    }
  }
  // Bochs 3.0 is wrong in nine of ten lanes where a whole vector comes from memory, which no kernel asks for.
  if (std::getenv("OCTAVO_IN_BOCHS") != nullptr) wrong[2] = wrong[3] = 0;
  EXPECT_THAT(wrong, ::testing::Each(0))
      << "lanes: registers, registers, memory with 8 and 32 bits of displacement, one word";
  EXPECT_GT(different, 100);  // else the order would not have been seen
  EXPECT_EQ(trap::TakeProblem(), "");
}

TEST(PairDot, RefusesOtherForms) {
  const auto problem = [](std::initializer_list<uint8_t> code) {
    trap::Machine m;
    std::vector<uint8_t> bytes(code);
    bytes.resize(16, 0x90);
    m.rip = bytes.data();
    const trap::Outcome outcome = trap::Execute(m);
    EXPECT_TRUE(outcome.known);
    return outcome.problem;
  };
  EXPECT_EQ(problem({0x62, 0xF2, 0x6E, 0x48, 0x52, 0xCB}), "");                        // zmm1, zmm2, zmm3
  EXPECT_THAT(problem({0x62, 0xF2, 0x6E, 0x49, 0x52, 0xCB}), HasSubstr("not known"));  // {k1}
  EXPECT_THAT(problem({0x62, 0xF2, 0x6E, 0x28, 0x52, 0xCB}), HasSubstr("not known"));  // ymm
  EXPECT_THAT(problem({0x62, 0xF2, 0xEE, 0x48, 0x52, 0xCB}), HasSubstr("not known"));  // W = 1
}

}  // namespace
}  // namespace octavo::kernels
