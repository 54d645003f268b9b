// Products that store by heads: no step for the Reshape and the Transpose behind them, the interpreter's bits, and nothing of it where
// somebody else reads what lies between.
#include "octavo/runtime/by_heads.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "octavo/ir/interpret.h"
#include "octavo/runtime/model.h"

namespace octavo::runtime {
namespace {

constexpr int64_t kK = 48, kHeads = 3, kSize = 16, kN = kHeads * kSize;

class ByHeadsTest : public ::testing::Test {
 protected:
  Tensor Bytes(DType dtype, Shape shape, int lo, int hi) {
    Tensor t = Tensor::Empty(dtype, std::move(shape));
    std::uniform_int_distribution<int> of(lo, hi);
    for (size_t i = 0; i < t.byte_size(); ++i) t.mutable_data()[i] = static_cast<std::byte>(of(gen_));
    return t;
  }
  Tensor Floats(Shape shape, float lo, float hi) {
    Tensor t = Tensor::Empty(DType::kF32, std::move(shape));
    std::uniform_real_distribution<float> of(lo, hi);
    for (int64_t i = 0; i < t.size(); ++i) reinterpret_cast<float*>(t.mutable_data())[i] = of(gen_);
    return t;
  }
  ValueId Number(float v) {
    Tensor t = Tensor::Empty(DType::kF32, {});
    *reinterpret_cast<float*>(t.mutable_data()) = v;
    return g_.AddConstant(t);
  }
  // Codes of x, a product of `branches` outputs of which the first is u8 (one alone is f32).
  ir::NodeId Product(ir::SymShape x_shape, size_t branches, DType x_type = DType::kU8) {
    g_.info.opsets[""] = 18;
    const ValueId x = g_.AddInput("x", {x_type, std::move(x_shape)});
    const bool fp8 = x_type != DType::kU8;
    std::vector<ValueId> in = {x, Number(0.05f), g_.AddConstant(Bytes(x_type, {}, fp8 ? 0 : 110, fp8 ? 0 : 110))};
    for (size_t i = 0; i < branches; ++i) {
      in.push_back(g_.AddConstant(Bytes(fp8 ? x_type : DType::kS8, {kK, kN}, 0, fp8 ? 0x50 : 255)));
      in.push_back(g_.AddConstant(Floats({kN}, 0.001f, 0.01f)));
      in.push_back(g_.AddConstant(Floats({kN}, -1, 1)));
      const bool codes = i == 0 && branches > 1;
      in.push_back(codes ? Number(0.1f) : ValueId{});
      in.push_back(codes ? g_.AddConstant(Bytes(DType::kU8, {}, 128, 128)) : ValueId{});
    }
    return g_.AddNode(branches > 1 ? Op::kQuantizedQkv : Op::kQuantizedLinear, in, branches,
                      {{"activation", std::string("none")}}, "product");
  }
  // Float x times weights of 4 bits in blocks of 16; of that many heads.
  ValueId Blocked(ValueId x, int64_t n, int64_t x_bits) {
    const ValueId w = g_.AddConstant(Bytes(DType::kU4, {kK, n}, 0, 255));
    const ValueId zero = g_.AddConstant(Bytes(DType::kU4, {kK / 16, n}, 0, 255));
    return g_
        .node(g_.AddNode(Op::kLinearBlocked, {x, w, g_.AddConstant(Floats({kK / 16, n}, 0.01f, 0.1f)), zero}, 1,
                         {{"block_size", int64_t{16}}, {"x_bits", x_bits}}, "blocked"))
        .output();
  }
  ValueId Reshape(ValueId v, std::vector<int64_t> to) {
    const auto rank = static_cast<int64_t>(to.size());
    return g_.node(g_.AddNode(Op::kReshape, {v, g_.AddConstant(Tensor::S64({rank}, std::move(to)))}, 1, {}, "r"))
        .output();
  }
  ValueId Transpose(ValueId v, std::vector<int64_t> perm = {0, 2, 1, 3}) {
    return g_.node(g_.AddNode(Op::kTranspose, {v}, 1, {{"perm", std::move(perm)}}, "t")).output();
  }
  // Bits and steps, for both numbers of threads and the second run by its plan.
  void ExpectRuns(const Shape& x, bool transposes, DType x_type = DType::kU8) {
    const ir::TensorMap inputs = {{"x", Bytes(x_type, x, 0, x_type == DType::kU8 ? 255 : 0x50)}};
    const auto want = ir::Interpret(g_, inputs);
    ASSERT_TRUE(want) << want.error().message;
    for (const int threads : {1, 2}) {
      CompileOptions options{.threads = threads};
      if (x_type != DType::kU8) options.arch = kernels::Arch::kAvx2;  // AMX adds fp8 products in another order
      auto model = Model::Compile(g_, options);
      ASSERT_TRUE(model) << model.error().message;
      for (int run = 0; run < 2; ++run) {
        Profile profile;
        const auto got = model->Run(inputs, &profile);
        ASSERT_TRUE(got) << got.error().message;
        bool moved = false;
        for (const ProfileEvent& e : profile.events) moved |= e.kernel == "move Transpose";
        EXPECT_EQ(moved, transposes);
        ASSERT_EQ(got->size(), want->size());
        for (size_t i = 0; i < want->size(); ++i) ASSERT_TRUE((*got)[i].SameBits((*want)[i])) << "output " << i;
      }
    }
  }

