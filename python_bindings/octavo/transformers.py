"""Models of Hugging Face's transformers, exported and optimized by one call.

>>> import octavo.transformers
>>> octavo.transformers.export_and_optimize("bert-folder/", "bert.int8.onnx", texts="texts.txt")
>>> octavo.transformers.export_and_optimize(vit_model, "vit.int8.onnx", images="pictures/", processor="preprocessor_config.json")

A folder that has an ONNX file needs neither torch nor transformers; for others they are imported when they are needed.
"""

import inspect
import os
import pathlib
import re
import tempfile

from . import OctavoError, image_batches, optimize, text_batches
from ._words import takes

_FILES = ("model.onnx", "onnx/model.onnx")
_READ, _SEEN = "input_ids", "pixel_values"


def _package(name):
    try:
        return __import__(name)
    except ImportError as error:
        raise OctavoError(f"the package '{name}' cannot be imported ({error}); pip install torch transformers onnx onnxscript, or give a folder with a model.onnx") from None


def _loaded(folder):
    """The model of a folder, of the class that its config names."""
    package = _package("transformers")
    try:
        config = package.AutoConfig.from_pretrained(folder, local_files_only=True)
        kind = getattr(package, (config.architectures or [""])[0], package.AutoModel)
        return kind.from_pretrained(folder, local_files_only=True)
    except (OSError, ValueError, KeyError) as error:
        raise OctavoError(f"'{folder}' holds no model that transformers opens: {str(error).strip().splitlines()[0]}") from None


def _inputs(model, torch):
    """Names and small examples of what the model is given, and which axes may have any size."""
    config, main = model.config, getattr(model, "main_input_name", _READ)
    if getattr(config, "is_encoder_decoder", False):
        raise OctavoError(f"{type(model).__name__} is an encoder and a decoder, which are two files; export each and optimize it by octavo.optimize")
    if main == _SEEN:
        size = config.image_size if isinstance(config.image_size, (list, tuple)) else [config.image_size] * 2
        return [_SEEN], [torch.zeros(2, getattr(config, "num_channels", 3), *size)], [0]
    if main != _READ:
        raise OctavoError(f"{type(model).__name__} reads '{main}'; octavo exports models of token ids and of pictures, so export it yourself and give the ONNX file to octavo.optimize")
    ids = torch.arange(16, dtype=torch.int64).reshape(2, 8) % config.vocab_size
    names, examples = [_READ, "attention_mask"], [ids, torch.ones_like(ids)]
    if "token_type_ids" in inspect.signature(model.forward).parameters and getattr(config, "type_vocab_size", 0) > 1:
        names, examples = [*names, "token_type_ids"], [*examples, torch.zeros_like(ids)]
    return names, examples, [0, 1]


def _export(model, path):
    """The model as ONNX, of any number of rows, and of tokens where it reads them; without caches."""
    torch = _package("torch")
    names, examples, axes = _inputs(model, torch)
    fixed = {"return_dict": True} | ({"use_cache": False} if "use_cache" in inspect.signature(model.forward).parameters else {})
    model = model.eval().cpu().float()
    with torch.no_grad():
        given = model(**dict(zip(names, examples)), **fixed)
    outputs = [name for name, value in given.items() if isinstance(value, torch.Tensor)]

    class Plain(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = model

        def forward(self, *values):
            told = self.inner(**dict(zip(names, values)), **fixed)
            return tuple(told[name] for name in outputs)

    sizes = {axis: torch.export.Dim.DYNAMIC for axis in axes}
    try:
        torch.onnx.export(
            Plain().eval(), tuple(examples), str(path), input_names=names, output_names=outputs, dynamo=True, external_data=False, verbose=False,
            dynamic_shapes=(tuple(sizes for _ in names),))
    except Exception as error:  # whatever torch's exporter raises, in several lines and colours
        why = (re.sub(r"\x1b\[\d*m", "", str(error.__cause__ or error)).strip() or type(error).__name__).splitlines()[0]
        raise OctavoError(f"torch cannot export the model ({why}); pip install onnx onnxscript, or give a folder with a model.onnx") from error


def _beside(folder, name, given):
    """What was given, else the file of that name in the folder."""
    if given is None and folder is not None and (folder / name).is_file():
        return folder / name
    return given


@takes(output="path", texts="file|words", images="file|list", batch_size="whole", max_length="whole", recipe="word")
def export_and_optimize(model, output, *, texts=None, images=None, tokenizer=None, processor=None, calibration=None, recipe="int8", batch_size=None, max_length=128, **options):
    """Exports, calibrates, quantizes, fuses and writes a model of transformers; transformers.pyi says what is given."""
    if sum(data is not None for data in (texts, images, calibration)) > 1:
        raise OctavoError("texts, images and calibration each are the data; give one of them")
    folder = pathlib.Path(model) if isinstance(model, (str, os.PathLike)) else None
    if folder is None and not hasattr(model, "config"):
        raise TypeError(f"export_and_optimize(): model takes a folder or a model of transformers, not {type(model).__name__}")
    if folder is not None and not folder.is_dir():
        raise OctavoError(f"'{model}' is no folder; octavo.optimize takes ONNX files")
    tokenizer, processor = _beside(folder, "tokenizer.json", tokenizer), _beside(folder, "preprocessor_config.json", processor)
    for data, means, what, file in ((texts, tokenizer, "tokenizer", "tokenizer.json"), (images, processor, "processor", "preprocessor_config.json")):
        if data is not None and means is None:
            raise OctavoError(f"{'texts' if data is texts else 'images'} become batches by a {what}; give {what}= (a {file})")
    with tempfile.TemporaryDirectory(prefix="octavo-") as temporary:
        path = next((folder / name for name in _FILES if folder is not None and (folder / name).is_file()), None)
        if path is None:
            path = pathlib.Path(temporary, "model.onnx")
            _export(_loaded(folder) if folder is not None else model, path)
        if texts is not None:
            calibration = text_batches(texts, tokenizer, path, batch_size=batch_size, max_length=max_length)
        elif images is not None:
            calibration = image_batches(images, processor, path, batch_size=batch_size or 8)
        result = optimize(path, recipe, calibration, **options)
    result.save(output)
    return result
