// Int8 attention right at the number of keys where the int32 sums of the exact form end, and far beyond: no run ends there.
#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "octavo/ir/functions.h"
#include "octavo/runtime/model.h"
#include "sdpa_truth.h"

namespace octavo::runtime {
namespace {

using ir::DType;
using ir::Shape;
using ir::Tensor;
using kernels::SdpaInt8Args;
using kernels::SdpaScoreCodes;

constexpr int64_t kHeads = 2, kSize = 8, kValueSize = 4;

Tensor Codes(DType type, const Shape& shape, std::mt19937& gen) {
  Tensor t = Tensor::Zeros(type, shape);
  auto* bytes = reinterpret_cast<uint8_t*>(t.mutable_data());
  for (int64_t i = 0; i < t.size(); ++i) bytes[i] = static_cast<uint8_t>(gen());
  return t;
}

struct Case {
  SdpaInt8Args args;
  ir::TensorMap inputs;
};

Case Make(int64_t rows, int64_t keys, int way, uint32_t seed) {
  Case c;
  std::mt19937 gen(seed);
  SdpaInt8Args& a = c.args;
  a.q_scale = 0.012f, a.k_scale = 0.013f, a.v_scale = 0.02f, a.scale = 0.35f;
  a.q_zero_point = 120, a.k_zero_point = 131, a.v_zero_point = way % 2 == 0 ? 128 : 0;
  a.p_scale = 1 / 255.0f, a.p_zero_point = way == 4 ? 128 : 0;
  if (way == 1 || way == 5) a.p_relative = true, a.p_diffused = way == 5;
  if (way == 2) {
    a.product_codes = {DType::kU8, 0.11f, 120}, a.scaled_codes = {DType::kU8, 0.07f, 130}, a.divisor = 1.7f;
    a.prob_codes = {DType::kU8, 1 / 255.0f, 0};
    a.product_codes.step = 0.113f, a.p_step = 1.0f, a.v_scale = 7e-5f;
  }
  if (way == 3) a.visibility.window = {30000, 0, true};
  a.shape = {1, kHeads, 1, rows, keys, kSize, kValueSize};
  a.q_strides = {kHeads * rows * kSize, rows * kSize, kSize}, a.k_strides = {keys * kSize, keys * kSize, kSize};
  a.v_strides = {keys * kValueSize, keys * kValueSize, kValueSize};
  a.o_strides = {kHeads * rows * kValueSize, rows * kValueSize, kValueSize};
  c.inputs["q"] = Codes(DType::kU8, {1, kHeads, rows, kSize}, gen);
  c.inputs["k"] = Codes(DType::kU8, {1, 1, keys, kSize}, gen),
  c.inputs["v"] = Codes(DType::kU8, {1, 1, keys, kValueSize}, gen);
  a.q = c.inputs["q"].data(), a.k = c.inputs["k"].data(), a.v = c.inputs["v"].data();
  return c;
}

ir::Graph GraphOf(const SdpaInt8Args& a) {
  ir::Graph g;
  g.info.opsets[""] = 21;
  const auto input = [&](const char* name, int64_t heads, const char* rows, int64_t size) {
    return g.AddInput(name, {DType::kU8, ir::SymShape{1, heads, ir::Dim::Symbol(rows), size}});
  };
  std::vector<ir::ValueId> in = {input("q", kHeads, "rows", kSize), input("k", 1, "keys", kSize),
                                 input("v", 1, "keys", kValueSize)};
  const auto pair = [&](float scale, int32_t zero) {
    Tensor z = Tensor::Zeros(DType::kU8, {});
    z.mutable_as<uint8_t>()[0] = static_cast<uint8_t>(zero);
    in.push_back(g.AddConstant(Tensor::ScalarF32(scale))), in.push_back(g.AddConstant(z));
  };
  pair(a.q_scale, a.q_zero_point), pair(a.k_scale, a.k_zero_point), pair(a.v_scale, a.v_zero_point),
      pair(a.p_scale, a.p_zero_point);
  in.resize(ir::kSdpaProductCodes);
  for (const SdpaScoreCodes& codes : {a.product_codes, a.scaled_codes, a.masked_codes, a.prob_codes}) {
    codes.exist() ? pair(codes.scale, codes.zero_point) : in.resize(in.size() + 2);
  }
  ir::Attrs attrs = {{"num_heads", kHeads},
                     {"kv_num_heads", int64_t{1}},
                     {"head_dim", kSize},
                     {"v_head_dim", kValueSize},
                     {"scale", a.scale},
                     {"divisor", a.divisor},
                     {"product_step", a.product_codes.step},
                     {"p_step", a.p_step},
                     {"p_relative", int64_t{a.p_relative} + int64_t{a.p_diffused}}};
  attrs.Set("window_left", a.visibility.window.left), attrs.Set("window_right", a.visibility.window.right);
  attrs.Set("bottom_right", int64_t{a.visibility.window.bottom_right});
  g.AddOutput("y", g.node(g.AddNode(ir::Op::kQuantizedSdpa, std::move(in), 1, attrs)).output());
  return g;
}

TEST(LongKeys, NoRunEndsAtTheLimitAndBeyondItFlashServes) {
  double largest = 0;
  for (int way = 0; way < 6; ++way) {
    const Case any = Make(1, 1, way, 1);
    const auto model = Model::Compile(GraphOf(any.args), {.threads = 2});
    const auto plain = Model::Compile(GraphOf(any.args), {.threads = 1, .kernels = false});
    ASSERT_TRUE(model.has_value() && plain.has_value()) << model.error().message;
    ASSERT_EQ(model->KernelOfEachStep()[0].find("sdpa_int8"), 0u) << model->KernelOfEachStep()[0];
    const int64_t most = kernels::SdpaMostKeys(any.args);
    for (const int64_t rows : {1, 4, 5, 19}) {  // one row, those of a kv head that decode, one more, blocks
      for (const int64_t keys : {most - 1, most, most + 1, int64_t{32768}, int64_t{66000}, int64_t{131072}}) {
        if (rows == 19 && keys > most + 1) continue;
        SCOPED_TRACE(std::to_string(keys) + " keys, " + std::to_string(rows) + " rows, way " + std::to_string(way));
        const Case c = Make(rows, keys, way, static_cast<uint32_t>(keys + rows));
        const auto got = model->Run(c.inputs);
        ASSERT_TRUE(got.has_value()) << got.error().message;
        const auto* bytes = reinterpret_cast<const uint8_t*>((*got)[0].data());
        if (keys > most) {
          kernels::SdpaInt8Args real = c.args;
          if (real.p_step != 0) real.v_scale *= real.p_step / real.p_scale;
          kernels::ExpectNearTruth(real, {bytes, bytes + (*got)[0].byte_size()}, &largest);
        } else if (rows <= 4) {
          const auto want = plain->Run(c.inputs);
          ASSERT_TRUE(want.has_value()) << want.error().message;
          EXPECT_TRUE((*got)[0].SameBits((*want)[0]));
        }
        if (HasFailure()) return;
      }
    }
  }
  EXPECT_GT(largest, 0.02);
}

}  // namespace
}  // namespace octavo::runtime
