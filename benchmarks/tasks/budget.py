"""The fastest plan that keeps a share of a task's metric, as octavo.tune finds it, tried on items that the search did not see."""

import time
import warnings

import answers as of
import tasks


def tuned(task, items, share, threads):
    """{part: Tuned}, one part after the other, each with its part of what may be lost, and calls of the metric."""
    import octavo

    models, plans, calls = dict(task.models), {}, 0
    truth_parts = {part: tasks.system(path, threads) for part, path in task.models.items()}
    truth = [task.answer(truth_parts, item) for item in items]
    more = task.rate(truth, truth)[1]
    for part in task.models:
        others = {p: tasks.system(m, threads) for p, m in models.items() if p != part}

        def metric(session, part=part, others=others):
            nonlocal calls
            calls += 1
            names = [name for name, _ in session.outputs]
            run = {**others, part: lambda inputs: dict(zip(names, session.run(inputs)))}
            return task.rate([task.answer(run, item) for item in items], truth)[0]

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            plans[part] = octavo.tune(str(task.models[part]), metric, task.calibration[part], budget=share / len(task.models),
                                      lower_is_better=not more, threads=threads)
        models[part] = plans[part].model
    return plans, calls


def measure(task, arguments):
    """What is lost on the items of the search and on others, and the speed on these, against octavo's float."""
    import octavo

    seen, unseen, threads = task.part(0, 2), task.part(1, 2), arguments.threads
    began, used = time.monotonic(), time.process_time()
    plans, calls = tuned(task, seen, arguments.budget, threads)
    row = {"share": arguments.budget, "plan": {part: plan.name for part, plan in plans.items()}, "calls": calls,
           "seconds": time.monotonic() - began, "cpu_seconds": time.process_time() - used,
           "plans": {part: [{k: v for k, v in p.items() if k not in ("keep_float", "dynamic")} for p in plan.plans] for part, plan in plans.items()}}
    floats = {part: octavo.optimize(str(path), recipe="float").model for part, path in task.models.items()}
    ways = {"octavo float": floats, "octavo tuned": {part: plan.model for part, plan in plans.items()}}
    systems = {name: {part: tasks.system(model, threads) for part, model in models.items()} for name, models in ways.items()}
    for what, items in (("seen", seen), ("unseen", unseen)):
        result = of.answers_of(task, dict(systems), items, {})
        truth, base_seconds, base_cpu = result["octavo float"]
        answers, seconds, cpu = result["octavo tuned"]
        def lost(ours, truth):
            base, more = task.rate(truth, truth)
            return (base - task.rate(ours, truth)[0]) * (1 if more else -1) / base
        row[what] = {"lost": lost(answers, truth), "error": of.spread(task, lost, answers, truth), "speed": base_seconds / seconds, "cpu_speed": base_cpu / cpu}
    return row


def print_budget(row):
    plan = "; ".join(f"{part}: {name}" for part, name in row["plan"].items())
    print(f"  budget {100 * row['share']:g} %: {plan}; {row['calls']} calls of the metric, {row['seconds']:.0f} s")
    for what in ("seen", "unseen"):
        r = row[what]
        print(f"    {what + ' by the search:':<24}{100 * r['lost']:>7.2f} % lost +- {100 * r['error']:.2f}{r['speed']:>7.2f} x octavo float{r['cpu_speed']:>7.2f} x CPU", flush=True)
