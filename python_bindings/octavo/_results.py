"""What objects of the module show of themselves: ports of a Session, and a Result in a notebook or a shell."""

import html as _html

from ._octavo import Result, Session, _write

# ONNX Runtime's names of element types, where they are not numpy's.
_RUNTIME_TYPES = {
    "f32": "float", "f64": "double", "f16": "float16", "bf16": "bfloat16",
    "s8": "int8", "s16": "int16", "s32": "int32", "s64": "int64", "s4": "int4",
    "u8": "uint8", "u16": "uint16", "u32": "uint32", "u64": "uint64", "u4": "uint4",
    "e4m3fn": "float8e4m3fn", "e5m2": "float8e5m2",
}


class Port(tuple):
    """An input or output of a Session: the tuple (name, type), as ("x", "f32[batch,384]"), which knows its parts too.

    dtype: of the arrays that run() takes and gives. shape: numbers, names of symbols, None for a size without a name; None: the rank is not known.
    """

    def __new__(cls, name, type, dtype, shape):
        port = super().__new__(cls, (name, type))
        port.name, port.type, port.dtype, port.shape = name, type, dtype, shape
        return port

    def __getnewargs__(self):
        return self.name, self.type, self.dtype, self.shape

    def __repr__(self):
        return f"<Port {self.name} {self.type}>"


class NodeArg:
    """The same as ONNX Runtime's InferenceSession tells it: name, type as "tensor(float)", shape."""

    def __init__(self, port):
        self.name, self.shape = port.name, port.shape
        element = port.type.split("[", 1)[0]
        self.type = f"tensor({_RUNTIME_TYPES.get(element, element)})"

    def __repr__(self):
        return f"NodeArg(name='{self.name}', type='{self.type}', shape={self.shape})"


def _get_inputs(self):
    """The inputs as ONNX Runtime's sessions tell them: objects with name, type and shape."""
    return [NodeArg(port) for port in self.inputs]


def _get_outputs(self):
    """The outputs as ONNX Runtime's sessions tell them: objects with name, type and shape."""
    return [NodeArg(port) for port in self.outputs]


def _describe_session(self):
    ports = [", ".join(f"{port.name} {port.type}" for port in side) for side in (self.inputs, self.outputs)]
    return f"<octavo.Session {ports[0]} -> {ports[1]}; {len(self.kernels)} steps, {self.threads} threads>"


def _megabytes(count):
    return f"{count / 1e6:.1f} MB"


def _describe_result(self):
    report = self.report
    parts = [f"{_megabytes(report['bytes']['before'])} -> {_megabytes(report['bytes']['after'])}"]
    for kind, done in (("attention", "fused"), ("qkv", "fused"), ("linear", "quantized")):
        parts.append(f"{kind} {report[kind][done]}/{report[kind]['found']} {done}")
    known = [loss["sqnr_db"] for loss in report["losses"] if loss["sqnr_db"] is not None]
    if known:
        told = report["losses_of"]
        seen = f"samples held out: {told['samples']}" if told["held_out"] else "samples that calibration saw"
        parts.append(f"{min(known):.1f} dB on {seen}")
    return f"<octavo.Result {', '.join(parts)}>"


def _save_html(self, path):
    """Writes the report for people: one HTML file that needs nothing else."""
    _write(path, self.html)


def _repr_html(self):
    """The report in a frame of its own, so that its style stays its own in a notebook."""
    return f'<iframe srcdoc="{_html.escape(self.html)}" style="width:100%;height:40em;border:0"></iframe>'


# The classes are made in C++; what only puts words together is added here.
for _class, _members in (
    (Session, {"get_inputs": _get_inputs, "get_outputs": _get_outputs, "__repr__": _describe_session}),
    (Result, {"save_html": _save_html, "_repr_html_": _repr_html, "__repr__": _describe_result}),
):
    for _member, _function in _members.items():
        _function.__name__, _function.__qualname__ = _member, f"{_class.__name__}.{_member}"
        setattr(_class, _member, _function)
