"""--calibrate-with: data runs through ONNX Runtime where octavo lacks an op (integrations/onnxruntime/session.h)."""

import json
import pathlib
import shutil

import numpy as np
import octavo
import onnx
import pytest
from conftest import BERT

ort = pytest.importorskip("onnxruntime", minversion="1.24", reason="no ONNX Runtime here: ./dev venv onnxruntime installs it")

UNBUILT = "octavo was built without libonnxruntime-dev and so cannot load ONNX Runtime"
WIDTH = 32


def library():
    found = sorted((pathlib.Path(ort.__file__).parent / "capi").glob("libonnxruntime.so*"))
    if not found:
        pytest.skip("no ONNX Runtime here: this package has no libonnxruntime.so")
    return found[0]


@pytest.fixture(scope="module")
def scaled(tmp_path_factory):
    """Attention behind an op of ai.onnx.ml that octavo lacks: path of the model, and data."""
    rng = np.random.default_rng(28)
    node, constants = onnx.helper.make_node, {f"w{n}": (rng.normal(size=(WIDTH, WIDTH)) / 6).astype(np.float32) for n in "qkvo"}
    constants |= {"rows": np.array([-1, 5, WIDTH]), "heads": np.array([0, 0, 4, 8]), "half": np.float32(0.35)}
    nodes = [node("Scaler", ["x"], ["s"], "scaler", domain="ai.onnx.ml", offset=[0.1] * WIDTH, scale=[2.0] * WIDTH), node("Reshape", ["s", "rows"], ["s3"])]
    for n in "qkv":
        nodes += [node("MatMul", ["s3", f"w{n}"], [n]), node("Reshape", [n, "heads"], [f"{n}4"]),
                  node("Transpose", [f"{n}4"], [f"{n}t"], perm=[0, 2, 3, 1] if n == "k" else [0, 2, 1, 3])]
    nodes += [node("MatMul", ["qt", "kt"], ["dots"]), node("Mul", ["dots", "half"], ["scores"]), node("Softmax", ["scores"], ["p"]), node("MatMul", ["p", "vt"], ["c"]),
              node("Transpose", ["c"], ["ct"], perm=[0, 2, 1, 3]), node("Reshape", ["ct", "rows"], ["c3"]), node("MatMul", ["c3", "wo"], ["y"])]
    value = onnx.helper.make_tensor_value_info
    graph = onnx.helper.make_graph(nodes, "scaled", [value("x", 1, ["n", WIDTH])], [value("y", 1, None)],
                                   [onnx.numpy_helper.from_array(np.asarray(v), k) for k, v in constants.items()])
    opsets = [onnx.helper.make_opsetid("", 18), onnx.helper.make_opsetid("ai.onnx.ml", 3)]
    path = tmp_path_factory.mktemp("scaled") / "scaled.onnx"
    onnx.save(onnx.helper.make_model(graph, opset_imports=opsets, ir_version=9), path)
    return path, [{"x": rng.normal(size=(10, WIDTH)).astype(np.float32)} for _ in range(3)]


def outputs(model, case):
    return ort.InferenceSession(model, providers=["CPUExecutionProvider"]).run(None, case)[0]


def test_what_octavo_cannot_run_is_optimized(scaled):
    path, data = scaled
    with pytest.raises(octavo.OctavoError, match="octavo has no implementation of ai.onnx.ml::Scaler; nothing runs it"):
        octavo.optimize(path, calibration=data)
    with pytest.warns(UserWarning, match="octavo itself will not run the file: node 'scaler'"):
        # ONNX Runtime's sums of 8 bits saturate on CPUs without VNNI (12 dB), those of 7 nowhere.
        result = octavo.optimize(path, calibration=data, calibrate_with="onnxruntime", reduce_range=True)
    assert result.report["attention"] == {"found": 1, "fused": 1} and result.report["linear"] == {"found": 4, "quantized": 4}
    with pytest.warns(UserWarning, match="saturate on CPUs without VNNI, so the file loses more there; reduce_range keeps"):
        octavo.optimize(path, calibration=data, calibrate_with="onnxruntime")
    want, got = outputs(str(path), data[0]), outputs(result.model, data[0])
    db = 10 * np.log10(np.sum(want**2) / np.sum((want - got) ** 2))
    assert db > 25
    assert result.report["losses"][0]["sqnr_db"] == pytest.approx(db, abs=0.01)


