// Each node has its own fate in the report, whatever it is called: names that end alike, equal names, none.
#include <gtest/gtest.h>

#include <limits>

#include "octavo/api/optimize.h"
#include "octavo/passes/sources.h"

namespace octavo::api {
namespace {

using ir::DType;
using ir::Graph;
using ir::Op;
using ir::Tensor;
using ir::ValueId;

enum class Kind { kPlain, kInfinite, kF64 };

// Products in a row, each with a Relu of the same name behind it.
Graph Products(const std::vector<std::pair<std::string, Kind>>& products) {
  Graph g;
  g.info.opsets[""] = 18;
  ValueId x = g.AddInput("x", {DType::kF32, ir::SymShape{2, 16}});
  const auto node = [&](Op op, std::vector<ValueId> in, const std::string& name, ir::Attrs attrs = {}) {
    return g.node(g.AddNode(op, std::move(in), 1, std::move(attrs), name)).output();
  };
  const auto cast = [&](ValueId v, DType to) { return node(Op::kCast, {v}, "", {{"to", static_cast<int64_t>(to)}}); };
  for (const auto& [name, kind] : products) {
    std::vector<float> w(256, 0.25f);
    if (kind == Kind::kInfinite) w[7] = std::numeric_limits<float>::infinity();
    if (kind == Kind::kF64) x = cast(x, DType::kF64);
    const Tensor weights = kind == Kind::kF64
                               ? Tensor::Of<double>(DType::kF64, {16, 16}, std::vector<double>(w.begin(), w.end()))
                               : Tensor::F32({16, 16}, w);
    x = node(Op::kMatMul, {x, g.AddConstant(weights)}, name);
    if (kind == Kind::kF64) x = cast(x, DType::kF32);
    x = node(Op::kRelu, {x}, name);
  }
  g.AddOutput("y", x);
  return g;
}

ir::Result<Optimized> Dynamic(Graph g) {
  OptimizeOptions options;
  options.recipe = "dynamic";
  return Optimize(std::move(g), options);
}

void Expect(const std::vector<std::pair<std::string, Kind>>& products, const std::vector<std::string>& names) {
  const auto result = Dynamic(Products(products));
  ASSERT_TRUE(result) << result.error().message;
  std::vector<passes::Candidate> linears;
  for (const passes::Candidate& c : result->report.candidates) {
    if (c.kind == "linear") linears.push_back(c);
  }
  ASSERT_EQ(linears.size(), products.size());
  for (size_t i = 0; i < products.size(); ++i) {
    const passes::Candidate& c = linears[i];
    SCOPED_TRACE(names[i] + ": " + c.status + " " + c.reason);
    EXPECT_EQ(c.nodes[0], names[i]);
    const Kind kind = products[i].second;
    EXPECT_EQ(c.status, kind == Kind::kPlain ? "quantized" : "left");
    if (kind == Kind::kInfinite) {
      EXPECT_EQ(c.reason, "dynamic: " + names[i] + " stays float: its weight has values that are not finite");
    }
    if (kind == Kind::kF64) {
      EXPECT_EQ(c.reason, "its weights are f64, and float32 alone is quantized: store the model in fp32 first");
    }
  }
}

TEST(Names, OneEndsAsAnother) {
  Expect({{"fc", Kind::kF64}, {"block.fc", Kind::kInfinite}}, {"fc", "block.fc"});
  Expect({{"block.fc", Kind::kInfinite}, {"fc", Kind::kF64}}, {"block.fc", "fc"});
  Expect({{"fc", Kind::kPlain}, {"a fc", Kind::kInfinite}}, {"fc", "a fc"});
}

TEST(Names, Equal) {
  Expect({{"fc", Kind::kPlain}, {"fc", Kind::kInfinite}}, {"fc", "fc (2)"});
  Expect({{"fc", Kind::kInfinite}, {"fc", Kind::kPlain}, {"fc", Kind::kF64}}, {"fc", "fc (2)", "fc (3)"});
  Expect({{"fc", Kind::kInfinite}, {"fc (2)", Kind::kPlain}, {"fc", Kind::kF64}}, {"fc", "fc (2)", "fc (3)"});
}

TEST(Names, None) {
  Graph g = Products({{"", Kind::kInfinite}, {"", Kind::kPlain}});
  const auto result = Dynamic(g);
  ASSERT_TRUE(result) << result.error().message;
  std::vector<std::string> names, statuses;
  for (const passes::Candidate& c : result->report.candidates) {
    if (c.kind != "linear") continue;
    names.push_back(c.nodes[0]);
    statuses.push_back(c.status);
  }
  ASSERT_EQ(names.size(), 2u);
  EXPECT_NE(names[0], names[1]);
  EXPECT_TRUE(names[0].starts_with("MatMul(")) << names[0];
  EXPECT_EQ(statuses, (std::vector<std::string>{"left", "quantized"}));
}

TEST(Names, KeepFloatByTheGivenNameOrByOne) {
  const Graph g = Products({{"fc", Kind::kPlain}, {"fc", Kind::kPlain}});
  for (const auto& [keep, quantized] : {std::pair{"fc", 0}, {"fc (2)", 1}}) {
    OptimizeOptions options;
    options.recipe = "dynamic", options.keep_float = {keep};
    const auto result = Optimize(g, options);
    ASSERT_TRUE(result) << result.error().message;
    EXPECT_EQ(result->report.linear.done, quantized) << keep;
    for (const passes::Candidate& c : result->report.candidates) {
      if (c.kind == "linear") {
        EXPECT_EQ(c.reason, c.status == "left" ? "stays float, as asked" : "") << c.nodes[0];
      }
    }
  }
}

TEST(Names, GivenName) {
  EXPECT_EQ(passes::GivenName("fc (2)"), "fc");
  for (const char* whole : {"fc", "fc(2)", "fc ()", "fc (two)", "MatMul(y)", ""})
    EXPECT_EQ(passes::GivenName(whole), whole);
}

TEST(Names, ByModules) {
  for (const auto& [source, path] : std::vector<std::pair<const char*, const char*>>{
           {"/encoder/layer.0/attention/self/query/MatMul", "encoder.layer.0.attention.self.query/MatMul"},
           {"/mlp/mlp.0/Gemm", "mlp.0/Gemm"},
           {"/a/a.0/a.0.1/MatMul", "a.0.1/MatMul"},
           {"/a/ab/MatMul", "a.ab/MatMul"},
           {"/a/a/MatMul", "a.a/MatMul"},
           {"//m/a/MatMul", "m.a/MatMul"},
           {"/a/MatMul (2)", "a/MatMul (2)"},
           {"/MatMul", ""},
           {"///MatMul", ""},
           {"/", ""},
           {"a/MatMul", ""},
           {"encoder.layer.0.query/node_MatMul_66", ""},
           {"", ""}})
    EXPECT_EQ(passes::ByModules(source), path) << source;
}

TEST(Names, KeepFloatByModules) {
  const Graph g = Products({{"/encoder/layer.0/fc/MatMul", Kind::kPlain},
                            {"/encoder/layer.0/fc/MatMul", Kind::kPlain},
                            {"/encoder/layer.10/fc/MatMul", Kind::kPlain}});
  for (const auto& [keep, quantized] : {std::pair{"encoder.layer.0.*", 1},
                                        {"encoder.layer.*", 0},
                                        {"encoder.layer.0.fc/MatMul", 1},
                                        {"*.layer.10.*", 2},
                                        {"/encoder/layer.0/*", 1}}) {
    OptimizeOptions options;
    options.recipe = "dynamic", options.keep_float = {keep};
    const auto result = Optimize(g, options);
    ASSERT_TRUE(result) << result.error().message;
    EXPECT_EQ(result->report.linear.done, quantized) << keep;
  }
}

}  // namespace
}  // namespace octavo::api
