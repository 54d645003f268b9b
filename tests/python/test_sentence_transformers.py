"""octavo.sentence_transformers: with a stand-in for the package, and, where it is installed, with itself on a small BERT."""

import json
import pathlib
import pickle
import sys
import tempfile
import types

import numpy as np
import octavo
import octavo.sentence_transformers as octavo_st
import pytest
from conftest import BERT
from onnx import TensorProto, helper

TEXTS = ["a b", "b a a b", "c", "d c b a d c", "a", "b b b", "c c c c c"]


class Words:
    """What this file uses of a tokenizers.Tokenizer: each word is a letter, between the tokens 1 and 2."""

    def __init__(self, length=None, pad=None):
        self.truncation, self.pad = length and {"max_length": length}, pad

    def encode(self, text):
        ids = [1, *(ord(word) - ord("a") + 3 for word in text.split()), 2]
        ids = ids if self.truncation is None else [*ids[:-1][: self.truncation["max_length"] - 1], 2]
        return types.SimpleNamespace(ids=ids, type_ids=[0] * len(ids), attention_mask=[1] * len(ids), special_tokens_mask=[1, *[0] * (len(ids) - 2), 1])

    def encode_batch(self, texts):
        rows = [self.encode(text) for text in texts]
        longest = max(len(row.ids) for row in rows)
        for row in rows:
            more = longest - len(row.ids)
            row.ids += [self.pad["pad_id"]] * more
            row.type_ids += [0] * more
            row.attention_mask += [0] * more
        return rows

    def enable_truncation(self, max_length):
        self.truncation = {"max_length": max_length}

    def no_truncation(self):
        self.truncation = None

    def enable_padding(self, **how):
        self.pad = how

    def no_padding(self):
        self.pad = None

    def to_str(self):
        return json.dumps({"truncation": self.truncation, "padding": self.pad})

    @classmethod
    def from_str(cls, text):
        read = json.loads(text)
        return cls((read["truncation"] or {}).get("max_length"), read["padding"])

    def save(self, path):
        with open(path, "w", encoding="utf-8") as file:
            file.write(self.to_str())


class Fast:
    """A fast tokenizer of transformers."""

    pad_token_id, pad_token, padding_side = 0, "[PAD]", "right"
    backend_tokenizer = Words()


class Tensor(np.ndarray):
    def detach(self):
        return self

    cpu = detach
    device = "cpu"

    def numpy(self):
        return np.asarray(self)

    def to(self, device):
        assert device == "cpu"
        return self


class Module:
    """What is used of the library's InputModule, torch.nn.Module included."""

    def __setstate__(self, state):
        self.__dict__.update(state)

    def save_config(self, folder):
        (folder / self.config_file_name).write_text(json.dumps({key: getattr(self, key) for key in self.config_keys}))

    @classmethod
    def load_config(cls, folder, subfolder, **_):
        return json.loads((folder / subfolder / cls.config_file_name).read_text())

    @staticmethod
    def load_file_path(folder, name, subfolder, **_):
        path = folder / subfolder / name
        return str(path) if path.exists() else None


class Pooling:
    """The mean over the tokens that are there."""

    def forward(self, features):
        mask = np.asarray(features["attention_mask"])[..., None]
        features["sentence_embedding"] = (np.asarray(features["token_embeddings"]) * mask).sum(1) / mask.sum(1)
        return features


class SentenceTransformer(list):
    """What is used of the class of this name."""

    def __init__(self, folder=None, modules=None, device=None, trust_remote_code=False, model_kwargs=None, **told):
        super().__init__(modules or [])
        if folder is not None:
            assert trust_remote_code
            for entry in json.loads(pathlib.Path(folder, "modules.json").read_text()):
                place, name = entry["type"].rsplit(".", 1)
                made = Pooling() if name == "Pooling" else getattr(sys.modules[place], name).load(pathlib.Path(folder), subfolder=entry["path"], model_kwargs=model_kwargs)
                self.append(made)
        self.device = device
        for name in ("prompts", "default_prompt_name", "similarity_fn_name", "truncate_dim"):
            setattr(self, name, told.get(name))

    @property
    def max_seq_length(self):
        return self[0].max_seq_length

    def save(self, folder, create_model_card):
        assert not create_model_card
        folder = pathlib.Path(folder)
        folder.mkdir(exist_ok=True)
        self[0].save(folder)
        names = [f"{type(self[0]).__module__}.{type(self[0]).__qualname__}", "sentence_transformers.models.Pooling"]
        (folder / "modules.json").write_text(json.dumps([{"type": name, "path": ""} for name in names[: len(self)]]))

    def encode(self, texts, prompt=None):
        features = self[0].preprocess(texts, prompt=prompt)
        for module in self:
            features = module.forward(features)
        return features["sentence_embedding"]


