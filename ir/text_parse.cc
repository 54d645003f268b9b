// Reading of the text form: recursive descent, one token ahead. Printing: text.cc.
#include <algorithm>
#include <charconv>
#include <map>
#include <set>

#include "octavo/ir/closed.h"
#include "octavo/ir/limits.h"
#include "octavo/ir/names.h"
#include "octavo/ir/text.h"
#include "octavo/ir/text_lexer.h"

namespace octavo::ir {

namespace {

using internal::Lexer;

// Deeper nesting of subgraphs than this is an attack on the stack.
constexpr int kMaxDepth = 64;

Op OpOfName(std::string_view name) {
  static const auto* const table = [] {
    auto* t = new std::map<std::string_view, Op>;
    for (size_t i = 0; i < static_cast<size_t>(Op::kOpaque); ++i)
      (*t)[InfoOf(static_cast<Op>(i)).name] = static_cast<Op>(i);
    return t;
  }();
  const auto it = table->find(name);
  return it == table->end() ? Op::kOpaque : it->second;
}

template <typename T>
bool ReadNumber(std::string_view word, T& value) {
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
  return error == std::errc{} && end == word.data() + word.size() && !word.empty();
}

// "1.5f" or the bits "0x7fc00000f".
bool ReadFloat(std::string_view word, float& value) {
  if (word.starts_with("0x")) {
    uint32_t bits = 0;
    const std::string_view digits = word.substr(2);
    if (digits.size() != 9 || digits[8] != 'f') return false;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + 8, bits, 16);
    value = std::bit_cast<float>(bits);
    return error == std::errc{} && end == digits.data() + 8;
  }
  return word.ends_with('f') && ReadNumber(word.substr(0, word.size() - 1), value);
}

class Parser {
 public:
  explicit Parser(std::string_view text) : in_(text) {}

  Result<Graph> Whole() {
    OCTAVO_TRY(Graph graph, ParseGraph());
    if (!in_.AtEnd()) return in_.Expected("the end");
    return graph;
  }

 private:
  Result<Graph> ParseGraph() {
    if (!in_.EatWord("graph")) return in_.Expected("'graph'");
    return GraphBody();
  }

  Result<Graph> GraphBody() {
    if (++depth_ > kMaxDepth) return in_.Refuse("graphs are nested more than {} deep", kMaxDepth);
    Graph g;
    OCTAVO_TRY(g.name, in_.Quoted());
    OCTAVO_TRY_STATUS(in_.Expect('{'));
    while (!in_.Eat('}')) {
      const char c = in_.Peek();
      if (c == '%' || c == '_' || c == '(') {
        OCTAVO_TRY_STATUS(ParseNode(g));
      } else {
        OCTAVO_TRY_STATUS(ParseField(g));
      }
    }
    --depth_;
    return g;
  }

  Status ParseField(Graph& g) {
    std::string* const texts[] = {&g.doc, &g.info.producer_name, &g.info.producer_version, &g.info.domain, &g.info.doc};
    constexpr std::string_view kTexts[] = {"doc", "producer_name", "producer_version", "model_domain", "model_doc"};
    for (size_t i = 0; i < std::size(kTexts); ++i) {
      if (!in_.EatWord(kTexts[i])) continue;
      OCTAVO_TRY(*texts[i], in_.Quoted());
      return {};
    }
    if (in_.EatWord("ir_version")) {
      OCTAVO_TRY(g.info.ir_version, in_.Int());
    } else if (in_.EatWord("model_version")) {
      OCTAVO_TRY(g.info.model_version, in_.Int());
    } else if (in_.EatWord("opset")) {
      OCTAVO_TRY(const std::string domain, in_.Quoted());
      OCTAVO_TRY(g.info.opsets[domain], in_.Int());
    } else if (in_.EatWord("metadata")) {
      OCTAVO_TRY(const std::string key, in_.Quoted());
      OCTAVO_TRY(g.info.metadata[key], in_.Quoted());
    } else if (in_.EatWord("input")) {
      OCTAVO_TRY(const std::string name, NewName(g));
      const ValueId v = g.AddInput(name, {});
      if (in_.Eat(':')) {
        OCTAVO_TRY(Type type, ParseType());
        g.SetType(v, std::move(type));
      }
    } else if (in_.EatWord("output")) {
      OCTAVO_TRY(std::string name, in_.Quoted());
      OCTAVO_TRY_STATUS(in_.Expect('='));
      OCTAVO_TRY(const ValueId v, OldValue(g));
      OCTAVO_TRY_STATUS(in_.Expect(':'));
      OCTAVO_TRY(Type type, ParseType());
      g.AddOutput(std::move(name), v, std::move(type));
    } else {
      return in_.Expected("an input, a node, an output or '}'");
    }
    return {};
  }

