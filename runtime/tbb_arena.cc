#include "octavo/runtime/tbb_arena.h"

#include <oneapi/tbb/parallel_for.h>
#include <oneapi/tbb/task_arena.h>
#include <oneapi/tbb/task_scheduler_observer.h>

#include <vector>

#include "octavo/kernels/arch/cpus.h"

#if defined(OCTAVO_TSAN)
extern "C" void __tsan_acquire(void* address);
extern "C" void __tsan_release(void* address);
#endif

namespace octavo::runtime {

namespace {

// ThreadSanitizer is told that a task comes after what stands before For, and what stands behind it after the task.
struct Order {
  void Acquire() {
#if defined(OCTAVO_TSAN)
    __tsan_acquire(this);
#endif
  }
  void Release() {
#if defined(OCTAVO_TSAN)
    __tsan_release(this);
#endif
  }
};

// Each thread of the arena runs on a CPU of its own among `cpus`. The caller's thread is its own, and place 0 is its.
class Binding : public oneapi::tbb::task_scheduler_observer {
 public:
  Binding(oneapi::tbb::task_arena& arena, std::vector<int> cpus)
      : oneapi::tbb::task_scheduler_observer(arena), cpus_(std::move(cpus)) {
    if (!cpus_.empty()) observe(true);
  }
  ~Binding() override { observe(false); }
  void on_scheduler_entry(bool is_worker) override {
    const auto place = static_cast<size_t>(oneapi::tbb::this_task_arena::current_thread_index());
    if (is_worker) kernels::BindThread(cpus_[place % cpus_.size()]);
  }

 private:
  std::vector<int> cpus_;
};

}  // namespace

struct TbbArena::Arena {
  explicit Arena(int threads) : tbb(threads), binding(tbb, kernels::WantedCpus()) {}
  oneapi::tbb::task_arena tbb;
  Binding binding;
};

TbbArena::TbbArena(int threads) : arena_(std::make_unique<Arena>(threads)) {}
TbbArena::~TbbArena() = default;

// Isolated: a run is not held up by tasks of another one that its thread took while it waited.
void TbbArena::For(int64_t n, const std::function<void(int64_t)>& task) {
  Order before, after;
  const auto run = [&](int64_t i) {
    before.Acquire();
    task(i);
    after.Release();
  };
  before.Release();
  arena_->tbb.execute([&] {
    oneapi::tbb::this_task_arena::isolate(
        [&] { oneapi::tbb::parallel_for(int64_t{0}, n, run, oneapi::tbb::simple_partitioner()); });
  });
  after.Acquire();
}

}  // namespace octavo::runtime
