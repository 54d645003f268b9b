// GGUF files, as llama.cpp writes them (versions 2 and 3, little endian): the tensors, and what their blocks mean in codes and scales.
//
// Nothing in the file is believed: counts are paid for by bytes, products of sizes do not overflow, every tensor lies inside of the file.
#ifndef OCTAVO_IR_GGUF_GGUF_H_
#define OCTAVO_IR_GGUF_GGUF_H_

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "octavo/ir/tensor.h"

namespace octavo::ir::gguf {

// The file's own numbers.
enum class Type : uint32_t {
  kF32 = 0,
  kF16 = 1,
  kQ4_0 = 2,
  kQ4_1 = 3,
  kQ5_0 = 6,
  kQ5_1 = 7,
  kQ8_0 = 8,
  kQ2_K = 10,
  kQ3_K = 11,
  kQ4_K = 12,
  kQ5_K = 13,
  kQ6_K = 14,
  kIQ4_NL = 20,
  kIQ4_XS = 23,
  kBF16 = 30,
  kMXFP4 = 39,
};

// How a type stores a row: blocks of so many elements in so many bytes. What it means:
//   w = code * scale of its group - min code * min scale of its block
// The mins come once for 16 elements (some types have one for 32, which is then there twice), so that those of a block of 256 are a block of 16.
struct Form {
  Type type;
  std::string_view name;
  int64_t elements, bytes;
  int64_t group = 0;                // elements that share a scale; 0: the tensor is floats, or becomes floats
  quant::DType codes = DType::kS8;  // the narrowest type that holds them
  bool mins = false;
};
const Form* FormOf(uint32_t type);  // null: octavo does not read it

struct TensorInfo {
  std::string name;
  uint32_t type = 0;
  Shape shape;  // the last dim is contiguous, as in ONNX
  std::span<const std::byte> data;
};

class File {
 public:
  static Result<File> Read(const std::filesystem::path& path);
  // `place` names the bytes in sentences.
  static Result<File> Parse(std::shared_ptr<const Buffer> bytes, std::string_view place);

  const std::vector<TensorInfo>& tensors() const { return tensors_; }
  const TensorInfo* Find(std::string_view name) const;
  std::string architecture() const;                           // "llama"; empty: not told
  std::optional<int64_t> Number(std::string_view key) const;  // a whole number of the metadata

 private:
  friend class Parser;
  std::shared_ptr<const Buffer> bytes_;
  std::vector<TensorInfo> tensors_;
  std::map<std::string, size_t, std::less<>> by_name_;
  std::map<std::string, int64_t, std::less<>> numbers_;
  std::string architecture_;
};

// A matrix [rows][k] as ONNX's blocked DequantizeLinear has it.
struct Blocks {
  Tensor codes, scale;  // [rows][k], [rows][k / group]
  int64_t group = 0;
  Tensor min_codes,
      min_scales;  // s8 [rows][k / 16], f32 [rows][k / 256], negative: what is added; only of types with mins
};

// order: row i of the result is row order[i] of the tensor; empty: as they are. Refuses scales that are not finite. The tensor has rank 2 and a group.
Result<Blocks> BlocksOf(const TensorInfo& tensor, std::span<const int64_t> order, bool whole_bytes);
// All elements in f32, in the same order; any rank.
Result<Tensor> FloatsOf(const TensorInfo& tensor, std::span<const int64_t> order);

}  // namespace octavo::ir::gguf

#endif  // OCTAVO_IR_GGUF_GGUF_H_
