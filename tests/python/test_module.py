"""The Python face: optimize, Session, calibrate, and errors as exceptions with a sentence."""

import re
import subprocess
import sys
import threading
import tomllib
import warnings
import weakref

import numpy as np
import octavo
import pytest
from conftest import BERT, SOURCE, batch, inputs_of
from onnx import TensorProto, helper, numpy_helper


def batches(n=3):
    session = octavo.Session(BERT, threads=1)
    return [inputs_of(session, batch(seed)) for seed in range(n)]


def test_optimize_and_run():
    data = batches()
    result = octavo.optimize(BERT, calibration=data)
    assert result.report["attention"] == {"found": 2, "fused": 2}
    assert result.html.startswith("<!doctype html>")
    fused = octavo.Session(result.model, threads=2)
    assert any(k.startswith("qkv_int8") for k in fused.kernels)
    want = octavo.Session(BERT, threads=1).run(data[0])
    got = fused.run(data[0])
    assert len(want) == len(got) == len(fused.outputs)
    for a, b in zip(want, got):
        assert a.shape == b.shape and a.dtype == b.dtype
        error = np.linalg.norm(a - b) / np.linalg.norm(a)
        assert 0 < error < 0.2


def test_what_is_kept_in_float_is_told_and_recorded():
    name = next(c["nodes"][0] for c in octavo.optimize(BERT, recipe="dynamic").report["candidates"] if c["kind"] == "linear")
    report = octavo.optimize(BERT, recipe="dynamic", calibration=batches(1), keep_float=[name]).report
    assert [c["reason"] for c in report["candidates"] if c["nodes"][0] == name and c["kind"] == "linear"] == ["stays float, as asked"]
    assert report["linear"]["quantized"] == report["linear"]["found"] - 1 and report["layers"] == []
    layers = octavo.optimize(BERT, calibration=batches(1), keep_float=[name], layers=True).report["layers"]
    assert len(layers) >= report["linear"]["found"] - 1 and name not in [layer["node"] for layer in layers]
    assert sum(layer["share"] for layer in layers) == pytest.approx(1)
    assert [layer["share"] for layer in layers] == sorted((layer["share"] for layer in layers), reverse=True)
    with pytest.raises(octavo.OctavoError, match="is called 'nobody'"):
        octavo.optimize(BERT, recipe="dynamic", keep_float=["nobody"])


def test_min_db_chooses_types():
    before = octavo.optimize(BERT, calibration=batches(1)).report
    want = before["losses"][0]["sqnr_db"] + 2
    result = octavo.optimize(BERT, calibration=batches(1), min_db=want)
    assert result.report["losses"][0]["sqnr_db"] >= want
    assert result.report["dynamic"] or result.report["keep_float"]
    names = result.report["dynamic"]
    again = octavo.optimize(BERT, calibration=batches(1), dynamic=names, keep_float=result.report["keep_float"])
    assert again.model == result.model


def test_bytes_paths_and_calibration_bytes_give_the_same_model():
    data = batches()
    fitted = octavo.optimize(str(BERT), calibration=data)
    assert octavo.optimize(BERT.read_bytes(), calibration=(b for b in data)).model == fitted.model  # an iterator, pulled once
    ranges = octavo.calibrate(BERT, data)
    with pytest.warns(UserWarning, match="holds ranges"):
        of_ranges = octavo.optimize(BERT, calibration=ranges)
    assert of_ranges.model == octavo.optimize(BERT, calibration=data, fit=False, held_out=0).model != fitted.model


def test_calibrate_holds_no_batch_that_a_generator_is_past():
    seen, most = [], 0

    def generator(data):
        nonlocal most
        for arrays in data:
            own = {name: values.copy() for name, values in arrays.items()}
            seen.append(weakref.ref(own["input_ids"]))
            yield own
            del own
            most = max(most, sum(array() is not None for array in seen))

    data = batches(8)
    assert octavo.calibrate(BERT, generator(data)) == octavo.calibrate(BERT, data)
    assert len(seen) == 8 and 1 <= most <= 2


def test_outputs_by_name_and_threads_share_a_session():
    data = batches(4)
    session = octavo.load(octavo.optimize(BERT, calibration=data).model, threads=1)
    name = session.outputs[-1][0]
    want = [session.run(d, [name])[0] for d in data]
    got = [None] * len(data)

    def work(i):
        for _ in range(5):
            got[i] = session.run(data[i], outputs=[name])[0]

    threads = [threading.Thread(target=work, args=(i,)) for i in range(len(data))]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    for a, b in zip(want, got):
        assert np.array_equal(a, b)


def test_errors_are_exceptions_with_a_sentence(tmp_path):
    with pytest.raises(octavo.OctavoError, match="none.onnx"):
        octavo.Session(tmp_path / "none.onnx")
    session = octavo.Session(BERT, threads=1)
    with pytest.raises(octavo.OctavoError, match=session.inputs[0][0]):
        session.run({})
    with pytest.raises(octavo.OctavoError, match="calibration data"):
        octavo.optimize(BERT)
    with pytest.raises(octavo.OctavoError, match="no output 'nothing'"):
        session.run(batches(1)[0], ["nothing"])


