"""Texts as calibration data: octavo.text_batches, and --calib-text of `python -m octavo`."""

import json
import os
import subprocess
import sys
import tarfile
import types

import numpy as np
import octavo
import pytest
from conftest import BERT, SOURCE, read_json
from onnx import TensorProto, helper
from test_generate import decoder, logits_of

TEXTS = ["a b", "b a a b", "c", "d c b a d c", "a", "b b b", "c c c c c"]  # ids: a is 3


class Words:
    """A tokenizer: each word is a letter, between the tokens 1 and 2."""

    def encode(self, text):
        ids = [1, *(ord(word) - ord("a") + 3 for word in text.split()), 2]
        return types.SimpleNamespace(ids=ids, type_ids=[0] * len(ids))


def reader(**inputs):
    """A model of these inputs: name=(element type, shape)."""
    ports = [helper.make_tensor_value_info(name, *what) for name, what in inputs.items()]
    nodes = [helper.make_node("Identity", [name], [f"{name}_out"]) for name in inputs]
    outputs = [helper.make_tensor_value_info(f"{name}_out", *what) for name, what in inputs.items()]
    return helper.make_model(helper.make_graph(nodes, "g", ports, outputs), opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def table(rows):
    """A model that gathers rows of a table, as many as it knows tokens."""
    ports = [helper.make_tensor_value_info(name, *what) for name, what in (("input_ids", (TensorProto.INT64, ["b", "s"])), ("y", (TensorProto.FLOAT, ["b", "s", 2])))]
    weights = helper.make_tensor("w", TensorProto.FLOAT, [rows, 2], [0.0] * (2 * rows))
    graph = helper.make_graph([helper.make_node("Gather", ["w", "input_ids"], ["y"])], "g", ports[:1], ports[1:], [weights])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def rows_of(batches):
    return sorted(tuple(row[mask != 0]) for batch in batches for row, mask in zip(batch["input_ids"], batch["attention_mask"]))


def test_each_text_is_a_row_and_padding_is_masked():
    batches = octavo.text_batches(TEXTS, Words(), batch_size=3)
    assert [batch["input_ids"].shape for batch in batches] == [(3, 7), (1, 8), (3, 4)]  # losses are told of the first
    assert rows_of(batches) == sorted(tuple(Words().encode(text).ids) for text in TEXTS)
    for batch in batches:
        assert set(batch) == {"input_ids", "attention_mask"} and all(a.dtype == np.int64 for a in batch.values())
        assert not batch["input_ids"][batch["attention_mask"] == 0].any()


def test_few_texts_make_eight_batches():
    for count, batches, most in ((5, 5, 1), (200, 8, 25), (255, 9, 31), (1000, 32, 32)):
        made = octavo.text_batches(["a b c"] * count, Words())
        assert (len(made), max(len(batch["input_ids"]) for batch in made)) == (batches, most)


def test_a_limit_cuts_and_files_have_a_text_on_each_line(tmp_path):
    file = tmp_path / "texts.txt"
    file.write_text("\n".join(TEXTS[:3]) + "\n\n   \n", encoding="utf-8")
    whole = octavo.text_batches(file, Words())
    assert rows_of(whole) == rows_of(octavo.text_batches(iter(TEXTS[:3]), Words())) and len(rows_of(whole)) == 3
    assert max(len(row) for row in rows_of(octavo.text_batches(file, Words(), max_length=4))) == 4


def test_arrays_are_those_that_the_model_reads():
    i32, f32 = TensorProto.INT32, TensorProto.FLOAT
    model = reader(input_ids=(i32, [2, 7]), attention_mask=(f32, [2, 7]), token_type_ids=(i32, [2, 7]), position_ids=(TensorProto.INT64, [2, 7]),
                   past_key_values_0=(f32, ["batch", 2, "past", 4]))
    batches = octavo.text_batches(TEXTS, Words(), model)
    assert len(batches) == 4  # seven texts in twos: the last one is filled up
    for batch in batches:
        assert {name: (a.dtype.name, a.shape) for name, a in batch.items()} == {
            "input_ids": ("int32", (2, 7)), "attention_mask": ("float32", (2, 7)), "token_type_ids": ("int32", (2, 7)),
            "position_ids": ("int64", (2, 7)), "past_key_values_0": ("float32", (2, 2, 0, 4))}
        assert (batch["position_ids"] == np.arange(7)).all()
    for form in (octavo.Session(model), octavo.Graph(model)):
        assert all(np.array_equal(a[name], b[name]) for a, b in zip(batches, octavo.text_batches(TEXTS, Words(), form)) for name in a)
    ids = octavo.text_batches(TEXTS, Words(), model, without=iter(["past_key_values_0", "position_ids"]))
    assert "position_ids" not in ids[0] and "past_key_values_0" not in ids[0]


def test_without_a_mask_rows_are_full():
    stream = [token for text in TEXTS for token in Words().encode(text).ids]
    batches = octavo.text_batches(TEXTS, Words(), reader(input_ids=(TensorProto.INT64, ["b", "s"])), max_length=5, batch_size=4)
    rows = sorted(tuple(row) for batch in batches for row in batch["input_ids"])
    assert rows == sorted(tuple(stream[at : at + 5]) for at in range(0, len(stream) - 4, 5)) and set(batches[0]) == {"input_ids"}
    (few,) = octavo.text_batches(TEXTS[:1], Words(), reader(input_ids=(TensorProto.INT64, ["b", "s"])))
    assert few["input_ids"].tolist() == [Words().encode(TEXTS[0]).ids]


def test_they_calibrate_encoders_and_decoders():
    calibrated = octavo.optimize(BERT, calibration=octavo.text_batches(TEXTS, Words(), BERT)).report
    assert calibrated["attention"] == {"found": 2, "fused": 2} and calibrated["losses"]
    model = decoder()
    octavo.optimize(model, calibration=octavo.text_batches(["b", "c"], Words(), model, batch_size=1))


@pytest.fixture(scope="module")
def llama(tmp_path_factory):
    folder = tmp_path_factory.mktemp("zoo")
    with tarfile.open(SOURCE / "tests" / "data" / "zoo" / "zoo.tar.xz") as archive:
        archive.extract("float/llama_past.ts17.sdpa.onnx", folder, filter="data")
    return folder / "float" / "llama_past.ts17.sdpa.onnx"


def test_every_second_batch_reads_on_behind_the_caches_of_the_first_halves(llama):
    session = octavo.Session(llama, threads=1)
    empty = {port.name: octavo._generate.empty_cache(port) for port in session.inputs if "past" in port.name}
    batches = octavo.text_batches(TEXTS * 5, Words(), llama)
    filled = [batch["past_0_key"].shape[2] > 0 for batch in batches]
    assert filled == [False, True] * 4 + [True] and {len(batch["input_ids"]) for batch in batches} == {3, 4}
    padded = 0
    for batch in (batch for batch, is_filled in zip(batches, filled) if is_filled):
        now = batch["input_ids"].shape[1]
        hidden = session.run(batch)[0]
        for line, mask in enumerate(batch["attention_mask"]):
            padded += (mask == 0).sum()
            behind = batch["past_0_key"][line, 0]
            assert not behind[mask[:-now] == 0].any() and behind[mask[:-now] != 0].any(1).all()
            alone = [session.run({"input_ids": np.array([ids]), "attention_mask": np.ones((1, len(ids)), np.int64), **empty})[0][0, -now:]
                     for ids in (Words().encode(text).ids for text in TEXTS) if len(ids) == mask.sum() and ids[-now:] == batch["input_ids"][line].tolist()]
            assert any(np.allclose(hidden[line], of_one, atol=1e-4) for of_one in alone)
    assert padded
    assert octavo.optimize(llama, calibration=batches).report["losses_of"]["held_out"]


def test_caches_are_filled_as_far_as_memory_and_the_model_allow(llama, monkeypatch):
    fills = lambda: [i for i, batch in enumerate(octavo.text_batches(TEXTS * 5, Words(), llama)) if batch["past_0_key"].size]  # noqa: E731
    assert fills() == [1, 3, 5, 7, 8]
    monkeypatch.setattr(octavo._texts, "_MOST_CACHES", 5000)  # all together take 31 kB
    assert fills() == [1]
    monkeypatch.setattr(octavo._texts, "_MOST_CACHES", 14000)
    assert fills() == [1, 7]
    model = decoder()
    prompt, on = octavo.text_batches(["b a a", "c a b b"], Words(), model, batch_size=1)
    assert prompt["past_key_values.0.key"].shape[1] == 0
    assert on["position_ids"].tolist() == [[3, 4]] and on["attention_mask"].shape == (1, 5)
    assert np.allclose(octavo.Session(model).run(on)[0][0], logits_of(Words().encode("b a a").ids)[3:], atol=1e-4)
    other = reader(input_ids=(TensorProto.INT64, ["b", "s"]), past=(TensorProto.FLOAT, ["b", "p", 4]))
    other.graph.node[1].domain, other.graph.node[1].op_type = "a.b", "Secret"
    other.opset_import.append(helper.make_opsetid("a.b", 1))
    with pytest.warns(UserWarning, match="the caches of calibration stay empty, since the model does not run here: "):
        assert all(batch["past"].size == 0 for batch in octavo.text_batches(TEXTS, Words(), other))


def test_as_many_tokens_as_a_model_knows_may_be_given():
    assert octavo.text_batches(["a z"], Words(), table(29))[0]["input_ids"].max() == 28


def test_refusals(tmp_path):
    i64 = TensorProto.INT64
    (tmp_path / "latin").write_bytes("caf\xe9".encode("latin-1"))
    for texts, arguments, words in [
        (TEXTS, {"batch_size": 0}, "batch_size is 0 and max_length 128; both are 1 or more"),
        ([" ", ""], {}, "the texts have no tokens; give some hundred texts as the model will see them"),
        (tmp_path / "none", {}, "cannot read '.*none': No such file or directory; give a file with a text on each line"),
        (tmp_path / "latin", {}, "is no text in UTF-8: byte [0-9]+ is not; convert it"),
        (TEXTS, {"model": reader(pixels=(i64, [1, 2]))}, r"the model has no input 'input_ids' \(pixels\); texts become batches for models that read token ids"),
        (TEXTS, {"model": reader(input_ids=(i64, [1, 2]), speaker=(i64, [1]))}, r"what the model's input 'speaker' of s64\[1\] is given; make batches by hand"),
        (TEXTS, {"model": reader(input_ids=(i64, [1, 2]), attention_mask=(i64, [1, 1, 2, 2]))}, "a text does not tell what the model's input 'attention_mask'"),
        (TEXTS[:1], {"model": reader(input_ids=(i64, [1, 9]))}, "have 4 tokens, and the model reads 9 at once and has no attention_mask; give more texts"),
        (["a z"], {"model": table(20)}, "the tokenizer gives the id 28, and the model knows 20 tokens; another model's tokenizer\\?"),
        (TEXTS, {"tokenizer": tmp_path / "none.json"}, "the package 'tokenizers' is missing|is no tokenizer.json"),
    ]:
        with pytest.raises(octavo.OctavoError, match=words):
            octavo.text_batches(texts, **{"tokenizer": Words(), **arguments})


@pytest.fixture
def tokenizer():
    """The path of a tokenizer.json that pads and cuts by itself, and Words' ids."""
    tokenizers = pytest.importorskip("tokenizers", reason="no tokenizers here: ./dev venv demo installs it")
    words = {"[PAD]": 0, "[CLS]": 1, "[SEP]": 2, **{chr(ord("a") + i): 3 + i for i in range(26)}}
    made = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="[PAD]"))
    made.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    made.post_processor = tokenizers.processors.TemplateProcessing(single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 1), ("[SEP]", 2)])
    made.enable_truncation(3)
    made.enable_padding(length=50)
    return made


