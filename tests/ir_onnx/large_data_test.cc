// Initializers that stay in the mapped file: the same graph as protobuf's copies give, for every file.
#include "octavo/ir/onnx/large_data.h"

#include <gtest/gtest.h>

#include <random>

#include "make_model.h"
#include "octavo/ir/text.h"

namespace octavo::ir::onnx {
namespace {

using tests::ModelMaker;
using tests::TempFolder;

// Codes, floats at any place, a small one, bools that are no bools, and one with typed data.
ModelMaker Model(size_t odd) {
  ModelMaker m(18);
  m.graph().set_name(std::string(odd, 'n'));  // moves what follows
  m.Input("x", {"3"});
  m.Output("y", {"3"});
  m.Node("Relu", {"x"}, {"y"});
  std::mt19937 gen(5);
  const auto raw = [&](const std::string& name, std::vector<int64_t> dims, int type,
                       size_t bytes) -> ::onnx::TensorProto& {
    ::onnx::TensorProto& t = *m.graph().add_initializer();
    t.set_name(name), t.set_data_type(type);
    for (const int64_t d : dims) t.add_dims(d);
    std::string data(bytes, '\0');
    for (char& c : data) c = static_cast<char>(gen());
    t.set_raw_data(data);
    m.graph().add_output()->set_name(name);
    tests::SetValueInfo(*m.graph().mutable_output(m.graph().output_size() - 1), name, {}, type);
    return t;
  };
  raw("codes", {300, 300}, 3, 90000);
  raw("floats", {200, 100}, 1, 80000);
  raw("small", {10}, 1, 40);
  raw("flags", {70000}, 9, 70000);
  m.Floats("typed", {20000}, std::vector<float>(20000, 1.5f));
  return m;
}
Result<Graph> Read(const std::filesystem::path& path, bool map_data) { return ReadFile(path, {.map_data = map_data}); }
void ExpectSame(const Graph& a, const Graph& b) {
  EXPECT_EQ(ToText(a), ToText(b));
  const std::vector<NodeId> first = a.NodesInOrder(), second = b.NodesInOrder();
  ASSERT_EQ(first.size(), second.size());
  for (size_t i = 0; i < first.size(); ++i) {
    const Tensor *s = a.ConstantOf(a.node(first[i]).output()), *t = b.ConstantOf(b.node(second[i]).output());
    ASSERT_EQ(s == nullptr, t == nullptr);
    EXPECT_TRUE(s == nullptr || s->Hash() == t->Hash());
  }
}

TEST(LargeData, GraphsAreThoseOfCopies) {
  for (size_t odd = 0; odd < 4; ++odd) {
    const TempFolder folder;
    const auto path = folder.path() / "m.onnx";
    const std::string bytes = Model(odd).Bytes();
    tests::WriteWhole(path, bytes);
    const auto copied = Read(path, false), mapped = Read(path, true);
    ASSERT_TRUE(copied) << copied.error().message;
    ASSERT_TRUE(mapped) << mapped.error().message;
    ExpectSame(*copied, *mapped);
    EXPECT_EQ(copied->info.bytes, mapped->info.bytes);
    const auto without = WithoutLargeData(bytes, "m.onnx");
    ASSERT_TRUE(without);
    EXPECT_LT(without->size(), bytes.size() - 200000);
  }
}

TEST(LargeData, OthersAreLeftToProtobuf) {
  ModelMaker small(18);
  small.Floats("w", {2}, {1, 2});
  EXPECT_FALSE(WithoutLargeData(small.Bytes(), "m"));
  EXPECT_FALSE(WithoutLargeData("", "m"));
  EXPECT_FALSE(WithoutLargeData("no model", "m"));
  const std::string bytes = Model(0).Bytes();
  EXPECT_TRUE(WithoutLargeData(bytes, "m"));
  EXPECT_FALSE(WithoutLargeData(bytes + bytes, "m"));
  EXPECT_FALSE(WithoutLargeData(bytes.substr(0, bytes.size() - 1), "m"));
  for (size_t cut = 1; cut < 100; ++cut) EXPECT_FALSE(WithoutLargeData(bytes.substr(0, bytes.size() - cut * 997), "m"));
}

TEST(LargeData, DataThatStandsTwiceIsRefused) {
  const TempFolder folder;
  const auto path = folder.path() / "m.onnx";
  ModelMaker m = Model(0);
  m.graph().mutable_initializer(1)->add_float_data(1);
  tests::WriteWhole(path, m.Bytes());
  for (const bool map_data : {false, true}) {
    const auto graph = Read(path, map_data);
    ASSERT_FALSE(graph);
    EXPECT_NE(graph.error().message.find("it holds its data twice, raw and typed"), std::string::npos);
  }
}

// Whatever byte is wrong, both ways read the same, or refuse.
TEST(LargeData, DamagedFilesAreReadAlike) {
  const TempFolder folder;
  const auto path = folder.path() / "m.onnx";
  const std::string right = Model(1).Bytes();
  const uint32_t seed = std::random_device()();
  std::printf("seed %u\n", seed);
  std::mt19937 gen(seed);
  std::vector<size_t> structure;  // where no data is
  for (size_t at = 0; at < right.size(); ++at) {
    if (at < 150 || right.size() - at < 80300) structure.push_back(at);
  }
  for (int i = 0; i < 300; ++i) {
    std::string wrong = right;
    const size_t at = i < 150 ? static_cast<size_t>(i) : structure[gen() % structure.size()];
    wrong[at] = static_cast<char>(gen());
    tests::WriteWhole(path, wrong);
    const auto copied = Read(path, false), mapped = Read(path, true);
    EXPECT_EQ(copied.has_value(), mapped.has_value()) << at;
    if (copied && mapped) ExpectSame(*copied, *mapped);
  }
}

}  // namespace
}  // namespace octavo::ir::onnx
