// Windows of a convolution as rows in one pass over what they read, instead of a copy for each Slice and another by the Concat; where no product makes them
// itself (window_rows.h).
#include <algorithm>

#include "octavo/runtime/channels_last.h"
#include "octavo/runtime/compile.h"
#include "octavo/runtime/window_rows.h"

namespace octavo::runtime {

namespace {

class UnfoldKernel : public Kernel {
 public:
  UnfoldKernel(WindowRows windows, KernelPtr fallback) : windows_(std::move(windows)), fallback_(std::move(fallback)) {
    needs.Typed(0, windows_.dtype());
  }
  std::string name() const override { return "unfold"; }

  Status Execute(StepCall& call) const override {
    constexpr int64_t kBytesOfTask = 65536;
    const Tensor& x = call.T(0);
    const auto image = windows_.Of(x.shape());
    if (!image || call.in[0].quant != nullptr) return fallback_->Run(call);  // it says why, or keeps the integers
    Tensor& y = call.Allocate(0, x.dtype(), windows_.Result(*image, windows_.positions() * image->channels));
    if (y.size() == 0) return {};
    const int64_t rows = image->rows(), row = static_cast<int64_t>(y.byte_size()) / rows;
    const int64_t parts = PartsOf(rows, std::max<int64_t>(1, kBytesOfTask / row), call.threads->count());
    std::byte* to = y.mutable_data();
    call.threads->For(parts, [&](int64_t task) {
      const Part p = PartOf(rows, parts, task, 1);
      windows_.Make(*image, x.data(), p.begin, p.end, to + p.begin * row);
    });
    return {};
  }

 private:
  WindowRows windows_;
  KernelPtr fallback_;
};

}  // namespace

Made MakeUnfold(ir::NodeId id, const CompileContext& c) {
  const ValueId y = c.graph.node(id).output();
  const std::optional<ir::Unfold> unfold = ir::UnfoldAt(c.graph, y);
  std::optional<WindowRows> windows = unfold ? WindowRowsOf(c, *unfold) : std::nullopt;
  if (!windows) return {};
  Made made{.nodes = unfold->nodes, .inputs = {unfold->x}, .outputs = {y}};
  made.kernel = std::make_unique<UnfoldKernel>(std::move(*windows), InterpretedOf(made, c, Op::kConcat));
  return made;
}

}  // namespace octavo::runtime
