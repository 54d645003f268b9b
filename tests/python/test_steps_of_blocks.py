"""Weights that arrive in blocks of 4 bits (MatMulNBits) as whole steps of one scale a column: products of int8, and what a second rounding loses."""

import numpy as np
import octavo
import pytest
from onnx import TensorProto, helper, numpy_helper

K, N, BLOCK = 160, 48, 32


def model(level, zeros, bias):
    rng = np.random.default_rng(3)
    codes, scales = rng.integers(0, 16, (N, K), dtype=np.uint8), rng.uniform(0.5, 1.5, (N, K // BLOCK)).astype(np.float32) / 64
    points = rng.integers(5, 11, (N, 6), dtype=np.uint8) if zeros else np.full((N, 6), 8, np.uint8)  # the sixth fills a byte
    constants = {"w": (codes[:, ::2] | codes[:, 1::2] << 4).reshape(N, K // BLOCK, BLOCK // 2), "s": scales.reshape(-1)}
    if zeros:
        constants["z"] = (points[:, ::2] | points[:, 1::2] << 4).reshape(-1)
    b = rng.standard_normal(N).astype(np.float32) if bias else np.zeros(N, np.float32)
    if bias:
        constants["b"] = b
    names = ["x", "w", "s", "z" if zeros else "", "", "b"] if bias else ["x", "w", "s", "z"] if zeros else ["x", "w", "s"]
    node = helper.make_node("MatMulNBits", names, ["y"], "fc", domain="com.microsoft", K=K, N=N, bits=4, block_size=BLOCK, accuracy_level=level)
    graph = helper.make_graph([node], "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["rows", K])],
                              [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["rows", N])], [numpy_helper.from_array(v, k) for k, v in constants.items()])
    file = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18), helper.make_opsetid("com.microsoft", 1)], ir_version=9)
    wide = (codes.astype(np.float32) - points[:, :5].repeat(BLOCK, 1)) * scales.repeat(BLOCK, 1)
    return file, lambda x: x @ wide.T + b


@pytest.mark.parametrize("level", [0, 4])
@pytest.mark.parametrize("zeros", [False, True])
@pytest.mark.parametrize("bias", [False, True])
def test_blocks_become_steps(level, zeros, bias):
    file, exact = model(level, zeros, bias)
    made = octavo.optimize(file, "dynamic4", set={"dynamic_blocks.steps": True}).model
    session = octavo.Session(made, threads=1)
    assert session.kernels[-1].startswith(("linear_int8", "quantize_tokens+linear_int8")), session.kernels
    for rows in (1, 7, 40):
        x = np.random.default_rng(rows).standard_normal((rows, K)).astype(np.float32)
        (y,) = session.run({"x": x})
        assert np.abs(y - exact(x)).std() < 0.06 * exact(x).std()  # steps of 1/15 of a block's range, half of one lost
    assert not any("linear_int8" in k for k in octavo.Session(octavo.optimize(file, "dynamic4").model).kernels)


def test_other_codes_keep_their_blocks():
    file = octavo.optimize(float_model(), "weights8").model
    made = octavo.optimize(file, "dynamic4", set={"dynamic_blocks.steps": True}).model
    assert any(k.startswith("linear_blocked8") for k in octavo.Session(made).kernels)


def float_model():
    w = numpy_helper.from_array(np.random.default_rng(5).standard_normal((K, N)).astype(np.float32), "w")
    graph = helper.make_graph([helper.make_node("MatMul", ["x", "w"], ["y"], "fc")], "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["rows", K])],
                              [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["rows", N])], [w])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
