"""What strangers' files, odd arguments, limits and signals do to the program and the module: one sentence each, nothing left behind."""

import json
import os
import random
import resource
import signal
import subprocess
import time

import numpy as np
import octavo
import onnx
import pytest
from conftest import BERT, batch, inputs_of
from onnx import TensorProto, helper, numpy_helper

ODD = b"\xff\x1b[31m\xc3("  # no UTF-8, and red from here on
PLACE = "PLACEHOL"  # as long
assert len(ODD) == len(PLACE)


def info(name, shape=(2, 3), dtype=TensorProto.FLOAT):
    return helper.make_tensor_value_info(name, dtype, shape)


def model_of(nodes, inputs, outputs, initializers=(), **more):
    graph = helper.make_graph(nodes, "g", inputs, outputs, initializers)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8, **more)


def odd_model():
    """Input, node and output have a name that is no text; a second output holds strings that are none."""
    nodes = [helper.make_node("Relu", [PLACE + "x"], [PLACE + "y"], PLACE + "n"), helper.make_node("Identity", ["s"], ["words"])]
    strings = helper.make_tensor("s", TensorProto.STRING, [2], [PLACE.encode(), "naïve".encode()])
    model = model_of(nodes, [info(PLACE + "x")], [info(PLACE + "y"), info("words", [2], TensorProto.STRING)], [strings])
    return model.SerializeToString().replace(PLACE.encode(), ODD)


def relu(path, rows=2):
    onnx.save(model_of([helper.make_node("Relu", ["x"], ["y"])], [info("x", (rows, 3))], [info("y", (rows, 3))]), path)
    return path


def one_line(done, *words):
    assert done.returncode == 1, (done.returncode, done.stderr)
    lines = done.stderr.splitlines()
    assert len(lines) == 1 and "at fault" not in lines[0], done.stderr
    for word in words:
        assert word in lines[0], lines[0]


# --- text ----------------------------------------------------------------------------------------------------------


def test_names_that_are_no_text_are_shown_escaped(run, tmp_path):
    (tmp_path / "odd.onnx").write_bytes(odd_model())
    np.savez(tmp_path / "wrong.npz", other=np.zeros((2, 3), np.float32))
    shown = r"\xff\x1b[31m\xc3("
    for args in (["inspect"], ["inspect", "--json"], ["print"], ["print", "--dot"], ["explain"], ["explain", "--json"]):
        done = run(args[0], "odd.onnx", *args[1:])
        assert done.returncode == 0, done.stderr
        assert "\x1b" not in done.stdout + done.stderr and "\ufffd" not in done.stdout
        if args[-1] == "--json":
            json.loads(done.stdout)
    names = [port["name"] for port in json.loads(run("inspect", "odd.onnx", "--json").stdout)["inputs"]]
    assert names == [shown + "x"]
    one_line(run("run", "odd.onnx", "--inputs", "wrong.npz"), shown + "x")
    done = run("optimize", "odd.onnx", "-o", "out.onnx", "--recipe", "float", "--json", "r.json", "--report", "r.html")
    assert done.returncode == 0 and "\x1b" not in done.stdout, done.stderr
    json.loads((tmp_path / "r.json").read_text())
    assert "\x1b" not in (tmp_path / "r.html").read_text()
    assert ODD in (tmp_path / "out.onnx").read_bytes()  # a name stays what it is


def test_names_come_back_into_a_run():
    session = octavo.Session(odd_model())
    (name, _), = session.inputs
    assert os.fsencode(name) == ODD + b"x"
    output = session.outputs[0][0]
    y, words = session.run({name: np.ones((2, 3), np.float32)}, outputs=[output, "words"])
    assert y.sum() == 6 and [os.fsencode(word) for word in words] == [ODD, "naïve".encode()]
    repr(session.outputs), session.kernels, session.caches
    with pytest.raises(octavo.OctavoError, match="no output"):
        session.run({name: np.ones((2, 3), np.float32)}, outputs=["\udcff"])
    with pytest.raises(octavo.OctavoError, match=r"\\xff"):
        session.run({"x": np.ones((2, 3), np.float32)})
    result = octavo.optimize(odd_model(), recipe="float")
    assert ODD in result.model and result.report["schema"] == 1 and "\x1b" not in result.html


@pytest.mark.parametrize("text", ["", "{", "[]", "null", "7", '"x"', '{"octavo_pipeline": "1"}', '{"octavo_pipeline": 1}', "[" * 200_000,
                                  '{"octavo_pipeline": 1.5, "passes": []}', '{"octavo_pipeline": 1, "passes": [1]}', '{"octavo_pipeline": null}',
                                  '{"octavo_pipeline": 1, "passes": {"a": 1}}', '{"octavo_pipeline": 18446744073709551615, "passes": []}',
                                  '{"octavo_pipeline": 1, "passes": ["\\u001b[31m"]}', '{"octavo_pipeline": 1, "passes": ["dce"], "dynamic": "x"}',
                                  '{"octavo_pipeline": 1, "passes": ["dce"], "keep_float": [[]]}', "\x00", "\ud800", '{"octavo_pipeline": 1e999}'],
                         ids=str.__len__)
