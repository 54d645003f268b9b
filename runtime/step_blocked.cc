// LinearBlocked: weights are packed once at compile time; a run splits columns, so that each weight is read by one thread. With
// x_bits rows become codes first, once for all threads. Products that read the same x are one step: its rows become codes once for all
// of them, and threads share the columns of all. What is read by heads (by_heads.h) is stored so: head by head where each begins with a block of
// columns, else in a copy. What stands behind products (tail.h, heads_tail.h) runs on each piece of them.
#include "octavo/runtime/step_blocked.h"

#include <algorithm>
#include <cstring>
#include <format>
#include <iterator>
#include <numeric>
#include <utility>

#include "octavo/ir/beside.h"
#include "octavo/kernels/blocked/blocked_int8.h"
#include "octavo/kernels/catalog.h"
#include "octavo/runtime/by_heads.h"
#include "octavo/runtime/heads_tail.h"
#include "octavo/runtime/packed_once.h"

namespace octavo::runtime {

namespace {

// One of the products of a step.
struct Product {
  std::shared_ptr<const kernels::PackedBlocked> packed;
  std::vector<float> bias;  // empty: none
  std::optional<ByHeads> by_heads = {};
  size_t codes = 0;  // of which product the rows' codes are: with its own block and kind of zero points

  const float* bias_data() const { return bias.empty() ? nullptr : bias.data(); }
  const kernels::PackedBlocked& w() const { return *packed; }
  int64_t column_blocks() const { return kernels::ColumnBlocks(w().n()); }
};

// What a step makes of one product, or of some whose columns go side by side to what stands behind them.
struct Strand {
  struct Operand {
    size_t product = 0, slot = 0;  // slot 0: what the product makes
  };
  std::vector<size_t> products;
  size_t output = 0;                     // slot of the step
  std::unique_ptr<Tail> tail = nullptr;  // null: one product
  std::vector<Operand> in = {};          // of the tail
  std::optional<HeadsTail> heads = {};   // of one product: outputs from the slot on
};

// Where a product's rows go: [rows, n], or [batch, heads, rows of one, size].
struct Output {
  float* y = nullptr;
  int64_t n = 0, heads = 1,
          rows = 0;     // heads that begin with a block of columns each, rows of one batch entry; one head: [rows, n]
  bool copied = false;  // the heads do not: `y` is scratch, [rows, n]

  // f(y, stride, rows, columns) for each piece in which row i and column j lie at y + i * stride + j. `first` is the place of row 0.
  template <class F>
  void ForPieces(int64_t first, kernels::Range r, kernels::Range blocks, const F& f) const {
    if (heads == 1) return f(y + first * n, n, r, blocks);
    const int64_t size = n / heads, blocks_of_head = size / kernels::kColumnBlock;
    for (int64_t row = r.begin; row < r.end;) {
      const int64_t batch = (first + row) / rows, end = std::min(r.end, (batch + 1) * rows - first);
      for (int64_t c = blocks.begin; c < blocks.end;) {
        const int64_t head = c / blocks_of_head, last = std::min(blocks.end, (head + 1) * blocks_of_head);
        // No pointer leaves the output: rows is no less than 1 and n no less than size.
        float* const at = y + batch * rows * (n - size) + first * size + head * (rows - 1) * size;
        f(at, size, kernels::Range{row, end}, kernels::Range{c, last});
        c = last;
      }
      row = end;
    }
  }
};

bool SameCodes(const kernels::PackedBlocked& a, const kernels::PackedBlocked& b) {
  return a.k() == b.k() && a.bits() == b.bits() && a.block() == b.block() &&
         (a.Zeros(0) == nullptr) == (b.Zeros(0) == nullptr);
}

class BlockedKernel : public Kernel {
 public:
  BlockedKernel(kernels::Arch arch, std::vector<Product> products, std::vector<Strand> strands, bool codes)
      : arch_(arch), products_(std::move(products)), strands_(std::move(strands)), codes_(codes) {
    by_rows = true;
    name_ = std::format("linear_blocked{}{}", products_[0].w().bits(), codes ? "_int8" : "");
    std::string heads;
    for (const Strand& s : strands_) {
      lanes_.push_back({products_[s.products[0]].column_blocks(), static_cast<int64_t>(s.products.size()),
                        s.heads ? s.heads->unit() : 1});
      if (s.heads) s.heads->Need(needs, DType::kF32, products_[0].w().k());
      if (s.heads) std::ranges::move(s.heads->Pasts(), std::back_inserter(pasts_));
      if (s.heads) std::ranges::move(s.heads->Apart(), std::back_inserter(apart));
      if (s.heads && s.heads->name().size() > heads.size()) heads = s.heads->name();
      if (s.tail == nullptr) continue;
      name_ += "+" + s.tail->name();
      for (const Strand::Operand& in : s.in) {
        if (in.slot != 0) needs.EndsIn(in.slot, DType::kUndefined, {products_[s.products[0]].w().n()});
      }
    }
    name_ += heads + " " + std::string(Name(arch));
    takes_rooms = !heads.empty();
    needs.EndsIn(0, DType::kF32, {products_[0].w().k()});
    for (size_t i = 0; i < products_.size(); ++i) {
      Product& p = products_[i];
      for (p.codes = 0; !SameCodes(products_[p.codes].w(), p.w());) ++p.codes;
      if (p.codes == i) row_bytes_ += kernels::BlockedRowBytes(p.w());
      column_blocks_ += p.column_blocks();
      if (p.by_heads) needs.Exactly(0, DType::kF32, {Needs::Size::Any(), Needs::Size::Any(), p.w().k()});
    }
  }
  std::string name() const override { return name_; }

