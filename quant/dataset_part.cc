// Some of the batches of another source.
#include <format>

#include "octavo/quant/dataset.h"

namespace octavo::quant {

namespace {

class Part : public DataSource {
 public:
  Part(DataSource& data, int64_t size, int64_t held, bool of_held)
      : data_(data), size_(size), held_(held), of_held_(of_held) {}

  ir::Result<std::optional<Batch>> Next() override {
    for (; at_ < size_; ++at_) {
      OCTAVO_TRY(auto batch, data_.Next());
      if (!batch) return std::nullopt;
      if (IsHeldOut(at_, size_, held_) != of_held_) continue;
      ++at_;
      return batch;
    }
    return std::nullopt;
  }
  void Rewind() override { data_.Rewind(), at_ = 0; }
  int64_t size() const override { return of_held_ ? held_ : size_ - held_; }
  std::string Describe() const override { return std::format("{} of {}", size(), data_.Describe()); }
  bool random() const override { return data_.random(); }

 private:
  DataSource& data_;
  const int64_t size_, held_;
  const bool of_held_;
  int64_t at_ = 0;
};

}  // namespace

bool IsHeldOut(int64_t batch, int64_t size, int64_t held) {
  // About the middle of each of `held` stretches: how many are held out up to a batch, rounded, grows there.
  const auto up_to = [&](int64_t n) { return (2 * n * held + size) / (2 * size); };
  return up_to(batch + 1) > up_to(batch);
}

std::unique_ptr<DataSource> HeldOut(DataSource& data, int64_t size, int64_t held) {
  return std::make_unique<Part>(data, size, held, true);
}
std::unique_ptr<DataSource> WithoutHeldOut(DataSource& data, int64_t size, int64_t held) {
  return std::make_unique<Part>(data, size, held, false);
}

}  // namespace octavo::quant
