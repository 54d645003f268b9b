// The modules of torch in the metadata of nodes: what is taken for one, and what fused nodes are told.
#include "octavo/ir/onnx/modules.h"

#include <gtest/gtest.h>

#include <format>

#include "octavo/tests/ir_onnx/make_model.h"

namespace octavo {
namespace {

using tests::ModelMaker;

constexpr const char *kScopes = "pkg.torch.onnx.name_scopes", *kClasses = "pkg.torch.onnx.class_hierarchy";

void Tell(onnx::NodeProto& node, const std::string& key, const std::string& value) {
  auto* entry = node.add_metadata_props();
  entry->set_key(key);
  entry->set_value(value);
}

void TellBoth(onnx::NodeProto& node, const std::string& scopes, const std::string& classes) {
  Tell(node, kScopes, scopes);
  Tell(node, kClasses, classes);
}

std::string Told(const onnx::NodeProto& node, std::string_view key) {
  for (const auto& entry : node.metadata_props()) {
    if (entry.key() == key) return entry.value();
  }
  return {};
}

// What a node of this metadata is called.
std::string NameOf(const std::vector<std::pair<std::string, std::string>>& metadata) {
  ModelMaker m(18);
  m.Input("x", {"n"}).Output("y", {"n"});
  onnx::NodeProto& node = m.Node("Neg", {"x"}, {"y"}, "neg");
  for (const auto& [key, value] : metadata) Tell(node, key, value);
  const ir::Graph g = m.Read();
  return ir::OriginName(g.node(g.first()));
}

std::string NameOf(const std::string& scopes, const std::string& classes) {
  return NameOf({{kScopes, scopes}, {kClasses, classes}});
}

TEST(Modules, StandBeforeTheNamesOfTheirNodes) {
  EXPECT_EQ(NameOf("['', 'a', 'a.b', 'neg']", "['M', 'A', 'B', 'aten.neg']"), "a.b/neg");
  EXPECT_EQ(NameOf(R"(['', "it's", 'neg'])", R"(['M', 'A\'s', 'aten.neg'])"), "it's/neg");
  EXPECT_EQ(NameOf("['', 'neg']", "['M', 'aten.neg']"), "neg");  // of the model itself
  ModelMaker m(18);
  m.Input("x", {"n"}).Output("y", {"n"});
  TellBoth(m.Node("Neg", {"x"}, {"y"}), "['', 'a', 'neg']", "['M', 'A', 'aten.neg']");
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

TEST(Modules, AreTakenFromTheNamespaceAlone) {
  // As torch 2.13 writes it for a layer of BERT, and onnxscript's builder, which leaves the node itself and the names before out.
  const auto of = [](const std::string& text) { return NameOf({{"namespace", text}}); };
  EXPECT_EQ(of(": m.BertModel/encoder: m.BertEncoder/encoder.layer.0: m.BertLayer/gelu: aten.gelu.default"),
            "encoder.layer.0/neg");
  EXPECT_EQ(of(": m.BertModel/neg: aten.neg.default"), "neg");
  for (const std::string& text :
       {std::string(), std::string("/"), std::string(": M"), std::string(": M/a"), std::string(": M/a: A/"),
        std::string(": M/encoder: E/layer.0: L/self: S"), std::string("_hook: _hook/a: A/neg: neg"),
        std::format(": M/{}: A/neg: neg", std::string(201, 'a'))}) {
    EXPECT_EQ(of(text), "neg") << text;
  }
  std::string deep = ": M/", path = "a";
  for (int i = 0; i < 17; ++i, path += ".a") deep += path + ": A/";
  EXPECT_EQ(of(deep + "neg: neg"), "neg");
  // The lists, where they are there, say more.
  EXPECT_EQ(
      NameOf({{kScopes, "['', 'a', 'neg']"}, {kClasses, "['M', 'A', 'neg']"}, {"namespace", ": M/b: B/neg: neg"}}),
      "a/neg");
}

// y = -x by the module a.b, z = |y| by a.c.d, both of which a fused node comes from.
ir::Graph Two() {
  ModelMaker m(18);
  m.Input("x", {"n"}).Output("z", {"n"});
  TellBoth(m.Node("Neg", {"x"}, {"y"}, "neg"), "['', 'a', 'a.b', 'neg']", "['M', 'A', 'B', 'neg']");
  TellBoth(m.Node("Abs", {"y"}, {"z"}, "abs"), "['', 'a', 'a.c', 'a.c.d', 'abs']", R"(['M', 'A\'s', 'C', 'D', 'abs'])");
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
