// The tensors of a GGUF file, with those of experts as the model at hand has them. llama.cpp stores one tensor of all experts ("ffn_gate_exps"), or in older files
// one of each ("ffn_gate.3"); gate and up apart. Exporters write either, and transformers 5 has gate and up in one ("experts.gate_up_proj").
#ifndef OCTAVO_API_WEIGHTS_EXPERTS_H_
#define OCTAVO_API_WEIGHTS_EXPERTS_H_

#include <deque>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "octavo/ir/gguf/gguf.h"

namespace octavo::api {

class GgufTensors {
 public:
  // stacked: what the model has in one tensor of all experts, as [experts, out, in].
  GgufTensors(const ir::gguf::File& file, const std::set<ir::Shape>& stacked);

  const std::vector<ir::gguf::TensorInfo>& all() const { return all_; }
  const ir::gguf::TensorInfo* Find(std::string_view name) const;

 private:
  using Named = std::map<std::string, ir::gguf::TensorInfo, std::less<>>;

  void Join(Named& tensors, const std::set<ir::Shape>& stacked);
  void JoinGateAndUp(Named& tensors, const std::string& layer, bool in_turns);
  void Split(Named& tensors, const std::string& stem);

  std::deque<std::vector<std::byte>> bytes_;  // of what was joined
  std::vector<ir::gguf::TensorInfo> all_;
  std::map<std::string, size_t, std::less<>> by_name_;
};

}  // namespace octavo::api

#endif  // OCTAVO_API_WEIGHTS_EXPERTS_H_
