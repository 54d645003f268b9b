#include "octavo/ir/npz/zip.h"

#include <zlib.h>

#include <algorithm>
#include <array>
#include <limits>
#include <optional>
#include <utility>

#include "octavo/ir/names.h"

namespace octavo::ir::internal {

namespace {

constexpr uint32_t kLocalMark = 0x04034b50, kEntryMark = 0x02014b50, kEndMark = 0x06054b50;
constexpr uint32_t kEnd64Mark = 0x06064b50, kLocator64Mark = 0x07064b50;
constexpr size_t kLocalBytes = 30, kEntryBytes = 46, kEndBytes = 22, kEnd64Bytes = 56, kLocator64Bytes = 20;
constexpr uint32_t kElsewhere32 = UINT32_MAX;  // the value stands in the 64-bit record
constexpr uint16_t kElsewhere16 = UINT16_MAX, kExtra64 = 1, kUtf8Flag = 0x800, kEncryptedFlag = 1;
constexpr std::string_view kDamaged = "its directory is damaged";

// A number of the file, whose bytes are little-endian. The caller has checked that they are there.
template <typename T>
T At(std::string_view bytes, size_t at) {
  T value = 0;
  for (size_t i = 0; i < sizeof(T); ++i)
    value |= static_cast<T>(static_cast<T>(static_cast<uint8_t>(bytes[at + i])) << (8 * i));
  return value;
}

template <typename... T>
std::string Bytes(T... values) {
  std::string bytes;
  const auto append = [&bytes](auto value) {
    for (size_t i = 0; i < sizeof(value); ++i) bytes += static_cast<char>(value >> (8 * i) & 255);
  };
  (append(values), ...);
  return bytes;
}

// Bytes [at, at + n) of the file, fewer where it ends.
std::string Piece(std::ifstream& file, uint64_t at, size_t n) {
  std::string piece(n, '\0');
  file.clear();
  file.seekg(static_cast<std::streamoff>(at));
  file.read(piece.data(), static_cast<std::streamsize>(n));
  piece.resize(static_cast<size_t>(std::max<std::streamsize>(file.gcount(), 0)));
  return piece;
}

struct Directory {
  uint64_t at = 0, size = 0, count = 0;
};

// The record at the end of the file, which a comment may follow, and the 64-bit one that it leads to.
Result<Directory> FindDirectory(std::ifstream& file, uint64_t bytes) {
  const uint64_t most = std::min<uint64_t>(bytes, kEndBytes + UINT16_MAX + kLocator64Bytes);
  const std::string tail = Piece(file, bytes - most, most);
  std::optional<size_t> end;
  for (size_t back = kEndBytes; back <= tail.size() && !end; ++back) {
    const size_t at = tail.size() - back;
    if (At<uint32_t>(tail, at) == kEndMark && At<uint16_t>(tail, at + 20) == back - kEndBytes) end = at;
  }
  if (!end) return Fail("it has no directory of a zip archive");
  Directory found = {.at = At<uint32_t>(tail, *end + 16),
                     .size = At<uint32_t>(tail, *end + 12),
                     .count = At<uint16_t>(tail, *end + 10)};
  if (found.at == kElsewhere32 || found.size == kElsewhere32 || found.count == kElsewhere16) {
    if (*end >= kLocator64Bytes && At<uint32_t>(tail, *end - kLocator64Bytes) == kLocator64Mark) {
      const std::string record = Piece(file, At<uint64_t>(tail, *end - kLocator64Bytes + 8), kEnd64Bytes);
      if (record.size() < kEnd64Bytes || At<uint32_t>(record, 0) != kEnd64Mark) return Fail("{}", kDamaged);
      found = {.at = At<uint64_t>(record, 48), .size = At<uint64_t>(record, 40), .count = At<uint64_t>(record, 32)};
    }
  }
  if (found.size > bytes || found.at > bytes - found.size || found.count > found.size / kEntryBytes)
    return Fail("{}", kDamaged);
  return found;
}

// What of the entry stands in its 64-bit extra field, in the order of the format.
bool ReadExtra64(std::string_view extra, ZipEntry& entry) {
  const bool wanted = entry.size == kElsewhere32 || entry.packed == kElsewhere32 || entry.header == kElsewhere32;
  while (wanted && extra.size() >= 4) {
    const auto kind = At<uint16_t>(extra, 0), length = At<uint16_t>(extra, 2);
    extra.remove_prefix(4);
    if (length > extra.size()) return false;
    std::string_view field = extra.substr(0, length);
    extra.remove_prefix(length);
    if (kind != kExtra64) continue;
    for (uint64_t* value : {&entry.size, &entry.packed, &entry.header}) {
      if (*value != kElsewhere32) continue;
      if (field.size() < sizeof(uint64_t)) return false;
      *value = At<uint64_t>(field, 0);
      field.remove_prefix(sizeof(uint64_t));
    }
    return true;
  }
  return true;
}

}  // namespace

Result<ZipArchive> OpenZip(const std::filesystem::path& path) {
  ZipArchive archive;
  std::error_code ec;
  archive.file.open(path, std::ios::binary);
  archive.bytes = std::filesystem::file_size(path, ec);
  if (!archive.file || ec) return Fail("it cannot be opened");
  OCTAVO_TRY(const Directory directory, FindDirectory(archive.file, archive.bytes));
  const std::string bytes = Piece(archive.file, directory.at, directory.size);
  std::string_view rest = bytes;
  for (uint64_t i = 0; i < directory.count; ++i) {
    if (rest.size() < kEntryBytes || At<uint32_t>(rest, 0) != kEntryMark) return Fail("{}", kDamaged);
    const size_t name = At<uint16_t>(rest, 28), extra = At<uint16_t>(rest, 30), comment = At<uint16_t>(rest, 32);
    if (rest.size() < kEntryBytes + name + extra + comment) return Fail("{}", kDamaged);
    ZipEntry entry = {.name = std::string(rest.substr(kEntryBytes, name)),
                      .size = At<uint32_t>(rest, 24),
                      .packed = At<uint32_t>(rest, 20),
                      .header = At<uint32_t>(rest, 42),
                      .checksum = At<uint32_t>(rest, 16),
                      .method = At<uint16_t>(rest, 10),
                      .encrypted = (At<uint16_t>(rest, 8) & kEncryptedFlag) != 0};
    if (!ReadExtra64(rest.substr(kEntryBytes + name, extra), entry)) return Fail("{}", kDamaged);
    rest.remove_prefix(kEntryBytes + name + extra + comment);
    archive.entries.push_back(std::move(entry));
  }
  return archive;
}

struct ZipMember::Inflater {
  Inflater() {
    ready = inflateInit2(&stream, -MAX_WBITS) == Z_OK;
  }  // negative: the bare stream, as zip archives have it
  ~Inflater() {
    if (ready) inflateEnd(&stream);
  }
  Inflater(const Inflater&) = delete;
  Inflater& operator=(const Inflater&) = delete;

