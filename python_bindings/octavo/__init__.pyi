import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Callable, Literal, Never, Protocol, Self, overload

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "Generator", "Graph", "Match", "Node", "NodeArg", "OctavoError", "OctavoMemoryError", "Pipeline", "Port", "Result", "Rewriter", "Rule", "Session", "State", "Tuned", "Value", "__version__",
    "anything", "apply", "bench", "calibrate", "compare", "constant", "cpu", "ep_library", "explain", "image_batches", "inspect", "load", "merge_calibrations",
    "one_of", "onnxruntime_library", "optimize", "passes", "perplexity", "scalar", "session_options", "set_log", "split_if", "text_batches", "trace", "tune",
]

__version__: str

_Arrays = Mapping[str, NDArray[Any]]
# Called with a stage, how much is done and of how many (-1: not known).
_Progress = Callable[[str, int, int], None]

class _InMemory(Protocol):
    """An onnx.ModelProto with its weights loaded."""

    def SerializeToString(self) -> bytes: ...

class _OpenFile(Protocol):
    def read(self) -> bytes: ...

_Model = str | os.PathLike[str] | bytes | bytearray | memoryview | _InMemory | _OpenFile | Graph

class OctavoError(RuntimeError):
    """Something outside was wrong: one sentence with the place, the reason and the way out."""

class OctavoMemoryError(OctavoError, MemoryError):
    """Memory lacks, or a model declares more than max_memory allows."""

class _Type(type):
    """What pybind11 makes classes of."""

class _Made(metaclass=_Type):
    """What octavo alone makes: from a call of its own, or in a rule."""

    def __new__(cls, *args: Never, **kwargs: Never) -> Self: ...
    def __init__(self, *args: Never, **kwargs: Never) -> None: ...

class Result(_Made):
    @property
    def model(self) -> bytes:
        """The optimized ONNX file."""
    @property
    def report(self) -> dict[str, Any]:
        """What was found and what became of it, as `octavo optimize --json` writes it (schema 1)."""
    @property
    def html(self) -> str:
        """The report for people: one self-contained HTML page."""
    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the optimized ONNX file: whole or not at all."""
    def save_html(self, path: str | os.PathLike[str]) -> None:
        """Writes the report for people: one HTML file that needs nothing else."""
    def _repr_html_(self) -> str:
        """The report in a frame of its own, so that its style stays its own in a notebook."""

class Port(tuple[str, str]):
    """An input or output of a Session: the tuple (name, type), as ("x", "f32[batch,384]"), which knows its parts too.

    dtype: of the arrays that run() takes and gives. shape: numbers, names of symbols, None for a size without a name; None: the rank is not known.
    """

    name: str
    type: str
    dtype: np.dtype[Any] | None
    shape: list[int | str | None] | None
    def __new__(cls, name: str, type: str, dtype: np.dtype[Any] | None, shape: list[int | str | None] | None) -> Port: ...

class NodeArg:
    """The same as ONNX Runtime's InferenceSession tells it: name, type as "tensor(float)", shape."""

    name: str
    type: str
    shape: list[int | str | None] | None
    def __init__(self, port: Port) -> None: ...

