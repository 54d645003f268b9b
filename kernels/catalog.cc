#include "octavo/kernels/catalog.h"

#include <algorithm>
#include <format>

#include "octavo/kernels/blocked/blocked_int8.h"
#include "octavo/kernels/forms.h"
#include "octavo/kernels/gemm/gemm.h"
#include "octavo/kernels/gemm/segments.h"
#include "octavo/kernels/sdpa/sdpa.h"

namespace octavo::kernels {
namespace {

using quant::DType;

// The largest k for which no weights can overflow int32: 255 * 128 * k < 2^31. Beyond it, it depends on the weights.
constexpr int64_t kMaxDepth = (int64_t{1} << 31) / (int64_t{255} * 128);  // 65793

// Of kernels without a table of forms of their own (norm, softmax, element-wise): vectors of floats or bytes, which need no dot products.
std::string_view PlainForm(Arch arch) { return internal::SdpaF32Form(arch); }

// "linear_int8_6x64_avx512vnni"; fp8 has many and few rows in one kernel.
std::string LinearName(std::string_view kind, const LinearQuery& query, Arch arch) {
  if (quant::IsFp8(query.x)) return std::format("{}_fp8_{}", kind, internal::LinearFp8Form(arch, query.bf16_pairs));
  const bool few = query.m >= 1 && query.m <= internal::kSmallRows;
  return std::format("{}_int8_{}", kind, few ? internal::GemmFewRowsForm(arch) : internal::GemmForm(arch));
}

// Beyond, int8 sums over keys may leave int32, by their zero points: |p - zp| * |v - zv| <= 255 * 255. SdpaMostKeys knows them.
constexpr int64_t kMaxKeys = (int64_t{1} << 31) / (int64_t{255} * 255);  // 33025

// "sdpa_int8_flash_window_avx2": rows in blocks, few rows, or tiles of keys; and whether keys are hidden.
std::string SdpaName(std::string_view type, const SdpaQuery& query, Arch arch) {
  const bool int8 = type == "int8", fp8 = type == "fp8";
  const bool flash = !fp8 && (query.flash || (int8 && query.kv_length > kMaxKeys));
  const int64_t rows = int8 ? query.heads / query.kv_heads * query.q_length : query.q_length;
  const bool few = !fp8 && !flash && rows >= 1 && rows <= kSdpaDecodeRows;
  const std::string_view form = fp8             ? internal::SdpaFp8Form(arch, query.bf16_pairs)
                                : int8 && flash ? internal::SdpaFlashInt8Form(arch)
                                : int8 && few   ? internal::SdpaDecodeInt8Form(arch)
                                : int8          ? internal::SdpaInt8Form(arch)
                                : flash         ? internal::SdpaFlashF32Form(arch)
                                : few           ? internal::SdpaDecodeF32Form(arch)
                                                : internal::SdpaF32Form(arch);
  return std::format("sdpa_{}{}{}_{}", type,
                     flash ? "_flash"
                     : few ? "_decode"
                           : "",
                     query.hides ? "_window" : "", form);
}

Choice Refuse(std::string sentence) { return {.kernel = {}, .refusal = std::move(sentence)}; }

// Empty, or why no int8 linear kernel takes the query.
std::string RefuseLinear(const LinearQuery& query) {
  const bool fp8 = quant::IsFp8(query.x);
  if (!fp8 && !quant::IsInt8(query.x)) {
    return std::format("the activation is {}; the kernels take u8, s8 or fp8", Name(query.x));
  }
  if (fp8 && !quant::IsFp8(query.w)) return std::format("the activation is fp8, the weights are {}", Name(query.w));
  if (!fp8 && !quant::IsInt8(query.w))
    return std::format("the weights are {}; the int8 kernels take s8 or u8", Name(query.w));
  if (query.k <= 0) return "the depth k of the product is not known";
  if (!fp8 && query.k > kMaxDepth) {
    return std::format("k is {}, and beyond {} the int32 sum of an int8 product can overflow", query.k, kMaxDepth);
  }
  if (query.y.size() != query.n.size()) return "the query has not one output type per branch";
  for (size_t i = 0; i < query.n.size(); ++i) {
    if (query.n[i] <= 0) return std::format("the width of branch {} is not known", i);
    const DType y = query.y[i];
    if (y != DType::kF32 && y != DType::kBF16 && !quant::IsInt8(y) && !quant::IsFp8(y)) {
      return std::format("output {} is {}; the kernels write f32, bf16, u8, s8 or fp8", i, Name(y));
    }
  }
  Activation activation;
  if (!ActivationFromName(query.activation, &activation))
    return std::format("the epilogue has no activation '{}'", query.activation);
  return {};
}

std::string RefuseHeads(const SdpaQuery& query) {
  if (query.heads <= 0 || query.kv_heads <= 0) return "the number of heads is not known";
  if (query.heads % query.kv_heads != 0) {
    return std::format("{} query heads are no multiple of {} key and value heads", query.heads, query.kv_heads);
  }
  if (query.head_size < 1 || query.head_size > 256 || query.value_head_size < 1 || query.value_head_size > 256) {
    return std::format("head sizes are {} and {}; the attention kernels take 1 to 256", query.head_size,
                       query.value_head_size);
  }
  return {};
}

}  // namespace

Choice ChooseLinear(const LinearQuery& query, Arch arch) {
  if (query.n.size() != 1)
    return Refuse(std::format("a linear layer has one branch, this query has {}", query.n.size()));
  std::string reason = RefuseLinear(query);
  if (!reason.empty()) return Refuse(std::move(reason));
  return {.kernel = LinearName("linear", query, arch), .refusal = {}};
}

Choice ChooseQkv(const LinearQuery& query, Arch arch) {
  if (query.n.size() < 2 || query.n.size() > 8) {
    return Refuse(std::format("qkv takes 2 to 8 branches, this query has {}", query.n.size()));
  }
  std::string reason = RefuseLinear(query);
  if (!reason.empty()) return Refuse(std::move(reason));
  return {.kernel = LinearName("qkv", query, arch), .refusal = {}};
}

Choice ChooseBlocked(const BlockedQuery& query, Arch arch) {
  const bool known = query.w == DType::kU4 || query.w == DType::kS4 || quant::IsInt8(query.w);
  if (!known)
    return Refuse(std::format("weights in blocks are {}; the kernels take 4- and 8-bit integers", Name(query.w)));
  if (query.block < 16 || query.block > 1024 || query.block % 16 != 0) {
    return Refuse(std::format("blocks of {}; the kernels take multiples of 16 up to 1024", query.block));
  }
  if (query.x_bits != 0 && query.x_bits != 8)
    return Refuse(std::format("activations of {} bits; the kernels take floats or 8 bits", query.x_bits));
  if (query.x_bits == 8) {
    if (query.block > kMaxBlockOfCodes)
      return Refuse(std::format("blocks of {}; with activations of 8 bits the kernels take up to {}", query.block,
                                kMaxBlockOfCodes));
    return {.kernel = std::format("linear_blocked_int8_{}", internal::BlockedInt8Form(arch)), .refusal = {}};
  }
  return {.kernel = std::format("linear_blocked_{}", internal::BlockedForm(arch)), .refusal = {}};
}

Choice ChooseSdpa(const SdpaQuery& query, Arch arch) {
  std::string reason = RefuseHeads(query);
  if (!reason.empty()) return Refuse(std::move(reason));
  const DType types[] = {query.q, query.k, query.v, query.p};
  const auto all = [&types](auto&& holds) {
    return holds(types[0]) && holds(types[1]) && holds(types[2]) && holds(types[3]);
  };
  if (all([](DType t) { return t == DType::kF32; })) {
    if (query.out != DType::kF32) return Refuse(std::format("float attention writes f32, not {}", Name(query.out)));
    return {.kernel = SdpaName("f32", query, arch), .refusal = {}};
  }
  if (all(quant::IsFp8)) {
    if (query.out != DType::kF32 && !quant::IsFp8(query.out)) {
      return Refuse(std::format("fp8 attention writes fp8 or f32, not {}", Name(query.out)));
    }
    return {.kernel = SdpaName("fp8", query, arch), .refusal = {}};
  }
  if (!all(quant::IsInt8)) {
    return Refuse(std::format(
        "q, k, v and the probabilities are {}, {}, {}, {}; the kernels take u8 or s8, or fp8 for all, or f32 for all",
        Name(query.q), Name(query.k), Name(query.v), Name(query.p)));
  }
  if (query.out != DType::kF32 && !quant::IsInt8(query.out)) {
    return Refuse(std::format("the output is {}; int8 attention writes f32, u8 or s8", Name(query.out)));
  }
  return {.kernel = SdpaName("int8", query, arch), .refusal = {}};
}

std::string KernelOf(Family family, Arch arch) {
  constexpr std::string_view kNames[kFamilies] = {"norm",  "softmax", "quantize", "dequantize",        "minmax",
                                                  "unary", "binary",  "lookup",   "linear_f32_panels", "conv_f32"};
  std::string_view form = PlainForm(arch);
  if (family == Family::kConvF32) form = "onednn";
  if (family == Family::kLookup && form != "avx512vnni") form = "scalar";  // a byte by two loads
  return std::format("{}_{}", kNames[static_cast<int>(family)], form);
}

std::vector<std::string> KernelNames() {
  using namespace internal;  // NOLINT: the tables' names
  std::vector<std::string> names;
  const auto add = [&names](std::string name) {
    if (std::ranges::count(names, name) == 0) names.push_back(std::move(name));
  };
  const auto attention = [&](std::string_view kind, std::string_view form) {
    add(std::format("sdpa_{}_{}", kind, form));
    add(std::format("sdpa_{}_window_{}", kind, form));
  };
  for (const Arch arch : kArchs) {
    for (std::string_view kind : {"linear", "qkv"}) {
      add(std::format("{}_int8_{}", kind, GemmForm(arch)));
      add(std::format("{}_int8_{}", kind, GemmFewRowsForm(arch)));
      for (const bool pairs : {false, true}) add(std::format("{}_fp8_{}", kind, LinearFp8Form(arch, pairs)));
    }
    add(std::format("linear_blocked_{}", BlockedForm(arch)));
    add(std::format("linear_blocked_int8_{}", BlockedInt8Form(arch)));
    for (const bool pairs : {false, true}) attention("fp8", SdpaFp8Form(arch, pairs));
    attention("f32", SdpaF32Form(arch)), attention("int8", SdpaInt8Form(arch));
    attention("f32_flash", SdpaFlashF32Form(arch)), attention("int8_flash", SdpaFlashInt8Form(arch));
    attention("f32_decode", SdpaDecodeF32Form(arch)), attention("int8_decode", SdpaDecodeInt8Form(arch));
    for (int family = 0; family < kFamilies; ++family) add(KernelOf(static_cast<Family>(family), arch));
  }
  return names;
}

}  // namespace octavo::kernels
