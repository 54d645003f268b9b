#include "octavo/runtime/expert_products.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "octavo/kernels/blocked/blocked.h"
#include "octavo/kernels/gemm/gemm_f32.h"
#include "octavo/runtime/expert_rows.h"
#include "octavo/runtime/packed_once.h"

namespace octavo::runtime {

namespace {

using ir::NodeId;

// What a product reads of the experts.
struct Weights {
  const Tensor* w = nullptr;  // [E,a,b]
  ValueId index;
  bool tuples = false;   // indices are [...,1] (GatherND)
  bool flipped = false;  // the product reads [b,a]
};

// A Transpose of the last two dims alone.
bool IsFlip(const Node& n) {
  std::vector<int64_t> perm = n.attrs.Ints("perm");
  if (perm.size() < 2) return false;
  std::swap(perm[perm.size() - 1], perm[perm.size() - 2]);
  return std::ranges::is_sorted(perm) && perm.back() == static_cast<int64_t>(perm.size()) - 1;
}

bool Holds(const Tensor* w) {
  return w != nullptr && w->rank() == 3 && w->size() > 0 &&
         (w->dtype() == DType::kF32 || w->dtype() == DType::kF16 || w->dtype() == DType::kBF16 ||
          w->dtype() == DType::kS8 || w->dtype() == DType::kU8);
}

// Of a whole matrix for each index; none where the indices are constants, since then there is one product for each expert.
std::optional<Weights> Gathered(const CompileContext& c, const Node& n, Weights found) {
  if (n.op != Op::kGather && n.op != Op::kGatherND) return {};
  found.w = c.Constant(n.input(0)), found.index = n.input(1), found.tuples = n.op == Op::kGatherND;
  if (!Holds(found.w) || !found.index.valid() || c.Constant(found.index) != nullptr) return {};
  if (!found.tuples) return n.attrs.Int("axis", 0) == 0 ? std::optional(found) : std::nullopt;
  const auto& shape = c.graph.value(found.index).type.shape;
  const bool single = shape && !shape->empty() && shape->back().is_number() && shape->back().number() == 1;
  return single && n.attrs.Int("batch_dims", 0) == 0 ? std::optional(found) : std::nullopt;
}

// The weights that make v, through nodes that nobody else reads.
std::optional<Weights> WeightsOf(const CompileContext& c, ValueId v, std::vector<NodeId>& nodes) {
  constexpr int kMostNodes = 6;
  Weights found;
  for (int i = 0; i < kMostNodes; ++i) {
    if (!v.valid() || c.graph.IsGraphOutput(v) || c.graph.value(v).uses.size() != 1) return {};
    const NodeId id = c.graph.value(v).producer;
    if (!id.valid() || c.graph.value(v).type.dtype == DType::kUndefined) return {};
    const Node& n = c.graph.node(id);
    nodes.push_back(id);
    const bool widens = n.op == Op::kCast && n.attrs.Int("to", 0) == static_cast<int64_t>(DType::kF32);
    const bool passes = widens || (n.op == Op::kTranspose && IsFlip(n));
    if (!passes) return Gathered(c, n, found);
    if (n.op == Op::kTranspose) found.flipped = !found.flipped;
    v = n.input(0);
  }
  return {};
}

using Codes = std::vector<kernels::PackedBlocked>;  // of each expert

// Of an expert, without data. 64 columns of a block are decoded at once; its scale is 1, the true one stands behind the product.
kernels::BlockedSource CodesOf(const Tensor& w, bool transposed) {
  return {.dtype = w.dtype(),
          .k = w.shape()[transposed ? 2 : 1],
          .n = w.shape()[transposed ? 1 : 2],
          .block = 128,
          .transposed = transposed};
}

// None: no kernel has them.
std::optional<Codes> PackCodes(const Tensor& w, bool transposed) {
  kernels::BlockedSource source = CodesOf(w, transposed);
  const std::vector<float> ones(static_cast<size_t>((source.k + source.block - 1) / source.block * source.n), 1.0f);
  source.scale = ones.data();
  Codes codes;
  for (int64_t e = 0; e < w.shape()[0]; ++e) {
    source.data = w.data() + e * source.k * source.n;
    auto packed = kernels::PackBlocked(source);
    if (!packed) return {};
    codes.push_back(std::move(*packed));
  }
  return codes;
}

using Panels = std::vector<kernels::PackedF32>;  // of each expert, for each part of its columns

// An expert has few rows, which take less time than it takes to pack its weights for them.
int64_t PartsOfColumns(int64_t n) {
  constexpr int64_t kColumns = 512;
  return (n + kColumns - 1) / kColumns;
}

// Of 16 bits behind a Cast: as a Cast of the constant would have them. None: no kernel has them.
std::optional<Panels> PackFloats(const Tensor& w, bool transposed) {
  const int64_t k = w.shape()[transposed ? 2 : 1], n = w.shape()[transposed ? 1 : 2], parts = PartsOfColumns(n);
  const size_t bytes = w.byte_size() / static_cast<size_t>(w.shape()[0]), start = w.data() - w.buffer()->data();
  Panels panels;
  for (int64_t e = 0; e < w.shape()[0]; ++e) {
    const Shape matrix{w.shape()[1], w.shape()[2]};
    const Tensor own = Tensor::View(w.dtype(), matrix, w.buffer(), start + bytes * static_cast<size_t>(e));
    const std::vector<float> wide = w.dtype() == DType::kF32 ? std::vector<float>() : own.ToFloats();
    const float* from = wide.empty() ? own.as<float>().data() : wide.data();
    for (int64_t i = 0; i < parts; ++i) {
      const Part p = PartOf(n, parts, i, 16);
      auto packed = kernels::PackWeightsF32(from + p.begin * (transposed ? k : 1), k, p.end - p.begin, transposed,
                                            transposed ? k : n);
      if (!packed) return {};
      panels.push_back(std::move(*packed));
    }
  }
  return panels;
}

class ExpertProducts : public Kernel {
 public:
  // `slot`: of the weights among the product's operands.
  ExpertProducts(kernels::Arch arch, const Weights& weights, size_t slot, std::shared_ptr<const Codes> codes,
                 std::shared_ptr<const Panels> panels)
      : arch_(arch), slot_(slot), tuples_(weights.tuples), codes_(std::move(codes)), panels_(std::move(panels)) {
    const Shape& s = weights.w->shape();
    const bool transposed = (slot == 0) != weights.flipped;
    experts_ = s[0], k_ = s[transposed ? 2 : 1], n_ = s[transposed ? 1 : 2];
    needs.Typed(0, DType::kF32), needs.Typed(1, DType::kUndefined);
  }
  std::string name() const override { return codes_ == nullptr ? "experts_f32" : "experts_int8"; }

