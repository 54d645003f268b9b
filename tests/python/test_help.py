"""--help of every command of `python -m octavo`: it fits a terminal, says defaults, and its examples can be pasted."""

import os
import re
import shlex
import subprocess
import sys

import pytest

COMMANDS = ["", "optimize", "run", "bench", "compare", "calibrate", "explain", "inspect", "print", "passes", "completion", "man", "generate", "perplexity", "tune"]


def told(command, columns=80):
    environment = {**os.environ, "COLUMNS": str(columns)}
    return subprocess.run([sys.executable, "-m", "octavo", *command.split(), "--help"], capture_output=True, text=True, env=environment, check=True).stdout


def test_every_command_is_here():
    listed = re.findall(r"^  ([a-z]+) ", told("").split("Subcommands:")[1].split("Example:")[0], re.MULTILINE)
    assert sorted(listed) == sorted(COMMANDS[1:])


@pytest.mark.parametrize("command", COMMANDS)
def test_help_fits(command):
    text = told(command)
    assert [line for line in text.splitlines() if len(line) > 80] == []
    assert text.replace("\\\n", "").split() == told(command, 140).replace("\\\n", "").split()


@pytest.mark.parametrize("command", COMMANDS)
def test_examples_can_be_pasted(command, tmp_path):
    """No word is wrong usage; the files are not there, so the work fails."""
    examples = re.split(r"Example.*:\n", told(command))[1].split("Exit codes")[0].split("\n\n")[0].replace("\\\n", "").splitlines()
    assert examples
    for line in examples:
        words = shlex.split(line.split(" | ")[0])
        if words[0] == "eval" or "--kernels" in words or words[1] == "man":
            continue
        assert words[0] == "octavo"
        done = subprocess.run([sys.executable, "-m", *words], cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode in (0, 1) and "usage" not in done.stderr, done.stderr


def test_defaults_are_told():
    text = re.sub(r"\n {10,}", " ", told("generate"))
    for flag, default in {"--max-tokens N": "128", "--seed N": "0", "--lookup N": "0", "--chunk N": "256", "--top-p P": "1.0"}.items():
        assert re.search(rf"^  {flag} .*\[{default}\]$", text, re.MULTILINE), flag
    assert "as 0.5% or 0.005 [1%]" in told("tune", 140) and re.search(r"--calib-tokens N .*\[128\]", told("optimize", 140))
