#include "octavo/ir/npz/npz.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <random>

#include "octavo/ir/whole_file.h"

namespace octavo::ir {
namespace {

using ::testing::HasSubstr;
namespace fs = std::filesystem;

// A folder of its own for each test, gone afterwards.
class NpzTest : public ::testing::Test {
 protected:
  void SetUp() override {
    dir_ = fs::temp_directory_path() /
           std::format("octavo_npz_{}_{}", ::testing::UnitTest::GetInstance()->current_test_info()->name(), getpid());
    fs::create_directories(dir_);
  }
  void TearDown() override { fs::remove_all(dir_); }

  // Runs Python in the folder; false where there is no Python with numpy.
  bool Python(const std::string& code) {
    std::ofstream(dir_ / "script.py") << "import numpy as np\n" << code;
    return std::system(("cd '" + dir_.string() + "' && python3 script.py").c_str()) == 0;
  }
  static bool HasNumpy() { return std::system("python3 -c 'import numpy' 2>/dev/null") == 0; }

  std::string Error(const fs::path& path) {
    const auto r = ReadNpz(path);
    return r ? "no error" : r.error().message;
  }
  fs::path dir_;
};

TensorMap Samples() {
  TensorMap m;
  m["f32"] = Tensor::F32({2, 3}, {0.5f, -1.25f, 3e38f, 1e-42f, -0.0f, 7.0f});
  m["ids"] = Tensor::S64({3}, {-1, 1ll << 62, 30522});
  m["scalar"] = Tensor::ScalarF32(2.5f);
  m["empty"] = Tensor::F32({2, 0, 3}, {});
  m["0/in/mask"] = Tensor::Of<uint8_t>(DType::kBool, {4}, std::vector<uint8_t>{1, 0, 0, 1});
  m["u16"] = Tensor::Of<uint16_t>(DType::kU16, {2}, std::vector<uint16_t>{1, 65535});
  m["s8"] = Tensor::Of<int8_t>(DType::kS8, {2, 1}, std::vector<int8_t>{-128, 127});
  m["f16"] = Tensor::Of<uint16_t>(DType::kF16, {2}, std::vector<uint16_t>{0x3c00, 0xc100});
  m["words"] = Tensor::Strings({3}, {"a", "", "na\xc3\xafve \xf0\x9f\x98\x80"});
  return m;
}

// What numpy.save writes for np.array([[1,2]], 'i2'), numpy 2.2 (format 1.0, data at byte 128).
TEST(Npy, WritesWhatNumpyWrites) {
  std::string expected("\x93NUMPY\x01\x00\x76\x00", 10);
  expected += "{'descr': '<i2', 'fortran_order': False, 'shape': (1, 2), }";
  expected.append(127 - expected.size(), ' ');
  expected += '\n';
  expected += std::string("\x01\x00\x02\x00", 4);
  const auto t = Tensor::Of<int16_t>(DType::kS16, {1, 2}, std::vector<int16_t>{1, 2});
  EXPECT_EQ(NpyBytes(t).value(), expected);
  EXPECT_EQ(ParseNpy(expected, "x").value(), t);
}

TEST(Npy, WidensWhatNumpyHasNotGot) {
  const auto bf16 = Tensor::Of<uint16_t>(DType::kBF16, {2}, std::vector<uint16_t>{0x3f80, 0xc000});
  EXPECT_EQ(ParseNpy(NpyBytes(bf16).value(), "x").value(), Tensor::F32({2}, {1.0f, -2.0f}));
  const auto e4m3 = Tensor::Of<uint8_t>(DType::kE4M3FN, {2}, std::vector<uint8_t>{0x38, 0xfe});
  EXPECT_EQ(ParseNpy(NpyBytes(e4m3).value(), "x").value(), Tensor::F32({2}, {1.0f, -448.0f}));
  auto s4 = Tensor::Zeros(DType::kS4, {3});
  s4.mutable_as<uint8_t>()[0] = 0x7f;  // -1, 7
  s4.mutable_as<uint8_t>()[1] = 0x08;  // -8
  EXPECT_EQ(ParseNpy(NpyBytes(s4).value(), "x").value(),
            Tensor::Of<int8_t>(DType::kS8, {3}, std::vector<int8_t>{-1, 7, -8}));
}

TEST_F(NpzTest, RoundTripsStoredAndDeflated) {
  for (const bool deflate : {false, true}) {
    const auto path = dir_ / "a.npz";
    ASSERT_TRUE(WriteNpz(path, Samples(), {.deflate = deflate}));
    const auto back = ReadNpz(path);
    ASSERT_TRUE(back) << back.error().message;
    EXPECT_EQ(*back, Samples());
    ASSERT_TRUE(WriteNpz(dir_ / "b.npz", Samples(), {.deflate = deflate}));
    EXPECT_EQ(ReadWholeFile(path).value(), ReadWholeFile(dir_ / "b.npz").value()) << "same arrays, other bytes";
  }
}

TEST_F(NpzTest, NumpyReadsOurs) {
  if (!HasNumpy()) GTEST_SKIP() << "no Python with numpy here";
  ASSERT_TRUE(WriteNpz(dir_ / "a.npz", Samples(), {.deflate = true}));
  EXPECT_TRUE(Python(R"(
z = np.load('a.npz')
assert sorted(z.files) == ['0/in/mask', 'empty', 'f16', 'f32', 'ids', 's8', 'scalar', 'u16', 'words'], z.files
want = np.array([[0.5, -1.25, 3e38], [1e-42, -0.0, 7.0]], 'f4')
assert z['f32'].dtype == np.float32 and z['f32'].tobytes() == want.tobytes()
assert z['ids'].dtype == np.int64 and z['ids'].tolist() == [-1, 1 << 62, 30522]
assert z['scalar'].shape == () and z['scalar'] == 2.5 and z['empty'].shape == (2, 0, 3)
assert z['0/in/mask'].dtype == bool and z['0/in/mask'].tolist() == [True, False, False, True]
assert z['u16'].tolist() == [1, 65535] and z['s8'].tolist() == [[-128], [127]]
assert z['f16'].dtype == np.float16 and z['f16'].tolist() == [1.0, -2.5]
assert z['words'].tolist() == ['a', '', 'na\u00efve \U0001f600'], z['words']
)"));
}

TEST_F(NpzTest, ReadsNumpys) {
  if (!HasNumpy()) GTEST_SKIP() << "no Python with numpy here";
  ASSERT_TRUE(Python(R"(
a = np.arange(24, dtype='f4').reshape(2, 3, 4)
arrays = dict(c=a, fortran=np.asfortranarray(a), big=a.astype('>f4'), bigint=np.array([1, -2], '>i8'),
              half=np.array([1.5], 'f2'), double=np.array([0.1]), yes=np.array([True, False]),
              u=np.array(['ab', '\u00e9\u4e2d']), s=np.array([b'xy', b'z']), bigu=np.array(['ab', 'c'], '>U2'),
              scalar=np.int32(7))
np.savez('stored.npz', **arrays)
np.savez_compressed('deflated.npz', **arrays)
)"));
  std::vector<float> count(24);
  for (size_t i = 0; i < count.size(); ++i) count[i] = static_cast<float>(i);
  for (const char* file : {"stored.npz", "deflated.npz"}) {
    const auto m = ReadNpz(dir_ / file);
    ASSERT_TRUE(m) << m.error().message;
    EXPECT_EQ(m->at("c"), Tensor::F32({2, 3, 4}, count));
    EXPECT_EQ(m->at("fortran"), Tensor::F32({2, 3, 4}, count));
    EXPECT_EQ(m->at("big"), Tensor::F32({2, 3, 4}, count));
    EXPECT_EQ(m->at("bigint"), Tensor::S64({2}, {1, -2}));
    EXPECT_EQ(m->at("half").GetDouble(0), 1.5);
    EXPECT_EQ(m->at("double").GetDouble(0), 0.1);
    EXPECT_EQ(m->at("yes").ToInts(), (std::vector<int64_t>{1, 0}));
    EXPECT_EQ(m->at("u").strings(), (std::vector<std::string>{"ab", "\xc3\xa9\xe4\xb8\xad"}));
    EXPECT_EQ(m->at("s").strings(), (std::vector<std::string>{"xy", "z"}));
    EXPECT_EQ(m->at("bigu").strings(), (std::vector<std::string>{"ab", "c"}));
    EXPECT_EQ(m->at("scalar").dtype(), DType::kS32);
    EXPECT_EQ(m->at("scalar").rank(), 0);
  }
}

TEST_F(NpzTest, RefusesNumpysOddTypes) {
  if (!HasNumpy()) GTEST_SKIP() << "no Python with numpy here";
  ASSERT_TRUE(Python(R"(
np.savez('object.npz', a=np.array([None, 'x'], dtype=object))
np.savez('complex.npz', a=np.array([1j]))
np.savez('struct.npz', a=np.zeros(2, dtype=[('x', 'i4'), ('y', 'f4')]))
)"));
  EXPECT_THAT(Error(dir_ / "object.npz"), HasSubstr("array 'a' of"));
  EXPECT_THAT(Error(dir_ / "object.npz"), HasSubstr("|O"));
  EXPECT_THAT(Error(dir_ / "complex.npz"), HasSubstr("<c16"));
  EXPECT_THAT(Error(dir_ / "struct.npz"), HasSubstr("no tensor type"));
}

std::string Npy(std::string_view header, std::string_view data) {
  std::string s("\x93NUMPY\x01\x00", 8);
  s += static_cast<char>(header.size() & 255);
  s += static_cast<char>(header.size() >> 8);
  return s + std::string(header) + std::string(data);
}

TEST(Npy, RefusesHostileHeaders) {
  const auto error = [](std::string_view bytes) {
    const auto r = ParseNpy(bytes, "x");
    return r ? "no error" : r.error().message;
  };
  constexpr std::string_view k4 = "abcd";
  ASSERT_EQ(error(Npy("{'descr': '<f4', 'fortran_order': False, 'shape': (1,), }\n", k4)), "no error");
  EXPECT_THAT(error(""), HasSubstr("not a numpy array"));
  EXPECT_THAT(error("PK\3\4 and more of it"), HasSubstr("not a numpy array"));
  EXPECT_THAT(error(std::string("\x93NUMPY\x09\x00\x02\x00{}", 12)), HasSubstr("version 9"));
  EXPECT_THAT(error(std::string("\x93NUMPY\x01\x00\xff\xff{}", 12)), HasSubstr("cut off"));
  for (const char* header : {"", "{}", "{'descr': '<f4', 'shape': (1,)}", "{'descr': '<f4', 'fortran_order': False}",
                             "{'descr': '<f4', 'fortran_order': 0, 'shape': (1,)}",
                             "{'descr': '<f4', 'fortran_order': False, 'shape': (-1,)}",
                             "{'descr': '<f4', 'fortran_order': False, 'shape': (1,), 'x': 1}",
                             "{'descr': '<f4', 'fortran_order': False, 'shape': (1,)} extra",
                             "{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999,)}",
                             "{'descr': '<f4', 'fortran_order': False, 'shape': (1"}) {
    EXPECT_THAT(error(Npy(header, k4)), HasSubstr("cannot be understood")) << header;
  }
  EXPECT_THAT(error(Npy("{'descr': '<f4', 'fortran_order': False, 'shape': (4611686018427387904, 8)}", k4)),
              HasSubstr("more than any memory"));
  EXPECT_THAT(error(Npy("{'descr': '<f4', 'fortran_order': False, 'shape': (4611686018427387904, 8, 0)}", "")),
              HasSubstr("more than any memory"));
  EXPECT_THAT(error(Npy("{'descr': '<f4', 'fortran_order': False, 'shape': (1000000000000,)}", k4)),
              HasSubstr("but holds 4"));
  EXPECT_THAT(error(Npy("{'descr': '<f4', 'fortran_order': False, 'shape': (2,)}", k4)), HasSubstr("8 bytes"));
  EXPECT_THAT(error(Npy("{'descr': '<f4', 'fortran_order': False, 'shape': ()}", "abcde")), HasSubstr("but holds 5"));
  EXPECT_THAT(error(Npy("{'descr': '<f3', 'fortran_order': False, 'shape': (1,)}", k4)), HasSubstr("<f3"));
  EXPECT_THAT(error(Npy("{'descr': '<U0', 'fortran_order': False, 'shape': (4611686018427387904,)}", "")),
              HasSubstr("empty strings"));
}

TEST_F(NpzTest, TruncatedAtEveryByteIsASentence) {
  ASSERT_TRUE(WriteNpz(dir_ / "a.npz", {{"x", Tensor::F32({3}, {1, 2, 3})}}));
  const std::string whole = ReadWholeFile(dir_ / "a.npz").value();
  for (size_t n = 0; n < whole.size(); ++n) {
    ASSERT_TRUE(WriteWholeFile(dir_ / "cut.npz", std::string_view(whole).substr(0, n)));
    ASSERT_THAT(Error(dir_ / "cut.npz"), HasSubstr("cut.npz")) << n << " of " << whole.size();
  }
}

TEST_F(NpzTest, FlippedBytesNeverCrashAndNeverChangeData) {
  const unsigned seed = 20260801;
  SCOPED_TRACE(std::format("seed {}", seed));
  std::mt19937 random(seed);
  for (const bool deflate : {false, true}) {
    std::vector<float> data(500);
    for (auto& v : data) v = static_cast<float>(random());
    const Tensor x = Tensor::F32({5, 100}, data);
    ASSERT_TRUE(WriteNpz(dir_ / "a.npz", {{"x", x}}, {.deflate = deflate}));
    const std::string whole = ReadWholeFile(dir_ / "a.npz").value();
    int refused = 0;
    for (int i = 0; i < 400; ++i) {
      std::string bad = whole;
      bad[random() % bad.size()] ^= static_cast<char>(1 + random() % 255);
      ASSERT_TRUE(WriteWholeFile(dir_ / "bad.npz", bad));
      const auto r = ReadNpz(dir_ / "bad.npz");
      refused += !r;
      // A flip in a name or a date may pass; the checksum keeps the numbers safe.
      if (r && r->contains("x")) {
        ASSERT_EQ(r->at("x"), x);
      }
    }
    EXPECT_GT(refused, 300);
  }
}

// Entries of the directory that point to the same bytes: 100 KB would become gigabytes.
TEST_F(NpzTest, MembersThatOverlapAreRefused) {
  if (!HasNumpy()) GTEST_SKIP() << "no Python with numpy here";
  ASSERT_TRUE(Python(R"(
import io, struct, zipfile
one = io.BytesIO()
with zipfile.ZipFile(one, 'w', zipfile.ZIP_DEFLATED) as z:
    body = io.BytesIO()
    np.save(body, np.zeros(2_000_000, 'f4'))
    z.writestr('a00.npy', body.getvalue())
data = one.getvalue()
end = data.rfind(b'PK\x05\x06')
size, start = struct.unpack('<II', data[end + 12:end + 20])
entry = data[start:start + size]
many = b''.join(entry.replace(b'a00.npy', b'a%02d.npy' % i) for i in range(90))
open('overlap.npz', 'wb').write(data[:start] + many + struct.pack('<4sHHHHIIH', b'PK\x05\x06', 0, 0, 90, 90, len(many), start, 0))
)"));
  EXPECT_THAT(Error(dir_ / "overlap.npz"), HasSubstr("overlap"));
}

// Archives beyond 4 GB and 65535 members keep their sizes in other places; Python writes any archive so when its limits are small.
TEST_F(NpzTest, Reads64BitArchives) {
  if (!HasNumpy()) GTEST_SKIP() << "no Python with numpy here";
  ASSERT_TRUE(Python(R"(
import zipfile
zipfile.ZIP64_LIMIT = 10
zipfile.ZIP_FILECOUNT_LIMIT = 1
np.savez('stored.npz', a=np.arange(6), b=np.float32([2.5]))
np.savez_compressed('deflated.npz', a=np.arange(6), b=np.float32([2.5]))
assert open('stored.npz', 'rb').read().count(b'PK\x06\x06') == 1
)"));
  for (const char* file : {"stored.npz", "deflated.npz"}) {
    const auto m = ReadNpz(dir_ / file);
    ASSERT_TRUE(m) << m.error().message;
    EXPECT_EQ(m->at("a").ToInts(), (std::vector<int64_t>{0, 1, 2, 3, 4, 5}));
    EXPECT_EQ(m->at("b"), Tensor::F32({1}, {2.5f}));
  }
}

TEST_F(NpzTest, ArchivesThatLieAreSentences) {
  const std::string mark = std::string("PK\1\2", 4), end = std::string("PK\5\6", 4);
  for (const bool deflate : {false, true}) {
    ASSERT_TRUE(WriteNpz(dir_ / "a.npz", {{"x", Tensor::F32({3}, {1, 2, 3})}}, {.deflate = deflate}));
    const std::string whole = ReadWholeFile(dir_ / "a.npz").value();
    const size_t entry = whole.find(mark), data = whole.find("x.npy") + 5;
    const auto changed = [&](size_t at, char to) {
      std::string bad = whole;
      bad.at(at) = to;
      EXPECT_TRUE(WriteWholeFile(dir_ / "bad.npz", bad));
      return Error(dir_ / "bad.npz");
    };
    EXPECT_THAT(changed(whole.find(end), 'Q'), HasSubstr("it has no directory of a zip archive"));
    EXPECT_THAT(changed(entry, 'Q'), HasSubstr("its directory is damaged"));
    EXPECT_THAT(changed(entry + 8, 9), HasSubstr("is encrypted"));
    EXPECT_THAT(changed(entry + 10, 12), HasSubstr("is compressed by method 12"));
    EXPECT_THAT(changed(entry + 42, 1), HasSubstr("the archive's directory points to something else"));
    EXPECT_THAT(changed(entry + 16, whole[entry + 16] + 1), HasSubstr("its checksum is another"));
    EXPECT_THAT(changed(entry + 27, 9), HasSubstr("which the file cannot hold"));
    if (deflate) {
      EXPECT_THAT(changed(data, 7), HasSubstr("it cannot be unpacked"));
      EXPECT_THAT(changed(entry + 20, 20), HasSubstr("its data ends early"));
    }
  }
  EXPECT_THAT(WriteNpz(dir_ / "long.npz", {{std::string(70'000, 'n'), Tensor::ScalarF32(1)}}).error().message,
              HasSubstr("more than a zip archive takes"));
}

TEST_F(NpzTest, AllArraysTogetherStayBelowTheLimit) {
  TensorMap arrays;
  for (int i = 0; i < 8; ++i) arrays[std::format("a{}", i)] = Tensor::Zeros(DType::kF32, {250'000});
  arrays["words"] = Tensor::Strings({100'000}, std::vector<std::string>(100'000));
  ASSERT_TRUE(WriteNpz(dir_ / "a.npz", arrays, {.deflate = true}));
  EXPECT_TRUE(ReadNpz(dir_ / "a.npz"));
  const auto refused = ReadNpz(dir_ / "a.npz", {.max_memory = 6'000'000});
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message, HasSubstr("max_memory"));
  EXPECT_TRUE(ReadNpz(dir_ / "a.npz", {.max_memory = 20'000'000}));
}

TEST_F(NpzTest, NamesThatAreNoTextComeBackAsTheyWere) {
  const TensorMap odd = {{"a\xff\x1b", Tensor::ScalarF32(1)}, {"na\xc3\xafve", Tensor::ScalarF32(2)}};
  ASSERT_TRUE(WriteNpz(dir_ / "a.npz", odd));
  EXPECT_EQ(ReadNpz(dir_ / "a.npz").value(), odd);
  std::ofstream(dir_ / "b.npz", std::ios::binary) << ReadWholeFile(dir_ / "a.npz").value().substr(0, 40);
  EXPECT_THAT(Error(dir_ / "b.npz"), HasSubstr("b.npz"));
}

// A limit of file sizes is an error, not a signal that ends the host, and nothing is left behind.
TEST_F(NpzTest, ALimitOfFileSizesLeavesNothing) {
  std::fflush(nullptr);
  const pid_t child = fork();
  if (child == 0) {
    const rlimit limit = {10'000, 10'000};
    setrlimit(RLIMIT_FSIZE, &limit);
    const bool npz = WriteNpz(dir_ / "big.npz", {{"a", Tensor::Zeros(DType::kF32, {100'000})}}).has_value();
    const bool whole = WriteWholeFile(dir_ / "big.bin", std::string(100'000, 'x')).has_value();
    _exit(npz || whole ? 1 : 0);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  EXPECT_TRUE(fs::is_empty(dir_));
}

TEST_F(NpzTest, OtherErrorsAreSentences) {
  EXPECT_THAT(Error(dir_ / "none.npz"), HasSubstr("No such file"));
  EXPECT_THAT(Error(dir_), HasSubstr("cannot read"));
  std::ofstream(dir_ / "text.npz") << "this is not a zip archive, whatever its name says";
  EXPECT_THAT(Error(dir_ / "text.npz"), HasSubstr("as a numpy .npz archive"));
  const auto unwritable = WriteNpz(dir_ / "no" / "such" / "a.npz", Samples());
  ASSERT_FALSE(unwritable);
  EXPECT_THAT(unwritable.error().message, HasSubstr("cannot write"));
  EXPECT_FALSE(WriteNpz(dir_ / "e.npz", {}));
  EXPECT_FALSE(fs::exists(dir_ / "e.npz"));
  const auto npy = WriteNpy(dir_ / "no" / "a.npy", Tensor::ScalarF32(1));
  ASSERT_FALSE(npy);
  EXPECT_THAT(npy.error().message, HasSubstr("does not exist"));
  ASSERT_TRUE(WriteNpy(dir_ / "s.npy", Tensor::ScalarF32(3)));
  EXPECT_EQ(ReadNpy(dir_ / "s.npy").value(), Tensor::ScalarF32(3));
  size_t files = 0;
  for ([[maybe_unused]] const auto& entry : fs::directory_iterator(dir_)) ++files;
  EXPECT_EQ(files, 2u) << "something was left behind";
}

}  // namespace
}  // namespace octavo::ir
