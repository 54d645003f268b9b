"""What a person reads who calls something wrongly: one sentence in words of Python, whatever is given for which argument; and never a crash."""

import asyncio
import concurrent.futures
import copy
import inspect
import pickle
import threading
import time

import numpy as np
import octavo
import octavo.transformers
import pytest
from conftest import BERT, batch, inputs_of

WRONG = [None, -3, 10**13, 3.5, float("nan"), "yes", b"x", [], [3], (1, 2), {"a": "b"}, {3}, object(), len, np.zeros(3)]
# Words of the binding and of Python's insides, which say nothing to a person.
INSIDES = ("pybind", "incompatible", "Invoked with", "arg0", "object has no attribute", "_octavo._", "argument must be", "is not iterable", "not callable")


def calls():
    """(name, function, arguments that fit): all public callables but classes that octavo alone makes."""
    session = octavo.Session(BERT, threads=1)
    feed = inputs_of(session, batch(0))
    graph = octavo.Graph(BERT)
    value, node = graph.inputs[0], graph.nodes[0]
    rewriter = graph.rewriter()
    result = octavo.optimize(BERT, recipe="float")
    model = {"model": str(BERT)}
    texts = {"texts": ["a"], "tokenizer": type("T", (), {"encode": lambda self, text: type("E", (), {"ids": [1, 2]})})(), "model": BERT}
    return [
        ("Session", octavo.Session, model), ("load", octavo.load, model), ("run", session.run, {"inputs": feed}), ("state", session.state, {}),
        ("run_together", session.run_together, {"inputs": [feed]}), ("session_options", octavo.session_options, {}),
        ("export_and_optimize", octavo.transformers.export_and_optimize, {"model": "/nowhere", "out": "a.onnx"}),
        ("calibrate", octavo.calibrate, model | {"calibration": [feed]}), ("compare", octavo.compare, {"a": BERT, "b": BERT, "data": [feed]}),
        ("bench", octavo.bench, {"models": BERT, "seconds": 0.0}), ("inspect", octavo.inspect, model), ("explain", octavo.explain, model),
        ("trace", octavo.trace, model), ("merge_calibrations", octavo.merge_calibrations, {"calibrations": []}),
        ("split_if", octavo.split_if, model | {"input": "x"}), ("apply", octavo.apply, {"graph": graph}), ("Graph", octavo.Graph, model),
        ("value", graph.value, {"name": "x"}), ("rewriter", graph.rewriter, {}), ("at", rewriter.at, {"node": node}),
        ("constant", rewriter.constant, {"array": np.zeros(1)}), ("replace", rewriter.replace, {"old": value, "new": value}),
        ("set_input", rewriter.set_input, {"node": node, "index": 0, "value": value}), ("set_attr", rewriter.set_attr, {"node": node, "name": "a", "value": 1}),
        ("erase_dead", rewriter.erase_dead, {"node": node}), ("Graph.save", graph.save, {"path": "/nowhere/a.onnx"}), ("save", result.save, {"path": "/nowhere/a"}),
        ("Pipeline", octavo.Pipeline, {}), ("Pipeline.of", octavo.Pipeline.of, model), ("Pipeline.from_json", octavo.Pipeline.from_json, {"text": "{}"}),
        ("passes", octavo.passes, {}), ("text_batches", octavo.text_batches, texts),
        ("image_batches", octavo.image_batches, {"images": [], "processor": len, "model": BERT}),
        ("Generator", octavo.Generator, model), ("perplexity", octavo.perplexity, model | {"tokens": [1, 2]}),
        ("scalar", octavo.scalar, {}), ("part", octavo.constant, {}), ("optimize", octavo.optimize, model | {"recipe": "float"}),
        ("tune", octavo.tune, model | {"metric": lambda s: 1.0, "calibration": None}),
    ]


@pytest.fixture(scope="module")
def fitting():
    return {name: (function, fits) for name, function, fits in calls()}


