"""The operands of 16 bits, as q4f16 of transformers.js has them, written as make.py writes the others. Run by hand."""
import make
import numpy as np

make.rng = np.random.default_rng(20261121 + 16)
n, k, block = 40, 100, 32
blocks = -(-k // block)
half = lambda x: np.asarray(x).astype(np.float16)
for name, bits, level, more in (("nbits4_half", 4, 0, ["z"]), ("nbits4_half_level4", 4, 4, ["", "", "bias"]), ("nbits4_half_bias", 4, 0, ["zf", "", "bias"]),
                                ("nbits8_half", 8, 0, ["z", "", "bias"])):
    constants = {"w": make.codes(np.uint8, n, blocks, block * bits // 8), "ws": half(make.rng.random(n * blocks) * 0.1 + 0.1), "bias": half(make.normal(n)),
                 "z": make.codes(np.uint8, n * ((blocks * bits + 7) // 8)), "zf": half(make.normal(n * blocks) + 8)}
    make.model(name, "MatMulNBits", dict(N=n, K=k, bits=bits, block_size=block, accuracy_level=level, _order=["a", "w", "ws", *more]),
          {"a": (["b", "s", k], lambda d: half(make.normal(d["b"], d["s"], k)))}, {c: v for c, v in constants.items() if c in ("w", "ws", *more)}, {"y": (make.T.FLOAT16, 3)})
blocks = -(-40 // 16)
make.model("gather_blocks4_half", "GatherBlockQuantized", dict(bits=4, block_size=16, gather_axis=0, quantize_axis=1, _order=["w", "ids", "ws", "z"]),
      {"ids": (["b", "s"], lambda d: make.rng.integers(0, 9, (d["b"], d["s"])))},
      {"w": make.codes(np.uint8, 9, 20), "ws": half(make.rng.random((9, blocks)) * 0.1 + 0.1), "z": make.codes(np.uint8, 9, 2)}, {"y": (make.T.FLOAT16, 3)})
