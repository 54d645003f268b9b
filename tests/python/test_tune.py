"""tune: the fastest plan that keeps a metric, asked as seldom as it takes; the plan can be given back."""

import json
import re
import subprocess
import sys

import numpy as np
import octavo
import pytest
from conftest import BERT
from octavo._commands import main
from octavo import _tune_layers as by_layer
from octavo._tune import mark_front, search


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


def times_of_a_quiet_machine(models, *_args, **_how):
    """For bench(): what is asked in which order shall not depend on what else runs here."""
    ms = {"float": 9.0, "fp8": 9.0, "dynamic4": 9.0, "dynamic": 5.0, "dynamic of 7 bits": 4.0, "int8": 2.0, "int8 of 7 bits": 1.5}
    return {"results": [{"model": name, "median_ms": ms.get(name, 1.8 if "7 bits" in name else 2.2)} for name in models]}


def test_plans_that_memory_has_no_room_for_are_the_same(monkeypatch):
    monkeypatch.setattr(sys.modules["octavo._tune"], "bench", times_of_a_quiet_machine)
    kept = octavo.tune(BERT, nearness, CALIBRATION, budget=0.2, seconds=0.05, threads=1)
    monkeypatch.setattr(sys.modules["octavo._tune"], "_IN_MEMORY", 0)
    timed = []

    def two_at_a_time(models, *args, **how):
        timed.append(sorted(models))
        return times_of_a_quiet_machine(models, *args, **how)

    monkeypatch.setattr(sys.modules["octavo._tune"], "bench", two_at_a_time)
    made_again = octavo.tune(BERT, nearness, CALIBRATION, budget=0.2, seconds=0.05, threads=1)
    assert len(timed) == len(made_again.plans) and max(map(len, timed)) == 2
    assert (made_again.name, made_again.model, made_again.plans) == (kept.name, kept.model, kept.plans)
    # One that was not made last is made again.
    everything = [octavo.tune(BERT, lambda _: 1.0, CALIBRATION, budget=0.2, seconds=0.05, threads=1, everything=True)]
    monkeypatch.setattr(sys.modules["octavo._tune"], "_IN_MEMORY", 1 << 30)
    everything.append(octavo.tune(BERT, lambda _: 1.0, CALIBRATION, budget=0.2, seconds=0.05, threads=1, everything=True))
    assert everything[0].name == everything[1].name and everything[0].model == everything[1].model


def test_where_int8_misses_layers_leave_it_until_the_metric_is_kept(monkeypatch):
    monkeypatch.setattr(sys.modules["octavo._tune"], "bench", times_of_a_quiet_machine)
    calls = []

    def metric(session):
        calls.append(1)
        return nearness(session)

    loss = 1 - nearness(octavo.Session(octavo.optimize(BERT, calibration=CALIBRATION).model))
    tuned = octavo.tune(BERT, metric, CALIBRATION, budget=loss * 0.7, seconds=0.05, threads=1)
    plans = {p["name"]: p for p in tuned.plans}
    assert not plans["int8"]["within"] and plans[tuned.name]["within"]
    between = [p for p in tuned.plans if re.match("int8( of 7 bits)?, ", p["name"])]
    assert between and len(calls) <= 1 + len(plans) + 4  # each once, the model as it is, and the best ones with their weights fitted
    assert all(p["recipe"] == "int8" and p["keep_float"] + p["dynamic"] and p["ms"] > 0 for p in between)
    # A row for each layer, that says what it alone loses and what became of it.
    kinds = [layer["kind"] for layer in tuned.layers]
    assert kinds.count("attention") == 2 and kinds.count("linear") >= 12 and all(layer["alone_loss"] > 0 for layer in tuned.layers)
    if plans[tuned.name] in between:
        chosen = plans[tuned.name]
        assert {layer["node"] for layer in tuned.layers if layer["type"] == "float"} == set(chosen["keep_float"])
        assert {layer["node"] for layer in tuned.layers if layer["type"] == "dynamic"} == set(chosen["dynamic"])


