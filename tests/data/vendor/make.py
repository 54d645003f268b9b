"""Writes one small model per com.microsoft op and attribute combination, with random inputs and what ONNX Runtime gives.

Run by hand (README.md); the tests read the files. Two cases a file, of different sizes, so that nothing is baked in.
"""
import pathlib
import sys

import numpy as np
import onnx
import onnxruntime as ort
from onnx import TensorProto as T
from onnx import helper as h

HERE = pathlib.Path(__file__).resolve().parent
TYPES = {"float32": T.FLOAT, "int32": T.INT32, "int64": T.INT64, "uint8": T.UINT8, "int8": T.INT8, "bool": T.BOOL, "float16": T.FLOAT16}
SIZES = [dict(b=2, s=5, p=3, l=7), dict(b=3, s=4, p=6, l=2)]
rng = np.random.default_rng(20261121)


def normal(*shape, scale=1.0):
    return (rng.standard_normal(shape) * scale).astype(np.float32)


def codes(dtype, *shape):
    info = np.iinfo(dtype)
    return rng.integers(info.min, info.max + 1, shape).astype(dtype)


def model(name, op, attrs, inputs, constants, outputs, domain="com.microsoft", like=None, mend=None):
    """inputs: name -> (symbolic shape, function of the sizes); '' in `_order` leaves one out. outputs: name -> (type, rank); a
    name that begins with _ is an output of the node only, '' stands for the two that only training reads. like: (inputs in order,
    function of a feed), of the node that ONNX Runtime runs instead, where it lacks this one. mend: changes what it gives, where some of
    it is not specified."""
    order = attrs.pop("_order")
    feeds = [{k: f(d) for k, (_, f) in inputs.items()} for d in SIZES]
    node = h.make_node(op, order, [o for k in outputs for o in (["", ""] if k == "" else [k])], domain=domain, name="n", **attrs)
    graph = h.make_graph(
        [node], name,
        [h.make_tensor_value_info(k, TYPES[str(feeds[0][k].dtype)], shape) for k, (shape, _) in inputs.items()],
        [h.make_tensor_value_info(k, t, [f"{k}{i}" for i in range(rank)]) for k, (t, rank) in outputs.items() if k and k[0] != "_"],
        [onnx.numpy_helper.from_array(v, k) for k, v in constants.items()])
    m = h.make_model(graph, opset_imports=[h.make_opsetid("", 17), h.make_opsetid("com.microsoft", 1)], ir_version=8)
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    runs = onnx.ModelProto.FromString(m.SerializeToString())
    if like:
        runs.graph.node[0].input[:] = like[0]
    session = ort.InferenceSession(runs.SerializeToString(), options, providers=["CPUExecutionProvider"])
    arrays = {}
    for c, feed in enumerate(feeds):
        for k, v in feed.items():
            arrays[f"{c}/in/{k}"] = v
        for o, v in zip(session.get_outputs(), session.run(None, like[1](feed) if like else feed)):
            v = mend(o.name, v, feed) if mend else v
            arrays[f"{c}/out/{o.name}"] = v
            if v.dtype == np.float32 and not np.isfinite(v).all():
                sys.exit(f"{name}: output {o.name} is not finite")
    onnx.save(m, HERE / f"{name}.onnx")
    np.savez_compressed(HERE / f"{name}.npz", **arrays)
    print(name, {k: v.shape for k, v in arrays.items() if "/out/" in k})


F = T.FLOAT
X = (["b", "s", 12], lambda d: normal(d["b"], d["s"], 12))


def raw_mask(d, total):
    m = (rng.random((d["b"], total)) < 0.7).astype(np.int32)
    m[:, 0] = 1
    return m


def attention():
    w, bias = normal(12, 36, scale=0.4), normal(36)
    masks = {
        "none": None,
        "ends": (["b"], lambda d: rng.integers(1, d["s"] + 1, d["b"]).astype(np.int32)),
        "ends_begins": (["2b"], lambda d: np.concatenate([np.full(d["b"], d["s"]), rng.integers(0, 2, d["b"])]).astype(np.int32)),
        "raw2": (["b", "s"], lambda d: raw_mask(d, d["s"])),
        "raw3": (["b", "s", "s"], lambda d: (rng.random((d["b"], d["s"], d["s"])) < 0.7).astype(np.int32)),
    }
    for key, mask in masks.items():
        for causal in (0, 1):
            inputs = {"x": X} | ({"m": mask} if mask else {})
            model(f"attention_{key}_{'causal' if causal else 'all'}", "Attention",
                  dict(num_heads=3, unidirectional=causal, _order=["x", "w", "bias", "m" if mask else ""]),
                  inputs, {"w": w, "bias": bias}, {"y": (F, 3)})
    past = (["2", "b", 3, "p", 4], lambda d: normal(2, d["b"], 3, d["p"], 4))
    model("attention_past", "Attention", dict(num_heads=3, unidirectional=1, _order=["x", "w", "bias", "m", "past"]),
          {"x": X, "m": (["b", "t"], lambda d: raw_mask(d, d["s"] + d["p"])), "past": past}, {"w": w, "bias": bias},
          {"y": (F, 3), "present": (F, 5)})
    model("attention_bias_scale", "Attention",
          dict(num_heads=3, scale=0.3, mask_filter_value=-50.0, _order=["x", "w", "bias", "m", "", "e"]),
          {"x": X, "m": masks["raw2"], "e": ([1, 3, "s", "s"], lambda d: normal(1, 3, d["s"], d["s"]))},
          {"w": w, "bias": bias}, {"y": (F, 3)})
    model("attention_widths", "Attention", dict(num_heads=2, qkv_hidden_sizes=[8, 8, 20], _order=["x", "w", "bias"]),
          {"x": X}, {"w": w, "bias": bias}, {"y": (F, 3)})
    model("attention_open_weight", "Attention", dict(num_heads=3, _order=["x", "w", "bias"]),
          {"x": X, "w": ([12, 36], lambda d: normal(12, 36, scale=0.4))}, {"bias": bias}, {"y": (F, 3)})


