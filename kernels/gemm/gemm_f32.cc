#include "octavo/kernels/gemm/gemm_f32.h"

#include <algorithm>
#include <array>
#include <format>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <utility>

#include "octavo/kernels/gemm/onednn.h"
#include "octavo/kernels/gemm/panels_f32.h"

namespace octavo::kernels {
namespace {

using dnnl::memory;
using onednn::Engine;
using onednn::ThisThread;
using onednn::ThreadState;
using Dims = memory::dims;

constexpr auto kF32 = memory::data_type::f32;
constexpr auto kPlain = memory::format_tag::ab;

struct Product {
  dnnl::matmul::primitive_desc desc;
  dnnl::matmul primitive;
};

// The scratchpad is the caller's, so that threads can run one primitive at the same time.
Product MakeProduct(const memory::desc& a, const memory::desc& b, const memory::desc& bias, const memory::desc& c) {
  const onednn::OneThread one;
  dnnl::primitive_attr attr;
  attr.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  Product product;
  if (bias.get_size() != 0) {
    product.desc = dnnl::matmul::primitive_desc(Engine(), a, b, bias, c, attr);
  } else {
    product.desc = dnnl::matmul::primitive_desc(Engine(), a, b, c, attr);
  }
  product.primitive = dnnl::matmul(product.desc);
  return product;
}

void Execute(const Product& product, const void* a, const void* b, const void* bias, void* c) {
  ThreadState& thread = ThisThread();
  const auto wrap = [](const memory::desc& desc, const void* p) {
    return memory(desc, Engine(), const_cast<void*>(p));
  };
  const memory::desc scratchpad = product.desc.scratchpad_desc();
  std::unordered_map<int, memory> args = {
      {DNNL_ARG_SRC, wrap(product.desc.src_desc(), a)},
      {DNNL_ARG_WEIGHTS, wrap(product.desc.weights_desc(), b)},
      {DNNL_ARG_DST, wrap(product.desc.dst_desc(), c)},
      {DNNL_ARG_SCRATCHPAD, wrap(scratchpad, thread.Scratchpad(scratchpad.get_size()))},
  };
  if (bias != nullptr) args.insert({DNNL_ARG_BIAS, wrap(product.desc.bias_desc(), bias)});
  const onednn::OneThread one;
  const onednn::SignalsHeld held;
  product.primitive.execute(thread.stream, args);
  thread.stream.wait();
}

std::string Sentence(const dnnl::error& error, int64_t m, int64_t k, int64_t n) {
  return std::format("oneDNN refuses the float product {} x {} x {}: {}", m, k, n, error.what());
}

}  // namespace

struct PackedF32::State {
  int64_t k = 0;
  int64_t n = 0;
  WeightArray<std::byte> storage;                  // of `weights`, or of panels
  memory weights;                                  // oneDNN's
  void (*panels)(const PanelsF32Args&) = nullptr;  // ours; null: oneDNN's
  // The products used last, by rows, stride of x, stride of y, bias or none.
  struct Recent {
    std::array<int64_t, 4> key = {};
    std::shared_ptr<const Product>
        product;  // shared: one that another thread multiplies with may be forgotten meanwhile
    uint64_t used = 0;
  };
  mutable std::mutex mutex;
  mutable std::array<Recent, kPackedF32Products> recent;
  mutable uint64_t uses = 0;