def test_a_session_fuses_what_it_opens():
    path = SOURCE / "tests/data/models/sdpa_plain.ts17.ort-qdq-u8s8.onnx"
    data = {k.removeprefix("0/in/"): v for k, v in np.load(path.with_suffix(".npz")).items() if k.startswith("0/in/")}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fused = octavo.Session(str(path), threads=1)
        as_it_is = octavo.load(str(path), threads=1, fuse=False)
    assert any("sdpa_int8" in k for k in fused.kernels)
    assert not any("sdpa" in k for k in as_it_is.kernels)
    for a, b in zip(fused.run(data), as_it_is.run(data)):
        assert np.array_equal(a, b)


def test_products_that_stay_slow_are_a_warning():
    graph = helper.make_graph(
        [helper.make_node("MatMulInteger", ["a", "b"], ["y"])], "g",
        [helper.make_tensor_value_info(n, TensorProto.UINT8, [4, 4]) for n in "ab"],
        [helper.make_tensor_value_info("y", TensorProto.INT32, [4, 4])])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)])
    with pytest.warns(UserWarning, match=r"slowly.*octavo\.optimize\(model\)"):
        octavo.Session(model.SerializeToString(), threads=1)


def test_non_contiguous_and_narrow_inputs():
    data = batches(1)[0]
    session = octavo.Session(BERT, threads=1)
    want = session.run(data)
    wide = {k: np.repeat(v, 2, axis=1)[:, ::2] for k, v in data.items()}
    narrow = {k: v.astype(np.int32) for k, v in data.items()}
    for other in (wide, narrow):
        for a, b in zip(want, session.run(other)):
            assert np.array_equal(a, b)


def test_progress_is_called():
    calls = []
    octavo.optimize(BERT, calibration=batches(), progress=lambda *a: calls.append(a))
    assert ("calibrate", 3, 3) in calls


def cache_model():
    """present = TensorScatter(past [1,2,6,4], new [1,2,s,4], at [1]), opset 24."""
    info = helper.make_tensor_value_info
    graph = helper.make_graph(
        [helper.make_node("TensorScatter", ["past", "new", "at"], ["present"])], "cache",
        [info("past", TensorProto.FLOAT, [1, 2, 6, 4]), info("new", TensorProto.FLOAT, [1, 2, "s", 4]),
         info("at", TensorProto.INT64, [1])],
        [info("present", TensorProto.FLOAT, [1, 2, 6, 4])])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 24)])
    model.ir_version = 10
    return model.SerializeToString()


def test_a_donated_cache_is_updated_where_it_lies():
    session = octavo.Session(cache_model(), threads=1)
    cache = np.zeros((1, 2, 6, 4), np.float32)
    want = cache.copy()
    for step in range(3):
        new = np.full((1, 2, 1, 4), step + 1.0, np.float32)
        want[:, :, step : step + 1] = new
        inputs = {"past": cache, "new": new, "at": np.array([step])}
        (copied,) = session.run(inputs)
        assert not np.shares_memory(copied, cache) and not np.array_equal(cache, want)
        (present,) = session.run(inputs, donate=["past"])
        assert np.shares_memory(present, cache)
        assert np.array_equal(copied, want) and np.array_equal(cache, want)
        cache = present
    with pytest.raises(octavo.OctavoError, match="'pst' is donated, but it is not among the inputs"):
        session.run(inputs, donate=["pst"])
    (present,) = session.run({**inputs, "past": np.full_like(cache, np.nan)})  # rows that nobody has written yet
    assert np.isnan(present).sum() == present.size - inputs["new"].size
    cache.flags.writeable = False
    with pytest.raises(octavo.OctavoError, match="'past' is donated, but it is read-only"):
        session.run({**inputs, "past": cache}, donate=["past"])


def with_constant_output():
    """y = x, c (a constant), z = x + c."""
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [3])
    outs = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [3]) for n in ("y", "c", "z")]
    nodes = [helper.make_node("Identity", ["x"], ["y"]), helper.make_node("Identity", ["k"], ["c"]),
             helper.make_node("Add", ["x", "k"], ["z"])]
    graph = helper.make_graph(nodes, "g", [x], outs, [numpy_helper.from_array(np.ones(3, np.float32), "k")])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)]).SerializeToString()


@pytest.mark.parametrize("fuse", [True, False])
def test_what_a_caller_writes_into_an_output_is_the_callers_alone(fuse):
    session = octavo.Session(with_constant_output(), threads=1, fuse=fuse)
    x = np.arange(3, dtype=np.float32)
    for outputs in (None, ["y", "c", "y"]):
        for got in session.run({"x": x}, outputs=outputs):
            got[:] = 99
        assert x.tolist() == [0, 1, 2]
        assert [o.tolist() for o in session.run({"x": x})] == [[0, 1, 2], [1, 1, 1], [1, 2, 3]]
    x.flags.writeable = False
    session.run({"x": x})[0][:] = 5
    assert x.tolist() == [0, 1, 2]


