"""optimize(weights=): tensors of GGUF files in the place of a model's weights. Expected logits are those of the floats that PyPI's gguf reads (tests/data/gguf/make.py)."""

import collections
import pathlib
import subprocess
import struct
import sys
import warnings

import numpy as np
import onnx
import pytest

import octavo

DATA = pathlib.Path(__file__).resolve().parent.parent / "data" / "gguf"
sys.path.insert(0, str(DATA))
import model as llama  # noqa: E402

IDS = {"ids": np.array([[3, 1, 4, 1, 5, 9]])}
LOGITS = np.load(DATA / "logits.npz")
UNRELATED = "ignore:.*have little in common"


def made(file, style, recipe="float", weights=None, **how):
    weights = llama.random_weights(99) if weights is None else weights
    return octavo.optimize(llama.model(weights, style, **how), recipe, weights=DATA / f"{file}.gguf")


def error(result, file):
    logits = octavo.Session(result.model, threads=1).run(IDS)[0]
    return np.abs(logits.astype(np.float32) - LOGITS[file]).max() / LOGITS[file].std()


def ops(result):
    model = onnx.load_from_string(result.model)
    return collections.Counter(n.op_type.split("__")[0] for n in model.graph.node), {i.name: i for i in model.graph.initializer}


@pytest.mark.filterwarnings(UNRELATED)
@pytest.mark.parametrize("file", ["k_quants", "simple", "tables"])
@pytest.mark.parametrize("style", ["named", "folded"])
def test_logits_are_those_of_the_floats_that_the_tensors_mean(file, style):
    result = made(file, style)
    assert error(result, file) < 3e-5
    count, _ = ops(result)
    # every matrix in codes is read in codes: those with mins by two products
    assert count["LinearBlocked"] == {"k_quants": 11, "simple": 3, "tables": 8}[file]


@pytest.mark.filterwarnings(UNRELATED)
@pytest.mark.parametrize("file", ["k_quants", "simple", "tables"])
def test_other_recipes_and_types_take_them(file):
    assert error(made(file, "named", "quantized"), file) < 3e-5
    assert error(made(file, "named", "int8"), file) < 3e-5  # means quantized
    assert error(made(file, "named", dtype="f16"), file) < 0.05
    assert error(made(file, "folded", plus_one=True), file) < 3e-5
    assert 1e-4 < error(made(file, "named", "dynamic4"), file) < 0.6


@pytest.mark.filterwarnings(UNRELATED)
def test_a_tied_table_is_stored_once():
    _, constants = ops(made("k_quants", "named"))
    tables = [i for i in constants.values() if list(i.dims) == [llama.VOCABULARY, llama.HIDDEN]]
    assert [t.data_type for t in tables] == [onnx.TensorProto.INT8]
    assert "token_embd.weight" in tables[0].name


def nearly(seed_of_output=True):
    return llama.random_weights(7) | ({"lm_head": llama.random_weights(8)["model.embed_tokens"] / 16} if seed_of_output else {})


def test_weights_without_names_are_found_by_their_values():
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        assert error(made("simple", "nameless", weights=nearly()), "simple") < 3e-5
    assert not seen  # nor that the recipe leaves what is quantized


def test_what_has_no_place_is_named():
    with pytest.raises(octavo.OctavoError, match=r"weights: the tensor 'token_embd.weight' \(\[40,256\]\) finds no place in the model"):
        made("simple", "nameless")
    weights = llama.random_weights(99)
    weights["model.layers.0.mlp.gate_proj"] = np.ones((48, 256), np.float32)
    weights["model.layers.0.mlp.up_proj"] = np.ones((48, 256), np.float32)
    weights["model.layers.0.mlp.down_proj"] = np.ones((256, 48), np.float32)
    with pytest.raises(octavo.OctavoError, match=r"the tensor 'blk.0.ffn_gate.weight' is \[64,256\], and its place in the model, .* is \[48,256\]"):
        made("simple", "named", weights=weights)


def test_what_looks_wrong_is_said():
    with pytest.warns(UserWarning, match=r"weights: \d of 12 tensors have little in common with the floats whose place they take, the first of them"):
        made("simple", "named", weights=llama.random_weights(99) | {"lm_head": nearly()["lm_head"]})
    big = llama.random_weights(7) | {"lm_head": nearly()["lm_head"]}
    model = llama.model(big, "named")
    extra = np.random.default_rng(5).standard_normal((llama.VOCABULARY, 8)).astype(np.float32)
    model.graph.initializer.append(onnx.numpy_helper.from_array(extra, "adapter"))
    model.graph.node[-1].output[0] = "before"
    model.graph.node.append(onnx.helper.make_node("MatMul", ["before", "adapter"], ["logits"]))
    model.graph.output[0].type.tensor_type.shape.dim[2].dim_value = 8
    with pytest.warns(UserWarning, match="weights: 1 matrices have no tensor in the file and keep their floats, the first of them 'adapter'"):
        octavo.optimize(model, "float", weights=str(DATA / "simple.gguf"))


