"""Generator and perplexity, on a decoder of one head that is small enough to be told again in numpy."""

import json
import sys
import types

import numpy as np
import octavo
import pytest
from onnx import TensorProto, helper, numpy_helper
from octavo._commands import main

V, D = 11, 6
RANDOM = np.random.default_rng(20261124)
E = RANDOM.normal(0, 1, (V, D)).astype(np.float32)
W = RANDOM.normal(0, 1, (D, V)).astype(np.float32)
PROMPT = [3, 1, 4, 1, 5]


def decoder(caches=True, extra=()):
    node, info = helper.make_node, helper.make_tensor_value_info
    const = {"E": E, "W": W, "one": np.array([1], np.int64), "axis": np.array(1, np.int64), "two": np.array([2], np.int64),
             "low": np.array(-1e4, np.float32)}
    nodes = [
        node("Gather", ["E", "input_ids"], ["h"]),
        node("Concat", ["past_key_values.0.key", "h"], ["present.0.key"], axis=1) if caches else node("Identity", ["h"], ["present.0.key"]),
        node("Transpose", ["present.0.key"], ["kt"], perm=[0, 2, 1]),
        node("MatMul", ["h", "kt"], ["raw"]),
        node("CumSum", ["attention_mask", "axis"], ["places1"]),
        node("Sub", ["places1", "one"], ["places"]),
        node("Unsqueeze", ["places", "one"], ["of_keys"]),
        node("Unsqueeze", ["position_ids", "two"], ["of_queries"]),
        node("Less", ["of_queries", "of_keys"], ["hidden"]),
        node("Where", ["hidden", "low", "raw"], ["scores"]),
        node("Softmax", ["scores"], ["p"], axis=-1),
        node("MatMul", ["p", "present.0.key"], ["o"]),
        node("Add", ["o", "h"], ["sum"]),
        node("MatMul", ["sum", "W"], ["logits"]),
    ]
    inputs = [info("input_ids", TensorProto.INT64, [1, "t"]), info("attention_mask", TensorProto.INT64, [1, "all"]),
              info("position_ids", TensorProto.INT64, [1, "t"]), *extra]
    outputs = [info("logits", TensorProto.FLOAT, [1, "t", V])]
    if caches:
        inputs.append(info("past_key_values.0.key", TensorProto.FLOAT, [1, "past", D]))
        outputs.append(info("present.0.key", TensorProto.FLOAT, [1, "all", D]))
    graph = helper.make_graph(nodes, "decoder", inputs, outputs, [numpy_helper.from_array(a, n) for n, a in const.items()])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9).SerializeToString()


def logits_of(ids):
    h = E[ids].astype(np.float64)
    scores = np.where(np.triu(np.ones((len(ids), len(ids)), bool), 1), -1e4, h @ h.T)
    p = np.exp(scores - scores.max(-1, keepdims=True))
    return (p / p.sum(-1, keepdims=True) @ h + h) @ W.astype(np.float64)


def greedy(prompt, count):
    ids = list(prompt)
    for _ in range(count):
        ids.append(int(logits_of(ids)[-1].argmax()))
    return ids[len(prompt):]


class Letters:
    """A tokenizer: each token is a letter."""

    def encode(self, text):
        return types.SimpleNamespace(ids=[ord(c) - ord("a") for c in text])

    def decode(self, ids):
        return "".join(chr(ord("a") + i) for i in ids)

    def no_truncation(self):
        pass

    no_padding = no_truncation


@pytest.mark.parametrize("caches", [True, False])
@pytest.mark.parametrize("chunk", [1, 2, 256])
def test_greedy_tokens_are_those_of_the_whole_text(caches, chunk):
    generator = octavo.Generator(decoder(caches), threads=1, chunk=chunk)
    want = greedy(PROMPT, 12)
    assert list(generator.tokens(PROMPT, 12)) == want
    assert list(generator.tokens(PROMPT, 12)) == want  # begins anew
    assert list(generator.tokens(PROMPT, 12, temperature=2.0, top_k=1)) == want
    assert list(generator.tokens(PROMPT, 12, temperature=2.0, top_p=1e-9)) == want
    end = want.index(want[3])
    assert list(generator.tokens(PROMPT, 12, stop_tokens=[want[3]])) == want[:end]


def test_a_seed_gives_the_same_tokens_and_another_one_others():
    generator = octavo.Generator(decoder(), threads=1)

    def draw(seed):
        return list(generator.tokens(PROMPT, 30, temperature=3.0, seed=seed))

    assert draw(1) == draw(1) != draw(2)
    logits, found = logits_of(PROMPT)[-1], set()
    for seed in range(60):
        found |= {next(iter(generator.tokens(PROMPT, 1, temperature=5.0, top_k=3, seed=seed)))}
    assert found == set(np.argsort(-logits)[:3].tolist())


def test_text_comes_in_pieces_and_ends_before_a_stop():
    generator = octavo.Generator(decoder(), Letters(), threads=1)
    whole = Letters().decode(greedy(PROMPT, 12))
    prompt = Letters().decode(PROMPT)
    pieces = list(generator.text(prompt, 12))
    assert "".join(pieces) == whole and len(pieces) == 12
    stop = whole[4:7]
    assert "".join(generator.text(prompt, 12, stop=stop)) == whole[: whole.index(stop)]
    assert "".join(generator.text(prompt, 12, stop=["zz", "yyyy"])) == whole


