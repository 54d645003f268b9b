"""Generator and perplexity, on a decoder of one head that is small enough to be told again in numpy."""

import json
import re
import subprocess
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


PROMPTS = [[3, 1, 4, 1, 5], [2], [9, 2, 6, 5, 3, 5, 8], [10, 0], [7, 7, 7, 7, 7, 7, 7, 7, 7], [1, 2, 3]]


def collect(pairs):
    """What came for each prompt; the None behind the last is checked and left out."""
    found, ended = {}, set()
    for i, piece in pairs:
        assert i not in ended
        ended |= {i} if piece is None else set()
        found.setdefault(i, []).extend([] if piece is None else [piece])
    assert ended == set(found)
    return [found[i] for i in sorted(found)]


@pytest.mark.parametrize("caches", [True, False])
@pytest.mark.parametrize("at_once", [1, 2, 3, 8])
def test_many_prompts_get_the_tokens_they_get_alone(caches, at_once):
    generator = octavo.Generator(decoder(caches), threads=1, chunk=2)
    want = [greedy(prompt, 9) for prompt in PROMPTS]
    assert collect(generator.many_tokens(iter(PROMPTS), 9, at_once=at_once)) == want
    how = {"temperature": 3.0, "top_k": 5}
    alone = [list(generator.tokens(prompt, 9, seed=4 + i, **how)) for i, prompt in enumerate(PROMPTS)]
    assert collect(generator.many_tokens(PROMPTS, 9, at_once=at_once, seed=4, **how)) == alone
    assert collect(generator.many_tokens(PROMPTS, 0, at_once=at_once)) == []


def test_a_prompt_begins_when_another_ends():
    """Continuous batching: a prompt is taken from the iterator when there is a place, no sooner."""
    generator, taken = octavo.Generator(decoder(), threads=1), []

    def prompts():
        for i, prompt in enumerate(PROMPTS):
            taken.append(i)
            yield prompt

    want = [greedy(prompt, 4) for prompt in PROMPTS]
    stop = want[0][1]
    ends = [w[: w.index(stop)] if stop in w else w for w in want]
    for i, token in generator.many_tokens(prompts(), 4, at_once=2, stop_tokens=[stop]):
        assert i in taken and len(taken) <= i + 2 or token is not None
    assert taken == list(range(len(PROMPTS)))
    assert collect(generator.many_tokens(PROMPTS, 4, at_once=2, stop_tokens=[stop])) == ends


@pytest.mark.parametrize("caches", [True, False])
def test_prompts_that_begin_alike_are_read_once(caches, monkeypatch):
    """Whole chunks of them: a system's prompt before those of users. Among those that begin together, and behind those that are on their way."""
    reads = []
    monkeypatch.setattr(octavo._generate._Sequence, "feeds", counted(octavo._generate._Sequence.feeds, reads))
    generator = octavo.Generator(decoder(caches), threads=1, chunk=4)
    head = [3, 1, 4, 1, 5, 9, 2, 6]
    prompts = [head + [5, 3, 5], head + [8], head[:5] + [0, 0, 0, 0], head, [1, 2], head + [5, 3, 5, 8, 9], head + [5, 3, 5]]
    want = [greedy(prompt, 7) for prompt in prompts]
    for at_once in (7, 3):
        reads.clear()
        assert collect(generator.many_tokens(prompts, 7, at_once=at_once)) == want
        # Behind the chunks of 4 that prompts share: one token each turn but for the last, and what of a prompt nobody else had read.
        read, chunks = sum(len(ids) for ids, _ in reads), 4 + 4 + 3 + 1 + 5 + 4 + 2 + 4 + 1 + 3
        assert read <= chunks + 7 * 6 + (0 if at_once == 7 else 8)
        assert list(generator.tokens(prompts[5], 7)) == want[5]
    reads.clear()
    assert collect(generator.many_tokens(prompts, 7, at_once=1)) == want  # behind the one that ended last
    if caches:
        assert sum(len(ids) for ids, _ in reads) == 11 + 1 + 5 + 4 + 2 + 13 + 3 + 7 * 6


@pytest.mark.parametrize("caches", [True, False])
@pytest.mark.parametrize("lookup", [1, 2, 5])
def test_guesses_do_not_change_the_tokens(caches, lookup, monkeypatch):
    cuts, runs = [], []
    monkeypatch.setattr(octavo._generate._Sequence, "cut", counted(octavo._generate._Sequence.cut, cuts))
    monkeypatch.setattr(octavo._generate._Decoder, "run", counted(octavo._generate._Decoder.run, runs))
    generator = octavo.Generator(decoder(caches), threads=1)
    prompt = [1, 2, 3, 4, 5, 1, 2, 3] * 2
    want = greedy(prompt, 40)
    assert list(generator.tokens(prompt, 40)) == want
    alone, runs[:] = len(runs), []
    assert list(generator.tokens(prompt, 40, lookup=lookup)) == want
    assert len(runs) < alone  # some guesses were right
    drawn = list(generator.tokens(prompt, 40, temperature=1.5, seed=7))
    assert list(generator.tokens(prompt, 40, temperature=1.5, seed=7, lookup=lookup)) == drawn
    assert cuts  # and others wrong
    assert collect(generator.many_tokens([prompt, prompt[3:]], 40, lookup=lookup)) == [want, greedy(prompt[3:], 40)]
    stop = want[5]
    assert list(generator.tokens(prompt, 40, stop_tokens=[stop], lookup=lookup)) == want[: want.index(stop)]


