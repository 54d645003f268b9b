"""Items through several systems at once, and how surely a figure of the answers is known."""

import time

import numpy as np

PARTS = 10  # of the answers, each left out once


def reason(error):
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) <= 160 else text[:157] + "..."


def answers_of(task, systems, items, failed):
    """{system: (answers, seconds, seconds of all threads)}; a system that fails on the way leaves, with its reason."""
    result = {name: ([], [0.0, 0.0]) for name in systems}
    for number, item in enumerate([items[0], *items]):  # the first one twice: warm
        for name in list(systems):
            start, used = time.perf_counter(), time.process_time()
            try:
                answer = task.answer(systems[name], item)
            except Exception as error:  # whatever a peer raises is the reason in its row
                failed[name] = reason(error)
                del systems[name], result[name]
                continue
            if number > 0:
                result[name][0].append(answer)
                result[name][1][0] += time.perf_counter() - start
                result[name][1][1] += time.process_time() - used
    return {name: (answers, *seconds) for name, (answers, seconds) in result.items()}


def lost(task, value, base):
    """Share of the metric; of one that is 0 for floats, the metric."""
    return (base - value if task.more else value - base) / (base if base > 0 else 1)


def spread(task, figure, *answers):
    """Standard error of figure(*answers), by leaving out a tenth of the items at a time (jackknife)."""
    values = [figure(*(task.without(a, part, PARTS) for a in answers)) for part in range(PARTS)]
    return float(np.sqrt((PARTS - 1) * np.var(values)))
