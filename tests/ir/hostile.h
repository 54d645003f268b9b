// Attributes as nobody should write them, for every op of attrs.def: of the right kind with odd values, or of another kind.
#ifndef OCTAVO_TESTS_IR_HOSTILE_H_
#define OCTAVO_TESTS_IR_HOSTILE_H_

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "octavo/ir/attr_table.h"
#include "octavo/ir/graph.h"

namespace octavo::ir::testing {

// OCTAVO_FUZZ_SEED, or the one that every run takes; printed.
inline uint64_t FuzzSeed() {
  const char* wish = std::getenv("OCTAVO_FUZZ_SEED");
  const uint64_t seed = wish == nullptr ? 1234567u : std::strtoull(wish, nullptr, 10);
  std::printf("seed %llu\n", static_cast<unsigned long long>(seed));
  return seed;
}
// Rounds of a random test, times OCTAVO_FUZZ_ROUNDS.
inline uint64_t FuzzRounds(uint64_t rounds) {
  const char* wish = std::getenv("OCTAVO_FUZZ_ROUNDS");
  return rounds * (wish == nullptr ? 1 : std::strtoull(wish, nullptr, 10));
}

class Hostile {
 public:
  explicit Hostile(uint64_t seed) : rng_(seed) {}

  size_t Below(size_t n) { return rng_() % n; }
  bool OneIn(size_t n) { return Below(n) == 0; }

  int64_t Number() {
    static constexpr int64_t kOdd[] = {INT64_MIN, INT64_MAX, INT32_MAX, INT32_MIN,       -1, 0, 1,
                                       2,         1 << 30,   300,       int64_t{1} << 62};
    return OneIn(4) ? kOdd[Below(std::size(kOdd))] : static_cast<int64_t>(Below(7)) - 2;
  }
  std::vector<int64_t> Numbers(size_t most = 6) {
    std::vector<int64_t> out(Below(most));
    for (auto& e : out) e = OneIn(3) ? Number() : static_cast<int64_t>(Below(5)) - 1;
    return out;
  }
  std::string Word() {
    static constexpr const char* kWords[] = {"ij,jk->ik",
                                             "...i,...i->...",
                                             "",
                                             "->",
                                             "i..j",
                                             ",,",
                                             "abc",
                                             "ii->i",
                                             "ij->ii",
                                             "->......",
                                             "...->...",
                                             "...ij->...ji",
                                             "SAME_UPPER",
                                             "SAME_LOWER",
                                             "VALID",
                                             "NOTSET",
                                             "none",
                                             "add",
                                             "mul",
                                             "max",
                                             "LEFT",
                                             "RIGHT",
                                             "DCR",
                                             "CRD",
                                             "linear",
                                             "circular",
                                             "constant",
                                             "edge",
                                             "reflect",
                                             "wrap",
                                             "nearest",
                                             "cubic",
                                             "tanh",
                                             "gelu",
                                             "relu",
                                             "Relu",
                                             "align_corners",
                                             "floor",
                                             "asymmetric",
                                             "not_larger",
                                             "half_pixel",
                                             "tf_crop_and_resize"};
    return kWords[Below(std::size(kWords))];
  }
  float Real() {
    static constexpr float kOdd[] = {0, -0.0f, 1e-38f, -1e38f, 1.0f, 0.5f, __builtin_inff(), __builtin_nanf("")};
    return kOdd[Below(std::size(kOdd))];
  }
  Tensor Elements() {
    std::vector<int64_t> v = Numbers();
    switch (Below(6)) {
      case 0:
        return Tensor::ScalarS64(Number());
      case 1:
        return Tensor::F32({3}, {1e30f, -0.5f, 2});
      case 2:
        return Tensor::Strings({1}, {"x"});
      case 3:
        return Tensor::S64({2, 2}, {Number(), Number(), Number(), Number()});
      case 4:
        return OneIn(2) ? Tensor::Zeros(DType::kU4, {3}) : Tensor::Zeros(DType::kS8, {0});
      default:
        return Tensor::S64({static_cast<int64_t>(v.size())}, v);
    }
  }

  Attr Value(char kind) {
    switch (kind) {
      case 'i':
        return Number();
      case 'f':
        return Real();
      case 's':
        return Word();
      case 'I':
        return Numbers();
      case 'F':
        return std::vector<float>{Real(), Real()};
      case 'S':
        return std::vector<std::string>{Word(), Word()};
      case 't':
        return Elements();
      case 'g':
        return GraphRef(std::make_shared<const Graph>(Body()));
      default:
        return RawAttr{"\x01\x02"};
    }
  }

  Attrs AttrsOf(std::string_view domain, std::string_view op) {
    Attrs attrs;
    const std::vector<AttrRule>* rules = AttrRulesOf(domain, op);
    for (size_t i = 0; rules != nullptr && i < rules->size(); ++i) {
      const auto& [name, kind] = (*rules)[i];
      if (OneIn(3)) continue;
      static constexpr char kKinds[] = "ifsIFStgp";
      attrs.Set(name, Value(OneIn(15) ? kKinds[Below(sizeof(kKinds) - 1)] : kind));
    }
    if (op == "If" || op == "Loop" || op == "Scan") attrs.Set("octavo_captures", OneIn(4) ? Number() : Below2());
    if (op == "Constant" && !OneIn(4)) attrs.Set("value", Elements());
    return attrs;
  }

 private:
  int64_t Below2() { return static_cast<int64_t>(Below(2)); }

  Graph Body() {
    Graph g;
    std::vector<ValueId> values;
    for (size_t i = Below(4); i > 0; --i) {
      Type type;
      if (OneIn(3)) type.dtype = OneIn(2) ? DType::kF32 : DType::kS64;
      values.push_back(g.AddInput("x", type));
    }
    if (!values.empty() && OneIn(2)) {
      values.push_back(g.node(g.AddNode(Op::kConcat, {values[0], values.back()}, 1)).outputs[0]);
      values.push_back(g.node(g.AddNode(Op::kGather, {values[0], values[0]}, 1)).outputs[0]);
      values.push_back(g.node(g.AddNode(Op::kCast, {values[0]}, 1, {{"to", int64_t{9}}})).outputs[0]);
    }
    for (size_t i = Below(5); i > 0 && !values.empty(); --i)
      g.AddOutput("o" + std::to_string(i), values[Below(values.size())]);
    return g;
  }

  std::mt19937_64 rng_;
};

}  // namespace octavo::ir::testing

#endif  // OCTAVO_TESTS_IR_HOSTILE_H_