def test_pipelines_that_are_none(run, tmp_path, text):
    data = text.encode("utf-8", "surrogatepass")
    (tmp_path / "p.json").write_bytes(data)
    relu(tmp_path / "m.onnx")
    done = run("optimize", "m.onnx", "-o", "out.onnx", "--pipeline", "p.json")
    one_line(done, "there is no pass" if "u001b" in text else "the pipeline")
    assert "exception" not in done.stderr and "\x1b" not in done.stderr
    assert not (tmp_path / "out.onnx").exists()
    for key in ("octavo.pipeline", "octavo.caches"):
        if "\ud800" in text:
            continue
        model = onnx.load(tmp_path / "m.onnx")
        model.metadata_props.add(key=key, value=text)
        octavo.Session(model.SerializeToString(), threads=1).run({"x": np.ones((2, 3), np.float32)})


def test_an_attribute_of_many_numbers_is_no_part_of_a_sentence(run, tmp_path):
    node = helper.make_node("Transpose", ["x"], ["y"], perm=list(range(200_000)))
    onnx.save(model_of([node], [info("x")], [info("y", None)]), tmp_path / "m.onnx")
    for command in ("inspect", "print", "explain", "bench"):
        done = run(command, "m.onnx")
        one_line(done, "200000 in all] is no permutation of a tensor of rank 2")
        assert len(done.stderr) < 500


# --- limits --------------------------------------------------------------------------------------------------------


def test_limits_are_options_of_every_command_that_reads_a_model(run, calib, tmp_path):
    commands = {"inspect": [], "print": [], "explain": [], "run": ["--inputs", calib / "0.npz"], "bench": [], "compare": [BERT, "--data", calib],
                "optimize": ["-o", "out.onnx", "--recipe", "float"], "calibrate": ["--data", calib, "-o", "out.calib"]}
    for command, more in commands.items():
        page = run(command, "--help").stdout
        assert "--max-memory" in page and "--max-nodes" in page and "200000" in page and "768 MB" in page
        one_line(run(command, BERT, *more, "--max-nodes", "5"), "more than 5 nodes", "--max-nodes")
        one_line(run(command, BERT, *more, "--max-memory", "4KB"), "--max-memory")
    for size in ("1GB", "1000MB", "1000000000", "1 GB"):
        assert run("inspect", BERT, "--max-memory", size, "--max-nodes", "100000").returncode == 0
    for size in ("0", "-1", "much", "1XB", ""):
        assert run("inspect", BERT, "--max-memory", size).returncode == 2


def test_limits_in_python():
    for call in (octavo.Session, octavo.load, lambda m, **k: octavo.optimize(m, recipe="float", **k),
                 lambda m, **k: octavo.calibrate(m, [], **k)):
        with pytest.raises(octavo.OctavoError, match="max_nodes"):
            call(BERT, max_nodes=5)
        with pytest.raises(MemoryError, match="max_memory") as caught:
            call(BERT, max_memory=4000)
        assert isinstance(caught.value, octavo.OctavoError)
        with pytest.raises(octavo.OctavoError, match="above 0"):
            call(BERT, max_memory=0)
    assert octavo.Session(BERT, threads=1, max_memory=10**9, max_nodes=10**6).outputs


# --- files ---------------------------------------------------------------------------------------------------------


def external(folder):
    """A model whose weights lie in weights.bin."""
    w = numpy_helper.from_array(np.ones((64, 64), np.float32), "w")
    model = model_of([helper.make_node("MatMul", ["x", "w"], ["y"])], [info("x", (2, 64))], [info("y", (2, 64))], [w])
    onnx.save(model, folder / "in.onnx", save_as_external_data=True, location="weights.bin", size_threshold=0)
    np.savez(folder / "x.npz", x=np.ones((2, 64), np.float32))


