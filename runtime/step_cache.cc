// The two appends of a KV cache, in place where this run was given the cache (Model::Run), else into a copy: TensorScatter, and
// CacheAppend, where the cache may grow and each batch entry holds a number of rows of its own.
#include <algorithm>
#include <cstring>

#include "octavo/ir/interpret/cache_write.h"
#include "octavo/runtime/room.h"
#include "octavo/runtime/step.h"

namespace octavo::runtime {

namespace {

class CacheKernel : public Kernel {
 public:
  explicit CacheKernel(const Node& node) : node_(node) {}
  std::string name() const override { return "cache_write"; }
  Status Execute(StepCall& call) const override {
    OCTAVO_TRY(const ir::interpret::CacheWrite write,
               ir::interpret::PlanCacheWrite(node_, call.T(0), ir::interpret::TypeOf(call.T(1)),
                                             call.Has(2) ? &call.T(2) : nullptr));
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

// What becomes of one head: rows of past that stay, rows of now from `first` on, and zeros.
struct Append {
  int64_t kept, first, added;
};
Append PlanAppend(int64_t before, int64_t old, int64_t fresh, int64_t rows) {
  const int64_t at = std::clamp(before, -fresh, old), kept = std::clamp(at, int64_t{0}, rows), first = kept - at;
  // What the present has no room for is left out; with kept = rows, first may be anything.
  return {kept, first, std::max(int64_t{0}, std::min(fresh - first, rows - kept))};
}

class AppendKernel : public Kernel {
 public:
  explicit AppendKernel(DType dtype) : dtype_(dtype) {
    const auto batch = Needs::Size::Same(0), heads = Needs::Size::Same(1), columns = Needs::Size::Same(2);
    for (const size_t slot : {0, 1}) needs.Exactly(slot, dtype, {batch, heads, Needs::Size::Any(), columns});
    needs.Exactly(2, DType::kS64, {batch});
    needs.Exactly(3, DType::kS64, {});
    takes_rooms = true;
  }
  std::string name() const override { return "cache_append"; }
  Status Execute(StepCall& call) const override {
    const Shape past = call.T(0).shape();
    const Tensor& now = call.T(1);
    const int64_t rows = call.T(3).as<int64_t>()[0], old = past[2], fresh = now.shape()[2];
    if (rows < 0) return ir::Fail("a cache of {} rows cannot be; its input rows must not be negative", rows);
    if (call.rooms) {
      if (IsAppend(call, old, fresh, rows)) {
        call.out[0].tensor = AppendRows(call.T(0), now, *call.threads);
        return {};
      }
      for (RtValue& v : call.in) v.tensor = Dense(v.tensor);
    }
    Tensor own = old == rows ? call.Take(0) : Tensor();
    const bool in_place = own.defined();
    if (in_place) {
      call.out[0].tensor = std::move(own);
    } else {
      call.Allocate(0, dtype_, {past[0], past[1], rows, past[3]});
    }
    Tensor& present = call.out[0].tensor;
    if (present.size() == 0) return {};
    const auto row_bytes = static_cast<size_t>(past[3] * quant::BitsOf(dtype_) / 8);
    const auto* before = call.T(2).as<int64_t>().data();
    const auto of_head = [&](int64_t head) {
      const Append a = PlanAppend(before[head / past[1]], old, fresh, rows);
      const auto bytes = [&](int64_t n) { return static_cast<size_t>(n) * row_bytes; };
      std::byte* out = present.mutable_data() + bytes(head * rows);
      if (!in_place && a.kept > 0) std::memcpy(out, call.T(0).data() + bytes(head * old), bytes(a.kept));
      if (a.added > 0) std::memcpy(out + bytes(a.kept), now.data() + bytes(head * fresh + a.first), bytes(a.added));
      std::memset(out + bytes(a.kept + a.added), 0, bytes(rows - a.kept - a.added));
    };
    const int64_t heads = past[0] * past[1];
    constexpr size_t kGrain = 65536;  // bytes of a task
    const auto per_task = static_cast<int64_t>(std::max(size_t{1}, kGrain / (static_cast<size_t>(rows) * row_bytes)));
    const int64_t parts = PartsOf(heads, per_task, call.threads->count());
    call.threads->For(parts, [&](int64_t i) {
      const Part p = PartOf(heads, parts, i, 1);
      for (int64_t head = p.begin; head < p.end; ++head) of_head(head);
    });
    return {};
  }

 private:
  // Every entry keeps all rows of a cache in a room, and gets all new ones.
  static bool IsAppend(const StepCall& call, int64_t old, int64_t fresh, int64_t rows) {
    return IsInRoom(call.T(0), 2) && StridesOf(call.T(1)) == nullptr && rows == old + fresh &&
           std::ranges::all_of(call.T(2).as<int64_t>(), [&](int64_t before) { return before == old; });
  }

  DType dtype_;
};

}  // namespace

KernelPtr MakeCacheAppend(const Node& node, const CompileContext& c) {
  const DType dtype = c.graph.value(node.input(0)).type.dtype;
  if (!c.Is(node.input(1), dtype) || dtype == DType::kUndefined || dtype == DType::kString || quant::BitsOf(dtype) < 8)
    return nullptr;
  return std::make_unique<AppendKernel>(dtype);
}

KernelPtr MakeCacheWrite(const Node& node, const CompileContext&) { return std::make_unique<CacheKernel>(node); }

}  // namespace octavo::runtime
