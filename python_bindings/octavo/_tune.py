"""The fastest plan that keeps a metric of the user's own: which recipe, or which layers leave int8 for a scale a row or for floats."""

import json
import math
import os
import pathlib
import tempfile
import time
import warnings

from . import _tune_layers as by_layer
from ._measure import bench, trace
from ._octavo import OctavoError, Session, _read_npz, _Tries, _write, cpu

# What is tried first. Weights of 4 bits for one token at a time, fp8 for CPUs that multiply it.
_RECIPES = ("dynamic4", "int8", "fp8", "dynamic", "float")
# Weights of 7 bits, where 8 take an instruction more (kernels without VNNI): 1.2 times as fast.
_SEVEN_BITS = {f"{recipe} of 7 bits": {"recipe": recipe, "reduce_range": True} for recipe in ("int8", "dynamic")}
# Weights that are fitted to data may keep what they miss by no more than this (their error halves: docs/lab/quantization.md).
_NEAR = 3
# Bytes of plans in memory. Others lie in files and are made once more if they are chosen: seven of a model of 1 GB took 20 GB.
_IN_MEMORY = 512 << 20
# What a plan asks optimize() for besides its recipe.
_ASKED = ("keep_float", "dynamic", "reduce_range")


def _first_plans():
    """{name: recipe and what else is asked}"""
    plans = {recipe: {"recipe": recipe} for recipe in _RECIPES}
    kernels = cpu().rsplit(", ", 1)[-1]
    return plans if "vnni" in kernels or "amx" in kernels else {**plans, **_SEVEN_BITS}


class Tuned:
    """What tune() gives; __init__.pyi says what each is."""

    def __init__(self, result, plans, chosen, baseline, layers):
        self.result, self.plans, self.baseline = result, plans, baseline
        self.name, self.layers = chosen, layers
        self.pipeline = _pipeline_of(result)

    @property
    def model(self):
        return self.result.model

    def save(self, path):
        self.result.save(path)

    def save_plan(self, path):
        text = json.dumps(json.loads(self.pipeline.to_json()), indent=1)
        _write(path, text + "\n")

    def svg(self):
        return _drawn(self.plans, self.baseline, self.name)

    def _repr_html_(self):
        return self.svg()

    def __repr__(self):
        plan = next(p for p in self.plans if p["name"] == self.name)
        return f"<octavo.Tuned {self.name}: metric {plan['metric']:.6g} of {self.baseline:.6g}, {plan['speedup']:.2f} times octavo's float>"


def _pipeline_of(result):
    from ._pipeline import Pipeline

    return Pipeline.of(result.model)


def _first_of(calibration):
    """A batch to time with, where the data is at hand; None: random inputs."""
    if isinstance(calibration, list):
        return calibration[0] if calibration else None
    path = pathlib.Path(os.fspath(calibration))
    files = sorted(path.glob("*.npz")) if path.is_dir() else [path] if path.suffix == ".npz" and path.is_file() else []
    if not files:
        return None
    try:
        arrays = _read_npz(files[0])
    except OctavoError:  # told with its place when calibration reads it
        return None
    return None if any("/" in name for name in arrays) else arrays


