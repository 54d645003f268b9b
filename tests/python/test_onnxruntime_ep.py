"""octavo as an execution provider of ONNX Runtime: takes whole models, gives Session's bits, leaves the rest to the CPU provider."""

import json
import re
import subprocess
import sys
import threading

import numpy as np
import octavo
import onnx
import pytest
from conftest import BERT, batch, inputs_of
from onnx import TensorProto, helper, numpy_helper

ort = pytest.importorskip("onnxruntime", minversion="1.24", reason="no ONNX Runtime here: ./dev venv onnxruntime installs it")

NAME = "OctavoExecutionProvider"


@pytest.fixture(scope="module")
def devices():
    try:
        library = octavo.ep_library()
    except octavo.OctavoError as error:
        pytest.skip(str(error))
    if not any(d.ep_name == NAME for d in ort.get_ep_devices()):  # another test of this process may have done it
        ort.register_execution_provider_library("octavo", library)
    return [d for d in ort.get_ep_devices() if d.ep_name == NAME]


def session(devices, model, profile=None, config=None, of_session=None, **options):
    wanted = ort.SessionOptions()
    wanted.log_severity_level = 3
    for name, value in (of_session or {}).items():
        setattr(wanted, name, value)
    for name, value in (config or {}).items():
        wanted.add_session_config_entry(name, str(value))
    if profile:
        wanted.enable_profiling = True
        wanted.profile_file_prefix = str(profile)
    wanted.add_provider_for_devices(devices, {name: str(value) for name, value in options.items()})
    return ort.InferenceSession(model if isinstance(model, bytes) else str(model), wanted)


def ran(runtime_session, feed):
    """Which provider ran which op, by ONNX Runtime's own profile of one run."""
    runtime_session.run(None, feed)
    with open(runtime_session.end_profiling(), encoding="utf-8") as file:
        events = [e["args"] for e in json.load(file) if e.get("cat") == "Node" and "provider" in e.get("args", {})]
    return {(e["provider"], e["op_name"]) for e in events}


@pytest.fixture(scope="module")
def data():
    return [inputs_of(octavo.Session(BERT, threads=1), batch(seed)) for seed in range(3)]


@pytest.mark.parametrize("kind", ["float", "int8"])
def test_a_model_is_taken_whole_and_gives_the_bits_of_a_session(devices, data, kind, tmp_path):
    model = BERT.read_bytes() if kind == "float" else octavo.optimize(BERT, calibration=data).model
    ours = octavo.Session(model, threads=2)
    theirs = session(devices, model, profile=tmp_path / "p", threads=2)
    assert theirs.get_providers()[0] == NAME
    for feed in (*data, inputs_of(ours, batch(7, rows=3, length=11))):
        for a, b in zip(theirs.run(None, feed), ours.run(feed), strict=True):
            assert a.dtype == b.dtype and np.array_equal(a, b)
    assert {provider for provider, _ in ran(theirs, data[0])} == {NAME}


def test_recipe_dynamic_quantizes_what_is_taken(devices, data):
    want = octavo.Session(octavo.optimize(BERT, recipe="dynamic").model, threads=1).run(data[0])
    got = session(devices, BERT, recipe="dynamic", threads=1).run(None, data[0])
    exact = session(devices, BERT, threads=1).run(None, data[0])
    error = lambda a, b: np.linalg.norm(a - b) / np.linalg.norm(b)
    assert 0 < error(got[0], exact[0]) < 0.2 and error(got[0], want[0]) < 1e-3


def failure(make, capfd):
    """Why there is no session on octavo: ONNX Runtime's Python raises that from 1.32 on; before, it prints that and goes on without the provider."""
    try:
        assert NAME not in make().get_providers()
    except Exception as error:  # its own classes have no other base
        assert not isinstance(error, AssertionError), error
        return str(error)
    return capfd.readouterr().out


def refusal(devices, capfd, **options):
    return failure(lambda: session(devices, BERT, **options), capfd)


