// Lookup: codes to codes by a constant table.
#include <algorithm>

#include "octavo/kernels/elementwise/elementwise.h"
#include "octavo/runtime/step.h"

namespace octavo::runtime {

namespace {

class LookupKernel : public Kernel {
 public:
  // `x`: the type of the codes.
  LookupKernel(kernels::Arch arch, DType x, const Tensor& table) : arch_(arch), type_(table.dtype()) {
    needs.Typed(0, x);
    std::copy_n(reinterpret_cast<const uint8_t*>(table.data()), 256, table_);
  }
  std::string name() const override { return "lookup " + std::string(Name(arch_)); }

  Status Execute(StepCall& call) const override {
    constexpr int64_t kGrain = 131072;
    const Tensor& x = call.T(0);
    const auto* in = reinterpret_cast<const uint8_t*>(x.data());
    auto* out = reinterpret_cast<uint8_t*>(call.Allocate(0, type_, x.shape()).mutable_data());
    const int64_t parts = PartsOf(x.size(), kGrain, call.threads->count());
    call.threads->For(parts, [&](int64_t i) {
      const Part p = PartOf(x.size(), parts, i, 64);
      kernels::Lookup(arch_, in + p.begin, table_, out + p.begin, p.end - p.begin);
    });
    return {};
  }

 private:
  kernels::Arch arch_;
  DType type_;
  uint8_t table_[256];
};

}  // namespace

KernelPtr MakeLookup(const Node& node, const CompileContext& c) {
  const Tensor* table = c.Constant(node.input(1));
  const DType x = c.graph.value(node.input(0)).type.dtype;
  const bool fits =
      table != nullptr && table->shape() == Shape{256} && quant::IsInt8(table->dtype()) && quant::IsInt8(x);
  return fits ? std::make_unique<LookupKernel>(c.arch, x, *table) : nullptr;
}

}  // namespace octavo::runtime