class _Search:
    def __init__(self, model, measure, calibration, budget, lower_is_better, threads, seconds, inputs, everything, progress, folder):
        self.model, self.measure, self.folder = model, measure, folder
        self.tries = _Tries(model, calibration, threads)
        self.budget, self.sign = budget, -1.0 if lower_is_better else 1.0
        self.threads, self.seconds, self.inputs = threads, seconds, inputs
        self.everything, self.progress = everything, progress
        self.plans, self.layers = [], []
        self.files, self.results, self.refined = {}, {}, set()  # by name: paths; results of the last ones; whose weights are fitted
        self.baseline, self.plain = None, 0.0
        self.fresh = {"dynamic", "dynamic4", *_SEVEN_BITS}  # whose weights are not fitted yet

    def tell(self, stage, done, total):
        if self.progress is not None:
            self.progress(stage, done, total)

    def ask(self, model, name):
        """The metric of a model, as a number that can be compared."""
        value = self.measure(model)
        try:
            value = float(value)
        except (TypeError, ValueError):
            raise OctavoError(f"the metric of {name} is {value!r}, which is no number; give a function that returns one") from None
        if math.isnan(value):
            raise OctavoError(f"the metric of {name} is not a number (NaN); look at what it divides by")
        if self.sign * value == math.inf:
            raise OctavoError(f"the metric of {name} is {value}, better than any number; look at what it divides by")
        return value

    @staticmethod
    def asked(plan):
        return {key: plan[key] for key in _ASKED if key in plan}

    def make(self, name, recipe, refine=False, **how):
        self.plans.append({"name": name, "recipe": recipe, **how, "bytes": 0, "metric": None, "loss": None, "within": None})
        self.remake(self.plans[-1], refine)
        return self.plans[-1]

    def remake(self, plan, refine):
        name = plan["name"]
        result = self.tries.optimize(plan["recipe"], refine=refine, **self.asked(plan))
        path = self.files.setdefault(name, os.path.join(self.folder, f"plan{len(self.files)}.onnx"))
        result.save(path)
        plan["bytes"] = os.path.getsize(path)
        self.results.pop(name, None)
        self.results[name] = result
        while len(self.results) > 1 and sum(os.path.getsize(self.files[n]) for n in self.results) > _IN_MEMORY:
            del self.results[next(iter(self.results))]
        if refine:
            self.refined.add(name)
        return path

    def result_of(self, plan):
        if plan["name"] not in self.results:
            self.tell("chosen", 0, 1)
            self.remake(plan, plan["name"] in self.refined)
        return self.results[plan["name"]]

    def time(self, plans, seconds):
        """Median milliseconds of plans, in turns with octavo's float, which ties these times to those of other turns."""
        at_once = len(plans) if sum(p["bytes"] for p in plans) <= _IN_MEMORY else 1  # a session has a model's weights once more
        for begin in range(0, len(plans), at_once):
            some = plans[begin : begin + at_once]
            self.tell("time", begin, len(plans))
            fresh = {name: self.files[name] for name in ("float", *(p["name"] for p in some))}
            ms = {m["model"]: m["median_ms"] for m in bench(fresh, self.inputs, threads=self.threads, seconds=seconds)["results"]}
            base = next(p for p in self.plans if p["name"] == "float").setdefault("ms", ms["float"])
            for plan in some:
                plan["speedup"] = ms["float"] / ms[plan["name"]]
                plan["ms"] = base / plan["speedup"]

    def judge(self, plan):
        if plan["metric"] is None:
            plan["metric"] = self.ask(self.files[plan["name"]], plan["name"])
            plan["loss"] = self.sign * (self.baseline - plan["metric"]) / abs(self.baseline)
            plan["within"] = plan["loss"] <= self.budget
        return plan["within"]

    def fastest(self):
        """The fastest plan within the budget, asking from fast to slow; None: there is none."""
        chosen = None
        order = sorted(self.plans, key=lambda p: p["ms"])
        for number, plan in enumerate(order):
            if chosen is not None and not self.everything:
                break
            self.tell("metric", number, len(order))
            kept = self.judge(plan)
            if not kept and plan["name"] in self.fresh and plan["loss"] < _NEAR * self.budget:
                kept = self.refine(plan)
            if kept and chosen is None:
                chosen = plan
        return chosen

    def look_at_layers(self):
        """What each layer adds to the noise and saves of the time, in half as long as one optimization takes."""
        groups = by_layer.groups_of(self.tries.layers())
        if groups:
            by_layer.measure(groups, self.tries.noise_of, 0.5 * self.plain, self.tell)
            traces = [trace(self.files[name], self.inputs, threads=self.threads)["traceEvents"] for name in ("float", "int8")]
            by_layer.take_times(groups, *traces)
        return groups

    def between(self, int8, chosen, groups):
        """Plans between one in int8, which misses, and what was chosen: layers leave int8 until the metric is kept, as few as it takes."""
        steps = by_layer.steps_of(groups)
        # More steps take longer than what is there already.
        ms, limit, made = [int8["ms"]], math.inf if chosen is None else chosen["ms"], {}
        for step in steps:
            if ms[-1] + step.ms >= limit:
                break
            ms.append(ms[-1] + step.ms)
        most = len(ms) - 1

        def within(count):
            how = by_layer.names(steps[:count])
            name = f"{int8['name']}, {len(how['dynamic'])} dynamic, {len(how['keep_float'])} float"
            how.update(self.asked(int8))
            if name in self.files:
                name += f" ({count})"
            self.tell("mixed", len(made), -1)
            made[count] = self.make(name, "int8", **how)
            return self.judge(made[count])

        best = None
        if most > 0:
            first = by_layer.guess(steps, self.budget / int8["loss"])
            found = by_layer.fewest(within, ms.__getitem__, most, first, 0.03 * int8["ms"])
            enough = [made[count] for count in sorted(made) if found is not None and count >= found and made[count]["within"]]
            best = next((plan for plan in enough if self.refine(plan)), None)
            self.time(list(made.values()), 0.4 * self.seconds)
        if best is not None or not self.layers:
            self.layers = by_layer.described(groups, best or {"keep_float": [], "dynamic": []})
        kept = [p for p in (best, chosen) if p is not None and p["within"]]
        return min(kept, key=lambda p: p["ms"], default=None)

    def refine(self, plan):
        """Plans are compared without fitting weights to data; those that shall be used are made as one call of optimize makes them. Whether the metric is kept."""
        self.fresh.discard(plan["name"])
        metric = self.ask(self.remake(plan, refine=True), plan["name"])
        loss = self.sign * (self.baseline - metric) / abs(self.baseline)
        plan.update(metric=metric, loss=loss, within=loss <= self.budget)
        return plan["within"]

    def run(self):
        self.baseline = self.ask(self.model, "the model as it is")
        if self.baseline == 0 or math.isinf(self.baseline):
            raise OctavoError(f"the metric of the model as it is is {self.baseline}, of which no share can be kept; give another metric")
        plans = _first_plans()
        for number, (name, how) in enumerate(plans.items()):
            self.tell("recipes", number, len(plans))
            began = time.monotonic()
            self.make(name, refine=name == "int8", **how)
            if name == "int8":
                self.plain = time.monotonic() - began
        self.time(self.plans, self.seconds)
        chosen = self.fastest()
        missing = [p for p in self.plans if p["recipe"] == "int8" and p["within"] is False]
        groups = self.look_at_layers() if missing else []
        for int8 in sorted(missing, key=lambda p: p["ms"]):
            chosen = self.between(int8, chosen, groups)
        while chosen is not None and chosen["name"] in self.fresh:
            if not self.refine(chosen):
                chosen = self.fastest()
        if chosen is None:
            chosen = next(p for p in self.plans if p["name"] == "float")
            self.judge(chosen)
        return chosen


