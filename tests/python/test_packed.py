"""Packed weights kept in a file: Session(packed=), Generator, and the flags of run, bench and generate."""

import pathlib
import subprocess
import sys
import types

import numpy as np
import octavo
import pytest
from conftest import BERT, batch, inputs_of
from octavo._commands import main
from test_generate import PROMPT, Letters, decoder

RECIPES = ["dynamic4", "dynamic", "weights4", "weights8", "int8", "fp8"]


def saved(path, recipe, model=BERT):
    calibration = {"calibration": "random:2"} if recipe in ("int8", "fp8") else {}
    octavo.optimize(model, recipe, **calibration).save(path)
    return path


def outputs(session):
    return session.run(inputs_of(session, batch(1)))


def same(a, b):
    return all(np.array_equal(x, y) for x, y in zip(a, b, strict=True))


@pytest.mark.parametrize("recipe", RECIPES)
def test_outputs_are_those_without_the_file(tmp_path, recipe):
    model = saved(tmp_path / "bert.onnx", recipe)
    plain, made, taken = octavo.Session(model), octavo.Session(model, packed=True), octavo.Session(model, packed=True)
    kept = tmp_path / "bert.octavo-packed"
    assert plain.packed is None and kept.exists()
    assert made.packed == {"file": str(kept), "taken": 0, "made": taken.packed["taken"]}
    assert taken.packed["taken"] > 4 and taken.packed["made"] == 0
    assert same(outputs(plain), outputs(made)) and same(outputs(plain), outputs(taken))
    # A model that was changed, of the same name: what it has anew is made anew.
    other = saved(tmp_path / "bert.onnx", "dynamic4" if recipe in ("dynamic", "int8") else "dynamic")
    changed = octavo.Session(other, packed=True)
    assert changed.packed["made"] > 0 and same(outputs(changed), outputs(octavo.Session(other)))
    assert same(outputs(plain), outputs(taken))  # the file that it maps was replaced, not changed


def test_a_file_that_is_damaged_is_written_anew(tmp_path):
    model, kept = saved(tmp_path / "bert.onnx", "dynamic4"), tmp_path / "kept"
    octavo.Session(model, packed=kept)
    right, expected = kept.read_bytes(), outputs(octavo.Session(model))

    def flipped(at):
        return right[:at] + bytes([right[at] ^ 1]) + right[at + 1 :]

    for wrong in (right[:4096], right[:-1], flipped(300), flipped(len(right) - 40), right + b"\0"):
        kept.write_bytes(wrong)
        session = octavo.Session(model, packed=kept)
        assert session.packed["made"] > 0 and same(outputs(session), expected)
        assert kept.read_bytes() == right
    assert octavo.Session(model, packed=str(kept)).packed["made"] == 0


def test_a_file_keeps_who_may_read_it(tmp_path):
    model, kept = saved(tmp_path / "bert.onnx", "dynamic"), tmp_path / "kept"
    octavo.Session(model, packed=kept)
    kept.chmod(0o600)
    kept.write_bytes(kept.read_bytes()[:-1])
    octavo.Session(model, packed=kept)
    assert kept.stat().st_mode & 0o777 == 0o600


def test_refusals_and_warnings(tmp_path):
    model = saved(tmp_path / "bert.onnx", "dynamic")
    before = model.read_bytes()
    with pytest.raises(octavo.OctavoError, match="bert.onnx' is no file of packed weights, so it is not written over; name another file, or remove it"):
        octavo.Session(model, packed=model)
    assert model.read_bytes() == before
    with pytest.raises(octavo.OctavoError, match="packed=True keeps packed weights beside the model's file, and this model is none; give packed a path"):
        octavo.Session(before, packed=True)
    with pytest.raises(octavo.OctavoError, match="packed takes True, a path or None, not int"):
        octavo.Session(model, packed=7)
    with pytest.raises(octavo.OctavoError, match="is not a regular file"):
        octavo.Session(model, packed=tmp_path)
    with pytest.warns(UserWarning, match="packed weights are not kept, so the next start packs them again: cannot write "):
        session = octavo.Session(model, packed=tmp_path / "none" / "kept")
    assert session.packed["made"] > 0 and same(outputs(session), outputs(octavo.Session(model)))
    assert octavo.Session(model, packed=False).packed is None
    assert octavo.Session(before, packed=tmp_path / "kept").packed["made"] > 0


def test_a_graph_and_bytes_take_the_file_of_one_another(tmp_path):
    model, kept = saved(tmp_path / "bert.onnx", "dynamic4"), tmp_path / "kept"
    count = octavo.Session(model, packed=kept).packed["made"]
    for form in (model.read_bytes(), octavo.Graph(model)):
        assert octavo.Session(form, packed=kept).packed == {"file": str(kept), "taken": count, "made": 0}


