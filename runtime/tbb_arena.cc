#include "octavo/runtime/tbb_arena.h"

#include <oneapi/tbb/parallel_for.h>
#include <oneapi/tbb/task_arena.h>

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

}  // namespace

struct TbbArena::Arena {
  explicit Arena(int threads) : tbb(threads) {}
  oneapi::tbb::task_arena tbb;
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
