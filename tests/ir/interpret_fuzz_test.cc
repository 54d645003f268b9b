// Random operands, shapes and attributes for every op: a result or a sentence, never a crash. Under the sanitizers this
// is the proof that no index leaves its tensor; without them it still finds aborts and endless loops. What a node gives, inference
// must have said of it.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <random>
#include <set>

#include "octavo/ir/functions.h"
#include "octavo/ir/infer.h"
#include "octavo/ir/memory.h"
#include "octavo/tests/ir/hostile.h"
#include "octavo/tests/ir/interpret_testing.h"

namespace octavo::ir::testing {
namespace {

class Maker {
 public:
  explicit Maker(uint32_t seed) : rng_(seed) {}

  int64_t Below(int64_t n) { return static_cast<int64_t>(rng_() % static_cast<uint64_t>(n)); }

  Shape RandomShape() {
    Shape s(static_cast<size_t>(Below(6)));
    for (auto& d : s) d = Below(12) == 0 ? 0 : 1 + Below(4);
    return s;
  }

  DType RandomType() {
    constexpr DType kTypes[] = {
        DType::kF32,  DType::kF32,  DType::kF32,  DType::kS64,      DType::kS64,      DType::kU8,    DType::kS8,
        DType::kBool, DType::kS32,  DType::kF16,  DType::kF64,      DType::kBF16,     DType::kU4,    DType::kS4,
        DType::kU64,  DType::kU16,  DType::kS16,  DType::kU32,      DType::kE4M3FN,   DType::kE5M2,  DType::kU2,
        DType::kS2,   DType::kE2M1, DType::kE8M0, DType::kE4M3FNUZ, DType::kE5M2FNUZ, DType::kString};
    return kTypes[Below(std::size(kTypes))];
  }

  Tensor Random(DType type, const Shape& shape) {
    if (type == DType::kString) {
      std::vector<std::string> words;
      for (int64_t i = 0; i < ElementCount(shape); ++i) words.push_back(Below(2) == 0 ? "1.5" : "word");
      return Tensor::Strings(shape, std::move(words));
    }
    Tensor t = Tensor::Zeros(type, shape);
    for (int64_t i = 0; i < t.size(); ++i) Set(t, i);
    return t;
  }

  Attrs RandomAttrs() {
    Attrs a;
    for (const char* name : {"axis",
                             "keepdims",
                             "batch_dims",
                             "k",
                             "blocksize",
                             "group",
                             "to",
                             "dtype",
                             "ceil_mode",
                             "start",
                             "end",
                             "num_heads",
                             "q_num_heads",
                             "kv_num_heads",
                             "block_size",
                             "output_dtype",
                             "num_outputs",
                             "num_groups",
                             "is_causal",
                             "fmod",
                             "transA",
                             "transB",
                             "upper",
                             "training_mode",
                             "largest",
                             "exclusive",
                             "reverse",
                             "select_last_index",
                             "num_scan_inputs",
                             "octavo_captures",
                             "interleaved",
                             "rotary_embedding_dim",
                             "count_include_pad",
                             "storage_order",
                             "noop_with_empty_axes",
                             "head_dim",
                             "antialias",
                             "exclude_outside",
                             "qk_matmul_output_mode",
                             "allowzero"}) {
      if (Below(3) == 0) a.Set(name, Below(30) == 0 ? INT64_MIN + Below(2) * INT64_MAX : Below(8) - 3);
    }
    for (const char* name : {"axes", "perm", "pads", "strides", "dilations", "kernel_shape"}) {
      if (Below(3) != 0) continue;
      std::vector<int64_t> v(static_cast<size_t>(Below(6)));
      for (auto& e : v) e = Below(40) == 0 ? int64_t{1} << 62 : Below(6) - 1;
      a.Set(name, std::move(v));
    }
    const auto word = [&](const char* name, std::initializer_list<const char*> words) {
      if (Below(2) == 0) a.Set(name, std::string(words.begin()[Below(static_cast<int64_t>(words.size()))]));
    };
    word("mode", {"constant", "edge", "reflect", "wrap", "nearest", "linear", "cubic", "circular", "CRD", "no"});
    word("coordinate_transformation_mode",
         {"align_corners", "asymmetric", "half_pixel", "tf_crop_and_resize", "pytorch_half_pixel"});
    word("reduction", {"add", "mul", "max", "min", "none"});
    word("direction", {"LEFT", "RIGHT"});
    word("auto_pad", {"SAME_UPPER", "SAME_LOWER", "VALID", "NOTSET"});
    word("equation", {"ij,jk->ik", "i,i", "...ij->...ji", "ii->i", "ab,cd->", "abc", "i.j", ",->"});
    word("keep_aspect_ratio_policy", {"stretch", "not_larger", "not_smaller"});
    if (Below(4) == 0) a.Set("value", Random(RandomType(), Below(2) == 0 ? Shape{1} : RandomShape()));
    return a;
  }

