#include "octavo/cli/measure.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

#include "octavo/api/bench.h"
#include "octavo/cli/cli.h"
#include "octavo/ir/npz/npz.h"

namespace octavo::cli {

namespace {

namespace fs = std::filesystem;

// A folder that goes with its end.
struct TemporaryFolder {
  TemporaryFolder() {
    std::error_code none;
    std::string name = (fs::temp_directory_path(none) / "octavo-XXXXXX").string();
    if (!none && mkdtemp(name.data()) != nullptr) path = name;
  }
  ~TemporaryFolder() {
    std::error_code none;
    if (!path.empty()) fs::remove_all(path, none);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  fs::path path;
};

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

// Resident at its most, of a process that runs the file once; 0 where that cannot be told.
int64_t PeakOf(const std::string& file, const std::string& inputs) {
  std::error_code none;
  if (!fs::is_regular_file(file, none)) return 0;
  const auto bytes = static_cast<int64_t>(fs::file_size(file, none));
  if (none || AvailableBytes() < 4 * bytes + (int64_t{1} << 30)) return 0;
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
    posix_spawn_file_actions_addopen(&actions, stream, "/dev/null", O_RDWR, 0);
  std::array<std::string, 5> words{"octavo", "run", file, "--inputs", inputs};
  std::array<char*, 6> arguments = {};
  for (size_t i = 0; i < words.size(); ++i) arguments[i] = words[i].data();
  pid_t child = 0;
  const int failed = posix_spawn(&child, "/proc/self/exe", &actions, nullptr, arguments.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (failed != 0) return 0;
  int64_t most = 0;
  int status = 0;
  for (;;) {
    const pid_t ended = waitpid(child, &status, WNOHANG);
    if (ended == child) break;
    if (ended < 0 && errno != EINTR) return 0;
    most = std::max(most, HighWaterOf(child));  // posix_spawn came back when the other program had begun
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? most : 0;
}

}  // namespace

ir::Result<api::Measured> MeasureHere(ToMeasure what, const ir::Graph& made) {
  ir::TensorMap inputs;
  if (what.data != nullptr) {
    what.data->Rewind();
    OCTAVO_TRY(auto batch, what.data->Next());
    if (batch) inputs = std::move(batch->inputs);
  }
  const bool random = inputs.empty() || what.data->random();
  if (inputs.empty()) {
    OCTAVO_TRY(inputs, api::RandomInputs(what.came, {}));
  }
  OCTAVO_TRY(api::Measured measured, api::Measure(std::move(what.came), made, inputs, random,
                                                  {.interrupted = [] { return Interrupted().load(); }}));
  const TemporaryFolder folder;
  if (folder.path.empty()) return measured;
  const std::string batch = (folder.path / "batch.npz").string();
  if (!ir::WriteNpz(batch, inputs)) return measured;
  measured.before.peak_bytes = PeakOf(what.before, batch);
  measured.after.peak_bytes = PeakOf(what.after, batch);
  return measured;
}

}  // namespace octavo::cli
