#include "machine.h"

#include <cmath>
#include <cstring>
#include <format>

namespace octavo::trap {
namespace {

// A VEX or EVEX instruction of map 0F38: opcode, prefix and operands.
struct Decoded {
  uint8_t opcode, prefix;  // prefix: 0 none, 1 66, 2 F3, 3 F2
  bool wide, w;            // VEX.L, VEX.W
  bool evex, broadcast, masked;
  int length_code;    // EVEX.L'L: 2 is zmm
  int vvvv, reg, rm;  // rm: register, if is_register
  bool is_register, has_sib;
  uint64_t base;    // address of a memory operand; without the index if has_sib
  uint64_t stride;  // index * scale
  uint8_t modrm;
  size_t length;
};

int32_t Signed32(const uint8_t* p) {
  int32_t v;
  std::memcpy(&v, p, 4);
  return v;
}

// The memory operand behind ModRM at p; returns the bytes it takes, ModRM included. unit: what a displacement of one byte counts.
size_t DecodeMemory(const Machine& m, const uint8_t* p, bool x, bool b, int unit, Decoded* d) {
  const int mod = p[0] >> 6, rm = p[0] & 7;
  size_t at = 1;
  bool no_base = false;
  if (rm == 4) {
    const uint8_t sib = p[at++];
    const int index = ((sib >> 3) & 7) | (x ? 8 : 0);
    d->has_sib = true;
    d->stride = index == 4 ? 0 : m.gpr[index] << (sib >> 6);
    no_base = (sib & 7) == 5 && mod == 0;
    if (!no_base) d->base = m.gpr[(sib & 7) | (b ? 8 : 0)];
  } else if (mod == 0 && rm == 5) {  // relative to the next instruction, which begins behind the displacement
    d->base = reinterpret_cast<uint64_t>(p + 5) + static_cast<uint64_t>(static_cast<int64_t>(Signed32(p + 1)));
    return 5;
  } else {
    d->base = m.gpr[rm | (b ? 8 : 0)];
  }
  if (mod == 1) {
    d->base += static_cast<uint64_t>(int64_t{static_cast<int8_t>(p[at])} * unit);
    at += 1;
  } else if (mod == 2 || no_base) {
    d->base += static_cast<uint64_t>(static_cast<int64_t>(Signed32(p + at)));
    at += 4;
  }
  return at;
}

// VDPBF16PS, EVEX.F3.0F38.W0 52: registers have five bits, a displacement of one byte counts whole operands.
bool DecodeEvex(const Machine& m, Decoded* d) {
  const uint8_t* p = m.rip;
  if (p[0] != 0x62 || (p[1] & 15) != 2 || (p[2] & 3) != 2 || p[4] != 0x52) return false;
  *d = {};
  d->evex = true;
  d->opcode = p[4];
  d->prefix = p[2] & 3;
  d->w = (p[2] & 0x80) != 0;
  d->broadcast = (p[3] & 16) != 0;
  d->masked = (p[3] & 0x87) != 0;
  d->length_code = p[3] >> 5 & 3;
  const bool x = (p[1] & 0x40) == 0, b = (p[1] & 0x20) == 0;
  d->vvvv = (~(p[2] >> 3) & 15) | ((p[3] & 8) == 0 ? 16 : 0);
  d->modrm = p[5];
  d->reg = ((p[5] >> 3) & 7) | ((p[1] & 0x80) == 0 ? 8 : 0) | ((p[1] & 16) == 0 ? 16 : 0);
  d->is_register = p[5] >> 6 == 3;
  size_t operand = 1;
  if (d->is_register) {
    d->rm = (p[5] & 7) | (b ? 8 : 0) | (x ? 16 : 0);
  } else {
    operand = DecodeMemory(m, p + 5, x, b, d->broadcast ? 4 : 64, d);
  }
  d->length = 5 + operand;
  return true;
}

bool Decode(const Machine& m, Decoded* d) {
  const uint8_t* p = m.rip;
  if (DecodeEvex(m, d)) return true;
  if (p[0] != 0xC4 || (p[1] & 31) != 2) return false;
  *d = {};
  d->opcode = p[3];
  const bool r = (p[1] & 0x80) == 0, x = (p[1] & 0x40) == 0, b = (p[1] & 0x20) == 0;
  d->w = (p[2] & 0x80) != 0;
  d->vvvv = ~(p[2] >> 3) & 15;
  d->wide = (p[2] & 4) != 0;
  d->prefix = p[2] & 3;
  const bool tile = d->opcode == 0x49 || d->opcode == 0x4B || d->opcode == 0x5E || d->opcode == 0x5C;
  const bool vnni = d->opcode == 0x50 && d->prefix == 1 && d->wide;
  if (!tile && !vnni) return false;
  d->modrm = p[4];
  d->reg = ((p[4] >> 3) & 7) | (r ? 8 : 0);
  d->is_register = p[4] >> 6 == 3;
  size_t operand = 1;
  if (d->is_register) {
    d->rm = (p[4] & 7) | (b ? 8 : 0);
  } else {
    operand = DecodeMemory(m, p + 4, x, b, 1, d);
  }
  d->length = 4 + operand;
  return true;
}

std::string LoadConfig(const uint8_t* p, TileFile* tiles) {
  if (p[0] == 0) {
    *tiles = {};
    return "";
  }
  if (p[0] != 1) return std::format("LDTILECFG of palette {}: only 0 and 1 exist", p[0]);
  if (p[1] != 0) return std::format("LDTILECFG with start row {}: a configuration begins at row 0", p[1]);
  for (int i = 2; i < 64; ++i) {
    const bool reserved = i < 16 || (i >= 32 && i < 48) || i >= 56;
    if (reserved && p[i] != 0) return std::format("LDTILECFG with reserved byte {} = {}", i, p[i]);
  }
  TileFile next{};
  next.configured = true;
  for (int t = 0; t < 8; ++t) {
    std::memcpy(&next.row_bytes[t], p + 16 + 2 * t, 2);
    next.rows[t] = p[48 + t];
    if (next.rows[t] > 16 || next.row_bytes[t] > 64 || (next.rows[t] == 0) != (next.row_bytes[t] == 0)) {
      return std::format("LDTILECFG gives tile {} {} rows of {} bytes", t, next.rows[t], next.row_bytes[t]);
    }
  }
  *tiles = next;
  return "";
}

void StoreConfig(const TileFile& tiles, uint8_t* p) {
  std::memset(p, 0, 64);
  if (!tiles.configured) return;
  p[0] = 1;
  std::memcpy(p + 16, tiles.row_bytes, 16);
  std::memcpy(p + 48, tiles.rows, 8);
}

std::string CheckTile(const TileFile& tiles, int tile, const char* what) {
  if (!tiles.configured) return std::format("{} before LDTILECFG", what);
  if (tile > 7) return std::format("{} of tile {}", what, tile);
  if (tiles.rows[tile] == 0) return std::format("{} of tile {}, which has no rows", what, tile);
  return "";
}

std::string ConfigInstruction(const Decoded& d, TileFile* tiles) {
  if (!d.is_register) {
    if (d.prefix > 1) return "unknown form of opcode 49";
    auto* p = reinterpret_cast<uint8_t*>(d.base + d.stride);
    if (d.reg != 0) return "LDTILECFG or STTILECFG with a register operand";
    if (d.prefix == 0) return LoadConfig(p, tiles);
    StoreConfig(*tiles, p);
    return "";
  }
  if (d.prefix == 0 && d.modrm == 0xC0) {
    *tiles = {};
    return "";
  }
  if (d.prefix != 3 || d.rm != 0) return "unknown form of opcode 49";
  std::string problem = CheckTile(*tiles, d.reg, "TILEZERO");
  if (problem.empty()) std::memset(tiles->data[d.reg], 0, sizeof(tiles->data[0]));
  return problem;
}

std::string MoveInstruction(const Decoded& d, TileFile* tiles) {
  const char* what = d.prefix == 2 ? "TILESTORED" : d.prefix == 1 ? "TILELOADDT1" : "TILELOADD";
  if (d.prefix == 0 || d.is_register || !d.has_sib) return std::format("{} without a base and stride in memory", what);
  std::string problem = CheckTile(*tiles, d.reg, what);
  if (!problem.empty()) return problem;
  auto& tile = tiles->data[d.reg];
  const size_t bytes = tiles->row_bytes[d.reg];
  if (bytes % 4 != 0) return std::format("{} of tile {}, which has rows of {} bytes", what, d.reg, bytes);
  if (d.prefix != 2) std::memset(tile, 0, sizeof(tile));
  for (int r = 0; r < tiles->rows[d.reg]; ++r) {
    auto* p = reinterpret_cast<uint8_t*>(d.base + d.stride * static_cast<uint64_t>(r));
    d.prefix == 2 ? std::memcpy(p, tile[r], bytes) : std::memcpy(tile[r], p, bytes);
  }
  return "";
}

std::string CheckDot(const Decoded& d, const TileFile& t, const char* what) {
  for (int tile : {d.reg, d.rm, d.vvvv}) {
    std::string problem = CheckTile(t, tile, what);
    if (!problem.empty()) return problem;
    if (t.row_bytes[tile] % 4 != 0)
      return std::format("{}: tile {} has rows of {} bytes", what, tile, t.row_bytes[tile]);
  }
  if (d.reg == d.rm || d.reg == d.vvvv || d.rm == d.vvvv) {
    return std::format("{} with one tile twice: {}, {}, {}", what, d.reg, d.rm, d.vvvv);
  }
  if (t.rows[d.reg] != t.rows[d.rm]) {
    return std::format("{}: {} rows of sums, {} of A", what, t.rows[d.reg], t.rows[d.rm]);
  }
  if (t.row_bytes[d.rm] / 4 != t.rows[d.vvvv]) {
    return std::format("{}: {} quads in A, {} rows in B", what, t.row_bytes[d.rm] / 4, t.rows[d.vvvv]);
  }
  if (t.row_bytes[d.reg] != t.row_bytes[d.vvvv]) {
    return std::format("{}: {} bytes a row of sums, {} of B", what, t.row_bytes[d.reg], t.row_bytes[d.vvvv]);
  }
  return "";
}

int32_t Extend(uint8_t v, bool is_signed) { return is_signed ? static_cast<int8_t>(v) : v; }

std::string DotInstruction(const Decoded& d, TileFile* tiles) {
  static constexpr const char* kNames[] = {"TDPBUUD", "TDPBUSD", "TDPBSUD", "TDPBSSD"};
  std::string problem = d.is_register ? CheckDot(d, *tiles, kNames[d.prefix]) : "tile dot product with memory operand";
  if (!problem.empty()) return problem;
  const bool a_signed = d.prefix >= 2, b_signed = d.prefix % 2 == 1;
  const int columns = tiles->row_bytes[d.reg] / 4, quads = tiles->row_bytes[d.rm] / 4;
  for (int m = 0; m < tiles->rows[d.reg]; ++m) {
    uint32_t sums[16];
    std::memcpy(sums, tiles->data[d.reg][m], sizeof(sums));
    for (int k = 0; k < quads; ++k) {
      const uint8_t* a = tiles->data[d.rm][m] + 4 * k;
      const uint8_t* b = tiles->data[d.vvvv][k];
      for (int n = 0; n < columns; ++n) {
        for (int i = 0; i < 4; ++i) {
          sums[n] += static_cast<uint32_t>(Extend(a[i], a_signed) * Extend(b[4 * n + i], b_signed));
        }
      }
    }
    std::memcpy(tiles->data[d.reg][m], sums, sizeof(sums));
  }
  return "";
}

// Subnormal numbers are 0, in and out (DAZ and FTZ whatever MXCSR says).
float Flush(float x) { return std::fpclassify(x) == FP_SUBNORMAL ? std::copysign(0.0f, x) : x; }
float FromBf16(const uint8_t* p) {
  uint8_t bytes[4] = {0, 0, p[0], p[1]};
  float f;
  std::memcpy(&f, bytes, 4);
  return Flush(f);
}

// The pseudo-code of the manual: two chains of fused multiply-adds, their sum, and its sum with C.
std::string Bf16Instruction(const Decoded& d, TileFile* tiles) {
  if (d.prefix != 2) return "unknown form of opcode 5C";
  std::string problem = d.is_register ? CheckDot(d, *tiles, "TDPBF16PS") : "tile dot product with memory operand";
  if (!problem.empty()) return problem;
  const int columns = tiles->row_bytes[d.reg] / 4, pairs = tiles->row_bytes[d.rm] / 4;
  for (int m = 0; m < tiles->rows[d.reg]; ++m) {
    for (int n = 0; n < columns; ++n) {
      float even = 0.0f, odd = 0.0f, sum;
      for (int k = 0; k < pairs; ++k) {
        const uint8_t* a = tiles->data[d.rm][m] + 4 * k;
        const uint8_t* b = tiles->data[d.vvvv][k] + 4 * n;
        even = Flush(std::fma(FromBf16(a), FromBf16(b), even));
        odd = Flush(std::fma(FromBf16(a + 2), FromBf16(b + 2), odd));
      }
      std::memcpy(&sum, tiles->data[d.reg][m] + 4 * n, 4);
      sum = Flush(Flush(sum) + Flush(even + odd));
      std::memcpy(tiles->data[d.reg][m] + 4 * n, &sum, 4);
    }
  }
  return "";
}

std::string VectorDot(const Decoded& d, Machine* m) {
  if (d.w) return "VPDPBUSD with VEX.W 1";
  const uint8_t* a = m->zmm[d.vvvv];
  const uint8_t* b = d.is_register ? m->zmm[d.rm] : reinterpret_cast<const uint8_t*>(d.base + d.stride);
  uint32_t sums[8];
  std::memcpy(sums, m->zmm[d.reg], sizeof(sums));
  for (int i = 0; i < 32; ++i) sums[i / 4] += static_cast<uint32_t>(a[i] * static_cast<int8_t>(b[i]));
  std::memset(m->zmm[d.reg], 0, 64);  // a VEX instruction zeroes what lies above its result
  std::memcpy(m->zmm[d.reg], sums, sizeof(sums));
  m->vectors_changed = true;
  return "";
}

struct BfPair {
  float upper, lower;
};
BfPair PairAt(const uint8_t* p) { return {FromBf16(p + 2), FromBf16(p)}; }

float Truncated(double exact) {
  auto rounded = static_cast<float>(exact);
  if (std::fabs(static_cast<double>(rounded)) > std::fabs(exact)) rounded = std::nextafter(rounded, 0.0f);
  return rounded;
}

// The pseudo-code of the manual: the product of the upper halves is added, then that of the lower ones, each by an FMA. The
// other orders are for numbers of one magnitude, whose sums are exact in double.
float AddPair(PairOrder order, float sum, BfPair a, BfPair b) {
  const double upper = static_cast<double>(a.upper) * b.upper, lower = static_cast<double>(a.lower) * b.lower;
  switch (order) {
    case PairOrder::kManual:
      break;
    case PairOrder::kSwapped:
      return AddPair(PairOrder::kManual, sum, {a.lower, a.upper}, {b.lower, b.upper});
    case PairOrder::kProductsFirst:
      return sum + static_cast<float>(upper + lower);
    case PairOrder::kRoundedOnce:
      return static_cast<float>(sum + upper + lower);
    case PairOrder::kTruncated:
      return Truncated(Truncated(sum + upper) + lower);
  }
  return Flush(std::fma(a.lower, b.lower, Flush(std::fma(a.upper, b.upper, Flush(sum)))));
}

std::string PairDot(const Decoded& d, Machine* m) {
  if (d.w || d.length_code != 2 || d.masked || (d.broadcast && d.is_register)) {
    return "VDPBF16PS in a form that is not known here: with a mask, or not zmm";
  }
  if (!m->has_zmm) return "VDPBF16PS zmm without zmm registers";
  const uint8_t* a = m->zmm[d.vvvv];
  const uint8_t* b = d.is_register ? m->zmm[d.rm] : reinterpret_cast<const uint8_t*>(d.base + d.stride);
  float sums[16];
  std::memcpy(sums, m->zmm[d.reg], sizeof(sums));
  for (int i = 0; i < 16; ++i) {
    sums[i] = AddPair(m->pair_order, sums[i], PairAt(a + 4 * i), PairAt(d.broadcast ? b : b + 4 * i));
  }
  std::memcpy(m->zmm[d.reg], sums, sizeof(sums));
  m->vectors_changed = true;
  return "";
}

}  // namespace

Outcome Execute(Machine& machine) {
  Decoded d;
  Outcome outcome;
  if (!Decode(machine, &d)) return outcome;
  outcome.known = true;
  outcome.length = d.length;
  if (d.opcode == 0x50 || d.evex) {
    outcome.problem = d.evex ? PairDot(d, &machine) : VectorDot(d, &machine);
    return outcome;
  }
  outcome.is_tile = true;
  if (d.wide || d.w) {
    outcome.problem = "tile instruction with VEX.L or VEX.W 1";
  } else if (d.opcode != 0x5E && d.opcode != 0x5C && d.vvvv != 0) {
    outcome.problem = "tile instruction with a third operand that it does not have";
  } else if (d.opcode == 0x49) {
    outcome.problem = ConfigInstruction(d, machine.tiles);
  } else if (d.opcode == 0x4B) {
    outcome.problem = MoveInstruction(d, machine.tiles);
  } else if (d.opcode == 0x5C) {
    outcome.problem = Bf16Instruction(d, machine.tiles);
  } else {
    outcome.problem = DotInstruction(d, machine.tiles);
  }
  return outcome;
}

}  // namespace octavo::trap
