"""A Llama, or a Mixtral, of random weights in three files: as torch exports it (rotary embedding, causal mask and repeated heads written out, caches as
inputs), with the ops that onnxruntime-genai's builder writes (GroupQueryAttention, MatMulNBits, SkipSimplifiedLayerNormalization), and as
GGUF for llama.cpp. The same shapes, and weights of the same bits. A Mixtral has its experts as transformers 5 exports them (one tensor of all, of which a
Gather takes the matrices of each token), and no file in genai's form."""

import dataclasses

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper


@dataclasses.dataclass
class Shape:
    layers: int = 22
    hidden: int = 2048
    heads: int = 32
    kv_heads: int = 4
    ffn: int = 5632
    vocabulary: int = 32000
    longest: int = 16384
    experts: int = 0  # 0: a Llama
    chosen: int = 2

    @property
    def size(self):
        return self.hidden // self.heads

    def projections(self):
        kv = self.kv_heads * self.size
        return {"q": (self.hidden, self.hidden), "k": (self.hidden, kv), "v": (self.hidden, kv), "o": (self.hidden, self.hidden),
                "gate": (self.hidden, self.ffn), "up": (self.hidden, self.ffn), "down": (self.ffn, self.hidden)}


class Weights:
    """The same numbers for each file, made when they are asked for."""

    def __init__(self, shape):
        self.shape = shape

    def matrix(self, layer, name):  # [in, out]
        rows, columns = self.shape.projections()[name]
        return self._random((layer + 1) * 100 + list(self.shape.projections()).index(name), rows, columns) / np.float32(rows**0.5)

    def experts(self, layer, name):  # [experts, out, in], as PyTorch stores them
        rows, columns = self.shape.projections()[name]
        seed = (layer + 1) * 100 + 50 + list(self.shape.projections()).index(name)
        return self._random(seed, self.shape.experts * columns, rows).reshape(self.shape.experts, columns, rows) / np.float32(rows**0.5)

    def router(self, layer):  # [in, experts]
        return self._random((layer + 1) * 100 + 99, self.shape.hidden, self.shape.experts) / np.float32(self.shape.hidden**0.5)

    def table(self):
        return self._random(1, self.shape.vocabulary, self.shape.hidden)

    def head(self):
        return self._random(2, self.shape.hidden, self.shape.vocabulary) / np.float32(self.shape.hidden**0.5)

    @staticmethod
    def _random(seed, rows, columns):
        return np.random.default_rng(seed).standard_normal((rows, columns), dtype=np.float32)


class Writer:
    """Nodes, and constants that go into a file beside the model."""

    def __init__(self, path):
        self.path, self.nodes, self.constants, self.offset = path, [], [], 0
        self.data = open(path.with_suffix(".data"), "wb")

    def constant(self, name, array):
        array = np.ascontiguousarray(array)
        tensor = TensorProto(name=name, dims=array.shape, data_type=helper.np_dtype_to_tensor_dtype(array.dtype))
        if array.nbytes < 1024:
            tensor = numpy_helper.from_array(array, name)
        else:
            self.data.seek(self.offset)
            self.data.write(array.tobytes())
            tensor.data_location = TensorProto.EXTERNAL
            for key, value in (("location", self.path.with_suffix(".data").name), ("offset", self.offset), ("length", array.nbytes)):
                tensor.external_data.add(key=key, value=str(value))
            self.offset = (self.offset + array.nbytes + 4095) // 4096 * 4096
        self.constants.append(tensor)
        return name

    def node(self, op, inputs, output, domain="", **attributes):
        outputs = [output] if isinstance(output, str) else output
        self.nodes.append(helper.make_node(op, inputs, outputs, name=outputs[0], domain=domain, **attributes))
        return outputs[0]

    def save(self, inputs, outputs, opsets):
        self.data.close()
        graph = helper.make_graph(self.nodes, "llama", inputs, outputs, self.constants)
        onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid(d, v) for d, v in opsets], ir_version=9), str(self.path))


def ports(shape, fixed=None):
    """Caches, and what they become; of a length of their own, or of that of the longest sequence."""
    port = helper.make_tensor_value_info
    def cache(name, length):
        return port(name, TensorProto.FLOAT, ["batch", shape.kv_heads, length, shape.size])
    names = [(layer, kind) for layer in range(shape.layers) for kind in ("key", "value")]
    return ([cache(f"past_key_values.{i}.{kind}", fixed or "past") for i, kind in names],
            [port("logits", TensorProto.FLOAT, ["batch", "sequence", shape.vocabulary])] +
            [cache(f"present.{i}.{kind}", fixed or "total") for i, kind in names])


