// Tensors of experts in a GGUF file, as a model has them: joined, apart, with rows of gate and up one after the other or in turns. Elements count from 0, so that
// each tells where it came from.
#include <gtest/gtest.h>

#include <cstring>
#include <set>
#include <string>
#include <vector>

#include "octavo/api/weights_experts.h"

namespace octavo::api {
namespace {

using ir::Shape;
using Floats = std::vector<float>;

class Bytes : public ir::Buffer {
 public:
  explicit Bytes(std::string text) : text_(std::move(text)) {
    data_ = reinterpret_cast<std::byte*>(text_.data());
    size_ = text_.size();
  }

 private:
  std::string text_;
};

template <typename T>
std::string Raw(T v) {
  return {reinterpret_cast<const char*>(&v), sizeof(T)};
}
std::string Text(std::string_view s) { return Raw<uint64_t>(s.size()) + std::string(s); }

struct Entry {
  std::string name;
  Shape shape;
  uint32_t type = 0;  // F32
};

// Tensors of 32 bytes or less each; F32 alone has data.
ir::gguf::File FileOf(const std::vector<Entry>& entries, std::string_view architecture = "llama") {
  std::string out = "GGUF" + Raw<uint32_t>(3) + Raw<uint64_t>(entries.size()) + Raw<uint64_t>(1);
  out += Text("general.architecture") + Raw<uint32_t>(8) + Text(architecture);
  std::string data;
  float next = 0;
  for (const Entry& e : entries) {
    data.resize((data.size() + 31) / 32 * 32);
    out += Text(e.name) + Raw(static_cast<uint32_t>(e.shape.size()));
    for (size_t i = e.shape.size(); i-- > 0;) out += Raw(static_cast<uint64_t>(e.shape[i]));
    out += Raw(e.type) + Raw<uint64_t>(data.size());
    for (int64_t i = 0; i < ir::ElementCount(e.shape); ++i) data += e.type == 0 ? Raw(next++) : Raw<uint16_t>(0);
  }
  out.resize((out.size() + 31) / 32 * 32);
  auto file = ir::gguf::File::Parse(std::make_shared<Bytes>(out + data), "'w'");
  EXPECT_TRUE(file) << (file ? "" : file.error().message);
  return std::move(*file);
}

Floats Of(const GgufTensors& tensors, std::string_view name) {
  const ir::gguf::TensorInfo* t = tensors.Find(name);
  if (t == nullptr) return {};
  Floats values(t->data.size() / sizeof(float));
  if (!values.empty()) std::memcpy(values.data(), t->data.data(), t->data.size());
  return values;
}

const std::vector<Entry> kStacked = {{"blk.0.ffn_gate_exps.weight", {2, 2, 3}}, {"blk.0.ffn_up_exps.weight", {2, 2, 3}},
                                     {"blk.0.ffn_gate_exps.bias", {2, 2}},      {"blk.0.ffn_up_exps.bias", {2, 2}},
                                     {"blk.0.ffn_down_exps.weight", {2, 3, 2}}, {"blk.0.attn_q.weight", {3, 3}}};

TEST(GgufExperts, GateAndUpAreJoinedForAModelThatHasThemSo) {
  const ir::gguf::File file = FileOf(kStacked), in_turns = FileOf(kStacked, "gpt-oss");
  const std::set<Shape> stacked = {{2, 4, 3}, {2, 3, 2}};
  const GgufTensors one(file, stacked), other(in_turns, stacked);
  EXPECT_EQ(one.all().size(), 4u);
  EXPECT_EQ(Of(one, "blk.0.ffn_gate_up_exps.weight"),
            (Floats{0, 1, 2, 3, 4, 5, 12, 13, 14, 15, 16, 17, 6, 7, 8, 9, 10, 11, 18, 19, 20, 21, 22, 23}));
  EXPECT_EQ(Of(one, "blk.0.ffn_gate_up_exps.bias"), (Floats{24, 25, 28, 29, 26, 27, 30, 31}));
  EXPECT_EQ(Of(other, "blk.0.ffn_gate_up_exps.weight"),
            (Floats{0, 1, 2, 12, 13, 14, 3, 4, 5, 15, 16, 17, 6, 7, 8, 18, 19, 20, 9, 10, 11, 21, 22, 23}));
  EXPECT_EQ(Of(other, "blk.0.ffn_gate_up_exps.bias"), (Floats{24, 28, 25, 29, 26, 30, 27, 31}));
  EXPECT_EQ(one.Find("blk.0.ffn_gate_up_exps.weight")->shape, (Shape{2, 4, 3}));
  EXPECT_EQ(one.Find("blk.0.ffn_gate_exps.weight"), nullptr);
  EXPECT_EQ(Of(one, "blk.0.ffn_down_exps.weight").size(), 12u);
}

TEST(GgufExperts, StayAsTheModelHasThem) {
  const ir::gguf::File file = FileOf(kStacked);
  const GgufTensors same(file, {{2, 2, 3}, {2, 3, 2}});
  EXPECT_EQ(same.all().size(), file.tensors().size());
  EXPECT_EQ(Of(same, "blk.0.ffn_up_exps.bias"), (Floats{28, 29, 30, 31}));
}

TEST(GgufExperts, AreTakenApartForAModelOfLinears) {
  const ir::gguf::File file = FileOf(kStacked);
  const GgufTensors apart(file, {});
  EXPECT_EQ(Of(apart, "blk.0.ffn_gate.0.weight"), (Floats{0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(Of(apart, "blk.0.ffn_gate.1.weight"), (Floats{6, 7, 8, 9, 10, 11}));
  EXPECT_EQ(Of(apart, "blk.0.ffn_up.1.bias"), (Floats{30, 31}));
  EXPECT_EQ(apart.Find("blk.0.ffn_down.1.weight")->shape, (Shape{3, 2}));
  EXPECT_EQ(apart.Find("blk.0.ffn_down_exps.weight"), nullptr);
}

TEST(GgufExperts, OfOlderFilesAreJoined) {
  std::vector<Entry> entries;
  for (const char* e : {"1", "0", "2"}) {
    for (const char* n : {"gate", "up"})
      entries.push_back({std::string("blk.7.ffn_") + n + "." + e + ".weight", {2, 1}});
  }
  const ir::gguf::File file = FileOf(entries);
  EXPECT_EQ(Of(GgufTensors(file, {{3, 2, 1}}), "blk.7.ffn_gate_exps.weight"), (Floats{4, 5, 0, 1, 8, 9}));
  EXPECT_EQ(Of(GgufTensors(file, {{3, 4, 1}}), "blk.7.ffn_gate_up_exps.weight"),
            (Floats{4, 5, 6, 7, 0, 1, 2, 3, 8, 9, 10, 11}));
  EXPECT_EQ(GgufTensors(file, {{9, 9, 9}}).all().size(), 6u);  // of other experts
  EXPECT_EQ(GgufTensors(file, {}).all().size(), 6u);
}

// A number that is missing or too large, another shape, another type, names that are no numbers.
TEST(GgufExperts, WhatIsNotWholeStays) {
  const auto stays = [](const std::vector<Entry>& entries) {
    const ir::gguf::File file = FileOf(entries);
    return GgufTensors(file, {{2, 2, 1}, {2, 4, 1}}).all().size() == entries.size();
  };
  EXPECT_TRUE(stays({{"blk.0.ffn_gate.1.weight", {2, 1}}}));
  EXPECT_TRUE(stays({{"blk.0.ffn_gate.0.weight", {2, 1}}, {"blk.0.ffn_gate.999999999999.weight", {2, 1}}}));
  EXPECT_TRUE(stays({{"blk.0.ffn_gate.0.weight", {2, 1}}, {"blk.0.ffn_gate.1.weight", {1, 1}}}));
  EXPECT_TRUE(stays({{"blk.0.ffn_gate.0.weight", {2, 1}}, {"blk.0.ffn_gate.1.weight", {2, 1}, 1}}));
  EXPECT_TRUE(
      stays({{"blk.0.ffn_gate.0x.weight", {2, 1}}, {"blk.0.ffn_gate..weight", {2, 1}}, {"0", {2, 1}}, {".", {2, 1}}}));
  EXPECT_TRUE(stays({{"blk.0.ffn_gate_exps.weight", {3, 2, 1}}}) == false);  // taken apart
  // F16 and BF16, which have as many bytes.
  const ir::gguf::File types =
      FileOf({{"blk.0.ffn_gate_exps.weight", {2, 2, 1}, 1}, {"blk.0.ffn_up_exps.weight", {2, 2, 1}, 30}});
  EXPECT_EQ(GgufTensors(types, {{2, 4, 1}}).Find("blk.0.ffn_gate_up_exps.weight"), nullptr);
}

}  // namespace
}  // namespace octavo::api
