#include "octavo/ir/onnx/external.h"

#include <algorithm>

#include "octavo/ir/mapped.h"
#include "octavo/ir/names.h"

namespace octavo::ir::onnx {

namespace fs = std::filesystem;

namespace {

// `inner` is `folder` or lies below it; both canonical.
bool IsInside(const fs::path& inner, const fs::path& folder) {
  const auto [f, i] = std::mismatch(folder.begin(), folder.end(), inner.begin(), inner.end());
  return f == folder.end();
}

}  // namespace

Result<ExternalFiles::File*> ExternalFiles::Find(const std::string& location) {
  if (const auto it = by_location_.find(location); it != by_location_.end()) return it->second.get();
  if (folder_.empty()) {
    return Fail("its data is in the file {}, but the model was read from memory; say in which folder its files lie",
                Quoted(location));
  }
  const fs::path relative(location);
  if (location.empty() || location.find('\0') != std::string::npos) {
    return Fail("its external data has no usable file name");
  }
  if (relative.is_absolute()) {
    return Fail("its external data has the absolute path {}; put the file beside the model and name it relative to it",
                Quoted(location));
  }
  const fs::path normal = relative.lexically_normal();
  if (!normal.empty() && *normal.begin() == "..") {
    return Fail("its external data {} lies outside the model's folder; put the file beside the model",
                Quoted(location));
  }
  std::error_code error;
  const fs::path folder = fs::canonical(folder_, error);
  if (error) return Fail("the model's folder {} cannot be read: {}", Quoted(folder_.string()), error.message());
  const fs::path full = fs::canonical(folder / relative, error);
  if (error) {
    return Fail("its external data file {} cannot be found in {} ({}); put it beside the model", Quoted(location),
                Quoted(folder_.string()), error.message());
  }
  if (!IsInside(full, folder)) {
    return Fail("its external data {} is a link that leaves the model's folder; put the file itself beside the model",
                Quoted(location));
  }
  std::shared_ptr<File>& file = by_path_[full.string()];
  if (file == nullptr) {
    OCTAVO_TRY(auto mapped, MapFile(full, location));
    file = std::make_shared<File>(std::move(mapped));
  }
  return (by_location_[location] = file).get();
}

Result<std::shared_ptr<const Buffer>> ExternalFiles::Open(const std::string& location, size_t bytes) {
  constexpr uint64_t kMostTimes = 16, kAlways = 1 << 20;
  OCTAVO_TRY(File * file, Find(location));
  const uint64_t size = file->data->size();
  file->named += std::min<uint64_t>(bytes, size);
  if (file->named > kAlways + kMostTimes * size) {
    return Fail("tensors share the {} bytes of {} more than {} times; save the model again with each in its place",
                size, Quoted(location), kMostTimes);
  }
  return file->data;
}

void ExternalFiles::Add(const std::string& location, std::shared_ptr<const Buffer> data) {
  by_location_[location] = std::make_shared<File>(File{.data = std::move(data), .counted = true});
}

int64_t ExternalFiles::FirstSize(const std::string& location) {
  const auto file = Find(location);
  return !file || std::exchange((*file)->counted, true) ? 0 : static_cast<int64_t>((*file)->data->size());
}

std::vector<fs::path> ExternalFiles::Paths() const {
  std::vector<fs::path> paths;
  for (const auto& [path, file] : by_path_) {
    if (file != nullptr) paths.emplace_back(path);
  }
  return paths;
}

}  // namespace octavo::ir::onnx
