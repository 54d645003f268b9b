"""Sessions that make logits of the last tokens alone: the bits are those that they had among all."""

import warnings

import numpy as np
import octavo
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from test_layer_steps import FORMS, HIDDEN, WORDS, Decoder


class Ends(Decoder):
    """A Llama whose last product is followed by other ops."""

    def __init__(self, end="", **form):
        self.end = end
        super().__init__(**form)

    def linear(self, x, y, k, n):
        if y != "logits" or not self.end:
            return super().linear(x, y, k, n)
        if self.end == "bias":
            return self.node("Add", [super().linear(x, "head", k, n), self.constant("bias", self.normal(n))], y)
        if self.end == "cap":
            turned = self.node("Tanh", [self.node("Div", [super().linear(x, "head", k, n), self.constant("cap", np.float32(30))], "small")], "turned")
            return self.node("Mul", [turned, "cap"], y)
        if self.end == "rows":
            rows = self.node("Gemm", [self.node("Reshape", [x, self.ints(-1, k)], "rows"), self.constant("head", self.normal(n, k))], "product", transB=1)
            sizes = self.node("Concat", [self.node("Shape", ["input_ids"], "sizes"), self.ints(n)], "whole", axis=0)
            return self.node("Reshape", [rows, sizes], y)
        if self.end == "16 bits":
            return self.node("Cast", [self.node("Cast", [super().linear(x, "head", k, n)], "half", to=TensorProto.FLOAT16)], y, to=TensorProto.FLOAT)
        if self.end == "mean":
            return self.node("Sub", [super().linear(x, "head", k, n), self.node("ReduceMean", ["head", self.ints(1)], "mean")], y)
        if self.end == "places":
            return self.node("Add", [super().linear(x, "head", k, n), self.constant("places", self.normal(1, 5, n))], y)
        raise AssertionError(self.end)


def pairs(end, recipe, form):
    """Runs of one model as they were, and with the option."""
    decoder = Ends(end, **FORMS[form])
    model = decoder.model()
    if recipe in ("int8", "fp8"):
        caches = {p.name: octavo._generate.empty_cache(p) for p in octavo.Session(model).inputs if p.name.startswith("past")}
        model = octavo.optimize(model, recipe, [decoder.feeds(0, 5) | caches]).model
    elif recipe != "none":
        model = octavo.optimize(model, recipe).model
    plain, kept = octavo.Session(model, threads=2), octavo.Session(model, threads=2, logits_to_keep=True)
    states, before = (plain.state(), kept.state()), 0
    for rows, keep in ((5, 1), (5, 0), (1, 1), (4, 2), (3, 9)):
        feeds = decoder.feeds(before, rows)
        want = plain.run(feeds, ["logits"], state=states[0])[0]
        found = kept.run(feeds | {"logits_to_keep": np.array(keep)}, ["logits"], state=states[1])[0]
        yield want[:, -keep:] if keep else want, found
        before += rows


@pytest.mark.parametrize("recipe", ["none", "float", "int8", "dynamic", "dynamic4", "weights4", "fp8"])
@pytest.mark.parametrize("end", ["", "bias", "cap", "rows", "16 bits"])
def test_bits_are_those_among_all(end, recipe):
    for want, found in pairs(end, recipe, "Llama"):
        assert want.shape == found.shape and want.tobytes() == found.tobytes()


@pytest.mark.parametrize("form", FORMS)
def test_every_form(form):
    for want, found in pairs("", "dynamic4", form):
        assert want.shape == found.shape and want.tobytes() == found.tobytes()


def test_several_at_once():
    decoder = Ends(**FORMS["Llama"])
    model = octavo.optimize(decoder.model(), "dynamic").model
    session = octavo.Session(model, threads=2, logits_to_keep=True)
    feeds = [decoder.feeds(0, rows) | {"logits_to_keep": np.array(keep)} for rows, keep in ((5, 1), (3, 2), (1, 1), (5, 0))]
    together = session.run_together(feeds, ["logits"], [session.state() for _ in feeds])
    for one, (logits,) in zip(feeds, together):
        assert logits.tobytes() == session.run(one, ["logits"], state=session.state())[0].tobytes()