class Session(metaclass=_Type):
    """A compiled model. Immutable: `run` may be called from several threads at once.

    threads: 0 means all, at most 1024. fuse: the graph is fused before it is compiled, as `optimize` does it without calibration; a file that is
    quantized keeps its integers, a float one its numbers but for the rounding of sums, and a file that octavo wrote stays as it
    is. False runs the graph as it stands. Warns (UserWarning) where products of a quantized file stay slow.
    max_memory: bytes of all tensors that reading, compiling or one run may hold at once; None: 768 MB, and four and a sixteenth of the number of elements of
    the inputs for each byte of the model. max_nodes: nodes that the model may have with its functions inlined; None: 200,000, and one for
    every 16 bytes of the model. Names that are no UTF-8 have lone surrogates for the other bytes, as names of files do (os.fsdecode).
    count_clipped: clipped() then tells how many values of a quantized model came to lie at an end of the range that calibration gave them; runs are slower.
    packed: a file that keeps the weights (integers and fp8) as products read them, for the next process that opens this model with this octavo on such a CPU:
    it maps them instead of packing them. True: beside the model's file, model.octavo-packed. What does not fit is made and written anew.
    logits_to_keep: a decoder gets the input `logits_to_keep` (int64, one number) if it has none: how many of the last tokens get logits, with the same bits;
    0: all. A prompt is read faster then. Refused where the logits are not made of each token's state by one product with weights.
    progress: called with a stage, how many MB of that file are written, and of how many.
    numa_node: threads and memory are on this node of memory of a machine with several (OCTAVO_NUMA_NODE where it is None).
    """

    def __init__(
        self,
        model: _Model,
        threads: int = 0,
        fuse: bool = True,
        max_memory: int | None = None,
        max_nodes: int | None = None,
        *,
        count_clipped: bool = False,
        packed: bool | str | os.PathLike[str] | None = None,
        logits_to_keep: bool = False,
        progress: _Progress | None = None,
        numa_node: int | None = None,
    ) -> None: ...
    @overload
    def run(
        self, inputs: _Arrays, outputs: Sequence[str] | None = None, donate: Sequence[str] = (), state: State | None = None
    ) -> list[NDArray[Any]]:
        """Outputs by name, or all in the model's order; theirs is the caller's memory. Inputs that are C-contiguous are not copied.

        Names may come first as in ONNX Runtime: run(None, inputs), run(["logits"], inputs). Other threads of Python go on meanwhile; from asyncio:
        await asyncio.to_thread(session.run, inputs).

        donate: names of inputs that may be overwritten. A KV cache that TensorScatter (opset 24) appends to is then updated
        where it lies, and the output is that memory; without it the cache is copied in every step. None may share memory with another input.

        state: has the KV caches and appends to them where they lie; they are left out of the inputs and of the outputs.
        """
    @overload
    def run(
        self, inputs: Sequence[str] | None, outputs: _Arrays, donate: Sequence[str] = (), state: State | None = None
    ) -> list[NDArray[Any]]: ...
    def run_together(
        self, inputs: Sequence[_Arrays], outputs: Sequence[str] | None = None, states: Sequence[State] | None = None
    ) -> list[list[NDArray[Any]]]:
        """Several runs at once, each with its own inputs and, if given, its own state; outputs as of run(), of each. Products over weights in integers
        read them once for all runs whose rows are alike, so eight sequences of a decoder take little more than one. The bits of each are those it has
        alone. A run that fails ends all of them.
        """
    def state(self, tokens: int = 0, *, cache: Literal["int8", "int4"] | None = None) -> State:
        """Empty caches for run(..., state=). tokens: memory for so many at once, else it grows by half whenever it is full; the length of caches
        of fixed length that the model does not tell. cache: "int8" keeps rows of f32 that are appended as codes of 8 bits, 0.28 of the memory, "int4" as codes of 4, 0.16; long texts are
        read faster, and the results are those of the rounded rows. None: caches as the model has them."""
    @property
    def inputs(self) -> list[Port]: ...
    @property
    def outputs(self) -> list[Port]: ...
    def get_inputs(self) -> list[NodeArg]:
        """The inputs as ONNX Runtime's sessions tell them: objects with name, type and shape."""
    def get_outputs(self) -> list[NodeArg]:
        """The outputs as ONNX Runtime's sessions tell them: objects with name, type and shape."""
    @property
    def caches(self) -> dict[str, dict[str, Any]]:
        """KV caches that the model takes as codes, by input: output, dtype, scale, zero_point; code = round(x / scale) + zero_point."""
    def clipped(self) -> dict[str, dict[str, Any]]:
        """Of each tensor of codes with a calibrated scale: node, range, and of all runs so far the values at its low and its high end, and the count of all. What
        lies beyond an end is cut off there: many on new data say that calibration did not see data like it. low is 0 where the range begins at 0 (ReLU).
        kind is "codes", or "ids" for an input that chooses rows of a table, by its name: range is what calibration saw (the file tells: octavo.ids), low and
        high are the ids below and above it, padding aside. Many are a sign of another tokenizer."""
    @property
    def packed(self) -> dict[str, Any] | None:
        """Of the option `packed`: file, and how many packed weights were taken from it and made anew. None without it."""
    @property
    def kernels(self) -> list[str]:
        """Which kernel each step got, in order."""
    @property
    def threads(self) -> int: ...

class State(_Made):
    """The KV caches of one sequence, or batch, between the runs of a Session: inputs that outputs carry on by Concat, TensorScatter, ScatterND or
    GroupQueryAttention. Rows are appended where the caches lie. In one run at a time; a run that fails leaves caches that grow as they were.
    """

    @property
    def inputs(self) -> list[str]:
        """Names of the inputs that it keeps."""
    def __len__(self) -> int:
        """Tokens in the caches that grow."""
    @property
    def nbytes(self) -> int:
        """Memory of the caches, with the room for tokens to come, and without rows that lie in the state from which this one was copied."""
    @property
    def least(self) -> int:
        """The fewest tokens that cut() can keep: 0, but where attention sees a window and what lies in front of it is no longer kept."""
    def reset(self) -> None:
        """No tokens again."""
    def cut(self, tokens: int) -> None:
        """Keeps the first tokens of caches that grow, as behind a guess that was wrong: 64 can always be taken back."""
    def copy(self) -> State:
        """The same tokens, in the same memory until both go on: a prompt is run once for all that follow it."""
    def caches(self) -> dict[str, NDArray[Any]]:
        """Copies of the caches, by input; zeros for tokens that no window sees any more."""

