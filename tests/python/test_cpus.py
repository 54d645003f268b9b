"""OCTAVO_CPUS binds octavo's threads and no other."""

import os
import subprocess
import sys

import pytest
from conftest import BERT

CODE = f"""
import os, re, pathlib
import numpy as np, octavo
session = octavo.Session({str(BERT)!r}, threads=int(os.environ.get("ASKED", "0")))
feed = {{"input_ids": np.ones((8, 64), np.int64), "attention_mask": np.ones((8, 64), np.int64)}}
for _ in range(20): session.run(feed)
of = lambda task: re.search(r"Cpus_allowed_list:\\s*(\\S+)", (task / "status").read_text())[1]
tasks = {{task.name: of(task) for task in pathlib.Path("/proc/self/task").iterdir()}}
main = tasks.pop(str(os.getpid()))
print(session.threads, main, *sorted(tasks.values()))
"""


def threads(**environment):
    done = subprocess.run([sys.executable, "-c", CODE], env=os.environ | environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    count, main, *others = done.stdout.split()
    return int(count), main, others


def test_threads_are_bound_to_the_cpus_that_are_named():
    cpus = sorted(os.sched_getaffinity(0))
    if len(cpus) < 2:
        pytest.skip("one CPU")
    free = threads(ASKED="2")
    assert free[0] == 2 and set(free[2]) <= {free[1]}
    count, main, others = threads(ASKED="2", OCTAVO_CPUS=f"{cpus[1]}")
    assert count == 2 and main == free[1] and str(cpus[1]) in others and set(others) <= {str(cpus[1]), main}
    assert threads(OCTAVO_CPUS=f"{cpus[0]},{cpus[1]}")[0] == 2 and threads(OCTAVO_CPUS=f"{cpus[1]}")[0] == 1


def test_what_names_no_cpu_is_told(octavo_program):
    for wrong, told in (("all", "OCTAVO_CPUS is a list such as 0-3,8, not 'all'"), ("1023", "OCTAVO_CPUS names no CPU that this process may run on: 1023")):
        done = subprocess.run([octavo_program, "inspect", "--cpu"], env=os.environ | {"OCTAVO_CPUS": wrong}, capture_output=True, text=True)
        assert done.returncode == 0 and told in done.stderr, done.stderr
