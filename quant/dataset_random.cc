#include <algorithm>
#include <cmath>

#include "octavo/ir/closed.h"
#include "octavo/ir/names.h"
#include "octavo/quant/dataset.h"

namespace octavo::quant {

namespace {

using ir::DType;
using ir::Fail;
using ir::Result;
using ir::Tensor;

// SplitMix64: 64 random bits from a counter; the same everywhere, unlike the distributions of the standard library.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}
  uint64_t Bits() {
    uint64_t z = (state_ += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }
  int64_t Below(int64_t n) { return static_cast<int64_t>(Bits() % static_cast<uint64_t>(n)); }
  // Sum of 12 uniform numbers minus 6: mean 0, variance 1, within +-6, and no libm whose bits differ.
  float Normal() {
    double sum = -6;
    for (int i = 0; i < 12; ++i) sum += static_cast<double>(Bits() >> 11) * 0x1p-53;
    return static_cast<float>(sum);
  }

 private:
  uint64_t state_;
};

bool Contains(std::string_view name, std::string_view word) { return name.find(word) != std::string_view::npos; }

class RandomSource : public DataSource {
 public:
  RandomSource(int64_t batches, std::vector<InputSpec> inputs, RandomOptions options)
      : batches_(batches), inputs_(std::move(inputs)), options_(std::move(options)) {}

  Result<std::optional<Batch>> Next() override {
    if (next_ == batches_) return std::nullopt;
    return ir::Closed("random data", ir::MemoryLimit(options_.memory, 0), [&] { return Make(); });
  }
  void Rewind() override { next_ = 0; }
  int64_t size() const override { return batches_; }
  std::string Describe() const override {
    return std::format("{} random batch{} (no real data: ranges mean little)", batches_, batches_ == 1 ? "" : "es");
  }
  bool random() const override { return true; }

 private:
  Result<std::optional<Batch>> Make() {
    Random random(options_.seed * 1000003 + static_cast<uint64_t>(next_));
    auto sizes = options_.dims;
    const int64_t length = 8 + random.Below(25);
    Batch batch{std::format("random batch {}", next_++), {}};
    BindCaches(length, sizes);
    for (const bool first_dims : {true, false}) {  // a symbol is a batch size if it is a first dim anywhere
      for (const auto& [name, type] : inputs_) BindSymbols(type, first_dims, first_dims ? 4 : length, sizes);
    }
    lengths_.clear();
    for (const auto& spec : inputs_) {
      OCTAVO_TRY(ir::Shape shape, ShapeOf(spec, sizes, length));
      OCTAVO_TRY(Tensor tensor, Make(spec, std::move(shape), random));
      batch.inputs.emplace(spec.name, std::move(tensor));
    }
    return batch;
  }

  // Of a decoder's tokens the first half stands in its caches and the rest is its ids; a mask that has a symbol of its own is over both.
  void BindCaches(int64_t length, std::map<std::string, int64_t>& sizes) const {
    const auto symbol = [](const InputSpec& spec, size_t rank) -> std::string {
      if (!spec.type.shape || spec.type.shape->size() != rank) return {};
      const auto dim = std::find_if(spec.type.shape->begin() + 1, spec.type.shape->end(),
                                    [](const ir::Dim& d) { return !d.symbol().empty(); });
      return dim == spec.type.shape->end() ? std::string() : dim->symbol();
    };
    std::string now;
    for (const InputSpec& spec : inputs_) {
      if (Contains(spec.name, "input_ids")) now = symbol(spec, 2);
    }
    int64_t behind = 0;
    for (const InputSpec& spec : inputs_) {  // torch.export gives each cache a symbol of its own
      const std::string past =
          Contains(spec.name, "past") || Contains(spec.name, "cache") ? symbol(spec, 4) : std::string();
      if (!now.empty() && !past.empty() && past != now) behind = sizes.emplace(past, length / 2).first->second;
    }
    if (behind == 0) return;
    const int64_t all = behind + sizes.emplace(now, length - length / 2).first->second;
    for (const InputSpec& spec : inputs_) {
      const std::string mask = Contains(spec.name, "mask") ? symbol(spec, 2) : std::string();
      if (!mask.empty()) sizes.emplace(mask, all);  // unless it is one of the two
    }
  }

  static void BindSymbols(const ir::Type& type, bool first_dims, int64_t size, std::map<std::string, int64_t>& sizes) {
    if (!type.shape) return;
    for (size_t i = 0; i < type.shape->size(); ++i) {
      const std::string symbol = (*type.shape)[i].symbol();
      if (!symbol.empty() && (i == 0) == first_dims) sizes.emplace(symbol, size);
    }
  }

