#include "octavo/runtime/profile.h"

#include "octavo/ir/json.h"

namespace octavo::runtime {

std::string ToChromeTrace(const Profile& profile) {
  nlohmann::ordered_json events = nlohmann::ordered_json::array();
  for (const ProfileEvent& e : profile.events) {
    nlohmann::ordered_json args;
    args["kernel"] = e.kernel;
    args["origin"] = e.origin;
    events.push_back({{"name", e.name},
                      {"cat", e.kernel},
                      {"ph", "X"},
                      {"ts", e.start_us},
                      {"dur", e.duration_us},
                      {"pid", 1},
                      {"tid", 1},
                      {"args", std::move(args)}});
  }
  nlohmann::ordered_json trace;
  trace["traceEvents"] = std::move(events);
  trace["displayTimeUnit"] = "ms";
  return ir::Dump(trace, 1) + "\n";
}

}  // namespace octavo::runtime
