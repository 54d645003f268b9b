// A bound on the memory of tensors. What a file declares (a ConstantOfShape of 64 GB) must not take the machine down, so each call of
// the library has an account, and every tensor that it makes is charged to it until the tensor's memory is given back.
#ifndef OCTAVO_IR_MEMORY_H_
#define OCTAVO_IR_MEMORY_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>

namespace octavo::ir {

// Thrown inside of the library alone; Closed (closed.h) makes a sentence of it.
class OutOfMemory : public std::bad_alloc {
 public:
  // `bytes` were asked for. `most`: the limit that forbids them; 0: the machine has no more.
  OutOfMemory(size_t bytes, size_t most) : bytes_(bytes), most_(most) {}
  const char* what() const noexcept override { return "out of memory"; }
  size_t bytes() const { return bytes_; }
  size_t most() const { return most_; }

 private:
  size_t bytes_, most_;
};

class MemoryAccount {
 public:
  explicit MemoryAccount(size_t most) : most_(most) {}
  size_t most() const { return most_; }
  size_t used() const { return used_; }

 private:
  friend class MemoryCharge;
  size_t most_;
  std::atomic<size_t> used_ = 0;
};

// While it stands, the calling thread's tensors are charged to a new account that allows `most` bytes. Scopes nest; the inner one counts.
class MemoryScope {
 public:
  explicit MemoryScope(size_t most);
  ~MemoryScope();
  MemoryScope(const MemoryScope&) = delete;
  MemoryScope& operator=(const MemoryScope&) = delete;

 private:
  std::shared_ptr<MemoryAccount> before_;
};

// Bytes charged to the calling thread's account, if it has one, until it is destroyed, on whichever thread. Throws OutOfMemory.
class MemoryCharge {
 public:
  MemoryCharge() = default;
  explicit MemoryCharge(size_t bytes);
  ~MemoryCharge();
  MemoryCharge(MemoryCharge&& other) noexcept;
  MemoryCharge& operator=(MemoryCharge&& other) noexcept;

 private:
  std::shared_ptr<MemoryAccount> account_;
  size_t bytes_ = 0;
};

// `bytes` rounded up to whole cache lines, 64-byte aligned; to be freed by FreeLines. Throws OutOfMemory.
// Not aligned_alloc: glibc asks its heap for a line more than it keeps, so a block that comes back is too small for the next of the same size. A Loop
// that kept 4.6 KB of each iteration took 33 KB.
std::byte* AllocateLines(size_t bytes);
void FreeLines(std::byte* lines) noexcept;

}  // namespace octavo::ir

#endif  // OCTAVO_IR_MEMORY_H_
