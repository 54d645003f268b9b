// Products that store by heads: no step for the Reshape and the Transpose behind them, the interpreter's bits, and nothing of it where
// somebody else reads what lies between.
#include "octavo/runtime/by_heads.h"

#include <gtest/gtest.h>

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
    EXPECT_EQ(profile.events.size(), 2u);  // the product and the Concat
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
