// The wall of the library: no exception leaves a public call. Its body runs in Closed, which makes an Error of whatever is thrown:
// memory that lacks, an invariant of our own code that does not hold, another library's exception. And the host's float mode does not
// enter: the body has the one that bits rest on.
#ifndef OCTAVO_IR_CLOSED_H_
#define OCTAVO_IR_CLOSED_H_

#include <exception>
#include <string_view>
#include <type_traits>
#include <utility>

#include "octavo/ir/memory.h"
#include "octavo/ir/status.h"
#include "octavo/quant/numeric/float_mode.h"

namespace octavo::ir {

// One sentence for the exception at hand. `place`: whose call it was, "reading 'm.onnx'".
Error ErrorOf(const std::exception_ptr& exception, std::string_view place) noexcept;
// Whether memory is what lacks. Told by the words, which callers keep when they put their own place before them.
bool LacksMemory(const Error& error);
// The sentence as one line of UTF-8, whatever names it took from files (names.h).
Error Cleaned(Error error) noexcept;

// body() gives a Result or Status; so does Closed.
template <typename F>
std::invoke_result_t<F> Closed(std::string_view place, F&& body) noexcept {
  const quant::FloatMode mode;
  try {
    auto result = std::forward<F>(body)();
    if (!result) [[unlikely]]
      return std::unexpected(Cleaned(std::move(result).error()));
    return result;
  } catch (...) {
    return std::unexpected(ErrorOf(std::current_exception(), place));
  }
}

// The same where tensors may take `most` bytes in all.
template <typename F>
std::invoke_result_t<F> Closed(std::string_view place, size_t most, F&& body) noexcept {
  return Closed(place, [&] {
    const MemoryScope scope(most);
    return std::forward<F>(body)();
  });
}

}  // namespace octavo::ir

#endif  // OCTAVO_IR_CLOSED_H_
