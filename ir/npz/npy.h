// Internal to ir/npz: one array from a stream of bytes whose length is known.
#ifndef OCTAVO_IR_NPZ_NPY_H_
#define OCTAVO_IR_NPZ_NPY_H_

#include <cstdint>
#include <string_view>

#include "octavo/ir/tensor.h"

namespace octavo::ir::internal {

class ByteSource {
 public:
  virtual ~ByteSource() = default;
  // Exactly `n` bytes, or the reason why not.
  virtual Status Read(void* to, size_t n) = 0;
  // Bytes not read yet. No array larger than this is allocated.
  virtual uint64_t remaining() const = 0;
};

Result<Tensor> ReadNpyFrom(ByteSource& source, std::string_view place);

}  // namespace octavo::ir::internal

#endif  // OCTAVO_IR_NPZ_NPY_H_