def test_a_plan_of_layers_is_edited_and_given_back(tmp_path):
    tries = octavo._octavo._Tries(BERT, CALIBRATION, 1)
    tries.optimize("int8", refine=True)
    layers = tries.layers()
    linear = next(node for node, kind, _ in layers if kind == "linear")
    core = next(node for node, kind, _ in layers if kind == "attention")
    made = tries.optimize("int8", refine=True, keep_float=[core], dynamic=[linear])
    plan = json.loads(octavo.Pipeline.of(made.model).to_json())
    assert plan["keep_float"] == [core] and linear in plan["dynamic"]
    # The same bytes as one call that knows of no other attempt.
    assert octavo.optimize(BERT, calibration=CALIBRATION, pipeline=plan, threads=1).model == made.model
    plan["keep_float"] = []
    (tmp_path / "plan.json").write_text(json.dumps(plan))
    edited = octavo.optimize(BERT, calibration=CALIBRATION, pipeline=tmp_path / "plan.json", threads=1)
    assert octavo.Pipeline.of(edited.model).keep_float == [] and edited.model != made.model


def test_attempts_learn_of_each_other_and_change_nothing():
    tries = octavo._octavo._Tries(BERT, CALIBRATION, 1)
    for recipe in ("int8", "fp8", "dynamic", "float", "int8"):
        alone = octavo.optimize(BERT, recipe, calibration=CALIBRATION, threads=1).model
        assert tries.optimize(recipe, refine=True).model == alone, recipe


def test_the_noise_of_a_layer_is_its_own():
    tries = octavo._octavo._Tries(BERT, CALIBRATION, 1)
    with pytest.raises(octavo.OctavoError, match="there is nothing to measure"):
        tries.noise_of(["a"], False)
    first = tries.optimize("int8", refine=True).model
    layers = tries.layers()
    noise = {node: tries.noise_of([node], False) for node, _, _ in layers}
    assert all(0 < n < 0.1 for n in noise.values()) and len(set(noise.values())) > len(noise) / 2
    everything = tries.noise_of([node for node, _, _ in layers], False)
    assert max(noise.values()) < everything < 4 * sum(noise.values())
    # Of one group, and with a scale a row for each of its Linears, which is another noise.
    group = [g for g in by_layer.groups_of(layers) if len(g.nodes) == 3][0]
    assert 0 < tries.noise_of(group.nodes, True) != tries.noise_of(group.nodes, False) > max(noise[n] for n in group.nodes) / 4
    assert tries.optimize("int8", refine=True).model == first


def test_layers_leave_int8_in_the_order_of_noise_for_time():
    a, b = by_layer.Group(["l.0.fc", "l.0.fc2"], "linear", 8.0, 2.0, 3.0, 1.0), by_layer.Group(["l.1.fc"], "linear", 1.0, 0.9, 3.0, 1.0)
    core, table = by_layer.Group(["l.0.core"], "attention", 4.0, None, 2.0, 1.0), by_layer.Group(["t"], "table", 0.0, None, 0.0, 0.0)
    steps = by_layer.steps_of([a, b, core, table])
    assert [(s.group.nodes[0], s.type) for s in steps] == [("l.0.fc", "dynamic"), ("l.0.core", "float"), ("l.0.fc", "float"), ("l.1.fc", "dynamic"),
                                                           ("l.1.fc", "float"), ("t", "float")]
    assert by_layer.names(steps[:2]) == {"keep_float": ["l.0.core"], "dynamic": ["l.0.fc", "l.0.fc2"]}
    assert by_layer.names(steps[:4]) == {"keep_float": ["l.0.fc", "l.0.fc2", "l.0.core"], "dynamic": ["l.1.fc"]}
    assert sum(s.less for s in steps) == 13 and by_layer.guess(steps, 0.5) == 2 and by_layer.guess(steps, 0) == 5


