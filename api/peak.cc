#include "octavo/api/peak.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <fstream>
#include <thread>

#include "octavo/ir/npz/npz.h"

namespace octavo::api {

namespace {

namespace fs = std::filesystem;

int64_t AvailableBytes() {
  std::ifstream meminfo("/proc/meminfo");
  for (std::string word; meminfo >> word;) {
    int64_t kilobytes = 0;
    if (word == "MemAvailable:" && meminfo >> kilobytes) return kilobytes * 1024;
  }
  return 0;
}

// "VmHWM:   12345 kB" of a process: what its program held at most so far. What wait4 tells counts the program before exec, too, which is this one.
int64_t HighWaterOf(pid_t process) {
  std::ifstream status("/proc/" + std::to_string(process) + "/status");
  for (std::string word; status >> word;) {
    int64_t kilobytes = 0;
    if (word == "VmHWM:" && status >> kilobytes) return kilobytes * 1024;
  }
  return 0;
}

// The program with these words, without a terminal; 0: it did not begin.
pid_t Spawn(const std::string& program, std::array<std::string, 5> words) {
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
    posix_spawn_file_actions_addopen(&actions, stream, "/dev/null", O_RDWR, 0);
  std::array<char*, 6> arguments = {};
  for (size_t i = 0; i < words.size(); ++i) arguments[i] = words[i].data();
  pid_t child = 0;
  const int failed = posix_spawn(&child, program.c_str(), &actions, nullptr, arguments.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  return failed == 0 ? child : 0;
}

int64_t PeakOf(const std::string& program, const std::string& file, const std::string& inputs,
               const std::function<bool()>& interrupted) {
  std::error_code none;
  if (!fs::is_regular_file(file, none)) return 0;
  const auto bytes = static_cast<int64_t>(fs::file_size(file, none));
  if (none || AvailableBytes() < 4 * bytes + (int64_t{1} << 30)) return 0;
  const pid_t child = Spawn(program, {"octavo", "run", file, "--inputs", inputs});
  if (child == 0) return 0;
  int64_t most = 0;
  int status = 0;
  for (;;) {
    const pid_t ended = waitpid(child, &status, WNOHANG);
    if (ended == child) break;
    if (ended < 0 && errno != EINTR) return 0;
    if (interrupted && interrupted()) kill(child, SIGKILL);
    most = std::max(most, HighWaterOf(child));  // posix_spawn came back when the other program had begun
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? most : 0;
}

}  // namespace

TemporaryFolder::TemporaryFolder() {
  std::error_code none;
  std::string name = (fs::temp_directory_path(none) / "octavo-XXXXXX").string();
  if (!none && mkdtemp(name.data()) != nullptr) path = name;
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code none;
  if (!path.empty()) fs::remove_all(path, none);
}

void MeasurePeaks(const PeakFiles& files, const ir::TensorMap& inputs, const std::function<bool()>& interrupted,
                  Measured& measured) {
  const TemporaryFolder folder;
  if (folder.path.empty()) return;
  const std::string batch = (folder.path / "batch.npz").string();
  if (!ir::WriteNpz(batch, inputs)) return;
  measured.before.peak_bytes = PeakOf(files.program, files.before, batch, interrupted);
  measured.after.peak_bytes = PeakOf(files.program, files.after, batch, interrupted);
}

}  // namespace octavo::api
