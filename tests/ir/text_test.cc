#include "octavo/ir/text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <random>

namespace octavo::ir {
namespace {

using ::testing::HasSubstr;

// Random graphs: legal for the Graph, senseless as models. Every kind of attribute, dtype, name and type occurs.
class RandomGraph {
 public:
  explicit RandomGraph(uint64_t seed) : rng_(seed) {}

  Graph Make(int depth = 0) {
    Graph g;
    if (Chance(2)) g.name = Text();
    if (Chance(3)) g.doc = Text();
    if (depth == 0 && Chance(2)) g.info = Info();
    std::vector<ValueId> values;
    for (size_t i = Below(4); i > 0; --i) values.push_back(g.AddInput(Text(), RandomType()));
    for (size_t i = Below(12); i > 0; --i) AddNode(g, values, depth);
    for (size_t i = Below(4); i > 0; --i) {
      g.AddOutput(Text(), values.empty() || Chance(8) ? ValueId{} : values[Below(values.size())], RandomType());
    }
    return g;
  }

 private:
  size_t Below(size_t n) { return rng_() % n; }
  bool Chance(size_t one_in) { return Below(one_in) == 0; }

  std::string Text() {
    static const std::string kTexts[] = {"x",
                                         "/layer.0/Add_output_0",
                                         "a b",
                                         "quote\"s",
                                         "back\\slash",
                                         "new\nline",
                                         "\x01\x7f",
                                         "gr\xc3\xbc\xc3\x9f",
                                         "_",
                                         "input",
                                         "Add:0",
                                         "0",
                                         "",
                                         "#no",
                                         "tab\t%]"};
    return kTexts[Below(std::size(kTexts))];
  }

  ModelInfo Info() {
    ModelInfo info;
    info.ir_version = static_cast<int64_t>(Below(11));
    for (size_t i = Below(3); i > 0; --i) info.opsets[Text()] = static_cast<int64_t>(Below(24));
    info.producer_name = Text();
    info.producer_version = Text();
    info.domain = Text();
    info.doc = Text();
    info.model_version = static_cast<int64_t>(rng_());
    for (size_t i = Below(3); i > 0; --i) info.metadata[Text()] = Text();
    return info;
  }

  Dim RandomDim() {
    switch (Below(5)) {
      case 0:
        return {};
      case 1:
        return Dim::Symbol("batch");
      case 2:
        return Dim::Symbol("odd ],\"name") * Dim::Symbol("seq") - 3;
      case 3:
        return Dim::Symbol("past") + Dim::Symbol("seq") * 12;
      default:
        return Dim(static_cast<int64_t>(Below(100)));
    }
  }
  Type RandomType() {
    Type t;
    if (!Chance(4)) t.dtype = RandomDType();
    if (Chance(4)) return t;
    t.shape.emplace();
    for (size_t i = Below(4); i > 0; --i) t.shape->push_back(RandomDim());
    return t;
  }
  DType RandomDType() {
    while (true) {
      const auto t = static_cast<DType>(1 + Below(quant::kLastDType));
      if (quant::Name(t) != "undefined") return t;
    }
  }

  Tensor RandomTensor() {
    if (Chance(12)) return {};
    const DType dtype = RandomDType();
    Shape shape;
    for (size_t i = Below(3); i > 0; --i) shape.push_back(static_cast<int64_t>(Below(Chance(4) ? 20 : 4)));
    if (dtype == DType::kString) {
      std::vector<std::string> texts(static_cast<size_t>(ElementCount(shape)));
      for (auto& t : texts) t = Text();
      return Tensor::Strings(shape, texts);
    }
    Tensor t = Tensor::Zeros(dtype, shape);
    const bool tame = Chance(2) && dtype == DType::kF32;  // random bits of a float are never short decimals
    for (size_t i = 0; i < t.byte_size(); ++i) t.mutable_data()[i] = static_cast<std::byte>(rng_());
    for (size_t i = 0; tame && i < t.byte_size() / 4; ++i) {
      t.mutable_as<float>()[i] = static_cast<float>(static_cast<int>(Below(2000)) - 1000) / 16;
    }
    return t;
  }

