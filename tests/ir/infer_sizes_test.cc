// Sizes that only a run knows: one quotient is one size wherever it is computed, and nodes tell of the sizes of others. Operands of one element
// type are held to it.
#include <gtest/gtest.h>

#include <format>

#include "octavo/ir/infer.h"
#include "octavo/ir/interpret.h"
#include "octavo/ir/text.h"

namespace octavo::ir {
namespace {

#define INTS(name, count, list) "%" name " = Constant() {value = tensor s64[" count "] (" list ")}\n"

Graph Inferred(const std::string& body) {
  auto g = ParseText("graph \"\" {" + body + "}");
  EXPECT_TRUE(g.has_value()) << g.error().message;
  if (!g) return {};
  const auto r = Inference::Run(*g);
  EXPECT_TRUE(r.has_value()) << (r ? "" : r.error().message);
  const std::string once = ToText(*g);
  EXPECT_TRUE(Inference::Run(*g).has_value());
  EXPECT_EQ(ToText(*g), once);
  return std::move(*g);
}

Dim DimOf(const Graph& g, const char* value, size_t axis) { return (*g.value(g.FindValue(value)).type.shape)[axis]; }

// Each body makes %y and %z, whose dim 1 is one size by two ways.
TEST(InferSizes, AQuotientIsOneSizeByAnyWay) {
  const std::string x = "input %x : f32[b,s,12]" INTS("blocks", "4", "0, -1, 4, 12");
  const std::string y = x + "%y = Reshape(%x, %blocks)\n";
  const char* ways[] = {
      // The mask in blocks of 4.
      "input %m : s64[b,s]" INTS("t", "3", "0, -1, 4") "%z = Reshape(%m, %t)",
      // s / 4, computed.
      "%n = Shape(%x) {start = 1, end = 2}" INTS("four", "1", "4") INTS("one", "1", "1")
          "%q = Div(%n, %four) %l = Concat(%one, %q) {axis = 0} %z = ConstantOfShape(%l)",
      // (s + 3) / 4 where s comes out even is another size, 8s / 32 is not, and neither is ((s + 4) / 4) - 1.
      "%n = Shape(%x) {start = 1, end = 2}" INTS("f", "1", "8") INTS("of", "1", "32") INTS("one", "1", "1")
          "%e = Mul(%n, %f) %q = Div(%e, %of) %l = Concat(%one, %q) {axis = 0} %z = ConstantOfShape(%l)",
      "%n = Shape(%x) {start = 1, end = 2}" INTS("four", "1", "4") INTS("one", "1", "1")
          "%e = Add(%n, %four) %q = Div(%e, %four) %p = Sub(%q, %one) %l = Concat(%one, %p) {axis = 0} "
          "%z = ConstantOfShape(%l)",
      // Pools and convolutions of stride 4.
      "%c = Transpose(%x) {perm = [0, 2, 1]} %p = MaxPool(%c) {kernel_shape = [4], strides = [4]} "
      "%z = Transpose(%p) {perm = [0, 2, 1]}",
      "%c = Transpose(%x) {perm = [0, 2, 1]} input %w : f32[5,12,7] %p = Conv(%c, %w) {strides = [4], pads = [3, 0]} "
      "%z = Transpose(%p) {perm = [0, 2, 1]}",
  };
  for (const char* way : ways) {
    SCOPED_TRACE(way);
    const Graph g = Inferred(y + way);
    EXPECT_TRUE(ProvablyEqual(DimOf(g, "y", 1), DimOf(g, "z", 1)));
    EXPECT_EQ(DimOf(g, "y", 1).ToString(), "?");
  }
  const char* others[] = {
      "%n = Shape(%x) {start = 1, end = 2}" INTS("f", "1", "3") INTS("four", "1", "4")
          INTS("one", "1",
               "1") "%e = Add(%n, %f) %q = Div(%e, %four) %l = Concat(%one, %q) {axis = 0} %z = ConstantOfShape(%l)",
      "input %m : s64[b,t]" INTS("t", "3", "0, -1, 4") "%z = Reshape(%m, %t)",
      "%c = Transpose(%x) {perm = [0, 2, 1]} %p = MaxPool(%c) {kernel_shape = [4], strides = [4], ceil_mode = 1} "
      "%z = Transpose(%p) {perm = [0, 2, 1]}",
  };
  for (const char* other : others) {
    SCOPED_TRACE(other);
    const Graph g = Inferred(y + other);
    EXPECT_FALSE(ProvablyEqual(DimOf(g, "y", 1), DimOf(g, "z", 1)));
  }
}

// Lengths padded to blocks of 16: %y has them by -s % 16, %z by another way.
TEST(InferSizes, ARestIsAQuotientLess) {
  const std::string y = "input %x : f32[b,s]" INTS("block", "1", "16") INTS("zero", "1", "0") INTS("last", "1", "15")
      "%n = Shape(%x) {start = 1} %m = Neg(%n) %r = Mod(%m, %block) %p = Add(%n, %r) %l = Concat(%zero, %p) {axis = 0} "
      "%y = ConstantOfShape(%l)";
  const auto same = [&](const char* way) {
    const Graph g = Inferred(y + way + "%k = Concat(%zero, %w) {axis = 0} %z = ConstantOfShape(%k)");
    return ProvablyEqual(DimOf(g, "y", 1), DimOf(g, "z", 1));
  };
  EXPECT_TRUE(same("%e = Mod(%n, %block) %f = Sub(%block, %e) %h = Mod(%f, %block) %w = Add(%n, %h)"));
  EXPECT_TRUE(same("%e = Add(%n, %last) %q = Div(%e, %block) %w = Mul(%q, %block)"));
  EXPECT_TRUE(same("%e = Add(%n, %last) %h = Mod(%e, %block) %w = Sub(%e, %h)"));
  EXPECT_TRUE(same("%e = Add(%n, %last) %h = Mod(%e, %block) {fmod = 1} %w = Sub(%e, %h)"));
  EXPECT_FALSE(same("%h = Mod(%m, %block) {fmod = 1} %w = Add(%n, %h)"));  // C's rest of -s is not above 0
  EXPECT_FALSE(same("%h = Mod(%n, %block) %w = Sub(%n, %h)"));             // rounded down
  EXPECT_FALSE(same("%e = Mul(%n, %n) %f = Neg(%e) %h = Mod(%f, %block) %w = Add(%n, %h)"));
}

TEST(InferSizes, RoundedUp) {
  const Graph g = Inferred("input %x : f32[b,3,s]" INTS("zero", "1", "0") INTS("end", "1", "9223372036854775807") INTS(
      "axis", "1",
      "2") INTS("two", "1",
                "2") "%y = Slice(%x, %zero, %end, %axis, %two)\n"
                     "%z = AveragePool(%x) {kernel_shape = [2], strides = [2], ceil_mode = 1}\n"
                     "input %w : f32[3,3,2] %u = Conv(%x, %w) {strides = [2], auto_pad = \"SAME_UPPER\"}");
  EXPECT_TRUE(ProvablyEqual(DimOf(g, "y", 2), DimOf(g, "z", 2)));
  EXPECT_TRUE(ProvablyEqual(DimOf(g, "y", 2), DimOf(g, "u", 2)));
}

// A Reshape into blocks fails where s is no multiple of them: their product is s.
TEST(InferSizes, WhatComesOutEvenIsWholeAgain) {
  const Graph g = Inferred("input %x : f32[b,s,12]" INTS("blocks", "4", "0, -1, 4, 12") INTS(
      "flat", "3", "0, -1, 12") "%y = Reshape(%x, %blocks) %z = Reshape(%y, %flat) %w = Add(%z, %x)");
  EXPECT_EQ(DimOf(g, "z", 1).ToString(), "s");
  EXPECT_EQ(DimOf(g, "w", 1).ToString(), "s");
}

// Batches under two names: each times four heads neither is 1, so none is repeated for the other. Alone either may be 1.
TEST(InferSizes, MultiplesOfANumberAreNotRepeated) {
  const auto product = [](const char* q, const char* k) {
    const Graph g = Inferred(std::format("input %q : f32[{},s,8] input %k : f32[{},8,t] %y = MatMul(%q, %k)", q, k));
    return DimOf(g, "y", 0).ToString();
  };
  EXPECT_EQ(product("4*b", "4*c"), "4*b");
  EXPECT_EQ(product("6*b", "3*c"), "6*b");
  EXPECT_EQ(product("4*b", "c"), "?");
  EXPECT_EQ(product("b", "c"), "?");
  EXPECT_EQ(product("4*b + 1", "4*c"), "?");
}

// The inner sizes of a product are one: that of scores whose mask has a length of its own.
TEST(InferSizes, ProductsTellOfMasks) {
  const char* head =
      "input %q : f32[b,s,4] input %k : f32[b,4,t] input %v : f32[b,t,6] input %m : f32[b,1,u] "
      "input %a : f32[1,1,w] %s = MatMul(%q, %k) %e = Add(%s, %m) %f = Add(%e, %a) %p = Softmax(%f) ";
  const Graph told = Inferred(std::string(head) + "%o = MatMul(%p, %v)");
  for (const char* value : {"e", "f", "p"}) EXPECT_EQ(DimOf(told, value, 2).ToString(), "t") << value;
  // dynamo has a name for what a broadcast makes, as if it were a size of its own.
  const Graph named = Inferred(
      "input %q : f32[b,s,4] input %k : f32[b,4,s] input %v : f32[b,s,6] input %t : f32[9,9] %n = Shape(%q) {start = 1, end = 2}" INTS(
          "zero", "1", "0") INTS("one", "1", "1") "%m = Slice(%t, %zero, %n, %one) : f32[9,cut] %s = MatMul(%q, %k) "
      "%e = Add(%s, %m) : f32[b,9,made] %p = Softmax(%e) : f32[b,9,made] %o = MatMul(%p, %v)");
  EXPECT_EQ(DimOf(named, "p", 2).ToString(), "s");
  const Graph silent = Inferred(head);
  EXPECT_EQ(DimOf(silent, "p", 2).ToString(), "?");
}

TEST(InferSizes, PartsAndElementsTellToo) {
  const Graph g = Inferred(
      "input %n : s64[1] input %x : f32[b,3,16] input %c : s64[]" INTS("one", "1", "1") INTS(
          "axes", "1",
          "2") "%part = Slice(%x, %one, %n, %axes) %y = Concat(%part, %x) {axis = 1}\n"  // as long as x, or it fails
      INTS("flat", "2", "-1, 16") "%m = NonZero(%x) %t = Transpose(%m) {perm = [1, 0]} %u = Cast(%t) {to = 1}\n" INTS(
          "back", "2", "7, 3") "%z = Reshape(%u, %back)");
  EXPECT_EQ(DimOf(g, "part", 2).ToString(), "16");
  EXPECT_EQ(DimOf(g, "u", 0).ToString(), "7");
}

// What is said to be one size is one size in a run.
TEST(InferSizes, HoldInARun) {
  const Graph g = Inferred("input %x : f32[b,s,12] input %m : f32[b,u]" INTS("blocks", "4", "0, -1, 4, 12") INTS(
      "turned", "3",
      "0, -1, 4") "%y = Reshape(%x, %blocks) %t = Transpose(%y) {perm = [0, 1, 3, 2]} %s = MatMul(%y, %t)\n"
                  "%c = Transpose(%x) {perm = [0, 2, 1]} %l = MaxPool(%c) {kernel_shape = [5], strides = [4], pads = "
                  "[0, 1]}\n"
                  "%n = Reshape(%m, %turned)" INTS(
                      "two", "1",
                      "2") "%o = Unsqueeze(%n, %two) %e = Add(%s, %o)\n"
                           "%p = Softmax(%e) %z = MatMul(%p, %y) output \"z\" = %s : ? output \"l\" = %l : ? output "
                           "\"n\" = %n : ?");
  for (const int64_t s : {4, 8, 24}) {
    const auto out =
        Interpret(g, {{"x", Tensor::Zeros(DType::kF32, {2, s, 12})}, {"m", Tensor::Zeros(DType::kF32, {2, s})}});
    ASSERT_TRUE(out.has_value()) << out.error().message;
    EXPECT_TRUE(ProvablyEqual(DimOf(g, "s", 1), DimOf(g, "l", 2)));
    EXPECT_EQ((*out)[0].shape()[1], (*out)[1].shape()[2]);
  }
}

// Sizes that cannot be one in any run: a sentence, now or when it runs, and no other end.
TEST(InferSizes, WhatNoRunAllowsIsNoCrash) {
  auto g = ParseText(
      "graph \"\" { input %x : f32[4,4] %n = NonZero(%x) %f = Cast(%n) {to = 1} input %a : f32[3,5] input %b : "
      "f32[7,5] "
      "%p = MatMul(%f, %a) %q = MatMul(%f, %b) output \"p\" = %p : ? output \"q\" = %q : ? }");
  ASSERT_TRUE(g.has_value()) << g.error().message;
  const auto r = Inference::Run(*g);
  ASSERT_FALSE(r.has_value());
  EXPECT_NE(r.error().message.find("the inner sizes 7 and 3 differ"), std::string::npos) << r.error().message;
}

TEST(InferTypes, OperandsHaveOneElementType) {
  const std::pair<const char*, const char*> cases[] = {
      {"input %a : f16[2,3] input %b : bool[3,2] %y = MatMul(%a, %b)", "its inputs are f16 and bool"},
      {"input %a : f32[2,3] input %b : f64[3,2] %y = Gemm(%a, %b)", "its inputs are f32 and f64"},
      {"input %c : bool[2] input %a : u8[2] input %b : s64[2] %y = Where(%c, %a, %b)", "its inputs are u8 and s64"},
      {"input %a : f32[2] input %b : s32[2] %y = Equal(%a, %b)", "its inputs are f32 and s32"},
      {"input %a : f32[2] input %b : f16[2] %y = Max(%a, %b)", "its inputs are f32 and f16"},
  };
  for (const auto& [body, sentence] : cases) {
    SCOPED_TRACE(body);
    auto g = ParseText(std::string("graph \"\" {") + body + "}");
    ASSERT_TRUE(g.has_value()) << g.error().message;
    const auto r = Inference::Run(*g);
    ASSERT_FALSE(r.has_value());
    EXPECT_NE(r.error().message.find(sentence), std::string::npos) << r.error().message;
  }
}

// What a large body gave is remembered for what it was given: other types, and other elements of a capture, give something else.
TEST(InferBodies, AreInferredForWhatTheyAreGiven) {
  std::string body = "input %a : ? input %s : ? ";
  for (int i = 0; i < 100; ++i)
    body += "%r" + std::to_string(i) + " = Relu(" + (i == 0 ? "%a" : "%r" + std::to_string(i - 1)) + ") ";
  const std::string graph = body + "%o = Expand(%r99, %s) output \"o\" = %o : ?";
  auto g = ParseText(
      "graph \"\" { input %c : bool[] input %x : f32[1,3] input %n : f32[5,3] %s = Shape(%n) %y = If(%c, %x, %s) "
      "{else_branch = graph \"e\" { " +
      graph + " }, octavo_captures = 2, then_branch = graph \"t\" { " + graph + " }} }");
  ASSERT_TRUE(g.has_value()) << g.error().message;
  const ValueId x = g->FindValue("x"), n = g->FindValue("n"), y = g->FindValue("y");
  const auto given = [&](DType type, int64_t rows, int64_t columns) {
    Graph copy = *g;
    copy.SetType(x, {type, SymShape{1, columns}});
    copy.SetType(n, {DType::kF32, SymShape{rows, columns}});
    EXPECT_TRUE(Inference::Run(copy).has_value());
    return ToString(copy.value(y).type);
  };
  for (int round = 0; round < 2; ++round) {
    EXPECT_EQ(given(DType::kF32, 5, 3), "f32[5,3]");
    EXPECT_EQ(given(DType::kF16, 5, 3), "f16[5,3]");
    EXPECT_EQ(given(DType::kF32, 7, 3), "f32[7,3]");
    EXPECT_EQ(given(DType::kF32, 5, 2), "f32[5,2]");
  }
}

// ONNX: "less than the corresponding stride/dilation dimension".
TEST(InferSizes, OutputPaddingIsLessThanStrideOrDilation) {
  const auto sizes = [](const std::string& attrs) {
    auto g = ParseText("graph \"\" { input %x : f32[1,4,8] input %w : f32[4,2,3] %y = ConvTranspose(%x, %w) {" + attrs +
                       "} output \"y\" = %y : ? }");
    if (!g) return g.error().message;
    const auto types = Inference::Run(*g);
    return types ? ToString(g->value(g->outputs()[0].value).type) : types.error().message;
  };
  EXPECT_EQ(sizes("output_padding = [2], strides = [3]"), "f32[1,2,26]");
  EXPECT_EQ(sizes("dilations = [4], output_padding = [3]"), "f32[1,2,19]");
  const std::string refused = sizes("dilations = [2], output_padding = [3], strides = [3]");
  EXPECT_NE(
      refused.find(
          "output_padding adds 3 to spatial axis 0; it must be less than the larger of stride and dilation there, 3"),
      std::string::npos)
      << refused;
}

}  // namespace
}  // namespace octavo::ir