  z_stream stream = {};
  bool ready = false, ended = false;
  std::array<char, 65536> packed;
};

ZipMember::ZipMember(ZipArchive& archive, const ZipEntry& entry, std::string place)
    : archive_(archive),
      place_(std::move(place)),
      packed_(entry.packed),
      remaining_(entry.size),
      wanted_(entry.checksum) {
  if (entry.method == ZipEntry::kDeflated) inflater_ = std::make_unique<Inflater>();
}
ZipMember::~ZipMember() = default;

Result<std::unique_ptr<ZipMember>> ZipMember::Open(ZipArchive& archive, const ZipEntry& entry, std::string place) {
  std::unique_ptr<ZipMember> member(new ZipMember(archive, entry, std::move(place)));
  const std::string local =
      entry.header < archive.bytes ? Piece(archive.file, entry.header, kLocalBytes) : std::string();
  if (local.size() < kLocalBytes || At<uint32_t>(local, 0) != kLocalMark || At<uint16_t>(local, 8) != entry.method)
    return Fail("{} is damaged: the archive's directory points to something else", member->place_);
  member->at_ = entry.header + kLocalBytes + At<uint16_t>(local, 26) + At<uint16_t>(local, 28);
  if (member->inflater_ && !member->inflater_->ready)
    return Fail("{} cannot be unpacked: out of memory", member->place_);
  return member;
}

size_t ZipMember::Packed(char* to, size_t n) {
  n = static_cast<size_t>(std::min<uint64_t>(n, packed_));
  archive_.file.clear();
  archive_.file.seekg(static_cast<std::streamoff>(at_));
  archive_.file.read(to, static_cast<std::streamsize>(n));
  const auto got = static_cast<size_t>(std::max<std::streamsize>(archive_.file.gcount(), 0));
  at_ += got;
  packed_ -= got;
  return got;
}

Result<size_t> ZipMember::Some(char* to, size_t n) {
  if (!inflater_) return Packed(to, n);
  z_stream& stream = inflater_->stream;
  const auto room = static_cast<uInt>(std::min<size_t>(n, std::numeric_limits<uInt>::max()));
  stream.next_out = reinterpret_cast<Bytef*>(to);
  stream.avail_out = room;
  while (stream.avail_out == room && !inflater_->ended) {
    if (stream.avail_in == 0) {
      stream.next_in = reinterpret_cast<Bytef*>(inflater_->packed.data());
      stream.avail_in = static_cast<uInt>(Packed(inflater_->packed.data(), inflater_->packed.size()));
      if (stream.avail_in == 0) break;
    }
    const int code = inflate(&stream, Z_NO_FLUSH);
    if (code == Z_STREAM_END)
      inflater_->ended = true;
    else if (code != Z_OK)
      return Fail("{} is damaged: it cannot be unpacked", place_);
  }
  return room - stream.avail_out;
}

Status ZipMember::Read(void* to, size_t n) {
  auto* at = static_cast<char*>(to);
  while (n > 0) {
    OCTAVO_TRY(const size_t got, Some(at, n));
    if (got == 0) return Fail("{} is damaged: its data ends early", place_);
    checksum_ = static_cast<uint32_t>(crc32_z(checksum_, reinterpret_cast<const Bytef*>(at), got));
    at += got;
    n -= got;
    remaining_ -= std::min<uint64_t>(got, remaining_);
  }
  return {};
}

Status ZipMember::Finish() {
  char extra;
  OCTAVO_TRY(const size_t got, Some(&extra, 1));
  if (got > 0) return Fail("{} is damaged: it holds more than it declares", place_);
  if (checksum_ != wanted_) return Fail("{} is damaged: its checksum is another", place_);
  return {};
}

namespace {

// The bare deflate stream of `data`.
Result<std::string> Deflated(std::string_view data) {
  z_stream stream = {};
  if (deflateInit2(&stream, Z_DEFAULT_COMPRESSION, Z_DEFLATED, -MAX_WBITS, 8, Z_DEFAULT_STRATEGY) != Z_OK)
    return Fail("out of memory");
  std::string packed;
  std::array<char, 65536> piece;
  int code = Z_OK;
  while (code == Z_OK) {
    if (stream.avail_in == 0) {
      const size_t next = std::min<size_t>(data.size(), 1u << 30);
      stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(data.data()));  // zlib's type; it only reads
      stream.avail_in = static_cast<uInt>(next);
      data.remove_prefix(next);
    }
    stream.next_out = reinterpret_cast<Bytef*>(piece.data());
    stream.avail_out = piece.size();
    code = deflate(&stream, data.empty() ? Z_FINISH : Z_NO_FLUSH);
    packed.append(piece.data(), piece.size() - stream.avail_out);
  }
  deflateEnd(&stream);
  return packed;
}

}  // namespace

