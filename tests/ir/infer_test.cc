#include "octavo/ir/infer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <span>

#include "octavo/ir/text.h"
#include "octavo/ir/verify.h"

namespace octavo::ir {
namespace {

using ::testing::HasSubstr;

// One op at a time: the body of a graph in text form, and the types of its outputs "y", "z" after inference.
struct Case {
  const char* body;
  const char* y;
  const char* z = nullptr;
};

void Check(std::span<const Case> cases) {
  for (const Case& c : cases) {
    SCOPED_TRACE(c.body);
    auto g = ParseText(std::string("graph \"\" {") + c.body + "}");
    ASSERT_TRUE(g.has_value()) << g.error().message;
    const auto r = Inference::Run(*g);
    ASSERT_TRUE(r.has_value()) << r.error().message;
    EXPECT_EQ(ToString(g->value(g->FindValue("y")).type), c.y);
    if (c.z != nullptr) {
      EXPECT_EQ(ToString(g->value(g->FindValue("z")).type), c.z);
    }
    // A second run finds nothing new and nothing wrong.
    const std::string once = ToText(*g);
    ASSERT_TRUE(Inference::Run(*g).has_value());
    EXPECT_EQ(ToText(*g), once);
  }
}

#define INTS(name, count, list) "%" name " = Constant() {value = tensor s64[" count "] (" list ")}\n"

TEST(Infer, Elementwise) {
  const Case cases[] = {
      {"input %a : f32[b,s,4] input %b : f32[4] %y = Add(%a, %b)", "f32[b,s,4]"},
      {"input %a : f32[b,1,4] input %b : f32[s,1] %y = Mul(%a, %b)", "f32[b,s,4]"},
      {"input %a : f32[b,s] input %b : f32[b,t] %y = Mul(%a, %b)", "f32[b,?]"},
      {"input %a : f32[b,s] input %b : f32[b,8] %y = Mul(%a, %b)", "f32[b,8]"},
      {"input %a : f32[?,8] input %b : f32[b,?] %y = Sub(%a, %b)", "f32[?,8]"},
      {"input %a : f32[*] input %b : f32[b] %y = Sub(%a, %b)", "f32[*]"},
      {"input %a : f32[2] input %b : f32[3,1] %y = Greater(%a, %b)", "bool[3,2]"},
      {"input %a : f32[2] %y = Cast(%a) {to = 10}", "f16[2]"},
      {"input %a : f32[2] input %b : s8[1] %y = CastLike(%a, %b)", "s8[2]"},
      {"input %a : f32[2] %y = IsNaN(%a)", "bool[2]"},
      {"input %c : bool[b,1] input %a : f16[1,s] input %b : f16[] %y = Where(%c, %a, %b)", "f16[b,s]"},
      {"input %a : f32[2] input %b : f32[3,1] input %c : f32[1,1,1] %y = Max(%a, %b, %c)", "f32[1,3,2]"},
      {"input %a : f32[2,n] %y, %z = Dropout(%a)", "f32[2,n]", "bool[2,n]"},
      {"input %a : f32[2] input %e : s64[] %y = Pow(%a, %e)", "f32[2]"},
      {"input %x : f32[2,n] input %g : f16[n] %y = RMSNormalization(%x, %g)", "f16[2,n]"},
      {"input %x : f32[2,n] input %g : f16[n] %y = LayerNormalization(%x, %g)", "f32[2,n]"},
      {"input %x : f32[2,8] input %g : f64[8] %y, %z = SkipLayerNorm(%x, %x, %g) {rms = 1}", "f64[2,8]", "f32[2,8]"},
      {"input %a : f32[2] input %e : s64[] %y = Pow(%a, %e)", "f32[2]"},
  };
  Check(cases);
}

TEST(Infer, Views) {
  const Case cases[] = {
      {"input %x : f32[b,s,384]" INTS("t", "4", "0, 0, -1, 32") "%y = Reshape(%x, %t)", "f32[b,s,12,32]"},
      {"input %x : f32[b,s,12,32]" INTS("t", "3", "0, 0, -1") "%y = Reshape(%x, %t)", "f32[b,s,384]"},
      {"input %x : f32[?,?,384]" INTS("t", "4", "0, 0, 12, -1") "%y = Reshape(%x, %t)", "f32[?,?,12,32]"},
      {"input %x : f32[b,12,s,32]" INTS("t", "3", "-1, 12, 32") "%y = Reshape(%x, %t)", "f32[b*s,12,32]"},
      {"input %x : f32[0,4]" INTS("t", "2", "0, 5") "%y = Reshape(%x, %t) {allowzero = 1}", "f32[0,5]"},
      {"input %x : f32[b,s] input %t : s64[3] %y = Reshape(%x, %t)", "f32[?,?,?]"},
      {"input %x : f32[b,s] input %t : s64[?] %y = Reshape(%x, %t)", "f32[*]"},
      {"input %x : f32[b,s,h,d] %y = Flatten(%x) {axis = 2}", "f32[b*s,d*h]"},
      {"input %x : f32[b,s] %y = Flatten(%x) {axis = 0}", "f32[1,b*s]"},
      {"input %x : f32[b,s,4] %y = Transpose(%x)", "f32[4,s,b]"},
      {"input %x : f32[b,s,4] %y = Transpose(%x) {perm = [0, 2, 1]}", "f32[b,4,s]"},
      {"input %x : f32[b,1,4]" INTS("a", "1", "-2") "%y = Squeeze(%x, %a)", "f32[b,4]"},
      {"input %x : f32[1,2,1] %y = Squeeze(%x)", "f32[2]"},
      {"input %x : f32[b,2,1] %y = Squeeze(%x)", "f32[*]"},
      {"input %x : f32[b,4]" INTS("a", "2", "0, -1") "%y = Unsqueeze(%x, %a)", "f32[1,b,4,1]"},
      {"input %x : f32[b,4] %s = Shape(%x) %y = Expand(%x, %s)", "f32[b,4]"},
      {"input %x : f32[b,1,4]" INTS("a", "4", "7, 1, 3, 1") "%y = Expand(%x, %a)", "f32[7,b,3,4]"},
      {"input %x : f32[b,4]" INTS("r", "2", "2, 3") "%y = Tile(%x, %r)", "f32[2*b,12]"},
      {"input %x : f32[b,h,s,d]" INTS("a", "5", "-1, 1, 1, 1, 1") "%y = Identity(%x)", "f32[b,h,s,d]"},
  };
  Check(cases);
}

TEST(Infer, JoinsAndCuts) {
  const Case cases[] = {
      {"input %a : f32[b,h,past,d] input %b : f32[b,h,seq,d] %y = Concat(%a, %b) {axis = 2}", "f32[b,h,past + seq,d]"},
      {"input %a : f32[b,?] input %b : f32[?,3] %y = Concat(%a, %b) {axis = 0}", "f32[?,3]"},
      {"input %a : f32[*] input %b : f32[2,3] %y = Concat(%a, %b) {axis = 0}", "f32[?,3]"},
      {"input %x : f32[b,9] %y, %z, %w = Split(%x) {axis = 1, num_outputs = 3}", "f32[b,3]", "f32[b,3]"},
      {"input %x : f32[7] %y, %z = Split(%x) {num_outputs = 2}", "f32[4]", "f32[3]"},
      {"input %x : f32[b,9]" INTS("p", "2", "2, 7") "%y, %z = Split(%x, %p) {axis = -1}", "f32[b,2]", "f32[b,7]"},
      {"input %x : f32[2*b] %y, %z = Split(%x) {num_outputs = 2}", "f32[b]", "f32[b]"},
      {"input %x : f32[b,10]" INTS("s", "1", "2") INTS("e", "1", "-1") INTS("a", "1", "1") "%y = Slice(%x, %s, %e, %a)",
       "f32[b,7]"},
      {"input %x : f32[b,10]" INTS("s", "1", "-3") INTS("e", "1", "9223372036854775807") INTS("a", "1", "1")
           INTS("t", "1", "2") "%y = Slice(%x, %s, %e, %a, %t)",
       "f32[b,2]"},
      {"input %x : f32[5]" INTS("s", "1", "-1") INTS("e", "1", "-9223372036854775808") INTS("a", "1", "0")
           INTS("t", "1", "-2") "%y = Slice(%x, %s, %e, %a, %t)",
       "f32[3]"},
      {"input %x : f32[0]" INTS("s", "1", "-1") INTS("e", "1", "-9223372036854775808") INTS("a", "1", "0")
           INTS("t", "1", "-1") "%y = Slice(%x, %s, %e, %a, %t)",
       "f32[0]"},
      {"input %x : f32[s]" INTS("s", "1", "0") INTS("e", "1", "2147483647") "%y = Slice(%x, %s, %e)", "f32[s]"},
      {"input %x : f32[s]" INTS("s", "1", "1") INTS("e", "1", "2147483647") "%y = Slice(%x, %s, %e)", "f32[s - 1]"},
      {"input %x : f32[s]" INTS("s", "1", "-1") INTS("e", "1", "2147483647") "%y = Slice(%x, %s, %e)", "f32[1]"},
      {"input %x : f32[s]" INTS("s", "1", "-5") INTS("e", "1", "2147483647") "%y = Slice(%x, %s, %e)", "f32[?]"},
      {"input %x : f32[s + 5]" INTS("s", "1", "-5") INTS("e", "1", "2147483647") "%y = Slice(%x, %s, %e)", "f32[5]"},
      {"input %x : f32[s]" INTS("s", "1", "2") INTS("e", "1", "4") "%y = Slice(%x, %s, %e)", "f32[?]"},
      {"input %x : f32[b,s] input %s : s64[1] input %e : s64[1]" INTS("a", "1", "1") "%y = Slice(%x, %s, %e, %a)",
       "f32[b,?]"},
      {"input %x : f32[b,s] input %s : s64[1] input %e : s64[1] input %a : s64[1] %y = Slice(%x, %s, %e, %a)",
       "f32[?,?]"},
      {"input %w : f32[512,64] input %i : s64[b,s] %y = Gather(%w, %i)", "f32[b,s,64]"},
      {"input %w : f32[b,s,64] input %i : s64[] %y = Gather(%w, %i) {axis = 1}", "f32[b,64]"},
      {"input %w : f32[b,s] input %i : s64[b,3] %y = GatherElements(%w, %i) {axis = 1}", "f32[b,3]"},
      {"input %w : f32[b,s,64] input %i : s64[b,k,1] %y = GatherND(%w, %i) {batch_dims = 1}", "f32[b,k,64]"},
      {"input %x : f32[b,s]" INTS("p", "4", "0, 1, 0, 2") "%y = Pad(%x, %p)", "f32[b,s + 3]"},
      {"input %x : f32[b,s]" INTS("p", "2", "1, 2") "%v = Constant() {value = tensor f32[] (0)}" INTS(
           "a", "1", "-1") "%y = Pad(%x, %p, %v, %a)",
       "f32[b,s + 3]"},
      {"input %i : s64[b,s] %d = Constant() {value = tensor s64[] (5)} input %v : f32[2] %y = OneHot(%i, %d, %v)",
       "f32[b,s,5]"},
      {"input %x : f32[b,s]" INTS("k", "1", "3") "%y, %z = TopK(%x, %k)", "f32[b,3]", "s64[b,3]"},
      {"input %x : f32[b,s] %y = NonZero(%x)", "s64[2,?]"},
      {"input %x : f32[b,s] input %c : bool[s] %y = Compress(%x, %c) {axis = 1}", "f32[b,?]"},
      {"input %x : f32[b,3,8,10] %s = Constant() {value = tensor f32[4] (1, 1, 2, 0.55)} %y = Resize(%x, _, %s)",
       "f32[b,3,16,5]"},
      {"input %x : f32[b,3,8,10]" INTS("s", "4", "2, 3, 4, 5") "%y = Resize(%x, _, _, %s)", "f32[2,3,4,5]"},
      {"input %x : f32[b,8,h,w] %y = DepthToSpace(%x) {blocksize = 2}", "f32[b,2,2*h,2*w]"},
      {"input %x : f32[b,2,4,6] %y = SpaceToDepth(%x) {blocksize = 2}", "f32[b,8,2,3]"},
  };
  Check(cases);
}

TEST(Infer, PartsOfASplitAreNeverNegative) {
  const Case cases[] = {{"input %x : f32[3] %a, %b, %y, %z, %c = Split(%x) {axis = 0}", "f32[1]", "f32[0]"},
                        {"input %x : f32[5] %a, %b, %y, %z = Split(%x) {axis = 0}", "f32[1]", "f32[0]"}};
  Check(cases);
}

TEST(Infer, ReductionsAndProducts) {
  const Case cases[] = {
      {"input %x : f32[b,s,4]" INTS("a", "1", "-1") "%y = ReduceMean(%x, %a)", "f32[b,s,1]"},
      {"input %x : f32[b,s,4]" INTS("a", "2", "0, 2") "%y = ReduceSum(%x, %a) {keepdims = 0}", "f32[s]"},
      {"input %x : f32[b,s,4] %y = ReduceMax(%x) {keepdims = 0}", "f32[]"},
      {"input %x : f32[b,s,4] %y = ReduceMax(%x) {noop_with_empty_axes = 1}", "f32[b,s,4]"},
      {"input %x : f32[b,s,4] input %a : s64[1] %y = ReduceMax(%x, %a)", "f32[?,?,?]"},
      {"input %x : f32[b,s,4] input %a : s64[1] %y = ReduceMax(%x, %a) {keepdims = 0}", "f32[*]"},
      {"input %x : f32[b,s,4] %y = ArgMax(%x) {axis = -1, keepdims = 0}", "s64[b,s]"},
      {"input %a : f32[b,h,s,d] input %b : f32[b,h,d,t] %y = MatMul(%a, %b)", "f32[b,h,s,t]"},
      {"input %a : f32[b,1,s,d] input %b : f32[h,d,t] %y = MatMul(%a, %b)", "f32[b,h,s,t]"},
      {"input %a : f32[d] input %b : f32[b,d,t] %y = MatMul(%a, %b)", "f32[b,t]"},
      {"input %a : f32[b,s,d] input %b : f32[d] %y = MatMul(%a, %b)", "f32[b,s]"},
      {"input %a : f32[d] input %b : f32[d] %y = MatMul(%a, %b)", "f32[]"},
      {"input %a : u8[b,s,8] input %b : s8[8,4] %y = MatMulInteger(%a, %b)", "s32[b,s,4]"},
      {"input %a : f32[8,b] input %b : f32[4,8] %y = Gemm(%a, %b) {transA = 1, transB = 1}", "f32[b,4]"},
      {"input %a : f32[b,i,d] input %b : f32[b,j,d] %y = Einsum(%a, %b) {equation = \"bid,bjd->bij\"}", "f32[b,i,j]"},
      {"input %a : f32[b,h,i,d] input %b : f32[h,d,j] %y = Einsum(%a, %b) {equation = \"...id,...dj->...ij\"}",
       "f32[b,h,i,j]"},
      {"input %a : f32[i,j] input %b : f32[j,k] %y = Einsum(%a, %b) {equation = \"ab, bc\"}", "f32[i,k]"},
      {"input %a : f32[n,n] %y = Einsum(%a) {equation = \"ii->\"}", "f32[]"},
      {"input %x : f32[b,3,224,224] input %w : f32[64,3,16,16] %y = Conv(%x, %w) {strides = [16, 16]}",
       "f32[b,64,14,14]"},
      {"input %x : f32[b,3,s] input %w : f32[64,3,3] %y = Conv(%x, %w) {pads = [1, 1]}", "f32[b,64,s]"},
      {"input %x : f32[b,3,7] input %w : f32[64,3,3] %y = Conv(%x, %w) {auto_pad = \"SAME_UPPER\", strides = [2]}",
       "f32[b,64,4]"},
      {"input %x : f32[b,3,7,8] %y = MaxPool(%x) {kernel_shape = [2, 2], strides = [2, 2]}", "f32[b,3,3,4]"},
      {"input %x : f32[b,3,7,8] %y = AveragePool(%x) {ceil_mode = 1, kernel_shape = [2, 2], strides = [2, 2]}",
       "f32[b,3,4,4]"},
      {"input %x : f32[b,3,h,w] %y = GlobalAveragePool(%x)", "f32[b,3,1,1]"},
      {"input %x : f32[b,s,4] input %g : f32[4] %y, %z = LayerNormalization(%x, %g)", "f32[b,s,4]", "f32[b,s,1]"},
  };
  Check(cases);
}

TEST(Infer, AttentionAndQuantization) {
  const Case cases[] = {
      {"input %q : f32[b,s,8] input %k : f32[b,t,4] input %v : f32[b,t,6] "
       "%y = Attention(%q, %k, %v) {kv_num_heads = 2, q_num_heads = 4}",
       "f32[b,s,12]"},
      {"input %q : f32[b,4,s,8] input %k : f32[b,2,t,8] input %v : f32[b,2,t,6] input %p : f32[b,2,past,8] "
       "input %w : f32[b,2,past,6] %y, %z = Attention(%q, %k, %v, _, %p, %w)",
       "f32[b,4,s,6]", "f32[b,2,past + t,8]"},
      {"input %q : f32[b,s,8] input %k : f32[b,2,t,2] input %v : f32[b,t,6] "
       "%y = Sdpa(%q, %k, %v) {k_rank = 4, kv_num_heads = 2, num_heads = 4, out_rank = 3, q_rank = 3, v_rank = 3}",
       "f32[b,s,12]"},
      {"input %q : u8[b,s,8] input %k : u8[a,2,t,2] input %v : u8[b,t,6] input %c : f32[] input %n : u8[] "
       "%y = QuantizedSdpa(%q, %k, %v, %c, %n, %c, %n, %c, %n, %c, %n) {kv_num_heads = 2, num_heads = 4, out_rank = 4}",
       "f32[?,4,s,3]"},
      {"input %q : u8[b,s,8] input %k : u8[b,2,t,2] input %v : u8[b,t,6] input %c : f32[] input %n : u8[] input %m : "
       "s8[] "
       "%y = QuantizedSdpa(%q, %k, %v, %c, %n, %c, %n, %c, %n, %c, %n, %c, %m) {kv_num_heads = 2, num_heads = 4, out_rank = "
       "3}",
       "s8[b,s,12]"},
      {"input %x : u8[b,s,8] input %c : f32[] input %n : u8[] input %w : s8[8,4] input %v : s8[8,6] input %d : f32[4] "
       "%y, %z = QuantizedQkv(%x, %c, %n, %w, %d, _, _, _, %v, %c, _, %c, %n)",
       "f32[b,s,4]", "u8[b,s,6]"},
      {"input %x : s8[b,s,8] input %c : f32[] input %n : s8[] input %w : s8[8,4] "
       "%y = QuantizedLinear(%x, %c, %n, %w, %c, _, %c, %n)",
       "s8[b,s,4]"},
      {"input %x : s8[b,s,8] input %c : f32[] input %n : s8[] input %w : s8[8,4] %y = QuantizedLinear(%x, %c, %n, %w, %c)",
       "f32[b,s,4]"},
      {"input %x : f32[b,s,8] input %k : f32[b,s,8] input %g : f32[8] %y, %z = SkipLayerNorm(%x, %k, %g)", "f32[b,s,8]",
       "f32[b,s,8]"},
      {"input %x : f32[b,s,8] input %g : f32[8] input %c : f32[] input %n : s8[] %y, %z = NormQuant(%x, _, %g, _, %c, "
       "%n)",
       "f32[b,s,8]", "s8[b,s,8]"},
      {"input %x : f32[b,s,8] input %g : f32[8] input %c : f32[] input %n : s8[] input %i : s64[11] "
       "%y, %z = NormQuant(%x, _, %g, _, %c, %n, _, _, %i)",
       "f32[b,s,8]", "s8[b,s,11]"},
      {"input %x : f32[b] input %c : f32[] input %n : s8[] %y = QuantizeLinear(%x, %c, %n)", "s8[b]"},
      {"input %x : f32[b] input %c : f32[] %y = QuantizeLinear(%x, %c)", "u8[b]"},
      {"input %x : f32[b] input %c : f32[] %y = QuantizeLinear(%x, %c) {output_dtype = 17}", "e4m3fn[b]"},
      {"input %x : s8[b] input %c : f16[] %y = DequantizeLinear(%x, %c)", "f16[b]"},
      {"input %x : f32[b] %y, %z, %w = DynamicQuantizeLinear(%x)", "u8[b]", "f32[]"},
      {"input %x : f32[b,s,8] input %w : u8[4,1,4] input %c : f32[4] "
       "%y = opaque \"com.microsoft\" \"MatMulNBits\" (%x, %w, %c) {K = 8, N = 4}",
       "f32[b,s,4]"},
      {"input %q : f32[b,s,64] input %e : s32[b] %y = opaque \"com.microsoft\" \"GroupQueryAttention\" "
       "(%q, _, _, _, _, %e) {kv_num_heads = 2, num_heads = 4}",
       "f32[b,s,32]"},
      {"input %x : u8[b,s,8] input %w : u8[8,24] input %a : f32[24] input %c : f32[] "
       "%y = opaque \"com.microsoft\" \"QAttention\" (%x, %w, %a, %c, %c)",
       "f32[b,s,8]"},
      {"input %i : s32[b,s] input %w : f16[99,32] %y, %z = opaque \"com.microsoft\" \"EmbedLayerNormalization\" "
       "(%i, _, %w)",
       "f16[b,s,32]", "s32[b]"},
      {"input %x : f32[s,b,8] input %w : f32[2,48,8] input %r : f32[2,48,16] %y, %z = GRU(%x, %w, %r)", "f32[s,2,b,16]",
       "f32[2,b,16]"},
      {"input %x : f32[b,s,8] input %w : f32[1,64,8] input %r : f32[1,64,16] "
       "%y, %z, %c = LSTM(%x, %w, %r) {layout = 1}",
       "f32[b,s,1,16]", "f32[b,1,16]"},
      {"input %x : f32[1,3,8,8] input %w : f32[3,1,2,2] %y = ConvTranspose(%x, %w)", "f32[1,1,9,9]"},
      {"input %x : f32[b] %y = opaque \"my.domain\" \"Gelu\" (%x)", "?"},
      {"input %x : f32[b] %y = opaque \"my.domain\" \"Gelu\" (%x) : f16[3]", "f16[3]"},
  };
  Check(cases);
}

TEST(Infer, ControlFlow) {
  const Case cases[] = {
      {"input %c : bool[] input %x : f32[b,4] %y = If(%c, %x) {else_branch = graph \"e\" { input %a : ? %o = Relu(%a) "
       "output \"o\" = %o : ? }, octavo_captures = 1, then_branch = graph \"t\" { input %a : ? %o = ReduceSum(%a) "
       "output \"o\" = %o : ? }}",
       "f32[?,?]"},
      {"%c = Constant() {value = tensor bool[] (1)} input %x : f32[b,4] %y = If(%c, %x) {else_branch = graph \"e\" { "
       "input %a : ? %o = Relu(%a) output \"o\" = %o : ? }, octavo_captures = 1, then_branch = graph \"t\" { "
       "input %a : ? %o = ReduceSum(%a) output \"o\" = %o : ? }}",
       "f32[1,1]"},
      // A carried value that grows keeps its other dims; a scan output gets one slice per iteration.
      {"%n = Constant() {value = tensor s64[] (3)} input %x : f32[1,4] %y, %z = Loop(%n, _, %x, %x) {body = graph "
       "\"b\" { "
       "input %i : s64[] input %c : bool[] input %v : ? input %k : ? %w = Concat(%v, %k) {axis = 0} %r = Relu(%k) "
       "output \"c\" = %c : ? output \"v\" = %w : ? output \"s\" = %r : ? }, octavo_captures = 1}",
       "f32[?,4]", "f32[?,1,4]"},
      {"input %s : f32[4] input %x : f32[t,4] %y, %z = Scan(%s, %x) {body = graph \"b\" { input %a : ? input %e : ? "
       "%n = Add(%a, %e) output \"a\" = %n : ? output \"r\" = %n : ? }, num_scan_inputs = 1}",
       "f32[4]", "f32[t,4]"},
  };
  Check(cases);
}

// Elements of shape tensors.
// Each level's carried value grows, so that its loop is looked at again and again, and with `afresh` each time from a known shape.
GraphRef NestedLoops(size_t depth, bool afresh) {
  Graph g;
  const ValueId i = g.AddInput("i", {}), go = g.AddInput("go", {}), x = g.AddInput("x", {});
  ValueId y = g.node(g.AddNode(Op::kConcat, {x, x}, 1)).output();
  const ValueId k = afresh ? g.AddConstant(Tensor::Zeros(DType::kF32, {2, 3})) : y;
  if (depth > 1) {
    const Attrs attrs{{"body", NestedLoops(depth - 1, afresh)}};
    const ValueId inner = g.node(g.AddNode(Op::kLoop, {i, go, k}, 1, attrs)).output();
    y = g.node(g.AddNode(Op::kConcat, {y, inner}, 1)).output();
  }
  g.AddOutput("go", go);
  g.AddOutput("y", y);
  return std::make_shared<const Graph>(std::move(g));
}

Graph LoopOf(size_t depth, bool afresh = false) {
  Graph g;
  const ValueId n = g.AddInput("n", {DType::kS64, SymShape{}});
  const ValueId x = g.AddInput("x", {DType::kF32, SymShape{2, 3}});
  g.AddOutput("y", g.node(g.AddNode(Op::kLoop, {n, {}, x}, 1, {{"body", NestedLoops(depth, afresh)}})).output());
  return g;
}

// It would take years if each level doubled the time.
TEST(Infer, NestedLoopsCostNoMoreThanTheirNodes) {
  for (const bool afresh : {false, true}) {
    Graph g = LoopOf(60, afresh);
    const auto r = Inference::Run(g);
    ASSERT_TRUE(r.has_value()) << r.error().message;
    EXPECT_EQ(g.value(g.outputs()[0].value).type.dtype, DType::kF32);
    EXPECT_TRUE(DropFalseShapes(g).empty());
    EXPECT_TRUE(Verify(g).empty());
  }
  Graph shallow = LoopOf(2);
  ASSERT_TRUE(Inference::Run(shallow).has_value());
  EXPECT_EQ(ToString(shallow.value(shallow.outputs()[0].value).type), "f32[?,3]");
  Graph deep = LoopOf(70);
  const auto refused = Inference::Run(deep);
  ASSERT_FALSE(refused.has_value());
  EXPECT_THAT(refused.error().message, HasSubstr("nested deeper than 64"));
  EXPECT_FALSE(Verify(deep).empty());
}

TEST(Infer, Contents) {
  const std::pair<const char*, const char*> cases[] = {
      {"input %x : f32[b,s,4] %y = Shape(%x)", "[b,s,4]"},
      {"input %x : f32[b,s,4] %y = Shape(%x) {end = -1, start = 1}", "[s]"},
      {"input %x : f32[b,s,4] %y = Size(%x)", "[4*b*s]"},
      {"input %x : f32[b,?,4] %s = Shape(%x)" INTS("i", "2", "-1, 1") "%y = Gather(%s, %i)", "[4,?]"},
      {"input %x : f32[b,s,4] %s = Shape(%x)" INTS("i", "1", "1") "%y = GatherND(%s, %i)", "[s]"},
      {"input %x : f32[b,s,4] %s = Shape(%x)" INTS("a", "1", "-1") INTS("e", "1", "-9223372036854775808")
           INTS("d", "1", "0") INTS("t", "1", "-1") "%y = Slice(%s, %a, %e, %d, %t)",
       "[4,s,b]"},
      {"input %x : f32[b,s,4] %s = Shape(%x) %y = Cast(%s) {to = 6}", "[b,s,4]"},
      {"input %x : f32[b,s,4] %s = Shape(%x) %f = Cast(%s) {to = 1} %h = Constant() {value = tensor f32[] (2)} "
       "%g = Mul(%f, %h) %y = Cast(%g) {to = 7}",
       "[2*b,2*s,8]"},
      {"input %x : f32[b,s,4] %s = Shape(%x) %t = Constant() {value = tensor s64[] (-1)} %c = Equal(%s, %t) "
       "%o = Constant() {value = tensor s64[3] (1, 1, 1)} %y = Where(%c, %o, %s)",
       "[b,s,4]"},
      {"%s = Constant() {value = tensor s64[3] (-1, 5, 7)} %t = Constant() {value = tensor s64[] (-1)} %c = Equal(%s, "
       "%t) "
       "%o = Constant() {value = tensor s64[3] (1, 2, 3)} %y = Where(%c, %o, %s)",
       "[1,5,7]"},
      {"%a = Constant() {value = tensor s64[4] (-7, 7, -7, 7)} %b = Constant() {value = tensor s64[4] (2, -2, -2, 2)} "
       "%y = Div(%a, %b)",
       "[-3,-3,3,3]"},
      {"%a = Constant() {value = tensor s64[4] (-7, 7, -7, 7)} %b = Constant() {value = tensor s64[4] (2, -2, -2, 2)} "
       "%y = Mod(%a, %b)",
       "[1,-1,-1,1]"},
      {"%a = Constant() {value = tensor s64[4] (-7, 7, -7, 7)} %b = Constant() {value = tensor s64[4] (2, -2, -2, 2)} "
       "%y = Mod(%a, %b) {fmod = 1}",
       "[-1,1,-1,1]"},
      {"input %x : f32[12*b,s + 1] %s = Shape(%x) %t = Constant() {value = tensor s64[] (12)} %y = Div(%s, %t)",
       "[b,?]"},
      {"input %x : f32[b,s] input %w : f32[b,s + 2] %s = Shape(%x) %t = Shape(%w) %y = Max(%s, %t)", "[b,s + 2]"},
      {"input %x : f32[b,s] input %w : f32[b,s + 2] %s = Shape(%x) %t = Shape(%w) %y = Min(%s, %t)", "[b,s]"},
      {"input %x : f32[b,s,4] %s = Shape(%x) %y = ReduceProd(%s) {keepdims = 0}", "[4*b*s]"},
      {"input %x : f32[b,s,4] %s = Shape(%x) %y, %z, %w = Split(%s) {num_outputs = 3}", "[b]"},
      {"%a = Constant() {value = tensor s64[] (1)} %b = Constant() {value = tensor s64[] (8)} "
       "%c = Constant() {value = tensor s64[] (3)} %y = Range(%a, %b, %c)",
       "[1,4,7]"},
      {"input %x : f32[b,s] %s = Shape(%x) %r = Shape(%s) %y = ConstantOfShape(%r) {value = tensor s64[1] (1)}",
       "[1,1]"},
      {"input %x : f32[b,s] %s = Shape(%x) %y = Neg(%s)", "[-b,-s]"},
      {"input %x : f32[b,s] %s = Shape(%x) %z = Constant() {value = tensor s64[] (0)} %c = Less(%s, %z) %y = Not(%c)",
       "[1,1]"},
      {"%a = Constant() {value = tensor s32[] (2147483647)} %y = Add(%a, %a)", "[?]"},
      {"%a = Constant() {value = tensor u8[2] (200, 1)} %y = Add(%a, %a)", "[?,2]"},
      {"input %x : f32[b,s] %s = Shape(%x) %y = Cast(%s) {to = 3}", "[?,?]"},
      {"input %x : s64[2] input %b : f32[b,s] %s = Shape(%b) %y = Concat(%x, %s) {axis = 0}", "[?,?,b,s]"},
      {"input %x : s64[2] %y = Identity(%x)", "none"},
      {"input %x : f32[b,s] %s = Shape(%x) %y = Cast(%s) {to = 1}", "none"},  // floats are not for the passes
      // torch's pads: pairs reversed by a matrix on the way.
      {"%p = Constant() {value = tensor s64[6] (1, 2, 3, 4, 5, 6)}" INTS("t", "2", "-1, 2") "%m = Reshape(%p, %t)" INTS(
           "s", "1", "-1") INTS("e", "1", "-9223372036854775807") INTS("a", "1", "0")
           INTS("d", "1", "-1") "%r = Slice(%m, %s, %e, %a, %d) %u = Transpose(%r) {perm = [1, 0]}" INTS(
               "f", "1", "-1") "%y = Reshape(%u, %f)",
       "[5,3,1,6,4,2]"},
      {"%p = Constant() {value = tensor s64[2,2] (1, 2, 3, 4)} %y = Identity(%p)", "none"},  // rank 2: not for passes
      {"%p = Constant() {value = tensor s64[2,2] (1, 2, 3, 4)}" INTS("r", "2", "1, 2")
           INTS("f", "1", "-1") "%t = Tile(%p, %r) %y = Reshape(%t, %f)",
       "none"},
      {"%p = Constant() {value = tensor s64[2,1] (1, 2)}" INTS("q", "2", "10, 20")
           INTS("f", "1", "-1") "%t = Add(%p, %q) %y = Reshape(%t, %f)",
       "none"},  // a true outer sum: no list is told
  };
  for (const auto& [body, expected] : cases) {
    SCOPED_TRACE(body);
    auto g = ParseText(std::string("graph \"\" {") + body + "}");
    ASSERT_TRUE(g.has_value()) << g.error().message;
    const auto r = Inference::Run(*g);
    ASSERT_TRUE(r.has_value()) << r.error().message;
    const SymContents* c = r->Contents(g->FindValue("y"));
    EXPECT_EQ(c == nullptr ? "none" : ToString(*c), expected);
  }
}

TEST(Infer, PositionsOfATable) {
  const Case cases[] = {
      // BERT: position ids 0..seq of 512.
      {"input %x : s64[b,seq] input %t : s64[1,512] %s = Shape(%x)" INTS("o", "1", "1") "%n = Gather(%s, %o)" INTS(
           "z", "1", "0") "%y = Slice(%t, %z, %n, %o)",
       "s64[1,seq]"},
      // A causal triangle cut out behind the cache.
      {"input %q : f32[b,seq] input %p : f32[b,past] input %t : bool[1,1,99,99] %a = Shape(%q) {start = 1} "
       "%b = Shape(%p) {start = 1} %e = Add(%a, %b)" INTS("d", "1", "2") "%y = Slice(%t, %b, %e, %d)",
       "bool[1,1,seq,99]"},
      {"input %q : f32[b,past + seq] %a = Shape(%q) %i = Constant() {value = tensor s64[] (1)} %n = Gather(%a, %i) "
       "%z = Constant() {value = tensor s64[] (0)} %y = Range(%z, %n, %i)",
       "s64[past + seq]"},
      // The guard of Expand that TorchScript writes.
      {"input %x : f32[b,1,s] input %r : f32[b,h,s] %t = Shape(%r) %k = Shape(%t) "
       "%o = ConstantOfShape(%k) {value = tensor s64[1] (1)} %m = Constant() {value = tensor s64[] (-1)} "
       "%n = Mul(%o, %m) %e = Equal(%t, %n) %w = Where(%e, %o, %t) %y = Expand(%x, %w)",
       "f32[b,h,s]"},
  };
  Check(cases);
}

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
