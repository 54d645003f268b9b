// What the float kernels by oneDNN share. Inside of the kernels only: it includes oneDNN's header.
#ifndef OCTAVO_KERNELS_CONV_ONEDNN_H_
#define OCTAVO_KERNELS_CONV_ONEDNN_H_

#include <csignal>
#include <cstdint>

#include "octavo/kernels/simd/aligned.h"
#include "oneapi/dnnl/dnnl.hpp"

// libgomp's, not a header's: the packaged oneDNN is an OpenMP build. The value belongs to the calling thread.
extern "C" void omp_set_num_threads(int count);
extern "C" int omp_get_max_threads();

namespace octavo::kernels::onednn {

inline const dnnl::engine& Engine() {
  // Never destroyed: a thread may still multiply when the process ends.
  static const auto* const engine = new dnnl::engine(dnnl::engine::kind::cpu, 0);
  return *engine;
}

// Around whatever asks oneDNN to make or to do something: OpenMP learns that the work stays on this thread, since two pools of threads
// fight. Afterwards the thread's number is what the host made it. 10 ns where that is 1, else 30.
class OneThread {
 public:
  OneThread() : before_(omp_get_max_threads()) {
    if (before_ != 1) omp_set_num_threads(1);
  }
  ~OneThread() {
    if (before_ != 1) omp_set_num_threads(before_);
  }
  OneThread(const OneThread&) = delete;
  OneThread& operator=(const OneThread&) = delete;

 private:
  int before_;
};

// A stream and a scratchpad for each thread.
struct ThreadState {
  dnnl::stream stream{Engine()};
  AlignedArray<uint8_t> scratchpad;

  void* Scratchpad(size_t bytes) {
    if (scratchpad.size() < bytes) scratchpad = AlignedArray<uint8_t>(bytes);
    return scratchpad.data();
  }
};

inline ThreadState& ThisThread() {
  static thread_local ThreadState state;
  return state;
}

// Around every product. Before 3.12 the f32 GEMM of oneDNN points the stack register into the heap (AVX2, AVX-512; its issue 4845): the frame
// of a signal that arrives then is written over the heap. With Debian's 3.7.2 any handler will do: Python's for Ctrl-C, a profiler's. So signals
// wait for the end of the product; faults do not. Two system calls, 0.3 us.
class SignalsHeld {
 public:
  SignalsHeld() {
    if (!kNeeded) return;
    sigset_t held;
    sigfillset(&held);
    for (const int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT, SIGSYS}) sigdelset(&held, fault);
    pthread_sigmask(SIG_BLOCK, &held, &before_);
  }
  ~SignalsHeld() {
    if (kNeeded) pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  SignalsHeld(const SignalsHeld&) = delete;
  SignalsHeld& operator=(const SignalsHeld&) = delete;

 private:
  static inline const bool kNeeded =
      dnnl_version()->major < 3 || (dnnl_version()->major == 3 && dnnl_version()->minor < 12);
  sigset_t before_;
};

}  // namespace octavo::kernels::onednn

#endif  // OCTAVO_KERNELS_CONV_ONEDNN_H_