def load(
    model: _Model,
    threads: int = 0,
    fuse: bool = True,
    max_memory: int | None = None,
    max_nodes: int | None = None,
) -> Session: ...
class Generator:
    """Writes on behind prompts with a decoder in ONNX: inputs input_ids, attention_mask and position_ids, and caches that grow by tokens
    (past... as inputs, present... as outputs), which are kept from token to token; without caches everything is read again.

    tokenizer: the path of a tokenizer.json (needs the package tokenizers), or what has encode(text).ids and decode(ids); tokens() needs none.
    chunk: how many tokens of a prompt are read at once. cache: as of Session.state(). packed, progress: as of Session, which
    has its own where it is open already. Each call begins anew.
    """

    tokenizer: Any
    def __init__(
        self, model: str | os.PathLike[str] | bytes | Graph | Session, tokenizer: Any = None, *, threads: int = 0, chunk: int = 256,
        cache: Literal["int8", "int4"] | None = None, packed: bool | str | os.PathLike[str] | None = None,
        progress: _Progress | None = None,
    ) -> None: ...
    def tokens(
        self, prompt: Iterable[int], max_tokens: int = 128, *, temperature: float = 0.0, top_k: int = 0, top_p: float = 1.0, seed: int = 0,
        stop_tokens: Iterable[int] = (), lookup: int = 0,
    ) -> Iterable[int]:
        """Ids one after the other. temperature 0 takes the likeliest; else one is drawn of the top_k likeliest (0: of all) that together
        have the probability top_p. The same seed gives the same tokens. Ends behind a token of stop_tokens, which is not given.

        lookup: where the last tokens stood in prompt or text before, guesses that so many tokens follow as they did there, and reads them in one run; what the
        model tells otherwise is taken instead. The tokens are the same, up to the rounding of attention; texts that repeat their prompt come faster.
        """
    def many_tokens(self, prompts: Iterable[Iterable[int]], max_tokens: int = 128, *, at_once: int = 8, **how: Any) -> Iterable[tuple[int, int | None]]:
        """The place of a prompt, and a token, or None behind its last one, as they are made: at_once prompts are written on side by side, and when one ends, the next of prompts,
        which may be an iterator, takes its place. Each gets the tokens of tokens(prompt, seed=seed + place), whoever its neighbours are; products over weights
        in integers read them once for all (Session.run_together). What prompts have in common at their beginning (a system's prompt) is read once, in whole
        chunks."""
    def text(self, prompt: str, max_tokens: int = 128, *, stop: str | Iterable[str] = (), **how: Any) -> Iterable[str]:
        """The same as text, in pieces; ends before the first of the texts `stop`. how: as of tokens()."""
    def many(
        self, prompts: Iterable[str], max_tokens: int = 128, *, at_once: int = 8, stop: str | Iterable[str] = (), **how: Any
    ) -> Iterable[tuple[int, str | None]]:
        """The same of many prompts: the place of a prompt, and a piece of its text, or None behind the last."""

def perplexity(
    model: str | os.PathLike[str] | bytes | Graph | Session, tokens: Iterable[int], *,
    against: str | os.PathLike[str] | bytes | Graph | Session | None = None, window: int = 512, stride: int | None = None, chunk: int | None = None,
    threads: int = 0, cache: Literal["int8", "int4"] | None = None,
) -> dict[str, Any]:
    """tokens (told), perplexity; with `against` also kl, the mean divergence in nats of this model from that one, and top1, how often both find
    the same token likeliest. Windows do not see each other; they begin `stride` tokens apart (as many as they are long), and of each the tokens count that none
    before it told. chunk: read so many tokens of a window at once, behind the caches of those before (1: as generate does), not all without caches. cache: as of Session.state(), of `model`.
    """

