// The execution provider of one session: takes what octavo computes out of its graphs, compiles it and runs it.
#ifndef OCTAVO_INTEGRATIONS_ONNXRUNTIME_EP_PROVIDER_H_
#define OCTAVO_INTEGRATIONS_ONNXRUNTIME_EP_PROVIDER_H_

#include <map>
#include <memory>
#include <string>

#include "octavo/integrations/onnxruntime/ep_model.h"
#include "octavo/runtime/model.h"

namespace octavo::integrations::onnxruntime {

inline constexpr const char* kProviderName = "OctavoExecutionProvider";

// What a user sets for the provider.
struct ProviderOptions {
  int threads = 0;          // 0: all
  std::string recipe = {};  // "": as the model is; "dynamic" and the other recipes that need no data
  bool no_bodies = false;   // before 1.27 what the bodies of a node read from outside is not passed to who takes it
};
ir::Result<ProviderOptions> OptionsOf(const OrtSessionOptions* options);

class Provider : public abi::Ep {
 public:
  explicit Provider(ProviderOptions options);

 private:
  ir::Status Claim(const abi::Graph* graph, abi::SupportInfo* info);
  ir::Result<std::unique_ptr<abi::ComputeInfo>> Make(const abi::Graph* graph, const abi::Node* fused);
  ir::Result<runtime::Model> ModelFor(const abi::Graph* graph, const Part& part) const;

  ProviderOptions options_;
  std::map<std::string, std::unique_ptr<runtime::Model>>
      claimed_;  // by the names of the outputs, until ONNX Runtime asks for it
};

}  // namespace octavo::integrations::onnxruntime

#endif  // OCTAVO_INTEGRATIONS_ONNXRUNTIME_EP_PROVIDER_H_