  size_t RandomOutputs(Op op) {
    const OpInfo& info = InfoOf(op);
    const int most = info.max_outputs < 0 ? info.min_outputs + 3 : info.max_outputs;
    return static_cast<size_t>(Below(10) == 0 ? Below(6) : info.min_outputs + Below(most - info.min_outputs + 1));
  }

  std::vector<Tensor> RandomInputs(Op op) {
    const OpInfo& info = InfoOf(op);
    const int64_t most = info.max_inputs < 0 ? 5 : info.max_inputs;
    const int64_t least = Below(20) == 0 ? 0 : info.min_inputs;
    const Shape common = RandomShape();
    const DType type = RandomType();
    const int64_t alike = Below(4);  // how much the operands resemble each other
    std::vector<Tensor> in;
    for (int64_t i = 0; i < least + Below(most - least + 2); ++i) {
      if (Below(12) == 0) {
        in.push_back({});
        continue;
      }
      if (i > 0 && alike == 3) {  // a vector of small integers: axes, pads, sizes, indices
        in.push_back(Random(DType::kS64, {1 + Below(6)}));
      } else {
        in.push_back(Random(alike >= 1 ? type : RandomType(), alike >= 2 || i == 0 ? common : RandomShape()));
      }
    }
    return in;
  }

 private:
  void Set(Tensor& t, int64_t i) {
    const auto at = static_cast<size_t>(i);
    const bool extreme = Below(60) == 0 && t.dtype() != DType::kU64;
    switch (t.dtype()) {
      case DType::kF32:
        t.mutable_as<float>()[at] =
            extreme ? (Below(2) == 0 ? INFINITY : NAN) : static_cast<float>(Below(80) - 30) * 0.25f;
        break;
      case DType::kF64:
        t.mutable_as<double>()[at] = extreme ? -INFINITY : static_cast<double>(Below(80) - 30) * 0.25;
        break;
      case DType::kS64:
      case DType::kU64:
        t.mutable_as<int64_t>()[at] =
            extreme ? (Below(2) == 0 ? INT64_MIN : INT64_MAX) : Below(9) - (t.dtype() == DType::kS64 ? 3 : 0);
        break;
      case DType::kS32:
      case DType::kU32:
        t.mutable_as<int32_t>()[at] = extreme && t.dtype() == DType::kS32
                                          ? INT32_MIN
                                          : static_cast<int32_t>(Below(9) - (t.dtype() == DType::kS32 ? 3 : 0));
        break;
      case DType::kBool:
        t.mutable_as<uint8_t>()[at] = static_cast<uint8_t>(Below(2));
        break;
      case DType::kU4:
      case DType::kS4:
      case DType::kE2M1:
        t.mutable_as<uint8_t>()[at / 2] = static_cast<uint8_t>(rng_());
        break;
      case DType::kU2:
      case DType::kS2:
        t.mutable_as<uint8_t>()[at / 4] = static_cast<uint8_t>(rng_());
        break;
      default: {
        // Small integers: they may be sizes. Floats of 8 and 16 bits: any pattern.
        const auto bits = static_cast<uint16_t>(quant::IsInteger(t.dtype()) ? Below(9) : Below(65536));
        if (quant::BitsOf(t.dtype()) == 8)
          t.mutable_as<uint8_t>()[at] = static_cast<uint8_t>(bits & (Below(9) == 0 ? 255 : 7));
        if (quant::BitsOf(t.dtype()) == 16) t.mutable_as<uint16_t>()[at] = bits;
      }
    }
  }

