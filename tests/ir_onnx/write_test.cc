// Files: whole or not at all, names of outputs kept, same graph same bytes.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "octavo/ir/interpret.h"
#include "octavo/ir/onnx/onnx.h"
#include "octavo/tests/ir_onnx/compare.h"
#include "octavo/tests/ir_onnx/make_model.h"

namespace octavo::tests {
namespace {

namespace fs = std::filesystem;

ir::Graph Weights(size_t count) {
  ir::Graph g;
  g.name = "g";
  const ir::ValueId x = g.AddInput("x", {ir::DType::kF32, {{ir::Dim::Symbol("n")}}});
  std::vector<float> values(count);
  for (size_t i = 0; i < count; ++i) values[i] = static_cast<float>(i) * 0.5f;
  const ir::Tensor t = ir::Tensor::F32({static_cast<int64_t>(count)}, values);
  const ir::ValueId a = g.AddConstant(t, "a");
  const ir::ValueId tied = g.AddConstant(t.Reshaped({1, static_cast<int64_t>(count)}), "tied");
  const ir::ValueId b = g.AddConstant(ir::Tensor::F32({300}, std::vector<float>(300, 7.0f)), "b");
  const ir::ValueId s = g.AddConstant(ir::Tensor::ScalarF32(3.0f), "s");
  ir::ValueId v = x;
  for (ir::ValueId w : {a, tied, b, s}) v = g.node(g.AddNode(ir::Op::kAdd, {v, w}, 1)).output();
  g.AddOutput("y", v);
  return g;
}

TEST(Write, ExternalData) {
  TempFolder temp;
  const ir::Graph g = Weights(20000);
  const fs::path path = temp.path() / "m.onnx";
  ASSERT_TRUE(ir::onnx::WriteFile(g, path, {.inline_limit = 1000}));
  EXPECT_EQ(temp.Files(), (std::vector<std::string>{"m.onnx", "m.onnx.data"}));
  EXPECT_LT(fs::file_size(path), 2000U);
  EXPECT_EQ(fs::file_size(temp.path() / "m.onnx.data"), 80000U + 1200U) << "tied weights are stored once";
  const auto again = ir::onnx::ReadFile(path);
  ASSERT_TRUE(again) << again.error().message;
  const ir::Tensor* a = again->ConstantOf(again->FindValue("a"));
  EXPECT_EQ(a->buffer()->file(), "m.onnx.data");
  EXPECT_EQ(a->data(), again->ConstantOf(again->FindValue("tied"))->data());
  EXPECT_TRUE(a->SameBits(*g.ConstantOf(g.FindValue("a"))));
  EXPECT_EQ(again->ConstantOf(again->FindValue("b"))->GetDouble(299), 7.0);
  // Over itself: what is mapped is the old file until nobody reads it any more.
  const std::string bytes = ReadWhole(path), data = ReadWhole(temp.path() / "m.onnx.data");
  ASSERT_TRUE(ir::onnx::WriteFile(*again, path, {.inline_limit = 1000}));
  EXPECT_EQ(ReadWhole(path), bytes);
  EXPECT_EQ(ReadWhole(temp.path() / "m.onnx.data"), data);
  // Inline again.
  ASSERT_TRUE(ir::onnx::WriteFile(*again, temp.path() / "inline.onnx"));
  EXPECT_EQ(Difference(*again, *ir::onnx::ReadFile(temp.path() / "inline.onnx")), "");
}

TEST(Write, SameGraphSameBytes) {
  TempFolder temp;
  const ir::Graph g = Weights(1000);
  ASSERT_TRUE(ir::onnx::WriteFile(g, temp.path() / "a.onnx"));
  ASSERT_TRUE(ir::onnx::WriteFile(Weights(1000), temp.path() / "b.onnx"));
  EXPECT_EQ(ReadWhole(temp.path() / "a.onnx"), ReadWhole(temp.path() / "b.onnx"));
  EXPECT_EQ(ReadWhole(temp.path() / "a.onnx"), *ir::onnx::WriteBytes(g));
}

// ONNX has no Expand, Split or Concat of fp8: the file has Casts around them, and means the same.
TEST(Write, MovedFp8IsCast) {
  for (const ir::DType t : {ir::DType::kE4M3FN, ir::DType::kE5M2}) {
    ir::Graph g;
    g.info.opsets[""] = 19;
    std::vector<uint8_t> codes;
    for (int i = 0; i < 256; ++i) {
      if (t == ir::DType::kE4M3FN ? (i & 0x7f) != 0x7f : (i & 0x7f) <= 0x7c)
        codes.push_back(static_cast<uint8_t>(i));  // no NaN
    }
    const auto n = static_cast<int64_t>(codes.size());
    const ir::ValueId x = g.AddInput("x", {t, ir::SymShape{1, n}});
    const auto made = [&](ir::Op op, std::vector<ir::ValueId> in, ir::Shape shape, ir::Attrs attrs = {}) {
      const ir::ValueId v = g.node(g.AddNode(op, std::move(in), 1, std::move(attrs))).output();
      g.SetType(v, {t, ir::SymShape(shape.begin(), shape.end())});
      return v;
    };
    const ir::ValueId wide = made(ir::Op::kExpand, {x, g.AddConstant(ir::Tensor::S64({2}, {3, 1}))}, {3, n});
    const ir::ValueId both = made(ir::Op::kConcat, {x, wide}, {4, n}, {{"axis", int64_t{0}}});
    g.AddOutput("y", made(ir::Op::kTranspose, {both}, {n, 4}));
    const auto bytes = ir::onnx::WriteBytes(g);
    ASSERT_TRUE(bytes) << bytes.error().message;
    const auto again = ir::onnx::ReadBytes(*bytes);
    ASSERT_TRUE(again) << again.error().message;
    EXPECT_GE(again->info.opsets.at(""), 21);  // of Transpose
    int casts = 0, written = 0;
    for (ir::NodeId id : again->NodesInOrder()) casts += again->node(id).op == ir::Op::kCast;
    EXPECT_EQ(casts, 0) << "codes move again";
    for (size_t at = 0; (at = bytes->find("Cast", at)) != std::string::npos; ++at) ++written;
    EXPECT_GE(written, 5);
    const ir::TensorMap inputs{{"x", ir::Tensor::Of<uint8_t>(t, {1, n}, codes)}};
    const auto want = ir::Interpret(g, inputs), got = ir::Interpret(*again, inputs);
    ASSERT_TRUE(want && got);
    EXPECT_TRUE((*want)[0].SameBits((*got)[0]));
  }
}

// Casts of fp8 around a move that are not what octavo writes stay.
TEST(Write, OtherCastsOfFp8Stay) {
  const auto casts = [](int64_t saturate, bool read_twice, ir::DType to) {
    ir::Graph g;
    g.info.opsets[""] = 21;
    const auto made = [&](ir::Op op, std::vector<ir::ValueId> in, ir::DType t, ir::SymShape shape, ir::Attrs attrs) {
      const ir::ValueId v = g.node(g.AddNode(op, std::move(in), 1, std::move(attrs))).output();
      g.SetType(v, {t, std::move(shape)});
      return v;
    };
    const ir::ValueId x = g.AddInput("x", {ir::DType::kE4M3FN, ir::SymShape{3}});
    const ir::ValueId wide = made(ir::Op::kCast, {x}, ir::DType::kF32, {3}, {{"to", int64_t{1}}});
    const ir::ValueId moved =
        made(ir::Op::kUnsqueeze, {wide, g.AddConstant(ir::Tensor::S64({1}, {0}))}, ir::DType::kF32, {1, 3}, {});
    g.AddOutput("y",
                made(ir::Op::kCast, {moved}, to, {1, 3}, {{"to", static_cast<int64_t>(to)}, {"saturate", saturate}}));
    if (read_twice) g.AddOutput("z", moved);
    const auto again = ir::onnx::ReadBytes(*ir::onnx::WriteBytes(g));
    EXPECT_TRUE(again) << again.error().message;
    return std::ranges::count_if(again->NodesInOrder(),
                                 [&](ir::NodeId id) { return again->node(id).op == ir::Op::kCast; });
  };
  EXPECT_EQ(casts(0, false, ir::DType::kE4M3FN), 0);
  EXPECT_EQ(casts(1, false, ir::DType::kE4M3FN), 2);
  EXPECT_EQ(casts(0, true, ir::DType::kE4M3FN), 2);
  EXPECT_EQ(casts(0, false, ir::DType::kE5M2), 2);
}

TEST(Write, RefusedPlacesLeaveNothing) {
  TempFolder temp;
  const ir::Graph g = Weights(2000);
  const auto error = [&](const fs::path& path, int64_t limit = -1) {
    const auto s = ir::onnx::WriteFile(g, path, {.inline_limit = limit});
    return s ? std::string("was written") : s.error().message;
  };
  EXPECT_NE(error(temp.path() / "none" / "m.onnx").find("does not exist"), std::string::npos);
  EXPECT_NE(error(temp.path()).find("is a folder"), std::string::npos);
  EXPECT_NE(error(temp.path() / "m" / "").find("is a folder"), std::string::npos);
  fs::create_directory(temp.path() / "m.onnx.data");
  EXPECT_NE(error(temp.path() / "m.onnx", 0).find("the model's weights"), std::string::npos);
  EXPECT_EQ(temp.Files(), std::vector<std::string>{"m.onnx.data"}) << "no model without its weights";
  // A device that is always full: nothing is created, the device stays.
  if (fs::exists("/dev/full")) {
    EXPECT_NE(error("/dev/full").find("No space left"), std::string::npos);
    EXPECT_TRUE(fs::is_character_file("/dev/full"));
    EXPECT_FALSE(fs::exists("/dev/full.data"));
  }
  if (geteuid() != 0) {
    fs::create_directory(temp.path() / "locked");
    fs::permissions(temp.path() / "locked", fs::perms::owner_read | fs::perms::owner_exec);
    EXPECT_NE(error(temp.path() / "locked" / "m.onnx").find("Permission denied"), std::string::npos);
  }
}

TEST(Write, DevicesAndLinksAreNotReplaced) {
  TempFolder temp;
  ASSERT_TRUE(ir::onnx::WriteFile(Weights(10), "/dev/null", {.inline_limit = 0}));
  EXPECT_TRUE(fs::is_character_file("/dev/null"));
  WriteWhole(temp.path() / "target.onnx", "old");
  fs::create_symlink(temp.path() / "target.onnx", temp.path() / "link.onnx");
  ASSERT_TRUE(ir::onnx::WriteFile(Weights(10), temp.path() / "link.onnx"));
  EXPECT_TRUE(fs::is_symlink(temp.path() / "link.onnx"));
  EXPECT_GT(fs::file_size(temp.path() / "target.onnx"), 100U);
  EXPECT_EQ(temp.Files(), (std::vector<std::string>{"link.onnx", "target.onnx"}));
}

TEST(Write, OutputsKeepTheirNames) {
  ir::Graph g;
  g.name = "g";
  const ir::Type type{ir::DType::kF32, {{ir::Dim::Symbol("n")}}};
  const ir::ValueId x = g.AddInput("x", type);
  const ir::ValueId v = g.node(g.AddNode(ir::Op::kNeg, {x}, 1)).output();
  g.SetName(v, "b");
  g.SetType(v, type);
  const ir::ValueId other = g.node(g.AddNode(ir::Op::kAbs, {v}, 1)).output();
  g.SetName(other, "a");  // the name of an output that is bound to another value
  const ir::ValueId last = g.node(g.AddNode(ir::Op::kNeg, {other}, 1)).output();
  g.AddOutput("a", v);
  g.AddOutput("b", v);
  g.AddOutput("x", x);
  g.AddOutput("copy", x);
  g.AddOutput("last", last);
  const auto again = ir::onnx::ReadBytes(*ir::onnx::WriteBytes(g));
  ASSERT_TRUE(again) << again.error().message;
  ASSERT_EQ(again->outputs().size(), 5U);
  const std::vector<std::string> names = {"a", "b", "x", "copy", "last"};
  for (size_t i = 0; i < names.size(); ++i) EXPECT_EQ(again->outputs()[i].name, names[i]);
  EXPECT_TRUE(again->IsFrom(again->outputs()[1].value, ir::Op::kNeg)) << "b is the value that is called b";
  EXPECT_TRUE(again->IsFrom(again->outputs()[0].value, ir::Op::kIdentity));
  EXPECT_EQ(again->outputs()[2].value, again->inputs()[0]);
  EXPECT_TRUE(again->IsFrom(again->outputs()[3].value, ir::Op::kIdentity));
  EXPECT_TRUE(again->IsFrom(again->outputs()[4].value, ir::Op::kNeg));
  EXPECT_EQ(Defect(*again), "");
}

TEST(Write, NodeNamesAreUnique) {
  ir::Graph g;
  g.name = "g";
  ir::ValueId v = g.AddInput("x", {ir::DType::kF32, {{ir::Dim::Symbol("n")}}});
  for (int i = 0; i < 3; ++i) {
    const ir::NodeId id = g.AddNode(ir::Op::kNeg, {v}, 1, {}, "same");
    g.SetOrigin(id, {"same"});
    v = g.node(id).output();
  }
  g.AddOutput("y", v);
  const auto again = ir::onnx::ReadBytes(*ir::onnx::WriteBytes(g));
  ASSERT_TRUE(again) << again.error().message;
  std::vector<std::string> names;
  for (ir::NodeId id : again->NodesInOrder()) {
    names.push_back(again->node(id).name);
    EXPECT_EQ(again->node(id).origin, std::vector<std::string>{"same"});
  }
  EXPECT_EQ(names, (std::vector<std::string>{"same", "same_1", "same_2"}));
}

TEST(Write, OpsetIsRaisedToWhatIsUsed) {
  const auto opset_with = [](ir::Op op, size_t inputs) {
    ir::Graph g;
    g.info.opsets[""] = 14;
    const ir::ValueId x = g.AddInput("x", {ir::DType::kF32, {{ir::Dim::Symbol("n")}}});
    g.AddOutput("y", g.node(g.AddNode(op, std::vector<ir::ValueId>(inputs, x), 1)).output());
    onnx::ModelProto model;
    EXPECT_TRUE(model.ParseFromString(*ir::onnx::WriteBytes(g)));
    return model.opset_import(0).version();
  };
  EXPECT_EQ(opset_with(ir::Op::kNeg, 1), 18);
  EXPECT_EQ(opset_with(ir::Op::kGelu, 1), 20);
  EXPECT_EQ(opset_with(ir::Op::kAttention, 3), 23);
  EXPECT_EQ(opset_with(ir::Op::kAttention, 7), 24);
  EXPECT_EQ(opset_with(ir::Op::kSwish, 1), 24);
}

}  // namespace
}  // namespace octavo::tests