  Status Execute(StepCall& call) const override {
    MakeDenseBut(call, pasts_);
    const Tensor& x = call.T(0);
    const int64_t rows = LeadingRows(x.shape()), at_once = RowsAtOnce();
    Places to{std::vector<Output>(products_.size()), std::vector<std::byte*>(strands_.size()),
              std::vector<std::vector<HeadsTail::Place>>(strands_.size())};
    std::vector<Output>& y = to.y;
    int64_t copied = 0;  // columns that are read behind the product
    for (size_t i = 0; i < strands_.size(); ++i) {
      OCTAVO_TRY_STATUS(Place(call, i, to));
      for (const size_t p : strands_[i].products) copied += y[p].copied ? y[p].n : 0;
    }
    const int64_t code_bytes = codes_ ? std::min(at_once, rows) * row_bytes_ : 0;
    const auto bytes = code_bytes + rows * copied * static_cast<int64_t>(sizeof(float));
    std::byte* scratch = bytes > 0 ? call.Scratch(static_cast<size_t>(bytes)) : nullptr;
    auto* plain = reinterpret_cast<float*>(scratch + code_bytes);
    for (Output& o : y) {
      if (o.copied) o.y = std::exchange(plain, plain + rows * o.n);
    }
    const float* from = x.as<float>().data();
    if (codes_) {
      auto* codes = reinterpret_cast<uint8_t*>(scratch);
      for (int64_t first = 0; first < rows; first += at_once)
        RunSomeCodes(call, from + first * products_[0].w().k(), first, std::min(at_once, rows - first), codes, to);
    } else {
      RunFloats(call, from, rows, to);
    }
    for (size_t i = 0; i < strands_.size(); ++i) {
      const size_t p = strands_[i].products[0];
      if (strands_[i].tail != nullptr || strands_[i].heads || !y[p].copied) continue;
      CopyByHeads(call, y[p], products_[p].by_heads->heads, x.shape(), reinterpret_cast<float*>(to.out[i]));
    }
    return {};
  }

 private:
  // Where a run stores.
  struct Places {
    std::vector<Output> y;        // by product
    std::vector<std::byte*> out;  // by strand
    std::vector<std::vector<HeadsTail::Place>> heads;
  };

