// What a file declares is paid for by its bytes: each model here takes seconds or is refused in one sentence, with memory in proportion to
// its size. Without the bounds these take minutes or more memory than a machine has.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <chrono>
#include <cstdio>
#include <functional>

#include "octavo/ir/closed.h"
#include "octavo/ir/text.h"
#include "octavo/tests/ir_onnx/make_model.h"

namespace octavo::tests {
namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kMeasured = false;
#else
constexpr bool kMeasured = true;
#endif

double CpuSeconds() {
  rusage usage = {};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
         static_cast<double>(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6;
}
int64_t PeakBytes() {
  rusage usage = {};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_maxrss * 1024;
}

onnx::FunctionProto& Function(ModelMaker& m, const std::string& name) {
  auto& f = *m.model.add_functions();
  f.set_name(name), f.set_domain("f");
  f.add_input("a"), f.add_output("b");
  for (const char* domain : {"", "f"}) {
    auto* opset = f.add_opset_import();
    opset->set_domain(domain), opset->set_version(18);
  }
  return f;
}
onnx::NodeProto& Call(onnx::NodeProto& node, const std::string& op, const std::string& in, const std::string& out,
                      const std::string& domain) {
  node.set_op_type(op), node.set_domain(domain);
  node.add_input(in), node.add_output(out);
  return node;
}
// x -> Relu -> y, and the domain "f".
ModelMaker Plain() {
  ModelMaker m(18);
  m.Input("x", {"2"}).Output("y", {"2"});
  m.Node("Relu", {"x"}, {"y"});
  auto* opset = m.model.add_opset_import();
  opset->set_domain("f"), opset->set_version(1);
  return m;
}
void Calls(ModelMaker& m, int times, const std::string& name) {
  for (int i = 0; i < times; ++i) {
    Call(*m.graph().add_node(), "f0", "x", "z" + std::to_string(i), "f").set_name(name);
  }
}

struct Case {
  const char* name;
  std::function<void(ModelMaker&)> build;
  std::string refusal;  // part of the sentence; empty: it is read
};

TEST(Cost, IsBoundedByTheFile) {
  const std::string long_name(100'000, 'n');
  const std::vector<Case> cases = {
      {"functions that call the next one twice",
       [](auto& m) {
         for (int i = 0; i < 40; ++i) {
           auto& f = Function(m, "f" + std::to_string(i));
           const std::string next = i == 39 ? "Relu" : "f" + std::to_string(i + 1), domain = i == 39 ? "" : "f";
           Call(*f.add_node(), next, "a", "t", domain), Call(*f.add_node(), next, "t", "b", domain);
         }
         Calls(m, 1, "");
       },
       "raise max_nodes"},
      {"calls of one name",
       [](auto& m) {
         Call(*Function(m, "f0").add_node(), "Relu", "a", "b", "");
         Calls(m, 30'000, "same");
       },
       ""},
      {"a long name of a call of many nodes",
       [&](auto& m) {
         auto& f = Function(m, "f0");
         for (int i = 0; i < 100; ++i)
           Call(*f.add_node(), "Relu", "a", i == 0 ? "b" : "t" + std::to_string(i), "").set_name(long_name);
         Calls(m, 300, long_name.substr(0, 5000));
       },
       ""},
      {"a constant of a function of many calls",
       [](auto& m) {
         auto& f = Function(m, "f0");
         auto& constant = *f.add_node();
         constant.set_op_type("Constant"), constant.add_output("c");
         auto* value = constant.add_attribute();
         value->set_name("value"), value->set_type(onnx::AttributeProto::TENSOR);
         value->mutable_t()->set_data_type(1), value->mutable_t()->add_dims(50'000);
         value->mutable_t()->set_raw_data(std::string(200'000, '\1'));
         Call(*f.add_node(), "Relu", "a", "b", "");
         Calls(m, 5'000, "");
       },
       ""},
      {"numbers of a function of many calls",
       [](auto& m) {
         auto& node = Call(*Function(m, "f0").add_node(), "Strange", "a", "b", "f");
         Attr(node, "many", std::vector<int64_t>(100'000, 1));
         Calls(m, 20'000, "");
       },
       "raise max_nodes"},
      {"inputs of a function of many calls",
       [](auto& m) {
         auto& f = Function(m, "f0");
         Call(*f.add_node(), "Relu", "a", "b", "");
         for (int i = 0; i < 50'000; ++i) f.add_input("u" + std::to_string(i));
         Calls(m, 20'000, "");
       },
       "raise max_nodes"},
      {"symbols that become one when they are cleaned",
       [](auto& m) {
         for (int i = 0; i < 20'000; ++i) {
           auto* dim = m.graph().mutable_input(0)->mutable_type()->mutable_tensor_type()->mutable_shape();
           if (i == 0) dim->clear_dim();
           std::string name = "abcdefghijklmno";
           for (int bit = 0; bit < 15; ++bit) name[static_cast<size_t>(bit)] = (i >> bit) % 2 != 0 ? '!' : '?';
           m.Input("i" + std::to_string(i), {"a" + name});
         }
       },
       ""},
      {"unnamed dims of an input with a long name",
       [&](auto& m) { m.Input(std::string(1'000'000, 'i'), std::vector<std::string>(60, "?")); }, ""},
      {"a type of many dims", [](auto& m) { m.Input("i", std::vector<std::string>(100'000, "?")); },
       "100000 dimensions"},
      {"a node of a long name with many outputs",
       [&](auto& m) {
         auto& node = m.Node("Split", {"x"}, {}, long_name);
         for (int i = 0; i < 50'000; ++i) node.add_output("s" + std::to_string(i));
       },
       ""},
      {"attributes in descending order",
       [](auto& m) {
         auto& node = Call(*m.graph().add_node(), "Strange", "x", "s", "f");
         for (int i = 0; i < 50'000; ++i) Attr(node, std::format("a{:06}", 100'000 - i), int64_t{1});
       },
       ""},
      {"graphs that share what each of them reads",
       [](auto& m) {
         for (int i = 0; i < 10'000; ++i) m.Node("Relu", {"x"}, {"v" + std::to_string(i)});
         auto& node = Call(*m.graph().add_node(), "Strange", "x", "s", "f");
         for (int g = 0; g < 400; ++g) {
           auto& graph = SubgraphOf(node, "g" + std::to_string(g));
           std::vector<std::string> reads;
           for (int i = 0; i < 25; ++i) reads.push_back("v" + std::to_string(g * 25 + i));
           AddNode(graph, "Sum", reads, {"o"});
           graph.add_output()->set_name("o");
         }
       },
       "raise max_nodes"},
      {"constants of one name",
       [](auto& m) {
         for (int i = 0; i < 50'000; ++i) m.Floats("c", {1}, {1});
       },
       "'c' is defined twice"},
      {"domains",
       [](auto& m) {
         for (int i = 0; i < 100'000; ++i) {
           auto* opset = m.model.add_opset_import();
           opset->set_domain("d" + std::to_string(i)), opset->set_version(1);
         }
       },
       ""},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.name);
    ModelMaker m = Plain();
    c.build(m);
    const std::string bytes = m.Bytes();
    const double start = CpuSeconds();
    const auto g = ir::onnx::ReadBytes(bytes);
    if (g) (void)ir::ToText(*g, {.elide_constants_above = 16});
    const double seconds = CpuSeconds() - start;
    std::printf("%-50s %6.2f MB %5.1f s, at most %5.0f MB until now\n", c.name, static_cast<double>(bytes.size()) / 1e6,
                seconds, static_cast<double>(PeakBytes()) / 1e6);
    if (kMeasured) {
      EXPECT_LT(seconds, 20);
      EXPECT_LT(PeakBytes(), 1'000'000'000 + 4 * static_cast<int64_t>(bytes.size()));
    }
    if (c.refusal.empty()) {
      EXPECT_TRUE(g) << g.error().message;
    } else {
      ASSERT_FALSE(g);
      EXPECT_NE(g.error().message.find(c.refusal), std::string::npos) << g.error().message;
      EXPECT_LT(g.error().message.size(), 1000U);
    }
  }
}

// Two bytes a message: none of them may be allocated before they are weighed.
TEST(Cost, EmptyMessagesAreWeighedBeforeTheyAreParsed) {
  const std::string plain = Plain().Bytes();
  for (const char tag : {'\x0a', '\x2a'}) {  // a graph's nodes, constants
    std::string graph;
    for (int i = 0; i < 5'000'000; ++i) graph += {tag, '\0'};
    std::string length;
    for (size_t n = graph.size(); n != 0; n >>= 7) length += static_cast<char>((n & 127) | (n > 127 ? 128 : 0));
    const auto g = ir::onnx::ReadBytes(plain + "\x3a" + length + graph);  // merged with the graph that is there
    ASSERT_FALSE(g);
    EXPECT_TRUE(ir::LacksMemory(g.error())) << g.error().message;
    EXPECT_NE(g.error().message.find("raise max_memory"), std::string::npos);
  }
  if (kMeasured) {
    EXPECT_LT(PeakBytes(), 1'040'000'000);
  }
}

TEST(Cost, LimitsOfTheCallerCountAndStayInTheGraph) {
  ModelMaker m = Plain();
  for (int i = 0; i < 100; ++i) m.Node("Relu", {"x"}, {"v" + std::to_string(i)});
  const auto few = ir::onnx::ReadBytes(m.Bytes(), {.limits = {.max_nodes = 100}});
  ASSERT_FALSE(few);
  EXPECT_NE(few.error().message.find("more than 100 nodes; raise max_nodes if"), std::string::npos)
      << few.error().message;
  const auto read = ir::onnx::ReadBytes(m.Bytes(), {.limits = {.max_memory = 50'000'000, .max_nodes = 101}});
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(read->info.limits, (ir::Limits{.max_memory = 50'000'000, .max_nodes = 101}));
  EXPECT_EQ(read->info.bytes, static_cast<int64_t>(m.Bytes().size()));
  const auto small = ir::onnx::ReadBytes(m.Bytes(), {.limits = {.max_memory = 1000}});
  ASSERT_FALSE(small);
  EXPECT_TRUE(ir::LacksMemory(small.error())) << small.error().message;
}

TEST(Cost, DataBesideTheModelCountsAndIsNotNamedWithoutEnd) {
  TempFolder temp;
  WriteWhole(temp.path() / "data.bin", std::string(1'000'000, '\1'));
  const auto model = [&](int tensors, int64_t first, int64_t step) {
    ModelMaker m = Plain();
    for (int i = 0; i < tensors; ++i) {
      auto& t = *m.graph().add_initializer();
      t.set_name("w" + std::to_string(i)), t.set_data_type(1), t.add_dims(200'000);
      t.set_data_location(onnx::TensorProto::EXTERNAL);
      // Many spellings, one file.
      const std::string location = (i % 2 != 0 ? "./" : "") + std::string("data.bin");
      for (const auto& [key, value] :
           {std::pair<const char*, std::string>{"location", location}, {"offset", std::to_string(first + i * step)}}) {
        auto* entry = t.add_external_data();
        entry->set_key(key), entry->set_value(value);
      }
    }
    WriteWhole(temp.path() / "m.onnx", m.Bytes());
    return ir::onnx::ReadFile(temp.path() / "m.onnx");
  };
  const auto shared = model(20, 0, 4);  // 16 MB of 1 MB
  ASSERT_TRUE(shared) << shared.error().message;
  EXPECT_GT(shared->info.bytes, 1'000'000);
  EXPECT_LT(shared->info.bytes, 1'100'000);
  const auto often = model(10'000, 0, 4);
  ASSERT_FALSE(often);
  EXPECT_NE(often.error().message.find("more than 16 times"), std::string::npos) << often.error().message;
}

}  // namespace
}  // namespace octavo::tests