  // %name that is not taken yet.
  Result<std::string> NewName(const Graph& g) {
    OCTAVO_TRY_STATUS(in_.Expect('%'));
    OCTAVO_TRY(std::string name, in_.Name());
    if (name.empty()) return in_.Refuse("expected a name that is not empty");
    if (g.FindValue(name).valid()) return in_.Refuse("expected a new name, '{}' is a value already", name);
    return name;
  }

  // %name of a value above, or _ for none.
  Result<ValueId> OldValue(const Graph& g) {
    if (in_.Eat('_')) return ValueId{};
    OCTAVO_TRY_STATUS(in_.Expect('%'));
    OCTAVO_TRY(const std::string name, in_.Name());
    const ValueId v = g.FindValue(name);
    if (!v.valid()) return in_.Refuse("expected a value defined above, '{}' is none", name);
    return v;
  }

  Result<Type> ParseType() {
    if (in_.Eat('?')) return Type{};
    const std::string_view word = in_.Word();
    Type type;
    type.dtype = quant::DTypeFromName(word);
    if (type.dtype == DType::kUndefined && word != "undefined") return in_.Refuse("expected a type, found '{}'", word);
    OCTAVO_TRY(std::string_view dims, in_.Bracketed());
    if (dims == "*") return type;
    type.shape.emplace();
    while (!dims.empty()) {
      size_t end = 0;
      for (bool quoted = false; end < dims.size() && (quoted || dims[end] != ','); ++end) {
        if (dims[end] == '"') quoted = !quoted;
      }
      const auto dim = Dim::Parse(dims.substr(0, end));
      if (!dim) return in_.Refuse("expected a dim, found '{}'", dims.substr(0, end));
      type.shape->push_back(*dim);
      if (end + 1 == dims.size()) return in_.Refuse("expected a dim after ','");
      dims.remove_prefix(std::min(end + 1, dims.size()));
    }
    return type;
  }

  struct NodeHead {
    std::vector<std::string> outputs;  // empty name: an output nobody wants
    Op op = Op::kOpaque;
    std::string domain, op_type;
    std::vector<ValueId> inputs;
  };

  Result<NodeHead> ParseHead(const Graph& g) {
    NodeHead head;
    std::set<std::string> taken;
    if (in_.Eat('(')) {
      OCTAVO_TRY_STATUS(in_.Expect(')'));
    } else {
      do {
        std::string name;
        if (!in_.Eat('_')) {
          OCTAVO_TRY(name, NewName(g));
          if (!taken.insert(name).second) return in_.Refuse("expected a new name, '{}' comes twice", name);
        }
        head.outputs.push_back(std::move(name));
      } while (in_.Eat(','));
    }
    OCTAVO_TRY_STATUS(in_.Expect('='));
    if (in_.EatWord("opaque")) {
      OCTAVO_TRY(head.domain, in_.Quoted());
      OCTAVO_TRY(head.op_type, in_.Quoted());
    } else {
      const std::string_view word = in_.Word();
      head.op = OpOfName(word);
      if (head.op == Op::kOpaque)
        return in_.Refuse("expected an op, found '{}'; write opaque \"domain\" \"type\"", word);
    }
    OCTAVO_TRY_STATUS(in_.Expect('('));
    if (in_.Eat(')')) return head;
    do {
      OCTAVO_TRY(const ValueId v, OldValue(g));
      head.inputs.push_back(v);
    } while (in_.Eat(','));
    OCTAVO_TRY_STATUS(in_.Expect(')'));
    return head;
  }

  Status ParseNode(Graph& g) {
    OCTAVO_TRY(NodeHead head, ParseHead(g));
    Attrs attrs;
    if (in_.Eat('{')) {
      OCTAVO_TRY(attrs, ParseAttrs());
    }
    std::string name;
    if (in_.Eat('@')) {
      OCTAVO_TRY(name, in_.Name());
    }
    const size_t count = head.outputs.size();
    const NodeId id =
        head.op == Op::kOpaque
            ? g.AddOpaque(head.domain, head.op_type, std::move(head.inputs), count, std::move(attrs), name)
            : g.AddNode(head.op, std::move(head.inputs), count, std::move(attrs), name);
    NameOutputs(g, id, head.outputs);
    if (in_.Eat(':')) OCTAVO_TRY_STATUS(ParseTypes(g, id));
    if (in_.EatWord("from")) {
      std::vector<std::string> origin;
      do {
        OCTAVO_TRY(std::string source, in_.Quoted());
        origin.push_back(std::move(source));
      } while (in_.Eat(','));
      g.SetOrigin(id, std::move(origin));
    }
    return {};
  }

