// What the libraries of a wheel take from C and C++ libraries that are newer than those a wheel may count on (older.py has the versions), made of
// what the older ones have. It becomes a small library of its own that every other one of the wheel needs.
#include <charconv>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cxxabi.h>
#include <exception>
#include <ios>
#include <string>

// The headers of a new C library name its own functions, which also read 0b101; nobody here writes that. (glibc 2.38)
#define OLD(type, name, ...) extern "C" type old_##name(__VA_ARGS__) __asm__(#name)
OLD(long, strtol, const char*, char**, int);
OLD(unsigned long, strtoul, const char*, char**, int);
OLD(long long, strtoll, const char*, char**, int);
OLD(unsigned long long, strtoull, const char*, char**, int);
OLD(int, vsscanf, const char*, const char*, va_list);

extern "C" {
long __isoc23_strtol(const char* text, char** end, int base) { return old_strtol(text, end, base); }
unsigned long __isoc23_strtoul(const char* text, char** end, int base) { return old_strtoul(text, end, base); }
long long __isoc23_strtoll(const char* text, char** end, int base) { return old_strtoll(text, end, base); }
unsigned long long __isoc23_strtoull(const char* text, char** end, int base) { return old_strtoull(text, end, base); }
int __isoc23_sscanf(const char* text, const char* format, ...) {
  va_list to;
  va_start(to, format);
  const int count = old_vsscanf(text, format, to);
  va_end(to);
  return count;
}

// An exception that leaves a noexcept function. (GCC 14)
void __cxa_call_terminate(void* exception) {
  if (exception != nullptr) abi::__cxa_begin_catch(exception);
  std::terminate();
}
}

namespace std {

// GCC 13's library sets up its streams itself, and a file that includes <iostream> asks for no more than that the library is a new one.
// An older one does it when such an object is made.
void ios_base_library_init() {}
static ios_base::Init streams;

// A part of string::replace. (GCC 13)
template void basic_string<char>::_M_replace_cold(char*, size_t, const char*, size_t, size_t);

// std::format names them for a type that octavo does not print. (GCC 13)
to_chars_result to_chars(char* first, char* last, _Float128 value) noexcept {
  return to_chars(first, last, static_cast<long double>(value));
}
to_chars_result to_chars(char* first, char* last, _Float128 value, chars_format format) noexcept {
  return to_chars(first, last, static_cast<long double>(value), format);
}
to_chars_result to_chars(char* first, char* last, _Float128 value, chars_format format, int precision) noexcept {
  return to_chars(first, last, static_cast<long double>(value), format, precision);
}

}  // namespace std
