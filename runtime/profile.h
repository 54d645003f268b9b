// What ran when, with the source ONNX nodes of every kernel; written as a Chrome trace (chrome://tracing, Perfetto).
#ifndef OCTAVO_RUNTIME_PROFILE_H_
#define OCTAVO_RUNTIME_PROFILE_H_

#include <filesystem>
#include <string>
#include <vector>

#include "octavo/ir/status.h"

namespace octavo::runtime {

struct ProfileEvent {
  std::string name;                 // of the node
  std::string kernel;               // "linear_int8 avx512vnni", "interpreter Gather"
  std::vector<std::string> origin;  // source ONNX nodes, then passes
  double start_us = 0;              // since the first event of the profile
  double duration_us = 0;
};

struct Profile {
  std::vector<ProfileEvent> events;
};

// {"traceEvents": [...]}: complete events in microseconds, origin in args.
std::string ToChromeTrace(const Profile& profile);

}  // namespace octavo::runtime

#endif  // OCTAVO_RUNTIME_PROFILE_H_
