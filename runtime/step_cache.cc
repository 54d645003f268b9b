// TensorScatter, the append of a KV cache: in place where this run was given the cache (Model::Run), else into a copy.
#include <cstring>

#include "octavo/ir/interpret/cache_write.h"
#include "octavo/runtime/step.h"

namespace octavo::runtime {

namespace {

class CacheKernel : public Kernel {
 public:
  explicit CacheKernel(const Node& node) : node_(node) {}
  std::string name() const override { return "cache_write"; }
  Status Execute(StepCall& call) const override {
    OCTAVO_TRY(const ir::interpret::CacheWrite write,
               ir::interpret::PlanCacheWrite(node_, call.T(0), call.T(1), call.Has(2) ? &call.T(2) : nullptr));
    if (Tensor own = call.Take(0); own.defined()) {
      call.out[0].tensor = std::move(own);
    } else {
      const Tensor& old = call.T(0);
      Tensor& copy = call.Allocate(0, old.dtype(), old.shape());
      if (old.byte_size() > 0) std::memcpy(copy.mutable_data(), old.data(), old.byte_size());
    }
    ir::interpret::WriteCache(write, call.T(1), call.out[0].tensor);
    return {};
  }

 private:
  const Node& node_;
};

}  // namespace

KernelPtr MakeCacheWrite(const Node& node, const CompileContext&) { return std::make_unique<CacheKernel>(node); }

}  // namespace octavo::runtime
