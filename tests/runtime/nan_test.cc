// A NaN in Q or K gives NaN by kernels exactly where it does by the interpreter, in every form of the attention and on every Arch; a row
// that is masked wholly gives what the guard says.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "octavo/ir/functions.h"
#include "octavo/runtime/model.h"

namespace octavo::runtime {
namespace {

using ir::DType;
using ir::Tensor;

constexpr int64_t kHeads = 2, kSize = 8;
constexpr float kInf = std::numeric_limits<float>::infinity();

struct Case {
  int64_t rows, keys, guard;
  bool flash, window, keep, mask;
  std::string Name() const {
    return std::to_string(rows) + " rows, " + std::to_string(keys) + " keys, guard " + std::to_string(guard) +
           (flash ? ", flash" : "") + (window ? ", window" : "") + (keep ? ", bool mask" : "") + (mask ? ", mask" : "");
  }
};

ir::Graph GraphOf(const Case& c) {
  ir::Graph g;
  g.info.opsets[""] = 21;
  const auto input = [&](const char* name, int64_t heads, int64_t rows) {
    return g.AddInput(name, {DType::kF32, ir::SymShape{1, heads, rows, kSize}});
  };
  std::vector<ir::ValueId> in = {input("q", kHeads, c.rows), input("k", 1, c.keys), input("v", 1, c.keys)};
  in.push_back(c.mask ? g.AddInput("mask", {DType::kF32, ir::SymShape{c.rows, c.keys}}) : ir::ValueId{});
  in.push_back(c.keep ? g.AddInput("keep", {DType::kBool, ir::SymShape{c.rows, c.keys}}) : ir::ValueId{});
  while (!in.back().valid()) in.pop_back();
  ir::Attrs attrs = {{"num_heads", kHeads},
                     {"kv_num_heads", int64_t{1}},
                     {"head_dim", kSize},
                     {"v_head_dim", kSize},
                     {"scale", 0.35f}};
  attrs.Set("nan_guard", c.guard), attrs.Set("flash", int64_t{c.flash});
  if (c.window)
    attrs.Set("window_left", int64_t{40}), attrs.Set("window_right", int64_t{3}), attrs.Set("bottom_right", int64_t{1});
  g.AddOutput("y", g.node(g.AddNode(ir::Op::kSdpa, std::move(in), 1, attrs)).output());
  return g;
}

Tensor Random(std::mt19937& gen, ir::Shape shape) {
  std::normal_distribution<float> normal;
  Tensor t = Tensor::Zeros(DType::kF32, std::move(shape));
  for (float& x : t.mutable_as<float>()) x = normal(gen);
  return t;
}

// The last row but one is hidden wholly, by both masks.
ir::TensorMap Inputs(const Case& c, uint32_t seed) {
  std::mt19937 gen(seed);
  ir::TensorMap inputs = {{"q", Random(gen, {1, kHeads, c.rows, kSize})},
                          {"k", Random(gen, {1, 1, c.keys, kSize})},
                          {"v", Random(gen, {1, 1, c.keys, kSize})}};
  const auto gone = static_cast<size_t>(c.rows - 2);
  if (c.mask) {
    Tensor& t = inputs["mask"] = Tensor::Zeros(DType::kF32, {c.rows, c.keys});
    for (int64_t j = 0; j < c.keys && c.rows > 1; ++j)
      t.mutable_as<float>()[gone * static_cast<size_t>(c.keys) + static_cast<size_t>(j)] = -kInf;
    for (size_t i = 5; i < static_cast<size_t>(c.keys); i += 7) t.mutable_as<float>()[i] = -kInf;
  }
  if (c.keep) {
    Tensor& t = inputs["keep"] = Tensor::Zeros(DType::kBool, {c.rows, c.keys});
    auto* bytes = reinterpret_cast<uint8_t*>(t.mutable_data());
    for (size_t i = 0; i < static_cast<size_t>(t.size()); ++i) {
      bytes[i] = c.rows > 1 && i / static_cast<size_t>(c.keys) == gone ? 0 : i % 5 != 2;
    }
  }
  return inputs;
}

void ExpectSameNan(const Case& c, const Model& model, const Model& plain, const ir::TensorMap& inputs, int* nan) {
  const auto got = model.Run(inputs), want = plain.Run(inputs);
  ASSERT_TRUE(got.has_value() && want.has_value());
  for (int64_t i = 0; i < (*want)[0].size(); ++i) {
    const double a = (*want)[0].GetDouble(i), b = (*got)[0].GetDouble(i);
    ASSERT_EQ(std::isnan(a), std::isnan(b)) << "row " << i / kSize % c.rows;
    *nan += std::isnan(a);
    if (!std::isnan(a)) {
      ASSERT_NEAR(a, b, c.flash ? 1e-5 * (1 + std::fabs(a)) : 2e-6 * (1 + std::fabs(a)));
    }
  }
}

TEST(Nan, InQOrKIsWhereTheInterpreterHasIt) {
  int nan = 0;
  for (const kernels::Arch arch : kernels::SupportedArchs()) {
    for (int bits = 0; bits < 16; ++bits) {
      for (const int64_t guard : {int64_t{0}, int64_t{1}, ir::kSdpaGuardMasked}) {
        for (const auto& [rows, keys] : {std::pair{int64_t{1}, int64_t{70}}, {3, 600}, {13, 70}, {13, 600}}) {
          const Case c = {rows, keys, guard, (bits & 1) != 0, (bits & 2) != 0, (bits & 4) != 0, (bits & 8) != 0};
          SCOPED_TRACE(c.Name() + " on " + std::string(Name(arch)));
          const auto model = Model::Compile(GraphOf(c), {.arch = arch, .threads = 2});
          const auto plain = Model::Compile(GraphOf(c), {.threads = 1, .kernels = false});
          ASSERT_TRUE(model.has_value() && plain.has_value());
          ASSERT_EQ(model->KernelOfEachStep()[0].find("sdpa_f32"), 0u);
          const auto seed = static_cast<uint32_t>(bits + rows);
          ExpectSameNan(c, *model, *plain, Inputs(c, seed), &nan);
          for (const auto& [name, row] :
               {std::pair{"q", rows - 1}, {"q", std::max<int64_t>(rows - 2, 0)}, {"k", keys - 1}, {"k", keys / 2}}) {
            ir::TensorMap odd = Inputs(c, seed);
            odd[name].mutable_as<float>()[static_cast<size_t>(row * kSize + 3)] = std::nanf("");
            ExpectSameNan(c, *model, *plain, odd, &nan);
          }
          if (HasFailure()) return;
        }
      }
    }
  }
  EXPECT_GT(nan, 1000);
}

}  // namespace
}  // namespace octavo::runtime