def test_perplexity_is_that_of_the_numbers():
    ids = RANDOM.integers(0, V, 40).tolist()
    nats = 0.0
    for first in range(0, 39, 16):
        part = ids[first : first + 17]
        logits = logits_of(part[:-1])
        log = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
        nats -= log[np.arange(len(part) - 1), part[1:]].sum()
    result = octavo.perplexity(decoder(), ids, against=decoder(False), window=16, threads=1)
    assert result["tokens"] == 39 and result["perplexity"] == pytest.approx(np.exp(nats / 39), rel=1e-4)
    assert abs(result["kl"]) < 1e-6 and result["top1"] == 1.0
    assert set(octavo.perplexity(decoder(), ids)) == {"tokens", "perplexity"}


def test_refusals():
    info = helper.make_tensor_value_info
    generator = octavo.Generator(decoder(), threads=1)
    for call, words in [
        (lambda: octavo.Generator(decoder(), chunk=0), "chunk is 0; a prompt is read in pieces of at least one token"),
        (lambda: list(generator.tokens([])), "the prompt has no tokens"),
        (lambda: list(generator.tokens(PROMPT, top_p=0.0)), "the first two are 0 or more, the last in"),
        (lambda: list(generator.text("abc")), "this Generator has no tokenizer; give one, or use tokens"),
        (lambda: octavo.perplexity(decoder(), [1]), "has nothing to tell; both are 2 or more"),
        (lambda: octavo.Generator(decoder(extra=[info("speaker", TensorProto.INT64, [1])])), "does not know what the model's input 'speaker' is given"),
        (lambda: octavo.Generator(decoder(extra=[info("past_2", TensorProto.FLOAT, [1, "n", 2])])), "has 2 caches as inputs and 1 as outputs"),
        (lambda: octavo.Generator(renamed("past", "3")), "is no cache that grows by tokens, and none but such a cache begins empty"),
        (lambda: octavo.Generator(renamed("input_ids", "ids")), "the model has no input 'input_ids'"),
    ]:
        with pytest.raises(octavo.OctavoError, match=words):
            call()


def renamed(before, after):
    """The decoder with another name of an input, or with a cache of a fixed length."""
    from onnx import ModelProto
    model = ModelProto.FromString(decoder())
    for value in model.graph.input:
        if value.name == before:
            value.name = after
        for size in value.type.tensor_type.shape.dim:
            if size.dim_param == before:
                size.dim_value = int(after)
    for node in model.graph.node:
        node.input[:] = [after if name == before else name for name in node.input]
    return model.SerializeToString()


def test_the_commands(tmp_path, capsys, monkeypatch):
    model, text = tmp_path / "decoder.onnx", tmp_path / "text.txt"
    model.write_bytes(decoder())
    text.write_text("abcabdbcadcab", encoding="utf-8")
    prompt = Letters().decode(PROMPT)
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    assert main(["generate", str(model), "--tokenizer", "t.json", "--prompt", prompt]) == 1
    assert "the package 'tokenizers' is missing" in capsys.readouterr().err

    def from_file(path):
        if path != "t.json":
            raise ValueError("not there")
        return Letters()

    monkeypatch.setitem(sys.modules, "tokenizers", types.SimpleNamespace(Tokenizer=types.SimpleNamespace(from_file=from_file)))
    assert main(["generate", str(model), "--tokenizer", "t.json", "--prompt", prompt, "--max-tokens", "9"]) == 0
    assert capsys.readouterr().out == Letters().decode(greedy(PROMPT, 9)) + "\n"
    assert main(["perplexity", str(model), "--tokenizer", "t.json", "--text", str(text), "--against", str(model)]) == 0
    assert json.loads(capsys.readouterr().out)["top1"] == 1.0
    assert main(["generate", str(model), "--tokenizer", "no.json", "--prompt", prompt]) == 1
    assert "'no.json' is no tokenizer.json: not there" in capsys.readouterr().err


def test_an_interrupt_of_a_command_is_one_line(tmp_path, capsys, monkeypatch):
    (tmp_path / "decoder.onnx").write_bytes(decoder())
    monkeypatch.setitem(sys.modules, "tokenizers", types.SimpleNamespace(Tokenizer=types.SimpleNamespace(from_file=lambda path: Letters())))
    monkeypatch.setattr(Letters, "decode", interrupted_after(3, Letters.decode))
    words = ["--tokenizer", "t.json", "--prompt", "abcab"]
    assert main(["generate", str(tmp_path / "decoder.onnx"), *words]) == 130
    shown = capsys.readouterr()
    assert shown.err == "\noctavo: interrupted\n" and shown.out and "\n" not in shown.out
    monkeypatch.setattr(octavo._commands, "perplexity", interrupted_after(0, octavo.perplexity))
    (tmp_path / "text.txt").write_text("abcabdbcadcab", encoding="utf-8")
    assert main(["perplexity", str(tmp_path / "decoder.onnx"), "--tokenizer", "t.json", "--text", str(tmp_path / "text.txt")]) == 130
    assert capsys.readouterr().err == "octavo: interrupted\n"


def interrupted_after(calls, function):
    """The function, and Ctrl-C at the call behind so many."""
    left = iter(range(calls))

    def call(*arguments, **more):
        if next(left, None) is None:
            raise KeyboardInterrupt
        return function(*arguments, **more)

    return call