  static Result<ir::Shape> ShapeOf(const InputSpec& spec, const std::map<std::string, int64_t>& sizes, int64_t length) {
    if (!spec.type.shape) {
      return Fail("input {} has no declared rank, so no random data can be made for it; give real data",
                  ir::Quoted(spec.name));
    }
    const auto lookup = [&](std::string_view symbol) -> std::optional<int64_t> {
      const auto it = sizes.find(std::string(symbol));
      return it == sizes.end() ? length : it->second;
    };
    ir::Shape shape;
    int64_t count = 1;
    for (const ir::Dim& dim : *spec.type.shape) {
      const int64_t size = dim.Evaluate(lookup).value_or(shape.empty() ? 4 : length);
      // 2^28 elements are 2 GB of ids: a declared size beyond that is no plausible batch.
      if (size < 0 || __builtin_mul_overflow(count, size, &count) || count > (1 << 28)) {
        return Fail("input {} is declared as {}, too large for random data; give real data", ir::Quoted(spec.name),
                    ir::ToString(spec.type));
      }
      shape.push_back(size);
    }
    return shape;
  }

  // Ones, with padding at the end of all rows but the first; the same for every mask of that shape in the batch.
  const std::vector<int64_t>& Lengths(int64_t rows, int64_t columns, Random& random) {
    auto& lengths = lengths_[{rows, columns}];
    while (static_cast<int64_t>(lengths.size()) < rows) {
      lengths.push_back(lengths.empty() ? columns : columns - random.Below(columns / 2 + 1));
    }
    return lengths;
  }

  Result<Tensor> Make(const InputSpec& spec, ir::Shape shape, Random& random) {
    const DType dtype = spec.type.dtype;
    if (BitsOf(dtype) < 8) {
      return Fail("input {} has type {}, for which no random data can be made; give real data", ir::Quoted(spec.name),
                  Name(dtype));
    }
    const int64_t columns = shape.empty() ? 1 : shape.back();
    const auto limit = options_.limits.find(spec.name);
    const int64_t most = limit == options_.limits.end() ? 1000 : std::max<int64_t>(1, limit->second);
    const int64_t count = ir::ElementCount(shape);
    const ir::MemoryCharge lists(static_cast<size_t>(count) * (sizeof(int64_t) + sizeof(float)));
    const bool mask = Contains(spec.name, "mask") || dtype == DType::kBool;
    const bool types = Contains(spec.name, "token_type") || Contains(spec.name, "segment");
    const bool positions = Contains(spec.name, "position");
    std::vector<int64_t> ints;
    if (mask && count > 0) {
      const auto& lengths = Lengths(count / columns, columns, random);
      for (int64_t i = 0; i < count; ++i)
        ints.push_back(i % columns < lengths[static_cast<size_t>(i / columns)] ? 1 : 0);
    } else if (IsInteger(dtype)) {
      for (int64_t i = 0; i < count; ++i) {
        ints.push_back(positions ? (i % columns) % most : random.Below(types ? std::min<int64_t>(2, most) : most));
      }
    }
    Tensor tensor = Tensor::S64(shape, ints.empty() ? std::vector<int64_t>(static_cast<size_t>(count)) : ints);
    if (IsFloat(dtype)) {
      std::vector<float> floats(static_cast<size_t>(count));
      for (size_t i = 0; i < floats.size(); ++i)
        floats[i] = mask ? static_cast<float>(ints[i]) : Coarse(random.Normal());
      tensor = Tensor::F32(std::move(shape), std::move(floats));
    } else if (dtype != DType::kS64 && !mask) {
      // Every integer type holds 0..127.
      for (auto& v : tensor.mutable_as<int64_t>()) v = most > 128 && BitsOf(dtype) == 8 ? v % 128 : v;
    }
    OCTAVO_TRY(auto fitted, FitInputs({{spec.name, tensor}}, {{spec.name, {dtype, std::nullopt}}}, "random data"));
    return fitted.begin()->second;
  }

  // 8 bits: exact in every float type that a model may take, so that one stream serves f32, f16 and bf16.
  static float Coarse(float x) { return std::nearbyint(x * 32) / 32; }

  int64_t batches_;
  std::vector<InputSpec> inputs_;
  RandomOptions options_;
  std::map<std::pair<int64_t, int64_t>, std::vector<int64_t>> lengths_;
  int64_t next_ = 0;
};

}  // namespace

Result<std::unique_ptr<DataSource>> RandomData(int64_t batches, std::vector<InputSpec> inputs,
                                               const RandomOptions& options) {
  return std::make_unique<RandomSource>(batches, std::move(inputs), options);
}

}  // namespace octavo::quant
