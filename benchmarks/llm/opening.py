#!/usr/bin/env python3
"""From opening a decoder to its first token, each in a process of its own, in turn: without and with a file of packed weights.

    ./dev shell python3 benchmarks/llm/opening.py MODEL.onnx... [--threads 1 2] [--rounds 5]

The page cache has the files (a round before the first counts nothing). Seconds are medians: opening, the first token behind it, both as CPU time; then the
median of later tokens in milliseconds, and the largest memory, mapped pages among it, in MB. Writes MODEL.octavo-packed and removes it again.
"""

import argparse
import json
import pathlib
import resource
import statistics
import subprocess
import sys
import time

import numpy as np

KEYS = ["open", "first", "cpu", "later_ms", "peak_mb"]


def one(model, threads, packed):
    import octavo

    start, cpu = time.perf_counter(), time.process_time()
    session = octavo.Session(model, threads=threads, packed=packed)
    opened = time.perf_counter()
    state = session.state(64)

    def token(at):
        feeds = {"input_ids": np.array([[7]]), "attention_mask": np.ones((1, at + 1), np.int64), "position_ids": np.array([[at]])}
        begun = time.perf_counter()
        logits = session.run({p.name: feeds[p.name] for p in session.inputs if p.name in feeds}, ["logits"], state=state)
        return time.perf_counter() - begun, logits[0].tobytes().hex()[:16]

    first, bits = token(0)
    cpu = time.process_time() - cpu
    later = statistics.median(token(i)[0] for i in range(1, 17))
    print(json.dumps({"open": opened - start, "first": first, "cpu": cpu, "later_ms": later * 1e3,
                      "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3, "bits": bits}))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="+")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--one", choices=["plain", "packed"], help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one:
        return one(args.model[0], args.threads[0], args.one == "packed")
    rows = {(model, threads, way): [] for model in args.model for threads in args.threads for way in ("plain", "packed")}
    for i in range(args.rounds + 1):
        for (model, threads, way), times in rows.items():
            done = subprocess.run([sys.executable, __file__, model, "--threads", str(threads), "--one", way], check=True, capture_output=True, text=True)
            if i > 0:
                times.append(json.loads(done.stdout))
    if len({(model, t["bits"]) for (model, _, _), times in rows.items() for t in times}) != len(args.model):
        sys.exit("the ways differ in their bits")
    print(f"{'model':24} threads {'way':7}" + "".join(f"{key:>10}" for key in ["total", *KEYS]))
    for (model, threads, way), times in rows.items():
        middle = [statistics.median(t[key] for t in times) for key in KEYS]
        total = statistics.median(t["open"] + t["first"] for t in times)
        print(f"{pathlib.Path(model).name:24} {threads:7} {way:7}" + "".join(f"{m:10.2f}" for m in [total, *middle]))
    for model in args.model:
        pathlib.Path(model).with_suffix(".octavo-packed").unlink()


if __name__ == "__main__":
    main()
