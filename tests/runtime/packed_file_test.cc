// Packed weights from a file: the same bits, and whatever is wrong with the file, they are packed anew.
#include "octavo/runtime/packed_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <format>
#include <fstream>
#include <functional>
#include <iterator>
#include <optional>

#include "families.h"
#include "octavo/ir/whole_file.h"
#include "octavo/runtime/model.h"

namespace octavo::runtime {
namespace {

namespace fs = std::filesystem;
using ir::Tensor;
using testing::Families;
using ::testing::HasSubstr;
using testing::Maker;
using testing::Sizes;
using ::testing::StartsWith;

constexpr uint32_t kSeed = 30;

class PackedFileTest : public ::testing::Test {
 protected:
  PackedFileTest() { fs::create_directories(folder_); }
  ~PackedFileTest() override { fs::remove_all(folder_); }
  std::string Path() const { return (folder_ / "m.octavo-packed").string(); }

  fs::path folder_ = fs::temp_directory_path() / std::format("octavo_packed_file_test.{}", getpid());
};

// Where the numbers of the file lie.
struct Array {
  uint64_t offset, bytes;
  ContentHash hash;
};
constexpr size_t kHead = 256, kSizeAt = 16, kEntriesAt = 24, kArraysAt = 32, kHashAt = 40, kEntry = 24;

std::string Read(const std::string& path) { return *ir::ReadWholeFile(path); }
void Write(const std::string& path, const std::string& bytes) { ASSERT_TRUE(ir::WriteWholeFile(path, bytes)); }
uint64_t& NumberAt(std::string& bytes, size_t at) { return *reinterpret_cast<uint64_t*>(bytes.data() + at); }
Array& ArrayAt(std::string& bytes, size_t i) {
  const size_t entries = NumberAt(bytes, kEntriesAt);
  return *reinterpret_cast<Array*>(bytes.data() + kHead + entries * kEntry + i * sizeof(Array));
}
ContentHash HashOf(std::string_view bytes) { return HashOfContents(std::as_bytes(std::span(bytes))); }
// As one who writes such a file on purpose, with hashes that are right.
void Sign(std::string& bytes) {
  const size_t entries = NumberAt(bytes, kEntriesAt), arrays = NumberAt(bytes, kArraysAt);
  const size_t table = std::min(kHead + entries * kEntry + arrays * sizeof(Array), bytes.size());
  const bool inside = entries < 100 && arrays < 100;
  for (size_t i = 0; inside && i < arrays; ++i) {
    Array& a = ArrayAt(bytes, i);
    if (a.offset <= bytes.size() && a.bytes <= bytes.size() - a.offset)
      a.hash = HashOf(std::string_view(bytes).substr(a.offset, a.bytes));
  }
  std::memset(bytes.data() + kHashAt, 0, 16);
  const ContentHash hash = HashOf(std::string_view(bytes).substr(0, table));
  std::memcpy(bytes.data() + kHashAt, &hash, 16);
}

kernels::WeightBytes BytesOf(size_t count, uint8_t first) {
  kernels::WeightArray<uint8_t> array(count);
  for (size_t i = 0; i < count; ++i) array.data()[i] = static_cast<uint8_t>(first + i * 7);
  return array.bytes();
}
std::string Text(const kernels::WeightBytes& bytes) {
  return {reinterpret_cast<const char*>(bytes.data.get()), bytes.size};
}

constexpr ContentHash kOne{1, 2}, kTwo{3, 4}, kOther{5, 6};
PackedFile Opened(const std::string& path, std::string_view by = "me", kernels::Arch arch = kernels::Arch::kScalar) {
  auto file = PackedFile::Open(path, by, arch);
  EXPECT_TRUE(file) << file.error().message;
  return std::move(*file);
}
// Two entries, of three arrays and of one.
std::string WriteTwo(const std::string& path) {
  PackedFile file = Opened(path);
  file.Keep(kOne, {BytesOf(5, 1), BytesOf(0, 0), BytesOf(70000, 3)}, true);
  file.Keep(kTwo, {BytesOf(64, 9)}, true);
  const PackedReport report = file.Finish();
  EXPECT_EQ(report.made, 2);
  EXPECT_EQ(report.note, "");
  return Read(path);
}

TEST_F(PackedFileTest, GivesWhatWasKept) {
  WriteTwo(Path());
  const PackedFile file = Opened(Path());
  const PackedFile::Arrays one = file.Find(kOne), two = file.Find(kTwo);
  ASSERT_EQ(one.size(), 3u);
  ASSERT_EQ(two.size(), 1u);
  EXPECT_EQ(Text(one[0]), Text(BytesOf(5, 1)));
  EXPECT_EQ(one[1].size, 0u);
  EXPECT_EQ(Text(one[2]), Text(BytesOf(70000, 3)));
  EXPECT_EQ(Text(two[0]), Text(BytesOf(64, 9)));
  EXPECT_EQ(reinterpret_cast<uintptr_t>(one[0].data.get()) % 64, 0u);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(one[2].data.get()) % 4096, 0u);
  EXPECT_TRUE(file.Find(kOther).empty());
}

TEST_F(PackedFileTest, WhatWasFoundIsNotWrittenAgain) {
  const std::string before = WriteTwo(Path());
  const auto time = fs::last_write_time(Path());
  PackedFile file = Opened(Path());
  file.Keep(kTwo, file.Find(kTwo), false);
  EXPECT_EQ(file.Finish().taken, 1);
  EXPECT_EQ(fs::last_write_time(Path()), time);
  EXPECT_EQ(Read(Path()), before);
}

TEST_F(PackedFileTest, IsThatOfOneVersionAndArch) {
  WriteTwo(Path());
  EXPECT_TRUE(Opened(Path(), "you").Find(kTwo).empty());
  EXPECT_TRUE(Opened(Path(), "me", kernels::Arch::kAvx2).Find(kTwo).empty());
  EXPECT_TRUE(Opened(Path(), "").Find(kTwo).empty());
  EXPECT_EQ(Opened(Path()).Find(kTwo).size(), 1u);
}

// Whatever byte is wrong: what the file gives is what was written, or nothing.
TEST_F(PackedFileTest, NoWrongByteIsTaken) {
  const std::string right = WriteTwo(Path());
  const size_t table = kHead + 2 * kEntry + 4 * sizeof(Array);
  size_t taken = 0;
  for (size_t i = 13; i < table + 200; ++i) {  // before 13 it is no file of packed weights
    std::string wrong = right;
    wrong[i] = static_cast<char>(wrong[i] ^ (1 << i % 8));
    Write(Path(), wrong);
    const PackedFile file = Opened(Path());
    const PackedFile::Arrays one = file.Find(kOne), two = file.Find(kTwo);
    EXPECT_TRUE(i >= table || (one.empty() && two.empty())) << i;
    EXPECT_TRUE(one.empty() || Text(one[0]) == Text(BytesOf(5, 1))) << i;
    EXPECT_TRUE(two.empty() || Text(two[0]) == Text(BytesOf(64, 9))) << i;
    taken += one.size() + two.size();
  }
  EXPECT_GT(taken, 0u);  // behind the table some bytes only fill
  std::string wrong = right;
  wrong[right.size() - 1] = static_cast<char>(wrong[right.size() - 1] ^ 1);
  Write(Path(), wrong);
  EXPECT_TRUE(Opened(Path()).Find(kTwo).empty());
}

TEST_F(PackedFileTest, NoPartIsTaken) {
  const std::string right = WriteTwo(Path());
  for (size_t size = 64; size < right.size(); size += 64) {
    Write(Path(), right.substr(0, size));
    EXPECT_TRUE(Opened(Path()).Find(kTwo).empty()) << size;
  }
  Write(Path(), right + '\0');
  EXPECT_TRUE(Opened(Path()).Find(kTwo).empty());
}

// Numbers that lead out of the file, in one whose hashes are right.
TEST_F(PackedFileTest, NoNumberLeadsOutOfTheFile) {
  const std::string right = WriteTwo(Path());
  // So much that what is read beyond the end is not there.
  const auto longer = [](std::string& b) { b.resize(size_t{64} << 20, '\0'), NumberAt(b, kSizeAt) = b.size(); };
  const std::vector<std::pair<const char*, std::function<void(std::string&)>>> changes = {
      {"offset", [](std::string& b) { ArrayAt(b, 0).offset = uint64_t{1} << 46; }},
      {"offset that wraps", [](std::string& b) { ArrayAt(b, 0).offset = ~uint64_t{63}; }},
      {"bytes",
       [&](std::string& b) {
         longer(b);
         ArrayAt(b, 2).offset = b.size() - 4096, ArrayAt(b, 2).bytes = b.size() - 4096;
       }},
      {"bytes that wrap", [](std::string& b) { ArrayAt(b, 2).bytes = ~uint64_t{0}; }},
      {"entries", [](std::string& b) { NumberAt(b, kEntriesAt) = b.size(); }},
      {"entries that wrap", [](std::string& b) { NumberAt(b, kEntriesAt) = ~uint64_t{0} / kEntry + 2; }},
      {"arrays", [](std::string& b) { NumberAt(b, kArraysAt) = b.size(); }},
      {"arrays that wrap", [](std::string& b) { NumberAt(b, kArraysAt) = ~uint64_t{0} / sizeof(Array) + 2; }},
      {"both",
       [&](std::string& b) {
         longer(b);
         NumberAt(b, kEntriesAt) = (b.size() - kHead) / kEntry;
         NumberAt(b, kArraysAt) = (b.size() - kHead) / sizeof(Array);
       }},
      {"arrays of an entry", [](std::string& b) { NumberAt(b, kHead + 16) = 5; }},
      {"arrays of an entry that wrap", [](std::string& b) { NumberAt(b, kHead + 16) = ~uint64_t{0}; }},
      {"size", [](std::string& b) { NumberAt(b, kSizeAt) += 64; }}};
  for (const auto& [what, change] : changes) {
    std::string wrong = right;
    change(wrong);
    Sign(wrong);
    Write(Path(), wrong);
    const PackedFile file = Opened(Path());
    EXPECT_TRUE(file.Find(kOne).empty()) << what;
  }
  std::string same = right;
  Sign(same);
  EXPECT_EQ(same, right);
}

TEST_F(PackedFileTest, OtherFilesAreNotWrittenOver) {
  for (const std::string& bytes : {std::string("a model"), std::string()}) {
    Write(Path(), bytes);
    const auto file = PackedFile::Open(Path(), "me", kernels::Arch::kScalar);
    ASSERT_FALSE(file);
    EXPECT_THAT(file.error().message, HasSubstr("m.octavo-packed' is no file of packed weights, so it is not written "
                                                "over; name another file, or remove it"));
    EXPECT_EQ(Read(Path()), bytes);
  }
  const auto folder = PackedFile::Open(folder_.string(), "me", kernels::Arch::kScalar);
  ASSERT_FALSE(folder);
  EXPECT_THAT(folder.error().message, HasSubstr("is not a regular file"));
}

TEST_F(PackedFileTest, WhereItCannotBeWrittenANoteSaysSo) {
  PackedFile file = Opened((folder_ / "none" / "p").string());
  file.Keep(kOne, {BytesOf(64, 9)}, true);
  EXPECT_THAT(file.Finish().note,
              StartsWith("packed weights are not kept, so the next start packs them again: cannot write "));
}

TEST(PackedFileKey, TellsApartWhatIsPackedInAnotherWay) {
  const Tensor a = Tensor::F32({2, 3}, {1, 2, 3, 4, 5, 6}), b = Tensor::F32({2, 3}, {1, 2, 3, 4, 5, 7});
  const ContentHash key = PackedFile::KeyOf("how", {&a, &b});
  EXPECT_EQ(PackedFile::KeyOf("how", {&a, &b}), key);
  const Tensor again = Tensor::F32({2, 3}, {1, 2, 3, 4, 5, 6});
  EXPECT_EQ(PackedFile::KeyOf("how", {&again, &b}), key);
  EXPECT_NE(PackedFile::KeyOf("how else", {&a, &b}), key);
  EXPECT_NE(PackedFile::KeyOf("how", {&a, &a}), key);
  EXPECT_NE(PackedFile::KeyOf("how", {&a, nullptr}), key);
  EXPECT_NE(PackedFile::KeyOf("how", {&a, nullptr}), PackedFile::KeyOf("how", {nullptr, &a}));
  EXPECT_NE(PackedFile::KeyOf("how", {&b, &a}), key);
  const Tensor turned = a.Reshaped({3, 2});
  EXPECT_NE(PackedFile::KeyOf("how", {&turned, &b}), key);
  const Tensor zeros = Tensor::Zeros(ir::DType::kS8, {4}), others = Tensor::Zeros(ir::DType::kU8, {4});
  EXPECT_NE(PackedFile::KeyOf("how", {&zeros}), PackedFile::KeyOf("how", {&others}));
}

// What a model gives, and what came of its file.
struct Ran {
  std::vector<Tensor> outputs;
  PackedReport report;
};
Ran RunWith(const std::string& path, const Maker& maker) {
  auto model = Model::Compile(maker.graph, {.threads = 2, .packed_file = path, .packed_by = "me"});
  EXPECT_TRUE(model) << model.error().message;
  std::mt19937 gen(kSeed);
  auto outputs = model->Run(maker.Inputs({.batch = 2, .rows = 3, .keys = 5}, gen));
  EXPECT_TRUE(outputs) << outputs.error().message;
  return {*outputs, model->packed()};
}
void ExpectSame(const std::vector<Tensor>& a, const std::vector<Tensor>& b, const std::string& what) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    ASSERT_EQ(a[i].byte_size(), b[i].byte_size());
    EXPECT_EQ(std::memcmp(a[i].data(), b[i].data(), a[i].byte_size()), 0) << what << ", output " << i;
  }
}

