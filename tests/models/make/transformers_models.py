"""Text, speech and pictures: models of Hugging Face's transformers, small, with random weights: python3 transformers_models.py OUT [NAME...].
Needs torch and transformers. A name may end with .sdpa for that form of attention; eager otherwise."""
import sys

import torch
import transformers

import export

TINY = dict(vocab_size=99, hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64, max_position_embeddings=64,
            pad_token_id=0, bos_token_id=1, eos_token_id=2, use_cache=False)
GPT2 = dict(vocab_size=99, n_embd=32, n_layer=2, n_head=2, n_positions=64, n_ctx=64, bos_token_id=1, eos_token_id=2, use_cache=False)
SEQ2SEQ = dict(vocab_size=99, d_model=32, encoder_layers=2, decoder_layers=2, encoder_attention_heads=2, decoder_attention_heads=2,
               encoder_ffn_dim=64, decoder_ffn_dim=64, max_position_embeddings=64, pad_token_id=0, bos_token_id=1, eos_token_id=2,
               decoder_start_token_id=1, use_cache=False)
KV2 = TINY | dict(num_attention_heads=4, num_key_value_heads=2, head_dim=8)
MOE = dict(num_experts=4, num_local_experts=4, num_experts_per_tok=2, moe_intermediate_size=32, n_routed_experts=4)
MLA = TINY | dict(num_key_value_heads=2, kv_lora_rank=16, q_lora_rank=24, qk_rope_head_dim=8, qk_nope_head_dim=16, v_head_dim=12, head_dim=8,
                  first_k_dense_replace=2, n_group=1, topk_group=1, n_routed_experts=4, num_experts_per_tok=2, moe_intermediate_size=32)
PICTURE = dict(image_size=32, patch_size=8, num_channels=3, hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64)
SPEECH = dict(vocab_size=32, hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64, conv_dim=(16, 16, 16),
              conv_kernel=(10, 3, 3), conv_stride=(5, 2, 2), num_feat_extract_layers=3, num_conv_pos_embeddings=16,
              num_conv_pos_embedding_groups=2)