def test_what_is_read_is_not_written_over(run, tmp_path):
    external(tmp_path)
    (tmp_path / "batches").mkdir()
    np.savez(tmp_path / "batches" / "0.npz", x=np.ones((2, 64), np.float32))
    os.symlink("weights.bin", tmp_path / "link.bin")
    os.link(tmp_path / "weights.bin", tmp_path / "hard.bin")
    os.link(tmp_path / "weights.bin", tmp_path / "new.onnx.data")
    os.link(tmp_path / "x.npz", tmp_path / "hard.npz")
    os.symlink("x.npz", tmp_path / "link.npz")
    os.symlink("in.onnx", tmp_path / "link.onnx")
    before = {p: p.read_bytes() for p in sorted(tmp_path.rglob("*")) if p.is_file()}
    for out in ("weights.bin", "./weights.bin", "link.bin", "hard.bin", "new.onnx", "batches/0.npz"):
        one_line(run("optimize", "in.onnx", "-o", out, "--recipe", "dynamic", "--calib", "batches"), "cannot write", "its own file")
    for option in ("--report", "--json"):
        one_line(run("optimize", "in.onnx", "-o", "o.onnx", "--recipe", "float", option, "weights.bin"), "its own file")
        one_line(run("optimize", "in.onnx", "-o", "o.onnx", "--recipe", "float", option, "link.onnx"), "its own file")
    for out in ("x.npz", "hard.npz", "link.npz", "./x.npz", "in.onnx", "link.onnx", "weights.bin"):
        one_line(run("run", "in.onnx", "--inputs", "x.npz", "--outputs", out), "its own file")
        one_line(run("calibrate", "in.onnx", "--data", "x.npz", "-o", out), "its own file")
    assert {p: p.read_bytes() for p in sorted(tmp_path.rglob("*")) if p.is_file()} == before
    # A model may take its own place: it is complete before the old one goes.
    assert run("optimize", "in.onnx", "-o", "link.onnx", "--recipe", "float", "-q").returncode == 0
    assert (tmp_path / "link.onnx").is_symlink() and run("run", "in.onnx", "--inputs", "x.npz").returncode == 0


def test_a_limit_of_file_sizes_leaves_nothing(octavo_program, calib, tmp_path):
    limit = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000))
    before = sorted(p.name for p in tmp_path.iterdir())
    for args in (["optimize", BERT, "-o", "o.onnx", "--recipe", "float", "-q"], ["run", BERT, "--inputs", calib / "0.npz", "--outputs", "y.npz"],
                 ["calibrate", BERT, "--data", calib, "-o", "o.calib"]):
        done = subprocess.run([octavo_program, *map(str, args)], cwd=tmp_path, capture_output=True, text=True, preexec_fn=limit, timeout=300)
        if args[0] == "run" and done.returncode == 0:  # small outputs fit
            os.remove(tmp_path / "y.npz")
        else:
            one_line(done, "cannot write", "File too large")
        assert sorted(p.name for p in tmp_path.iterdir()) == before


# --- signals -------------------------------------------------------------------------------------------------------


