"""compare, bench, inspect, explain, trace and merging in Python; ports, results and models in the forms that people have them in."""

import asyncio
import json
import threading
import time

import numpy as np
import octavo
import onnx
import pytest
from conftest import BERT, batch, inputs_of, read_json
from onnx import TensorProto, helper, numpy_helper


@pytest.fixture(scope="module")
def data():
    session = octavo.Session(BERT, threads=1)
    return [inputs_of(session, batch(seed)) for seed in range(3)]


@pytest.fixture(scope="module")
def result(data):
    return octavo.optimize(BERT, calibration=data)


def test_compare_says_what_the_program_says(run, calib, data, result, tmp_path):
    result.save(tmp_path / "int8.onnx")
    calls = []
    ours = octavo.compare(BERT, result.model, data, progress=lambda *a: calls.append(a))
    assert ours == octavo.compare(BERT, tmp_path / "int8.onnx", calib)
    assert ours == json.loads(run("compare", BERT, "int8.onnx", "--data", calib, "--json").stdout)
    assert ours["batches"] == 3 and 10 < min(o["sqnr_db"] for o in ours["outputs"]) < 80
    assert calls == [("compare", done, 3) for done in (1, 2, 3)]
    with pytest.raises(octavo.OctavoError, match="calibration data is a path or an iterable"):
        octavo.compare(BERT, BERT, 3)
    with pytest.raises(KeyError, match="mine"):
        octavo.compare(BERT, BERT, data, progress=lambda *a: {}["mine"])


def test_bench_times_models_with_shapes_and_threads(result):
    calls = []
    told = octavo.bench(
        {"float": BERT, "int8": result.model}, shapes={"input_ids": (2, 5)}, threads=[1, 2], seconds=0.01,
        progress=lambda *a: calls.append(a))
    assert [(r["model"], r["threads"]) for r in told["results"]] == [("float", 1), ("float", 2), ("int8", 1), ("int8", 2)]
    for r in told["results"]:
        assert set(map(tuple, r["shapes"].values())) == {(2, 5)}  # the mask has the symbols of the ids
        assert 0 < r["min_ms"] <= r["median_ms"] <= r["p90_ms"] <= r["p99_ms"] and r["kernels_ms"]
        assert r["samples_per_s"] == pytest.approx(2e3 / r["median_ms"])
    assert calls[0] == ("bench", 1, -1)
    with pytest.raises(octavo.OctavoError, match="the model has no input 'ids' to give a shape; its inputs are: "):
        octavo.bench(BERT, shapes={"ids": (1, 2)})
    with pytest.raises(octavo.OctavoError, match="has 2 dims, and the shape given has 1"):
        octavo.bench(BERT, shapes={"input_ids": (1,)})
    with pytest.raises(octavo.OctavoError, match="there is no model to time"):
        octavo.bench([])


def test_bench_of_the_program_says_its_shapes(run):
    out = run("bench", BERT, "--shape", "input_ids=1x4,3x6", "--seconds", "0.01", "--format", "csv").stdout
    rows = [line.split(",") for line in out.replace('"', "").splitlines()]
    assert "input_ids 1x4" in out and "input_ids 3x6" in out and len(rows) == 3
    table = run("bench", BERT, "--shape", "input_ids=1x4", "--seconds", "0.01").stdout
    assert "shapes: " in table and "samples/s" in table and max(map(len, table.splitlines()[2:4])) < 200
    assert run("bench", BERT, "--shape", "input_ids=1x4", "--seconds", "0.01", "--format", "md").stdout.startswith("| model |")
    for shape, why in (("input_ids=1y4", "a shape is sizes with x between them"), ("input_ids", "a shape is INPUT=SIZES")):
        assert why in run("bench", BERT, "--shape", shape).stderr
    two = run("bench", BERT, "--shape", "input_ids=1x4,1x5", "--shape", "attention_mask=1x4,1x5,1x6")
    assert "has 2 shapes where another input has 3" in two.stderr


@pytest.fixture
def runtimes(monkeypatch):
    """Other runtimes by name: one that runs octavo itself, one that cannot run anything, one that is not installed."""
    from octavo import _against

    def cannot(model, threads):
        raise RuntimeError("no such op\nand much more")

    def missing(model, threads):
        raise ImportError

    fakes = {"twin": lambda model, threads: ("twin 1.0", octavo.Session(model, threads=threads).run), "poor": cannot, "absent": missing}
    monkeypatch.setattr(_against, "RUNTIMES", fakes)


