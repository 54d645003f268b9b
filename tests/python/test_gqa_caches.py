"""GroupQueryAttention with caches in codes and with sinks is a step of attention: the interpreter repeats, rounds and multiplies nothing of a cache."""

import pathlib

import numpy as np
import octavo
import pytest

VENDOR = pathlib.Path(__file__).parent.parent / "data/vendor"


@pytest.mark.parametrize("name", ["gqa_codes", "gqa_codes_channels", "gqa_codes4", "gqa_codes4_channels", "gqa_sink", "gqa_smooth"])
def test_attention_is_a_step(name):
    session = octavo.Session(str(VENDOR / f"{name}.onnx"), threads=1)
    kernels = [" ".join(kernel.split()[:2]) for kernel in session.kernels]
    assert [k.split()[0] for k in kernels if k.startswith(("sdpa", "softmax", "matmul"))] == ["sdpa_f32"], kernels
    assert not {"interpreter Round", "interpreter MatMul"} & set(kernels)
    if "codes" in name:
        assert "interpreter Expand" not in kernels and sum(k.startswith(("dequantize", "chain DequantizeLinear")) for k in kernels) == 2, kernels
    data = np.load(VENDOR / f"{name}.npz")
    for case in ("0", "1"):
        feeds = {key.split("/", 2)[2]: data[key] for key in data.files if key.startswith(f"{case}/in/")}
        want = {key.split("/", 2)[2]: data[key] for key in data.files if key.startswith(f"{case}/out/")}
        for output, found in zip(want, session.run(feeds, list(want))):
            assert np.allclose(np.asarray(found, np.float64), want[output].astype(np.float64), atol=1e-5), output