Status ZipWriter::Write(std::string_view bytes) {
  at_ += bytes.size();
  return file_.Write(bytes);
}

Status ZipWriter::Add(const std::string& name, std::string_view data, bool deflate) {
  if (name.size() > UINT16_MAX) return Fail("a name has {} bytes, more than a zip archive takes", name.size());
  std::string deflated;
  if (deflate) {
    OCTAVO_TRY(deflated, Deflated(data));
  }
  const std::string_view packed = deflate ? std::string_view(deflated) : data;
  const bool large = data.size() >= kElsewhere32 || packed.size() >= kElsewhere32, far = at_ >= kElsewhere32;
  const uint16_t version = large || far ? 45 : 20, flags = IsUtf8(name) ? kUtf8Flag : 0;
  const uint16_t method = deflate ? ZipEntry::kDeflated : ZipEntry::kStored,
                 length = static_cast<uint16_t>(name.size());
  constexpr uint16_t kTime = 0, kDate = (1 << 5) | 1;
  const auto checksum = static_cast<uint32_t>(crc32_z(0, reinterpret_cast<const Bytef*>(data.data()), data.size()));
  const auto in32 = [](bool elsewhere, uint64_t value) {
    return elsewhere ? kElsewhere32 : static_cast<uint32_t>(value);
  };
  const std::string sizes = large ? Bytes<uint64_t, uint64_t>(data.size(), packed.size()) : std::string();
  const std::string where = far ? Bytes<uint64_t>(at_) : std::string();
  const auto extra = [](const std::string& field) {
    return field.empty() ? field : Bytes(kExtra64, static_cast<uint16_t>(field.size())) + field;
  };
  const std::string local_extra = extra(sizes), entry_extra = extra(sizes + where);
  const std::string common = Bytes(version, flags, method, kTime, kDate, checksum, in32(large, packed.size()),
                                   in32(large, data.size()), length);
  constexpr uint16_t kNone = 0;
  directory_ += Bytes(kEntryMark, version) + common +
                Bytes(static_cast<uint16_t>(entry_extra.size()), kNone, kNone, kNone, uint32_t{0}) +
                Bytes(in32(far, at_)) + name + entry_extra;
  ++count_;
  OCTAVO_TRY_STATUS(
      Write(Bytes(kLocalMark) + common + Bytes(static_cast<uint16_t>(local_extra.size())) + name + local_extra));
  return Write(packed);
}

Status ZipWriter::Finish() {
  const uint64_t begin = at_;
  const bool large = begin >= kElsewhere32 || directory_.size() >= kElsewhere32 || count_ >= kElsewhere16;
  OCTAVO_TRY_STATUS(Write(directory_));
  const uint64_t end = at_;
  if (large) {
    constexpr uint16_t kVersion = 45;
    OCTAVO_TRY_STATUS(Write(Bytes(kEnd64Mark, uint64_t{kEnd64Bytes - 12}, kVersion, kVersion, uint32_t{0}, uint32_t{0},
                                  count_, count_, uint64_t{end - begin}, begin)));
    OCTAVO_TRY_STATUS(Write(Bytes(kLocator64Mark, uint32_t{0}, end, uint32_t{1})));
  }
  const auto count = large ? kElsewhere16 : static_cast<uint16_t>(count_);
  const uint32_t size = large ? kElsewhere32 : static_cast<uint32_t>(end - begin),
                 at = large ? kElsewhere32 : static_cast<uint32_t>(begin);
  return Write(Bytes(kEndMark, uint16_t{0}, uint16_t{0}, count, count, size, at, uint16_t{0}));
}

}  // namespace octavo::ir::internal
