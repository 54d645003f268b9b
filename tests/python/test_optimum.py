"""Pipelines of transformers on octavo, through optimum: a program changes two lines (README.md). Needs torch, transformers and optimum-onnx
(`pip install optimum-onnx[onnxruntime]`), which ./dev test does not fetch."""

import importlib.util

import numpy as np
import octavo
import pytest

ort = pytest.importorskip("onnxruntime", minversion="1.31", reason="no ONNX Runtime here: ./dev venv onnxruntime installs it")
if not all(importlib.util.find_spec(name) for name in ("torch", "transformers", "optimum")) or not importlib.util.find_spec("optimum.onnxruntime"):
    pytest.skip("no optimum here", allow_module_level=True)

NAME = "OctavoExecutionProvider"
WORDS = "the a cat dog sits runs on under mat tree and it is good bad film".split()
TEXTS = ["the cat sits on the mat", "a dog runs", "it is a good film and it is bad and a cat runs under the tree"]


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """By task: a BERT of random weights as optimum exports it, beside its tokenizer, and as octavo quantizes that."""
    import torch
    from optimum import onnxruntime as optimum
    from transformers import BertConfig, BertForSequenceClassification, BertModel, BertTokenizerFast

    (folder := tmp_path_factory.mktemp("optimum") / "vocab.txt").write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS]), encoding="utf-8")
    tokenizer = BertTokenizerFast(str(folder))
    config = BertConfig(vocab_size=len(tokenizer), hidden_size=64, num_hidden_layers=2, num_attention_heads=4, intermediate_size=128, max_position_embeddings=64)
    torch.manual_seed(0)
    made = {}
    for task, model, of_optimum in (("feature-extraction", BertModel, optimum.ORTModelForFeatureExtraction),
                                    ("text-classification", BertForSequenceClassification, optimum.ORTModelForSequenceClassification)):
        model(config).eval().save_pretrained(folder.parent / task)
        of_optimum.from_pretrained(folder.parent / task, export=True).save_pretrained(out := folder.parent / f"{task}.onnx")
        tokenizer.save_pretrained(out)
        octavo.optimize(out / "model.onnx", recipe="dynamic").save(out / "model.dynamic.onnx")
        made[task] = (of_optimum, out)
    return made


def answers(folders, task, **how):
    from transformers import AutoTokenizer, pipeline

    of_optimum, folder = folders[task]
    model = of_optimum.from_pretrained(folder, **{"file_name": "model.onnx"} | how)
    if "provider" in how:
        assert model.providers[0] == how["provider"]
    given = pipeline(task, model=model, tokenizer=AutoTokenizer.from_pretrained(folder))(TEXTS)
    if task == "feature-extraction":
        return np.concatenate([np.array(text)[0] for text in given])
    return np.array([one["score"] if one["label"] == "LABEL_1" else 1 - one["score"] for one in given])


@pytest.mark.parametrize("task", ["feature-extraction", "text-classification"])
def test_a_pipeline_runs_on_octavo_by_two_lines(folders, task):
    want = answers(folders, task)
    octavo.session_options()  # the first
    for binding in (False, True):  # optimum's, of inputs and outputs
        got = answers(folders, task, provider=NAME, use_io_binding=binding)  # the second
        assert np.abs(got - want).max() < 1e-5 * np.abs(want).max()
    codes = answers(folders, task, provider=NAME, file_name="model.dynamic.onnx")
    assert 1e-6 < np.linalg.norm(codes - want) / np.linalg.norm(want) < 0.05
