"""Runs what rows of docs/compare.md say of other tools, on a small BERT: python benchmarks/compare/rows.py [--tool NAME ...] [--row N ...]

In a Python that has the tools (pip install onnxruntime onnxslim nncf optimum-onnx olive-ai; a tool that lacks is said and left out). One line for each row and
tool: what came out, or how it refused. What a row says of packages' pages and sources is not run here.
"""

import argparse
import collections
import importlib.metadata
import inspect
import json
import logging
import os
import pathlib
import subprocess
import sys
import tempfile
import warnings

import numpy as np
import onnx

BERT = pathlib.Path(__file__).resolve().parents[2] / "tests/data/float/bert.ts17.sdpa.onnx"
PACKAGES = {"onnxruntime": "onnxruntime", "optimum": "optimum-onnx", "nncf": "nncf", "olive": "olive-ai", "onnxslim": "onnxslim"}
CHECKS = []
FOLDER = None  # for files, made anew for each check


def row(number, tool):
    def add(check):
        CHECKS.append((number, tool, check))
        return check

    return add


def batches(count=4):
    random = np.random.default_rng(0)
    for _ in range(count):
        yield {"input_ids": random.integers(0, 50, (2, 16)), "attention_mask": np.ones((2, 16), np.int64)}


def ops(model):
    model = model if isinstance(model, onnx.ModelProto) else onnx.load(model)
    return len(model.graph.node), dict(collections.Counter(node.op_type for node in model.graph.node).most_common(6))


# --- ONNX Runtime's tools ---


def reader():
    from onnxruntime.quantization import CalibrationDataReader

    class Reader(CalibrationDataReader):
        def __init__(self):
            self.data = list(batches())

        def get_next(self):
            return self.data.pop() if self.data else None

    return Reader()


def static(**options):
    from onnxruntime.quantization import quantize_static

    quantize_static(str(BERT), str(FOLDER / "q.onnx"), reader(), **options)
    return FOLDER / "q.onnx"


@row(4, "onnxruntime")
def simplified():
    from onnxruntime.transformers import optimizer

    return ops(optimizer.optimize_model(str(BERT), model_type="bert").model)


row(5, "onnxruntime")(lambda: ops(static()))


@row(6, "onnxruntime")
def at_run_time():
    from onnxruntime.quantization import quantize_dynamic

    quantize_dynamic(str(BERT), str(FOLDER / "q.onnx"))
    return ops(FOLDER / "q.onnx")


def by_bits(bits, algorithm=None, block=32):
    from onnxruntime.quantization.matmul_nbits_quantizer import MatMulNBitsQuantizer

    quantizer = MatMulNBitsQuantizer(onnx.load(BERT), bits=bits, block_size=block, algo_config=algorithm)
    quantizer.process()
    return ops(quantizer.model.model)


for width in (8, 4, 3, 2):
    row(7, "onnxruntime")(lambda width=width: (f"{width} bits", by_bits(width)))


@row(8, "onnxruntime")
def fp8():
    from onnxruntime.quantization import CalibrationMethod, QuantType

    made = static(activation_type=QuantType.QFLOAT8E4M3FN, weight_type=QuantType.QFLOAT8E4M3FN, calibrate_method=CalibrationMethod.Distribution)
    import onnxruntime

    onnxruntime.InferenceSession(str(made)).run(None, next(batches()))
    return ops(made), "and runs"


@row(9, "onnxruntime")
def ranges():
    from onnxruntime.quantization import CalibrationMethod

    done = {}
    for method in CalibrationMethod:
        try:
            done[method.name] = ops(static(calibrate_method=method))[0]
        except Exception as error:
            done[method.name] = f"{type(error).__name__}: {str(error)[:60]}"
    return done


@row(12, "onnxruntime")
def gptq():
    from onnxruntime.quantization.matmul_nbits_quantizer import GPTQWeightOnlyQuantConfig

    config = GPTQWeightOnlyQuantConfig(calibration_data_reader=reader(), block_size=16)
    return "GPTQ", by_bits(4, config, block=16)


row(12, "onnxruntime")(lambda: ("SmoothQuant", ops(static(extra_options={"SmoothQuant": True}))))


@row(13, "onnxruntime")
def excluded():
    first = next(node.name for node in onnx.load(BERT).graph.node if node.op_type == "MatMul")
    return ops(static())[0], "nodes,", ops(static(nodes_to_exclude=[first]))[0], f"with {first} left out"


@row(15, "onnxruntime")
def errors_of_tensors():
    from onnxruntime.quantization import qdq_loss_debug as debug

    made = static()
    debug.modify_model_output_intermediate_tensors(str(BERT), str(FOLDER / "a.onnx"))
    debug.modify_model_output_intermediate_tensors(str(made), str(FOLDER / "b.onnx"))
    pairs = debug.create_activation_matching(*(debug.collect_activations(str(FOLDER / f"{n}.onnx"), reader()) for n in ("b", "a")))
    return len(debug.compute_activation_error(pairs)), "tensors with an error, in no order"


# --- OnnxSlim ---


