// What the float kernels by oneDNN share. Inside of the kernels only: it includes oneDNN's header.
#ifndef OCTAVO_KERNELS_GEMM_ONEDNN_H_
#define OCTAVO_KERNELS_GEMM_ONEDNN_H_

#include <cstdint>

#include "octavo/kernels/simd/aligned.h"
#include "oneapi/dnnl/dnnl.hpp"

// libgomp's, not a header's: the packaged oneDNN is an OpenMP build. The value belongs to the calling thread.
extern "C" void omp_set_num_threads(int count);

namespace octavo::kernels::onednn {

inline const dnnl::engine& Engine() {
  static const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  return engine;
}

// A stream and a scratchpad for each thread. Making the stream is also where OpenMP learns that work called from this
// thread stays on it: two pools of threads fight (shared/design.md 2).
struct ThreadState {
  dnnl::stream stream{Engine()};
  AlignedArray<uint8_t> scratchpad;
  AlignedArray<float> row;
  AlignedArray<float> column;

  ThreadState() { omp_set_num_threads(1); }
  // oneDNN 3.7.2 forgets the stride of a single row or column: it writes a product of one column contiguous (wrong
  // results, and writes between the rows) and reads a left operand of one row contiguous. Both go through these.
  float* Row(int64_t count) { return Room(row, count); }
  float* Column(int64_t count) { return Room(column, count); }
  static float* Room(AlignedArray<float>& array, int64_t count) {
    if (array.size() < static_cast<size_t>(count)) array = AlignedArray<float>(static_cast<size_t>(count));
    return array.data();
  }
  void* Scratchpad(size_t bytes) {
    if (scratchpad.size() < bytes) scratchpad = AlignedArray<uint8_t>(bytes);
    return scratchpad.data();
  }
};

inline ThreadState& ThisThread() {
  static thread_local ThreadState state;
  return state;
}

}  // namespace octavo::kernels::onednn

#endif  // OCTAVO_KERNELS_GEMM_ONEDNN_H_
