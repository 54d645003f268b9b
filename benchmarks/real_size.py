#!/usr/bin/env python3
"""BERT-base, ViT-base, GPT-2 and a small Llama as torch exports them: octavo's int8 beside ONNX Runtime and OpenVINO (NNCF).
gpt2_step and llama_step generate one token: caches of 512 tokens go in, those of 513 come out.

Weights are random, so this is about speed alone. Needs torch, transformers and onnxruntime in the Python that runs it; openvino and
nncf where they shall be compared. octavo runs as its program (--octavo), the others here; they take turns, a second each.
"""

import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import time
import warnings

import numpy as np

TOKENS, PAST, SEED = 128, 512, 0
CACHES = {"gpt2_step": (12, 12), "llama_step": (8, 4)}  # layers, heads of 64 each


def ids(vocabulary, seed):
    return np.random.default_rng(seed).integers(0, vocabulary, (1, TOKENS))


def inputs_of(name, seed=SEED):
    if name == "vit":
        return {"pixel_values": np.random.default_rng(seed).standard_normal((1, 3, 224, 224), dtype=np.float32)}
    if name == "bert":
        return {"input_ids": ids(30000, seed), "attention_mask": np.ones((1, TOKENS), np.int64)}
    if name in CACHES:
        layers, heads = CACHES[name]
        random = np.random.default_rng(seed)
        caches = {f"past.{i}.{kind}": random.standard_normal((1, heads, PAST, 64), dtype=np.float32)
                  for i in range(layers) for kind in ("key", "value")}
        return {"input_ids": ids(30000, seed)[:, :1], "attention_mask": np.ones((1, PAST + 1), np.int64), **caches}
    return {"input_ids": ids(30000, seed)}


def model_of(name):
    import transformers as t

    if name == "bert":
        return t.BertModel(t.BertConfig(), add_pooling_layer=False), "last_hidden_state"
    if name == "vit":
        return t.ViTModel(t.ViTConfig(), add_pooling_layer=False), "last_hidden_state"
    if name.startswith("gpt2"):
        return t.GPT2LMHeadModel(t.GPT2Config(use_cache=name in CACHES)), "logits"
    llama = t.LlamaConfig(hidden_size=1024, intermediate_size=2816, num_hidden_layers=8, num_attention_heads=16,
                          num_key_value_heads=4, vocab_size=32000, use_cache=name in CACHES)
    return t.LlamaForCausalLM(llama), "logits"


