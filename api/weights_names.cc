#include <algorithm>
#include <cctype>
#include <format>
#include <span>

#include "octavo/api/weights.h"

namespace octavo::api {

namespace {

// The end of a module's path, and the tensors that it may be, in a layer ("blk.N." before it) or outside.
struct Module {
  std::string_view path;
  bool in_layer;
  std::vector<std::string_view> tensors;
};

const std::vector<Module>& Modules() {
  static const auto* const modules = new std::vector<Module>{
      {"embed_tokens", false, {"token_embd"}},
      {"wte", false, {"token_embd"}},
      {"embed_in", false, {"token_embd"}},
      {"word_embeddings", false, {"token_embd"}},
      {"wpe", false, {"position_embd"}},
      {"lm_head", false, {"output", "token_embd"}},
      {"embed_out", false, {"output", "token_embd"}},
      {"norm", false, {"output_norm"}},
      {"final_norm_layernorm", false, {"output_norm"}},
      {"final_layernorm", false, {"output_norm"}},
      {"final_layer_norm", false, {"output_norm"}},
      {"ln_f", false, {"output_norm"}},
      {"input_layernorm", true, {"attn_norm"}},
      {"ln_1", true, {"attn_norm"}},
      {"q_proj", true, {"attn_q"}},
      {"k_proj", true, {"attn_k"}},
      {"v_proj", true, {"attn_v"}},
      {"qkv_proj", true, {"attn_qkv"}},
      {"query_key_value", true, {"attn_qkv"}},
      {"c_attn", true, {"attn_qkv"}},
      {"q_norm", true, {"attn_q_norm"}},
      {"k_norm", true, {"attn_k_norm"}},
      {"o_proj", true, {"attn_output"}},
      {"out_proj", true, {"attn_output"}},
      {"attn.c_proj", true, {"attn_output"}},
      {"self_attn.dense", true, {"attn_output"}},
      {"attention.dense", true, {"attn_output"}},
      {"self_attention.dense", true, {"attn_output"}},
      {"post_attention_layernorm", true, {"post_attention_norm", "ffn_norm"}},
      {"pre_feedforward_layernorm", true, {"ffn_norm"}},
      {"post_feedforward_layernorm", true, {"post_ffw_norm"}},
      {"ln_2", true, {"ffn_norm"}},
      {"gate_proj", true, {"ffn_gate"}},
      {"up_proj", true, {"ffn_up"}},
      {"gate_up_proj", true, {"ffn_up"}},
      {"c_fc", true, {"ffn_up"}},
      {"fc1", true, {"ffn_up"}},
      {"dense_h_to_4h", true, {"ffn_up"}},
      {"down_proj", true, {"ffn_down"}},
      {"mlp.c_proj", true, {"ffn_down"}},
      {"fc2", true, {"ffn_down"}},
      {"dense_4h_to_h", true, {"ffn_down"}},
      {"mlp.gate", true, {"ffn_gate_inp"}},
      {"mlp.router", true, {"ffn_gate_inp"}},
      {"block_sparse_moe.gate", true, {"ffn_gate_inp"}},
      {"mlp.shared_expert_gate", true, {"ffn_gate_inp_shexp"}},
      {"e_score_correction_bias", true, {"exp_probs_b"}},
  };
  return *modules;
}

// Projections of experts: of one ("experts.3.w1"), of all in one tensor ("experts.gate_up_proj"), of those that every token goes to.
struct Projection {
  std::string_view path, tensor;
};
constexpr Projection kProjections[] = {
    {"w1", "ffn_gate"},
    {"gate_proj", "ffn_gate"},
    {"w3", "ffn_up"},
    {"up_proj", "ffn_up"},
    {"w2", "ffn_down"},
    {"down_proj", "ffn_down"},
    {"down_proj_bias", "ffn_down"},
    {"gate_up_proj", "ffn_gate_up"},
    {"gate_up_proj_bias", "ffn_gate_up"},
};

std::vector<std::string_view> Parts(std::string_view path) {
  std::vector<std::string_view> parts;
  while (!path.empty()) {
    const size_t end = std::min(path.find_first_of("./"), path.size());
    if (end > 0) parts.push_back(path.substr(0, end));
    path.remove_prefix(std::min(end + 1, path.size()));
  }
  return parts;
}

bool IsNumber(std::string_view text) {
  return !text.empty() && text.size() < 6 &&
         std::ranges::all_of(text, [](char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; });
}

bool EndsIn(std::span<const std::string_view> parts, std::string_view module) {
  const std::vector<std::string_view> wanted = Parts(module);
  return parts.size() >= wanted.size() && std::ranges::equal(wanted, parts.last(wanted.size()));
}

// `parts` behind the number of the layer. Empty: no expert's.
std::string TensorOfExperts(std::span<const std::string_view> parts) {
  const auto experts = std::ranges::find_if(parts, [](std::string_view p) {
    return p == "experts" || p == "shared_expert" || p == "shared_experts" || p == "shared_mlp";
  });
  if (experts == parts.end()) return {};
  const std::span<const std::string_view> behind(experts + 1, parts.end());
  const bool one = !behind.empty() && IsNumber(behind[0]);
  for (const std::string_view part : behind) {
    const auto* const found = std::ranges::find(kProjections, part, &Projection::path);
    if (found == std::end(kProjections)) continue;
    if (*experts != "experts") return std::string(found->tensor) + "_shexp";
    return one ? std::format("{}.{}", found->tensor, behind[0]) : std::string(found->tensor) + "_exps";
  }
  return {};
}

}  // namespace

std::vector<std::string> TensorsOfModule(std::string_view path, bool product) {
  const std::vector<std::string_view> parts = Parts(path);
  size_t inside = 0;  // behind the layer's number
  std::string layer;
  for (size_t i = 1; i < parts.size(); ++i) {
    static constexpr std::string_view kLayers[] = {"layers", "h", "layer", "blocks"};
    if (!IsNumber(parts[i]) || std::ranges::find(kLayers, parts[i - 1]) == std::end(kLayers)) continue;
    layer = std::format("blk.{}.", parts[i]), inside = i + 1;
  }
  if (!layer.empty()) {
    if (const std::string name = TensorOfExperts(std::span(parts).subspan(inside)); !name.empty())
      return {layer + name};
  }
  for (size_t end = parts.size(); end > inside; --end) {
    for (const Module& m : Modules()) {
      if (m.in_layer == layer.empty() || !EndsIn(std::span(parts).subspan(inside, end - inside), m.path)) continue;
      std::vector<std::string> names;
      if (product && m.tensors[0] == "token_embd") names.emplace_back("output");  // one table for both
      for (const std::string_view t : m.tensors) names.push_back(layer + std::string(t));
      return names;
    }
  }
  return {};
}

}  // namespace octavo::api
