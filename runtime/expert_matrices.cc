#include "octavo/runtime/expert_matrices.h"

#include <array>
#include <cstring>
#include <format>
#include <optional>
#include <utility>

#include "octavo/ir/elements.h"
#include "octavo/kernels/blocked/blocked_int8.h"
#include "octavo/kernels/catalog.h"
#include "octavo/runtime/packed_once.h"
#include "octavo/runtime/step_linear.h"

namespace octavo::runtime {

namespace {

// `count` columns of a matrix from `begin` on; of its transpose the rows.
Tensor ColumnsOf(const Tensor& t, bool transposed, int64_t begin, int64_t count) {
  const int64_t lines = transposed ? 1 : t.shape()[0], stride = t.shape()[1],
                length = transposed ? count * stride : count;
  Tensor part = Tensor::Zeros(t.dtype(), transposed ? Shape{count, stride} : Shape{lines, count});
  for (int64_t i = 0; i < lines; ++i)
    ir::CopyElements(t, transposed ? begin * stride : i * stride + begin, part, i * length, length);
  return part;
}

// Constants of a product. An operand that is there and none is in `given` as false.
struct Constants {
  const Tensor *w, *scale, *zero, *bias;
  bool given;
};
Constants ConstantsOf(const Node& n, const CompileContext& c, std::array<size_t, 4> slots) {
  std::array<const Tensor*, 4> t = {};
  bool given = true;
  for (size_t i = 0; i < slots.size(); ++i) {
    t[i] = c.Constant(n.input(slots[i]));
    given = given && (t[i] != nullptr) == n.input(slots[i]).valid();
  }
  return {t[0], t[1], t[2], t[3], given && t[0] != nullptr && t[1] != nullptr && t[0]->rank() == 2};
}
bool IsBias(const Tensor* bias, int64_t columns) {
  return bias == nullptr || (bias->dtype() == DType::kF32 && bias->size() == columns);
}
std::vector<float> FloatsOf(const Tensor* t) { return t != nullptr ? t->ToFloats() : std::vector<float>(); }

// --- in blocks -----------------------------------------------------------------------------------------------------
constexpr std::array<size_t, 4> kBlockedSlots = {1, 2, 3, 4};

bool HasBlocks(const Node& node, const CompileContext& c, int64_t columns) {
  const auto [w, scale, zero, bias, given] = ConstantsOf(node, c, kBlockedSlots);
  const int64_t block = node.attrs.Int("block_size", 0);
  if (!given || block <= 0 || !c.Is(node.input(0), DType::kF32)) return false;
  const bool transposed = node.attrs.Int("transposed", 0) != 0;
  const int64_t k = w->shape()[transposed ? 1 : 0], blocks = (k + block - 1) / block;
  const Shape wanted = transposed ? Shape{columns, blocks} : Shape{blocks, columns};
  if (k < 1 || w->shape()[transposed ? 0 : 1] != columns || scale->dtype() != DType::kF32 || scale->shape() != wanted)
    return false;
  if (zero != nullptr && (zero->dtype() != w->dtype() || zero->shape() != wanted)) return false;
  const kernels::BlockedQuery query{.w = w->dtype(), .block = block, .x_bits = node.attrs.Int("x_bits", 0)};
  return IsBias(bias, columns) && kernels::ChooseBlocked(query, c.arch).ok();
}

class InBlocks : public ExpertMatrices {
 public:
  using Packed = std::vector<kernels::PackedBlocked>;

  InBlocks(const CompileContext& c, std::shared_ptr<const Packed> packed, std::vector<float> bias, bool codes)
      : arch_(c.arch), packed_(std::move(packed)), bias_(std::move(bias)), codes_(codes) {
    count_ = static_cast<int64_t>(packed_->size()), k_ = w(0).k(), n_ = w(0).n();
    row_bytes_ = codes ? kernels::BlockedRowBytes(w(0)) : k_ * static_cast<int64_t>(sizeof(float));
    name_ = std::format("experts_blocked{}{}", w(0).bits(), codes ? "_int8" : "");
  }
  void Need(Needs& needs) const override { needs.EndsIn(0, DType::kF32, {k_}); }
  int64_t Bytes(int64_t rows) const override { return rows * row_bytes_; }
  void Take(const StepCall& call, int64_t from, int64_t at, int64_t, std::byte* sorted) const override {
    const float* x = call.T(0).as<float>().data() + from * k_;
    std::byte* to = sorted + at * row_bytes_;
    if (codes_) return kernels::QuantizeBlocks(arch_, w(0), x, k_, 1, reinterpret_cast<uint8_t*>(to));
    std::memcpy(to, x, static_cast<size_t>(row_bytes_));
  }
  void Multiply(size_t expert, const std::byte* sorted, int64_t, kernels::Range rows, kernels::Range blocks,
                float* y) const override {
    const float* bias = bias_.empty() ? nullptr : bias_.data() + static_cast<int64_t>(expert) * n_;
    if (codes_) {
      const TaskScratch scratch(kernels::kBlockedInt8ScratchBytes);
      const auto* x = reinterpret_cast<const uint8_t*>(sorted);
      const kernels::BlockedInt8Args args{.x = x, .w = &w(expert), .bias = bias, .y = y, .y_stride = n_};
      return kernels::GemmBlockedInt8(arch_, args, rows, blocks, scratch.data());
    }
    const TaskScratch scratch(kernels::BlockedScratchBytes(arch_, w(expert)));
    const auto* x = reinterpret_cast<const float*>(sorted);
    const kernels::BlockedArgs args{.x = x, .x_stride = k_, .w = &w(expert), .bias = bias, .y = y, .y_stride = n_};
    kernels::GemmBlocked(arch_, args, rows, blocks, scratch.data());
  }

