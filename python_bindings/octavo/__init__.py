"""octavo: fused int8 transformers for x86 CPUs.

>>> import octavo
>>> result = octavo.optimize("model.onnx", calibration=[{"input_ids": ids, "attention_mask": mask}])
>>> open("model.int8.onnx", "wb").write(result.model)
>>> outputs = octavo.Session("model.int8.onnx", threads=2).run({"input_ids": ids, "attention_mask": mask})
"""

import os as _os
import pathlib as _pathlib

from . import _octavo
from ._octavo import (
    Graph,
    Match,
    Node,
    OctavoError,
    OctavoMemoryError,
    Result,
    Rewriter,
    Session,
    Value,
    __version__,
    calibrate,
    cpu,
    load,
)
from ._measure import bench, compare, explain, inspect, merge_calibrations, trace
from ._pipeline import Pipeline, json_of as _json_of, passes
from ._results import NodeArg, Port
from ._rules import Rule, anything, compiled as _compiled, constant, one_of, scalar

__all__ = [
    "Graph", "Match", "Node", "NodeArg", "OctavoError", "OctavoMemoryError", "Pipeline", "Port", "Result", "Rewriter", "Rule", "Session", "Value", "__version__",
    "anything", "apply", "bench", "calibrate", "compare", "constant", "cpu", "ep_library", "explain", "inspect", "load", "merge_calibrations", "one_of",
    "onnxruntime_library", "optimize", "passes", "scalar", "trace",
]


def optimize(
    model, recipe="int8", calibration=None, calibrator="mse", threads=0, progress=None, reduce_range=False,
    quantize_kv_cache=False, keep_float=(), layers=False, dynamic=(), min_db=None, fit=True, max_memory=None, max_nodes=None, *,
    rules=(), pipeline=None, plugins=(), assume=None,
):
    """Fuses and quantizes; __init__.pyi says what each argument is."""
    return _octavo._optimize(
        model, recipe, calibration, calibrator, threads, progress, reduce_range, quantize_kv_cache, list(keep_float), layers,
        list(dynamic), min_db, fit, max_memory, max_nodes, [_compiled(rule) for rule in rules], _json_of(pipeline),
        [_os.fspath(plugin) for plugin in plugins],
        [(name, str(value).lower()) for name, value in (assume or {}).items()])


def apply(graph, passes=(), rules=()):
    """Runs passes, then rules, on a Graph in place and tells what became of which node: the way to try a rule out."""
    compiled = [_compiled(rule) for rule in rules]
    return _octavo._apply(graph, [*passes, *(rule.name for rule in compiled)], compiled)


def _library(name):
    path = _pathlib.Path(__file__).with_name(name)
    if not path.exists():
        raise OctavoError(f"'{path}' is missing: octavo was built without libonnxruntime-dev; install it and build again")
    return str(path)


def onnxruntime_library():
    """Path of the library that gives ONNX Runtime octavo's kernels, for SessionOptions.register_custom_ops_library."""
    return _library("liboctavo_onnxruntime.so")


def ep_library():
    """Path of the execution provider for ONNX Runtime 1.24 and later, for onnxruntime.register_execution_provider_library."""
    return _library("liboctavo_ep.so")
