"""Where the installed package onnxruntime has its shared library."""

import importlib.util
import pathlib


def runtime_of(name):
    """The name of a runtime as the compiled module takes it: for "onnxruntime" the library of the package, where there is one."""
    spec = importlib.util.find_spec("onnxruntime") if name == "onnxruntime" else None
    for folder in (spec.submodule_search_locations or []) if spec else []:
        for path in sorted(pathlib.Path(folder, "capi").glob("libonnxruntime.so*")):
            return str(path)
    return name
