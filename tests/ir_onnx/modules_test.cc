// The modules of torch in the metadata of nodes: what is taken for one, and what fused nodes are told.
#include "octavo/ir/onnx/modules.h"

#include <gtest/gtest.h>

#include <format>

#include "octavo/tests/ir_onnx/make_model.h"

namespace octavo {
namespace {

using tests::ModelMaker;

void Tell(onnx::NodeProto& node, const std::string& scopes, const std::string& classes) {
  for (const auto& [key, value] :
       {std::pair{"pkg.torch.onnx.name_scopes", scopes}, {"pkg.torch.onnx.class_hierarchy", classes}}) {
    auto* entry = node.add_metadata_props();
    entry->set_key(key);
    entry->set_value(value);
  }
}

std::string Told(const onnx::NodeProto& node, std::string_view key) {
  for (const auto& entry : node.metadata_props()) {
    if (entry.key() == key) return entry.value();
  }
  return {};
}

// What a node of this metadata is called.
std::string NameOf(const std::string& scopes, const std::string& classes) {
  ModelMaker m(18);
  m.Input("x", {"n"}).Output("y", {"n"});
  Tell(m.Node("Neg", {"x"}, {"y"}, "neg"), scopes, classes);
  const ir::Graph g = m.Read();
  return ir::OriginName(g.node(g.first()));
}

TEST(Modules, StandBeforeTheNamesOfTheirNodes) {
  EXPECT_EQ(NameOf("['', 'a', 'a.b', 'neg']", "['M', 'A', 'B', 'aten.neg']"), "a.b/neg");
  EXPECT_EQ(NameOf(R"(['', "it's", 'neg'])", R"(['M', 'A\'s', 'aten.neg'])"), "it's/neg");
  EXPECT_EQ(NameOf("['', 'neg']", "['M', 'aten.neg']"), "neg");  // of the model itself
  ModelMaker m(18);
  m.Input("x", {"n"}).Output("y", {"n"});
  Tell(m.Node("Neg", {"x"}, {"y"}), "['', 'a', 'neg']", "['M', 'A', 'aten.neg']");
  const ir::Graph g = m.Read();
  EXPECT_EQ(ir::OriginName(g.node(g.first())), "a/Neg(y)");
}

TEST(Modules, AreNotTakenFromWhatNoExporterWrites) {
  const std::string classes = "['M', 'A', 'neg']";
  for (const std::string& scopes :
       {std::string(), std::string("['"), std::string("['', 'a', 'neg'"), std::string("['', 'a' 'neg']"),
        std::string("['', a, 'neg']"), std::string("['', 'a', 'neg]"), std::string("['', 'a', 'b', 'neg']"),
        std::string("['_empty_nn_module_stack_from_metadata_hook', 'a', 'neg']"), std::string("['', 'a/b', 'neg']"),
        std::string("['', 'a\nb', 'neg']"), std::string("['', '\xff', 'neg']"), std::string("['', '', 'neg']"),
        std::format("['', '{}', 'neg']", std::string(201, 'a'))}) {
    EXPECT_EQ(NameOf(scopes, classes), "neg") << scopes;
  }
  EXPECT_EQ(NameOf("['', 'a', 'bc', 'neg']", "['M', 'A', 'B', 'neg']"), "neg");
  EXPECT_EQ(NameOf("['', 'a', 'ab', 'neg']", "['M', 'A', 'B', 'neg']"), "neg");
  EXPECT_EQ(NameOf("['', 'a', 'neg']", std::format("['M', '{}', 'neg']", std::string(201, 'A'))), "neg");
  std::string deep = "['', ", names = "['M', ", path = "a";
  for (int i = 0; i < 17; ++i, path += ".a") deep += "'" + path + "', ", names += "'A', ";
  EXPECT_EQ(NameOf(deep + "'neg']", names + "'neg']"), "neg");
}

// y = -x by the module a.b, z = |y| by a.c.d, both of which a fused node comes from.
ir::Graph Two() {
  ModelMaker m(18);
  m.Input("x", {"n"}).Output("z", {"n"});
  Tell(m.Node("Neg", {"x"}, {"y"}, "neg"), "['', 'a', 'a.b', 'neg']", "['M', 'A', 'B', 'neg']");
  Tell(m.Node("Abs", {"y"}, {"z"}, "abs"), "['', 'a', 'a.c', 'a.c.d', 'abs']", R"(['M', 'A\'s', 'C', 'D', 'abs'])");
  return m.Read();
}

onnx::NodeProto Written(const ir::Graph& g, int node) {
  onnx::ModelProto model;
  EXPECT_TRUE(model.ParseFromString(*ir::onnx::WriteBytes(g)));
  return model.graph().node(node);
}

TEST(Modules, AreToldToWhatComesFromThem) {
  ir::Graph g = Two();
  EXPECT_EQ(Told(Written(g, 0), "pkg.torch.onnx.name_scopes"), "['', 'a', 'a.b', 'neg']");
  EXPECT_EQ(Told(Written(g, 0), "namespace"), ": M/a: A/a.b: B/neg: Neg");
  EXPECT_EQ(Told(Written(g, 0), "octavo.origin"), "a.b/neg");
  EXPECT_EQ(Told(Written(g, 1), "pkg.torch.onnx.class_hierarchy"), "['M', 'A', 'C', 'D', 'Abs']");
  g.SetOrigin(g.first(), {"a.b/neg", "from no module", "a.c.d/abs", "pass:fuse"});
  EXPECT_EQ(Told(Written(g, 0), "pkg.torch.onnx.name_scopes"), "['', 'a', 'neg']");
  EXPECT_EQ(Told(Written(g, 0), "pkg.torch.onnx.class_hierarchy"), "['M', 'A', 'Neg']");
  g.SetOrigin(g.first(), {"from no module", "other/neg"});
  EXPECT_EQ(Told(Written(g, 0), "pkg.torch.onnx.name_scopes"), "");
}

TEST(Modules, SurviveTheFile) {
  ir::Graph g = Two();
  g.SetOrigin(g.first(), {"a.c.d/abs", "a.b/neg", "pass:fuse"});
  const auto bytes = ir::onnx::WriteBytes(g);
  ASSERT_TRUE(bytes);
  const auto again = ir::onnx::ReadBytes(*bytes);
  ASSERT_TRUE(again);
  EXPECT_EQ(again->node(again->first()).origin, g.node(g.first()).origin);
  EXPECT_EQ(*ir::onnx::WriteBytes(*again), *bytes);
}

TEST(Modules, OfAFileAreCheckedAgain) {
  for (const std::string& kept : {std::string("["), std::string("[1]"), std::string(R"({"a": 1, "": "M"})"),
                                  std::format(R"({{"a": "{}", "": "M"}})", std::string(201, 'A'))}) {
    ModelMaker m(18);
    m.Input("x", {"n"}).Output("y", {"n"});
    auto& node = m.Node("Neg", {"x"}, {"y"}, "neg");
    auto* origin = node.add_metadata_props();
    origin->set_key("octavo.origin");
    origin->set_value("a/neg");
    auto* entry = m.model.add_metadata_props();
    entry->set_key("octavo.modules");
    entry->set_value(kept);
    EXPECT_EQ(Told(Written(m.Read(), 0), "pkg.torch.onnx.name_scopes"), "") << kept;
  }
}

}  // namespace
}  // namespace octavo
