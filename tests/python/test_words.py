"""Sentences of the library are in words of Python and C++; the program alone says flags (api/words.cc)."""

import re
import subprocess

import numpy as np
import octavo
import pytest
from conftest import BERT, SOURCE

ROOMS = ("api", "ir", "kernels", "passes", "python_bindings", "quant", "runtime")
# Tables of flags; what starts the program; pages that show the command that made them.
OTHERS = ("api/options.cc", "api/words.cc", "api/peak.cc", "api/report_html.cc", "api/report_text.cc", "api/report_measured.cc")
LITERAL = re.compile(r'"((?:[^"\\\n]|\\.)*)"')


def sentences():
    for room in ROOMS:
        for file in sorted((SOURCE / room).rglob("*.cc")):
            if str(file.relative_to(SOURCE)) not in OTHERS:
                for number, line in enumerate(file.read_text().splitlines(), 1):
                    if not line.lstrip().startswith(("#include", "//")):
                        yield from ((file.relative_to(SOURCE), number, text) for text in LITERAL.findall(line))


def test_no_sentence_of_the_library_says_a_flag_or_a_command():
    found = list(sentences())
    assert len(found) > 5000
    wrong = [f"{file}:{number}: {text}" for file, number, text in found if re.search(r"(?<![-<])--[a-z]", text) or "`octavo " in text]
    assert not wrong, "\n".join(wrong)


def words():
    block = re.search(r"WordsOfProgram\(\) \{(.*?)\n\}", (SOURCE / "api/words.cc").read_text(), re.DOTALL)[1]
    return re.findall(r'\{"([^"]+)", "([^"]+)"\}', block)


def test_words_of_python_are_there():
    assert len(words()) > 8
    for python, _ in words():
        for name in re.findall(r"octavo\.(\w+)", python):
            assert hasattr(octavo, name), python


@pytest.mark.parametrize(("arguments", "program", "python"), [
    (["optimize", BERT, "-o", "{out}", "--min-db", "20"], "--min-db runs batches of calibration data: give --calib; a .calib file has none",
     lambda: octavo.optimize(BERT, min_db=20)),
    (["optimize", BERT, "-o", "{out}"], "texts or pictures (--calib-text, --calib-images), or random:N", lambda: octavo.optimize(BERT)),
    (["inspect", BERT, "--max-nodes", "5"], "raise --max-nodes if", lambda: octavo.Session(BERT, max_nodes=5)),
    (["inspect", BERT, "--max-memory", "4KB"], "raise --max-memory if", lambda: octavo.Session(BERT, max_memory=4096)),
    (["explain", BERT, "--node", "nowhere"], "`octavo print FILE` lists them", lambda: octavo.explain(BERT, node="nowhere")),
])
def test_each_says_its_own(octavo_program, tmp_path, arguments, program, python):
    done = subprocess.run([octavo_program, *(str(a).format(out=tmp_path / "o.onnx") for a in arguments)], capture_output=True, text=True)
    assert done.returncode != 0 and program in done.stderr, done.stderr
    with pytest.raises(octavo.OctavoError) as raised:
        python()
    assert not re.search(r"--[a-z]|`octavo ", str(raised.value)), raised.value
    assert np.any([word in str(raised.value) for word, _ in words()] + ["calibration=" in str(raised.value)]), raised.value