# name: (class, configuration, kind of inputs)
TEXT = {
    "bert_generation": ("BertGenerationEncoder", TINY),
    "bigbird": ("BigBirdModel", TINY | dict(attention_type="original_full")),
    "bigbird_sparse": ("BigBirdModel", TINY | dict(attention_type="block_sparse", block_size=4, num_random_blocks=1)),
    "canine": ("CanineModel", TINY | dict(num_hash_buckets=64, local_transformer_stride=16, upsampling_kernel_size=4, downsampling_rate=4)),
    "camembert": ("CamembertModel", TINY),
    "convbert": ("ConvBertModel", TINY | dict(embedding_size=32, conv_kernel_size=5)),
    "data2vec_text": ("Data2VecTextModel", TINY),
    "deberta": ("DebertaModel", TINY | dict(relative_attention=True, pos_att_type=["c2p", "p2c"], max_relative_positions=16, position_biased_input=False)),
    "electra": ("ElectraModel", TINY | dict(embedding_size=16)),
    "ernie": ("ErnieModel", TINY),
    "esm": ("EsmModel", TINY | dict(position_embedding_type="rotary", mask_token_id=5)),
    "flaubert": ("FlaubertModel", TINY | dict(emb_dim=32, n_layers=2, n_heads=2, n_words=99)),
    "fnet": ("FNetModel", TINY),
    "funnel": ("FunnelBaseModel", dict(vocab_size=99, d_model=32, n_head=2, d_head=16, d_inner=64, block_sizes=[1, 1], num_decoder_layers=1)),
    "layoutlm": ("LayoutLMModel", TINY),
    "lilt": ("LiltModel", TINY | dict(hidden_size=48, channel_shrink_ratio=4)),
    "longformer": ("LongformerModel", TINY | dict(attention_window=[4, 4])),
    "megatron_bert": ("MegatronBertModel", TINY),
    "mobilebert": ("MobileBertModel", TINY | dict(embedding_size=16, intra_bottleneck_size=32, true_hidden_size=32)),
    "mra": ("MraModel", TINY),
    "nystromformer": ("NystromformerModel", TINY | dict(num_landmarks=8, segment_means_seq_len=16)),
    "rembert": ("RemBertModel", TINY | dict(input_embedding_size=16)),
    "roberta_prelayernorm": ("RobertaPreLayerNormModel", TINY),
    "roc_bert": ("RoCBertModel", TINY | dict(pronunciation_vocab_size=9, shape_vocab_size=9, enable_pronunciation=False, enable_shape=False)),
    "roformer": ("RoFormerModel", TINY | dict(embedding_size=32)),
    "splinter": ("SplinterModel", TINY),
    "xlnet": ("XLNetModel", dict(vocab_size=99, d_model=32, n_layer=2, n_head=2, d_inner=64)),
    "xmod": ("XmodModel", TINY | dict(default_language="en", languages=["en"])),
    "yoso": ("YosoModel", TINY | dict(use_expectation=True)),
    "neobert_like_modern": ("ModernBertModel", TINY | dict(local_attention=4, global_attn_every_n_layers=2)),
    "eurobert": ("EuroBertModel", KV2),
    "nomic_bert": ("NomicBertModel", TINY),
    "jina_v3": ("JinaEmbeddingsV3Model", TINY),
}
DECODERS = {
    "apertus": ("ApertusModel", KV2), "arcee": ("ArceeModel", KV2), "bitnet": ("BitNetModel", KV2),
    "bloom": ("BloomModel", dict(vocab_size=99, hidden_size=32, n_layer=2, n_head=2, use_cache=False)),
    "codegen": ("CodeGenModel", GPT2 | dict(rotary_dim=8, n_head=4)),
    "cohere": ("CohereModel", KV2), "cohere2": ("Cohere2Model", KV2 | dict(sliding_window=4)),
    "dbrx": ("DbrxModel", dict(vocab_size=99, d_model=32, n_heads=4, n_layers=2, max_seq_len=64, attn_config=dict(kv_n_heads=2, rope_theta=1e4),
                               ffn_config=dict(ffn_hidden_size=32, moe_num_experts=4, moe_top_k=2), clip_qkv=None, use_cache=False)),
    "deepseek_v2": ("DeepseekV2Model", MLA), "deepseek_v3": ("DeepseekV3Model", MLA), "longcat": ("LongcatFlashModel", MLA),
    "diffllama": ("DiffLlamaModel", KV2), "ernie45": ("Ernie4_5Model", KV2),
    "falcon_h1": ("FalconH1Model", KV2 | dict(mamba_d_ssm=32, mamba_n_heads=4, mamba_d_head=8, mamba_d_state=8)),
    "falcon_alibi": ("FalconModel", TINY | dict(alibi=True, multi_query=True, new_decoder_architecture=False, parallel_attn=False)),
    "gemma3": ("Gemma3TextModel", KV2 | dict(sliding_window=4, query_pre_attn_scalar=8, layer_types=["sliding_attention", "full_attention"])),
    "dots1": ("Dots1Model", KV2 | MOE | dict(n_group=1, topk_group=1, first_k_dense_replace=1, n_shared_experts=1)),
    "ernie45_moe": ("Ernie4_5_MoeModel", KV2 | MOE | dict(moe_num_experts=4, moe_k=2, moe_layer_start_index=0)), "flex_olmo": ("FlexOlmoModel", KV2 | MOE),
    "glm": ("GlmModel", KV2), "glm4_moe": ("Glm4MoeModel", KV2 | MOE | dict(n_group=1, topk_group=1)),
    "gpt_bigcode": ("GPTBigCodeModel", GPT2), "gpt_neo": ("GPTNeoModel", dict(vocab_size=99, hidden_size=32, num_layers=2, num_heads=2,
                    max_position_embeddings=64, window_size=4, attention_types=[[["global", "local"], 1]], use_cache=False)),
    "gpt_neox_japanese": ("GPTNeoXJapaneseModel", TINY | dict(intermediate_multiple_size=2)),
    "granite": ("GraniteModel", KV2), "granite_moe": ("GraniteMoeModel", KV2 | MOE), "granite_hybrid": ("GraniteMoeHybridModel", KV2 | MOE | dict(
                    layer_types=["attention", "attention"])),
    "gpt_oss": ("GptOssModel", KV2 | MOE | dict(sliding_window=4, layer_types=["sliding_attention", "full_attention"])),
    "granite_shared": ("GraniteMoeSharedModel", KV2 | MOE | dict(shared_intermediate_size=64)), "hunyuan_moe": ("HunYuanMoEV1Model", KV2 | MOE | dict(moe_topk=2)),
    "helium": ("HeliumModel", KV2), "hunyuan": ("HunYuanDenseV1Model", KV2), "imagegpt": ("ImageGPTModel", GPT2),
    "jamba": ("JambaModel", KV2 | MOE | dict(attn_layer_period=1, attn_layer_offset=0, expert_layer_period=2, use_mamba_kernels=False)),
    "jetmoe": ("JetMoeModel", TINY | dict(num_key_value_heads=2, kv_channels=16, num_local_experts=4)),
    "lfm2_moe": ("Lfm2MoeModel", KV2 | MOE | dict(layer_types=["full_attention", "full_attention"], num_dense_layers=0)), "olmoe": ("OlmoeModel", KV2 | MOE),
    "lfm2": ("Lfm2Model", KV2 | dict(layer_types=["full_attention", "conv"])), "minicpm3": ("MiniCPM3Model", MLA), "minimax": ("MiniMaxModel", KV2 | MOE | dict(
                    layer_types=["full_attention", "linear_attention"], block_size=4)),
    "ministral": ("MinistralModel", KV2 | dict(sliding_window=4)),
    "mixtral": ("MixtralModel", KV2 | MOE), "mpt": ("MptModel", dict(vocab_size=99, d_model=32, n_heads=2, n_layers=2, max_seq_len=64, use_cache=False)),
    "nemotron": ("NemotronModel", KV2), "olmo": ("OlmoModel", KV2), "olmo2": ("Olmo2Model", KV2), "olmo3": ("Olmo3Model", KV2 | dict(sliding_window=4)),
    "openai_gpt": ("OpenAIGPTModel", GPT2), "persimmon": ("PersimmonModel", TINY), "phi3": ("Phi3Model", KV2 | dict(sliding_window=4)),
    "phimoe": ("PhimoeModel", KV2 | MOE), "qwen2_moe": ("Qwen2MoeModel", KV2 | MOE | dict(shared_expert_intermediate_size=32)),
    "qwen3_moe": ("Qwen3MoeModel", KV2 | MOE), "qwen3_next": ("Qwen3NextModel", KV2 | MOE | dict(shared_expert_intermediate_size=32,
                    layer_types=["full_attention", "full_attention"])),
    "recurrent_gemma": ("RecurrentGemmaModel", TINY | dict(num_key_value_heads=1, head_dim=16, lru_width=32, attention_window_size=8, block_types=("attention",))),
    "seed_oss": ("SeedOssModel", KV2), "starcoder2": ("Starcoder2Model", KV2 | dict(sliding_window=4)), "vaultgemma": ("VaultGemmaModel", KV2),
    "xglm": ("XGLMModel", dict(vocab_size=99, d_model=32, num_layers=2, attention_heads=2, ffn_dim=64, max_position_embeddings=64, use_cache=False)),
    "zamba2": ("Zamba2Model", TINY | dict(attention_hidden_size=64, attention_head_dim=32, mamba_d_state=8, mamba_headdim=8, n_mamba_heads=8, use_mamba_kernels=False,
                    num_mem_blocks=1, layers_block_type=["hybrid", "hybrid"], hybrid_layer_ids=[0, 1])),
}
SEQUENCES = {
    "bigbird_pegasus": ("BigBirdPegasusModel", SEQ2SEQ | dict(attention_type="original_full")),
    "blenderbot": ("BlenderbotModel", SEQ2SEQ), "blenderbot_small": ("BlenderbotSmallModel", SEQ2SEQ), "fsmt": ("FSMTModel", SEQ2SEQ | dict(
        src_vocab_size=99, tgt_vocab_size=99, langs=["a", "b"])),
    "led": ("LEDModel", SEQ2SEQ | dict(attention_window=4, max_encoder_position_embeddings=64, max_decoder_position_embeddings=64)),
    "longt5_global": ("LongT5Model", dict(vocab_size=99, d_model=32, d_kv=16, d_ff=64, num_layers=2, num_heads=2, local_radius=3, global_block_size=4,
                                          encoder_attention_type="transient-global", use_cache=False)),
    "m2m_100": ("M2M100Model", SEQ2SEQ), "marian": ("MarianModel", SEQ2SEQ), "mbart": ("MBartModel", SEQ2SEQ),
    "mvp": ("MvpModel", SEQ2SEQ), "nllb_moe": ("NllbMoeModel", SEQ2SEQ | dict(num_experts=4, encoder_sparse_step=2, decoder_sparse_step=2)),
    "pegasus_x": ("PegasusXModel", SEQ2SEQ | dict(num_global_tokens=4, block_size=4)), "plbart": ("PLBartModel", SEQ2SEQ),
    "prophetnet": ("ProphetNetModel", dict(vocab_size=99, hidden_size=32, num_encoder_layers=2, num_decoder_layers=2, num_encoder_attention_heads=2,
                   num_decoder_attention_heads=2, encoder_ffn_dim=64, decoder_ffn_dim=64, max_position_embeddings=64, ngram=2, use_cache=False)),
    "switch": ("SwitchTransformersModel", dict(vocab_size=99, d_model=32, d_kv=16, d_ff=64, num_layers=2, num_decoder_layers=2, num_heads=2, num_experts=4,
                use_cache=False)),
    "t5gemma": ("T5GemmaModel", dict(encoder=KV2 | dict(sliding_window=4), decoder=KV2 | dict(sliding_window=4, cross_attention_hidden_size=32))),
    "umt5": ("UMT5Model", dict(vocab_size=99, d_model=32, d_kv=16, d_ff=64, num_layers=2, num_heads=2, use_cache=False)),
    "nougat_like_mt5": ("MT5Model", dict(vocab_size=99, d_model=32, d_kv=16, d_ff=64, num_layers=2, num_heads=2, use_cache=False)),
}
PICTURES = {
    "cvt": ("CvtModel", dict(embed_dim=[16, 32], depth=[1, 1], num_heads=[1, 2], patch_sizes=[7, 3], patch_stride=[4, 2], patch_padding=[2, 1],
                             stride_q=[1, 1], stride_kv=[2, 2], kernel_qkv=[3, 3], padding_q=[1, 1], padding_kv=[1, 1], mlp_ratio=[2.0, 2.0],
                             attention_drop_rate=[0.0, 0.0], drop_rate=[0.0, 0.0], drop_path_rate=[0.0, 0.0], qkv_bias=[True, True],
                             cls_token=[False, True], qkv_projection_method=["dw_bn", "dw_bn"])),
    "data2vec_vision": ("Data2VecVisionModel", PICTURE | dict(use_relative_position_bias=True)),
    "dinov2_registers": ("Dinov2WithRegistersModel", PICTURE), "dinov3_vit": ("DINOv3ViTModel", PICTURE | dict(num_register_tokens=2)),
    "dpt_hybrid_like_vitmae": ("ViTMAEModel", PICTURE | dict(mask_ratio=0.0)),
    "efficientnet_free_poolformer": ("PoolFormerModel", dict(depths=[1, 1, 1, 1], hidden_sizes=[8, 16, 16, 16])),
    "focalnet": ("FocalNetModel", dict(image_size=32, patch_size=4, embed_dim=16, depths=[1, 1], focal_levels=[2, 2], focal_windows=[3, 3])),
    "hgnet_free_hiera": ("HieraModel", dict(image_size=[32, 32], patch_size=[7, 7], patch_stride=[4, 4], patch_padding=[3, 3], embed_dim=16, depths=[1, 1],
                         num_heads=[1, 2], query_stride=[2, 2], masked_unit_size=[4, 4], num_query_pool=1)),
    "internvl_vision": ("InternVLVisionModel", PICTURE | dict(image_size=[32, 32], patch_size=[8, 8])),
    "levit": ("LevitModel", dict(image_size=64, hidden_sizes=[16, 32, 32], num_attention_heads=[2, 2, 2], depths=[1, 1, 1], key_dim=[8, 8, 8])),
    "maskformer_swin": ("MaskFormerSwinModel", dict(image_size=32, patch_size=2, embed_dim=16, depths=[2, 2], num_heads=[2, 2], window_size=4)),
    "mobilevit": ("MobileViTModel", dict(image_size=32, hidden_sizes=[16, 24, 32], neck_hidden_sizes=[8, 8, 16, 16, 24, 32, 64], num_attention_heads=2)),
    "mobilevitv2": ("MobileViTV2Model", dict(image_size=64, width_multiplier=0.25)),
    "pvt": ("PvtModel", dict(image_size=64, hidden_sizes=[8, 16, 16, 16], depths=[1, 1, 1, 1], num_attention_heads=[1, 2, 2, 2])),
    "pvt_v2": ("PvtV2Model", dict(image_size=64, hidden_sizes=[8, 16, 16, 16], depths=[1, 1, 1, 1], num_attention_heads=[1, 2, 2, 2])),
    "segformer": ("SegformerModel", dict(hidden_sizes=[8, 16, 16, 16], depths=[1, 1, 1, 1], num_attention_heads=[1, 2, 2, 2])),
    "siglip_vision": ("SiglipVisionModel", PICTURE), "swiftformer": ("SwiftFormerModel", dict(image_size=32, depths=[1, 1, 1, 1], embed_dims=[8, 16, 16, 16])),
    "swin": ("SwinModel", dict(image_size=32, patch_size=2, embed_dim=16, depths=[2, 2], num_heads=[2, 2], window_size=4)),
    "swin2sr": ("Swin2SRModel", dict(image_size=16, patch_size=1, embed_dim=16, depths=[2], num_heads=[2], window_size=4, num_channels=3)),
    "vit_msn": ("ViTMSNModel", PICTURE), "vivit_free_vitpose": ("VitPoseBackbone", PICTURE | dict(image_size=[32, 32], patch_size=[8, 8], num_experts=1)),
    "yolos_free_vitdet": ("VitDetModel", PICTURE | dict(image_size=64, window_size=3, window_block_indices=[0], use_relative_position_embeddings=True)),
    "sam_vision": ("SamVisionModel", PICTURE | dict(image_size=64, output_channels=16, window_size=3, global_attn_indexes=[1], mlp_dim=64)),
    "clipseg_vision": ("CLIPSegVisionModel", PICTURE), "aria_free_idefics3": ("Idefics3VisionTransformer", PICTURE),
    "pixtral": ("PixtralVisionModel", PICTURE | dict(head_dim=16)), "mllama_vision_free_cvt13": ("CLIPVisionModel", PICTURE),
    "timesformer": ("TimesformerModel", PICTURE | dict(num_frames=2)), "videomae": ("VideoMAEModel", PICTURE | dict(num_frames=4)),
    "vivit": ("VivitModel", PICTURE | dict(num_frames=4, tubelet_size=[2, 8, 8])),
    "conditional_detr": ("ConditionalDetrModel", None), "table_transformer": ("TableTransformerModel", None), "dab_detr": ("DabDetrModel", None),
}
SPEECHES = {
    "data2vec_audio": ("Data2VecAudioModel", SPEECH), "hubert": ("HubertModel", SPEECH), "sew": ("SEWModel", SPEECH | dict(squeeze_factor=2)),
    "unispeech": ("UniSpeechModel", SPEECH), "unispeech_sat": ("UniSpeechSatModel", SPEECH), "wavlm": ("WavLMModel", SPEECH | dict(num_buckets=16, max_bucket_distance=32)),
    "wav2vec2_conformer": ("Wav2Vec2ConformerModel", SPEECH | dict(position_embeddings_type="relative")),
    "wav2vec2_conformer_rotary": ("Wav2Vec2ConformerModel", SPEECH | dict(position_embeddings_type="rotary")),
}
FEATURES = {  # (batch, frames, features)
    "wav2vec2_bert": ("Wav2Vec2BertModel", SPEECH | dict(feature_projection_input_dim=16, position_embeddings_type="relative_key")),
    "speech_to_text": ("Speech2TextModel", SEQ2SEQ | dict(input_feat_per_channel=16, conv_channels=16)),
    "ast": ("ASTModel", PICTURE | dict(num_mel_bins=16, max_length=24, frequency_stride=8, time_stride=8)),
    "parakeet": ("ParakeetEncoder", dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64, num_mel_bins=16,
                 subsampling_conv_channels=8, conv_kernel_size=5)),
    "moonshine": ("MoonshineEncoder", None), "fastspeech2_conformer": ("FastSpeech2ConformerModel", None),
    "patchtst": ("PatchTSTModel", dict(num_input_channels=16, context_length=24, patch_length=4, patch_stride=4, d_model=32, num_hidden_layers=2,
                 num_attention_heads=2, ffn_dim=64, mask_input=False, do_mask_input=False)),
}
# Softmaxes that are no softmax(q k) v of their own: convolution kernels, routers, sums of positions, one that meets two values.
OTHERS = {"ConvBertModel": 2, "NllbMoeModel": 2, "SwiftFormerModel": 4, "JetMoeModel": 4, "DiffLlamaModel": 2, "LiltModel": 2}


