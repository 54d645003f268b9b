// A stretch of the batches of another source.
#include <format>

#include "octavo/quant/dataset.h"

namespace octavo::quant {

namespace {

class Part : public DataSource {
 public:
  Part(DataSource& data, int64_t first, int64_t count) : data_(data), first_(first), count_(count) {}

  ir::Result<std::optional<Batch>> Next() override {
    for (; at_ < first_; ++at_) {
      OCTAVO_TRY(const auto skipped, data_.Next());
      if (!skipped) return std::nullopt;
    }
    if (at_ == first_ + count_) return std::nullopt;
    ++at_;
    return data_.Next();
  }
  void Rewind() override { data_.Rewind(), at_ = 0; }
  int64_t size() const override { return count_; }
  std::string Describe() const override { return std::format("{} of {}", count_, data_.Describe()); }
  bool random() const override { return data_.random(); }

 private:
  DataSource& data_;
  const int64_t first_, count_;
  int64_t at_ = 0;
};

}  // namespace

std::unique_ptr<DataSource> PartOf(DataSource& data, int64_t first, int64_t count) {
  return std::make_unique<Part>(data, first, count);
}

}  // namespace octavo::quant
