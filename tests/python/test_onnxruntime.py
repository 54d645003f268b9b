"""Files of octavo in ONNX Runtime with octavo's kernels (integrations/onnxruntime): the same bits as in octavo, threads, errors."""

import collections
import ctypes
import json
import pathlib
import shutil
import threading

import numpy as np
import octavo
import onnx
import pytest
from conftest import BERT

ort = pytest.importorskip("onnxruntime", minversion="1.24", reason="no ONNX Runtime here: ./dev venv onnxruntime installs it")

FLOAT = BERT.parent
MODELS = FLOAT.parent / "models"


def library():
    try:
        return octavo.onnxruntime_library()
    except octavo.OctavoError as error:
        pytest.skip(str(error))


def session(model, threads=1, kernels=True, profile=None):
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 3
    if kernels:
        options.register_custom_ops_library(library())
    if profile:
        options.enable_profiling = True
        options.profile_file_prefix = str(profile)
    return ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def batches(path):
    """The inputs beside a committed model, a dict of arrays for each set."""
    arrays = np.load(path.with_suffix(".npz"))
    sets = collections.defaultdict(dict)
    for key in arrays.files:
        number, kind, name = key.split("/", 2)
        if kind == "in":
            sets[number][name] = arrays[key]
    return list(sets.values())


def optimized(path, recipe):
    data = batches(path)
    return octavo.optimize(path, recipe=recipe, calibration=data if recipe in ("int8", "fp8") else None).model, data


def decibels(have, want):
    have, want = np.asarray(have, np.float64), np.asarray(want, np.float64)
    assert have.shape == want.shape and np.isfinite(have).all() and np.abs(want).max() > 0
    error = np.sum((have - want) ** 2)
    return np.inf if error == 0 else 10 * np.log10(np.sum(want**2) / error)


def compare(model, data, threads=2):
    """The worst output in dB against octavo."""
    theirs, ours = session(model, threads), octavo.Session(model, threads=threads, fuse=False)
    names = [o.name for o in theirs.get_outputs()]
    return min(
        decibels(a, b)
        for inputs in data
        for a, b in zip(theirs.run(names, inputs), ours.run(inputs, outputs=names))
    )


@pytest.mark.parametrize("threads", [1, 2])
def test_int8_gives_the_bits_of_octavo(threads):
    model, data = optimized(BERT, "int8")
    assert len(data) > 1  # other shapes than the first
    assert compare(model, data, threads) == np.inf


def test_the_kernels_run_not_the_bodies(tmp_path):
    model, data = optimized(BERT, "int8")
    ran = {}
    for kernels in (False, True):
        it = session(model, kernels=kernels, profile=tmp_path / str(kernels))
        it.run(None, data[0])
        events = json.loads(pathlib.Path(it.end_profiling()).read_text())
        ran[kernels] = collections.Counter(e["args"]["op_name"] for e in events if e.get("cat") == "Node" and "op_name" in e["args"])
    in_file = collections.Counter(n.op_type for n in onnx.load_from_string(model).graph.node if n.domain == "octavo")
    assert {op: ran[True][op] for op in in_file} == in_file and sum(in_file.values()) > 10
    assert not any(op in ran[False] for op in in_file)


# Float nodes between the fused ones are ONNX Runtime's, whose sums and exp round in other places; it also fuses them.
@pytest.mark.parametrize("name, recipe, least", [
    ("float/bert.ts17.sdpa", "float", 110),
    ("float/bert.ts17.sdpa", "fp8", np.inf),
    ("float/bert.ts17.sdpa", "dynamic", 50),  # in ONNX Runtime 1.24 a number lies so near to the middle between two codes that it gets the other
    ("float/bert.ts17.sdpa", "weights4", 110),
    ("float/bert.ts17.sdpa", "dynamic4", 50),
    ("float/bert.ts17.sdpa", "weights8", 110),
    ("models/llama_gqa.dyn18.sdpa.ort-fused-dynamic", "int8", 30),  # its own dynamic products: they saturate without VNNI
    ("models/falcon.dyn18.sdpa", "int8", 110),
    ("models/gemma.dyn18.eager", "int8", 110),
    ("models/mpnet.dyn18.eager", "int8", 110),
    ("models/v_gqa_past", "int8", 110),
    ("models/sdpa_floatmask.ts14", "int8", np.inf),
    ("models/sdpa_causal.ts17", "int8", np.inf),
    ("models/sdpa_gqa.dyn23", "fp8", np.inf),
    ("models/torch_encoder_layer.dyn18", "int8", 110),
])
def test_every_recipe_agrees_with_octavo(name, recipe, least):
    model, data = optimized(FLOAT.parent / f"{name}.onnx", recipe)
    assert any(n.domain == "octavo" for n in onnx.load_from_string(model).graph.node)
    assert compare(model, data) >= least


