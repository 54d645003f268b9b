#include "octavo/runtime/arenas.h"

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "octavo/ir/memory.h"

namespace octavo::runtime {

namespace {

bool Smaller(const std::shared_ptr<Arena>& a, size_t bytes) { return a->size() < bytes; }

}  // namespace

Arena::Arena(size_t bytes) {
  size_ = std::max<size_t>((bytes + 63) / 64 * 64, 64);
  data_ = ir::AllocateLines(size_);
}
Arena::~Arena() { std::free(data_); }

std::shared_ptr<Arena> Arenas::Take(size_t bytes) {
  {
    const std::scoped_lock lock(mutex_);
    const auto it = std::lower_bound(idle_.begin(), idle_.end(), bytes, Smaller);
    if (it != idle_.end()) {
      std::shared_ptr<Arena> arena = std::move(*it);
      idle_.erase(it);
      arena->Hold(ir::MemoryCharge(bytes));
      return arena;
    }
    if (!idle_.empty()) idle_.pop_back();
  }
  ir::MemoryCharge charge(bytes);  // before memory is asked for
  auto arena = std::make_shared<Arena>(bytes);
  arena->Hold(std::move(charge));
  return arena;
}

void Arenas::Return(std::shared_ptr<Arena> arena) {
  arena->Hold({});  // of the run that has ended
  const std::scoped_lock lock(mutex_);
  idle_.insert(std::lower_bound(idle_.begin(), idle_.end(), arena->size(), Smaller), std::move(arena));
}

size_t Arenas::idle_bytes() const {
  const std::scoped_lock lock(mutex_);
  size_t bytes = 0;
  for (const auto& arena : idle_) bytes += arena->size();
  return bytes;
}

}  // namespace octavo::runtime
