#include "octavo/runtime/write_rows.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>

namespace octavo::runtime {

namespace {

using ir::NodeId;

// Where one row of updates goes: a copy of `inner` bytes for each place of the outer dims.
struct Rows {
  std::vector<int64_t> at;  // byte offsets in the cache, by tuple of indices
  Shape dims;               // of a row, but for what lies in one piece in both
  std::vector<int64_t> steps;
  size_t inner = 0;
  int64_t copies = 1;  // product of dims
};

class WriteRowsKernel : public Kernel {
 public:
  WriteRowsKernel(const Node& scatter, std::vector<int64_t> perm, const Chain& chain, const CompileContext& c)
      : perm_(std::move(perm)), single_(MakeNodes(chain, c, "cache_write by single nodes")) {
    for (size_t i = 0; i < 3; ++i) {
      if (const Tensor* t = c.Constant(scatter.input(i))) {
        constants_[i] = *t;
      } else {
        // The cache comes first; what is given twice is one operand.
        const ValueId v = i == 0 ? chain.inputs[0] : scatter.input(i);
        slots_[i] = static_cast<size_t>(std::ranges::find(chain.inputs, v) - chain.inputs.begin());
      }
    }
  }
  std::string name() const override { return "cache_write rows"; }

  Status Execute(StepCall& call) const override {
    const Tensor updates = Operand(call, 2);
    const std::optional<Rows> rows = Plan(call.T(0), Operand(call, 1), updates);
    const bool codes = std::ranges::any_of(call.in, [](const RtValue& v) { return v.quant != nullptr; });
    if (!rows || codes) return single_->Run(call);  // which says what is wrong
    if (Tensor own = call.Take(0); own.defined()) {
      call.out[0].tensor = std::move(own);
    } else {
      const Tensor& old = call.T(0);
      Tensor& copy = call.Allocate(0, old.dtype(), old.shape());
      if (old.byte_size() > 0) std::memcpy(copy.mutable_data(), old.data(), old.byte_size());
    }
    std::byte* const to = call.out[0].tensor.mutable_data();
    const std::byte* from = updates.data();
    for (const int64_t at : rows->at) {  // in this order: of two rows at one place the later one stays
      std::vector<int64_t> index(rows->dims.size());
      int64_t place = at;
      for (int64_t i = 0; i < rows->copies; ++i, from += rows->inner) {
        std::memcpy(to + place, from, rows->inner);
        for (size_t d = index.size(); d-- > 0;) {
          place += rows->steps[d];
          if (++index[d] < rows->dims[d]) break;
          place -= rows->steps[d] * std::exchange(index[d], 0);
        }
      }
    }
    return {};
  }

 private:
  const Tensor& Operand(const StepCall& call, size_t i) const {
    return constants_[i].defined() ? constants_[i] : call.T(slots_[i]);
  }

  // None where the operands are not what ScatterND takes.
  std::optional<Rows> Plan(const Tensor& cache, const Tensor& indices, const Tensor& updates) const {
    const size_t rank = perm_.size();
    if (cache.shape().size() != rank || updates.dtype() != cache.dtype() || indices.dtype() != DType::kS64) return {};
    if (cache.dtype() == DType::kString || quant::BitsOf(cache.dtype()) < 8 || indices.rank() < 1) return {};
    const int64_t element = quant::BitsOf(cache.dtype()) / 8;
    Shape turned(rank), wanted(indices.shape().begin(), indices.shape().end() - 1);
    std::vector<int64_t> strides(rank), steps(rank);
    int64_t step = element;
    for (size_t d = rank; d-- > 0;) strides[d] = std::exchange(step, step * cache.shape()[d]);
    for (size_t d = 0; d < rank; ++d) {
      const auto from = static_cast<size_t>(perm_[d]);
      turned[d] = cache.shape()[from], steps[d] = strides[from];
    }
    const int64_t width = indices.shape().back();
    if (width < 1 || width > static_cast<int64_t>(rank)) return {};
    const auto used = static_cast<size_t>(width);
    wanted.insert(wanted.end(), turned.begin() + width, turned.end());
    if (updates.shape() != wanted || updates.size() == 0) return {};
    Rows rows;
    rows.at.resize(static_cast<size_t>(indices.size() / width));
    for (size_t t = 0; t < rows.at.size(); ++t) {
      for (size_t d = 0; d < used; ++d) {
        const int64_t i = indices.as<int64_t>()[t * used + d];
        if (i < -turned[d] || i >= turned[d]) return {};
        rows.at[t] += (i < 0 ? i + turned[d] : i) * steps[d];
      }
    }
    size_t last = rank;  // dims from here on lie in one piece
    int64_t inner = element;
    for (; last > used && (steps[last - 1] == inner || turned[last - 1] == 1); --last) inner *= turned[last - 1];
    rows.inner = static_cast<size_t>(inner);
    for (size_t d = used; d < last; ++d) rows.dims.push_back(turned[d]), rows.steps.push_back(steps[d]);
    rows.copies = ir::ElementCount(rows.dims);
    return rows;
  }

