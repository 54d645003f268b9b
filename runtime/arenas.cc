#include "octavo/runtime/arenas.h"

#include <algorithm>
#include <cstdlib>
#include <mutex>
#include <utility>
#include <vector>

#include "octavo/ir/memory.h"

namespace octavo::runtime {

namespace {

class Arena : public ir::Buffer {
 public:
  explicit Arena(size_t bytes) {
    size_ = std::max<size_t>((bytes + 63) / 64 * 64, 64);
    data_ = ir::AllocateLines(size_);
  }
  ~Arena() override { ir::FreeLines(data_); }
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;
};

bool Smaller(const std::unique_ptr<Arena>& a, size_t bytes) { return a->size() < bytes; }

}  // namespace

struct Arenas::Idle {
  // Null: none is large enough, and the largest is gone.
  std::unique_ptr<Arena> Reuse(size_t bytes) {
    const std::scoped_lock lock(mutex);
    const auto it = std::lower_bound(arenas.begin(), arenas.end(), bytes, Smaller);
    std::unique_ptr<Arena> arena;
    if (it != arenas.end()) {
      arena = std::move(*it);
      arenas.erase(it);
    } else if (!arenas.empty()) {
      arenas.pop_back();
    }
    return arena;
  }
  void Return(std::unique_ptr<Arena> arena) noexcept {
    try {
      const std::scoped_lock lock(mutex);
      arenas.insert(std::lower_bound(arenas.begin(), arenas.end(), arena->size(), Smaller), std::move(arena));
    } catch (const std::bad_alloc&) {  // no room to note it: it goes back to the system
    }
  }

  std::mutex mutex;
  std::vector<std::unique_ptr<Arena>> arenas;  // by size
};

Arenas::Arenas() : idle_(std::make_shared<Idle>()) {}

std::shared_ptr<ir::Buffer> Arenas::Take(size_t bytes) const {
  auto charge = std::make_shared<ir::MemoryCharge>(bytes);  // of the run that it serves, before memory is asked for
  std::unique_ptr<Arena> arena = idle_->Reuse(bytes);
  if (arena == nullptr) arena = std::make_unique<Arena>(bytes);
  const auto give_back = [idle = idle_, charge](Arena* a) { idle->Return(std::unique_ptr<Arena>(a)); };
  return std::shared_ptr<Arena>(arena.release(), give_back);
}

size_t Arenas::idle_bytes() const {
  const std::scoped_lock lock(idle_->mutex);
  size_t bytes = 0;
  for (const auto& arena : idle_->arenas) bytes += arena->size();
  return bytes;
}

}  // namespace octavo::runtime