  Graph g_;
  std::mt19937 gen_{1};
};

const ir::SymShape kTokens = {ir::Dim::Symbol("batch"), ir::Dim::Symbol("tokens"), ir::Dim(kK)};

TEST_F(ByHeadsTest, ProjectionsAndCaches) {
  const auto y = g_.node(Product(kTokens, 3)).outputs;
  g_.AddOutput("q", y[0]);
  const ValueId past = g_.AddInput("past", {DType::kF32, ir::SymShape{ir::Dim::Symbol("batch"), kHeads, 2, kSize}});
  const ValueId keys = Transpose(Reshape(y[1], {0, 0, kHeads, kSize}));
  g_.AddOutput("present", g_.node(g_.AddNode(Op::kConcat, {past, keys}, 1, {{"axis", int64_t{2}}}, "c")).output());
  g_.AddOutput("values", Transpose(Reshape(y[2], {0, 0, kHeads, kSize})));
  for (const Shape& x : {Shape{1, 1, kK}, Shape{2, 5, kK}, Shape{3, 40, kK}, Shape{4, 1, kK}}) {
    const ir::TensorMap inputs = {{"x", Bytes(DType::kU8, x, 0, 255)},
                                  {"past", Floats({x[0], kHeads, 2, kSize}, -1, 1)}};
    const auto want = ir::Interpret(g_, inputs);
    ASSERT_TRUE(want) << want.error().message;
    auto model = Model::Compile(g_, {.threads = 2});
    ASSERT_TRUE(model) << model.error().message;
    Profile profile;
    const auto got = model->Run(inputs, &profile);
    ASSERT_TRUE(got) << got.error().message;
    EXPECT_EQ(profile.events.size(), 1u);  // heads_tail.h
    for (size_t i = 0; i < want->size(); ++i) ASSERT_TRUE((*got)[i].SameBits((*want)[i])) << "output " << i;
  }
}

TEST_F(ByHeadsTest, OneLinear) {
  g_.AddOutput("y", Transpose(Reshape(g_.node(Product(kTokens, 1)).output(), {0, -1, kHeads, kSize})));
  ExpectRuns({2, 17, kK}, false);
  ExpectRuns({2, 0, kK}, false);
}

TEST_F(ByHeadsTest, Fp8) {
  g_.AddOutput("y", Transpose(Reshape(g_.node(Product(kTokens, 1, DType::kE4M3FN)).output(), {0, 0, kHeads, kSize})));
  ExpectRuns({2, 17, kK}, false, DType::kE4M3FN);
}

// Heads of a whole block of columns are stored in place, others in a copy; one product of the step has none.
TEST_F(ByHeadsTest, Blocked) {
  for (const int64_t x_bits : {0, 8}) {
    g_ = Graph();
    g_.info.opsets[""] = 21;
    const ValueId x = g_.AddInput("x", {DType::kF32, kTokens});
    g_.AddOutput("q", Transpose(Reshape(Blocked(x, 3 * 128, x_bits), {0, 0, 3, 128})));
    g_.AddOutput("k", Transpose(Reshape(Blocked(x, 2 * 64, x_bits), {0, 0, 2, 64})));
    g_.AddOutput("v", Transpose(Reshape(Blocked(x, 5 * 24, x_bits), {0, 0, 5, 24})));
    g_.AddOutput("gate", Blocked(x, 70, x_bits));
    for (const int threads : {1, 2}) {
      const auto model = Model::Compile(g_, {.threads = threads});
      ASSERT_TRUE(model) << model.error().message;
      EXPECT_EQ(model->KernelOfEachStep().size(), 1u);
      // 4 MB of codes are 32,736 rows of this k: the second part begins within a batch entry.
      for (const Shape& shape : {Shape{1, 1, kK}, Shape{3, 1, kK}, Shape{2, 7, kK}, Shape{1, 40, kK}, Shape{5, 13, kK},
                                 Shape{2, 0, kK}, Shape{3, 11001, kK}}) {
        if (shape[1] > 1000 && (x_bits == 0 || threads == 1)) continue;
        const ir::TensorMap inputs = {{"x", Floats(shape, -1, 1)}};
        const auto got = model->Run(inputs), again = model->Run(inputs);
        ASSERT_TRUE(got && again) << got.error().message;
        Graph rows = g_;  // the products' own outputs
        for (size_t i = 0; i < 3; ++i)
          rows.SetOutput(i, rows.node(rows.value(rows.outputs()[i].value).producer).input(0));
        const auto plain = Model::Compile(rows, {.threads = 1});
        ASSERT_TRUE(plain) << plain.error().message;
        const auto want = plain->Run(inputs);
        ASSERT_TRUE(want) << want.error().message;
        for (size_t i = 0; i < 4; ++i) {
          const Tensor& y = (*got)[i];
          ASSERT_TRUE(y.SameBits((*again)[i]));
          const Shape& s = (*want)[i].shape();
          if (i == 3) {
            ASSERT_TRUE(y.SameBits((*want)[i]));
            continue;
          }
          ASSERT_EQ(y.shape(), (Shape{s[0], s[2], s[1], s[3]}));
          for (int64_t line = 0; line < s[0] * s[1] * s[2]; ++line) {
            const int64_t row = line % s[1], head = line / s[1] % s[2],
                          from = (line / s[1] / s[2] * s[1] + row) * s[2] + head;
            const auto *a = y.as<float>().data() + line * s[3], *w = (*want)[i].as<float>().data() + from * s[3];
            ASSERT_EQ(std::memcmp(a, w, static_cast<size_t>(s[3]) * sizeof(float)), 0) << i << " " << line;
          }
        }
      }
    }
  }
}

TEST_F(ByHeadsTest, NotWhereSomebodyElseReads) {
  const ValueId rows = Reshape(g_.node(Product(kTokens, 1)).output(), {0, 0, kHeads, kSize});
  g_.AddOutput("y", Transpose(rows));
  g_.AddOutput("rows", rows);
  ExpectRuns({2, 17, kK}, true);
}

TEST_F(ByHeadsTest, NotForOtherMovements) {
  g_.AddOutput("y", Transpose(Reshape(g_.node(Product(kTokens, 1)).output(), {0, 0, kHeads, kSize}), {0, 2, 3, 1}));
  ExpectRuns({2, 17, kK}, true);
}

TEST_F(ByHeadsTest, NotWhereTheReshapeMovesTokens) {
  const ir::SymShape tokens = {ir::Dim(2), ir::Dim(6), ir::Dim(kK)};
  g_.AddOutput("y", Transpose(Reshape(g_.node(Product(tokens, 1)).output(), {3, 4, kHeads, kSize})));
  ExpectRuns({2, 6, kK}, true);
}

}  // namespace
}  // namespace octavo::runtime