@pytest.mark.parametrize("least", range(1, 12))
@pytest.mark.parametrize("first", [1, 4, 30])
def test_the_fewest_steps_are_found(least, first):
    asked = []

    def within(count):
        asked.append(count)
        return count >= least

    found = by_layer.fewest(within, lambda count: float(count), 10, first, 0)
    assert found == (least if least <= 10 else None) and len(asked) == len(set(asked)) <= 6
    near = by_layer.fewest(within, lambda count: float(count), 10, first, 2.5)
    assert near is None if least > 10 else least <= near < least + 3


def test_layers_that_time_did_not_suffice_for_take_after_their_like():
    groups = [by_layer.Group([f"l.{i}.fc"], "linear") for i in range(5)] + [by_layer.Group(["pool"], "linear")]
    by_layer.measure(groups, lambda nodes, dynamic: 0.5 if dynamic else 1.0 + int(nodes[0][2]) if nodes[0] != "pool" else 9.0, 1e-9, lambda *_: None)
    assert [g.measured for g in groups] == [True, False, False, False, False, False] and {g.noise for g in groups} == {1.0}
    assert all(g.rows_noise == 0.5 for g in groups)
    assert [g.nodes[0] for g in by_layer.spread(groups)][:3] == ["l.0.fc", "pool", "l.4.fc"]


def test_a_loss_in_the_other_direction():
    tuned = octavo.tune(BERT, lambda s: 2 - nearness(s), CALIBRATION, budget=0.2, lower_is_better=True, seconds=0.05, threads=1)
    plan = next(p for p in tuned.plans if p["name"] == tuned.name)
    assert plan["metric"] >= tuned.baseline - 1e-4 and 0 <= plan["loss"] + 1e-4 <= 0.2


def test_float_is_left_where_nothing_keeps_the_metric():
    asked = iter([1.0, *[0.5] * 40])
    with pytest.warns(UserWarning, match="no plan loses at most 1 % of the metric, so the float one is chosen, which loses 50.00 %"):
        tuned = octavo.tune(BERT, lambda s: next(asked), CALIBRATION, budget=0.01, seconds=0.05, threads=1)
    assert tuned.name == "float" and len({p["name"] for p in tuned.plans}) > 5 and all(layer["type"] == "int8" for layer in tuned.layers)


def test_the_plan_is_given_back(tmp_path):
    tuned = octavo.tune(BERT, nearness, CALIBRATION, budget=0.2, seconds=0.05, threads=1)
    tuned.save_plan(tmp_path / "plan.json")
    again = octavo.optimize(BERT, calibration=CALIBRATION, pipeline=tmp_path / "plan.json", threads=1)
    assert octavo.Pipeline.of(again.model) == tuned.pipeline
    tuned.save(tmp_path / "out.onnx")
    assert (tmp_path / "out.onnx").read_bytes() == tuned.model


@pytest.mark.parametrize("budget", [0.2, 0.05, 0.02])
def test_what_is_chosen_is_what_its_plan_makes(budget):
    """Whatever is fitted on the way: one call of optimize with the plan and the data gives the same bytes."""
    tuned = octavo.tune(BERT, nearness, CALIBRATION, budget=budget, seconds=0.02, threads=1)
    assert octavo.optimize(BERT, calibration=CALIBRATION, pipeline=tuned.pipeline, threads=1).model == tuned.model, tuned.name


def test_weights_of_7_bits_are_a_plan_where_they_are_faster():
    """The plan says so, and is given back; fitted to the data they keep what they miss by little."""
    plans = {p["name"]: p for p in octavo.tune(BERT, nearness, CALIBRATION, budget=0.2, seconds=0.05, threads=1).plans}
    if re.search("vnni|amx", octavo.cpu()):  # eight bits are as fast
        assert not any("7 bits" in name for name in plans)
        return
    assert plans["int8 of 7 bits"]["recipe"] == "int8" and plans["dynamic of 7 bits"]["reduce_range"]
    seven = octavo.optimize(BERT, calibration=CALIBRATION, reduce_range=True).model
    loss = 1 - nearness(octavo.Session(seven))
    tuned = octavo.tune(BERT, nearness, CALIBRATION, budget=loss * 1.001, seconds=0.05, threads=1)
    chosen = next(p for p in tuned.plans if p["name"] == tuned.name)
    assert chosen["within"]
    plan = next(p for p in tuned.plans if p["name"] == "int8 of 7 bits")
    if plan["metric"] is not None:
        assert plan["within"] and plan["metric"] == pytest.approx(1 - loss, abs=1e-6)


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
    assert {"schema", "baseline", "chosen", "plans", "layers"} == set(json.loads(capsys.readouterr().out))


