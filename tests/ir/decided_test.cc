// Declared shapes of one run. Which operands say sizes is asked of all of ONNX's node tests (node_case.cc).
#include "octavo/ir/decided.h"

#include <gtest/gtest.h>

#include "octavo/ir/text.h"

namespace octavo::ir {
namespace {

// The graph as text, once such shapes are dropped.
std::string Dropped(const std::string& body) {
  auto g = ParseText("graph \"\" {" + body + "}");
  if (!g) return g.error().message;
  DropDecidedShapes(*g);
  return ToText(*g);
}
bool Says(const std::string& text, std::string_view line) { return text.find(line) != std::string::npos; }

TEST(Decided, OutputsGiveUpNumbersAndKeepSymbols) {
  const std::string text = Dropped(R"(
    input %x : f32[batch,6]
    input %to : s64[2]
    %y = Reshape(%x, %to) : f32[3,8]
    %z = Neg(%y) : f32[batch,8]
    %own = Neg(%x) : f32[batch,6]
    output "y" = %y : f32[3,8]
    output "z" = %z : f32[batch,8]
    output "own" = %own : f32[batch,6]
)");
  EXPECT_TRUE(Says(text, "%y = Reshape(%x, %to) : f32[*]")) << text;
  EXPECT_TRUE(Says(text, "%z = Neg(%y) : f32[*]")) << text;
  EXPECT_TRUE(Says(text, "output \"y\" = %y : f32[*]")) << text;
  EXPECT_TRUE(Says(text, "output \"z\" = %z : f32[batch,?]")) << text;
  EXPECT_TRUE(Says(text, "output \"own\" = %own : f32[batch,6]")) << text;
}

TEST(Decided, SizesOfSuchAValueAreElementsToo) {
  const std::string text = Dropped(R"(
    input %x : f32[8]
    input %mask : bool[8]
    %some = Compress(%x, %mask) : f32[5]
    %sizes = Shape(%some) : s64[1]
    %zeros = ConstantOfShape(%sizes) : f32[5]
    %own = Shape(%x) : s64[1]
    %whole = ConstantOfShape(%own) : f32[8]
    output "zeros" = %zeros : ?
    output "whole" = %whole : ?
)");
  EXPECT_TRUE(Says(text, "%zeros = ConstantOfShape(%sizes) : f32[*]")) << text;
  EXPECT_TRUE(Says(text, "%whole = ConstantOfShape(%own) : f32[8]")) << text;
}

constexpr const char* kBranches = R"(
    input %x : f32[batch,6]
    input %which : bool[]
    input %end : s64[1]
    %zero = Constant() {value = tensor s64[1] (0)} : s64[1]
    %axis = Constant() {value = tensor s64[1] (1)} : s64[1]
    %y = If(%which, %x, %zero, %end, %axis) {else_branch = graph "e" {
      input %x : f32[batch,6]
      input %zero : s64[1]
      input %end : s64[1]
      input %axis : s64[1]
      %cut = Slice(%x, %zero, %end, %axis) : f32[batch,4]
      output "cut" = %cut : f32[batch,4]
    }, octavo_captures = 4, then_branch = graph "t" {
      input %x : f32[batch,6]
      input %zero : s64[1]
      input %end : s64[1]
      input %axis : s64[1]
      %first = Slice(%x, %zero, %axis, %axis) : f32[batch,1]
      output "first" = %first : f32[batch,1]
    }} : f32[batch,4]
    output "y" = %y : ?
)";

TEST(Decided, GraphsOfNodesAreAskedToo) {
  const std::string text = Dropped(kBranches);
  EXPECT_TRUE(Says(text, "%cut = Slice(%x, %zero, %end, %axis) : f32[*]")) << text;
  EXPECT_TRUE(Says(text, "output \"cut\" = %cut : f32[batch,?]")) << text;
  EXPECT_TRUE(Says(text, "%first = Slice(%x, %zero, %axis, %axis) : f32[batch,1]")) << text;
  EXPECT_TRUE(Says(text, "}} : f32[batch,?]")) << text;
}

// A loop's second iteration is given what the first has made.
TEST(Decided, WhatALoopCarriesHasSizesOfItsBody) {
  const std::string text = Dropped(R"(
    input %x : f32[6]
    %times = Constant() {value = tensor s64[] (3)} : s64[]
    %on = Constant() {value = tensor bool[] (1)} : bool[]
    %y = Loop(%times, %on, %x) {body = graph "b" {
      input %i : s64[]
      input %c : bool[]
      input %v : f32[6]
      %twice = Add(%v, %v) : f32[6]
      %where = NonZero(%twice) : s64[1,4]
      %row = Squeeze(%where) : s64[4]
      %next = Cast(%row) {to = 1} : f32[4]
      output "c" = %c : bool[]
      output "next" = %next : f32[4]
    }, octavo_captures = 0} : f32[4]
    output "y" = %y : ?
)");
  EXPECT_TRUE(Says(text, "%twice = Add(%v, %v) : f32[*]")) << text;
  EXPECT_TRUE(Says(text, "input %v : f32[*]")) << text;
  EXPECT_TRUE(Says(text, "}, octavo_captures = 0} : f32[*]")) << text;
}

// A second look at each depth would double the time with each.
TEST(Decided, NestedLoopsAreLookedAtAFewTimes) {
  std::string body =
      "%w = NonZero(%v) : s64[1,4] %n = Cast(%w) {to = 1} : f32[1,4] output \"c\" = %c : bool[] output \"n\" = %n : "
      "f32[1,4]";
  for (int depth = 0; depth < 40; ++depth) {
    body =
        "%t = Constant() {value = tensor s64[] (1)} : s64[] %o = Constant() {value = tensor bool[] (1)} : bool[]\n"
        "%n = Loop(%t, %o, %v) {body = graph \"b\" { input %i : s64[] input %c : bool[] input %v : f32[1,4]\n" +
        body + "}, octavo_captures = 0} : f32[1,4]\n" +
        (depth < 39 ? "output \"c\" = %c : bool[] output \"n\" = %n : f32[1,4]" : "output \"n\" = %n : ?");
  }
  EXPECT_TRUE(Says(Dropped("input %v : f32[1,4]\n" + body), "output \"n\" = %n : ?"));
}

}  // namespace
}  // namespace octavo::ir
