// Gather of columns of codes by a constant index: those that are written twice (passes/vendor/centered.cc, passes/quantize/smooth.cc) and no norm writes.
#include <algorithm>

#include "octavo/quant/numeric/code8.h"
#include "octavo/runtime/step.h"

namespace octavo::runtime {

namespace {

// Columns that follow each other.
struct Piece {
  size_t from, count;
};

class ColumnsKernel : public Kernel {
 public:
  ColumnsKernel(DType dtype, int64_t columns, std::span<const int64_t> index) : index_(index.size()) {
    needs.EndsIn(0, dtype, {columns});
    for (const int64_t column : index) {
      const auto from = static_cast<size_t>(column < 0 ? column + columns : column);
      const bool follows = !pieces_.empty() && pieces_.back().from + pieces_.back().count == from;
      follows ? void(++pieces_.back().count) : pieces_.push_back({from, 1});
    }
  }
  std::string name() const override { return "move columns"; }

  Status Execute(StepCall& call) const override {
    constexpr int64_t kBytesOfTask = 65536;
    const Tensor& x = call.T(0);
    Shape shape = x.shape();
    const auto columns = static_cast<size_t>(shape.back());
    shape.back() = static_cast<int64_t>(index_);
    const int64_t rows = LeadingRows(shape);
    std::byte* to = call.Allocate(0, x.dtype(), std::move(shape)).mutable_data();
    const int64_t grain = std::max<int64_t>(1, kBytesOfTask / static_cast<int64_t>(std::max<size_t>(1, index_)));
    const int64_t parts = PartsOf(rows, grain, call.threads->count());
    call.threads->For(parts, [&](int64_t i) {
      const Part p = PartOf(rows, parts, i, 1);
      for (int64_t row = p.begin; row < p.end; ++row) {
        const std::byte* in = x.data() + static_cast<size_t>(row) * columns;
        std::byte* out = to + static_cast<size_t>(row) * index_;
        for (const Piece& piece : pieces_) out = std::copy_n(in + piece.from, piece.count, out);
      }
    });
    return {};
  }

 private:
  size_t index_;  // how many
  std::vector<Piece> pieces_;
};

}  // namespace

KernelPtr MakeColumns(const Node& node, const CompileContext& c) {
  const Tensor* index = c.Constant(node.input(1));
  const ir::Type& x = c.graph.value(node.input(0)).type;
  if (index == nullptr || index->rank() != 1 || index->dtype() != DType::kS64) return nullptr;
  if (!x.shape || x.shape->empty() || !x.shape->back().is_number() || !quant::IsCode8(x.dtype)) return nullptr;
  const int64_t axis = node.attrs.Int("axis", 0), columns = x.shape->back().number();
  if (axis != -1 && axis != static_cast<int64_t>(x.shape->size()) - 1) return nullptr;
  const auto lies_within = [columns](int64_t i) { return i >= -columns && i < columns; };
  if (!std::ranges::all_of(index->as<int64_t>(), lies_within)) return nullptr;
  return std::make_unique<ColumnsKernel>(x.dtype, columns, index->as<int64_t>());
}

}  // namespace octavo::runtime