def test_options_that_mean_nothing_are_refused(devices, capfd):
    assert "octavo: option threads is a number from 0 (all) to 1024, not 'many'" in refusal(devices, capfd, threads="many")
    assert "octavo: there is no recipe 'nothing'" in refusal(devices, capfd, recipe="nothing")
    assert "octavo: recipe 'int8' needs calibration data, which a session has not" in refusal(devices, capfd, recipe="int8")
    assert "octavo: the execution provider takes recipe or threads, not 'recip'; did you mean recipe?" in refusal(devices, capfd, recip="dynamic")
    assert "octavo: the execution provider takes recipe or threads, not 'device_id'" in refusal(devices, capfd, recipe="dynamic", device_id=0)
    by_hand = {"ep.octavoexecutionprovider.thread": 2}  # as sessions are configured by a file
    assert "not 'thread'; did you mean threads?" in failure(lambda: session(devices, BERT, config=by_hand), capfd)
    assert NAME in session(devices, BERT, config={"ep.another.recip": 1, "session.set_denormal_as_zero": 1}).get_providers()
    for options, sentence in (({"recipe": "fp8"}, "recipe 'fp8' needs calibration data, which a session has not"), ({"recipe": "nothing"}, "there is no recipe 'nothing'"),
                              ({"threads": -1}, "threads is -1; it takes 0 .all of the CPU. to 1024")):
        with pytest.raises(octavo.OctavoError, match=sentence):
            octavo.session_options(**options)


def split_by_an_op_of_another():
    """y = ReLU(ReLU(x W) by an op that octavo does not know, W): two parts with ONNX Runtime's node between them; x also goes around it."""
    w = numpy_helper.from_array(np.linspace(-1, 1, 16, dtype=np.float32).reshape(4, 4), "w")
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, ["rows", 4]) for n in "xy")
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"]), helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("BiasGelu", ["b", "bias"], ["c"], domain="com.microsoft"),
        helper.make_node("Inverse", ["square"], ["d"], domain="com.microsoft"),
        helper.make_node("Gather", ["d", "zero"], ["row"]), helper.make_node("Add", ["c", "row"], ["e"]),
        helper.make_node("MatMul", ["e", "w"], ["f"]), helper.make_node("Add", ["f", "b"], ["y"]),
        helper.make_node("MatMul", ["wt", "x4"], ["square"]),
    ]
    inits = [w, numpy_helper.from_array(np.ones(4, np.float32), "bias"), numpy_helper.from_array(np.array(0), "zero"),
             numpy_helper.from_array(np.eye(4, dtype=np.float32) * 2, "wt")]
    x4 = helper.make_tensor_value_info("x4", TensorProto.FLOAT, [4, 4])
    graph = helper.make_graph(nodes, "g", [x, x4], [y], inits)
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9).SerializeToString()


def test_what_octavo_does_not_know_runs_on_the_cpu_provider(devices, tmp_path):
    model = split_by_an_op_of_another()
    feed = {"x": np.random.default_rng(3).standard_normal((5, 4), dtype=np.float32), "x4": np.eye(4, dtype=np.float32) * 3}
    want = ort.InferenceSession(model, providers=["CPUExecutionProvider"]).run(None, feed)[0]
    mixed = session(devices, model, profile=tmp_path / "p", threads=1)
    np.testing.assert_allclose(mixed.run(None, feed)[0], want, rtol=1e-5, atol=1e-6)
    who = ran(mixed, feed)
    assert ("CPUExecutionProvider", "Inverse") in who and any(provider == NAME for provider, _ in who)
    assert not any(op == "MatMul" for provider, op in who if provider != NAME)


