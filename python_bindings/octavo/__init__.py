"""octavo: fused int8 transformers for x86 CPUs.

>>> import octavo
>>> result = octavo.optimize("model.onnx", calibration=[{"input_ids": ids, "attention_mask": mask}])
>>> open("model.int8.onnx", "wb").write(result.model)
>>> outputs = octavo.Session("model.int8.onnx", threads=2).run({"input_ids": ids, "attention_mask": mask})
"""

from ._octavo import (
    OctavoError,
    Result,
    Session,
    __version__,
    calibrate,
    cpu,
    load,
    optimize,
)

__all__ = ["OctavoError", "Result", "Session", "__version__", "calibrate", "cpu", "load", "optimize"]
