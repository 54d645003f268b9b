// Sdpa and QuantizedSdpa: strides say whether an operand is [B,S,H*D] or [B,H,S,D]; work is split by heads, by rows where heads
// are few.
#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <numeric>
#include <type_traits>
#include <utility>

#include "octavo/ir/functions.h"
#include "octavo/kernels/sdpa/sdpa.h"
#include "octavo/quant/numeric/code8.h"
#include "octavo/runtime/cache_windows.h"
#include "octavo/runtime/room.h"
#include "octavo/runtime/step.h"

namespace octavo::runtime {

namespace {

struct Config {
  int64_t heads, groups, dim, v_dim;
  int64_t q_rank, k_rank, v_rank, out_rank;
  float scale;
  float softcap;
  kernels::SdpaGuard guard;
  kernels::SdpaWindow window;
  float hidden_value;
  bool flash;
};

struct Dims {
  int64_t batch, rows;
};

// Names of sizes in what the kernels need.
enum SizeName : int { kBatch, kRows, kKeys };

// An operand with `heads` heads of `dim`, [B,S,H*D] or [B,H,S,D].
void NeedHeads(Needs& needs, size_t slot, DType dtype, int64_t rank, int64_t heads, int64_t dim, SizeName rows) {
  const auto batch = Needs::Size::Same(kBatch), count = Needs::Size::Same(rows);
  if (rank == 3) {
    needs.Exactly(slot, dtype, {batch, count, heads * dim});
  } else {
    needs.Exactly(slot, dtype, {batch, heads, count, dim});
  }
}

// Q, K, V, then mask, bool mask and slopes, which follow each other from `mask` on.
Needs NeedsOf(const Config& c, const Node& node, std::array<DType, 3> dtypes, size_t mask) {
  Needs needs;
  NeedHeads(needs, 0, dtypes[0], c.q_rank, c.heads, c.dim, kRows);
  NeedHeads(needs, 1, dtypes[1], c.k_rank, c.groups, c.dim, kKeys);
  NeedHeads(needs, 2, dtypes[2], c.v_rank, c.groups, c.v_dim, kKeys);
  const auto same = [](SizeName name) { return Needs::Size::Same(name); };
  for (const auto& [slot, dtype] : {std::pair{mask, DType::kF32}, {mask + 1, DType::kBool}}) {
    if (node.input(slot)) needs.BroadcastsTo(slot, dtype, {same(kBatch), c.heads, same(kRows), same(kKeys)});
  }
  if (node.input(mask + 2)) needs.Count(mask + 2, DType::kF32, c.heads);
  return needs;
}

// Batch and row count of an operand, and its strides.
Dims Describe(const Tensor& t, int64_t heads, int64_t dim, kernels::SdpaStrides* strides) {
  const Shape& s = t.shape();
  const int64_t rows = s.size() == 3 ? s[1] : s[2];
  const Room* room = StridesOf(t);
  const int64_t apart = room != nullptr ? room->capacity() : rows;
  *strides = s.size() == 3 ? kernels::SdpaStrides{apart * heads * dim, dim, heads * dim}
                           : kernels::SdpaStrides{heads * apart * dim, apart * dim, dim};
  return Dims{s[0], rows};
}

// Strides of a mask that broadcasts to [B,H,Sq,Sk]; Mask is one of float or of bool.
template <typename Mask, typename T>
Mask DescribeMask(const Tensor& t, const T* data) {
  int64_t strides[4] = {0, 0, 0, 0};
  int64_t step = 1;
  for (int64_t i = t.rank() - 1; i >= 0; --i) {
    const int64_t d = t.shape()[static_cast<size_t>(i)];
    strides[i + 4 - t.rank()] = d == 1 ? 0 : step;
    step *= d;
  }
  return Mask{data, strides[0], strides[1], strides[2], strides[3]};
}

// Mask, bool mask and slopes, which follow each other from `slot` on.
template <typename Args>
void FillMasks(const Config& c, StepCall& call, size_t slot, Args& args) {
  for (size_t i = slot; call.rooms && i < call.in.size(); ++i) call.in[i].tensor = Dense(call.T(i));
  args.visibility.window = c.window;
  args.visibility.hidden_value = c.hidden_value;
  if (call.Has(slot)) args.mask = DescribeMask<kernels::SdpaMask>(call.T(slot), call.T(slot).as<float>().data());
  if (call.Has(slot + 1)) {
    const Tensor& t = call.T(slot + 1);
    args.visibility.keep = DescribeMask<kernels::SdpaBoolMask>(t, reinterpret_cast<const uint8_t*>(t.data()));
  }
  if (call.Has(slot + 2)) args.visibility.alibi = call.T(slot + 2).as<float>().data();
}

template <typename Args>
void RunOnThreads(kernels::Arch arch, const Args& args, StepCall& call) {
  const Threads& threads = *call.threads;
  const kernels::SdpaShape& s = args.shape;
  const int64_t flat = s.batch * s.heads;
  const int64_t group = s.heads / s.kv_heads;
  const size_t packed = kernels::SdpaPackedBytes(arch, args);
  const size_t scratch = kernels::SdpaScratchBytes(arch, args);
  if (flat >= int64_t{2} * threads.count() || threads.count() == 1) {
    const int64_t parts = PartsOf(flat, group, threads.count());
    threads.For(parts, [&](int64_t i) {
      const Part p = PartOf(flat, parts, i, group);
      if (p.begin >= p.end) return;
      const TaskScratch of_keys(packed), of_rows(scratch);
      kernels::SdpaHeads(arch, args, p.begin, p.end, of_keys.data(), of_rows.data());
    });
    return;
  }
  const size_t stride = (packed + 63) / 64 * 64;
  const int64_t kv = s.batch * s.kv_heads;
  std::byte* all = call.Scratch(stride * static_cast<size_t>(kv));
  threads.For(kv, [&](int64_t i) {
    kernels::SdpaPack(arch, args, i / s.kv_heads, i % s.kv_heads, all + static_cast<size_t>(i) * stride);
  });
  const kernels::Tile tile = kernels::SdpaTile(arch, args);
  const int64_t row_parts = PartsOf(s.q_len, tile.share, threads.count());
  threads.For(flat * row_parts, [&](int64_t task) {
    const int64_t head = task / row_parts;
    const Part p = PartOf(s.q_len, row_parts, task % row_parts, tile.rows);
    if (p.begin >= p.end) return;
    const int64_t kv_index = head / s.heads * s.kv_heads + head % s.heads / group;
    kernels::SdpaRows(arch, args, head / s.heads, head % s.heads, p.begin, p.end,
                      all + static_cast<size_t>(kv_index) * stride, TaskScratch(scratch).data());
  });
}

// Flash packs its tiles itself, so heads and rows are split alike. Few parts of rows: each packs all keys.
template <typename Args>
void FlashOnThreads(kernels::Arch arch, const Args& args, const Threads& threads) {
  const kernels::SdpaShape& s = args.shape;
  const int64_t flat = s.batch * s.heads;
  const kernels::Tile tile = kernels::SdpaFlashTile(arch, args);
  const int64_t row_parts = flat >= int64_t{2} * threads.count() ? 1 : PartsOf(s.q_len, tile.share, threads.count());
  threads.For(flat * row_parts, [&](int64_t task) {
    const int64_t head = task / row_parts;
    const Part p = PartOf(s.q_len, row_parts, task % row_parts, tile.rows);
    if (p.begin >= p.end) return;
    const TaskScratch scratch(kernels::SdpaFlashScratchBytes(arch, args, p.end - p.begin));
    kernels::SdpaFlash(arch, args, head / s.heads, head % s.heads, p.begin, p.end, scratch.data());
  });
}

// How many parts the keys of a group are split into where groups leave threads idle. A part of fewer keys costs more in
// waiting for the others than it gains (kernels/DESIGN.md).
int64_t PartsOfKeys(const kernels::SdpaShape& s, const kernels::SdpaWindow& window, int threads) {
  constexpr int64_t kKeys = 1024;
  const int64_t groups = s.batch * s.kv_heads, rows = s.heads / s.kv_heads * s.q_len;
  if (groups >= threads || rows > 4 * kernels::kSdpaDecodeRows) return 1;  // each thread keeps the scores of all rows
  const bool bounded = window.left >= 0 && window.right >= 0 && window.left < s.k_len && window.right < s.k_len;
  const int64_t keys = bounded ? std::min(s.k_len, window.left + window.right + s.q_len) : s.k_len;
  return std::clamp(keys / kKeys, int64_t{1}, threads / std::gcd(groups, int64_t{threads}));
}

// Few query rows: the heads that share a K and V stay together, so that memory is read once.
template <typename Args>
void DecodeOnThreads(kernels::Arch arch, const Args& args, StepCall& call) {
  const Threads& threads = *call.threads;
  const kernels::SdpaShape& s = args.shape;
  const int64_t groups = s.batch * s.kv_heads;
  const int64_t parts = PartsOfKeys(s, args.visibility.window, threads.count());
  const size_t scratch = kernels::SdpaDecodeScratchBytes(arch, args);
  if (parts == 1) {
    threads.For(groups, [&](int64_t i) {
      kernels::SdpaDecode(arch, args, i / s.kv_heads, i % s.kv_heads, TaskScratch(scratch).data());
    });
    return;
  }
  const size_t stride = (kernels::SdpaSplitKvBytes(arch, args, parts) + 63) / 64 * 64;
  std::byte* base = call.Scratch(stride * static_cast<size_t>(groups));
  for (int step = 0; step < kernels::kSplitKvSteps; ++step) {
    threads.For(groups * parts, [&](int64_t task) {
      const int64_t i = task / parts;
      kernels::SdpaSplitKv(arch, args, i / s.kv_heads, i % s.kv_heads, {step, task % parts, parts},
                           base + static_cast<size_t>(i) * stride, TaskScratch(scratch).data());
    });
  }
}

// Everything but dtypes and quantization parameters; both argument structs have these members.
template <typename Args>
void FillCommon(const Config& c, StepCall& call, size_t mask_slot, DType out_dtype, Args& args) {
  const Dims q = Describe(call.T(0), c.heads, c.dim, &args.q_strides);
  const Dims k = Describe(call.T(1), c.groups, c.dim, &args.k_strides);
  Describe(call.T(2), c.groups, c.v_dim, &args.v_strides);
  args.shape = {.batch = q.batch,
                .heads = c.heads,
                .kv_heads = c.groups,
                .q_len = q.rows,
                .k_len = k.rows,
                .head_size = c.dim,
                .v_head_size = c.v_dim};
  args.scale = c.scale;
  args.softcap = c.softcap;
  args.guard = c.guard;
  FillMasks(c, call, mask_slot, args);
  Shape out = c.out_rank == 3 ? Shape{q.batch, q.rows, c.heads * c.v_dim} : Shape{q.batch, c.heads, q.rows, c.v_dim};
  Tensor& o = call.Allocate(0, out_dtype, std::move(out));
  Describe(o, c.heads, c.v_dim, &args.o_strides);
  args.q = reinterpret_cast<decltype(args.q)>(call.T(0).data());
  args.k = reinterpret_cast<decltype(args.k)>(call.T(1).data());
  args.v = reinterpret_cast<decltype(args.v)>(call.T(2).data());
  args.o = reinterpret_cast<decltype(args.o)>(o.mutable_data());
}

// A sum over no keys is 0, as in the graph of single ops (a decoder's first step with empty caches); the kernels have no such case.
bool NoKeys(const kernels::SdpaShape& shape, int32_t code_of_zero, Tensor& out) {
  if (shape.k_len != 0) return false;
  std::memset(out.mutable_data(), code_of_zero, out.byte_size());
  return true;
}

template <typename Args>
Status Launch(kernels::Arch arch, const Args& args, StepCall& call) {
  if (const std::string why = kernels::SdpaRefusal(args); !why.empty()) return ir::Fail("{}", why);
  if (call.out[0].tensor.size() > 0) RunOnThreads(arch, args, call);
  return {};
}

class FloatAttention : public Kernel {
 public:
  FloatAttention(kernels::Arch arch, Config config) : arch_(arch), config_(config) {}
  std::string name() const override {
    return (config_.flash ? "sdpa_f32_flash " : "sdpa_f32 ") + std::string(Name(arch_));
  }
  Status Execute(StepCall& call) const override {
    kernels::SdpaFloatArgs args;
    SkipGone(call, 3);
    const bool reads_rooms = !config_.flash && RowsOfQ(call) <= kernels::kSdpaDecodeRows;
    for (const size_t i : {1, 2}) {
      if (IsApart(call.T(i)) && !reads_rooms) call.in[i].tensor = Dense(call.T(i));
    }
    FillCommon(config_, call, 3, DType::kF32, args);
    Places k_places, v_places;
    if (IsApart(call.T(1))) ReadRoom(call.T(1), config_.groups, args.k, args.k_strides, args.k_bits, k_places);
    if (IsApart(call.T(2))) ReadRoom(call.T(2), config_.groups, args.v, args.v_strides, args.v_bits, v_places);
    args.k_places = k_places.empty() ? nullptr : k_places.data();
    args.v_places = v_places.empty() ? nullptr : v_places.data();
    if (NoKeys(args.shape, 0, call.out[0].tensor)) return {};
    const bool decodes = args.shape.q_len <= kernels::kSdpaDecodeRows;
    if (!config_.flash && !decodes) return Launch(arch_, args, call);
    if (const std::string why = kernels::SdpaRefusal(args); !why.empty()) return ir::Fail("{}", why);
    if (call.out[0].tensor.size() == 0) return {};
    config_.flash ? FlashOnThreads(arch_, args, *call.threads) : DecodeOnThreads(arch_, args, call);
    return {};
  }

