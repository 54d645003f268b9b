#include "octavo/ir/op.h"

#include <map>
#include <utility>

namespace octavo::ir {

namespace {

struct Known {
  OpInfo info;
  Operands operands, results;
};

Operand ReadOperand(std::string_view word) {
  Operand o;
  if (constexpr std::string_view kType = ":f32"; word.ends_with(kType)) {
    o.is_f32 = true;
    word.remove_suffix(kType.size());
  }
  if (word.ends_with('?')) {
    o.optional = true;
    word.remove_suffix(1);
  }
  o.name = word;
  return o;
}

// "x skip? gamma (w bias?)": ops.def says what the marks mean.
Operands ReadOperands(std::string_view text) {
  Operands all;
  bool repeated = false;
  while (!text.empty()) {
    std::string_view word = text.substr(0, text.find(' '));
    text.remove_prefix(word.size() == text.size() ? word.size() : word.size() + 1);
    if (word.starts_with('(')) {
      repeated = true;
      word.remove_prefix(1);
    }
    if (word.ends_with(')')) word.remove_suffix(1);
    (repeated ? all.each : all.once).push_back(ReadOperand(word));
  }
  return all;
}

Known Own(std::string_view name, std::string_view operands, std::string_view results) {
  Known k{.info = {}, .operands = ReadOperands(operands), .results = ReadOperands(results)};
  const auto most = [](const Operands& o) { return o.each.empty() ? static_cast<int>(o.once.size()) : -1; };
  k.info = {name,
            "octavo",
            static_cast<int>(k.operands.least()),
            most(k.operands),
            static_cast<int>(k.results.least()),
            most(k.results)};
  return k;
}

const std::vector<Known>& AllKnown() {
  static const auto* const all = new std::vector<Known>{
#define OCTAVO_OP(Name, domain, min_in, max_in, min_out, max_out) \
  Known{.info = {#Name, domain, min_in, max_in, min_out, max_out}, .operands = {}, .results = {}},
#define OCTAVO_OWN_OP(Name, operands, results) Own(#Name, operands, results),
#include "octavo/ir/ops.def"
#undef OCTAVO_OP
  };
  return *all;
}

const Known& Of(Op op) {
  static const Known* const all = AllKnown().data();
  return all[static_cast<size_t>(op)];
}

}  // namespace

const Operand* Operands::At(size_t slot) const {
  if (slot < once.size()) return &once[slot];
  return each.empty() ? nullptr : &each[(slot - once.size()) % each.size()];
}

size_t Operands::least() const {
  for (size_t n = once.size() + each.size(); n > 0; --n) {
    if (!At(n - 1)->optional) return n;
  }
  return 0;
}

const OpInfo& InfoOf(Op op) { return Of(op).info; }
const Operands& OperandsOf(Op op) { return Of(op).operands; }
const Operands& ResultsOf(Op op) { return Of(op).results; }

bool MayBeAbsent(Op op, size_t slot) {
  if (op == Op::kLoop) return slot < 2;  // trip count, condition
  if (const Operand* own = OperandsOf(op).At(slot)) return own->optional;
  return static_cast<int>(slot) >= InfoOf(op).min_inputs;
}

// They take fp8 as well.
std::span<const OldName> OldNames() {
  static constexpr OldName kNames[] = {
      {"LinearInt8", Op::kQuantizedLinear}, {"QkvInt8", Op::kQuantizedQkv}, {"SdpaInt8", Op::kQuantizedSdpa}};
  return kNames;
}

Op OpFromName(std::string_view domain, std::string_view name) {
  static const auto* const table = [] {
    auto* t = new std::map<std::pair<std::string_view, std::string_view>, Op>;
    const std::vector<Known>& all = AllKnown();
    for (size_t i = 0; i < all.size(); ++i) (*t)[{all[i].info.domain, all[i].info.name}] = static_cast<Op>(i);
    for (const OldName& old : OldNames()) (*t)[{"octavo", old.name}] = old.op;
    return t;
  }();
  const auto it = table->find({domain == "ai.onnx" ? std::string_view("") : domain, name});
  return it == table->end() ? Op::kOpaque : it->second;
}

}  // namespace octavo::ir
