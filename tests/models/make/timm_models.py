"""Pictures: timm's models, small, with random weights: python3 timm_models.py OUT [NAME...]. Needs torch and timm."""
import sys

import timm
import torch

import export

SMALL = {
    "cait": ("cait_xxs24_224", {"depth": 2, "depth_token_only": 1, "embed_dim": 32, "num_heads": 2, "img_size": 64}),
    "coatnet": ("coatnet_0_rw_224", {"img_size": 64}),
    "crossvit": ("crossvit_9_240", {"embed_dim": [32, 64], "num_heads": [2, 2], "depth": [[1, 1, 0]], "mlp_ratio": [2, 2, 1]}),
    "davit": ("davit_tiny", {"depths": (1, 1), "embed_dims": (32, 64), "num_heads": (2, 4)}),
    "deit3": ("deit3_small_patch16_224", {"img_size": 64, "depth": 2, "embed_dim": 32, "num_heads": 2}),
    "edgenext": ("edgenext_xx_small", {}),
    "efficientformer": ("efficientformer_l1", {"depths": (1, 1, 1, 2), "embed_dims": (8, 16, 24, 32), "num_vit": 1}),
    "efficientformerv2": ("efficientformerv2_s0", {}),
    "efficientvit_b0": ("efficientvit_b0", {}),
    "eva02": ("eva02_tiny_patch14_224", {"img_size": 56, "depth": 2, "embed_dim": 32, "num_heads": 2}),
    "fastvit": ("fastvit_sa12", {}),
    "gcvit": ("gcvit_xxtiny", {}),
    "levit": ("levit_128s", {}),
    "maxvit": ("maxvit_rmlp_pico_rw_256", {"img_size": 64}),
    "maxxvitv2": ("maxxvitv2_nano_rw_256", {"img_size": 64}),
    "mobilevit": ("mobilevit_xxs", {}),
    "mobilevitv2": ("mobilevitv2_050", {}),
    "mobilenetv4_hybrid": ("mobilenetv4_hybrid_medium", {}),
    "pit": ("pit_ti_224", {"img_size": 64, "base_dims": (16, 16, 16), "depth": (1, 1, 1), "heads": (1, 2, 2)}),
    "pvt_v2": ("pvt_v2_b0", {"depths": (1, 1, 1, 1), "embed_dims": (8, 16, 30, 32)}),
    "repvit": ("repvit_m0_9", {}),
    "sam_encoder": ("samvit_base_patch16", {"img_size": 64, "depth": 2, "embed_dim": 32, "num_heads": 2, "window_size": 3, "global_attn_indexes": (1,)}),
    "sequencer": ("sequencer2d_s", {"layers": (1, 1, 1, 1), "embed_dims": (16, 16, 16, 16), "hidden_sizes": (4, 4, 4, 4)}),
    "tiny_vit": ("tiny_vit_5m_224", {"embed_dims": (16, 32, 32, 64), "depths": (1, 1, 1, 1), "num_heads": (1, 2, 2, 2), "window_sizes": (3, 3, 3, 3)}),
    "tnt": ("tnt_s_patch16_224", {"depth": 2, "embed_dim": 32, "num_heads_outer": 2, "img_size": 64}),
    "volo": ("volo_d1_224", {"img_size": 64}),
    "vit_reg": ("vit_small_patch16_dinov3", {"img_size": 64, "depth": 2, "embed_dim": 32, "num_heads": 2}),
    "vit_relpos": ("vit_relpos_small_patch16_224", {"img_size": 64, "depth": 2, "embed_dim": 32, "num_heads": 2}),
    "vit_parallel": ("vit_small_patch16_36x1_224", {"img_size": 64, "depth": 2, "embed_dim": 32, "num_heads": 2}),
    "vitamin": ("vitamin_small_224", {"img_size": 64, "depth": 2}),
    "xcit": ("xcit_nano_12_p16_224", {"img_size": 64, "depth": 2, "embed_dim": 32, "num_heads": 2}),
    "visformer": ("visformer_tiny", {"img_size": 64, "embed_dim": 48, "depth": (1, 1, 1)}),
    "beitv2": ("beitv2_base_patch16_224", {"img_size": 64, "depth": 2, "embed_dim": 32, "num_heads": 2}),
    "nextvit": ("nextvit_small", {}),
    "bat_resnext": ("botnet26t_256", {"img_size": 64}),
    "lambda_resnet": ("lambda_resnet26t", {"img_size": 64}),
    "hieradet": ("hieradet_small", {}),
    "swin_s3": ("swin_s3_tiny_224", {"img_size": 64, "embed_dim": 16, "depths": (2, 2), "num_heads": (2, 2), "window_size": (4, 4)}),
    "mambaout": ("mambaout_femto", {"depths": (1, 1, 1, 1)}),
    "convit": ("convit_tiny", {"img_size": 64, "depth": 2, "local_up_to_layer": 1, "embed_dim": 32, "num_heads": 2}),
    "mvitv2": ("mvitv2_tiny", {"img_size": 64, "embed_dim": (16, 32), "depths": (1, 1), "num_heads": (1, 2)}),
    "shvit": ("shvit_s1", {}),
    "swiftformer": ("swiftformer_xs", {}),
    "rdnet": ("rdnet_tiny", {}),
    "starnet": ("starnet_s050", {}),
    "coat": ("coat_lite_tiny", {"img_size": 96}),
    "qwen3_vit": ("qwen3_vit_88m", {"img_size": 64, "depth": 2, "embed_dim": 32, "num_heads": 2}),
    "vit_map": ("vit_so150m_patch16_reg4_map_256", {"img_size": 64, "depth": 2, "embed_dim": 32, "num_heads": 2}),
    "eva_clip": ("eva02_base_patch16_clip_224", {"img_size": 64, "depth": 2, "embed_dim": 32, "num_heads": 2}),
    "vit_rope_ape": ("vit_small_patch16_rope_ape_224", {"img_size": 64, "depth": 2, "embed_dim": 32, "num_heads": 2}),
    "pe_core": ("vit_pe_core_tiny_patch16_384", {"img_size": 64, "depth": 2, "embed_dim": 32, "num_heads": 2}),
}

# Softmaxes that are no softmax(q k) v: over the keys alone (lambda), over positions (separable attention), of positions (gated attention).
OTHERS = {"lambda_resnet": 3, "mobilevitv2": 9, "convit": 1}


def family(key, name, options):
    def make():
        size = options.get("img_size", 96)
        if name.startswith("crossvit"):
            size = 240
        if name.startswith("halonet"):
            size = 128
        if name.startswith("efficientformer_") or name.startswith(("levit", "pvt", "efficientformerv2", "gcvit", "nextvit", "naflex")):
            size = 224
        model = timm.create_model(name, num_classes=10, **options)
        case = lambda n: {"pixel_values": torch.randn(n, 3, size, size)}
        return {"model": export.Positional(model), "cases": [case(2), case(3)], "axes": {"pixel_values": {0: "batch"}}, "others": OTHERS.get(key, 0)}

    return make


if __name__ == "__main__":
    sys.exit(export.main({key: family(key, *value) for key, value in SMALL.items()}, __doc__))
