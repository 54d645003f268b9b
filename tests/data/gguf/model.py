"""A Llama of one layer as exporters write it, small enough to be made anew by each test."""

import numpy as np
import onnx
from onnx import TensorProto as T
from onnx import helper as h
from onnx import numpy_helper as nh

HIDDEN, HEADS, KV_HEADS, HEAD, FFN, VOCABULARY, LENGTH = 256, 4, 2, 16, 64, 40, 6

# Module -> rows, columns, name in a GGUF file.
MATRICES = {
    "model.embed_tokens": (VOCABULARY, HIDDEN, "token_embd"),
    "model.layers.0.self_attn.q_proj": (HEADS * HEAD, HIDDEN, "blk.0.attn_q"),
    "model.layers.0.self_attn.k_proj": (KV_HEADS * HEAD, HIDDEN, "blk.0.attn_k"),
    "model.layers.0.self_attn.v_proj": (KV_HEADS * HEAD, HIDDEN, "blk.0.attn_v"),
    "model.layers.0.self_attn.o_proj": (HIDDEN, HEADS * HEAD, "blk.0.attn_output"),
    "model.layers.0.mlp.gate_proj": (FFN, HIDDEN, "blk.0.ffn_gate"),
    "model.layers.0.mlp.up_proj": (FFN, HIDDEN, "blk.0.ffn_up"),
    "model.layers.0.mlp.down_proj": (HIDDEN, FFN, "blk.0.ffn_down"),
}
NORMS = {
    "model.layers.0.input_layernorm": "blk.0.attn_norm",
    "model.layers.0.post_attention_layernorm": "blk.0.ffn_norm",
    "model.norm": "output_norm",
}


def random_weights(seed):
    rng = np.random.default_rng(seed)
    weights = {m: rng.standard_normal((rows, k)).astype(np.float32) / np.float32(k**0.5) for m, (rows, k, _) in MATRICES.items()}
    weights["model.embed_tokens"] *= np.float32(HIDDEN**0.5)
    return weights | {m: rng.uniform(0.5, 1.5, HIDDEN).astype(np.float32) for m in NORMS}


