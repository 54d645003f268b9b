// What FIPS 180-4's examples give, and what coreutils' sha256sum gives for files.
#include "octavo/ir/sha256.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace octavo::ir {
namespace {

std::string Of(const std::string& text) {
  Sha256 hash;
  hash.Add(text);
  return hash.Hex();
}

TEST(Sha256, GivesThePublishedExamples) {
  EXPECT_EQ(Of(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(Of("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(Of("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(Of(std::string(1'000'000, 'a')), "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST(Sha256, PartsOfAnySizeGiveTheHashOfTheWhole) {
  std::string text;
  for (int i = 0; i < 300; ++i) text += static_cast<char>(i * 7);
  for (size_t step = 1; step < 130; step += 7) {
    Sha256 hash;
    for (size_t at = 0; at < text.size(); at += step) hash.Add(std::string_view(text).substr(at, step));
    EXPECT_EQ(hash.Hex(), Of(text)) << step;
  }
}

TEST(Sha256, AFolderIsItsFilesInTheOrderOfTheirNames) {
  const std::filesystem::path folder = std::filesystem::path(testing::TempDir()) / "sha256_test";
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder / "a");
  std::ofstream(folder / "b") << "c";
  std::ofstream(folder / "a" / "z") << "ab";
  const auto whole = HashOf(folder), one = HashOf(folder / "b");
  ASSERT_TRUE(whole && one);
  EXPECT_EQ(*whole, Of("abc"));
  EXPECT_EQ(*one, Of("c"));
  EXPECT_NE(HashOf(folder / "none").error().message.find("cannot be read; look whether it is there"),
            std::string::npos);
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace octavo::ir
