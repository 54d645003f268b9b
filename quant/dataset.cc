#include "octavo/quant/dataset.h"

#include <algorithm>
#include <charconv>

#include "octavo/ir/closed.h"
#include "octavo/ir/names.h"
#include "octavo/ir/npz/npz.h"

namespace octavo::quant {

namespace {

namespace fs = std::filesystem;
using ir::Fail;
using ir::Result;

// Batches that are files or folders, read when they are asked for.
class FileData : public DataSource {
 public:
  using Reader = std::function<Result<ir::TensorMap>(const fs::path&)>;
  FileData(std::string where, std::vector<fs::path> paths, std::vector<InputSpec> inputs, Reader read)
      : where_(std::move(where)), paths_(std::move(paths)), inputs_(std::move(inputs)), read_(std::move(read)) {}

  Result<std::optional<Batch>> Next() override {
    if (next_ == paths_.size()) return std::nullopt;
    const fs::path& path = paths_[next_++];
    return ir::Closed("reading a batch", [&]() -> Result<std::optional<Batch>> {
      OCTAVO_TRY(ir::TensorMap arrays, read_(path));
      OCTAVO_TRY(arrays, FitInputs(std::move(arrays), inputs_, ir::Quoted(path.string())));
      return Batch{path.string(), std::move(arrays)};
    });
  }
  void Rewind() override { next_ = 0; }
  int64_t size() const override { return static_cast<int64_t>(paths_.size()); }
  std::string Describe() const override {
    return std::format("{} batch{} from {}", paths_.size(), paths_.size() == 1 ? "" : "es", ir::Quoted(where_));
  }

 private:
  std::string where_;
  std::vector<fs::path> paths_;
  std::vector<InputSpec> inputs_;
  Reader read_;
  size_t next_ = 0;
};

class MemoryData : public DataSource {
 public:
  MemoryData(std::vector<ir::TensorMap> batches, std::vector<InputSpec> inputs)
      : batches_(std::move(batches)), inputs_(std::move(inputs)) {}

  Result<std::optional<Batch>> Next() override {
    if (next_ == batches_.size()) return std::nullopt;
    std::string name = std::format("batch {}", next_);
    OCTAVO_TRY(ir::TensorMap arrays, FitInputs(batches_[next_], inputs_, name));
    ++next_;
    return Batch{std::move(name), std::move(arrays)};
  }
  void Rewind() override { next_ = 0; }
  int64_t size() const override { return static_cast<int64_t>(batches_.size()); }
  std::string Describe() const override { return std::format("{} batches in memory", batches_.size()); }

