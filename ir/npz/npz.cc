#include "octavo/ir/npz/npz.h"

#include <format>
#include <string>
#include <utility>

#include "octavo/ir/closed.h"
#include "octavo/ir/names.h"
#include "octavo/ir/npz/npy.h"
#include "octavo/ir/npz/zip.h"
#include "octavo/ir/whole_file.h"

namespace octavo::ir {

namespace {

using internal::ZipArchive, internal::ZipEntry, internal::ZipMember;

// Sizes in an archive are claims. deflate packs at most 1032 to 1, so a larger claim is a lie, and nothing is
// allocated.
Status CheckClaim(const ZipEntry& entry, uint64_t file_bytes, const std::string& place) {
  if (entry.encrypted) return Fail("{} is encrypted", place);
  if (entry.method != ZipEntry::kStored && entry.method != ZipEntry::kDeflated) {
    return Fail("{} is compressed by method {}; numpy.savez and numpy.savez_compressed write what octavo reads", place,
                entry.method);
  }
  const bool stored = entry.method == ZipEntry::kStored;
  if (entry.packed > file_bytes || (stored && entry.size != entry.packed) ||
      (!stored && entry.size / 1032 > entry.packed + 1)) {
    return Fail("{} claims {} bytes, which the file cannot hold", place, entry.size);
  }
  return {};
}

Result<TensorMap> ReadArchive(ZipArchive& archive, const std::string& file) {
  TensorMap arrays;
  uint64_t packed = 0;  // of the members so far: those that overlap take more than the file has
  for (const ZipEntry& entry : archive.entries) {
    std::string name = entry.name;
    if (!name.ends_with(".npy")) return Fail("{} holds {}, which is no .npy member", file, Quoted(name));
    name.resize(name.size() - 4);
    const std::string place = std::format("array {} of {}", Quoted(name), file);
    if (arrays.contains(name)) return Fail("{} is there twice", place);
    OCTAVO_TRY_STATUS(CheckClaim(entry, archive.bytes, place));
    packed += entry.packed;
    if (packed > archive.bytes)
      return Fail("{} overlaps others: together they take more bytes than the file has", place);
    OCTAVO_TRY(const auto member, ZipMember::Open(archive, entry, place));
    OCTAVO_TRY(Tensor tensor, internal::ReadNpyFrom(*member, place));
    OCTAVO_TRY_STATUS(member->Finish());
    arrays.emplace(std::move(name), std::move(tensor));
  }
  return arrays;
}

// An archive's names end at a zero byte.
std::string MemberName(const std::string& array) {
  return (array.find('\0') == std::string::npos ? array : Clean(array, array.size())) + ".npy";
}

}  // namespace

Result<TensorMap> ReadNpz(const std::filesystem::path& path, const Limits& limits) {
  return Closed("reading arrays", [&]() -> Result<TensorMap> {
    const std::string file = Quoted(path.string());
    std::error_code ec;
    const uint64_t bytes = std::filesystem::file_size(path, ec);
    if (ec) return Fail("cannot read {}: {}", file, ec.message());
    return Closed(file, MemoryLimit(limits, static_cast<int64_t>(bytes)), [&]() -> Result<TensorMap> {
      auto archive = internal::OpenZip(path);
      if (!archive) {
        return Fail("cannot read {} as a numpy .npz archive: {}; is it cut off, or another format?", file,
                    archive.error().message);
      }
      return ReadArchive(*archive, file);
    });
  });
}

Status WriteNpz(const std::filesystem::path& path, const TensorMap& arrays, const NpzOptions& options) {
  return Closed("writing arrays", [&]() -> Status {
    if (arrays.empty()) return Fail("cannot write {}: there is no array to write", Quoted(path.string()));
    OCTAVO_TRY(NewFile file, NewFile::Create(path));
    internal::ZipWriter archive(file);
    for (const auto& [name, tensor] : arrays) {
      OCTAVO_TRY(const std::string bytes, NpyBytes(tensor));
      OCTAVO_TRY_STATUS(archive.Add(MemberName(name), bytes, options.deflate));
    }
    OCTAVO_TRY_STATUS(archive.Finish());
    return file.Commit();
  });
}

}  // namespace octavo::ir
