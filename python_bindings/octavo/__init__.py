"""octavo: fused int8 transformers for x86 CPUs.

>>> import octavo
>>> result = octavo.optimize("model.onnx", calibration=[{"input_ids": ids, "attention_mask": mask}])
>>> open("model.int8.onnx", "wb").write(result.model)
>>> outputs = octavo.Session("model.int8.onnx", threads=2).run({"input_ids": ids, "attention_mask": mask})
"""

import logging as _logging
import os as _os
import pathlib as _pathlib

from . import _octavo, _words
from ._octavo import (
    Graph,
    Match,
    Node,
    OctavoError,
    OctavoMemoryError,
    Result,
    Rewriter,
    Session,
    State,
    Value,
    __version__,
    cpu,
    load,
    split_if,
)
from ._generate import Generator, perplexity
from ._images import image_batches
from ._measure import bench, compare, explain, inspect, merge_calibrations, trace
from ._onnxruntime import runtime_of as _runtime_of
from ._onnxruntime import session_options_on as _session_options_on
from ._options import SIGNATURE as _SIGNATURE, arguments_of as _arguments_of, default as _default, doc as _options_doc
from ._pipeline import Pipeline, json_of as _json_of, passes
from ._program import program as _program
from ._results import NodeArg, Port
from ._rules import Rule, anything, compiled as _compiled, constant, one_of, scalar
from ._texts import text_batches
from ._tune import Tuned, tune

tune = _words.takes(
    budget="number", lower_is_better="flag", threads="whole", seconds="number", inputs="mapping", everything="flag", progress="function",
)(tune)
perplexity = _words.takes(tokens="wholes", window="whole", stride="whole", chunk="whole", threads="whole")(perplexity)
Generator.__init__ = _words.takes(threads="whole", chunk="whole")(Generator.__init__)
# Of optimize; those of the table are checked where they are read.
_OWN_KINDS = {"rules": "list", "plugins": "paths", "assume": "mapping|none", "set": "mapping|none"}

__all__ = [
    "Generator", "Graph", "Match", "Node", "NodeArg", "OctavoError", "OctavoMemoryError", "Pipeline", "Port", "Result", "Rewriter", "Rule", "Session", "State", "Tuned", "Value",
    "__version__", "anything", "apply", "bench", "calibrate", "compare", "constant", "cpu", "ep_library", "explain", "image_batches", "inspect", "load", "merge_calibrations",
    "one_of", "onnxruntime_library", "optimize", "passes", "perplexity", "scalar", "session_options", "set_log", "split_if", "text_batches", "trace", "tune",
]


def _call_of(given):
    """The call as a person would type it again: what is a default is left out, what has no short form is named."""
    words = []
    for name, value in given.items():
        if name != "model" and (value is _default(name) or type(value) is type(_default(name)) and value == _default(name)):
            continue
        plain = isinstance(value, (str, int, float, _os.PathLike, type(None))) or name in ("keep_float", "dynamic", "assume", "set")
        text = repr(_os.fspath(value)) if isinstance(value, _os.PathLike) else repr(value) if plain else "..."
        words.append(text if name == "model" else f"{name}={text}")
    return f"octavo.optimize({', '.join(words)})"


def optimize(model, *args, **arguments):
    given = _arguments_of(model, *args, **arguments)
    given["call"], given["program"] = _call_of(given), _os.fspath(_program() or "")
    for name, (kinds, value) in {name: (_OWN_KINDS[name], given[name]) for name in _OWN_KINDS}.items():
        _words.check("optimize", name, value, kinds)
    given["rules"] = [_compiled(rule) for rule in given["rules"]]
    given["pipeline"] = _json_of(given["pipeline"])
    given["plugins"] = [_os.fspath(plugin) for plugin in given["plugins"]]
    given["assume"] = [(name, str(value).lower()) for name, value in (given["assume"] or {}).items()]
    given["set"] = [f"{name}={str(value).lower() if isinstance(value, bool) else value}" for name, value in (given["set"] or {}).items()]
    given["calibrate_with"] = _runtime_of(given["calibrate_with"])
    return _octavo._optimize(given.pop("model"), given)


@_words.takes(threads="whole", max_memory="whole", max_nodes="whole", progress="function", with_="word", moments="flag")
def calibrate(model, calibration, threads=0, max_memory=None, max_nodes=None, progress=None, *, with_="octavo", shard=None, moments=False):
    """Ranges of the activations, for optimize(calibration=...); the same bytes as `octavo calibrate` writes. with_: as calibrate_with there; progress: as there.

    shard: (2, 8) takes the second of eight parts of the batches, for one of eight machines; merge_calibrations() joins what they give, to the bytes that one
    machine would have given. octavo.dask does that on a cluster.
    moments: gather what weights are fitted to, too, so that optimize(calibration=...) does that without the data; about 7 bytes for each pair of channels of
    an activation.
    """
    if shard is not None:
        whole = isinstance(shard, (tuple, list)) and len(shard) == 2 and all(type(number) is int for number in shard)
        if not whole or not 1 <= shard[0] <= shard[1]:
            raise OctavoError(f"shard is {shard!r}; it is (i, n) with i from 1 to n")
    return _octavo._calibrate(model, calibration, threads, max_memory, max_nodes, _runtime_of(with_), progress, shard, moments)


@_words.takes(passes="words", rules="list")
def apply(graph, passes=(), rules=()):
    """Runs passes, then rules, on a Graph in place and tells what became of which node: the way to try a rule out."""
    compiled = [_compiled(rule) for rule in rules]
    return _octavo._apply(graph, [*passes, *(rule.name for rule in compiled)], compiled)


_LEVELS = {"warning": _logging.WARNING, "info": _logging.INFO, "debug": _logging.DEBUG}


@_words.takes(level="word", callback="function")
def set_log(level, callback=None):
    """What octavo tells of its work from here on, in this process: "off" (the default), "warning", "info" or "debug".

    Lines go to logging.getLogger("octavo"), whose own level counts too, or to callback(level, text), on whichever thread they come from.
    """
    logger = _logging.getLogger("octavo")
    _octavo._set_log(level, callback or (lambda of, text: logger.log(_LEVELS[of], "%s", text)))


def _library(name):
    path = _pathlib.Path(__file__).parent / "libs" / name
    if not path.exists():
        raise OctavoError(f"'{path}' is missing: octavo was built without libonnxruntime-dev; install it and build again")
    return str(path)


def onnxruntime_library():
    """Path of the library that gives ONNX Runtime octavo's kernels, for SessionOptions.register_custom_ops_library."""
    return _library("liboctavo_onnxruntime.so")


def ep_library():
    """Path of the execution provider for ONNX Runtime 1.24 and later, for onnxruntime.register_execution_provider_library."""
    return _library("liboctavo_ep.so")


@_words.takes(recipe="word", threads="whole")
def session_options(options=None, *, recipe=None, threads=None):
    """onnxruntime.SessionOptions whose sessions run on octavo what it can compute, and the rest on ONNX Runtime's CPU provider."""
    return _session_options_on(ep_library(), options, {"recipe": recipe, "threads": threads})


_words.put_texts(globals())
optimize.__signature__, optimize.__doc__ = _SIGNATURE, _options_doc()