# begin: api/write_options.py
def optimize(
    model: _Model,
    recipe: Literal["float", "int8", "fp8", "dynamic", "dynamic4", "weights4", "weights8", "quantized"] = "int8",
    calibration: Iterable[_Arrays] | str | os.PathLike[str] | bytes | None = None,
    calibrator: Literal["minmax", "moving_average", "percentile", "entropy", "mse"] = "mse",
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
    *,
    min_cosine: float | None = None,
    max_kl: float | None = None,
    bits: float | None = None,
    held_out: int = -1,
    calibrate_with: str = "octavo",
    rules: Iterable[Rule] = (),
    pipeline: Pipeline | dict[str, Any] | str | os.PathLike[str] | None = None,
    plugins: Iterable[str | os.PathLike[str]] = (),
    assume: Mapping[str, bool | int | float] | None = None,
    weights: str | os.PathLike[str] | None = None,
    measure: bool = False,
    record: bool = False,
    set: Mapping[str, bool | int | float | str] | None = None,
) -> Result:
    """Fuses and quantizes.

    recipe: float: fusions only; int8: static int8 with fused attention; needs calibration data; fp8: the same in E4M3FN; needs calibration
    data; dynamic: int8 products whose activations are quantized at run time; no data needed, weights are fitted to it where given;
    dynamic4: the same with weights of 4 bits: the fastest for one token at a time; weights4: weights alone to 4 bits in blocks, activations
    float; weights8: weights alone to 8 bits in blocks, activations float; quantized: fuses a graph that is quantized already (int8 of such
    a graph means this).
    calibration: batches as dicts of arrays, a path as `octavo optimize --calib` takes it ("random:8" included), or the bytes that
    calibrate() returned. weights4, dynamic and dynamic4 do without, and are nearer to the model with batches.
    calibrator: how a range is chosen from what was seen (recipes int8 and fp8).
    threads: threads for calibration, 0 for all; the file does not depend on it.
    progress: called with stage, done and total (-1: not known).
    reduce_range: int8 weights use 7 of their 8 bits: products a quarter faster on CPUs without VNNI, weights half as precise (recipes int8
    and dynamic). Sums are then right in runtimes that saturate there.
    quantize_kv_cache: past keys and values enter, and present ones leave, as the 8-bit codes that attention reads: a quarter of the bytes,
    the same results (recipes int8 and fp8). Session.caches and the file's metadata "octavo.caches" have scale and zero point.
    keep_float: each is a Linear, attention core or table that is not quantized, by its name in the table of results; * and ? stand for
    letters (every recipe but float and quantized). Names are those of report["candidates"].
    layers: tell which layers lose most: with calibration, its held_out samples run once for each, quantized alone (every recipe but float
    and quantized). report["layers"] has them.
    dynamic: each is a Linear whose activations recipe int8 quantizes at run time, with a scale and zero point a row, instead of one scale
    for all: nearer to float and about as fast; named as in keep_float (recipe int8).
    min_db: decibels that every output keeps against the model as it was on held_out samples of calibration: the layers that lose most
    become dynamic (recipe int8), then float, as few as it takes (every recipe but float and quantized). report["layers"] has the "type" of
    each, report["dynamic"] and report["keep_float"] the names. OctavoError where float does not keep them either.
    fit: False: weights get the codes nearest to them, where with calibration they would get codes that make up for each other's errors on
    its data: saves a run of the data, for large models two to four (every recipe but float, weights8 and quantized).
    max_memory: as of Session.
    max_nodes: as of Session.
    min_cosine: cosine that the rows of every output keep on the mean ((1 + R^2) / 2 of outputs of one number a row), else as min_db (every
    recipe but float and quantized).
    max_kl: Kullback-Leibler divergence that the rows of logits or probabilities lose at most on the mean, in nats, else as min_db (every
    recipe but float and quantized). OctavoError where no output has such rows.
    bits: bits that a weight's codes have on the mean, 4 to 8: those Linears that lose most by 4 bits get 8, by what their products lose on
    calibration, without data by what their weights lose (recipes dynamic4 and weights4). report["notes"] says how many do, the log which.
    held_out: samples of calibration (rows of its batches where these stand alone, else batches), spread over it, that neither calibration
    nor fitting sees, so that the loss told is that of new data; -1 is an eighth, none of fewer than eight; 0 tells the loss of the first
    eight rows or one batch, which were seen.
    calibrate_with: what runs the model on calibration: octavo, onnxruntime, or the path of a libonnxruntime.so; a note says whether octavo
    will run the file. onnxruntime is the installed package, if there is one.
    rules: your own rules, which recipes run behind the pass that each names (Rule.after); the report has a candidate of kind "rewrite" for
    each place, or the nearest miss, and the file records names and versions. What a rule raises ends the call and is raised here.
    pipeline: instead of the recipe's: a Pipeline, its JSON as a dict or file, or an optimized .onnx whose pipeline is replayed.
    plugins: shared objects with passes and rules (docs/extending.md).
    assume: inputs that always have these values, as {"use_cache_branch": True}: the model is made for them and no longer has the inputs; an
    If on one becomes one branch, which is fused and quantized.
    weights: a GGUF file whose tensors take the place of the model's weights, in the codes that they have (Q4_0, Q5_0, Q8_0, Q2_K to Q6_K,
    IQ4_NL, IQ4_XS, MXFP4; others become floats).
    measure: time the model as it was and as it is, in turn, on the first batch of calibration (else a random one): the report then has
    speed, the milliseconds of each layer, peak memory and a timeline, and report["measured"]; without it the same call makes the same page.
    record: the file tells data, loss and SHA-256 of model and data ("octavo.data", "octavo.loss", "octavo.sha256" of its metadata), not
    only version, calibrator and passes.
    set: options of passes, as {"weights4.block": 64}; passes() lists them.

    Warns (UserWarning) with each of report["notes"]. Ctrl-C ends it between two batches or two Linears.
    """
