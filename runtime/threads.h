// The worker threads of one compiled model: a oneTBB arena, warm between calls, or those of a host.
#ifndef OCTAVO_RUNTIME_THREADS_H_
#define OCTAVO_RUNTIME_THREADS_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>

namespace octavo::runtime {

class TbbArena;

class Threads {
 public:
  // task(i) for i in [0, n) on the threads of somebody else; returns when all are done.
  using Host = std::function<void(int64_t n, const std::function<void(int64_t)>& task)>;

  // `count` <= 0: as many as the scheduler and the container's quota grant. 1 in a child of fork whose parent had threads.
  explicit Threads(int count);
  // Work is cut for `count` threads and given to `host`: inside of another runtime a second pool would fight with its own.
  Threads(int count, Host host);
  ~Threads();
  Threads(const Threads&) = delete;
  Threads& operator=(const Threads&) = delete;

  int count() const { return count_; }
  // task(i) for i in [0, n), in any order, on any of the threads; returns when all are done, or throws what a task threw. A thread that
  // waits here for others takes no tasks of other runs meanwhile. Tasks have the float mode that bits rest on. In a child of fork all are
  // done by the thread that calls, since the others are not there.
  void For(int64_t n, const std::function<void(int64_t)>& task) const;

 private:
  void ForOnHost(int64_t n, const std::function<void(int64_t)>& task) const;
  int count_;
  std::unique_ptr<TbbArena> arena_;
  Host host_;
};

// Memory of one task: at least `bytes`, 64-byte aligned, contents undefined. The thread keeps it for its next task, but who holds the
// object holds the memory, whatever else the thread does until then. What all threads of a step share is StepCall::Scratch's.
class TaskScratch {
 public:
  explicit TaskScratch(size_t bytes);
  ~TaskScratch();
  TaskScratch(const TaskScratch&) = delete;
  TaskScratch& operator=(const TaskScratch&) = delete;
  std::byte* data() const { return data_; }

 private:
  std::byte* data_ = nullptr;
  size_t size_ = 0;
};

// Parts that rows 0..n are cut into: enough for `threads` to balance, each at least `grain` rows.
int64_t PartsOf(int64_t n, int64_t grain, int threads);

}  // namespace octavo::runtime

#endif  // OCTAVO_RUNTIME_THREADS_H_
