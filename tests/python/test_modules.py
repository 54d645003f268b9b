"""A model as torch's dynamo exporter writes it (tests/data/modules): its modules name what tables and globs name, and stay in the file for viewers."""

import ast

import numpy as np
import octavo
import onnx
import pytest
from conftest import BERT, SOURCE, read_json

MODEL = SOURCE / "tests" / "data" / "modules" / "bert.onnx"


@pytest.fixture
def folder(tmp_path):
    random = np.random.default_rng(5)
    (tmp_path / "calib").mkdir()
    for number in range(3):
        np.savez(tmp_path / "calib" / f"{number}.npz", input_ids=random.integers(0, 20, (2, 9)), attention_mask=np.ones((2, 9), np.int64))
    return tmp_path


def optimized(run, folder, *more):
    done = run("optimize", MODEL, "-o", "o.onnx", "--calib", "calib", "--json", "o.json", "--report", "o.html", *more)
    assert done.returncode == 0, done.stderr
    return done.stdout, read_json(folder / "o.json")


def told(node):
    return {entry.key: entry.value for entry in node.metadata_props}


def test_tables_name_modules(run, folder):
    shown, report = optimized(run, folder, "--require-fused", "qkv,sdpa", "--layers")
    linears = {c["nodes"][0].split("/")[0] for c in report["candidates"] if c["kind"] == "linear"}
    parts = ("attention.self.query", "attention.self.key", "attention.self.value", "attention.output.dense", "intermediate.dense", "output.dense")
    assert linears == {f"encoder.layer.{layer}.{part}" for layer in range(2) for part in parts}
    assert [c["nodes"][0].split("/")[0] for c in report["candidates"] if c["kind"] == "attention"] == ["encoder.layer.0.attention.self", "encoder.layer.1.attention.self"]
    assert "encoder.layer.1.attention.self/node_" in shown
    assert all(layer["node"].startswith("encoder.layer.") for layer in report["layers"] if layer["kind"] != "table")


def test_a_glob_takes_a_layer(run, folder):
    kept = lambda report: {c["nodes"][0].split("/")[0] for c in report["candidates"] if c["kind"] == "linear" and c["status"] == "left"}
    _, report = optimized(run, folder, "--keep-float", "encoder.layer.0.*")
    assert len(kept(report)) == 6 and all(name.startswith("encoder.layer.0.") for name in kept(report))
    assert {c["nodes"][0].split("/")[0]: c["rule"] for c in report["candidates"] if c["kind"] == "attention"} == {
        "encoder.layer.0.attention.self": "sdpa", "encoder.layer.1.attention.self": "quantized_sdpa"}
    _, report = optimized(run, folder, "--keep-float", "*.query/*")
    assert kept(report) == {f"encoder.layer.{layer}.attention.self.query" for layer in range(2)}
    (plain,) = [node.name for node in onnx.load(MODEL).graph.node if node.op_type == "MatMul" and "layer.1.intermediate" in told(node)["namespace"]]
    _, report = optimized(run, folder, "--keep-float", plain)  # its own name alone
    assert kept(report) == {"encoder.layer.1.intermediate.dense"}


def test_the_same_glob_takes_a_layer_of_torchscript():
    """Which writes the modules' path into the names of nodes."""
    for glob, left in (("m.encoder.layer.0.*", 6), ("*.query/*", 2), ("/m/encoder/layer.0/*", 6)):
        report = octavo.optimize(BERT, recipe="dynamic", keep_float=[glob]).report
        names = [c["nodes"][0] for c in report["candidates"] if c["kind"] == "linear" and c["status"] == "left"]
        assert len(names) == left and all("layer.0" in name or "query" in name for name in names), names


def test_fused_nodes_keep_the_hierarchy(run, folder):
    optimized(run, folder)
    model = onnx.load(folder / "o.onnx")
    of = {}
    for node in model.graph.node:
        of.setdefault(node.op_type.split("__")[0], []).append((node, told(node)))
    for layer, (node, what) in enumerate(of["QuantizedSdpa"]):
        assert ast.literal_eval(what["pkg.torch.onnx.name_scopes"]) == [
            "", "encoder", *(f"encoder.layer.{layer}{part}" for part in ("", ".attention", ".attention.self")), node.name]
        classes = ast.literal_eval(what["pkg.torch.onnx.class_hierarchy"])
        assert [name.rsplit(".", 1)[-1] for name in classes[:-1]] == ["BertModel", "BertEncoder", "BertLayer", "BertAttention", "BertSelfAttention"]
        assert classes[-1] == f"octavo.{node.op_type}"
        assert what["namespace"].startswith(": transformers.") and what["namespace"].endswith(f"/{node.name}: octavo.{node.op_type}")
        assert f"encoder.layer.{layer}.attention.self/" in what["octavo.origin"]
    again = octavo.Graph(folder / "o.onnx")
    assert any(node.name.startswith("encoder.layer.1.") for node in again.nodes)
    assert {node.name: told(node) for node in onnx.load_from_string(again.to_bytes()).graph.node} == {node.name: told(node) for node in model.graph.node}


def test_the_report_has_a_line_for_each_layer(run, folder):
    optimized(run, folder)
    page = (folder / "o.html").read_text(encoding="utf-8")
    assert "encoder.layer.0.attention.self/" in page and "octavo.modules" not in page
