// octavo's steps in the profile that ONNX Runtime writes (session option enable_profiling), from 1.25 on.
#ifndef OCTAVO_INTEGRATIONS_ONNXRUNTIME_EP_PROFILE_H_
#define OCTAVO_INTEGRATIONS_ONNXRUNTIME_EP_PROFILE_H_

#include <chrono>
#include <mutex>
#include <vector>

#include "octavo/integrations/onnxruntime/ep_abi.h"
#include "octavo/ir/status.h"
#include "octavo/runtime/profile.h"

namespace octavo::integrations::onnxruntime {

// One for a session, or for a run that is profiled alone. ONNX Runtime releases it.
class Profiler : public abi::Profiler {
 public:
  Profiler();
  // Of the event that this thread is in; null: nobody asks for steps.
  static Profiler* OfThread();
  // The steps of a run that began at `start`.
  void Add(std::chrono::steady_clock::time_point start, runtime::Profile steps);

 private:
  struct Run {
    int64_t start_ns;  // of ONNX Runtime's clock
    int32_t thread;
    runtime::Profile steps;
  };
  ir::Status Give(abi::ProfilingEvents* events);

  std::chrono::steady_clock::time_point began_;
  int64_t began_ns_ = 0;  // of ONNX Runtime's clock
  std::mutex mutex_;
  std::vector<Run> runs_;
  size_t count_ = 0;
};

}  // namespace octavo::integrations::onnxruntime

#endif  // OCTAVO_INTEGRATIONS_ONNXRUNTIME_EP_PROFILE_H_
