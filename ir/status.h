// Errors of everything that outside input can cause. A programmer's error is an OCTAVO_CHECK.
#ifndef OCTAVO_IR_STATUS_H_
#define OCTAVO_IR_STATUS_H_

#include <expected>
#include <format>
#include <stdexcept>
#include <string>
#include <utility>

namespace octavo::ir {

// One sentence for a person: what is wrong, where (node, tensor or file), and the way out where there is one.
struct Error {
  std::string message;
};

template <typename T>
using Result = std::expected<T, Error>;
using Status = Result<void>;

template <typename... Args>
std::unexpected<Error> Fail(std::format_string<Args...> fmt, Args&&... args) {
  return std::unexpected(Error{std::format(fmt, std::forward<Args>(args)...)});
}

// An invariant of our own code does not hold. Thrown inside of the library alone: Closed (closed.h) makes a sentence of it, since a
// library does not end the process that it is a guest of.
class CheckError : public std::logic_error {
 public:
  using std::logic_error::logic_error;
};
[[noreturn]] void CheckFailed(const char* file, int line, const char* condition, const std::string& message);

}  // namespace octavo::ir

#define OCTAVO_CHECK(cond, ...)                                                            \
  do {                                                                                     \
    if (!(cond)) [[unlikely]] {                                                            \
      ::octavo::ir::CheckFailed(__FILE__, __LINE__, #cond, ::std::format("" __VA_ARGS__)); \
    }                                                                                      \
  } while (false)

// OCTAVO_TRY(Tensor t, ReadTensor(...)): returns the error from the enclosing function, or binds the value.
#define OCTAVO_TRY_CAT2(a, b) a##b
#define OCTAVO_TRY_CAT(a, b) OCTAVO_TRY_CAT2(a, b)
#define OCTAVO_TRY_IMPL(tmp, decl, ...)                         \
  auto tmp = (__VA_ARGS__);                                     \
  if (!tmp) return ::std::unexpected(::std::move(tmp).error()); \
  decl = ::std::move(*tmp)
#define OCTAVO_TRY(decl, ...) OCTAVO_TRY_IMPL(OCTAVO_TRY_CAT(octavo_try_, __LINE__), decl, __VA_ARGS__)
#define OCTAVO_TRY_STATUS(...)                                                        \
  do {                                                                                \
    auto octavo_status = (__VA_ARGS__);                                               \
    if (!octavo_status) return ::std::unexpected(::std::move(octavo_status).error()); \
  } while (false)

#endif  // OCTAVO_IR_STATUS_H_
