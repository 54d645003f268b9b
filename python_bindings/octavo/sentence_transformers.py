"""Models of the package sentence-transformers (5 and later) with octavo as what runs them.

>>> import octavo.sentence_transformers as octavo_st
>>> octavo_st.convert("all-MiniLM-L6-v2", "minilm.octavo", texts="texts.txt")  # exports, calibrates, quantizes, fuses
>>> model = octavo_st.load("minilm.octavo")                                    # a SentenceTransformer
>>> vectors = model.encode(["how far is it to the sea?"])

The library has no list of backends to enter. What it has are modules of one's own: the folder's modules.json names Transformer of this file in the
place of the library's, so SentenceTransformer(folder, trust_remote_code=True) opens it too. The package is imported when it is needed.
"""

import json
import os
import pathlib
import re
import tempfile

import numpy as np

from . import OctavoError, Session, optimize
from ._generate import empty_cache
from ._texts import check, cutting, lines, text_batches

_MODEL, _TOKENIZER = "octavo.onnx", "tokenizer.json"
_OUTPUTS = ("token_embeddings", "last_hidden_state")
# Modules that may stand behind ours in a folder that load() opens: they read numbers alone, and no code of the folder's.
_PLAIN = {"CNN", "Dense", "Dropout", "LSTM", "LayerNorm", "Normalize", "Pooling", "WeightedLayerPooling", "WordWeights"}


def _package():
    try:
        import sentence_transformers
    except ImportError as error:
        raise OctavoError(f"the package 'sentence_transformers' cannot be imported ({error}); pip install sentence-transformers") from None
    return sentence_transformers


def _input_module():
    """The base class of modules that read texts."""
    _package()
    try:
        from sentence_transformers.base.modules import InputModule
    except ImportError:
        try:
            from sentence_transformers.models import InputModule  # before 5.4
        except ImportError:
            raise OctavoError("this 'sentence_transformers' has no InputModule; octavo takes 5.0 and later") from None
    return InputModule


def _padding(tokenizer):
    """How a tokenizer pads: one of transformers by its attributes, others by their JSON."""
    if hasattr(tokenizer, "pad_token_id"):
        return {"pad_id": tokenizer.pad_token_id or 0, "pad_token": tokenizer.pad_token or "[PAD]", "direction": tokenizer.padding_side}
    text = tokenizer.to_str() if hasattr(tokenizer, "to_str") else pathlib.Path(tokenizer).read_text(encoding="utf-8")
    told = json.loads(text).get("padding") or {}
    return {"pad_id": told.get("pad_id", 0), "pad_token": told.get("pad_token", "[PAD]"), "direction": told.get("direction", "right").lower()}


def _output_of(session):
    """The output that is taken, and what the modules behind call it."""
    ranks = {port.name: len(port.shape or ()) for port in session.outputs}
    for name in (*_OUTPUTS, *ranks):
        if ranks.get(name) == 3:
            return name, "token_embeddings"
    for name in ("sentence_embedding", *ranks):
        if ranks.get(name) == 2:
            return name, "sentence_embedding"
    raise OctavoError(f"no output of the model is [texts, tokens, width] or [texts, width] ({', '.join(ranks)}); sentence-transformers takes one of these")


