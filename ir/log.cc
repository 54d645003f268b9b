#include "octavo/ir/log.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <mutex>

#include "octavo/ir/names.h"

namespace octavo::ir {

namespace {

constexpr std::array<std::string_view, 4> kNames = {"off", "warning", "info", "debug"};

struct Place {
  std::mutex mutex;
  std::shared_ptr<const LogSink> sink;
};
// Never destroyed: threads may tell something while the process ends.
Place& ThePlace() {
  static Place& place = *new Place;
  return place;
}

void WriteLine(LogLevel level, std::string_view text) {
  const std::string line = std::format("octavo: {}: {}\n", Name(level), text);
  std::fwrite(line.data(), 1, line.size(), stderr);
}

// Who asks for lines on stderr hears there that none come.
LogLevel OfEnvironment() {
  const char* name = std::getenv("OCTAVO_LOG");
  if (name == nullptr || *name == '\0') return LogLevel::kOff;
  const std::optional<LogLevel> level = LogLevelOf(name);
  if (!level)
    std::fprintf(stderr, "octavo: OCTAVO_LOG is off, warning, info or debug, not '%s'; nothing is logged\n",
                 Clean(name, 100).c_str());
  return level.value_or(LogLevel::kOff);
}

thread_local bool telling = false;

}  // namespace

std::atomic<LogLevel> log::level = OfEnvironment();

void SetLog(LogLevel level, LogSink sink) {
  auto kept = sink ? std::make_shared<const LogSink>(std::move(sink)) : nullptr;
  Place& place = ThePlace();
  {
    const std::scoped_lock lock(place.mutex);
    place.sink.swap(kept);
    log::level = level;
  }  // the sink before is destroyed without the lock: what it holds may be anything
}

std::optional<LogLevel> LogLevelOf(std::string_view name) {
  const auto* const it = std::ranges::find(kNames, name);
  return it == kNames.end() ? std::nullopt : std::optional(static_cast<LogLevel>(it - kNames.begin()));
}

std::string_view Name(LogLevel level) { return kNames[static_cast<size_t>(level)]; }

// The sink is called without the lock: one that waits for another thread's (Python's) must not hold up that thread's line.
void log::Tell(LogLevel level, const std::function<std::string()>& text) noexcept {
  constexpr size_t kMost = 4000;
  if (std::exchange(telling, true)) return;
  try {
    const std::string line = Clean(text(), kMost);
    Place& place = ThePlace();
    std::unique_lock lock(place.mutex);
    const auto sink = place.sink;
    lock.unlock();
    sink == nullptr ? WriteLine(level, line) : (*sink)(level, line);
  } catch (...) {  // a line less
  }
  telling = false;
}

}  // namespace octavo::ir