  // Memory of what strand `i` makes, and where its products store.
  Status Place(StepCall& call, size_t i, Places& to) const {
    const Strand& strand = strands_[i];
    const bool behind = strand.tail != nullptr || strand.heads;
    for (const size_t p : strand.products) to.y[p].n = products_[p].w().n(), to.y[p].copied = behind;
    if (strand.heads) {
      OCTAVO_TRY(to.heads[i], strand.heads->Open(call));
      return {};
    }
    Shape shape = call.T(0).shape();
    const Product& p = products_[strand.products[0]];
    Output& o = to.y[strand.products[0]];
    shape.back() = o.n;
    if (strand.tail != nullptr) {
      to.out[i] = call.Allocate(strand.output, strand.tail->output(), std::move(shape)).mutable_data();
      return {};
    }
    const bool turns = p.by_heads && shape[1] > 1;  // one row lies the same in both
    o.copied = turns && p.by_heads->size % kernels::kColumnBlock != 0;
    if (turns && !o.copied) o.heads = p.by_heads->heads, o.rows = shape[1];
    if (p.by_heads) shape = {shape[0], p.by_heads->heads, shape[1], p.by_heads->size};
    Tensor& t = call.Allocate(strand.output, DType::kF32, std::move(shape));
    o.y = t.mutable_as<float>().data();
    to.out[i] = t.mutable_data();
    return {};
  }

  static void CopyByHeads(StepCall& call, const Output& from, int64_t heads, const Shape& x, float* to) {
    const int64_t batch_rows = x[1], rows = x[0] * x[1], size = from.n / heads;
    const int64_t parts = PartsOf(rows, std::max<int64_t>(1, kElementGrain / from.n), call.threads->count());
    call.threads->For(parts, [&](int64_t i) {
      const Part r = PartOf(rows, parts, i, 1);
      for (int64_t row = r.begin; row < r.end; ++row) {
        for (int64_t h = 0; h < heads; ++h) {
          float* line = to + ((row / batch_rows * heads + h) * batch_rows + row % batch_rows) * size;
          std::memcpy(line, from.y + row * from.n + h * size, static_cast<size_t>(size) * sizeof(float));
        }
      }
    });
  }

  // task(product, rows, column blocks of it), on all threads, and what stands behind them; rows from `first` on.
  template <class Task>
  void ForParts(StepCall& call, int64_t first, int64_t rows, const Places& to, const Task& task) const {
    const int threads = call.threads->count();
    const int64_t column_parts = PartsOf(column_blocks_, 1, threads);
    const kernels::Tile tile = codes_ ? kernels::BlockedInt8Tile(arch_) : kernels::BlockedTile(arch_);
    const int64_t row_parts = column_parts >= threads ? 1 : PartsOf(rows, tile.share, threads);
    call.threads->For(row_parts * column_parts, [&](int64_t i) {
      const Part r = PartOf(rows, row_parts, i / column_parts, tile.rows);
      const Part c = PartOf(column_blocks_, column_parts, i % column_parts, 1);
      if (r.begin == r.end) return;
      ForLanes(lanes_, c.begin, c.end, [&](size_t s, kernels::Range own) {
        const Strand& strand = strands_[s];
        const size_t product = strand.products[0];
        if (strand.tail == nullptr && !strand.heads) return task(product, kernels::Range{r.begin, r.end}, own);
        const std::vector<const std::byte*> in = Operands(call, strand, to.y);
        const int64_t n = products_[product].w().n();
        ForPieces({r.begin, r.end}, own, lanes_[s].unit, [&](kernels::Range some, kernels::Range piece) {
          for (const size_t p : strand.products) task(p, some, piece);
          some.begin += first, some.end += first;
          if (strand.heads) return strand.heads->Store(call, to.heads[s], to.y[product].y, some, ColumnsOf(piece, n));
          strand.tail->RunPiece(in, n, some, ColumnsOf(piece, n), to.out[s]);
        });
      });
    });
  }

  static std::vector<const std::byte*> Operands(const StepCall& call, const Strand& strand,
                                                const std::vector<Output>& y) {
    std::vector<const std::byte*> in;
    for (const Strand::Operand& o : strand.in)
      in.push_back(o.slot == 0 ? reinterpret_cast<const std::byte*>(y[o.product].y) : call.T(o.slot).data());
    return in;
  }

