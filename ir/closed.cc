#include "octavo/ir/closed.h"

#include <algorithm>
#include <new>
#include <system_error>

#include "octavo/ir/names.h"

namespace octavo::ir {

namespace {

constexpr std::string_view kAtOnce = "of memory are needed at once, more than this machine gives";
constexpr std::string_view kBeyond = "for what it holds at once; raise max_memory if the model needs it";
constexpr std::string_view kNoMore = "this machine has no more memory";

std::string Megabytes(size_t bytes) {
  return bytes < 10'000'000 ? std::format("{} bytes", bytes) : std::format("{} MB", bytes / 1'000'000);
}

// The standard library says it by a code, TBB by its words.
bool IsLackOfThreads(const std::exception& e) {
  const auto* const system = dynamic_cast<const std::system_error*>(&e);
  return (system != nullptr && system->code() == std::errc::resource_unavailable_try_again) ||
         std::string_view(e.what()).contains("pthread_create");
}

Error Sentence(const std::exception_ptr& exception, std::string_view place) {
  try {
    std::rethrow_exception(exception);
  } catch (const OutOfMemory& e) {
    if (e.most() == 0) return {std::format("{}: {} {}", place, Megabytes(e.bytes()), kAtOnce)};
    return {std::format("{}: {} more are beyond the limit of {} {}", place, Megabytes(e.bytes()), Megabytes(e.most()),
                        kBeyond)};
  } catch (const std::bad_alloc&) {
    return {std::format("{}: {}", place, kNoMore)};
  } catch (const CheckError& e) {
    return {std::format("{}: octavo is at fault, {}; please report it", place, e.what())};
  } catch (const std::length_error&) {
    return {std::format("{}: a size in it is larger than memory", place)};
  } catch (const std::exception& e) {
    if (IsLackOfThreads(e))
      return {
          std::format("{}: the system starts no more threads; ask for fewer, or raise the limit of processes", place)};
    return {
        std::format("{}: octavo is at fault, an exception was not expected ({}); please report it", place, e.what())};
  } catch (...) {
    return {std::format("{}: octavo is at fault, an exception was not expected; please report it", place)};
  }
}

}  // namespace

Error ErrorOf(const std::exception_ptr& exception, std::string_view place) noexcept {
  try {
    return Cleaned(Sentence(exception, place));
  } catch (...) {
    return {"out of memory"};  // short enough to be kept without an allocation
  }
}

bool LacksMemory(const Error& error) {
  const auto says = [&](std::string_view words) { return error.message.find(words) != std::string::npos; };
  return error.message == "out of memory" || says(kAtOnce) || says(kBeyond) || says(kNoMore);
}

Error Cleaned(Error error) noexcept {
  constexpr size_t kMost = 4000;
  constexpr auto kPlain = [](char c) { return c >= ' ' && c < 0x7f; };
  if (error.message.size() <= kMost && std::ranges::all_of(error.message, kPlain)) return error;
  try {
    return {Clean(error.message, kMost)};
  } catch (...) {
    return {"out of memory"};
  }
}

}  // namespace octavo::ir
