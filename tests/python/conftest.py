"""What the Python tests share: the committed models, batches for them, and the command line as a user calls it."""

import json
import os
import pathlib
import shutil
import signal
import subprocess

import numpy as np
import pytest

SOURCE = pathlib.Path(__file__).resolve().parents[2]
# A shell's background jobs ignore Ctrl-C and so would the programs that the tests start and interrupt.
signal.signal(signal.SIGINT, signal.default_int_handler)

BERT = SOURCE / "tests" / "data" / "float" / "bert.ts17.sdpa.onnx"


def batch(seed, rows=2, length=7):
    rng = np.random.default_rng(seed)
    mask = np.ones((rows, length), np.int64)
    mask[0, length - 2 :] = 0
    return {
        "input_ids": rng.integers(0, 60, (rows, length)).astype(np.int64),
        "attention_mask": mask,
        "token_type_ids": np.zeros((rows, length), np.int64),
    }


def inputs_of(session, arrays):
    return {name: arrays[name] for name, _ in session.inputs}


@pytest.fixture(scope="session")
def octavo_program():
    program = shutil.which("octavo")
    assert program, "the octavo program is not on PATH; run these tests through ./dev test"
    return program


@pytest.fixture
def run(octavo_program, tmp_path):
    """run("optimize", ...) in an empty folder; returns the completed process."""

    def call(*args):
        return subprocess.run(
            [octavo_program, *map(str, args)], cwd=tmp_path, capture_output=True, text=True, timeout=300, env=os.environ
        )

    return call


@pytest.fixture
def calib(tmp_path):
    """A folder of three batches for BERT, only the inputs the model has."""
    import octavo

    session = octavo.Session(BERT, threads=1)
    folder = tmp_path / "calib"
    folder.mkdir()
    for seed in range(3):
        np.savez(folder / f"{seed}.npz", **inputs_of(session, batch(seed)))
    return folder


def read_json(path):
    return json.loads(pathlib.Path(path).read_text())