def qattention():
    for key, per_column in (("tensor", False), ("columns", True)):
        n = 36 if per_column else 1
        scale = (rng.random(n) * 0.01 + 0.004).astype(np.float32)
        zero = np.zeros(n, np.int8)
        constants = {"w": codes(np.int8, 12, 36), "bias": normal(36), "ws": scale if per_column else scale[0], "xz": np.uint8(120),
                     "wz": zero if per_column else zero[0], "xs": np.float32(0.01)}
        constants = {k: np.asarray(v) for k, v in constants.items()}
        model(f"qattention_{key}", "QAttention",
              dict(num_heads=3, unidirectional=int(per_column), _order=["x", "w", "bias", "xs", "ws", "m", "xz", "wz"]),
              {"x": (["b", "s", 12], lambda d: codes(np.uint8, d["b"], d["s"], 12)), "m": (["b", "s"], lambda d: raw_mask(d, d["s"]))},
              constants, {"y": (F, 3)})


def multi_head():
    q = (["b", "s", 12], lambda d: normal(d["b"], d["s"], 12))
    k = (["b", "l", 12], lambda d: normal(d["b"], d["l"], 12))
    v = (["b", "l", 18], lambda d: normal(d["b"], d["l"], 18))
    bias = {"bias": normal(42)}
    model("mha_cross", "MultiHeadAttention", dict(num_heads=3, _order=["q", "k", "v"]), {"q": q, "k": k, "v": v}, {}, {"y": (F, 3)})
    model("mha_bias_mask", "MultiHeadAttention",
          dict(num_heads=3, mask_filter_value=-3.4028234663852886e+38, _order=["q", "k", "v", "bias", "m", "e"]),
          {"q": q, "k": k, "v": v, "m": (["b", "l"], lambda d: raw_mask(d, d["l"])),
           "e": (["b", 1, "s", "l"], lambda d: normal(d["b"], 1, d["s"], d["l"]))}, bias, {"y": (F, 3)})
    model("mha_lengths", "MultiHeadAttention", dict(num_heads=3, scale=0.7, _order=["q", "k", "v", "", "m"]),
          {"q": q, "k": k, "v": v, "m": (["b"], lambda d: rng.integers(1, d["l"] + 1, d["b"]).astype(np.int32))}, {}, {"y": (F, 3)})
    new = (["b", "s", 12], lambda d: normal(d["b"], d["s"], 12))
    past = (["b", 3, "p", 4], lambda d: normal(d["b"], 3, d["p"], 4))
    model("mha_past_causal", "MultiHeadAttention",
          dict(num_heads=3, unidirectional=1, _order=["q", "k", "v", "bias", "", "", "pk", "pv"]),
          {"q": q, "k": new, "v": new, "pk": past, "pv": past}, {"bias": normal(36)},
          {"y": (F, 3), "present_key": (F, 4), "present_value": (F, 4)})
    model("mha_causal", "MultiHeadAttention", dict(num_heads=3, unidirectional=1, _order=["q", "k", "v", "", "m"]),
          {"q": q, "k": new, "v": new, "m": (["b", "s", "s"], lambda d: (rng.random((d["b"], d["s"], d["s"])) < 0.7).astype(np.int32))},
          {}, {"y": (F, 3)})
    ready = (["b", 3, "l", 4], lambda d: normal(d["b"], 3, d["l"], 4))
    model("mha_ready_cache", "MultiHeadAttention", dict(num_heads=3, _order=["q", "k", "v"]),
          {"q": q, "k": ready, "v": ready}, {}, {"y": (F, 3)})