  std::vector<int64_t> perm_;  // dim d of what ScatterND sees is dim perm[d] of the cache
  Tensor constants_[3];
  size_t slots_[3] = {};
  KernelPtr single_;
};

bool IsInput(const CompileContext& c, ValueId v) {
  return std::ranges::find(c.graph.inputs(), v) != c.graph.inputs().end();
}

std::optional<std::vector<int64_t>> PermOf(const Node& transpose, size_t rank) {
  std::vector<int64_t> perm = transpose.attrs.Ints("perm");
  for (size_t d = 0; d < rank && perm.size() < rank; ++d) perm.push_back(static_cast<int64_t>(rank - 1 - d));
  return perm.size() == rank ? std::optional(perm) : std::nullopt;
}

struct Found {
  Chain chain;
  const Node* scatter = nullptr;
  std::vector<int64_t> perm;
};

// `root` makes a cache that leaves the graph.
std::optional<Found> Match(const CompileContext& c, NodeId root) {
  Found f;
  f.chain.nodes = {root}, f.chain.writes = true;
  const Node& last = c.graph.node(root);
  const bool turns = last.op == Op::kTranspose;
  f.scatter = turns ? OnlyMaker(c, last.input(0), Op::kScatterND, f.chain.nodes) : &last;
  if (f.scatter == nullptr || f.scatter->op != Op::kScatterND || f.scatter->attrs.Str("reduction", "none") != "none")
    return {};
  ValueId cache = f.scatter->input(0);
  const auto& shape = c.graph.value(cache).type.shape;
  if (!shape || c.Constant(cache) != nullptr) return {};
  const size_t rank = shape->size();
  for (size_t d = 0; d < rank; ++d) f.perm.push_back(static_cast<int64_t>(d));
  if (turns) {
    const Node* first = OnlyMaker(c, cache, Op::kTranspose, f.chain.nodes);
    if (first == nullptr) return {};
    const auto there = PermOf(*first, rank), back = PermOf(last, rank);
    if (!there || !back) return {};
    for (size_t d = 0; d < rank; ++d) {
      if ((*there)[static_cast<size_t>((*back)[d])] != static_cast<int64_t>(d)) return {};
    }
    f.perm = *there, cache = first->input(0);
  }
  if (!IsInput(c, cache)) return {};
  f.chain.inputs = {cache};
  for (const size_t slot : {1, 2}) {
    const ValueId v = f.scatter->input(slot);
    if (!v.valid()) return {};
    if (c.Constant(v) == nullptr && !std::ranges::contains(f.chain.inputs, v)) f.chain.inputs.push_back(v);
  }
  std::ranges::sort(f.chain.nodes, [&c](NodeId a, NodeId b) { return c.graph.Before(a, b); });
  return f;
}

}  // namespace

std::vector<Chain> FindWrittenRows(const CompileContext& c) {
  std::vector<Chain> found;
  for (const auto& output : c.graph.outputs()) {
    const NodeId root = c.graph.value(output.value).producer;
    const bool taken = std::ranges::any_of(found, [&](const Chain& chain) { return chain.nodes.back() == root; });
    if (!root.valid() || taken || c.Constant(output.value) != nullptr) continue;
    if (auto f = Match(c, root)) found.push_back(std::move(f->chain));
  }
  return found;
}

KernelPtr MakeWrittenRows(const Chain& chain, const CompileContext& c) {
  const auto f = Match(c, chain.nodes.back());
  return std::make_unique<WriteRowsKernel>(*f->scatter, f->perm, chain, c);
}

}  // namespace octavo::runtime
