// Files that are read whole: what has no end, or nobody who writes it, ends with a sentence.
#include "octavo/ir/whole_file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

namespace octavo::ir {
namespace {

namespace fs = std::filesystem;

class WholeFile : public testing::Test {
 protected:
  void SetUp() override { fs::create_directories(dir_); }
  void TearDown() override { fs::remove_all(dir_); }
  std::string Said(const fs::path& path, const ReadLimits& limits = {}) const {
    const auto read = ReadWholeFile(path, limits);
    return read ? "it was read" : read.error().message;
  }
  std::string Pipe() const {
    const std::string path = dir_ / "pipe";
    EXPECT_EQ(mkfifo(path.c_str(), 0600), 0);
    return path;
  }
  const fs::path dir_ = fs::temp_directory_path() / ("octavo_whole_file_test." + std::to_string(getpid()));
};

TEST_F(WholeFile, APipeThatNobodyWritesToIsRefused) {
  const std::string pipe = Pipe();
  const auto began = std::chrono::steady_clock::now();
  EXPECT_EQ(Said(pipe), "cannot read '" + pipe + "': it is a pipe, and nobody writes to it");
  EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds(60));
}

TEST_F(WholeFile, APipeIsReadToItsEndHoweverSlow) {
  const std::string pipe = Pipe();
  for (const int first : {0, 300, 6000}) {  // milliseconds before it writes; it has opened the pipe
    std::thread writer([&] {
      std::ofstream out(pipe);
      std::this_thread::sleep_for(std::chrono::milliseconds(first));
      out << "some" << std::flush;
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      out << " more";
    });
    const auto read = ReadWholeFile(pipe);
    EXPECT_EQ(read.value_or("nothing"), "some more") << first;
    writer.join();
  }
}

TEST_F(WholeFile, WhatIsLongerThanItMayBeIsNotRead) {
  const fs::path path = dir_ / "large";
  std::ofstream(path) << "0123456789";
  EXPECT_EQ(Said(path, {.most = 9}), "cannot read '" + path.string() + "': it has 10 bytes, more than 9");
  EXPECT_EQ(ReadWholeFile(path, {.most = 10}).value_or(""), "0123456789");
  fs::resize_file(path, uint64_t{1} << 40);  // takes no room, and would take all memory
  EXPECT_TRUE(Said(path, {.most = 1'000'000}).contains("it has 1099511627776 bytes, more than 1000000"));
  EXPECT_EQ(Said("/dev/zero", {.most = 1'000'000}), "cannot read '/dev/zero': it has no end");
}

TEST_F(WholeFile, WhatBeginsOtherwiseIsNotReadOn) {
  const fs::path path = dir_ / "other";
  constexpr size_t kMost = 50'000'000;
  std::ofstream(path) << "another mark";
  fs::resize_file(path, 40'000'000);
  const auto read = ReadWholeFile(path, {.most = kMost, .begins = "the mark"});
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_TRUE(read->starts_with("another mark"));
  EXPECT_LE(read->size(), size_t{1} << 20);
  const auto zeros = ReadWholeFile("/dev/zero", {.most = kMost, .begins = "the mark"});
  ASSERT_TRUE(zeros) << zeros.error().message;
  EXPECT_LE(zeros->size(), size_t{1} << 20);
  std::ofstream(path) << "the mark, and " + std::string(200'000, 'x');
  EXPECT_EQ(ReadWholeFile(path, {.begins = "the mark"}).value_or("").size(), 200'014u);
  std::ofstream(path) << "the";
  EXPECT_EQ(ReadWholeFile(path, {.begins = "the mark"}).value_or(""), "the");
}

}  // namespace
}  // namespace octavo::ir
