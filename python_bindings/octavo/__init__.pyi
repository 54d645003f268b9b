import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Callable

import numpy as np
from numpy.typing import NDArray

__version__: str

Arrays = Mapping[str, NDArray[Any]]

class OctavoError(RuntimeError):
    """Something outside was wrong: one sentence with the place, the reason and the way out."""

class OctavoMemoryError(OctavoError, MemoryError):
    """Memory lacks, or a model declares more than max_memory allows."""

class Result:
    @property
    def model(self) -> bytes:
        """The optimized ONNX file."""
    @property
    def report(self) -> dict[str, Any]:
        """What was found and what became of it, as `octavo optimize --json` writes it (schema 1)."""
    @property
    def html(self) -> str:
        """The report for people: one self-contained HTML page."""
    def save(self, path: str | os.PathLike[str]) -> None: ...

class Session:
    """A compiled model. Immutable: `run` may be called from several threads at once.

    threads: 0 means all, at most 1024. fuse: the graph is fused before it is compiled, as `optimize` does it without calibration; a file that is
    quantized keeps its integers, a float one its numbers but for the rounding of sums, and a file that octavo wrote stays as it
    is. False runs the graph as it stands. Warns (UserWarning) where products of a quantized file stay slow.
    max_memory: bytes of all tensors that reading, compiling or one run may hold at once; None: 768 MB, and four and a sixteenth of the number of elements of
    the inputs for each byte of the model. max_nodes: nodes that the model may have with its functions inlined; None: 200,000, and one for
    every 16 bytes of the model. Names that are no UTF-8 have lone surrogates for the other bytes, as names of files do (os.fsdecode).
    """

    def __init__(
        self,
        model: str | os.PathLike[str] | bytes,
        threads: int = 0,
        fuse: bool = True,
        max_memory: int | None = None,
        max_nodes: int | None = None,
    ) -> None: ...
    def run(
        self, inputs: Arrays, outputs: Sequence[str] | None = None, donate: Sequence[str] = ()
    ) -> list[NDArray[Any]]:
        """Outputs by name, or all in the model's order; theirs is the caller's memory. Inputs that are C-contiguous are not copied.

        donate: names of inputs that may be overwritten. A KV cache that TensorScatter (opset 24) appends to is then updated
        where it lies, and the output is that memory; without it the cache is copied in every step. None may share memory with another input.
        """
    @property
    def inputs(self) -> list[tuple[str, str]]: ...
    @property
    def outputs(self) -> list[tuple[str, str]]: ...
    @property
    def caches(self) -> dict[str, dict[str, Any]]:
        """KV caches that the model takes as codes, by input: output, dtype, scale, zero_point; code = round(x / scale) + zero_point."""
    @property
    def kernels(self) -> list[str]:
        """Which kernel each step got, in order."""
    @property
    def threads(self) -> int: ...

def load(
    model: str | os.PathLike[str] | bytes,
    threads: int = 0,
    fuse: bool = True,
    max_memory: int | None = None,
    max_nodes: int | None = None,
) -> Session: ...
def optimize(
    model: str | os.PathLike[str] | bytes,
    recipe: str = "int8",
    calibration: Iterable[Arrays] | str | os.PathLike[str] | bytes | None = None,
    calibrator: str = "mse",
    threads: int = 0,
    progress: Callable[[str, int, int], None] | None = None,
    reduce_range: bool = False,
    quantize_kv_cache: bool = False,
    keep_float: Sequence[str] = (),
    layers: bool = False,
    dynamic: Sequence[str] = (),
    min_db: float | None = None,
    fit: bool = True,
    max_memory: int | None = None,
    max_nodes: int | None = None,
) -> Result:
    """Fuses and quantizes.

    calibration: batches as dicts of arrays, a path as `octavo optimize --calib` takes it ("random:8" included), or the
    bytes that `calibrate` returned. weights4 and dynamic4 do without, and are nearer to the model with batches.
    reduce_range: int8 weights use 7 of their 8 bits: faster on CPUs without VNNI, and right sums in runtimes that saturate there.
    quantize_kv_cache: past keys and values enter, and present ones leave, as the 8-bit codes that attention reads: a quarter of the
    bytes, the same results (Session.caches).
    keep_float: Linears, attention cores and tables that are not quantized, by the names that report["candidates"] has; * and ?
    stand for letters.
    layers: report["layers"] tells which of them lose most; the first batch runs once for each, quantized alone.
    dynamic: Linears that recipe int8 gives an activation scale and zero point a row, made at run time; names as in keep_float.
    min_db: decibels that every output of the first batch keeps against the model as it was; the layers that lose most become dynamic
    (recipe int8), then float, as few as it takes. report["layers"] has the "type" of each, report["dynamic"] and report["keep_float"] the
    names. OctavoError where float does not keep them either.
    max_memory, max_nodes: as of Session.
    fit: with batches, codes of int8 and 4-bit weights make up for each other's errors on them, which takes another run of the batches.
    Warns (UserWarning) with each of report["notes"]. Ctrl-C ends it between two batches or two Linears.
    """

def calibrate(
    model: str | os.PathLike[str] | bytes,
    calibration: Iterable[Arrays] | str | os.PathLike[str],
    threads: int = 0,
    max_memory: int | None = None,
    max_nodes: int | None = None,
) -> bytes:
    """Ranges of the activations, for optimize(calibration=...); the same bytes as `octavo calibrate` writes."""

def cpu() -> str: ...
def onnxruntime_library() -> str:
    """Path of the library that gives ONNX Runtime (1.24 or later) octavo's kernels. octavo's ops then have
    the bits that they have in Session; what stands between them is ONNX Runtime's. Once for each SessionOptions.

    >>> options = onnxruntime.SessionOptions()
    >>> options.register_custom_ops_library(octavo.onnxruntime_library())
    >>> session = onnxruntime.InferenceSession("model.int8.onnx", options)
    """