@pytest.mark.parametrize("end", ["mean", "places"])
def test_logits_that_need_all_tokens(end):
    model = Ends(end, **FORMS["Llama"]).model()
    with pytest.raises(octavo.OctavoError, match="logits_to_keep: output 'logits' comes of no product of each token's state"):
        octavo.Session(model, logits_to_keep=True)
    prompt = [1, 2, 3, 4, 5]
    if end == "mean":  # and text is written all the same
        assert len(list(octavo.Generator(model, threads=1).tokens(prompt, 3))) == 3


def test_states_that_are_an_output_stay_whole():
    decoder = Ends(**FORMS["Llama"])
    decoder.outputs.append(helper.make_tensor_value_info("n", TensorProto.FLOAT, ["batch", "rows", HIDDEN]))
    session, feeds = octavo.Session(octavo.optimize(decoder.model(), "dynamic4").model, logits_to_keep=True), decoder.feeds(0, 5)
    logits, states = session.run(feeds | {"logits_to_keep": np.array(1)}, ["logits", "n"], state=session.state())
    assert logits.shape == (1, 1, WORDS) and states.shape == (1, 5, HIDDEN)


def test_a_model_that_has_the_input_stays():
    x, keep = (helper.make_tensor_value_info(n, t, s) for n, t, s in (("x", TensorProto.FLOAT, [1, "rows", 4]), ("num_logits_to_keep", TensorProto.INT64, [])))
    y = helper.make_tensor_value_info("logits", TensorProto.FLOAT, [1, "rows", 3])
    weights = numpy_helper.from_array(np.ones((4, 3), np.float32), "w")
    graph = helper.make_graph([helper.make_node("MatMul", ["x", "w"], ["logits"])], "g", [x, keep], [y], [weights])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()
    assert [p.name for p in octavo.Session(model, logits_to_keep=True).inputs] == ["x", "num_logits_to_keep"]


def test_a_generator_asks_for_the_last_token_alone(monkeypatch):
    asked = []
    feeds = octavo._generate._Sequence.feeds
    monkeypatch.setattr(octavo._generate._Sequence, "feeds", lambda self, ids, keep: asked.append(feeds(self, ids, keep)) or asked[-1])
    model = Ends(**FORMS["Llama"]).model()
    tokens = list(octavo.Generator(model, threads=1, chunk=4).tokens([3, 1, 4, 1, 5, 9], 3))
    assert len(tokens) == 3 and [int(one["logits_to_keep"]) for one in asked] == [1] * 4
    asked.clear()
    octavo.perplexity(model, [3, 1, 4, 1, 5, 9], chunk=3)
    assert [int(one["logits_to_keep"]) for one in asked] == [3, 2]


def merged(end="", other="", captured=True):
    """A decoder, and it as optimum merges two: an If on use_cache_branch, whose branches, which end so, have it all but weights that stand outside."""
    decoder = Ends(end, **FORMS["Llama"])
    outside, bodies = {}, []
    for place, ends in enumerate((end, other)):
        model = onnx.load_from_string(Ends(ends, **FORMS["Llama"]).model())
        graph = model.graph
        own = {output: f"{place}/{output}" for node in graph.node for output in node.output}
        for node in graph.node:
            node.input[:] = [own.get(name, name) for name in node.input]
            node.output[:] = [own[name] for name in node.output]
        names, inputs, outputs = [output.name for output in graph.output], list(graph.input), [helper.make_tensor_value_info("x", 1, None) for _ in graph.output]
        for output, whole in zip(graph.output, outputs):
            whole.CopyFrom(output)
            output.name = own[output.name]
        outside |= {tensor.name: tensor for tensor in graph.initializer if captured}
        bodies.append(helper.make_graph(graph.node, f"branch{place}", [], graph.output, [] if captured else graph.initializer))
    node = helper.make_node("If", ["use_cache_branch"], names, "optimum::if", then_branch=bodies[0], else_branch=bodies[1])
    flag = helper.make_tensor_value_info("use_cache_branch", TensorProto.BOOL, [1])
    graph = helper.make_graph([node], "merged", [*inputs, flag], outputs, outside.values())
    return decoder, helper.make_model(graph, opset_imports=model.opset_import, ir_version=11).SerializeToString()