# end: api/write_options.py

def calibrate(
    model: _Model,
    calibration: Iterable[_Arrays] | str | os.PathLike[str],
    threads: int = 0,
    max_memory: int | None = None,
    max_nodes: int | None = None,
    progress: _Progress | None = None,
    *,
    with_: str = "octavo",
    shard: tuple[int, int] | None = None,
    moments: bool = False,
) -> bytes:
    """Ranges of the activations, for optimize(calibration=...); the same bytes as `octavo calibrate` writes. with_: as calibrate_with there; progress: as there.

    shard: (2, 8) takes the second of eight parts of the batches, for one of eight machines; merge_calibrations() joins what they give, to the bytes that one
    machine would have given. octavo.dask does that on a cluster.
    moments: gather what weights are fitted to, too, so that optimize(calibration=...) does that without the data; about 7 bytes for each pair of channels of
    an activation.
    """

def text_batches(
    texts: Iterable[str] | str | os.PathLike[str],
    tokenizer: Any,
    model: _Model | Session | None = None,
    *,
    batch_size: int | None = None,
    max_length: int = 128,
    without: Iterable[str] = (),
) -> list[dict[str, NDArray[Any]]]:
    """Batches of token ids for optimize(calibration=...), calibrate and compare.

    >>> batches = octavo.text_batches("texts.txt", "tokenizer.json", "model.onnx")
    >>> octavo.optimize("model.onnx", calibration=batches).save("model.int8.onnx")

    texts: some hundred as the model will see them; or a file of UTF-8 with one on each line. tokenizer: the path of a tokenizer.json (needs the
    package tokenizers), a tokenizers.Tokenizer, a fast tokenizer of transformers, or what has encode(text).ids. model: whose inputs get arrays
    (input_ids, attention_mask, token_type_ids, position_ids, and caches), in its types and, where it fixes them, sizes; None: ids
    and mask. Of a decoder with caches every second batch is the later half of its texts, behind caches that the model makes of the first
    (256 MB in all at most), the others have caches without tokens. batch_size: 32 unless given, fewer where that would be less than eight batches. max_length: tokens of a text at most. without: inputs to leave out, as those that optimize is told by assume.

    Texts of like lengths share a batch, the short ones first. Where a model has no attention_mask, the
    texts are joined and cut into rows that are full.
    """

def image_batches(
    images: Iterable[Any] | str | os.PathLike[str],
    processor: Any,
    model: _Model | Session,
    *,
    batch_size: int = 8,
    without: Iterable[str] = (),
) -> list[dict[str, NDArray[Any]]]:
    """Batches of pictures for optimize(calibration=...), calibrate and compare; needs the package pillow.

    >>> batches = octavo.image_batches("pictures/", "preprocessor_config.json", "model.onnx")
    >>> octavo.optimize("model.onnx", calibration=batches).save("model.int8.onnx")

    images: a folder, whose pictures are taken by name, those in folders within it too; or pictures of Pillow, or their paths; some hundred as the model
    will see them. processor: the path of the model's preprocessor_config.json, or its contents as a dict: size, crop, rescaling, mean and
    deviation are done as Hugging Face's processor of that class does them; or a function that makes an array [3, height, width] of a picture of Pillow.
    model: whose one input gets the arrays, in its type and, where it is fixed, its batch. without: inputs to leave out, as those that optimize is
    told by assume.
    """

def merge_calibrations(calibrations: Iterable[bytes | str | os.PathLike[str]]) -> bytes:
    """One calibration out of those of shards, in any order: bytes as calibrate() gives them, or paths of .calib files."""

