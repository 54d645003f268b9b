#include "octavo/api/callers.h"

#include <utility>

namespace octavo::api {

namespace {

class WatchedData : public quant::DataSource {
 public:
  WatchedData(Callers& callers, quant::DataSource& data) : callers_(callers), data_(data) {}
  ir::Result<std::optional<quant::Batch>> Next() override {
    return callers_.Watch([&] { return data_.Next(); });
  }
  void Rewind() override {
    callers_.Watch([&] { data_.Rewind(); });
  }
  int64_t size() const override {
    return callers_.Watch([&] { return data_.size(); });
  }
  std::string Describe() const override {
    return callers_.Watch([&] { return data_.Describe(); });
  }
  bool random() const override { return data_.random(); }

 private:
  Callers& callers_;
  quant::DataSource& data_;
};

}  // namespace

Callers::Callers(const OptimizeOptions& options, quant::DataSource* data) : options_(options) {
  if (data == nullptr) data = options.data;
  if (data != nullptr) data_ = std::make_unique<WatchedData>(*this, *data);
  options_.data = data_.get();
  if (options.progress) {
    options_.progress = [this, &f = options.progress](std::string_view stage, int64_t done, int64_t total) {
      Watch([&] { f(stage, done, total); });
    };
  }
  if (options.after_pass) {
    options_.after_pass = [this, &f = options.after_pass](std::string_view pass, const ir::Graph& graph) {
      Watch([&] { f(pass, graph); });
    };
  }
}

size_t MemoryFor(const ir::Graph& graph) {
  // Weights are held as they come, transposed, split, merged and as codes, in f32 where the file has 16 bits: twelve bytes for each of the model
  // beyond the four of ir/limits.h. Runs on calibration data have accounts of their own.
  constexpr int64_t kCopies = 12,
                    kElementsForACopy = 16;  // MemoryLimit allows a sixteenth of the model's bytes for each element
  return ir::MemoryLimit(graph, kCopies * kElementsForACopy);
}

}  // namespace octavo::api
