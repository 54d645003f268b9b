"""octavo: fused int8 transformers for x86 CPUs.

>>> import octavo
>>> result = octavo.optimize("model.onnx", calibration=[{"input_ids": ids, "attention_mask": mask}])
>>> open("model.int8.onnx", "wb").write(result.model)
>>> outputs = octavo.Session("model.int8.onnx", threads=2).run({"input_ids": ids, "attention_mask": mask})
"""

import pathlib as _pathlib

from ._octavo import (
    OctavoError,
    OctavoMemoryError,
    Result,
    Session,
    __version__,
    calibrate,
    cpu,
    load,
    optimize,
)

__all__ = ["OctavoError", "OctavoMemoryError", "Result", "Session", "__version__", "calibrate", "cpu", "load", "onnxruntime_library", "optimize"]


def onnxruntime_library():
    """Path of the library that gives ONNX Runtime octavo's kernels, for SessionOptions.register_custom_ops_library."""
    path = _pathlib.Path(__file__).with_name("liboctavo_onnxruntime.so")
    if not path.exists():
        raise OctavoError(f"'{path}' is missing: octavo was built without libonnxruntime-dev; install it and build again")
    return str(path)
