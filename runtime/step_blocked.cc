// LinearBlocked: weights are packed once at compile time; a run splits columns, so that each weight is read by one thread. With
// x_bits rows become codes first, once for all threads. Products that read the same x are one step: its rows become codes once for all
// of them, and threads share the columns of all.
#include "octavo/runtime/step_blocked.h"

#include <algorithm>
#include <format>
#include <numeric>

#include "octavo/kernels/blocked/blocked_int8.h"
#include "octavo/kernels/catalog.h"

namespace octavo::runtime {

namespace {

// One of the products of a step.
struct Product {
  kernels::PackedBlocked w;
  std::vector<float> bias;  // empty: none
  size_t codes = 0;         // of which product the rows' codes are: with its own block and kind of zero points

  const float* bias_data() const { return bias.empty() ? nullptr : bias.data(); }
  int64_t column_blocks() const { return kernels::ColumnBlocks(w.n()); }
};

bool SameCodes(const kernels::PackedBlocked& a, const kernels::PackedBlocked& b) {
  return a.k() == b.k() && a.bits() == b.bits() && a.block() == b.block() &&
         (a.Zeros(0) == nullptr) == (b.Zeros(0) == nullptr);
}

class BlockedKernel : public Kernel {
 public:
  BlockedKernel(kernels::Arch arch, std::vector<Product> products, bool codes, std::string name)
      : arch_(arch), products_(std::move(products)), codes_(codes), name_(std::move(name)) {
    needs.EndsIn(0, DType::kF32, {products_[0].w.k()});
    for (size_t i = 0; i < products_.size(); ++i) {
      Product& p = products_[i];
      for (p.codes = 0; !SameCodes(products_[p.codes].w, p.w);) ++p.codes;
      if (p.codes == i) row_bytes_ += kernels::BlockedRowBytes(p.w);
      column_blocks_ += p.column_blocks();
    }
  }
  std::string name() const override { return name_; }

  Status Execute(StepCall& call) const override {
    const Tensor& x = call.T(0);
    Shape shape = x.shape();
    const int64_t rows = LeadingRows(shape);
    std::vector<float*> y;
    for (size_t i = 0; i < products_.size(); ++i) {
      shape.back() = products_[i].w.n();
      y.push_back(call.Allocate(i, DType::kF32, shape).mutable_as<float>().data());
    }
    const float* from = x.as<float>().data();
    if (codes_) {
      RunCodes(call, from, rows, y);
    } else {
      RunFloats(call, from, rows, y);
    }
    return {};
  }

 private:
  // task(product, rows, column blocks of it), on all threads.
  template <class Task>
  void ForParts(StepCall& call, int64_t rows, const Task& task) const {
    const int threads = call.threads->count();
    const int64_t column_parts = PartsOf(column_blocks_, 1, threads);
    const kernels::Tile tile = codes_ ? kernels::BlockedInt8Tile(arch_) : kernels::BlockedTile(arch_);
    const int64_t row_parts = column_parts >= threads ? 1 : PartsOf(rows, tile.share, threads);
    call.threads->For(row_parts * column_parts, [&](int64_t i) {
      const Part r = PartOf(rows, row_parts, i / column_parts, tile.rows);
      const Part c = PartOf(column_blocks_, column_parts, i % column_parts, 1);
      int64_t first = 0;  // column block of the product
      for (size_t p = 0; p < products_.size() && r.begin < r.end; ++p) {
        const int64_t blocks = products_[p].column_blocks();
        const int64_t begin = std::max(c.begin - first, int64_t{0}), end = std::min(c.end - first, blocks);
        if (begin < end) task(p, kernels::Range{r.begin, r.end}, kernels::Range{begin, end});
        first += blocks;
      }
    });
  }

  void RunFloats(StepCall& call, const float* x, int64_t rows, const std::vector<float*>& y) const {
    ForParts(call, rows, [&](size_t p, kernels::Range r, kernels::Range c) {
      const kernels::PackedBlocked& w = products_[p].w;
      const kernels::BlockedArgs args{
          .x = x, .x_stride = w.k(), .w = &w, .bias = products_[p].bias_data(), .y = y[p], .y_stride = w.n()};
      kernels::GemmBlocked(arch_, args, r, c, TaskScratch(kernels::BlockedScratchBytes(arch_, w)).data());
    });
  }

  // Codes of some rows at a time: 4 MB of them, not those of a whole prompt.
  void RunCodes(StepCall& call, const float* x, int64_t rows, std::vector<float*> y) const {
    constexpr int64_t kBytes = 4 << 20, kRowsOfKernel = kernels::blocked_sizes::kRowsAtOnce;
    const int64_t at_once = std::max(kRowsOfKernel, kBytes / row_bytes_ / kRowsOfKernel * kRowsOfKernel);
    const int64_t bytes = std::min(at_once, rows) * row_bytes_;
    auto* codes = reinterpret_cast<uint8_t*>(call.Scratch(static_cast<size_t>(bytes)));
    for (int64_t first = 0; first < rows; first += at_once) {
      const int64_t some = std::min(at_once, rows - first);
      RunSomeCodes(call, x + first * products_[0].w.k(), some, codes, y);
      for (size_t p = 0; p < products_.size(); ++p) y[p] += some * products_[p].w.n();
    }
  }