def test_what_a_file_says_of_limit_and_padding_is_not_taken(tokenizer, tmp_path):
    tokenizer.save(str(tmp_path / "t.json"))
    for given in (tokenizer, tmp_path / "t.json", types.SimpleNamespace(backend_tokenizer=tokenizer)):
        got = octavo.text_batches(TEXTS, given, batch_size=3)
        want = octavo.text_batches(TEXTS, Words(), batch_size=3)
        assert all(np.array_equal(a[name], b[name]) for a, b in zip(got, want, strict=True) for name in b)
    cut = rows_of(octavo.text_batches(["a b c d e"], tokenizer, max_length=4))
    assert cut == [(1, 3, 4, 2)]  # the closing token stays
    assert tokenizer.truncation["max_length"] == 3 and tokenizer.padding["length"] == 50
    whole = octavo._generate.read_tokenizer(tmp_path / "t.json").encode("a b c d e").ids
    assert whole == Words().encode("a b c d e").ids


def module(*arguments, cwd):
    return subprocess.run([sys.executable, "-m", "octavo", *map(str, arguments)], cwd=cwd, env=os.environ, capture_output=True, text=True, timeout=300, check=False)


def test_the_program_takes_texts(tokenizer, tmp_path):
    tokenizer.save(str(tmp_path / "t.json"))
    (tmp_path / "texts.txt").write_text("\n".join(TEXTS), encoding="utf-8")
    given = ["--calib-text", "texts.txt", "--tokenizer", "t.json"]
    done = module("optimize", BERT, "-o", "a.onnx", *given, "--json", "a.json", "--calib-batch", 3, "--calib-keep", "kept", "--report", "a.html", "--no-measure", cwd=tmp_path)
    assert done.returncode == 0 and "calibrated on 3 batches from 'kept'" in done.stdout, done.stderr
    want = octavo.text_batches(TEXTS, Words(), BERT, batch_size=3)
    kept = [dict(np.load(file)) for file in sorted((tmp_path / "kept").iterdir())]
    assert all(np.array_equal(a[name], b[name]) for a, b in zip(kept, want, strict=True) for name in b)
    assert (tmp_path / "a.onnx").read_bytes() == octavo.optimize(BERT, calibration=want).model
    assert read_json(tmp_path / "a.json")["attention"]["fused"] == 2
    assert f"octavo optimize {BERT} -o a.onnx --calib kept --json a.json --report a.html --no-measure<" in (tmp_path / "a.html").read_text(encoding="utf-8")
    done = module("optimize", BERT, "-o", "b.onnx", *given, "--json", "b.json", "--report", "b.html", cwd=tmp_path)
    assert done.returncode == 0 and f"calibrated on {len(TEXTS)} batches from 'texts.txt'\n" in done.stdout, done.stdout + done.stderr
    page = (tmp_path / "b.html").read_text(encoding="utf-8")
    assert f"octavo optimize {BERT} -o b.onnx --calib-text texts.txt --tokenizer t.json --json b.json --report b.html" in page
    assert "octavo-" not in page + (tmp_path / "b.json").read_text() + done.stdout  # where the batches were, and are no more
    done = module("calibrate", BERT, *given, "--calib-batch=3", "-o", "a.calib", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "a.calib").read_bytes() == octavo.calibrate(BERT, want)
    again = module("optimize", BERT, "-o", "a.onnx", *given, "--calib-keep", "kept", cwd=tmp_path)
    assert again.returncode == 2 and "'kept' of --calib-keep has files in it" in again.stderr