  void RunFloats(StepCall& call, const float* x, int64_t rows, const Places& to_all) const {
    ForParts(call, 0, rows, to_all, [&](size_t p, kernels::Range r, kernels::Range c) {
      const kernels::PackedBlocked& w = products_[p].w();
      const TaskScratch scratch(kernels::BlockedScratchBytes(arch_, w));
      to_all.y[p].ForPieces(0, r, c, [&](float* to, int64_t stride, kernels::Range some, kernels::Range blocks) {
        const kernels::BlockedArgs args{
            .x = x, .x_stride = w.k(), .w = &w, .bias = products_[p].bias_data(), .y = to, .y_stride = stride};
        kernels::GemmBlocked(arch_, args, some, blocks, scratch.data());
      });
    });
  }

  // Codes of some rows at a time: 4 MB of them, not those of a whole prompt.
  int64_t RowsAtOnce() const {
    constexpr int64_t kBytes = 4 << 20, kRowsOfKernel = kernels::blocked_sizes::kRowsAtOnce;
    return std::max(kRowsOfKernel, kBytes / row_bytes_ / kRowsOfKernel * kRowsOfKernel);
  }

  // x: of the rows from `first` on.
  void RunSomeCodes(StepCall& call, const float* x, int64_t first, int64_t rows, uint8_t* codes,
                    const Places& to_all) const {
    const int64_t k = products_[0].w().k();
    std::vector<uint8_t*> codes_of(products_.size());
    for (size_t p = 0; p < products_.size(); ++p) {
      codes_of[p] = codes;
      if (products_[p].codes == p) codes += rows * kernels::BlockedRowBytes(products_[p].w());
    }
    const int64_t parts = PartsOf(rows, std::max<int64_t>(1, kElementGrain / k), call.threads->count());
    call.threads->For(parts, [&](int64_t i) {
      const Part r = PartOf(rows, parts, i, 1);
      for (size_t p = 0; p < products_.size(); ++p) {
        const kernels::PackedBlocked& w = products_[p].w();
        if (products_[p].codes != p) continue;
        uint8_t* to = codes_of[p] + r.begin * kernels::BlockedRowBytes(w);
        kernels::QuantizeBlocks(arch_, w, x + r.begin * k, k, r.end - r.begin, to);
      }
    });
    ForParts(call, first, rows, to_all, [&](size_t p, kernels::Range r, kernels::Range c) {
      const kernels::PackedBlocked& w = products_[p].w();
      const TaskScratch scratch(kernels::kBlockedInt8ScratchBytes);
      to_all.y[p].ForPieces(first, r, c, [&](float* to, int64_t stride, kernels::Range some, kernels::Range blocks) {
        const kernels::BlockedInt8Args args{
            .x = codes_of[products_[p].codes], .w = &w, .bias = products_[p].bias_data(), .y = to, .y_stride = stride};
        kernels::GemmBlockedInt8(arch_, args, some, blocks, scratch.data());
      });
    });
  }

