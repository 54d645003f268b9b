#!/usr/bin/env python3
"""How much of the test graphs octavo's execution provider takes in ONNX Runtime: prints the table.

    ./dev shell python3 tests/models/ep_table.py [EVERY]     EVERY: only each so manieth graph
"""

import contextlib
import os
import pathlib
import re
import sys
import tarfile
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
EXPORTERS = {"ts": "torch, TorchScript exporter", "dyn": "torch, dynamo exporter", "": "others and by hand"}


@contextlib.contextmanager
def log_in(path):
    """What goes to stderr meanwhile, of C++ too, is in the file."""
    sys.stderr.flush()
    kept = os.dup(2)
    with open(path, "wb") as file:
        os.dup2(file.fileno(), 2)
        try:
            yield
        finally:
            os.dup2(kept, 2)
            os.close(kept)


def exporter_of(name):
    found = re.search(r"\.(ts|dyn)\d+(\.|$)", name)
    return EXPORTERS[found[1] if found else ""]


def taken(folder, every=1):
    """(name, nodes taken, nodes, parts) of each graph that ONNX Runtime opens by itself; the names of the others."""
    import octavo
    import onnxruntime

    log, rows, closed = pathlib.Path(folder) / "ep_table.log", [], []
    for path in sorted(pathlib.Path(folder).rglob("*.onnx"))[::every]:
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 1
        with log_in(log):
            try:
                onnxruntime.InferenceSession(str(path), octavo.session_options(options, threads=1))
            except Exception:  # its classes have no other base
                quiet = onnxruntime.SessionOptions()
                quiet.log_severity_level = 4
                try:
                    onnxruntime.InferenceSession(str(path), quiet, providers=["CPUExecutionProvider"])
                except Exception:
                    closed.append(path.stem)
                    continue
        found = re.search(r"octavo: takes (\d+) of (\d+) nodes in (\d+) parts", log.read_text(errors="replace"))
        nothing = re.search(r"octavo: takes nothing of (\d+) nodes", log.read_text(errors="replace"))
        rows.append((path.stem, *(map(int, found.groups()) if found else (0, int(nothing[1]) if nothing else 1, 0))))
    return rows, closed


def table(rows):
    def line(name, of):
        whole = sum(n == all_ for _, n, all_, _ in of)
        return f"| {name} | {len(of)} | {whole} | {100 * whole / len(of):.1f} % | {sum(r[1] for r in of)} of {sum(r[2] for r in of)} |"

    lines = ["| graphs of | opened by ONNX Runtime | wholly taken | share | nodes |", "|---|---|---|---|---|"]
    for name in EXPORTERS.values():
        if of := [row for row in rows if exporter_of(row[0]) == name]:
            lines.append(line(name, of))
    return "\n".join([*lines, line("**all**", rows)])


def main():
    every = int(sys.argv[1]) if len(sys.argv) > 1 else 1
    with tempfile.TemporaryDirectory() as folder:
        with tarfile.open(ROOT / "tests" / "data" / "zoo" / "zoo.tar.xz") as archive:
            archive.extractall(folder, filter="data")
        rows, closed = taken(folder, every)
    print(table(rows))
    for name, n, all_, parts in rows:
        if n != all_:
            print(f"not wholly: {name}, {n} of {all_} nodes in {parts} parts")
    print(f"{len(closed)} that ONNX Runtime does not open itself: {', '.join(closed)}")


if __name__ == "__main__":
    main()