@pytest.fixture
def package(monkeypatch):
    """The stand-in for the library, for torch and for tokenizers."""
    torch = types.ModuleType("torch")
    torch.tensor, torch.from_numpy = (lambda rows: np.array(rows).view(Tensor)), lambda array: array.view(Tensor)
    made = types.ModuleType("sentence_transformers")
    made.SentenceTransformer = SentenceTransformer
    made.base = types.ModuleType("sentence_transformers.base")
    made.base.modules = types.ModuleType("sentence_transformers.base.modules")
    made.base.modules.InputModule = Module
    tokenizers = types.ModuleType("tokenizers")
    tokenizers.Tokenizer = types.SimpleNamespace(from_file=lambda path: Words.from_str(pathlib.Path(path).read_text()))
    for module in (torch, tokenizers, made, made.base, made.base.modules):
        monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.delitem(vars(octavo_st), "Transformer", raising=False)
    yield made
    vars(octavo_st).pop("Transformer", None)


def alone(text, length=128):
    """The embedding of one text in float."""
    ids = np.array([Words(length).encode(text).ids])
    return octavo.Session(BERT, threads=1).run({"input_ids": ids, "attention_mask": np.ones_like(ids)})[0][0].mean(0)


def test_a_module_embeds_padded_texts_as_single_ones(package):
    module = octavo_st.Transformer(BERT, Words(), 6)
    got = SentenceTransformer(modules=[module, Pooling()]).encode(TEXTS)
    assert np.allclose(got, [alone(text, 6) for text in TEXTS], atol=1e-5)
    assert module.max_seq_length == 6 and module.get_embedding_dimension() == 32
    module.max_seq_length = 3
    assert np.allclose(SentenceTransformer(modules=[module, Pooling()]).encode(["a b c d"]), alone("a b c d", 3), atol=1e-5)


def test_a_prompt_stands_before_each_text_and_its_tokens_are_counted(package):
    module = octavo_st.Transformer(BERT.read_bytes(), Words())
    features = module.preprocess(["a"], prompt="d d ")
    assert features["input_ids"].tolist() == [[1, 6, 6, 3, 2]] and features["prompt_length"] == 3
    assert "prompt_length" not in module.tokenize(["a"])
    lower = octavo_st.Transformer(BERT, Words(), do_lower_case=True).preprocess(["A b", "b A"], prompt="D ")
    assert lower["input_ids"].tolist() == [[1, 6, 3, 4, 2], [1, 6, 4, 3, 2]]


def test_a_module_goes_to_another_process(package):
    module = octavo_st.Transformer(BERT, Words())
    want = SentenceTransformer(modules=[module, Pooling()]).encode(TEXTS)
    again = pickle.loads(pickle.dumps(module))
    assert np.array_equal(SentenceTransformer(modules=[again, Pooling()]).encode(TEXTS), want)


def test_convert_and_load(package, tmp_path):
    first = types.SimpleNamespace(tokenizer=Fast(), auto_model=None, max_seq_length=9, do_lower_case=True)
    model = SentenceTransformer(modules=[first, Pooling()], prompts={"query": "a "}, similarity_fn_name="dot")
    result = octavo_st.convert(model, tmp_path / "m", [text.upper() for text in TEXTS], onnx=BERT, threads=1)
    assert result.report["attention"] == {"found": 2, "fused": 2}
    loaded = octavo_st.load(tmp_path / "m", threads=1)
    assert isinstance(loaded, SentenceTransformer) and loaded[0].max_seq_length == 9 and loaded[0].session.threads == 1 and loaded.device == "cpu"
    got, want = loaded.encode([text.upper() for text in TEXTS]), np.array([alone(text, 9) for text in TEXTS])
    assert np.mean((got * want).sum(1) / np.linalg.norm(got, axis=1) / np.linalg.norm(want, axis=1)) > 0.99
    octavo_st.convert(model, tmp_path / "d", onnx=BERT, recipe="dynamic")
    assert (tmp_path / "d" / "octavo.onnx").stat().st_size > 1000


