// What a file says and what its nodes compute: which counts, and the sentences where they contradict each other.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "octavo/ir/text.h"
#include "octavo/ir/verify.h"
#include "octavo/tests/ir/infer_cases.h"

namespace octavo::ir {
namespace {

using ::testing::HasSubstr;

TEST(Infer, TrustsWhatTheFileKnows) {
  const Case cases[] = {
      {"input %x : f32[b,s] %y = NonZero(%x) : s64[2,hits]", "s64[2,hits]"},
      {"input %x : f32[b,s] %y = Relu(%x) : f32[8,128]", "f32[b,s]"},  // numbers of the export run
      {"input %x : f32[*] %y = Relu(%x) : f32[b,?]", "f32[b,?]"},
  };
  Check(std::span(cases).first(2));
  Check(std::span(cases).subspan(2));
  auto g = ParseText("graph \"\" { input %x : ? %y = Relu(%x) output \"o\" = %y : f32[b,4] }");
  ASSERT_TRUE(g.has_value());
  ASSERT_TRUE(Inference::Run(*g).has_value());
  EXPECT_EQ(ToString(g->value(g->FindValue("y")).type), "f32[b,4]");
  EXPECT_EQ(ToString(g->outputs()[0].declared), "f32[b,4]");
}

TEST(Infer, ContradictionsNameTheNode) {
  const std::pair<const char*, const char*> cases[] = {
      {"input %x : f32[2,3] input %w : f32[4,5] %y = MatMul(%x, %w) @/mm",
       "node '/mm' (MatMul): [2,3] times [4,5]: the inner sizes 3 and 4 differ"},
      {"input %x : f32[2,3] input %w : f32[4] %y = Add(%x, %w) @a",
       "node 'a' (Add): the shapes [2,3] and [4] do not broadcast"},
      {"input %x : f32[2,3] input %w : s8[3] %y = Add(%x, %w) @a", "node 'a' (Add): its inputs are f32 and s8"},
      {"input %x : f32[2,3] %y = Relu(%x) : f32[2,4]",
       "node 'y' (Relu): output 'y': its shape is [2,3], but the file says [2,4]"},
      {"input %x : f32[2,3] %y = Relu(%x) : f32[2]", "its shape is [2,3], but the file says [2]"},
      {"input %x : f32[2,3] %y = Relu(%x) : s8[2,3]", "its element type is f32, but the file says s8"},
      {"input %x : f32[2,3] %y = Softmax(%x) %z = Transpose(%x) {perm = [0, 0]}", "perm [0,0] is no permutation"},
      {"input %x : f32[2,3]" INTS("t", "2", "-1, -1") "%y = Reshape(%x, %t)", "its target has more than one -1"},
      {"input %x : f32[2,3]" INTS("t", "1", "5") "%y = Reshape(%x, %t)",
       "[2,3] has 6 elements, but the target [5] has 5"},
      {"input %x : f32[2,3]" INTS("t", "3", "2, 3, 0") "%y = Reshape(%x, %t)", "copies dim 2 of an input of rank 2"},
      {"input %x : f32[2,3]" INTS("t", "1", "-5") "%y = Reshape(%x, %t)", "has a negative size"},
      {"input %x : f32[2,3]" INTS("t", "1", "2") "%y = Squeeze(%x, %t)", "axis 2 does not exist in a tensor of rank 2"},
      {"input %x : f32[2,3]" INTS("t", "1", "1") "%y = Squeeze(%x, %t)", "dim 1 of [2,3] is not 1"},
      {"input %x : f32[2,3]" INTS("t", "2", "0, 0") "%y = Unsqueeze(%x, %t)", "axis 0 is named twice"},
      {"input %x : f32[2,3] input %z : f32[2,4] %y = Concat(%x, %z) {axis = 0}", "input 1 has the shape [2,4]"},
      {"input %x : f32[2,3] %y = Gather(%x, %x) {axis = 5}", "axis 5 does not exist"},
      {"input %x : f32[2,3]" INTS("t", "2", "1, 1") "%y, %z = Split(%x, %t) {axis = 1}",
       "its sizes sum to 2, but dim 1 is 3"},
      {"input %x : f32[2,3]" INTS("t", "1", "0") "%y = Slice(%x, %t, %t, %t, %t)", "a step is 0"},
      {"input %x : f32[2,3] %y = Einsum(%x) {equation = \"abc->a\"}", "the term 'abc' does not fit"},
      {"input %x : f32[2,3] %y = Einsum(%x) {equation = \"ab->c\"}", "is in no input"},
      {"input %x : f32[2,3] %y = Einsum(%x, %x) {equation = \"ab->a\"}", "fewer terms than there are inputs"},
      {"input %q : f32[1,2,7] %y = Attention(%q, %q, %q) {kv_num_heads = 2, q_num_heads = 2}",
       "no multiple of 2 heads"},
      {"input %c : bool[] %y = If(%c) {else_branch = graph \"\" { input %a : f32[2] output \"o\" = %a : ? }, "
       "then_branch = graph \"\" { input %a : f32[2] output \"o\" = %a : ? }}",
       "the graph 'then_branch' has 1 inputs, 0 are given"},
      {"input %x : f32[2,3] %y = Transpose(%x) {perm = [7, 0]}", "perm [7,0] is no permutation"},
      {"input %x : f32[2,3] %y = Transpose(%x) {perm = [0, -1]}", "perm [0,-1] is no permutation"},
      {"input %x : f32[2,3] %y = Transpose(%x) {perm = [0, 1, 2]}", "no permutation of a tensor of rank 2"},
      {"input %x : f32[2,3] input %s : s64[1000000000000] %y = Slice(%x, %s, %s)", "cuts 1000000000000 axes"},
      {"input %x : s64[2,2,2,2,2,2,2,2,2,2] %a = Gather(%x, %x) %b = Gather(%a, %a) %c = Gather(%b, %b) "
       "%y = Gather(%c, %c)",
       "would have rank 73; octavo takes tensors of rank 64 at most"},
      {"input %x : f32[1,4,8] input %w : f32[2,1,3] %y = Conv(%x, %w) {group = 4}", "2 filters do not make 4 groups"},
      {"input %x : f32[1,4,8] input %w : f32[4,2,3] %y = Conv(%x, %w) {group = 4}",
       "4 channels do not make 4 groups of 2"},
      {"input %x : f32[1,4,8] input %w : f32[4,4,3] %y = Conv(%x, %w) {group = 0}", "group is 0"},
      {"input %x : f32[2,3] %y = Einsum(%x) {equation = \"ab->a....\"}", "is not a term"},
      {"input %x : f32[2,3] %y = Einsum(%x) {equation = \"ab->aa\"}", "the letter 'a' twice"},
      {"input %q : f32[1,2,8] %y = Attention(%q, %q, %q) {kv_num_heads = 2, left_window_size = 4, q_num_heads = 2}",
       "its left_window_size is 4"},
      {"input %c : bool[] input %a : f32[2] input %b : s8[2] %y = If(%c, %a, %b) {octavo_captures = 2, "
       "else_branch = graph \"\" { input %p : ? input %q : ? output \"o\" = %q : ? }, "
       "then_branch = graph \"\" { input %p : ? input %q : ? output \"o\" = %p : ? }}",
       "output 0 is f32 and s8; it must have one element type"},
      {"input %n : s64[] input %a : f32[2] %y = Loop(%n, _, %a) {body = graph \"\" { input %i : ? input %c : ? "
       "input %p : ? %q = Cast(%p) {to = 11} output \"go\" = %c : ? output \"o\" = %q : ? }}",
       "carried value 0 is f32 and f64"},
      {"input %s : f32[2] input %x : f32[3,2] %y = Scan(%s, %x) {num_scan_inputs = 1, body = graph \"\" { "
       "input %p : ? input %q : ? %t = Cast(%p) {to = 7} output \"o\" = %t : ? }}",
       "carried value 0 is f32 and s64"},
      {"input %x : f32[2] output \"o\" = %x : f32[3]", "graph output 'o': its shape is [2], but the file says [3]"},
  };
  for (const auto& [body, expected] : cases) {
    SCOPED_TRACE(body);
    auto g = ParseText(std::string("graph \"\" {") + body + "}");
    ASSERT_TRUE(g.has_value()) << g.error().message;
    const auto r = Inference::Run(*g);
    ASSERT_FALSE(r.has_value());
    EXPECT_THAT(r.error().message, HasSubstr(expected));
  }
}

}  // namespace
}  // namespace octavo::ir