def group_query():
    def case(name, attrs, heads=4, groups=2, size=16, packed=False, past=True, rotary=False, full=False, extra=(), one=False, roomy=0, seen=None,
             kind=None, norms=False, bits=8):
        order = ["q", "" if packed else "k", "" if packed else "v", "pk" if past else "", "pv" if past else "", "lengths", "total"]
        constants = {}
        if rotary:
            angle = np.outer(np.arange(32), 1.0 / 50 ** (np.arange(rotary) / rotary))
            constants = {"cos": np.cos(angle).astype(np.float32), "sin": np.sin(angle).astype(np.float32)}
            attrs = dict(attrs, do_rotary=1)
        order += ["cos", "sin"] if rotary else ["", ""]
        width = (heads + 2 * groups) * size if packed else heads * size
        new = (lambda d: 1) if one else (lambda d: d["s"])
        old = lambda d: d["p"]
        inputs = {"q": (["b", "s", width], lambda d: normal(d["b"], new(d), width))}
        if not packed:
            kv = (["b", "s", groups * size], lambda d: normal(d["b"], new(d), groups * size))
            inputs |= {"k": kv, "v": kv}
        batch_of = lambda d: d["b"]
        if past:
            rows = lambda d: old(d) + roomy
            fill = (lambda *shape: codes(np.uint8 if bits == 4 else np.int8, *shape)) if kind else normal
            cache = (["b", groups, "p", size * bits // 8], lambda d: fill(d["b"], groups, rows(d), size * bits // 8))
            inputs |= {"pk": cache, "pv": cache}
        held = (lambda d: old(d) if past and not full else 0)
        total = lambda d: (seen(d) if seen else held(d)) + new(d)
        def lengths(d):
            every = np.full(d["b"], total(d) - 1, np.int32)
            if one and past:
                every[1:] -= rng.integers(0, 2, d["b"] - 1).astype(np.int32)
            return every
        inputs |= {"lengths": (["b"], lengths), "total": ([1], lambda d: np.array([total(d)], np.int32))}
        for k in extra:
            if k == "bias":
                order += [""] * (10 - len(order)) + ["bias"]
                inputs["bias"] = (["b", 1, "s", "t"], lambda d: normal(d["b"], 1, new(d), total(d)))
            if k == "sink":
                order += [""] * (11 - len(order)) + ["sink"]
                constants["sink"] = normal(heads)
            if k == "ids":
                order += ["ids"]
                inputs["ids"] = (["b", "s"], lambda d: rng.integers(0, 20, (d["b"], new(d))).astype(np.int64))
        if kind:
            shape = (1, groups, 1, size) if kind == "PER_CHANNEL" else (1,)
            constants |= {k: ((rng.random(shape) * 0.02 + 0.01) * (16 if bits == 4 else 1)).astype(np.float32) for k in ("ks", "vs")}
            attrs = dict(attrs, k_quant_type=kind, v_quant_type=kind, kv_cache_bit_width=bits)
            order += [""] * (12 - len(order)) + ["ks", "vs"]
        like = None
        if norms:
            constants |= {k: (rng.random(size) + 0.5).astype(np.float32) for k in ("qn", "kn")}
            plain, order = order, order + [""] * (14 - len(order)) + ["qn", "kn"]
            def normed(x, weight):
                x = x.reshape(*x.shape[:2], -1, size)
                y = x / np.sqrt((x.astype(np.float64) ** 2).mean(-1, keepdims=True) + attrs["qk_norm_epsilon"]) * weight
                return y.reshape(*x.shape[:2], -1).astype(np.float32)
            like = (plain, lambda feed: feed | {k: normed(feed[k], constants[k + "n"]) for k in "qk"})
        def zero_behind(output, v, feed):  # rows that a windowed cache does not specify
            for b, last in enumerate(feed["lengths"] if output[0] == "p" else []):
                capacity, count = v.shape[2], int(last) + 1
                group = capacity - attrs["local_window_size"] + 1
                v[b, :, count - group * -(-max(count - capacity, 0) // group):] = 0
            return v
        of_cache = (F if not kind else T.UINT8 if bits == 4 else T.INT8, 4)
        model(name, "GroupQueryAttention", dict(attrs, num_heads=heads, kv_num_heads=groups, _order=order), inputs, constants,
              {"y": (F, 3), "present_key": of_cache, "present_value": of_cache}, like=like,
              mend=zero_behind if attrs.get("sliding_window_cache") else None)

    case("gqa_prompt", {}, past=False)
    case("gqa_prompt_packed_rotary", {}, past=False, packed=True, rotary=8)
    case("gqa_step", {}, one=True, rotary=8)
    case("gqa_step_roomy", dict(scale=0.21), one=True, rotary=8, roomy=5)
    case("gqa_prompt_into_buffer", {}, full=True, rotary=8, roomy=5)
    case("gqa_interleaved_part", dict(rotary_interleaved=1), one=True, size=32, rotary=8)
    case("gqa_softcap", dict(softcap=3.0), one=True)
    case("gqa_window", dict(local_window_size=2), past=False)
    case("gqa_window_step", dict(local_window_size=3), one=True)
    case("gqa_smooth", dict(smooth_softmax=1), past=False)
    case("gqa_sink", {}, past=False, extra=["sink"])
    case("gqa_bias", {}, past=False, extra=["bias"])
    case("gqa_bias_softcap", dict(softcap=2.0), past=False, extra=["bias"])
    case("gqa_packed_step", {}, one=True, packed=True, rotary=8)
    saved = [dict(d) for d in SIZES]
    for d in SIZES:
        d["b"] = 1
    case("gqa_several_rows_with_past", {}, rotary=8)
    window = dict(sliding_window_cache=1, local_window_size=2)
    case("gqa_window_cache_several_rows", window, rotary=8, seen=lambda d: d["p"] + 7)
    SIZES[:] = saved
    case("gqa_all_prompt", dict(causal=0), past=False)
    case("gqa_all_step", dict(causal=0), one=True, rotary=8)
    case("gqa_window_cache", window, one=True, rotary=8, seen=lambda d: d["p"] + 4)
    case("gqa_window_cache_filling", window, one=True, rotary=8, roomy=3)
    case("gqa_window_cache_prompt", window, full=True, rotary=8)
    case("gqa_codes", {}, one=True, rotary=8, kind="PER_TENSOR")
    case("gqa_codes_channels", {}, one=True, packed=True, kind="PER_CHANNEL")
    case("gqa_norms", dict(qk_norm_epsilon=1e-3), one=True, rotary=8, norms=True)
    case("gqa_codes4", {}, one=True, rotary=8, kind="PER_TENSOR", bits=4)
    case("gqa_codes4_channels", {}, one=True, packed=True, kind="PER_CHANNEL", bits=4)


def rotary():
    angle = np.outer(np.arange(32), 1.0 / 50 ** (np.arange(4) / 4))
    caches = {"cos": np.cos(angle).astype(np.float32), "sin": np.sin(angle).astype(np.float32)}
    part = {k: v[:, :2].copy() for k, v in caches.items()}
    ids = (["b", "s"], lambda d: rng.integers(0, 32, (d["b"], d["s"])).astype(np.int64))
    offset = ([1], lambda d: np.array([3], np.int64))
    three = (["b", "s", 24], lambda d: normal(d["b"], d["s"], 24))
    four = (["b", 3, "s", 8], lambda d: normal(d["b"], 3, d["s"], 8))
    order = ["x", "ids", "cos", "sin"]
    model("rotary_3d", "RotaryEmbedding", dict(_order=order), {"x": three, "ids": ids}, caches, {"y": (F, 3)})
    model("rotary_offset_interleaved", "RotaryEmbedding", dict(interleaved=1, _order=order), {"x": four, "ids": offset}, caches, {"y": (F, 4)})
    model("rotary_part", "RotaryEmbedding", dict(num_heads=3, rotary_embedding_dim=4, _order=order), {"x": three, "ids": ids}, part, {"y": (F, 3)})
    model("rotary_4d", "RotaryEmbedding", dict(_order=order), {"x": four, "ids": ids}, caches, {"y": (F, 4)})


def embed():
    tables = {"word": normal(30, 12), "position": normal(16, 12), "segment": normal(2, 12), "gamma": normal(12), "beta": normal(12)}
    ids = (["b", "s"], lambda d: rng.integers(0, 30, (d["b"], d["s"])).astype(np.int32))
    segments = (["b", "s"], lambda d: rng.integers(0, 2, (d["b"], d["s"])).astype(np.int32))
    mask = (["b", "s"], lambda d: raw_mask(d, d["s"]))
    spots = ([1, "s"], lambda d: rng.integers(0, 16, (1, d["s"])).astype(np.int32))
    names = ["ids", "segments", "word", "position", "segment", "gamma", "beta"]
    model("embed_all", "EmbedLayerNormalization", dict(epsilon=1e-5, _order=names + ["mask", "spots"]),
          {"ids": ids, "segments": segments, "mask": mask, "spots": spots}, tables, {"y": (F, 3), "count": (T.INT32, 1), "sum": (F, 3)})
    tables = {k: v for k, v in tables.items() if k != "segment"}
    model("embed_plain", "EmbedLayerNormalization", dict(_order=["ids", "", "word", "position", "", "gamma", "beta"]),
          {"ids": ids}, tables, {"y": (F, 3), "_count": (T.INT32, 1)})
    shapes = {"word": (30, 12), "position": (16, 12), "segment": (2, 12), "gamma": (12,), "beta": (12,)}
    quantized = {k: codes(np.uint8, *s) for k, s in shapes.items()}
    scales = {k + "_s": np.float32(0.01 + 0.002 * i) for i, k in enumerate(shapes)}
    zeros = {k + "_z": np.uint8(110 + 5 * i) for i, k in enumerate(shapes)}
    constants = quantized | {k: np.asarray(v) for k, v in (scales | zeros).items()}
    model("qembed", "QEmbedLayerNormalization", dict(_order=names + ["mask"] + list(scales) + list(zeros)),
          {"ids": ids, "segments": segments, "mask": mask}, constants, {"y": (F, 3), "count": (T.INT32, 1)})


def norms_and_activations():
    skip = (["b", "s", 12], lambda d: normal(d["b"], d["s"], 12))
    c = {"gamma": normal(12), "beta": normal(12), "bias": normal(12)}
    model("skip_norm", "SkipLayerNormalization", dict(epsilon=1e-5, _order=["x", "skip", "gamma", "beta", "bias"]),
          {"x": X, "skip": skip}, c, {"y": (F, 3), "": (F, 1), "sum": (F, 3)})
    model("skip_rms", "SkipSimplifiedLayerNormalization", dict(epsilon=1e-5, _order=["x", "skip", "gamma", "bias"]),
          {"x": X, "skip": skip}, {k: c[k] for k in ("gamma", "bias")}, {"y": (F, 3)})
    model("bias_gelu", "BiasGelu", dict(_order=["x", "bias"]), {"x": X}, {"bias": c["bias"]}, {"y": (F, 3)})
    model("fast_gelu", "FastGelu", dict(_order=["x", "bias"]), {"x": X}, {"bias": c["bias"]}, {"y": (F, 3)})
    model("quick_gelu", "QuickGelu", dict(alpha=1.3, _order=["x"]), {"x": X}, {}, {"y": (F, 3)})


def products():
    a = (["b", "s", 12], lambda d: normal(d["b"], d["s"], 12))
    model("fused_matmul_transb", "FusedMatMul", dict(transB=1, alpha=0.3, _order=["a", "c"]),
          {"a": a, "c": (["b", "l", 12], lambda d: normal(d["b"], d["l"], 12))}, {}, {"y": (F, 3)})
    model("fused_matmul_transa", "FusedMatMul", dict(transA=1, _order=["a", "c"]),
          {"a": a, "c": (["b", "s", 5], lambda d: normal(d["b"], d["s"], 5))}, {}, {"y": (F, 3)})
    model("fused_matmul_batch", "FusedMatMul", dict(transBatchA=1, transBatchB=1, transB=1, _order=["a", "c"]),
          {"a": (["s", "b", 12], lambda d: normal(d["s"], d["b"], 12)),
           "c": ([7, "b", 12], lambda d: normal(7, d["b"], 12))}, {}, {"y": (F, 3)})
    model("fused_gemm", "FusedGemm", dict(activation="LeakyRelu", activation_alpha=0.2, alpha=0.5, transB=1, _order=["a", "c", "bias"]),
          {"a": (["s", 12], lambda d: normal(d["s"], 12))}, {"c": normal(7, 12), "bias": normal(7)}, {"y": (F, 2)})
    w, ws = codes(np.int8, 12, 10), (rng.random(10) * 0.01 + 0.004).astype(np.float32)
    model("dynamic_matmul", "DynamicQuantizeMatMul", dict(_order=["x", "w", "ws", "", "bias"]), {"x": X},
          {"w": w, "ws": ws, "bias": normal(10)}, {"y": (F, 3)})
    model("dynamic_matmul_u8", "DynamicQuantizeMatMul", dict(_order=["x", "w", "ws", "wz"]), {"x": X},
          {"w": codes(np.uint8, 12, 10), "ws": np.asarray(np.float32(0.01)), "wz": np.asarray(np.uint8(131))}, {"y": (F, 3)})
    model("integer_matmul", "MatMulIntegerToFloat", dict(_order=["a", "w", "s", "ws", "z", "", "bias"]),
          {"a": (["b", "s", 12], lambda d: codes(np.uint8, d["b"], d["s"], 12)), "s": ([], lambda d: np.asarray(np.float32(0.02))),
           "z": ([], lambda d: np.asarray(np.uint8(120)))}, {"w": w, "ws": ws, "bias": normal(10)}, {"y": (F, 3)})
    for bits in (2, 4, 8):
        n, k, block = 10, 40, 16
        blocks = -(-k // block)
        constants = {"w": codes(np.uint8, n, blocks, block * bits // 8), "ws": (rng.random(n * blocks) * 0.1 + 0.1).astype(np.float32)}
        zeros = {"none": None, "packed": codes(np.uint8, n * ((blocks * bits + 7) // 8)), "float": normal(n * blocks) + np.float32(2 ** (bits - 1))}
        for key, z in zeros.items():
            if bits == 8 and key == "float":
                continue  # ONNX Runtime's CPU kernel does not have it
            model(f"nbits{bits}_{key}", "MatMulNBits", dict(N=n, K=k, bits=bits, block_size=block, _order=["a", "w", "ws", "z" if z is not None else ""]),
                  {"a": (["b", "s", k], lambda d: normal(d["b"], d["s"], k))}, constants | ({"z": z} if z is not None else {}), {"y": (F, 3)})


def level4():
    """Activations quantized at run time, a scale a block."""
    n, k, block = 40, 100, 32
    blocks = -(-k // block)
    for bits in (4, 8):
        constants = {"w": codes(np.uint8, n, blocks, block * bits // 8), "ws": (rng.random(n * blocks) * 0.1 + 0.1).astype(np.float32),
                     "z": codes(np.uint8, n * ((blocks * bits + 7) // 8)), "bias": normal(n)}
        model(f"nbits{bits}_level4", "MatMulNBits",
              dict(N=n, K=k, bits=bits, block_size=block, accuracy_level=4, _order=["a", "w", "ws", "z", "", "bias"]),
              {"a": (["b", "s", k], lambda d: normal(d["b"], d["s"], k))}, constants, {"y": (F, 3)})


def quantized():
    U, S = T.UINT8, T.INT8
    q = {k: np.asarray(v) for k, v in dict(as_=np.float32(0.02), az=np.uint8(120), cs=np.float32(0.03), cz=np.uint8(131),
                                           ys=np.float32(0.05), yz=np.uint8(100), gs=np.float32(1 / 255), gz=np.uint8(0)).items()}
    pick = lambda *names: {k: q[k] for k in names}
    a = (["b", "s", 12], lambda d: codes(np.uint8, d["b"], d["s"], 12))
    two = ["a", "as_", "az", "c", "cs", "cz", "ys", "yz"]
    for op in ("QLinearAdd", "QLinearMul"):
        model(op.lower(), op, dict(_order=two), {"a": a, "c": (["b", 1, 12], lambda d: codes(np.uint8, d["b"], 1, 12))},
              pick("as_", "az", "cs", "cz", "ys", "yz"), {"y": (U, 3)})
    one = ["a", "as_", "az", "gs", "gz"]
    model("qlinearsigmoid", "QLinearSigmoid", dict(_order=one), {"a": a}, pick("as_", "az", "gs", "gz"), {"y": (U, 3)})
    model("qlinearleakyrelu", "QLinearLeakyRelu", dict(alpha=0.1, _order=["a", "as_", "az", "ys", "yz"]), {"a": a}, pick("as_", "az", "ys", "yz"), {"y": (U, 3)})
    model("qlinearsoftmax", "QLinearSoftmax", dict(opset=13, axis=-1, _order=one), {"a": a}, pick("as_", "az", "gs", "gz"), {"y": (U, 3)})
    model("qlinearconcat", "QLinearConcat", dict(axis=1, _order=["ys", "yz", "a", "as_", "az", "c", "cs", "cz"]),
          {"a": a, "c": (["b", "l", 12], lambda d: codes(np.uint8, d["b"], d["l"], 12))}, pick("as_", "az", "cs", "cz", "ys", "yz"), {"y": (U, 3)})
    model("qlinearwhere", "QLinearWhere", dict(_order=["m", "a", "as_", "az", "c", "cs", "cz", "ys", "yz"]),
          {"m": (["b", "s", 1], lambda d: rng.random((d["b"], d["s"], 1)) < 0.5), "a": a,
           "c": (["b", "s", 12], lambda d: codes(np.uint8, d["b"], d["s"], 12))}, pick("as_", "az", "cs", "cz", "ys", "yz"), {"y": (U, 3)})
    image = (["b", 3, 8, "s"], lambda d: codes(np.uint8, d["b"], 3, 8, d["s"]))
    model("qlinearglobalaveragepool", "QLinearGlobalAveragePool", dict(channels_last=0, _order=["a", "as_", "az", "ys", "yz"]), {"a": image},
          pick("as_", "az", "ys", "yz"), {"y": (U, 4)})
    model("qlinearaveragepool", "QLinearAveragePool", dict(kernel_shape=[2, 2], strides=[2, 1], _order=["a", "as_", "az", "ys", "yz"]),
          {"a": image}, pick("as_", "az", "ys", "yz"), {"y": (U, 4)})
    w = {"w": codes(np.int8, 12, 10), "ws": (rng.random(10) * 0.01 + 0.004).astype(np.float32), "wz": np.zeros(10, np.int8),
         "c": codes(np.int32, 10) // np.int32(2 ** 16)}
    flat = (["s", 12], lambda d: codes(np.uint8, d["s"], 12))
    order = ["a", "as_", "az", "w", "ws", "wz", "c"]
    model("qgemm_float", "QGemm", dict(_order=order), {"a": flat}, w | pick("as_", "az"), {"y": (F, 2)})
    model("qgemm_codes", "QGemm", dict(alpha=1.0, _order=order + ["ys", "yz"]), {"a": flat}, w | pick("as_", "az", "ys", "yz"), {"y": (U, 2)})


def lookups():
    """Tables and weights of few bits."""
    ids = (["b", "s"], lambda d: rng.integers(0, 9, (d["b"], d["s"])))
    k, block = 40, 16
    blocks = -(-k // block)
    scales = (rng.random((9, blocks)) * 0.1 + 0.1).astype(np.float32)
    for bits in (2, 4, 8):
        table = codes(np.uint8, 9, k * bits // 8)
        for key, zeros in (("none", None), ("zeros", codes(np.uint8, 9, -(-blocks * bits // 8)))):
            model(f"gather_blocks{bits}_{key}", "GatherBlockQuantized",
                  dict(bits=bits, block_size=block, gather_axis=0, quantize_axis=1, _order=["w", "ids", "ws"] + (["z"] if key == "zeros" else [])),
                  {"ids": ids}, {"w": table, "ws": scales} | ({"z": zeros} if key == "zeros" else {}), {"y": (F, 3)})
    n, k = 6, 40
    for key, quant in (("fp4", 0), ("nf4", 1)):
        model(f"bnb4_{key}", "MatMulBnb4", dict(N=n, K=k, block_size=16, quant_type=quant, _order=["x", "w", "top"]),
              {"x": (["b", "s", k], lambda d: normal(d["b"], d["s"], k))},
              {"w": codes(np.uint8, n * k // 2), "top": (rng.random(n * k // 16) + 0.5).astype(np.float32)}, {"y": (F, 3)})


def experts():
    count = 3
    router = (["t", count], lambda d: normal(d["b"] * d["s"], count))

    def case(name, attrs, wide=1, bias=True):
        hidden, inner = 8, 6
        c = {"w1": normal(count, wide * inner, hidden, scale=0.3), "w2": normal(count, hidden, inner, scale=0.3)}
        c |= {"b1": normal(count, wide * inner), "b2": normal(count, hidden)} if bias else {}
        model(f"moe_{name}", "MoE", dict(_order=["x", "r", "w1", "b1" if bias else "", "w2", "b2" if bias else ""], **attrs),
              {"x": (["t", hidden], lambda d: normal(d["b"] * d["s"], hidden)), "r": router}, c, {"y": (F, 2)})

    case("relu", dict(k=1, activation_type="relu"))
    case("gelu", dict(k=2, activation_type="gelu", normalize_routing_weights=1), bias=False)
    case("silu", dict(k=2, activation_type="silu"))
    # ONNX Runtime's CPU kernel has no other layout of swiglu.
    case("swiglu", dict(k=2, activation_type="swiglu", swiglu_fusion=1, activation_alpha=1.702, activation_beta=1.0, swiglu_limit=7.0,
                        normalize_routing_weights=1), wide=2)

    def quantized_case(name, bits, block=0, zeros=False):
        hidden, inner, per = 32, 16, 8 // bits
        c = {"w1": codes(np.uint8, count, 2 * inner, hidden // per), "w2": codes(np.uint8, count, hidden, inner // per)}
        shape = lambda n, k: (count, n, k // block) if block else (count, n)
        c |= {"s1": (rng.random(shape(2 * inner, hidden)) * 0.05).astype(np.float32), "s2": (rng.random(shape(hidden, inner)) * 0.05).astype(np.float32)}
        order = ["x", "r", "w1", "s1", "", "w2", "s2"]
        if zeros:
            packed = lambda n, k: (count, n, -(-(k // block) // per))
            c |= {"z1": codes(np.uint8, *packed(2 * inner, hidden)), "z2": codes(np.uint8, *packed(hidden, inner))}
            order += ["", "", "", "", "z1", "z2"]
        attrs = dict(k=2, activation_type="swiglu", swiglu_fusion=1, expert_weight_bits=bits, normalize_routing_weights=1, weights_prepacked=0)
        model(f"qmoe_{name}", "QMoE", dict(_order=order, **attrs, **({"block_size": block} if block else {})),
              {"x": (["t", hidden], lambda d: normal(d["b"] * d["s"], hidden)), "r": router}, c, {"y": (F, 2)})

    quantized_case("4", 4)
    quantized_case("8", 8)
    quantized_case("4_blocks", 4, block=16)
    quantized_case("4_zeros", 4, block=16, zeros=True)


def experts_apart():
    """Large enough that each is a Linear of its own."""
    count, hidden, inner, block = 3, 32, 32, 16
    shape = lambda n, k: (count, n, k // block)
    c = {"w1": codes(np.uint8, count, 2 * inner, hidden // 2), "w2": codes(np.uint8, count, hidden, inner // 2)}
    c |= {"s1": (rng.random(shape(2 * inner, hidden)) * 0.05).astype(np.float32), "s2": (rng.random(shape(hidden, inner)) * 0.05).astype(np.float32)}
    c |= {"z1": codes(np.uint8, count, 2 * inner, 1), "z2": codes(np.uint8, count, hidden, 1), "b1": normal(count, 2 * inner), "b2": normal(count, hidden)}
    model("qmoe_apart", "QMoE", dict(_order=["x", "r", "w1", "s1", "b1", "w2", "s2", "b2", "", "", "", "z1", "z2"], k=2, activation_type="swiglu",
                                     swiglu_fusion=1, expert_weight_bits=4, normalize_routing_weights=1, weights_prepacked=0, block_size=block),
          {"x": (["t", hidden], lambda d: normal(d["b"] * d["s"], hidden)), "r": (["t", count], lambda d: normal(d["b"] * d["s"], count))}, c, {"y": (F, 2)})


def linear_attention():
    b, t = "b", "s"
    part = lambda columns, scale=1.0: ([b, t, columns], lambda d: normal(d["b"], d["s"], columns, scale=scale))
    for rule in ("linear", "gated", "delta", "gated_delta"):
        inputs = {"q": part(16), "k": part(8, 0.4), "v": part(12)}
        inputs |= {"past": ([b, 2, 4, 6], lambda d: normal(d["b"], 2, 4, 6))}
        if "gated" in rule:
            inputs |= {"g": ([b, t, 2], lambda d: -rng.random((d["b"], d["s"], 2)).astype(np.float32))}
        if "delta" in rule:
            inputs |= {"beta": ([b, t, 2], lambda d: rng.random((d["b"], d["s"], 2)).astype(np.float32))}
        order = ["q", "k", "v", "past"] + (["g"] if "gated" in rule else [""]) + (["beta"] if "delta" in rule else [])
        if order[-1] == "":
            order.pop()
        model(f"linear_attention_{rule}", "LinearAttention", dict(q_num_heads=4, kv_num_heads=2, update_rule=rule, _order=order), inputs, {},
              {"y": (F, 3), "present": (F, 4)})
    conv = {"x": ([b, 6, t], lambda d: normal(d["b"], 6, d["s"])), "past": ([b, 6, 3], lambda d: normal(d["b"], 6, 3))}
    model("causal_conv", "CausalConvWithState", dict(activation="silu", _order=["x", "w", "bias", "past"]), conv,
          {"w": normal(6, 1, 4), "bias": normal(6)}, {"y": (F, 3), "present": (F, 3)})
    model("causal_conv_plain", "CausalConvWithState", dict(_order=["x", "w"]), {"x": conv["x"]}, {"w": normal(6, 1, 4)}, {"y": (F, 3), "present": (F, 3)})
    model("linear_attention_gate", "LinearAttentionGate", dict(_order=["a", "dt", "scale", "beta"]), {"a": part(4), "beta": part(4)},
          {"dt": normal(4), "scale": -rng.random(4).astype(np.float32)}, {"decay": (F, 3), "rate": (F, 3)})
    model("gated_rms", "GatedRMSNorm", dict(epsilon=1e-5, _order=["x", "scale", "gate"]), {"x": X, "gate": X}, {"scale": normal(4)}, {"y": (F, 3)})
    model("scaled_silu", "ScaledSiLU", dict(alpha=1.3, _order=["x"]), {"x": X}, {}, {"y": (F, 3)})


def small():
    image = (["b", 3, 6, "s"], lambda d: normal(d["b"], 3, 6, d["s"]))
    for key, attrs in (("relu", dict(activation="Relu")), ("clip", dict(activation="Clip", activation_params=[-0.5, 1.5])),
                       ("leaky", dict(activation="LeakyRelu", activation_params=[0.2]))):
        model(f"fused_conv_{key}", "FusedConv", dict(pads=[1, 1, 1, 1], _order=["x", "w", "bias"], **attrs), {"x": image},
              {"w": normal(4, 3, 3, 3), "bias": normal(4)}, {"y": (F, 4)})
    model("fused_conv_sum", "FusedConv", dict(pads=[1, 1, 1, 1], activation="Relu", _order=["x", "w", "bias", "z"]),
          {"x": image, "z": (["b", 4, 6, "s"], lambda d: normal(d["b"], 4, 6, d["s"]))}, {"w": normal(4, 3, 3, 3), "bias": normal(4)}, {"y": (F, 4)})
    model("trilu", "Trilu", dict(upper=0, _order=["x", "k"]), {"x": X}, {"k": np.asarray(np.int64(-1))}, {"y": (F, 3)})
    model("pad", "Pad", dict(mode="reflect", _order=["x", "pads"]), {"x": X}, {"pads": np.array([0, 1, 2, 0, 0, 1])}, {"y": (F, 3)})
    model("expand_dims", "ExpandDims", dict(_order=["x", "axis"]), {"x": X}, {"axis": np.asarray(np.int32(-2))}, {"y": (F, 4)})
    model("range", "Range", dict(_order=["a", "c"]), {"a": ([1], lambda d: np.array([d["b"]], np.float32)), "c": ([1], lambda d: np.array([9.5], np.float32))},
          {}, {"y": (F, 1)})
    model("gather_nd", "GatherND", dict(_order=["x", "at"]), {"x": X}, {"at": np.array([[0, 1], [1, 0]])}, {"y": (F, 2)})
    model("grid_sample", "GridSample", dict(mode="bicubic", padding_mode="border", _order=["x", "grid"]),
          {"x": image, "grid": (["b", 2, 3, 2], lambda d: normal(d["b"], 2, 3, 2))}, {}, {"y": (F, 4)})


def attention_more():
    one = (["b", 1, 12], lambda d: normal(d["b"], 1, 12))
    past = (["b", 3, "p", 4], lambda d: normal(d["b"], 3, d["p"], 4))
    model("decoder_masked", "DecoderMaskedMultiHeadAttention",
          dict(num_heads=3, past_present_share_buffer=1, _order=["q", "k", "v", "", "", "pk", "pv", "n", "", "", "bias"]),
          {"q": one, "k": one, "v": one, "pk": past, "pv": past, "n": ([1], lambda d: np.array([d["p"] - 2], np.int32))}, {"bias": normal(36)},
          {"y": (F, 3), "ok": (F, 4), "ov": (F, 4)})
    model("decoder_cross", "DecoderMaskedMultiHeadAttention", dict(num_heads=3, scale=0.3, _order=["q", "k", "v", "m"]),
          {"q": one, "k": past, "v": past, "m": (["b", "p"], lambda d: raw_mask(d, d["p"]))}, {}, {"y": (F, 3)})
    rows = lambda n: (["b", "s", n], lambda d: normal(d["b"], d["s"], n))
    model("gqa_all", "GroupQueryAttention", dict(num_heads=4, kv_num_heads=2, causal=0, _order=["q", "k", "v", "", "", "ends", "total"]),
          {"q": rows(32), "k": rows(16), "v": rows(16), "ends": (["b"], lambda d: np.full(d["b"], d["s"] - 1, np.int32)),
           "total": ([], lambda d: np.asarray(np.int32(d["s"])))}, {}, {"y": (F, 3), "ok": (F, 4), "ov": (F, 4)})


if __name__ == "__main__":
    groups = [attention, qattention, multi_head, group_query, rotary, embed, norms_and_activations, products, quantized, level4, lookups, experts, linear_attention, small, attention_more, experts_apart]
    for i, group in enumerate(groups):
        rng = np.random.default_rng(20261121 + i)
        if len(sys.argv) < 2 or group.__name__ in sys.argv[1:]:
            group()
