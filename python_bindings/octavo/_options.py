"""The arguments of optimize: octavo's table of options (api/options.cc), and what Python alone is given."""

import inspect
import json
import re

from . import _octavo

_TABLE = json.loads(_octavo._options_json())
OPTIONS = {option["name"]: option for option in _TABLE["options"]}
FLAGS = {name: option["flag"] for name, option in OPTIONS.items()} | _TABLE["arguments"]
# What is no option of the table: type, default, sentence.
OWN = {
    "calibration": (
        "Iterable[_Arrays] | str | os.PathLike[str] | bytes | None", None,
        "batches as dicts of arrays, a path as `octavo optimize --calib` takes it (\"random:8\" included), or the bytes that calibrate() returned. "
        "weights4, dynamic and dynamic4 do without, and are nearer to the model with batches.",
    ),
    "progress": ("Callable[[str, int, int], None] | None", None, "called with stage, done and total (-1: not known)."),
    "max_memory": ("int | None", None, "as of Session."),
    "max_nodes": ("int | None", None, "as of Session."),
    "rules": (
        "Iterable[Rule]", (),
        "your own rules, which recipes run behind the pass that each names (Rule.after); the report has a candidate of kind \"rewrite\" for each "
        "place, or the nearest miss, and the file records names and versions. What a rule raises ends the call and is raised here.",
    ),
    "pipeline": (
        "Pipeline | dict[str, Any] | str | os.PathLike[str] | None", None,
        "instead of the recipe's: a Pipeline, its JSON as a dict or file, or an optimized .onnx whose pipeline is replayed.",
    ),
    "plugins": ("Iterable[str | os.PathLike[str]]", (), "shared objects with passes and rules (docs/extending.md)."),
    "assume": (
        "Mapping[str, bool | int | float] | None", None,
        "inputs that always have these values, as {\"use_cache_branch\": True}: the model is made for them and no longer has the inputs; an If on "
        "one becomes one branch, which is fused and quantized.",
    ),
    "weights": (
        "str | os.PathLike[str] | None", None,
        "a GGUF file whose tensors take the place of the model's weights, in the codes that they have (Q4_0, Q5_0, Q8_0, Q2_K to Q6_K, IQ4_NL, IQ4_XS, MXFP4; others become "
        "floats).",
    ),
    "measure": (
        "bool", False,
        "time the model as it was and as it is, in turn, on the first batch of calibration (else a random one): the report then has speed, the "
        "milliseconds of each layer, peak memory and a timeline, and report[\"measured\"]; without it the same call makes the same page.",
    ),
    "record": (
        "bool", False,
        "the file tells data, loss and SHA-256 of model and data (\"octavo.data\", \"octavo.loss\", \"octavo.sha256\" of its metadata), not only version, "
        "calibrator and passes.",
    ),
    "set": (
        "Mapping[str, bool | int | float | str] | None", None,
        "options of passes, as {\"weights4.block\": 64}; passes() lists them.",
    ),
}
# Those that may be given by their place. What is newer has a name alone, so that none has to move.
_BY_PLACE = (
    "recipe", "calibration", "calibrator", "threads", "progress", "reduce_range", "quantize_kv_cache", "keep_float", "layers", "dynamic", "min_db",
    "fit", "max_memory", "max_nodes",
)
ORDER = [*_BY_PLACE, *(name for name in [*OPTIONS, *OWN] if name not in _BY_PLACE)]


def default(name):
    if name in OWN:
        return OWN[name][1]
    return () if OPTIONS[name]["type"] == "names" else OPTIONS[name]["default"]


def sentence(name):
    """What an argument is, for people."""
    if name in OWN:
        return OWN[name][2]
    option = OPTIONS[name]
    what = ("False: " if option["on"] else "each is " if option["type"] == "names" else "") + re.sub(r"{(\w+)}", r"\1", option["what"])
    recipes = f" ({option['recipes']})" if option["recipes"] else ""
    return f"{what}{recipes}. {option['in_python']}".strip()


def doc():
    lines = ["Fuses and quantizes.", "", *(f"{name}: {sentence(name)}" for name in ORDER)]
    return "\n".join([*lines, "", "Warns (UserWarning) with each of report[\"notes\"]. Ctrl-C ends it between two batches or two Linears."])


def _parameters():
    yield inspect.Parameter("model", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    for name in ORDER:
        kind = inspect.Parameter.POSITIONAL_OR_KEYWORD if name in _BY_PLACE else inspect.Parameter.KEYWORD_ONLY
        yield inspect.Parameter(name, kind, default=default(name))


SIGNATURE = inspect.Signature(list(_parameters()))


def arguments_of(*args, **arguments):
    """All arguments of one call by name; a TypeError as of any function where they do not fit."""
    try:
        given = SIGNATURE.bind(*args, **arguments)
    except TypeError as error:
        raise TypeError(f"optimize() {error}") from None
    given.apply_defaults()
    return dict(given.arguments)
