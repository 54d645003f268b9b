"""Other runtimes beside octavo: bench(against=...), and `octavo bench MODEL --against onnxruntime,openvino`."""

import csv
import io
import json
import os
import subprocess
import sys
import time

from . import _octavo
from ._help import Parser, columns, section
from ._octavo import OctavoError, Session, __version__

_TITLE = "Beside other runtimes (MODEL comes first)"
_LEAST = 12  # columns of a name in a table that is cut to fit
# ONNX Runtime's threads spin for some 65 ms behind its runs, on the cores of whoever comes next.
_REST = 0.1


def _bytes_or_path(model):
    return os.fspath(model) if isinstance(model, (str, os.PathLike)) else model.SerializeToString() if hasattr(model, "SerializeToString") else bytes(model)


def _onnxruntime(model, threads):
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = threads, 4
    session = onnxruntime.InferenceSession(_bytes_or_path(model), options, providers=["CPUExecutionProvider"])
    return f"onnxruntime {onnxruntime.__version__}", lambda feed: session.run(None, feed)


def _openvino(model, threads):
    import openvino

    # Where the CPU has bfloat16, its default computes float models in it; the others compute them in float32.
    how = {"INFERENCE_NUM_THREADS": threads, "NUM_STREAMS": 1, "PERFORMANCE_HINT": "LATENCY", "INFERENCE_PRECISION_HINT": "f32"}
    request = openvino.Core().compile_model(_bytes_or_path(model), "CPU", how).create_infer_request()
    return f"openvino {openvino.__version__.split('-')[0]}", request.infer


RUNTIMES = {"onnxruntime": _onnxruntime, "openvino": _openvino}


class _Timing:
    """One model by one runtime with one number of threads on one batch."""

    def __init__(self, name, runtime, threads, feed):
        self.what = {"model": name, "runtime": runtime, "threads": threads, "shapes": {key: list(a.shape) for key, a in feed.items()}}
        self.feed, self.run, self.ms, self.session = feed, None, [], None
        self.rows = max(feed.values(), key=lambda a: a.ndim).shape[0] if any(a.ndim for a in feed.values()) else 1

    def result(self, base):
        if self.run is None:
            return self.what
        low, middle, p90, p99 = (_quantile(self.ms, q) for q in (0, 0.5, 0.9, 0.99))
        return {**self.what, "runs": len(self.ms), "min_ms": low, "median_ms": middle, "p90_ms": p90, "p99_ms": p99,
                "samples_per_s": 1e3 * self.rows / middle, "speedup": base / middle if base else None}


def _quantile(values, q):
    return sorted(values)[int(q * (len(values) - 1))]


