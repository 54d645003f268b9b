"""tune: the fastest plan that keeps a metric, asked as seldom as it takes; the plan can be given back."""

import json
import subprocess
import sys

import numpy as np
import octavo
import pytest
from conftest import BERT
from octavo._commands import main
from octavo._tune import _MIXED, mark_front, search


def batches():
    """Calibration data, and what it does not have."""
    arrays = np.load(BERT.with_suffix(".npz"))
    sets = {}
    for key in arrays.files:
        number, kind, name = key.split("/", 2)
        if kind == "in":
            sets.setdefault(number, {})[name] = arrays[key]
    all_of = list(sets.values())
    return all_of[:-1], all_of[-1]


CALIBRATION, HELD_OUT = batches()
TRUTH = octavo.Session(BERT, fuse=False).run(HELD_OUT)[0]


def nearness(session):
    """1 for the model itself, less the farther the outputs are."""
    out = session.run(HELD_OUT)[0]
    return 1 - float(np.linalg.norm(out - TRUTH) / np.linalg.norm(TRUTH))


def test_the_fastest_within_the_budget_is_chosen():
    tuned = octavo.tune(BERT, nearness, CALIBRATION, budget=0.2, seconds=0.05, threads=1)
    plans = {p["name"]: p for p in tuned.plans}
    assert set(plans) >= {"int8", "fp8", "dynamic", "dynamic4", "float"} and abs(tuned.baseline - 1) < 1e-4
    asked = [p for p in tuned.plans if p["metric"] is not None]
    faster = [p for p in asked if p["ms"] < plans[tuned.name]["ms"]]
    assert plans[tuned.name]["within"] and not any(p["within"] for p in faster)
    assert nearness(octavo.Session(tuned.model)) == pytest.approx(plans[tuned.name]["metric"])
    assert plans["float"]["speedup"] == 1 and len(tuned.model) == plans[tuned.name]["bytes"]
    assert tuned.name in repr(tuned) and tuned.svg().startswith("<svg") and tuned.name in tuned.svg()


def test_where_int8_misses_mixed_plans_are_tried():
    calls = []

    def metric(session):
        calls.append(1)
        return nearness(session)

    loss = 1 - nearness(octavo.Session(octavo.optimize(BERT, calibration=CALIBRATION).model))
    tuned = octavo.tune(BERT, metric, CALIBRATION, budget=loss * 0.999, seconds=0.05, threads=1, everything=True)
    names = {p["name"] for p in tuned.plans}
    assert {name for name, _, _ in _MIXED} <= names
    plans = {p["name"]: p for p in tuned.plans}
    assert not plans["int8"]["within"] and plans["int8, attention float"]["loss"] < plans["int8"]["loss"]
    assert all(p["metric"] is not None for p in tuned.plans) and len(calls) in (len(names) + 1, len(names) + 2)
    cores = plans["int8, attention float"]["keep_float"]
    assert len(cores) == 2 and all("Softmax" in core for core in cores)


def test_a_loss_in_the_other_direction():
    tuned = octavo.tune(BERT, lambda s: 2 - nearness(s), CALIBRATION, budget=0.2, lower_is_better=True, seconds=0.05, threads=1)
    plan = next(p for p in tuned.plans if p["name"] == tuned.name)
    assert plan["metric"] >= tuned.baseline - 1e-4 and 0 <= plan["loss"] + 1e-4 <= 0.2


def test_float_is_left_where_nothing_keeps_the_metric():
    asked = iter([1.0, *[0.5] * 20])
    with pytest.warns(UserWarning, match="no plan loses at most 1 % of the metric, so the float one is chosen, which loses 50.00 %"):
        tuned = octavo.tune(BERT, lambda s: next(asked), CALIBRATION, budget=0.01, seconds=0.05, threads=1)
    assert tuned.name == "float" and len({p["name"] for p in tuned.plans}) > 5


def test_the_plan_is_given_back(tmp_path):
    tuned = octavo.tune(BERT, nearness, CALIBRATION, budget=0.2, seconds=0.05, threads=1)
    tuned.save_plan(tmp_path / "plan.json")
    again = octavo.optimize(BERT, calibration=CALIBRATION, pipeline=tmp_path / "plan.json", threads=1)
    assert octavo.Pipeline.of(again.model) == tuned.pipeline
    tuned.save(tmp_path / "out.onnx")
    assert (tmp_path / "out.onnx").read_bytes() == tuned.model


