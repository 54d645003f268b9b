// The version of octavo's own ops in files.
#include <gtest/gtest.h>

#include <format>

#include "octavo/ir/functions.h"
#include "octavo/ir/onnx/onnx.h"
#include "octavo/ir/onnx/opset.h"
#include "octavo/ir/sha256.h"

namespace octavo::tests {
namespace {

std::string WithVersion(int64_t version) {
  ir::Graph g;
  g.name = "g";
  const ir::ValueId x = g.AddInput("x", {ir::DType::kF32, {{ir::Dim::Symbol("n"), 8}}});
  const ir::ValueId scale = g.AddConstant(ir::Tensor::F32({8}, std::vector<float>(8, 1.0f)), "scale");
  const ir::NodeId norm = g.AddNode(ir::Op::kSkipLayerNorm, {x, x, scale, scale}, 1);
  g.SetAttr(norm, "epsilon", 1e-5f);
  g.AddOutput("y", g.node(norm).output());
  std::string bytes = ir::onnx::WriteBytes(g).value();
  const std::string here = std::string("\x0a\x06octavo\x10") + static_cast<char>(ir::onnx::kOctavoVersion);
  const size_t at = bytes.find(here);
  EXPECT_NE(at, std::string::npos);
  if (at != std::string::npos) bytes[at + here.size() - 1] = static_cast<char>(version);
  return bytes;
}

TEST(Domain, ANewerVersionIsRefused) {
  const auto same = ir::onnx::ReadBytes(WithVersion(ir::onnx::kOctavoVersion));
  ASSERT_TRUE(same) << same.error().message;
  EXPECT_EQ(same->info.opsets.at("octavo"), ir::onnx::kOctavoVersion);
  const auto newer = ir::onnx::ReadBytes(WithVersion(ir::onnx::kOctavoVersion + 6));
  ASSERT_FALSE(newer);
  EXPECT_NE(newer.error().message.find(std::format(
                "has octavo's ops of version {}, and this octavo knows them up to version {}: take a newer octavo",
                ir::onnx::kOctavoVersion + 6, ir::onnx::kOctavoVersion)),
            std::string::npos)
      << newer.error().message;
}

// Names, slots and attributes of the ops that files may have. A change of them is a new version as soon as one was released with the old.
TEST(Domain, ItsVersionIsThatOfItsOps) {
  std::string all;
  for (const ir::Op op : ir::FusedOps()) {
    const ir::OpInfo& info = ir::InfoOf(op);
    all += std::format("{} {} {} {} {}\n", info.name, info.min_inputs, info.max_inputs, info.min_outputs,
                       info.max_outputs);
  }
  for (const ir::FusedAttr& attr : ir::FusedAttrs()) all += std::format("{} {}\n", attr.name, attr.kind.index());
  ir::Sha256 hash;
  hash.Add(all);
  EXPECT_EQ(std::format("version {}: {}", ir::onnx::kOctavoVersion, hash.Hex().substr(0, 16)),
            "version 1: 092157233d24e3ed")
      << "octavo's ops have changed. Since the last release (CHANGELOG.md)? Then raise kOctavoVersion "
         "(ir/onnx/opset.h). They are now:\n"
      << all;
}

}  // namespace
}  // namespace octavo::tests
