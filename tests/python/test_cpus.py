"""OCTAVO_CPUS and OCTAVO_NUMA_NODE bind octavo's threads and no other."""

import os
import pathlib
import subprocess
import sys

import numpy as np
import octavo
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


def nodes():
    folder = pathlib.Path("/sys/devices/system/node")
    if not (folder / "online").exists():
        pytest.skip("no nodes of memory")
    return (folder / "online").read_text().strip(), (folder / "node0" / "cpulist").read_text().strip()


def test_a_node_of_memory_has_the_threads(octavo_program):
    online, cpus = nodes()
    count, main, others = threads(OCTAVO_NUMA_NODE="0", ASKED="0")
    free = threads()
    assert main == free[1] and count <= free[0]
    single = {str(cpu) for cpu in os.sched_getaffinity(0)}
    assert count == 1 or set(others) & single, (cpus, others)
    assert octavo.Session(BERT, numa_node=0).threads == count
    with pytest.raises(octavo.OctavoError, match=rf"there is no node of memory 700; this machine has {online}"):
        octavo.Session(BERT, numa_node=700)
    feed = {name: np.ones((2, 8), np.int64) for name in ("input_ids", "attention_mask")}
    assert all(np.array_equal(a, b) for a, b in zip(octavo.Session(BERT, numa_node=0).run(feed), octavo.Session(BERT).run(feed)))


def test_a_node_that_is_not_there_is_told(octavo_program):
    online, _ = nodes()
    for wrong, told in (("700", f"OCTAVO_NUMA_NODE: there is no node of memory 700; this machine has {online}; threads and memory are on any"),
                        ("left", "OCTAVO_NUMA_NODE: a node of memory is a number such as 0, not 'left'")):
        done = subprocess.run([octavo_program, "inspect", "--cpu"], env=os.environ | {"OCTAVO_NUMA_NODE": wrong}, capture_output=True, text=True)
        assert done.returncode == 0 and told in done.stderr, done.stderr
