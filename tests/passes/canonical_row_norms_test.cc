// row_norms: norms as Keras 2 and jax2onnx write them become chains over the last axis; other moments, other scales and other guards stay.
#include "canonical_support.h"

namespace octavo::passes::canonical {
namespace {

// Values below 2, normalized: 8 terms, whose sums may round in another order, 2^-21 each, over a deviation of 0.03 at least.
constexpr double kRounding = 1e-4;

struct Form {
  Ints rows = {1, -1, 8, 1};
  float count = 8, one = 1, zero = 0;
  int64_t training = 0;
};

// Keras 2: each row of x [b,s,8] is a channel of a batch of one picture.
Graph BatchNorm(const Form& form) {
  Builder b;
  const ValueId x = b.In("x", {Sym("b"), Sym("s"), 8});
  const ValueId rows = b.Reshape(x, form.rows);
  const ValueId mean = b.Op1(Op::kReduceMean, {rows, b.Axis({0, 2, 3})}, {{"keepdims", int64_t{1}}});
  const ValueId d = b.Op1(Op::kSub, {rows, mean});
  const ValueId squares = b.Op1(Op::kReduceSumSquare, {d, b.Axis({0, 2, 3})}, {{"keepdims", int64_t{0}}});
  const ValueId variance = b.Op1(Op::kDiv, {squares, b.F(form.count)});
  const ValueId flat = b.Op1(Op::kSqueeze, {mean, b.Axis({0, 2, 3})});
  const auto filled = [&](float v) { return b.Op1(Op::kExpand, {b.F(v), b.Op1(Op::kShape, {flat})}); };
  const ValueId norm = b.Op1(Op::kBatchNormalization, {rows, filled(form.one), filled(form.zero), flat, variance},
                             {{"epsilon", 1e-3f}, {"training_mode", form.training}});
  b.Out(b.Op1(Op::kReshape, {norm, b.Concat({b.DimOf(x, 0), b.DimOf(x, 1), b.Axis({8})})}));
  return b.g;
}

TEST(CanonicalRowNorms, ABatchNormOfRowsIsOneOfTheLastAxis) {
  EXPECT_EQ(Check(BatchNorm({}), Canonicalize, kRounding), "ReduceMean Sub Mul ReduceMean Add Sqrt Div");
}

TEST(CanonicalRowNorms, OtherMomentsStay) {
  for (const Form& form : {Form{.rows = {1, -1, 4, 1}}, Form{.count = 7}, Form{.one = 2}, Form{.zero = 1}}) {
    const std::string ops = Check(BatchNorm(form), RowNorms);
    EXPECT_EQ(Count(ops, "BatchNormalization"), 1u) << ops;
  }
}

// jax2onnx: what is centered is zero where the row has one value alone; the variance is computed in double.
Graph GuardedNorm(bool of_rows, float zero = 0) {
  Builder b;
  const ValueId x = b.In("x", {Sym("b"), Sym("s"), 8});
  const ValueId c = b.In("c", {Sym("b"), Sym("s"), of_rows ? 1 : 8}, DType::kBool);
  const ValueId mean = b.Op1(Op::kReduceMean, {x, b.Axis({2})}, {{"keepdims", int64_t{1}}});
  const ValueId d = b.Op1(Op::kWhere, {c, b.F(zero), b.Op1(Op::kSub, {x, mean})});
  const ValueId wide = b.Op1(Op::kReduceMean, {b.Cast(b.Op1(Op::kMul, {d, d}), DType::kF64), b.Axis({2})});
  const ValueId root = b.Op1(Op::kSqrt, {b.Op1(Op::kAdd, {b.Cast(wide, DType::kF32), b.F(1e-3f)})});
  b.Out(b.Op1(Op::kDiv, {d, root}));
  return b.g;
}

TEST(CanonicalRowNorms, AGuardOfRowsMovesInFront) {
  EXPECT_EQ(Check(GuardedNorm(true), RowNorms, kRounding), "Where ReduceMean Sub Mul ReduceMean Add Sqrt Div");
}

TEST(CanonicalRowNorms, AGuardOfElementsStays) {
  for (const auto& graph : {GuardedNorm(false), GuardedNorm(true, 1), GuardedNorm(true, -0.0f)}) {
    const std::string ops = Check(graph, RowNorms, kRounding);
    EXPECT_EQ(ops.substr(0, 20), "ReduceMean Sub Where") << ops;
  }
}

// A mean in double of anything but squares keeps its precision.
TEST(CanonicalRowNorms, AMeanInDoubleStays) {
  Builder b;
  const ValueId x = b.In("x", {Sym("b"), Sym("s"), 8}), y = b.In("y", {Sym("b"), Sym("s"), 8});
  b.Out(b.Cast(b.Op1(Op::kReduceMean, {b.Cast(b.Op1(Op::kMul, {x, y}), DType::kF64), b.Axis({-1})}), DType::kF32));
  EXPECT_EQ(Check(b.g, RowNorms), "Mul Cast ReduceMean Cast");
}

}  // namespace
}  // namespace octavo::passes::canonical
