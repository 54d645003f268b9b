"""The same samples in batches of any sizes: the same samples are held out, and one calibration file and one model come of them."""

import warnings

import numpy as np
import octavo
import pytest
from conftest import BERT, SOURCE

MODELS = SOURCE / "tests" / "data" / "models"
NAMES = [BERT, SOURCE / "tests" / "data" / "float" / "gemma3.dyn18.onnx", MODELS / "mpnet.dyn18.eager.onnx", MODELS / "llama_gqa.dyn23.sdpa.onnx"]
COUNT = 32
CUTS = {"one by one": [1] * COUNT, "by fours": [4] * 8, "whole": [COUNT], "ragged": [5, 27]}


def samples_of(model, seed=0):
    """COUNT rows of every input; masks hide the ends of some."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(4, 12, COUNT)
    rows = {}
    for port in octavo.Session(model, threads=1, fuse=False).inputs:
        if port.name == "attention_mask":
            rows[port.name] = (np.arange(11) < lengths[:, None]).astype(np.int64)
        else:
            rows[port.name] = rng.integers(0, 50 if port.name == "input_ids" else 2, (COUNT, 11)).astype(np.int64)
    return rows


def cut(rows, sizes):
    ends = np.cumsum(sizes)
    return [{name: array[end - size : end] for name, array in rows.items()} for size, end in zip(sizes, ends)]


def quietly(call, *args, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return call(*args, **options)


@pytest.mark.parametrize("model", NAMES, ids=lambda path: path.name)
def test_batches_of_any_size_give_one_file_and_one_model(model):
    rows = samples_of(model)
    files, models, losses = set(), set(), set()
    for threads, sizes in enumerate(CUTS.values(), 1):
        batches = cut(rows, sizes)
        files.add(octavo.calibrate(model, batches, threads=threads % 2 + 1, moments=True))
        made = quietly(octavo.optimize, model, calibration=batches, threads=threads % 2 + 1)
        models.add(made.model)
        losses.add(str((made.report["losses"], made.report["losses_of"])))
    assert made.report["losses_of"]["samples"] == COUNT // 8 and made.report["losses_of"]["held_out"]
    assert (len(files), len(models), len(losses)) == (1, 1, 1)
    other = {name: array[::-1] for name, array in rows.items()}
    assert quietly(octavo.optimize, model, calibration=[other]).model not in models, "other samples held out give the same model: this shows nothing"


@pytest.mark.parametrize("options", [{"recipe": "fp8"}, {"recipe": "dynamic4"}, {"min_db": 38}, {"held_out": 5}, {"held_out": 0}], ids=str)
def test_whatever_is_decided_on_them(options):
    rows = samples_of(BERT)
    made = [quietly(octavo.optimize, BERT, calibration=cut(rows, sizes), **options) for sizes in CUTS.values()]
    assert len({one.model for one in made}) == 1
    assert len({str(one.report["losses"]) for one in made}) == 1


def test_the_program_does_so(run, tmp_path):
    rows = samples_of(BERT)
    for name, sizes in CUTS.items():
        (tmp_path / name).mkdir()
        for number, batch in enumerate(cut(rows, sizes)):
            np.savez(tmp_path / name / f"{number:02}.npz", **batch)
        done = run("optimize", BERT, "-o", f"{name}.onnx", "--calib", name, "--threads", 1 + len(sizes) % 2)
        assert done.returncode == 0, done.stderr
        assert "on 4 samples held out of calibration" in done.stdout
    assert len({(tmp_path / f"{name}.onnx").read_bytes() for name in CUTS}) == 1


def test_texts_padded_to_other_lengths_give_the_same():
    """Where a model gives the real tokens of a row the same numbers whatever padding stands behind them."""
    rows = samples_of(BERT)
    order = np.argsort(rows["attention_mask"].sum(1), kind="stable")
    rows = {name: array[order] for name, array in rows.items()}
    made = set()
    for sizes in CUTS.values():
        batches = []
        for batch in cut(rows, sizes):
            longest = batch["attention_mask"].sum(1).max()
            batches.append({name: array[:, :longest] for name, array in batch.items()})
        made.add(quietly(octavo.optimize, BERT, calibration=batches).model)
    assert len(made) == 1


def test_rows_that_see_each_other_stay_together():
    """One sequence of tokens without a batch: what looks like rows are its positions."""
    from onnx import TensorProto, helper, numpy_helper

    rng = np.random.default_rng(3)
    weights = [numpy_helper.from_array(rng.standard_normal((16, 16)).astype(np.float32), f"w{i}") for i in range(2)]
    nodes = [helper.make_node("MatMul", ["x", "w0"], ["h"]), helper.make_node("CumSum", ["h", "zero"], ["c"]), helper.make_node("MatMul", ["c", "w1"], ["y"])]
    io = [[helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", 16])] for name in "xy"]
    graph = helper.make_graph(nodes, "sequence", *io, [*weights, numpy_helper.from_array(np.int64(0), "zero")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()
    batches = [{"x": rng.standard_normal((5, 16)).astype(np.float32)} for _ in range(16)]
    assert quietly(octavo.optimize, model, calibration=batches).report["losses_of"]["samples"] == 2
