"""docs/compare.md: what its column of octavo names is there, and what it counts is counted."""

import re
import subprocess
import sys

import octavo
import onnx
from conftest import BERT, SOURCE, batch, inputs_of

PAGE = (SOURCE / "docs/compare.md").read_text()
ROWS = [[cell.strip() for cell in line.strip("|\n").split("|")] for line in PAGE.splitlines() if re.match(r"\| \d+\. ", line)]


def test_26_rows_say_something_of_each_tool():
    assert [row[0].split(".")[0] for row in ROWS] == [str(number) for number in range(1, 27)]
    assert all(len(row) == 8 and all(row) for row in ROWS)


def test_options_recipes_and_functions_are_there():
    ours = " ".join(row[1] for row in ROWS)
    words = set()
    for command in ("optimize", "calibrate", "explain"):
        words |= set(re.findall(r"--[a-z-]+", subprocess.run([sys.executable, "-m", "octavo", command, "--help"], capture_output=True, text=True, check=True).stdout))
    assert set(re.findall(r"(?<=`)(?:calibrate )?(--[a-z-]+)", ours)) <= words | {"--merge"}
    recipes = set(re.findall(r"`([a-z0-9]+)`", ours)) - {"explain"}
    assert recipes == {"float", "int8", "dynamic", "dynamic4", "weights4", "fp8", "quantized"}
    for recipe in recipes:
        octavo.Pipeline(recipe)
    import octavo.sentence_transformers as functions
    assert all(hasattr(functions, name) for name in re.findall(r"`octavo\.sentence_transformers\.(\w+)`", ours))


def test_the_graph_is_counted():
    before, after, pairs = (int(n) for n in re.search(r"(\d+) nodes as .*?\| octavo `int8` \| (\d+) \| (\d+) `QuantizedQkv`, \d+ `QuantizedSdpa`", PAGE, re.DOTALL).groups())
    session = octavo.Session(BERT, threads=1)
    nodes = onnx.load_from_string(octavo.optimize(BERT, calibration=[inputs_of(session, batch(seed)) for seed in range(3)]).model).graph.node
    assert (len(onnx.load(BERT).graph.node), len(nodes)) == (before, after)
    assert all(sum(node.op_type.startswith(op) for node in nodes) == pairs for op in ("QuantizedQkv", "QuantizedSdpa"))
