"""Graphs inside of If, in forms that the C++ tests do not have: If within If, two that share weights, a batch without tokens."""
import numpy as np
import octavo
import pytest
from onnx import TensorProto, helper, numpy_helper

RNG = np.random.default_rng(1)


def weights(prefix):
    return [numpy_helper.from_array(RNG.normal(0, 0.2, (32, 32)).astype(np.float32), prefix + c) for c in "qkv"]


def attention(p, out):
    node = helper.make_node
    return [node("MatMul", ["x", p + c], [out + c]) for c in "qkv"] + [
        node("Transpose", [out + "k"], [out + "t"], perm=[0, 2, 1]),
        node("MatMul", [out + "q", out + "t"], [out + "s"]), node("Softmax", [out + "s"], [out + "p"], axis=-1),
        node("MatMul", [out + "p", out + "v"], [out])]


def graph(nodes, out, own=()):
    return helper.make_graph(nodes, out, [], [helper.make_tensor_value_info(out, TensorProto.FLOAT, None)], list(own))


def choose(flag, out, then, other):
    return helper.make_node("If", [flag], [out], then_branch=then, else_branch=other)


def model(nodes, own=()):
    inputs = [helper.make_tensor_value_info(n, TensorProto.BOOL, []) for n in "cd"]
    inputs.append(helper.make_tensor_value_info("x", TensorProto.FLOAT, ["b", "s", 32]))
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    return helper.make_model(helper.make_graph(nodes, "g", inputs, [y], list(own)),
                             opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()


def nested():
    inner = choose("d", "i", graph(attention("t", "a"), "a", weights("t")),
                   graph([helper.make_node("Identity", ["x"], ["e"])], "e"))
    return model([choose("c", "y", graph([inner], "i"), graph(attention("o", "f"), "f", weights("o")))])


def two():
    def one(flag, out):
        return choose(flag, out, graph(attention("w", out + "1"), out + "1"),
                      graph([helper.make_node("MatMul", ["x", "wq"], [out + "2"])], out + "2"))
    return model([one("c", "m"), one("d", "n"), helper.make_node("Add", ["m", "n"], ["y"])], weights("w"))


@pytest.mark.parametrize("make", [nested, two])
@pytest.mark.parametrize("recipe, most", [("float", 1e-10), ("int8", 1e-2), ("dynamic", 1e-2)])
def test_what_is_inside_is_optimized_and_computes_the_same(make, recipe, most):
    """`most`: power of the difference in that of the signal; 8 bits without trained weights keep some 25 dB."""
    source = make()
    batches = [{"c": np.array(i % 2 == 0), "d": np.array(i % 3 == 0),
                "x": RNG.normal(size=(2, 4 + i, 32)).astype(np.float32)} for i in range(6)]
    result = octavo.optimize(source, recipe=recipe, calibration=batches if recipe == "int8" else None)
    assert result.report["attention"] == {"found": 2, "fused": 2}
    assert result.report["linear"]["quantized"] == (0 if recipe == "float" else result.report["linear"]["found"])
    assert all("_branch of If" in c["place"] for c in result.report["candidates"] if c["kind"] == "attention")
    before, after = octavo.Session(source, threads=1, fuse=False), octavo.Session(result.model, threads=1)
    none = {"c": np.array(True), "d": np.array(True), "x": np.zeros((1, 0, 32), np.float32)}
    for batch in batches + [none]:
        want, got = before.run(batch)[0], after.run(batch)[0]
        assert want.shape == got.shape
        assert np.sum((want - got) ** 2) <= most * np.sum(want ** 2)


def test_branches_become_files(run, tmp_path):
    source = two()
    (tmp_path / "in.onnx").write_bytes(source)
    done = run("optimize", "in.onnx", "-o", "out.onnx", "--recipe", "dynamic", "--split-if", "c")
    assert done.returncode == 0, done.stderr
    assert not (tmp_path / "out.onnx").exists()
    whole = octavo.optimize(source, recipe="dynamic").model
    x, d = RNG.normal(size=(2, 5, 32)).astype(np.float32), np.array(True)
    for value, branch in zip((True, False), octavo.split_if(whole, "c")):
        want = octavo.Session(whole).run({"c": np.array(value), "d": d, "x": x})[0]
        for model_of_branch in (branch, tmp_path / f"out.{str(value).lower()}.onnx"):
            session = octavo.Session(model_of_branch)
            assert sorted(n for n, _ in session.inputs) == ["d", "x"]
            assert session.run({"d": d, "x": x})[0].tobytes() == want.tobytes()
    done = run("optimize", "in.onnx", "-o", "out.onnx", "--recipe", "dynamic", "--split-if", "x")
    assert done.returncode == 1 and "only inputs of one element can be assumed" in done.stderr
