#include "octavo/runtime/pool.h"

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <map>
#include <mutex>

#include "octavo/ir/memory.h"

namespace octavo::runtime {

namespace {

constexpr size_t kSmallest = 65536;  // below that malloc keeps its memory itself

// Up to an eighth more, so that a cache that grows by a token finds the block of the step before.
size_t Rounded(size_t bytes) {
  const size_t unit = std::bit_floor(bytes) / 8;
  return (bytes + unit - 1) / unit * unit;
}

}  // namespace

struct Pool::Blocks {
  ~Blocks() {
    for (const auto& [bytes, block] : idle) ir::FreeLines(block);
  }
  // Null: none.
  std::byte* Reuse(size_t bytes) {
    const std::scoped_lock lock(mutex);
    const auto it = idle.find(bytes);
    if (it == idle.end()) return nullptr;
    std::byte* block = it->second;
    idle.erase(it), idle_bytes -= bytes;
    return block;
  }
  void Took(size_t bytes) {
    const std::scoped_lock lock(mutex);
    in_use += bytes, most_in_use = std::max(most_in_use, in_use);
  }
  void Return(std::byte* block, size_t bytes) noexcept {
    const std::scoped_lock lock(mutex);
    in_use -= bytes;
    while (!idle.empty() && idle_bytes + bytes > most_in_use) {  // of other sizes: shapes have changed
      idle_bytes -= idle.begin()->first;
      ir::FreeLines(idle.begin()->second);
      idle.erase(idle.begin());
    }
    try {
      idle.emplace(bytes, block), idle_bytes += bytes;
    } catch (const std::bad_alloc&) {  // no room to note it
      ir::FreeLines(block);
    }
  }

  std::mutex mutex;
  std::multimap<size_t, std::byte*> idle;  // by size
  size_t idle_bytes = 0, in_use = 0, most_in_use = 0;
};

class PooledBuffer : public ir::Buffer {
 public:
  PooledBuffer(std::shared_ptr<Pool::Blocks> blocks, size_t bytes)
      : charge_(bytes), blocks_(std::move(blocks)), rounded_(Rounded(bytes)) {
    size_ = bytes, exclusive_ = true;
    data_ = blocks_->Reuse(rounded_);
    if (data_ == nullptr) data_ = ir::AllocateLines(rounded_);
    blocks_->Took(rounded_);
  }
  ~PooledBuffer() override { blocks_->Return(data_, rounded_); }
  PooledBuffer(const PooledBuffer&) = delete;
  PooledBuffer& operator=(const PooledBuffer&) = delete;

 private:
  ir::MemoryCharge charge_;
  std::shared_ptr<Pool::Blocks> blocks_;
  size_t rounded_;
};

Pool::Pool() : blocks_(std::make_shared<Blocks>()) {}

ir::Tensor Pool::Take(ir::DType dtype, ir::Shape shape) const {
  const size_t bytes = ir::BytesToMake(dtype, shape);
  if (bytes < kSmallest || dtype == ir::DType::kString) return ir::Tensor::Empty(dtype, std::move(shape));
  return ir::Tensor::View(dtype, std::move(shape), std::make_shared<PooledBuffer>(blocks_, bytes), 0);
}

void Pool::Trim() const {
  const std::scoped_lock lock(blocks_->mutex);
  for (const auto& [bytes, block] : blocks_->idle) ir::FreeLines(block);
  blocks_->idle.clear(), blocks_->idle_bytes = 0;
  blocks_->most_in_use = blocks_->in_use;
}

size_t Pool::idle_bytes() const {
  const std::scoped_lock lock(blocks_->mutex);
  return blocks_->idle_bytes;
}

}  // namespace octavo::runtime
