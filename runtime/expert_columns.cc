#include "octavo/runtime/expert_columns.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "octavo/runtime/expert_matrices.h"
#include "octavo/runtime/expert_rows.h"

namespace octavo::runtime {

namespace {

// What stands in the graph.
struct Columns {
  const Node* product = nullptr;
  ValueId index;
  int64_t experts = 0, n = 0;  // columns of one
  bool one = false;            // an index for all rows
};

// The last two dims of what is taken from, [..,E,N]. None: they are not known, or the rows are not as they were in the product.
std::optional<std::pair<int64_t, int64_t>> SplitOf(const CompileContext& c, const Node& reshape) {
  const auto& to = c.graph.value(reshape.output()).type.shape;
  const auto& from = c.graph.value(reshape.input(0)).type.shape;
  const Tensor* target = c.Constant(reshape.input(1));
  const bool keeps_dims = reshape.attrs.Int("allowzero", 0) == 0;
  if (!to || !from || target == nullptr || !keeps_dims || to->size() < 3 || to->size() != from->size() + 1) return {};
  for (size_t i = 0; i + 2 < to->size(); ++i) {
    if (target->GetInt(static_cast<int64_t>(i)) != 0) return {};
  }
  const ir::Dim &experts = (*to)[to->size() - 2], &n = to->back();
  if (!experts.is_number() || !n.is_number() || experts.number() < 1 || n.number() < 1) return {};
  return std::pair{experts.number(), n.number()};
}

std::optional<Columns> Find(const CompileContext& c, const Node& taken, std::vector<ir::NodeId>& nodes) {
  const Node* reshape = OnlyMaker(c, taken.input(0), Op::kReshape, nodes);
  const auto split = reshape == nullptr ? std::nullopt : SplitOf(c, *reshape);
  if (!split || !taken.input(1).valid() || c.Constant(taken.input(1)) != nullptr) return {};
  const Node* product = OnlyMaker(c, reshape->input(0), Op::kLinearBlocked, nodes);
  if (product == nullptr) product = OnlyMaker(c, reshape->input(0), Op::kQuantizedLinear, nodes);
  const auto& index = c.graph.value(taken.input(1)).type.shape;
  if (product == nullptr || !index) return {};
  const auto rank = static_cast<int64_t>(c.graph.value(taken.input(0)).type.shape->size());
  const auto dims = static_cast<int64_t>(index->size());
  const bool one = taken.op == Op::kGather;
  const int64_t axis = taken.attrs.Int("axis", 0);
  if (one && (dims != 0 || (axis != rank - 2 && axis != -2))) return {};
  const bool by_row = one || (taken.attrs.Int("batch_dims", 0) == rank - 2 && dims == rank - 1 &&
                              index->back().is_number() && index->back().number() == 1);
  if (!by_row) return {};
  return Columns{product, taken.input(1), split->first, split->second, one};
}

class ExpertColumns : public Kernel {
 public:
  ExpertColumns(kernels::Arch arch, std::unique_ptr<const ExpertMatrices> matrices, size_t index, bool one)
      : matrices_(std::move(matrices)), index_(index), one_(one) {
    name_ = matrices_->name() + " " + std::string(Name(arch));
    matrices_->Need(needs);
    needs.Typed(index_, DType::kUndefined);
  }
  std::string name() const override { return name_; }

