"""octavo explain: every name that a report prints can be asked for."""

import json

from conftest import BERT, read_json


def test_a_rule_that_is_not_there_is_an_error_that_lists_them(run):
    done = run("explain", BERT, "--rule", "nosuch")
    assert done.returncode == 1 and "no rule 'nosuch'" in done.stderr and "quantized_sdpa" in done.stderr
    assert run("explain", BERT, "--rule", "quantized_sdpa").returncode == 0


def test_explain_knows_every_name_that_a_table_prints(run, calib, tmp_path):
    """Rules and passes alike: those that there are, and those that the reports of all recipes name."""
    passes = json.loads(run("passes", "--json").stdout)
    listed = run("explain", "--rule", "nosuch").stderr.split(": ")[-1].strip().split(", ")
    assert {p["name"] for p in passes["passes"]} < set(listed) and "sdpa" in listed
    for name in listed:
        done = run("explain", "--rule", name)
        assert done.returncode == 0 and name in done.stdout, done.stderr
    for recipe in passes["recipes"]:
        done = run("optimize", BERT, "-o", "out.onnx", "--recipe", recipe, "--calib", calib, "--json", "report.json")
        if done.returncode == 0:  # quantized is for other files
            named = {c["rule"] for c in read_json(tmp_path / "report.json")["candidates"]}
            assert named - {""} <= set(listed), recipe
    done = run("explain", BERT, "--rule", "qkv_float")
    assert done.returncode == 0 and done.stdout.count("fired at") == 2 and "projections" in done.stdout
