"""What the commands that are written in Python make of odd metrics, texts, tokenizers and models: one sentence, in time, and nothing left behind."""

import json
import os
import pathlib
import signal
import subprocess
import sys
import time
import types

import numpy as np
import octavo
import pytest
from conftest import BERT, batch, inputs_of
from octavo._commands import main
from octavo._processes import last_words, run_program, shown
from onnx import TensorProto, helper, numpy_helper
from test_generate import Letters, V, decoder


@pytest.fixture
def folder(tmp_path):
    session = octavo.Session(BERT, threads=1)
    for number in range(3):
        np.savez(tmp_path / f"{number}.npz", **inputs_of(session, batch(number)))
    return tmp_path


@pytest.fixture
def letters(monkeypatch):
    monkeypatch.setitem(sys.modules, "tokenizers", types.SimpleNamespace(Tokenizer=types.SimpleNamespace(from_file=lambda path: Letters())))
    return Letters


def gone(process, seconds=20):
    """Whether nothing runs under this number any more."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            if pathlib.Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z":
                return True
        except OSError:
            return True
        time.sleep(0.02)
    return False


# --- the metric of tune --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("metric, sentence", [
    ("printf '\\377\\376 \\033[31mred' # {model}", "the last word that the metric's command printed is '\\x1b[31mred', which is no number"),
    ("head -c 3000000 /dev/zero | tr '\\0' x # {model}", "is 'xxx"),
    ("printf '\\033[31mno\\377' >&2; exit 3 # {model}", "ended with 3: \\x1b[31mno"),
    ("kill -9 $$ # {model}", "ended with -9: it printed nothing"),
    ("echo nan # {model}", "is not a number (NaN)"),
    ("echo inf # {model}", "is inf, better than any number"),
    ("read x; echo $x # {model}", "ended with 0: it printed nothing"),
])
def test_a_metric_that_is_none(folder, tmp_path, capsys, metric, sentence):
    assert main(["tune", str(BERT), "-o", str(tmp_path / "o.onnx"), "--calib", str(folder), "--metric", metric]) == 1
    said = capsys.readouterr().err
    assert sentence in said and said.count("\n") == 1 and "\x1b" not in said and len(said) < 500
    assert not (tmp_path / "o.onnx").exists()


def test_what_a_metric_prints_does_not_fill_the_memory():
    """600 MB of messages, of which the last are kept; and what it leaves running does not hold up who asked."""
    status, out, messages = last_words("head -c 600000000 /dev/zero >&2; echo last >&2; sleep 60 & echo 0.5")
    assert (status, out) == (0, "0.5\n") and messages.endswith("last\n") and len(messages) < 300_000


def test_words_of_other_programs_are_shown_escaped():
    assert shown("a\nb\x1b[0m") == "a\\nb\\x1b[0m" and len(shown("x" * 999, 60)) == 60


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_ends_tune_its_metric_and_what_that_started(folder, tmp_path_factory, number):
    out = tmp_path_factory.mktemp("out")
    metric = f"echo $$ > {out}/pid; sleep 100 & echo $! > {out}/child; sleep 100 # {{model}}"
    words = [sys.executable, "-m", "octavo", "tune", str(BERT), "-o", str(out / "o.onnx"), "--calib", str(folder), "--metric", metric]
    (out / "tmp").mkdir()
    process = subprocess.Popen(words, env={**os.environ, "TMPDIR": str(out / "tmp")}, stderr=subprocess.PIPE, text=True)
    end = time.monotonic() + 60
    while not (out / "child").exists() or not (out / "child").read_text():
        assert process.poll() is None and time.monotonic() < end
        time.sleep(0.02)
    assert list((out / "tmp").iterdir())
    process.send_signal(number)
    _, said = process.communicate(timeout=30)
    assert process.returncode == 130 and said == "octavo: interrupted\n"
    assert gone(int((out / "pid").read_text())) and gone(int((out / "child").read_text()))
    assert not list((out / "tmp").iterdir()) and not (out / "o.onnx").exists()


@pytest.mark.parametrize("start", [last_words, lambda command: run_program(["sh", "-c", command])])
def test_a_signal_while_a_program_starts_ends_it(monkeypatch, tmp_path, start):
    started, popen = [], subprocess.Popen

    def interrupted(*args, **kwargs):
        started.append(popen(*args, **kwargs))
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.05)
        return started[-1]

    monkeypatch.setattr(subprocess, "Popen", interrupted)
    with pytest.raises(KeyboardInterrupt):
        start("sleep 100")
    assert started[0].poll() is not None


def test_a_signal_ends_the_program_that_calibrates_on_texts(tmp_path):
    """optimize --calib-text: the program is a child, and the batches are temporary."""
    (tmp_path / "texts").write_text("ab\n" * 20000)
    (tmp_path / "tmp").mkdir()
    (tmp_path / "run.py").write_text(
        "import sys, types\n"
        "letters = type('L', (), {'encode': lambda s, t: types.SimpleNamespace(ids=[1, 2] * 50, type_ids=[0] * 100), 'no_truncation': print, 'no_padding': print,"
        " 'enable_truncation': lambda *a: None})\n"
        "sys.modules['tokenizers'] = types.SimpleNamespace(Tokenizer=types.SimpleNamespace(from_file=lambda path: letters()))\n"
        "from octavo.__main__ import main\nmain()\n")
    words = [sys.executable, "run.py", "calibrate", str(BERT), "-o", "o.calib", "--calib-text", "texts", "--tokenizer", "none.json", "--calib-batch", "4"]
    process = subprocess.Popen(words, cwd=tmp_path, env={**os.environ, "TMPDIR": str(tmp_path / "tmp")}, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    children, end = [], time.monotonic() + 120
    while not children:
        assert process.poll() is None and time.monotonic() < end, process.stderr.read()
        children = pathlib.Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        time.sleep(0.02)
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=30)
    assert process.returncode == 130 and gone(int(children[0]))
    assert not list((tmp_path / "tmp").iterdir()) and not (tmp_path / "o.calib").exists()


def test_a_metric_may_be_infinitely_bad(folder, tmp_path, capsys):
    """An error or a perplexity of a plan that overflows: the plan misses, and the JSON stays JSON."""
    metric = f"case {{model}} in {BERT}) echo 1 ;; *) test $(stat -c %s {{model}}) -gt 300000 && echo 1 || echo inf ;; esac"
    words = ["tune", str(BERT), "-o", str(tmp_path / "o.onnx"), "--calib", str(folder), "--metric", metric, "--lower-is-better", "--seconds", "0.02", "--threads", "1"]
    assert main([*words, "--json", "-", "--everything", "--plot", str(tmp_path / "p.svg")]) == 0

    def none(word):
        raise AssertionError(word)

    told = json.loads(capsys.readouterr().out, parse_constant=none)
    assert any(p["within"] is False and p["metric"] is None for p in told["plans"])
    assert "nan" not in (tmp_path / "p.svg").read_text() and "inf" not in (tmp_path / "p.svg").read_text()


def test_arrays_to_time_with_are_read_as_the_program_reads_them(tmp_path, capsys):
    from octavo._tune import _first_of

    for name, data in {"empty": b"", "cut": b"PK\x03\x04", "none": b"x" * 100}.items():
        (tmp_path / f"{name}.npz").write_bytes(data)
        assert _first_of(tmp_path / f"{name}.npz") is None
        from octavo._against import main as against

        assert against("octavo", [str(BERT), "--against", "onnxruntime", "--inputs", str(tmp_path / f"{name}.npz")]) == 1
        said = capsys.readouterr().err
        assert said.count("\n") == 1 and "numpy .npz archive" in said
    np.savez(tmp_path / "objects.npz", x=np.array([{}, 1], object))
    assert _first_of(tmp_path / "objects.npz") is None
    np.savez(tmp_path / "good.npz", x=np.arange(3))
    assert _first_of(tmp_path / "good.npz")["x"].tolist() == [0, 1, 2]


# --- texts ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("command, option", [("perplexity", "--text"), ("generate", "--prompts")])
def test_files_of_texts_that_are_none(letters, tmp_path, capsys, command, option):
    model = tmp_path / "decoder.onnx"
    model.write_bytes(decoder())
    (tmp_path / "latin").write_bytes(b"na\xefve")
    (tmp_path / "zero").write_bytes(b"")
    os.mkfifo(tmp_path / "pipe")
    for name, sentence in {"latin": "is no text in UTF-8: byte 2", "zero": "", "pipe": "it is a pipe, and nobody writes to it", "none": "No such file", ".": "is a folder",
                           "/dev/zero": "it has no end"}.items():
        began = time.monotonic()
        assert main([command, str(model), "--tokenizer", "t.json", option, str(tmp_path / name)]) == 1
        said = capsys.readouterr().err
        assert sentence in said and said.count("\n") == 1 and time.monotonic() - began < 20, said


def test_a_pipe_that_somebody_writes_to_is_read(letters, tmp_path, capsys):
    (tmp_path / "decoder.onnx").write_bytes(decoder())
    os.mkfifo(tmp_path / "pipe")
    writer = subprocess.Popen(["sh", "-c", f"sleep 0.3; exec > {tmp_path}/pipe; printf abca; sleep 0.3; printf bdb"])
    assert main(["perplexity", str(tmp_path / "decoder.onnx"), "--tokenizer", "t.json", "--text", str(tmp_path / "pipe")]) == 0
    writer.wait()
    assert json.loads(capsys.readouterr().out)["tokens"] == 6


@pytest.mark.parametrize("option, value, sentence", [
    ("--temperature", "nan", "temperature takes a number, not nan"), ("--seed", "-1", "seed is -1; give 0 or more"), ("--top-p", "inf", "the last in (0, 1]"),
    ("--stop", "", "stop has an empty text"), ("--lookup", "-2", "lookup is -2"),
])
def test_numbers_of_generate(letters, tmp_path, capsys, option, value, sentence):
    (tmp_path / "decoder.onnx").write_bytes(decoder())
    assert main(["generate", str(tmp_path / "decoder.onnx"), "--tokenizer", "t.json", "--prompt", "abc", option, value]) == 1
    said = capsys.readouterr().err
    assert sentence in said and said.count("\n") == 1


# --- tokens and logits ---------------------------------------------------------------------------------------------


def test_ids_that_are_none():
    generator = octavo.Generator(decoder(), threads=1)
    for call in (lambda ids: list(generator.tokens(ids)), lambda ids: octavo.perplexity(decoder(), [*ids, 1])):
        for ids in ([3, -1], [2**31], [10**30]):
            with pytest.raises(octavo.OctavoError, match="ids of tokens are 0 or more"):
                call(ids)
    for odd in ("abc", b"abc", 5, [1.5], ["a"], None, [None], np.zeros((2, 2), np.int64)):
        with pytest.raises(TypeError, match="a list of whole numbers"):
            list(generator.tokens(odd))
    for odd in (5, "ab", [1.5]):
        with pytest.raises(TypeError, match="stop_tokens takes a list of whole numbers"):
            list(generator.tokens([1], stop_tokens=odd))
    with pytest.raises(octavo.OctavoError, match=f"the text has the token {V}, and the model knows {V}"):
        octavo.perplexity(decoder(), [1, 2, V])
    with pytest.raises(octavo.OctavoError):
        list(generator.tokens([V]))
    texts = octavo.Generator(decoder(), Letters(), threads=1)
    with pytest.raises(TypeError, match="prompts takes a list of str, not str"):
        list(texts.many("abc"))
    for odd in (5, [5], b"x"):
        with pytest.raises(TypeError, match="stop takes a list of str"):
            list(texts.text("abc", stop=odd))


def logits_model(logits, last=False):
    """A decoder without caches whose logits are these for each token, or for the last alone."""
    node, info = helper.make_node, helper.make_tensor_value_info
    table = numpy_helper.from_array(np.asarray([logits] * V, np.float32), "E")
    nodes = [node("Gather", ["E", "input_ids"], ["all"]), node("Slice", ["all", "start", "end", "axis"], ["logits"])]
    ends = [numpy_helper.from_array(np.array([value], np.int64), name) for name, value in (("start", -1 if last else 0), ("end", 1 << 40), ("axis", 1))]
    graph = helper.make_graph(nodes, "g", [info("input_ids", TensorProto.INT64, [1, "t"])], [info("logits", TensorProto.FLOAT, None)], [table, *ends])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9).SerializeToString()


@pytest.mark.parametrize("odd", [np.nan, np.inf, -np.inf])
def test_logits_that_are_no_numbers(odd):
    wrong = octavo.Generator(logits_model([odd] * V if odd < 0 else [0.0] * (V - 1) + [odd]), threads=1)
    for how in ({"temperature": 1.0}, {"temperature": 0.5, "top_k": 3}):
        with pytest.raises(octavo.OctavoError, match="among its logits, of which no token can be chosen"):
            list(wrong.tokens([1, 2], 3, **how))
    if np.isnan(odd):
        with pytest.raises(octavo.OctavoError, match="among its logits, of which no token can be chosen"):
            list(wrong.tokens([1, 2], 3))
    with pytest.raises(octavo.OctavoError, match="among its logits, which tell nothing of a text"):
        octavo.perplexity(logits_model([odd] * V if odd < 0 else [0.0] * (V - 1) + [odd]), [1, 2, 3])


def test_logits_of_minus_infinity_are_tokens_that_cannot_be():
    hidden = [0.0] * (V - 1) + [-np.inf]
    generator = octavo.Generator(logits_model(hidden), threads=1)
    assert V - 1 not in list(generator.tokens([1], 40, temperature=1.0))
    assert list(octavo.Generator(logits_model([0.0, 1.0] + [0.0] * (V - 2)), threads=1).tokens([3], 2, temperature=1e-320)) == [1, 1]
    told = octavo.perplexity(logits_model(hidden), [1, 2, 3], against=logits_model(hidden))
    assert told["kl"] == 0 and told["perplexity"] == pytest.approx(V - 1)


def test_logits_of_the_last_token_alone_tell_no_text():
    last = logits_model(np.arange(V), last=True)
    assert list(octavo.Generator(last, threads=1).tokens([1, 2, 3], 2)) == [V - 1] * 2
    with pytest.raises(octavo.OctavoError, match=r"is float32 of \[1, 1, 11\], no logits of \[1, tokens, vocabulary\] with 3 or more tokens"):
        octavo.perplexity(last, [1, 2, 3, 4])
    for chunk in (1, None):
        if chunk:
            assert octavo.perplexity(last, [1, 2, 3, 4], chunk=chunk)["tokens"] == 3


def test_models_that_give_no_logits():
    info = helper.make_tensor_value_info
    nodes = [helper.make_node("Gather", ["E", "input_ids"], ["h"]), helper.make_node("Concat", ["past", "h"], ["present"], axis=1)]
    table = numpy_helper.from_array(np.zeros((V, 4), np.float32), "E")
    graph = helper.make_graph(nodes, "g", [info("input_ids", TensorProto.INT64, [1, "t"]), info("past", TensorProto.FLOAT, [1, "p", 4])],
                              [info("present", TensorProto.FLOAT, [1, "a", 4])], [table])
    with pytest.raises(octavo.OctavoError, match="the model has no output but its caches"):
        octavo.Generator(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9).SerializeToString())
    with pytest.raises(octavo.OctavoError, match="know 11 and 3 tokens; compare models of one tokenizer"):
        octavo.perplexity(logits_model([0.0] * V), [1, 2, 0], against=logits_model([0.0] * 3))


# --- tokenizers ----------------------------------------------------------------------------------------------------


class Panic(BaseException):
    """As what the package's Rust raises."""