def test_the_program(tmp_path, run, calib):
    saved(tmp_path / "bert.onnx", "dynamic4")
    kept = tmp_path / "bert.octavo-packed"
    plain = run("run", "bert.onnx", "--inputs", calib / "0.npz")
    assert not kept.exists()
    for _ in range(2):
        done = run("run", "bert.onnx", "--inputs", calib / "0.npz", "--packed")
        assert done.returncode == 0 and done.stdout == plain.stdout and done.stderr == plain.stderr
        assert kept.exists()
    written = kept.stat().st_mtime_ns
    done = run("bench", "bert.onnx", "--inputs", calib / "0.npz", "--seconds", "0.05", "--threads", "1,2", "--packed")
    assert done.returncode == 0, done.stderr
    assert kept.stat().st_mtime_ns == written
    assert run("bench", "bert.onnx", "--seconds", "0.05", "--packed-file", "p").returncode == 0
    assert (tmp_path / "p").read_bytes() == kept.read_bytes()
    done = run("bench", "bert.onnx", BERT, "--packed-file", "p")
    assert done.returncode == 2 and "--packed-file is for one model; --packed keeps a file beside each" in done.stderr
    for command in (["run", "bert.onnx", "--inputs", calib / "0.npz"], ["bench", "bert.onnx"]):
        done = run(*command, "--packed-file", "bert.onnx")
        assert done.returncode == 1 and "cannot write 'bert.onnx' for --packed: it is the model that is read too" in done.stderr
    done = run("run", "bert.onnx", "--inputs", calib / "0.npz", "--packed-file", "q", "--outputs", "q")
    assert done.returncode == 1 and "give each its own file" in done.stderr


def test_generate(tmp_path, capsys, monkeypatch):
    model = saved(tmp_path / "decoder.onnx", "dynamic", decoder())
    tokenizer = types.SimpleNamespace(Tokenizer=types.SimpleNamespace(from_file=lambda path: Letters()))
    monkeypatch.setitem(sys.modules, "tokenizers", tokenizer)
    words = ["generate", str(model), "--tokenizer", "t.json", "--prompt", Letters().decode(PROMPT), "--max-tokens", "5"]
    texts = []
    for flags in ([], ["--packed"], ["--packed"], ["--packed-file", str(tmp_path / "p")]):
        assert main([*words, *flags]) == 0
        texts.append(capsys.readouterr().out)
    assert len(set(texts)) == 1
    assert (tmp_path / "decoder.octavo-packed").read_bytes() == (tmp_path / "p").read_bytes()


def test_progress_tells_how_much_is_written(tmp_path, monkeypatch, capsys):
    model, told = saved(tmp_path / "decoder.onnx", "dynamic", decoder()), []
    octavo.Session(model, packed=True, progress=lambda *step: told.append(step))
    stages, done, totals = zip(*told)
    assert set(stages) == {"write packed weights, MB"} and len(set(totals)) == 1
    assert list(done) == sorted(done) and done[-1] == totals[0] > 0
    told.clear()
    octavo.Generator(model, packed=True, progress=lambda *step: told.append(step))  # it is there
    octavo.Session(model, progress=lambda *step: told.append(step))
    assert not told
    octavo.Generator(model, packed=tmp_path / "p", progress=lambda *step: told.append(step))
    assert told

    def fails(*step):
        raise ValueError("no more")

    with pytest.raises(ValueError, match="no more"):
        octavo.Session(model, packed=tmp_path / "q", progress=fails)
    assert not (tmp_path / "q").exists() and not list(tmp_path.glob("*q*"))
    tokenizer = types.SimpleNamespace(Tokenizer=types.SimpleNamespace(from_file=lambda path: Letters()))
    monkeypatch.setitem(sys.modules, "tokenizers", tokenizer)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    words = ["generate", str(model), "--tokenizer", "t.json", "--prompt", Letters().decode(PROMPT), "--max-tokens", "1"]
    assert main([*words, "--packed-file", str(tmp_path / "r")]) == 0
    lines = capsys.readouterr().err.split("\r\033[K")
    assert any(line.startswith("1. write packed weights, MB 1/1") for line in lines) and lines[-1] == ""


def test_an_open_session_takes_neither_threads_nor_packed(tmp_path):
    model = saved(tmp_path / "decoder.onnx", "dynamic", decoder())
    session = octavo.Session(model, threads=1)
    for name, value in (("threads", 2), ("packed", True), ("packed", tmp_path / "p")):
        with pytest.raises(octavo.OctavoError, match=f"{name} is of a Session that is to be opened, and this one is open: give {name} to it, or the model's path here"):
            octavo.Generator(session, **{name: value})
    with pytest.raises(octavo.OctavoError, match="threads is of a Session that is to be opened"):
        octavo.perplexity(session, PROMPT, threads=2)
    assert octavo.Generator(session, threads=0, packed=False)
    assert octavo.perplexity(session, PROMPT, against=model, threads=1)  # which is opened
    assert not (tmp_path / "p").exists()


def test_two_processes_make_it_at_once(tmp_path):
    model = saved(tmp_path / "bert.onnx", "dynamic4")
    code = "import octavo, sys; print(octavo.Session(sys.argv[1], packed=True).packed)"
    together = [subprocess.Popen([sys.executable, "-c", code, str(model)], stdout=subprocess.PIPE) for _ in range(4)]
    for process in together:
        process.communicate(timeout=60)
        assert process.returncode == 0
    assert octavo.Session(model, packed=True).packed["made"] == 0
    assert sorted(path.name for path in pathlib.Path(tmp_path).iterdir()) == ["bert.octavo-packed", "bert.onnx"]
