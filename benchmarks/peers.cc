#include "octavo/benchmarks/peers.h"

#include <unordered_map>

#include "octavo/kernels/arch/arch.h"
#include "oneapi/dnnl/dnnl.hpp"

extern "C" void omp_set_num_threads(int count);

namespace octavo::benchmarks {
namespace {

using dnnl::memory;
constexpr int kPeakRounds = 2000;

}  // namespace

struct OneDnnInt8::State {
  dnnl::engine engine{dnnl::engine::kind::cpu, 0};
  dnnl::stream stream{engine};
  dnnl::matmul primitive;
  std::unordered_map<int, memory> args;
};

OneDnnInt8::OneDnnInt8(int64_t m, int64_t k, int64_t n) : state_(std::make_unique<State>()) {
  omp_set_num_threads(1);
  using dt = memory::data_type;
  using tag = memory::format_tag;
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
  const auto filled = [&](const memory::desc& d, auto value) {
    memory mem(d, engine);
    auto* p = static_cast<decltype(value)*>(mem.get_data_handle());
    for (size_t i = 0; i < d.get_size() / sizeof(value); ++i) p[i] = value;
    return mem;
  };
  state_->args = {
      {DNNL_ARG_SRC, filled(desc.src_desc(), uint8_t{131})},
      {DNNL_ARG_WEIGHTS, filled(desc.weights_desc(), int8_t{3})},
      {DNNL_ARG_BIAS, filled(desc.bias_desc(), 0.5f)},
      {DNNL_ARG_DST, memory(desc.dst_desc(), engine)},
      {DNNL_ARG_ATTR_SCALES | DNNL_ARG_SRC, filled({{1}, dt::f32, tag::x}, 0.02f)},
      {DNNL_ARG_ATTR_SCALES | DNNL_ARG_WEIGHTS, filled({{n}, dt::f32, tag::x}, 0.01f)},
      {DNNL_ARG_ATTR_SCALES | DNNL_ARG_DST, filled({{1}, dt::f32, tag::x}, 0.1f)},
      {DNNL_ARG_ATTR_ZERO_POINTS | DNNL_ARG_SRC, filled({{1}, dt::s32, tag::x}, int32_t{128})},
      {DNNL_ARG_ATTR_ZERO_POINTS | DNNL_ARG_DST, filled({{1}, dt::s32, tag::x}, int32_t{120})},
  };
}

OneDnnInt8::~OneDnnInt8() = default;

void OneDnnInt8::Run() {
  state_->primitive.execute(state_->stream, state_->args);
  state_->stream.wait();
}

int64_t DotPeakMacs() {
  const bool vnni = kernels::BestArch() == kernels::Arch::kAvx512Vnni;
  return vnni ? int64_t{kPeakRounds} * 16 * 64 : 0;
}

// Sixteen chains hide a latency of 5 cycles at two a cycle.
__attribute__((target("avx512f,avx512vnni"))) void DotPeakLoop() {
  for (int i = 0; i < kPeakRounds; ++i) {
#define OCTAVO_DOT(n) "vpdpbusd %%zmm31, %%zmm30, %%zmm" #n "\n\t"
    asm volatile(OCTAVO_DOT(0) OCTAVO_DOT(1) OCTAVO_DOT(2) OCTAVO_DOT(3) OCTAVO_DOT(4) OCTAVO_DOT(5) OCTAVO_DOT(6)
                     OCTAVO_DOT(7) OCTAVO_DOT(8) OCTAVO_DOT(9) OCTAVO_DOT(10) OCTAVO_DOT(11) OCTAVO_DOT(12)
                         OCTAVO_DOT(13) OCTAVO_DOT(14) OCTAVO_DOT(15)::
                             : "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10",
                               "xmm11", "xmm12", "xmm13", "xmm14", "xmm15");
#undef OCTAVO_DOT
  }
}

}  // namespace octavo::benchmarks