 private:
  int64_t RowsOfQ(const StepCall& call) const { return call.T(0).shape()[config_.q_rank == 3 ? 1 : 2]; }
  using Places = std::vector<kernels::SdpaPlace>;
  // Of [B,H,S,size], rows of codes or behind rows that are shared, in places of their rooms.
  static void ReadRoom(const Tensor& t, int64_t heads, const float*& data, kernels::SdpaStrides& strides, int& bits,
                       Places& places) {
    const Room* room = RoomOf(t);
    bits = room->bits();
    const auto size = static_cast<int64_t>(room->row_bytes() / (bits > 0 ? 1 : sizeof(float)));
    const auto at = [&](const Room& r, int64_t row) {
      return kernels::SdpaPlace{reinterpret_cast<const float*>(r.Row(0, row)),
                                {heads * r.capacity() * size, r.capacity() * size, size}};
    };
    const kernels::SdpaPlace own = at(*room, room->shared());
    data = own.data, strides = own.strides;
    if (room->front() == nullptr) return;
    static_assert(kernels::kSdpaPlaceKeys == Room::kSharedUnit);
    const int64_t count = (t.shape()[2] + Room::kSharedUnit - 1) / Room::kSharedUnit;
    places.resize(static_cast<size_t>(count));
    for (int64_t i = count - 1; i >= 0; --i) {
      while (i * Room::kSharedUnit < room->shared()) room = room->front().get();
      places[static_cast<size_t>(i)] = at(*room, i * Room::kSharedUnit);
    }
  }