 private:
  const kernels::PackedBlocked& w(size_t expert) const { return (*packed_)[expert]; }

  kernels::Arch arch_;
  std::shared_ptr<const Packed> packed_;
  std::vector<float> bias_;  // of all; empty: none
  bool codes_;               // rows become codes
  int64_t row_bytes_ = 0;
};

// Of an expert, without data.
kernels::BlockedSource BlocksOf(const Node& node, const Tensor& w, int64_t n) {
  const bool transposed = node.attrs.Int("transposed", 0) != 0;
  return {.dtype = w.dtype(),
          .k = w.shape()[transposed ? 1 : 0],
          .n = n,
          .block = node.attrs.Int("block_size", 0),
          .transposed = transposed};
}

std::optional<InBlocks::Packed> PackBlocks(const Node& node, const Constants& of, int64_t count, int64_t n) {
  const bool transposed = node.attrs.Int("transposed", 0) != 0;
  InBlocks::Packed packed;
  for (int64_t e = 0; e < count; ++e) {
    const auto own = [&](const Tensor& t) { return ColumnsOf(t, transposed, e * n, n); };
    const Tensor codes = own(*of.w), scales = own(*of.scale), zeros = of.zero != nullptr ? own(*of.zero) : Tensor();
    kernels::BlockedSource source = BlocksOf(node, *of.w, n);
    source.data = codes.data(), source.scale = scales.as<float>().data();
    source.zero_point = of.zero != nullptr ? zeros.data() : nullptr;
    auto one = kernels::PackBlocked(source);
    if (!one) return {};
    packed.push_back(std::move(*one));
  }
  return packed;
}

// --- rows with a scale and zero point of their own -------------------------------------------------------------------
constexpr std::array<size_t, 4> kTokensSlots = {3, 4, 16, 5};  // no zero points

bool HasTokens(const Node& node, const CompileContext& c, int64_t columns) {
  const auto [w, scale, zero, bias, given] = ConstantsOf(node, c, kTokensSlots);
  if (!given || node.attrs.Int("per_token", 0) == 0 || node.attrs.Str("activation", "none") != "none") return false;
  for (const size_t slot : {6, 7, 8, 9}) {
    if (node.input(slot).valid()) return false;
  }
  const bool typed = c.graph.value(node.input(0)).type.dtype == DType::kU8 && c.Is(node.input(1), DType::kF32) &&
                     c.Is(node.input(2), DType::kU8) && w->dtype() != DType::kU8 && StepsOf(node, c, *w) &&
                     scale->dtype() == DType::kF32;
  return typed && w->shape()[0] > 0 && w->shape()[1] == columns && scale->size() == columns && IsBias(bias, columns);
}

class OfTokens : public ExpertMatrices {
 public:
  using Packed = std::vector<kernels::PackedWeights>;