def said(function, *args, **kwargs):
    """The sentence, or None where the call is right after all."""
    try:
        function(*args, **kwargs)
    except (TypeError, ValueError, OSError, octavo.OctavoError) as error:
        return str(error)
    return None


# Each of them reads the arguments' names off the function, so that a new argument is tried too.
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", [
    "Session", "load", "run", "state", "calibrate", "compare", "bench", "inspect", "explain", "trace", "merge_calibrations", "split_if", "apply", "Graph", "value",
    "rewriter", "at", "constant", "replace", "set_input", "set_attr", "erase_dead", "Graph.save", "save", "Pipeline", "Pipeline.of", "Pipeline.from_json", "passes",
    "text_batches", "image_batches", "Generator", "perplexity", "scalar", "part", "optimize", "tune", "run_together", "session_options", "export_and_optimize",
])
def test_a_wrong_call_is_one_sentence(fitting, name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    function, fits = fitting[name]
    parameters = [p for p, how in inspect.signature(function).parameters.items() if how.kind not in (how.VAR_POSITIONAL, how.VAR_KEYWORD)]
    bad, refused = [], 0
    for parameter in parameters:
        for wrong in WRONG:
            if parameter == "seconds" and isinstance(wrong, int) and wrong > 0:
                continue  # is a number, and a long time
            if name == "trace" and parameter == "path" or name == "set_attr" and parameter == "value":
                continue
            told = said(function, **fits | {parameter: wrong})
            refused += told is not None
            if told is not None and ("\n" in told.strip() or not told.strip() or any(inside in told for inside in INSIDES)):
                bad.append((parameter, repr(wrong), told))
    for args, kwargs in (([], {"unheard_of": 1}), ([1] * 30, {}), ([], {})):
        told = said(function, *args, **kwargs)
        if told is not None and ("\n" in told or any(inside in told for inside in INSIDES)):
            bad.append((args, kwargs, told))
    assert not bad
    assert refused >= 5 or name in ("scalar", "part", "passes", "set_attr")


@pytest.mark.parametrize("call, words", [
    (lambda: octavo.Session(BERT, count_clipped="yes"), "Session(): count_clipped takes True or False, not str"),
    (lambda: octavo.Session(BERT, threads="two"), "Session(): threads takes a whole number, not str"),
    (lambda: octavo.Session(BERT, thread=2), "Session() got an unexpected keyword argument 'thread'; it takes model, threads, fuse, max_memory, max_nodes, count_clipped, packed, logits_to_keep, progress, numa_node"),
    (lambda: octavo.Session(), "Session() missing a required argument: 'model'; it takes model, threads, fuse, max_memory, max_nodes, count_clipped, packed, logits_to_keep, progress, numa_node"),
    (lambda: octavo.Session(BERT, threads=10**13), "Session(): threads is 10000000000000, which is beyond what it can be"),
    (lambda: octavo.Session(BERT, max_memory="1 GB"), "Session(): max_memory takes a whole number or None, not str"),
    (lambda: octavo.Session(BERT).run_together(batch(0)), "Session.run_together(): inputs takes a list, not dict"),
    (lambda: octavo.Session(BERT).run_together([batch(0)], states=[1]), "Session.run_together(): states takes a list of State or None, not list with int"),
    (lambda: octavo.session_options(threads="two"), "session_options(): threads takes a whole number or None, not str"),
    (lambda: octavo.apply(None), "a Graph is wanted here, not None"),
    (lambda: octavo.bench(BERT, shapes={"input_ids": 3}), "shapes(): 'input_ids' takes a list, not int"),
    (lambda: octavo.bench(BERT, seconds=float("nan")), "bench(): seconds takes a number, not nan"),
    (lambda: octavo.optimize(BERT, assume=["x"]), "optimize(): assume takes a dict or None, not list"),
    (lambda: octavo.text_batches(["a", 5], "tokenizer.json", BERT), "text_batches(): texts takes a path or a list of str, not list with int"),
    (lambda: octavo.calibrate(BERT), "calibrate() missing a required argument: 'calibration'"),
])
def test_the_sentence_names_function_argument_and_what_it_takes(call, words):
    with pytest.raises(TypeError) as error:
        call()
    assert str(error.value) == words


@pytest.mark.parametrize("arguments, sentence", [
    ({"held_out": -5}, "held_out is -5; it takes a number from -1 to 1000000"),
    ({"min_db": -5}, "min_db is -5; it takes a number from 0 to 200"),
    ({"min_db": float("nan")}, "min_db is nan; it takes a number from 0 to 200"),
    ({"min_cosine": 1.5}, "min_cosine is 1.5; it takes a number from 0 to 1"),
    ({"max_kl": -0.01}, "max_kl is -0.01; it takes a number from 0 to 100"),
    ({"bits": 9}, "bits is 9; it takes a number from 4 to 8"),
    ({"threads": -1}, "threads is -1; it takes a number from 0 to 1024"),
])
def test_numbers_have_the_range_of_the_flags(arguments, sentence):
    with pytest.raises(octavo.OctavoError) as error:
        octavo.optimize(BERT, "dynamic", **arguments)
    assert str(error.value) == sentence


@pytest.mark.parametrize("truth", [True, np.bool_(True)])
def test_true_is_no_number(fitting, truth):
    """It would count as 1: of every argument that takes a number, whoever reads it."""
    session = octavo.Session(BERT)
    options = [("min_db", "a number or None"), ("bits", "a number or None"), ("held_out", "a whole number"), ("threads", "a whole number"),
               ("max_memory", "a whole number or None"), ("max_nodes", "a whole number or None")]
    for name, words in options:
        with pytest.raises(TypeError, match=rf"optimize\(\): {name} takes {words}, not bool"):
            octavo.optimize(BERT, "dynamic", **{name: truth})
    calls = [
        ("Session", lambda: octavo.Session(BERT, threads=truth), "threads"), ("Session", lambda: octavo.Session(BERT, max_nodes=truth), "max_nodes"),
        ("load", lambda: octavo.load(BERT, truth), "threads"), ("Session.state", lambda: session.state(truth), "tokens"),
        ("compare", lambda: octavo.compare(BERT, BERT, [batch(0)], threads=truth), "threads"), ("bench", lambda: octavo.bench(BERT, seconds=truth), "seconds"),
        ("bench", lambda: octavo.bench(BERT, threads=[1, truth]), "threads"), ("perplexity", lambda: octavo.perplexity(BERT, [1, 2], stride=truth), "stride"),
        ("scalar", lambda: octavo.scalar(truth), "value"), ("tune", lambda: octavo.tune(BERT, len, [batch(0)], budget=truth), "budget"),
        ("Graph", lambda: octavo.Graph(BERT, max_nodes=truth), "max_nodes"),
    ]
    for place, call, name in calls:
        with pytest.raises(TypeError, match=rf"^{place}\(\): {name} takes a .*number.*, not .*bool$"):
            call()
    assert octavo.Session(BERT, count_clipped=False, threads=np.int64(1)).threads == 1


def test_a_file_is_written_whole_or_not_at_all(tmp_path):
    result = octavo.optimize(BERT, "float")
    page = tmp_path / "page.html"
    page.write_text("before")
    page.chmod(0o640)
    with pytest.raises(octavo.OctavoError, match="cannot write '/dev/full': No space left on device"):
        result.save_html("/dev/full")
    with pytest.raises(octavo.OctavoError, match="cannot write '.*nowhere/page.html': the folder '.*nowhere' does not exist"):
        result.save_html(tmp_path / "nowhere" / "page.html")
    result.save_html(page)
    model = tmp_path / "model.onnx"
    model.write_text("before")
    model.chmod(0o600)
    result.save(model)
    assert model.read_bytes() == result.model and model.stat().st_mode & 0o777 == 0o600
    model.unlink()
    assert page.read_text() == result.html and page.stat().st_mode & 0o777 == 0o640 and [p.name for p in tmp_path.iterdir()] == ["page.html"]


def test_a_warning_is_told_at_the_callers_line(tmp_path):
    with pytest.warns(UserWarning) as told:
        octavo.optimize(BERT, calibration="random:1")
    assert {warning.filename for warning in told} == {__file__}


@pytest.mark.parametrize("name", ["State", "Node", "Value", "Rewriter", "Result", "Match"])
def test_what_octavo_alone_makes_is_refused(name):
    """Its memory is not written yet: a method would read what lies there, which ended the process."""
    thing = getattr(octavo, name)
    for call in (thing, lambda: thing.__new__(thing)):
        with pytest.raises(TypeError, match=rf"^{name}\(\) cannot be called; octavo itself makes what is of this class"):
            call()


def test_a_session_may_have_subclasses():
    class Mine(octavo.Session):
        def __init__(self):
            super().__init__(BERT, threads=1)
            self.more = 1

    class Wrong(octavo.Session):
        def __init__(self):
            pass

    assert Mine().more == 1 and len(Mine().run(inputs_of(Mine(), batch(0)))) > 0
    with pytest.raises(TypeError, match="__init__"):
        Wrong()


def test_what_is_no_part_of_a_graph_is_not_equal_to_one():
    graph = octavo.Graph(BERT)
    assert graph.inputs[0] != 3 and graph.nodes[0] != "x" and graph.inputs[0] == graph.inputs[0]


def test_the_line_of_every_function_made_in_cpp_is_understood():
    compiled = octavo._octavo
    things = {name: thing for name, thing in vars(compiled).items() if callable(thing) and not isinstance(thing, type)}
    for name, thing in vars(compiled).items():
        if isinstance(thing, type) and type(thing).__name__ == "pybind11_type":
            things |= {f"{name}.{m}": f for m, f in vars(thing).items() if callable(f) and (m == "__init__" or not m.startswith("_"))}
    assert len(things) > 60
    without = {name for name, thing in things.items() if not hasattr(thing, "__wrapped__") and not inspect.isfunction(thing)}
    assert without == {f"{made}.__init__" for made in ("Match", "CompiledRule", "Result", "State", "Rewriter", "Node", "Value")}  # by octavo alone


def test_help_shows_signatures_and_texts():
    assert list(inspect.signature(octavo.Session.run).parameters) == ["self", "inputs", "outputs", "donate", "state"]
    assert inspect.signature(octavo.Session).parameters["threads"].default == 0
    assert "Outputs by name" in octavo.Session.run.__doc__ and "octavo._octavo" not in octavo.Session.run.__doc__


def test_run_leaves_pythons_lock_to_others():
    """While one thread is in run, another one counts: had run kept the lock, it would stand still until the end."""
    session = octavo.Session(BERT, threads=1)
    feed = inputs_of(session, batch(0, rows=256, length=48))
    session.run(feed)
    took, ticks, done = 0.0, 0, threading.Event()

    def work():
        nonlocal took
        start = time.perf_counter()
        for _ in range(3):
            session.run(feed)
        took = time.perf_counter() - start
        done.set()

    thread = threading.Thread(target=work)
    thread.start()
    last, longest = time.perf_counter(), 0.0
    while not done.is_set():
        time.sleep(0.0005)
        now = time.perf_counter()
        longest, last, ticks = max(longest, now - last), now, ticks + 1
    thread.join()
    assert ticks > 5 and longest < took / 2, (took, longest, ticks)


def test_asyncio_awaits_runs():
    """As the FAQ has it: runs in threads, the loop goes on, and each result is that of its own input."""
    session = octavo.Session(BERT, threads=1)
    feeds = [inputs_of(session, batch(seed)) for seed in range(8)]
    want = [session.run(feed) for feed in feeds]

    async def serve():
        beats = 0

        async def beat():
            nonlocal beats
            while True:
                await asyncio.sleep(0)
                beats += 1

        pulse = asyncio.create_task(beat())
        own = concurrent.futures.ThreadPoolExecutor(2)
        got = await asyncio.gather(*(asyncio.to_thread(session.run, feed) for feed in feeds))
        loop = asyncio.get_running_loop()
        again = await asyncio.gather(*(loop.run_in_executor(own, session.run, feed) for feed in feeds))
        pulse.cancel()
        return got, again, beats

    got, again, beats = asyncio.run(serve())
    assert beats > 0
    for outputs in (got, again):
        for one, expected in zip(outputs, want):
            for a, b in zip(one, expected):
                np.testing.assert_array_equal(a, b)


def unmade(thing):
    return thing.__new__(thing)


class Derived(octavo.Session):
    """What is derived may not be made, too."""


@pytest.mark.parametrize("thing", [octavo.Session, octavo.Graph, Derived, octavo._octavo.RuleBuilder, octavo._octavo._Tries], ids=lambda thing: thing.__name__)
def test_what_new_alone_has_made_is_refused(thing):
    """Its memory is not written: each method ends with a sentence, and so does each function that takes it."""
    calls = {name: member for name, member in vars(thing.__mro__[1] if thing is Derived else thing).items() if not name.startswith("__") or name in ("__len__", "__str__", "__repr__")}
    assert len(calls) > 2
    for name, member in calls.items():
        call = member.fget if isinstance(member, property) else member
        if name.startswith("_get_") or not callable(call):
            continue
        for arguments in ((), ({},), ("x",)):
            try:
                call(unmade(thing), *arguments)
            except (TypeError, AttributeError):
                continue
            raise AssertionError(f"{name}{arguments} went through")
    with pytest.raises(TypeError, match=rf"^this {thing.__name__} is not made yet, its __init__ has not run; call {thing.__name__}\(\.\.\.\)$"):
        {"Session": lambda: unmade(thing).inputs, "Derived": lambda: unmade(thing).run({}), "Graph": lambda: octavo.Session(unmade(thing)),
         "RuleBuilder": lambda: unmade(thing).input("x"), "_Tries": lambda: unmade(thing).layers()}[thing.__name__]()


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_what_cannot_be_pickled_says_so(protocol):
    """Protocols 0 and 1 ended the process."""
    graph = octavo.Graph(BERT)
    for thing in (octavo.Session(BERT, threads=1), graph, graph.nodes[0], graph.inputs[0], octavo.optimize(BERT, "float")):
        name = type(thing).__name__
        for way in (lambda: pickle.dumps(thing, protocol), lambda: copy.copy(thing), thing.__reduce__):
            with pytest.raises(TypeError, match=f"^cannot pickle a {name}: it holds what is in this process alone; make it anew from its model$"):
                way()


class Restored(octavo.Session):
    def __init__(self, path):
        super().__init__(path, threads=1)
        self.path = path

    def __getstate__(self):
        return self.path

    def __setstate__(self, path):
        self.__init__(path)


class Reduced(Restored):
    def __reduce__(self):
        return Reduced, (self.path,)


@pytest.mark.parametrize("thing", [Restored, Reduced])
def test_a_class_that_is_derived_may_say_how_it_is_pickled(thing):
    for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1):
        again = pickle.loads(pickle.dumps(thing(BERT), protocol))
        assert type(again) is thing and again.inputs == octavo.Session(BERT, threads=1).inputs
    if thing is Reduced:
        assert pickle.loads(pickle.dumps(thing(BERT), 0)).path == BERT
    else:
        with pytest.raises(TypeError, match="^cannot pickle a Restored"):
            pickle.dumps(thing(BERT), 1)


def test_ports_are_copied_and_pickled_with_all_that_they_know():
    port = octavo.Session(BERT, threads=1).inputs[0]
    for again in (copy.copy(port), copy.deepcopy(port), *(pickle.loads(pickle.dumps(port, protocol)) for protocol in range(pickle.HIGHEST_PROTOCOL + 1))):
        assert again == port and (again.name, again.type, again.dtype, again.shape) == (port.name, port.type, port.dtype, port.shape)
