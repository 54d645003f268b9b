"""What wrong command lines are told: one sentence with what was written, why it is wrong and what is right."""

import json
import re

import octavo
import pytest
from conftest import BERT, SOURCE


@pytest.mark.parametrize("words, sentence", [
    ([], "octavo needs a command: optimize, run, bench"),
    (["optimze", "m.onnx"], "there is no command 'optimze'; did you mean optimize?; there are: optimize, run"),
    (["--nope"], "octavo has no option '--nope'; octavo --help lists those that there are"),
    (["optimize"], "octavo optimize needs IN.onnx (ONNX model); octavo optimize --help has an example"),
    (["optimize", "m.onnx"], "octavo optimize needs --output OUT.onnx; octavo optimize --help has an example"),
    (["optimize", "m.onnx", "-o", "o.onnx", "--recpie", "int8"], "octavo optimize has no option '--recpie'; did you mean --recipe?; octavo optimize --help"),
    (["optimize", "m.onnx", "--outptu", "o.onnx"], "octavo optimize has no option '--outptu'; did you mean --output?"),
    (["optimize", "m.onnx", "m.onnx", "-o", "o.onnx"], "'m.onnx' is one word too many for octavo optimize"),
    (["optimize", "m.onnx", "-o", "o.onnx", "--recipe"], "--recipe needs a value: float, int8, fp8, dynamic, dynamic4, weights4, weights8 or quantized"),
    (["optimize", "m.onnx", "-o", "o.onnx", "--recipe", "int9"], "--recipe takes float, int8, fp8, dynamic, dynamic4, weights4, weights8 or quantized, not 'int9'"),
    (["optimize", "m.onnx", "-o", "o.onnx", "--min-db", "abc"], "--min-db takes a number from 0 to 200, not 'abc'"),
    (["optimize", "m.onnx", "-o", "o.onnx", "--min-cosine", "nan"], "--min-cosine takes a number from 0 to 1, not 'nan'"),
    (["optimize", "m.onnx", "-o", "o.onnx", "--threads", "1.5"], "--threads takes a whole number from 0 to 1024, not '1.5'"),
    (["optimize", "m.onnx", "-o", "o.onnx", "--max-memory", "many"], "--max-memory takes a number of bytes, as 512MB or 4GB"),
    (["bench", "m.onnx", "--seconds", "-1"], "--seconds takes a number above 0, not '-1'"),
    (["bench", "m.onnx", "--threads", "1,x"], "--threads takes a whole number from 0 to 1024, not 'x'"),
    (["completion", "tcsh"], "shell takes bash, zsh or fish, not 'tcsh'"),
    (["optimize", "m.onnx", "-o", "o.onnx", "--calib-text", "t.txt"], "--calib-text is of octavo's package for Python alone: python3 -m octavo optimize --help"),
    (["generate", "m.onnx"], "generate is of octavo's package for Python alone: python3 -m octavo generate --help"),
])
def test_a_wrong_command_line_is_one_sentence(run, words, sentence):
    done = run(*words)
    assert done.returncode == 2 and done.stdout == ""
    assert done.stderr.startswith("octavo: " + sentence) and done.stderr.count("\n") == 1, done.stderr


def test_options_of_passes_that_are_none_are_wrong_usage(run):
    for setting, sentence in (("nope", "set takes PASS.OPTION=VALUE"), ("nope.x=1", "there is no pass 'nope'"), ("choose_rows.dbx=2", "the pass choose_rows has no option 'dbx'; it has db")):
        done = run("optimize", BERT, "-o", "o.onnx", "--calib", "random:2", "--set", setting)
        assert done.returncode == 2 and sentence in done.stderr, done.stderr


def test_explain_knows_the_node(run):
    assert "no node of the model has 'nope' in its name" in run("explain", BERT, "--node", "nope").stderr
    with pytest.raises(octavo.OctavoError, match="no node of the model has 'nope' in its name"):
        octavo.explain(BERT, node="nope")
    with pytest.raises(octavo.OctavoError, match="there is no rule 'nope': "):
        octavo.explain(BERT, rule="nope")


def test_the_program_knows_what_python_adds():
    from octavo import _completion

    added = json.loads(_completion.also())
    words = {name for name in added if "what" in added[name]} | {option["flags"] for name in ("optimize", "calibrate", "bench") for option in added[name]["options"]}
    source = (SOURCE / "cli" / "usage.cc").read_text()
    assert set(re.findall(r'"([\w-]+)"', source[source.index("kOfPython[]"):source.index("};")])) == words
