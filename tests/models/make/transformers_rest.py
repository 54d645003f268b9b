"""Models of Hugging Face's transformers 5.24 that the two other scripts do not have: python3 transformers_rest.py OUT [NAME...].
Needs torch and transformers. A name may end with .sdpa for that form of attention; eager otherwise."""
import sys

import torch

import export
import transformers_models as base
import transformers_more as more
from transformers_more import FRAMES, MROPE, pictures


def one(**make):
    """Inputs that functions of the batch make; the batch alone is dynamic."""
    case = lambda b: {name: f(b) for name, f in make.items()}
    return lambda: ([case(2), case(3)], {name: {0: "batch"} for name in make})


def normal(*shape):
    return lambda b: torch.randn(b, *shape)


def ids(length):
    return lambda b: base.ids(b, length)


PER_LAYER = dict(vocab_size_per_layer_input=99, hidden_size_per_layer_input=8)
CONV_SPEECH = dict(do_stable_layer_norm=True, conv_dim=(16, 16), conv_kernel=(10, 3), conv_stride=(5, 2), num_feat_extract_layers=2,
                   num_conv_pos_embeddings=16, num_conv_pos_embedding_groups=2)
CTC = dict(context_size=8, input_dim=16, hidden_dim=32, dim_head=16, feedforward_mult=2, conv_kernel_size=5)
SERIES = dict(prediction_length=4, context_length=8, lags_sequence=[1, 2], num_time_features=1, input_size=1)
QFORMER = dict(encoder_hidden_size=24, cross_attention_frequency=1)
DEBERTA = dict(relative_attention=True, pos_att_type=["c2p", "p2c"], max_relative_positions=16, position_biased_input=False,
               norm_rel_ebd="layer_norm", share_att_key=True, conv_kernel_size=3, position_buckets=8)
SEGGPT = dict(image_size=[64, 32], patch_size=8, intermediate_hidden_state_indices=[0, 1], merge_index=0, pretrain_image_size=32,
              decoder_hidden_size=16)

# Text, with nothing but what all configurations get.
PLAIN = ["AfmoeModel", "AltCLIPTextModel", "BioGptModel", "BlipTextModel", "CanaryDecoder", "ChineseCLIPTextModel", "CwmModel", "DPRContextEncoder",
         "DecisionTransformerGPT2Model", "DogeModel", "EmbeddingGemma2TextModel", "Emu3TextModel", "EvollaSaProtProteinEncoder", "Exaone4Model",
         "FlintModel", "Granite4VisionTextModel", "GraniteDoclingTextModel", "GraniteMoeSWAModel", "GroupViTTextModel", "HiggsAudioV2Model",
         "HyperCLOVAXModel", "IBertModel", "Jais2Model", "Kolibri1Model", "MambaModel", "ModernBertDecoderModel", "MuseSparkTextModel",
         "NanoChatModel", "NeoMMEModel", "PPFormulaNetTextModel", "Sam3LiteTextTextModel", "Siglip2TextModel", "SolarOpenModel", "Step3p7TextModel",
         "XCLIPTextModel", "XLMRobertaXLModel", "xLSTMModel"]
