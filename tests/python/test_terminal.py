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
