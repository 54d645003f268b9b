"""Every op of an exported file, also inside its functions, exists in the opset that the file imports."""

import numpy as np
import octavo
import onnx
import pytest
from conftest import SOURCE

DATA = SOURCE / "tests" / "data"
# Of opsets that the onnx package may be too old to know.
SINCE = {"Attention": 23, "RMSNormalization": 23, "RotaryEmbedding": 23, "Swish": 24, "TensorScatter": 24}


def graphs():
    paths = [*DATA.glob("float/*.onnx"), *DATA.glob("models/*.onnx")]
    return sorted(p for p in paths if p.stem.count(".") == 2 and ".ort-" not in p.stem and ".nncf" not in p.stem and ".fp8" not in p.stem)


def cases(path):
    arrays = np.load(path.with_suffix(".npz"))
    found = [{k.split("/", 2)[2]: arrays[k] for k in arrays.files if k.startswith(f"{case}/in/")} for case in (0, 1)]
    return [case for case in found if case]


def too_new(nodes, opsets):
    version = {entry.domain: entry.version for entry in opsets}[""]
    for node in nodes:
        if node.domain == "" and version < SINCE.get(node.op_type, 0):
            yield f"{node.op_type} in opset {version}"
        if node.domain == "" and node.op_type not in SINCE and not onnx.defs.has(node.op_type, max_inclusive_version=version):
            yield f"{node.op_type} in opset {version}"


@pytest.mark.parametrize("recipe", ["float", "int8", "fp8", "dynamic", "dynamic4", "weights4", "weights8"])
def test_ops_exist_in_the_opset_of_the_file(recipe):
    paths = graphs()
    assert len(paths) >= 8
    for path in paths:
        more = {"calibration": cases(path)} if recipe in ("int8", "fp8") else {}
        model = onnx.load_from_string(octavo.optimize(str(path), recipe=recipe, **more).model)
        assert list(too_new(model.graph.node, model.opset_import)) == [], path.name
        for function in model.functions:
            assert list(too_new(function.node, function.opset_import)) == [], (path.name, function.name)
            own = {entry.domain: entry.version for entry in function.opset_import}[""]
            assert own == {entry.domain: entry.version for entry in model.opset_import}[""], (path.name, function.name)


def test_fp8_files_pass_the_checker():
    checked = 0
    for path in graphs():
        model = onnx.load_from_string(octavo.optimize(str(path), recipe="fp8", calibration=cases(path)).model)
        if {entry.domain: entry.version for entry in model.opset_import}[""] > onnx.defs.onnx_opset_version():
            continue
        onnx.checker.check_model(model, full_check=True)  # with types: ONNX moves no fp8 before opset 21, and never by Expand
        checked += any(f.name.startswith("QuantizedSdpa") for f in model.functions)
    assert checked >= 5
