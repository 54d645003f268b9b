import os
from collections.abc import Iterable, Mapping
from typing import Any

from numpy.typing import NDArray

from . import Result

def export_and_optimize(
    model: Any,
    output: str | os.PathLike[str],
    *,
    texts: Iterable[str] | str | os.PathLike[str] | None = None,
    images: Iterable[Any] | str | os.PathLike[str] | None = None,
    tokenizer: Any = None,
    processor: Any = None,
    calibration: Iterable[Mapping[str, NDArray[Any]]] | str | os.PathLike[str] | bytes | None = None,
    recipe: str = "int8",
    batch_size: int | None = None,
    max_length: int = 128,
    **options: Any,
) -> Result:
    """Exports, calibrates, quantizes, fuses and writes a model of transformers; the Result of optimize.

    model: a model in memory (BertModel, ViTForImageClassification, LlamaForCausalLM), or its folder. A folder with model.onnx or onnx/model.onnx is
    taken as it is; others need torch, transformers, onnx and onnxscript. output: the ONNX file to write. Decoders are exported without caches.
    texts, images, calibration: the data, one of them: a file with a text on each line or texts; a folder of pictures or pictures; what optimize
    takes. Recipes that need no data do without. tokenizer, processor: as of text_batches and image_batches; None: the folder's tokenizer.json and
    preprocessor_config.json. batch_size: 32 texts (fewer where that would be less than eight batches) or 8 pictures. max_length: tokens of a text at most. options: those of optimize.
    """