class Builder:
    """style: "named" (initializers by module, a Transpose before each product), "folded" (nodes by module, weights transposed and without a name) or
    "nameless" (neither). plus_one: norms multiply by 1 + weight."""

    def __init__(self, weights, style, dtype, plus_one):
        self.weights, self.style, self.plus_one = weights, style, plus_one
        self.float = np.float16 if dtype == "f16" else np.float32
        self.nodes, self.constants, self.count = [], [], 0

    def name(self, module, op):
        self.count += 1
        return f"node_{self.count}" if self.style == "nameless" else "/" + "/".join(module.split(".")).replace("layers/", "layers.") + "/" + op

    def constant(self, value, name=None):
        self.count += 1
        name = name or f"val_{self.count}"
        if all(c.name != name for c in self.constants):
            self.constants.append(nh.from_array(np.asarray(value), name))
        return name

    def node(self, op, inputs, module="model", **attributes):
        self.count += 1
        out = f"v{self.count}"
        self.nodes.append(h.make_node(op, inputs, [out], self.name(module, op), **attributes))
        return out

    def scalar(self, value):
        return self.constant(np.array(value, self.float))

    def ints(self, *values):
        return self.constant(np.array(values, np.int64))

    def linear(self, x, module, table=None):
        table = None if module in self.weights else table
        weight = self.weights[table or module].astype(self.float)
        if self.style == "named":
            turned = self.node("Transpose", [self.constant(weight, (table or module) + ".weight")], module, perm=[1, 0])
            return self.node("MatMul", [x, turned], module)
        return self.node("MatMul", [x, self.constant(weight.T.copy())], module)

    def norm(self, x, module):
        mean = self.node("ReduceMean", [self.node("Mul", [x, x], module), self.ints(-1)], module)
        scaled = self.node("Div", [x, self.node("Sqrt", [self.node("Add", [mean, self.scalar(1e-5)], module)], module)], module)
        weight = self.weights[module].astype(self.float)
        if self.plus_one:
            weight = self.node("Add", [self.constant(weight - 1, None if self.style == "nameless" else module + ".weight"), self.scalar(1.0)], module)
        else:
            weight = self.constant(weight, None if self.style == "nameless" else module + ".weight")
        return self.node("Mul", [weight, scaled], module)

    def heads(self, x, heads, turn):
        x = self.node("Transpose", [self.node("Reshape", [x, self.ints(1, LENGTH, heads, HEAD)])], perm=[0, 2, 1, 3])
        if turn:
            angles = np.arange(LENGTH)[:, None] * 100.0 ** (-np.arange(HEAD // 2) / (HEAD // 2))
            angles = np.concatenate([angles, angles], 1)
            halves = self.node("Slice", [x, self.ints(0), self.ints(HEAD // 2), self.ints(3)]), self.node("Slice", [x, self.ints(HEAD // 2), self.ints(HEAD), self.ints(3)])
            rotated = self.node("Concat", [self.node("Neg", [halves[1]]), halves[0]], axis=3)
            x = self.node("Add", [self.node("Mul", [x, self.constant(np.cos(angles).astype(self.float))]),
                                  self.node("Mul", [rotated, self.constant(np.sin(angles).astype(self.float))])])
        if heads != HEADS:
            x = self.node("Expand", [self.node("Unsqueeze", [x, self.ints(2)]), self.ints(1, heads, HEADS // heads, LENGTH, HEAD)])
            x = self.node("Reshape", [x, self.ints(1, HEADS, LENGTH, HEAD)])
        return x

    def attention(self, x):
        layer = "model.layers.0.self_attn"
        q = self.heads(self.linear(x, layer + ".q_proj"), HEADS, True)
        k = self.heads(self.linear(x, layer + ".k_proj"), KV_HEADS, True)
        v = self.heads(self.linear(x, layer + ".v_proj"), KV_HEADS, False)
        scores = self.node("Mul", [self.node("MatMul", [q, self.node("Transpose", [k], perm=[0, 1, 3, 2])]), self.scalar(HEAD**-0.5)])
        mask = np.triu(np.full((LENGTH, LENGTH), -10000.0), 1).astype(self.float)
        probs = self.node("Softmax", [self.node("Add", [scores, self.constant(mask)])], axis=-1)
        out = self.node("Transpose", [self.node("MatMul", [probs, v])], perm=[0, 2, 1, 3])
        return self.linear(self.node("Reshape", [out, self.ints(1, LENGTH, HEADS * HEAD)]), layer + ".o_proj")

    def model(self):
        table = self.constant(self.weights["model.embed_tokens"].astype(self.float), None if self.style == "nameless" else "model.embed_tokens.weight")
        x = self.node("Gather", [table, "ids"], "model.embed_tokens")
        x = self.node("Add", [x, self.attention(self.norm(x, "model.layers.0.input_layernorm"))])
        y = self.norm(x, "model.layers.0.post_attention_layernorm")
        gate, up = self.linear(y, "model.layers.0.mlp.gate_proj"), self.linear(y, "model.layers.0.mlp.up_proj")
        gated = self.node("Mul", [self.node("Mul", [gate, self.node("Sigmoid", [gate])]), up])
        x = self.node("Add", [x, self.linear(gated, "model.layers.0.mlp.down_proj")])
        logits = self.linear(self.norm(x, "model.norm"), "lm_head", "model.embed_tokens")
        self.nodes[-1].output[0] = "logits"
        dtype = T.FLOAT16 if self.float is np.float16 else T.FLOAT
        graph = h.make_graph(self.nodes, "llama", [h.make_tensor_value_info("ids", T.INT64, [1, LENGTH])],
                             [h.make_tensor_value_info("logits", dtype, [1, LENGTH, VOCABULARY])], self.constants)
        model = h.make_model(graph, opset_imports=[h.make_opsetid("", 18)], ir_version=9)
        onnx.checker.check_model(model)
        return model


def model(weights, style="named", dtype="f32", plus_one=False):
    return Builder(weights, style, dtype, plus_one).model()
