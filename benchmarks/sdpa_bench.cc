// Attention, one thread: cycles per score (one score = one query row times one key, all of softmax and both products),
// for every Arch of this CPU, int8 with and without a float mask, float, and oneDNN float (matmul, softmax, matmul)
// beside them. Cycles: the time multiplied by the clock that a chain of dependent additions shows before and after; the
// best iteration.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <oneapi/dnnl/dnnl.hpp>
#include <string>
#include <unordered_map>
#include <vector>

#include "octavo/kernels/sdpa/sdpa.h"
#include "octavo/kernels/simd/aligned.h"

extern "C" void omp_set_num_threads(int);  // <omp.h> wants -fopenmp's include path

namespace octavo::kernels {
namespace {

// A BERT-base layer has 12 heads; long sequences take 1, so that an iteration stays in the order of a millisecond.
constexpr int64_t Heads(int64_t s) { return s > 128 ? 1 : 12; }

// GHz of this core now: an add can not start before its predecessor has ended.
double Clock() {
  constexpr int64_t kAdds = 20000;
  double best = 0;
  for (int repeat = 0; repeat < 3; ++repeat) {
    const auto begin = std::chrono::steady_clock::now();
    uint64_t x = 1;
    for (int64_t i = 0; i < kAdds / 8; ++i) {
      asm volatile(
          "add $1, %0\n add $1, %0\n add $1, %0\n add $1, %0\n add $1, %0\n add $1, %0\n add $1, %0\n add $1, %0"
          : "+r"(x));
    }
    const std::chrono::duration<double, std::nano> time = std::chrono::steady_clock::now() - begin;
    best = std::max(best, static_cast<double>(kAdds) / time.count());
  }
  return best;
}

// The fewest cycles of all iterations that began and ended at the same clock: whatever else runs only adds cycles.
template <typename Body>
void Measure(benchmark::State& state, int64_t s, Body body) {
  body();
  double fewest = 1e30;
  double clock = Clock();
  for (auto _ : state) {
    const auto begin = std::chrono::steady_clock::now();
    body();
    benchmark::ClobberMemory();
    const std::chrono::duration<double> time = std::chrono::steady_clock::now() - begin;
    state.SetIterationTime(time.count());
    const double before = clock;
    clock = Clock();
    if (std::fabs(clock / before - 1) < 0.01) fewest = std::min(fewest, time.count() * 1e9 * clock);
  }
  state.counters["cyc/score"] = fewest / static_cast<double>(Heads(s) * s * s);
  state.counters["GHz"] = clock;
}

void Int8(benchmark::State& state, Arch arch, int64_t s, int64_t d, bool with_mask) {
  const int64_t heads = Heads(s);
  SdpaInt8Args a;
  a.shape = {1, heads, heads, s, s, d, d};
  AlignedArray<uint8_t> q(heads * s * d), k(heads * s * d), v(heads * s * d), o(heads * s * d);
  AlignedArray<float> mask(s);
  for (size_t i = 0; i < q.size(); ++i)
    q.data()[i] = i * 37 % 251, k.data()[i] = i * 91 % 253, v.data()[i] = i * 53 % 241;
  a.q = q.data(), a.k = k.data(), a.v = v.data(), a.o = o.data();
  a.q_strides = a.k_strides = a.v_strides = a.o_strides = {0, d, heads * d};
  a.o_type = quant::DType::kU8;
  a.q_zero_point = a.k_zero_point = a.v_zero_point = a.o_zero_point = 121;
  a.q_scale = a.k_scale = a.v_scale = a.o_scale = 0.02f, a.p_scale = 1 / 255.0f;
  a.scale = 1 / std::sqrt(static_cast<float>(d));
  if (with_mask) a.mask.data = mask.data();
  AlignedArray<uint8_t> packed(SdpaPackedBytes(arch, a)), scratch(SdpaScratchBytes(arch, a));
  Measure(state, s, [&] { SdpaHeads(arch, a, 0, heads, packed.data(), scratch.data()); });
}

void FillFloats(AlignedArray<float>& x) {
  for (size_t i = 0; i < x.size(); ++i) x.data()[i] = static_cast<float>(i * 37 % 251) / 125.0f - 1.0f;
}

void Float(benchmark::State& state, Arch arch, int64_t s, int64_t d) {
  const int64_t heads = Heads(s);
  SdpaFloatArgs a;
  a.shape = {1, heads, heads, s, s, d, d};
  AlignedArray<float> q(heads * s * d), k(heads * s * d), v(heads * s * d), o(heads * s * d), mask(s);
  FillFloats(q), FillFloats(k), FillFloats(v);
  a.q = q.data(), a.k = k.data(), a.v = v.data(), a.o = o.data();
  a.q_strides = a.k_strides = a.v_strides = a.o_strides = {0, d, heads * d};
  a.scale = 1 / std::sqrt(static_cast<float>(d));
  a.mask.data = mask.data();
  AlignedArray<uint8_t> packed(SdpaPackedBytes(arch, a)), scratch(SdpaScratchBytes(arch, a));
  Measure(state, s, [&] { SdpaHeads(arch, a, 0, heads, packed.data(), scratch.data()); });
}

// [B,S,H,D] operands through strides, scale and mask as post-operations of the first product.
void OneDnnFloat(benchmark::State& state, int64_t s, int64_t d) {
  const int64_t heads = Heads(s);
  using dnnl::memory;
  dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  dnnl::stream stream(engine);
  const auto f32 = memory::data_type::f32;
  const int64_t row = heads * d;
  const memory::desc q_desc({1, heads, s, d}, f32, memory::dims{s * row, d, row, 1});
  const memory::desc kt_desc({1, heads, d, s}, f32, memory::dims{s * row, d, 1, row});
  const memory::desc score_desc({1, heads, s, s}, f32, memory::format_tag::abcd);
  const memory::desc mask_desc({1, 1, 1, s}, f32, memory::format_tag::abcd);
  const memory::desc one_desc({1, 1, 1, 1}, f32, memory::format_tag::abcd);
  dnnl::post_ops post;
  post.append_binary(dnnl::algorithm::binary_mul, one_desc);
  post.append_binary(dnnl::algorithm::binary_add, mask_desc);
  dnnl::primitive_attr attr;
  attr.set_post_ops(post);
  const dnnl::matmul qk(dnnl::matmul::primitive_desc(engine, q_desc, kt_desc, score_desc, attr));
  const dnnl::softmax_forward softmax(dnnl::softmax_forward::primitive_desc(
      engine, dnnl::prop_kind::forward_inference, dnnl::algorithm::softmax_accurate, score_desc, score_desc, 3));
  const dnnl::matmul pv(dnnl::matmul::primitive_desc(engine, score_desc, q_desc, q_desc));
  AlignedArray<float> q(s * row), k(s * row), v(s * row), o(s * row), scores(heads * s * s), mask(s), one(1);
  FillFloats(q), FillFloats(k), FillFloats(v);
  one.data()[0] = 1 / std::sqrt(static_cast<float>(d));
  const auto of = [&](const memory::desc& desc, AlignedArray<float>& x) { return memory(desc, engine, x.data()); };
  std::unordered_map<int, memory> first = {{DNNL_ARG_SRC, of(q_desc, q)},
                                           {DNNL_ARG_WEIGHTS, of(kt_desc, k)},
                                           {DNNL_ARG_DST, of(score_desc, scores)},
                                           {DNNL_ARG_ATTR_MULTIPLE_POST_OP(0) | DNNL_ARG_SRC_1, of(one_desc, one)},
                                           {DNNL_ARG_ATTR_MULTIPLE_POST_OP(1) | DNNL_ARG_SRC_1, of(mask_desc, mask)}};
  std::unordered_map<int, memory> middle = {{DNNL_ARG_SRC, of(score_desc, scores)},
                                            {DNNL_ARG_DST, of(score_desc, scores)}};
  std::unordered_map<int, memory> last = {
      {DNNL_ARG_SRC, of(score_desc, scores)}, {DNNL_ARG_WEIGHTS, of(q_desc, v)}, {DNNL_ARG_DST, of(q_desc, o)}};
  Measure(state, s, [&] {
    qk.execute(stream, first);
    softmax.execute(stream, middle);
    pv.execute(stream, last);
    stream.wait();
  });
}

void Register() {
  for (const int64_t d : {32, 64}) {
    for (const int64_t s : {32, 64, 128, 384, 1024}) {
      const std::string shape = "/d" + std::to_string(d) + "/S" + std::to_string(s);
      for (const Arch arch : SupportedArchs()) {
        if (arch == Arch::kScalar && s > 64) continue;
        const std::string name = std::string(Name(arch)) + shape;
        const auto add = [](const std::string& title, auto f) {
          benchmark::RegisterBenchmark(title, f)->MinTime(0.1)->UseManualTime()->Unit(benchmark::kMicrosecond);
        };
        add("sdpa_int8_mask/" + name, [=](benchmark::State& state) { Int8(state, arch, s, d, true); });
        add("sdpa_int8/" + name, [=](benchmark::State& state) { Int8(state, arch, s, d, false); });
        add("sdpa_f32_mask/" + name, [=](benchmark::State& state) { Float(state, arch, s, d); });
      }
      benchmark::RegisterBenchmark("onednn_f32_mask" + shape,
                                   [=](benchmark::State& state) { OneDnnFloat(state, s, d); })
          ->MinTime(0.1)
          ->UseManualTime()
          ->Unit(benchmark::kMicrosecond);
    }
  }
}

}  // namespace
}  // namespace octavo::kernels

int main(int argc, char** argv) {
  // The packaged oneDNN is an OpenMP build; one thread, so that both sides use one core.
  omp_set_num_threads(1);
  benchmark::Initialize(&argc, argv);
  octavo::kernels::Register();
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return 0;
}
