// The KV caches of one sequence, or of a batch of them, between the runs of a model.
#ifndef OCTAVO_RUNTIME_CACHE_STATE_H_
#define OCTAVO_RUNTIME_CACHE_STATE_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <mutex>
#include <vector>

#include "octavo/runtime/model.h"

namespace octavo::runtime {

enum class CacheCodes : uint8_t {
  kNone,  // caches as the model has them
  kInt8,  // rows of floats that are appended as codes of 8 bits (quant/numeric/coded_row.h): attention reads a third of the memory
  kInt4,  // the same with 4 bits: a sixth
};

// Of a cache of which attention sees a window: how many rows stay (0: all), while those in front go, `unit` at a time.
struct CacheWindow {
  int64_t stay = 0, unit = 0;
};

// Begins empty: growing caches without rows, those of fixed length as zeros. A run appends where the caches lie; when their memory is
// full, it grows by half, and a cache of which attention sees a window loses the rows in front. Other calls beside a run see what was before it; Reset makes an end of what it gives. A run that fails leaves growing caches as they were. Of one model, whose Run checks it.
class CacheState {
 public:
  // tokens: memory for so many at once, so that nothing moves until then; the length of caches of fixed length that the model does not tell.
  explicit CacheState(int64_t tokens = 0, CacheCodes codes = CacheCodes::kNone) : tokens_(tokens), codes_(codes) {}
  // The same rows, in the same memory; the first of two that appends goes on there, the other in a copy. So a prompt is run once
  // for all that follow it.
  CacheState(const CacheState& other);
  CacheState& operator=(const CacheState&) = delete;

  int64_t length() const;    // rows of the caches that grow; 0 where none does
  int64_t elements() const;  // of all caches
  int64_t bytes() const;  // of their memory, room for rows to come included, without rows that are shared with another
  // By Model::caches(), dense; empty before the first run. Rows that are gone are zeros.
  std::vector<ir::Tensor> Tensors() const;
  void Reset();
  // The fewest rows that Cut can keep: 0, but where rows that no window of attention sees any more are gone.
  int64_t least() const;
  // Keeps the first `rows` rows of the caches that grow, least() or more. What was appended behind them is written over by the next run, or stays with
  // a copy.
  ir::Status Cut(int64_t rows);

 private:
  friend class Model;
  using RunAll = std::function<ir::Result<std::vector<ir::Tensor>>(ir::TensorMap)>;
  using Windows = std::vector<CacheWindow>;  // by Model::caches()
  ir::Result<std::vector<ir::Tensor>> Step(const Model& model, const Windows& windows, ir::TensorMap inputs,
                                           const RunAll& run);
  using Outputs = std::vector<std::vector<ir::Tensor>>;
  using RunEach = std::function<ir::Result<Outputs>(std::vector<ir::TensorMap>)>;
  // The same for several of them, none of them twice.
  static ir::Result<Outputs> Step(const Model& model, const Windows& windows, std::vector<ir::TensorMap> inputs,
                                  const std::vector<CacheState*>& states, const RunEach& run);
  ir::Status Give(const Model& model, const Windows& windows, ir::TensorMap& inputs);
  void Keep(const Model& model, std::vector<ir::Tensor>& outputs);
  ir::Status Begin(const Model& model, const Windows& windows, const ir::TensorMap& inputs);
  ir::Result<ir::Tensor> Empty(const Model& model, const CachePort& port, const CacheWindow& window,
                               const ir::TensorMap& inputs) const;

  int64_t tokens_;
  CacheCodes codes_;
  mutable std::mutex mutex_;  // of what follows
  const void* model_ = nullptr;
  std::vector<CachePort> ports_;
  Windows windows_;
  std::vector<ir::Tensor> caches_;
  bool lost_ = false;
  std::atomic<bool> running_ = false;
};

}  // namespace octavo::runtime

#endif  // OCTAVO_RUNTIME_CACHE_STATE_H_
