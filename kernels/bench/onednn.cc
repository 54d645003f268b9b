#include "octavo/kernels/bench/onednn.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <oneapi/dnnl/dnnl.hpp>
#include <unordered_map>

#include "octavo/kernels/conv/onednn.h"

namespace octavo::kernels::bench {
namespace {

using dnnl::memory;
using dt = memory::data_type;
using tag = memory::format_tag;
using Args = std::unordered_map<int, memory>;

template <typename T>
memory Filled(const dnnl::engine& engine, const memory::desc& desc, T value) {
  memory m(desc, engine);
  auto* p = static_cast<T*>(m.get_data_handle());
  for (size_t i = 0; i < desc.get_size() / sizeof(T); ++i) p[i] = value;
  return m;
}

}  // namespace

bool LimitOneDnn(Arch arch) {
  dnnl::cpu_isa isa = dnnl::cpu_isa::isa_default;
  if (arch == Arch::kAvx2) isa = dnnl::cpu_isa::avx2;
  if (arch == Arch::kAvxVnni) isa = dnnl::cpu_isa::avx2_vnni;
  if (arch == Arch::kAvx512) isa = dnnl::cpu_isa::avx512_core;
  if (arch == Arch::kAvx512Vnni) isa = dnnl::cpu_isa::avx512_core_vnni;
  return dnnl::set_max_cpu_isa(isa) == dnnl::status::success;
}

struct OneDnnInt8::State {
  dnnl::engine engine{dnnl::engine::kind::cpu, 0};
  dnnl::stream stream{engine};
  dnnl::matmul primitive;
  Args args;
  int right = 0;  // code
};

OneDnnInt8::OneDnnInt8(int64_t m, int64_t k, int64_t n, int8_t weight) : state_(std::make_unique<State>()) {
  const onednn::OneThread alone;
  const dnnl::engine& engine = state_->engine;
  dnnl::primitive_attr attr;
  attr.set_scales_mask(DNNL_ARG_SRC, 0);
  attr.set_scales_mask(DNNL_ARG_WEIGHTS, 1 << 1);
  attr.set_scales_mask(DNNL_ARG_DST, 0);
  attr.set_zero_points_mask(DNNL_ARG_SRC, 0);
  attr.set_zero_points_mask(DNNL_ARG_DST, 0);
  const dnnl::matmul::primitive_desc desc(engine, {{m, k}, dt::u8, tag::ab}, {{k, n}, dt::s8, tag::any},
                                          {{1, n}, dt::f32, tag::ab}, {{m, n}, dt::u8, tag::ab}, attr);
  state_->primitive = dnnl::matmul(desc);
  const auto filled = [&](const memory::desc& d, auto value) { return Filled(engine, d, value); };
  // Reordered, not filled: behind the weights of AMX stand the sums that their zero point needs.
  memory plain = filled({{k, n}, dt::s8, tag::ab}, weight);
  memory weights(desc.weights_desc(), engine);
  dnnl::reorder(plain, weights).execute(state_->stream, plain, weights);
  state_->stream.wait();
  const float sum = static_cast<float>(k) * (255 - 128) * static_cast<float>(weight),
              dst_scale = sum * (0.02f * 0.01f) / 100;
  state_->right = 120 + static_cast<int>(std::lround((sum * (0.02f * 0.01f) + 0.5f) / dst_scale));
  state_->args = {
      {DNNL_ARG_SRC, filled(desc.src_desc(), uint8_t{255})},
      {DNNL_ARG_WEIGHTS, weights},
      {DNNL_ARG_BIAS, filled(desc.bias_desc(), 0.5f)},
      {DNNL_ARG_DST, memory(desc.dst_desc(), engine)},
      {DNNL_ARG_ATTR_SCALES | DNNL_ARG_SRC, filled({{1}, dt::f32, tag::x}, 0.02f)},
      {DNNL_ARG_ATTR_SCALES | DNNL_ARG_WEIGHTS, filled({{n}, dt::f32, tag::x}, 0.01f)},
      {DNNL_ARG_ATTR_SCALES | DNNL_ARG_DST, filled({{1}, dt::f32, tag::x}, dst_scale)},
      {DNNL_ARG_ATTR_ZERO_POINTS | DNNL_ARG_SRC, filled({{1}, dt::s32, tag::x}, int32_t{128})},
      {DNNL_ARG_ATTR_ZERO_POINTS | DNNL_ARG_DST, filled({{1}, dt::s32, tag::x}, int32_t{120})},
  };
}

OneDnnInt8::~OneDnnInt8() = default;

void OneDnnInt8::Run() {
  const onednn::OneThread alone;
  const onednn::SignalsHeld held;
  state_->primitive.execute(state_->stream, state_->args);
  state_->stream.wait();
}

int OneDnnInt8::CodesOff() const {
  const memory& dst = state_->args.at(DNNL_ARG_DST);
  const auto* codes = static_cast<const uint8_t*>(dst.get_data_handle());
  int worst = 0;
  for (size_t i = 0; i < dst.get_desc().get_size(); ++i) worst = std::max(worst, std::abs(codes[i] - state_->right));
  return worst;
}

struct OneDnnFloat::State {
  dnnl::engine engine{dnnl::engine::kind::cpu, 0};
  dnnl::stream stream{engine};
  dnnl::matmul primitive;
  Args args;
};

OneDnnFloat::OneDnnFloat(int64_t m, int64_t k, int64_t n, bool bias) : state_(std::make_unique<State>()) {
  const onednn::OneThread alone;
  const dnnl::engine& engine = state_->engine;
  const memory::desc x({m, k}, dt::f32, tag::ab), w({k, n}, dt::f32, tag::any), b({1, n}, dt::f32, tag::ab),
      y({m, n}, dt::f32, tag::ab);
  const auto desc =
      bias ? dnnl::matmul::primitive_desc(engine, x, w, b, y) : dnnl::matmul::primitive_desc(engine, x, w, y);
  state_->primitive = dnnl::matmul(desc);
  state_->args = {{DNNL_ARG_SRC, Filled(engine, x, 0.5f)},
                  {DNNL_ARG_WEIGHTS, Filled(engine, desc.weights_desc(), 0.25f)},
                  {DNNL_ARG_DST, memory(y, engine)}};
  if (bias) state_->args.insert({DNNL_ARG_BIAS, Filled(engine, b, 0.5f)});
}

OneDnnFloat::~OneDnnFloat() = default;

void OneDnnFloat::Run() {
  const onednn::OneThread alone;
  const onednn::SignalsHeld held;
  state_->primitive.execute(state_->stream, state_->args);
  state_->stream.wait();
}

struct OneDnnAttention::State {
  dnnl::engine engine{dnnl::engine::kind::cpu, 0};
  dnnl::stream stream{engine};
  dnnl::matmul qk, pv;
  dnnl::softmax_forward softmax;
  Args first, middle, last;
};

OneDnnAttention::OneDnnAttention(int64_t heads, int64_t s, int64_t d, bool int8) : state_(std::make_unique<State>()) {
  const onednn::OneThread alone;
  State& st = *state_;
  const dnnl::engine& engine = st.engine;
  const dt activation = int8 ? dt::u8 : dt::f32;
  const dt weights = int8 ? dt::s8 : dt::f32;
  const int64_t row = heads * d;
  const auto rows = [&](dt type) { return memory::desc({1, heads, s, d}, type, memory::dims{s * row, d, row, 1}); };
  const memory::desc kt({1, heads, d, s}, weights, memory::dims{s * row, d, 1, row});
  const memory::desc scores({1, heads, s, s}, dt::f32, tag::abcd),
      probabilities({1, heads, s, s}, activation, tag::abcd);
  const memory::desc mask({1, 1, 1, s}, dt::f32, tag::abcd), one({1, 1, 1, 1}, dt::f32, tag::abcd),
      scalar({1}, dt::f32, tag::x);
  dnnl::post_ops post;
  post.append_binary(dnnl::algorithm::binary_mul, one);
  post.append_binary(dnnl::algorithm::binary_add, mask);
  dnnl::primitive_attr qk_attr, softmax_attr, pv_attr;
  qk_attr.set_post_ops(post);
  if (int8) {
    softmax_attr.set_scales_mask(DNNL_ARG_DST, 0);
    pv_attr.set_scales_mask(DNNL_ARG_DST, 0);
  }
  st.qk = dnnl::matmul(dnnl::matmul::primitive_desc(engine, rows(activation), kt, scores, qk_attr));
  st.softmax = dnnl::softmax_forward(dnnl::softmax_forward::primitive_desc(engine, dnnl::prop_kind::forward_inference,
                                                                           dnnl::algorithm::softmax_accurate, scores,
                                                                           probabilities, 3, softmax_attr));
  st.pv = dnnl::matmul(dnnl::matmul::primitive_desc(engine, probabilities, rows(weights), rows(activation), pv_attr));
  const auto operand = [&](const memory::desc& desc, dt type) {
    if (type == dt::f32) return Filled(engine, desc, 0.5f);
    return Filled(engine, desc, uint8_t{3});
  };
  const memory score_memory = Filled(engine, scores, 0.0f), p = operand(probabilities, activation);
  const memory q = operand(rows(activation), activation), o = operand(rows(activation), activation);
  const memory scale = Filled(engine, scalar, 1.0f / 255.0f);
  st.first = {
      {DNNL_ARG_SRC, q},
      {DNNL_ARG_WEIGHTS, operand(kt, weights)},
      {DNNL_ARG_DST, score_memory},
      {DNNL_ARG_ATTR_MULTIPLE_POST_OP(0) | DNNL_ARG_SRC_1, Filled(engine, one, 1 / std::sqrt(static_cast<float>(d)))},
      {DNNL_ARG_ATTR_MULTIPLE_POST_OP(1) | DNNL_ARG_SRC_1, Filled(engine, mask, 0.0f)}};
  st.middle = {{DNNL_ARG_SRC, score_memory}, {DNNL_ARG_DST, p}};
  st.last = {{DNNL_ARG_SRC, p}, {DNNL_ARG_WEIGHTS, operand(rows(weights), weights)}, {DNNL_ARG_DST, o}};
  if (int8) {
    st.middle.insert({DNNL_ARG_ATTR_SCALES | DNNL_ARG_DST, scale});
    st.last.insert({DNNL_ARG_ATTR_SCALES | DNNL_ARG_DST, scale});
  }
}

OneDnnAttention::~OneDnnAttention() = default;

void OneDnnAttention::Run() {
  const onednn::OneThread alone;
  const onednn::SignalsHeld held;
  state_->qk.execute(state_->stream, state_->first);
  state_->softmax.execute(state_->stream, state_->middle);
  state_->pv.execute(state_->stream, state_->last);
  state_->stream.wait();
}

}  // namespace octavo::kernels::bench