  void RunSomeCodes(StepCall& call, const float* x, int64_t rows, uint8_t* codes, const std::vector<float*>& y) const {
    const int64_t k = products_[0].w.k();
    std::vector<uint8_t*> codes_of(products_.size());
    for (size_t p = 0; p < products_.size(); ++p) {
      codes_of[p] = codes;
      if (products_[p].codes == p) codes += rows * kernels::BlockedRowBytes(products_[p].w);
    }
    const int64_t parts = PartsOf(rows, std::max<int64_t>(1, kElementGrain / k), call.threads->count());
    call.threads->For(parts, [&](int64_t i) {
      const Part r = PartOf(rows, parts, i, 1);
      for (size_t p = 0; p < products_.size(); ++p) {
        const kernels::PackedBlocked& w = products_[p].w;
        if (products_[p].codes != p) continue;
        uint8_t* to = codes_of[p] + r.begin * kernels::BlockedRowBytes(w);
        kernels::QuantizeBlocks(arch_, w, x + r.begin * k, k, r.end - r.begin, to);
      }
    });
    ForParts(call, rows, [&](size_t p, kernels::Range r, kernels::Range c) {
      const kernels::PackedBlocked& w = products_[p].w;
      const kernels::BlockedInt8Args args{
          .x = codes_of[products_[p].codes], .w = &w, .bias = products_[p].bias_data(), .y = y[p], .y_stride = w.n()};
      kernels::GemmBlockedInt8(arch_, args, r, c, TaskScratch(kernels::kBlockedInt8ScratchBytes).data());
    });
  }

  kernels::Arch arch_;
  std::vector<Product> products_;
  bool codes_;
  std::string name_;
  int64_t row_bytes_ = 0, column_blocks_ = 0;
};

// Null: no kernel serves it.
std::optional<Product> ProductOf(const Node& node, const CompileContext& c) {
  const Tensor* w = c.Constant(node.input(1));
  const Tensor* scale = c.Constant(node.input(2));
  const Tensor* zero = c.Constant(node.input(3));
  const Tensor* bias = c.Constant(node.input(4));
  const bool given =
      w != nullptr && scale != nullptr && (zero != nullptr || !node.input(3)) && (bias != nullptr || !node.input(4));
  if (!given || w->rank() != 2 || c.graph.value(node.input(0)).type.dtype != DType::kF32) return {};
  const bool transposed = node.attrs.Int("transposed", 0) != 0;
  const int64_t k = w->shape()[transposed ? 1 : 0], n = w->shape()[transposed ? 0 : 1];
  const int64_t block = node.attrs.Int("block_size", 0);
  if (block <= 0) return {};
  const int64_t blocks = (k + block - 1) / block;
  const Shape wanted = transposed ? Shape{n, blocks} : Shape{blocks, n};
  if (scale->dtype() != DType::kF32 || scale->shape() != wanted) return {};
  if (zero != nullptr && (zero->dtype() != w->dtype() || zero->shape() != wanted)) return {};
  if (bias != nullptr && (bias->dtype() != DType::kF32 || bias->size() != n)) return {};
  auto packed = kernels::PackBlocked({.data = w->data(),
                                      .dtype = w->dtype(),
                                      .k = k,
                                      .n = n,
                                      .block = block,
                                      .transposed = transposed,
                                      .scale = scale->as<float>().data(),
                                      .zero_point = zero != nullptr ? zero->data() : nullptr});
  if (!packed) return {};
  const int64_t x_bits = node.attrs.Int("x_bits", 0);
  if (!kernels::ChooseBlocked({.w = w->dtype(), .block = block, .x_bits = x_bits}, c.arch).ok()) return {};
  return Product{std::move(*packed), bias != nullptr ? bias->ToFloats() : std::vector<float>{}};
}

}  // namespace

std::vector<ir::NodeId> BlockedBeside(const Graph& g, ir::NodeId id) {
  const Node& n = g.node(id);
  const auto depth = [&g](const Node& node) {
    const auto& shape = g.value(node.input(1)).type.shape;
    const size_t axis = node.attrs.Int("transposed", 0) != 0 ? 1 : 0;
    return shape && shape->size() == 2 && (*shape)[axis].is_number() ? (*shape)[axis].number() : -1;
  };
  std::vector<ir::NodeId> all;
  if (n.op != Op::kLinearBlocked) return {id};
  for (const ir::Use& use : g.value(n.input(0)).uses) {
    const Node& other = g.node(use.node);
    if (other.op != Op::kLinearBlocked || use.slot != 0 || depth(other) != depth(n) ||
        other.attrs.Int("x_bits", 0) != n.attrs.Int("x_bits", 0))
      continue;
    all.push_back(use.node);
  }
  std::ranges::sort(all, [&g](ir::NodeId a, ir::NodeId b) { return g.Before(a, b); });
  return all;
}

KernelPtr MakeBlockedGroup(std::span<const ir::NodeId> nodes, const CompileContext& c) {
  std::vector<Product> products;
  for (const ir::NodeId id : nodes) {
    std::optional<Product> product = ProductOf(c.graph.node(id), c);
    if (!product) return nullptr;
    products.push_back(std::move(*product));
  }
  const bool codes = c.graph.node(nodes[0]).attrs.Int("x_bits", 0) == 8;
  std::string name = std::format("linear_blocked{}{} {}", products[0].w.bits(), codes ? "_int8" : "", Name(c.arch));
  return std::make_unique<BlockedKernel>(c.arch, std::move(products), codes, std::move(name));
}

KernelPtr MakeBlocked(const Node& node, const CompileContext& c) {
  const ir::NodeId id = c.graph.value(node.output()).producer;
  return MakeBlockedGroup({&id, 1}, c);
}

}  // namespace octavo::runtime
