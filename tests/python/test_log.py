"""octavo.set_log and OCTAVO_LOG: silent unless asked, and then what somebody wants to know who looks after a deployment."""

import logging
import os
import subprocess
import sys
import threading

import numpy as np
import octavo
import pytest
from conftest import BERT

FEED = {"input_ids": np.ones((1, 8), np.int64), "attention_mask": np.ones((1, 8), np.int64)}


@pytest.fixture
def lines():
    told = []
    yield told
    octavo.set_log("off")


def test_lines_go_to_logging_at_its_levels(caplog, lines):
    caplog.set_level(logging.DEBUG, logger="octavo")
    octavo.set_log("debug")
    octavo.Session(BERT, threads=2).run(FEED)
    assert {record.name for record in caplog.records} == {"octavo"}
    info = [record.getMessage() for record in caplog.records if record.levelno == logging.INFO]
    assert any("is compiled: path" in line and "threads 2 (as asked for)" in line for line in info), info
    debug = [record.getMessage() for record in caplog.records if record.levelno == logging.DEBUG]
    assert any("memory is planned for input_ids [1,8], attention_mask [1,8]: " in line for line in debug), debug
    before = len(caplog.records)
    octavo.set_log("off")
    octavo.Session(BERT, threads=1).run(FEED)
    assert len(caplog.records) == before


def test_packed_weights_say_why_they_are_made_anew(tmp_path, lines):
    file = tmp_path / "packed"
    model = octavo.optimize(BERT, recipe="dynamic").model
    octavo.set_log("info", lambda level, text: lines.append((level, text)))
    for damage in (False, False, True):
        if damage:
            file.write_bytes(file.read_bytes()[:-1])
        octavo.Session(model, packed=file)
    told = [text for level, text in lines if "packed weights" in text]
    assert [" 0 taken" in text for text in told] == [True, False, False, True], told
    assert told[2] == f"packed weights in '{file}' are not taken: it is damaged"


def test_shapes_that_are_dropped_are_told(lines):
    octavo.set_log("info", lambda level, text: lines.append(text))
    session = octavo.Session(BERT, threads=1)
    for rows in range(1, 66):
        session.run({name: np.ones((rows, 1), np.int64) for name in FEED})
    assert sum("64 shapes of inputs are planned" in line for line in lines) == 1


def test_notes_of_optimize_are_warnings(lines):
    octavo.set_log("warning", lambda level, text: lines.append((level, text)))
    with pytest.warns(UserWarning, match="random"):
        octavo.optimize(BERT, calibration="random:2")
    assert any(level == "warning" and "random" in text for level, text in lines)


def test_a_callback_that_raises_does_no_harm(lines, monkeypatch):
    shown = []
    monkeypatch.setattr(sys, "unraisablehook", lambda what: shown.append(str(what.exc_value)))

    def wrong(level, text):
        lines.append(text)
        raise ValueError("of the user")

    octavo.set_log("debug", wrong)
    octavo.Session(BERT, threads=1).run(FEED)
    assert len(lines) >= 2 and shown == ["of the user"] * len(lines)


def test_threads_of_python_may_tell_at_once(lines):
    octavo.set_log("debug", lambda level, text: lines.append(threading.get_ident()))
    session = octavo.Session(BERT, threads=2)
    def work(start):
        for length in range(start, start + 8):
            session.run({name: np.ones((1, length), np.int64) for name in FEED})
    threads = [threading.Thread(target=work, args=(1 + 8 * i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for i in range(100):
        octavo.set_log("debug", lambda level, text: lines.append(threading.get_ident()))
    for thread in threads:
        thread.join(60)
    assert not any(thread.is_alive() for thread in threads)
    assert {thread.ident for thread in threads} <= set(lines)


def test_wrong_levels_are_refused():
    with pytest.raises(octavo.OctavoError, match="level is 'off', 'warning', 'info' or 'debug', not 'loud'"):
        octavo.set_log("loud")


RUN = f"import octavo; octavo.Session({str(BERT)!r})"


@pytest.mark.parametrize(("variables", "told"), [
    ({}, ""),
    ({"OCTAVO_LOG": "info", "OCTAVO_NUM_THREADS": "3"}, "threads 3 (OCTAVO_NUM_THREADS)"),
    ({"OCTAVO_LOG": "info", "OCTAVO_CPUS": str(min(os.sched_getaffinity(0)))}, "threads 1 (OCTAVO_CPUS)"),
    ({"OCTAVO_LOG": "warning", "OCTAVO_NUM_THREADS": "many"}, "octavo: warning: OCTAVO_NUM_THREADS is a number from 1 to 1024, not 'many'"),
    ({"OCTAVO_LOG": "loud"}, "octavo: OCTAVO_LOG is off, warning, info or debug, not 'loud'"),
])
def test_the_variable_writes_to_stderr(variables, told):
    clean = {name: value for name, value in os.environ.items() if not name.startswith("OCTAVO_")}
    done = subprocess.run([sys.executable, "-c", RUN], env=clean | variables, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0 and told in done.stderr and done.stdout == "", done.stderr
    if not told:
        assert done.stderr == ""