  Attr RandomAttr(int depth) {
    switch (Below(9)) {
      case 0:
        return static_cast<int64_t>(rng_());
      case 1:
        return std::bit_cast<float>(static_cast<uint32_t>(rng_()));
      case 2:
        return Text();
      case 3: {
        std::vector<int64_t> v(Below(4));
        for (auto& e : v) e = static_cast<int64_t>(rng_()) >> Below(64);
        return v;
      }
      case 4: {
        std::vector<float> v(Below(4));
        for (auto& e : v)
          e = Chance(3) ? std::numeric_limits<float>::quiet_NaN() : std::bit_cast<float>(static_cast<uint32_t>(rng_()));
        return v;
      }
      case 5: {
        std::vector<std::string> v(Below(3));
        for (auto& e : v) e = Text();
        return v;
      }
      case 6:
        return RandomTensor();
      case 7:
        if (depth < 2) return GraphRef(Chance(9) ? nullptr : std::make_shared<const Graph>(Make(depth + 1)));
        return int64_t{-1};
      default:
        return RawAttr{Text() + Text()};
    }
  }

  void AddNode(Graph& g, std::vector<ValueId>& values, int depth) {
    std::vector<ValueId> inputs;
    for (size_t i = Below(4); i > 0; --i) {
      inputs.push_back(values.empty() || Chance(5) ? ValueId{} : values[Below(values.size())]);
    }
    Attrs attrs;
    for (size_t i = Below(4); i > 0; --i) attrs.Set(Text() + (Chance(2) ? "k" : ""), RandomAttr(depth));
    const size_t outputs = Below(4);
    const auto op = static_cast<Op>(Below(static_cast<size_t>(Op::kOpaque) + 1));
    const NodeId id = op == Op::kOpaque || Chance(5) ? g.AddOpaque(Text(), Text(), inputs, outputs, attrs, Text())
                                                     : g.AddNode(op, inputs, outputs, attrs, Text());
    std::vector<std::string> origin;
    for (size_t i = Below(3); i > 0; --i) origin.push_back(Text());
    g.SetOrigin(id, origin);
    for (size_t i = 0; i < outputs; ++i) {
      const ValueId v = g.node(id).outputs[i];
      if (Chance(6)) {
        g.DropOutput(id, i);
        continue;
      }
      if (Chance(2)) g.SetName(v, Text());
      g.SetType(v, RandomType());
      values.push_back(v);
    }
  }

