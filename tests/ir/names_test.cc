// Names as files have them: long, equal, or no text.
#include "octavo/ir/names.h"

#include <gtest/gtest.h>

#include <chrono>
#include <random>

#include "octavo/ir/infer.h"

namespace octavo::ir {
namespace {

TEST(Names, CleanedBytesAreUtf8InOneLine) {
  const uint32_t seed = 20261124;
  std::printf("seed %u\n", seed);
  std::mt19937 random(seed);
  for (int round = 0; round < 20000; ++round) {
    std::string name(random() % 12, '\0');
    for (char& c : name) c = static_cast<char>(random() % 4 == 0 ? random() : 0x70 + random() % 0x60);
    const std::string clean = Clean(name);
    EXPECT_TRUE(IsUtf8(clean)) << clean;
    for (const char c : clean) EXPECT_GE(static_cast<unsigned char>(c), ' ');
    EXPECT_EQ(Clean(clean), clean);
  }
  EXPECT_EQ(Clean("tab\tand bell\a"), "tab\\x09and bell\\x07");
  EXPECT_EQ(Clean("abcdef", 3), "abc...");
  EXPECT_EQ(Clean("ab\xc3\xaf", 3), "ab...");  // no half of a character
  EXPECT_EQ(Quoted(""), "''");
}

TEST(Names, WhatIsUtf8) {
  EXPECT_TRUE(IsUtf8("na\xc3\xafve \xf0\x9f\x98\x80 \xf4\x8f\xbf\xbf"));
  for (const char* bad :
       {"\x80", "\xc3", "\xc0\x80", "\xe0\x80\x80", "\xed\xa0\x80", "\xf0\x80\x80\x80", "\xf4\x90\x80\x80", "\xff"})
    EXPECT_FALSE(IsUtf8(bad)) << bad;
}

// Names and equations are any bytes; what is said of them is text.
TEST(Names, SentencesOfInferenceAreText) {
  const auto sentence = [](Op op, Attrs attrs, DType declared) {
    Graph g;
    const ValueId x = g.AddInput("x", {DType::kF32, SymShape{2, 3}});
    const NodeId n = g.AddNode(op, {x}, 1, std::move(attrs), "n\xff");
    g.SetName(g.node(n).output(), "y\xc0\n");
    g.SetType(g.node(n).output(), {declared, {}});
    g.AddOutput("z\xfe", g.node(n).output(), {DType::kF32, SymShape{9}});
    const auto r = Inference::Run(g);
    return r ? "none" : r.error().message;
  };
  EXPECT_EQ(sentence(Op::kRelu, {}, DType::kBool),
            "node 'n\\xff' (Relu): output 'y\\xc0\\x0a': its element type is f32, but the file says bool");
  EXPECT_EQ(sentence(Op::kRelu, {}, DType::kF32), "graph output 'z\\xfe': its shape is [2,3], but the file says [9]");
  EXPECT_EQ(sentence(Op::kEinsum, {{"equation", "ab->\xff"}}, DType::kF32),
            "node 'n\\xff' (Einsum): the letter '\\xff' of the output of 'ab->\\xff' is in no input");
}

TEST(Names, AStemIsShortAndWhole) {
  EXPECT_EQ(Stem("short"), "short");
  std::string name(199, 'a');
  name += "\xf0\x9f\x98\x80\xf0\x9f\x98\x80";
  EXPECT_EQ(Stem(name), std::string(199, 'a'));
  EXPECT_LE(Stem(std::string(5000, '\x80')).size(), 200u);
}

TEST(Names, UniqueNamesTakeTheSameTimeEach) {
  UniqueNames names;
  names.Add("a_2");
  EXPECT_EQ(names.Take("a"), "a");
  EXPECT_EQ(names.Take("a"), "a_1");
  EXPECT_EQ(names.Take("a"), "a_3");
  EXPECT_EQ(names.Take("a", "_outer"), "a_outer1");
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < 300'000; ++i) names.Take("a");  // minutes, if each looked from the first on
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(20));
}

}  // namespace
}  // namespace octavo::ir
