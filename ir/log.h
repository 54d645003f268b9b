// What the library tells who looks after a deployment. Off unless somebody asks, so that a host's output is its own; then each place costs one load.
#ifndef OCTAVO_IR_LOG_H_
#define OCTAVO_IR_LOG_H_

#include <atomic>
#include <format>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace octavo::ir {

enum class LogLevel { kOff, kWarning, kInfo, kDebug };

// Gets one line of text without its end, on the thread that it is about, so several may come at once. What it throws is dropped, and what octavo
// would tell inside of it is not told.
using LogSink = std::function<void(LogLevel level, std::string_view text)>;

// For this process, until the next call. No sink: lines on stderr. Before the first call the variable OCTAVO_LOG has the level.
void SetLog(LogLevel level, LogSink sink = {});

// "off", "warning", "info", "debug"; nothing: none of these.
std::optional<LogLevel> LogLevelOf(std::string_view name);
std::string_view Name(LogLevel level);

namespace log {

extern std::atomic<LogLevel> level;
void Tell(LogLevel level, const std::function<std::string()>& text) noexcept;

}  // namespace log

// Whether anybody wants it: for what is costly to gather.
inline bool Logs(LogLevel level) { return level <= log::level.load(std::memory_order_relaxed); }

// Names of files may stand in it as they are.
template <typename... Values>
void Log(LogLevel level, std::format_string<const Values&...> text, const Values&... values) noexcept {
  if (Logs(level)) log::Tell(level, [&] { return std::format(text, values...); });
}

}  // namespace octavo::ir

#endif  // OCTAVO_IR_LOG_H_