def ids(batch, length, limit=90):
    return torch.randint(3, limit, (batch, length))


def mask(batch, length):
    kept = torch.ones(batch, length, dtype=torch.int64)
    kept[-1, length - 2:] = 0
    return kept


def text(both=True, length=8):
    case = lambda b, s: {"input_ids": ids(b, s)} | ({"attention_mask": mask(b, s)} if both else {})
    axes = {0: "batch", 1: "sequence"}
    return [case(2, length), case(3, length + 4)], {"input_ids": axes, "attention_mask": axes} if both else {"input_ids": axes}


def sequences():
    case = lambda b, s, t: {"input_ids": ids(b, s), "attention_mask": mask(b, s), "decoder_input_ids": ids(b, t)}
    axes = {0: "batch", 1: "sequence"}
    return [case(2, 8, 5), case(3, 12, 7)], {"input_ids": axes, "attention_mask": axes, "decoder_input_ids": {0: "batch", 1: "target"}}


def pictures(config):
    size = getattr(config, "image_size", 64)
    size = size if isinstance(size, int) else size[0]
    frames = getattr(config, "num_frames", None)
    shape = ([frames] if frames else []) + [3, size, size]
    return [{"pixel_values": torch.randn(b, *shape)} for b in (2, 3)], {"pixel_values": {0: "batch"}}


