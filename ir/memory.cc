#include "octavo/ir/memory.h"

#include <cstdlib>
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
  if (bytes > std::numeric_limits<ptrdiff_t>::max() - kLine) throw OutOfMemory(bytes, 0);
  const size_t rounded = bytes == 0 ? kLine : (bytes + kLine - 1) / kLine * kLine;
  void* memory = std::aligned_alloc(kLine, rounded);
  if (memory == nullptr) throw OutOfMemory(bytes, 0);
  return static_cast<std::byte*>(memory);
}

}  // namespace octavo::ir