  std::mt19937_64 rng_;
};

void ExpectSame(const Graph& a, const Graph& b) {
  ASSERT_EQ(a.node_count(), b.node_count());
  const auto left = a.NodesInOrder();
  const auto right = b.NodesInOrder();
  for (size_t i = 0; i < left.size(); ++i) {
    const Node& x = a.node(left[i]);
    const Node& y = b.node(right[i]);
    EXPECT_EQ(x.op, y.op);
    EXPECT_EQ(x.domain, y.domain);
    EXPECT_EQ(x.op_type, y.op_type);
    EXPECT_EQ(x.name, y.name);
    EXPECT_EQ(x.origin, y.origin);
    ASSERT_EQ(x.attrs.entries().size(), y.attrs.entries().size());
    for (size_t k = 0; k < x.attrs.entries().size(); ++k) {
      const auto& [name, attr] = x.attrs.entries()[k];
      EXPECT_EQ(name, y.attrs.entries()[k].first);
      EXPECT_EQ(attr.index(), y.attrs.entries()[k].second.index());
      if (const auto* t = std::get_if<Tensor>(&attr)) {
        EXPECT_TRUE(t->SameBits(std::get<Tensor>(y.attrs.entries()[k].second))) << name;
      }
      if (const auto* r = std::get_if<RawAttr>(&attr)) {
        EXPECT_EQ(*r, std::get<RawAttr>(y.attrs.entries()[k].second));
      }
    }
  }
}

TEST(Text, ParseIsTheInverseOfPrinting) {
  for (uint64_t seed = 1; seed <= 400; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    const Graph g = RandomGraph(seed).Make();
    const std::string text = ToText(g);
    const auto again = ParseText(text);
    ASSERT_TRUE(again.has_value()) << again.error().message << "\n" << text;
    ASSERT_EQ(ToText(*again), text);
    ExpectSame(g, *again);
    EXPECT_EQ(again->info.metadata, g.info.metadata);
    EXPECT_EQ(again->info.opsets, g.info.opsets);
  }
}

TEST(Text, DamagedTextIsRefusedOrReadButNeverBreaks) {
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    std::mt19937_64 rng(seed);
    std::string text = ToText(RandomGraph(seed).Make());
    for (int damage = 0; damage < 3; ++damage) {
      const size_t at = rng() % text.size();
      if (rng() % 2 == 0) {
        text.erase(at, 1 + rng() % 5);
      } else {
        text[at] = static_cast<char>(rng());
      }
      if (text.empty()) text = " ";
    }
    const auto r = ParseText(text);
    if (r) {
      // What was read prints and reads again.
      const auto again = ParseText(ToText(*r));
      ASSERT_TRUE(again.has_value()) << again.error().message;
      EXPECT_EQ(ToText(*again), ToText(*r));
    } else {
      EXPECT_THAT(r.error().message, testing::StartsWith("line "));
    }
  }
}

TEST(Text, LooksLikeThis) {
  Graph g;
  g.name = "main";
  g.info.opsets[""] = 18;
  const ValueId x = g.AddInput("x", {DType::kF32, SymShape{Dim::Symbol("batch"), 384}});
  const ValueId w = g.AddConstant(Tensor::F32({2}, {0.5f, -0.0f}), "/w.0");
  const NodeId add = g.AddNode(Op::kAdd, {x, w}, 1, {}, "/Add");
  g.SetOrigin(add, {"/Add", "pass:fold"});
  g.SetName(g.node(add).outputs[0], "out put");
  const NodeId other = g.AddOpaque("com.microsoft", "Magic", {g.node(add).outputs[0], ValueId{}}, 2,
                                   {{"alpha", 1.0f},
                                    {"axes", std::vector<int64_t>{0, -1}},
                                    {"empty", std::vector<float>{}},
                                    {"mode", std::string("a\"b")},
                                    {"nan", std::bit_cast<float>(0x7fc00001u)}});
  g.DropOutput(other, 0);
  g.AddOutput("y", g.node(other).outputs[1], {DType::kF16, std::nullopt});
  EXPECT_EQ(ToText(g), R"(graph "main" {
  opset "" 18
  input %x : f32[batch,384]
  %/w.0 = Constant() {value = tensor f32[2] (0.5, -0)} : f32[2]
  %"out put" = Add(%x, %/w.0) @/Add : ? from "/Add", "pass:fold"
  _, %Opaque:1 = opaque "com.microsoft" "Magic" (%"out put", _) {alpha = 1f, axes = [0, -1], empty = f[], mode = "a\"b", nan = 0x7fc00001f} : ?
  output "y" = %Opaque:1 : f16[*]
}
)");
  EXPECT_EQ(ToText(g, {.elide_constants_above = 1, .types = false, .origin = false}).find("0.5"), std::string::npos);
  const auto elided = ParseText(ToText(g, {.elide_constants_above = 1}));
  ASSERT_FALSE(elided.has_value());
  EXPECT_THAT(elided.error().message, HasSubstr("line 4: this constant was printed as its hash"));
}

