"""More models of Hugging Face's transformers, each the class's own configuration made small: python3 transformers_more.py OUT [NAME...].
Needs torch and transformers. A name may end with .sdpa for that form of attention; eager otherwise."""
import sys

import torch
import transformers

import export
import transformers_models as base

# What a configuration's attributes become, where it has them: the class decides everything else.
SMALL = base.TINY | dict(
    num_key_value_heads=2, head_dim=16, d_model=32, d_ff=64, d_kv=16, dim=32, hidden_dim=64, embed_dim=32, ffn_dim=64, mlp_dim=64, depth=2,
    num_layers=2, n_layer=2, n_layers=2, num_encoder_layers=2, num_decoder_layers=2, encoder_layers=2, decoder_layers=2, num_heads=2, n_head=2,
    n_heads=2, n_embd=32, encoder_attention_heads=2, decoder_attention_heads=2, encoder_ffn_dim=64, decoder_ffn_dim=64, encoder_hidden_size=32,
    decoder_hidden_size=32, image_size=32, patch_size=8, num_mel_bins=16, sliding_window=4, max_source_positions=64, max_target_positions=64,
    num_experts=4, num_local_experts=4, n_routed_experts=4, num_experts_per_tok=2, n_shared_experts=1, moe_intermediate_size=32, n_group=1,
    topk_group=1, first_k_dense_replace=1, shared_expert_intermediate_size=32, kv_lora_rank=16, q_lora_rank=24, qk_rope_head_dim=8,
    qk_nope_head_dim=16, v_head_dim=12, linear_num_key_heads=2, linear_num_value_heads=2, linear_key_head_dim=8, linear_value_head_dim=8)
