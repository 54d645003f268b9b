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


@pytest.mark.parametrize("model", [concat(), fixed("TensorScatter"), fixed("ScatterND"), group_query()], ids=["Concat", "TensorScatter", "ScatterND", "GQA"])
def test_runs_together_give_the_bits_of_runs_alone(model):
    session = octavo.Session(model, threads=2)
    alone, together = [session.state() for _ in range(4)], [session.state() for _ in range(4)]
    before = [0, 0, 0, 0]
    for rows in ([3, 1, 2, 5], [1, 1, 1, 1], [1, 2, 1, 1]):
        feeds = [feeds_of(session, b, r) for b, r in zip(before, rows)]
        want = [session.run(one, state=state) for one, state in zip(feeds, alone)]
        found = session.run_together(feeds, states=together)
        assert all(np.array_equal(a, b) for one, other in zip(want, found) for a, b in zip(one, other, strict=True))
        before = [b + r for b, r in zip(before, rows)]
    for one, other in zip(alone, together):
        assert all(np.array_equal(one.caches()[name], other.caches()[name]) for name in one.inputs)


def projected(recipe):
    """Products around a cache, quantized by a recipe."""
    node, random = helper.make_node, np.random.default_rng(5)
    wide = HEADS * SIZE
    weights = {n: random.normal(0, 0.3, shape).astype(np.float32) for n, shape in [("wq", (wide, wide)), ("wk", (wide, wide)), ("wo", (wide, 40))]}
    constants = {**weights, "heads": np.array([0, 0, HEADS, SIZE]), "flat": np.array([0, 0, wide]), "gamma": np.ones(wide, np.float32)}
    nodes = [node("RMSNormalization", ["x", "gamma"], ["n"], axis=-1), node("MatMul", ["n", "wq"], ["q0"]), node("MatMul", ["n", "wk"], ["k0"]),
             node("Reshape", ["q0", "heads"], ["q1"]), node("Transpose", ["q1"], ["now"], perm=[0, 2, 1, 3]),
             node("Reshape", ["k0", "heads"], ["k1"]), node("Transpose", ["k1"], ["k2"], perm=[0, 2, 1, 3]),
             node("Concat", ["past", "k2"], ["present"], axis=2), *attention("present")[:-1], node("MatMul", ["p", "present"], ["o"]),
             node("Transpose", ["o"], ["o1"], perm=[0, 2, 1, 3]), node("Reshape", ["o1", "flat"], ["o2"]), node("Sigmoid", ["o2"], ["s"]),
             node("Mul", ["o2", "s"], ["o3"]), node("MatMul", ["o3", "wo"], ["y"])]
    graph = model_of(nodes, [info("x", ["b", "rows", wide]), info("past", ["b", HEADS, "past", SIZE])],
                     [info("y", ["b", "rows", 40]), info("present", ["b", HEADS, "all", SIZE])], constants)
    if recipe == "int8":
        data = [{"x": random.normal(0, 1, (1, 6, wide)).astype(np.float32), "past": random.normal(0, 1, (1, HEADS, 3, SIZE)).astype(np.float32)}]
        return octavo.optimize(graph, recipe, data).model
    return octavo.optimize(graph, recipe).model


@pytest.mark.parametrize("recipe", ["float", "int8", "dynamic", "dynamic4", "weights4", "weights8"])
def test_a_sequence_has_its_bits_whoever_its_neighbours_are(recipe):
    session = octavo.Session(projected(recipe), threads=2)
    rows = lambda n, seed: {"x": np.random.default_rng(seed).normal(0, 1, (1, n, HEADS * SIZE)).astype(np.float32)}
    alone = session.state()
    mine = [rows(n, n) for n in (7, 1, 1, 3, 1, 1)]
    want = [session.run(one, ["y"], state=alone)[0] for one in mine]
    for neighbours in (1, 2, 7, 16):
        state, others = session.state(), [session.state() for _ in range(neighbours)]
        for i, one in enumerate(mine):
            beside = [rows(1 + (i + j) % 3, 100 * i + j) for j in range(neighbours)]
            at = (i * 3) % (neighbours + 1)
            found = session.run_together([*beside[:at], one, *beside[at:]], ["y"], [*others[:at], state, *others[at:]])
            assert np.array_equal(found[at][0], want[i]), (neighbours, i)


