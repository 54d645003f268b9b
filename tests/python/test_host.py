"""The host process stays as it was: a second copy of the module, a fork after a Session, OpenMP's number of threads."""

import subprocess
import sys
import textwrap

from conftest import BERT

PRELUDE = f"""
import os, shutil, sys, tempfile
import numpy as np
import octavo
MODEL, arrays = {str(BERT)!r}, np.load({str(BERT.with_suffix(".npz"))!r})
INPUTS = {{k.split("/", 2)[2]: arrays[k] for k in arrays.files if k.startswith("0/in/")}}
"""


def run(script):
    """In a process of its own, which may not hang."""
    done = subprocess.run(
        [sys.executable, "-c", PRELUDE + textwrap.dedent(script)], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def test_two_copies_of_the_module_do_not_meet():
    assert run("""
        first = octavo
        folder = tempfile.mkdtemp()
        shutil.copytree(os.path.dirname(first.__file__), os.path.join(folder, "octavo"))
        for name in [n for n in sys.modules if n.split(".")[0] == "octavo"]:
            del sys.modules[name]
        sys.path.insert(0, folder)
        import octavo as second
        assert second.__file__ != first.__file__
        one, other = first.Session(MODEL, threads=2), second.Session(MODEL, threads=2)
        for a, b in zip(one.run(INPUTS), other.run(INPUTS)):
            assert np.array_equal(a, b)
        for module in (first, second):
            try:
                module.Session("no such file.onnx")
            except (first.OctavoError, second.OctavoError):
                print("refused")
        del one, other
        print("end")
    """) == ["refused", "refused", "end"]


def test_a_fork_after_a_session_computes():
    assert run("""
        session = octavo.Session(MODEL, threads=2)
        want = session.run(INPUTS)
        for own in (False, True):
            child = os.fork()
            if child == 0:
                here = octavo.Session(MODEL, threads=2) if own else session
                same = all(np.array_equal(a, b) for a, b in zip(here.run(INPUTS), want))
                sys.exit(0 if same else 1)  # by way of what the libraries do at the end of a process
            print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
        print(all(np.array_equal(a, b) for a, b in zip(session.run(INPUTS), want)))
    """) == ["0", "0", "True"]