TEST_F(PackedFileTest, EveryFamilyHasItsBits) {
  for (const auto& family : Families()) {
    Maker maker(kSeed);
    maker.family = family.name;
    family.add(maker);
    fs::remove(Path());
    const Ran plain = RunWith("", maker), made = RunWith(Path(), maker), taken = RunWith(Path(), maker);
    ExpectSame(plain.outputs, made.outputs, family.name);
    ExpectSame(plain.outputs, taken.outputs, family.name);
    EXPECT_EQ(plain.report.made + plain.report.taken + made.report.taken + taken.report.made, 0) << family.name;
    EXPECT_EQ(made.report.made, taken.report.taken) << family.name;
    const bool packs = family.kernel.starts_with("linear_") || family.kernel.starts_with("qkv_") ||
                       family.kernel.starts_with("quantize_tokens+linear");
    EXPECT_TRUE(taken.report.taken > 0 || !packs) << family.name;
    EXPECT_EQ(fs::exists(Path()), made.report.made > 0) << family.name;
  }
}

// A file whose hashes are right and whose arrays are others: none leads a kernel out of its memory.
TEST_F(PackedFileTest, ArraysOfAnotherSizeAreNotTaken) {
  for (const auto& family : Families()) {
    Maker maker(kSeed);
    maker.family = family.name;
    family.add(maker);
    fs::remove(Path());
    const Ran made = RunWith(Path(), maker);
    if (made.report.made == 0) continue;
    const std::string right = Read(Path());
    std::string copy = right;
    const size_t arrays = NumberAt(copy, kArraysAt);
    for (size_t i = 0; i < arrays; ++i) {
      for (const int64_t by : {-64, -1, 1, 64}) {
        std::string wrong = right;
        Array& a = ArrayAt(wrong, i);
        if (a.bytes == 0 && by < 0) continue;
        a.bytes += static_cast<uint64_t>(by), wrong.resize(wrong.size() + 64, '\0');
        NumberAt(wrong, kSizeAt) = wrong.size();
        Sign(wrong);
        Write(Path(), wrong);
        const Ran ran = RunWith(Path(), maker);
        EXPECT_GT(ran.report.made, 0) << family.name << ", array " << i << " by " << by;
        ExpectSame(made.outputs, ran.outputs, family.name);
        EXPECT_EQ(Read(Path()), right) << family.name;
      }
      std::string fewer = right;
      NumberAt(fewer, kHead + 16) = i;
      Sign(fewer);
      Write(Path(), fewer);
      RunWith(Path(), maker);  // an entry may get the arrays of another
      std::string moved = right;
      if (ArrayAt(moved, i).bytes == 0) continue;
      moved.resize(moved.size() + 64, '\0'), NumberAt(moved, kSizeAt) = moved.size();
      ArrayAt(moved, i).offset += 1;  // not aligned
      Sign(moved);
      Write(Path(), moved);
      const Ran ran = RunWith(Path(), maker);
      EXPECT_GT(ran.report.made, 0) << family.name << ", array " << i;
      ExpectSame(made.outputs, ran.outputs, family.name);
    }
  }
}

// Contents that nobody has packed, with hashes that are right: wrong numbers, as in a model whose weights were changed, and no crash.
TEST_F(PackedFileTest, ContentsMayBeAnything) {
  std::mt19937 gen(kSeed);
  for (const auto& family : Families()) {
    Maker maker(kSeed);
    maker.family = family.name;
    family.add(maker);
    fs::remove(Path());
    if (RunWith(Path(), maker).report.made == 0) continue;
    for (const bool noise : {false, true}) {
      std::string wrong = Read(Path());
      const size_t begin = ArrayAt(wrong, 0).offset;
      for (size_t i = begin; i < wrong.size(); ++i) wrong[i] = static_cast<char>(noise ? gen() : 0xff);
      Sign(wrong);
      Write(Path(), wrong);
      EXPECT_EQ(RunWith(Path(), maker).report.made, 0) << family.name;
    }
  }
}

}  // namespace
}  // namespace octavo::runtime
