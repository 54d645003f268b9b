// What GCC 14, its library and the headers of Debian's C library take from C libraries newer than 2.28, made of what 2.28 has; and two functions of
// OpenMP, which the wheel's oneDNN, compiled for one thread, does not bring. Linked into each part of a wheel, seen from nowhere else.
#include <stdarg.h>
#include <stddef.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define HIDDEN __attribute__((visibility("hidden")))

// 0: other threads may be there, so shared pointers count atomically. (2.32)
HIDDEN char __libc_single_threaded = 0;

// C23 reads 0b prefixes, which nobody here writes. (2.38) The old functions are named by hand: the headers rename them.
#define OLD(type, name, ...) extern type old_##name(__VA_ARGS__) __asm__(#name)
OLD(long, strtol, const char*, char**, int);
OLD(unsigned long, strtoul, const char*, char**, int);
OLD(long long, strtoll, const char*, char**, int);
OLD(unsigned long long, strtoull, const char*, char**, int);
HIDDEN long __isoc23_strtol(const char* text, char** end, int base) { return old_strtol(text, end, base); }
HIDDEN unsigned long __isoc23_strtoul(const char* text, char** end, int base) { return old_strtoul(text, end, base); }
HIDDEN long long __isoc23_strtoll(const char* text, char** end, int base) { return old_strtoll(text, end, base); }
HIDDEN unsigned long long __isoc23_strtoull(const char* text, char** end, int base) {
  return old_strtoull(text, end, base);
}

OLD(int, vsscanf, const char*, const char*, va_list);
HIDDEN int __isoc23_sscanf(const char* text, const char* format, ...) {
  va_list to;
  va_start(to, format);
  const int count = old_vsscanf(text, format, to);
  va_end(to);
  return count;
}

// Functions since 2.33, where older headers had calls with a version of the struct: 1 on x86-64.
OLD(int, __xstat, int, const char*, struct stat*);
OLD(int, __lxstat, int, const char*, struct stat*);
OLD(int, __fxstat, int, int, struct stat*);
OLD(int, __fxstatat, int, int, const char*, struct stat*, int);
HIDDEN int stat(const char* path, struct stat* to) { return old___xstat(1, path, to); }
HIDDEN int lstat(const char* path, struct stat* to) { return old___lxstat(1, path, to); }
HIDDEN int fstat(int file, struct stat* to) { return old___fxstat(1, file, to); }
HIDDEN int fstatat(int folder, const char* path, struct stat* to, int flags) {
  return old___fxstatat(1, folder, path, to, flags);
}

// std::random_device's choice, which octavo does not make. (2.36)
HIDDEN unsigned arc4random(void) {
  unsigned value = 0;
  while (syscall(SYS_getrandom, &value, sizeof(value), 0) != sizeof(value)) continue;
  return value;
}

HIDDEN void omp_set_num_threads(int count) { (void)count; }
HIDDEN int omp_get_max_threads(void) { return 1; }
