#include "octavo/ir/memory.h"

#include <cstdlib>
#include <cstring>
#include <limits>
#include <utility>

namespace octavo::ir {

namespace {

std::shared_ptr<MemoryAccount>& Current() {
  thread_local std::shared_ptr<MemoryAccount> account;
  return account;
}

}  // namespace

MemoryScope::MemoryScope(size_t most) : before_(std::move(Current())) {
  Current() = std::make_shared<MemoryAccount>(most);
}
MemoryScope::~MemoryScope() { Current() = std::move(before_); }

MemoryCharge::MemoryCharge(size_t bytes) {
  const std::shared_ptr<MemoryAccount>& account = Current();
  if (account == nullptr) return;
  const size_t before = account->used_.fetch_add(bytes);
  if (bytes > account->most_ || before > account->most_ - bytes) {
    account->used_ -= bytes;
    throw OutOfMemory(bytes, account->most_);
  }
  account_ = account;
  bytes_ = bytes;
}
MemoryCharge::~MemoryCharge() {
  if (account_ != nullptr) account_->used_ -= bytes_;
}
MemoryCharge::MemoryCharge(MemoryCharge&& other) noexcept
    : account_(std::move(other.account_)), bytes_(std::exchange(other.bytes_, 0)) {}
MemoryCharge& MemoryCharge::operator=(MemoryCharge&& other) noexcept {
  std::swap(account_, other.account_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

std::byte* AllocateLines(size_t bytes) {
  constexpr size_t kLine = 64;
  if (bytes > std::numeric_limits<ptrdiff_t>::max() - 2 * kLine) throw OutOfMemory(bytes, 0);
  const size_t rounded = bytes == 0 ? kLine : (bytes + kLine - 1) / kLine * kLine;
  void* memory = std::malloc(rounded + kLine);
  if (memory == nullptr) throw OutOfMemory(bytes, 0);
  // malloc aligns to 16, so between 16 and 64 bytes lie before the first line: what is to be freed is noted there.
  const size_t before = kLine - reinterpret_cast<uintptr_t>(memory) % kLine;
  std::byte* lines = static_cast<std::byte*>(memory) + before;
  std::memcpy(lines - sizeof(void*), &memory, sizeof(void*));
  return lines;
}

void FreeLines(std::byte* lines) noexcept {
  if (lines == nullptr) return;
  void* memory = nullptr;
  std::memcpy(&memory, lines - sizeof(void*), sizeof(void*));
  std::free(memory);
}

}  // namespace octavo::ir
