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

std::string ProgressLine(const ProgressStage& s, double elapsed, std::string_view within, size_t width) {
  std::string line = std::format("{}. {}", s.nth, s.name);
  std::string tail = std::format("{}", s.done);
  if (s.total > 0) tail += std::format("/{}", s.total);
  if (elapsed >= 1) tail += ", " + Duration(elapsed);
  if (s.seconds >= 1 && s.done > s.since) {
    const double rate = static_cast<double>(s.done - s.since) / s.seconds;
    tail += rate >= 1 ? std::format(", {:.1f}/s", rate) : std::format(", {:.1f} s each", 1 / rate);
    // What is left takes as long for each as what was done.
    if (s.total > s.done) tail += std::format(", {} left", Duration(static_cast<double>(s.total - s.done) / rate));
  }
  if (!within.empty()) tail += std::format(" ({})", within);
  const int64_t done = s.done, total = s.total;
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
  const auto since = [now](Clock::time_point then) { return std::chrono::duration<double>(now - then).count(); };
  // A stage that begins while another has work left is a part of it, and the line stays that of the other.
  auto at = std::ranges::find(stages_, stage, &ProgressStage::name);
  if (at == stages_.end() || done < at->done) {
    const auto done_with = [](const ProgressStage& s) { return s.done >= s.total; };
    stages_.erase(at, stages_.end());
    while (!stages_.empty() && done_with(stages_.back())) stages_.pop_back();
    if (stages_.empty()) ++nth_;
    stages_.push_back({.name = std::string(stage), .nth = nth_, .since = done, .began = now});
    shown_ = {};
  } else {
    stages_.erase(at + 1, stages_.end());
  }
  stages_.back().done = done, stages_.back().total = total;
  // Ten times a second is enough for an eye; the first and the last of a stage are always drawn.
  if (done != total && now - shown_ < std::chrono::milliseconds(100)) return;
  shown_ = now;
  ProgressStage& outer = stages_.front();
  outer.seconds = since(outer.began);
  const std::string within = stages_.size() == 1 ? std::string()
                             : total > 0         ? std::format("{} {}/{}", stage, done, total)
                                                 : std::format("{} {}", stage, done);
  // The last column stays free: some terminals begin a new line there.
  std::fprintf(stderr, "\r\033[K%s", ProgressLine(outer, since(began_), within, Columns() - 1).c_str());
  std::fflush(stderr);
  drawn_ = true;
}

void Progress::Done() {
  if (drawn_) std::fprintf(stderr, "\r\033[K");
  drawn_ = false;
  stages_.clear();
}

}  // namespace octavo::cli