def test_an_interrupt_always_ends_with_130_and_leaves_nothing(octavo_program, calib, tmp_path):
    seed = random.SystemRandom().randrange(2**32)
    print("seed", seed)
    rng = random.Random(seed)
    commands = {"optimize": [BERT, "-o", "o.onnx", "--calib", calib, "-q"], "calibrate": [BERT, "--data", "random:100000", "-o", "o.calib"],
                "run": [BERT, "--inputs", calib / "0.npz", "--outputs", "y.npz"], "bench": [BERT, "--seconds", "60"],
                "compare": [BERT, BERT, "--data", "random:100000"], "inspect": [BERT], "explain": [BERT], "print": [BERT, "--full"]}
    interrupted = 0
    for command, args in commands.items():
        for _ in range(4):
            process = subprocess.Popen([octavo_program, command, *map(str, args)], cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
            time.sleep(0.05 + rng.random() * (0.5 if process.args[1] in ("inspect", "explain", "print", "run") else 2))
            over = process.poll() is not None
            process.send_signal(signal.SIGINT)
            _, stderr = process.communicate(timeout=60)
            # Before main has taken hold of it, the signal ends the program as any other.
            assert process.returncode in ((0,) if over else (0, 130, -signal.SIGINT)), (command, process.returncode, stderr)
            interrupted += process.returncode == 130
            assert not list(tmp_path.glob("*.tmp*")) and "at fault" not in stderr and "terminate" not in stderr, stderr
            if process.returncode == 130 and command == "optimize":
                assert not (tmp_path / "o.onnx").exists() or onnx.load(tmp_path / "o.onnx")
    assert interrupted >= 12, interrupted


def test_an_endless_loop_hears_the_first_interrupt(octavo_program, tmp_path):
    body = helper.make_graph([helper.make_node("Identity", ["c"], ["d"]), helper.make_node("Add", ["v", "one"], ["w"])], "body",
                             [info("i", [], TensorProto.INT64), info("c", [], TensorProto.BOOL), info("v", [1])],
                             [info("d", [], TensorProto.BOOL), info("w", [1])])
    one = numpy_helper.from_array(np.ones(1, np.float32), "one")
    loop = helper.make_node("Loop", ["", "go", "x"], ["y"], body=body)
    onnx.save(model_of([loop], [info("x", [1]), info("go", [], TensorProto.BOOL)], [info("y", [1])], [one]), tmp_path / "loop.onnx")
    np.savez(tmp_path / "x.npz", x=np.ones(1, np.float32), go=np.array(True))
    process = subprocess.Popen([octavo_program, "run", "loop.onnx", "--inputs", "x.npz"], cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    time.sleep(2)
    assert process.poll() is None
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=20)
    assert process.returncode == 130


# --- arguments of Python -------------------------------------------------------------------------------------------


def test_odd_arguments_are_octavo_errors(tmp_path):
    path = relu(tmp_path / "m.onnx")
    session = octavo.Session(path, threads=1)
    good = np.ones((2, 3), np.float32)

    class Odd:
        def __array__(self, *args, **kwargs):
            raise ZeroDivisionError

    for model in (None, 3, 2.5, [], {}, object(), bytearray(b"x"), b"", b"no model", "", "none.onnx", "a\0b", tmp_path, np.zeros(3)):
        for call in (octavo.Session, octavo.load, octavo.optimize, lambda m: octavo.calibrate(m, [{"x": good}])):
            with pytest.raises(octavo.OctavoError):
                call(model)
    for inputs in (None, 5, "x", [], [("x", good)], {}, {"x": None}, {"x": "text"}, {"x": object()}, {"x": [[1, 2], [3]]}, {5: good}, {None: good},
                   {b"x": good}, {"x": good, "z": good}, {"x": good[0]}, {"x": good.T}, {"x": np.array(1.0, np.float32)}, {"x": 10**30},
                   {"x": good.astype(object)}, {"x": good.astype(complex)}, {"x": np.zeros((2, 3), "M8[s]")}, {"x": np.zeros((2, 3), "f4,f4")},
                   {"x": Odd()}, {"x": np.zeros((0, 2**40), np.float32)}, {"\ud800": good}, {"x": np.zeros((2,) * 32, np.float32)[..., :0]}):
        with pytest.raises(octavo.OctavoError):
            session.run(inputs)
    for outputs in (["z"], ["y", "z"], [""], ["\udc80"]):
        with pytest.raises(octavo.OctavoError):
            session.run({"x": good}, outputs=outputs)
    for donate in (["z"], ["y"], [""]):
        with pytest.raises(octavo.OctavoError):
            session.run({"x": good}, donate=donate)
    for data in (5, 2.5, object(), {"x": good}, [5], [None], [{"x": None}], "none", "random:0", "random:x", tmp_path, []):
        with pytest.raises(octavo.OctavoError):
            octavo.calibrate(path, data)
    for place in (None, 5, tmp_path, tmp_path / "none" / "m.onnx", "a\0b"):
        with pytest.raises(octavo.OctavoError):
            octavo.optimize(path, recipe="float").save(place)
    assert session.run({"x": good})[0].sum() == 6


def test_what_the_callers_code_raises_is_what_the_caller_sees(tmp_path):
    w = numpy_helper.from_array(np.ones((3, 3), np.float32), "w")
    onnx.save(model_of([helper.make_node("MatMul", ["x", "w"], ["y"])], [info("x")], [info("y")], [w]), tmp_path / "m.onnx")

    def batches():
        yield {"x": np.ones((2, 3), np.float32)}
        raise LookupError("mine")

    def progress(*_):
        raise LookupError("mine too")

    with pytest.raises(LookupError, match="mine"):
        octavo.calibrate(tmp_path / "m.onnx", batches())
    with pytest.raises(LookupError, match="mine"):
        octavo.optimize(tmp_path / "m.onnx", calibration=batches())
    with pytest.raises(LookupError, match="mine too"):
        octavo.optimize(tmp_path / "m.onnx", calibration=[{"x": np.ones((2, 3), np.float32)}], progress=progress)


def test_arrays_that_share_memory_are_not_donated(tmp_path):
    onnx.save(model_of([helper.make_node("Add", ["a", "b"], ["y"])], [info("a"), info("b")], [info("y")]), tmp_path / "m.onnx")
    session = octavo.Session(tmp_path / "m.onnx", threads=1)
    base = np.arange(12, dtype=np.float32)
    one, two = base[:6].reshape(2, 3), base[3:9].reshape(2, 3)
    for arrays, donate in (({"a": one, "b": one}, ["a"]), ({"a": one, "b": one}, ["a", "b"]), ({"a": one, "b": two}, ["b"]),
                           ({"a": one, "b": one[:]}, ["a"])):
        with pytest.raises(octavo.OctavoError, match="shares memory"):
            session.run(arrays, donate=donate)
    assert (session.run({"a": one, "b": one})[0] == 2 * one).all()
    apart = base[6:].reshape(2, 3)
    assert (session.run({"a": one.copy(), "b": apart.copy()}, donate=["a", "b"])[0] == one + apart).all()
