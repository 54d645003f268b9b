// GGUF files: what is in them, and that nothing in them is believed.
#include "octavo/ir/gguf/gguf.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <set>

#include "octavo/ir/whole_file.h"

namespace octavo::ir::gguf {
namespace {

using ::testing::HasSubstr;

class Bytes : public Buffer {
 public:
  explicit Bytes(std::string text) : text_(std::move(text)) {
    data_ = reinterpret_cast<std::byte*>(text_.data());
    size_ = text_.size();
  }

 private:
  std::string text_;
};

std::string Of(const char* name) {
  auto bytes = ReadWholeFile(std::filesystem::path(OCTAVO_SOURCE_DIR) / "tests/data/gguf" / name);
  EXPECT_TRUE(bytes.has_value());
  return bytes.value_or("");
}

Result<File> Parsed(std::string text) { return File::Parse(std::make_shared<Bytes>(std::move(text)), "'w'"); }

std::string Why(std::string text) {
  const auto file = Parsed(std::move(text));
  return file ? "read" : file.error().message;
}

// Everything that a file may be asked.
void Use(const File& file) {
  for (const TensorInfo& t : file.tensors()) {
    const Form* form = FormOf(t.type);
    if (form == nullptr) continue;
    const auto floats = FloatsOf(t, {});
    if (form->group == 0 || t.shape.size() != 2) continue;
    for (const bool whole : {false, true}) {
      const auto blocks = BlocksOf(t, {}, whole);
      if (!blocks || !floats) continue;
      for (int64_t i = 0; i < floats->size(); i += 7) {
        float w = static_cast<float>(blocks->codes.GetInt(i)) *
                  blocks->scale.as<float>()[static_cast<size_t>(i / blocks->group)];
        if (form->mins)
          w += static_cast<float>(blocks->min_codes.GetInt(i / 16)) *
               blocks->min_scales.as<float>()[static_cast<size_t>(i / 256)];
        ASSERT_EQ(w, floats->as<float>()[static_cast<size_t>(i)]) << t.name << " " << i;
      }
    }
  }
}

template <typename T>
std::string Raw(T v) {
  return {reinterpret_cast<const char*>(&v), sizeof(T)};
}
std::string Text(std::string_view s) { return Raw<uint64_t>(s.size()) + std::string(s); }
std::string Head(uint64_t tensors, uint64_t pairs) { return "GGUF" + Raw<uint32_t>(3) + Raw(tensors) + Raw(pairs); }
std::string Info(std::string_view name, std::vector<uint64_t> dims, uint32_t type, uint64_t offset) {
  std::string out = Text(name) + Raw(static_cast<uint32_t>(dims.size()));
  for (const uint64_t d : dims) out += Raw(d);
  return out + Raw(type) + Raw(offset);
}
std::string Padded(std::string s, size_t data) {
  s.resize((s.size() + 31) / 32 * 32 + data);
  return s;
}

TEST(Gguf, TellsWhatIsInIt) {
  const auto file = Parsed(Of("k_quants.gguf"));
  ASSERT_TRUE(file.has_value()) << file.error().message;
  EXPECT_EQ(file->architecture(), "llama");
  EXPECT_EQ(file->Number("llama.attention.head_count"), 4);
  EXPECT_EQ(file->Number("llama.attention.head_count_kv"), 2);
  EXPECT_EQ(file->Number("tokenizer.ggml.model"), std::nullopt);
  const TensorInfo* t = file->Find("blk.0.attn_k.weight");
  ASSERT_NE(t, nullptr);
  EXPECT_EQ(t->shape, (Shape{32, 256}));
  EXPECT_EQ(FormOf(t->type)->name, "Q5_K");
  EXPECT_EQ(file->Find("blk.1.attn_k.weight"), nullptr);
  std::set<std::string_view> types;
  for (const char* name : {"k_quants.gguf", "simple.gguf", "tables.gguf"}) {
    const auto any = Parsed(Of(name));
    ASSERT_TRUE(any.has_value());
    for (const TensorInfo& tensor : any->tensors()) types.insert(FormOf(tensor.type)->name);
    Use(*any);
  }
  EXPECT_EQ(types.size(), 16u);  // all that octavo reads
}

// By hand: what the types' definitions say of a few bytes.
TEST(Gguf, CodesThatArePlacesInATable) {
  const auto floats = [](uint32_t type, uint64_t k, std::string block) {
    std::string text = Padded(Head(1, 0) + Info("w", {k, 1}, type, 0), 0);
    const auto file = Parsed(text + block);
    EXPECT_TRUE(file.has_value()) << file.error().message;
    return *FloatsOf(*file->Find("w"), {});
  };
  std::string mx(17, '\0');
  mx[0] = static_cast<char>(129), mx[1] = 0x72, mx[16] = static_cast<char>(0xF1);  // a scale of 4
  const Tensor a = floats(39, 32, mx);
  EXPECT_EQ(a.GetDouble(0), 4.0);     // 1.0
  EXPECT_EQ(a.GetDouble(16), 24.0);   // 6.0
  EXPECT_EQ(a.GetDouble(15), 2.0);    // 0.5
  EXPECT_EQ(a.GetDouble(31), -24.0);  // -6.0
  EXPECT_EQ(a.GetDouble(1), 0.0);
  std::string nl(18, '\0');
  nl[1] = 0x3C, nl[2] = 0x0F, nl[3] = static_cast<char>(0x80);  // d = 1
  const Tensor b = floats(20, 32, nl);
  EXPECT_EQ(b.GetDouble(0), 113.0);
  EXPECT_EQ(b.GetDouble(16), -127.0);
  EXPECT_EQ(b.GetDouble(17), 1.0);
  std::string xs(136, '\0');
  xs[1] = 0x3C;
  xs[2] = 0x04, xs[3] = static_cast<char>(0xC0);  // upper bits: 1 of block 1, 3 of block 7
  xs[4] = 0x50, xs[7] = 0x20;                     // lower: 5 of block 1, 2 of block 7
  xs[8 + 16] = 0x0F, xs[8 + 7 * 16 + 15] = static_cast<char>(0x90);
  const Tensor c = floats(23, 256, xs);
  EXPECT_EQ(c.GetDouble(0), -127.0 * -32);
  EXPECT_EQ(c.GetDouble(32), 113.0 * (16 + 5 - 32));
  EXPECT_EQ(c.GetDouble(255), 13.0 * (48 + 2 - 32));
  EXPECT_EQ(c.GetDouble(7 * 32 + 15), -127.0 * (48 + 2 - 32));
}

TEST(Gguf, RowsComeInTheOrderAskedFor) {
  const auto file = Parsed(Of("k_quants.gguf"));
  const TensorInfo& t = *file->Find("blk.0.attn_q.weight");
  std::vector<int64_t> back;
  for (int64_t i = t.shape[0]; i-- > 0;) back.push_back(i);
  const auto plain = FloatsOf(t, {}), turned = FloatsOf(t, back);
  const auto codes = BlocksOf(t, {}, true), turned_codes = BlocksOf(t, back, true);
  for (int64_t i = 0; i < t.shape[0] * t.shape[1]; i += 5) {
    const int64_t from = (t.shape[0] - 1 - i / 256) * 256 + i % 256;
    EXPECT_EQ(turned->GetDouble(i), plain->GetDouble(from));
    EXPECT_EQ(turned_codes->codes.GetInt(i), codes->codes.GetInt(from));
    EXPECT_EQ(turned_codes->min_scales.GetDouble(i / 256), codes->min_scales.GetDouble(from / 256));
  }
}

TEST(Gguf, RefusesWhatIsNone) {
  EXPECT_THAT(Why(""), HasSubstr("'w' ends within its first bytes"));
  EXPECT_THAT(Why("ONNX and more"), HasSubstr("'w' is no GGUF file"));
  EXPECT_THAT(Why("GGUF" + Raw<uint32_t>(1)), HasSubstr("is GGUF of version 1; octavo reads 2 and 3"));
  EXPECT_THAT(Why("GGUF" + Raw<uint32_t>(3 << 24)), HasSubstr("of little endian"));
  EXPECT_THAT(Why(Head(~0ull, 0)), HasSubstr("ends within its list of tensors"));
  EXPECT_THAT(Why(Head(0, ~0ull)), HasSubstr("ends within its metadata"));
  EXPECT_THAT(Why(Head(0, 1) + Raw(~0ull)), HasSubstr("ends within its metadata"));
  EXPECT_THAT(Why(Head(0, 1) + Text("a") + Raw<uint32_t>(13)), HasSubstr("of a kind that GGUF does not have"));
  const std::string array = Head(0, 1) + Text("a") + Raw<uint32_t>(9);
  EXPECT_THAT(Why(array + Raw<uint32_t>(10) + Raw(~0ull)), HasSubstr("ends within its metadata"));
  EXPECT_THAT(Why(array + Raw<uint32_t>(8) + Raw(~0ull)), HasSubstr("ends within its metadata"));
  EXPECT_THAT(Why(array + Raw<uint32_t>(10) + Raw(1ull << 61)), HasSubstr("ends within its metadata"));
  std::string nested = array;
  for (int i = 0; i < 9; ++i) nested += Raw<uint32_t>(9) + Raw<uint64_t>(1);
  EXPECT_THAT(Why(nested), HasSubstr("of a kind that GGUF does not have"));
  EXPECT_THAT(Why(Padded(Head(1, 0) + Info("t", {1, 1, 1, 1, 1}, 0, 0), 64)), HasSubstr("has 5 dims"));
  EXPECT_THAT(Why(Padded(Head(1, 0) + Info("t", {0}, 0, 0), 64)), HasSubstr("the tensor 't' has a dim of 0"));
  EXPECT_THAT(Why(Padded(Head(2, 0) + Info("t", {1}, 0, 0) + Info("t", {1}, 0, 0), 64)),
              HasSubstr("has two tensors 't'"));
  EXPECT_THAT(Why(Padded(Head(1, 0) + Info("t", {33, 2}, 8, 0), 900)), HasSubstr("no whole blocks of 32 (Q8_0)"));
  for (const std::vector<uint64_t>& dims :
       {std::vector<uint64_t>{17}, {1ull << 40, 1ull << 40}, {1ull << 31, 1ull << 31, 4, 1}})
    EXPECT_THAT(Why(Padded(Head(1, 0) + Info("t", dims, 0, 0), 64)), HasSubstr("'t' lies beyond the end of the file"));
  for (const uint64_t offset : {64ull, 61ull, ~0ull, 1ull << 63})
    EXPECT_THAT(Why(Padded(Head(1, 0) + Info("t", {1}, 0, offset), 64)),
                HasSubstr("'t' lies beyond the end of the file"));
  EXPECT_EQ(Why(Padded(Head(1, 0) + Info("t", {16}, 0, 0), 64)), "read");
  EXPECT_THAT(Why(Padded(Head(0, 1) + Text("general.alignment") + Raw<uint32_t>(4) + Raw<uint32_t>(24), 64)),
              HasSubstr("aligns its tensors to 24 bytes"));
}

TEST(Gguf, RefusesNumbersThatAreNone) {
  std::string row = Padded(Head(1, 0) + Info("t", {32, 1}, 8, 0), 34);
  row[row.size() - 33] = '\x7c';  // the scale is infinite
  const auto file = Parsed(row);
  ASSERT_TRUE(file.has_value());
  EXPECT_THAT(BlocksOf(file->tensors()[0], {}, false).error().message,
              HasSubstr("the tensor 't' has a scale or a value that is not finite"));
  EXPECT_FALSE(FloatsOf(file->tensors()[0], {}).has_value());
}

TEST(Gguf, SurvivesDamage) {
  const std::string whole = Of("k_quants.gguf");
  for (size_t size = 0; size < 1500; ++size) EXPECT_NE(Why(whole.substr(0, size)), "read");
  for (size_t size = whole.size(); size-- > whole.size() - 40;) EXPECT_NE(Why(whole.substr(0, size)), "read");
  const auto seed = std::random_device()();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  for (int i = 0; i < 3000; ++i) {
    std::string bad = whole;
    for (int j = 0; j <= i % 3; ++j) bad[random() % 1500] = static_cast<char>(random());
    if (const auto file = Parsed(bad); file && i % 100 == 0) Use(*file);
  }
}

}  // namespace
}  // namespace octavo::ir::gguf