  // In two steps, because a fresh output may bear the name that its neighbour is to have.
  static void NameOutputs(Graph& g, NodeId id, const std::vector<std::string>& names) {
    for (size_t i = 0; i < names.size(); ++i) g.SetName(g.node(id).outputs[i], "\x01" + std::to_string(i));
    for (size_t i = 0; i < names.size(); ++i) {
      if (names[i].empty()) {
        g.DropOutput(id, i);
      } else {
        g.SetName(g.node(id).outputs[i], names[i]);
      }
    }
  }

  Status ParseTypes(Graph& g, NodeId id) {
    bool first = true;
    for (const ValueId v : g.node(id).outputs) {
      if (!v.valid()) continue;
      if (!first) OCTAVO_TRY_STATUS(in_.Expect(','));
      first = false;
      OCTAVO_TRY(Type type, ParseType());
      g.SetType(v, std::move(type));
    }
    return {};
  }

  Result<Attrs> ParseAttrs() {
    std::map<std::string, Attr> sorted;  // as Attrs keeps them
    do {
      OCTAVO_TRY(const std::string name, in_.Name());
      OCTAVO_TRY_STATUS(in_.Expect('='));
      if (sorted.contains(name)) return in_.Refuse("expected a new name, the attribute {} comes twice", Quoted(name));
      OCTAVO_TRY(sorted[name], ParseAttr());
    } while (in_.Eat(','));
    OCTAVO_TRY_STATUS(in_.Expect('}'));
    Attrs attrs;
    for (auto& [name, attr] : sorted) attrs.Set(name, std::move(attr));
    return attrs;
  }

  Result<Attr> ParseAttr() {
    if (in_.EatWord("tensor")) return Lift(ParseTensor());
    if (in_.EatWord("raw")) {
      OCTAVO_TRY(std::string bytes, in_.HexBytes());
      return Attr(RawAttr{std::move(bytes)});
    }
    if (in_.EatWord("graph")) {
      if (in_.EatWord("null")) return Attr(GraphRef());
      OCTAVO_TRY(Graph graph, GraphBody());
      return Attr(GraphRef(std::make_shared<const Graph>(std::move(graph))));
    }
    if (in_.Peek() == '"') return Lift(in_.Quoted());
    if (in_.Eat('[')) return ParseList();
    const std::string_view word = in_.Word();
    if ((word == "f" || word == "s") && in_.Eat('[')) {
      OCTAVO_TRY_STATUS(in_.Expect(']'));
      return word == "f" ? Attr(std::vector<float>()) : Attr(std::vector<std::string>());
    }
    return Scalar(word);
  }

  template <typename T>
  static Result<Attr> Lift(Result<T> r) {
    if (!r) return std::unexpected(std::move(r).error());
    return Attr(std::move(*r));
  }

  Result<Attr> Scalar(std::string_view word) {
    int64_t whole = 0;
    float real = 0;
    if (ReadNumber(word, whole)) return Attr(whole);
    if (ReadFloat(word, real)) return Attr(real);
    return in_.Refuse("expected an attribute such as 1, 1.5f, \"text\", [..], tensor, graph or raw, found '{}'", word);
  }

  // All elements are of the kind of the first; an empty list holds whole numbers.
  Result<Attr> ParseList() {
    if (in_.Eat(']')) return Attr(std::vector<int64_t>());
    std::vector<int64_t> ints;
    std::vector<float> floats;
    std::vector<std::string> texts;
    do {
      if (in_.Peek() == '"') {
        OCTAVO_TRY(std::string text, in_.Quoted());
        texts.push_back(std::move(text));
        continue;
      }
      OCTAVO_TRY(const Attr scalar, Scalar(in_.Word()));
      if (const auto* v = std::get_if<int64_t>(&scalar)) ints.push_back(*v);
      if (const auto* v = std::get_if<float>(&scalar)) floats.push_back(*v);
    } while (in_.Eat(','));
    OCTAVO_TRY_STATUS(in_.Expect(']'));
    if (!ints.empty() + !floats.empty() + !texts.empty() != 1) return in_.Refuse("expected elements of one kind");
    if (!floats.empty()) return Attr(std::move(floats));
    if (!texts.empty()) return Attr(std::move(texts));
    return Attr(std::move(ints));
  }

