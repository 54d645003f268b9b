"""A small writer of ONNX graphs from weights in numpy, so that a bench needs no framework: each call adds a node and gives the name of its output."""

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

TYPES = {np.dtype(np.float32): TensorProto.FLOAT, np.dtype(np.int64): TensorProto.INT64}


class Graph:
    def __init__(self):
        self.nodes, self.weights, self.inputs, self.outputs, self.known = [], [], [], [], {}

    def input(self, name, shape, dtype=np.float32):
        self.inputs.append(helper.make_tensor_value_info(name, TYPES[np.dtype(dtype)], shape))
        return name

    def output(self, value, name, shape, dtype=np.float32):
        self.nodes.append(helper.make_node("Identity", [value], [name], name=f"out_{name}"))
        self.outputs.append(helper.make_tensor_value_info(name, TYPES[np.dtype(dtype)], shape))

    def constant(self, array, name=None):
        array = np.ascontiguousarray(array)
        key = name or (array.dtype.str, array.shape, array.tobytes())
        if key not in self.known:
            self.known[key] = name or f"c{len(self.weights)}"
            self.weights.append(numpy_helper.from_array(array, self.known[key]))
        return self.known[key]

    def ints(self, *values):
        return self.constant(np.array(values, np.int64))

    def scalar(self, value):
        return self.constant(np.array(value, np.float32))

    def op(self, kind, *inputs, name=None, outputs=1, **attributes):
        name = name or f"{kind}_{len(self.nodes)}"
        names = [name] if outputs == 1 else [f"{name}:{i}" for i in range(outputs)]
        self.nodes.append(helper.make_node(kind, list(inputs), names, name=name, **attributes))
        return names[0] if outputs == 1 else names

    def linear(self, x, weight, bias=None, name=None):
        """x times the weight [out, in] transposed."""
        y = self.op("MatMul", x, self.constant(np.asarray(weight, np.float32).T, f"{name}.weight"), name=name)
        return y if bias is None else self.op("Add", y, self.constant(np.asarray(bias, np.float32)), name=f"{name}.add")

    def layer_norm(self, x, gamma, beta, epsilon=1e-5):
        f = lambda t: self.constant(np.asarray(t, np.float32))
        return self.op("LayerNormalization", x, f(gamma), f(beta), axis=-1, epsilon=epsilon)

    def gelu(self, x):
        half = self.op("Mul", x, self.scalar(0.5))
        return self.op("Mul", half, self.op("Add", self.op("Erf", self.op("Mul", x, self.scalar(2**-0.5))), self.scalar(1)))

    def heads(self, x, count, width):
        """[b, s, n] to [b, heads, s, width]"""
        return self.op("Transpose", self.op("Reshape", x, self.ints(0, 0, count, width)), perm=[0, 2, 1, 3])

    def attention(self, q, k, v, scale, mask=None, name=None):
        """Of [b, heads, s, width] to [b, s, heads * width]."""
        scores = self.op("MatMul", q, self.op("Transpose", k, perm=[0, 1, 3, 2]), name=f"{name}.scores")
        scores = self.op("Mul", scores, self.scalar(scale))
        if mask is not None:
            scores = self.op("Add", scores, mask)
        mixed = self.op("MatMul", self.op("Softmax", scores, axis=-1), v, name=f"{name}.mix")
        return self.op("Reshape", self.op("Transpose", mixed, perm=[0, 2, 1, 3]), self.ints(0, 0, -1))

    def causal(self, ids, past):
        """[s, past + s]: 0 where a query sees a key, else a large negative number; and the positions of the queries."""
        new, old = self.op("Shape", ids, start=1, end=2), self.op("Shape", past, start=2, end=3)
        all_ = self.op("Add", new, old)
        zero, one = self.constant(np.array(0, np.int64)), self.constant(np.array(1, np.int64))
        keys = self.op("Range", zero, self.op("Squeeze", all_), one)
        queries = self.op("Range", self.op("Squeeze", old), self.op("Squeeze", all_), one)
        seen = self.op("LessOrEqual", self.op("Unsqueeze", keys, self.ints(0)), self.op("Unsqueeze", queries, self.ints(1)))
        return self.op("Where", seen, self.scalar(0), self.scalar(-3e38)), queries

    def save(self, path, opset=17):
        graph = helper.make_graph(self.nodes, "model", self.inputs, self.outputs, self.weights)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
        big = sum(len(t.raw_data) for t in self.weights) > 1 << 30
        onnx.save(model, str(path), save_as_external_data=big, **({"location": path.name + ".data"} if big else {}))
