#include "octavo/runtime/cache_state.h"

#include <algorithm>
#include <utility>

#include "octavo/ir/names.h"
#include "octavo/runtime/cache_windows.h"
#include "octavo/runtime/room.h"

namespace octavo::runtime {

namespace {

using ir::Result;
using ir::Status;
using ir::Tensor;

// What the inputs of this run say of a size, else -1.
int64_t SizeOf(const std::string& symbol, const Model& model, const ir::TensorMap& inputs) {
  for (const PortInfo& port : model.inputs()) {
    const auto it = inputs.find(port.name);
    if (symbol.empty() || it == inputs.end() || !port.type.shape) continue;
    const ir::SymShape& shape = *port.type.shape;
    for (size_t d = 0; d < shape.size() && d < it->second.shape().size(); ++d) {
      if (!shape[d].is_number() && shape[d].symbol() == symbol) return it->second.shape()[d];
    }
  }
  return -1;
}

// Of a batch that no other input names: that of the first input that has one.
int64_t BatchOf(const Model& model, const ir::TensorMap& inputs) {
  for (const PortInfo& port : model.inputs()) {
    const auto it = inputs.find(port.name);
    if (it != inputs.end() && it->second.rank() >= 2) return it->second.shape()[0];
  }
  return 1;
}

int BitsOfCodes(CacheCodes codes) { return codes == CacheCodes::kInt8 ? 8 : codes == CacheCodes::kInt4 ? 4 : 0; }

}  // namespace

CacheState::CacheState(const CacheState& other) : tokens_(other.tokens_), codes_(other.codes_) {
  const std::scoped_lock lock(other.mutex_);
  model_ = other.model_, ports_ = other.ports_, windows_ = other.windows_, caches_ = other.caches_, lost_ = other.lost_;
}

int64_t CacheState::length() const {
  const std::scoped_lock lock(mutex_);
  for (size_t i = 0; i < caches_.size(); ++i) {
    if (ports_[i].axis >= 0) return caches_[i].shape()[static_cast<size_t>(ports_[i].axis)];
  }
  return 0;
}

int64_t CacheState::elements() const {
  const std::scoped_lock lock(mutex_);
  int64_t sum = 0;
  for (const Tensor& t : caches_) sum += t.defined() ? t.size() : 0;
  return sum;
}

int64_t CacheState::bytes() const {
  const std::scoped_lock lock(mutex_);
  size_t sum = 0;
  for (const Tensor& t : caches_) sum += t.defined() ? MemoryOf(t) : 0;
  return static_cast<int64_t>(sum);
}

std::vector<Tensor> CacheState::Tensors() const {
  std::vector<Tensor> dense, caches;
  {
    const std::scoped_lock lock(mutex_);
    caches = caches_;
  }
  for (const Tensor& t : caches) dense.push_back(Dense(t));
  return dense;
}

int64_t CacheState::least() const {
  const std::scoped_lock lock(mutex_);
  int64_t least = 0;
  for (size_t i = 0; i < caches_.size(); ++i) {
    if (const int64_t gone = GoneFrom(caches_[i]); gone > 0)
      least = std::max(least, gone + windows_[i].stay - kMayBeCut);
  }
  return least;
}

void CacheState::Reset() {
  const std::scoped_lock lock(mutex_);
  model_ = nullptr, caches_.clear(), ports_.clear(), lost_ = false;
}

Status CacheState::Cut(int64_t rows) {
  if (running_) return ir::Fail("the state is in a run; cut it before or behind one");
  const int64_t have = length(), least = this->least();
  if (rows < 0 || rows > have) return ir::Fail("{} rows of a state that has {}; give 0 to {}", rows, have, have);
  if (rows < least) {
    return ir::Fail(
        "{} rows of a state whose attention sees a window, in front of which rows are gone; give {} to {}, or reset it",
        rows, least, have);
  }
  const std::scoped_lock lock(mutex_);
  for (size_t i = 0; i < caches_.size(); ++i) {
    if (ports_[i].axis < 0 || quant::BitsOf(caches_[i].dtype()) < 8)
      return ir::Fail(
          "a cache of fixed length, or of fewer than 8 bits, cannot be cut; reset the state, or keep a copy of it");
  }
  for (size_t i = 0; i < caches_.size(); ++i) {
    const auto axis = static_cast<size_t>(ports_[i].axis);
    Tensor& cache = caches_[i];
    if (cache.shape()[axis] != rows) cache = CutRows(cache, axis, rows);
  }
  return {};
}

Result<Tensor> CacheState::Empty(const Model& model, const CachePort& port, const CacheWindow& window,
                                 const ir::TensorMap& inputs) const {
  const PortInfo& info = model.inputs()[port.input];
  if (!info.type.shape || info.type.dtype == ir::DType::kUndefined || info.type.dtype == ir::DType::kString) {
    return ir::Fail(
        "input '{}' ({}) is a cache of which the model does not tell type and rank; give it by hand, without a state",
        info.name, ToString(info.type));
  }
  ir::Shape shape;
  for (size_t d = 0; d < info.type.shape->size(); ++d) {
    const ir::Dim& dim = (*info.type.shape)[d];
    if (dim.is_number()) {
      shape.push_back(dim.number());
    } else if (static_cast<int64_t>(d) == port.axis) {
      shape.push_back(0);
    } else if (const int64_t known = SizeOf(dim.symbol(), model, inputs); known >= 0) {
      shape.push_back(known);
    } else if (d == 0) {
      shape.push_back(BatchOf(model, inputs));
    } else if (port.axis < 0 && tokens_ > 0) {
      shape.push_back(tokens_);
    } else {
      return ir::Fail(
          "input '{}' ({}) is a cache of a length that nothing tells; make the state for a number of tokens", info.name,
          ToString(info.type));
    }
  }
  Tensor dense = Tensor::Zeros(info.type.dtype, shape);
  if (!port.in_room || quant::BitsOf(info.type.dtype) < 8) return dense;
  const auto axis = static_cast<size_t>(port.axis);
  const bool alone = ir::ElementCount(std::span(shape).first(axis)) == 1;
  // Kernels know strides between heads; where other rows lie beside each other, all would be copied for them.
  if (!alone && axis + 2 != shape.size()) return dense;
  // Attention takes codes of whole heads.
  const bool by_heads = info.type.dtype == ir::DType::kF32 && shape.size() == 4 && axis == 2 && shape[3] > 0;
  const int64_t most = window.stay > 0 ? RowsToKeep(window.stay, window.unit) : tokens_;
  return IntoRoom(dense, axis, std::min(tokens_, most), by_heads ? BitsOfCodes(codes_) : 0);
}

Status CacheState::Begin(const Model& model, const Windows& windows, const ir::TensorMap& inputs) {
  if (model.caches().empty()) {
    return ir::Fail(
        "the model has no caches for a state to keep (no output is an input with rows appended); run it without one");
  }
  std::vector<Tensor> caches;
  for (size_t i = 0; i < windows.size(); ++i) {
    OCTAVO_TRY(Tensor cache, Empty(model, model.caches()[i], windows[i], inputs));
    caches.push_back(std::move(cache));
  }
  if (codes_ != CacheCodes::kNone && std::ranges::none_of(caches, IsCoded)) {
    return ir::Fail(
        "no cache of the model can be kept as int{}, which takes f32 [batch, heads, rows, size] that grow by rows; "
        "make "
        "the state without",
        BitsOfCodes(codes_));
  }
  caches_ = std::move(caches), ports_ = model.caches(), windows_ = windows, model_ = &model.caches();
  return {};
}

Status CacheState::Give(const Model& model, const Windows& windows, ir::TensorMap& inputs) {
  const std::scoped_lock lock(mutex_);
  if (lost_) return ir::Fail("the caches of this state were lost in a run that failed; reset it and begin anew");
  if (model_ != nullptr && model_ != &model.caches())
    return ir::Fail("the state is of another model; make one for each");
  for (const CachePort& port : model.caches()) {
    const std::string& name = model.inputs()[port.input].name;
    if (inputs.contains(name))
      return ir::Fail("input {} is a cache that the state keeps; leave it out", ir::Quoted(name));
  }
  if (model_ == nullptr) OCTAVO_TRY_STATUS(Begin(model, windows, inputs));
  for (size_t i = 0; i < ports_.size(); ++i) {
    // A cache of fixed length is written where it lies; one that grows keeps its rows whatever becomes of the run.
    Tensor& cache = caches_[i];
    const bool moves = ports_[i].axis < 0;
    inputs[model.inputs()[ports_[i].input].name] = moves ? std::exchange(cache, Tensor()) : cache;
    lost_ |= moves;
  }
  return {};
}

void CacheState::Keep(const Model& model, std::vector<Tensor>& outputs) {
  const std::scoped_lock lock(mutex_);
  const bool ours = model_ == &model.caches();  // not reset meanwhile
  for (size_t i = 0; i < model.caches().size(); ++i) {
    Tensor cache = std::exchange(outputs[model.caches()[i].output], Tensor());
    if (!ours) continue;
    const auto [stay, unit] = windows_[i];
    caches_[i] = stay > 0 ? DropRows(cache, stay, unit) : std::move(cache);
  }
  for (Tensor& t : outputs) t = t.defined() ? Dense(t) : t;  // a cache under another name
  lost_ &= !ours;
}

Result<std::vector<Tensor>> CacheState::Step(const Model& model, const Windows& windows, ir::TensorMap inputs,
                                             const RunAll& run) {
  std::vector<ir::TensorMap> one;
  one.push_back(std::move(inputs));
  const auto each = [&](std::vector<ir::TensorMap> all) -> Result<Outputs> {
    OCTAVO_TRY(std::vector<Tensor> outputs, run(std::move(all[0])));
    return Outputs{std::move(outputs)};
  };
  OCTAVO_TRY(Outputs outputs, Step(model, windows, std::move(one), {this}, each));
  return std::move(outputs[0]);
}

Result<CacheState::Outputs> CacheState::Step(const Model& model, const Windows& windows,
                                             std::vector<ir::TensorMap> inputs, const std::vector<CacheState*>& states,
                                             const RunEach& run) {
  struct Release {
    std::vector<CacheState*> held;
    ~Release() {
      for (CacheState* state : held) state->running_ = false;
    }
  } release;
  for (CacheState* state : states) {
    if (state->running_.exchange(true))
      return ir::Fail("the state is in another run; give each run at one time a state of its own");
    release.held.push_back(state);
  }
  for (size_t i = 0; i < states.size(); ++i) OCTAVO_TRY_STATUS(states[i]->Give(model, windows, inputs[i]));
  OCTAVO_TRY(Outputs outputs, run(std::move(inputs)));
  for (size_t i = 0; i < states.size(); ++i) states[i]->Keep(model, outputs[i]);
  return outputs;
}

}  // namespace octavo::runtime
