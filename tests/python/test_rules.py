"""Graphs, rules, passes and pipelines of one's own from Python."""

import json

import numpy as np
import octavo
import onnx
import pytest
from onnx import TensorProto, helper


class QuickGelu(octavo.Rule):
    """x * sigmoid(1.702 x) -> Gelu by tanh"""

    def pattern(self, op, x):
        return op.Mul(x, op.Sigmoid(op.Mul(x, octavo.scalar(1.702))))

    def check(self, match):
        return None

    def rewrite(self, op, match):
        return op.Gelu(match["x"], approximate="tanh")


def model(slope=1.702, opset=20):
    """x -> steeper -> gate -> act -> y, the GELU of CLIP."""
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, ["n", 4]) for n in "xy")
    nodes = [
        helper.make_node("Mul", ["slope", "x"], ["a"], name="steeper"),
        helper.make_node("Sigmoid", ["a"], ["b"], name="gate"),
        helper.make_node("Mul", ["b", "x"], ["y"], name="act"),
    ]
    graph = helper.make_graph(nodes, "g", [x], [y], [helper.make_tensor("slope", TensorProto.FLOAT, [], [slope])])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8).SerializeToString()


def rewrites(result):
    return [c for c in result.report["candidates"] if c["kind"] == "rewrite"]


def test_a_rule_fires_and_is_named():
    result = octavo.optimize(model(), recipe="float", rules=[QuickGelu()])
    assert rewrites(result) == [
        {"kind": "rewrite", "nodes": ["act"], "status": "fused", "rule": "quick_gelu", "reason": ""}
    ]
    metadata = {p.key: p.value for p in onnx.load_from_string(result.model).metadata_props}
    assert json.loads(metadata["octavo.pipeline"])["foreign"] == {"quick_gelu": "1"}
    x = np.linspace(-3, 3, 8, dtype=np.float32).reshape(2, 4)
    (y,) = octavo.Session(result.model, threads=1).run({"x": x})
    want = 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))
    np.testing.assert_allclose(y, want, atol=1e-6)
    assert "quick_gelu" in result.html


def test_a_miss_is_told():
    (miss,) = rewrites(octavo.optimize(model(1.7), recipe="float", rules=[QuickGelu()]))
    assert (miss["nodes"], miss["status"]) == (["act"], "left")
    assert miss["reason"] == "Shape: 'scalar' is 1.7, not 1.702"


def test_a_check_says_why():
    class Never(QuickGelu):
        def check(self, match):
            assert match["x"].shape == ["n", 4] and match["x"].dtype == "f32"
            return "not here"

    (miss,) = rewrites(octavo.optimize(model(), recipe="float", rules=[Never()]))
    assert miss["reason"] == "Illegal: not here" and miss["rule"] == "never"


def test_what_a_rule_raises_is_raised():
    class Raises(QuickGelu):
        def rewrite(self, op, match):
            raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        octavo.optimize(model(), recipe="float", rules=[Raises()])


def test_a_wrong_rewrite_is_undone():
    class Wrong(QuickGelu):
        def rewrite(self, op, match):
            return op.Cast(match["x"], to=10)

    result = octavo.optimize(model(), recipe="float", rules=[Wrong()])
    assert "it would give f16[n,4] instead of f32[n,4]" in rewrites(result)[0]["reason"]
    assert octavo.Session(result.model).run({"x": np.zeros((1, 4), np.float32)})[0].dtype == np.float32


