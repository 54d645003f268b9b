"""What a person asks about models: compare, bench, inspect, explain and trace give the dicts that cli/JSON.md describes."""

import json as _json
import os as _os

from . import _octavo
from ._words import check, takes


def _name(model, number):
    """How a table calls a model: its path, or its place in the call."""
    return _os.fspath(model) if isinstance(model, (str, _os.PathLike)) else f"model {number}"


def _shapes(shapes):
    for name, shape in (shapes or {}).items():
        check("shapes", f"{name!r}", shape, "list")
        for size in shape:
            check("shapes", f"a size of {name!r}", size, "whole")
    return {name: [int(size) for size in shape] for name, shape in (shapes or {}).items()}


def compare(a, b, data, *, threads=0, progress=None, per_layer=False):
    """How far the outputs of model b are from those of model a.

    data: batches as dicts of arrays, or a path as `octavo compare --data` takes it ("random:8" included). Gives {"batches", "outputs"}, and
    for each output its name, sqnr_db, cosine, mean_row_cosine, max_abs, mean_abs; outputs of [b, s, ...] without the tokens that an attention mask hides.
    progress: called with a stage, how much is done and of how many (-1: not known). per_layer: b was made of a by octavo; "layers" then has where it
    loses, most noise of its own first: node, op, sqnr_db, enters_db (the worst of what it reads), own_db, clipped, flushed, advice.
    """
    return _json.loads(_octavo._compare(a, b, data, threads, progress, per_layer))


@takes(inputs="mapping", shapes="mapping", threads="whole|wholes", seconds="number", fuse="flag", progress="function", against="word|words")
def bench(models, inputs=None, *, shapes=None, threads=0, seconds=3.0, fuse=True, progress=None, against=()):
    """Times models against each other, taking turns.

    models: one, a list of them, or a dict of them by the names that the table shall have. inputs: a dict of arrays; None: random ones, with the
    sizes of shapes, {"input_ids": (1, 128)}. threads: a number or several to try. seconds: for each. Gives {"cpu", "results"}: of each model
    its threads, shapes, runs, min_ms, median_ms, p90_ms, p99_ms, samples_per_s, speedup against the first, and kernels_ms.
    against: "onnxruntime" and "openvino" (packages of these names) run the same models on the same inputs, in turn; then results have the "runtime"
    instead of kernels_ms, or the "error" of one that cannot run the model.
    """
    if isinstance(models, dict):
        named = list(models.items())
    else:
        several = models if isinstance(models, (list, tuple)) else [models]
        named = [(_name(model, number), model) for number, model in enumerate(several, 1)]
    if not named:
        raise _octavo.OctavoError("there is no model to time; give one or more")
    counts = [threads] if isinstance(threads, int) else list(threads)
    if against:
        from . import _against

        batches = {name: [_against.batch_of(model, inputs, _shapes(shapes))] for name, model in named}
        return _against.bench(named, batches, [against] if isinstance(against, str) else list(against), threads=counts, seconds=seconds, fuse=fuse, progress=progress)
    return _json.loads(_octavo._bench(named, inputs, _shapes(shapes), counts, seconds, fuse, progress))


def inspect(model):
    """What is in a model: inputs, outputs, ops, bytes, how it is quantized, and its attention cores with heads, masks and windows."""
    return _json.loads(_octavo._inspect(model))


def explain(model, rule="", node=""):
    """What fuses without data, and what the rest misses by: {"candidates", "near_misses"}.

    rule: near misses of this rule alone. node: only what concerns nodes whose name contains this.
    """
    return _json.loads(_octavo._explain(model, rule, node))


@takes(inputs="mapping", path="path", shapes="mapping", threads="whole", fuse="flag")
def trace(model, inputs=None, path=None, *, shapes=None, threads=0, fuse=True):
    """The kernels of one run with their source nodes, as a Chrome trace (chrome://tracing, Perfetto): a dict, which path, if given, gets as a file.

    inputs and shapes: as of bench. The run is the second one: the first prepares what depends on shapes.
    """
    text = _octavo._trace(model, inputs, _shapes(shapes), threads, fuse)
    if path is not None:
        _octavo._write(path, text)
    return _json.loads(text)


@takes(calibrations="list")
def merge_calibrations(calibrations):
    """One calibration out of those of shards, in any order: bytes as calibrate() gives them, or paths of .calib files."""
    return _octavo._merge(list(calibrations))
