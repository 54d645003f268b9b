// What files of the world do to a reader: one sentence each, never a crash, never an allocation of what is not there.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <random>

#include "octavo/ir/onnx/onnx.h"
#include "octavo/ir/verify.h"
#include "octavo/tests/ir_onnx/compare.h"
#include "octavo/tests/ir_onnx/make_model.h"

namespace octavo::tests {
namespace {

namespace fs = std::filesystem;

// y = MatMul(x, w) + b
ModelMaker Small() {
  ModelMaker m(17);
  m.Input("x", {"n", "3"}).Output("y", {"n", "2"});
  m.Floats("w", {3, 2}, {1, 2, 3, 4, 5, 6});
  m.Floats("b", {2}, {7, 8});
  m.Node("MatMul", {"x", "w"}, {"p"}, "product");
  m.Node("Add", {"p", "b"}, {"y"}, "sum");
  return m;
}

// One sentence that names the place: no line break, and every part of `parts` in it.
void ExpectError(const std::string& sentence, const std::vector<std::string>& parts) {
  EXPECT_EQ(sentence.find('\n'), std::string::npos) << sentence;
  for (const std::string& p : parts) EXPECT_NE(sentence.find(p), std::string::npos) << "'" << p << "' in: " << sentence;
}

TEST(Hostile, SmallIsFine) {
  const ir::Graph g = Small().Read();
  EXPECT_EQ(Ops(g), "MatMul Add");
  EXPECT_EQ(Defect(g), "");
}

TEST(Hostile, TruncatedAnywhere) {
  const std::string bytes = Small().Bytes();
  for (size_t n = 0; n < bytes.size(); ++n) {
    const auto g = ir::onnx::ReadBytes(bytes.substr(0, n));
    // A cut between two fields of the model leaves a shorter, well-formed message: then a part is missing.
    if (g) {
      ADD_FAILURE() << "read after " << n << " of " << bytes.size() << " bytes";
    } else {
      ExpectError(g.error().message, {"the model: "});
    }
  }
}

TEST(Hostile, FlippedBytes) {
  const uint32_t seed = 20260301;
  std::printf("seed %u\n", seed);
  std::mt19937 random(seed);
  const std::string bytes = Small().Bytes();
  int refused = 0;
  for (int round = 0; round < 20000; ++round) {
    std::string broken = bytes;
    const int flips = 1 + static_cast<int>(random() % 4);
    for (int i = 0; i < flips; ++i) broken[random() % broken.size()] = static_cast<char>(random());
    const auto g = ir::onnx::ReadBytes(broken);
    if (!g) {
      ++refused;
      ExpectError(g.error().message, {});
      continue;
    }
    EXPECT_EQ(Defect(*g), "");
    const auto again = ir::onnx::WriteBytes(*g);
    EXPECT_TRUE(!again || ir::onnx::ReadBytes(*again)) << ir::onnx::ReadBytes(*again).error().message;
  }
  EXPECT_GT(refused, 5000);
}

TEST(Hostile, FlippedBytesOfARealModel) {
  const fs::path folder = fs::path(OCTAVO_SOURCE_DIR) / "tests" / "data" / "models";
  const uint32_t seed = 77;
  std::printf("seed %u\n", seed);
  std::mt19937 random(seed);
  for (const char* name : {"x_if_computed.onnx", "x_function.onnx"}) {
    const std::string bytes = ReadWhole(folder / name);
    ASSERT_GT(bytes.size(), 1000U) << name;
    for (int round = 0; round < 500; ++round) {
      std::string broken = bytes;
      // Most bytes are weights; the structure lies at the front.
      for (int i = 0; i < 3; ++i)
        broken[random() % std::min<size_t>(broken.size(), 20000)] = static_cast<char>(random());
      const auto g = ir::onnx::ReadBytes(broken);
      if (g) {
        EXPECT_EQ(Defect(*g), "");
        (void)ir::VerifyStatus(*g);
      }
    }
  }
}

struct Case {
  const char* name;
  std::function<void(ModelMaker&)> spoil;
  std::vector<std::string> parts;
};

TEST(Hostile, OneSentenceEach) {
  const std::vector<Case> cases = {
      {"cycle", [](auto& m) { m.graph().mutable_node(0)->set_input(0, "y"); }, {"cycle", "'product'"}},
      {"undefined input",
       [](auto& m) { m.graph().mutable_node(0)->set_input(0, "nobody"); },
       {"'product' (MatMul)", "'nobody'", "nothing defines"}},
      {"undefined output", [](auto& m) { m.graph().mutable_output(0)->set_name("nobody"); }, {"output 'nobody'"}},
      {"unknown element type",
       [](auto& m) { m.graph().mutable_initializer(0)->set_data_type(99); },
       {"initializer 'w'", "element type 99"}},
      {"complex numbers", [](auto& m) { m.graph().mutable_initializer(0)->set_data_type(14); }, {"'w'", "COMPLEX64"}},
      {"other element type",
       [](auto& m) { m.graph().mutable_initializer(0)->set_data_type(7); },
       {"'w'", "0 values", "[3,2] asks for 6"}},
      {"input of unknown type",
       [](auto& m) { m.graph().mutable_input(0)->mutable_type()->mutable_tensor_type()->set_elem_type(14); },
       {"input 'x'", "COMPLEX64"}},
      {"input without type",
       [](auto& m) { m.graph().mutable_input(0)->clear_type(); },
       {"input 'x'", "without a type"}},
      {"sequence",
       [](auto& m) {
         auto* type = m.graph().mutable_input(0)->mutable_type();
         type->mutable_sequence_type()->mutable_elem_type()->mutable_tensor_type()->set_elem_type(1);
       },
       {"input 'x'", "a sequence"}},
      {"negative dim", [](auto& m) { m.graph().mutable_initializer(0)->set_dims(0, -3); }, {"'w'", "negative"}},
      {"huge dims",
       [](auto& m) {
         m.graph().mutable_initializer(0)->set_dims(0, int64_t{1} << 40);
         m.graph().mutable_initializer(0)->set_dims(1, int64_t{1} << 40);
       },
       {"'w'", "larger than any tensor"}},
      {"huge dim, no data",
       [](auto& m) { m.graph().mutable_initializer(0)->set_dims(0, int64_t{1} << 40); },
       {"'w'", "6 values"}},
      {"huge dims and a zero",
       [](auto& m) {
         auto* t = m.graph().mutable_initializer(0);
         t->set_dims(0, int64_t{1} << 62), t->set_dims(1, int64_t{1} << 62), t->add_dims(0);
       },
       {"'w'", "larger than any tensor"}},
      {"huge strings",
       [](auto& m) {
         auto* t = m.graph().mutable_initializer(0);
         t->set_data_type(8), t->clear_float_data(), t->set_dims(0, int64_t{1} << 40);
       },
       {"'w'", "0 values"}},
      {"raw data too short",
       [](auto& m) {
         m.graph().mutable_initializer(0)->clear_float_data();
         m.graph().mutable_initializer(0)->set_raw_data("12345");
       },
       {"'w'", "5 bytes", "takes 24"}},
      {"data twice",
       [](auto& m) { m.graph().mutable_initializer(0)->set_raw_data(std::string(24, 'x')); },
       {"'w'", "twice"}},
      {"segment",
       [](auto& m) { m.graph().mutable_initializer(0)->mutable_segment()->set_begin(0); },
       {"'w'", "segments"}},
      {"duplicate initializer", [](auto& m) { m.graph().mutable_initializer(1)->set_name("w"); }, {"'w'", "twice"}},
      {"duplicate value", [](auto& m) { m.graph().mutable_node(0)->set_output(0, "y"); }, {"'y'", "twice"}},
      {"node makes an input", [](auto& m) { m.graph().mutable_node(0)->set_output(0, "x"); }, {"'x'", "twice"}},
      {"node makes an initializer", [](auto& m) { m.graph().mutable_node(0)->set_output(0, "b"); }, {"'b'", "twice"}},
      {"duplicate input", [](auto& m) { m.Input("x", {"n", "3"}); }, {"'x'", "twice"}},
      {"duplicate output", [](auto& m) { m.Output("y", {"n", "2"}); }, {"'y'", "twice"}},
      {"no output", [](auto& m) { m.graph().clear_output(); }, {"no outputs"}},
      {"no graph", [](auto& m) { m.model.clear_graph(); }, {"no graph"}},
      {"opset from the future",
       [](auto& m) { m.model.mutable_opset_import(0)->set_version(999); },
       {"opset 999", "1 to 28"}},
      {"opset of the past", [](auto& m) { m.model.mutable_opset_import(0)->set_version(0); }, {"opset 0", "1 to 28"}},
      {"no opset", [](auto& m) { m.model.clear_opset_import(); }, {"which opset"}},
      {"no opset of ONNX", [](auto& m) { m.model.mutable_opset_import(0)->set_domain("other"); }, {"no opset of ONNX"}},
      {"too few inputs",
       [](auto& m) { m.graph().mutable_node(0)->mutable_input()->RemoveLast(); },
       {"'product'", "1 inputs"}},
      {"input left out",
       [](auto& m) { m.graph().mutable_node(0)->set_input(0, ""); },
       {"'product'", "leaves out input 0"}},
      {"condition left out, and a branch that reads from outside",
       [](auto& m) {
         auto& n = *m.graph().mutable_node(1);
         n.set_op_type("If"), n.clear_input();
         auto& branch = *n.add_attribute();
         branch.set_name("then_branch"), branch.set_type(onnx::AttributeProto::GRAPH);
         auto& inner = *branch.mutable_g()->add_node();
         inner.set_op_type("Relu"), inner.add_input("x"), inner.add_output("r");
         branch.mutable_g()->add_output()->set_name("r");
       },
       {"'sum'", "0 inputs"}},
      {"a carried value left out",
       [](auto& m) {
         auto& n = *m.graph().mutable_node(1);
         n.set_op_type("Loop"), n.clear_input();
         for (const char* input : {"", "", "", "x"}) n.add_input(input);
       },
       {"'sum'", "leaves out input 2"}},
      {"a branch with an input of its own",
       [](auto& m) {
         auto& n = *m.graph().mutable_node(1);
         n.set_op_type("If"), n.clear_input(), n.add_input("x");
         auto& branch = *n.add_attribute();
         branch.set_name("else_branch"), branch.set_type(onnx::AttributeProto::GRAPH);
         branch.mutable_g()->add_input()->set_name("own");
         branch.mutable_g()->add_output()->set_name("own");
       },
       {"'sum'", "its graph 'else_branch' has 1 inputs of its own, 0 are given"}},
      {"vendor op without an input",
       [](auto& m) {
         auto& n = *m.graph().mutable_node(0);
         n.set_domain("com.microsoft"), n.set_op_type("BiasGelu"), n.set_input(1, "");
       },
       {"'product'", "1 inputs"}},
      {"too many inputs", [](auto& m) { m.graph().mutable_node(1)->add_input("x"); }, {"'sum'", "3 inputs"}},
      {"too many outputs", [](auto& m) { m.graph().mutable_node(1)->add_output("more"); }, {"'sum'", "2 outputs"}},
      {"no op type", [](auto& m) { m.graph().mutable_node(0)->clear_op_type(); }, {"'product'", "no op type"}},
      {"attribute twice",
       [](auto& m) {
         Attr(*m.graph().mutable_node(0), "a", int64_t{1}), Attr(*m.graph().mutable_node(0), "a", int64_t{2});
       },
       {"'product'", "'a'", "twice"}},
      {"attribute of no such name",
       [](auto& m) { Attr(*m.graph().mutable_node(1), "axis", int64_t{1}); },
       {"'sum'", "attribute 'axis', which Add does not know"}},
      {"attribute of another kind",
       [](auto& m) {
         m.graph().mutable_node(1)->set_op_type("Concat");
         Attr(*m.graph().mutable_node(1), "axis", 0.0f);
       },
       {"'sum'", "its attribute 'axis' is a float; Concat takes an integer"}},
      {"attribute without type",
       [](auto& m) { m.graph().mutable_node(0)->add_attribute()->set_name("a"); },
       {"'product'", "'a'", "no type"}},
      {"list of graphs",
       [](auto& m) {
         auto* a = m.graph().mutable_node(0)->add_attribute();
         a->set_name("a"), a->set_type(onnx::AttributeProto::GRAPHS);
       },
       {"'product'", "'a'", "list of graphs"}},
      {"sparse initializer",
       [](auto& m) { m.graph().add_sparse_initializer()->mutable_values()->set_name("s"); },
       {"'s'", "sparse"}},
      {"empty constant", [](auto& m) { m.Node("Constant", {}, {"c"}, "c"); }, {"'c'", "no value"}},
      {"name with control bytes",
       [](auto& m) { m.graph().mutable_node(0)->set_input(0, "a\nb\x01"); },
       {"'a\\x0ab\\x01'"}},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.name);
    ModelMaker m = Small();
    c.spoil(m);
    ExpectError(m.Error(), c.parts);
  }
}

// --- external data ---------------------------------------------------------------------------------------------

ModelMaker External(const std::string& location, const std::string& offset = "", const std::string& length = "") {
  ModelMaker m = Small();
  auto* w = m.graph().mutable_initializer(0);
  w->clear_float_data();
  w->set_data_location(onnx::TensorProto::EXTERNAL);
  const auto entry = [w](const char* key, const std::string& value) {
    if (value.empty()) return;
    w->add_external_data()->set_key(key);
    w->mutable_external_data(w->external_data_size() - 1)->set_value(value);
  };
  entry("location", location);
  entry("offset", offset);
  entry("length", length);
  return m;
}

TEST(HostileExternal, Sentences) {
  TempFolder temp;
  const fs::path model_folder = temp.path() / "models";
  fs::create_directory(model_folder);
  fs::create_directory(model_folder / "sub");
  std::string data(64, '\0');
  for (size_t i = 0; i < 16; ++i) {
    const auto value = static_cast<float>(i);
    std::memcpy(data.data() + 4 * i, &value, 4);
  }
  WriteWhole(temp.path() / "secret.bin", data);
  WriteWhole(model_folder / "data.bin", data);
  fs::create_symlink(temp.path() / "secret.bin", model_folder / "link.bin");
  fs::create_directory_symlink(temp.path(), model_folder / "linked");
  ASSERT_EQ(mkfifo((model_folder / "pipe").c_str(), 0600), 0);

  const auto read = [&](const ModelMaker& m) {
    WriteWhole(model_folder / "m.onnx", m.Bytes());
    return ir::onnx::ReadFile(model_folder / "m.onnx");
  };
  const auto expect = [&](const ModelMaker& m, const std::vector<std::string>& parts) {
    const auto g = read(m);
    if (g) return void(ADD_FAILURE() << "was read: " << parts.back());
    ExpectError(g.error().message, {"m.onnx", "initializer 'w'"});
    ExpectError(g.error().message, parts);
  };
  expect(External("missing.bin"), {"'missing.bin'", "cannot be found"});
  expect(External("../secret.bin"), {"'../secret.bin'", "outside the model's folder"});
  expect(External("sub/../../secret.bin"), {"outside the model's folder"});
  expect(External((temp.path() / "secret.bin").string()), {"absolute path"});
  expect(External("link.bin"), {"'link.bin'", "leaves the model's folder"});
  expect(External("linked/secret.bin"), {"leaves the model's folder"});
  expect(External("sub"), {"not a regular file"});
  expect(External("pipe"), {"not a regular file"});
  expect(External(""), {"no usable file name"});
  expect(External(std::string("data.bin\0x", 10)), {"no usable file name"});
  expect(External("data.bin", "44"), {"24 bytes at offset 44", "beyond the end", "64 bytes"});
  expect(External("data.bin", "18446744073709551615"), {"offset", "no number"});
  expect(External("data.bin", "9223372036854775807"), {"beyond the end"});
  expect(External("data.bin", "-4"), {"'-4'", "no number"});
  expect(External("data.bin", "four"), {"'four'"});
  expect(External("data.bin", "0", "20"), {"20 bytes", "takes 24"});
  expect(External("data.bin", "0", "24x"), {"length", "no number"});
  ModelMaker huge = External("data.bin");
  huge.graph().mutable_initializer(0)->set_dims(0, int64_t{1} << 40);
  expect(huge, {"beyond the end"});
  ModelMaker negative = External("data.bin");
  negative.graph().mutable_initializer(0)->set_dims(0, -1);
  expect(negative, {"negative"});

  // In memory there is no folder, unless it is said.
  const auto nowhere = ir::onnx::ReadBytes(External("data.bin").Bytes());
  ASSERT_FALSE(nowhere);
  ExpectError(nowhere.error().message, {"'data.bin'", "in which folder"});
  ASSERT_TRUE(ir::onnx::ReadBytes(External("data.bin").Bytes(), {.external_dir = model_folder}));

  // What is right is read, at any offset: aligned ones are the file's own memory, others are copied.
  for (const char* offset : {"", "4", "16", "3"}) {
    const auto g = read(External("sub/../data.bin", offset, "24"));
    ASSERT_TRUE(g) << g.error().message;
    const ir::Tensor* t = g->ConstantOf(g->FindValue("w"));
    const size_t at = std::string(offset).empty() ? 0 : std::stoul(offset);
    EXPECT_EQ(std::memcmp(t->data(), data.data() + at, 24), 0) << offset;
    EXPECT_EQ(reinterpret_cast<uintptr_t>(t->data()) % 4, 0U);
    EXPECT_EQ(t->buffer()->file().empty(), at % 4 != 0) << offset;
  }
}

TEST(HostileFile, Places) {
  TempFolder temp;
  const auto error = [](const fs::path& path) {
    const auto g = ir::onnx::ReadFile(path);
    return g ? std::string("was read") : g.error().message;
  };
  ExpectError(error(temp.path() / "none.onnx"), {"none.onnx", "no such file"});
  ExpectError(error(temp.path()), {"is a folder"});
  WriteWhole(temp.path() / "empty.onnx", "");
  ExpectError(error(temp.path() / "empty.onnx"), {"empty.onnx", "is empty"});
  WriteWhole(temp.path() / "text.onnx", "This is no model.\n");
  ExpectError(error(temp.path() / "text.onnx"), {"text.onnx", "truncated or not an ONNX file"});
  ASSERT_EQ(mkfifo((temp.path() / "pipe.onnx").c_str(), 0600), 0);
  ExpectError(error(temp.path() / "pipe.onnx"), {"pipe.onnx", "not a regular file"});
  {
    std::ofstream(temp.path() / "big.onnx");
  }
  fs::resize_file(temp.path() / "big.onnx", int64_t{3} << 30);  // sparse
  ExpectError(error(temp.path() / "big.onnx"), {"big.onnx", "at most 2 GB"});
}

}  // namespace
}  // namespace octavo::tests
