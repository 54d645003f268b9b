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
PART = lambda b: torch.full((b,), 0.5)


def fixed(*shape):
    """Positions, which have no batch."""
    values = torch.randint(0, 4, shape).float()
    return lambda b: values


IMAGE = {"hidden_states": latents(4, 8, 8), "encoder_hidden_states": TEXT, "timestep": STEP}
FILM = {"hidden_states": latents(4, 2, 4, 4), "encoder_hidden_states": TEXT, "timestep": STEP}
TOKENS = {"hidden_states": latents(6, 4), "encoder_hidden_states": TEXT, "timestep": PART, "img_ids": fixed(6, 3), "txt_ids": fixed(5, 3)}
FLUX = dict(patch_size=1, in_channels=4, num_layers=1, num_single_layers=1, attention_head_dim=8, num_attention_heads=2, joint_attention_dim=16, axes_dims_rope=(4, 2, 2))
SIZES = {name: (lambda b: torch.tensor([[8.0, 8.0]] * b)) for name in ("original_size", "target_size", "crop_coords")}
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
    "sd3": ("SD3Transformer2DModel", dict(sample_size=8, in_channels=4, out_channels=4, num_layers=2, attention_head_dim=8, num_attention_heads=2,
            joint_attention_dim=16,
            caption_projection_dim=16, pooled_projection_dim=16, pos_embed_max_size=8, dual_attention_layers=(0,), qk_norm="rms_norm"),
            IMAGE | {"pooled_projections": latents(16)}),
    "flux": ("FluxTransformer2DModel", FLUX | dict(pooled_projection_dim=16), TOKENS | {"pooled_projections": latents(16)}),
    "bria": ("BriaTransformer2DModel", FLUX, TOKENS), "longcat_image": ("LongCatImageTransformer2DModel", FLUX, TOKENS),
    "flux2": ("Flux2Transformer2DModel", FLUX | dict(axes_dims_rope=(2, 2, 2, 2), guidance_embeds=False), TOKENS | {"img_ids": fixed(6, 4),
            "txt_ids": fixed(5, 4)}),
    "auraflow": ("AuraFlowTransformer2DModel", dict(sample_size=8, num_mmdit_layers=1, num_single_dit_layers=1, attention_head_dim=8,
            num_attention_heads=2, joint_attention_dim=16,
                 caption_projection_dim=16, pos_embed_max_size=16), IMAGE),
    "allegro": ("AllegroTransformer3DModel", dict(num_attention_heads=2, attention_head_dim=24, num_layers=1, cross_attention_dim=48,
            sample_height=4, sample_width=4, sample_frames=2, caption_channels=16), FILM),
    "mochi": ("MochiTransformer3DModel", dict(num_attention_heads=2, attention_head_dim=8, num_layers=2, pooled_projection_dim=16, in_channels=4,
            text_embed_dim=16, time_embed_dim=8, max_sequence_length=5),
              FILM | {"encoder_attention_mask": lambda b: torch.ones(b, 5, dtype=torch.bool)}),
    "wan": ("WanTransformer3DModel", dict(num_attention_heads=2, attention_head_dim=12, in_channels=4, out_channels=4, text_dim=16, freq_dim=16,
            ffn_dim=32, num_layers=2, rope_max_seq_len=16), FILM),
    "cogview4": ("CogView4Transformer2DModel", dict(in_channels=4, out_channels=4, num_layers=2, attention_head_dim=8, num_attention_heads=2,
            text_embed_dim=16, time_embed_dim=8, condition_dim=4,
                 pos_embed_max_size=8, sample_size=8, rope_axes_dim=(8, 8)), IMAGE | SIZES),
    "cogview3": ("CogView3PlusTransformer2DModel", dict(in_channels=4, out_channels=4, num_layers=2, attention_head_dim=8, num_attention_heads=2,
            text_embed_dim=16, time_embed_dim=8, condition_dim=4,
                 pos_embed_max_size=8, sample_size=8), IMAGE | SIZES),
    "kandinsky5": ("Kandinsky5Transformer3DModel", dict(in_text_dim=16, in_text_dim2=16, time_dim=16, model_dim=32, ff_dim=32, num_text_blocks=1,
            num_visual_blocks=1, axes_dims=(4, 2, 2)),
                   {"hidden_states": latents(2, 4, 4, 4), "encoder_hidden_states": TEXT, "timestep": STEP, "pooled_projections": latents(16)},
                   dict(visual_rope_pos=[torch.arange(2), torch.arange(2), torch.arange(2)], text_rope_pos=torch.arange(5))),
    "prx": ("PRXTransformer2DModel", dict(in_channels=4, context_in_dim=16, hidden_size=32, num_heads=2, depth=2, axes_dim=[8, 8]), IMAGE),
    "cosmos": ("CosmosTransformer3DModel", dict(in_channels=4, out_channels=4, num_attention_heads=2, attention_head_dim=16, num_layers=2,
            text_embed_dim=16, adaln_lora_dim=4, max_size=(4, 8, 8),
               extra_pos_embed_type=None, concat_padding_mask=False), FILM),
    "sana_video": ("SanaVideoTransformer3DModel", dict(in_channels=4, out_channels=4, num_attention_heads=2, attention_head_dim=12, num_layers=1,
            num_cross_attention_heads=2, cross_attention_head_dim=12,
                   cross_attention_dim=24, caption_channels=16, sample_size=4), FILM),
    "ace_step": ("AceStepTransformer1DModel", dict(hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
            num_key_value_heads=2, head_dim=8, in_channels=12,
                 audio_acoustic_hidden_dim=4, sliding_window=4), {"hidden_states": latents(8, 4), "timestep": PART, "timestep_r": PART,
                 "encoder_hidden_states": latents(5, 32), "context_latents": latents(8, 8)}),
    "stable_audio3": ("StableAudio3DiTModel", dict(io_channels=4, embed_dim=32, depth=2, num_heads=2, cond_token_dim=16, global_cond_dim=16,
            local_add_cond_dim=5, timestep_features_dim=16, num_memory_tokens=3),
                      {"hidden_states": latents(4, 8), "timestep": PART, "encoder_hidden_states": TEXT, "global_hidden_states": latents(16)}),
    "unet_video": ("UNetSpatioTemporalConditionModel", dict(sample_size=8, block_out_channels=(32, 32), layers_per_block=1, cross_attention_dim=16,
            num_attention_heads=2, num_frames=2, addition_time_embed_dim=8,
                   projection_class_embeddings_input_dim=24, down_block_types=("CrossAttnDownBlockSpatioTemporal", "DownBlockSpatioTemporal"),
                   up_block_types=("UpBlockSpatioTemporal", "CrossAttnUpBlockSpatioTemporal")),
                   {"sample": latents(2, 8, 8, 8), "timestep": PART, "encoder_hidden_states": latents(1, 16), "added_time_ids": latents(3)}),
    "unet_3d": ("UNet3DConditionModel", dict(sample_size=8, block_out_channels=(32, 32), layers_per_block=1, cross_attention_dim=16,
            attention_head_dim=16, down_block_types=("CrossAttnDownBlock3D", "DownBlock3D"),
                up_block_types=("UpBlock3D", "CrossAttnUpBlock3D")), {"sample": latents(4, 2, 8, 8), "timestep": STEP,
                "encoder_hidden_states": TEXT}),
    "cascade": ("StableCascadeUNet", dict(in_channels=4, out_channels=4, timestep_ratio_embedding_dim=16, conditioning_dim=16,
            block_out_channels=(16, 16), num_attention_heads=(2, 2), down_num_layers_per_block=(1, 1),
                up_num_layers_per_block=(1, 1), clip_text_pooled_in_channels=16, clip_seq=2), {"sample": latents(4, 8, 8), "timestep_ratio": PART,
                "clip_text_pooled": latents(1, 16)}),
}


def family(name, settings, inputs, extra=None):
    def make():
        case = lambda b: {key: of(b) for key, of in inputs.items()}
        axes = {key: {} if key in ("img_ids", "txt_ids") else {0: "batch"} for key in inputs}
        return {"model": getattr(diffusers, name)(**settings), "cases": [case(2), case(3)], "axes": axes, "fixed": ({} if name == "UVit2DModel" else {"return_dict": False}) | (extra or {})}

    return make


if __name__ == "__main__":
    sys.exit(export.main({key: family(*value) for key, value in BLOCKS.items()}, __doc__))