def test_arrays_of_any_byte_order_and_mappings_of_any_kind_are_read(tmp_path):
    session = octavo.Session(with_constant_output(), threads=1)
    x = np.array([1, 2, 3], np.float32)
    np.savez(tmp_path / "x.npz", x=x)
    for inputs in ({"x": x.astype(">f4")}, {"x": [1.0, 2.0, 3.0]}, np.load(tmp_path / "x.npz")):
        assert session.run(inputs)[2].tolist() == [2, 3, 4]


def test_what_numpy_cannot_make_an_array_of_is_named():
    session = octavo.Session(with_constant_output(), threads=1)
    with pytest.raises(octavo.OctavoError, match="'x' is no array"):
        session.run({"x": [[1.0, 2.0], [3.0]]})
    with pytest.raises(octavo.OctavoError, match="'x' is donated, but its elements do not lie"):
        session.run({"x": np.arange(6, dtype=np.float32)[::2]}, donate=["x"])


@pytest.mark.parametrize("threads", [-1, 1025, 10**6])
def test_a_number_of_threads_that_nobody_has_is_refused(threads):
    with pytest.raises(octavo.OctavoError, match="threads: give 0"):
        octavo.Session(with_constant_output(), threads=threads)


def test_calibration_takes_what_the_command_line_takes(tmp_path):
    by_random = octavo.optimize(BERT, calibration="random:2", fit=False, held_out=0)  # ids stay inside their tables
    (tmp_path / "r.calib").write_bytes(octavo.calibrate(BERT, "random:2"))
    assert octavo.optimize(BERT, calibration=tmp_path / "r.calib").model == by_random.model


def caching_attention():
    """o, present_k, present_v = Attention(q, past_k + k, past_v + v); two heads of 8."""
    info = lambda name, shape: helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
    names = ("q", "k", "v")
    inputs = [info(n, [1, 2, "s", 8]) for n in names] + [info(f"past_{n}", [1, 2, "p", 8]) for n in "kv"]
    outputs = [info("o", [1, 2, "s", 8])] + [info(f"present_{n}", [1, 2, "t", 8]) for n in "kv"]
    nodes = [helper.make_node("Concat", [f"past_{n}", n], [f"present_{n}"], axis=2) for n in "kv"]
    nodes.append(helper.make_node("Attention", ["q", "present_k", "present_v"], ["o"]))
    graph = helper.make_graph(nodes, "g", inputs, outputs)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=10).SerializeToString()


def test_caches_of_codes_give_the_same_tokens():
    rng = np.random.default_rng(3)
    calibration = [{n: rng.standard_normal((1, 2, 5, 8), dtype=np.float32) for n in ("q", "k", "v", "past_k", "past_v")}]
    floats, codes = (octavo.optimize(caching_attention(), calibration=calibration, quantize_kv_cache=c) for c in (False, True))
    assert [c["status"] for c in codes.report["candidates"] if c["kind"] == "cache"] == ["quantized", "quantized"]
    floats, codes = octavo.Session(floats.model, threads=1), octavo.Session(codes.model, threads=1)
    assert floats.caches == {} and list(codes.caches) == ["past_k", "past_v"]
    assert codes.caches["past_k"]["output"] == "present_k" and codes.caches["past_k"]["dtype"] == "u8"
    past = [np.zeros((1, 2, 0, 8), np.float32)] * 2
    coded = [np.zeros((1, 2, 0, 8), np.uint8)] * 2
    for _ in range(3):
        new = {n: rng.standard_normal((1, 2, 1, 8), dtype=np.float32) for n in ("q", "k", "v")}
        want, *past = floats.run({**new, "past_k": past[0], "past_v": past[1]})
        got, *coded = codes.run({**new, "past_k": coded[0], "past_v": coded[1]})
        assert want.tobytes() == got.tobytes() and np.any(got != 0)
        cache = codes.caches["past_k"]
        expect = np.clip(np.rint(past[0] / np.float32(cache["scale"])) + cache["zero_point"], 0, 255)
        assert np.array_equal(coded[0], expect) and coded[0].dtype == np.uint8


def test_the_package_is_the_program(octavo_program):
    versions = {subprocess.run([*program, "--version"], check=True, capture_output=True, text=True).stdout
                for program in ([octavo_program], [sys.executable, "-m", "octavo"])}
    assert len(versions) == 1 and re.fullmatch(r"octavo [0-9.]+( \([0-9a-f]+\+?\))?\n", versions.pop()), versions
    wrong = subprocess.run([sys.executable, "-m", "octavo", "no-such-command"], capture_output=True, text=True)
    assert wrong.returncode == 2 and wrong.stderr


def test_a_wheel_has_the_version_of_the_module():
    project = tomllib.loads((SOURCE / "pyproject.toml").read_text())["tool"]["scikit-build"]
    version = project["metadata"]["version"]
    found = re.search(version["regex"], (SOURCE / version["input"]).read_text())
    assert found["value"] == octavo.__version__
    assert all((SOURCE / folder / "__init__.py").exists() for folder in project["wheel"]["packages"])
