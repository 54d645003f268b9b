#!/usr/bin/env python3
"""One token and prompts of a Llama of random weights: octavo beside llama.cpp, ONNX Runtime and OpenVINO, in turns in one run.

    ./dev bench llm                         22 layers of 2048 (1.1 B parameters), one and two threads: 10 GB of disk
    ./dev bench llm --layers 6 --threads 1  smaller
    ./dev bench llm --moe --layers 2        8 experts, two of them for each token, beside a model of one FFN as large as all of them together;
                                            9 layers are 8 x 0.3 B parameters, of which a token takes what it takes of 2: times go by layers
    OCTAVO_ARCH=avx2 ./dev bench llm --llama-bench PATH/OF/AN/AVX2/BUILD/llama-bench

Files are made once in --folder. Weights are random, so this is about speed alone. A system that cannot be had is left out, and says so.
"""

import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import time

import graphs
import numpy as np

TASKS = {"token at 512": (512, 1), "prompt of 128": (0, 128), "prompt of 512": (0, 512), "token at 8192": (8192, 1)}


def ids(count, vocabulary):
    return np.random.default_rng(count).integers(0, vocabulary, (1, count))


def feeds(names, before, ids_):
    """What the graphs want besides caches."""
    rows = ids_.shape[1]
    every = {"input_ids": ids_, "attention_mask": np.ones((1, before + rows), np.int64), "position_ids": np.arange(before, before + rows)[None],
             "logits_to_keep": np.array(1)}
    return {name: value for name, value in every.items() if name in names}


def progress(done, steps, seconds, what):
    left = f", about {seconds / done * (steps - done):.0f} s left" if done else ""
    print(f"[{done + 1}/{steps}] {what}: {seconds:.0f} s passed{left}", file=sys.stderr, flush=True)


def timed(run):
    start = time.perf_counter()
    run()
    return (time.perf_counter() - start) * 1e3


class Octavo:
    """Logits of the last token alone, as octavo.Generator and llama.cpp make them; of all with whole=True, as ONNX Runtime and OpenVINO make them."""

    def __init__(self, path, shape, threads, cache=None, whole=False):
        import octavo

        self.session, self.shape, self.cache = octavo.Session(str(path), threads=threads, logits_to_keep=not whole), shape, cache
        self.names = [p.name for p in self.session.inputs]

    def times(self, past, rows, count):
        v, out = self.shape.vocabulary, []
        longest = self.shape.longest if "total" not in str(self.session.outputs) else past + rows * count + 1
        state = self.session.state(longest, cache=self.cache)
        for begin in range(0, past, 512):
            self.session.run(feeds(self.names, begin, ids(512, v)), ["logits"], state=state)
        for i in range(count):
            if past == 0:
                state.reset()
            at = past + (i * rows if past else 0)
            out.append(timed(lambda at=at: self.session.run(feeds(self.names, at, ids(rows, v)), ["logits"], state=state)))
        return out


class OnnxRuntime:
    """Caches lie where they are, as onnxruntime-genai has them: one buffer is past and present."""

    def __init__(self, path, shape, threads):
        import onnxruntime as ort

        options = ort.SessionOptions()
        options.intra_op_num_threads = threads
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        self.session, self.shape, self.ort = ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"]), shape, ort
        self.names = [p.name for p in self.session.get_inputs()]
        size = (1, shape.kv_heads, shape.longest, shape.size)
        self.caches = {n: ort.OrtValue.ortvalue_from_numpy(np.zeros(size, np.float32)) for n in self.names if n.startswith("past")}

    def step(self, before, rows):
        binding = self.session.io_binding()
        for name, value in feeds(self.names, before, ids(rows, self.shape.vocabulary)).items():
            binding.bind_cpu_input(name, value)
        for name, value in self.caches.items():
            binding.bind_ortvalue_input(name, value)
            binding.bind_ortvalue_output(name.replace("past_key_values", "present"), value)
        binding.bind_output("logits")
        return timed(lambda: self.session.run_with_iobinding(binding))

    def times(self, past, rows, count):
        for begin in range(0, past, 512):
            self.step(begin, 512)
        return [self.step(past + (i * rows if past else 0), rows) for i in range(count)]