def angles(shape):
    inverse = 1 / 10000 ** (np.arange(0, shape.size, 2) / shape.size)
    return np.outer(np.arange(shape.longest), inverse)


def write_export(path, shape, weights):
    w = Writer(path)
    n, c = w.node, w.constant
    ints = lambda name, *values: c(name, np.array(values, np.int64))
    c("epsilon", np.float32(1e-5)), c("two", np.float32(2)), c("lowest", np.float32(-3.4e38)), c("zero", np.float32(0))
    c("scale", np.float32(shape.size**-0.5))
    ints("one", 1), ints("two_", 2), ints("three", 3), ints("first", 0), ints("half", shape.size // 2), ints("end", shape.size), ints("last", -1)
    both = np.concatenate([angles(shape)] * 2, 1).astype(np.float32)

    def norm(x, name):
        mean = n("ReduceMean", [n("Pow", [x, "two"], name + ".square"), "last"], name + ".mean", keepdims=1)
        root = n("Sqrt", [n("Add", [mean, "epsilon"], name + ".sum")], name + ".root")
        return n("Mul", [c(name + ".weight", np.ones(shape.hidden, np.float32)), n("Div", [x, root], name + ".x")], name)

    def rotary(x, name):
        low, high = n("Slice", [x, "first", "half", "three"], name + ".low"), n("Slice", [x, "half", "end", "three"], name + ".high")
        turned = n("Concat", [n("Neg", [high], name + ".minus"), low], name + ".turned", axis=-1)
        return n("Add", [n("Mul", [x, "cos"], name + ".a"), n("Mul", [turned, "sin"], name + ".b")], name)

    for name, table in (("cos", np.cos(both)), ("sin", np.sin(both))):
        n("Unsqueeze", [n("Gather", [c(name + ".table", table), "position_ids"], name + ".rows"), "one"], name)
    place = n("Sub", [n("CumSum", ["attention_mask", c("axis", np.int64(1))], "count"), "one"], "place")
    keys = n("Unsqueeze", [place, ints("at12", 1, 2)], "keys")
    rows = n("Unsqueeze", ["position_ids", ints("at13", 1, 3)], "rows")
    n("Where", [n("LessOrEqual", [keys, rows], "seen"), "zero", "lowest"], "mask")
    h = n("Gather", [c("embed_tokens", weights.table()), "input_ids"], "h")
    ints("by_heads", 0, 0, -1, shape.size), ints("merged", 0, 0, shape.hidden)
    repeats = shape.heads // shape.kv_heads
    ints("repeat", 1, 1, repeats, 1, 1), ints("joined", 0, shape.heads, -1, shape.size)
    for i in range(shape.layers):
        p = f"model.layers.{i}."
        linear = lambda x, name: n("MatMul", [x, c(p + name + ".weight", weights.matrix(i, name))], p + name)
        x = norm(h, p + "input_norm")
        q, k, v = (n("Transpose", [n("Reshape", [linear(x, s), "by_heads"], p + s + ".r")], p + s + ".t", perm=[0, 2, 1, 3]) for s in "qkv")
        q, k = rotary(q, p + "q.rotary"), rotary(k, p + "k.rotary")
        k = n("Concat", [f"past_key_values.{i}.key", k], f"present.{i}.key", axis=2)
        v = n("Concat", [f"past_key_values.{i}.value", v], f"present.{i}.value", axis=2)
        k, v = (n("Reshape", [n("Tile", [n("Unsqueeze", [t, "two_"], p + s + ".5"), "repeat"], p + s + ".tiled"), "joined"], p + s + ".all")
                for t, s in ((k, "k"), (v, "v")))
        scores = n("MatMul", [q, n("Transpose", [k], p + "k.turned", perm=[0, 1, 3, 2])], p + "scores")
        scores = n("Add", [n("Mul", [scores, "scale"], p + "scaled"), "mask"], p + "masked")
        out = n("MatMul", [n("Softmax", [scores], p + "probabilities", axis=-1), v], p + "mixed")
        out = n("Reshape", [n("Transpose", [out], p + "mixed.t", perm=[0, 2, 1, 3]), "merged"], p + "mixed.r")
        h = n("Add", [h, linear(out, "o")], p + "attended")
        x = norm(h, p + "post_norm")
        if shape.experts:
            h = n("Add", [h, mixture(w, x, p + "mlp.", shape, weights, i)], p + "out")
            continue
        gate = linear(x, "gate")
        silu = n("Mul", [gate, n("Sigmoid", [gate], p + "sigmoid")], p + "silu")
        h = n("Add", [h, linear(n("Mul", [silu, linear(x, "up")], p + "product"), "down")], p + "out")
    n("MatMul", [norm(h, "norm"), c("lm_head", weights.head())], "logits")
    past, out = ports(shape)
    port = helper.make_tensor_value_info
    ids = [port("input_ids", 7, ["batch", "sequence"]), port("attention_mask", 7, ["batch", "total"]), port("position_ids", 7, ["batch", "sequence"])]
    w.save(ids + past, out, [("", 18)])


def mixture(w, x, p, shape, weights, layer):
    """transformers' batched_mm: every token once for each of its experts."""
    n, c = w.node, w.constant
    ints = lambda name, *values: c(p + name, np.array(values, np.int64))
    flat = n("Reshape", [x, ints("flat", -1, shape.hidden)], p + "tokens")
    shares = n("Softmax", [n("MatMul", [flat, c(p + "gate.weight", weights.router(layer))], p + "gate")], p + "shares", axis=-1)
    n("TopK", [shares, ints("k", shape.chosen)], [p + "best", p + "index"], axis=-1)
    best = n("Div", [p + "best", n("ReduceSum", [p + "best", "last"], p + "sum", keepdims=1)], p + "weights")
    index = n("Reshape", [p + "index", "last"], p + "places")
    rows = n("Expand", [n("Unsqueeze", [flat, "one"], p + "each"), ints("times", 1, shape.chosen, 1)], p + "rows")
    rows = n("Reshape", [rows, ints("column", -1, shape.hidden, 1)], p + "columns")

    def product(x, name, matrices):
        return n("MatMul", [n("Gather", [c(p + "experts." + name, matrices), index], p + name + ".taken", axis=0), x], p + name)

    both = np.concatenate([weights.experts(layer, "gate"), weights.experts(layer, "up")], 1)
    n("Split", [product(rows, "gate_up_proj", both)], [p + "gate_part", p + "up_part"], axis=1, num_outputs=2)
    silu = n("Mul", [p + "gate_part", n("Sigmoid", [p + "gate_part"], p + "sigmoid")], p + "silu")
    y = product(n("Mul", [silu, p + "up_part"], p + "product"), "down_proj", weights.experts(layer, "down"))
    y = n("Mul", [n("Reshape", [y, ints("placed", -1, shape.chosen, shape.hidden)], p + "by_token"), n("Unsqueeze", [best, "last"], p + "w")], p + "weighed")
    return n("Reshape", [n("ReduceSum", [y, "one"], p + "all", keepdims=0), n("Shape", [x], p + "shape")], p + "out")


def blocks_of_4_bits(matrix, block=32):
    """MatMulNBits' codes [n, blocks, block / 2] and scales of a matrix [k, n], around 8."""
    k, n = matrix.shape
    values = matrix.T.reshape(n, k // block, block)
    most = np.take_along_axis(values, np.abs(values).argmax(-1)[..., None], -1)
    scale = np.where(most == 0, np.float32(1), most / np.float32(-8))
    codes = np.clip(np.rint(values / scale) + 8, 0, 15).astype(np.uint8)
    return codes[..., ::2] | codes[..., 1::2] << 4, scale[..., 0].astype(np.float32)


def write_genai(path, shape, weights):
    w = Writer(path)
    n, c = w.node, w.constant

    def linear(x, name, matrix):
        codes, scale = blocks_of_4_bits(matrix)
        return n("MatMulNBits", [x, c(name + ".codes", codes), c(name + ".scales", scale.reshape(-1))], name, domain="com.microsoft", K=matrix.shape[0],
                 N=matrix.shape[1], bits=4, block_size=32, accuracy_level=4)

    def norm(x, skip, name):
        gamma = c(name + ".weight", np.ones(shape.hidden, np.float32))
        if skip is None:
            return n("SimplifiedLayerNormalization", [x, gamma], name, axis=-1, epsilon=1e-5, stash_type=1), x
        n("SkipSimplifiedLayerNormalization", [x, skip, gamma], [name, "", "", name + ".sum"], domain="com.microsoft", epsilon=1e-5)
        return name, name + ".sum"

    c("cos", np.cos(angles(shape)).astype(np.float32)), c("sin", np.sin(angles(shape)).astype(np.float32))
    ones = c("one", np.array([1], np.int64))
    total = n("ReduceSum", ["attention_mask", ones], "count", keepdims=1)
    lengths = n("Cast", [n("Sub", [total, ones], "before")], "seqlens_k", to=TensorProto.INT32)
    longest = n("Cast", [n("Gather", [n("Shape", ["attention_mask"], "mask.shape"), c("at", np.int64(1))], "longest")], "total", to=TensorProto.INT32)
    h, skip = n("Gather", [c("embed_tokens", weights.table()), "input_ids"], "h"), None
    for i in range(shape.layers):
        p = f"model.layers.{i}."
        x, h = norm(h, skip, p + "input_norm")
        q, k, v = (linear(x, p + s, weights.matrix(i, s)) for s in "qkv")
        out = n("GroupQueryAttention", [q, k, v, f"past_key_values.{i}.key", f"past_key_values.{i}.value", lengths, longest, "cos", "sin"],
                [p + "attention", f"present.{i}.key", f"present.{i}.value"], domain="com.microsoft", num_heads=shape.heads,
                kv_num_heads=shape.kv_heads, do_rotary=1, rotary_interleaved=0, scale=float(shape.size**-0.5))
        x, h = norm(h, linear(out, p + "o", weights.matrix(i, "o")), p + "post_norm")
        gate, up = linear(x, p + "gate", weights.matrix(i, "gate")), linear(x, p + "up", weights.matrix(i, "up"))
        silu = n("Mul", [gate, n("Sigmoid", [gate], p + "sigmoid")], p + "silu")
        skip = linear(n("Mul", [silu, up], p + "product"), p + "down", weights.matrix(i, "down"))
    linear(norm(h, skip, "norm")[0], "logits", weights.head())
    past, out = ports(shape, "longest")
    port = helper.make_tensor_value_info
    w.save([port("input_ids", 7, ["batch", "sequence"]), port("attention_mask", 7, ["batch", "all"])] + past, out,
           [("", 18), ("com.microsoft", 1)])


def write_gguf(path, shape, weights):
    import gguf

    out = gguf.GGUFWriter(str(path), "llama")
    out.add_context_length(shape.longest), out.add_embedding_length(shape.hidden), out.add_block_count(shape.layers)
    out.add_feed_forward_length(shape.ffn), out.add_head_count(shape.heads), out.add_head_count_kv(shape.kv_heads)
    out.add_layer_norm_rms_eps(1e-5), out.add_rope_dimension_count(shape.size), out.add_vocab_size(shape.vocabulary)
    out.add_file_type(gguf.LlamaFileType.MOSTLY_Q4_0), out.add_tokenizer_model("no_vocab")
    if shape.experts:
        out.add_expert_count(shape.experts), out.add_expert_used_count(shape.chosen)

    def add(name, matrix):  # [out, in]
        kind = gguf.GGMLQuantizationType.Q4_0
        out.add_tensor(name, gguf.quants.quantize(np.ascontiguousarray(matrix), kind), raw_dtype=kind)

    add("token_embd.weight", weights.table())
    add("output.weight", weights.head().T)
    ones = np.ones(shape.hidden, np.float32)
    out.add_tensor("output_norm.weight", ones)
    names = {"q": "attn_q", "k": "attn_k", "v": "attn_v", "o": "attn_output", "gate": "ffn_gate", "up": "ffn_up", "down": "ffn_down"}
    for i in range(shape.layers):
        for norm in ("attn_norm", "ffn_norm"):
            out.add_tensor(f"blk.{i}.{norm}.weight", ones)
        for ours, theirs in names.items():
            if shape.experts and theirs.startswith("ffn"):
                add(f"blk.{i}.{theirs}_exps.weight", weights.experts(i, ours))
            else:
                add(f"blk.{i}.{theirs}.weight", weights.matrix(i, ours).T)
        if shape.experts:
            out.add_tensor(f"blk.{i}.ffn_gate_inp.weight", np.ascontiguousarray(weights.router(i).T))
    out.write_header_to_file(), out.write_kv_data_to_file(), out.write_tensors_to_file()
    out.close()