  OfTokens(const CompileContext& c, std::shared_ptr<const Packed> packed, std::vector<float> scale,
           std::vector<float> bias)
      : arch_(c.arch), packed_(std::move(packed)), scale_(std::move(scale)), bias_(std::move(bias)) {
    count_ = static_cast<int64_t>(packed_->size()), k_ = w(0).k(), n_ = w(0).n();
    name_ = "experts_linear_int8";
  }
  void Need(Needs& needs) const override {
    needs.EndsIn(0, DType::kU8, {k_}), needs.EndsIn(1, DType::kF32, {1}), needs.EndsIn(2, DType::kU8, {1});
  }
  // Scales, codes, zero points.
  int64_t Bytes(int64_t rows) const override { return rows * (static_cast<int64_t>(sizeof(float)) + k_ + 1); }
  void Take(const StepCall& call, int64_t from, int64_t at, int64_t rows, std::byte* sorted) const override {
    const Places to = In(rows);
    std::memcpy(sorted + at * static_cast<int64_t>(sizeof(float)), call.T(1).as<float>().data() + from, sizeof(float));
    std::memcpy(sorted + to.codes + at * k_, call.T(0).data() + from * k_, static_cast<size_t>(k_));
    std::memcpy(sorted + to.zeros + at, call.T(2).data() + from, 1);
  }
  void Multiply(size_t expert, const std::byte* sorted, int64_t all_rows, kernels::Range rows, kernels::Range blocks,
                float* y) const override {
    const Places from = In(all_rows);
    const auto first = static_cast<int64_t>(expert) * n_;
    const kernels::GemmInput x{.data = sorted + from.codes,
                               .dtype = DType::kU8,
                               .stride = k_,
                               .row_scale = reinterpret_cast<const float*>(sorted),
                               .row_zero_point = reinterpret_cast<const uint8_t*>(sorted + from.zeros)};
    const kernels::GemmOutput to{.w = &w(expert),
                                 .w_scale = scale_.data() + first,
                                 .bias = bias_.empty() ? nullptr : bias_.data() + first,
                                 .y = y,
                                 .stride = n_};
    const TaskScratch scratch(kernels::GemmScratchBytes(arch_, DType::kU8, k_, w(expert).stepped()));
    kernels::Gemm(arch_, {.x = x, .y = to}, rows, blocks, scratch.data());
  }

 private:
  struct Places {
    int64_t codes, zeros;
  };
  Places In(int64_t rows) const {
    const int64_t scales = rows * static_cast<int64_t>(sizeof(float));
    return {scales, scales + rows * k_};
  }
  const kernels::PackedWeights& w(size_t expert) const { return (*packed_)[expert]; }

  kernels::Arch arch_;
  std::shared_ptr<const Packed> packed_;
  std::vector<float> scale_, bias_;  // of all; no bias: empty
};

std::optional<OfTokens::Packed> PackTokens(const Tensor& w, const StepsOfWeight& steps, int64_t count, int64_t n) {
  OfTokens::Packed packed;
  for (int64_t e = 0; e < count; ++e) {
    const auto own = [&](const Tensor* t) { return t != nullptr ? ColumnsOf(*t, false, e * n, n) : Tensor(); };
    const Tensor codes = own(&w), step = own(steps.step), zero = own(steps.zero);
    const StepsOfWeight of{steps.step != nullptr ? &step : nullptr, steps.zero != nullptr ? &zero : nullptr};
    auto one = kernels::PackWeights(of.Of(codes));
    if (!one) return {};
    packed.push_back(std::move(*one));
  }
  return packed;
}

}  // namespace

bool HasMatricesOfExperts(const Node& product, const CompileContext& c, int64_t count, int64_t n) {
  return product.op == Op::kLinearBlocked ? HasBlocks(product, c, count * n) : HasTokens(product, c, count * n);
}

size_t OperandsOfExperts(const Node& product) { return product.op == Op::kLinearBlocked ? 1 : 3; }

std::unique_ptr<ExpertMatrices> MatricesOfExperts(const Node& product, const CompileContext& c, int64_t count,
                                                  int64_t n) {
  if (product.op == Op::kLinearBlocked) {
    const Constants of = ConstantsOf(product, c, kBlockedSlots);
    const std::string how = std::format("{} experts, block {} {}", count, product.attrs.Int("block_size", 0),
                                        product.attrs.Int("transposed", 0) != 0 ? "turned" : "");
    auto packed = PackedOnce<InBlocks::Packed>(
        c, {of.w, of.scale, of.zero}, how, [&] { return PackBlocks(product, of, count, n); },
        [&](const PackedFile::Arrays& arrays) {
          return MatricesOf<kernels::PackedBlocked>(arrays, count, BlocksOf(product, *of.w, n));
        });
    if (packed == nullptr) return nullptr;
    return std::make_unique<InBlocks>(c, std::move(packed), FloatsOf(of.bias), product.attrs.Int("x_bits", 0) == 8);
  }
  const Constants of = ConstantsOf(product, c, kTokensSlots);
  const StepsOfWeight steps = *StepsOf(product, c, *of.w);
  auto packed = PackedOnce<OfTokens::Packed>(
      c, {of.w, steps.step, steps.zero}, std::format("{} experts", count),
      [&] { return PackTokens(*of.w, steps, count, n); },
      [&](const PackedFile::Arrays& arrays) {
        return MatricesOf<kernels::PackedWeights>(
            arrays, count, kernels::WeightSource{.dtype = of.w->dtype(), .k = of.w->shape()[0], .n = n});
      });
  if (packed == nullptr) return nullptr;
  return std::make_unique<OfTokens>(c, std::move(packed), of.scale->ToFloats(), FloatsOf(of.bias));
}

}  // namespace octavo::runtime