def test_arguments_of_the_program_are_passed_on(monkeypatch, tmp_path):
    from octavo import _calib_made

    (tmp_path / "texts.txt").write_text("\n".join(TEXTS), encoding="utf-8")
    calls, made = [], []
    monkeypatch.setattr(_calib_made, "run_program", lambda command: calls.append(command) or 3)
    monkeypatch.setattr(octavo, "text_batches", lambda *a, **k: made.append((a, k)) or [])
    given = ["m.onnx", "--calib-text=texts.txt", "--tokenizer", "t.json", "--assume", "x=true", "-o", "o.onnx", "--calib-tokens", "7"]
    assert _calib_made.main("octavo", "optimize", given) == 3
    folder = calls[0].pop(4)
    typed = "octavo optimize m.onnx --calib-text=texts.txt --tokenizer t.json --assume x=true -o o.onnx --calib-tokens 7"
    assert calls[0] == ["octavo", "optimize", "m.onnx", "--calib", "--assume", "x=true", "-o", "o.onnx", "--calib-name", "texts.txt", "--typed", typed]
    assert folder.name == "texts.txt"
    assert made == [(("texts.txt", "t.json", "m.onnx"), {"batch_size": None, "max_length": 7, "without": ["x"]})]


@pytest.mark.parametrize("arguments, status, words", [
    ([BERT, "-o", "a.onnx", "--calib-text", "t.txt"], 2, "--calib-text needs --tokenizer tokenizer.json, which makes tokens of the texts"),
    (["-o", "a.onnx", BERT, "--calib-text", "t.txt", "--tokenizer", "t.json"], 2, "the model comes first, as in octavo optimize model.onnx --calib-text t.txt"),
    ([BERT, "-o", "a.onnx", "--calib=d", "--calib-text", "t.txt", "--tokenizer", "t.json"], 2, "--calib-text and --calib are both data; give one of them"),
    ([BERT, "-o", "a.onnx", "--calib-text", "none.txt", "--tokenizer", "t.json"], 1, "octavo: cannot read 'none.txt': No such file or directory"),
])
def test_the_program_refuses(arguments, status, words, tmp_path):
    done = module("optimize", *arguments, cwd=tmp_path)
    assert done.returncode == status and words in done.stderr and done.stderr.startswith("octavo: ")


def test_help_of_the_program_names_texts(tmp_path, run):
    done = module("optimize", "--help", cwd=tmp_path)
    assert done.returncode == 0 and done.stdout.startswith(run("optimize", "--help").stdout) and "--calib-text FILE" in done.stdout
    assert "instead of --data" in module("calibrate", "-h", cwd=tmp_path).stdout
    assert json.loads(module("optimize", BERT, "-o", "f.onnx", "--recipe", "float", "--json", "-", "-q", cwd=tmp_path).stdout)
