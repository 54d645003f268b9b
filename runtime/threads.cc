#include "octavo/runtime/threads.h"

#include <oneapi/tbb/info.h>
#include <oneapi/tbb/parallel_for.h>
#include <oneapi/tbb/task_arena.h>

#include <algorithm>
#include <cstdlib>
#include <utility>

#if defined(__SANITIZE_THREAD__)
extern "C" void __tsan_acquire(void* address);
extern "C" void __tsan_release(void* address);
#endif

namespace octavo::runtime {
namespace {

// The system's TBB is not instrumented: ThreadSanitizer is told that a task comes after what stands before For, and what
// stands behind it after the task.
struct Order {
  void Acquire() {
#if defined(__SANITIZE_THREAD__)
    __tsan_acquire(this);
#endif
  }
  void Release() {
#if defined(__SANITIZE_THREAD__)
    __tsan_release(this);
#endif
  }
};

}  // namespace

struct Threads::Arena {
  explicit Arena(int count) : tbb(count) {}
  oneapi::tbb::task_arena tbb;
};

Threads::Threads(int count) : count_(count > 0 ? count : oneapi::tbb::info::default_concurrency()) {
  if (count_ > 1) arena_ = std::make_unique<Arena>(count_);
}
Threads::Threads(int count, Host host)
    : count_(count > 0 ? count : oneapi::tbb::info::default_concurrency()), host_(std::move(host)) {}
Threads::~Threads() = default;

void Threads::For(int64_t n, const std::function<void(int64_t)>& task) const {
  if (host_ && count_ > 1 && n > 1) return host_(n, task);
  if (arena_ == nullptr || n <= 1) {
    for (int64_t i = 0; i < n; ++i) task(i);
    return;
  }
  Order before, after;
  const auto run = [&](int64_t i) {
    before.Acquire();
    task(i);
    after.Release();
  };
  before.Release();
  arena_->tbb.execute([&] { oneapi::tbb::parallel_for(int64_t{0}, n, run, oneapi::tbb::simple_partitioner()); });
  after.Acquire();
}

void* ThreadScratch(size_t bytes, int slot) {
  struct Block {
    void* memory = nullptr;
    size_t size = 0;
    ~Block() { std::free(memory); }
  };
  thread_local Block blocks[2];
  Block& b = blocks[slot];
  if (b.size < bytes || b.memory == nullptr) {
    std::free(b.memory);
    b.size = (std::max(bytes, size_t{4096}) + 63) / 64 * 64;
    b.memory = std::aligned_alloc(64, b.size);
  }
  return b.memory;
}

int64_t PartsOf(int64_t n, int64_t grain, int threads) {
  if (threads <= 1 || n <= grain) return 1;
  const int64_t parts = std::min<int64_t>((n + grain - 1) / grain, int64_t{4} * threads);
  // Equal shares: three parts on two threads take as long as four.
  return parts > threads ? parts / threads * threads : parts;
}

}  // namespace octavo::runtime
