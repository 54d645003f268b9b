"""Options come from one table (api/options.cc): the stub file and docs/recipes.md say what it says, and Python and the program take what it has."""

import ast
import inspect
import re
import subprocess
import sys

import pytest
from conftest import BERT, SOURCE

import octavo
from octavo import _options


def test_stub_and_page_are_written_from_the_table():
    done = subprocess.run([sys.executable, SOURCE / "api/write_options.py", "--check"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_stub_has_what_there_is():
    """Names, and the signatures of functions and methods; mypy.stubtest says more."""
    tree = ast.parse((SOURCE / "python_bindings/octavo/__init__.pyi").read_text())
    stub = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef) and not node.name.startswith("_")}
    values = {node.target.id for node in tree.body if isinstance(node, ast.AnnAssign)}
    assert {*stub, *values} == set(octavo.__all__)
    listed = next(node.value for node in tree.body if isinstance(node, ast.Assign) and node.targets[0].id == "__all__")
    assert set(ast.literal_eval(listed)) == set(octavo.__all__)
    for name, node in stub.items():
        if isinstance(node, ast.FunctionDef):
            compare_with_stub(name, node, getattr(octavo, name))
            continue
        seen = set()
        for member in (m for m in node.body if isinstance(m, ast.FunctionDef)):
            function = inspect.getattr_static(getattr(octavo, name), member.name, None)
            assert function is not None, f"{name}.{member.name}"
            if member.name not in seen and inspect.isfunction(function) and not member.name.startswith("__"):
                compare_with_stub(f"{name}.{member.name}", member, function)
            seen.add(member.name)


def compare_with_stub(name, node, function):
    a = node.args
    of_stub = [one.arg for one in (*a.posonlyargs, *a.args, a.vararg, *a.kwonlyargs, a.kwarg) if one is not None]
    there = list(inspect.signature(function).parameters)
    assert of_stub == there or there[-2:] == ["args", "kwargs"], name  # so pybind11 calls the rest
    told = ast.get_docstring(node)
    if told:
        assert inspect.getdoc(function).split() == told.split(), name
    else:
        assert "(self" not in (function.__doc__ or ""), name


def test_help_lists_every_option(run):
    words = re.findall(r"--[a-z-]+", run("optimize", "--help").stdout)
    assert {option["flag"] for option in _options.OPTIONS.values()} <= set(words)


def test_signature_and_help_of_python():
    parameters = inspect.signature(octavo.optimize).parameters
    assert {"model", *_options.OPTIONS, *_options.OWN} == set(parameters)
    assert list(parameters)[:4] == ["model", "recipe", "calibration", "calibrator"] and parameters["fit"].default is True
    assert "min_db: decibels that every output keeps against the model as it was on held_out samples of calibration" in octavo.optimize.__doc__
    assert "{" not in re.sub(r'{"[^}]*}', "", octavo.optimize.__doc__)


@pytest.mark.parametrize(
    "arguments, sentence",
    [
        ({"reduce_range": 1}, "reduce_range takes True or False, not int"),
        ({"keep_float": "encoder"}, "keep_float takes a list of str, not str"),
        ({"dynamic": [3]}, "dynamic takes a list of str, not int"),
        ({"min_db": "25"}, "min_db takes a number or None, not str"),
        ({"threads": 1.5}, "threads takes a whole number, not float"),
        ({"recipe": None}, "recipe takes a str, not NoneType"),
        ({"progress": 3}, "progress takes a function or None, not int"),
        ({"max_memory": "4GB"}, "max_memory takes a whole number or None, not str"),
        ({"bits": "5"}, "bits takes a number or None, not str"),
        ({"bit": 4}, "got an unexpected keyword argument 'bit'"),
    ],
)
def test_types_are_checked(arguments, sentence):
    with pytest.raises(TypeError, match=re.escape(sentence)):
        octavo.optimize(BERT, **arguments)


def test_options_of_passes_are_set():
    small, large = (len(octavo.optimize(BERT, "weights4", set={"weights4.block": block}).model) for block in (64, 16))
    assert small < large
    pipeline = octavo.Pipeline.of(octavo.optimize(BERT, "weights4", set={"weights4.block": 64}).model)
    assert pipeline.options == {"weights4": {"block": 64}}
    with pytest.raises(octavo.OctavoError, match="set takes PASS.OPTION=VALUE, as in weights4.block=64, not 'block=64'"):
        octavo.optimize(BERT, "weights4", set={"block": 64})
    with pytest.raises(octavo.OctavoError, match="weights5"):
        octavo.optimize(BERT, "weights4", set={"weights5.block": 64})


def test_sentences_call_options_by_their_flags(run):
    def said(*more):
        return run("optimize", BERT, "-o", "o.onnx", *more).stderr

    assert "octavo: --keep-float: no Linear, attention core or table is called 'keep_float'" in said("--calib", "random:2", "--keep-float", "keep_float")
    assert "octavo: --dynamic: no Linear is called 'x'" in said("--calib", "random:2", "--dynamic", "x")
    assert "octavo: --assume: the model has no input 'split_if'" in said("--recipe", "float", "--assume", "split_if=1")
    assert "becomes a constant by --assume" in said("--recipe", "float", "--split-if", "input_ids")
    assert "octavo: --bits: there are no weights of 4 bits; leave it out, or use the recipes dynamic4 and weights4" in said("--calib", "random:2", "--bits", "5")
    assert "octavo: --bits takes a number from 4 to 8, not '9'" in said("--recipe", "dynamic4", "--bits", "9")
    assert "octavo: --min-db runs batches of calibration data" in said("--recipe", "dynamic", "--min-db", "20")
