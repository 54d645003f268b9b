"""Mixtures of experts as exporters write them (a Gather of matrices for each token), with routers of all kinds: quantized, they run as one step for each product,
read the chosen experts alone, and give what numpy gives of the float model."""

import collections

import numpy as np
import onnx
import pytest

import octavo

HIDDEN = 96


class Mixture:
    """transformers 5's batched_mm over x [batch, tokens, hidden], in a graph and in numpy."""

    def __init__(self, experts=6, chosen=2, inner=80, router="softmax", bias=False, shared=False, left=True, half=False, limit=None):
        self.experts, self.chosen, self.inner, self.router, self.bias, self.shared, self.left = experts, chosen, inner, router, bias, shared, left
        self.half, self.limit, rng = half, limit, np.random.default_rng(experts * 100 + chosen)
        normal = lambda *s: rng.standard_normal(s).astype(np.float32)  # noqa: E731
        self.gate, self.correction = normal(HIDDEN, experts), normal(experts) / 4
        self.up, self.down = normal(experts, 2 * inner, HIDDEN) / HIDDEN**0.5, normal(experts, HIDDEN, inner) / inner**0.5
        self.up_bias, self.down_bias = normal(experts, 2 * inner), normal(experts, HIDDEN)
        self.own, self.own_gate = normal(HIDDEN, HIDDEN) / HIDDEN**0.5, normal(HIDDEN, 1)
        if half:
            self.up, self.down = (w.astype(np.float16).astype(np.float32) for w in (self.up, self.down))

    def routed(self, flat):
        """Experts of each token (lower indices first where scores are equal) and their shares."""
        scores, soft = flat @ self.gate, lambda s: np.exp(s - s.max(-1, keepdims=True)) / np.exp(s - s.max(-1, keepdims=True)).sum(-1, keepdims=True)
        if self.router == "sigmoid":  # DeepSeek V3: chosen by corrected scores, shared by those without
            shares = 1 / (1 + np.exp(-scores))
            index = np.argsort(-(shares + self.correction), axis=-1, kind="stable")[:, : self.chosen]
            best = np.take_along_axis(shares, index, 1)
            return index, best / best.sum(-1, keepdims=True)
        shares = scores if self.router == "behind" else soft(scores)
        index = np.argsort(-shares, axis=-1, kind="stable")[:, : self.chosen]
        best = np.take_along_axis(shares, index, 1)
        return index, soft(best) if self.router == "behind" else best

    def __call__(self, x):
        flat = x.reshape(-1, HIDDEN)
        index, shares = self.routed(flat)
        h = np.einsum("tknh,th->tkn", self.up[index], flat) + (self.up_bias[index] if self.bias else 0)
        g, u = np.split(h, 2, -1)
        if self.limit:
            g, u = np.minimum(g, self.limit), np.clip(u, -self.limit, self.limit)
        y = np.einsum("tkhn,tkn->tkh", self.down[index], g / (1 + np.exp(-g)) * u) + (self.down_bias[index] if self.bias else 0)
        y = (y * shares[..., None]).sum(1)
        if self.shared:
            y = y + flat @ self.own / (1 + np.exp(-flat @ self.own_gate))
        return y.reshape(x.shape)

    def model(self):
        node, value, nodes, constants = onnx.helper.make_node, onnx.numpy_helper.from_array, [], []

        def c(name, array):
            constants.append(value(np.asarray(array), name))
            return name

        def n(op, inputs, output, **attributes):
            nodes.append(node(op, inputs, [output] if isinstance(output, str) else output, name=f"/moe/{output}", **attributes))
            return output

        ints = lambda name, *v: c(name, np.array(v, np.int64))  # noqa: E731
        last = ints("last", -1)
        flat = n("Reshape", ["x", ints("flat", -1, HIDDEN)], "tokens")
        scores, k = n("MatMul", [flat, c("gate.weight", self.gate)], "scores"), ints("k", self.chosen)
        if self.router == "sigmoid":
            n("TopK", [n("Add", [n("Sigmoid", [scores], "shares"), c("gate.correction", self.correction)], "corrected"), k], ["_", "index"], axis=-1)
            best = n("GatherElements", ["shares", "index"], "best", axis=1)
            best = n("Div", [best, n("ReduceSum", [best, last], "sum", keepdims=1)], "weights")
        elif self.router == "behind":
            n("TopK", [scores, k], ["best", "index"], axis=-1)
            best = n("Softmax", ["best"], "weights", axis=-1)
        else:
            n("TopK", [n("Softmax", [scores], "shares", axis=-1), k], ["best", "index"], axis=-1)
            best = "best"
        places = n("Reshape", ["index", last], "places")
        rows = n("Expand", [n("Unsqueeze", [flat, ints("one", 1)], "each"), ints("times", 1, self.chosen, 1)], "rows")

        def product(x, name, w, bias):
            w = w if self.left else w.transpose(0, 2, 1)
            taken = n("Gather", [c(f"experts.{name}", w.astype(np.float16 if self.half else np.float32)), places], f"{name}.taken", axis=0)
            if self.half:
                taken = n("Cast", [taken], f"{name}.wide", to=1)
            axis = ints(f"{name}.axis", 2 if self.left else 1)
            x = n("Unsqueeze", [x, axis], f"{name}.x")
            y = n("Squeeze", [n("MatMul", [taken, x] if self.left else [x, taken], f"{name}.product"), axis], f"{name}.y")
            return n("Add", [y, n("Gather", [c(f"experts.{name}_bias", bias), places], f"{name}.b", axis=0)], f"{name}.biased") if self.bias else y

        n("Split", [product(n("Reshape", [rows, "flat"], "columns"), "gate_up_proj", self.up, self.up_bias)], ["g", "u"], axis=1, num_outputs=2)
        g, u = "g", "u"
        if self.limit:
            top, low = c("top", np.float32(self.limit)), c("low", np.float32(-self.limit))
            g, u = n("Min", [g, top], "g.limited"), n("Clip", [u, low, top], "u.limited")
        h = n("Mul", [n("Mul", [g, n("Sigmoid", [g], "sigmoid")], "silu"), u], "hidden")
        y = n("Reshape", [product(h, "down_proj", self.down, self.down_bias), ints("placed", -1, self.chosen, HIDDEN)], "by_token")
        y = n("ReduceSum", [n("Mul", [y, n("Unsqueeze", [best, last], "w")], "weighed"), "one"], "all", keepdims=0)
        if self.shared:
            own = n("MatMul", [flat, c("shared.weight", self.own)], "shared")
            y = n("Add", [y, n("Mul", [own, n("Sigmoid", [n("MatMul", [flat, c("shared_gate.weight", self.own_gate)], "sg")], "sgs")], "so")], "both")
        n("Reshape", [y, n("Shape", ["x"], "shape")], "y", allowzero=1)
        info = onnx.helper.make_tensor_value_info
        graph = onnx.helper.make_graph(nodes, "g", [info("x", 1, ["batch", "tokens", HIDDEN])], [info("y", 1, ["batch", "tokens", HIDDEN])], constants)
        return onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 18)], ir_version=9)


