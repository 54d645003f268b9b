"""A model whose weights are more than optimizing it may take: they lie in a file beside it, and are let go of one after the other."""

import json
import subprocess
import sys

import onnx
import pytest
from octavo._program import program
from onnx import TensorProto, helper

SIZE, LAYERS = 4096, 6
WEIGHT = 4 * SIZE * SIZE
# The peak of a child's memory in bytes, pages of mapped files among them.
PEAK = """
import json, resource, subprocess, sys
done = subprocess.run(sys.argv[1:], capture_output=True, text=True)
print(json.dumps([done.returncode, done.stderr, 1024 * resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss]))
"""


def model(folder):
    """Linears one behind another, whose weights are zeros but for their first row: a file with holes."""
    nodes, weights = [], []
    with open(folder / "weights", "wb") as file:
        for i in range(LAYERS):
            weight = onnx.TensorProto(name=f"w{i}", data_type=TensorProto.FLOAT, dims=[SIZE, SIZE], data_location=TensorProto.EXTERNAL)
            for key, value in {"location": "weights", "offset": i * WEIGHT, "length": WEIGHT}.items():
                weight.external_data.add(key=key, value=str(value))
            weights.append(weight)
            file.seek(i * WEIGHT)
            file.write(bytes([0, 0, 128, 60 + i]) * SIZE)
            nodes.append(helper.make_node("MatMul", [f"x{i}", f"w{i}"], [f"x{i + 1}"], name=f"layer{i}"))
        file.truncate(LAYERS * WEIGHT)
    info = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["rows", SIZE]) for name in ("x0", f"x{LAYERS}")]
    graph = helper.make_graph(nodes, "large", info[:1], info[1:], weights)
    path = folder / "large.onnx"
    path.write_bytes(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10).SerializeToString())
    return path


@pytest.mark.parametrize("recipe", ["weights4", "dynamic"])
def test_the_peak_is_less_than_the_weights(tmp_path, recipe):
    command = [program(), "optimize", model(tmp_path), "-o", tmp_path / "out.onnx", "--recipe", recipe, "--threads", "1"]
    code, error, peak = json.loads(subprocess.run([sys.executable, "-c", PEAK, *command], capture_output=True, text=True, check=True).stdout)
    assert code == 0, error
    result = (tmp_path / "out.onnx").stat().st_size
    # The result as constants and as a message, a weight or two, and the program.
    assert peak < 2 * result + 2 * WEIGHT + (64 << 20) < LAYERS * WEIGHT + result
