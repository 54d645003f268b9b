"""The program on a terminal, and what it takes from the environment."""

import fcntl
import os
import pty
import re
import shutil
import signal
import struct
import subprocess
import sys
import termios

import octavo
import pytest
from conftest import BERT
from octavo import _commands as commands


def on_a_terminal(program, arguments, columns, folder, status=0, stdout=False, **environment):
    """What a terminal of so many columns gets on stderr, and on stdout."""
    main, side = pty.openpty()
    fcntl.ioctl(side, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    with subprocess.Popen([program, *map(str, arguments)], cwd=folder, stdout=side if stdout else subprocess.DEVNULL, stderr=side,
                          env={**os.environ, **environment}) as process:
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
    assert process.returncode == status, seen
    return seen.decode()


@pytest.mark.parametrize("columns", [20, 40, 80])
def test_progress_is_one_line_that_fits(octavo_program, tmp_path, calib, columns):
    seen = on_a_terminal(
        octavo_program, ["optimize", BERT, "-o", "o.onnx", "--calib", calib, "--layers"], columns, tmp_path)
    lines = [line.removeprefix("\x1b[K") for line in re.split(r"\r(?!\n)", seen) if "note:" not in line]
    drawn = [line for line in lines if line.strip()]
    assert drawn and all(len(line) < columns and "\n" not in line for line in drawn), drawn
    assert any(re.fullmatch(r"1\. calibrate (\[[#.]+\] )?3/3.*", line) for line in drawn), drawn
    assert lines[-1] == ""  # it clears what it drew


@pytest.mark.parametrize("command", ["run", "bench"])
def test_progress_of_packed_weights(octavo_program, tmp_path, calib, command):
    octavo.optimize(BERT, "dynamic").save(tmp_path / "o.onnx")
    words = [command, "o.onnx", "--inputs", calib / "0.npz", "--packed", *(["--seconds", "0.01"] if command == "bench" else [])]
    first, second = (on_a_terminal(octavo_program, words, 80, tmp_path) for _ in range(2))
    assert re.search(r"write packed weights, MB (\[[#.]+\] )?1/1", first), first
    assert first.endswith("\r\x1b[K") and "packed" not in second


@pytest.mark.parametrize("columns", [72, 80, 200])
def test_tables_fit(octavo_program, tmp_path, calib, columns):
    """Names lose their middle, reasons are wrapped; what no terminal shows stays whole."""
    arguments = ["optimize", BERT, "-o", "o.onnx", "--calib", calib, "--layers", "--keep-float", "*layer.1*"]
    seen = on_a_terminal(octavo_program, arguments, columns, tmp_path, stdout=True, NO_COLOR="1")
    table = re.search(r"what +source node.*?\r\n\r\n", seen, re.S)[0]
    assert all(len(line) <= columns for line in table.split("\r\n")), table
    assert ("…" in table) == (columns < 200) and "stays float" in table
    piped = subprocess.run([octavo_program, *map(str, arguments)], cwd=tmp_path, capture_output=True, text=True, check=True).stdout
    assert "…" not in piped and max(map(len, piped.split("\n"))) > 80


@pytest.mark.parametrize("words", ["compare m.onnx int8.onnx --data calib --per-layer", "inspect m.onnx", "inspect --cpu",
                                   "bench m.onnx --shape input_ids=1x4,3x6 --seconds 0.01 --threads 1"])
def test_tables_of_every_command_fit(octavo_program, tmp_path, calib, words):
    shutil.copy(BERT, tmp_path / "m.onnx")
    if "int8" in words:
        subprocess.run([octavo_program, *"optimize m.onnx -o int8.onnx --calib calib -q".split()], cwd=tmp_path, check=True)
    seen = on_a_terminal(octavo_program, words.split(), 80, tmp_path, stdout=True, NO_COLOR="1")
    lines = [line.removeprefix("\x1b[K") for line in re.split("[\r\n]+", seen)]
    assert max(map(len, lines)) <= 80, "\n".join(line for line in lines if len(line) > 80)


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


def test_colours_where_a_terminal_has_them(octavo_program, tmp_path, run):
    optimize = ["optimize", BERT, "-o", "o.onnx", "--recipe", "float"]
    plain = run(*optimize).stdout
    assert "\x1b" not in plain and " left " in plain and " fused " in plain
    seen = on_a_terminal(octavo_program, optimize, 200, tmp_path, stdout=True, TERM="xterm", NO_COLOR="")
    assert "\x1b[32mfused\x1b[0m" in seen and "\x1b[31mleft\x1b[0m" in seen and "\x1b[1mwhat\x1b[0m" in seen
    clean = [re.sub(r"\x1b\[\d*[mK]", "", line) for line in seen.split("\r\n")]
    assert all(line in clean for line in plain.splitlines() if not re.search(r"\d s$", line))  # aligned as without
    for environment in ({"TERM": "dumb", "NO_COLOR": ""}, {"TERM": "xterm", "NO_COLOR": "1"}):
        seen = on_a_terminal(octavo_program, optimize, 200, tmp_path, stdout=True, **environment)
        assert "fused" in seen and not re.search(r"\x1b\[\d+m", seen)
    failed = on_a_terminal(octavo_program, ["inspect", "none.onnx"], 80, tmp_path, status=1, TERM="xterm", NO_COLOR="")
    assert failed.startswith("\x1b[31moctavo:\x1b[0m ")


@pytest.mark.parametrize("words", [["--help"], ["bench", "--help"], ["generate", "--help"], ["tune", "--help"], ["optimize", "--help"], ["inspect", str(BERT), "--json"]], ids=lambda words: words[0])
def test_a_reader_that_has_seen_enough_is_no_error(words):
    """As `octavo bench --help | head -n 1`: nothing is told, and the status is that of a program which the signal ended."""
    reads, writes = os.pipe()
    os.close(reads)
    done = subprocess.run([sys.executable, "-m", "octavo", *words], stdout=writes, stderr=subprocess.PIPE, text=True)
    os.close(writes)
    assert done.stderr == "" and done.returncode in (128 + signal.SIGPIPE, -signal.SIGPIPE), (done.returncode, done.stderr)


def test_progress_of_python_commands_tells_what_is_left(monkeypatch, capsys):
    clock = iter([0.0, 1.0, 5.0, 9.0])
    monkeypatch.setattr(commands.time, "monotonic", lambda: next(clock))
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    with commands._progress() as tell:
        for done in (0, 1, 2):
            tell("plans", done, 3)
    lines = capsys.readouterr().err.split("\r\033[K")
    assert lines == ["", "1. plans 0/3, 1 s", "1. plans 1/3, 5 s, 4.0 s each, about 8 s left", "1. plans 2/3, 9 s, 4.0 s each, about 4 s left", ""]
