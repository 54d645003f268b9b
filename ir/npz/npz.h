// numpy's files: .npy (one array) and .npz (a zip archive of .npy members, by name).
//
// Read: bool, all integers, f16, f32, f64, U and S strings, both byte orders, C and Fortran order (brought to C order),
// header versions 1 to 3, members stored or deflated. Refused with a sentence: pickled objects, structured arrays,
// complex numbers, dates, encrypted or otherwise compressed members, members that overlap, sizes that disagree with the data.
// Written: version 1 headers as numpy writes them, C order, little endian. numpy has no bf16, fp8 and 4-bit types:
// these are widened exactly, bf16 and fp8 to float32, s4 to int8, u4 to uint8.
#ifndef OCTAVO_IR_NPZ_NPZ_H_
#define OCTAVO_IR_NPZ_NPZ_H_

#include <filesystem>
#include <string>
#include <string_view>

#include "octavo/ir/interpret.h"
#include "octavo/ir/limits.h"
#include "octavo/ir/tensor.h"

namespace octavo::ir {

// All arrays together take no more memory than the limits allow for a file of that size.
Result<TensorMap> ReadNpz(const std::filesystem::path& path, const Limits& limits = {});
Result<Tensor> ReadNpy(const std::filesystem::path& path);
// `place` names the bytes in error sentences.
Result<Tensor> ParseNpy(std::string_view bytes, std::string_view place);

struct NpzOptions {
  bool deflate = false;  // false: stored, as numpy.savez; true: as numpy.savez_compressed
};

// Members in the order of their names with a fixed date: same arrays, same bytes. Whole or not at all.
Status WriteNpz(const std::filesystem::path& path, const TensorMap& arrays, const NpzOptions& options = {});
Status WriteNpy(const std::filesystem::path& path, const Tensor& tensor);
Result<std::string> NpyBytes(const Tensor& tensor);

}  // namespace octavo::ir

#endif  // OCTAVO_IR_NPZ_NPZ_H_