MROPE = {"rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [2, 3, 3]}}
MLA = {"num_key_value_heads": 2, "head_dim": 8}


def pictures(*shape, name="pixel_values", **masks):
    """Numbers of one shape for each sample, and masks that hide nothing."""
    case = lambda b: {name: torch.randn(b, *shape)} | {mask: torch.ones(b, *of, dtype=torch.bool) for mask, of in masks.items()}
    return lambda: ([case(2), case(3)], {key: {0: "batch"} for key in case(1)})


CONFIGURATIONS = {"MimiTransformerModel": "MimiConfig"}  # of classes that do not name theirs
INDEX = MLA | {"index_n_heads": 2, "index_head_dim": 16}
LINEARS_ASIDE = {"layer_types": ["full_attention", "full_attention"], "num_hidden_layers": 2}  # the other kind has an op that no exporter knows
RELATIVE_SAM = dict(output_channels=16, window_size=3, global_attn_indexes=[1])
FRAMES = dict(num_mel_bins=16, max_source_positions=12)  # 24 frames
CONFORMER = dict(feature_projection_input_dim=16, speech_encoder_layers=2, speech_encoder_attention_heads=2, speech_encoder_intermediate_size=64,
                 conv_depthwise_kernel_size=5)

# name: (class, what its configuration has beside SMALL, inputs if they are not the table's)
TEXT = {
    "gte": ("GteModel", {}), "esmc": ("EsmcModel", {}), "ultrabert": ("UltrabertModel", {}), "tipsv2_text": ("Tipsv2TextModel", {}),
    "privacy_filter": ("OpenAIPrivacyFilterModel", {}), "flava_text": ("FlavaTextModel", {}), "owlvit_text": ("OwlViTTextModel", {}),
    "clap_text": ("ClapTextModel", {}), "align_text": ("AlignTextModel", {}), "bridgetower_text": ("BridgeTowerTextModel", {}),
    "exaone_moe": ("ExaoneMoeModel", {}), "glm4_moe_lite": ("Glm4MoeLiteModel", MLA), "youtu": ("YoutuModel", MLA), "axk1": ("AXK1Model", MLA),
    "deepseek_v32": ("DeepseekV32Model", INDEX), "glm_moe_dsa": ("GlmMoeDsaModel", INDEX), "mistral4": ("Mistral4Model", MLA),
    "deepseek_v4": ("DeepseekV4Model", dict(index_n_heads=2, index_head_dim=16)), "minimax_m2": ("MiniMaxM2Model", {}),
    "minimax_m3_text": ("MiniMaxM3VLTextModel", {}), "laguna": ("LagunaModel", {}), "hy_v3": ("HYV3Model", {}),
    "olmo_hybrid": ("OlmoHybridModel", LINEARS_ASIDE), "qwen3_5_text": ("Qwen3_5TextModel", LINEARS_ASIDE),
    "qwen3_5_moe_text": ("Qwen3_5MoeTextModel", LINEARS_ASIDE), "ministral3": ("Ministral3Model", {}), "granite_swa": ("GraniteSWAModel", {}),
    "granite_moe_shared": ("GraniteMoeSharedModel", {}), "aria_text": ("AriaTextModel", {}), "hrm_text": ("HrmTextModel", {}),
    "qwen2_vl_text": ("Qwen2VLTextModel", MROPE), "qwen2_5_vl_text": ("Qwen2_5_VLTextModel", MROPE), "qwen3_vl_text": ("Qwen3VLTextModel", MROPE),
    "glm4v_text": ("Glm4vTextModel", MROPE), "glm_ocr_text": ("GlmOcrTextModel", MROPE), "molmo2_text": ("Molmo2TextModel", {}),
    "cohere2_moe": ("Cohere2MoeModel", {}), "inkling_text": ("InklingTextModel", {}), "mellum": ("MellumModel", {}), "lfm3": ("Lfm3Model", {}),
    "gemma4_text": ("Gemma4TextModel", dict(vocab_size_per_layer_input=99, hidden_size_per_layer_input=8)), "git": ("GitModel", {}),
    "muse_glimmer_text": ("MuseGlimmerTextModel", {}), "nemotron_h": ("NemotronHModel", {}), "zaya": ("ZayaModel", {"num_experts_per_tok": 1}),
    "bark_semantic": ("BarkSemanticModel", {}), "moshi": ("MoshiModel", {}), "mllama_text": ("MllamaTextModel", {"cross_attention_layers": []}),
    "kosmos2_text": ("Kosmos2TextModel", {"layers": 2, "attention_heads": 2}), "aimv2_text": ("Aimv2TextModel", {}),
    "seamless_text": ("SeamlessM4TEncoder", {}), "dia_encoder": ("DiaEncoder", {}),
    "speecht5_text": ("SpeechT5EncoderWithTextPrenet", {}, lambda: renamed(base.text(), "input_ids", "input_values")),
    "layoutlmv3": ("LayoutLMv3Model", dict(visual_embed=False, coordinate_size=6, shape_size=4, max_2d_position_embeddings=64, rel_2d_pos_bins=8,
                                           rel_pos_bins=8), lambda: boxes(torch.int64)),
    "udop": ("UdopModel", dict(max_2d_position_embeddings=64), lambda: with_targets(boxes(torch.float32))),
    "visual_bert": ("VisualBertModel", dict(visual_embedding_dim=16), lambda: beside_text(visual_embeds=(5, 16))),
    "lxmert": ("LxmertModel", dict(l_layers=1, x_layers=1, r_layers=1, visual_feat_dim=16), lambda: beside_text(visual_feats=(5, 16), visual_pos=(5, 4))),
    "chronos_like_t5": ("T5Model", {}, base.sequences), "pegasus": ("PegasusModel", {}, base.sequences),
}
PICTURES = {
    "pixio": ("PixioModel", {}), "radio": ("RadioModel", {"max_img_size": 64}), "sam3_vit": ("Sam3ViTModel", {}), "sapiens2": ("Sapiens2Model", {}),
    "tipsv2_vision": ("Tipsv2VisionModel", {}), "yolos": ("YolosModel", dict(image_size=[32, 32])), "dpt": ("DPTModel", {}),
    "owlv2_vision": ("Owlv2VisionModel", {}), "sam_hq_vision": ("SamHQVisionModel", RELATIVE_SAM), "got_ocr_vision": ("GotOcr2VisionEncoder", RELATIVE_SAM),
    "flava_image": ("FlavaImageModel", {}), "janus_vision": ("JanusVisionModel", {}), "lw_detr_vit": ("LwDetrViTBackbone", dict(image_size=64,
                    window_block_indices=[0], num_windows=4), pictures(3, 64, 64)),
    "smolvlm_vision": ("SmolVLMVisionTransformer", {}, pictures(3, 32, 32, patch_attention_mask=(4, 4))),
    "idefics2_vision": ("Idefics2VisionTransformer", {}, pictures(3, 32, 32, patch_attention_mask=(4, 4))),
    "phi4_vision": ("Phi4MultimodalVisionModel", {}, pictures(3, 32, 32, patch_attention_mask=(4, 4))),
    "mgp_str": ("MgpstrModel", dict(image_size=[32, 64]), pictures(3, 32, 64)),
    "donut_swin": ("DonutSwinModel", dict(image_size=32, patch_size=2, embed_dim=16, depths=[2, 2], num_heads=[2, 2], window_size=4)),
    "swinv2": ("Swinv2Model", dict(image_size=32, patch_size=2, embed_dim=16, depths=[2, 2], num_heads=[2, 2], window_size=4)),
    "videoprism": ("VideoPrismVisionModel", dict(num_frames=4, tubelet_size=[1, 8, 8], num_spatial_layers=1, num_temporal_layers=1),
                   pictures(4, 3, 32, 32, name="pixel_values_videos")),
    "vjepa2": ("VJEPA2Model", dict(crop_size=32, frames_per_clip=4, pred_hidden_size=32, pred_num_attention_heads=2, pred_num_hidden_layers=1,
                                   pred_num_mask_tokens=2), pictures(4, 3, 32, 32, name="pixel_values_videos")),
    "perceiver": ("PerceiverModel", dict(num_latents=6, d_latents=32, d_model=16, num_blocks=1, num_self_attends_per_block=2, num_self_attention_heads=2,
                                         num_cross_attention_heads=2), pictures(10, 16, name="inputs")),
}
SOUNDS = {
    "audioflamingo3": ("AudioFlamingo3Encoder", FRAMES, pictures(16, 24, name="input_features", input_features_mask=(24,))),
    "qwen2_audio": ("Qwen2AudioEncoder", FRAMES, pictures(16, 24, name="input_features")), "voxtral": ("VoxtralEncoder", FRAMES, pictures(16, 24, name="input_features")),
    "lasr": ("LasrEncoder", dict(subsampling_conv_channels=8, conv_kernel_size=5), pictures(24, 16, name="input_features")),
    "granite_speech5": ("GraniteSpeech5Encoder", dict(context_size=8, head_dim=16), pictures(24, 64, name="input_features")),
    "phi4_audio": ("Phi4MultimodalAudioModel", dict(input_size=16, num_blocks=2, nemo_conv_channels=8, depthwise_separable_out_channel=32,
                   ext_pw_out_channel=32), pictures(24, 16, name="hidden_states", mask=(24,))),
    "mimi": ("MimiTransformerModel", {}, pictures(12, 32, name="hidden_states")),
    "seamless_speech": ("SeamlessM4TSpeechEncoder", CONFORMER | dict(position_embeddings_type="relative"), pictures(24, 16, name="input_features")),
    "seamless_v2_speech": ("SeamlessM4Tv2SpeechEncoder", CONFORMER, pictures(24, 16, name="input_features")),
    "clap_audio": ("ClapAudioModel", dict(spec_size=64, depths=[1, 1], num_attention_heads=[2, 2], window_size=4, patch_embeds_hidden_size=16,
                   patch_size=4, patch_stride=[4, 4]), pictures(1, 64, 16, name="input_features")),
}


def boxes(dtype):
    def case(b, s):
        corner = torch.randint(0, 30, (b, s, 2))
        box = torch.cat([corner, corner + 20], -1)
        return {"input_ids": base.ids(b, s), "bbox": box if dtype == torch.int64 else box / 50, "attention_mask": base.mask(b, s)}

    axes = {0: "batch", 1: "sequence"}
    return [case(2, 8), case(3, 12)], {"input_ids": axes, "bbox": axes, "attention_mask": axes}


def with_targets(made):
    cases, axes = made
    return [case | {"decoder_input_ids": base.ids(len(case["bbox"]), 5)} for case in cases], axes | {"decoder_input_ids": {0: "batch"}}


def beside_text(**shapes):
    cases, axes = base.text()
    more = lambda b: {name: torch.rand(b, *shape) for name, shape in shapes.items()}
    return [case | more(len(case["input_ids"])) for case in cases], axes | {name: {0: "batch"} for name in shapes}


def renamed(made, old, new):
    cases, axes = made
    swap = lambda values: {new if key == old else key: value for key, value in values.items()}
    return [swap(case) for case in cases], swap(axes)

# Softmaxes that are no softmax(q k) v: routers of experts, compressors of keys (DeepSeek V4); cores behind outputs that are not taken (LXMERT, V-JEPA 2).
OTHERS = {"OpenAIPrivacyFilterModel": 2, "DeepseekV4Model": 6, "AriaTextModel": 2, "MellumModel": 2, "Mistral4Model": 1, "ZayaModel": 2, "Cohere2MoeModel": 2,
          "LxmertModel": 2, "VJEPA2Model": 1}


def small(config_class, settings):
    """The configuration with SMALL's values where the class has these attributes, then the family's own."""
    has = config_class().to_dict()
    values = {key: value for key, value in SMALL.items() if key in has and not isinstance(has[key], (dict, list, tuple))}
    if isinstance(has.get("layer_types"), list):  # one layer of each kind, two at least
        kinds = list(dict.fromkeys(has["layer_types"]))
        values["layer_types"] = (kinds * 2)[: max(2, len(kinds))]
        values |= {key: len(values["layer_types"]) for key in ("num_hidden_layers", "num_layers") if key in values}
    return config_class(**(values | settings))


def family(name, settings, inputs, wanted):
    def make():
        transformers.logging.set_verbosity_error()
        model_class = getattr(transformers, name, None) or base.find(name)
        config = small(getattr(model_class, "config_class", None) or base.find(CONFIGURATIONS[name]), settings)
        config.return_dict = True
        config._experts_implementation = "batched_mm"  # the default has an op that no exporter knows
        config._attn_implementation = wanted
        model = model_class._from_config(config, attn_implementation=wanted) if hasattr(model_class, "_from_config") else model_class(config)
        cases, axes = inputs()
        fixed = {"use_cache": False} if getattr(config, "use_cache", None) is not None else {}
        return {"model": model, "cases": cases, "axes": axes, "fixed": fixed, "others": OTHERS.get(name, 0)}

    return make


if __name__ == "__main__":
    all_families = {}
    for table, usual in ((TEXT, base.text), (PICTURES, pictures(3, 32, 32)), (SOUNDS, None)):
        for key, (name, settings, *inputs) in table.items():
            for wanted in ("eager", "sdpa"):
                all_families[key + ("" if wanted == "eager" else ".sdpa")] = family(name, settings, inputs[0] if inputs else usual, wanted)
    sys.exit(export.main(all_families, __doc__))