def compare(
    a: _Model,
    b: _Model,
    data: Iterable[_Arrays] | str | os.PathLike[str],
    *,
    threads: int = 0,
    progress: _Progress | None = None,
    per_layer: bool = False,
) -> dict[str, Any]:
    """How far the outputs of model b are from those of model a.

    data: batches as dicts of arrays, or a path as `octavo compare --data` takes it ("random:8" included). Gives {"batches", "outputs"}, and
    for each output its name, sqnr_db, cosine, mean_row_cosine, max_abs, mean_abs; outputs of [b, s, ...] without the tokens that an attention mask hides.
    progress: called with a stage, how much is done and of how many (-1: not known). per_layer: b was made of a by octavo; "layers" then has where it
    loses, most noise of its own first: node, op, sqnr_db, enters_db (the worst of what it reads), own_db, clipped, flushed, advice.
    """
def bench(
    models: _Model | Sequence[_Model] | Mapping[str, _Model],
    inputs: _Arrays | None = None,
    *,
    shapes: Mapping[str, Sequence[int]] | None = None,
    threads: int | Sequence[int] = 0,
    seconds: float = 3.0,
    fuse: bool = True,
    progress: _Progress | None = None,
    against: str | Sequence[str] = (),
) -> dict[str, Any]:
    """Times models against each other, taking turns.

    models: one, a list of them, or a dict of them by the names that the table shall have. inputs: a dict of arrays; None: random ones, with the
    sizes of shapes, {"input_ids": (1, 128)}. threads: a number or several to try. seconds: for each. Gives {"cpu", "results"}: of each model
    its threads, shapes, runs, min_ms, median_ms, p90_ms, p99_ms, samples_per_s, speedup against the first, and kernels_ms.
    against: "onnxruntime" and "openvino" (packages of these names) run the same models on the same inputs, in turn; then results have the "runtime"
    instead of kernels_ms, or the "error" of one that cannot run the model.
    """
class Tuned:
    """The plan that tune() chose, and what it compared.

    result: as of optimize. name: of the plan, as "int8, 3 dynamic, 2 float". pipeline: what makes the model again, by optimize(pipeline=...) or `octavo optimize
    --pipeline`; save_plan writes it as JSON, to be read, edited and compared. baseline: the metric of the model as it was.
    plans: of each its name, recipe, ms (median), speedup (against octavo's float), bytes, metric, loss (a share of baseline; metric and loss are None
    where nobody asked), within (the budget) and front (no other is both faster and better); of plans between int8 and float keep_float and dynamic;
    reduce_range where weights have 7 bits (CPUs without VNNI).
    layers: where int8 missed, of each layer its node, kind, type in the chosen plan, alone_loss (what it alone loses: KL divergence of an output that has classes, else 1 - cosine), measured, float_ms, int8_ms.
    """

    result: Result
    name: str
    pipeline: Pipeline
    baseline: float
    plans: list[dict[str, Any]]
    layers: list[dict[str, Any]]
    def __init__(
        self, result: Result, plans: list[dict[str, Any]], chosen: str, baseline: float, layers: list[dict[str, Any]]
    ) -> None: ...
    @property
    def model(self) -> bytes: ...
    def save(self, path: str | os.PathLike[str]) -> None: ...
    def save_plan(self, path: str | os.PathLike[str]) -> None: ...
    def svg(self) -> str:
        """Milliseconds and metric of each plan, drawn."""
    def _repr_html_(self) -> str: ...

def tune(
    model: _Model,
    metric: Callable[[Session], float],
    calibration: Iterable[_Arrays] | str | os.PathLike[str],
    *,
    budget: float = 0.01,
    lower_is_better: bool = False,
    threads: int = 0,
    seconds: float = 1.0,
    inputs: _Arrays | None = None,
    everything: bool = False,
    progress: _Progress | None = None,
) -> Tuned:
    """The fastest plan that keeps a metric of yours.

    metric: gets a Session and gives a number, on data that calibration does not have; the higher the better, or with lower_is_better the lower.
    budget: the share of the model's own metric that may be lost, 0.005 for half a percent. calibration: as of optimize, but for .calib files. Plans are timed
    in turns for `seconds` each on inputs (the first batch of calibration, where that is a list; else random ones), then the metric is asked from the
    fastest to the slowest until one is within; everything: of all. Where int8 misses, layers leave it for a scale a row or for floats, those
    first that add most noise for their time, as few as it takes. It takes about three times as long as optimize, and the metric's own time.
    """

def inspect(model: _Model) -> dict[str, Any]:
    """What is in a model: inputs, outputs, ops, bytes, how it is quantized, and its attention cores with heads, masks and windows."""