  std::shared_ptr<const Product> Find(int64_t m, int64_t x_stride, int64_t y_stride, bool bias) const {
    const std::array<int64_t, 4> key = {m, x_stride, y_stride, bias ? 1 : 0};
    const std::lock_guard lock(mutex);
    const auto found =
        std::ranges::find_if(recent, [&](const Recent& r) { return r.key == key && r.product != nullptr; });
    if (found != recent.end()) return found->used = ++uses, found->product;
    const memory::desc bias_desc = bias ? memory::desc({1, n}, kF32, kPlain) : memory::desc();
    auto product = std::make_shared<const Product>(MakeProduct({{m, k}, kF32, Dims{x_stride, 1}}, weights.get_desc(),
                                                               bias_desc, {{m, n}, kF32, Dims{y_stride, 1}}));
    *std::ranges::min_element(recent, {}, &Recent::used) = {key, product, ++uses};
    return product;
  }
};

PackedF32::PackedF32() = default;
PackedF32::~PackedF32() = default;
PackedF32::PackedF32(PackedF32&&) noexcept = default;
PackedF32& PackedF32::operator=(PackedF32&&) noexcept = default;
int64_t PackedF32::k() const { return state_->k; }
int64_t PackedF32::n() const { return state_->n; }
size_t PackedF32::bytes() const { return state_->storage.size(); }
bool PackedF32::in_panels() const { return state_->panels != nullptr; }
size_t PackedF32::products() const {
  const std::lock_guard lock(state_->mutex);
  return static_cast<size_t>(std::ranges::count_if(state_->recent, [](const auto& r) { return r.product != nullptr; }));
}

std::expected<PackedF32, std::string> PackWeightsF32(const float* w, int64_t k, int64_t n, bool transposed,
                                                     int64_t m_hint, int64_t stride) {
  if (w == nullptr || k <= 0 || n <= 0) {
    return std::unexpected(std::format("weights of shape [{}, {}] have no elements to pack", k, n));
  }
  try {
    const onednn::OneThread one;
    ThreadState& thread = ThisThread();
    const int64_t m = m_hint > 0 ? m_hint : 128;
    const memory::desc any({k, n}, kF32, memory::format_tag::any);
    const Product product = MakeProduct({{m, k}, kF32, kPlain}, any, memory::desc(), {{m, n}, kF32, kPlain});
    if (stride == 0) stride = transposed ? k : n;
    const Dims strides = transposed ? Dims{1, stride} : Dims{stride, 1};
    memory plain({{k, n}, kF32, strides}, Engine(), const_cast<float*>(w));
    PackedF32 packed;
    packed.state_ = std::make_unique<PackedF32::State>();
    packed.state_->k = k;
    packed.state_->n = n;
    // Where oneDNN would take weights as they came it copies them in each call.
    if (auto* const panels = kPanelsF32Of[BestArch()];
        panels != nullptr && product.desc.weights_desc() == memory::desc({k, n}, kF32, Dims{n, 1})) {
      packed.state_->panels = panels;
      packed.state_->storage = WeightArray<std::byte>(static_cast<size_t>(PanelsF32Size(k, n)) * sizeof(float));
      PackPanelsF32(w, k, n, strides[0], strides[1], reinterpret_cast<float*>(packed.state_->storage.data()));
      return packed;
    }
    packed.state_->storage = WeightArray<std::byte>(product.desc.weights_desc().get_size());
    packed.state_->weights = memory(product.desc.weights_desc(), Engine(), packed.state_->storage.data());
    dnnl::reorder(plain, packed.state_->weights).execute(thread.stream, plain, packed.state_->weights);
    thread.stream.wait();
    return packed;
  } catch (const dnnl::error& error) {
    return std::unexpected(Sentence(error, m_hint, k, n));
  }
}

namespace {

// Plain two-dimensional products, one batch after another: oneDNN's own batches refuse some strides.
std::string RunMatMul(const MatMulF32Args& args, Range batches) {
  using Key = std::array<int64_t, 8>;
  // A thread works through the heads of one attention after another: the last product is nearly always the right one.
  static thread_local Key last_key{};
  static thread_local Product last;
  const Key key = {args.m, args.k, args.n, args.a_row, args.a_column, args.b_row, args.b_column, args.c_row};
  try {
    if (key != last_key) {
      last_key = {};
      last = MakeProduct({{args.m, args.k}, kF32, Dims{args.a_row, args.a_column}},
                         {{args.k, args.n}, kF32, Dims{args.b_row, args.b_column}}, memory::desc(),
                         {{args.m, args.n}, kF32, Dims{args.c_row, 1}});
      last_key = key;
    }
    for (int64_t i = batches.begin; i < batches.end; ++i) {
      Execute(last, args.a + i * args.a_batch, args.b + i * args.b_batch, nullptr, args.c + i * args.c_batch);
    }
  } catch (const dnnl::error& error) {
    return Sentence(error, args.m, args.k, args.n);
  }
  return {};
}

// oneDNN makes code for each size, remembers few and reads its descriptors anew in each call: of small matrices that takes longer than their products. AVX2's
// gemm:jit copies the right operand, too. Panels elsewhere where both operands stay in L1.
using Panels = void (*)(const PanelsF32Args&);
Panels PanelsOfActivations(const MatMulF32Args& args) {
  const Panels panels = kPanelsF32Of[BestArch()];
  if (panels == nullptr || args.a_column != 1) return nullptr;
  const bool small = args.k * args.n <= kSmallPanels && args.m * args.k <= kSmallPanels;
  return args.in_order || small || BestArch() < Arch::kAvx512 ? panels : nullptr;
}

// Batch i, some columns after the other, so that the copy stays in L2.
void RunPanels(const MatMulF32Args& args, int64_t i, Panels panels) {
  const int64_t some = std::max<int64_t>(kPanelsCopy / args.k / kPanelColumns, 4) * kPanelColumns;
  float* const copy = ThisThread().Row(PanelsF32Size(args.k, std::min(some, args.n)));
  for (int64_t j = 0; j < args.n; j += some) {
    const int64_t columns = std::min(some, args.n - j);
    PackPanelsF32(args.b + i * args.b_batch + j * args.b_column, args.k, columns, args.b_row, args.b_column, copy);
    panels({.m = args.m,
            .k = args.k,
            .n = columns,
            .x = args.a + i * args.a_batch,
            .x_stride = args.a_row,
            .panels = copy,
            .y = args.c + i * args.c_batch + j,
            .y_stride = args.c_row});
  }
}

}  // namespace

std::string GemmF32(const GemmF32Args& args, Range rows) {
  const int64_t m = rows.end - rows.begin;
  if (m <= 0) return {};
  const PackedF32::State& state = args.w->state();
  const float* x = args.x + rows.begin * args.x_stride;
  float* y = args.y + rows.begin * args.y_stride;
  if (state.panels != nullptr) {
    state.panels({.m = m,
                  .k = state.k,
                  .n = state.n,
                  .x = x,
                  .x_stride = args.x_stride,
                  .panels = reinterpret_cast<const float*>(state.storage.data()),
                  .bias = args.bias,
                  .y = y,
                  .y_stride = args.y_stride});
    return {};
  }
  if (m > 2 * kRowUnitF32 && m % kRowUnitF32 != 0) {
    const int64_t cut = rows.begin + (m / kRowUnitF32 - 1) * kRowUnitF32;
    std::string why = GemmF32(args, {rows.begin, cut});
    return why.empty() ? GemmF32(args, {cut, rows.end}) : why;
  }
  try {
    const bool spread = state.n == 1 && args.y_stride != 1;
    const std::shared_ptr<const Product> product =
        state.Find(m, args.x_stride, spread ? 1 : args.y_stride, args.bias != nullptr);
    float* out = spread ? ThisThread().Column(m) : y;
    Execute(*product, x, state.weights.get_data_handle(), args.bias, out);
    for (int64_t i = 0; spread && i < m; ++i) y[i * args.y_stride] = out[i];
  } catch (const dnnl::error& error) {
    return Sentence(error, m, state.k, state.n);
  }
  return {};
}

std::string MatMulF32(const MatMulF32Args& args, Range batches) {
  if (batches.begin >= batches.end || args.m <= 0 || args.n <= 0) return {};
  if (args.k <= 0) return "a float product of depth 0 has no kernel; write zeros instead";
  if (const Panels panels = PanelsOfActivations(args)) {
    for (int64_t i = batches.begin; i < batches.end; ++i) RunPanels(args, i, panels);
    return {};
  }
  const bool gather = args.m == 1 && args.a_column != 1;
  const bool spread = args.n == 1 && args.c_row != 1;
  if (!gather && !spread) return RunMatMul(args, batches);
  for (int64_t batch = batches.begin; batch < batches.end; ++batch) {
    MatMulF32Args one = args;
    one.a += batch * args.a_batch;
    one.b += batch * args.b_batch;
    one.c += batch * args.c_batch;
    if (gather) {
      float* row = ThisThread().Row(args.k);
      for (int64_t i = 0; i < args.k; ++i) row[i] = one.a[i * args.a_column];
      one.a = row;
      one.a_row = args.k;
      one.a_column = 1;
    }
    float* const out = one.c;
    if (spread) {
      one.c = ThisThread().Column(args.m);
      one.c_row = 1;
    }
    std::string problem = RunMatMul(one, {0, 1});
    if (!problem.empty()) return problem;
    for (int64_t i = 0; spread && i < args.m; ++i) out[i * args.c_row] = one.c[i];
  }
  return {};
}

}  // namespace octavo::kernels