def counted(function, calls):
    def call(*arguments):
        calls.append(arguments[1:])
        return function(*arguments)
    return call


def test_tokenizers_of_other_makers_give_lists_and_others_end_with_a_sentence():
    class Listed(Letters):
        def encode(self, text):
            return Letters.encode(self, text).ids

    said = "".join(octavo.Generator(decoder(), Letters()).text("dbe", 5))
    assert len(said) == 5 and "".join(octavo.Generator(decoder(), Listed()).text("dbe", 5)) == said
    for made, told in ((None, "NoneType"), ("abc", "str"), (3, "int")):
        odd = type("Odd", (Letters,), {"encode": lambda self, text, made=made: made})()
        with pytest.raises(octavo.OctavoError, match=rf"^encode\(\) of the tokenizer gives {told}; it gives a list of ids, or what has them as \.ids$"):
            list(octavo.Generator(decoder(), odd).text("dbe", 5))
    for made, told in ((None, "NoneType"), (b"abc", "bytes")):
        odd = type("Odd", (Letters,), {"decode": lambda self, ids, made=made: made})()
        with pytest.raises(octavo.OctavoError, match=rf"^decode\(\) of the tokenizer gives {told}; it gives a str$"):
            list(octavo.Generator(decoder(), odd).text("dbe", 5))


def test_many_texts_end_at_their_stops():
    generator = octavo.Generator(decoder(), Letters(), threads=1)
    texts = [Letters().decode(greedy(prompt, 12)) for prompt in PROMPTS]
    stop = texts[0][4:6]
    prompts = [Letters().decode(prompt) for prompt in PROMPTS]
    pieces = collect(generator.many(prompts, 12, at_once=3, stop=stop, lookup=2))
    assert ["".join(one) for one in pieces] == [text.split(stop)[0] for text in texts]


def logs_of(part):
    logits = logits_of(part[:-1])
    return logits - np.log(np.exp(logits).sum(-1, keepdims=True))


@pytest.mark.parametrize("chunk", [None, 1, 3])
def test_a_stride_tells_each_token_once_behind_more_of_the_text(chunk):
    ids = RANDOM.integers(0, V, 41).tolist()
    for window, stride in [(16, 5), (16, 16), (8, 1), (64, 3)]:
        nats, told = 0.0, 1
        while told < len(ids):
            # The first window that reaches this token.
            first = max(0, -(-(told - window) // stride) * stride)
            part = ids[first : first + window + 1]
            nats -= logs_of(part)[told - 1 - first, ids[told]]
            told += 1
        result = octavo.perplexity(decoder(), ids, window=window, stride=stride, chunk=chunk, threads=1)
        assert result["tokens"] == 40 and result["perplexity"] == pytest.approx(np.exp(nats / 40), rel=1e-4)


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
        (lambda: list(generator.many_tokens([PROMPT], at_once=0)), "at_once is 0; at least one prompt is written on at a time"),
        (lambda: list(generator.tokens(PROMPT, lookup=-1)), "lookup is -1; give the number of tokens to guess, or 0"),
        (lambda: octavo.perplexity(decoder(), PROMPT, stride=0), "stride 0, chunk None: windows of 512 tokens begin 1 to 512 apart"),
        (lambda: octavo.perplexity(decoder(), PROMPT, chunk=0), "are read by at least one token at a time"),
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
    (tmp_path / "prompts.txt").write_text(prompt + "\nabc\n", encoding="utf-8")
    words = ["--tokenizer", "t.json", "--prompts", str(tmp_path / "prompts.txt"), "--prompt", "cab", "--at-once", "2", "--max-tokens", "6", "--lookup", "3"]
    assert main(["generate", str(model), *words]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["prompt"] for line in lines] == ["cab", prompt, "abc"]
    assert all(line["text"] == Letters().decode(greedy(Letters().encode(line["prompt"]).ids, 6)) for line in lines)
    assert main(["generate", str(model), "--tokenizer", "t.json"]) == 1
    assert "there is no prompt; give --prompt TEXT" in capsys.readouterr().err
    assert main(["generate", str(model), "--tokenizer", "no.json", "--prompt", prompt]) == 1
    assert "'no.json' is no tokenizer.json: not there" in capsys.readouterr().err


def test_the_help_of_the_package_names_its_commands():
    for asked in ("--help", "-h"):
        done = subprocess.run([sys.executable, "-m", "octavo", asked], capture_output=True, text=True, check=True)
        for command in ("optimize", "generate", "perplexity", "tune"):
            assert re.search(rf"^  {command} +\w", done.stdout, re.MULTILINE), done.stdout
        assert " ".join(done.stdout.split()).endswith("130 interrupted.")


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