def test_refusals(package, monkeypatch, tmp_path):
    plain = types.SimpleNamespace(tokenizer=None, max_seq_length=9)
    with pytest.raises(octavo.OctavoError, match="the first module is SimpleNamespace, and octavo takes the place of a Transformer with a fast tokenizer alone"):
        octavo_st.convert(SentenceTransformer(modules=[plain]), tmp_path / "m")
    with pytest.raises(octavo.OctavoError, match="is no folder of a SentenceTransformer"):
        octavo_st.load(tmp_path)
    for name in ("their.Code", "sentence_transformers.models.Transformer"):
        (tmp_path / "modules.json").write_text(json.dumps([{"type": name, "path": ""}]))
        with pytest.raises(octavo.OctavoError, match=f"names {name}, which may run code of that folder"):
            octavo_st.load(tmp_path)
    with pytest.raises(octavo.OctavoError, match="has no octavo.onnx; octavo.sentence_transformers.convert writes such folders"):
        octavo_st.Transformer.load(tmp_path)
    ids, size = (helper.make_tensor_value_info(name, TensorProto.INT64, shape) for name, shape in (("input_ids", [1, "n"]), ("size", [])))
    graph = helper.make_graph([helper.make_node("Size", ["input_ids"], ["size"])], "g", [ids], [size])
    with pytest.raises(octavo.OctavoError, match=r"no output of the model is \[texts, tokens, width\] or \[texts, width\] \(size\)"):
        octavo_st.Transformer(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9).SerializeToString(), Words())
    with pytest.raises(AttributeError, match="has no attribute 'Encoder'"):
        octavo_st.Encoder
    monkeypatch.delattr(package.base.modules, "InputModule")
    vars(octavo_st).pop("Transformer")
    with pytest.raises(octavo.OctavoError, match="has no InputModule; octavo takes 5.0 and later"):
        octavo_st.Transformer
    monkeypatch.setitem(sys.modules, "sentence_transformers", None)
    with pytest.raises(octavo.OctavoError, match="the package 'sentence_transformers' cannot be imported"):
        octavo_st.load(tmp_path)


@pytest.fixture(scope="module")
def small():
    """A SentenceTransformer of two layers with random weights."""
    reason = "no sentence-transformers here: pip install sentence-transformers onnx onnxscript"
    library = pytest.importorskip("sentence_transformers", reason=reason)
    pytest.importorskip("onnxscript", reason=reason)
    import tokenizers
    import torch
    import transformers
    from sentence_transformers import models

    words = {"[PAD]": 0, "[CLS]": 1, "[SEP]": 2, **{chr(ord("a") + i): 3 + i for i in range(26)}}
    made = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="[PAD]"))
    made.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    made.post_processor = tokenizers.processors.TemplateProcessing(single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 1), ("[SEP]", 2)])
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=made, pad_token="[PAD]", cls_token="[CLS]", sep_token="[SEP]")
    torch.manual_seed(20261124)
    config = transformers.BertConfig(vocab_size=29, hidden_size=64, num_hidden_layers=2, num_attention_heads=4, intermediate_size=128, max_position_embeddings=64)
    with tempfile.TemporaryDirectory() as folder:
        transformers.BertModel(config).save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        first = models.Transformer(folder, max_seq_length=9)
        return library.SentenceTransformer(
            modules=[first, models.Pooling(64), models.Normalize()], prompts={"query": "z z ", "document": ""}, similarity_fn_name="dot", device="cpu")


def test_the_library_itself(small, tmp_path):
    import sentence_transformers

    result = octavo_st.convert(small, tmp_path / "m", TEXTS * 4)
    assert result.report["attention"] == {"found": 2, "fused": 2}
    want = small.encode(TEXTS)
    for model in (octavo_st.load(tmp_path / "m", threads=1), sentence_transformers.SentenceTransformer(str(tmp_path / "m"), trust_remote_code=True, device="cpu")):
        assert model.max_seq_length == 9 and model.prompts == small.prompts and model.similarity_fn_name == "dot"
        got = model.encode(TEXTS, batch_size=3)
        assert got.shape == want.shape and (got * want).sum(1).min() > 0.98
        assert (model.encode(TEXTS, prompt_name="query") * small.encode(TEXTS, prompt_name="query")).sum(1).min() > 0.98
        assert (model.encode("a b", convert_to_tensor=True).numpy() * want[0]).sum() > 0.98
    model.save(str(tmp_path / "again"))
    assert np.array_equal(octavo_st.load(tmp_path / "again").encode(TEXTS), model.encode(TEXTS))


def test_an_export_that_fails_is_told_in_a_sentence(small, monkeypatch, tmp_path):
    monkeypatch.setattr(small[0].auto_model, "forward", None)
    with pytest.raises(octavo.OctavoError, match=r"^torch cannot export the model \(.*\); pip install onnx onnxscript, or give the model's ONNX file as onnx=$"):
        octavo_st.convert(small, tmp_path / "m", TEXTS)
