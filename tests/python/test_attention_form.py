"""Float attention as ONNX Attention (opset 23), and graphs that arrive quantized, through the command line."""

import numpy as np
import onnx
import pytest
from conftest import BERT, read_json

QUANTIZED = BERT.parent.parent / "models" / "bert.ts17.sdpa.nncf.onnx"


def as_onnx23(run, tmp_path):
    done = run("optimize", BERT, "-o", "out.onnx", "--recipe", "float", "--attention", "onnx23", "-q")
    assert done.returncode == 0, done.stderr
    return onnx.load(tmp_path / "out.onnx")


def test_onnx23_holds_attention_nodes(run, tmp_path):
    model = as_onnx23(run, tmp_path)
    assert [o.version for o in model.opset_import if o.domain == ""] == [23]
    assert sum(n.op_type == "Attention" and n.domain == "" for n in model.graph.node) == 2
    assert not any(n.op_type.startswith("Sdpa") for n in model.graph.node)
    arrays = np.load(BERT.with_suffix(".npz"))
    np.savez(tmp_path / "in.npz", **{k.removeprefix("0/in/"): v for k, v in arrays.items() if k.startswith("0/in/")})
    done = run("run", "out.onnx", "--inputs", "in.npz", "--outputs", "y.npz")
    assert done.returncode == 0, done.stderr
    outputs = np.load(tmp_path / "y.npz")
    assert outputs.files
    for name in outputs.files:
        expected = arrays["0/out/" + name]
        assert np.abs(expected).max() > 0
        np.testing.assert_allclose(outputs[name], expected, atol=2e-4 * np.abs(expected).max())


@pytest.mark.skipif(onnx.defs.onnx_opset_version() < 23, reason="this onnx ends before opset 23: ./dev venv conformance installs one that knows it")
def test_onnx23_passes_the_checker(run, tmp_path):
    onnx.checker.check_model(as_onnx23(run, tmp_path), full_check=True)


def test_a_quantized_file_needs_no_calibration(run, tmp_path):
    done = run("optimize", QUANTIZED, "-o", "out.onnx", "--json", "report.json", "--require-fused", "qkv,sdpa", "-q")
    assert done.returncode == 0, done.stderr
    report = read_json(tmp_path / "report.json")
    assert report["attention"] == {"found": 2, "fused": 2}
    assert report["linear"]["quantized"] == report["linear"]["found"] > 0
    assert report["data"]["what"] == ""
