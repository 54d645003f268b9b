"""tune() below whole groups: what each layer adds to the noise and what it saves of the time, and in which order layers leave int8."""

import re
import time
from dataclasses import dataclass

# A scale a row, made at run time, takes 4 to 20 % of a Linear's time more than one scale for all rows (docs/lab/quantization.md).
_ROWS_COST = 0.12
# Of floats at least, where a run that something disturbed says that they are as fast.
_LEAST_COST = 0.3
# Of a table in floats, as a share of the time of all layers: none when it runs, but four times the bytes.
_TABLE_COST = 0.02


@dataclass
class Group:
    """Linears that read one activation, which else would be quantized twice; or an attention core, or a table."""

    nodes: list
    kind: str
    noise: float | None = None  # what it alone loses: the KL divergence of outputs that have classes, else 1 - cosine
    rows_noise: float | None = None  # the same with a scale a row
    float_ms: float = 0.0
    int8_ms: float = 0.0
    measured: bool = False


@dataclass
class Step:
    """A group that takes another type."""

    group: Group
    type: str  # "dynamic" or "float"
    less: float  # noise
    ms: float  # more time

    @property
    def worth(self):
        return self.less / max(self.ms, 1e-9)


def groups_of(layers):
    """Of (node, kind, activation)."""
    groups, by_activation = [], {}
    for node, kind, activation in layers:
        if activation and activation in by_activation:
            by_activation[activation].nodes.append(node)
            continue
        groups.append(Group([node], kind))
        if activation:
            by_activation[activation] = groups[-1]
    return groups


def _roles(groups):
    """Lists of those that differ by a number in their name alone."""
    roles = {}
    for group in groups:
        roles.setdefault((group.kind, re.sub(r"\d+", "#", group.nodes[0])), []).append(group)
    return roles.values()


def spread(groups):
    """Every role first, then what lies between, so that an end at any place leaves neighbours that are known."""
    order = []
    for members in _roles(groups):
        bits = max(1, (len(members) - 1).bit_length())
        places = [int(f"{i:0{bits}b}"[::-1], 2) for i in range(1 << bits)]
        order += [(rank, members[place]) for rank, place in enumerate(p for p in places if p < len(members))]
    return [group for _, group in sorted(order, key=lambda entry: entry[0])]


def _fill(groups):
    """Noise of those that time did not suffice for: that of the nearest of the same role, or the most of all."""
    known = [g.noise for g in groups if g.measured]
    for members in _roles(groups):
        at = [i for i, g in enumerate(members) if g.measured]
        for i, group in enumerate(members):
            if not group.measured:
                group.noise = members[min(at, key=lambda j: abs(j - i))].noise if at else max(known)


def measure(groups, noise_of, seconds, tell):
    """Fills in noise and rows_noise by noise_of(nodes, dynamic), one layer after the other, for about `seconds`."""
    began = time.monotonic()
    order = spread(groups)
    for number, group in enumerate(order):
        tell("layers", number, len(order))
        if number > 0 and time.monotonic() - began > 0.8 * seconds:
            break
        group.noise, group.measured = noise_of(group.nodes, False), True
    _fill(groups)
    ratios = []
    linears = sorted((g for g in groups if g.kind == "linear"), key=lambda g: -g.noise)
    for group in linears:
        if ratios and time.monotonic() - began > seconds:
            break
        group.rows_noise = noise_of(group.nodes, True)
        if group.noise > 0:
            ratios.append(group.rows_noise / group.noise)
    usual = sorted(ratios)[len(ratios) // 2] if ratios else 1.0
    for group in linears:
        if group.rows_noise is None:
            group.rows_noise = usual * group.noise


def take_times(groups, float_events, int8_events):
    """Milliseconds of the groups in floats and in int8, from traces of both."""
    of = {node: group for group in groups for node in group.nodes}
    for events, field in ((float_events, "float_ms"), (int8_events, "int8_ms")):
        for event in events:
            owners = {id(of[node]): of[node] for node in event.get("args", {}).get("origin", ()) if node in of}
            for group in owners.values():  # a kernel of several shares its time among them
                setattr(group, field, getattr(group, field) + event["dur"] / 1000 / len(owners))
        for members in _roles(groups):  # layers alike take as long; one run says it of one layer badly
            usual = sorted(getattr(g, field) for g in members)[len(members) // 2]
            for group in members:
                setattr(group, field, usual)


def steps_of(groups):
    """All groups on their way from int8 to floats, most noise for the time first; all of them are floats at the end."""
    steps = []
    whole = sum(g.int8_ms for g in groups)
    for group in groups:
        to_float = max(group.float_ms - group.int8_ms, _LEAST_COST * group.int8_ms)
        if group.kind != "linear":
            steps.append(Step(group, "float", group.noise, to_float if group.kind == "attention" else _TABLE_COST * whole))
            continue
        rows = Step(group, "dynamic", group.noise - group.rows_noise, _ROWS_COST * group.int8_ms)
        rest = Step(group, "float", group.rows_noise, max(to_float - rows.ms, 0.0))
        if rows.less <= 0 or rest.worth > rows.worth:  # the way over a scale a row gains nothing
            steps.append(Step(group, "float", group.noise, to_float))
        else:
            steps += [rows, rest]
    return sorted(steps, key=lambda step: (-step.worth, step.type))


def names(steps):
    """keep_float and dynamic of optimize() after these steps."""
    types = {}
    for step in steps:
        types.update(dict.fromkeys(step.group.nodes, step.type))
    return {"keep_float": [n for n, t in types.items() if t == "float"], "dynamic": [n for n, t in types.items() if t == "dynamic"]}


def described(groups, chosen):
    """A row for each layer; chosen: what names() gave."""
    rows = []
    for group in groups:
        for node in group.nodes:
            kind = "float" if node in chosen["keep_float"] else "dynamic" if node in chosen["dynamic"] else "int8"
            rows.append({"node": node, "kind": group.kind, "type": kind, "alone_loss": group.noise, "measured": group.measured,
                         "float_ms": group.float_ms, "int8_ms": group.int8_ms})
    return rows


def guess(steps, share):
    """How many steps leave this share of the noise, if the noise of layers adds up and the metric's loss goes with its power."""
    whole = sum(step.less for step in steps)
    left = whole
    for number, step in enumerate(steps, 1):
        left -= step.less
        if left <= share * whole:
            return number
    return len(steps)


def fewest(within, ms, most, first, near):
    """The fewest steps, of 1 to most, that within() says yes to; None: not even most. It is asked a few times: `first`, then twice as many or in the middle of
    what is known, until fewer would save less than `near` of the time ms(steps)."""
    few, many, count = 0, None, min(max(first, 1), most)
    while True:
        if within(count):
            many = count
        else:
            few = count
        if few == most:
            return None
        if many is None:
            count = min(most, 2 * few)
        elif many - few <= 1 or ms(many) - ms(few) <= near:
            return many
        else:
            count = (few + many) // 2