def _transformer_class():
    class Transformer(_input_module()):
        """Token embeddings of texts by octavo: the first module of a SentenceTransformer.

        model: an ONNX file, as path or bytes, with the input input_ids. tokenizer: the path of a tokenizer.json, a tokenizers.Tokenizer, or a fast
        tokenizer of transformers. max_seq_length: tokens of a text at most. threads: as of Session.
        """

        config_file_name = "octavo.json"
        config_keys = ["max_seq_length", "do_lower_case"]
        save_in_root = True

        def __init__(self, model, tokenizer, max_seq_length=128, threads=0, do_lower_case=False):
            super().__init__()
            self.do_lower_case = do_lower_case
            self._model = model if isinstance(model, bytes) else pathlib.Path(model)
            self._threads = threads
            self.tokenizer = cutting(tokenizer, max_seq_length)
            self.tokenizer.enable_padding(**_padding(tokenizer))
            self._open()

        def _open(self):
            self.session = Session(self._model, threads=self._threads)
            self._ports = {port.name: port for port in self.session.inputs}
            check(self._ports)
            self._output, self._feature = _output_of(self.session)

        def __getstate__(self):  # for pools of processes: each one compiles the model for itself
            return {name: value for name, value in self.__dict__.items() if name not in ("session", "_ports")}

        def __setstate__(self, state):
            super().__setstate__(state)
            self._open()

        @property
        def max_seq_length(self):
            return self.tokenizer.truncation["max_length"]

        @max_seq_length.setter
        def max_seq_length(self, value):
            self.tokenizer.enable_truncation(value)

        def get_embedding_dimension(self):
            width = next(port.shape[-1] for port in self.session.outputs if port.name == self._output)
            return width if isinstance(width, int) else None

        def preprocess(self, inputs, prompt=None, **_):
            import torch

            if prompt:
                inputs = [(prompt + text[0], *text[1:]) if isinstance(text, tuple) else prompt + text for text in inputs]
            if self.do_lower_case:
                inputs = [tuple(part.lower() for part in text) if isinstance(text, tuple) else text.lower() for text in inputs]
            encoded = self.tokenizer.encode_batch(list(inputs))
            features = {
                "input_ids": torch.tensor([e.ids for e in encoded]),
                "attention_mask": torch.tensor([e.attention_mask for e in encoded]),
                "token_type_ids": torch.tensor([e.type_ids for e in encoded]),
            }
            if prompt:  # pooling may leave it out
                alone = self.tokenizer.encode(prompt)
                features["prompt_length"] = len(alone.ids) - alone.special_tokens_mask[-1]
            return features

        def tokenize(self, texts, **more):
            return self.preprocess(texts, **more)

        def forward(self, features, **_):
            import torch

            given = {name: features[name].detach().cpu().numpy() for name in self._ports if name in features}
            ids = given["input_ids"]
            given.setdefault("token_type_ids", np.zeros_like(ids))
            given.setdefault("position_ids", np.broadcast_to(np.arange(ids.shape[1]), ids.shape))
            feeds = {name: np.ascontiguousarray(given[name], port.dtype) if name in given else empty_cache(port, len(ids)) for name, port in self._ports.items()}
            values = self.session.run(feeds, [self._output])[0]
            features[self._feature] = torch.from_numpy(values.astype(np.float32, copy=False)).to(features["input_ids"].device)
            return features

        def save(self, output_path, *_, **__):
            folder = pathlib.Path(output_path)
            (folder / _MODEL).write_bytes(self._model if isinstance(self._model, bytes) else self._model.read_bytes())
            self.tokenizer.save(str(folder / _TOKENIZER))
            self.save_config(output_path)

        @classmethod
        def load(cls, model_name_or_path, subfolder="", token=None, cache_folder=None, revision=None, local_files_only=False, model_kwargs=None, **_):
            hub = {"subfolder": subfolder, "token": token, "cache_folder": cache_folder, "revision": revision, "local_files_only": local_files_only}
            files = [cls.load_file_path(model_name_or_path, name, **hub) for name in (_MODEL, _TOKENIZER)]
            for name, file in zip((_MODEL, _TOKENIZER), files):
                if file is None:
                    raise OctavoError(f"'{model_name_or_path}' has no {name}; octavo.sentence_transformers.convert writes such folders")
            config = cls.load_config(model_name_or_path, **hub)
            return cls(*files, **config, threads=(model_kwargs or {}).get("threads", 0))

    Transformer.__module__, Transformer.__qualname__ = __name__, "Transformer"  # what modules.json and pickle call it
    return Transformer


def __getattr__(name):
    if name != "Transformer":
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
    globals()[name] = made = _transformer_class()
    return made