def test_bench_against_other_runtimes(runtimes, result):
    calls = []
    told = octavo.bench({"float": BERT, "int8": result.model}, shapes={"input_ids": (2, 5)}, threads=[1, 2], seconds=0.01, against=["twin", "poor"],
                        progress=lambda *a: calls.append(a))
    rows = told["results"]
    own = f"octavo {octavo.__version__}"
    assert [(r["model"], r["threads"], r["runtime"]) for r in rows] == [
        (model, threads, runtime) for model in ("float", "int8") for threads in (1, 2) for runtime in (own, "twin 1.0", "poor")]
    for r in rows:
        if r["runtime"] == "poor":
            assert r["error"] == "no such op" and "min_ms" not in r
        else:
            assert r["runs"] >= 5 and 0 < r["min_ms"] <= r["median_ms"] <= r["p90_ms"] <= r["p99_ms"] and set(map(tuple, r["shapes"].values())) == {(2, 5)}
            assert r["speedup"] == pytest.approx(rows[0]["median_ms"] / r["median_ms"]) and r["samples_per_s"] == pytest.approx(2e3 / r["median_ms"])
    assert calls[0] == ("bench", 1, -1)
    with pytest.raises(octavo.OctavoError, match="there is no runtime 'torch' to compare with; there are: twin, poor, absent"):
        octavo.bench(BERT, against="torch")
    with pytest.raises(octavo.OctavoError, match="the package 'absent' is missing; pip install absent"):
        octavo.bench(BERT, against=["absent"])


def test_the_command_prints_them(runtimes, tmp_path, capsys):
    from octavo import _against

    def out(*arguments, status=0):
        assert _against.main("octavo", [str(BERT), *arguments]) == status
        return capsys.readouterr()

    few = ["--seconds", "0.01", "--threads", "1"]
    assert _against.asked(["--against=x"]) and _against.asked(["-h"]) and not _against.asked(["m.onnx", "--json"])
    shown = out("--against", "twin,poor", "--shape", "input_ids=1x4,3x6", *few).out.splitlines()
    assert shown[0] == octavo.cpu() and shown[1].startswith("shapes 1: ") and shown[2].startswith("shapes 2: ") and len(shown) == 3 + 1 + 6
    assert shown[3].split()[:3] == ["model", "runtime", "shapes"] and shown[6].endswith("cannot run it: no such op")
    assert out("--against", "twin", *few, "--format", "md").out.startswith("| model | runtime |")
    rows = out("--against", "twin", *few, "--format", "csv").out.splitlines()
    assert len(rows) == 3 and rows[2].startswith(f"{BERT},twin 1.0,")
    assert [r["runtime"] for r in json.loads(out("--against", "twin", *few, "--json").out)["results"]] == [f"octavo {octavo.__version__}", "twin 1.0"]
    np.savez(tmp_path / "x.npz", **inputs_of(octavo.Session(BERT, threads=1), batch(1)))
    assert "2x7" in out("--against", "twin", "--inputs", str(tmp_path / "x.npz"), *few).out
    for arguments, status, words in [
        (["--threads", "x"], 2, "--threads takes numbers from 0"), (["--shape", "input_ids=1y4"], 1, "a shape is sizes with x between them"),
        (["--inputs", str(tmp_path / "none.npz")], 1, "No such file"), (["--inputs", "a", "--shape", "b=1"], 2, "there is one"),
    ]:
        assert words in out("--against", "twin", *arguments, status=status).err


@pytest.mark.parametrize("runtime", ["onnxruntime", "openvino"])
def test_real_runtimes_run_what_octavo_wrote(runtime, result):
    pytest.importorskip(runtime, reason="not installed here")
    told = octavo.bench({"float": BERT, "int8": result.model}, threads=1, seconds=0.01, against=runtime)
    assert [r["runtime"].split()[0] for r in told["results"]] == ["octavo", runtime] * 2
    assert all(r.get("median_ms", 0) > 0 for r in told["results"][:2]), told


