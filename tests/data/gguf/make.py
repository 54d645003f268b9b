"""Writes the GGUF files of tests/python/test_weights.py with PyPI's gguf, and beside them what its own reader makes of their tensors. Run by hand:

python3 tests/data/gguf/make.py

k_quants.gguf: architecture llama, a type of super-blocks for each matrix of 256 columns, tied embeddings (random blocks: the package does not write these types).
simple.gguf: architecture qwen2 (rows of q and k are not reordered), an output of its own, the simple types.
tables.gguf: the same with types whose codes are places in a table.
logits.npz: what the model gives for the ids 3, 1, 4, 1, 5, 9 with the floats that the package's own reader makes of the tensors, by onnx's reference evaluator.
"""

import pathlib

import gguf
import numpy as np
import onnx.reference
from gguf import GGMLQuantizationType as Q

import model as m

HERE = pathlib.Path(__file__).resolve().parent
K_QUANTS = {"token_embd": Q.Q6_K, "blk.0.attn_q": Q.Q4_K, "blk.0.attn_k": Q.Q5_K, "blk.0.attn_v": Q.Q6_K, "blk.0.attn_output": Q.Q8_0,
            "blk.0.ffn_gate": Q.Q3_K, "blk.0.ffn_up": Q.Q2_K, "blk.0.ffn_down": Q.Q5_0}
SIMPLE = {"token_embd": Q.Q4_0, "blk.0.attn_q": Q.Q4_0, "blk.0.attn_k": Q.Q8_0, "blk.0.attn_v": Q.Q5_1, "blk.0.attn_output": Q.F16,
          "blk.0.ffn_gate": Q.BF16, "blk.0.ffn_up": Q.Q4_1, "blk.0.ffn_down": Q.F32}
TABLES = {"token_embd": Q.IQ4_NL, "blk.0.attn_q": Q.MXFP4, "blk.0.attn_k": Q.IQ4_XS, "blk.0.attn_v": Q.IQ4_NL, "blk.0.attn_output": Q.MXFP4,
          "blk.0.ffn_gate": Q.IQ4_XS, "blk.0.ffn_up": Q.MXFP4, "blk.0.ffn_down": Q.IQ4_NL}
# Where halves lie in a super-block: of them all, d and, where there are mins, dmin.
HALVES = {Q.Q2_K: [80, 82], Q.Q3_K: [108], Q.Q4_K: [0, 2], Q.Q5_K: [0, 2], Q.Q6_K: [208],
          Q.IQ4_NL: [0], Q.IQ4_XS: [0], Q.MXFP4: []}
rng = np.random.default_rng(30)


def blocks(kind, rows, k):
    """Random blocks of a type, as bytes, whose weights are of the size 1/16."""
    block, size = gguf.GGML_QUANT_SIZES[kind]
    data = rng.integers(0, 256, (rows, k // block, size), dtype=np.uint8)

    def fill(d):
        for i, at in enumerate(HALVES[kind]):
            mean = {Q.Q2_K: 1.5, Q.Q4_K: 7.5, Q.Q5_K: 15.5}.get(kind, 1)
            values = (d * (mean if i else 1) * np.linspace(0.7, 1.3, rows * k // block)).astype(np.float16)
            data[:, :, at : at + 2] = values.reshape(rows, k // block, 1).view(np.uint8)

    if kind == Q.MXFP4:  # a power of two
        data[:, :, 0] = rng.integers(120, 124, data.shape[:2])
        return data.reshape(rows, -1)
    fill(1 / 64)
    size_now = float(np.sqrt(np.mean(gguf.dequantize(data.reshape(rows, -1), kind) ** 2)))
    fill(1 / 64 / size_now / 16)
    return data.reshape(rows, -1)


def to_file(x, heads):
    """As llama.cpp's converter orders rows of q and k."""
    return x.reshape(heads, 2, x.shape[0] // heads // 2, *x.shape[1:]).swapaxes(1, 2).reshape(x.shape)


def to_model(x, heads):
    return x.reshape(heads, x.shape[0] // heads // 2, 2, *x.shape[1:]).swapaxes(1, 2).reshape(x.shape)


def write(name, architecture, kinds):
    writer = gguf.GGUFWriter(HERE / f"{name}.gguf", architecture)
    writer.add_head_count(m.HEADS)
    writer.add_head_count_kv(m.KV_HEADS)
    writer.add_tokenizer_model("llama")
    writer.add_token_list([f"t{i}" for i in range(4)])
    weights = m.random_weights(7)
    back = {module: weights[module] for module in m.NORMS}
    modules = {file: module for module, (_, _, file) in m.MATRICES.items()} | {"output": "lm_head"}
    tensors = {file: (weights[module], kinds[file]) for module, (_, _, file) in m.MATRICES.items()}
    if architecture != "llama":
        tensors["output"] = m.random_weights(8)["model.embed_tokens"] / 16, Q.Q8_0
    for file, (w, kind) in tensors.items():
        heads = {"blk.0.attn_q": m.HEADS, "blk.0.attn_k": m.KV_HEADS}.get(file) if architecture == "llama" else None
        if kind in HALVES:
            data = blocks(kind, *w.shape)
        else:
            data = gguf.quantize(to_file(w, heads) if heads else w, kind)
        floats = gguf.dequantize(data, kind)
        back[modules[file]] = to_model(floats, heads) if heads else floats
        writer.add_tensor(f"{file}.weight", data, raw_dtype=kind if data.dtype == np.uint8 else None)
    for module, file in m.NORMS.items():
        writer.add_tensor(f"{file}.weight", weights[module])
    if architecture == "llama":
        writer.add_tensor("rope_freqs.weight", np.ones(m.HEAD // 2, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    ids = np.array([[3, 1, 4, 1, 5, 9]])
    return onnx.reference.ReferenceEvaluator(m.model(back)).run(None, {"ids": ids})[0]


np.savez(HERE / "logits.npz", k_quants=write("k_quants", "llama", K_QUANTS), simple=write("simple", "qwen2", SIMPLE), tables=write("tables", "qwen2", TABLES))
