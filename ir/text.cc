// Printing of the text form. Reading: text_parse.cc. Grammar: README.md.
#include "octavo/ir/text.h"

#include <charconv>
#include <cmath>

#include "octavo/ir/text_lexer.h"

namespace octavo::ir {

namespace {

using internal::AppendHex;
using internal::AppendName;
using internal::AppendQuoted;

// Longer lists are written as the hex digits of their bytes: shorter to store, faster to read.
constexpr int64_t kMaxListed = 64;

template <typename T>
void AppendNumber(std::string& out, T v) {
  char buffer[32];
  const auto [end, error] = std::to_chars(buffer, buffer + sizeof(buffer), v);  // floats: shortest that round-trips
  out.append(buffer, end);
}

void AppendFloat(std::string& out, float v) {
  if (std::isfinite(v)) {
    AppendNumber(out, v);
  } else {
    std::string bytes(4, '\0');
    const auto bits = std::bit_cast<uint32_t>(v);
    for (size_t i = 0; i < 4; ++i) bytes[i] = static_cast<char>(bits >> (24 - 8 * i));
    out += "0x";
    AppendHex(out, bytes);
  }
  out += 'f';
}

bool AllFinite(const Tensor& t) {
  for (int64_t i = 0; i < t.size(); ++i) {
    if (!std::isfinite(t.GetDouble(i))) return false;
  }
  return true;
}

// Elements that decimal digits give back exactly.
bool IsListed(const Tensor& t) {
  if (t.size() > kMaxListed || quant::IsPacked(t.dtype())) return false;
  if (t.dtype() == DType::kF32 || t.dtype() == DType::kF64) return AllFinite(t);
  return t.dtype() == DType::kString || t.dtype() == DType::kBool || quant::IsInteger(t.dtype());
}

void AppendElement(std::string& out, const Tensor& t, int64_t i) {
  switch (t.dtype()) {
    case DType::kString:
      AppendQuoted(out, t.strings()[static_cast<size_t>(i)]);
      break;
    case DType::kF32:
      AppendNumber(out, t.as<float>()[static_cast<size_t>(i)]);
      break;
    case DType::kF64:
      AppendNumber(out, t.as<double>()[static_cast<size_t>(i)]);
      break;
    case DType::kU64:
      AppendNumber(out, t.as<uint64_t>()[static_cast<size_t>(i)]);
      break;
    default:
      AppendNumber(out, t.GetInt(i));
  }
}

void AppendTensor(std::string& out, const Tensor& t, int64_t elide_above) {
  out += "tensor ";
  out += quant::Name(t.dtype());
  if (!t.defined()) return;
  out += ToString(t.shape());
  if (elide_above >= 0 && t.size() > elide_above) {
    out += std::format(" elided {:016x}", t.Hash());
  } else if (IsListed(t) || t.dtype() == DType::kString) {
    out += " (";
    for (int64_t i = 0; i < t.size(); ++i) {
      if (i > 0) out += ", ";
      AppendElement(out, t, i);
    }
    out += ')';
  } else {
    out += " \"";
    AppendHex(out, {reinterpret_cast<const char*>(t.data()), t.byte_size()});
    out += '"';
  }
}

class Printer {
 public:
  explicit Printer(const TextOptions& options) : options_(options) {}

  void PrintGraph(const Graph& g) {
    out_ += "graph ";
    AppendQuoted(out_, g.name);
    out_ += " {\n";
    indent_ += 2;
    PrintInfo(g);
    for (const ValueId v : g.inputs()) {
      Indent("input ");
      Value(g, v);
      if (options_.types && g.IsAlive(v)) out_ += " : " + ToString(g.value(v).type);
      out_ += '\n';
    }
    for (NodeId id = g.first(); id.valid(); id = g.node(id).next) PrintNode(g, g.node(id));
    for (const GraphOutput& o : g.outputs()) {
      Indent("output ");
      AppendQuoted(out_, o.name);
      out_ += " = ";
      Value(g, o.value);
      out_ += " : " + ToString(o.declared) + '\n';
    }
    indent_ -= 2;
    Indent("}");
  }

  std::string Take() { return std::move(out_); }

 private:
  void Indent(std::string_view text) {
    out_.append(indent_, ' ');
    out_ += text;
  }

  void Field(std::string_view key, std::string_view text) {
    if (text.empty()) return;
    Indent(key);
    out_ += ' ';
    AppendQuoted(out_, text);
    out_ += '\n';
  }