@pytest.mark.filterwarnings(UNRELATED)
def test_the_program_takes_them(tmp_path):
    onnx.save(llama.model(llama.random_weights(99)), tmp_path / "m.onnx")
    command = ["octavo", "optimize", "m.onnx", "-o", "out.onnx", "--recipe", "float", "--weights"]
    done = subprocess.run([*command, DATA / "k_quants.gguf"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0 and "have little in common" in done.stderr, done.stderr
    assert (tmp_path / "out.onnx").read_bytes() == made("k_quants", "named").model
    (tmp_path / "no.gguf").write_bytes(b"GGML")
    done = subprocess.run([*command, "no.gguf"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 1 and "'no.gguf' is no GGUF file" in done.stderr
    with pytest.raises(TypeError, match="weights takes a path or None"):
        octavo.optimize(tmp_path / "m.onnx", "float", weights=7)


def gguf_of(path, tensors, architecture="gpt2"):
    """A file of tensors in Q8_0 (a matrix, or several) and F32."""
    text = lambda s: struct.pack("<Q", len(s)) + s.encode()  # noqa: E731
    head = struct.pack("<4sIQQ", b"GGUF", 3, len(tensors), 1) + text("general.architecture") + struct.pack("<I", 8) + text(architecture)
    data = b""
    for name, t in tensors.items():
        data += bytes(-len(data) % 32)
        head += text(name) + struct.pack("<I", t.ndim) + struct.pack(f"<{t.ndim}Q", *t.shape[::-1]) + struct.pack("<IQ", 8 if t.ndim > 1 and "bias" not in name and "inp" not in name else 0, len(data))
        if t.ndim > 1 and "bias" not in name and "inp" not in name:
            blocks = t.reshape(-1, 32)
            scale = (np.abs(blocks).max(1) / 127).astype(np.float16)
            codes = np.rint(blocks / scale[:, None].astype(np.float32)).astype(np.int8)
            data += np.concatenate([scale[:, None].view(np.int8), codes], 1).tobytes()
        else:
            data += t.astype(np.float32).tobytes()
    path.write_bytes(head + bytes(-len(head) % 32) + data)
    return path


@pytest.mark.parametrize("gemm", [True, False])
def test_conv1d_of_gpt2_with_its_bias(tmp_path, gemm):
    """GPT-2 keeps weights as [K, N], which llama.cpp turns, and Gemm adds the bias."""
    rng = np.random.default_rng(3)
    w, b = rng.standard_normal((64, 96)).astype(np.float32), rng.standard_normal(96).astype(np.float32)
    node, info, value = onnx.helper.make_node, onnx.helper.make_tensor_value_info, onnx.numpy_helper.from_array
    if gemm:
        nodes = [node("Gemm", ["x", "transformer.h.3.attn.c_attn.weight", "transformer.h.3.attn.c_attn.bias"], ["y"], name="node_addmm")]
    else:
        nodes = [node("MatMul", ["x", "transformer.h.3.attn.c_attn.weight"], ["p"]), node("Add", ["p", "transformer.h.3.attn.c_attn.bias"], ["y"])]
    constants = [value(rng.standard_normal(w.shape).astype(np.float32), "transformer.h.3.attn.c_attn.weight"),
                 value(np.zeros(96, np.float32), "transformer.h.3.attn.c_attn.bias")]
    graph = onnx.helper.make_graph(nodes, "g", [info("x", 1, [5, 64])], [info("y", 1, [5, 96])], constants)
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 18)], ir_version=9)
    file = gguf_of(tmp_path / "w.gguf", {"blk.3.attn_qkv.weight": w.T.copy(), "blk.3.attn_qkv.bias": b})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        result = octavo.optimize(model, "float", weights=file)
    x = rng.standard_normal((5, 64)).astype(np.float32)
    assert np.abs(octavo.Session(result.model).run({"x": x})[0] - (x @ w + b)).max() < 0.15
    assert ops(result)[0] == {"LinearBlocked": 1}
    gguf_of(file, {"blk.3.attn_qkv.weight": w.T.copy(), "blk.3.attn_qkv.bias": b, "blk.4.attn_qkv.bias": b + 1})
    with pytest.raises(octavo.OctavoError, match="the tensor 'blk.4.attn_qkv.bias' .* finds no place"):
        octavo.optimize(model, "float", weights=file)


EXPERTS, OUT, IN = 5, 64, 96


def q8(w):
    """What its codes in Q8_0 mean."""
    blocks = w.reshape(-1, 32)
    scale = (np.abs(blocks).max(1, keepdims=True) / 127).astype(np.float16).astype(np.float32)
    return (np.rint(blocks / scale) * scale).reshape(w.shape)


def mixture(form):
    """Gate and up of experts: gathered for each row, in one tensor ("gathered", "turned" for [E, K, N]) or two ("apart"), or a Linear each ("loop")."""
    node, info, value = onnx.helper.make_node, onnx.helper.make_tensor_value_info, onnx.numpy_helper.from_array
    path, rng = "model.layers.2.mlp.experts.", np.random.default_rng(1)
    shapes = {"gathered": {"gate_up_proj": (EXPERTS, 2 * OUT, IN)}, "turned": {"gate_up_proj": (EXPERTS, IN, 2 * OUT)},
              "apart": {"w1": (EXPERTS, OUT, IN), "w3": (EXPERTS, OUT, IN)},
              "loop": {f"{e}.{p}": (OUT, IN) for e in range(EXPERTS) for p in ("gate_proj", "up_proj")}}[form]
    constants = [value(rng.standard_normal(s).astype(np.float32), path + n + (".weight" if form == "loop" else "")) for n, s in shapes.items()]
    nodes, outputs = [], []
    for c in constants:
        if form == "loop":
            nodes += [node("Transpose", [c.name], [c.name + ".t"], perm=[1, 0]), node("MatMul", ["x", c.name + ".t"], [c.name + ".y"])]
            outputs.append(info(c.name + ".y", 1, ["t", OUT]))
            continue
        nodes += [node("Gather", [c.name, "index"], [c.name + ".w"], axis=0), node("Unsqueeze", ["x", "axis"], [c.name + ".x"])]
        nodes.append(node("MatMul", [c.name + ".x", c.name + ".w"] if form == "turned" else [c.name + ".w", c.name + ".x"], [c.name + ".1"]))
        nodes.append(node("Squeeze", [c.name + ".1", "axis"], [c.name + ".y"]))
        outputs.append(info(c.name + ".y", 1, None))
    inputs = [info("x", 1, ["t", IN])] + ([info("index", 7, ["t"])] if form != "loop" else [])
    constants.append(value(np.array([1 if form == "turned" else 2]), "axis"))
    graph = onnx.helper.make_graph(nodes, "g", inputs, outputs, constants)
    return onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 18)], ir_version=9)


