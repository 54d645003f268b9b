#include "octavo/kernels/catalog.h"

#include <algorithm>
#include <format>
#include <optional>
#include <span>

#include "octavo/kernels/blocked/blocked_int8.h"
#include "octavo/kernels/fp8/fp8.h"
#include "octavo/kernels/sdpa/sdpa.h"

namespace octavo::kernels {
namespace {

using quant::DType;

// The largest k for which no weights can overflow int32: 255 * 128 * k < 2^31. Beyond it, it depends on the weights.
constexpr int64_t kMaxDepth = (int64_t{1} << 31) / (int64_t{255} * 128);  // 65793

constexpr std::string_view kActivations[] = {"none", "relu",    "gelu", "gelu_tanh",
                                             "silu", "sigmoid", "tanh", "quick_gelu"};

// What runs on an Arch: the tile and method of the products. Where an Arch has no code of its own, the name is that of
// the code that serves it.
struct Form {
  Arch arch;
  std::string_view linear;
  std::string_view small;  // 1 to 8 rows
  std::string_view sdpa_int8;
  std::string_view sdpa_f32;  // and weights in blocks, and fp8: what has no int8 dot product
};
constexpr Form kForms[] = {
    {Arch::kScalar, "scalar", "scalar", "scalar", "scalar"},
    {Arch::kAvx2, "6x8_s16_avx2", "m8_s16_avx2", "avx2", "avx2"},
    {Arch::kAvxVnni, "6x16_avxvnni", "m8_avxvnni", "avxvnni", "avx2"},
    {Arch::kAvx512, "6x16_s16_avx512", "m8_s16_avx512", "avx512", "avx512"},
    {Arch::kAvx512Vnni, "6x64_avx512vnni", "m8_avx512vnni", "avx512vnni", "avx512vnni"},
    {Arch::kAmx, "32x32_amx", "m8_avx512vnni", "amx", "avx512vnni"},
};

const Form& FormOf(Arch arch) {
  for (const Form& form : kForms) {
    if (form.arch == arch) return form;
  }
  return kForms[0];
}

// fp8 runs in floats, in pairs of bf16 or on the bf16 tiles of AMX.
std::string_view Fp8Form(Arch arch, bool bf16_pairs) {
  if (arch == Arch::kAmx) return "amx";
  return Fp8InPairs(arch, bf16_pairs) ? "avx512bf16" : FormOf(arch).sdpa_f32;
}

// Attention by parts of the keys has no form for AMX.
std::string_view PartsInt8Form(Arch arch) { return FormOf(arch == Arch::kAmx ? Arch::kAvx512Vnni : arch).sdpa_int8; }

// "linear_int8_6x64_avx512vnni"; fp8 has many and few rows in one kernel.
std::string LinearName(std::string_view kind, const LinearQuery& query, Arch arch) {
  const Form& form = FormOf(arch);
  if (quant::IsFp8(query.x)) return std::format("{}_fp8_{}", kind, Fp8Form(arch, query.bf16_pairs));
  return std::format("{}_int8_{}", kind, query.m >= 1 && query.m <= 8 ? form.small : form.linear);
}

// Beyond, int8 sums over keys may leave int32, by their zero points: |p - zp| * |v - zv| <= 255 * 255. SdpaMostKeys knows them.
constexpr int64_t kMaxKeys = (int64_t{1} << 31) / (int64_t{255} * 255);  // 33025

// "sdpa_int8_flash_window_avx2": rows in blocks, few rows, or tiles of keys; and whether keys are hidden.
std::string SdpaName(std::string_view type, const SdpaQuery& query, Arch arch) {
  const bool int8 = type == "int8", fp8 = type == "fp8";
  const bool flash = !fp8 && (query.flash || (int8 && query.kv_length > kMaxKeys));
  const int64_t rows = int8 ? query.heads / query.kv_heads * query.q_length : query.q_length;
  const bool few = !fp8 && !flash && rows >= 1 && rows <= kSdpaDecodeRows;
  if (int8 && (flash || few) && arch == Arch::kAmx) arch = Arch::kAvx512Vnni;  // their tiles are no tiles of AMX
  const std::string_view form = fp8    ? Fp8Form(arch, query.bf16_pairs)
                                : int8 ? FormOf(arch).sdpa_int8
                                       : FormOf(arch).sdpa_f32;
  return std::format("sdpa_{}{}{}_{}", type,
                     flash ? "_flash"
                     : few ? "_decode"
                           : "",
                     query.hides ? "_window" : "", form);
}

Choice Refuse(std::string sentence) { return {.kernel = {}, .refusal = std::move(sentence)}; }

bool Known(std::string_view activation) {
  for (std::string_view known : kActivations) {
    if (known == activation) return true;
  }
  return false;
}

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
  if (!Known(query.activation)) return std::format("the epilogue has no activation '{}'", query.activation);
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
    return {.kernel = std::format("linear_blocked_int8_{}", FormOf(arch).sdpa_int8), .refusal = {}};
  }
  return {.kernel = std::format("linear_blocked_{}", FormOf(arch).sdpa_f32), .refusal = {}};
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
  constexpr std::string_view kNames[kFamilies] = {"norm",       "softmax",    "quantize",
                                                  "dequantize", "minmax",     "unary",
                                                  "binary",     "lookup",     "linear_f32_few_rows",
                                                  "linear_f32", "matmul_f32", "conv_f32"};
  if (family == Family::kFewRowsF32 && arch == Arch::kScalar) family = Family::kGemmF32;
  std::string_view form = FormOf(arch).sdpa_f32;
  if (family == Family::kGemmF32 || family == Family::kMatMulF32 || family == Family::kConvF32) form = "onednn";
  if (family == Family::kLookup && form != "avx512vnni") form = "scalar";  // a byte by two loads
  return std::format("{}_{}", kNames[static_cast<int>(family)], form);
}

