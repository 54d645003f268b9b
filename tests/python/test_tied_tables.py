"""A token table that is the head, too, is stored once where both have the same codes."""

import numpy as np
import octavo
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

WORDS, HIDDEN = 640, 64


def model(tied):
    table = np.random.default_rng(11).standard_normal((WORDS, HIDDEN)).astype(np.float32)
    constants = {"table": table} | ({} if tied else {"other": np.roll(table, 1, axis=0)})
    nodes = [helper.make_node("Gather", ["table", "ids"], ["x"], "embed"), helper.make_node("Relu", ["x"], ["r"], "relu"),
             helper.make_node("Transpose", ["table" if tied else "other"], ["w"], "turn", perm=[1, 0]), helper.make_node("MatMul", ["r", "w"], ["y"], "head")]
    graph = helper.make_graph(nodes, "tied", [helper.make_tensor_value_info("ids", TensorProto.INT64, ["b", "s"])],
                              [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)], [numpy_helper.from_array(v, k) for k, v in constants.items()])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9).SerializeToString()


@pytest.mark.parametrize("tied", [True, False])
def test_codes_are_stored_once(tied):
    made = octavo.optimize(model(tied), "dynamic").model
    ids = np.arange(30).reshape(2, 15) * 7
    (found,), (want,) = octavo.Session(made).run({"ids": ids}), octavo.Session(model(tied)).run({"ids": ids})
    assert np.abs(found - want).max() < 0.02 * np.abs(want).max()
    assert any(kernel.startswith("quantize_tokens+linear_int8") for kernel in octavo.Session(made).kernels)
    file = onnx.load_from_string(made if isinstance(made, bytes) else bytes(made))
    codes = [i for i in file.graph.initializer if i.data_type == TensorProto.INT8 and len(i.dims) == 2]
    codes += [n for n in file.graph.node if n.op_type == "Constant" and n.attribute[0].t.data_type == TensorProto.INT8 and len(n.attribute[0].t.dims) == 2]
    assert len(codes) == (1 if tied else 2)


@pytest.mark.parametrize("other", [False, True])
def test_blocks_are_stored_once(other):
    file = model(not other)
    made = octavo.optimize(file, "weights8").model
    session = octavo.Session(made)
    assert any(kernel.startswith("linear_blocked8") for kernel in session.kernels)
    for ids in (np.arange(30).reshape(2, 15) * 7, np.array([[5]]), np.zeros((1, 0), np.int64)):
        (found,), (want,) = session.run({"ids": ids}), octavo.Session(file).run({"ids": ids})
        assert found.shape == want.shape and (not want.size or np.abs(found - want).max() < 0.02 * np.abs(want).max())
    assert (len(bytes(made)) < 1.3 * WORDS * HIDDEN) == (not other)  # codes and scales of one or two tables