def with_if():
    """y = then: x W, else: x + W's first row; W comes from the graph around."""
    w = numpy_helper.from_array(np.arange(16, dtype=np.float32).reshape(4, 4), "w")
    out = lambda name: helper.make_tensor_value_info(name, TensorProto.FLOAT, ["rows", 4])
    then = helper.make_graph([helper.make_node("MatMul", ["x", "w"], ["t"])], "then", [], [out("t")])
    other = helper.make_graph(
        [helper.make_node("Gather", ["w", "zero"], ["r"]), helper.make_node("Add", ["x", "r"], ["e"])], "else", [], [out("e")],
        [numpy_helper.from_array(np.array(0), "zero")])
    choose = helper.make_tensor_value_info("choose", TensorProto.BOOL, [])
    graph = helper.make_graph(
        [helper.make_node("If", ["choose"], ["y"], then_branch=then, else_branch=other)], "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["rows", 4]), choose], [out("y")], [w])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9).SerializeToString()


def test_branches_go_with_their_if(devices, tmp_path):
    theirs = session(devices, with_if(), profile=tmp_path / "p", threads=1)
    x, w = np.ones((2, 4), np.float32), np.arange(16, dtype=np.float32).reshape(4, 4)
    for choose, want in ((True, x @ w), (False, x + w[0])):
        assert np.array_equal(theirs.run(None, {"x": x, "choose": np.array(choose)})[0], want)
    who = {provider for provider, _ in ran(theirs, {"x": x, "choose": np.array(True)})}
    assert who == {NAME if tuple(map(int, ort.__version__.split(".")[:2])) >= (1, 27) else "CPUExecutionProvider"}


def test_threads_share_a_session_and_errors_are_sentences(devices, data):
    theirs = session(devices, BERT, threads=1)
    want = [theirs.run(None, feed)[0] for feed in data]
    got = [None] * len(data)

    def work(i):
        for _ in range(10):
            got[i] = theirs.run(None, data[i])[0]

    threads = [threading.Thread(target=work, args=(i,)) for i in range(len(data))]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert all(np.array_equal(a, b) for a, b in zip(want, got))
    wrong = {**data[0], "input_ids": np.full_like(data[0]["input_ids"], 10**6)}
    with pytest.raises(Exception, match="octavo: .*outside an axis"):
        theirs.run(None, wrong)


def test_io_binding_writes_where_it_is_told(devices, data):
    theirs = session(devices, BERT, threads=1)
    want = theirs.run(None, data[0])
    binding = theirs.io_binding()
    for name, array in data[0].items():
        binding.bind_cpu_input(name, array)
    outputs = [np.empty_like(array) for array in want]
    for port, array in zip(theirs.get_outputs(), outputs):
        binding.bind_output(port.name, "cpu", 0, np.float32, array.shape, array.ctypes.data)
    theirs.run_with_iobinding(binding)
    assert all(np.array_equal(a, b) for a, b in zip(outputs, want))


def aligned(shape, to):
    """An array of zeros that begins at so many bytes behind a multiple of 64."""
    room = np.zeros(int(np.prod(shape)) * 4 + 128, np.uint8)
    start = -room.ctypes.data % 64 + to
    return room[start : start + int(np.prod(shape)) * 4].view(np.float32).reshape(shape)


@pytest.mark.parametrize("to", [0, 4])
def test_an_array_may_be_input_and_output(devices, to):
    """Steps write into what is bound, but not while the input that lies there is still read."""
    w = np.random.default_rng(3).normal(0, 0.1, (96, 96)).astype(np.float32)
    nodes = [helper.make_node("MatMul", ["x", "w"], ["m"]), helper.make_node("Add", ["m", "x"], ["y"])]
    info = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [96, 96]) for name in ("x", "m", "y")]
    graph = helper.make_graph(nodes, "g", info[:1], info[1:], [numpy_helper.from_array(w, "w")])
    theirs = session(devices, helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9).SerializeToString(), threads=1)
    x = np.random.default_rng(4).normal(0, 1, (96, 96)).astype(np.float32)
    want = theirs.run(None, {"x": x})
    for same in ("m", "y"):
        arrays = {"x": aligned((96, 96), to), "m": aligned((96, 96), to), "y": aligned((96, 96), to)}
        arrays[same] = arrays["x"]
        for _ in range(2):  # without a plan of memory, and with one
            arrays["x"][:] = x
            binding = theirs.io_binding()
            binding.bind_input("x", "cpu", 0, np.float32, x.shape, arrays["x"].ctypes.data)
            for name in ("m", "y"):
                binding.bind_output(name, "cpu", 0, np.float32, x.shape, arrays[name].ctypes.data)
            theirs.run_with_iobinding(binding)
            assert all(np.array_equal(arrays[name], array) for name, array in zip(("m", "y"), want))