  kernels::Arch arch_;
  Config config_;
};

class Int8Attention : public Kernel {
 public:
  Int8Attention(kernels::Arch arch, Config config, kernels::SdpaInt8Args params)
      : arch_(arch), config_(config), params_(params), coded_(params.HasSteps()) {}
  std::string name() const override {
    return (quant::IsFp8(params_.q_type) ? "sdpa_fp8 "
            : config_.flash              ? "sdpa_int8_flash "
                                         : "sdpa_int8 ") +
           std::string(Name(arch_));
  }
  Status Execute(StepCall& call) const override {
    kernels::SdpaInt8Args args = params_;
    SkipGone(call, 13);
    FillCommon(config_, call, 13, args.o_type, args);
    if (NoKeys(args.shape, args.o_type == DType::kF32 ? 0 : args.o_zero_point, call.out[0].tensor)) return {};
    const bool beyond = args.shape.k_len > kernels::SdpaMostKeys(args);
    if (config_.flash || beyond) {
      // Codes of a row without meaning add up to 0 (so the exact form has it with the lowest code as zero point).
      if (beyond) args.guard = kernels::SdpaGuard::kNan;
      if (args.p_step != 0.0f) args.v_scale *= args.p_step / args.p_scale;  // flash has P itself, not steps of it
      if (const std::string why = kernels::SdpaFlashRefusal(args); !why.empty()) return ir::Fail("{}", why);
      if (call.out[0].tensor.size() > 0) FlashOnThreads(arch_, args, *call.threads);
      return {};
    }
    const kernels::SdpaShape& s = args.shape;
    const bool decodes =
        !quant::IsFp8(args.q_type) && !coded_ && s.heads / s.kv_heads * s.q_len <= kernels::kSdpaDecodeRows;
    if (!decodes) return Launch(arch_, args, call);
    if (const std::string why = kernels::SdpaRefusal(args); !why.empty()) return ir::Fail("{}", why);
    if (call.out[0].tensor.size() > 0) DecodeOnThreads(arch_, args, call);
    return {};
  }

