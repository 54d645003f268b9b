"""Session(count_clipped=True): how many values lie at an end of their range while a model runs on what comes."""

import threading

import numpy as np
import octavo
import pytest
from conftest import BERT
from test_tune import CALIBRATION, HELD_OUT


@pytest.fixture(scope="module")
def model():
    return octavo.optimize(BERT, calibration=CALIBRATION).model


def total(session):
    return {value: (c["low"], c["high"], c["count"]) for value, c in session.clipped().items()}


def test_outputs_stay_and_values_are_counted(model):
    plain, counting = octavo.Session(model), octavo.Session(model, count_clipped=True)
    assert [tuple(o) for o in plain.outputs] == [tuple(o) for o in counting.outputs]
    assert all(c["count"] == 0 for c in counting.clipped().values())
    for _ in range(2):
        for a, b in zip(plain.run(HELD_OUT), counting.run(HELD_OUT)):
            assert np.array_equal(a, b)
    counts = counting.clipped()
    assert len(counts) > 10 and all(c["count"] > 0 and c["range"][0] < c["range"][1] for c in counts.values())
    assert all(bool(c["node"]) == (c["kind"] == "codes") for c in counts.values())
    # Few on data like that of calibration, whose ranges end where values do.
    assert sum(c["low"] + c["high"] for c in counts.values()) < 0.02 * sum(c["count"] for c in counts.values())
    with pytest.raises(octavo.OctavoError, match="the model has no output 'codes 1'"):
        counting.run(HELD_OUT, ["codes 1"])


def test_what_a_range_cuts_off_shows(model):
    """A Linear of its own: its input's codes are known to the last."""
    graph = np.random.default_rng(3)
    weights, x = graph.normal(size=(64, 64)).astype(np.float32), graph.normal(size=(32, 64)).astype(np.float32)
    onnx = pytest.importorskip("onnx")
    h = onnx.helper
    made = h.make_model(h.make_graph(
        [h.make_node("MatMul", ["x", "w"], ["y"], name="fc")], "g", [h.make_tensor_value_info("x", 1, ["s", 64])],
        [h.make_tensor_value_info("y", 1, ["s", 64])], [onnx.numpy_helper.from_array(weights, "w")]), opset_imports=[h.make_opsetid("", 18)], ir_version=9)
    small = octavo.optimize(made, calibration=[{"x": x}], calibrator="minmax").model
    session = octavo.Session(small, count_clipped=True)
    session.run({"x": x})
    (value, counts), = session.clipped().items()
    assert counts["count"] == x.size and counts["low"] + counts["high"] <= 4, value
    low, high = counts["range"]
    assert abs(low - x.min()) < 0.05 and abs(high - x.max()) < 0.05
    session.run({"x": 3 * x})
    step = (high - low) / 255
    beyond = int(np.sum(3 * x > high - step / 2)), int(np.sum(3 * x < low + step / 2))
    (_, after), = session.clipped().items()
    assert abs(after["high"] - counts["high"] - beyond[0]) <= 1 and abs(after["low"] - counts["low"] - beyond[1]) <= 1
    assert after["count"] == 2 * x.size and beyond[0] > 100


def with_ids(low, high, shape=(2, 8), shown=8):
    """A batch whose ids lie from low to high; what the mask hides is far beyond both."""
    ids = np.random.default_rng(high).integers(low, high + 1, shape)
    ids[0, :2] = low, high
    mask = np.ones(shape, np.int64)
    mask[:, shown:] = 0
    ids[mask == 0] = 0
    return {"input_ids": ids, "attention_mask": mask}


def test_ids_that_calibration_did_not_reach_are_counted():
    """However the ranges came."""
    batches = [with_ids(5, 30), with_ids(11, 40, shown=5)]
    for data in (batches, octavo.calibrate(BERT, batches)):
        model = octavo.optimize(BERT, calibration=data).model
        session = octavo.Session(model, count_clipped=True)
        session.run(with_ids(7, 38))
        ids = session.clipped()["input_ids"]
        assert ids == {"kind": "ids", "node": "", "range": (5, 40), "low": 0, "high": 0, "count": 16}
        strange = with_ids(2, 55, shown=6)
        session.run(strange)
        shown = strange["input_ids"][strange["attention_mask"] == 1]
        ids = session.clipped()["input_ids"]
        assert (ids["low"], ids["high"], ids["count"]) == (np.sum(shown < 5), np.sum(shown > 40), 28) and ids["high"] > 0 < ids["low"]
        together = octavo.Session(model, count_clipped=True)
        together.run_together([with_ids(7, 38), strange])
        assert together.clipped() == session.clipped()
        with pytest.raises(octavo.OctavoError):
            session.run(with_ids(0, 10**6))  # beyond the table: a run that fails counts nothing
        assert session.clipped()["input_ids"] == ids


def test_random_data_tells_no_ids():
    assert "input_ids" not in octavo.Session(octavo.optimize(BERT, calibration="random:2").model, count_clipped=True).clipped()


def test_threads_count_together(model):
    one, many = octavo.Session(model, count_clipped=True), octavo.Session(model, count_clipped=True)
    one.run(HELD_OUT)
    threads = [threading.Thread(target=many.run, args=(HELD_OUT,)) for _ in range(6)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert total(many) == {value: tuple(6 * n for n in counts) for value, counts in total(one).items()}


def test_models_without_codes_have_none_and_sessions_that_do_not_count_say_so():
    assert octavo.Session(BERT, count_clipped=True).clipped() == {}
    with pytest.raises(octavo.OctavoError, match="this session counts nothing; make it with count_clipped=True"):
        octavo.Session(BERT).clipped()
    with pytest.raises(TypeError):
        octavo.Session(BERT, 0, True, None, None, True)


def test_ids_that_cannot_be_read_are_told_and_the_rest_is_counted(model):
    onnx = pytest.importorskip("onnx")
    damaged = onnx.load_model_from_string(model)
    next(entry for entry in damaged.metadata_props if entry.key == "octavo.ids").value = '{"input_ids": [5]}'
    with pytest.warns(UserWarning, match="metadata 'octavo.ids' of the file cannot be read, so ids"):
        session = octavo.Session(damaged, count_clipped=True)
    assert session.clipped() and "input_ids" not in session.clipped()
    octavo.Session(damaged)  # who does not count them is told nothing