def test_a_process_ends_well_with_a_session_in_a_global(devices):
    code = (
        "import numpy as np, onnxruntime as ort, octavo, sys\n"
        "ort.register_execution_provider_library('octavo', octavo.ep_library())\n"
        f"devices = [d for d in ort.get_ep_devices() if d.ep_name == '{NAME}']\n"
        "options = ort.SessionOptions()\n"
        "options.add_provider_for_devices(devices, {})\n"
        f"kept = ort.InferenceSession({str(BERT)!r}, options)\n"
        "print(kept.get_providers()[0])\n")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout.strip()) == (0, NAME), done.stderr


def compiled(devices, model, path, embed=1, **options):
    config = {"ep.context_enable": 1, "ep.context_file_path": path, "ep.context_embed_mode": embed}
    session(devices, model, config=config, **options)
    return onnx.load(path)


@pytest.mark.parametrize("recipe", ["", "dynamic"])
def test_what_is_compiled_is_kept_and_gives_the_same_bits(devices, data, recipe, tmp_path):
    options = {"threads": 1, **({"recipe": recipe} if recipe else {})}
    (node,) = compiled(devices, BERT, tmp_path / "c.onnx", **options).graph.node
    attrs = {a.name: helper.get_attribute_value(a) for a in node.attribute}
    assert (node.op_type, node.domain, attrs["source"], attrs["embed_mode"]) == ("EPContext", "com.microsoft", NAME.encode(), 1)
    fused = [n.op_type for n in onnx.load_from_string(attrs["ep_cache_context"]).graph.node]
    ops = {op.split("__")[0] for op in fused}
    assert len(fused) < 60 and ("QuantizedLinear" if recipe else "Sdpa") in ops and "Softmax" not in ops, ops
    again = session(devices, tmp_path / "c.onnx", profile=tmp_path / "p", threads=1)
    for a, b in zip(again.run(None, data[1]), session(devices, BERT, **options).run(None, data[1]), strict=True):
        assert np.array_equal(a, b)
    assert {provider for provider, _ in ran(again, data[0])} == {NAME}


@pytest.mark.parametrize("embed", [0, ""])  # "": ONNX Runtime's default, which is 0
def test_what_is_compiled_lies_in_a_file_beside_its_model(devices, data, embed, tmp_path):
    want = session(devices, BERT, recipe="dynamic", threads=1).run(None, data[1])
    (tmp_path / "a").mkdir()
    kept = compiled(devices, BERT, tmp_path / "a" / "c.onnx", embed=embed, recipe="dynamic", threads=1)
    attrs = {a.name: helper.get_attribute_value(a) for a in kept.graph.node[0].attribute}
    name = attrs["ep_cache_context"].decode()
    assert attrs["embed_mode"] == 0 and sorted(p.name for p in (tmp_path / "a").iterdir()) == sorted(["c.onnx", name])
    assert "QuantizedLinear" in {node.op_type.split("__")[0] for node in onnx.load(tmp_path / "a" / name).graph.node}
    (tmp_path / "a").rename(tmp_path / "b")  # the two belong together, wherever they are
    again = session(devices, tmp_path / "b" / "c.onnx", profile=tmp_path / "p", threads=1)
    assert all(np.array_equal(a, b) for a, b in zip(again.run(None, data[1]), want, strict=True))
    assert {provider for provider, _ in ran(again, data[0])} == {NAME}
    as_bytes = (tmp_path / "b" / "c.onnx").read_bytes()
    from_memory = session(devices, as_bytes, config={"ep.context_file_path": tmp_path / "b" / "c.onnx"}, threads=1)
    assert np.array_equal(from_memory.run(None, data[1])[0], want[0])
    twice = compiled(devices, tmp_path / "b" / "c.onnx", tmp_path / "b" / "cc.onnx", embed=embed)
    other = helper.get_attribute_value(next(a for a in twice.graph.node[0].attribute if a.name == "ep_cache_context"))
    assert (tmp_path / "b" / other.decode()).read_bytes() == (tmp_path / "b" / name).read_bytes()


