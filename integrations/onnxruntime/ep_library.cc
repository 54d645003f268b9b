// What ONNX Runtime calls when a user registers the library as an execution provider (1.24 or later). The custom ops of library.cc run octavo's own
// files; this takes whole parts of any model.
#include <cstdio>
#include <format>
#include <mutex>

#include "octavo/integrations/onnxruntime/ep_log.h"
#include "octavo/integrations/onnxruntime/ep_provider.h"
#include "octavo/version.h"

namespace octavo::integrations::onnxruntime {

namespace {

constexpr int kOldestMinor = 24, kOldestWithBodies = 27;

// Minor version of ONNX Runtime 1; a later major version is beyond all of them.
int MinorOf(const OrtApiBase* base) {
  int major = 0, minor = 0;
  if (std::sscanf(base->GetVersionString(), "%d.%d", &major, &minor) != 2) return 0;
  return major > 1 ? 1000 : minor;
}

struct OctavoFactory : abi::Factory {
  bool no_bodies, profiles;

  explicit OctavoFactory(int minor)
      : no_bodies(minor < kOldestWithBodies), profiles(minor >= static_cast<int>(abi::kWithProfiler)) {
    GetName = [](const abi::Factory*) { return abi::kProviderName; };
    GetVendor = [](const abi::Factory*) { return "octavo"; };
    GetVersion = [](const abi::Factory*) { return OCTAVO_VERSION; };
    GetVendorId = [](const abi::Factory*) -> uint32_t { return 0; };
    GetSupportedDevices = [](abi::Factory* self, const abi::HardwareDevice* const* devices, size_t count,
                             abi::EpDevice** found, size_t most, size_t* made) -> OrtStatus* {
      const abi::Tail& tail = abi::TailOf(Api());
      *made = 0;
      for (size_t i = 0; i < count && *made < most; ++i) {
        if (tail.HardwareDevice_Type(devices[i]) != 0) continue;  // no CPU
        if (OrtStatus* failed = tail.GetEpApi()->CreateEpDevice(self, devices[i], nullptr, nullptr, &found[*made]))
          return failed;
        ++*made;
      }
      return nullptr;
    };
    CreateEp = [](abi::Factory* self, const abi::HardwareDevice* const*, const abi::KeyValuePairs* const*, size_t,
                  const OrtSessionOptions* options, const OrtLogger* logger, abi::Ep** ep) {
      return Guarded([&]() -> ir::Status {
        OCTAVO_TRY(ProviderOptions chosen, OptionsOf(options));
        chosen.logger = logger;
        chosen.no_bodies = static_cast<OctavoFactory*>(self)->no_bodies;
        chosen.profiles = static_cast<OctavoFactory*>(self)->profiles;
        *ep = new Provider(std::move(chosen));
        return {};
      });
    };
    ReleaseEp = [](abi::Factory*, abi::Ep* ep) { delete static_cast<Provider*>(ep); };
    // The session's own allocator serves, and nothing leaves the CPU.
    CreateAllocator = [](abi::Factory*, const OrtMemoryInfo*, const abi::KeyValuePairs*,
                         OrtAllocator** allocator) -> OrtStatus* {
      *allocator = nullptr;
      return nullptr;
    };
    ReleaseAllocator = [](abi::Factory*, OrtAllocator*) {};
    CreateDataTransfer = [](abi::Factory*, void** transfer) -> OrtStatus* {
      *transfer = nullptr;
      return nullptr;
    };
    IsStreamAware = [](const abi::Factory*) { return false; };
  }
};

// Null: the host is new enough.
OrtStatus* RefusalOf(const OrtApiBase* base) {
  if (MinorOf(base) >= kOldestMinor) return nullptr;
  const std::string why = std::format(
      "octavo: this is ONNX Runtime {}, which tells a provider too little of bodies of If and Loop; take 1.{} or later",
      base->GetVersionString(), kOldestMinor);
  return base->GetApi(1)->CreateStatus(ORT_FAIL, why.c_str());
}

}  // namespace

}  // namespace octavo::integrations::onnxruntime

extern "C" __attribute__((visibility("default"))) OrtStatus* CreateEpFactories(const char*, const OrtApiBase* base,
                                                                               const OrtLogger*, void** factories,
                                                                               size_t most, size_t* made) {
  namespace self = octavo::integrations::onnxruntime;
  if (OrtStatus* refusal = self::RefusalOf(base); refusal != nullptr) return refusal;
  const OrtApi* api = base->GetApi(self::abi::kVersion);
  if (!self::InitApi(api))
    return api->CreateStatus(ORT_FAIL,
                             "octavo: another ONNX Runtime in this process has registered the provider already");
  *made = 0;
  if (most == 0) return nullptr;
  self::LogToSessions();
  factories[0] = new self::OctavoFactory(self::MinorOf(base));
  *made = 1;
  return nullptr;
}

extern "C" __attribute__((visibility("default"))) OrtStatus* ReleaseEpFactory(void* factory) {
  delete static_cast<octavo::integrations::onnxruntime::OctavoFactory*>(factory);
  return nullptr;
}
