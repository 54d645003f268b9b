// Which kernel serves a query on an Arch, or why none does. A pure function, so that choices for CPUs that we do not
// own are tested by name. Passes ask it before they fuse; it is the only header of kernels/ that they may include.
#ifndef OCTAVO_KERNELS_CATALOG_H_
#define OCTAVO_KERNELS_CATALOG_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "octavo/kernels/arch/arch.h"
#include "octavo/quant/numeric/dtype.h"

namespace octavo::kernels {

// Int8 x int8 or fp8 x fp8 with epilogue; `n` has one width per branch (qkv: 1..8; linear: exactly 1).
struct LinearQuery {
  quant::DType x = quant::DType::kU8;
  quant::DType w = quant::DType::kS8;
  std::vector<quant::DType> y;  // per branch: kF32, kBF16, kU8, kS8 or fp8
  int64_t k = 0;
  std::vector<int64_t> n;
  std::string_view activation = "none";  // of all branches
  int64_t m = -1;                        // rows; -1: not known. 1 to 8 have kernels of their own
  bool bf16_pairs = false;               // GainsByBf16Pairs, which decides how fp8 is multiplied
};

// Float rows times weights in blocks along k.
struct BlockedQuery {
  quant::DType w = quant::DType::kU4;  // kU4, kS4, kU8 or kS8
  int64_t block = 32;
  int64_t x_bits = 0;  // 8: rows become codes of 8 bits on the way
};

struct SdpaQuery {
  quant::DType q = quant::DType::kU8;
  quant::DType k = quant::DType::kU8;
  quant::DType v = quant::DType::kU8;
  quant::DType p = quant::DType::kU8;  // kF32 for all four: float attention; fp8 for all four
  quant::DType out = quant::DType::kU8;
  int64_t heads = 0;
  int64_t kv_heads = 0;
  int64_t head_size = 0;        // of q and k
  int64_t value_head_size = 0;  // of v and the output
  int64_t q_length = -1;        // rows of Q; -1: not known. Few of them have kernels of their own
  int64_t kv_length = -1;       // -1: not known
  bool flash = false;       // asked for; int8 takes it without being asked where the sums of the exact form could end
  bool hides = false;       // a window or a bool mask hides keys
  bool bf16_pairs = false;  // as in LinearQuery
};

struct Choice {
  std::string kernel;   // "linear_int8_6x64_avx512vnni"; empty when refused
  std::string refusal;  // a sentence; empty when chosen
  bool ok() const { return !kernel.empty(); }
};

Choice ChooseLinear(const LinearQuery& query, Arch arch);
Choice ChooseQkv(const LinearQuery& query, Arch arch);
Choice ChooseBlocked(const BlockedQuery& query, Arch arch);
Choice ChooseSdpa(const SdpaQuery& query, Arch arch);

// What has one form for all sizes and refuses nothing. The last is oneDNN's, which asks the CPU itself.
enum class Family : uint8_t {
  kNorm,
  kSoftmax,
  kQuantize,
  kDequantize,
  kMinMax,
  kUnary,
  kBinary,
  kLookup,
  kPanelsF32,
  kConvF32,
};
inline constexpr int kFamilies = 10;
std::string KernelOf(Family family, Arch arch);

// Every name that these functions can return, for tables and tests.
std::vector<std::string> KernelNames();

}  // namespace octavo::kernels

#endif  // OCTAVO_KERNELS_CATALOG_H_
