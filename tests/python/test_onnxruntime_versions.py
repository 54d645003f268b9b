"""The libraries for ONNX Runtime in the oldest version that they take, and in the newest: their tests, each in a process of its own."""

import os
import pathlib
import subprocess
import sys

import pytest
from conftest import SOURCE

FOLDERS = [pathlib.Path(folder) for folder in os.environ.get("OCTAVO_ONNXRUNTIMES", "").split(":") if folder]


@pytest.mark.skipif(not FOLDERS, reason="no ONNX Runtime here: ./dev test fetches two more versions")
@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
@pytest.mark.parametrize("tests", ["test_onnxruntime.py", "test_onnxruntime_ep.py"])
def test_in_another_version(folder, tests, tmp_path):
    path = os.pathsep.join([str(folder), *filter(None, [os.environ.get("PYTHONPATH")])])
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--basetemp", tmp_path / "t", SOURCE / "tests" / "python" / tests]
    told = subprocess.run([sys.executable, "-c", "import onnxruntime; print(onnxruntime.__version__)"], env=os.environ | {"PYTHONPATH": path}, capture_output=True, text=True)
    assert told.stdout.strip() == folder.name.removeprefix("onnxruntime-"), told.stderr
    done = subprocess.run(command, env=os.environ | {"PYTHONPATH": path}, capture_output=True, text=True, cwd=SOURCE)
    assert done.returncode == 0, done.stdout[-4000:]
    assert " passed" in done.stdout and " skipped" not in done.stdout
