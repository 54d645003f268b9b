// Some of the samples of another source.
#include <algorithm>
#include <format>
#include <numeric>
#include <utility>

#include "octavo/quant/dataset.h"
#include "octavo/quant/rows.h"

namespace octavo::quant {

namespace {

class Part : public DataSource {
 public:
  Part(DataSource& data, Samples samples, const std::function<bool(int64_t)>& wanted, int64_t most)
      : data_(data), samples_(std::move(samples)), most_(most) {
    for (int64_t sample = 0; const int64_t rows : samples_.of_batch) {
      std::vector<int64_t>& mine = wanted_.emplace_back();
      for (int64_t row = 0; row < rows; ++row) {
        if (wanted(sample++)) mine.push_back(row);
      }
      number_ += std::ssize(mine);
      size_ += (std::ssize(mine) + most - 1) / most;
    }
  }

  ir::Result<std::optional<Batch>> Next() override {
    while (left_.empty()) {
      if (next_ == wanted_.size()) return std::nullopt;
      OCTAVO_TRY(auto batch, data_.Next());
      if (!batch) return std::nullopt;
      left_ = wanted_[next_++];
      whole_ = std::move(*batch);
    }
    const int64_t rows = samples_.of_batch[next_ - 1];
    const auto some = std::span(left_).first(std::min(left_.size(), static_cast<size_t>(most_)));
    if (samples_.are_rows && !HaveRows(whole_.inputs, rows))
      return ir::Fail(
          "{} had {} samples when they were counted and has others now: give data that is the same each time it is "
          "read",
          whole_.name, rows);
    if (!samples_.are_rows || std::ssize(some) == rows) return left_.clear(), std::move(whole_);
    Batch part{std::format("what is taken of {}", whole_.name), RowsOf(whole_.inputs, rows, some)};
    left_.erase(left_.begin(), left_.begin() + std::ssize(some));
    return part;
  }
  void Rewind() override { data_.Rewind(), next_ = 0, left_.clear(); }
  int64_t size() const override { return size_; }
  std::string Describe() const override {
    const std::string all = samples_.are_rows ? std::format("{} samples in ", samples_.number()) : "";
    return std::format("{} of {}{}", number_, all, data_.Describe());
  }
  bool random() const override { return data_.random(); }

 private:
  DataSource& data_;
  const Samples samples_;
  const int64_t most_;
  std::vector<std::vector<int64_t>> wanted_;  // rows, by batch
  int64_t number_ = 0, size_ = 0;
  size_t next_ = 0;
  Batch whole_;
  std::vector<int64_t> left_;  // rows of it
};

}  // namespace

int64_t Samples::number() const { return std::accumulate(of_batch.begin(), of_batch.end(), int64_t{0}); }

bool IsHeldOut(int64_t sample, int64_t size, int64_t held) {
  if (held == 0) return false;
  // One of each of `held` stretches: the middle of the first, then by the golden ratio, so that what comes back every so many samples (batches that are
  // sorted within) is met at all its places.
  const int64_t stretch = sample * held / size;
  const auto begin_of = [&](int64_t k) { return (k * size + held - 1) / held; };
  const int64_t begin = begin_of(stretch), length = begin_of(stretch + 1) - begin;
  const uint32_t place = 0x80000000u + static_cast<uint32_t>(stretch) * 0x9E3779B9u;
  return static_cast<uint64_t>(sample - begin) == (static_cast<uint64_t>(length) * place) >> 32;
}

std::unique_ptr<DataSource> PartOf(DataSource& data, Samples samples, const std::function<bool(int64_t)>& wanted,
                                   int64_t most) {
  return std::make_unique<Part>(data, std::move(samples), wanted, most);
}

}  // namespace octavo::quant
