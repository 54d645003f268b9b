#include "octavo/integrations/onnxruntime/ep_profile.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <string>
#include <utility>

#include "octavo/integrations/onnxruntime/host.h"

namespace octavo::integrations::onnxruntime {

namespace {

using ir::Status;

constexpr size_t kMost = 1000000;  // as many events as ONNX Runtime keeps of its own

// ONNX Runtime starts and stops an event on the thread that runs it; events nest.
thread_local std::vector<Profiler*> around;

int64_t Nanoseconds(std::chrono::steady_clock::duration d) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(d).count();
}

std::string Joined(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : ", ") + word;
  return text;
}

}  // namespace

Profiler::Profiler() {
  Release = [](abi::Profiler* self) { delete static_cast<Profiler*>(self); };
  StartProfiling = [](abi::Profiler* self, int64_t offset_ns) -> OrtStatus* {
    auto* const profiler = static_cast<Profiler*>(self);
    profiler->began_ = std::chrono::steady_clock::now(), profiler->began_ns_ = offset_ns;
    return nullptr;
  };
  StartEvent = [](abi::Profiler* self, uint64_t) {
    return Guarded([&]() -> Status {
      around.push_back(static_cast<Profiler*>(self));
      return {};
    });
  };
  StopEvent = [](abi::Profiler*, uint64_t, const abi::ProfilingEvent*) -> OrtStatus* {
    if (!around.empty()) around.pop_back();
    return nullptr;
  };
  EndProfiling = [](abi::Profiler* self, abi::ProfilingEvents* events) {
    return Guarded([&] { return static_cast<Profiler*>(self)->Give(events); });
  };
}

Profiler* Profiler::OfThread() { return around.empty() ? nullptr : around.back(); }

void Profiler::Add(std::chrono::steady_clock::time_point start, runtime::Profile steps) {
  const std::scoped_lock lock(mutex_);
  if (count_ + steps.events.size() > kMost) return;
  count_ += steps.events.size();
  const auto thread = static_cast<int32_t>(syscall(SYS_gettid));  // as ONNX Runtime names its own
  runs_.push_back({began_ns_ + Nanoseconds(start - began_), thread, std::move(steps)});
}

Status Profiler::Give(abi::ProfilingEvents* events) {
  const abi::ProfilingApi& api = abi::ProfilingOf(*abi::TailOf(Api()).GetEpApi());
  std::vector<Run> runs;
  {
    const std::scoped_lock lock(mutex_);
    runs = std::move(runs_), runs_ = {}, count_ = 0;
  }
  constexpr std::array<const char*, 3> kKeys = {"op_name", "provider", "origin"};
  for (const Run& run : runs) {
    for (const runtime::ProfileEvent& step : run.steps.events) {
      const std::string origin = Joined(step.origin);
      const std::array<const char*, 3> values = {step.kernel.c_str(), abi::kProviderName, origin.c_str()};
      const auto start_us = static_cast<int64_t>(static_cast<double>(run.start_ns) / 1000 + step.start_us);
      abi::ProfilingEvent* event = nullptr;
      OCTAVO_TRY_STATUS(StatusOf(api.CreateProfilingEvent(abi::kKernelEvent, getpid(), run.thread, step.name.c_str(),
                                                          start_us, static_cast<int64_t>(step.duration_us),
                                                          kKeys.data(), values.data(), kKeys.size(), &event)));
      const Status added = StatusOf(api.ProfilingEventsContainer_AddEvents(events, &event, 1));
      api.ReleaseProfilingEvent(event);
      OCTAVO_TRY_STATUS(added);
    }
  }
  return {};
}

}  // namespace octavo::integrations::onnxruntime
