// The execution provider of one session: takes what octavo computes out of its graphs, compiles it and runs it.
#ifndef OCTAVO_INTEGRATIONS_ONNXRUNTIME_EP_PROVIDER_H_
#define OCTAVO_INTEGRATIONS_ONNXRUNTIME_EP_PROVIDER_H_

#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "octavo/integrations/onnxruntime/ep_model.h"
#include "octavo/runtime/model.h"

namespace octavo::integrations::onnxruntime {

// What a user sets for the provider.
struct ProviderOptions {
  std::optional<int> threads = {};  // nothing: those of the session; 0: as many of octavo's own as there are CPUs
  std::string recipe = {};          // "": as the model is; "dynamic" and the other recipes that need no data
  bool context = false;             // what is compiled is wanted as EPContext nodes
  bool context_inside = false;      // that carry it; else it is in files beside the model
  std::filesystem::path context_file = {};  // of the model with these nodes
  const OrtLogger* logger = nullptr;        // of the session
  bool profiles = false;                    // from 1.25 on ONNX Runtime takes events
  bool no_bodies = false;  // before 1.27 what the bodies of a node read from outside is not passed to who takes it
};
ir::Result<ProviderOptions> OptionsOf(const OrtSessionOptions* options);

class Provider : public abi::Ep {
 public:
  explicit Provider(ProviderOptions options);

 private:
  ir::Status Claim(const abi::Graph* graph, abi::SupportInfo* info);
  // A compiled part, and where it is wanted the bytes that give it again.
  struct Made {
    std::unique_ptr<runtime::Model> model;
    std::string context = {};
  };
  ir::Status Compile(const abi::Graph* graph, const abi::Node* fused, abi::ComputeInfo** info, abi::Node** context);
  ir::Result<std::set<size_t>> ClaimContexts(const std::vector<const abi::Node*>& nodes, abi::SupportInfo* info);
  ir::Result<Made> MadeOf(const abi::Graph* graph);
  ir::Result<std::unique_ptr<runtime::Model>> ModelOfGraph(ir::Graph graph) const;
  ir::Status ClaimParts(const abi::Graph* graph, const std::vector<const abi::Node*>& nodes,
                        const std::set<size_t>& refused, const std::set<size_t>& work, abi::SupportInfo* info);
  ir::Status Place(const abi::Graph* graph);
  std::filesystem::path Beside() const;
  ir::Result<Made> ModelFor(const abi::Graph* graph, const Part& part) const;

  ProviderOptions options_;
  std::filesystem::path model_file_;     // "": the model came as bytes
  std::map<std::string, Made> claimed_;  // by the names of the outputs, until ONNX Runtime asks for it
};

}  // namespace octavo::integrations::onnxruntime

#endif  // OCTAVO_INTEGRATIONS_ONNXRUNTIME_EP_PROVIDER_H_
