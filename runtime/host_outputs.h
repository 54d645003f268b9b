// A host lends memory to outputs of a run, so that nothing is copied into it.
#ifndef OCTAVO_RUNTIME_HOST_OUTPUTS_H_
#define OCTAVO_RUNTIME_HOST_OUTPUTS_H_

#include <functional>

#include "octavo/ir/tensor.h"

namespace octavo::runtime {

// For the first run that this thread begins while it lives. The run still gives the tensor: it may lie elsewhere, as where it is a view of another value.
class RunIntoHost {
 public:
  // Where an output of the model shall lie, 64-byte aligned and beside every input; undefined: the run takes memory of its own.
  using Memory = std::function<ir::Tensor(size_t output, ir::DType dtype, const ir::Shape& shape)>;

  explicit RunIntoHost(Memory memory);
  ~RunIntoHost();
  RunIntoHost(const RunIntoHost&) = delete;
  RunIntoHost& operator=(const RunIntoHost&) = delete;

  // Inside of the runtime: the run asks once, so that those of bodies within get none. Null: nobody lends.
  static const Memory* Take();

 private:
  Memory memory_;
};

}  // namespace octavo::runtime

#endif  // OCTAVO_RUNTIME_HOST_OUTPUTS_H_