  kernels::Arch arch_;
  std::vector<Product> products_;
  std::vector<Strand> strands_;
  std::vector<Lane> lanes_;    // by strand
  std::vector<size_t> pasts_;  // operands whose rooms are read
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
  const kernels::BlockedSource source{.data = w->data(),
                                      .dtype = w->dtype(),
                                      .k = k,
                                      .n = n,
                                      .block = block,
                                      .transposed = transposed,
                                      .scale = scale->as<float>().data(),
                                      .zero_point = zero != nullptr ? zero->data() : nullptr};
  auto packed = PackedOnce<kernels::PackedBlocked>(
      c, {w, scale, zero}, std::format("block {} {}", block, transposed ? "turned" : ""),
      [&] { return kernels::PackBlocked(source); },
      [&](const PackedFile::Arrays& arrays) { return kernels::PackedBlocked::Of(source, arrays); });
  if (packed == nullptr) return {};
  const int64_t x_bits = node.attrs.Int("x_bits", 0);
  if (!kernels::ChooseBlocked({.w = w->dtype(), .block = block, .x_bits = x_bits}, c.arch).ok()) return {};
  Product product{std::move(packed), bias != nullptr ? bias->ToFloats() : std::vector<float>{}};
  product.by_heads = FindByHeads(c.graph, node, 0);
  if (product.by_heads && product.by_heads->columns() != n) return {};
  return product;
}

// The LinearBlocked beside `id` (ir/beside.h) without those of chains.
std::vector<ir::NodeId> BlockedBeside(const Graph& g, ir::NodeId id, const ChainsByNode& chains) {
  std::vector<ir::NodeId> all = ir::ProductsBeside(g, id);
  std::erase_if(all, [&](ir::NodeId other) { return chains.contains(other); });
  return all;
}

// Empty where no kernel serves one of them.
std::vector<Product> ProductsOf(std::span<const ir::NodeId> nodes, const CompileContext& c) {
  std::vector<Product> products;
  for (const ir::NodeId id : nodes) {
    std::optional<Product> product = ProductOf(c.graph.node(id), c);
    if (!product) return {};
    products.push_back(std::move(*product));
  }
  return products;
}

bool HasCodes(const CompileContext& c, ir::NodeId id) { return c.graph.node(id).attrs.Int("x_bits", 0) == 8; }

// Which of the nodes makes v; their number: none.
size_t ProductOfValue(const Graph& g, std::span<const ir::NodeId> nodes, ValueId v) {
  return static_cast<size_t>(std::ranges::find_if(nodes, [&](ir::NodeId id) { return g.node(id).output() == v; }) -
                             nodes.begin());
}

// The strand of product `i`, and what it does to `made`; none: it is that of another product.
std::optional<Strand> StrandOf(const CompileContext& c, std::span<const ir::NodeId> nodes, size_t i,
                               std::span<const Chain> tails, const ChainsByNode& chains, Made& made) {
  const ValueId y = c.graph.node(nodes[i]).output();
  const auto tail = std::ranges::find_if(tails, [&](const Chain& t) { return std::ranges::contains(t.inputs, y); });
  Strand strand{.products = {}, .output = made.outputs.size()};
  if (tail == tails.end()) {
    strand.products = {i};
    std::vector<HeadsPart> parts = FindHeadsParts(c, nodes[0], y, chains);
    parts.empty() ? made.outputs.push_back(y) : void(strand.heads.emplace(std::move(parts), c, made));
    return strand;
  }
  for (const ValueId v : tail->inputs) {
    const size_t p = ProductOfValue(c.graph, nodes, v);
    if (p < i) return std::nullopt;
    if (p < nodes.size()) strand.products.push_back(p);
  }
  for (const ValueId v : tail->inputs) {
    const size_t p = ProductOfValue(c.graph, nodes, v);
    strand.in.push_back({p, p < nodes.size() ? 0 : made.inputs.size()});
    if (p == nodes.size()) made.inputs.push_back(v);
  }
  strand.tail = MakeTail(*tail, c);
  made.nodes.insert(made.nodes.end(), tail->nodes.begin(), tail->nodes.end());
  made.outputs.push_back(c.graph.node(tail->nodes.back()).output());
  return strand;
}

}  // namespace

Made MakeBlockedGroup(ir::NodeId id, const CompileContext& c, const ChainsByNode& chains) {
  std::vector<ir::NodeId> nodes = BlockedBeside(c.graph, id, chains);
  std::vector<Product> products;
  if (nodes[0] == id) products = ProductsOf(nodes, c);
  if (products.empty()) nodes = {id}, products = ProductsOf(nodes, c);
  if (products.empty()) return {};
  const std::vector<Chain> tails = FindTails(c, nodes, chains);
  Made made{.nodes = nodes, .inputs = c.graph.node(id).inputs};
  made.inputs.resize(5);
  std::vector<Strand> strands;
  for (size_t i = 0; i < products.size(); ++i) {
    if (std::optional<Strand> strand = StrandOf(c, nodes, i, tails, chains, made))
      strands.push_back(std::move(*strand));
  }
  made.kernel = std::make_unique<BlockedKernel>(c.arch, std::move(products), std::move(strands), HasCodes(c, id));
  return made;
}

KernelPtr MakeBlocked(const Node& node, const CompileContext& c) {
  const ir::NodeId id = c.graph.value(node.output()).producer;
  std::vector<Product> products = ProductsOf({&id, 1}, c);
  if (products.empty()) return nullptr;
  std::vector<Strand> strands;
  strands.push_back(Strand{.products = {0}});
  return std::make_unique<BlockedKernel>(c.arch, std::move(products), std::move(strands), HasCodes(c, id));
}

}  // namespace octavo::runtime