def search(model, measure, calibration, *, budget=0.01, lower_is_better=False, threads=0, seconds=1.0, inputs=None, everything=False, progress=None):
    """tune() with a metric that takes a model's path or bytes."""
    if isinstance(budget, bool) or not isinstance(budget, (int, float)) or not 0 <= budget < 1:
        raise OctavoError(f"budget is {budget!r}; it is the share of the metric that may be lost, as 0.005 for half a percent")
    if not (isinstance(calibration, (str, bytes)) or hasattr(calibration, "__fspath__")):
        if calibration is None or not hasattr(calibration, "__iter__"):
            raise OctavoError(f"calibration is {calibration!r}; tune() needs batches, or a path as octavo optimize --calib takes it")
        calibration = list(calibration)
    if isinstance(calibration, bytes) or (not isinstance(calibration, list) and os.fspath(calibration).endswith(".calib")):
        raise OctavoError("tune() runs the calibration data itself; ranges gathered earlier (.calib) are not enough")
    with tempfile.TemporaryDirectory(prefix="octavo-") as folder:
        it = _Search(model, measure, calibration, budget, lower_is_better, threads, seconds, _first_of(calibration) if inputs is None else inputs,
                     everything, progress, folder)
        chosen = it.run()
        result = it.result_of(chosen)
    mark_front(it.plans, it.sign)
    if not chosen["within"]:
        warnings.warn(f"no plan loses at most {100 * budget:g} % of the metric, so the float one is chosen, which loses {100 * chosen['loss']:.2f} %; "
                      "look at what else the metric depends on, or allow more", stacklevel=3)
    return Tuned(result, it.plans, chosen["name"], it.baseline, it.layers)


def mark_front(plans, sign):
    """front: no other plan whose metric is known is both faster and better."""
    known = [p for p in plans if p["metric"] is not None]
    for plan in plans:
        plan["front"] = plan["metric"] is not None and not any(
            (o["ms"] <= plan["ms"] and sign * o["metric"] > sign * plan["metric"]) or (o["ms"] < plan["ms"] and sign * o["metric"] >= sign * plan["metric"])
            for o in known)


def tune(model, metric, calibration, *, budget=0.01, lower_is_better=False, threads=0, seconds=1.0, inputs=None, everything=False, progress=None):
    """The fastest plan that keeps a metric of yours; __init__.pyi says what each argument is."""
    if not callable(metric):
        raise TypeError(f"tune(): metric takes a function of a Session, not {type(metric).__name__}")
    return search(model, lambda m: metric(Session(m, threads=threads)), calibration, budget=budget, lower_is_better=lower_is_better, threads=threads,
                  seconds=seconds, inputs=inputs, everything=everything, progress=progress)