TEST(Text, ErrorsNameLineAndExpectation) {
  const std::pair<const char*, const char*> kCases[] = {
      {"", "line 1: expected 'graph', found the end"},
      {"graph \"\" {\n  %y = Add(%x)\n}", "line 2: expected a value defined above, 'x' is none"},
      {"graph \"\" {\n\n  %y = Ad()\n}", "line 3: expected an op, found 'Ad'"},
      {"graph \"\" {\n  input %x : f33[2]\n}", "line 2: expected a type, found 'f33'"},
      {"graph \"\" {\n  input %x : f32[a b]\n}", "line 2: expected a dim, found 'a b'"},
      {"graph \"\" {\n  input %x : f32[2\n}", "line 2: expected ']' on the same line"},
      {"graph \"\" {\n  input %x\n  input %x\n}", "line 3: expected a new name, 'x' is a value already"},
      {"graph \"\" {\n  %a, %a = Add()\n}", "line 2: expected a new name, 'a' comes twice"},
      {"graph \"\" {\n  %a = Constant() {value = tensor f32[2] (1)}\n}", "line 2: expected 2 elements, found 1"},
      {"graph \"\" {\n  %a = Constant() {value = tensor u4[3] \"12\"}\n}",
       "line 2: expected 2 bytes for 3 elements of u4"},
      {"graph \"\" {\n  %a = Constant() {value = tensor s8[1] (300)}\n}", "line 2: expected an element, found '300'"},
      {"graph \"\" {\n  %a = Constant() {value = tensor f32[99999999999,99999999999] \"\"}\n}",
       "line 2: expected the sizes of a tensor"},
      {"graph \"\" {\n  %a = Cast() {to = 1, to = 2}\n}", "the attribute 'to' comes twice"},
      {"graph \"\" {\n  %a = Cast() {to = [1, 1f]}\n}", "expected elements of one kind"},
      {"graph \"\" {\n  %a = Cast() {to = maybe}\n}", "expected an attribute such as"},
      {"graph \"\" {\n  bogus\n}", "line 2: expected an input, a node, an output or '}', found 'bogus'"},
      {"graph \"\" {\n}\nmore", "line 3: expected the end, found 'more'"},
      {"graph \"abc", "line 1: a quoted text does not end"},
  };
  for (const auto& [text, message] : kCases) {
    const auto r = ParseText(text);
    ASSERT_FALSE(r.has_value()) << text;
    EXPECT_THAT(r.error().message, HasSubstr(message)) << text;
  }
}

TEST(Text, NestingIsBounded) {
  std::string deep;
  for (int i = 0; i < 10000; ++i) deep += "graph \"\" { () = If() {a = ";
  const auto r = ParseText(deep);
  ASSERT_FALSE(r.has_value());
  EXPECT_THAT(r.error().message, HasSubstr("nested more than 64 deep"));
}

TEST(Text, CommentsAndSpaceDoNotMatter) {
  const auto r = ParseText("graph \"g\" { # a comment\n input %x:0 : f32[2] %y = Relu(%x:0) output \"y\"\n= %y : ? }");
  ASSERT_TRUE(r.has_value()) << r.error().message;
  EXPECT_EQ(ToText(*r), "graph \"g\" {\n  input %x:0 : f32[2]\n  %y = Relu(%x:0) : ?\n  output \"y\" = %y : ?\n}\n");
}

TEST(Dot, EscapesAndDraws) {
  Graph g;
  g.name = "a\"b";
  const ValueId x = g.AddInput("x\\", {DType::kF32, SymShape{2}});
  const NodeId n = g.AddNode(Op::kRelu, {x}, 1, {}, "line\nbreak");
  g.AddOutput("y", g.node(n).outputs[0]);
  EXPECT_EQ(ToDot(g), R"(digraph "a\"b" {
  node [shape=box];
  i0 [shape=ellipse, label="x\\"];
  n0 [label="Relu\nline\nbreak"];
  i0 -> n0 [label="f32[2]"];
  o0 [shape=ellipse, label="y"];
  n0 -> o0 [label="?"];
}
)");
}

}  // namespace
}  // namespace octavo::ir
