"""What optimize says was lost: of which output, and by which layers."""

import re

import numpy as np
import onnx
import pytest
from conftest import read_json
from onnx import TensorProto, helper, numpy_helper


def test_logits_tell_what_was_lost_and_not_a_worse_cache(run, tmp_path):
    random = np.random.default_rng(8)
    weights = {name: random.standard_normal((64, 32)).astype(np.float32) for name in ("head", "cache")}
    weights["cache"][40] *= 300  # which leaves few codes to the others
    info = lambda name, *shape: helper.make_tensor_value_info(name, TensorProto.FLOAT, ["rows", *shape])  # noqa: E731
    nodes = [helper.make_node("MatMul", ["x", name], [out], name) for name, out in (("head", "logits"), ("cache", "present.0.key"))]
    graph = helper.make_graph(nodes, "g", [info("x", 64)], [info("logits", 32), info("present.0.key", 32)],
                                   [numpy_helper.from_array(w, name) for name, w in weights.items()])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), tmp_path / "decoder.onnx")
    x = random.standard_normal((48, 64)).astype(np.float32)
    x[:, 40] = 0
    np.savez(tmp_path / "x.npz", x=x)
    done = run("optimize", "decoder.onnx", "-o", "out.onnx", "--recipe", "dynamic", "--calib", "x.npz", "--json", "report.json", "--report", "report.html",
               "--no-measure", "--layers")
    assert done.returncode == 0, done.stderr
    report = read_json(tmp_path / "report.json")
    logits, cache = report["losses"]
    assert cache["sqnr_db"] < logits["sqnr_db"] and report["losses_of"]["output"] == "logits"
    line = next(line for line in done.stdout.splitlines() if line.startswith("against"))
    assert re.search(rf": 'logits' {logits['sqnr_db']:.1f} dB \(.*cosine .*; the same first choice in .*, KL .*\); of 2 outputs 'present.0.key' keeps least, "
                     rf"{cache['sqnr_db']:.1f} dB$", line), line
    verdict = (tmp_path / "report.html").read_text().split("class=verdict>")[1].split("</p>")[0]
    assert verdict.startswith("The output 'logits' keeps") and "KL" in verdict and "'present.0.key' keeps least" in verdict
    assert [layer["node"] for layer in report["layers"]] == ["head", "cache"] and report["layers"][0]["kl"] == pytest.approx(logits["kl"])
    assert "KL  share of the loss" in done.stdout
    done = run("optimize", "decoder.onnx", "-o", "out.onnx", "--recipe", "dynamic", "--calib", "x.npz", "--json", "report.json", "--max-kl", logits["kl"] / 2)
    assert done.returncode == 0, done.stderr
    assert "head" in read_json(tmp_path / "report.json")["keep_float"]  # and the one that reads the same activation
    assert f"for --max-kl {logits['kl'] / 2:g}: 0 of 2 layers dynamic, 2 in float" in done.stdout
