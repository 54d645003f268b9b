// Memory of planned runs. Every run of a model has one arena, whatever its shapes; idle ones are kept for the next.
#ifndef OCTAVO_RUNTIME_ARENAS_H_
#define OCTAVO_RUNTIME_ARENAS_H_

#include <memory>

#include "octavo/ir/tensor.h"

namespace octavo::runtime {

// One arena a concurrent run, each as large as the largest plan that it served: one a shape would hold 64 times that.
class Arenas {
 public:
  Arenas();
  // At least `bytes`. The smallest idle one that suffices; where none does, the largest makes room for a new one. It is idle again when
  // nobody holds it, tensors in it included, however the run ends.
  std::shared_ptr<ir::Buffer> Take(size_t bytes) const;
  size_t idle_bytes() const;

 private:
  struct Idle;
  std::shared_ptr<Idle> idle_;
};

}  // namespace octavo::runtime

#endif  // OCTAVO_RUNTIME_ARENAS_H_
