"""What the makers of graphs share: a model is exported by several exporters, with the outputs that its framework gives beside it, as the zoo stores them
(tests/data/zoo/README.md). How many attention cores there are is counted while the model runs: calls of softmax and of scaled_dot_product_attention."""
import argparse
import json
import pathlib
import traceback
import warnings

import numpy as np
import onnxruntime
import torch

EXPORTERS = {"ts14": 14, "ts17": 17, "dyn18": 18, "dyn23": 23}


class Count(torch.overrides.TorchFunctionMode):
    cores = 0

    def __torch_function__(self, function, types, args=(), kwargs=None):
        name = getattr(function, "__name__", "")
        self.cores += name in ("softmax", "scaled_dot_product_attention", "_softmax")
        return function(*args, **(kwargs or {}))


class Tuple(torch.nn.Module):
    """Takes its inputs by position in the order of names, gives the floating tensors of the result one after the other."""

    def __init__(self, model, names, fixed, wanted):
        super().__init__()
        self.model, self.names, self.fixed, self.wanted = model, names, fixed, wanted

    def forward(self, *inputs):
        result = self.model(**dict(zip(self.names, inputs)), **self.fixed)
        return flat(result)[: self.wanted]


def flat(result):
    if isinstance(result, torch.Tensor):
        return (result,) if result.is_floating_point() else ()
    values = result.values() if hasattr(result, "values") else result if isinstance(result, (tuple, list)) else ()
    return tuple(t for value in values for t in flat(value))


class Positional(torch.nn.Module):
    """For modules that name no inputs."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, **inputs):
        return self.model(*inputs.values())


def randomize(model, seed):
    """Weights that no initialization left at 0 or 1, so that nothing cancels."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() <= 1 or parameter.abs().max() == 0:
                parameter.add_(torch.randn(parameter.shape, generator=generator) * 0.1)


def write(out, name, model, cases, axes, exporter, fixed=None, wanted=1, others=0):
    """cases: dicts of inputs by name, the first is exported. axes: by input, {axis: name}. others: softmaxes that are no attention."""
    names = list(cases[0])
    wrapped = Tuple(model.eval(), names, fixed or {}, wanted)
    count, stored = Count(), {}
    with torch.no_grad():
        for i, case in enumerate(cases):
            mode = count if i == 0 else Count()
            with mode:
                outputs = wrapped(*case.values())
            stored |= {f"{i}/in/{n}": t.numpy() for n, t in case.items()}
            stored |= {f"{i}/out/output{j}": t.numpy() for j, t in enumerate(outputs)}
    path = out / "float" / f"{name}.onnx"
    path.parent.mkdir(parents=True, exist_ok=True)
    options = {"input_names": names, "output_names": [f"output{j}" for j in range(len(outputs))], "opset_version": EXPORTERS[exporter]}
    with torch.no_grad():
        if exporter.startswith("ts"):
            torch.onnx.export(wrapped, tuple(cases[0].values()), path, dynamo=False, dynamic_axes=axes, **options)
        else:
            shapes = tuple({axis: torch.export.Dim.DYNAMIC for axis in axes.get(n, {})} for n in names)
            torch.onnx.export(wrapped, tuple(cases[0].values()), path, dynamo=True, dynamic_shapes=(shapes,), external_data=False, verbose=False,
                              **options)
    kept = reproduced(path, cases, stored)
    np.savez_compressed(path.with_suffix(".npz"), **{key: a for key, a in stored.items() if int(key.split("/")[0]) in kept})
    return {"name": name, "file": f"float/{name}.onnx", "exporter": exporter, "attention_cores": count.cores - others, "qkv_groups": None,
            "bytes": path.stat().st_size, "cases": sorted(kept)}


def reproduced(path, cases, stored):
    """The cases of which ONNX Runtime gives what the framework gave: an exporter may have fixed what the first case decided."""
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    wanted = {i.name for i in session.get_inputs()}
    kept = set()
    for i, case in enumerate(cases):
        try:
            outputs = session.run(None, {n: t.numpy() for n, t in case.items() if n in wanted})
        except Exception:  # a size that the file does not allow
            continue
        want = [stored[f"{i}/out/output{j}"] for j in range(len(outputs))]
        if all(a.shape == b.shape and np.abs(a - b).max() <= 1e-3 * max(np.abs(b).max(), 1e-3) for a, b in zip(outputs, want)):
            kept.add(i)
    if not kept:
        raise ValueError("ONNX Runtime gives something else than the framework")
    return kept


def main(families, description):
    """families: {name: () -> the arguments of write() but out, name and exporter}."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("out", type=pathlib.Path, help="folder for float/*.onnx, their *.npz and index.json")
    parser.add_argument("names", nargs="*", help="families; all of them if none is named")
    parser.add_argument("--exporters", nargs="*", default=list(EXPORTERS), choices=EXPORTERS)
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    onnxruntime.set_default_logger_severity(4)
    args.out.mkdir(parents=True, exist_ok=True)
    index = args.out / "index.json"
    graphs = {g["name"]: g for g in json.loads(index.read_text())} if index.exists() else {}
    for family in args.names or families:
        for exporter in args.exporters:
            name = f"{family}.{exporter}"
            try:
                torch.manual_seed(7)
                arguments = families[family]()
                randomize(arguments["model"], 11)
                graphs[name] = write(args.out, name, exporter=exporter, **arguments)
                print(f"{name}: {graphs[name]['attention_cores']} cores, {graphs[name]['bytes']} bytes", flush=True)
            except Exception as error:  # a family that an exporter cannot write is no reason to stop
                where = traceback.extract_tb(error.__traceback__)[-1]
                print(f"{name}: not exported: {type(error).__name__}: {str(error)[:300]} ({where.filename}:{where.lineno})", flush=True)
            index.write_text(json.dumps(list(graphs.values()), indent=0))