# name: (class, what its configuration has beside SMALL, inputs if they are no text)
OTHERS = {
    "ctrl": ("CTRLModel", {"dff": 64}), "deberta_v2_conv": ("DebertaV2Model", DEBERTA), "gemma4_unified": ("Gemma4UnifiedTextModel", PER_LAYER),
    "gemma3n": ("Gemma3nTextModel", PER_LAYER | dict(num_kv_shared_layers=0, laurel_rank=8, activation_sparsity_pattern=[0.0, 0.0])),
    "kosmos2_5_text": ("Kosmos2_5TextModel", {"layers": 2, "attention_heads": 2}), "luke": ("LukeModel", {"entity_vocab_size": 9, "entity_emb_size": 16}),
    "markuplm": ("MarkupLMModel", {"xpath_unit_hidden_size": 8}), "paddleocr_text": ("PaddleOCRTextModel", MROPE),
    "qwen2_5_omni": ("Qwen2_5OmniThinkerTextModel", MROPE), "qwen3_omni": ("Qwen3OmniMoeThinkerTextModel", MROPE),
    "qwen3_vl_moe": ("Qwen3VLMoeTextModel", MROPE), "rwkv": ("RwkvModel", {"context_length": 64, "attention_hidden_size": 32}),
    "altclip_vision": ("AltCLIPVisionModel", {}, pictures(3, 32, 32)), "beit": ("BeitModel", {"use_relative_position_bias": True}, pictures(3, 32, 32)),
    "blip2_vision": ("Blip2VisionModel", {}, pictures(3, 32, 32)), "deit": ("DeiTModel", {}, pictures(3, 32, 32)),
    "dinov2_swiglu": ("Dinov2Model", {"use_swiglu_ffn": True}, pictures(3, 32, 32)), "mlcd": ("MLCDVisionModel", {}, pictures(3, 32, 32)),
    "groupvit": ("GroupViTVisionModel", dict(depths=[1, 1, 1], num_group_tokens=[8, 4, 0], num_output_groups=[8, 4, 0]), pictures(3, 32, 32)),
    "ovis2": ("Ovis2VisionModel", {}, pictures(3, 32, 32)), "ppocrv5_rec": ("PPOCRV5ServerRecModel", {}, pictures(3, 48, 64)),
    "qianfan": ("QianfanOCRVisionModel", dict(image_size=[32, 32], patch_size=[8, 8]), pictures(3, 32, 32)),
    "slanext": ("SLANeXtVisionEncoder", dict(image_size=64, window_size=3, global_attn_indexes=[1], output_channels=16), pictures(3, 64, 64)),
    "svtr": ("PPOCRV6SmallRecModel", {}, pictures(3, 48, 64)), "svtr_tiny": ("PPOCRV6TinyRecModel", {}, pictures(3, 48, 64)),
    "seggpt": ("SegGptModel", SEGGPT, one(pixel_values=normal(3, 32, 32), prompt_pixel_values=normal(3, 32, 32), prompt_masks=normal(3, 32, 32))),
    "siglip2_vision": ("Siglip2VisionModel", {"num_patches": 16}, one(pixel_values=normal(16, 192), pixel_attention_mask=lambda b: torch.ones(
        b, 16, dtype=torch.int64), spatial_shapes=lambda b: torch.full((b, 2), 4))),
    "blip2_qformer": ("Blip2QFormerModel", QFORMER, one(query_embeds=normal(5, 32), encoder_hidden_states=normal(9, 24))),
    "instructblip_qformer": ("InstructBlipQFormerModel", QFORMER, one(input_ids=ids(6), query_embeds=normal(5, 32), encoder_hidden_states=normal(9, 24))),
    "musicgen_melody": ("MusicgenMelodyDecoder", {"num_codebooks": 2}, one(input_ids=lambda b: base.ids(2 * b, 5))),
    "pop2piano": ("Pop2PianoStack", {}, one(input_ids=ids(6))),
    "time_series": ("TimeSeriesTransformerModel", SERIES, one(past_values=normal(10), past_time_features=normal(10, 1), past_observed_mask=lambda b:
                    torch.ones(b, 10), future_values=normal(4), future_time_features=normal(4, 1))),
    "decision": ("DecisionTransformerModel", dict(state_dim=7, act_dim=3, max_ep_len=32), one(
        states=normal(5, 7), actions=normal(5, 3), rewards=normal(5, 1), returns_to_go=normal(5, 1), attention_mask=lambda b: torch.ones(b, 5),
        timesteps=lambda b: torch.arange(5).expand(b, 5).clone())),
    "granite_speech": ("GraniteSpeechCTCEncoder", CTC, pictures(20, 16, name="hidden_states")),
    "glmasr": ("GlmAsrEncoder", FRAMES, pictures(16, 24, name="input_features")), "whisper": ("WhisperEncoder", FRAMES, pictures(16, 24, name="input_features")),
    "moss_audio": ("MossTranscribeDiarizeAudioModel", FRAMES, pictures(16, 24, name="input_features")),
    "nemotron_diarization": ("Nemotron3DiarizationAudioModel", {}, pictures(24, 16, name="input_features")),
    "sew_d": ("SEWDModel", {}, pictures(800, name="input_values")), "wav2vec2_stable": ("Wav2Vec2Model", CONV_SPEECH, pictures(800, name="input_values")),
}

if __name__ == "__main__":
    all_families = {}
    for key, (name, settings, *inputs) in ({name: (name, {}) for name in PLAIN} | OTHERS).items():
        for wanted in ("eager", "sdpa"):
            all_families[key + ("" if wanted == "eager" else ".sdpa")] = more.family(name, settings, inputs[0] if inputs else base.text, wanted)
    sys.exit(export.main(all_families, __doc__))
