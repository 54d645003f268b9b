import os
from abc import ABCMeta
from collections.abc import Iterable, Sequence
from typing import Any

from . import Result

class Transformer(metaclass=ABCMeta):
    """Token embeddings of texts by octavo: the first module of a SentenceTransformer (a torch.nn.Module).

    model: an ONNX file, as path or bytes, with the input input_ids. tokenizer: the path of a tokenizer.json, a tokenizers.Tokenizer, or a fast
    tokenizer of transformers. max_seq_length: tokens of a text at most. threads: as of Session.
    """

    do_lower_case: bool
    max_seq_length: int
    tokenizer: Any
    def __init__(
        self, model: str | os.PathLike[str] | bytes, tokenizer: Any, max_seq_length: int = 128, threads: int = 0, do_lower_case: bool = False
    ) -> None: ...
    def get_embedding_dimension(self) -> int | None: ...
    def preprocess(self, inputs: Sequence[Any], prompt: str | None = None, **_: Any) -> dict[str, Any]: ...
    def tokenize(self, texts: Sequence[Any], **more: Any) -> dict[str, Any]: ...
    def forward(self, features: dict[str, Any], **_: Any) -> dict[str, Any]: ...
    def save(self, output_path: str | os.PathLike[str], *_: Any, **__: Any) -> None: ...

def convert(
    model: Any,
    folder: str | os.PathLike[str],
    texts: Iterable[str] | str | os.PathLike[str] | None = None,
    *,
    onnx: str | os.PathLike[str] | None = None,
    recipe: str = "int8",
    batch_size: int | None = None,
    threads: int = 0,
    **options: Any,
) -> Result:
    """Writes a folder that load() and SentenceTransformer open, with the first module quantized and fused by octavo; the Result of optimize.

    model: a SentenceTransformer, or its name or folder. texts: some hundred as the model will see them, or a file with one on each line; recipes that
    need no data do without. onnx: the ONNX file of the first module (token embeddings of input_ids and attention_mask); None: torch exports it, with
    the packages onnx and onnxscript. batch_size: texts in a batch of calibration, as text_batches has it. options: those of optimize.
    """

def load(folder: str | os.PathLike[str], *, threads: int = 0, **arguments: Any) -> Any:
    """The SentenceTransformer of a folder that convert() wrote. arguments: those of SentenceTransformer."""
