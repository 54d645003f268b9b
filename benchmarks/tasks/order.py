"""Whether the loss that octavo tells of a model (on samples held out of calibration) orders ways to make it as the task does."""

import itertools
import warnings

import answers as of
import tasks

STATIC = {"rows_db": 0}  # one calibrated scale for all rows of a Linear's activation
VARIANTS = {
    "int8": {},
    "int8, no fit": {"fit": False},
    "int8, one scale": STATIC,
    "int8, one scale, no fit": {**STATIC, "fit": False},
    "int8, one scale, no fit, minmax": {**STATIC, "fit": False, "calibrator": "minmax"},
    "dynamic": {"recipe": "dynamic"},
    "fp8": {"recipe": "fp8"},
    "dynamic4": {"recipe": "dynamic4"},
    "weights8": {"recipe": "weights8"},
    "dynamic, no fit": {"recipe": "dynamic", "fit": False},
    "fp8, no fit": {"recipe": "fp8", "fit": False},
}


def told(report):
    """(kind, figure, its standard error, decibels) of the output that lost most: divergence where one has classes, else 1 - cosine."""
    losses = report["losses"]
    classes = [loss for loss in losses if "kl" in loss]
    worst = max(classes or losses, key=lambda loss: loss["kl"] if classes else 1 - loss["row_cosine"])
    kind = "kl" if classes else "1 - cosine"
    figure = worst["kl"] if classes else 1 - worst["row_cosine"]
    return kind, figure, worst.get("kl_error" if classes else "row_cosine_error", 0.0), min(loss["sqnr_db"] for loss in losses)


def pipeline_of(recipe="int8", rows_db=None, fit=True, keep_float=(), dynamic=()):
    """Of a recipe and what optimize() would be asked with it. Where a pipeline is given, optimize tries no others for a note."""
    import octavo

    pipeline = octavo.Pipeline(recipe)
    if rows_db is not None:
        pipeline.options["choose_rows"] = {"db": rows_db}
    if not fit and "fit_weights" in pipeline.passes:
        pipeline.remove("fit_weights")
    pipeline.keep_float, pipeline.dynamic = list(keep_float), list(dynamic)
    return pipeline


def made(task, options, threads):
    """A variant of the part that is varied: its bytes and what is told of it."""
    import octavo

    options, data = dict(options), task.calibration[task.varied]
    calibrator = options.pop("calibrator", "mse")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        result = octavo.optimize(str(task.models[task.varied]), calibration=data, calibrator=calibrator, threads=threads, held_out=4 * len(next(iter(data[0].values()))),
                                 pipeline=pipeline_of(**options))
    return result.model, told(result.report)


def agreement(rows, key):
    """Pairs that the task tells apart by more than two standard errors, and how many of them the figure orders the other way."""
    pairs = [(a, b) for a, b in itertools.combinations(rows, 2) if abs(a["lost"] - b["lost"]) > 2 * a["apart"][b["variant"]]]
    against = [(a["variant"], b["variant"]) for a, b in pairs if (a["lost"] - b["lost"]) * (a[key] - b[key]) < 0]
    return {"pairs": len(pairs), "against": against, "tau": 1 - 2 * len(against) / len(pairs) if pairs else None}


def measure(task, arguments):
    """{variants: [...], by_loss: agreement, by_db: agreement}"""
    items = task.part(0, arguments.every)
    variants = {name: how for name, how in {**VARIANTS, **task.variants}.items() if arguments.variants is None or name in arguments.variants}
    floats = {part: tasks.system(path, arguments.threads) for part, path in task.models.items()}
    truth = [task.answer(floats, item) for item in items]
    base, rows, answers = task.score(truth, truth), [], {}
    for name, options in variants.items():
        model, (kind, figure, error, db) = made(task, options, arguments.threads)
        parts = {**floats, task.varied: tasks.system(model, arguments.threads)}
        answers[name] = [task.answer(parts, item) for item in items]
        rows.append({"variant": name, task.metric: task.score(answers[name], truth), "kind": kind, "loss": figure, "loss_error": error, "db": db, "noise": -db})
        rows[-1]["lost"] = of.lost(task, rows[-1][task.metric], base)
        print(f"  {name:<46}{rows[-1][task.metric]:>10.4f}{100 * rows[-1]['lost']:>8.2f} % lost   {kind} {figure:.5f} +- {error:.5f}   {db:.1f} dB", flush=True)
    for row in rows:
        def gap(ours, theirs, truth):
            return of.lost(task, task.score(ours, truth), base) - of.lost(task, task.score(theirs, truth), base)
        row["apart"] = {other: of.spread(task, gap, answers[row["variant"]], answers[other], truth) for other in answers}
    return {"variants": rows, "by_loss": agreement(rows, "loss"), "by_db": agreement(rows, "noise")}


def print_agreement(found):
    for what, key in (("loss", "by_loss"), ("decibels", "by_db")):
        a = found[key]
        print(f"  by {what}: {a['pairs']} pairs that the task tells apart, {len(a['against'])} the other way"
              + (f", tau {a['tau']:.2f}" if a["pairs"] else "") + "".join(f"; {x} / {y}" for x, y in a["against"]), flush=True)