 private:
  std::vector<ir::TensorMap> batches_;
  std::vector<InputSpec> inputs_;
  size_t next_ = 0;
};

// "test_data_set_10" after "test_data_set_9": by length, then by letters.
bool NumberedBefore(const fs::path& a, const fs::path& b) {
  const std::string x = a.filename().string(), y = b.filename().string();
  return x.size() != y.size() ? x.size() < y.size() : x < y;
}

// input_0.pb, input_1.pb, ... of one test_data_set folder.
Result<ir::TensorMap> ReadTestDataSet(const fs::path& dir, const std::vector<InputSpec>& inputs,
                                      const DataOptions& options) {
  std::vector<std::pair<std::string, ir::Tensor>> tensors;
  for (;;) {
    const fs::path path = dir / std::format("input_{}.pb", tensors.size());
    std::error_code ec;
    if (!fs::exists(path, ec)) break;
    OCTAVO_TRY(auto tensor, options.read_tensor_file(path, options.limits));
    tensors.push_back(std::move(tensor));
  }
  if (tensors.size() != inputs.size()) {
    return Fail("{} has {} input_N.pb files, but the model has {} inputs", ir::Quoted(dir.string()), tensors.size(),
                inputs.size());
  }
  const auto is_input = [&](const std::string& name) {
    return std::ranges::any_of(inputs, [&](const InputSpec& spec) { return spec.name == name; });
  };
  ir::TensorMap by_name, by_order;
  for (size_t i = 0; i < tensors.size(); ++i) {
    by_order[inputs[i].name] = tensors[i].second;
    if (is_input(tensors[i].first)) by_name[tensors[i].first] = tensors[i].second;
  }
  return by_name.size() == inputs.size() ? by_name : by_order;
}

Result<std::unique_ptr<DataSource>> OpenFolder(const fs::path& dir, std::vector<InputSpec> inputs,
                                               const DataOptions& options) {
  std::vector<fs::path> archives, sets;
  std::error_code ec;
  for (fs::directory_iterator it(dir, ec), end; !ec && it != end; it.increment(ec)) {
    const fs::path& path = it->path();
    if (path.extension() == ".npz") archives.push_back(path);
    if (path.filename().string().starts_with("test_data_set_") && it->is_directory(ec)) sets.push_back(path);
  }
  const std::string name = ir::Quoted(dir.string());
  if (ec) return Fail("cannot read folder {}: {}", name, ec.message());
  if (fs::exists(dir / "input_0.pb", ec)) sets = {dir};
  if (!archives.empty()) {
    std::ranges::sort(archives);
    return std::make_unique<FileData>(
        dir.string(), std::move(archives), std::move(inputs),
        [limits = options.limits](const fs::path& path) { return ir::ReadNpz(path, limits); });
  }
  if (sets.empty()) {
    return Fail("{} holds no data: a folder must hold .npz files, or test_data_set_* folders with input_N.pb files",
                name);
  }
  if (!options.read_tensor_file) return Fail("{} holds .pb files, which cannot be read here", name);
  std::ranges::sort(sets, NumberedBefore);
  auto read = [inputs, options](const fs::path& path) { return ReadTestDataSet(path, inputs, options); };
  return std::make_unique<FileData>(dir.string(), std::move(sets), std::move(inputs), std::move(read));
}

}  // namespace

std::unique_ptr<DataSource> InMemoryData(std::vector<ir::TensorMap> batches, std::vector<InputSpec> inputs) {
  return std::make_unique<MemoryData>(std::move(batches), std::move(inputs));
}

namespace {

class Shard : public DataSource {
 public:
  Shard(std::unique_ptr<DataSource> all, int64_t index, int64_t count)
      : all_(std::move(all)), index_(index), count_(count) {}
  Result<std::optional<Batch>> Next() override {
    for (;;) {
      OCTAVO_TRY(auto batch, all_->Next());
      if (!batch || next_++ % count_ == index_) return batch;
    }
  }
  void Rewind() override {
    next_ = 0;
    all_->Rewind();
  }
  int64_t size() const override { return (all_->size() - index_ + count_ - 1) / count_; }
  std::string Describe() const override {
    return std::format("shard {} of {} of {}", index_ + 1, count_, all_->Describe());
  }
  bool random() const override { return all_->random(); }

 private:
  std::unique_ptr<DataSource> all_;
  int64_t index_, count_, next_ = 0;
};

}  // namespace

std::string ShardName(int64_t index, int64_t count) { return count == 1 ? "" : std::format("{}/{}", index + 1, count); }

std::unique_ptr<DataSource> ShardOf(std::unique_ptr<DataSource> data, int64_t index, int64_t count) {
  OCTAVO_CHECK(index >= 0 && index < count, "shard {} of {}", index, count);
  return std::make_unique<Shard>(std::move(data), index, count);
}

namespace {

Result<std::unique_ptr<DataSource>> Open(const std::string& where, std::vector<InputSpec> inputs,
                                         const DataOptions& options) {
  constexpr std::string_view kRandom = "random:";
  if (where.starts_with(kRandom)) {
    int64_t n = 0;
    const char* end = where.data() + where.size();
    const auto [stop, error] = std::from_chars(where.data() + kRandom.size(), end, n);
    if (error != std::errc() || stop != end || n < 1 || n > 1000000) {
      return Fail("{} is not random:N with N from 1 to 1000000", ir::Quoted(where));
    }
    RandomOptions random = options.random;
    random.memory = options.limits;
    return RandomData(n, std::move(inputs), random);
  }
  std::error_code ec;
  const auto status = fs::status(where, ec);
  if (!fs::exists(status)) {
    return Fail(
        "there is no {}; data is a folder of .npz files, one .npz file, a folder of test_data_set_* folders, or "
        "random:N",
        ir::Quoted(where));
  }
  if (fs::is_directory(status)) return OpenFolder(where, std::move(inputs), options);
  return std::make_unique<FileData>(
      where, std::vector<fs::path>{where}, std::move(inputs),
      [limits = options.limits](const fs::path& path) { return ir::ReadNpz(path, limits); });
}

}  // namespace

Result<std::unique_ptr<DataSource>> OpenData(const std::string& where, std::vector<InputSpec> inputs,
                                             const DataOptions& options) {
  return ir::Closed("opening data", [&] { return Open(where, std::move(inputs), options); });
}

}  // namespace octavo::quant
