#include "octavo/runtime/threads.h"

#include <pthread.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdlib>
#include <exception>
#include <functional>
#include <mutex>
#include <utility>

#include "octavo/ir/log.h"
#include "octavo/ir/memory.h"
#include "octavo/kernels/arch/numa.h"
#include "octavo/kernels/arch/quota.h"
#include "octavo/quant/numeric/float_mode.h"
#include "octavo/runtime/host_threads.h"
#include "octavo/runtime/tbb_arena.h"

namespace octavo::runtime {
namespace {

// A child that the process forks has none of TBB's threads, and TBB does not know: work for them would wait for ever where a lock of
// theirs was held. There every task runs on the thread that calls.
std::atomic<bool> has_workers = false, workers_lost = false;
void InChild() {
  if (has_workers) workers_lost = true;
}
[[maybe_unused]] const int kHooked = pthread_atfork(nullptr, nullptr, &InChild);

// Where this thread compiles for a host.
thread_local const Threads::Host* host_of_compiled = nullptr;

int DefaultCount() {
  const auto ask = [] {
    std::string problem;
    const int count = kernels::DefaultThreads(&problem).count;
    if (!problem.empty()) ir::Log(ir::LogLevel::kWarning, "{}", problem);
    return count;
  };
  static const int count = ask();  // asks files
  return kernels::OnNumaNode::Current() ? ask() : count;
}

}  // namespace

CompileForHost::CompileForHost(Threads::Host host)
    : host_(std::move(host)), before_(std::exchange(host_of_compiled, &host_)) {}
CompileForHost::~CompileForHost() { host_of_compiled = before_; }
bool CompileForHost::Is() { return host_of_compiled != nullptr; }

Threads::Threads(int count) : count_(count > 0 ? count : DefaultCount()) {
  if (host_of_compiled != nullptr) {
    host_ = *host_of_compiled;
    return;
  }
  if (workers_lost) count_ = 1;
  if (count_ == 1) return;
  has_workers = true;
  arena_ = std::make_unique<TbbArena>(count_);
}
Threads::Threads(int count, Host host) : count_(count > 0 ? count : DefaultCount()), host_(std::move(host)) {}
Threads::~Threads() = default;

void Threads::For(int64_t n, const std::function<void(int64_t)>& task) const {
  if (host_ && count_ > 1 && n > 1) return ForOnHost(n, task);
  if (arena_ == nullptr || n <= 1 || workers_lost) {
    const quant::FloatMode mode;
    for (int64_t i = 0; i < n; ++i) task(i);
    return;
  }
  const auto run = [&](int64_t i) {
    const quant::FloatMode mode;
    task(i);
  };
  arena_->For(n, std::cref(run));
}

// An exception must not reach the host's threads.
void Threads::ForOnHost(int64_t n, const std::function<void(int64_t)>& task) const {
  std::mutex mutex;
  std::exception_ptr first;
  host_(n, [&](int64_t i) {
    const quant::FloatMode mode;
    try {
      task(i);
    } catch (...) {
      const std::scoped_lock lock(mutex);
      if (first == nullptr) first = std::current_exception();
    }
  });
  if (first != nullptr) std::rethrow_exception(first);
}

namespace {

struct Block {
  std::byte* data = nullptr;
  size_t size = 0;
};

// What a thread keeps between tasks; a task holds two pieces at most.
struct IdleBlocks {
  ~IdleBlocks() {
    while (count > 0) ir::FreeLines(blocks[--count].data);
  }
  std::array<Block, 2> blocks;
  size_t count = 0;
};

IdleBlocks& Idle() {
  thread_local IdleBlocks idle;
  return idle;
}

}  // namespace

TaskScratch::TaskScratch(size_t bytes) {
  IdleBlocks& idle = Idle();
  Block block;
  if (idle.count > 0)
    block = idle.blocks[--idle.count];  // the last that came back: a task gets what the one before it had
  if (block.data == nullptr || block.size < bytes) {
    ir::FreeLines(block.data);
    block.size = std::max(bytes, size_t{4096});
    block.data = ir::AllocateLines(block.size);
  }
  data_ = block.data, size_ = block.size;
}

TaskScratch::~TaskScratch() {
  IdleBlocks& idle = Idle();
  if (idle.count < idle.blocks.size()) {
    idle.blocks[idle.count++] = {data_, size_};
  } else {
    ir::FreeLines(data_);
  }
}

int64_t PartsOf(int64_t n, int64_t grain, int threads) {
  if (threads <= 1 || n <= grain) return 1;
  const int64_t parts = std::min<int64_t>((n + grain - 1) / grain, int64_t{4} * threads);
  // Equal shares: three parts on two threads take as long as four.
  return parts > threads ? parts / threads * threads : parts;
}

}  // namespace octavo::runtime