def test_an_error_names_node_and_reason():
    model = onnx.load_from_string(optimized(BERT, "int8")[0])
    node = next(n for n in model.graph.node if n.op_type.startswith("QuantizedSdpa"))
    next(a for a in node.attribute if a.name == "num_heads").i = 5
    with pytest.raises(Exception, match="octavo: .*heads") as raised:
        it = session(model.SerializeToString())
        it.run(None, batches(BERT)[0])
    assert node.name in str(raised.value)


@pytest.mark.parametrize("recipe", ["int8", "dynamic", "weights8"])
def test_an_unknown_rank_is_refused(recipe):
    """ONNX Runtime takes it for a scalar's: Shape of such an output would be folded to []."""
    rng = np.random.default_rng(5)
    weights = [onnx.numpy_helper.from_array(rng.normal(size=(16, 16)).astype(np.float32), f"w{i}") for i in range(2)]
    nodes = [onnx.helper.make_node("MatMul", ["x", "w0"], ["a"]), onnx.helper.make_node("Relu", ["a"], ["r"]),
             onnx.helper.make_node("MatMul", ["r", "w1"], ["y"]), onnx.helper.make_node("Shape", ["y"], ["s"])]
    data = {"x": rng.normal(size=(3, 5, 16)).astype(np.float32)}

    def quantized(shape):
        ports = [onnx.helper.make_tensor_value_info(n, t, s) for n, t, s in (("x", 1, shape), ("y", 1, None), ("s", 7, None))]
        graph = onnx.helper.make_graph(nodes, "g", ports[:1], ports[1:], weights)
        model = onnx.helper.make_model(graph, ir_version=8, opset_imports=[onnx.helper.make_opsetid("", 18)])
        return octavo.optimize(model.SerializeToString(), recipe=recipe, calibration=[data] if recipe == "int8" else None).model

    with pytest.raises(Exception, match="octavo: node .*rank"):
        session(quantized(None))
    y, shape = session(quantized(["a", "b", 16])).run(["y", "s"], data)
    assert shape.tolist() == list(y.shape) == [3, 5, 16]


def test_concurrent_runs_of_one_session_agree():
    model, data = optimized(BERT, "int8")
    it = session(model, threads=2)
    want = [it.run(None, d) for d in data]
    wrong = []

    def work(i):
        for _ in range(20):
            if not all(np.array_equal(a, b) for a, b in zip(it.run(None, data[i % len(data)]), want[i % len(data)])):
                wrong.append(i)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


def test_an_old_host_is_refused_with_the_version_it_needs():
    """ONNX Runtime before 1.24 would end the process in shape inference."""
    said = []

    @ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_int, ctypes.c_char_p)
    def create_status(_, message):  # the first function of OrtApi
        said.append(message.decode())
        return 1

    class Base(ctypes.Structure):  # OrtApiBase
        _fields_ = [("get_api", ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_uint32)), ("version", ctypes.CFUNCTYPE(ctypes.c_void_p))]

    table = (ctypes.c_void_p * 3)(ctypes.cast(create_status, ctypes.c_void_p))
    version = ctypes.create_string_buffer(b"1.21.0")
    old = Base(Base._fields_[0][1](lambda _: ctypes.addressof(table)), Base._fields_[1][1](lambda: ctypes.addressof(version)))
    assert ctypes.CDLL(library()).RegisterCustomOps(None, ctypes.byref(old)) != 0
    assert len(said) == 1 and "1.21.0" in said[0] and "1.24" in said[0]


def test_registering_again_is_harmless(tmp_path):
    model, data = optimized(BERT, "float")
    want = session(model).run(None, data[0])
    copy = shutil.copy(library(), tmp_path / "liboctavo_onnxruntime_copy.so")  # as two packages may each bring one
    options = ort.SessionOptions()
    options.log_severity_level = 3
    options.register_custom_ops_library(str(copy))
    have = ort.InferenceSession(model, options, providers=["CPUExecutionProvider"]).run(None, data[0])
    assert all(np.array_equal(a, b) for a, b in zip(have, want))
    options.register_custom_ops_library(library())  # both for one session: ONNX Runtime says no, and nothing else happens
    with pytest.raises(Exception, match="already"):
        ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    assert all(np.array_equal(a, b) for a, b in zip(session(model).run(None, data[0]), want))