@row(4, "onnxslim")
def slim():
    import onnxslim

    return ops(onnxslim.slim(str(BERT)))


@row(16, "onnxslim")
def counts():
    done = subprocess.run([pathlib.Path(sys.executable).with_name("onnxslim"), str(BERT), str(FOLDER / "s.onnx")], capture_output=True, text=True)
    return [line for line in (done.stdout + done.stderr).splitlines() if "MatMul" in line] or done.stderr[-300:]


@row(18, "onnxslim")
def own_pattern():
    from onnxslim.core.pattern import registry

    return [name for name in dir(registry) if "register" in name]


# --- NNCF, on the ONNX file ---


def dataset():
    import nncf

    return nncf.Dataset(list(batches()))


def compress(**options):
    import nncf

    return ops(nncf.compress_weights(onnx.load(BERT), **options))


@row(5, "nncf")
def nncf_int8():
    import nncf

    return ops(nncf.quantize(onnx.load(BERT), dataset(), model_type=nncf.ModelType.TRANSFORMER))


def modes():
    import nncf

    return list(nncf.CompressWeightsMode)


@row(7, "nncf")
def nncf_bits():
    done = {}
    for mode in modes():
        try:
            done[mode.value] = compress(mode=mode, **({} if "int8" in mode.value else {"group_size": 32, "ratio": 1.0}))[0]
        except Exception as error:
            done[mode.value] = f"{type(error).__name__}: {str(error)[:70]}"
    return done


@row(7, "nncf")
def nncf_bits_of_openvino():
    import nncf
    import openvino

    done = {}
    for mode in modes():
        try:
            nncf.compress_weights(openvino.Core().read_model(BERT), mode=mode, **({} if "int8" in mode.value else {"group_size": 32, "ratio": 1.0}))
            done[mode.value] = "made"
        except Exception as error:
            done[mode.value] = f"{type(error).__name__}: {str(error)[:70]}"
    return "in OpenVINO's form", done


@row(8, "nncf")
def nncf_fp8():
    import nncf
    import openvino
    from onnx import version_converter

    forms = {"as it is": onnx.load(BERT), "opset 21": version_converter.convert_version(onnx.load(BERT), 21), "in OpenVINO's form": openvino.Core().read_model(BERT)}
    done = {}
    for mode in nncf.QuantizationMode:
        for form, model in forms.items():
            try:
                nncf.quantize(model, dataset(), mode=mode, model_type=nncf.ModelType.TRANSFORMER)
                done[mode.value, form] = "made"
            except Exception as error:
                done[mode.value, form] = f"{type(error).__name__}: {str(error)[:70]}"
    return done


@row(12, "nncf")
def nncf_fits():
    import nncf

    done = {}
    for name in ("awq", "scale_estimation", "gptq", "lora_correction"):
        try:
            done[name] = compress(mode=nncf.CompressWeightsMode.INT4_SYM, group_size=32, ratio=1.0, dataset=dataset(), **{name: True})[0]
        except Exception as error:
            done[name] = f"{type(error).__name__}: {str(error)[:70]}"
    return done


@row(13, "nncf")
def nncf_scope():
    import nncf

    first = next(node.name for node in onnx.load(BERT).graph.node if node.op_type == "MatMul")
    return ops(nncf.quantize(onnx.load(BERT), dataset(), model_type=nncf.ModelType.TRANSFORMER, ignored_scope=nncf.IgnoredScope(names=[first])))[0]


@row(14, "nncf")
def nncf_accuracy():
    import nncf
    import onnxruntime

    want = [onnxruntime.InferenceSession(str(BERT)).run(None, batch)[0] for batch in batches()]

    def validate(model, _):
        session = onnxruntime.InferenceSession(model.SerializeToString())
        return 1 - float(np.mean([np.abs(session.run(None, batch)[0] - w).mean() for batch, w in zip(batches(), want)])), None

    made = nncf.quantize_with_accuracy_control(onnx.load(BERT), dataset(), dataset(), validation_fn=validate, max_drop=0.02, model_type=nncf.ModelType.TRANSFORMER)
    return ops(made)[0]


# --- optimum, on a BERT that it exports itself ---


def folder_of_bert():
    import torch
    import transformers

    torch.manual_seed(0)
    size = {"vocab_size": 64, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64, "max_position_embeddings": 64}
    transformers.BertModel(transformers.BertConfig(**size)).save_pretrained(FOLDER / "model")
    (FOLDER / "vocab.txt").write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefghijklmnopqrstuvwxyz"]))
    transformers.BertTokenizer(str(FOLDER / "vocab.txt")).save_pretrained(FOLDER / "model")
    return FOLDER / "model"