 private:
  kernels::Arch arch_;
  Config config_;
  kernels::SdpaInt8Args params_;
  bool coded_;  // scores or probabilities, on the way
};

bool ReadParams(const Node& node, const CompileContext& c, size_t slot, DType* type, float* scale, int32_t* zero) {
  const Tensor* s = c.Constant(node.input(slot));
  const Tensor* z = c.Constant(node.input(slot + 1));
  if (s == nullptr || z == nullptr || s->size() != 1 || z->size() != 1 || s->dtype() != DType::kF32 ||
      !quant::IsCode8(z->dtype()))
    return false;
  *type = z->dtype();
  *scale = ScalarF32(*s);
  *zero = quant::IsFp8(*type) ? 0 : ScalarInt(*z);
  return true;
}

// What is known of the shape before a run, so that all else that the kernels refuse is refused before it.
kernels::SdpaShape OneOfEach(const Config& c) {
  return {.heads = c.heads, .kv_heads = c.groups, .head_size = c.dim, .v_head_size = c.v_dim};
}

// Whether q, k and v are known to be of one batch before a run.
bool OneBatch(const Node& node, const CompileContext& c) {
  const auto batch = [&](size_t slot) {
    const auto& shape = c.graph.value(node.input(slot)).type.shape;
    return shape && !shape->empty() ? shape->front() : ir::Dim();
  };
  return ProvablyEqual(batch(0), batch(1)) && ProvablyEqual(batch(0), batch(2));
}

// Sizes with names of their own, of masks and of batches, are taken to be equal when attention is fused. Where a run proves that wrong the
// body, which broadcasts, says what the graph means.
KernelPtr WhereSizesDiffer(const Node& node, const CompileContext& c, size_t mask) {
  if (!node.input(mask) && !node.input(mask + 1) && OneBatch(node, c)) return nullptr;
  return MakeInterpreted(c.graph, c.graph.value(node.output()).producer);
}

}  // namespace

KernelPtr MakeAttention(const Node& node, const CompileContext& c) {
  const ir::Attrs& a = node.attrs;
  Config config{};
  config.heads = a.Int("num_heads", 0);
  config.groups = a.Int("kv_num_heads", config.heads);
  config.dim = a.Int("head_dim", 0);
  config.v_dim = a.Int("v_head_dim", config.dim);
  config.q_rank = a.Int("q_rank", 4);
  config.k_rank = a.Int("k_rank", 4);
  config.v_rank = a.Int("v_rank", 4);
  config.out_rank = a.Int("out_rank", 4);
  config.scale = a.Float("scale", 1.0f);
  config.softcap = a.Float("softcap", 0.0f);
  const int64_t guard = a.Int("nan_guard", 0);
  config.guard = guard == 0                      ? kernels::SdpaGuard::kNone
                 : guard == ir::kSdpaGuardMasked ? kernels::SdpaGuard::kMasked
                                                 : kernels::SdpaGuard::kNan;
  config.window = {a.Int("window_left", -1), a.Int("window_right", -1), a.Int("bottom_right", 0) != 0};
  config.hidden_value = a.Float("hidden_value", -std::numeric_limits<float>::infinity());
  config.flash = a.Int("flash", 0) != 0;
  constexpr int64_t kMost = 1 << 24;  // so that products of two do not overflow
  for (const int64_t n : {config.heads, config.groups, config.dim, config.v_dim}) {
    if (n < 1 || n > kMost) return nullptr;
  }
  for (const int64_t rank : {config.q_rank, config.k_rank, config.v_rank, config.out_rank}) {
    if (rank != 3 && rank != 4) return nullptr;
  }
  if (config.heads % config.groups != 0) return nullptr;
  const size_t mask = node.op == Op::kSdpa ? 3 : 13;
  const bool masks_fit = c.Is(node.input(mask), DType::kF32) && c.Is(node.input(mask + 1), DType::kBool) &&
                         c.Is(node.input(mask + 2), DType::kF32);
  if (!masks_fit) return nullptr;
  if (node.op == Op::kSdpa) {
    for (size_t i = 0; i < 3; ++i) {
      if (!c.Is(node.input(i), DType::kF32)) return nullptr;
    }
    kernels::SdpaFloatArgs args;
    args.shape = OneOfEach(config), args.visibility.window = config.window;
    args.visibility.hidden_value = config.hidden_value;
    if (!kernels::SdpaRefusal(args).empty()) return nullptr;
    auto kernel = std::make_unique<FloatAttention>(c.arch, config);
    kernel->needs = NeedsOf(config, node, {DType::kF32, DType::kF32, DType::kF32}, mask);
    kernel->takes_rooms = true;
    kernel->otherwise = WhereSizesDiffer(node, c, mask);
    return kernel;
  }
  kernels::SdpaInt8Args p;
  if (!ReadParams(node, c, 3, &p.q_type, &p.q_scale, &p.q_zero_point) ||
      !ReadParams(node, c, 5, &p.k_type, &p.k_scale, &p.k_zero_point) ||
      !ReadParams(node, c, 7, &p.v_type, &p.v_scale, &p.v_zero_point)) {
    return nullptr;
  }
  const bool fp8 = quant::IsFp8(p.q_type);
  config.flash = config.flash && !fp8;  // fp8 has the exact form only
  if (!config.flash && !ReadParams(node, c, 9, &p.p_type, &p.p_scale, &p.p_zero_point)) return nullptr;
  if (!c.Is(node.input(0), p.q_type) || !c.Is(node.input(1), p.k_type) || !c.Is(node.input(2), p.v_type)) {
    return nullptr;
  }
  p.o_type = DType::kF32;
  if (node.input(11) && !ReadParams(node, c, 11, &p.o_type, &p.o_scale, &p.o_zero_point)) return nullptr;
  for (const DType t : {p.k_type, p.v_type, p.p_type, p.o_type}) {
    if (t != DType::kF32 && quant::IsFp8(t) != fp8) return nullptr;  // the kernels do not mix integers and fp8
  }
  p.divisor = a.Float("divisor", 0.0f);
  p.p_relative = a.Int("p_relative", 0) != 0 && !config.flash && !fp8;
  p.p_diffused = p.p_relative && a.Int("p_relative", 0) == ir::kSdpaDiffused;
  p.p_step = a.Float("p_step", 0.0f);
  if ((p.divisor != 0.0f || p.p_step != 0.0f) && (config.flash || fp8)) return nullptr;
  if (p.p_step != 0.0f && p.p_relative) return nullptr;
  const std::pair<size_t, kernels::SdpaScoreCodes*> places[] = {{ir::kSdpaProductCodes, &p.product_codes},
                                                                {ir::kSdpaScaledCodes, &p.scaled_codes},
                                                                {ir::kSdpaMaskedCodes, &p.masked_codes},
                                                                {ir::kSdpaProbCodes, &p.prob_codes}};
  for (const auto& [slot, codes] : places) {
    if (node.input(slot) && !ReadParams(node, c, slot, &codes->type, &codes->scale, &codes->zero_point)) return nullptr;
    if (codes->exist() && (config.flash || !quant::IsInt8(codes->type) || fp8)) return nullptr;
  }
  p.product_codes.step = a.Float("product_step", 0.0f);
  const int32_t lowest = p.p_type == DType::kU8 ? 0 : -128;
  if (p.p_relative && (p.prob_codes.exist() || p.p_zero_point != lowest)) return nullptr;
  if (p.p_relative)
    config.guard = kernels::SdpaGuard::kNan;  // rows without meaning are 0 either way; so keys can be skipped
  p.shape = OneOfEach(config), p.visibility.window = config.window, p.visibility.hidden_value = config.hidden_value;
  if (!(config.flash ? kernels::SdpaFlashRefusal(p) : kernels::SdpaRefusal(p)).empty()) return nullptr;
  auto kernel = std::make_unique<Int8Attention>(c.arch, config, p);
  kernel->needs = NeedsOf(config, node, {p.q_type, p.k_type, p.v_type}, mask);
  kernel->takes_rooms = true;
  kernel->otherwise = WhereSizesDiffer(node, c, mask);
  return kernel;
}

}  // namespace octavo::runtime