  std::mt19937_64 rng_;
};

// Operands that fit, for ops that random ones never fit.
struct Fitting {
  Op op;
  std::vector<std::pair<DType, Shape>> operands;
  Attrs attrs;
};

std::vector<Fitting> FittingOperands() {
  using enum DType;
  const auto one = [](int64_t v) { return Attr(v); };
  const std::pair<DType, Shape> f{kF32, {}}, z{kU8, {}};
  const Shape image = {2, 4, 5, 6}, sequence = {2, 3, 4, 8};
  return {
      {Op::kCompress, {{kF32, {3, 4}}, {kBool, {4}}}, {{"axis", one(1)}}},
      {Op::kOneHot, {{kS64, {2, 3}}, {kS64, {}}, {kF32, {2}}}, {}},
      {Op::kConv, {{kF32, image}, {kF32, {6, 2, 3, 2}}, {kF32, {6}}}, {{"group", one(2)}}},
      {Op::kConvInteger, {{kU8, image}, {kS8, {6, 4, 3, 2}}, {kU8, {}}, {kS8, {6}}}, {}},
      {Op::kQLinearConv, {{kU8, image}, f, z, {kS8, {6, 4, 3, 2}}, {kF32, {6}}, {kS8, {6}}, f, z, {kS32, {6}}}, {}},
      {Op::kQLinearMatMul, {{kU8, {2, 3, 4}}, f, z, {kU8, {4, 5}}, f, z, f, z}, {}},
      {Op::kMatMulInteger, {{kU8, {2, 3, 4}}, {kS8, {4, 5}}, {kU8, {3}}, {kS8, {5}}}, {}},
      {Op::kAveragePool, {{kF32, image}}, {{"kernel_shape", std::vector<int64_t>{3, 2}}, {"ceil_mode", one(1)}}},
      {Op::kMaxPool, {{kF32, image}}, {{"kernel_shape", std::vector<int64_t>{3, 2}}, {"storage_order", one(1)}}},
      {Op::kBatchNormalization, {{kF32, image}, {kF32, {4}}, {kF32, {4}}, {kF32, {4}}, {kF32, {4}}}, {}},
      {Op::kGroupNormalization, {{kF16, image}, {kF16, {2}}, {kF16, {2}}}, {{"num_groups", one(2)}}},
      {Op::kInstanceNormalization, {{kF64, image}, {kF64, {4}}, {kF64, {4}}}, {}},
      {Op::kLayerNormalization, {{kF32, sequence}, {kF32, {8}}, {kF32, {8}}}, {}},
      {Op::kRotaryEmbedding, {{kF32, sequence}, {kF32, {9, 4}}, {kF32, {9, 4}}, {kS64, {2, 4}}}, {}},
      {Op::kTensorScatter, {{kF32, sequence}, {kF32, {2, 3, 2, 8}}, {kS64, {2}}}, {}},
      {Op::kAttention, {{kF32, {2, 6, 3, 8}}, {kF32, sequence}, {kF32, sequence}, {kF32, {3, 4}}}, {}},
      {Op::kAttention,
       {{kF32, {2, 6, 3, 8}}, {kF32, sequence}, {kF32, sequence}, {kBool, {3, 1}}, {kF32, sequence}, {kF32, sequence}},
       {{"is_causal", one(1)}}},
      {Op::kGatherND, {{kF32, sequence}, {kS64, {2, 1, 2}}}, {{"batch_dims", one(1)}}},
      {Op::kScatterND, {{kF32, {5, 4}}, {kS64, {3, 1}}, {kF32, {3, 4}}}, {{"reduction", std::string("add")}}},
      {Op::kScatterElements, {{kF32, {5, 4}}, {kS64, {3, 4}}, {kF32, {3, 4}}}, {{"axis", one(0)}}},
      {Op::kGatherElements, {{kF32, {5, 4}}, {kS64, {2, 2}}}, {{"axis", one(1)}}},
      {Op::kPad, {{kF32, {5, 4}}, {kS64, {4}}, {kF32, {}}}, {}},
      {Op::kResize,
       {{kF32, image}, {kF32, {8}}, {kF32, {4}}},
       {{"coordinate_transformation_mode", std::string("tf_crop_and_resize")}}},
      {Op::kResize, {{kF32, image}, {kF32, {0}}, {kF32, {0}}, {kS64, {4}}}, {{"mode", std::string("cubic")}}},
      {Op::kSlice, {{kF32, sequence}, {kS64, {2}}, {kS64, {2}}, {kS64, {2}}, {kS64, {2}}}, {}},
      {Op::kEinsum, {{kF32, {2, 3, 4}}, {kF32, {2, 4, 5}}}, {{"equation", std::string("bij,bjk->bik")}}},
      {Op::kTopK, {{kF32, sequence}, {kS64, {1}}}, {}},
      {Op::kDequantizeLinear,
       {{kS8, {4, 6}}, {kF32, {2, 6}}, {kS8, {2, 6}}},
       {{"axis", one(0)}, {"block_size", one(2)}}},
      {Op::kQuantizeLinear, {{kF32, {4, 6}}, {kF32, {6}}, {kS4, {6}}}, {}},
      {Op::kRMSNormalization, {{kF32, {2, 8}}, {kF16, {8}}}, {}},
      {Op::kSkipLayerNorm, {{kF32, {2, 8}}, {kF32, {2, 8}}, {kF16, {8}}}, {{"rms", one(1)}}},
      {Op::kNormQuant, {{kF32, {2, 8}}, {kF32, {2, 8}}, {kF32, {8}}, {kF32, {8}}, f, z}, {}},
      {Op::kQuantizeTokens, {{kF32, {2, 8}}}, {}},
      {Op::kLookup, {{kU8, {2, 3}}, {kS8, {256}}}, {}},
      {Op::kCacheAppend, {{kF32, {2, 1, 4, 2}}, {kF32, {2, 1, 1, 2}}, {kS64, {2}}, {kS64, {}}}, {}},
      {Op::kQuantizedLinear, {{kU8, {2, 8}}, f, z, {kS8, {8, 5}}, {kF32, {5}}, {kF32, {5}}, f, z}, {}},
      {Op::kQuantizedLinear,
       {{kU8, {2, 8}},
        f,
        z,
        {kU4, {8, 5}},
        {kF32, {5}},
        {kF32, {5}},
        f,
        z,
        {kF32, {5}},
        {kF32, {2, 5}},
        {kU4, {1, 5}},
        {kU4, {1, 5}}},
       {}},
      {Op::kQuantizedQkv, {{kU8, {2, 8}}, f, z, {kS8, {8, 5}}, f, {kF32, {5}}, f, z}, {}},
      {Op::kLinearBlocked, {{kF32, {2, 8}}, {kU4, {8, 5}}, {kF32, {2, 5}}, {kU4, {2, 5}}}, {{"block_size", one(4)}}},
      {Op::kSdpa,
       {{kF32, sequence}, {kF32, sequence}, {kF32, sequence}, {kF32, {4, 4}}},
       {{"head_dim", one(8)}, {"num_heads", one(3)}}},
      {Op::kQuantizedSdpa,
       {{kU8, sequence}, {kU8, sequence}, {kU8, sequence}, f, z, f, z, f, z, f, z, f, z},
       {{"head_dim", one(8)}, {"num_heads", one(3)}}},
      {Op::kGemm, {{kF32, {4, 6}}, {kF32, {5, 6}}, {kF32, {5}}}, {{"transB", one(1)}}}};
}

std::vector<Fitting> MoreFittingOperands() {
  using enum DType;
  const auto one = [](int64_t v) { return Attr(v); };
  const auto text = [](const char* v) { return Attr(std::string(v)); };
  const Shape image = {2, 4, 5, 6}, sequence = {5, 3, 4};
  const std::vector<std::pair<DType, Shape>> recurrent = {{kF32, sequence}, {kF32, {2, 8, 4}}, {kF32, {2, 8, 8}}};
  return {
      {Op::kRNN, recurrent, {{"direction", text("bidirectional")}}},
      {Op::kGRU, {{kF32, sequence}, {kF32, {1, 24, 4}}, {kF32, {1, 24, 8}}, {kF32, {1, 48}}, {kS32, {3}}}, {}},
      {Op::kLSTM, {{kF32, sequence}, {kF32, {1, 32, 4}}, {kF32, {1, 32, 8}}}, {{"layout", one(1)}}},
      {Op::kConvTranspose, {{kF32, image}, {kF32, {4, 3, 3, 2}}, {kF32, {6}}}, {{"group", one(2)}}},
      {Op::kDeformConv,
       {{kF32, image}, {kF32, {6, 4, 2, 2}}, {kF32, {2, 8, 4, 5}}, {kF32, {6}}, {kF32, {2, 4, 4, 5}}},
       {}},
      {Op::kGridSample,
       {{kF32, image}, {kF32, {2, 3, 2, 2}}},
       {{"mode", text("cubic")}, {"padding_mode", text("reflection")}}},
      {Op::kLpPool, {{kF32, image}}, {{"kernel_shape", std::vector<int64_t>{3, 2}}, {"ceil_mode", one(1)}}},
      {Op::kMaxUnpool, {{kF32, {1, 1, 2, 2}}, {kS64, {1, 1, 2, 2}}}, {{"kernel_shape", std::vector<int64_t>{3, 3}}}},
      {Op::kRoiAlign, {{kF32, image}, {kF32, {3, 4}}, {kS64, {3}}}, {{"output_height", one(2)}}},
      {Op::kNonMaxSuppression, {{kF32, {2, 5, 4}}, {kF32, {2, 3, 5}}, {kS64, {1}}, {kF32, {1}}}, {}},
      {Op::kUnique, {{kF32, sequence}}, {{"axis", one(1)}}},
      {Op::kReverseSequence, {{kF32, sequence}, {kS64, {3}}}, {}},
      {Op::kCenterCropPad, {{kF32, sequence}, {kS64, {2}}}, {{"axes", std::vector<int64_t>{0, -1}}}},
      {Op::kDFT, {{kF32, {2, 6, 1}}, {kS64, {}}}, {{"onesided", one(1)}}},
      {Op::kSTFT, {{kF32, {2, 20, 1}}, {kS64, {}}, {kF32, {6}}}, {}},
      {Op::kSoftmaxCrossEntropyLoss, {{kF32, {2, 6, 3}}, {kS64, {2, 3}}, {kF32, {6}}}, {{"ignore_index", one(-1)}}},
      {Op::kNegativeLogLikelihoodLoss, {{kF32, {2, 6}}, {kS64, {2}}}, {{"reduction", text("none")}}},
      {Op::kCausalConvWithState, {{kF32, {2, 3, 5}}, {kF32, {3, 1, 4}}, {kF32, {3}}, {kF32, {2, 3, 3}}}, {}},
      {Op::kLinearAttention,
       {{kF32, {2, 3, 8}},
        {kF32, {2, 3, 4}},
        {kF32, {2, 3, 6}},
        {kF32, {2, 2, 2, 3}},
        {kF32, {2, 3, 2}},
        {kF32, {2, 3, 2}}},
       {{"kv_num_heads", one(2)}, {"q_num_heads", one(4)}}},
      {Op::kFlexAttention, {{kF32, {2, 6, 3, 8}}, {kF32, {2, 3, 4, 8}}, {kF32, {2, 3, 4, 5}}}, {}},
      {Op::kTfIdfVectorizer,
       {{kS64, {2, 6}}},
       {{"max_gram_length", one(2)},
        {"mode", text("TF")},
        {"ngram_counts", std::vector<int64_t>{0, 2}},
        {"ngram_indexes", std::vector<int64_t>{0, 3, 1}},
        {"pool_int64s", std::vector<int64_t>{0, 1, 1, 2}}}}};
}

// What the types of inference, with some operands known and some not, have against the values that the node gave; empty: nothing.
std::string Contradiction(Maker& maker, Op op, const std::vector<Tensor>& in, const Attrs& attrs,
                          const std::vector<RtValue>& out) {
  Graph g;
  std::vector<ValueId> operands;
  for (const Tensor& t : in) {
    if (!t.defined()) {
      operands.push_back({});
    } else if (maker.Below(2) == 0) {
      operands.push_back(g.AddConstant(t));
    } else {
      SymShape shape(t.shape().begin(), t.shape().end());
      for (Dim& d : shape) d = !HasBody(op) && maker.Below(4) == 0 ? Dim() : d;  // ours are asked with known sizes
      operands.push_back(g.AddInput("x", {t.dtype(), std::move(shape)}));
    }
  }
  const NodeId id = g.AddNode(op, std::move(operands), out.size(), attrs, "the_node");
  // Of octavo's own ops inference demands what kernels rely on, and bodies do not; it looks at branches that are not taken.
  if (const auto types = Inference::Run(g); !types) {
    return HasBody(op) || op == Op::kIf ? std::string() : "inference refuses what runs: " + types.error().message;
  }
  for (size_t i = 0; i < out.size(); ++i) {
    const Tensor& t = out[i].tensor;
    const Type& type = g.value(g.node(id).outputs[i]).type;
    bool fits = type.dtype == DType::kUndefined || type.dtype == t.dtype();
    if (HasBody(op)) {  // bodies broadcast what kernels refuse
      if (!fits) return std::format("output {} is {}, inference says {}", i, quant::Name(t.dtype()), ToString(type));
      continue;
    }
    if (type.shape) fits = fits && type.shape->size() == t.shape().size();
    for (size_t d = 0; fits && type.shape && d < t.shape().size(); ++d) {
      const Dim& dim = (*type.shape)[d];
      fits = !dim.is_number() || dim.number() == t.shape()[d];
    }
    if (!fits) {
      return std::format("output {} is {}{}, inference says {}", i, quant::Name(t.dtype()), ToString(t.shape()),
                         ToString(type));
    }
  }
  return {};
}

// The sentences, each op's and kind's once.
struct Contradictions {
  std::set<std::string> told;
  void Add(Op op, const std::string& sentence) {
    if (!sentence.empty()) told.insert(std::string(InfoOf(op).name) + ": " + sentence);
  }
  std::string Text() const {
    std::string text;
    for (const std::string& s : told) text += s + "\n";
    return text;
  }
};

constexpr size_t kMemory = size_t{1} << 28;

TEST(Fuzz, NearlyFittingOperands) {
  const MemoryScope memory(kMemory);
  Maker maker(static_cast<uint32_t>(FuzzSeed()));
  Contradictions contradictions;
  size_t results = 0, sentences = 0;
  std::string never;
  std::vector<Fitting> all = FittingOperands();
  std::ranges::move(MoreFittingOperands(), std::back_inserter(all));
  for (const Fitting& fitting : all) {
    size_t good = 0;
    for (uint64_t round = 0; round < FuzzRounds(300); ++round) {
      auto operands = fitting.operands;
      Attrs attrs = maker.Below(4) == 0 ? maker.RandomAttrs() : Attrs();
      for (const auto& [name, value] : fitting.attrs.entries()) {
        if (maker.Below(10) != 0) attrs.Set(name, value);
      }
      for (int64_t change = maker.Below(3); change > 0; --change) {
        auto& [type, shape] = operands[static_cast<size_t>(maker.Below(static_cast<int64_t>(operands.size())))];
        const int64_t kind = maker.Below(4);
        if (kind == 0) type = maker.RandomType();
        if (kind == 1) shape = maker.RandomShape();
        if (kind == 2) type = DType::kUndefined;
        if (kind == 3 && !shape.empty())
          shape[static_cast<size_t>(maker.Below(static_cast<int64_t>(shape.size())))] = maker.Below(7);
      }
      std::vector<Tensor> in;
      for (const auto& [type, shape] : operands)
        in.push_back(type == DType::kUndefined ? Tensor() : maker.Random(type, shape));
      const auto r = Eval(fitting.op, in, attrs, maker.RandomOutputs(fitting.op));
      ++(r ? good : sentences);
      if (r) contradictions.Add(fitting.op, Contradiction(maker, fitting.op, in, attrs, *r));
    }
    results += good;
    if (good == 0) never += " " + std::string(InfoOf(fitting.op).name);
  }
  std::printf("%zu results, %zu sentences\n", results, sentences);
  EXPECT_EQ(never, "");
  EXPECT_EQ(contradictions.Text(), "");
}

TEST(Fuzz, EveryOpGivesAResultOrASentence) {
  const MemoryScope memory(kMemory);
  Maker maker(static_cast<uint32_t>(FuzzSeed()));
  Hostile hostile(FuzzSeed());
  Contradictions contradictions;
  size_t results = 0, sentences = 0;
  std::string never;
  for (Op op = Op{0}; op < Op::kOpaque; op = static_cast<Op>(static_cast<int>(op) + 1)) {
    ASSERT_TRUE(CanEval(op)) << InfoOf(op).name;
    size_t good = 0;
    for (uint64_t round = 0; round < FuzzRounds(600); ++round) {
      const std::vector<Tensor> in = maker.RandomInputs(op);
      const Attrs attrs =
          maker.Below(3) == 0 ? hostile.AttrsOf(InfoOf(op).domain, InfoOf(op).name) : maker.RandomAttrs();
      const auto r = Eval(op, in, attrs, maker.RandomOutputs(op));
      if (r) {
        ++good;
        contradictions.Add(op, Contradiction(maker, op, in, attrs, *r));
      } else {
        ++sentences;
        ASSERT_TRUE(r.error().message.starts_with(InfoOf(op).name)) << r.error().message;
        ASSERT_EQ(r.error().message.find("octavo is at fault"), std::string::npos) << r.error().message;
      }
    }
    results += good;
    if (good == 0) never += " " + std::string(InfoOf(op).name);
  }
  std::printf("%zu results, %zu sentences; never a result from:%s\n", results, sentences, never.c_str());
  EXPECT_GT(results, 8000u);
  EXPECT_GT(sentences, 8000u);
  EXPECT_EQ(contradictions.Text(), "");
}

}  // namespace
}  // namespace octavo::ir::testing