def command(*words):
    done = subprocess.run([pathlib.Path(sys.executable).with_name(words[0]), *map(str, words[1:])], capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError((done.stderr.strip().splitlines() or ["no words"])[-1])


def exported():
    command("optimum-cli", "export", "onnx", "--model", folder_of_bert(), "--task", "feature-extraction", FOLDER / "onnx")
    return FOLDER / "onnx"


row(2, "optimum")(lambda: ops(exported() / "model.onnx"))


@row(4, "optimum")
def optimum_simplified():
    command("optimum-cli", "onnxruntime", "optimize", "--onnx_model", exported(), "-O2", "-o", FOLDER / "o")
    return ops(next((FOLDER / "o").glob("*.onnx")))


def quantizer():
    from optimum.onnxruntime import ORTQuantizer

    return ORTQuantizer.from_pretrained(exported())


@row(5, "optimum")
def optimum_int8():
    import datasets
    from optimum.onnxruntime.configuration import AutoCalibrationConfig, AutoQuantizationConfig

    it = quantizer()
    columns = {"input_ids": [[5, 6, 7, 8]] * 8, "attention_mask": [[1] * 4] * 8, "token_type_ids": [[0] * 4] * 8}
    data = datasets.Dataset.from_dict(columns)
    config = AutoQuantizationConfig.avx512_vnni(is_static=True, per_channel=False)
    ranges_found = it.fit(dataset=data, calibration_config=AutoCalibrationConfig.minmax(data), operators_to_quantize=config.operators_to_quantize)
    it.quantize(config, FOLDER / "q", calibration_tensors_range=ranges_found)
    return ops(next((FOLDER / "q").glob("*.onnx")))


@row(6, "optimum")
def optimum_dynamic():
    command("optimum-cli", "onnxruntime", "quantize", "--onnx_model", exported(), "--avx512_vnni", "-o", FOLDER / "q")
    return ops(next((FOLDER / "q").glob("*.onnx")))


@row(9, "optimum")
def optimum_ranges():
    from optimum.onnxruntime.configuration import AutoCalibrationConfig

    return [name for name, _ in inspect.getmembers(AutoCalibrationConfig, inspect.isfunction)]


@row(11, "optimum")
def optimum_shards():
    from optimum.onnxruntime import ORTQuantizer

    return [name for name in dir(ORTQuantizer) if not name.startswith("_")]


# --- Olive ---


@row(5, "olive")
def olive_int8():
    (FOLDER / "data.py").write_text("""
import sys
sys.path.insert(0, %r)
from rows import batches
from olive.data.registry import Registry

@Registry.register_dataset()
def own(data_dir=None, **_):
    return [(b, 0) for b in batches()]
""" % str(pathlib.Path(__file__).parent))
    config = {
        "input_model": {"type": "OnnxModel", "model_path": str(BERT)},
        "data_configs": [{"name": "d", "user_script": str(FOLDER / "data.py"), "load_dataset_config": {"type": "own"},
                          "pre_process_data_config": {"type": "skip_pre_process"}, "dataloader_config": {"type": "no_auto_batch_dataloader"}}],
        "passes": {"q": {"type": "OnnxStaticQuantization", "data_config": "d"}},
        "output_dir": str(FOLDER / "out"), "cache_dir": str(FOLDER / "cache"),
    }
    return olive(config)


def olive(config):
    (FOLDER / "config.json").write_text(json.dumps(config))
    command("olive", "run", "--config", FOLDER / "config.json")
    return [ops(path) for path in sorted((FOLDER / "out").rglob("*.onnx"))]


def olive_pass(**settings):
    return olive({"input_model": {"type": "OnnxModel", "model_path": str(BERT)}, "passes": {"p": settings}, "output_dir": str(FOLDER / "out"), "cache_dir": str(FOLDER / "cache")})


row(4, "olive")(lambda: ("peephole", olive_pass(type="OnnxPeepholeOptimizer")))
row(4, "olive")(lambda: ("transformers", olive_pass(type="OrtTransformersOptimization", model_type="bert")))
row(6, "olive")(lambda: olive_pass(type="OnnxDynamicQuantization"))
for width in (8, 4, 2):
    row(7, "olive")(lambda width=width: (f"{width} bits", olive_pass(type="OnnxBlockWiseRtnQuantization", bits=width)))


@row(12, "olive")
def olive_fits():
    with open(pathlib.Path(__import__("olive").__file__).parent / "olive_config.json") as file:
        return [name for name in json.load(file)["passes"] if any(word in name.lower() for word in ("gptq", "awq", "quarot", "spin", "smooth"))]


def version(tool):
    try:
        return importlib.metadata.version(PACKAGES[tool])
    except importlib.metadata.PackageNotFoundError:
        return None


def main():
    global FOLDER
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tool", nargs="*", choices=PACKAGES, default=list(PACKAGES))
    parser.add_argument("--row", nargs="*", type=int)
    chosen = parser.parse_args()
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    for tool in chosen.tool:
        if version(tool) is None:
            print(f"{tool}: not installed here", flush=True)
    for number, tool, check in CHECKS:
        if tool not in chosen.tool or version(tool) is None or (chosen.row and number not in chosen.row):
            continue
        with tempfile.TemporaryDirectory() as folder:
            FOLDER = pathlib.Path(folder)
            try:
                told = check()
            except Exception as error:
                told = f"refused: {type(error).__name__}: {str(error).splitlines()[0][:160] if str(error) else ''}"
        print(f"{number} | {tool} {version(tool)} | {told}", flush=True)


if __name__ == "__main__":
    main()