@pytest.mark.parametrize("captured", [True, False])
@pytest.mark.parametrize("recipe", ["none", "float", "dynamic", "dynamic4", "weights4"])
@pytest.mark.parametrize("end", ["", "bias", "cap"])
def test_both_branches_of_a_merged_decoder(end, recipe, captured):
    decoder, model = merged(end, end, captured)
    if recipe != "none":
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # which says that an If keeps both branches
            model = octavo.optimize(model, recipe).model
    plain, kept = octavo.Session(model, threads=2), octavo.Session(model, threads=2, logits_to_keep=True)
    caches = {port.name: octavo._generate.empty_cache(port) for port in plain.inputs if port.name.startswith("past")}
    names = [port.name for port in plain.outputs]
    before = 0
    for rows, keep in ((5, 1), (4, 0), (1, 1), (4, 2), (3, 9)):
        feeds = decoder.feeds(before, rows) | caches | {"use_cache_branch": np.array([before > 0])}
        want = dict(zip(names, plain.run(feeds)))
        found = dict(zip(names, kept.run(feeds | {"logits_to_keep": np.array(keep)})))
        logits = want.pop("logits")
        logits = logits[:, -keep:] if keep else logits
        assert found["logits"].shape == logits.shape and found.pop("logits").tobytes() == logits.tobytes()
        assert all(want[name].tobytes() == found[name].tobytes() for name in want)
        caches = {name: want[name.replace("past", "present")] for name in caches}
        before += rows


def test_a_merged_decoder_writes_with_the_last_token_alone(monkeypatch):
    decoder, model = merged()
    alone = list(octavo.Generator(decoder.model(), threads=1).tokens([3, 1, 4, 1, 5], 6))
    asked = []
    feeds = octavo._generate._Sequence.feeds
    monkeypatch.setattr(octavo._generate._Sequence, "feeds", lambda self, ids, keep: asked.append(feeds(self, ids, keep)) or asked[-1])
    assert list(octavo.Generator(model, threads=1).tokens([3, 1, 4, 1, 5], 6)) == alone
    assert [int(one["logits_to_keep"].reshape(())) for one in asked] == [1] * 6


@pytest.mark.parametrize("ends", [("mean", ""), ("", "mean"), ("places", "places")])
def test_a_branch_that_needs_all_tokens(ends):
    _, model = merged(*ends)
    with pytest.raises(octavo.OctavoError, match="logits_to_keep: output 'logits' comes of no product of each token's state"):
        octavo.Session(model, logits_to_keep=True)


def test_a_value_of_that_name_is_no_input():
    decoder = Ends(**FORMS["Llama"])
    model = onnx.load_from_string(decoder.model())
    last = next(node for node in model.graph.node if node.output[0] == "logits")
    name, last.input[0] = last.input[0], "logits_to_keep"
    for node in model.graph.node:
        if node.output[0] == name:
            node.output[0] = "logits_to_keep"
    session = octavo.Session(model, logits_to_keep=True, threads=1)
    feeds = decoder.feeds(0, 5) | {"logits_to_keep": np.array(1)}
    assert session.run(feeds, ["logits"], state=session.state())[0].shape == (1, 1, WORDS)


def test_the_note_of_slow_products_is_told_once():
    """Where a Generator opens a model twice, since it refuses the option."""
    decoder = Ends("mean", **FORMS["Llama"])
    codes = decoder.node("Unsqueeze", [decoder.node("Cast", ["input_ids"], "bytes", to=TensorProto.UINT8), decoder.ints(2)], "codes")
    decoder.node("MatMulInteger", [codes, decoder.constant("three", np.ones((1, 3), np.uint8))], "loose")
    decoder.outputs.append(helper.make_tensor_value_info("loose", TensorProto.INT32, ["batch", "rows", 3]))
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        octavo.Generator(decoder.model(), threads=1)
    assert len([one for one in told if "run one by one" in str(one.message)]) == 1
