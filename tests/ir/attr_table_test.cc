#include "octavo/ir/attr_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace octavo::ir {
namespace {

using ::testing::HasSubstr;

std::string Said(std::string_view domain, std::string_view op, const Attrs& attrs) {
  const auto r = CheckAttributes(domain, op, attrs);
  return !r ? r.error().message : *r ? "known" : "unknown";
}

TEST(AttrTable, KindsAndNames) {
  EXPECT_EQ(Said("", "Softmax", {{"axis", int64_t{0}}}), "known");
  EXPECT_EQ(Said("", "Softmax", {}), "known");
  EXPECT_EQ(Said("", "Softmax", {{"axis", 0.0f}}), "its attribute 'axis' is a float; Softmax takes an integer");
  EXPECT_THAT(Said("", "Transpose", {{"perm", int64_t{1}}}), HasSubstr("takes a list of integers"));
  EXPECT_THAT(Said("", "Transpose", {{"perm", std::vector<float>{}}}), HasSubstr("is a list of floats"));
  EXPECT_THAT(Said("", "Einsum", {{"equation", std::vector<std::string>{"ij"}}}), HasSubstr("takes a text"));
  EXPECT_THAT(Said("", "If", {{"then_branch", Tensor::ScalarF32(1)}}), HasSubstr("takes a graph"));
  EXPECT_THAT(Said("", "ConstantOfShape", {{"value", 1.0f}}), HasSubstr("takes a tensor"));
  EXPECT_THAT(Said("", "Add", {{"axis", int64_t{1}}}), HasSubstr("attribute 'axis', which Add does not know"));
  EXPECT_THAT(Said("", "Softmax", {{"octavo_flatten", int64_t{1}}}), HasSubstr("octavo_flatten"));
}

// Anybody may mark a node with "__"; captures are counted by the reader; of an unknown op nothing is known.
TEST(AttrTable, WhatIsNotChecked) {
  EXPECT_EQ(Said("", "Add", {{"__mark", int64_t{1}}}), "known");
  EXPECT_EQ(Said("", "Loop", {{"octavo_captures", int64_t{1}}}), "known");
  EXPECT_EQ(Said("", "NoSuchOp", {{"axis", 0.0f}}), "known");
  EXPECT_EQ(Said("com.somebody", "Softmax", {{"axis", 0.0f}}), "known");
}

TEST(AttrTable, OtherDomains) {
  EXPECT_EQ(Said("com.microsoft", "FusedMatMul", {{"transA", int64_t{1}}}), "known");
  EXPECT_EQ(Said("com.microsoft", "FusedMatMul", {{"transC", int64_t{1}}}), "unknown");
  EXPECT_THAT(Said("com.microsoft", "FusedMatMul", {{"alpha", int64_t{1}}}), HasSubstr("takes a float"));
  EXPECT_EQ(Said("octavo", "QuantizedLinear", {{"activation", std::string("gelu")}}), "known");
  EXPECT_THAT(Said("octavo", "QuantizedLinear", {{"per_token", 1.0f}}), HasSubstr("takes an integer"));
  EXPECT_THAT(Said("octavo", "Sdpa", {{"sinks", int64_t{1}}}), HasSubstr("does not know"));
}

}  // namespace
}  // namespace octavo::ir