def test_a_shape_that_the_model_fixes_is_kept():
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 3])
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", [x], [helper.make_empty_tensor_value_info("y")])
    with pytest.raises(octavo.OctavoError, match="its dim 1 cannot be 4"):
        octavo.bench(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)]), shapes={"x": (2, 4)})


def test_inspect_and_explain_say_what_the_program_says(run, result):
    assert octavo.inspect(BERT) == json.loads(run("inspect", BERT, "--json").stdout)
    assert octavo.inspect(BERT.read_bytes())["bytes"] == octavo.inspect(BERT)["bytes"]
    assert octavo.inspect(result.model)["quantization"]["state"] == "int8, fused by octavo"
    assert octavo.explain(BERT) == json.loads(run("explain", BERT, "--json").stdout)
    only = octavo.explain(BERT, rule="sdpa")
    assert all(m["rule"] == "sdpa" for m in only["near_misses"])


def test_trace_is_a_chrome_trace(data, result, tmp_path):
    trace = octavo.trace(result.model, data[0], tmp_path / "t.json", threads=1)
    assert trace == read_json(tmp_path / "t.json")
    assert any(e["name"] and e["dur"] >= 0 for e in trace["traceEvents"])
    assert octavo.trace(BERT, shapes={"input_ids": (1, 4)})["traceEvents"]


def test_calibrations_of_shards_merge_to_that_of_the_whole(data, tmp_path):
    calls = []
    whole = octavo.calibrate(BERT, data, progress=lambda *a: calls.append(a))
    assert calls[-1] == ("calibrate", 3, 3)
    (tmp_path / "b.calib").write_bytes(octavo.calibrate(BERT, data[1:]))
    assert octavo.merge_calibrations([octavo.calibrate(BERT, data[:1]), tmp_path / "b.calib"]) == whole
    for wrong, why in (([], "there is no calibration to merge"), ([3], "a calibration is what calibrate")):
        with pytest.raises(octavo.OctavoError, match=why):
            octavo.merge_calibrations(wrong)


def test_ports_know_dtype_and_shape_and_speak_as_onnx_runtime_does(data):
    session = octavo.Session(BERT, threads=1)
    (name, kind), port = session.inputs[0], session.inputs[0]
    assert (name, kind) == (port.name, port.type) == port and port.dtype == np.dtype("int64")
    assert len(port.shape) == 2 and all(isinstance(size, (int, str)) for size in port.shape)
    arg = session.get_inputs()[0]
    assert (arg.name, arg.type, arg.shape) == (name, "tensor(int64)", port.shape)
    assert session.get_outputs()[0].type == "tensor(float)"
    assert name in repr(session) and "threads" in repr(session) and name in repr(port) and "tensor(int64)" in repr(arg)
    last = session.outputs[-1].name
    want = session.run(data[0], [last])[0]
    assert np.array_equal(session.run([last], data[0])[0], want)
    assert np.array_equal(session.run(None, data[0])[-1], want)
    with pytest.raises(octavo.OctavoError, match="outputs are a list of names, or None for all of them, not int"):
        session.run(data[0], 3)


def test_a_result_shows_itself(result, tmp_path):
    assert "attention 2/2 fused" in repr(result) and "dB on samples that calibration saw" in repr(result)
    result.save_html(tmp_path / "r.html")
    assert (tmp_path / "r.html").read_text() == result.html
    assert result._repr_html_().startswith("<iframe srcdoc=") and "&lt;!doctype html&gt;" in result._repr_html_()


def test_models_come_as_path_bytes_proto_buffer_and_file(data):
    want = octavo.Session(BERT, threads=1).run(data[0])[0]
    proto = onnx.load(BERT)
    with open(BERT, "rb") as file:
        for model in (BERT, str(BERT), BERT.read_bytes(), bytearray(BERT.read_bytes()), memoryview(BERT.read_bytes()), proto, file):
            assert np.array_equal(octavo.Session(model, threads=1).run(data[0])[0], want)
    with pytest.raises(octavo.OctavoError, match="an onnx.ModelProto or a Graph, not int"):
        octavo.Session(3)
    with open(BERT, "r", errors="replace") as file, pytest.raises(octavo.OctavoError, match="open the file in mode 'rb'"):
        octavo.Session(file)

    class Broken:
        def SerializeToString(self):
            raise ValueError("too large")

    with pytest.raises(octavo.OctavoError, match="cannot be read from memory: too large; above 2 GB"):
        octavo.Session(Broken())


