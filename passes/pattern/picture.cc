// A rule as a picture of its pattern: a tree from the root to its inputs.
#include <format>
#include <set>

#include "octavo/passes/pattern/pattern.h"

namespace octavo::passes::pattern {

namespace {

class Drawing {
 public:
  explicit Drawing(const Rule& rule) : rule_(rule) {}

  std::string Draw() {
    text_ = std::format("{}: {}\n", rule_.name, rule_.doc);
    Line(rule_.root, "", "");
    for (const Var v : rule_.beside) Line(v, "beside it: ", "");
    return std::move(text_);
  }

 private:
  static std::string Types(const Spec& spec) {
    std::string text;
    for (const ir::DType t : spec.dtypes) text += (text.empty() ? " " : " or ") + std::string(quant::Name(t));
    if (spec.shape) {
      text += " [";
      for (size_t i = 0; i < spec.shape->size(); ++i) text += (i == 0 ? "" : ",") + (*spec.shape)[i];
      text += "]";
    }
    return text;
  }

  std::string Label(const PatternNode& p) const {
    switch (p.what) {
      case PatternNode::What::kInput:
        return p.name + Types(p.spec);
      case PatternNode::What::kConstant:
        return std::format("{}: constant{}", p.name, Types(p.spec));
      case PatternNode::What::kScalar:
        return p.scalar ? std::format("{}: {}", p.name, *p.scalar) : std::format("{}: any number", p.name);
      case PatternNode::What::kOneOf:
        return std::format("one of ({})", p.name);
      case PatternNode::What::kOp:
        break;
    }
    return std::format("{} ({}{}{}{})", p.op == ir::Op::kOpaque ? std::string_view(p.op_type) : ir::InfoOf(p.op).name,
                       p.name, p.any_order ? ", operands in any order" : "",
                       p.output > 0 ? std::format(", output {}", p.output) : "", p.attrs ? ", attributes checked" : "");
  }

  void Line(Var v, const std::string& mark, const std::string& indent) {
    if (!v.valid()) {
      text_ += std::format("{}{}\n", mark, v.is_any() ? "anything" : "absent");
      return;
    }
    const PatternNode& p = rule_.at(v);
    const bool again = !p.inputs.empty() && !drawn_.insert(v.index()).second;
    text_ += std::format("{}{}{}\n", mark, Label(p), again ? ", as above" : "");
    if (again) return;
    for (size_t i = 0; i < p.inputs.size(); ++i) {
      const bool last = i + 1 == p.inputs.size();
      Line(p.inputs[i], indent + (last ? "└─ " : "├─ "), indent + (last ? "   " : "│  "));
    }
  }

  const Rule& rule_;
  std::set<size_t> drawn_;
  std::string text_;
};

}  // namespace

std::string Picture(const Rule& rule) { return Drawing(rule).Draw(); }

}  // namespace octavo::passes::pattern
