"""Pictures and films: blocks of diffusers, small, with random weights: python3 diffusers_models.py OUT [NAME...]. Needs torch and diffusers."""
import sys

import diffusers
import torch

import export

CROSS = {"attention_head_dim": 8, "num_attention_heads": 2, "num_layers": 1, "cross_attention_dim": 16}


def latents(*shape):
    return lambda b: torch.randn(b, *shape)


TEXT = latents(5, 16)
STEP = lambda b: torch.full((b,), 7)
# name: class, configuration, inputs
BLOCKS = {
    "unet": ("UNet2DConditionModel", dict(sample_size=8, block_out_channels=(8, 16), layers_per_block=1, cross_attention_dim=16, norm_num_groups=4,
             attention_head_dim=4, down_block_types=("CrossAttnDownBlock2D", "DownBlock2D"), up_block_types=("UpBlock2D", "CrossAttnUpBlock2D")),
             {"sample": latents(4, 8, 8), "timestep": STEP, "encoder_hidden_states": TEXT}),
    "sana": ("SanaTransformer2DModel", dict(sample_size=8, in_channels=4, out_channels=4, num_attention_heads=2, attention_head_dim=8, num_layers=1,
             num_cross_attention_heads=2, cross_attention_head_dim=8, cross_attention_dim=16, caption_channels=16),
             {"hidden_states": latents(4, 8, 8), "encoder_hidden_states": TEXT, "timestep": STEP}),
    "cogvideox": ("CogVideoXTransformer3DModel", dict(num_attention_heads=2, attention_head_dim=8, in_channels=4, out_channels=4, time_embed_dim=8, text_embed_dim=16,
                  num_layers=1, sample_width=8, sample_height=8, sample_frames=5, max_text_seq_length=5),
                  {"hidden_states": latents(2, 4, 8, 8), "encoder_hidden_states": TEXT, "timestep": STEP}),
    "hunyuan_dit": ("HunyuanDiT2DModel", dict(num_attention_heads=2, attention_head_dim=16, in_channels=4, patch_size=2, num_layers=2, sample_size=8,
                    hidden_size=32, cross_attention_dim=16, cross_attention_dim_t5=16, pooled_projection_dim=16, text_len=5, text_len_t5=5),
                    {"hidden_states": latents(4, 8, 8), "timestep": STEP, "encoder_hidden_states": TEXT, "text_embedding_mask": lambda b: torch.ones(b, 5, dtype=torch.int64),
                     "encoder_hidden_states_t5": TEXT, "text_embedding_mask_t5": lambda b: torch.ones(b, 5, dtype=torch.int64)}),
    "dit": ("DiTTransformer2DModel", dict(num_attention_heads=2, attention_head_dim=8, num_layers=1, in_channels=4, out_channels=8, sample_size=8),
            {"hidden_states": latents(4, 8, 8), "timestep": STEP, "class_labels": STEP}),
    "stable_audio": ("StableAudioDiTModel", dict(sample_size=8, in_channels=4, num_layers=1, attention_head_dim=8, num_attention_heads=2, num_key_value_attention_heads=2,
                     out_channels=4, cross_attention_dim=16, time_proj_dim=8, global_states_input_dim=8, cross_attention_input_dim=16),
                     {"hidden_states": latents(4, 8), "timestep": lambda b: torch.full((b,), 0.5), "encoder_hidden_states": TEXT, "global_hidden_states": latents(1, 8)}),
    "vae": ("AutoencoderKL", dict(block_out_channels=(8,), norm_num_groups=4), {"sample": latents(3, 8, 8)}),
    "transformer_2d": ("Transformer2DModel", CROSS | dict(in_channels=8, norm_num_groups=4), {"hidden_states": latents(8, 4, 4), "encoder_hidden_states": TEXT}),
    "prior": ("PriorTransformer", dict(num_attention_heads=2, attention_head_dim=8, num_layers=1, embedding_dim=16, num_embeddings=5, additional_embeddings=4),
              {"hidden_states": latents(16), "timestep": STEP, "proj_embedding": latents(16), "encoder_hidden_states": TEXT}),
    "uvit": ("UVit2DModel", dict(hidden_size=16, block_out_channels=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32, cond_embed_dim=16,
             encoder_hidden_size=16, sample_size=8, codebook_size=20, vocab_size=21, micro_cond_encode_dim=4, micro_cond_embed_dim=20, block_num_heads=2),
             {"input_ids": lambda b: torch.randint(0, 20, (b, 8, 8)), "encoder_hidden_states": TEXT, "pooled_text_emb": latents(16),
              "micro_conds": latents(5)}),
}


def family(name, settings, inputs):
    def make():
        case = lambda b: {key: of(b) for key, of in inputs.items()}
        return {"model": getattr(diffusers, name)(**settings), "cases": [case(2), case(3)], "axes": {key: {0: "batch"} for key in inputs},
                "fixed": {} if name == "UVit2DModel" else {"return_dict": False}}

    return make


if __name__ == "__main__":
    sys.exit(export.main({key: family(*value) for key, value in BLOCKS.items()}, __doc__))