  // What is as in an empty graph is left out.
  void PrintInfo(const Graph& g) {
    const ModelInfo& info = g.info;
    const ModelInfo empty;
    Field("doc", g.doc);
    const auto number = [this](std::string_view key, int64_t v) {
      Indent(key);
      out_ += ' ' + std::to_string(v) + '\n';
    };
    if (info.ir_version != empty.ir_version) number("ir_version", info.ir_version);
    for (const auto& [domain, version] : info.opsets) {
      Indent("opset ");
      AppendQuoted(out_, domain);
      out_ += ' ' + std::to_string(version) + '\n';
    }
    Field("producer_name", info.producer_name);
    Field("producer_version", info.producer_version);
    Field("model_domain", info.domain);
    Field("model_doc", info.doc);
    if (info.model_version != empty.model_version) number("model_version", info.model_version);
    for (const auto& [key, text] : info.metadata) {
      Indent("metadata ");
      AppendQuoted(out_, key);
      out_ += ' ';
      AppendQuoted(out_, text);
      out_ += '\n';
    }
  }

  void Value(const Graph& g, ValueId v) {
    if (!v.valid()) {
      out_ += '_';
    } else if (!g.IsAlive(v)) {
      out_ += std::format("%\"dead value {}\"", v.index);
    } else {
      out_ += '%';
      AppendName(out_, g.value(v).name);
    }
  }

  void Values(const Graph& g, const std::vector<ValueId>& values) {
    for (size_t i = 0; i < values.size(); ++i) {
      if (i > 0) out_ += ", ";
      Value(g, values[i]);
    }
  }

  void PrintNode(const Graph& g, const Node& n) {
    Indent(n.outputs.empty() ? "()" : "");
    Values(g, n.outputs);
    out_ += " = ";
    if (n.op == Op::kOpaque) {
      out_ += "opaque ";
      AppendQuoted(out_, n.domain);
      out_ += ' ';
      AppendQuoted(out_, n.op_type);
      out_ += ' ';
    } else {
      out_ += InfoOf(n.op).name;
    }
    out_ += '(';
    Values(g, n.inputs);
    out_ += ')';
    if (!n.attrs.empty()) PrintAttrs(n.attrs);
    if (!n.name.empty()) {
      out_ += " @";
      AppendName(out_, n.name);
    }
    if (options_.types) PrintTypes(g, n);
    if (options_.origin && !n.origin.empty()) {
      out_ += " from ";
      for (size_t i = 0; i < n.origin.size(); ++i) {
        if (i > 0) out_ += ", ";
        AppendQuoted(out_, n.origin[i]);
      }
    }
    out_ += '\n';
  }

  void PrintTypes(const Graph& g, const Node& n) {
    bool first = true;
    for (const ValueId v : n.outputs) {
      if (!g.IsAlive(v)) continue;
      out_ += (first ? " : " : ", ") + ToString(g.value(v).type);
      first = false;
    }
  }

  void PrintAttrs(const Attrs& attrs) {
    out_ += " {";
    bool first = true;
    for (const auto& [name, attr] : attrs.entries()) {
      if (!first) out_ += ", ";
      first = false;
      AppendName(out_, name);
      out_ += " = ";
      std::visit([this](const auto& v) { PrintAttr(v); }, attr);
    }
    out_ += '}';
  }

  void PrintAttr(int64_t v) { AppendNumber(out_, v); }
  void PrintAttr(float v) { AppendFloat(out_, v); }
  void PrintAttr(const std::string& v) { AppendQuoted(out_, v); }
  void PrintAttr(const Tensor& v) { AppendTensor(out_, v, options_.elide_constants_above); }
  void PrintAttr(const RawAttr& v) {
    out_ += "raw \"";
    AppendHex(out_, v.bytes);
    out_ += '"';
  }
  void PrintAttr(const GraphRef& v) {
    if (v == nullptr) {
      out_ += "graph null";
    } else {
      PrintGraph(*v);
    }
  }
  // The kind of an empty list is its letter; other lists show it by their elements.
  template <typename T>
  void PrintAttr(const std::vector<T>& list) {
    if (list.empty()) out_ += std::is_same_v<T, float> ? "f" : std::is_same_v<T, std::string> ? "s" : "";
    out_ += '[';
    for (size_t i = 0; i < list.size(); ++i) {
      if (i > 0) out_ += ", ";
      PrintAttr(list[i]);
    }
    out_ += ']';
  }

  const TextOptions& options_;
  std::string out_;
  size_t indent_ = 0;
};

}  // namespace

std::string ToText(const Graph& graph, const TextOptions& options) {
  Printer printer(options);
  printer.PrintGraph(graph);
  return printer.Take() + "\n";
}

}  // namespace octavo::ir