def _export(model, path):
    """The torch model behind the first module as ONNX, of any number of texts and tokens."""
    import torch

    inner = model[0].auto_model
    features = getattr(model, "preprocess", model.tokenize)(["one text", "and another one"])
    names = [name for name in ("input_ids", "attention_mask", "token_type_ids") if name in features]

    class Tokens(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = inner

        def forward(self, *values):
            return self.inner(**dict(zip(names, values)), return_dict=True)["last_hidden_state"]

    sizes = {0: torch.export.Dim.DYNAMIC, 1: torch.export.Dim.DYNAMIC}
    try:
        torch.onnx.export(
            Tokens().eval(), tuple(features[name].cpu() for name in names), str(path), input_names=names, output_names=["token_embeddings"],
            dynamo=True, external_data=False, verbose=False, dynamic_shapes=(tuple(sizes for _ in names),))
    except Exception as error:  # whatever torch's exporter raises, in several lines and colours
        why = (re.sub(r"\x1b\[\d*m", "", str(error.__cause__ or error)).strip() or type(error).__name__).splitlines()[0]
        raise OctavoError(f"torch cannot export the model ({why}); pip install onnx onnxscript, or give the model's ONNX file as onnx=") from error


def convert(model, folder, texts=None, *, onnx=None, recipe="int8", batch_size=None, threads=0, **options):
    """Writes a folder that load() and SentenceTransformer open, with the first module quantized and fused by octavo; the Result of optimize.

    model: a SentenceTransformer, or its name or folder. texts: some hundred as the model will see them, or a file with one on each line; recipes that
    need no data do without. onnx: the ONNX file of the first module (token embeddings of input_ids and attention_mask); None: torch exports it, with
    the packages onnx and onnxscript. batch_size: texts in a batch of calibration, as text_batches has it. options: those of optimize.
    """
    package = _package()
    if isinstance(model, (str, os.PathLike)):
        model = package.SentenceTransformer(os.fspath(model), device="cpu")
    first = model[0]
    tokenizer = getattr(first, "tokenizer", None)
    if not hasattr(tokenizer, "backend_tokenizer") or not hasattr(first, "auto_model"):
        raise OctavoError(f"the first module is {type(first).__name__}, and octavo takes the place of a Transformer with a fast tokenizer alone")
    length, lower = model.max_seq_length, bool(getattr(first, "do_lower_case", False))
    if lower and texts is not None:
        texts = [text.lower() for text in lines(texts)]
    with tempfile.TemporaryDirectory(prefix="octavo-") as temporary:
        if onnx is None:
            onnx = pathlib.Path(temporary, "model.onnx")
            _export(model, onnx)
        batches = None if texts is None else text_batches(texts, tokenizer, onnx, batch_size=batch_size, max_length=length)
        result = optimize(onnx, recipe, batches, threads=threads, **options)
    module = __getattr__("Transformer")(result.model, tokenizer, length, threads, lower)
    converted = package.SentenceTransformer(
        modules=[module, *list(model)[1:]], device="cpu", prompts=model.prompts, default_prompt_name=model.default_prompt_name,
        similarity_fn_name=model.similarity_fn_name, truncate_dim=model.truncate_dim)
    converted.save(os.fspath(folder), create_model_card=False)
    return result


def load(folder, *, threads=0, **arguments):
    """The SentenceTransformer of a folder that convert() wrote. arguments: those of SentenceTransformer."""
    package = _package()
    try:
        types = [module["type"] for module in json.loads(pathlib.Path(folder, "modules.json").read_text(encoding="utf-8"))]
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise OctavoError(f"'{folder}' is no folder of a SentenceTransformer: {error!r}; octavo.sentence_transformers.convert writes one") from None
    for name in types:
        plain = name.startswith("sentence_transformers.") and name.rsplit(".", 1)[-1] in _PLAIN
        if not plain and name != f"{__name__}.Transformer":  # trust_remote_code below could run code of the folder for it
            raise OctavoError(f"modules.json of '{folder}' names {name}, which may run code of that folder; open it by SentenceTransformer if you trust it")
    arguments.setdefault("device", "cpu")
    arguments["model_kwargs"] = {"threads": threads, **arguments.get("model_kwargs", {})}
    return package.SentenceTransformer(os.fspath(folder), trust_remote_code=True, **arguments)