def test_front():
    plans = [{"name": n, "ms": ms, "metric": m} for n, ms, m in (("a", 1, 0.5), ("b", 2, 0.9), ("c", 3, 0.8), ("d", 4, 1.0), ("e", 2, 0.9), ("f", 0.5, None))]
    mark_front(plans, 1.0)
    assert [p["name"] for p in plans if p["front"]] == ["a", "b", "d", "e"]
    mark_front(plans, -1.0)
    assert [p["name"] for p in plans if p["front"]] == ["a"]


@pytest.mark.parametrize("wrong, sentence", [
    ({"budget": 5}, "budget is 5; it is the share of the metric that may be lost"),
    ({"metric": lambda s: "good"}, "is 'good', which is no number"),
    ({"metric": lambda s: float("nan")}, "is not a number"),
    ({"metric": lambda s: 0}, "of which no share can be kept"),
    ({"calibration": "ranges.calib"}, "ranges gathered earlier"),
    ({"calibration": None}, "calibration is None; tune\\(\\) needs batches"),
    ({"calibration": []}, "there is no data to calibrate with"),
])
def test_says_what_is_wrong(wrong, sentence):
    with pytest.raises(octavo.OctavoError, match=sentence):
        octavo.tune(BERT, wrong.pop("metric", nearness), wrong.pop("calibration", CALIBRATION), **wrong)


def test_a_metric_is_a_function_and_what_it_raises_is_raised():
    with pytest.raises(TypeError, match="metric takes a function of a Session, not str"):
        octavo.tune(BERT, "accuracy", CALIBRATION)
    with pytest.raises(KeyError):
        octavo.tune(BERT, lambda s: {}["no"], CALIBRATION)


def test_a_metric_may_be_any_function_of_bytes():
    tuned = search(BERT, lambda model: nearness(octavo.Session(model)), CALIBRATION, budget=0.2, seconds=0.05, threads=1)
    assert tuned.name


@pytest.fixture
def folder(tmp_path):
    for number, batch in enumerate(CALIBRATION):
        np.savez(tmp_path / f"{number}.npz", **batch)
    return tmp_path


def test_command(folder, tmp_path_factory, capsys):
    out = tmp_path_factory.mktemp("tune")
    np.savez(out / "held.npz", **HELD_OUT)
    np.save(out / "truth.npy", TRUTH)
    (out / "eval.py").write_text(
        "import sys, numpy as np, octavo\n"
        f"x, t = dict(np.load(r'{out}/held.npz')), np.load(r'{out}/truth.npy')\n"
        "y = octavo.Session(sys.argv[1]).run(x)[0]\n"
        "print('accuracy', 1 - float(np.linalg.norm(y - t) / np.linalg.norm(t)))\n")
    arguments = ["tune", str(BERT), "-o", str(out / "out.onnx"), "--calib", str(folder), "--budget", "20%", "--seconds", "0.05", "--threads", "1",
                 "--metric", f"{sys.executable} {out}/eval.py {{model}}", "--plan", str(out / "plan.json"), "--plot", str(out / "plot.svg")]
    assert main(arguments) == 0
    said = capsys.readouterr().out
    assert "chosen" in said and "times float" in said
    assert json.loads((out / "plan.json").read_text())["octavo_pipeline"] == 1 and (out / "plot.svg").read_text().startswith("<svg")
    assert octavo.Session(out / "out.onnx").run(HELD_OUT)[0].shape == TRUTH.shape
    assert main([*arguments, "--json", "-"]) == 0
    assert {"schema", "baseline", "chosen", "plans"} == set(json.loads(capsys.readouterr().out))


@pytest.mark.parametrize("metric, sentence", [
    ("echo 1", "--metric has no {model}"),
    ("true {model}", "ended with 0: it printed nothing"),
    ("echo never >&2; exit 3 # {model}", "ended with 3: never"),
    ("echo well {model}x", "which is no number"),
])
def test_command_says_what_is_wrong(folder, tmp_path, capsys, metric, sentence):
    assert main(["tune", str(BERT), "-o", str(tmp_path / "o.onnx"), "--calib", str(folder), "--metric", metric]) == 1
    said = capsys.readouterr().err
    assert sentence in said and said.count("\n") == 1 and not (tmp_path / "o.onnx").exists()


def test_help_of_the_program():
    done = subprocess.run([sys.executable, "-m", "octavo", "tune", "--help"], capture_output=True, text=True, check=False)
    assert done.returncode == 0 and "--budget" in done.stdout and "0.5%" in done.stdout
