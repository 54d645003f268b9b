// The oneDNN of a wheel has no Graph API, so this peer of `octavo bench --kernels` says that it is not there; kernels/bench/onednn_graph.cc is
// not linked then.
#include "octavo/kernels/bench/onednn_graph.h"

namespace octavo::kernels::bench {

struct OneDnnGraphAttention::State {
  std::string problem = "the oneDNN inside of this wheel has no Graph API; a build from source has it";
};
OneDnnGraphAttention::OneDnnGraphAttention(const SdpaInt8Args& /*args*/, bool /*int8*/)
    : state_(std::make_unique<State>()) {}
OneDnnGraphAttention::~OneDnnGraphAttention() = default;
const std::string& OneDnnGraphAttention::problem() const { return state_->problem; }
void OneDnnGraphAttention::Run() {}

}  // namespace octavo::kernels::bench
