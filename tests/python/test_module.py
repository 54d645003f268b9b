"""The Python face: optimize, Session, calibrate, and errors as exceptions with a sentence."""

import threading

import numpy as np
import octavo
import pytest
from conftest import BERT, batch, inputs_of


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
