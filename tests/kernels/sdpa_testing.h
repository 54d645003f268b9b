// Random attention problems, and what the attention tests compare.
#ifndef OCTAVO_TESTS_KERNELS_SDPA_TESTING_H_
#define OCTAVO_TESTS_KERNELS_SDPA_TESTING_H_

#include <bit>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "octavo/kernels/sdpa/sdpa.h"
#include "testing.h"

namespace octavo::kernels {

using quant::DType;

inline constexpr float kInf = std::numeric_limits<float>::infinity();

// 64-byte aligned, with a fence behind it that must stay as it is.
class Buffer {
 public:
  explicit Buffer(size_t bytes) : bytes_((bytes + 63) / 64 * 64) {
    data_.reset(static_cast<uint8_t*>(std::aligned_alloc(64, bytes_ + 64)));
    std::memset(data_.get(), 0xA5, bytes_ + 64);  // a NaN-like, non-zero filling: nothing may rely on cleared memory
  }
  void* data() { return data_.get(); }
  bool FenceStands() const {
    for (size_t i = 0; i < 64; ++i) {
      if (data_.get()[bytes_ + i] != 0xA5) return false;
    }
    return true;
  }

 private:
  struct Free {
    void operator()(uint8_t* p) const { std::free(p); }
  };
  size_t bytes_;
  std::unique_ptr<uint8_t, Free> data_;
};

struct Problem {
  SdpaShape shape;
  std::vector<uint8_t> q8, k8, v8;
  std::vector<float> qf, kf, vf, mask;
  SdpaInt8Args int8;
  SdpaFloatArgs real;
  size_t out_elements = 0;
};

inline SdpaStrides Strides(bool head_first, int64_t heads, int64_t rows, int64_t width) {
  return head_first ? SdpaStrides{heads * rows * width, rows * width, width}
                    : SdpaStrides{heads * rows * width, width, heads * width};
}

template <typename Args>
void SetCommon(const Problem& p, std::mt19937& gen, Args* args) {
  const SdpaShape& s = p.shape;
  args->shape = s;
  args->q_strides = Strides(gen() % 2 != 0, s.heads, s.q_len, s.head_size);
  args->k_strides = Strides(gen() % 2 != 0, s.kv_heads, s.k_len, s.head_size);
  args->v_strides = Strides(gen() % 2 != 0, s.kv_heads, s.k_len, s.v_head_size);
  args->o_strides = Strides(gen() % 2 != 0, s.heads, s.q_len, s.v_head_size);
  args->scale = gen() % 2 != 0 ? 1.0f : 1.0f / std::sqrt(static_cast<float>(s.head_size));
  args->softcap = gen() % 3 != 0 ? 0.0f : gen() % 2 != 0 ? 3.0f : 0.5f;
  args->guard = static_cast<SdpaGuard>(gen() % 3);
}

// Kinds of masks: none, padding, causal, relative bias, fully masked rows, one number per row.
inline SdpaMask MakeMask(Problem* p, std::mt19937& gen) {
  const SdpaShape& s = p->shape;
  const auto kind = gen() % 6;
  if (kind == 0) return {};
  SdpaMask m;
  m.col = kind == 5 ? 0 : 1;
  int64_t size = m.col != 0 ? s.k_len : 1;
  const auto add = [&](int64_t count, int64_t* stride) {
    if (count > 1 && gen() % 2 != 0) *stride = size, size *= count;
  };
  if (kind != 1) add(s.q_len, &m.row);
  add(s.heads, &m.head);
  add(s.batch, &m.batch);
  p->mask.resize(size);
  std::normal_distribution<float> normal;
  const float low = gen() % 2 != 0 ? -kInf : -3.4028235e38f;
  for (int64_t i = 0; i < size; ++i) {
    const int64_t j = m.col != 0 ? i % s.k_len : 0, row = i / s.k_len;
    switch (kind) {
      case 1:
        p->mask[i] = j > s.k_len / 2 ? low : 0.0f;
        break;
      case 2:
        p->mask[i] = j > row ? low : 0.0f;
        break;
      case 4:
        p->mask[i] = row % 3 == 1 || gen() % 3 == 0 ? low : 0.0f;
        break;
      default:
        p->mask[i] = normal(gen);
    }
  }
  m.data = p->mask.data();
  return m;
}

inline std::unique_ptr<Problem> MakeProblem(const SdpaShape& shape, uint32_t seed) {
  auto p = std::make_unique<Problem>();
  std::mt19937 gen(seed);
  p->shape = shape;
  const int64_t q = shape.batch * shape.heads * shape.q_len * shape.head_size;
  const int64_t k = shape.batch * shape.kv_heads * shape.k_len * shape.head_size;
  const int64_t v = shape.batch * shape.kv_heads * shape.k_len * shape.v_head_size;
  const auto bytes = [&](int64_t n) {
    std::vector<uint8_t> x(n);
    const bool extreme = gen() % 4 == 0;
    for (uint8_t& b : x) b = static_cast<uint8_t>(extreme ? (gen() % 2 != 0 ? 0x7f : 0x80) + gen() % 2 : gen());
    return x;
  };
  const auto floats = [&](int64_t n) {
    std::normal_distribution<float> normal;
    std::vector<float> x(n);
    for (float& f : x) f = normal(gen);
    return x;
  };
  p->q8 = bytes(q), p->k8 = bytes(k), p->v8 = bytes(v);
  p->qf = floats(q), p->kf = floats(k), p->vf = floats(v);
  const SdpaMask mask = MakeMask(p.get(), gen);
  SetCommon(*p, gen, &p->int8);
  SetCommon(*p, gen, &p->real);
  p->int8.mask = p->real.mask = mask;
  p->int8.q = p->q8.data(), p->int8.k = p->k8.data(), p->int8.v = p->v8.data();
  p->real.q = p->qf.data(), p->real.k = p->kf.data(), p->real.v = p->vf.data();
  p->out_elements = static_cast<size_t>(shape.batch * shape.heads * shape.q_len * shape.v_head_size);
  SdpaInt8Args& a = p->int8;
  const auto kind = [&](DType* type, int32_t* zero) {
    *type = gen() % 2 != 0 ? DType::kU8 : DType::kS8;
    const int32_t lo = *type == DType::kU8 ? 0 : -128;
    const auto at = gen() % 4;
    *zero = at == 0 ? lo : at == 1 ? lo + 255 : at == 2 ? 0 : lo + static_cast<int32_t>(gen() % 256);
  };
  kind(&a.q_type, &a.q_zero_point), kind(&a.k_type, &a.k_zero_point), kind(&a.v_type, &a.v_zero_point);
  kind(&a.p_type, &a.p_zero_point);
  kind(&a.o_type, &a.o_zero_point);
  if (gen() % 3 == 0) a.o_type = DType::kF32;
  const auto uniform = [&](float low, float high) {
    return low + (high - low) * static_cast<float>(gen() % 10007) / 10007;
  };
  // Scores with a spread from flat to one-hot.
  a.q_scale = uniform(0.001f, 0.02f), a.k_scale = uniform(0.001f, 0.02f), a.v_scale = uniform(0.001f, 0.1f);
  constexpr float kProbScales[] = {1 / 255.0f, 1 / 127.0f, 1 / 256.0f, 0.0007f, 1e-5f, 1e-7f, 1e-30f, 1e10f};
  a.p_scale = kProbScales[gen() % 3 != 0 ? gen() % 3 : gen() % 8];
  a.o_scale = uniform(0.001f, 0.1f);
  if (gen() % 3 == 0) a.p_relative = true, a.p_zero_point = a.p_type == DType::kU8 ? 0 : -128;
  if (a.p_relative && gen() % 2 == 0) {
    constexpr float kScales[] = {1 / 255.0f, 1 / 128.0f, 1 / 127.0f, 1 / 3.0f};
    a.p_diffused = true, a.p_scale = kScales[gen() % 4];
  }
  return p;
}

// Codes of scores and probabilities, at some of the four places: ranges that hold the scores, saturate most of them, or leave a code or two.
inline void SetScoreCodes(SdpaInt8Args* a, std::mt19937& gen) {
  constexpr float kScales[] = {0.02f, 0.1f, 0.37f, 3.0f, 1e-4f, 1e-32f, 1e36f, kInf};
  for (SdpaScoreCodes* codes : {&a->product_codes, &a->scaled_codes, &a->masked_codes}) {
    if (gen() % 3 == 0) continue;
    codes->type = gen() % 2 != 0 ? DType::kU8 : DType::kS8;
    codes->scale = kScales[gen() % 4 != 0 ? gen() % 3 : gen() % 8];
    codes->zero_point =
        static_cast<int32_t>(gen() % 4 != 0 ? 60 + gen() % 140 : gen() % 256) - (codes->type == DType::kS8 ? 128 : 0);
  }
  if (gen() % 3 == 0) a->product_codes.step = gen() % 4 != 0 ? 0.043f : kScales[gen() % 8];
  if (!a->p_relative && gen() % 4 == 0) a->p_step = gen() % 2 != 0 ? 1.0f : 0.0113f;
  if (gen() % 4 == 0) a->divisor = gen() % 2 != 0 ? 5.656854f : 0.3f;
  if (gen() % 2 == 0 || a->p_relative) return;
  constexpr float kProbScales[] = {1 / 255.0f, 1 / 256.0f, 1 / 127.0f, 0.02f, 0.0011f};
  a->prob_codes = {DType::kU8, kProbScales[gen() % 5], static_cast<int32_t>(gen() % 3 != 0 ? 0 : gen() % 256)};
  if (gen() % 3 == 0) a->prob_codes.type = DType::kS8, a->prob_codes.zero_point -= 128;
}

template <typename Args>
std::vector<uint8_t> Attend(Arch arch, Args args, size_t out_bytes, bool split) {
  Buffer out(out_bytes), packed(SdpaPackedBytes(arch, args)), scratch(SdpaScratchBytes(arch, args));
  args.o = reinterpret_cast<decltype(args.o)>(out.data());
  const SdpaShape& s = args.shape;
  if (!split) {
    SdpaHeads(arch, args, 0, s.batch * s.heads, packed.data(), scratch.data());
  } else {  // as several threads would, rows in odd pieces
    for (int64_t i = 0; i < s.batch * s.heads; ++i) {
      SdpaPack(arch, args, i / s.heads, i % s.heads / (s.heads / s.kv_heads), packed.data());
      const int64_t cut = s.q_len / 3;
      SdpaRows(arch, args, i / s.heads, i % s.heads, cut, s.q_len, packed.data(), scratch.data());
      SdpaRows(arch, args, i / s.heads, i % s.heads, 0, cut, packed.data(), scratch.data());
    }
  }
  EXPECT_TRUE(out.FenceStands() && packed.FenceStands() && scratch.FenceStands());
  const auto* bytes = static_cast<const uint8_t*>(out.data());
  return {bytes, bytes + out_bytes};
}

// The same bytes; floats: NaN equals NaN.
inline void ExpectSame(const std::vector<uint8_t>& got, const std::vector<uint8_t>& want, bool floats) {
  ASSERT_EQ(got.size(), want.size());
  if (!floats) {
    ASSERT_EQ(got, want);
    return;
  }
  for (size_t i = 0; i < got.size(); i += 4) {
    float a, b;
    std::memcpy(&a, &got[i], 4);
    std::memcpy(&b, &want[i], 4);
    if (std::isnan(a) && std::isnan(b)) continue;
    ASSERT_EQ(std::bit_cast<uint32_t>(a), std::bit_cast<uint32_t>(b)) << "element " << i / 4 << ": " << a << " " << b;
  }
}

struct Hidden {
  std::vector<uint8_t> keep;
  std::vector<float> slopes;
  SdpaVisibility see;
};

inline Hidden MakeHidden(const SdpaShape& s, std::mt19937& gen) {
  Hidden h;
  const auto width = [&] {
    return gen() % 3 == 0 ? int64_t{-1} : static_cast<int64_t>(gen() % (gen() % 2 != 0 ? 4 : 90));
  };
  h.see.window = {width(), gen() % 2 != 0 ? 0 : width(), gen() % 2 != 0};
  constexpr float kValues[] = {-kInf, -3.4028235e38f, -1e4f};
  h.see.hidden_value = kValues[gen() % 3];
  if (gen() % 3 == 0) {
    SdpaBoolMask& k = h.see.keep;
    k.col = gen() % 5 == 0 ? 0 : 1;
    int64_t size = k.col != 0 ? s.k_len : 1;
    const auto add = [&](int64_t count, int64_t* stride) {
      if (count > 1 && gen() % 2 != 0) *stride = size, size *= count;
    };
    add(s.q_len, &k.row), add(s.heads, &k.head), add(s.batch, &k.batch);
    h.keep.resize(static_cast<size_t>(size));
    for (int64_t i = 0; i < size; ++i) h.keep[i] = (i / s.k_len) % 4 != 1 && gen() % 3 != 0 ? 1 + gen() % 2 * 254 : 0;
    k.data = h.keep.data();
  }
  if (gen() % 3 == 0) {
    for (int64_t i = 0; i < s.heads; ++i) h.slopes.push_back(std::exp2(-static_cast<float>(gen() % 80) / 10.0f));
    h.see.alibi = h.slopes.data();
  }
  return h;
}

}  // namespace octavo::kernels

#endif  // OCTAVO_TESTS_KERNELS_SDPA_TESTING_H_
