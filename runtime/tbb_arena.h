// oneTBB behind a door. The library is not built for ThreadSanitizer, so under it tbb_arena.cc, which has TBB's templates, is not either
// (CMakeLists.txt): the sanitizer sees tasks, and their order where For tells it, and nothing of TBB.
#ifndef OCTAVO_RUNTIME_TBB_ARENA_H_
#define OCTAVO_RUNTIME_TBB_ARENA_H_

#include <cstdint>
#include <functional>
#include <memory>

namespace octavo::runtime {

class TbbArena {
 public:
  explicit TbbArena(int threads);
  ~TbbArena();
  TbbArena(const TbbArena&) = delete;
  TbbArena& operator=(const TbbArena&) = delete;
  // As Threads::For.
  void For(int64_t n, const std::function<void(int64_t)>& task);

 private:
  struct Arena;
  std::unique_ptr<Arena> arena_;
};

}  // namespace octavo::runtime

#endif  // OCTAVO_RUNTIME_TBB_ARENA_H_
