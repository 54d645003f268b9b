// Packed weights that are kept in a file from one process to the next: mapped, so that all processes share them and none packs them again. An entry has for its
// key a hash of the constants that it was made of and of the way in which they were packed; the file tells which octavo made it, and for which Arch.
// Whatever does not fit (another octavo, a file cut short, contents that are not those that were written) is packed anew, and the file is written anew.
// A hash tells damage, not malice: who may write the file may change the weights, as with the model's own. Sizes are checked, so no file leads out of its memory.
#ifndef OCTAVO_RUNTIME_PACKED_FILE_H_
#define OCTAVO_RUNTIME_PACKED_FILE_H_

#include <functional>
#include <initializer_list>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "octavo/ir/tensor.h"
#include "octavo/kernels/arch/arch.h"
#include "octavo/kernels/simd/weights.h"
#include "octavo/runtime/content_hash.h"
#include "octavo/runtime/model.h"

namespace octavo::runtime {

// While one lives, it is told how much of such a file is written, in MB, by what this thread compiles. One at a time.
class PackingWatch {
 public:
  using Tell = std::function<void(int64_t done, int64_t total)>;
  explicit PackingWatch(Tell tell);
  ~PackingWatch();
  PackingWatch(const PackingWatch&) = delete;
  PackingWatch& operator=(const PackingWatch&) = delete;
};

class PackedFile {
 public:
  using Arrays = std::vector<kernels::WeightBytes>;

  // A file that is not there, or does not fit, has no entries. An error where something else lies there, which is not to be written over.
  static ir::Result<PackedFile> Open(std::string path, std::string_view made_by, kernels::Arch arch);

  // `how`: all besides the constants on which the packed form depends. Null constants are absent ones.
  static ContentHash KeyOf(std::string_view how, std::initializer_list<const ir::Tensor*> of);

  // What the file has, if it is what was written; empty: nothing.
  Arrays Find(const ContentHash& key) const;
  // What the file is to have: taken from it, or made now.
  void Keep(const ContentHash& key, Arrays arrays, bool made);
  // Writes the file where something was made. The packed weights that it mapped stay valid.
  PackedReport Finish() const;

 private:
  struct Array {
    uint64_t offset, bytes;
    ContentHash hash;
  };
  struct Entry {
    ContentHash key;
    Arrays arrays;
  };

  void Read(const std::shared_ptr<const ir::Buffer>& file);
  ir::Status Write() const;

  std::string path_;
  std::string made_by_;  // with the Arch
  std::shared_ptr<const ir::Buffer> file_;
  std::map<ContentHash, std::vector<Array>> found_;
  std::vector<Entry> kept_;
  PackedReport report_;
};

}  // namespace octavo::runtime

#endif  // OCTAVO_RUNTIME_PACKED_FILE_H_
