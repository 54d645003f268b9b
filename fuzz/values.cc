#include "octavo/fuzz/values.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "octavo/ir/op.h"

namespace octavo::fuzz {

int64_t SomeInt(Random& random, int64_t now) {
  static constexpr int64_t kInts[] = {
      0,  1,         -1,        2,         3,         4,         5,         7,      8,         16,       17,      31,
      32, 64,        127,       128,       255,       256,       1000,      4096,   65535,     65536,    1 << 20, -2,
      -3, INT32_MAX, INT32_MIN, 1LL << 31, 1LL << 32, 1LL << 40, 1LL << 62, 10'000, INT64_MAX, INT64_MIN};
  switch (random.Int(6)) {
    case 0:
      return static_cast<int64_t>(static_cast<uint64_t>(now) + 1);
    case 1:
      return static_cast<int64_t>(static_cast<uint64_t>(now) - 1);
    case 2:
      return random.OneIn(2) ? now / 2 : static_cast<int64_t>(static_cast<uint64_t>(now) * 2);
    case 3:
      return random.OneIn(2) ? static_cast<int64_t>(0 - static_cast<uint64_t>(now)) : random.Below(30) - 4;
    default:
      return random.Of(kInts);
  }
}

float SomeFloat(Random& random, float now) {
  static constexpr float kInfinity = std::numeric_limits<float>::infinity();
  static constexpr float kMost = std::numeric_limits<float>::max();
  static const float kFloats[] = {0.0f,       -0.0f,         1.0f,     -1.0f,    0.5f,   2.0f,      kInfinity,
                                  -kInfinity, std::nanf(""), kMost,    -kMost,   1e-45f, 1e-38f,    1e-5f,
                                  1e5f,       1e30f,         -1e9f,    -1e4f,    3.0f,   127.0f,    0.0078125f,
                                  255.0f,     1e-12f,        65504.0f, 65520.0f, 448.0f, 0.7071068f};
  switch (random.Int(4)) {
    case 0:
      return now * (1 + 1e-4f * static_cast<float>(random.Int(7) - 3));
    case 1:
      return random.OneIn(2) ? -now : now * 2;
    default:
      return random.Of(kFloats);
  }
}

int64_t SomeSize(Random& random) {
  static constexpr int64_t kSizes[] = {1, 1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 32, 33, 48, 63, 64, 65, 0};
  return random.Of(kSizes);
}

std::string SomeString(Random& random, std::string_view now) {
  static const std::string kStrings[] = {"",
                                         "\xff\xfe",
                                         "a\nb",
                                         "\x1b[31mred",
                                         "<b>&\"'</b>",
                                         "../../x",
                                         "/dev/zero",
                                         "%s%n{}",
                                         "octavo",
                                         std::string("a\0b", 3),
                                         "\xed\xa0\x80",
                                         "com.microsoft",
                                         "ai.onnx",
                                         "octavo.caches",
                                         "1",
                                         "attention_mask",
                                         "position_ids",
                                         std::string(5000, 'n'),
                                         "\xc3\xa4\xe2\x82\xac",
                                         "octavo_pipeline"};
  std::string text(now);
  const auto at = [&] { return static_cast<size_t>(random.Below(static_cast<int64_t>(text.size()))); };
  switch (random.Int(5)) {
    case 0:
      return random.Of(kStrings);
    case 1:
      if (!text.empty()) text.erase(at(), 1 + at());
      return text;
    case 2:
      return text + text;
    case 3:
      text.insert(text.empty() ? 0 : at(), 1, static_cast<char>(random.Int(256)));
      return text;
    default:
      if (!text.empty()) text[at()] = static_cast<char>(random.Int(256));
      return text;
  }
}

void SpoilBytes(Random& random, std::string& bytes) {
  const auto size = static_cast<int64_t>(bytes.size());
  switch (random.Int(5)) {
    case 0:
      bytes.resize(static_cast<size_t>(random.Below(size + 1)));
      return;
    case 1:
      bytes.append(static_cast<size_t>(1 + random.Below(9)), static_cast<char>(random.Int(256)));
      return;
    case 2:
      std::ranges::fill(bytes, static_cast<char>(random.OneIn(2) ? 0xff : random.Int(256)));
      return;
    case 3:
      bytes.clear();
      return;
    default:
      for (int n = 1 + random.Int(8); n > 0 && size > 0; --n)
        bytes[static_cast<size_t>(random.Below(size))] = static_cast<char>(random.Int(256));
  }
}

std::span<const OpName> KnownOps() {
  static const std::vector<OpName> kOps = [] {
    std::vector<OpName> ops = {
#define OCTAVO_OP(Name, domain, min_in, max_in, min_out, max_out) {domain, #Name, ir::InfoOf(ir::Op::k##Name).min_inputs},
#include "octavo/ir/ops.def"
#undef OCTAVO_OP
    };
    ops.pop_back();  // Opaque
    for (const std::string_view name : {"Attention",
                                        "BiasAdd",
                                        "BiasGelu",
                                        "DynamicQuantizeMatMul",
                                        "EmbedLayerNormalization",
                                        "FastGelu",
                                        "FusedGemm",
                                        "FusedMatMul",
                                        "Gelu",
                                        "GroupQueryAttention",
                                        "MatMulIntegerToFloat",
                                        "MatMulNBits",
                                        "MultiHeadAttention",
                                        "QAttention",
                                        "QEmbedLayerNormalization",
                                        "QGemm",
                                        "QLinearAdd",
                                        "QLinearAveragePool",
                                        "QLinearConcat",
                                        "QLinearGlobalAveragePool",
                                        "QLinearLeakyRelu",
                                        "QLinearMul",
                                        "QLinearReduceMean",
                                        "QLinearSigmoid",
                                        "QLinearSoftmax",
                                        "QLinearWhere",
                                        "QuantizeLinear",
                                        "DequantizeLinear",
                                        "QuickGelu",
                                        "RotaryEmbedding",
                                        "SkipLayerNormalization",
                                        "SkipSimplifiedLayerNormalization",
                                        "TransposeMatMul"}) {
      ops.push_back({"com.microsoft", name, -1});
    }
    for (const std::string_view name : {"Loop", "Upsample", "HardmaxX", "Shrink", "Bernoulli", "SequenceAt"})
      ops.push_back({"", name, -1});
    return ops;
  }();
  return kOps;
}

std::span<const std::string_view> KnownAttributes() {
  static constexpr std::string_view kNames[] = {"axis",
                                                "axes",
                                                "perm",
                                                "to",
                                                "keepdims",
                                                "epsilon",
                                                "alpha",
                                                "beta",
                                                "transA",
                                                "transB",
                                                "group",
                                                "pads",
                                                "strides",
                                                "dilations",
                                                "kernel_shape",
                                                "auto_pad",
                                                "mode",
                                                "num_heads",
                                                "q_num_heads",
                                                "kv_num_heads",
                                                "scale",
                                                "is_causal",
                                                "softcap",
                                                "qk_matmul_output_mode",
                                                "block_size",
                                                "bits",
                                                "accuracy_level",
                                                "K",
                                                "N",
                                                "output_dtype",
                                                "saturate",
                                                "start",
                                                "end",
                                                "dtype",
                                                "value",
                                                "value_float",
                                                "value_int",
                                                "value_ints",
                                                "value_floats",
                                                "value_string",
                                                "equation",
                                                "batch_dims",
                                                "reduction",
                                                "direction",
                                                "num_outputs",
                                                "split",
                                                "largest",
                                                "sorted",
                                                "exclusive",
                                                "reverse",
                                                "upper",
                                                "fmod",
                                                "interleaved",
                                                "rotary_embedding_dim",
                                                "do_rotary",
                                                "local_window_size",
                                                "unidirectional",
                                                "mask_filter_value",
                                                "qkv_hidden_sizes",
                                                "past_present_share_buffer",
                                                "stash_type",
                                                "activation",
                                                "noop_with_empty_axes",
                                                "allowzero",
                                                "ceil_mode",
                                                "count_include_pad",
                                                "storage_order",
                                                "training_mode",
                                                "then_branch",
                                                "else_branch",
                                                "body",
                                                "num_scan_inputs",
                                                "scan_input_axes",
                                                "scan_output_axes",
                                                "num_groups",
                                                "head_dim",
                                                "window_left",
                                                "window_right",
                                                "approximate",
                                                "broadcast",
                                                "consumed_inputs",
                                                "smooth_softmax",
                                                "rotary_interleaved",
                                                "channels_last",
                                                "blocksize",
                                                "octavo_captures",
                                                "coordinate_transformation_mode",
                                                "nearest_mode",
                                                "transBatchA",
                                                "transBatchB",
                                                "precision",
                                                "no_such_attribute"};
  return kNames;
}

}  // namespace octavo::fuzz