@pytest.mark.filterwarnings(UNRELATED)
@pytest.mark.parametrize("form", ["gathered", "turned", "apart", "loop"])
@pytest.mark.parametrize("split", [False, True])
@pytest.mark.parametrize("architecture", ["llama", "gpt-oss"])
def test_experts_find_their_tensors(tmp_path, form, split, architecture):
    """llama.cpp has gate and up apart, in one tensor of all experts or (split) one of each; rows of both take turns in gpt-oss."""
    rng = np.random.default_rng(3)
    gate, up = (rng.standard_normal((EXPERTS, OUT, IN)).astype(np.float32) for _ in range(2))
    if split:
        tensors = {f"blk.2.ffn_{n}.{e}.weight": w[e] for n, w in (("gate", gate), ("up", up)) for e in range(EXPERTS)}
    else:
        tensors = {"blk.2.ffn_gate_exps.weight": gate, "blk.2.ffn_up_exps.weight": up}
    result = octavo.optimize(mixture(form), "float", weights=gguf_of(tmp_path / "w.gguf", tensors, architecture))
    gate, up = q8(gate), q8(up)
    x, index = rng.standard_normal((7, IN)).astype(np.float32), np.array([3, 0, 4, 4, 1, 2, 0])
    feeds = {"x": x} | ({"index": index} if form != "loop" else {})
    got = octavo.Session(result.model).run(feeds)
    both = np.stack([gate, up], 2).reshape(EXPERTS, 2 * OUT, IN) if architecture == "gpt-oss" else np.concatenate([gate, up], 1)
    if form == "loop":
        want = [x @ w[e].T for e in range(EXPERTS) for w in (gate, up)]
    else:
        want = [np.einsum("tnk,tk->tn", w[index], x) for w in ((gate, up) if form == "apart" else (both,))]
    for a, b in zip(got, want, strict=True):
        assert a.shape == b.shape and np.abs(a - b).max() < 1e-4  # 96 products below 16, rounded
    count, _ = ops(result)
    assert count["LinearBlocked"] == {"gathered": 1, "turned": 1, "apart": 2, "loop": 2 * EXPERTS}[form]
    assert count["GatherND"] == {"gathered": 1, "turned": 1, "apart": 2, "loop": 0}[form]
