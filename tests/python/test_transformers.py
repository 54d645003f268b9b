"""octavo.transformers: a folder with an ONNX file without torch, wrong calls, and, where torch and transformers are, small models as they export them."""

import importlib.util
import shutil

import numpy as np
import octavo
import octavo.transformers as octavo_tr
import pytest
from conftest import BERT
from test_sentence_transformers import TEXTS, Words

WITH_TORCH = all(importlib.util.find_spec(name) for name in ("torch", "transformers", "onnxscript"))


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "model" / "onnx").mkdir(parents=True)
    shutil.copy(BERT, tmp_path / "model" / "onnx" / "model.onnx")
    return tmp_path / "model"


def test_a_folder_with_an_onnx_file_needs_no_torch(folder, tmp_path):
    result = octavo_tr.export_and_optimize(folder, tmp_path / "m.onnx", texts=TEXTS, tokenizer=Words(), batch_size=2)
    batches = octavo.text_batches(TEXTS, Words(), BERT, batch_size=2)
    want = octavo.optimize(folder / "onnx" / "model.onnx", calibration=batches)
    assert result.model == want.model == (tmp_path / "m.onnx").read_bytes()
    float_model = octavo_tr.export_and_optimize(folder, tmp_path / "f.onnx", recipe="float", threads=1)
    assert float_model.report["attention"]["fused"] == 2 and octavo.Session(tmp_path / "f.onnx").inputs


@pytest.mark.parametrize("change, words", [
    ({"texts": TEXTS, "calibration": "random:2"}, "texts, images and calibration each are the data; give one of them"),
    ({"texts": TEXTS}, "texts become batches by a tokenizer; give tokenizer= (a tokenizer.json)"),
    ({"images": "pictures"}, "images become batches by a processor; give processor= (a preprocessor_config.json)"),
    ({"model": "nowhere"}, "'nowhere' is no folder; octavo.optimize takes ONNX files"),
    ({"model": 3}, "export_and_optimize(): model takes a folder or a model of transformers, not int"),
    ({"output": None}, "export_and_optimize(): output takes a path, not None"),
    ({"batch_size": "two"}, "export_and_optimize(): batch_size takes a whole number or None, not str"),
])
def test_wrong_calls(folder, tmp_path, change, words):
    with pytest.raises((octavo.OctavoError, TypeError)) as error:
        octavo_tr.export_and_optimize(**{"model": folder, "output": tmp_path / "m.onnx", "recipe": "float"} | change)
    assert str(error.value) == words


@pytest.mark.skipif(WITH_TORCH, reason="torch is here")
def test_without_torch_the_sentence_says_what_to_install(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(octavo.OctavoError, match="pip install torch transformers onnx onnxscript, or give a folder with a model.onnx"):
        octavo_tr.export_and_optimize(tmp_path, tmp_path / "m.onnx", recipe="float")


@pytest.mark.skipif(not WITH_TORCH, reason="no transformers here")
@pytest.mark.parametrize("kind", ["bert", "vit", "llama"])
def test_models_in_memory_and_in_folders(kind, tmp_path):
    import torch
    import transformers

    torch.manual_seed(1)
    small = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
    model = {
        "bert": lambda: transformers.BertForSequenceClassification(transformers.BertConfig(vocab_size=60, **small)),
        "vit": lambda: transformers.ViTForImageClassification(transformers.ViTConfig(image_size=32, patch_size=8, **small)),
        "llama": lambda: transformers.LlamaForCausalLM(transformers.LlamaConfig(vocab_size=60, num_key_value_heads=1, **small)),
    }[kind]().eval()
    model.save_pretrained(tmp_path / "folder")
    results = [octavo_tr.export_and_optimize(one, tmp_path / "m.onnx", recipe="float") for one in (model, tmp_path / "folder")]
    session, rng = octavo.Session(tmp_path / "m.onnx", threads=1), np.random.default_rng(2)
    if kind == "vit":
        feed = {"pixel_values": rng.normal(size=(3, 3, 32, 32)).astype(np.float32)}
    else:
        feed = {"input_ids": rng.integers(0, 60, (3, 11)), "attention_mask": np.ones((3, 11), np.int64), "token_type_ids": np.zeros((3, 11), np.int64)}
    feed = {name: feed[name] for name, _ in session.inputs}
    with torch.no_grad():
        want = model(**{name: torch.from_numpy(array) for name, array in feed.items()}).logits.numpy()
    np.testing.assert_allclose(session.run(feed, ["logits"])[0], want, atol=2e-5)
    assert all(result.report["attention"] == {"found": 2, "fused": 2} for result in results)
    int8 = octavo_tr.export_and_optimize(model, tmp_path / "q.onnx", calibration="random:8")
    assert int8.report["linear"]["quantized"] > 8