class Odd(Letters):
    def encode(self, text):
        raise Panic("index out of bounds\nmore")


def test_what_a_tokenizer_says_is_told(tmp_path, capsys, monkeypatch):
    (tmp_path / "decoder.onnx").write_bytes(decoder())
    words = ["generate", str(tmp_path / "decoder.onnx"), "--tokenizer", "t.json", "--prompt", "abc"]

    def panics(path):
        raise Panic("no such\nthing")

    monkeypatch.setitem(sys.modules, "tokenizers", types.SimpleNamespace(Tokenizer=types.SimpleNamespace(from_file=panics)))
    assert main(words) == 1 and capsys.readouterr().err == "octavo: 't.json' is no tokenizer.json: no such\n"
    monkeypatch.setattr(Odd, "__module__", "tokenizers")
    monkeypatch.setitem(sys.modules, "tokenizers", types.SimpleNamespace(Tokenizer=types.SimpleNamespace(from_file=lambda path: Odd())))
    assert main(words) == 1 and "the tokenizer makes no tokens of 'abc': index out of bounds; another model's tokenizer?\n" in capsys.readouterr().err
    monkeypatch.setattr(Odd, "__module__", "mine")
    with pytest.raises(Panic):
        list(octavo.Generator(decoder(), Odd(), threads=1).text("abc"))
    os.mkfifo(tmp_path / "pipe")
    words[3] = str(tmp_path / "pipe")
    assert main(words) == 1 and "is no regular file; give the model's tokenizer.json" in capsys.readouterr().err