RELATIVES = {
    "two of six": dict(), "odd number": dict(experts=7), "top 1": dict(chosen=1), "all": dict(experts=5, chosen=5), "two experts": dict(experts=2, chosen=1),
    "no multiple of 32": dict(inner=37), "softmax behind": dict(router="behind"), "sigmoid": dict(router="sigmoid", experts=9, chosen=3),
    "bias and limit": dict(bias=True, limit=0.5, left=False), "bias": dict(bias=True), "shared": dict(shared=True), "on the right": dict(left=False),
    "float16": dict(half=True), "float16 on the right": dict(half=True, left=False, router="behind"),
}
# Relative to the deviation of the results: what two products in a row lose by steps of 1/15 and 1/127 of a block's range.
NEAR = {"float": 1e-5, "dynamic4": 0.25, "weights4": 0.25, "dynamic": 0.04, "weights8": 0.03}
STEPS = {"float": "experts_f32", "dynamic4": "experts_linear_int8", "weights4": "experts_blocked4", "dynamic": "experts_linear_int8",
         "weights8": "experts_blocked8"}


@pytest.mark.parametrize("recipe", NEAR)
@pytest.mark.parametrize("which", RELATIVES)
def test_each_product_is_a_step(which, recipe):
    mixture = Mixture(**RELATIVES[which])
    result = octavo.optimize(mixture.model(), recipe)
    session = octavo.Session(result.model, threads=2)
    steps = collections.Counter(k.split()[0] for k in session.kernels)
    assert steps[STEPS[recipe]] == 2, steps
    for shape in ((1, 1), (2, 3), (1, 40), (3, 0)):
        x = np.random.default_rng(sum(shape)).standard_normal((*shape, HIDDEN)).astype(np.float32)
        want, got = mixture(x), session.run({"x": x})[0]
        assert got.shape == want.shape
        if want.size:
            assert np.sqrt(np.square(got - want).mean()) < NEAR[recipe] * want.std()
            assert np.array_equal(got, octavo.Session(result.model, threads=1).run({"x": x})[0])


@pytest.mark.parametrize("recipe", ["int8", "fp8"])
def test_static_recipes_give_rows_of_experts_scales_of_their_own(recipe):
    mixture = Mixture()
    batches = [{"x": np.random.default_rng(seed).standard_normal((2, 9, HIDDEN)).astype(np.float32)} for seed in range(3)]
    session = octavo.Session(octavo.optimize(mixture.model(), recipe, calibration=batches[1:]).model)
    assert collections.Counter(k.split()[0] for k in session.kernels)["experts_linear_int8"] == 2, session.kernels
    want, got = mixture(batches[0]["x"]), session.run(batches[0])[0]
    assert np.sqrt(np.square(got - want).mean()) < NEAR["dynamic"] * want.std()


def test_equal_scores_go_to_the_first():
    mixture = Mixture(experts=5)
    mixture.gate[:] = 0
    x = np.random.default_rng(0).standard_normal((1, 9, HIDDEN)).astype(np.float32)
    got = octavo.Session(octavo.optimize(mixture.model(), "float").model).run({"x": x})[0]
    assert np.abs(got - mixture(x)).max() < 1e-4


def test_a_file_means_the_same_elsewhere(tmp_path):
    onnxruntime = pytest.importorskip("onnxruntime", minversion="1.24", reason="no ONNX Runtime here: ./dev venv onnxruntime installs it")
    mixture = Mixture()
    x = np.random.default_rng(0).standard_normal((1, 7, HIDDEN)).astype(np.float32)
    options = onnxruntime.SessionOptions()  # which would make weights4 a product of codes
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    for recipe in ("weights4", "dynamic4"):  # its MatMulInteger, which dynamic has, saturates on CPUs without VNNI
        result = octavo.optimize(mixture.model(), recipe)
        theirs = onnxruntime.InferenceSession(result.model, options, providers=["CPUExecutionProvider"]).run(None, {"x": x})[0]
        assert np.abs(theirs - octavo.Session(result.model).run({"x": x})[0]).max() < 2e-3 * theirs.std(), recipe  # a code of a row may differ by one