@pytest.mark.parametrize("metric, sentence", [
    ("echo 1", "--metric has no {model}"),
    ("true {model}", "ended with 0: it printed nothing"),
    ("echo never >&2; exit 3 # {model}", "ended with 3: never"),
    ("echo {model}x well", "the last word that the metric's command printed is 'well', which is no number"),
])
def test_command_says_what_is_wrong(folder, tmp_path, capsys, metric, sentence):
    assert main(["tune", str(BERT), "-o", str(tmp_path / "o.onnx"), "--calib", str(folder), "--metric", metric]) == 1
    said = capsys.readouterr().err
    assert sentence in said and said.count("\n") == 1 and not (tmp_path / "o.onnx").exists()


def test_help_of_the_program():
    done = subprocess.run([sys.executable, "-m", "octavo", "tune", "--help"], capture_output=True, text=True, check=False)
    assert done.returncode == 0 and "--budget" in done.stdout and "0.5%" in done.stdout


def test_names_in_the_drawing_cover_no_point_and_no_other_name():
    from octavo._tune import _drawn

    places = ((3.1, 0.833), (6.9, 0.8401), (3.9, 0.8428), (3.3, 0.839), (3.5, 0.8401), (3.8, 0.8402), (4.1, 0.8412), (11.2, 0.8431))
    plans = [{"name": f"int8, rows from {30 + n} dB", "ms": ms, "metric": metric, "within": True, "front": False} for n, (ms, metric) in enumerate(places)]
    svg = _drawn(plans, 0.8431, plans[0]["name"])
    names = [(float(x), float(y), 6.5 * len(name)) for x, y, name in re.findall(r'<text x="([\d.]+)" y="([\d.-]+)" fill="#222"[^>]*>([^<]*)', svg)]
    points = [tuple(map(float, point)) for point in re.findall(r'<circle cx="([\d.]+)" cy="([\d.]+)"', svg)]
    assert len(names) == len(points) == len(plans)
    for i, (x, y, width) in enumerate(names):
        assert 0 <= x and x + width <= 640 and 10 < y < 360
        assert not any(abs(y - b) < 12 and x < a + w and a < x + width for a, b, w in names[i + 1 :])
        assert not any(x < a < x + width and y - 12 < b < y + 3 for a, b in points)


@pytest.mark.parametrize("flags, sentence", [
    (["-o", "none/o.onnx"], "cannot write 'none/o.onnx' for -o: there is no folder "),
    (["-o", "o.onnx", "--plan", "./o.onnx"], "cannot write './o.onnx' for --plan: it is -o too; give each its own file"),
    (["-o", "o.onnx", "--json", "in.onnx"], "cannot write 'in.onnx' for --json: it is the model that is read too; give each its own file"),
    (["-o", "o.onnx", "--plot", "p", "--json", "p"], "cannot write 'p' for --json: it is --plot too; give each its own file"),
])
def test_command_looks_at_its_files_before_it_works(folder, tmp_path, capsys, monkeypatch, flags, sentence):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "in.onnx").write_bytes(BERT.read_bytes())
    words = ["tune", "in.onnx", "--calib", str(folder), "--metric", "touch worked; echo {model} 1"]
    assert main([*words, *flags]) == 1
    assert sentence in capsys.readouterr().err
    assert not (tmp_path / "worked").exists()