  Result<Tensor> ParseTensor() {
    const std::string_view word = in_.Word();
    if (word == "undefined") return Tensor();
    const DType dtype = quant::DTypeFromName(word);
    if (dtype == DType::kUndefined) return in_.Refuse("expected an element type, found '{}'", word);
    OCTAVO_TRY(std::string_view dims, in_.Bracketed());
    Shape shape;
    int64_t count = 1, most = 1;
    while (!dims.empty()) {
      const size_t end = std::min(dims.find(','), dims.size());
      int64_t d = 0;
      // The dims beside a 0 count too: whoever multiplies them in another order must not overflow.
      if (!ReadNumber(dims.substr(0, end), d) || d < 0 ||
          __builtin_mul_overflow(most, std::max<int64_t>(d, 1), &most) || most > (int64_t{1} << 48)) {
        return in_.Refuse("expected the sizes of a tensor, found '{}'", dims);
      }
      count *= d;
      shape.push_back(d);
      dims.remove_prefix(std::min(end + 1, dims.size()));
    }
    if (in_.EatWord("elided")) return in_.Refuse("this constant was printed as its hash; its elements are not here");
    if (in_.Peek() == '"') {
      OCTAVO_TRY(const std::string bytes, in_.HexBytes());
      if (dtype == DType::kString || bytes.size() != quant::BytesOf(dtype, static_cast<size_t>(count))) {
        return in_.Refuse("expected {} bytes for {} elements of {}, found {}",
                          quant::BytesOf(dtype, static_cast<size_t>(count)), count, quant::Name(dtype), bytes.size());
      }
      return Tensor::Of<char>(dtype, std::move(shape), std::span<const char>(bytes));
    }
    return ParseElements(dtype, std::move(shape), count);
  }

  Result<Tensor> ParseElements(DType dtype, Shape shape, int64_t count) {
    OCTAVO_TRY_STATUS(in_.Expect('('));
    std::vector<std::string> texts;
    std::string bytes;
    int64_t found = 0;
    if (!in_.Eat(')')) {
      do {
        ++found;
        if (dtype == DType::kString) {
          OCTAVO_TRY(std::string text, in_.Quoted());
          texts.push_back(std::move(text));
        } else {
          OCTAVO_TRY_STATUS(AppendElement(dtype, in_.Word(), bytes));
        }
      } while (in_.Eat(','));
      OCTAVO_TRY_STATUS(in_.Expect(')'));
    }
    if (found != count) return in_.Refuse("expected {} elements, found {}", count, found);
    if (dtype == DType::kString) return Tensor::Strings(std::move(shape), std::move(texts));
    return Tensor::Of<char>(dtype, std::move(shape), std::span<const char>(bytes));
  }

  template <typename T>
  Status AppendAs(std::string_view word, std::string& bytes) {
    T value{};
    if (!ReadNumber(word, value)) return in_.Refuse("expected an element, found '{}'", word);
    bytes.append(reinterpret_cast<const char*>(&value), sizeof(value));
    return {};
  }

  Status AppendElement(DType dtype, std::string_view word, std::string& bytes) {
    switch (dtype) {
      case DType::kF32:
        return AppendAs<float>(word, bytes);
      case DType::kF64:
        return AppendAs<double>(word, bytes);
      case DType::kU8:
      case DType::kBool:
        return AppendAs<uint8_t>(word, bytes);
      case DType::kS8:
        return AppendAs<int8_t>(word, bytes);
      case DType::kU16:
        return AppendAs<uint16_t>(word, bytes);
      case DType::kS16:
        return AppendAs<int16_t>(word, bytes);
      case DType::kU32:
        return AppendAs<uint32_t>(word, bytes);
      case DType::kS32:
        return AppendAs<int32_t>(word, bytes);
      case DType::kU64:
        return AppendAs<uint64_t>(word, bytes);
      case DType::kS64:
        return AppendAs<int64_t>(word, bytes);
      default:
        return in_.Refuse("expected hex digits for elements of {}", quant::Name(dtype));
    }
  }

  Lexer in_;
  int depth_ = 0;
};

}  // namespace

Result<Graph> ParseText(std::string_view text) {
  const auto bytes = static_cast<int64_t>(text.size());
  return Closed("the text of a graph", MemoryLimit(Limits{}, bytes), [&] { return Parser(text).Whole(); });
}

}  // namespace octavo::ir
