"""Pipelines: which passes run, in order."""

import json
import os

from . import _octavo
from ._octavo import OctavoError
from ._rules import compiled
from ._words import check, takes


@takes(plugins="paths")
def passes(plugins=()):
    """Every pass, in no particular order: dicts with name, what, takes, leaves, needs, version (None: octavo's own), options and rules."""
    return json.loads(_octavo._passes_json([os.fspath(p) for p in plugins]))["passes"]


class Pipeline:
    """Names of passes in order, to be edited: Pipeline("int8"), then .insert, .remove, .options.

    passes: names; "calibrate" is the place where ranges are gathered. keep_float, dynamic: names of nodes, as of optimize. options: {"weights4": {"block": 64}}.
    foreign: versions of the passes that are not octavo's own.
    """

    @takes(recipe="word", rules="list", plugins="paths")
    def __init__(self, recipe="int8", *, rules=(), plugins=()):
        self._read(_octavo._recipe_json(recipe, [compiled(r) for r in rules], [os.fspath(p) for p in plugins]))

    @classmethod
    def from_json(cls, text):
        """Of the text that to_json gives and that `octavo optimize --pipeline` reads."""
        pipeline = cls.__new__(cls)
        pipeline._read(_octavo._check_pipeline(text))
        return pipeline

    @classmethod
    def of(cls, model):
        """The pipeline that made an optimized model (a path, bytes or a Graph)."""
        graph = model if isinstance(model, _octavo.Graph) else _octavo.Graph(model)
        return cls.from_json(_octavo._pipeline_of(graph))

    def _read(self, text):
        read = json.loads(text)
        self.passes = read["passes"]
        self.keep_float, self.dynamic = read.get("keep_float", []), read.get("dynamic", [])
        self.options, self.foreign = read.get("options", {}), read.get("foreign", {})

    def to_json(self):
        text = {"octavo_pipeline": 1, "passes": list(self.passes)}
        for key in ("keep_float", "dynamic", "options", "foreign"):
            if getattr(self, key):
                text[key] = getattr(self, key)
        return _octavo._check_pipeline(json.dumps(text))

    def insert(self, name, *, after=None, before=None, version=None):
        """Puts a pass beside the first one of that name. version: of a pass that is not octavo's own."""
        beside = after if after is not None else before
        if (after is None) == (before is None) or beside not in self.passes:
            raise OctavoError(f"insert {name!r} after= or before= one of {', '.join(self.passes)}")
        self.passes.insert(self.passes.index(beside) + (after is not None), name)
        if version is not None:
            self.foreign[name] = version

    def remove(self, name):
        """Takes a pass out, wherever it stands."""
        if name not in self.passes:
            raise OctavoError(f"the pipeline has no pass {name!r}; it has {', '.join(self.passes)}")
        self.passes = [p for p in self.passes if p != name]
        self.options.pop(name, None)
        self.foreign.pop(name, None)

    def __eq__(self, other):
        return isinstance(other, Pipeline) and vars(self) == vars(other)

    def __repr__(self):
        return f"<Pipeline {' '.join(self.passes)}>"


def json_of(pipeline):
    """What optimize(pipeline=...) takes as JSON: a Pipeline, a dict, a .json or optimized .onnx file."""
    if pipeline is None:
        return None
    if isinstance(pipeline, Pipeline):
        return pipeline.to_json()
    if isinstance(pipeline, dict):
        return json.dumps(pipeline)
    check("optimize", "pipeline", pipeline, "path|mapping|none")
    path = os.fspath(pipeline)
    if os.fsdecode(path).endswith(".onnx"):
        return Pipeline.of(path).to_json()
    try:
        return _octavo._read(path, 1_000_000).decode("utf-8")
    except UnicodeDecodeError as error:
        raise OctavoError(f"the pipeline {os.fsdecode(path)!r} is no text in UTF-8: byte {error.start} is not; write it anew") from None