@pytest.mark.parametrize("model", [concat(), group_query()], ids=["Concat", "GQA"])
def test_a_state_that_is_cut_goes_on_as_if_the_rest_had_not_been(model):
    session = octavo.Session(model, threads=1)
    straight, guessed = session.state(), session.state(64)
    first = feeds_of(session, 0, 3)
    session.run(first, state=straight), session.run(first, state=guessed)
    copy = guessed.copy()
    for before in range(3, 9):
        session.run(feeds_of(session, before, 4), state=guessed)
        assert len(guessed) == before + 4
        guessed.cut(before)
        feeds = feeds_of(session, before, 1)
        assert all(np.array_equal(a, b) for a, b in zip(session.run(feeds, state=straight), session.run(feeds, state=guessed), strict=True))
        kept, want = guessed.caches(), straight.caches()
        assert len(guessed) == before + 1 and all(np.array_equal(kept[name], want[name]) for name in want)
    assert len(copy) == 3  # what a copy has stays
    guessed.cut(3)
    assert all(np.array_equal(copy.caches()[name], guessed.caches()[name]) for name in copy.inputs)
    feeds = feeds_of(session, 3, 1)
    assert np.array_equal(session.run(feeds, ["y"], state=copy)[0], session.run(feeds, ["y"], state=guessed)[0])


