"""The Python face: optimize, Session, calibrate, and errors as exceptions with a sentence."""

import threading
import warnings

import numpy as np
import octavo
import pytest
from conftest import BERT, SOURCE, batch, inputs_of
from onnx import TensorProto, helper


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


def test_bytes_paths_and_calibration_bytes_give_the_same_model():
    data = batches()
    first = octavo.optimize(str(BERT), calibration=data)
    second = octavo.optimize(BERT.read_bytes(), calibration=octavo.calibrate(BERT, data))
    third = octavo.optimize(BERT, calibration=(b for b in data))  # an iterator, pulled once
    assert first.model == second.model == third.model


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
    with pytest.warns(UserWarning, match="slowly.*octavo optimize"):
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