def explain(model: _Model, rule: str = "", node: str = "") -> dict[str, Any]:
    """What fuses without data, and what the rest misses by: {"candidates", "near_misses"}.

    rule: near misses of this rule alone. node: only what concerns nodes whose name contains this.
    """
def trace(
    model: _Model,
    inputs: _Arrays | None = None,
    path: str | os.PathLike[str] | None = None,
    *,
    shapes: Mapping[str, Sequence[int]] | None = None,
    threads: int = 0,
    fuse: bool = True,
) -> dict[str, Any]:
    """The kernels of one run with their source nodes, as a Chrome trace (chrome://tracing, Perfetto): a dict, which path, if given, gets as a file.

    inputs and shapes: as of bench. The run is the second one: the first prepares what depends on shapes.
    """

def split_if(model: _Model, input: str) -> tuple[bytes, bytes]:
    """The model as two, where an If decides by an input (use_cache_branch of a merged decoder): with True, with False. Each has one branch and the
    inputs that it reads. Also of a model that optimize() made."""

class Value(_Made):
    """A tensor of a Graph: what a node makes, or an input."""

    @property
    def name(self) -> str: ...
    @property
    def type(self) -> str:
        """As "f32[batch,384]"; "?" where it is not known."""
    @property
    def dtype(self) -> str | None:
        """As "f32", "s64", "u8"; None: not known."""
    @property
    def shape(self) -> list[int | str | None] | None:
        """Numbers, the names of symbols, None for a size without a name; None: the rank is not known."""
    @property
    def producer(self) -> Node | None:
        """None: an input of the graph."""
    @property
    def users(self) -> list[Node]:
        """A node once for each operand that it reads the value as."""
    @property
    def constant(self) -> NDArray[Any] | None:
        """The array of a constant; None: it is none."""
    @property
    def is_output(self) -> bool: ...

class Node(_Made):
    """One op of a Graph."""

    @property
    def op(self) -> str: ...
    @property
    def domain(self) -> str: ...
    @property
    def name(self) -> str:
        """The name of the file's node that it came from."""
    @property
    def inputs(self) -> list[Value | None]:
        """None: an optional operand that is left out."""
    @property
    def outputs(self) -> list[Value | None]: ...
    @property
    def attrs(self) -> dict[str, Any]: ...
    @property
    def origin(self) -> list[str]:
        """Names of the file's nodes that it stands for, then "pass:NAME" of those who made it."""

class Rewriter(_Made):
    """Makes nodes: rewriter.Gelu(x, approximate="tanh"). Numbers take the type of the first tensor beside them."""

    def create(self, op: str, *operands: Any, _outputs: int = 1, _domain: str = "", **attributes: Any) -> Any:
        """The new value, or a list of them where _outputs is not 1."""
    def __getattr__(self, op: str) -> Callable[..., Any]: ...
    def at(self, node: Node) -> None:
        """New nodes stand before this one from here on, and are named after it."""
    def constant(self, array: NDArray[Any]) -> Value: ...
    def replace(self, old: Value, new: Value) -> None:
        """Whoever reads `old` reads `new` from here on. Types that contradict each other are an OctavoError."""
    def set_input(self, node: Node, index: int, value: Value) -> None: ...
    def set_attr(self, node: Node, name: str, value: Any) -> None: ...
    def erase_dead(self, node: Node) -> None:
        """Erases the node if nobody reads its outputs, and what only it read."""

class Graph(metaclass=_Type):
    """A model as a graph: to read, walk, change, check and write."""

    def __init__(
        self, model: _Model, max_memory: int | None = None, max_nodes: int | None = None
    ) -> None: ...
    @property
    def nodes(self) -> list[Node]:
        """In an order in which they can run."""
    @property
    def inputs(self) -> list[Value]: ...
    @property
    def outputs(self) -> dict[str, Value]: ...
    @property
    def metadata(self) -> dict[str, str]: ...
    def value(self, name: str) -> Value | None: ...
    def rewriter(self, name: str = "python") -> Rewriter: ...
    def infer(self) -> None:
        """Infers all types anew."""
    def verify(self) -> list[str]:
        """Puts the nodes in order; what is wrong with the graph, a sentence each."""
    def to_bytes(self) -> bytes: ...
    def save(self, path: str | os.PathLike[str]) -> None: ...
    def __len__(self) -> int: ...

class Match(_Made):
    """Which values of the graph the parts of a pattern stand for. Valid until check or rewrite returns."""

    def __getitem__(self, name: str) -> Value: ...
    def __contains__(self, name: str) -> bool: ...
    def get(self, name: str) -> Value | None: ...
    def number(self, name: str) -> float:
        """What a scalar of the pattern is in this match."""
    @property
    def nodes(self) -> list[Node]: ...

