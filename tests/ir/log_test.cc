// The log: who gets a line, and what a sink may do.
#include "octavo/ir/log.h"

#include <gtest/gtest.h>

#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace octavo::ir {
namespace {

struct Off {
  ~Off() { SetLog(LogLevel::kOff); }
};

TEST(Log, TellsWhatTheLevelAsksForAndNothingElse) {
  const Off off;
  Log(LogLevel::kWarning, "{}", "nobody asked");
  std::vector<std::string> lines;
  SetLog(LogLevel::kInfo,
         [&](LogLevel level, std::string_view text) { lines.push_back(std::format("{} {}", Name(level), text)); });
  Log(LogLevel::kWarning, "{} of {}", 1, "two\nlines \xff");
  Log(LogLevel::kInfo, "in");
  Log(LogLevel::kDebug, "out");
  EXPECT_FALSE(Logs(LogLevel::kDebug));
  SetLog(LogLevel::kOff);
  Log(LogLevel::kWarning, "off");
  ASSERT_EQ(lines.size(), 2U);
  EXPECT_TRUE(lines[0].starts_with("warning 1 of two")) << lines[0];
  EXPECT_EQ(lines[0].find('\n'), std::string::npos);  // one line of UTF-8, whatever a name is
  EXPECT_EQ(lines[0].find('\xff'), std::string::npos);
  EXPECT_EQ(lines[1], "info in");
}

// A value that is formatted where nobody listens would cost a run.
struct Counted {
  int* times;
};
}  // namespace
}  // namespace octavo::ir
template <>
struct std::formatter<octavo::ir::Counted> : std::formatter<int> {
  auto format(const octavo::ir::Counted& c, auto& context) const {
    return std::formatter<int>::format(++*c.times, context);
  }
};
namespace octavo::ir {
namespace {

TEST(Log, FormatsNothingWhereItIsOff) {
  const Off off;
  int times = 0;
  Log(LogLevel::kWarning, "{}", Counted{&times});
  EXPECT_EQ(times, 0);
  SetLog(LogLevel::kWarning, [](LogLevel, std::string_view) {});
  Log(LogLevel::kWarning, "{}", Counted{&times});
  EXPECT_EQ(times, 1);
}

TEST(Log, ASinkThatThrowsOrTellsItselfDoesNoHarm) {
  const Off off;
  int calls = 0;
  SetLog(LogLevel::kDebug, [&](LogLevel, std::string_view) {
    ++calls;
    Log(LogLevel::kWarning, "again");
    throw std::runtime_error("no");
  });
  Log(LogLevel::kWarning, "a");
  Log(LogLevel::kWarning, "b");
  EXPECT_EQ(calls, 2);
}

TEST(Log, SinksChangeWhileOthersTell) {
  const Off off;
  std::atomic<int> lines = 0;
  const auto sink = [&](LogLevel, std::string_view) { ++lines; };
  SetLog(LogLevel::kInfo, sink);
  std::vector<std::jthread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([] {
      for (int i = 0; i < 1000; ++i) Log(LogLevel::kInfo, "{}", i);
    });
  }
  for (int i = 0; i < 1000; ++i) SetLog(LogLevel::kInfo, sink);
  threads.clear();
  EXPECT_EQ(lines, 4000);
}

TEST(Log, NamesOfLevelsGoBothWays) {
  for (const LogLevel level : {LogLevel::kOff, LogLevel::kWarning, LogLevel::kInfo, LogLevel::kDebug})
    EXPECT_EQ(LogLevelOf(Name(level)), level);
  EXPECT_EQ(LogLevelOf("loud"), std::nullopt);
  EXPECT_EQ(LogLevelOf(""), std::nullopt);
}

}  // namespace
}  // namespace octavo::ir