  Status Execute(StepCall& call) const override {
    const std::optional<Rows> rows = RowsOf(call.T(0), call.T(1));
    if (!rows) return otherwise->Run(call);
    const float* x = call.T(0).as<float>().data();
    float* y = call.Allocate(0, DType::kF32, rows->result).mutable_as<float>().data();
    if (rows->in_order) return Multiply(call, *rows, x, y);
    const int64_t count = rows->count();
    auto* sorted_x = reinterpret_cast<float*>(call.Scratch(static_cast<size_t>(count * (k_ + n_)) * sizeof(float)));
    float* sorted_y = sorted_x + count * k_;
    MoveLines(call, count, k_, [&](int64_t i) { return std::pair{x + rows->order[i] * k_, sorted_x + i * k_}; });
    OCTAVO_TRY_STATUS(Multiply(call, *rows, sorted_x, sorted_y));
    MoveLines(call, count, n_, [&](int64_t i) { return std::pair{sorted_y + i * n_, y + rows->order[i] * n_}; });
    return {};
  }

 private:
  struct Rows : ExpertRows {
    Shape result;
  };

  // None: operands that broadcast, or an index without an expert, of which the single nodes tell.
  std::optional<Rows> RowsOf(const Tensor& x, const Tensor& index) const {
    Shape tokens = index.shape();
    if (tuples_) tokens.pop_back();
    const auto batch = static_cast<int64_t>(tokens.size());
    const Shape& s = x.shape();
    if (x.rank() < 2 || (batch > 0 && x.rank() != batch + 2) || !std::ranges::equal(tokens, std::span(s).first(batch)))
      return {};
    const int64_t m = s[s.size() - 2], last = s.back();
    if (slot_ == 0 ? m != k_ || last != 1 || x.rank() != batch + 2 : last != k_) return {};
    const int64_t each = slot_ == 0 ? 1 : batch == 0 ? LeadingRows(s) : m;
    std::optional<ExpertRows> sorted = SortByExpert(index, each, experts_);
    if (!sorted) return {};
    Rows rows{std::move(*sorted), s};
    slot_ == 0 ? rows.result[s.size() - 2] = n_ : rows.result.back() = n_;
    return rows;
  }