def test_refusals():
    session = octavo.Session(concat(), threads=1)
    state, feeds = session.state(), feeds_of(session, 0, 1)
    past = np.zeros((1, HEADS, 0, SIZE), np.float32)
    for call, words in [
        (lambda: session.run({**feeds, "past": past}, state=state), "'past'"),
        (lambda: session.run(feeds, ["present"], state=state), "output 'present' is a cache that the state keeps; state.caches"),
        (lambda: session.state(-1), "tokens is -1; a state has room for 0 to 16777216"),
        (lambda: octavo.Session(concat(), threads=1).run(feeds, state=run_once(session)), "the state is of another model; make one for each"),
        (lambda: session.run_together([feeds], states=[]), "0 states for 1 runs; give one for each, or none"),
        (lambda: session.run_together([feeds, feeds], states=[state, state]), "the state is in another run; give each run at one time a state of its own"),
        (lambda: run_once(session).cut(2), "2 rows of a state that has 1; give 0 to 1"),
        (lambda: run_once(octavo.Session(fixed("TensorScatter"), threads=1)).cut(0), "cannot be cut; reset the state, or keep a copy of it"),
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


# step: of a row's largest value. int4 reaches to 8 steps on the side of that value and to 7 on the other.
@pytest.mark.parametrize("cache, step, off, bytes_of_codes", [("int8", 0.5 / 127 + 2**-22, 0.05, 16), ("int4", 1 / 8 + 2**-22, 0.5, 8)])
@pytest.mark.parametrize("model", [concat(), group_query()], ids=["Concat", "GQA"])
def test_caches_of_codes_are_within_a_step_of_the_rows(model, cache, step, off, bytes_of_codes):
    session = octavo.Session(model, threads=2)
    state, plain = session.state(cache=cache), session.state()
    for before, rows in ((0, 40), (40, 1), (41, 1), (42, 12)):
        feeds = feeds_of(session, before, rows)
        (y,), (exact,) = (session.run(feeds, ["y"], state=s) for s in (state, plain))
        assert np.abs(y - exact).max() < off and not np.array_equal(y, exact)
        for name, rounded in state.caches().items():
            rows_ = plain.caches()[name]
            assert np.all(np.abs(rounded - rows_) <= np.abs(rows_).max(-1, keepdims=True) * step)
    assert state.nbytes / plain.nbytes == pytest.approx((4 + bytes_of_codes) / (4 * SIZE))  # rows of 8: a scale, and codes padded to 16
    state.cut(3)
    assert len(state) == 3 and state.copy().nbytes == state.nbytes


def test_a_cache_that_cannot_be_int8_says_so():
    session = octavo.Session(fixed("TensorScatter"))
    with pytest.raises(octavo.OctavoError, match=r"no cache of the model can be kept as int8, which takes f32 \[batch, heads, rows, size\] that grow by rows"):
        session.run(feeds_of(session, 0, 1), state=session.state(cache="int8"))
    with pytest.raises(octavo.OctavoError, match="cache is 'int2'; a state keeps 'int8', 'int4', or None for what the model has"):
        octavo.Session(concat()).state(cache="int2")


def sliding(window, kv=1, ids=False):
    """Attention of 4 heads on fewer over the last keys of a cache and a mask of padding, as exporters write it: indices of keys and queries are compared."""
    node = helper.make_node
    nodes = [node("Concat", ["past_key_values.0.key", "k"], ["present.0.key"], axis=2),
             node("Concat", ["past_key_values.0.value", "v"], ["present.0.value"], axis=2),
             node("Shape", ["past_key_values.0.key"], ["before1"], start=2, end=3), node("Shape", ["q"], ["rows1"], start=2, end=3),
             node("Shape", ["q"], ["batch"], start=0, end=1), node("Add", ["before1", "rows1"], ["all1"]),
             node("Squeeze", ["before1"], ["before"]), node("Squeeze", ["all1"], ["all"]), node("Range", ["zero", "all", "one"], ["keys"]),
             node("Range", ["before", "all", "one"], ["own"]), node("Unsqueeze", ["own", "last"], ["queries"]), node("LessOrEqual", ["keys", "queries"], ["causal"]),
             node("Sub", ["queries", "window"], ["first"]), node("Greater", ["keys", "first"], ["near"]), node("And", ["causal", "near"], ["inside"]),
             node("Unsqueeze", ["inside", "front"], ["inside4"]), node("Cast", ["attention_mask"], ["real"], to=TensorProto.BOOL),
             node("Unsqueeze", ["real", "middle"], ["real4"]), node("And", ["inside4", "real4"], ["seen"]), node("Where", ["seen", "none", "low"], ["mask"])]
    for name in ("key", "value"):
        nodes += [node("Unsqueeze", [f"present.0.{name}", "two"], [name]), node("Concat", ["batch", "kv", "group", "all1", "size"], [f"{name}_to"], axis=0),
                  node("Expand", [name, f"{name}_to"], [f"{name}_by"]), node("Concat", ["batch", "four", "all1", "size"], [f"{name}_flat"], axis=0),
                  node("Reshape", [f"{name}_by", f"{name}_flat"], [f"{name}_all"])]
    nodes += [node("Transpose", ["key_all"], ["turned"], perm=[0, 1, 3, 2]), node("MatMul", ["q", "turned"], ["scores"]), node("Add", ["scores", "mask"], ["masked"]),
              node("Softmax", ["masked"], ["p"], axis=-1), node("MatMul", ["p", "value_all"], ["y"])]
    whole = lambda *n: np.array(n, np.int64)
    words = RANDOM.normal(0, 1, (11, (4 + 2 * kv) * SIZE)).astype(np.float32)
    constants = {"zero": np.array(0), "one": np.array(1), "last": whole(1), "front": whole(0, 1), "middle": whole(1, 2), "two": whole(2), "window": np.array(window),
                 "none": np.float32(0), "low": np.finfo(np.float32).min, "kv": whole(kv), "group": whole(4 // kv), "four": whole(4), "size": whole(SIZE)}
    caches = [f"past_key_values.0.{name}" for name in ("key", "value")]
    if ids:  # a decoder: q, k and v of tokens, and logits
        parts = [(name, heads) for name, heads in (("q", 4), ("k", kv), ("v", kv))]
        nodes = [node("Gather", ["words", "input_ids"], ["x"]), node("Split", ["x", "widths"], [f"{name}0" for name, _ in parts], axis=2),
                 *(node("Reshape", [f"{name}0", f"{name}_heads"], [f"{name}1"]) for name, _ in parts),
                 *(node("Transpose", [f"{name}1"], [name], perm=[0, 2, 1, 3]) for name, _ in parts), *nodes,
                 node("Transpose", ["y"], ["y1"], perm=[0, 2, 1, 3]), node("Reshape", ["y1", "flat"], ["y2"]), node("MatMul", ["y2", "head"], ["logits"])]
        constants |= {"words": words, "head": words[:, : 4 * SIZE].T.copy(), "widths": whole(*(heads * SIZE for _, heads in parts)), "flat": whole(0, 0, 4 * SIZE),
                      **{f"{name}_heads": whole(0, 0, heads, SIZE) for name, heads in parts}}
        given, made = [info("input_ids", ["b", "rows"], TensorProto.INT64)], info("logits", ["b", "rows", 11])
    else:
        given = [info("q", ["b", 4, "rows", SIZE]), *(info(n, ["b", kv, "rows", SIZE]) for n in "kv")]
        made = info("y", ["b", 4, "rows", SIZE])
    return model_of(nodes, [*given, *(info(n, ["b", kv, "past", SIZE]) for n in caches), info("attention_mask", ["b", "past + rows"], TensorProto.INT64)],
                    [made, *(info(n.replace("past_key_values", "present"), ["b", kv, "past + rows", SIZE]) for n in caches)], constants, opset=18)


@pytest.mark.parametrize("kv", [1, 2])
def test_a_window_bounds_the_memory_and_changes_no_bit(kv):
    window = 100
    session = octavo.Session(octavo.optimize(sliding(window, kv), "float").model, threads=2)
    state, by_hand = session.state(), {f"past_key_values.0.{n}": np.zeros((1, kv, 0, SIZE), np.float32) for n in ("key", "value")}
    before = 0
    for rows in [30] + [1] * 500 + [150] + [1] * 100:
        feeds = {n: RANDOM.normal(0, 1, (1, 4 if n == "q" else kv, rows, SIZE)).astype(np.float32) for n in "qkv"}
        feeds["attention_mask"] = np.ones((1, before + rows), np.int64)
        feeds["attention_mask"][:, :7] = 0
        y, key, value = session.run({**feeds, **by_hand})
        assert np.array_equal(session.run(feeds, state=state)[0][:, :, max(0, 7 - before):], y[:, :, max(0, 7 - before):])
        by_hand, before = {"past_key_values.0.key": key, "past_key_values.0.value": value}, before + rows
    assert len(state) == before > 7 * window
    assert state.nbytes <= 2 * kv * SIZE * 4 * (window + 4 * 64) < sum(a.nbytes for a in by_hand.values()) / 2
    assert before - window - 128 <= state.least <= before - 64
    with pytest.raises(octavo.OctavoError, match="whose attention sees a window"):
        state.cut(window)
    state.cut(before - 64)


def test_a_generator_of_windows_writes_what_whole_caches_write():
    model = octavo.optimize(sliding(24, ids=True), "float").model
    prompt = RANDOM.integers(0, 11, 150).tolist()
    prompts = [prompt, prompt[:100] + [1, 2, 3], prompt + [4], prompt[:40]]

    def told(**how):
        texts = {}
        for i, token in octavo.Generator(model, threads=1, chunk=16).many_tokens(prompts, 60, **how):
            texts.setdefault(i, []).append(token)
        return texts

    session, want = octavo.Session(model, threads=1), {}
    for i, ids in enumerate(prompts):
        ids, caches = list(ids), {f"past_key_values.0.{n}": np.zeros((1, 1, 0, SIZE), np.float32) for n in ("key", "value")}
        for _ in range(60):
            mask = np.ones((1, len(ids)), np.int64)
            ids.append(int(session.run({"input_ids": np.array([ids]), "attention_mask": mask, **caches}, ["logits"])[0][0, -1].argmax()))
        want[i] = [*ids[-60:], None]
    assert told(at_once=4) == told(at_once=1) == told(at_once=2, lookup=80) == want
