// The file: a head, the entries, their arrays, then the bytes of the arrays, each aligned. Numbers are those of x86.
#include "octavo/runtime/packed_file.h"

#include <array>
#include <cstring>
#include <filesystem>
#include <format>
#include <utility>

#include "octavo/ir/log.h"
#include "octavo/ir/mapped.h"
#include "octavo/ir/names.h"
#include "octavo/ir/whole_file.h"
#include "octavo/version.h"

namespace octavo::runtime {

namespace {

constexpr std::string_view kMagic = "octavo-packed 1\n";  // with the number of the form

struct Head {
  std::array<char, 16> magic;
  uint64_t file_bytes, entries, arrays;
  ContentHash hash;  // of all up to the bytes of the arrays, itself as zeros
  std::array<char, 200> made_by;
};
static_assert(sizeof(Head) == 256);

struct EntryRecord {
  ContentHash key;
  uint64_t arrays;
};

std::span<const std::byte> BytesOf(std::string_view text) { return std::as_bytes(std::span(text)); }

// Where the next array begins: large ones on a page, so that none shares one with another.
uint64_t PlaceBehind(uint64_t end, uint64_t bytes) {
  constexpr uint64_t kLine = 64, kPage = 4096, kLarge = 65536;
  const uint64_t unit = bytes >= kLarge ? kPage : kLine;
  return (end + unit - 1) / unit * unit;
}

std::array<char, 200> Fitted(std::string_view made_by) {
  std::array<char, 200> text = {};
  made_by.copy(text.data(), text.size());
  return text;
}

bool IsOf(const Head& head, std::string_view made_by) {
  return std::string_view(head.magic.data(), head.magic.size()) == kMagic && head.made_by == Fitted(made_by);
}

// A file that nothing was taken from.
std::string_view WhyNot(std::string_view file, std::string_view made_by) {
  Head head = {};
  if (file.size() >= sizeof(Head)) std::memcpy(&head, file.data(), sizeof(Head));
  return IsOf(head, made_by) || file.size() < sizeof(Head) ? "it is damaged"
                                                           : "another octavo wrote it, or one for another CPU path";
}

template <class T>
void Append(std::string& bytes, const T& value) {
  bytes.append(reinterpret_cast<const char*>(&value), sizeof(T));
}

thread_local PackingWatch::Tell watch;

}  // namespace

PackingWatch::PackingWatch(Tell tell) { watch = std::move(tell); }
PackingWatch::~PackingWatch() { watch = nullptr; }

ir::Result<PackedFile> PackedFile::Open(std::string path, std::string_view made_by, kernels::Arch arch) {
  PackedFile packed;
  packed.path_ = std::move(path);
  packed.made_by_ = std::format("{}, {}", made_by.empty() ? "octavo " OCTAVO_VERSION : made_by, Name(arch));
  std::error_code ec;
  if (!std::filesystem::exists(std::filesystem::status(packed.path_, ec))) return packed;
  auto file = ir::MapFile(packed.path_, {});
  if (!file) return ir::Fail("packed weights: {}", file.error().message);
  const std::string_view text(reinterpret_cast<const char*>((*file)->data()), (*file)->size());
  if (!text.starts_with(kMagic.substr(0, kMagic.find(' '))))
    return ir::Fail("{} is no file of packed weights, so it is not written over; name another file, or remove it",
                    ir::Quoted(packed.path_));
  packed.Read(*file);
  if (packed.file_ == nullptr)
    ir::Log(ir::LogLevel::kInfo, "packed weights in '{}' are not taken: {}", packed.path_,
            WhyNot(text, packed.made_by_));
  return packed;
}

void PackedFile::Read(const std::shared_ptr<const ir::Buffer>& file) {
  const uint64_t size = file->size();
  Head head;
  if (size < sizeof(Head)) return;
  std::memcpy(&head, file->data(), sizeof(Head));
  if (!IsOf(head, made_by_) || head.file_bytes != size) return;
  const uint64_t most = size - sizeof(Head);
  if (head.entries > most / sizeof(EntryRecord)) return;
  const uint64_t of_entries = head.entries * sizeof(EntryRecord);
  if (head.arrays > (most - of_entries) / sizeof(Array)) return;
  const uint64_t table = of_entries + head.arrays * sizeof(Array);
  std::string described(reinterpret_cast<const char*>(file->data()), sizeof(Head) + table);
  const ContentHash hash = std::exchange(head.hash, {});
  std::memcpy(described.data(), &head, sizeof(Head));
  if (HashOfContents(BytesOf(described)) != hash) return;
  const char* entry = described.data() + sizeof(Head);
  const char* array = entry + of_entries;
  uint64_t left = head.arrays;
  std::map<ContentHash, std::vector<Array>> found;
  for (uint64_t i = 0; i < head.entries; ++i, entry += sizeof(EntryRecord)) {
    EntryRecord record;
    std::memcpy(&record, entry, sizeof(record));
    if (record.arrays > left) return;
    left -= record.arrays;
    std::vector<Array> arrays(record.arrays);
    for (Array& a : arrays) {
      std::memcpy(&a, array, sizeof(Array));
      array += sizeof(Array);
      if (a.offset > size || a.bytes > size - a.offset) return;
    }
    found.try_emplace(record.key, std::move(arrays));
  }
  file_ = file, found_ = std::move(found);
}

ContentHash PackedFile::KeyOf(std::string_view how, std::initializer_list<const ir::Tensor*> of) {
  std::string text(how);
  for (const ir::Tensor* t : of) {
    if (t == nullptr) {
      text += "\nnone";
      continue;
    }
    const ContentHash hash = HashOfContents({t->data(), t->byte_size()});
    text += std::format("\n{} {} {:x} {:x}", quant::Name(t->dtype()), ir::ToString(t->shape()), hash.low, hash.high);
  }
  return HashOfContents(BytesOf(text));
}

PackedFile::Arrays PackedFile::Find(const ContentHash& key) const {
  const auto it = found_.find(key);
  if (it == found_.end()) return {};
  Arrays arrays;
  for (const Array& a : it->second) {
    const std::byte* data = file_->data() + a.offset;
    if (HashOfContents({data, a.bytes}) != a.hash) return {};
    arrays.push_back({{file_, data}, a.bytes});
  }
  return arrays;
}

void PackedFile::Keep(const ContentHash& key, Arrays arrays, bool made) {
  kept_.push_back({key, std::move(arrays)});
  ++(made ? report_.made : report_.taken);
}

PackedReport PackedFile::Finish() const {
  PackedReport report = report_;
  ir::Log(ir::LogLevel::kInfo, "packed weights in '{}': {} taken, {} packed now", path_, report.taken, report.made);
  if (report.made == 0) return report;
  if (const ir::Status written = Write(); !written)
    report.note =
        std::format("packed weights are not kept, so the next start packs them again: {}", written.error().message);
  if (!report.note.empty()) ir::Log(ir::LogLevel::kWarning, "{}", report.note);
  return report;
}

ir::Status PackedFile::Write() const {
  std::string entries, arrays;
  uint64_t count = 0;
  for (const Entry& e : kept_) {
    Append(entries, EntryRecord{e.key, e.arrays.size()});
    count += e.arrays.size();
  }
  uint64_t end = sizeof(Head) + entries.size() + count * sizeof(Array);
  std::vector<std::pair<uint64_t, std::string_view>> places;
  for (const Entry& e : kept_) {
    for (const kernels::WeightBytes& bytes : e.arrays) {
      const Array array{PlaceBehind(end, bytes.size), bytes.size, HashOfContents({bytes.data.get(), bytes.size})};
      Append(arrays, array);
      places.emplace_back(array.offset, std::string_view(reinterpret_cast<const char*>(bytes.data.get()), bytes.size));
      end = array.offset + bytes.size;
    }
  }
  Head head{.magic = {},
            .file_bytes = end,
            .entries = kept_.size(),
            .arrays = count,
            .hash = {},
            .made_by = Fitted(made_by_)};
  kMagic.copy(head.magic.data(), head.magic.size());
  std::string described;
  Append(described, head);
  described += entries + arrays;
  head.hash = HashOfContents(BytesOf(described));
  std::memcpy(described.data(), &head, sizeof(Head));
  OCTAVO_TRY(ir::NewFile file, ir::NewFile::Create(path_));
  OCTAVO_TRY_STATUS(file.Write(described));
  constexpr size_t kStretch = 16000000;  // some hundredths of a second
  const auto tell = [end](uint64_t written) {
    const auto mega = [](uint64_t bytes) { return static_cast<int64_t>((bytes + 999999) / 1000000); };
    if (watch) watch(mega(written), mega(end));
  };
  uint64_t at = described.size();
  for (const auto& [offset, bytes] : places) {
    OCTAVO_TRY_STATUS(file.Write(std::string(offset - at, '\0')));
    for (size_t done = 0; done < bytes.size(); done += kStretch) {
      tell(offset + done);
      OCTAVO_TRY_STATUS(file.Write(bytes.substr(done, kStretch)));
    }
    at = offset + bytes.size();
  }
  tell(end);
  return file.Commit();
}

}  // namespace octavo::runtime