def family(kind, name, wanted, settings):
    def make():
        transformers.logging.set_verbosity_error()
        model_class = getattr(transformers, name, None) or find(name)
        config = (model_class.config_class or find(name.replace("Encoder", "") + "Config"))(**settings)
        config._attn_implementation = wanted
        config.return_dict = True
        model = model_class._from_config(config, attn_implementation=wanted) if hasattr(model_class, "_from_config") else model_class(config)
        if "MOE" in name.upper() or getattr(config, "num_experts_per_tok", None):
            try:  # the default of transformers 5 is an op that no exporter writes; older ones have loops
                model.set_experts_implementation("batched_mm")
            except (AttributeError, ValueError):
                pass
        if kind == "text" or kind == "decoder":
            length = 32 if name in ("CanineModel", "BigBirdModel", "MraModel") else 16 if name == "NystromformerModel" else 8
            cases, axes = text(name != "FNetModel", length)
        elif kind == "sequences":
            cases, axes = sequences()
        elif kind == "pictures":
            cases, axes = pictures(config)
        elif kind == "speech":
            cases, axes = [{"input_values": torch.randn(b, s)} for b, s in ((2, 800), (3, 1000))], {"input_values": {0: "batch", 1: "samples"}}
        else:
            feature = {"ASTModel": "input_values", "PatchTSTModel": "past_values"}.get(name, "input_features")
            cases = [{feature: torch.randn(b, 24, 16)} for b in (2, 3)]
            if name == "Speech2TextModel":
                cases = [case | {"decoder_input_ids": ids(case[feature].shape[0], 5)} for case in cases]
            axes = {n: {0: "batch"} for n in cases[0]}
        fixed = {"use_cache": False} if kind in ("decoder", "sequences") and getattr(config, "use_cache", None) is not None else {}
        return {"model": model, "cases": cases, "axes": axes, "fixed": fixed,
                "others": OTHERS.get(name, 0)}

    return make


def find(name):
    import importlib, pkgutil
    import transformers.models as models
    for module in pkgutil.iter_modules(models.__path__):
        for kind in ("modeling", "configuration"):
            try:
                found = importlib.import_module(f"transformers.models.{module.name}.{kind}_{module.name}")
            except Exception:
                continue
            if hasattr(found, name):
                return getattr(found, name)
    raise ValueError(f"transformers has no {name}")


if __name__ == "__main__":
    all_families = {}
    for kind, table in (("text", TEXT), ("decoder", DECODERS), ("sequences", SEQUENCES), ("pictures", PICTURES), ("speech", SPEECHES), ("features", FEATURES)):
        for key, (name, settings) in table.items():
            for wanted in ("eager", "sdpa"):
                all_families[key + ("" if wanted == "eager" else ".sdpa")] = family(kind, name, wanted, settings or {})
    sys.exit(export.main(all_families, __doc__))
