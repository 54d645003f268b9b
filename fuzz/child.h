// A process for what may crash, hang or eat memory.
#ifndef OCTAVO_FUZZ_CHILD_H_
#define OCTAVO_FUZZ_CHILD_H_

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

namespace octavo::fuzz {

// In the child: what each case may cost, and what the parent gets to know of it.
class Report {
 public:
  Report(int pipe, int printed) : pipe_(pipe), printed_(printed) {}
  // Time and memory are counted from here.
  void Begin(uint64_t index);
  // A line of tab-separated fields; tabs and line breaks within them become spaces.
  void Line(std::string_view kind, std::string_view detail);
  void End();

 private:
  int pipe_, printed_;
  int64_t printed_bytes_ = 0;
};

struct Ended {
  bool well = false;
  std::string how;      // "signal 11 (Segmentation fault)", "more than 20 s of CPU time"
  std::string printed;  // the last of what it wrote to stdout and stderr
};

// Sanitizers reserve terabytes of addresses, and take several times the time and memory: limits of memory then mean nothing.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kSanitized = true;
#else
constexpr bool kSanitized = false;
#endif
constexpr int kMostSeconds = kSanitized ? 100 : 20;  // of CPU time, a case

// Forks; `body` runs in the child, `line` here for each line, without its line break.
Ended RunChild(const std::function<void(Report&)>& body, const std::function<void(std::string_view)>& line);

}  // namespace octavo::fuzz

#endif  // OCTAVO_FUZZ_CHILD_H_
