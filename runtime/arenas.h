// Memory of planned runs. Every run of a model has one arena, whatever its shapes; idle ones are kept for the next.
#ifndef OCTAVO_RUNTIME_ARENAS_H_
#define OCTAVO_RUNTIME_ARENAS_H_

#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "octavo/ir/memory.h"
#include "octavo/ir/tensor.h"

namespace octavo::runtime {

// Tensors in it must not outlive the run.
class Arena : public ir::Buffer {
 public:
  explicit Arena(size_t bytes);
  ~Arena() override;
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;
  // The run that it serves pays for it.
  void Hold(ir::MemoryCharge charge) { charge_ = std::move(charge); }

 private:
  ir::MemoryCharge charge_;
};

// One arena a concurrent run, each as large as the largest plan that it served: one a shape would hold 64 times that.
class Arenas {
 public:
  // At least `bytes`. The smallest idle one that suffices; where none does, the largest makes room for a new one.
  std::shared_ptr<Arena> Take(size_t bytes);
  void Return(std::shared_ptr<Arena> arena);
  size_t idle_bytes() const;

 private:
  mutable std::mutex mutex_;
  std::vector<std::shared_ptr<Arena>> idle_;  // by size
};

}  // namespace octavo::runtime

#endif  // OCTAVO_RUNTIME_ARENAS_H_
