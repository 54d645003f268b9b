// What llama.cpp calls the modules of models as exporters name them.
#include <gtest/gtest.h>

#include "octavo/api/weights.h"

namespace octavo::api {
namespace {

using Names = std::vector<std::string>;

TEST(GgufNames, OfModules) {
  const auto of = [](const char* path) { return TensorsOfModule(path, false); };
  EXPECT_EQ(of("/model/layers.11/self_attn/q_proj/MatMul"), Names{"blk.11.attn_q"});    // TorchScript
  EXPECT_EQ(of("model.layers.0.self_attn.q_proj/node_linear"), Names{"blk.0.attn_q"});  // dynamo, by metadata
  EXPECT_EQ(of("model.layers.2.attn.k_proj.MatMul.weight"), Names{"blk.2.attn_k"});     // onnxruntime-genai
  EXPECT_EQ(of("model.layers.2.attn.q_norm.layernorm.weight"), Names{"blk.2.attn_q_norm"});
  EXPECT_EQ(of("transformer.h.5.attn.c_proj.weight"), Names{"blk.5.attn_output"});
  EXPECT_EQ(of("transformer.h.5.mlp.c_proj.weight"), Names{"blk.5.ffn_down"});
  EXPECT_EQ(of("base_model.model.model.layers.1.mlp.down_proj.weight"), Names{"blk.1.ffn_down"});
  EXPECT_EQ(of("gpt_neox.layers.3.attention.dense.weight"), Names{"blk.3.attn_output"});
  EXPECT_EQ(of("model.layers.3.post_attention_layernorm.weight"),
            (Names{"blk.3.post_attention_norm", "blk.3.ffn_norm"}));
  EXPECT_EQ(of("model.norm.weight"), Names{"output_norm"});
  EXPECT_EQ(of("/model/embed_tokens/Gather"), Names{"token_embd"});
  EXPECT_EQ(of("/lm_head/MatMul"), (Names{"output", "token_embd"}));
  EXPECT_EQ(TensorsOfModule("model.embed_tokens.weight", true), (Names{"output", "token_embd"}));
}

TEST(GgufNames, OfExperts) {
  const auto of = [](const char* path) { return TensorsOfModule(path, false); };
  EXPECT_EQ(of("model.layers.3.mlp.experts.gate_up_proj"), Names{"blk.3.ffn_gate_up_exps"});  // transformers 5
  EXPECT_EQ(of("model.layers.3.mlp.experts.gate_up_proj_bias"), Names{"blk.3.ffn_gate_up_exps"});
  EXPECT_EQ(of("model.layers.3.mlp.experts.down_proj"), Names{"blk.3.ffn_down_exps"});
  EXPECT_EQ(of("/model/layers.3/block_sparse_moe/experts.17/w1/MatMul"), Names{"blk.3.ffn_gate.17"});  // transformers 4
  EXPECT_EQ(of("model.layers.3.block_sparse_moe.experts.17.w3.weight"), Names{"blk.3.ffn_up.17"});
  EXPECT_EQ(of("model.layers.3.mlp.experts.0.down_proj.weight"), Names{"blk.3.ffn_down.0"});
  EXPECT_EQ(of("model.layers.3.mlp.shared_experts.up_proj.weight"), Names{"blk.3.ffn_up_shexp"});
  EXPECT_EQ(of("model.layers.3.mlp.shared_expert.gate_proj.weight"), Names{"blk.3.ffn_gate_shexp"});
  EXPECT_EQ(of("model.layers.3.mlp.shared_expert_gate.weight"), Names{"blk.3.ffn_gate_inp_shexp"});
  EXPECT_EQ(of("model.layers.3.block_sparse_moe.gate.weight"), Names{"blk.3.ffn_gate_inp"});
  EXPECT_EQ(of("model.layers.3.mlp.router.weight"), Names{"blk.3.ffn_gate_inp"});
  EXPECT_EQ(of("model.layers.3.mlp.gate.e_score_correction_bias"), Names{"blk.3.exp_probs_b"});
}

TEST(GgufNames, OfWhatIsNone) {
  for (const char* path :
       {"", "/", "val_12", "onnx::MatMul_714", "/model/layers.0/self_attn/MatMul", "model.layers.0.norm.weight",
        "q_proj.weight", "model.layers.x.self_attn.q_proj", "model.layers.1234567.self_attn.q_proj",
        "model.rotary_emb.inv_freq", "model.layers.0.embed_tokens", "/model/layers.0/self_attn/my_q_proj/MatMul"})
    EXPECT_EQ(TensorsOfModule(path, false), Names{}) << path;
}

}  // namespace
}  // namespace octavo::api