def test_external_data_is_read_beside_the_path(tmp_path, data):
    onnx.save(onnx.load(BERT), tmp_path / "m.onnx", save_as_external_data=True, location="m.data", size_threshold=0)
    want = octavo.Session(BERT, threads=1).run(data[0])[0]
    for model in (tmp_path / "m.onnx", onnx.load(tmp_path / "m.onnx")):
        assert np.array_equal(octavo.Session(model, threads=1).run(data[0])[0], want)


def heavy():
    """Forty products of 512 x 512, one after another."""
    rng = np.random.default_rng(1)
    weight = numpy_helper.from_array(rng.standard_normal((512, 512), dtype=np.float32) / 25, "w")
    nodes = [helper.make_node("MatMul", [f"x{i}", "w"], [f"x{i + 1}"]) for i in range(40)]
    value = lambda name: helper.make_tensor_value_info(name, TensorProto.FLOAT, ["rows", 512])
    graph = helper.make_graph(nodes, "g", [value("x0")], [value("x40")], [weight])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)])


def test_other_threads_of_python_go_on_during_a_run():
    session = octavo.Session(heavy(), threads=1)
    x = np.ones((4096, 512), np.float32)
    session.run({"x0": x})
    ticks, times, done = [], [], threading.Event()

    def work():
        times.append(time.perf_counter())
        session.run({"x0": x})
        times.append(time.perf_counter())
        done.set()

    thread = threading.Thread(target=work)
    thread.start()
    while not done.is_set():
        ticks.append(time.perf_counter())
        time.sleep(1e-4)
    thread.join()
    within = [t for t in ticks if times[0] <= t <= times[1]]
    # One run is tens of milliseconds. With the lock held, nobody ticks between its first and its last.
    lead = (times[1] - times[0]) / 5
    assert sum(times[0] + lead < t < times[1] - lead for t in within) >= 3, (times, len(within))


def test_sessions_run_beside_the_loop_of_asyncio(data):
    session = octavo.Session(BERT, threads=1)

    async def all_of_them():
        return await asyncio.gather(*(asyncio.to_thread(session.run, one) for one in data))

    for one, got in zip(data, asyncio.run(all_of_them())):
        assert np.array_equal(got[0], session.run(one)[0])


def test_everything_public_has_a_docstring():
    for name in octavo.__all__:
        thing = getattr(octavo, name)
        assert name in ("__version__", "anything") or thing.__doc__, name


def without_types(arrays):
    return {name: array for name, array in arrays.items() if name != "token_type_ids"}


def test_compare_tells_where_a_model_loses(run, tmp_path):
    model = octavo.optimize(BERT, calibration=[without_types(batch(1))]).model
    (tmp_path / "int8.onnx").write_bytes(model)
    np.savez(tmp_path / "held.npz", **without_types(batch(2)))
    told = octavo.compare(BERT, model, [without_types(batch(2))], per_layer=True)
    layers = told["layers"]
    assert {layer["op"] for layer in layers} >= {"QuantizedLinear", "QuantizedQkv", "QuantizedSdpa", "NormQuant"}
    own = [layer["own_db"] if layer["own_db"] is not None else np.inf for layer in layers]
    assert own == sorted(own) and own[0] > 10
    assert all(layer["sqnr_db"] is None or layer["sqnr_db"] > 15 for layer in layers)
    assert sum("Softmax" in layer["node"] for layer in layers if layer["op"] == "QuantizedSdpa") == 2
    # q, k and v of one op have their own names.
    assert len({layer["node"] for layer in layers if layer["op"] == "QuantizedQkv"}) == 6
    done = run("compare", BERT, "int8.onnx", "--data", "held.npz", "--per-layer")
    assert done.returncode == 0 and "add most noise of their own first" in done.stdout and layers[0]["node"] in done.stdout
    assert "layers" not in octavo.compare(BERT, model, [without_types(batch(2))])
    other = run("compare", BERT, BERT, "--data", "held.npz", "--per-layer")
    assert other.returncode == 0, other.stderr
