#include "octavo/fuzz/child.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <format>
#include <fstream>

namespace octavo::fuzz {

namespace {

constexpr int kMostWallSeconds = 180;         // of silence: a child that waits for something uses no CPU time
constexpr rlim_t kAddressSpace = 6ull << 30;  // keeps the machine alive

void WriteAll(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t n = write(fd, text.data(), text.size());
    if (n <= 0) _exit(3);  // the parent is gone
    text.remove_prefix(static_cast<size_t>(n));
  }
}

void SetTimer(int seconds) {
  const itimerval timer{{0, 0}, {seconds, 0}};
  setitimer(ITIMER_PROF, &timer, nullptr);
}

// Peak of resident memory since Begin, in KB.
int64_t PeakKb() {
  std::ifstream status("/proc/self/status");
  std::string line;
  while (std::getline(status, line)) {
    if (line.starts_with("VmHWM:")) return std::strtoll(line.c_str() + 6, nullptr, 10);
  }
  return 0;
}

int64_t SizeOf(int fd) {
  struct stat s = {};
  return fstat(fd, &s) == 0 ? s.st_size : 0;
}

std::string TailOf(int fd, int64_t from) {
  const int64_t size = SizeOf(fd);
  from = std::max(from, size - 2000);
  std::string text(static_cast<size_t>(std::max<int64_t>(0, size - from)), '\0');
  const ssize_t n = pread(fd, text.data(), text.size(), from);
  text.resize(n > 0 ? static_cast<size_t>(n) : 0);
  return text;
}

// Nanoseconds that all its threads had of the CPU.
int64_t CpuTimeOf(pid_t child) {
  clockid_t clock{};
  timespec time{};
  if (clock_getcpuclockid(child, &clock) != 0 || clock_gettime(clock, &time) != 0) return 0;
  return time.tv_sec * 1'000'000'000 + time.tv_nsec;
}

std::string HowItEnded(int status, bool silent) {
  if (silent) return std::format("{} s of silence", kMostWallSeconds);
  if (WIFSIGNALED(status) && WTERMSIG(status) == SIGPROF)
    return std::format("more than {} s of CPU time", kMostSeconds);
  if (WIFSIGNALED(status)) return std::format("signal {} ({})", WTERMSIG(status), strsignal(WTERMSIG(status)));
  return std::format("exit status {}", WEXITSTATUS(status));
}

}  // namespace

void Report::Begin(uint64_t index) {
  Line("begin", std::to_string(index));
  std::ofstream("/proc/self/clear_refs") << "5";  // the peak starts anew
  SetTimer(kMostSeconds);
}

void Report::Line(std::string_view kind, std::string_view detail) {
  std::string text = std::format("{}\t{}", kind, detail.substr(0, 600));
  for (char& c : text) {
    if (c == '\n' || c == '\r') c = ' ';
  }
  WriteAll(pipe_, text + "\n");
}

void Report::End() {
  SetTimer(0);
  std::fflush(stdout), std::fflush(stderr);
  if (const int64_t size = SizeOf(printed_); size > printed_bytes_) {
    Line("finding", "prints\t" + TailOf(printed_, printed_bytes_));
    printed_bytes_ = size;
  }
  Line("end", std::to_string(PeakKb()));
}

Ended RunChild(const std::function<void(Report&)>& body, const std::function<void(std::string_view)>& line) {
  int ends[2];
  const int printed = memfd_create("printed", MFD_CLOEXEC);
  if (printed < 0 || pipe2(ends, O_CLOEXEC) != 0) return {false, "no pipe", ""};
  std::fflush(stdout), std::fflush(stderr);
  const pid_t child = fork();
  if (child == 0) {
    dup2(printed, STDOUT_FILENO), dup2(printed, STDERR_FILENO);
    const rlimit space{kAddressSpace, kAddressSpace}, no_core{0, 0};
    if (!kSanitized) setrlimit(RLIMIT_AS, &space);
    setrlimit(RLIMIT_CORE, &no_core);
    Report report(ends[1], printed);
    [&]() noexcept { body(report); }();  // what is thrown ends the process here
    _exit(0);
  }
  close(ends[1]);
  std::string text;
  bool silent = false;
  int64_t cpu_time = 0;
  for (char buffer[4096];;) {
    pollfd ready{ends[0], POLLIN, 0};
    if (poll(&ready, 1, kMostWallSeconds * 1000) == 0) {
      // A busy machine may leave little time to a child that is well; its timer ends one that is not.
      if (const int64_t now = CpuTimeOf(child); now > cpu_time) {
        cpu_time = now;
        continue;
      }
      silent = true;
      kill(child, SIGKILL);
      break;
    }
    const ssize_t n = read(ends[0], buffer, sizeof(buffer));
    if (n <= 0) break;
    text.append(buffer, static_cast<size_t>(n));
    for (size_t end = text.find('\n'); end != std::string::npos; end = text.find('\n')) {
      line(std::string_view(text).substr(0, end));
      text.erase(0, end + 1);
    }
  }
  close(ends[0]);
  int status = 0;
  waitpid(child, &status, 0);
  Ended ended{!silent && WIFEXITED(status) && WEXITSTATUS(status) == 0, HowItEnded(status, silent), TailOf(printed, 0)};
  close(printed);
  return ended;
}

}  // namespace octavo::fuzz