class OpenVino:
    """Weights of 4 bits by NNCF (groups of 128, symmetric), caches as inputs."""

    def __init__(self, path, shape, threads):
        import nncf
        import openvino

        file, core = path.with_suffix(".openvino.xml"), openvino.Core()
        if not file.exists():
            openvino.save_model(nncf.compress_weights(core.read_model(path), mode=nncf.CompressWeightsMode.INT4_SYM, group_size=128, ratio=1.0), file)
        config = {"INFERENCE_NUM_THREADS": threads, "PERFORMANCE_HINT": "LATENCY"}
        self.request, self.shape = core.compile_model(file, "CPU", config).create_infer_request(), shape
        self.names = [n for port in self.request.model_inputs for n in port.names]
        self.present = [n for port in self.request.model_outputs for n in port.names if n.startswith("present")]

    def times(self, past, rows, count):
        s, out, random = self.shape, [], np.random.default_rng(0)
        for i in range(count):
            length = past + (i * rows if past else 0)
            caches = {n: random.standard_normal((1, s.kv_heads, length, s.size), dtype=np.float32) for n in self.names if n.startswith("past")}
            inputs = {**feeds(self.names, length, ids(rows, s.vocabulary)), **caches}
            out.append(timed(lambda inputs=inputs: self.request.infer(inputs, share_inputs=True, share_outputs=True)))
        return out


class LlamaCpp:
    def __init__(self, path, shape, threads, program):
        self.command = [str(program), "-m", str(path), "-t", str(threads), "-o", "json", "-fa", "1"]

    def times(self, past, rows, count):
        what = ["-p", "0", "-n", str(count), "-d", str(past), "-r", "1"] if past else ["-p", str(rows), "-n", "0", "-r", str(count)]
        if past > 4096:
            what += ["-ctk", "q8_0", "-ctv", "q8_0"]
        done = subprocess.run(self.command + what, capture_output=True, text=True, check=True)
        result = json.loads(done.stdout)[0]
        return [1e3 * rows / speed for speed in result["samples_ts"]]


def files(folder, shape, wanted=("export", "genai", "gguf")):
    """Each file by its name, made where it is not there yet; those of octavo's recipes also where an octavo built since would make another."""
    import octavo

    built = max(file.stat().st_mtime for file in pathlib.Path(octavo.__file__).parent.glob("*.so"))

    folder.mkdir(parents=True, exist_ok=True)
    weights = graphs.Weights(shape)
    made = {"export": folder / "export.onnx", "genai": folder / "genai.onnx", "gguf": folder / "model.gguf"}
    for name, write in (("export", graphs.write_export), ("genai", graphs.write_genai), ("gguf", graphs.write_gguf)):
        if name in wanted and not made[name].exists():
            print(f"writing {made[name]}", flush=True)
            write(made[name], shape, weights)
    for recipe in ("dynamic4", "dynamic"):
        made[recipe] = folder / f"{recipe}.onnx"
        if not made[recipe].exists() or made[recipe].stat().st_mtime < built:
            print(f"writing {made[recipe]}", flush=True)
            octavo.optimize(str(made["export"]), recipe, max_memory=64 << 30).save(str(made[recipe]))
    return made