  // Each chosen expert's columns in parts: of codes as many as threads can use, of floats by width alone.
  Status Multiply(StepCall& call, const Rows& rows, const float* x, float* y) const {
    const int64_t blocks = kernels::ColumnBlocks(n_), threads = call.threads->count();
    const int64_t parts = codes_ == nullptr ? PartsOfColumns(n_) : threads == 1 ? 1 : std::min(blocks, 2 * threads);
    const std::vector<size_t> chosen = rows.Chosen();
    call.threads->For(std::ssize(chosen) * parts, [&](int64_t task) {
      const size_t e = chosen[static_cast<size_t>(task / parts)];
      const kernels::Range of{rows.first[e], rows.first[e + 1]};
      if (codes_ == nullptr) {
        const int64_t part = task % parts;
        kernels::GemmF32({.x = x,
                          .x_stride = k_,
                          .w = &(*panels_)[e * static_cast<size_t>(parts) + static_cast<size_t>(part)],
                          .y = y + PartOf(n_, parts, part, 16).begin,
                          .y_stride = n_},
                         of);
      } else {
        const Part p = PartOf(blocks, parts, task % parts, 1);
        const kernels::BlockedArgs args{.x = x, .x_stride = k_, .w = &(*codes_)[e], .y = y, .y_stride = n_};
        kernels::GemmBlocked(arch_, args, of, {p.begin, p.end},
                             TaskScratch(kernels::BlockedScratchBytes(arch_, (*codes_)[e])).data());
      }
    });
    return {};
  }

  kernels::Arch arch_;
  size_t slot_;
  bool tuples_;
  std::shared_ptr<const Codes> codes_;    // null: floats
  std::shared_ptr<const Panels> panels_;  // of those
  int64_t experts_ = 0, k_ = 0, n_ = 0;
};

// The product `root` of experts' weights in operand `slot`.
std::optional<Chain> Match(const CompileContext& c, NodeId root, size_t slot) {
  Chain chain;
  chain.nodes = {root};
  const Node& product = c.graph.node(root);
  const std::optional<Weights> found = WeightsOf(c, product.input(slot), chain.nodes);
  if (!found || c.graph.value(product.input(1 - slot)).type.dtype != DType::kF32) return {};
  chain.inputs = {product.input(1 - slot), found->index};
  chain.experts_slot = slot;
  return chain;
}

}  // namespace

std::vector<Chain> FindExpertProducts(const CompileContext& c) {
  std::vector<Chain> found;
  for (const NodeId id : c.graph.NodesInOrder()) {
    if (c.graph.node(id).op != Op::kMatMul) continue;
    std::optional<Chain> chain = Match(c, id, 0);
    if (!chain) chain = Match(c, id, 1);
    if (!chain) continue;
    std::ranges::sort(chain->nodes, [&c](NodeId a, NodeId b) { return c.graph.Before(a, b); });
    found.push_back(std::move(*chain));
  }
  return found;
}

KernelPtr MakeExpertProducts(const Chain& chain, const CompileContext& c) {
  std::vector<NodeId> nodes;
  const size_t slot = *chain.experts_slot;
  const Weights found = *WeightsOf(c, c.graph.node(chain.nodes.back()).input(slot), nodes);
  KernelPtr single = MakeNodes(chain, c, "experts of single nodes");
  std::shared_ptr<const Codes> codes;
  std::shared_ptr<const Panels> panels;
  const bool transposed = (slot == 0) != found.flipped;
  if (quant::IsFloat(found.w->dtype())) {
    panels =
        PackedOnce<Panels>(c, {found.w}, transposed ? "turned" : "", [&] { return PackFloats(*found.w, transposed); });
    if (panels == nullptr) return single;
  } else {
    codes = PackedOnce<Codes>(
        c, {found.w}, transposed ? "turned" : "", [&] { return PackCodes(*found.w, transposed); },
        [&](const PackedFile::Arrays& arrays) {
          return MatricesOf<kernels::PackedBlocked>(arrays, found.w->shape()[0], CodesOf(*found.w, transposed));
        });
    if (codes == nullptr) return single;
  }
  auto kernel = std::make_unique<ExpertProducts>(c.arch, found, slot, std::move(codes), std::move(panels));
  kernel->otherwise = std::move(single);
  return kernel;
}

}  // namespace octavo::runtime
