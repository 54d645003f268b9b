"""octavo in the installed package onnxruntime: where its shared library is, and sessions on octavo's execution provider."""

import importlib.util
import pathlib


def runtime_of(name):
    """The name of a runtime as the compiled module takes it: for "onnxruntime" the library of the package, where there is one."""
    spec = importlib.util.find_spec("onnxruntime") if name == "onnxruntime" else None
    for folder in (spec.submodule_search_locations or []) if spec else []:
        for path in sorted(pathlib.Path(folder, "capi").glob("libonnxruntime.so*")):
            return str(path)
    return name


def session_options_on(library, options, settings):
    """`options` with the execution provider of `library`, which this process registers once."""
    import onnxruntime

    name = "OctavoExecutionProvider"
    if not any(device.ep_name == name for device in onnxruntime.get_ep_devices()):
        onnxruntime.register_execution_provider_library("octavo", library)
    options = onnxruntime.SessionOptions() if options is None else options
    devices = [device for device in onnxruntime.get_ep_devices() if device.ep_name == name]
    options.add_provider_for_devices(devices, {key: str(value) for key, value in settings.items() if value is not None})
    return options