def _first_line(error):
    """What an error says first, behind the place in somebody's sources that OpenVINO begins with."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip() and not line.startswith("Exception from ")]
    return lines[0] if lines else type(error).__name__


def _other(name, runtime, model, threads, feed):
    """The timing of another runtime; what it cannot do, its result says."""
    timing = _Timing(name, runtime, threads, feed)
    try:
        timing.what["runtime"], timing.run = RUNTIMES[runtime](model, threads)
        for _ in range(2):
            timing.run(feed)
    except ImportError:
        raise OctavoError(f"the package '{runtime}' is missing; pip install {runtime}") from None
    except Exception as error:  # their own classes have no other base
        timing.run, timing.what["error"] = None, _first_line(error)
    return timing


def bench(named, batches, against, *, threads, seconds, fuse, progress):
    """As octavo.bench, for models [(name, model)] and batches [{name: batch} of each]; results say the "runtime", or the "error" of one that cannot run the file."""
    for runtime in against:
        if runtime not in RUNTIMES:
            raise OctavoError(f"there is no runtime '{runtime}' to compare with; there are: {', '.join(RUNTIMES)}")
    timings = []
    for name, model in named:
        for count in threads:
            session = Session(model, threads=count, fuse=fuse)
            for feed in batches[name]:
                timing = _Timing(name, f"octavo {__version__}", session.threads, feed)
                timing.run = session.run
                for _ in range(2):
                    timing.run(feed)
                timings += [timing, *(_other(name, runtime, model, session.threads, feed) for runtime in against)]
    running = [timing for timing in timings if timing.run is not None]
    rest = _REST if "onnxruntime" in against and any(timing.what["threads"] > 1 for timing in running) else 0
    spent, rounds = 0.0, 0
    while rounds < 5 or spent < seconds * len(running):
        for timing in running:
            time.sleep(rest)
            start = time.perf_counter()
            timing.run(timing.feed)
            timing.ms.append(1e3 * (time.perf_counter() - start))
            spent += timing.ms[-1] / 1e3 + rest
        rounds += 1
        if progress:
            progress("bench", rounds, -1)
    base = _quantile(running[0].ms, 0.5)
    return {"schema": 1, "cpu": _octavo.cpu(), "results": [timing.result(base) for timing in timings]}


def batch_of(model, inputs, shapes):
    """The arrays that a model is timed with: as given, in the form that it wants, or random ones."""
    return _octavo._inputs(model, inputs, shapes)


def _rows(told):
    yield ["model", "runtime", "shapes", "threads", "runs", "min ms", "p50 ms", "p90 ms", "p99 ms", "samples/s", "ratio"]
    for r in told["results"]:
        shapes = ", ".join(f"{name} {'x'.join(map(str, shape)) or 'scalar'}" for name, shape in r["shapes"].items())
        cells = [r["model"], r["runtime"], shapes, str(r["threads"])]
        if "error" in r:
            yield [*cells, "cannot run it: " + r["error"]]
            continue
        times = [f"{r[key]:.3f}" for key in ("min_ms", "median_ms", "p90_ms", "p99_ms")]
        yield [*cells, str(r["runs"]), *times, f"{r['samples_per_s']:.1f}", f"{r['speedup']:.2f}x"]


def table(told, form):
    """What bench gave, as text: md, csv, json, or None for a terminal."""
    if form == "json":
        return json.dumps(told, indent=1) + "\n"
    rows = list(_rows(told))
    if form == "csv":
        out = io.StringIO()
        csv.writer(out, lineterminator="\n").writerows(rows)
        return out.getvalue()
    if form == "md":
        lines = ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows]
        return "\n".join([lines[0], "|---|---|---|" + "---:|" * 8, *lines[1:]]) + "\n"
    shapes = list(dict.fromkeys(row[2] for row in rows[1:]))
    for row in rows[1:]:
        row[2] = str(shapes.index(row[2]) + 1)
    rows = [row if len(shapes) > 1 else row[:2] + row[3:] for row in rows]
    widths = _widths(rows)
    if sys.stdout.isatty():
        rows, widths = _fitted(rows, widths, columns())
    lines = ["  ".join(cell.ljust(width) if i < 2 else cell.rjust(width) for i, (cell, width) in enumerate(zip(row, widths))).rstrip() for row in rows]
    return "\n".join([told["cpu"], *(f"shapes{f' {nth}' * (len(shapes) > 1)}: {shape}" for nth, shape in enumerate(shapes, 1)), *lines]) + "\n"


def _widths(rows):
    whole = [row for row in rows if len(row) == len(rows[0])]
    return [max(len(row[i]) for row in (rows if i < len(rows[0]) - 7 else whole)) for i in range(len(rows[0]))]


def _fitted(rows, widths, most):
    """A table for so many columns: names lose their middle, then figures go that csv and json have, too."""
    def wide():
        return sum(widths) + 2 * (len(widths) - 1)

    for name in ("runs", "min ms", "p90 ms"):
        at = rows[0].index(name)
        if wide() - sum(max(width - _LEAST, 0) for width in widths[:2]) <= most:
            break
        rows, widths = [row[:at] + row[at + 1 :] if len(row) == len(rows[0]) else row for row in rows], widths[:at] + widths[at + 1 :]
    while wide() > most and max(widths[:2]) > _LEAST:
        widths[widths.index(max(widths[:2]))] -= 1
    return [[_elided(cell, widths[i]) if i < 2 else cell for i, cell in enumerate(row)] for row in rows], widths


def _elided(name, width):
    return name if len(name) <= width else name[: (width - 1) // 2] + "…" + name[len(name) - (width - 1 - (width - 1) // 2) :]


def asked(arguments):
    """Whether these arguments are for this file."""
    return any(a in ("-h", "--help") or a.split("=", 1)[0] == "--against" for a in arguments)


def _parser():
    parser = Parser(prog="octavo bench", add_help=False, allow_abbrev=False)
    parser.add_argument("models", nargs="+")
    parser.add_argument(
        "--against", required=True, metavar="RUNTIME,...",
        help="onnxruntime, openvino (packages of these names): each runs the same files on the same inputs, in turn")
    parser.add_argument("--inputs", "--input")
    parser.add_argument("--shape", action="append", default=[])
    parser.add_argument("--threads", default="0")
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--as-is", action="store_true")
    parser.add_argument("--format", choices=("md", "csv", "json"))
    parser.add_argument("--json", action="store_true")
    return parser


def main(program, arguments):
    """Runs the command; its exit status."""
    if "-h" in arguments or "--help" in arguments:
        done = subprocess.run([program, "bench", "--help"], check=False)
        print(section(_parser(), _TITLE), end="")
        return done.returncode
    a = _parser().parse_args(arguments)
    try:
        threads = [int(count) for count in a.threads.split(",")]
        if min(threads) < 0 or a.seconds <= 0 or (a.inputs and a.shape):
            raise ValueError
    except ValueError:
        print("octavo: --threads takes numbers from 0, as 1,2, --seconds more than 0, and of --inputs and --shape there is one", file=sys.stderr)
        return 2
    try:
        shapes = _octavo._parse_shapes(a.shape)
        given = _octavo._read_npz(a.inputs) if a.inputs else None
        batches = {path: [batch_of(path, given, one) for one in shapes] for path in a.models}
        told = bench([(path, path) for path in a.models], batches, a.against.split(","), threads=threads, seconds=a.seconds, fuse=not a.as_is, progress=None)
        print(table(told, "json" if a.json else a.format), end="")
        return 0
    except (OctavoError, OSError, ValueError, MemoryError) as error:
        print(f"octavo: {_first_line(error)}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("octavo: interrupted", file=sys.stderr)
        return 130