  Status Execute(StepCall& call) const override {
    const ExpertMatrices& m = *matrices_;
    const Tensor& index = call.T(index_);
    Shape result = call.T(0).shape(), by_row = result;
    result.back() = m.n(), by_row.back() = 1;
    const bool fits = one_ ? index.rank() == 0 : index.shape() == by_row;
    const auto rows = fits ? SortByExpert(index, one_ ? LeadingRows(by_row) : 1, m.count()) : std::nullopt;
    if (!rows) return otherwise->Run(call);
    float* y = call.Allocate(0, DType::kF32, std::move(result)).mutable_as<float>().data();
    const int64_t count = rows->count(), in_bytes = (m.Bytes(count) + 63) / 64 * 64;
    if (count == 0) return {};
    const int64_t out_bytes = rows->in_order ? 0 : count * m.n() * static_cast<int64_t>(sizeof(float));
    std::byte* scratch = call.Scratch(static_cast<size_t>(in_bytes + out_bytes));
    float* sorted_y = rows->in_order ? y : reinterpret_cast<float*>(scratch + in_bytes);
    Sort(call, *rows, scratch);
    Multiply(call, *rows, scratch, sorted_y);
    if (rows->in_order) return {};
    MoveLines(call, count, m.n(), [&](int64_t i) {
      return std::pair{sorted_y + i * m.n(), y + rows->order[static_cast<size_t>(i)] * m.n()};
    });
    return {};
  }

 private:
  void Sort(StepCall& call, const ExpertRows& rows, std::byte* sorted) const {
    const int64_t count = rows.count(), grain = std::max<int64_t>(1, kElementGrain / matrices_->k());
    const int64_t parts = PartsOf(count, grain, call.threads->count());
    call.threads->For(parts, [&](int64_t part) {
      const Part p = PartOf(count, parts, part, 1);
      for (int64_t i = p.begin; i < p.end; ++i)
        matrices_->Take(call, rows.order[static_cast<size_t>(i)], i, count, sorted);
    });
  }

  // Each chosen expert's columns in as many parts as threads can use.
  void Multiply(StepCall& call, const ExpertRows& rows, const std::byte* sorted, float* y) const {
    const int64_t blocks = kernels::ColumnBlocks(matrices_->n()), threads = call.threads->count();
    const int64_t parts = threads == 1 ? 1 : std::min(blocks, 2 * threads);
    const std::vector<size_t> chosen = rows.Chosen();
    call.threads->For(static_cast<int64_t>(chosen.size()) * parts, [&](int64_t task) {
      const size_t e = chosen[static_cast<size_t>(task / parts)];
      const Part p = PartOf(blocks, parts, task % parts, 1);
      if (p.begin == p.end) return;
      matrices_->Multiply(e, sorted, rows.count(), {rows.first[e], rows.first[e + 1]}, {p.begin, p.end}, y);
    });
  }

  std::unique_ptr<const ExpertMatrices> matrices_;
  size_t index_;  // the operand
  bool one_;
  std::string name_;
};

}  // namespace

std::vector<Chain> FindExpertColumns(const CompileContext& c) {
  std::vector<Chain> all;
  for (const ir::NodeId id : c.graph.NodesInOrder()) {
    const Node& n = c.graph.node(id);
    if (n.op != Op::kGatherND && n.op != Op::kGather) continue;
    Chain chain;
    chain.nodes = {id};
    const std::optional<Columns> found = Find(c, n, chain.nodes);
    if (!found || !HasMatricesOfExperts(*found->product, c, found->experts, found->n)) continue;
    std::ranges::reverse(chain.nodes);
    for (size_t i = 0; i < OperandsOfExperts(*found->product); ++i) chain.inputs.push_back(found->product->input(i));
    chain.inputs.push_back(found->index);
    chain.takes_columns = true;
    all.push_back(std::move(chain));
  }
  return all;
}

KernelPtr MakeExpertColumns(const Chain& chain, const CompileContext& c) {
  std::vector<ir::NodeId> nodes;
  const Columns found = *Find(c, c.graph.node(chain.nodes.back()), nodes);
  KernelPtr single = MakeNodes(chain, c, "experts of single nodes");
  auto matrices = MatricesOfExperts(*found.product, c, found.experts, found.n);
  if (matrices == nullptr) return single;
  auto kernel = std::make_unique<ExpertColumns>(c.arch, std::move(matrices), chain.inputs.size() - 1, found.one);
  kernel->otherwise = std::move(single);
  return kernel;
}

}  // namespace octavo::runtime