@pytest.mark.parametrize(
    "change, sentence",
    [
        (dict(pattern=lambda self, op, x, y: op.Sigmoid(x)), "rule wrong: its pattern does not use 'y'"),
        (dict(pattern=lambda self, op, x: op.Sigmiod(x)), "rule wrong: octavo knows no op 'Sigmiod' of ONNX"),
        (dict(pattern=lambda self, op, x: 1), "rule wrong: its pattern returns no op"),
        (dict(rewrite=lambda self, op, match: op.Geul(match["x"])), "octavo knows no op 'Geul' of ONNX"),
        (dict(rewrite=lambda self, op, match: 1), "rule wrong: a rule's rewrite returns the value"),
        (dict(check=lambda self, match: 1), "rule wrong: a rule's check returns None or a sentence, not int"),
        (dict(pattern=lambda self, op, x: op.Add(x)), "rule wrong: 'add' has 1 operand, and Add takes 2"),
        (dict(pattern=lambda self, op, x: x), "rule wrong: its root 'x' is no op"),
        (dict(pattern=lambda self, op, x: op.Sigmoid(x, axis=1)), "rule wrong: op.Sigmoid: it has the attribute 'axis', which Sigmoid does not know"),
        (dict(pattern=lambda self, op, x: op.Sigmoid(x, _nme="y")), "op.Sigmoid: there is no _nme; what begins with _ is _name, _domain, _open, _escape or _output"),
        (dict(rewrite=lambda self, op, match: op.Gelu(match["x"], approximte="tanh")), "op.Gelu: it has the attribute 'approximte', which Gelu does not know; its attributes are approximate"),
        (dict(rewrite=lambda self, op, match: op.Gelu(match["x"], approximate=1)), "op.Gelu: its attribute 'approximate' is an integer; Gelu takes a text"),
        (dict(rewrite=lambda self, op, match: op.Gelu(match["x"], _output=1)), "op.Gelu: there is no _output; what begins with _ is _outputs or _domain"),
        (dict(after="nothing"), "'wrong' cannot stand beside 'nothing', which is no pass"),
        (dict(name="cse"), "there is a pass 'cse' already"),
        (dict(version=""), "has no version"),
    ],
)
def test_refusals(change, sentence):
    with pytest.raises(octavo.OctavoError, match=sentence.replace("(", r"\(")):
        octavo.optimize(model(), recipe="float", rules=[type("Wrong", (QuickGelu,), change)()])


def test_what_a_match_does_not_have_is_told():
    class Misspelt(QuickGelu):
        def rewrite(self, op, match):
            return match["X"]

    with pytest.raises(KeyError, match="this match has no 'X'; it has .*sigmoid.*x"):
        octavo.optimize(model(), recipe="float", rules=[Misspelt()])


def test_a_rule_that_writes_nothing_is_told_what_to_write():
    with pytest.raises(NotImplementedError, match=r"Empty has no pattern\(self, op, ...\)"):
        octavo.optimize(model(), recipe="float", rules=[type("Empty", (octavo.Rule,), {})()])


def test_whole_numbers_become_what_the_op_has():
    class ToElu(octavo.Rule):
        def pattern(self, op, x):
            return op.Sigmoid(x)

        def rewrite(self, op, match):
            return op.Elu(match["x"], alpha=3)

    result = octavo.optimize(model(), recipe="float", rules=[ToElu()])
    (elu,) = (node for node in onnx.load_from_string(result.model).graph.node if node.op_type == "Elu")
    assert [(a.name, a.f) for a in elu.attribute] == [("alpha", 3.0)]


def test_what_is_no_rule():
    with pytest.raises(octavo.OctavoError, match="rules are objects of classes made from octavo.Rule"):
        octavo.optimize(model(), recipe="float", rules=[QuickGelu])


def test_a_match_is_gone_when_the_call_is_over():
    kept = []

    class Keeps(QuickGelu):
        def rewrite(self, op, match):
            kept.extend([op, match, match["x"]])
            return super().rewrite(op, match)

    octavo.optimize(model(), recipe="float", rules=[Keeps()])
    for use in (lambda: kept[2].name, lambda: kept[1].number("scalar"), lambda: kept[0].Relu(kept[2])):
        with pytest.raises(octavo.OctavoError, match="is gone"):
            use()


def test_patterns_are_strict_and_can_be_opened():
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, [2, 4]) for n in "xy")
    graph = helper.make_graph([helper.make_node("Softmax", ["x"], ["y"], axis=0, name="s")], "g", [x], [y])
    data = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=8).SerializeToString()

    def fate(**attributes):
        class Soft(octavo.Rule):
            def pattern(self, op, x):
                return op.Softmax(x, **attributes)

            def rewrite(self, op, match):
                return op.Relu(match["x"])

        return [d["fate"] for d in octavo.apply(octavo.Graph(data), rules=[Soft()])]

    assert fate(axis=0) == fate(_open=True) == ["rewritten"]
    assert fate(axis=1) == fate() == []


def test_one_of_optional_and_absent_operands():
    class Clips(octavo.Rule):
        def pattern(self, op, x):
            return octavo_one_of(op, x)

        def rewrite(self, op, match):
            return op.Relu(match["x"])

    def octavo_one_of(op, x):
        return op.Clip(octavo.one_of(op.Neg(x), op.Abs(x)), octavo.scalar(name="low"), None)

    def fates(inner, high):
        v, w = (helper.make_tensor_value_info(n, TensorProto.FLOAT, [2]) for n in "xy")
        nodes = [helper.make_node(inner, ["x"], ["a"]), helper.make_node("Clip", ["a", "low"] + high, ["y"])]
        constants = [helper.make_tensor(n, TensorProto.FLOAT, [], [1.0]) for n in ["low"] + high]
        data = helper.make_model(helper.make_graph(nodes, "g", [v], [w], constants), ir_version=8,
                                 opset_imports=[helper.make_opsetid("", 17)]).SerializeToString()
        return [d["fate"] for d in octavo.apply(octavo.Graph(data), rules=[Clips()])]

    assert fates("Neg", []) == fates("Abs", []) == ["rewritten"]
    assert "rewritten" not in fates("Neg", ["high"]) and "rewritten" not in fates("Exp", [])