def export(name, path):
    import torch

    torch.manual_seed(SEED)
    model, output = model_of(name)

    class One(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.model = model.eval()

        def forward(self, *args):
            return getattr(self.model(**dict(zip(inputs_of(name), args))), output)

    class Step(One):
        def forward(self, input_ids, attention_mask, *caches):
            from transformers import DynamicCache

            past = DynamicCache(list(zip(caches[::2], caches[1::2])))
            result = self.model(input_ids=input_ids, attention_mask=attention_mask, past_key_values=past, use_cache=True)
            return result.logits, *(t for layer in result.past_key_values.layers for t in (layer.keys, layer.values))

    args = tuple(torch.from_numpy(v) for v in inputs_of(name).values())
    names, outputs, shapes = list(inputs_of(name)), ["y"], None
    if name in CACHES:
        outputs += [n.replace("past", "present") for n in names[2:]]
        any_size = torch.export.Dim.DYNAMIC
        shapes = ({1: any_size}, {1: any_size}, tuple({2: any_size} for _ in names[2:]))
        # A dim of 1 is taken for a constant.
        args = (args[0].expand(1, 2).contiguous(), torch.ones(1, PAST + 2, dtype=torch.long), *args[2:])
    torch.onnx.export((Step() if name in CACHES else One()).eval(), args, str(path), input_names=names, output_names=outputs,
                      opset_version=18, dynamo=True, external_data=False, verbose=False, dynamic_shapes=shapes)


def timed(run, seconds):
    """Milliseconds of the runs within so many seconds."""
    times, end = [], time.perf_counter() + seconds
    while not times or time.perf_counter() < end:
        start = time.perf_counter()
        run()
        times.append((time.perf_counter() - start) * 1e3)
    return times


def onnxruntime_system(path, inputs, threads):
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    session.run(None, inputs)
    return lambda seconds: timed(lambda: session.run(None, inputs), seconds)


def openvino_system(name, path, folder, inputs, threads):
    import nncf
    import openvino

    core, quantized = openvino.Core(), folder / f"{name}.openvino.xml"
    if not quantized.exists():
        data = nncf.Dataset([inputs_of(name, seed) for seed in range(2)])
        openvino.save_model(nncf.quantize(core.read_model(path), data, model_type=nncf.ModelType.TRANSFORMER,
                                          preset=nncf.QuantizationPreset.MIXED), quantized)
    request = core.compile_model(quantized, "CPU", {"INFERENCE_NUM_THREADS": threads,
                                                    "PERFORMANCE_HINT": "LATENCY"}).create_infer_request()
    request.infer(inputs)
    return lambda seconds: timed(lambda: request.infer(inputs), seconds)


def octavo_system(program, path, arrays, threads):
    def run(seconds):
        done = subprocess.run([*program, "bench", str(path), "--inputs", str(arrays), "--threads", str(threads), "--seconds",
                               str(seconds), "--json"], check=True, capture_output=True, text=True)
        return [json.loads(done.stdout)["results"][0]["median_ms"]]
    return run


def measure(name, arguments):
    folder = arguments.folder
    path, int8, arrays = folder / f"{name}.onnx", folder / f"{name}.octavo.onnx", folder / f"{name}.npz"
    if not path.exists():
        export(name, path)
    inputs = inputs_of(name)
    np.savez(arrays, **inputs)
    if not int8.exists():
        subprocess.run([*arguments.octavo, "optimize", str(path), "-o", str(int8), "--calib", str(arrays), "-q"], check=True)
    dynamic = folder / f"{name}.dynamic.onnx"
    if not dynamic.exists():
        from onnxruntime.quantization import QuantType, quantize_dynamic
        quantize_dynamic(str(path), str(dynamic), weight_type=QuantType.QInt8, per_channel=True)
    systems = {"ONNX Runtime fp32": onnxruntime_system(path, inputs, arguments.threads),
               "ONNX Runtime dynamic int8": onnxruntime_system(dynamic, inputs, arguments.threads),
               "octavo fp32": octavo_system(arguments.octavo, path, arrays, arguments.threads),
               "octavo, that dynamic file": octavo_system(arguments.octavo, dynamic, arrays, arguments.threads),
               "octavo int8": octavo_system(arguments.octavo, int8, arrays, arguments.threads)}
    try:
        systems["OpenVINO int8"] = openvino_system(name, path, folder, inputs, arguments.threads)
    except ImportError as error:
        print(f"without OpenVINO: {error}", file=sys.stderr)
    times = {system: [] for system in systems}
    for _ in range(arguments.rounds):
        for system, run in systems.items():
            times[system] += run(1)
    return {system: statistics.median(t) for system, t in times.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", default=["bert", "vit", "gpt2", "llama", *CACHES],
                        help="of bert, vit, gpt2, llama, gpt2_step, llama_step; all")
    parser.add_argument("--octavo", nargs="+", default=["./dev", "octavo"], help="how to call octavo's program")
    parser.add_argument("--folder", type=pathlib.Path, required=True, help="for the models, 6 GB; kept for the next run")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--json", type=pathlib.Path, help="write the medians in ms here")
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    warnings.simplefilter("ignore")
    results = {}
    for name in arguments.models:
        results[name] = measure(name, arguments)
        base = results[name]["ONNX Runtime fp32"]
        print(f"{name}, batch 1, {arguments.threads} threads")
        for system, ms in results[name].items():
            print(f"  {system:28} {ms:8.1f} ms  {base / ms:5.2f}x", flush=True)
    if arguments.json:
        arguments.json.write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