def llamas(args):
    shape = graphs.Shape(layers=args.layers)
    made = files(args.folder / f"{args.layers}-layers", shape)
    return {
        "octavo dynamic4": lambda t: Octavo(made["dynamic4"], shape, t),
        "octavo dynamic4, int8 caches": lambda t: Octavo(made["dynamic4"], shape, t, "int8"),
        "octavo dynamic": lambda t: Octavo(made["dynamic"], shape, t),
        "octavo dynamic4, all logits": lambda t: Octavo(made["dynamic4"], shape, t, whole=True),
        "octavo dynamic, all logits": lambda t: Octavo(made["dynamic"], shape, t, whole=True),
        "octavo, genai's form": lambda t: Octavo(made["genai"], shape, t),
        "llama.cpp Q4_0": lambda t: LlamaCpp(made["gguf"], shape, t, args.llama_bench),
        "ONNX Runtime, genai's form": lambda t: OnnxRuntime(made["genai"], shape, t),
        "OpenVINO int4": lambda t: OpenVino(made["export"], shape, t),
    }


def mixtures(args):
    systems = {}
    plain = graphs.Shape(layers=args.layers)
    for name, shape in (("", graphs.Shape(layers=args.layers, experts=8)), (", dense", graphs.Shape(layers=args.layers, ffn=8 * plain.ffn))):
        made = files(args.folder / f"{args.layers}-layers-{'dense' if name else 'moe'}", shape, ("export", "gguf"))
        systems |= {
            f"octavo dynamic4{name}": lambda t, made=made, shape=shape: Octavo(made["dynamic4"], shape, t),
            f"octavo dynamic{name}": lambda t, made=made, shape=shape: Octavo(made["dynamic"], shape, t),
            f"llama.cpp Q4_0{name}": lambda t, made=made, shape=shape: LlamaCpp(made["gguf"], shape, t, args.llama_bench),
        }
    return systems


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=pathlib.Path, required=True)
    parser.add_argument("--layers", type=int, default=22)
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--tokens", type=int, default=16, help="runs of one token in a round")
    parser.add_argument("--llama-bench", type=pathlib.Path, help="llama.cpp's program")
    parser.add_argument("--only", nargs="+", help="systems whose name has one of these words")
    parser.add_argument("--tasks", nargs="+", default=list(TASKS), choices=list(TASKS))
    parser.add_argument("--moe", action="store_true", help="a mixture of 8 experts beside a dense model of its size")
    args = parser.parse_args()
    systems = (mixtures if args.moe else llamas)(args)
    wanted = [n for n in systems if not args.only or any(word in n for word in args.only)]
    for threads in args.threads:
        times = {name: {task: [] for task in args.tasks} for name in wanted}
        ready = {}
        for name in wanted:
            try:
                ready[name] = systems[name](threads)
            except Exception as e:  # noqa: BLE001: whatever a peer lacks
                print(f"{name}: left out ({e})", flush=True)
        steps, done, start = (args.rounds + 1) * len(args.tasks) * len(ready), 0, time.perf_counter()
        for round_ in range(args.rounds + 1):  # the first one warms up
            for task in args.tasks:
                past, rows = TASKS[task]
                for name, system in ready.items():
                    progress(done, steps, time.perf_counter() - start, f"{task}, {name}")
                    done += 1
                    time.sleep(0.1)
                    try:
                        got = system.times(past, rows, args.tokens if past else 3)
                    except Exception as e:  # noqa: BLE001
                        print(f"{name}, {task}: {e}", flush=True)
                        continue
                    times[name][task] += got if round_ > 0 else []
        print(f"\n{args.layers} layers, {threads} thread{'s' if threads > 1 else ''}, ms, medians (and of llama.cpp's time)")
        print("| |", " | ".join(args.tasks), "|\n|---|" + "---|" * len(args.tasks))
        for name in ready:
            cells = []
            for task in args.tasks:
                own, theirs = times[name][task], times.get("llama.cpp Q4_0", {}).get(task)
                ratio = f" ({statistics.median(own) / statistics.median(theirs):.2f})" if own and theirs else ""
                cells.append(f"{statistics.median(own):.1f}{ratio}" if own else "-")
            print(f"| {name} |", " | ".join(cells), "|", flush=True)
        del ready


if __name__ == "__main__":
    main()
