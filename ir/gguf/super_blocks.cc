// Where the bits of a code lie. q: the byte arrays of low bits; h: of high bits.
//
//   Q4_0, Q5_0   32 codes: byte j has the low 4 bits of codes j and j + 16; bit j of h is bit 4 of code j
//   Q2_K, Q3_K   two halves of 128 codes with 32 bytes each: bits 2 i and 2 i + 1 of byte l are code 32 i + l; bit 4 * half + i of h[l] is bit 2
//   Q4_K, Q5_K   four quarters of 64 codes with 32 bytes each: the low 4 bits of byte l are code l, the high ones code 32 + l; bits 2 quarter and
//                2 quarter + 1 of h[l] are their bit 4
//   Q6_K         two halves of 128 codes with 64 bytes each: low 4 bits of bytes l and 32 + l are codes l and 32 + l, the high ones codes 64 + l and
//                96 + l; bits 2 i and 2 i + 1 of h[l] are bits 4 and 5 of code 32 i + l
//   IQ4_NL, MXFP4, IQ4_XS (for each 32)   as Q4_0, but a code is a place in a table: 16 steps that grow with the distance from 0, or
//                the values of a float of 4 bits, doubled
#include "octavo/ir/gguf/super_blocks.h"

#include <cmath>

#include "octavo/quant/numeric/float16.h"

namespace octavo::ir::gguf {

namespace {

int8_t Code(int value) { return static_cast<int8_t>(value); }

constexpr int8_t kSteps[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
constexpr int8_t kFloats4[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

// 32 places in a table, of 4 bits.
void ReadPlaces(const int8_t (&table)[16], const uint8_t* q, int8_t* codes) {
  for (int k = 0; k < 32; ++k) codes[k] = table[q[k % 16] >> (k / 16 * 4) & 15];
}

// Half d, the upper 2 bits of 8 scales, their lower 4, codes.
void ReadIQ4XS(const uint8_t* in, Block& out) {
  const float d = Half(in);
  const int high = in[2] | in[3] << 8;
  for (int i = 0; i < 8; ++i) {
    const int scale = (in[4 + i / 2] >> (i % 2 * 4) & 15) | (high >> (2 * i) & 3) << 4;
    out.scales[i] = d * static_cast<float>(scale - 32);
    ReadPlaces(kSteps, in + 8 + 16 * i, out.codes + 32 * i);
  }
}

// Scales and mins of Q4_K and Q5_K: eight pairs of 6 bits in 12 bytes. The first four have bytes of their own, whose upper bits are those of the last.
void ReadScalesAndMins(const uint8_t* in, float d, Block& out) {
  for (int i = 0; i < 8; ++i) {
    const int scale = i < 4 ? in[i] & 63 : (in[i + 4] & 15) | (in[i - 4] >> 6 << 4);
    const int min = i < 4 ? in[i + 4] & 63 : (in[i + 4] >> 4) | (in[i] >> 6 << 4);
    out.scales[i] = d * static_cast<float>(scale);
    out.mins[2 * i] = out.mins[2 * i + 1] = Code(min);
  }
}

void ReadQ2K(const uint8_t* in, Block& out) {
  const uint8_t* q = in + 16;
  const float d = Half(in + 80);
  out.min_scale = Half(in + 82);
  for (int i = 0; i < 16; ++i) {
    out.scales[i] = d * static_cast<float>(in[i] & 15);
    out.mins[i] = Code(in[i] >> 4);
  }
  for (int k = 0; k < 256; ++k) out.codes[k] = Code(q[k / 128 * 32 + k % 32] >> (k % 128 / 32 * 2) & 3);
}

void ReadQ3K(const uint8_t* in, Block& out) {
  const uint8_t *h = in, *q = in + 32, *s = in + 96;
  const float d = Half(in + 108);
  for (int i = 0; i < 16; ++i) {  // 4 low bits in the first 8 bytes, 2 high ones in the last 4
    const int low = (i < 8 ? s[i] : s[i - 8] >> 4) & 15;
    const int high = s[8 + i % 4] >> (i / 4 * 2) & 3;
    out.scales[i] = d * static_cast<float>((low | high << 4) - 32);
  }
  for (int k = 0; k < 256; ++k) {
    const int bit = h[k % 32] >> (k / 32) & 1;
    out.codes[k] = Code((q[k / 128 * 32 + k % 32] >> (k % 128 / 32 * 2) & 3) + (bit << 2) - 4);
  }
}

void ReadQ4K(const uint8_t* in, Block& out) {
  const uint8_t* q = in + 16;
  out.min_scale = Half(in + 2);
  ReadScalesAndMins(in + 4, Half(in), out);
  for (int k = 0; k < 256; ++k) out.codes[k] = Code(q[k / 64 * 32 + k % 32] >> (k % 64 / 32 * 4) & 15);
}

void ReadQ5K(const uint8_t* in, Block& out) {
  const uint8_t *h = in + 16, *q = in + 48;
  out.min_scale = Half(in + 2);
  ReadScalesAndMins(in + 4, Half(in), out);
  for (int k = 0; k < 256; ++k) {
    const int low = q[k / 64 * 32 + k % 32] >> (k % 64 / 32 * 4) & 15;
    out.codes[k] = Code(low | (h[k % 32] >> (k / 32) & 1) << 4);
  }
}

void ReadQ6K(const uint8_t* in, Block& out) {
  const uint8_t *q = in, *h = in + 128, *s = in + 192;
  const float d = Half(in + 208);
  for (int i = 0; i < 16; ++i) out.scales[i] = d * static_cast<float>(static_cast<int8_t>(s[i]));
  for (int k = 0; k < 256; ++k) {
    const int low = q[k / 128 * 64 + k % 64] >> (k % 128 / 64 * 4) & 15;
    out.codes[k] = Code((low | (h[k / 128 * 32 + k % 32] >> (k % 128 / 32 * 2) & 3) << 4) - 32);
  }
}

}  // namespace

float Half(const uint8_t* at) { return quant::F16ToF32(static_cast<uint16_t>(at[0] | at[1] << 8)); }

void ReadBlock(Type type, const uint8_t* in, Block& out) {
  if (type == Type::kMXFP4) {  // the scale is a power of two, and half of it makes up for the table
    out.scales[0] = std::ldexp(1.0f, in[0] - 128);
    return ReadPlaces(kFloats4, in + 1, out.codes);
  }
  out.scales[0] = Half(in);
  if (type == Type::kIQ4_NL) return ReadPlaces(kSteps, in + 2, out.codes);
  for (int k = 0; k < 32; ++k) {
    if (type == Type::kQ8_0) {
      out.codes[k] = static_cast<int8_t>(in[2 + k]);
      continue;
    }
    const uint8_t* q = in + (type == Type::kQ5_0 ? 6 : 2);
    const int low = q[k % 16] >> (k / 16 * 4) & 15;
    out.codes[k] = type == Type::kQ5_0 ? Code((low | (in[2 + k / 8] >> (k % 8) & 1) << 4) - 16) : Code(low - 8);
  }
}

void ReadSuperBlock(Type type, const uint8_t* in, Block& out) {
  switch (type) {
    case Type::kQ2_K:
      return ReadQ2K(in, out);
    case Type::kQ3_K:
      return ReadQ3K(in, out);
    case Type::kQ4_K:
      return ReadQ4K(in, out);
    case Type::kQ5_K:
      return ReadQ5K(in, out);
    case Type::kIQ4_XS:
      return ReadIQ4XS(in, out);
    default:
      return ReadQ6K(in, out);
  }
}

}  // namespace octavo::ir::gguf
