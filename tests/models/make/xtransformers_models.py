"""Text: models of x-transformers, small, with random weights: python3 xtransformers_models.py OUT [NAME...]. Needs torch and x-transformers."""
import sys

import torch
import x_transformers

import export

# name: options of the layers, each a feature of attention that has its own form in a graph
FORMS = {
    "encoder": (False, {}),
    "alibi": (True, {"alibi_pos_bias": True, "alibi_num_heads": 1}),
    "rel_pos": (False, {"rel_pos_bias": True}),
    "dynamic_pos": (False, {"dynamic_pos_bias": True, "dynamic_pos_bias_log_distance": True}),
    "rotary_xpos": (True, {"rotary_pos_emb": True, "rotary_xpos": True}),
    "qk_norm": (False, {"attn_qk_norm": True, "attn_qk_norm_dim_scale": True}),
    "talking_heads": (False, {"attn_pre_talking_heads": True, "attn_post_talking_heads": True}),
    "mem_kv": (False, {"attn_num_mem_kv": 3}),
    "one_kv_head": (True, {"attn_one_kv_head": True}),
    "kv_heads": (True, {"attn_kv_heads": 1}),
    "sigmoid": (False, {"attn_sigmoid": True}),
    "gate_values": (False, {"attn_gate_values": True}),
    "head_scale": (False, {"attn_head_scale": True}),
    "softclamp": (True, {"attn_softclamp_logits": True}),
    "sparse_topk": (False, {"attn_sparse_topk": 3}),
    "zero_kv": (False, {"attn_add_zero_kv": True}),
    "macaron": (False, {"macaron": True, "use_rmsnorm": True}),
    "sandwich": (False, {"sandwich_norm": True, "ff_glu": True, "ff_swish": True}),
    "laser": (True, {"attn_laser": True}),
    "hybrid_cope": (True, {"attn_use_cope": True, "attn_cope_talking_heads": False}),
}


def family(causal, options):
    def make():
        layers = x_transformers.Decoder if causal else x_transformers.Encoder
        model = x_transformers.TransformerWrapper(num_tokens=99, max_seq_len=64, attn_layers=layers(dim=32, depth=2, heads=2, attn_dim_head=16, **options))
        case = lambda b, s: {"x": torch.randint(0, 99, (b, s))}
        return {"model": model, "cases": [case(2, 8), case(3, 12)], "axes": {"x": {0: "batch", 1: "sequence"}}}

    return make


if __name__ == "__main__":
    sys.exit(export.main({key: family(*value) for key, value in FORMS.items()}, __doc__))