def test_a_file_that_is_not_beside_its_model_is_told(devices, tmp_path, capfd):
    kept = compiled(devices, BERT, tmp_path / "c.onnx", embed=0)
    (named,) = [a for a in kept.graph.node[0].attribute if a.name == "ep_cache_context"]
    name = named.s.decode()
    told = failure(lambda: session(devices, kept.SerializeToString()), capfd)
    assert "the model was given as bytes" in told and "set ep.context_file_path" in told
    for wrong in ("../" + name, str(tmp_path / name), "", "a/../../" + name):
        named.s = wrong.encode()
        onnx.save(kept, tmp_path / "wrong.onnx")
        assert "which is no file in the folder of its model" in failure(lambda: session(devices, tmp_path / "wrong.onnx"), capfd), wrong
    (tmp_path / name).unlink()
    told = failure(lambda: session(devices, tmp_path / "c.onnx"), capfd)
    assert "octavo: cannot read" in told and name[:8] in told


def threads_of(code):
    """How many threads a process has at most, from a session's making to the end of its runs."""
    head = (
        "import os, numpy as np, onnxruntime as ort, octavo\n"
        "count = lambda: len(os.listdir('/proc/self/task'))\n"
        "ort.register_execution_provider_library('octavo', octavo.ep_library())\n"
        f"devices = [d for d in ort.get_ep_devices() if d.ep_name == '{NAME}']\n"
        "options = ort.SessionOptions()\n")
    tail = (
        f"session = ort.InferenceSession({str(BERT)!r}, options)\n"
        "feed = {'input_ids': np.ones((8, 64), np.int64), 'attention_mask': np.ones((8, 64), np.int64)}\n"
        "before = count()\n"
        "for _ in range(3): out = session.run(None, feed)\n"
        "print(session.get_providers()[0], count() - before, before - base, repr(float(out[0].sum())))\n")
    done = subprocess.run([sys.executable, "-c", head + "base = count()\n" + code + tail], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    name, own, hosts, total = done.stdout.split()
    assert name == NAME
    return int(own), int(hosts), total


def test_threads_are_those_of_the_session_unless_the_option_says_otherwise(devices):
    for count in (1, 3):
        own, hosts, total = threads_of(f"options.intra_op_num_threads = {count}\noptions.add_provider_for_devices(devices, {{}})\n")
        assert (own, hosts) == (0, count - 1)
        assert total == threads_of("options.intra_op_num_threads = 1\noptions.add_provider_for_devices(devices, {'threads': '3'})\n")[2]
    quiet = "options.intra_op_num_threads = 2\noptions.add_session_config_entry('session.intra_op.allow_spinning', '0')\n"
    assert threads_of(quiet + "options.add_provider_for_devices(devices, {})\n")[:2] == (0, 1)


def test_the_provider_goes_by_its_name(devices, data):
    """As optimum's classes and transformers' pipelines on them ask for one."""
    if tuple(map(int, ort.__version__.split(".")[:2])) < (1, 31):
        return  # it knows such providers by their devices alone
    assert NAME in ort.get_available_providers()
    quiet = ort.SessionOptions()
    quiet.log_severity_level = 3
    named = ort.InferenceSession(str(BERT), quiet, providers=[NAME], provider_options=[{"threads": "1"}])
    assert named.get_providers()[0] == NAME
    assert np.array_equal(named.run(None, data[0])[0], session(devices, BERT, threads=1).run(None, data[0])[0])


def test_the_log_says_what_is_taken_and_why_the_rest_is_not(devices, capfd):
    session(devices, split_by_an_op_of_another(), of_session={"log_severity_level": 1}, threads=1)
    told = capfd.readouterr().err
    assert re.search(r"octavo: takes (7 of 8|8 of 9) nodes in 2 parts; it has no meaning for Inverse", told), told
    session(devices, split_by_an_op_of_another(), threads=1)
    assert "octavo: takes" not in capfd.readouterr().err


def test_contexts_beside_nodes_of_others_and_of_others(devices, tmp_path):
    text = helper.make_node("Trilu", ["m"], ["t"])
    w = numpy_helper.from_array(np.ones((4, 4), np.float32), "w")
    nodes = [helper.make_node("MatMul", ["x", "w"], ["m"]), text, helper.make_node("Unheard", ["t"], ["u"], domain="com.example"), helper.make_node("MatMul", ["u", "w"], ["y"])]
    info = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [4, 4]) for name in ("x", "y")]
    body = helper.make_function("com.example", "Unheard", ["a"], ["b"], [helper.make_node("Neg", ["a"], ["b"])], [helper.make_opsetid("", 17)])
    model = helper.make_model(helper.make_graph(nodes, "g", info[:1], info[1:], [w]), functions=[body], ir_version=9,
                              opset_imports=[helper.make_opsetid("", 17), helper.make_opsetid("com.example", 1)])
    onnx.save(model, tmp_path / "m.onnx")
    x = np.arange(16, dtype=np.float32).reshape(4, 4)
    kept = compiled(devices, tmp_path / "m.onnx", tmp_path / "c.onnx")
    assert "EPContext" in {node.op_type for node in kept.graph.node}
    want = session(devices, tmp_path / "m.onnx").run(None, {"x": x})[0]
    assert np.array_equal(session(devices, tmp_path / "c.onnx").run(None, {"x": x})[0], want)
    twice = compiled(devices, tmp_path / "c.onnx", tmp_path / "cc.onnx")
    assert [node.op_type for node in twice.graph.node] == [node.op_type for node in kept.graph.node]
    for node in kept.graph.node:
        for attribute in node.attribute:
            if attribute.name == "ep_cache_context":
                attribute.s = attribute.s[: len(attribute.s) // 2]  # cut off
    onnx.save(kept, tmp_path / "broken.onnx")
    with pytest.raises(Exception, match="octavo|OctavoExecutionProvider|EPContext"):
        assert NAME not in session(devices, tmp_path / "broken.onnx").get_providers()
        raise RuntimeError("octavo: printed, not raised")  # by the Python of ONNX Runtime before 1.32


def test_steps_stand_in_onnxruntimes_profile(devices, data, tmp_path):
    profiled = session(devices, BERT, profile=tmp_path / "p", threads=1)
    for _ in range(2):
        profiled.run(None, data[0])
    with open(profiled.end_profiling(), encoding="utf-8") as file:
        events = json.load(file)
    steps = [e for e in events if e.get("args", {}).get("provider") == NAME and e["cat"] == "Kernel"]
    if tuple(map(int, ort.__version__.split(".")[:2])) < (1, 25):
        assert not steps  # its providers have no profiler
        return
    kernels = octavo.Session(BERT, threads=1).kernels
    assert sorted(e["args"]["op_name"] for e in steps) == sorted(2 * kernels)
    assert all(e["args"]["origin"] for e in steps)
    parts = [e for e in events if e.get("cat") == "Node" and e["args"].get("provider") == NAME and e["name"].endswith("_kernel_time")]
    assert len(parts) == 2
    for step in steps:  # each lies within the part that it is of, on its thread
        inside = [p for p in parts if p["ts"] - 2 <= step["ts"] and step["ts"] + step["dur"] <= p["ts"] + p["dur"] + 2 and p["tid"] == step["tid"]]
        assert len(inside) == 1, (step, parts)


def test_the_log_of_a_session_has_what_octavo_tells(devices, data, capfd):
    loud = session(devices, BERT, of_session={"log_severity_level": 0}, threads=1)
    loud.run(None, data[0])
    told = capfd.readouterr().err
    assert "is compiled: path" in told and "memory is planned for" in told, told[-2000:]