def test_ranges_are_those_of_octavo(tmp_path):
    arrays = np.load(BERT.with_suffix(".npz"))
    data = [{k.split("/", 2)[2]: arrays[k] for k in arrays.files if k.startswith("0/in/")}]
    own, theirs = octavo.calibrate(BERT, data), octavo.calibrate(BERT, data, with_="onnxruntime")
    results = [octavo.optimize(BERT, calibration=ranges, fit=False) for ranges in (own, theirs)]
    assert results[0].report["attention"] == results[1].report["attention"]
    a, b = (octavo.Session(r.model).run(data[0])[0] for r in results)
    assert np.sum((a - b) ** 2) < 1e-3 * np.sum(a**2)


def test_the_program(scaled, tmp_path, run):
    path, data = scaled
    for i, case in enumerate(data):
        np.savez(tmp_path / f"{i}.npz", **case)
    assert json.loads(run("inspect", path, "--json").stdout)["lacks"] == {"ai.onnx.ml::Scaler": 1}
    assert "octavo cannot run ai.onnx.ml::Scaler" in run("inspect", path).stdout
    run("optimize", path, "-o", tmp_path / "out.onnx", "--calib", tmp_path, "--calibrate-with", library())
    run("calibrate", path, "--data", tmp_path, "-o", tmp_path / "a.calib", "--with", library())
    run("optimize", path, "-o", tmp_path / "b.onnx", "--calib", tmp_path / "a.calib", "--calibrate-with", library())


def test_what_is_no_library_is_refused(scaled, tmp_path, monkeypatch):
    path, data = scaled
    octavo.calibrate(path, data, with_=str(library()))
    copy = shutil.copy(library(), tmp_path / "another.so")
    for name, why in [("nowhere.so", "ONNX Runtime cannot be loaded from 'nowhere.so': install it"), ("libm.so.6", "is no ONNX Runtime of 1.17 or later"),
                      (copy, "another ONNX Runtime than .* is loaded in this process already")]:
        with pytest.raises(octavo.OctavoError, match=f"{why}|{UNBUILT}"):
            octavo.calibrate(path, data, with_=str(name))
    monkeypatch.setenv("TMPDIR", str(tmp_path / "missing"))
    with pytest.raises(octavo.OctavoError, match=f"no folder for a copy of the graph can be made: TMPDIR says where|{UNBUILT}"):
        octavo.calibrate(path, data, with_="onnxruntime")


def test_texts_are_refused(tmp_path, run):
    node = onnx.helper.make_node("LabelEncoder", ["x"], ["s"], domain="ai.onnx.ml", keys_strings=["a", "b"], values_floats=[1.0, 2.0])
    weights = onnx.numpy_helper.from_array(np.eye(4, dtype=np.float32), "w")
    value = onnx.helper.make_tensor_value_info
    graph = onnx.helper.make_graph([node, onnx.helper.make_node("MatMul", ["s", "w"], ["y"])], "texts", [value("x", 8, ["n", 4])], [value("y", 1, ["n", 4])], [weights])
    opsets = [onnx.helper.make_opsetid("", 18), onnx.helper.make_opsetid("ai.onnx.ml", 3)]
    path = tmp_path / "texts.onnx"
    onnx.save(onnx.helper.make_model(graph, opset_imports=opsets, ir_version=9), path)
    folder = tmp_path / "data" / "test_data_set_0"
    folder.mkdir(parents=True)
    (folder / "input_0.pb").write_bytes(onnx.numpy_helper.from_array(np.array([["a", "b", "a", "b"]], object), "x").SerializeToString())
    done = run("calibrate", path, "--data", "data", "-o", "a.calib", "--with", library())
    assert done.returncode == 1 and any(why in done.stderr for why in ("ONNX Runtime is not given texts while data is gathered", UNBUILT)), done.stderr
