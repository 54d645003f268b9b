"""What a file tells of how it was made: version with the commit, data, calibrator, fit, loss, hashes."""

import hashlib
import json
import re
import shutil

import numpy as np
import octavo
import onnx
import pytest
from conftest import BERT, batch, inputs_of


def told(path_or_bytes):
    model = onnx.load_from_string(path_or_bytes) if isinstance(path_or_bytes, bytes) else onnx.load(path_or_bytes)
    return {p.key: p.value for p in model.metadata_props if p.key.startswith("octavo.") and p.key != "octavo.pipeline"}


def data_in(folder):
    folder.mkdir()
    session = octavo.Session(BERT, threads=1)
    for i in range(9):
        np.savez(folder / f"{i}.npz", **inputs_of(session, batch(i)))
    return folder


def test_the_command_line_tells_where_a_file_comes_from(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shutil.copy(BERT, "m.onnx")
    data = data_in(tmp_path / "batches")
    done = run("optimize", "m.onnx", "-o", "a.onnx", "--calib", "batches", "--calibrator", "minmax", "--record")
    assert done.returncode == 0, done.stderr
    made = told("a.onnx")
    assert made["octavo.version"] == run("--version").stdout.strip().removeprefix("octavo ")
    assert made["octavo.data"] == "16 of 18 samples in 9 batches from 'batches'" and made["octavo.calibrator"] == "minmax" and made["octavo.fit"] == "yes"
    loss = re.fullmatch(r"hidden (\d+\.\d) dB; 2 samples held out of calibration", made["octavo.loss"])
    assert loss and f"'hidden' {loss[1]} dB" in done.stdout
    model = hashlib.sha256((tmp_path / "m.onnx").read_bytes()).hexdigest()
    seen = hashlib.sha256(b"".join(path.read_bytes() for path in sorted(data.iterdir()))).hexdigest()
    assert made["octavo.sha256"] == f"{model} the model that is read\n{seen} the calibration data"
    again = run("optimize", "m.onnx", "-o", "b.onnx", "--calib", "batches", "--calibrator", "minmax", "--record")
    assert again.returncode == 0 and (tmp_path / "a.onnx").read_bytes() == (tmp_path / "b.onnx").read_bytes()
    # A file that is optimized further tells of the last time alone.
    assert run("optimize", "a.onnx", "-o", "c.onnx", "--recipe", "float").returncode == 0
    assert told("c.onnx").keys() == {"octavo.version"}


def test_without_the_option_a_file_tells_what_is_the_same_however_it_was_made(run, tmp_path):
    data = data_in(tmp_path / "batches")
    assert run("optimize", BERT, "-o", "a.onnx", "--calib", data).returncode == 0
    made = told(tmp_path / "a.onnx")
    ids = json.loads(made.pop("octavo.ids"))
    assert ids["input_ids"][0] >= 0 and ids["input_ids"][0] < ids["input_ids"][1]
    assert made == {"octavo.version": made["octavo.version"], "octavo.calibrator": "mse", "octavo.fit": "yes"}
    session = octavo.Session(BERT, threads=1)
    of_arrays = octavo.optimize(BERT.read_bytes(), calibration=[inputs_of(session, batch(i)) for i in range(9)]).model
    assert of_arrays == (tmp_path / "a.onnx").read_bytes()
    made = told(octavo.optimize(BERT, calibration=data, fit=False, calibrator="entropy").model)
    assert made["octavo.fit"] == "no" and made["octavo.calibrator"] == "entropy"


def arrays_hash(batches):
    """Of each array its name, type and shape as a line, and its bytes."""
    names = {np.dtype(np.int64): "s64"}
    whole = hashlib.sha256()
    for one in batches:
        for name in sorted(one):
            whole.update(" ".join([name, names[one[name].dtype], *map(str, one[name].shape)]).encode() + b"\n" + one[name].tobytes())
    return whole.hexdigest()


def test_python_records_it_too(run, tmp_path):
    """Of a path what the command line writes, but for what it calls the model; of arrays and of bytes their own hashes."""
    data = data_in(tmp_path / "batches")
    assert run("optimize", BERT, "-o", "a.onnx", "--calib", data, "--record").returncode == 0
    of_program, of_path = told(tmp_path / "a.onnx"), told(octavo.optimize(BERT, calibration=data, record=True).model)
    assert of_path.pop("octavo.sha256") == of_program.pop("octavo.sha256").replace("that is read", "").replace(" \n", "\n")
    assert of_path == of_program and {"octavo.data", "octavo.loss"} <= set(of_path)
    session = octavo.Session(BERT, threads=1)
    batches = [inputs_of(session, batch(i)) for i in range(9)]
    model = hashlib.sha256(BERT.read_bytes()).hexdigest()
    for batches_given in (batches, iter(batches), (one for one in batches)):
        made = told(octavo.optimize(BERT.read_bytes(), calibration=batches_given, record=True).model)
        assert made["octavo.data"] == "16 of 18 samples in 9 batches from Python" and made["octavo.loss"] == of_path["octavo.loss"]
        assert made["octavo.sha256"] == f"{model} the model's bytes\n{arrays_hash(batches)} the calibration data's arrays"
    proto = onnx.load(BERT)
    ranges = octavo.calibrate(BERT, batches)
    made = told(octavo.optimize(proto, calibration=ranges, record=True).model)["octavo.sha256"]
    assert made == f"{hashlib.sha256(proto.SerializeToString()).hexdigest()} the model's bytes\n{hashlib.sha256(ranges).hexdigest()} the calibration's bytes"
    assert "octavo.sha256" not in told(octavo.optimize(octavo.Graph(BERT), recipe="float", record=True).model)  # it has neither file nor bytes
    assert "octavo.sha256" not in told(octavo.optimize(BERT, recipe="float").model)
    with pytest.raises(TypeError, match=r"optimize\(\): record takes True or False, not str"):
        octavo.optimize(BERT, recipe="float", record="yes")
