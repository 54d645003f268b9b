// Rows times the matrices that a Gather takes for them are one step, in every form that exporters write, and say what the single nodes say. Operands
// are small whole numbers, so sums are exact in every order.
#include <gtest/gtest.h>

#include <vector>

#include "octavo/quant/numeric/float16.h"
#include "octavo/runtime/model.h"

namespace octavo::runtime {
namespace {

using ir::DType;
using ir::Op;
using ir::Shape;
using ir::Tensor;
using ir::ValueId;

constexpr int64_t kExperts = 5, kDepth = 35, kWidth = 70;

struct Form {
  size_t slot = 1;  // of the weights in the product
  int flips = 0;    // Transposes of the last two dims
  DType codes = DType::kF32;
  bool tuples = false;  // GatherND
  DType index = DType::kS64;
  bool cast_last = false, shown = false;
  DType by = DType::kUndefined;  // a type on the way
};

ValueId Made(ir::Graph& g, Op op, std::vector<ValueId> in, ir::Attrs attrs = {}) {
  return g.node(g.AddNode(op, std::move(in), 1, std::move(attrs))).output();
}

Tensor WholeNumbers(Shape shape, DType type, uint32_t state) {
  Tensor t = Tensor::Zeros(type, std::move(shape));
  for (int64_t i = 0; i < t.size(); ++i) {
    state = state * 1664525 + 1013904223;
    const int v = static_cast<int>(state >> 24) % 15 - (type == DType::kU8 ? 0 : 7);
    if (type == DType::kF16) t.mutable_as<uint16_t>()[static_cast<size_t>(i)] = quant::F32ToF16(static_cast<float>(v));
    if (type == DType::kBF16)
      t.mutable_as<uint16_t>()[static_cast<size_t>(i)] = quant::F32ToBF16(static_cast<float>(v));
    if (type == DType::kF32) t.mutable_as<float>()[static_cast<size_t>(i)] = static_cast<float>(v);
    if (type == DType::kS8) t.mutable_as<int8_t>()[static_cast<size_t>(i)] = static_cast<int8_t>(v);
    if (type == DType::kU8) t.mutable_as<uint8_t>()[static_cast<size_t>(i)] = static_cast<uint8_t>(v < 0 ? -v : v);
  }
  return t;
}

ir::Graph Product(const Form& f, int64_t x_rank, int64_t index_rank) {
  ir::Graph g;
  const auto any = [](int64_t rank, std::string name) {
    ir::SymShape s;
    for (int64_t i = 0; i < rank; ++i) s.push_back(ir::Dim::Symbol(name + std::to_string(i)));
    return s;
  };
  ir::SymShape of_index = any(index_rank, "i");
  if (f.tuples) of_index.back() = 1;
  const ValueId x = g.AddInput("x", {DType::kF32, any(x_rank, "x")}), index = g.AddInput("index", {f.index, of_index});
  const bool transposed = (f.slot == 0) != (f.flips % 2 == 1);
  ValueId w = g.AddConstant(
      WholeNumbers(transposed ? Shape{kExperts, kWidth, kDepth} : Shape{kExperts, kDepth, kWidth}, f.codes, 7));
  w = f.tuples ? Made(g, Op::kGatherND, {w, index}) : Made(g, Op::kGather, {w, index}, {{"axis", int64_t{0}}});
  const auto to = [&](DType type) { w = Made(g, Op::kCast, {w}, {{"to", static_cast<int64_t>(type)}}); };
  const auto cast = [&] {
    if (f.by != DType::kUndefined) to(f.by), to(DType::kF32);
    if (f.codes != DType::kF32) to(DType::kF32);
  };
  if (!f.cast_last) cast();
  const int64_t rank = index_rank - (f.tuples ? 1 : 0) + 2;
  std::vector<int64_t> perm;
  for (int64_t i = 0; i < rank; ++i) perm.push_back(i);
  std::swap(perm[perm.size() - 1], perm[perm.size() - 2]);
  for (int i = 0; i < f.flips; ++i) w = Made(g, Op::kTranspose, {w}, {{"perm", perm}});
  if (f.cast_last) cast();
  if (f.shown) g.AddOutput("w", w);
  g.AddOutput("y", Made(g, Op::kMatMul, f.slot == 0 ? std::vector{w, x} : std::vector{x, w}));
  return g;
}

Tensor Indices(const Form& f, Shape shape, std::vector<int64_t> which) {
  if (f.tuples) shape.push_back(1);
  Tensor t = Tensor::Zeros(f.index, std::move(shape));
  for (int64_t i = 0; i < t.size(); ++i) {
    const int64_t e = which[static_cast<size_t>(i) % which.size()];
    if (f.index == DType::kS32)
      t.mutable_as<int32_t>()[static_cast<size_t>(i)] = static_cast<int32_t>(e);
    else
      t.mutable_as<int64_t>()[static_cast<size_t>(i)] = e;
  }
  return t;
}

// The kernel that served, whose outputs, or sentence, are those of the interpreter. "": several steps.
std::string Served(const Form& f, const Shape& x, const Shape& index,
                   const std::vector<int64_t>& which = {3, 0, 3, 1, 4, 4}) {
  std::string name;
  for (const int threads : {1, 3}) {
    const auto graph = [&] {
      return Product(f, static_cast<int64_t>(x.size()), static_cast<int64_t>(index.size()) + (f.tuples ? 1 : 0));
    };
    auto plain = Model::Compile(graph(), {.threads = 1, .kernels = false});
    auto model = Model::Compile(graph(), {.threads = threads});
    EXPECT_TRUE(plain && model);
    if (!plain || !model) return {};
    const ir::TensorMap inputs = {{"x", WholeNumbers(x, DType::kF32, 3)}, {"index", Indices(f, index, which)}};
    for (int run = 0; run < 2; ++run) {  // the second one by a plan
      const auto want = plain->Run(inputs), got = model->Run(inputs);
      EXPECT_EQ(want.has_value(), got.has_value()) << (got ? "" : got.error().message);
      if (want && got) {
        for (size_t i = 0; i < want->size(); ++i) EXPECT_TRUE((*got)[i].SameBits((*want)[i])) << i;
      } else if (!want && !got) {
        const auto said = [](const std::string& s) { return s.substr(s.find("): ")); };  // behind the kernel's name
        EXPECT_EQ(said(got.error().message), said(want.error().message));
      }
    }
    const auto names = model->KernelOfEachStep();
    name = names.size() == 1 ? std::string(names[0]) : "";
  }
  return name;
}

TEST(ExpertProducts, OneStepForAllForms) {
  for (const DType codes : {DType::kF32, DType::kF16, DType::kBF16, DType::kS8, DType::kU8}) {
    const std::string name = quant::IsFloat(codes) ? "experts_f32" : "experts_int8";
    for (const bool tuples : {false, true}) {
      for (const int flips : {0, 1, 2}) {
        for (const int64_t tokens : {1, 6, 40, 150}) {
          SCOPED_TRACE(testing::Message()
                       << quant::Name(codes) << " tuples " << tuples << " flips " << flips << " tokens " << tokens);
          const Form f{.flips = flips, .codes = codes, .tuples = tuples, .cast_last = flips == 1};
          EXPECT_EQ(Served(f, {tokens, 1, kDepth}, {tokens}), name);
          EXPECT_EQ(
              Served({.slot = 0, .flips = flips, .codes = codes, .tuples = tuples}, {tokens, kDepth, 1}, {tokens}),
              name);
        }
      }
    }
  }
}

TEST(ExpertProducts, SeveralRowsAndDims) {
  EXPECT_EQ(Served({}, {6, 3, kDepth}, {6}), "experts_f32");
  EXPECT_EQ(Served({.codes = DType::kS8}, {2, 3, 4, kDepth}, {2, 3}), "experts_int8");
  EXPECT_EQ(Served({.codes = DType::kS8}, {9, kDepth}, {}), "experts_int8");  // one expert for all
  EXPECT_EQ(Served({.codes = DType::kS8}, {2, 9, kDepth}, {}), "experts_int8");
  EXPECT_EQ(Served({.codes = DType::kS8, .index = DType::kS32}, {6, 1, kDepth}, {6}), "experts_int8");
  EXPECT_EQ(Served({}, {0, 1, kDepth}, {0}), "experts_f32");
  EXPECT_EQ(Served({.codes = DType::kS8}, {300, 1, kDepth}, {300}, {2}), "experts_int8");  // in order, of one expert
}

TEST(ExpertProducts, NegativeIndicesCountFromTheEnd) {
  EXPECT_EQ(Served({.codes = DType::kS8}, {6, 1, kDepth}, {6}, {-1, 0, -5, 2}), "experts_int8");
}

TEST(ExpertProducts, OthersAreWhatTheSingleNodesSay) {
  EXPECT_EQ(Served({}, {6, 1, kDepth}, {6}, {5}), "experts_f32");  // no such expert
  EXPECT_EQ(Served({}, {6, 1, kDepth}, {6}, {-6, 0}), "experts_f32");
  EXPECT_EQ(Served({}, {1, 1, kDepth}, {6}), "experts_f32");  // one row for all experts
  EXPECT_EQ(Served({}, {2, 6, 1, kDepth}, {6}), "experts_f32");
  EXPECT_EQ(Served({}, {kDepth}, {6}), "experts_f32");
  EXPECT_EQ(Served({.slot = 0}, {6, kDepth, 3}, {6}), "experts_f32");  // three columns
  EXPECT_EQ(Served({.slot = 0}, {kDepth, 3}, {}), "experts_f32");
  EXPECT_EQ(Served({}, {6, 1, kDepth + 1}, {6}), "experts_f32");  // does not fit
  EXPECT_EQ(Served({.shown = true}, {6, 1, kDepth}, {6}), "");
  EXPECT_EQ(Served({.by = DType::kS8}, {6, 1, kDepth}, {6}), "");  // rounded on the way
}

}  // namespace
}  // namespace octavo::runtime
