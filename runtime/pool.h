// Memory of tensors that leave a run (KV caches, logits), used again once their readers let go of it. What malloc gives back to the
// system must be mapped and cleared by it again: GPT-2's 38 MB of caches took half of a step of decoding.
#ifndef OCTAVO_RUNTIME_POOL_H_
#define OCTAVO_RUNTIME_POOL_H_

#include <memory>

#include "octavo/ir/tensor.h"

namespace octavo::runtime {

// Threads may share it. Its memory lives as long as the tensors and the pool; it never keeps more idle than was in use at once.
class Pool {
 public:
  Pool();
  // Bytes undefined, as Tensor::Empty's.
  ir::Tensor Take(ir::DType dtype, ir::Shape shape) const;
  size_t idle_bytes() const;
  // Gives back what is idle.
  void Trim() const;

 private:
  friend class PooledBuffer;
  struct Blocks;
  std::shared_ptr<Blocks> blocks_;
};

}  // namespace octavo::runtime

#endif  // OCTAVO_RUNTIME_POOL_H_
