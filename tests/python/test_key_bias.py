"""A bias on keys moves all scores of a row alike, which Softmax does not see: however large it is, int8 keeps its decibels."""

import numpy as np
import octavo
import pytest
from conftest import BERT
from test_tune import CALIBRATION, HELD_OUT

onnx = pytest.importorskip("onnx")
HEADS, SIZE = 2, 16


def decibels(model):
    truth = octavo.Session(model, fuse=False).run(HELD_OUT)[0]
    out = octavo.Session(octavo.optimize(model, calibration=CALIBRATION, fit=False).model).run(HELD_OUT)[0]
    shown = np.asarray(HELD_OUT["attention_mask"], bool)  # what padding holds nobody reads
    return 10 * np.log10(np.sum(truth[shown] ** 2) / np.sum((out[shown] - truth[shown]) ** 2))


@pytest.mark.parametrize("size", [100, -100, 1000])
@pytest.mark.parametrize("channels", ["one a head", "all of one head", "every second"])
def test_keeps_its_decibels(size, channels):
    model = onnx.load(str(BERT))
    at = {"one a head": [3 + SIZE * h for h in range(HEADS)], "all of one head": list(range(SIZE)), "every second": list(range(0, SIZE * HEADS, 2))}[channels]
    biases = [t for t in model.graph.initializer if t.name.endswith("self.key.bias")]
    assert len(biases) == 2
    for tensor in biases:
        bias = onnx.numpy_helper.to_array(tensor).copy()
        bias[at] += size
        tensor.CopyFrom(onnx.numpy_helper.from_array(bias, tensor.name))
    plain, moved = decibels(str(BERT)), decibels(model.SerializeToString())
    assert plain > 20 and moved > plain - 0.5, (plain, moved)