std::vector<std::string> KernelNames() {
  std::vector<std::string> names;
  const auto add = [&names](std::string_view kind, std::string_view form) {
    std::string name = std::format("{}_{}", kind, form);
    if (std::ranges::count(names, name) == 0) names.push_back(std::move(name));
  };
  for (std::string_view kind : {"linear_int8", "qkv_int8"}) {
    for (const Form& form : kForms) add(kind, form.linear);
    for (const Form& form : kForms) add(kind, form.small);
  }
  for (std::string_view kind :
       {"linear_blocked", "linear_fp8", "qkv_fp8", "sdpa_fp8", "sdpa_fp8_window", "sdpa_f32", "sdpa_f32_window",
        "sdpa_f32_flash", "sdpa_f32_flash_window", "sdpa_f32_decode", "sdpa_f32_decode_window"}) {
    for (const Form& form : kForms) add(kind, form.sdpa_f32);
  }
  for (const Form& form : kForms) add("linear_blocked_int8", form.sdpa_int8);
  for (std::string_view kind : {"linear_fp8", "qkv_fp8", "sdpa_fp8", "sdpa_fp8_window"})
    add(kind, "avx512bf16"), add(kind, "amx");
  for (std::string_view kind : {"sdpa_int8", "sdpa_int8_window"}) {
    for (const Form& form : kForms) add(kind, form.sdpa_int8);
  }
  for (std::string_view kind :
       {"sdpa_int8_flash", "sdpa_int8_flash_window", "sdpa_int8_decode", "sdpa_int8_decode_window"}) {
    for (const Form& form : kForms) add(kind, PartsInt8Form(form.arch));
  }
  for (int family = 0; family < kFamilies; ++family) {
    for (const Form& form : kForms) {
      std::string name = KernelOf(static_cast<Family>(family), form.arch);
      if (std::ranges::count(names, name) == 0) names.push_back(std::move(name));
    }
  }
  return names;
}

}  // namespace octavo::kernels
