"""octavo in the installed package onnxruntime: where its shared library is, and sessions on octavo's execution provider."""

import importlib.util
import json
import pathlib

from . import _octavo
from ._octavo import OctavoError


def runtime_of(name):
    """The name of a runtime as the compiled module takes it: for "onnxruntime" the library of the package, where there is one."""
    spec = importlib.util.find_spec("onnxruntime") if name == "onnxruntime" else None
    for folder in (spec.submodule_search_locations or []) if spec else []:
        for path in sorted(pathlib.Path(folder, "capi").glob("libonnxruntime.so*")):
            return str(path)
    return name


def _check(recipe, threads):
    """What a session is refused for when it is made; ONNX Runtime before 1.32 prints that and goes on without octavo."""
    if threads is not None and not 0 <= threads <= 1024:
        raise OctavoError(f"session_options(): threads is {threads}; it takes 0 (all of the CPU) to 1024, or None for the session's own")
    if recipe is None:
        return
    of_data = {one["name"] for one in json.loads(_octavo._passes_json([]))["passes"] if one["needs"] == "ranges"}
    if of_data.intersection(json.loads(_octavo._recipe_json(recipe, [], []))["passes"]):
        raise OctavoError(f"session_options(): recipe '{recipe}' needs calibration data, which a session has not: open the file that octavo.optimize made, "
                          "or take a recipe without, as 'dynamic'")


def session_options_on(library, options, settings):
    """`options` with the execution provider of `library`, which this process registers once."""
    try:
        import onnxruntime
    except ImportError as error:
        raise OctavoError("session_options() needs the package onnxruntime, 1.24 or later: pip install onnxruntime") from error
    if not hasattr(onnxruntime, "get_ep_devices"):
        raise OctavoError(f"session_options() needs onnxruntime 1.24 or later, and {onnxruntime.__version__} is installed")
    if options is not None and not isinstance(options, onnxruntime.SessionOptions):
        raise TypeError(f"session_options(): options takes onnxruntime.SessionOptions or None, not {type(options).__name__}")
    _check(settings.get("recipe"), settings.get("threads"))
    name = "OctavoExecutionProvider"
    if not any(device.ep_name == name for device in onnxruntime.get_ep_devices()):
        onnxruntime.register_execution_provider_library("octavo", library)
    options = onnxruntime.SessionOptions() if options is None else options
    devices = [device for device in onnxruntime.get_ep_devices() if device.ep_name == name]
    options.add_provider_for_devices(devices, {key: str(value) for key, value in settings.items() if value is not None})
    return options
