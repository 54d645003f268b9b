"""Rules in Python: a pattern that is built once and matched in C++, and two functions that are called where it matches."""

import inspect
import re

from . import _octavo
from ._octavo import OctavoError
from ._words import takes

# Ops whose two operands may stand in either order in a graph, whichever the pattern writes.
_COMMUTATIVE = frozenset({"Add", "Mul", "Max", "Min", "And", "Or", "Xor", "Equal", "BitwiseAnd", "BitwiseOr", "BitwiseXor"})


class _Part:
    """A part of a pattern that is not built yet: what scalar(), constant(), one_of() and `anything` return."""

    def __init__(self, build):
        self._build = build


class _Built:
    def __init__(self, builder, index):
        self._builder, self._index = builder, index


@takes(value="number", tolerance="number", name="word")
def scalar(value=None, *, tolerance=1e-6, name=None):
    """A constant of one element. value: what it must be, up to a relative tolerance; None: any number (match.number(name) tells it)."""
    return _Part(lambda ops: ops._builder.scalar(name or ops._fresh("scalar"), value, tolerance if value else 0.0))


@takes(name="word")
def constant(name=None):
    """Any constant tensor."""
    return _Part(lambda ops: ops._builder.constant(name or ops._fresh("constant")))


def one_of(*alternatives):
    """The first of these patterns that matches."""
    return _Part(lambda ops: ops._builder.one_of(ops._fresh("one of"), [ops._index(a) for a in alternatives]))


anything = _Part(None)
"""An operand that the pattern does not look at, there or not."""


class _PatternOps:
    def __init__(self, builder):
        self._builder, self._names, self._made = builder, {}, {}

    def _fresh(self, what):
        self._names[what] = self._names.get(what, 0) + 1
        number = self._names[what]
        return what if number == 1 else f"{what} {number}"

    def _index(self, operand):
        if operand is None:
            return -2
        if operand is anything:
            return -1
        if isinstance(operand, (int, float)) and not isinstance(operand, bool):
            operand = scalar(operand)
        if isinstance(operand, _Part):
            if id(operand) not in self._made:  # the part is kept, so that its id stays its own
                self._made[id(operand)] = operand, operand._build(self)
            return self._made[id(operand)][1]
        if not isinstance(operand, _Built) or operand._builder is not self._builder:
            raise OctavoError(f"an operand of a pattern is a part of it, a number or None, not {type(operand).__name__}")
        return operand._index

    def _op(self, op, operands, *, _name=None, _domain="", _open=False, _escape=False, _output=0, **attrs):
        unknown = next((key for key in attrs if key.startswith("_") and not key.startswith("__")), None)
        if unknown:
            raise OctavoError(f"op.{op}: there is no {unknown}; what begins with _ is _name, _domain, _open, _escape or _output")
        indices = [self._index(operand) for operand in operands]
        either = op in _COMMUTATIVE and not _domain and len(indices) == 2 and min(indices) >= 0
        name = _name or self._fresh(op.lower())
        return _Built(self._builder, self._builder.op(name, _domain, op, indices, attrs, either, _open, _escape, _output))

    def __getattr__(self, op):
        if op.startswith("_"):
            raise AttributeError(op)
        return lambda *operands, **attrs: self._op(op, operands, **attrs)


class Rule:
    """Replaces what its pattern describes.

    >>> class QuickGelu(octavo.Rule):
    ...     '''x * sigmoid(1.702 x) -> Gelu by tanh'''
    ...     def pattern(self, op, x): return op.Mul(x, op.Sigmoid(op.Mul(x, octavo.scalar(1.702))))
    ...     def rewrite(self, op, match): return op.Gelu(match["x"], approximate="tanh")
    >>> octavo.optimize("clip.onnx", recipe="float", rules=[QuickGelu()])

    Class attributes: name (the class's, as quick_gelu), version (files that the rule changed record it), after or before (the pass
    beside which recipes run it).
    """

    name: str | None = None
    version = "1"
    after = "canonical"
    before = ""

    def pattern(self, op, *inputs):
        """The pattern: op.NAME(operands, attribute=value), from the named inputs to the value that is replaced.

        An op matches with the operands and attributes that are named and no others (_open=True: with others too). What it makes must not be used
        outside the pattern (_escape=True: it may be). _name: what match[...] calls it; _domain: of an op that is not ONNX's; _output: which of its outputs.
        """
        raise NotImplementedError(f"{type(self).__name__} has no pattern(self, op, ...), which every octavo.Rule writes for itself")

    def check(self, match):
        """None, or a sentence that says why this match is left alone."""

    def rewrite(self, op, match):
        """The value that takes the place of the pattern's, made with op.NAME(...)."""
        raise NotImplementedError(f"{type(self).__name__} has no rewrite(self, op, match), which every octavo.Rule writes for itself")

    def __str__(self):
        return str(compiled(self))


def _name_of(rule):
    return rule.name or re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", type(rule).__name__).lower()


def compiled(rule):
    """The rule as the C++ engine has it."""
    if not isinstance(rule, Rule):
        raise OctavoError(f"rules are objects of classes made from octavo.Rule, not {rule!r}")
    name = _name_of(rule)
    what = (inspect.getdoc(type(rule)) if type(rule).__doc__ else None) or name
    builder = _octavo.RuleBuilder(name, what.splitlines()[0])
    ops = _PatternOps(builder)
    inputs = [p for p in list(inspect.signature(rule.pattern).parameters)[1:]]
    parts = [_Built(builder, builder.input(p)) for p in inputs]
    root = rule.pattern(ops, *parts)
    if not isinstance(root, _Built):
        raise OctavoError(f"rule {name}: its pattern returns no op, as op.Mul(x, y) makes one")
    before = rule.before or ""
    return builder.finish(root._index, rule.check, rule.rewrite, rule.version, "" if before else rule.after or "", before)
