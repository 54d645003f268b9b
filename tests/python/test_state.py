"""Session.state(): caches kept from run to run, in the forms that exporters write, against caches that are fed by hand."""

import numpy as np
import octavo
import pytest
from onnx import TensorProto, helper, numpy_helper

HEADS, SIZE = 2, 8
RANDOM = np.random.default_rng(20261125)


def info(name, shape, kind=TensorProto.FLOAT):
    return helper.make_tensor_value_info(name, kind, shape)


def model_of(nodes, inputs, outputs, constants=(), opset=24, domains=()):
    graph = helper.make_graph(nodes, "cache", inputs, outputs, [numpy_helper.from_array(a, n) for n, a in dict(constants).items()])
    opsets = [helper.make_opsetid("", opset), *(helper.make_opsetid(d, 1) for d in domains)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString()


def attention(present):
    """Nodes of softmax(q present^T) present, q is the rows of this run."""
    node = helper.make_node
    return [node("Transpose", [present], ["turned"], perm=[0, 1, 3, 2]), node("MatMul", ["now", "turned"], ["scores"]),
            node("Softmax", ["scores"], ["p"], axis=-1), node("MatMul", ["p", present], ["y"])]


def concat():
    nodes = [helper.make_node("Concat", ["past", "now"], ["present"], axis=2), *attention("present")]
    return model_of(nodes, [info("past", ["b", HEADS, "past", SIZE]), info("now", ["b", HEADS, "rows", SIZE])],
                    [info("present", ["b", HEADS, "all", SIZE]), info("y", ["b", HEADS, "rows", SIZE])])


def fixed(kind):
    """A cache of 12 rows, written at a place that is an input."""
    node = helper.make_node
    if kind == "TensorScatter":
        nodes, place = [node(kind, ["past", "now", "at"], ["present"])], [1]
    else:  # the rows first: indices of one size
        nodes = [node("Transpose", ["past"], ["by_rows"], perm=[2, 0, 1, 3]), node("Transpose", ["now"], ["new"], perm=[2, 0, 1, 3]),
                 node("Unsqueeze", ["at", "last"], ["indices"]), node("ScatterND", ["by_rows", "indices", "new"], ["written"]),
                 node("Transpose", ["written"], ["present"], perm=[1, 2, 0, 3])]
        place = ["rows"]
    return model_of([*nodes, *attention("present")],
                    [info("past", [1, HEADS, 12, SIZE]), info("now", [1, HEADS, "rows", SIZE]), info("at", place, TensorProto.INT64)],
                    [info("present", [1, HEADS, 12, SIZE]), info("y", [1, HEADS, "rows", SIZE])], {"last": np.array([1], np.int64)})


def group_query():
    """GroupQueryAttention: q and its caches in one node, as onnxruntime-genai writes them."""
    width = HEADS * SIZE
    node = helper.make_node("GroupQueryAttention", ["x", "x", "x", "past", "past_v", "ends", "total"], ["y", "present", "present_v"],
                            domain="com.microsoft", num_heads=HEADS, kv_num_heads=HEADS)
    caches = [info(n, ["b", HEADS, "past", SIZE]) for n in ("past", "past_v")]
    return model_of([node], [info("x", ["b", "rows", width]), *caches, info("ends", ["b"], TensorProto.INT32), info("total", [1], TensorProto.INT32)],
                    [info("y", ["b", "rows", width]), *(info(n, ["b", HEADS, "all", SIZE]) for n in ("present", "present_v"))],
                    opset=18, domains=["com.microsoft"])


def feeds_of(session, before, rows):
    names = {port.name for port in session.inputs}
    feeds = {}
    if "now" in names:
        feeds["now"] = RANDOM.normal(0, 1, (1, HEADS, rows, SIZE)).astype(np.float32)
    if "x" in names:
        feeds["x"] = RANDOM.normal(0, 1, (1, rows, HEADS * SIZE)).astype(np.float32)
        feeds["ends"] = np.array([before + rows - 1], np.int32)
        feeds["total"] = np.array([before + rows], np.int32)
    if "at" in names:
        whole = next(port.shape for port in session.inputs if port.name == "at") == ["rows"]
        feeds["at"] = np.arange(before, before + rows) if whole else np.array([before])
    return feeds


@pytest.mark.parametrize("model", [concat(), fixed("TensorScatter"), fixed("ScatterND"), group_query()], ids=["Concat", "TensorScatter", "ScatterND", "GQA"])
def test_a_state_gives_the_bits_of_caches_fed_by_hand(model):
    session = octavo.Session(model, threads=2)
    state = session.state()
    pasts = [port.name for port in session.inputs if port.name.startswith("past")]
    assert state.inputs == pasts and len(state) == 0 and state.caches() == {}
    grows = any(isinstance(size, str) for port in session.inputs if port.name == "past" for size in port.shape[1:])
    by_hand = {name: np.zeros((1, HEADS, 0 if grows else 12, SIZE), np.float32) for name in pasts}
    before = 0
    for rows in (3, 1, 1, 4, 1):
        feeds = feeds_of(session, before, rows)
        want = dict(zip([port.name for port in session.outputs], session.run({**feeds, **by_hand})))
        (y,) = session.run(feeds, state=state)
        assert np.array_equal(y, want["y"])
        by_hand = {name: want[name.replace("past", "present")] for name in pasts}
        kept = state.caches()
        assert list(kept) == pasts and all(np.array_equal(kept[name], by_hand[name]) for name in pasts)
        before += rows
        assert len(state) == (before if grows else 0)
    fork = state.copy()
    feeds = feeds_of(session, before, 1)
    assert np.array_equal(session.run(feeds, ["y"], state=fork)[0], session.run(feeds, ["y"], state=state)[0])
    state.reset()
    assert len(state) == 0 and state.caches() == {}


def test_refusals():
    session = octavo.Session(concat(), threads=1)
    state, feeds = session.state(), feeds_of(session, 0, 1)
    past = np.zeros((1, HEADS, 0, SIZE), np.float32)
    for call, words in [
        (lambda: session.run({**feeds, "past": past}, state=state), "'past'"),
        (lambda: session.run(feeds, ["present"], state=state), "output 'present' is a cache that the state keeps; state.caches"),
        (lambda: session.state(-1), "tokens is -1; a state has room for 0 to 16777216"),
        (lambda: octavo.Session(concat(), threads=1).run(feeds, state=run_once(session)), "the state is of another model; make one for each"),
        (lambda: octavo.Session(attention_alone()).state(), "the model has no caches for a state to keep"),
    ]:
        with pytest.raises(octavo.OctavoError, match=words):
            call()


def run_once(session):
    state = session.state(32)
    session.run(feeds_of(session, 0, 1), state=state)
    return state


def attention_alone():
    return model_of(attention("past"), [info("past", ["b", HEADS, "past", SIZE]), info("now", ["b", HEADS, "rows", SIZE])], [info("y", ["b", HEADS, "rows", SIZE])])
