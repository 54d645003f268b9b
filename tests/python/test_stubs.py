"""The stub files say what the module is, by mypy's stubtest."""

import os
import subprocess
import sys

import octavo
import pytest

pytest.importorskip("mypy", reason="no mypy here: ./dev venv types installs it")


def test_stubs_are_what_the_module_is(tmp_path):
    # What octavo imports where it is there (onnxruntime, openvino, torch) has no types; nor has its compiled part, which the stub files are of.
    (tmp_path / "mypy.ini").write_text("[mypy]\nignore_missing_imports = True\n")
    command = [sys.executable, "-m", "mypy.stubtest", "octavo", "--concise", "--ignore-missing-stub", "--mypy-config-file", "mypy.ini"]
    path = os.path.dirname(os.path.dirname(octavo.__file__))
    done = subprocess.run(command, cwd=tmp_path, env=os.environ | {"MYPYPATH": path}, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
