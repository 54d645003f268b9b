// Internal to ir/npz: zip archives as numpy writes and reads them, members stored or deflated, with the 64-bit sizes. zlib alone is used.
#ifndef OCTAVO_IR_NPZ_ZIP_H_
#define OCTAVO_IR_NPZ_ZIP_H_

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "octavo/ir/npz/npy.h"
#include "octavo/ir/whole_file.h"

namespace octavo::ir::internal {

// One line of an archive's directory. All of it is claimed, nothing is checked.
struct ZipEntry {
  std::string name;
  uint64_t size = 0, packed = 0, header = 0;  // of the data; of what lies in the file; where its local header begins
  uint32_t checksum = 0;
  uint16_t method = 0;
  bool encrypted = false;
  static constexpr uint16_t kStored = 0, kDeflated = 8;
};

struct ZipArchive {
  std::ifstream file;
  uint64_t bytes = 0;  // of the file
  std::vector<ZipEntry> entries;
};
// The directory at the end of the file. An error says what is wrong without naming the file.
Result<ZipArchive> OpenZip(const std::filesystem::path& path);

// The data of one member, unpacked while it is read. `place` names it in sentences.
class ZipMember : public ByteSource {
 public:
  // The entry's method is kStored or kDeflated.
  static Result<std::unique_ptr<ZipMember>> Open(ZipArchive& archive, const ZipEntry& entry, std::string place);
  ~ZipMember() override;

  Status Read(void* to, size_t n) override;
  uint64_t remaining() const override { return remaining_; }
  Status Finish();  // all was read: the data end here, and the checksum is the directory's

 private:
  struct Inflater;
  ZipMember(ZipArchive& archive, const ZipEntry& entry, std::string place);
  Result<size_t> Some(char* to, size_t n);  // 0: the data end
  size_t Packed(char* to, size_t n);        // the next bytes of the file

  ZipArchive& archive_;
  std::string place_;
  uint64_t at_ = 0, packed_ = 0, remaining_ = 0;
  uint32_t wanted_ = 0, checksum_ = 0;
  std::unique_ptr<Inflater> inflater_;  // null: stored
};

// Writes from begin to end, so a pipe will do. Every member has the date 1980-01-01, the first that the format knows and the one numpy writes.
class ZipWriter {
 public:
  explicit ZipWriter(NewFile& file) : file_(file) {}
  Status Add(const std::string& name, std::string_view data, bool deflate);
  Status Finish();

 private:
  Status Write(std::string_view bytes);

  NewFile& file_;
  uint64_t at_ = 0, count_ = 0;
  std::string directory_;
};

}  // namespace octavo::ir::internal

#endif  // OCTAVO_IR_NPZ_ZIP_H_
