#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <format>

#include "octavo/cli/cli.h"

namespace octavo::cli {

namespace {

// Columns of the terminal; 80 where it does not say.
size_t Columns() {
  winsize size = {};
  return ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

// "8 s", "2 min 5 s", "1 h 3 min".
std::string Duration(double seconds) {
  const auto s = static_cast<int64_t>(seconds);
  if (s < 60) return std::format("{} s", s);
  if (s < 3600) return std::format("{} min {} s", s / 60, s % 60);
  return std::format("{} h {} min", s / 3600, s % 3600 / 60);
}

}  // namespace

std::string ProgressLine(std::string_view stage, int64_t done, int64_t total, int64_t since, double seconds,
                         size_t width) {
  std::string line(stage);
  std::string tail = std::format("{}", done);
  if (total > 0) tail += std::format("/{}", total);
  if (seconds >= 1) tail += ", " + Duration(seconds);
  // What is left takes as long for each as what was done.
  if (seconds >= 1 && total > done && done > since)
    tail += std::format(", {} left",
                        Duration(seconds * static_cast<double>(total - done) / static_cast<double>(done - since)));
  constexpr size_t kMostBar = 30, kLeastBar = 5, kAround = 4;  // " [", "]" and a space
  const size_t taken = line.size() + tail.size() + kAround;
  if (total > 0 && taken + kLeastBar <= width) {
    const size_t bar = std::min(kMostBar, width - taken);
    const auto filled = static_cast<size_t>(
        std::clamp<int64_t>(static_cast<int64_t>(bar) * done / total, 0, static_cast<int64_t>(bar)));
    line += " [" + std::string(filled, '#') + std::string(bar - filled, '.') + "]";
  }
  line += " " + tail;
  if (line.size() > width) line.resize(width);
  return line;
}

Progress::Progress(bool enabled) : enabled_(enabled && isatty(STDERR_FILENO) != 0) {}
Progress::~Progress() { Done(); }

void Progress::Show(std::string_view stage, int64_t done, int64_t total) {
  if (!enabled_) return;
  const Clock::time_point now = Clock::now();
  const bool fresh = stage != stage_;
  if (fresh) stage_ = stage, first_ = done, began_ = now;
  // Ten times a second is enough for an eye; the first and the last of a stage are always drawn.
  if (!fresh && done != total && now - shown_ < std::chrono::milliseconds(100)) return;
  shown_ = now;
  const double seconds = std::chrono::duration<double>(now - began_).count();
  // The last column stays free: some terminals begin a new line there.
  std::fprintf(stderr, "\r\033[K%s", ProgressLine(stage, done, total, first_, seconds, Columns() - 1).c_str());
  std::fflush(stderr);
  drawn_ = true;
}

void Progress::Done() {
  if (drawn_) std::fprintf(stderr, "\r\033[K");
  drawn_ = false;
}

}  // namespace octavo::cli