class Rule:
    """Replaces what its pattern describes (docs/extending.md)."""

    name: str | None
    version: str
    after: str
    before: str
    def pattern(self, op: Any, *inputs: Any) -> Any: ...
    def check(self, match: Match) -> str | None:
        """None, or a sentence that says why this match is left alone."""
    def rewrite(self, op: Rewriter, match: Match) -> Value | None:
        """The value that takes the place of the pattern's; None: the rewriter has made all replacements."""

anything: Any
def scalar(value: float | None = None, *, tolerance: float = 1e-6, name: str | None = None) -> Any:
    """In a pattern: a constant of one element, equal to value up to a relative tolerance; None: any number."""
def constant(name: str | None = None) -> Any:
    """In a pattern: any constant tensor."""
def one_of(*alternatives: Any) -> Any:
    """In a pattern: the first of these that matches."""
def apply(graph: Graph, passes: Iterable[str] = (), rules: Iterable[Rule] = ()) -> list[dict[str, str]]:
    """Runs passes, then rules, on the graph in place: {"node", "fate" ("rewritten", "left", "near miss"), "rule", "reason"} of each decision."""
def passes(plugins: Iterable[str | os.PathLike[str]] = ()) -> list[dict[str, Any]]:
    """Every pass: name, what, takes, leaves, needs, version (None: octavo's own), options, rules."""

class Pipeline:
    """Names of passes in order, to be edited: Pipeline("int8")."""

    passes: list[str]
    keep_float: list[str]
    dynamic: list[str]
    options: dict[str, dict[str, Any]]
    foreign: dict[str, str]
    def __init__(
        self, recipe: str = "int8", *, rules: Iterable[Rule] = (), plugins: Iterable[str | os.PathLike[str]] = ()
    ) -> None: ...
    @classmethod
    def from_json(cls, text: str) -> Pipeline: ...
    @classmethod
    def of(cls, model: _Model) -> Pipeline:
        """The pipeline that made an optimized model."""
    def to_json(self) -> str: ...
    def insert(self, name: str, *, after: str | None = None, before: str | None = None, version: str | None = None) -> None: ...
    def remove(self, name: str) -> None: ...

def cpu() -> str: ...
def set_log(level: Literal["off", "warning", "info", "debug"], callback: Callable[[str, str], object] | None = None) -> None:
    """What octavo tells of its work from here on, in this process: "off" (the default), "warning", "info" or "debug".

    Lines go to logging.getLogger("octavo"), whose own level counts too, or to callback(level, text), on whichever thread they come from.
    Before the first call the environment variable OCTAVO_LOG has the level, and lines go to stderr.

    >>> octavo.set_log("info")
    >>> logging.basicConfig(level=logging.INFO)
    """
def onnxruntime_library() -> str:
    """Path of the library that gives ONNX Runtime (1.24 or later) octavo's kernels. octavo's ops then have
    the bits that they have in Session; what stands between them is ONNX Runtime's. Once for each SessionOptions.

    >>> options = onnxruntime.SessionOptions()
    >>> options.register_custom_ops_library(octavo.onnxruntime_library())
    >>> session = onnxruntime.InferenceSession("model.int8.onnx", options)
    """

def ep_library() -> str:
    """Path of the execution provider for ONNX Runtime 1.24 and later: it takes whole parts of any model and leaves the rest to the CPU
    provider (before 1.27 also If, Loop and Scan).

    >>> onnxruntime.register_execution_provider_library("octavo", octavo.ep_library())
    >>> options = onnxruntime.SessionOptions()
    >>> devices = [d for d in onnxruntime.get_ep_devices() if d.ep_name == "OctavoExecutionProvider"]
    >>> options.add_provider_for_devices(devices, {"threads": "2"})
    >>> session = onnxruntime.InferenceSession("model.onnx", options)

    Options: threads (of octavo's own, 0: all; else those of the session are used), recipe ("dynamic" or another one that needs no data; else the model as it is).
    """

def session_options(options: Any = None, *, recipe: str | None = None, threads: int | None = None) -> Any:
    """onnxruntime.SessionOptions whose sessions run on octavo what it can compute, and the rest on ONNX Runtime's CPU provider.

    >>> session = onnxruntime.InferenceSession("model.onnx", octavo.session_options())

    `options` are your own, which get the provider; `recipe` and `threads` are ep_library's options. The providers must not be given to
    InferenceSession as well: ONNX Runtime would take those instead.
    """
