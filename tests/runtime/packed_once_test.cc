// Products that read one constant share what is packed of it, in the graphs of control flow too.
#include "octavo/runtime/packed_once.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <expected>
#include <filesystem>
#include <format>
#include <set>

#include "octavo/kernels/gemm/gemm.h"

namespace octavo::runtime {
namespace {

using ir::ValueId;

struct Packed {
  int number;
};

TEST(PackedOnce, OnceForOneMemoryAndOneWay) {
  const Graph graph;
  const std::vector<RtValue> constants;
  CompileOptions options;
  options.packed = std::make_shared<PackedWeightsSet>();
  const CompileContext c{graph, constants, kernels::Arch::kScalar, &options};
  int made = 0;
  const auto get = [&](const CompileContext& context, const Tensor& w, std::string how) {
    return PackedOnce<Packed>(context, {&w}, std::move(how),
                              [&] { return std::expected<Packed, std::string>(Packed{++made}); });
  };
  const Tensor a = Tensor::F32({2, 3}, {1, 2, 3, 4, 5, 6}), b = Tensor::F32({2, 3}, {1, 2, 3, 4, 5, 6});
  const auto first = get(c, a, "");
  EXPECT_EQ(get(c, a, ""), first);
  EXPECT_NE(get(c, a, "turned"), first);
  EXPECT_NE(get(c, a.Reshaped({3, 2}), ""), first);
  EXPECT_NE(get(c, b, ""), first);
  EXPECT_EQ(made, 4);
  const auto pair = [&](const Tensor* scale) {
    return PackedOnce<Packed>(c, {&a, scale}, "", [&] { return std::expected<Packed, std::string>(Packed{++made}); });
  };
  EXPECT_EQ(pair(&b), pair(&b));
  EXPECT_NE(pair(&b), pair(nullptr));
  EXPECT_EQ((PackedOnce<int>(c, {&a}, "", [] { return std::expected<int, std::string>(7); })),
            (PackedOnce<int>(c, {&a}, "", [] { return std::expected<int, std::string>(8); })));
  const auto refused = [&] { return std::expected<Packed, std::string>(std::unexpect, "no"); };
  EXPECT_EQ(PackedOnce<Packed>(c, {&a}, "refused", refused), nullptr);
  const CompileContext alone{graph, constants, kernels::Arch::kScalar};
  EXPECT_NE(get(alone, a, ""), get(alone, a, ""));
}

// Of a file that another may have written.
TEST(PackedOnce, MatricesAreThoseOfAllArrays) {
  const std::vector<int8_t> codes(8 * 4, 3);
  const kernels::WeightSource source{.data = codes.data(), .dtype = DType::kS8, .k = 8, .n = 4};
  std::vector<kernels::PackedWeights> packed;
  for (int i = 0; i < 2; ++i) packed.push_back(std::move(*kernels::PackWeights(source)));
  PackedFile::Arrays arrays = ArraysOf(packed);
  ASSERT_EQ(arrays.size(), 2 * kernels::PackedWeights::kArrays);
  const auto again = MatricesOf<kernels::PackedWeights>(arrays, 2, source);
  ASSERT_TRUE(again && again->size() == 2);
  EXPECT_EQ((*again)[1].data(), packed[1].data());
  EXPECT_EQ((*again)[1].column_sums()[3], 24);
  EXPECT_FALSE(MatricesOf<kernels::PackedWeights>(arrays, 1, source));
  EXPECT_FALSE(MatricesOf<kernels::PackedWeights>(arrays, 3, source));
  std::swap(arrays[0], arrays[1]);
  EXPECT_FALSE(MatricesOf<kernels::PackedWeights>(arrays, 2, source));
}

TEST(PackedOnce, AFileTellsApartTheWays) {
  const auto path = std::filesystem::temp_directory_path() / std::format("octavo_packed_once_test.{}", getpid());
  const std::vector<int8_t> codes(8 * 4, 3);
  const Tensor w = Tensor::Of<int8_t>(DType::kS8, {8, 4}, codes);
  const kernels::WeightSource source{.data = codes.data(), .dtype = DType::kS8, .k = 8, .n = 4};
  const Graph graph;
  const std::vector<RtValue> constants;
  const auto made = [&](std::initializer_list<const char*> ways) {
    CompileOptions options;
    options.packed = std::make_shared<PackedWeightsSet>();
    options.packed->file = std::move(*PackedFile::Open(path, "me", kernels::Arch::kScalar));
    const CompileContext c{graph, constants, kernels::Arch::kScalar, &options};
    for (const char* how : ways) {
      const auto packed = PackedOnce<kernels::PackedWeights>(
          c, {&w}, how, [&] { return kernels::PackWeights(source); },
          [&](const PackedFile::Arrays& arrays) { return kernels::PackedWeights::Of(source, arrays); });
      EXPECT_EQ(packed->column_sums()[3], 24);
    }
    return options.packed->file->Finish().made;
  };
  EXPECT_EQ(made({"a"}), 1);
  EXPECT_EQ(made({"a"}), 0);
  EXPECT_EQ(made({"a", "b", "b"}), 1);
  EXPECT_EQ(made({"b", "a"}), 0);
  std::filesystem::remove(path);
}

// What stands for a branch: x times w, with codes or floats.
ir::GraphRef Branch(const Tensor& w, bool negated) {
  auto g = std::make_shared<Graph>();
  const ValueId x = g->AddInput("x", {DType::kF32, ir::SymShape{ir::Dim(), w.shape()[0]}});
  const ValueId of = g->AddInput("w", {w.dtype(), ir::SymShape{w.shape()[0], w.shape()[1]}});
  ValueId y = g->node(g->AddNode(Op::kMatMul, {x, of}, 1)).output();
  if (negated) y = g->node(g->AddNode(Op::kNeg, {y}, 1)).output();
  g->AddOutput("y", y);
  return g;
}

TEST(PackedOnce, BranchesOfAnIfShareWhatTheyCapture) {
  Graph g;
  const ValueId flag = g.AddInput("flag", {DType::kBool, ir::SymShape{}});
  const ValueId x = g.AddInput("x", {DType::kF32, ir::SymShape{ir::Dim(), 8}});
  const Tensor w = Tensor::F32({8, 4}, std::vector<float>(32, 0.5f));
  const ValueId shared = g.AddConstant(w);
  g.AddOutput("y", g.node(g.AddNode(Op::kIf, {flag, x, shared}, 1,
                                    {{"then_branch", Branch(w, false)},
                                     {"else_branch", Branch(w, true)},
                                     {"octavo_captures", int64_t{2}}}))
                       .output());
  g.AddOutput("z", g.node(g.AddNode(Op::kMatMul, {x, shared}, 1)).output());
  CompileOptions options{.threads = 1};
  options.packed = std::make_shared<PackedWeightsSet>();
  auto model = Model::Compile(std::move(g), options);
  ASSERT_TRUE(model);
  EXPECT_EQ(options.packed->entries.size(), 1u);
  options.packed = nullptr;
  for (const bool then : {true, false}) {
    Tensor which = Tensor::Zeros(DType::kBool, {});
    which.mutable_as<uint8_t>()[0] = then;
    const auto out = model->Run({{"flag", which}, {"x", Tensor::F32({1, 8}, {1, 2, 3, 4, 5, 6, 7, 8})}});
    ASSERT_TRUE(out) << out.error().message;
    EXPECT_EQ((*out)[0].GetDouble(3), then ? 18 : -18);
    EXPECT_EQ((*out)[1].GetDouble(0), 18);
  }
}

}  // namespace
}  // namespace octavo::runtime
