"""How many steps a decoder layer takes in dynamic4, in the forms in which exporters write rotary embeddings and caches; the goal is seven."""

import numpy as np
import octavo
import pytest
from onnx import TensorProto, helper, numpy_helper

HIDDEN, HEADS, KV, SIZE, WIDE, WORDS, LAYERS = 128, 4, 2, 32, 192, 50, 3


class Decoder:
    """A Llama. rotary: half or pairs, turned behind the Transpose or (rows) in front of it, op or op_rows (RotaryEmbedding with tables or positions);
    part: of the columns alone. cache: concat, fixed (TensorScatter and Attention, opset 24) or scatter (ScatterND between Transposes).
    halves: gate and up are halves of one product."""

    def __init__(self, rotary, part=False, rows=False, cache="concat", halves=False):
        self.rotary, self.rows, self.cache, self.halves = rotary, rows, cache, halves
        self.turned = SIZE // 2 if part else SIZE
        self.random = np.random.default_rng(20261127)
        self.nodes, self.constants = [], {}
        info = helper.make_tensor_value_info
        self.inputs = [info("input_ids", TensorProto.INT64, ["batch", "rows"]), info("position_ids", TensorProto.INT64, ["batch", "rows"])]
        if cache != "concat":
            self.inputs.append(info("at", TensorProto.INT64, ["batch"] if cache == "fixed" else ["rows", 1]))
        self.outputs = [info("logits", TensorProto.FLOAT, ["batch", "rows", WORDS])]
        self.node("Gather", [self.constant("embed", self.normal(WORDS, HIDDEN)), "input_ids"], "x")
        self.angles()
        x = "x"
        for i in range(LAYERS):
            x = self.layer(i, x, info)
        self.linear(self.norm(x, "n"), "logits", HIDDEN, WORDS)

    def normal(self, *shape):
        return self.random.normal(0, 0.3, shape).astype(np.float32)

    def constant(self, name, array):
        self.constants[name] = np.asarray(array)
        return name

    def ints(self, *values):
        return self.constant("i" + "_".join(map(str, values)), np.array(values, np.int64))

    def node(self, op, inputs, output, domain="", **attributes):
        self.nodes.append(helper.make_node(op, inputs, [output], name=f"/{output}/{op}", domain=domain, **attributes))
        return output

    def angles(self):
        half = np.outer(np.arange(64), 1e4 ** (-np.arange(0, self.turned, 2) / self.turned)).astype(np.float32)
        both = np.repeat(half, 2, 1) if self.rotary == "pairs" else np.concatenate([half, half], 1)
        for name, f in (("cos", np.cos), ("sin", np.sin)):
            self.constant(name + "_half", f(half))
            rows = self.node("Gather", [self.constant(name + "_both", f(both)), "position_ids"], name + "_rows")
            self.node("Unsqueeze", [rows, self.ints(2 if self.rows else 1)], name)
            self.node("Gather", [name + "_half", "position_ids"], name + "_table")

    def linear(self, x, y, k, n):
        return self.node("MatMul", [x, self.constant(y + ".w", self.normal(k, n))], y)

    def norm(self, x, y):
        return self.node("RMSNormalization", [x, self.constant("gamma", np.ones(HIDDEN, np.float32))], y, axis=-1, epsilon=1e-5)

    def slice(self, x, begin, end, step, y):
        return self.node("Slice", [x, self.ints(begin), self.ints(end), self.ints(3), self.ints(step)], y)

    def rotate(self, x, heads, y):
        if self.rotary == "op":
            part = {} if self.turned == SIZE else {"rotary_embedding_dim": self.turned}
            return self.node("RotaryEmbedding", [x, "cos_table", "sin_table"], y, **part)
        if self.rotary == "op_rows":
            part = {} if self.turned == SIZE else {"rotary_embedding_dim": self.turned}
            return self.node("RotaryEmbedding", [x, "position_ids", "cos_half", "sin_half"], y, "com.microsoft", num_heads=heads, **part)
        first = x if self.turned == SIZE else self.slice(x, 0, self.turned, 1, y + ".part")
        if self.rotary == "half":
            low, high = self.slice(first, 0, self.turned // 2, 1, y + ".low"), self.slice(first, self.turned // 2, SIZE, 1, y + ".high")
            turned = self.node("Concat", [self.node("Neg", [high], y + ".minus"), low], y + ".turned", axis=-1)
        else:
            even, odd = self.slice(first, 0, SIZE, 2, y + ".even"), self.slice(first, 1, SIZE, 2, y + ".odd")
            odd = self.node("Neg", [odd], y + ".minus")
            pairs = [self.node("Unsqueeze", [v, self.ints(-1)], v + ".one") for v in (odd, even)]
            shape = (0, 0, heads, self.turned) if self.rows else (0, heads, -1, self.turned)
            turned = self.node("Reshape", [self.node("Concat", pairs, y + ".pairs", axis=-1), self.ints(*shape)], y + ".turned")
        straight, crossed = self.node("Mul", [first, "cos"], y + ".a"), self.node("Mul", [turned, "sin"], y + ".b")
        if self.turned == SIZE:
            return self.node("Add", [straight, crossed], y)
        rest = self.slice(x, self.turned, SIZE, 1, y + ".rest")
        return self.node("Concat", [self.node("Add", [straight, crossed], y + ".sum"), rest], y, axis=-1)

    def by_heads(self, x, heads, turns, y):
        if turns and self.rotary == "op_rows":
            x, turns = self.rotate(x, heads, y + ".op"), False
        x = self.node("Reshape", [x, self.ints(0, 0, heads, SIZE)], y + ".rows")
        if turns and self.rows:
            x, turns = self.rotate(x, heads, y + ".turned"), False
        x = self.node("Transpose", [x], y + ".heads", perm=[0, 2, 1, 3])
        return self.rotate(x, heads, y + ".turned") if turns else x

    def append(self, x, name, info):
        length = "past" if self.cache == "concat" else 64
        self.inputs.append(info("past_" + name, TensorProto.FLOAT, ["batch", KV, length, SIZE]))
        self.outputs.append(info("present_" + name, TensorProto.FLOAT, ["batch", KV, "all" if self.cache == "concat" else 64, SIZE]))
        if self.cache == "concat":
            return self.node("Concat", ["past_" + name, x], "present_" + name, axis=2)
        if self.cache == "fixed":
            return self.node("TensorScatter", ["past_" + name, x, "at"], "present_" + name)
        past = self.node("Transpose", ["past_" + name], name + ".past", perm=[2, 0, 1, 3])
        now = self.node("Transpose", [x], name + ".now", perm=[2, 0, 1, 3])
        return self.node("Transpose", [self.node("ScatterND", [past, "at", now], name + ".all")], "present_" + name, perm=[1, 2, 0, 3])

    def attend(self, q, k, v, y):
        if self.cache == "fixed":  # row i sees the keys up to its place
            size = self.constant("scale", np.array(64, np.int64))
            keys = self.node("Range", [self.constant("zero", np.array(0)), size, self.constant("one", np.array(1))], y + ".keys")
            seen = self.node("LessOrEqual", [keys, self.node("Unsqueeze", ["position_ids", self.ints(1, 3)], y + ".places")], y + ".seen")
            return self.node("Transpose", [self.node("Attention", [q, k, v, seen], y + ".o")], y + ".t", perm=[0, 2, 1, 3])
        def repeat(t):
            five = self.node("Unsqueeze", [t, self.ints(2)], t + y + ".5")
            wide = self.node("Expand", [five, self.ints(1, 1, HEADS // KV, 1, 1)], t + y + ".wide")
            return self.node("Reshape", [wide, self.ints(0, HEADS, -1, SIZE)], t + y + ".all")
        k, v = repeat(k), repeat(v)
        scores = self.node("MatMul", [q, self.node("Transpose", [k], y + ".kt", perm=[0, 1, 3, 2])], y + ".scores")
        scores = self.node("Mul", [scores, self.constant("root", np.float32(SIZE**-0.5))], y + ".scaled")
        probs = self.node("Softmax", [scores], y + ".p", axis=-1)
        return self.node("Transpose", [self.node("MatMul", [probs, v], y + ".o")], y + ".t", perm=[0, 2, 1, 3])

    def layer(self, i, x, info):
        n = self.norm(x, f"norm{i}")
        q = self.by_heads(self.linear(n, f"q{i}", HIDDEN, HIDDEN), HEADS, True, f"q{i}h")
        k = self.append(self.by_heads(self.linear(n, f"k{i}", HIDDEN, KV * SIZE), KV, True, f"k{i}h"), f"key{i}", info)
        v = self.append(self.by_heads(self.linear(n, f"v{i}", HIDDEN, KV * SIZE), KV, False, f"v{i}h"), f"value{i}", info)
        out = self.node("Reshape", [self.attend(q, k, v, f"a{i}"), self.ints(0, 0, HIDDEN)], f"a{i}.m")
        x = self.node("Add", [x, self.linear(out, f"o{i}", HIDDEN, HIDDEN)], f"r{i}")
        n = self.norm(x, f"post{i}")
        if self.halves:
            gate, up = f"gate{i}", f"up{i}"
            self.nodes.append(helper.make_node("Split", [self.linear(n, f"both{i}", HIDDEN, 2 * WIDE)], [gate, up], axis=-1, num_outputs=2))
        else:
            gate, up = self.linear(n, f"gate{i}", HIDDEN, WIDE), self.linear(n, f"up{i}", HIDDEN, WIDE)
        silu = self.node("Mul", [gate, self.node("Sigmoid", [gate], f"s{i}")], f"silu{i}")
        act = self.node("Mul", [silu, up], f"act{i}")
        return self.node("Add", [x, self.linear(act, f"down{i}", WIDE, HIDDEN)], f"x{i}")

    def model(self):
        graph = helper.make_graph(self.nodes, "decoder", self.inputs, self.outputs, [numpy_helper.from_array(a, n) for n, a in self.constants.items()])
        opsets = [helper.make_opsetid("", 24), helper.make_opsetid("com.microsoft", 1)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=11).SerializeToString()

    def feeds(self, before, rows):
        feeds = {"input_ids": self.random.integers(0, WORDS, (1, rows)), "position_ids": np.arange(before, before + rows)[None]}
        if self.cache != "concat":
            feeds["at"] = np.array([before]) if self.cache == "fixed" else np.arange(before, before + rows)[:, None]
        return feeds


def steps_of_a_layer(session):
    """From behind the first attention to the second."""
    cores = [i for i, kernel in enumerate(session.kernels) if kernel.startswith("sdpa")]
    assert len(cores) == LAYERS, session.kernels
    return session.kernels[cores[0] + 1 : cores[1] + 1]


FORMS = {
    "Llama": dict(rotary="half"), "GPT-J": dict(rotary="pairs", part=True, rows=True), "Cohere": dict(rotary="pairs"), "GLM": dict(rotary="pairs", part=True),
    "StableLM": dict(rotary="half", part=True), "opset 23": dict(rotary="op"), "opset 23, a part": dict(rotary="op", part=True),
    "com.microsoft.RotaryEmbedding": dict(rotary="op_rows"), "opset 24, TensorScatter": dict(rotary="op", cache="fixed"), "ScatterND": dict(rotary="half", cache="scatter"),
    "Phi 3": dict(rotary="half", halves=True), "GLM 4": dict(rotary="pairs", part=True, halves=True),
}


@pytest.mark.parametrize("name", FORMS)
def test_steps_of_a_layer(name):
    form = FORMS[name]
    decoder = Decoder(**form)
    for recipe in ("dynamic4", "dynamic"):
        layer = steps_of_a_layer(octavo.Session(octavo.optimize(decoder.model(), recipe).model, threads=2))
        assert len(layer) == 7, (recipe, layer)
    plain, fused = (octavo.Session(decoder.model(), fuse=fuse, threads=2) for fuse in (False, True))
    states = [s.state() for s in (plain, fused)]
    before = 0
    for rows in (5, 1, 1, 3):
        feeds = decoder.feeds(before, rows)
        want, found = (s.run(feeds, ["logits"], state=state)[0] for s, state in zip((plain, fused), states))
        assert np.abs(found - want).max() <= 1e-4 * np.abs(want).max()
        before += rows
