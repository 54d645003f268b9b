"""What a person does with an installed wheel. Run by the Python of a fresh environment, far from the sources; the argument is tests/data.

usage: PYTHON use_installed.py DATA
"""

import pathlib
import subprocess
import sys
import tempfile

import numpy as np

import octavo


def run(*words):
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.returncode == 0, f"{words} ended with {done.returncode}: {done.stderr}"
    return done.stdout


def main():
    data = pathlib.Path(sys.argv[1])
    model = data / "float" / "bert.ts17.sdpa.onnx"
    program = (sys.executable, "-m", "octavo")
    script = pathlib.Path(sys.prefix) / "bin" / "octavo"
    version = run(*program, "--version").strip()
    assert version.startswith(f"octavo {octavo.__version__}") and run(script, "--version").strip() == version, version
    assert "input_ids" in run(*program, "inspect", model)
    with tempfile.TemporaryDirectory() as folder:
        int8, report = pathlib.Path(folder) / "int8.onnx", pathlib.Path(folder) / "report.html"
        run(*program, "optimize", model, "-o", int8, "--calib", "random:8", "--report", report)
        assert report.stat().st_size > 1000 and int8.stat().st_size > 1000
        rng = np.random.default_rng(5)
        batch = {"input_ids": rng.integers(0, 60, (2, 7)), "attention_mask": np.ones((2, 7), np.int64), "token_type_ids": np.zeros((2, 7), np.int64)}
        outputs = []
        for path in (model, int8):
            session = octavo.Session(str(path), threads=2)
            outputs.append(session.run({name: batch[name] for name, _ in session.inputs})[0])
        cosine = np.sum(outputs[0] * outputs[1]) / np.linalg.norm(outputs[0]) / np.linalg.norm(outputs[1])
        assert cosine > 0.99, f"int8 and float outputs have a cosine of {cosine}"
        assert len(octavo.optimize(str(model), recipe="float").model) > 1000
    assert pathlib.Path(octavo.onnxruntime_library()).exists()
    python = ".".join(map(str, sys.version_info[:3]))
    print(f"installed: {version}, Python {python}, numpy {np.__version__}: program, script, module, cosine of int8 {cosine:.5f}")


if __name__ == "__main__":
    main()
