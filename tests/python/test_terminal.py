"""The program on a terminal, and what it takes from the environment."""

import fcntl
import os
import pty
import re
import struct
import subprocess
import termios

import pytest
from conftest import BERT


def on_a_terminal(program, arguments, columns, folder):
    """What a terminal of so many columns gets on stderr."""
    main, side = pty.openpty()
    fcntl.ioctl(side, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    with subprocess.Popen([program, *map(str, arguments)], cwd=folder, stdout=subprocess.DEVNULL, stderr=side) as process:
        os.close(side)
        seen = b""
        while True:
            try:
                part = os.read(main, 65536)
            except OSError:  # the last writer is gone
                break
            if not part:
                break
            seen += part
    os.close(main)
    assert process.returncode == 0, seen
    return seen.decode()


@pytest.mark.parametrize("columns", [20, 40, 80])
def test_progress_is_one_line_that_fits(octavo_program, tmp_path, calib, columns):
    seen = on_a_terminal(
        octavo_program, ["optimize", BERT, "-o", "o.onnx", "--calib", calib, "--layers"], columns, tmp_path)
    lines = [line.removeprefix("\x1b[K") for line in re.split(r"\r(?!\n)", seen) if "note:" not in line]
    drawn = [line for line in lines if line.strip()]
    assert drawn and all(len(line) < columns and "\n" not in line for line in drawn), drawn
    assert any(re.fullmatch(r"calibrate (\[[#.]+\] )?3/3.*", line) for line in drawn), drawn
    assert lines[-1] == ""  # it clears what it drew


def test_the_environment_says_how_many_threads(octavo_program):
    def bench(threads, *more):
        environment = {**os.environ, "OCTAVO_NUM_THREADS": threads}
        arguments = [octavo_program, "bench", BERT, "--seconds", "0.01", "--format", "csv", *more]
        return subprocess.run(arguments, capture_output=True, text=True, env=environment, check=True)

    def used(done):
        return int(re.search(r"\"?,(\d+),\d+,", done.stdout.splitlines()[1])[1])

    assert used(bench("3")) == 3
    assert used(bench("3", "--threads", "2")) == 2  # who says a number gets it
    wrong = bench("many")
    assert "OCTAVO_NUM_THREADS is a number from 1 to 1024, not 'many'" in wrong.stderr and used(wrong) >= 1


@pytest.mark.parametrize("columns", [60, 80, 120])
@pytest.mark.parametrize("command", [[], ["optimize"], ["bench"]])
def test_help_is_wrapped_at_words(octavo_program, columns, command):
    def told(width):
        environment = {**os.environ, "COLUMNS": str(width)}
        return subprocess.run([octavo_program, *command, "--help"], capture_output=True, text=True, env=environment, check=True).stdout

    def lists(text):
        return text[text.index("ptions:") : text.index("Example:")]

    lines = [line for line in lists(told(columns)).splitlines() if not line.startswith("  -")]  # but for what is no description
    assert max(map(len, lines)) <= columns, lines
    assert len(lists(told(columns)).splitlines()) > len(lists(told(140)).splitlines())
    assert lists(told(columns)).split() == lists(told(140)).split()
    assert "\n  -h,--help " in told(columns)


def test_help_fits_the_terminal(octavo_program, tmp_path):
    main, side = pty.openpty()
    fcntl.ioctl(side, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 72, 0, 0))
    with subprocess.Popen([octavo_program, "passes", "--help"], cwd=tmp_path, stdout=side) as process:
        os.close(side)
        seen = b""
        while part := read(main):
            seen += part
    os.close(main)
    lines = seen.decode().replace("\r", "").splitlines()
    assert process.returncode == 0 and 60 < max(map(len, lines)) <= 72, lines


def read(file):
    """What has come, empty at the end."""
    try:
        return os.read(file, 65536)
    except OSError:  # the last writer is gone
        return b""
