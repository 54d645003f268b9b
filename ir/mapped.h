// Files that are read where the system maps them.
#ifndef OCTAVO_IR_MAPPED_H_
#define OCTAVO_IR_MAPPED_H_

#include <filesystem>
#include <memory>
#include <string>

#include "octavo/ir/tensor.h"

namespace octavo::ir {

// What mmap gave for reading, until the last tensor in it is gone.
class MappedFile final : public Buffer {
 public:
  MappedFile(void* data, size_t size, std::string label);
  ~MappedFile() override;
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
};

// The whole file, mapped read-only.
Result<std::shared_ptr<const Buffer>> MapFile(const std::filesystem::path& path, std::string label);

// Where the tensor lies in a mapped file, the memory of its pages goes back to the system; who reads it again gets them from the file. For whoever has
// read a weight that is not needed for a while: of a model that is larger than the memory not all weights lie there at once.
void ForgetPages(const Tensor& t);

}  // namespace octavo::ir

#endif  // OCTAVO_IR_MAPPED_H_