def table(tuned):
    """For a person."""
    rows = [("plan", "metric", "loss", "ms", "times float", "MB", "")]
    for p in sorted(tuned.plans, key=lambda p: p["ms"]):
        known = p["metric"] is not None
        mark = "chosen" if p["name"] == tuned.name else "" if not known else "misses" if not p["within"] else "front" if p["front"] else ""
        rows.append((p["name"], f"{p['metric']:.6g}" if known else "not asked", f"{100 * p['loss']:.2f} %" if known else "", f"{p['ms']:.2f}",
                     f"{p['speedup']:.2f}", f"{p['bytes'] / 1e6:.1f}", mark))
    widths = [max(len(row[i]) for row in rows) for i in range(7)]
    lines = ["  ".join(c.ljust(w) if i in (0, 6) else c.rjust(w) for i, (c, w) in enumerate(zip(row, widths))).rstrip() for row in rows]
    return "\n".join([*lines, f"metric of the model as it is: {tuned.baseline:.6g}"])


# Where the name of a point may stand, from its line on: beside it, then below, where the front leaves room, then above.
_LABEL_PLACES = [-6, *(-6 + 13 * step for step in range(1, 9)), *(-6 - 13 * step for step in range(1, 9))]


def _drawn(plans, baseline, chosen):
    """Milliseconds against the metric, the front as a line."""
    from html import escape

    known = sorted((p for p in plans if p["metric"] is not None and math.isfinite(p["metric"])), key=lambda p: p["ms"])
    wide, high, left, top = 640, 360, 70, 20
    xs, ys = [0.0, *(p["ms"] for p in known)], [baseline, *(p["metric"] for p in known)]
    span = (max(ys) - min(ys)) or abs(baseline) or 1.0
    low, most = min(ys) - 0.08 * span, max(ys) + 0.08 * span

    def at(p):
        return left + (wide - left - 150) * p["ms"] / (max(xs) or 1.0), top + (high - top - 50) * (most - p["metric"]) / (most - low)

    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {wide} {high}" role="img" font-family="sans-serif" font-size="12">',
             f"<title>Metric and time of {len(known)} plans; chosen: {escape(chosen)}</title>",
             f'<rect width="{wide}" height="{high}" fill="#fff"/>']
    line = at({"ms": 0.0, "metric": baseline})[1]
    parts.append(f'<path d="M{left} {top}V{high - 50}H{wide - 20}" fill="none" stroke="#555"/>')
    parts.append(f'<path d="M{left} {line:.1f}H{wide - 20}" stroke="#999" stroke-dasharray="4 4"/>')
    parts.append(f'<text x="{left - 6}" y="{line + 4:.1f}" text-anchor="end" fill="#333">{baseline:.4g}</text>')
    parts.append(f'<text x="{wide / 2}" y="{high - 12}" text-anchor="middle" fill="#333">milliseconds (0 to {max(xs):.3g}); above: the metric, dashed: the model as it is</text>')
    front = [at(p) for p in known if p["front"]]
    if len(front) > 1:
        parts.append('<path d="M' + "L".join(f"{x:.1f} {y:.1f}" for x, y in front) + '" fill="none" stroke="#1664a8"/>')
    labels = []  # where names stand, so that none covers another, or a point
    for p in known:
        x, y = at(p)
        colour = "#1664a8" if p["within"] else "#b3401c"
        parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{6 if p["name"] == chosen else 4}" fill="{colour}"/>')
        x0, width = x + 8, 6.5 * len(p["name"])
        if x0 + width > wide:
            x0 = x - 8 - width
        free = next((dy for dy in _LABEL_PLACES
                     if not any(abs(y + dy - b) < 12 and x0 < a + w and a < x0 + width for a, b, w in labels)
                     and not any(x0 - 6 < a < x0 + width + 6 and -4 < y + dy - b < 14 for a, b in map(at, known))), -6)
        labels.append((x0, y + free, width))
        if abs(free) > 20:
            parts.append(f'<path d="M{x:.1f} {y:.1f}L{x0 - 2:.1f} {y + free - 4:.1f}" stroke="#bbb"/>')
        parts.append(f'<text x="{x0:.1f}" y="{y + free:.1f}" fill="#222" stroke="#fff" stroke-width="3" paint-order="stroke">{escape(p["name"])}</text>')
    return "".join([*parts, "</svg>"])


