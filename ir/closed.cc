#include "octavo/ir/closed.h"

#include <new>

namespace octavo::ir {

namespace {

std::string Megabytes(size_t bytes) {
  return bytes < 10'000'000 ? std::format("{} bytes", bytes) : std::format("{} MB", bytes / 1'000'000);
}

Error Sentence(const std::exception_ptr& exception, std::string_view place) {
  try {
    std::rethrow_exception(exception);
  } catch (const OutOfMemory& e) {
    if (e.most() == 0)
      return {std::format("{}: {} of memory are needed at once, more than this machine gives", place, Megabytes(e.bytes()))};
    return {std::format("{}: a tensor of {} is beyond the limit of {} for all tensors; raise max_memory if the model needs it",
                        place, Megabytes(e.bytes()), Megabytes(e.most()))};
  } catch (const std::bad_alloc&) {
    return {std::format("{}: this machine has no more memory", place)};
  } catch (const CheckError& e) {
    return {std::format("{}: octavo is at fault, {}; please report it", place, e.what())};
  } catch (const std::length_error&) {
    return {std::format("{}: a size in it is larger than memory", place)};
  } catch (const std::exception& e) {
    return {std::format("{}: octavo is at fault, an exception was not expected ({}); please report it", place, e.what())};
  } catch (...) {
    return {std::format("{}: octavo is at fault, an exception was not expected; please report it", place)};
  }
}

}  // namespace

Error ErrorOf(const std::exception_ptr& exception, std::string_view place) noexcept {
  try {
    return Sentence(exception, place);
  } catch (...) {
    return {"out of memory"};  // short enough to be kept without an allocation
  }
}

}  // namespace octavo::ir
