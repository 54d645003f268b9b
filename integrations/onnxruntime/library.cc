// What ONNX Runtime calls when a user registers the library with his session's options. A file that octavo wrote says what its fused ops mean by
// bodies of standard ops; a session that knows the ops by this library runs octavo's kernels instead.
#include <cstdio>
#include <deque>
#include <format>
#include <mutex>
#include <string>
#include <vector>

#include "octavo/integrations/onnxruntime/fused_op.h"
#include "octavo/ir/functions.h"

namespace octavo::integrations::onnxruntime {

namespace {

// A file numbers the bodies of an op, those of the tests up to 5. What is beyond runs by its body. Each costs a session 0.6 ms.
constexpr int kMostBodies = 16;
// Before 1.24 shape inference of custom ops ends the process at an input that is left out.
constexpr int kOldestMinor = 24;

// Null: the host is new enough.
OrtStatus* RefusalOf(const OrtApiBase* base) {
  int major = 0, minor = 0;
  const char* version = base->GetVersionString();
  const bool read = std::sscanf(version, "%d.%d", &major, &minor) == 2;
  if (read && (major > 1 || minor >= kOldestMinor)) return nullptr;
  const std::string why = std::format(
      "octavo: this is ONNX Runtime {}, the library needs 1.{} or later; without it the file runs too, by the bodies "
      "of its functions",
      version, kOldestMinor);
  return base->GetApi(1)->CreateStatus(ORT_FAIL, why.c_str());  // in the first version's table already
}

// Made once, for all sessions of the process, and never unmade: ONNX Runtime keeps pointers to it, in a global session even at the end of the
// process.
ir::Result<OrtCustomOpDomain*> Domain() {
  static OrtCustomOpDomain* domain = nullptr;
  static auto& ops = *new std::deque<FusedOp>;
  if (domain != nullptr) return domain;
  OrtCustomOpDomain* made = nullptr;
  OCTAVO_TRY_STATUS(StatusOf(Api().CreateCustomOpDomain("octavo", &made)));
  std::vector<ir::OldName> names(ir::OldNames().begin(), ir::OldNames().end());
  for (const ir::Op op : ir::FusedOps()) names.push_back({ir::InfoOf(op).name, op});
  for (const auto& [name, op] : names) {
    for (int i = 1; i <= kMostBodies; ++i) {
      ops.emplace_back(op, std::format("{}__{}", name, i));
      OCTAVO_TRY_STATUS(StatusOf(Api().CustomOpDomain_Add(made, &ops.back())));
    }
  }
  return domain = made;
}

ir::Status Register(OrtSessionOptions* options) {
  OCTAVO_TRY(OrtCustomOpDomain* const domain, Domain());
  return StatusOf(Api().AddCustomOpDomain(options, domain));
}

}  // namespace

}  // namespace octavo::integrations::onnxruntime

extern "C" __attribute__((visibility("default"))) OrtStatus* RegisterCustomOps(OrtSessionOptions* options,
                                                                               const OrtApiBase* base) {
  namespace self = octavo::integrations::onnxruntime;
  if (OrtStatus* refusal = self::RefusalOf(base); refusal != nullptr) return refusal;
  static auto& mutex = *new std::mutex;
  const std::scoped_lock lock(mutex);
  const OrtApi* api = base->GetApi(self::kApiVersion);
  if (!self::InitApi(api)) {  // sessions would meet the functions of the other
    return api->CreateStatus(ORT_FAIL,
                             "octavo: another ONNX Runtime in this process has registered the library already");
  }
  return self::Guarded([&] { return self::Register(options); });
}