def test_a_graph_can_be_walked_and_changed():
    graph = octavo.Graph(model())
    assert [n.op for n in graph.nodes if n.op != "Constant"] == ["Mul", "Sigmoid", "Mul"]
    assert [v.name for v in graph.inputs] == ["x"] and list(graph.outputs) == ["y"] and "Sigmoid" in str(graph)
    gate = next(n for n in graph.nodes if n.op == "Sigmoid")
    assert gate.name == "gate" and gate.inputs[0].producer.name == "steeper" and gate.outputs[0].users[0].name == "act"
    assert graph.value("slope").constant == np.float32(1.702) and graph.value("nothing") is None
    rewriter = graph.rewriter("mine")
    rewriter.at(gate)
    rewriter.replace(gate.outputs[0], rewriter.Relu(rewriter.Add(gate.inputs[0], 1)))
    rewriter.erase_dead(gate)
    assert graph.verify() == []
    with pytest.raises(octavo.OctavoError, match="erased"):
        gate.op
    x = np.array([[-1, 0, 1, 2]], np.float32)
    want = x * np.maximum(np.float32(1.702) * x + 1, 0)
    np.testing.assert_allclose(octavo.Session(graph.to_bytes()).run({"x": x})[0], want, rtol=1e-6)
    np.testing.assert_allclose(octavo.Session(graph).run({"x": x})[0], want, rtol=1e-6)
    with pytest.raises(octavo.OctavoError, match="replaces"):
        rewriter.replace(graph.outputs["y"], graph.value("slope"))


def test_passes_are_listed():
    by_name = {p["name"]: p for p in octavo.passes()}
    assert by_name["quantize"]["needs"] == "ranges" and by_name["quantize"]["leaves"] == "qdq"
    assert {o["name"]: o["default"] for o in by_name["weights4"]["options"]} == {"block": 32, "bits": 4.0}
    assert {"gelu_erf", "sdpa"} <= {r["name"] for r in by_name["fuse_float"]["rules"]}


def test_pipelines_are_edited_recorded_and_replayed():
    pipeline = octavo.Pipeline("float", rules=[QuickGelu()])
    assert pipeline.passes[1] == "quick_gelu" and pipeline.foreign == {"quick_gelu": "1"}
    result = octavo.optimize(model(), rules=[QuickGelu()], pipeline=pipeline)
    assert octavo.Pipeline.of(result.model) == pipeline
    with pytest.raises(octavo.OctavoError, match="the pass 'quick_gelu', version '1', which is not octavo's own"):
        octavo.optimize(model(), pipeline=pipeline)
    pipeline.remove("quick_gelu")
    assert octavo.optimize(model(), pipeline=pipeline).model == octavo.optimize(model(), recipe="float").model
    pipeline.insert("flash", after="windows")
    assert octavo.Pipeline.from_json(pipeline.to_json()) == pipeline
    with pytest.raises(octavo.OctavoError, match="insert"):
        pipeline.insert("flash", after="nothing")
    pipeline.passes.append("no_such")
    with pytest.raises(octavo.OctavoError, match="there is no pass 'no_such'"):
        octavo.optimize(model(), pipeline=pipeline)


def test_options_of_passes_reach_the_file():
    weight = np.random.default_rng(1).standard_normal((64, 16)).astype(np.float32)
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, [2, s]) for n, s in (("x", 64), ("y", 16)))
    graph = helper.make_graph([helper.make_node("MatMul", ["x", "w"], ["y"])], "g", [x], [y], [onnx.numpy_helper.from_array(weight, "w")])
    data = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10).SerializeToString()
    scales = {}
    for block in (16, 32):
        pipeline = octavo.Pipeline("weights4")
        pipeline.options["weights4"] = {"block": block}
        made = octavo.Graph(octavo.optimize(data, pipeline=pipeline).model)
        scales[block] = made.value("w_scale").shape[0]
    assert scales == {16: 4, 32: 2}
    pipeline.options["weights4"] = {"block": 48}
    with pytest.raises(octavo.OctavoError, match="a block has 48 rows: use 16, 32 or 64"):
        octavo.optimize(data, pipeline=pipeline)
