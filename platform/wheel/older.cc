// What the libraries of a wheel take from C and C++ libraries that are newer than those a wheel may count on (older.py has the versions), made of
// what the older ones have. It becomes a small library of its own that every other one of the wheel needs. std::filesystem and the numbers of
// <charconv> come into it from GCC's static library (wheel.sh).
#include <cxxabi.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <ios>
#include <new>
#include <sstream>
#include <string>

// The headers of a new C library name its own functions, which also read 0b101; nobody here writes that. (glibc 2.38)
#define OLD(type, name, ...) extern "C" type old_##name(__VA_ARGS__) __asm__(#name)
OLD(long, strtol, const char*, char**, int);
OLD(unsigned long, strtoul, const char*, char**, int);
OLD(long long, strtoll, const char*, char**, int);
OLD(unsigned long long, strtoull, const char*, char**, int);
OLD(int, vsscanf, const char*, const char*, va_list);

// They stood in libpthread before glibc 2.32, and in two versions: the first had no size.
#define OLD_AFFINITY(name, of, set)                                                                     \
  extern "C" int name(of what, size_t bytes, set cpus) noexcept {                                       \
    static const auto old = reinterpret_cast<decltype(&name)>(dlvsym(RTLD_NEXT, #name, "GLIBC_2.3.4")); \
    return old(what, bytes, cpus);                                                                      \
  }
OLD_AFFINITY(pthread_getaffinity_np, pthread_t, cpu_set_t*)
OLD_AFFINITY(pthread_setaffinity_np, pthread_t, const cpu_set_t*)
OLD_AFFINITY(pthread_attr_setaffinity_np, pthread_attr_t*, const cpu_set_t*)

// How an exception_ptr is copied and destroyed, which old libraries have as a whole. New ones call the parts that stand below, by name: in a process
// where octavo is what loads the C++ library, they find these. So a library that has parts of its own is asked for them.
void* OwnOfLibrary(const char* name) {
  static void* const library = dlopen("libstdc++.so.6", RTLD_LAZY | RTLD_NOLOAD);
  return library == nullptr ? nullptr : dlvsym(library, name, "CXXABI_1.3.13");
}
extern "C" void copy_exception_ptr(void* to, const void* from) __asm__("_ZNSt15__exception_ptr13exception_ptrC1ERKS0_");
extern "C" void destroy_exception_ptr(void* it) __asm__("_ZNSt15__exception_ptr13exception_ptrD1Ev");

extern "C" {
// Whether the process never had a second thread, which saves atomic operations: unknown. (glibc 2.32)
char __libc_single_threaded = 0;

// They were inline calls of others before glibc 2.33. On x86-64 the system fills in the same struct.
int stat(const char* path, struct stat* to) noexcept {
  return static_cast<int>(syscall(SYS_newfstatat, AT_FDCWD, path, to, 0));
}
int lstat(const char* path, struct stat* to) noexcept {
  return static_cast<int>(syscall(SYS_newfstatat, AT_FDCWD, path, to, AT_SYMLINK_NOFOLLOW));
}
int fstat(int file, struct stat* to) noexcept { return static_cast<int>(syscall(SYS_fstat, file, to)); }

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

// new T[n] with too large an n. (GCC 11)
void __throw_bad_array_new_length() { throw bad_array_new_length(); }

// One owner more, and one less. (GCC 11)
namespace __exception_ptr {
void exception_ptr::_M_addref() noexcept {
  static const auto own =
      reinterpret_cast<void (*)(exception_ptr*)>(OwnOfLibrary("_ZNSt15__exception_ptr13exception_ptr9_M_addrefEv"));
  if (own != nullptr) return own(this);
  void* copy;
  copy_exception_ptr(&copy, this);
}
void exception_ptr::_M_release() noexcept {
  static const auto own =
      reinterpret_cast<void (*)(exception_ptr*)>(OwnOfLibrary("_ZNSt15__exception_ptr13exception_ptr10_M_releaseEv"));
  if (own != nullptr) return own(this);
  destroy_exception_ptr(this);
  _M_exception_object = nullptr;
}
}  // namespace __exception_ptr

// Streams made of nothing, and a copy of what stands in one. (GCC 9 and 11)
template basic_stringstream<char>::basic_stringstream();
template basic_ostringstream<char>::basic_ostringstream();
template basic_istringstream<char>::basic_istringstream();
template basic_stringbuf<char>::basic_stringbuf();
template string basic_stringbuf<char>::str() const&;

// GCC 13's library sets up its streams itself, and a file that includes <iostream> asks for no more than that the library is a new one.
// An older one does it when such an object is made.
void ios_base_library_init() {}
static ios_base::Init streams;

// A part of string::replace. (GCC 13)
template void basic_string<char>::_M_replace_cold(char*, size_t, const char*, size_t, size_t);

}  // namespace std
