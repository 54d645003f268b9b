"""examples/server: embeddings over HTTP for eight clients at once, and what its Dockerfile says."""

import concurrent.futures
import json
import os
import re
import subprocess
import sys
import threading
import urllib.error
import urllib.request

import numpy as np
import octavo
import pytest
from conftest import BERT, SOURCE

SERVER = SOURCE / "examples" / "server"
CLIENTS, REQUESTS = 8, 12
WORDS = {"[PAD]": 0, "[CLS]": 1, "[SEP]": 2, **{chr(ord("a") + i): 3 + i for i in range(26)}}


@pytest.fixture(scope="module")
def url(tmp_path_factory):
    """A server on a port of its own, on a small BERT."""
    reason = "no FastAPI here: ./dev venv server installs it"
    for package in ("fastapi", "uvicorn", "tokenizers"):
        pytest.importorskip(package, reason=reason)
    import tokenizers

    made = tokenizers.Tokenizer(tokenizers.models.WordLevel(WORDS, unk_token="[PAD]"))
    made.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    made.post_processor = tokenizers.processors.TemplateProcessing(single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 1), ("[SEP]", 2)])
    made.enable_padding(length=40)
    path = tmp_path_factory.mktemp("server") / "tokenizer.json"
    made.save(str(path))
    environment = os.environ | {"MODEL": str(BERT), "TOKENIZER": str(path), "MAX_TOKENS": "12", "MAX_TEXTS": "5", "OCTAVO_NUM_THREADS": "2"}
    command = [sys.executable, "-m", "uvicorn", "server:app", "--app-dir", str(SERVER), "--host", "127.0.0.1", "--port", "0"]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        try:
            said = []
            for line in process.stdout:
                said.append(line)
                if found := re.search(r"running on (http://127\.0\.0\.1:\d+)", line):
                    break
            else:
                pytest.fail(f"the server ended:\n{''.join(said)}")
            threading.Thread(target=process.stdout.read, daemon=True).start()  # so that a full pipe stops nobody
            yield found[1]
        finally:
            process.terminate()


def call(url, path, body=None):
    request = urllib.request.Request(url + path, None if body is None else json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=120) as answer:
        return json.load(answer)


def alone(texts):
    """What octavo gives for these texts, padded as the server pads them."""
    rows = [[1, *(WORDS[word] for word in text.split()), 2] for text in texts]
    rows = [[*row[:11], 2] if len(row) > 12 else row for row in rows]
    ids = np.array([row + [0] * (max(map(len, rows)) - len(row)) for row in rows])
    mask = np.array([[1] * len(row) + [0] * (ids.shape[1] - len(row)) for row in rows])
    values = octavo.Session(BERT, threads=2).run({"input_ids": ids, "attention_mask": mask})[0]
    mean = (values * mask[..., None]).sum(1) / mask.sum(1, keepdims=True)
    return mean / np.linalg.norm(mean, axis=1, keepdims=True)


def test_eight_clients_at_once_get_what_each_asked_for(url):
    rng = np.random.default_rng(31)
    asked = [[[" ".join(rng.choice(list("abcdefgh"), rng.integers(1, 15))) for _ in range(rng.integers(1, 6))] for _ in range(REQUESTS)] for _ in range(CLIENTS)]
    begin = threading.Barrier(CLIENTS)

    def client(batches):
        begin.wait()
        return [call(url, "/embed", {"texts": texts})["embeddings"] for texts in batches]

    with concurrent.futures.ThreadPoolExecutor(CLIENTS) as pool:
        answers = list(pool.map(client, asked))
    for batches, answer in zip(asked, answers, strict=True):
        for texts, got in zip(batches, answer, strict=True):
            # The means are made of float32 and sent as decimals of float64; ids that nobody else asked for would be off by far more.
            assert np.allclose(got, alone(texts), atol=1e-5)


def test_health_tells_what_runs(url):
    told = call(url, "/health")
    assert told["cpu"] == octavo.cpu() and told["threads"] == 2 and told["output"] == "hidden"
    assert told["inputs"][0].startswith("input_ids s64")


@pytest.mark.parametrize("body", [{}, {"texts": []}, {"texts": ["a"] * 6}, {"texts": "a"}, {"texts": [1]}])
def test_what_is_no_request_is_refused(url, body):
    with pytest.raises(urllib.error.HTTPError) as raised:
        call(url, "/embed", body)
    assert raised.value.code == 422


def test_the_image_is_made_of_what_is_here_and_runs_without_rights():
    lines = (SERVER / "Dockerfile").read_text().splitlines()
    steps = [line.split(None, 1) for line in lines if re.match(r"[A-Z]+ ", line)]
    sources = [word for step, rest in steps if step == "COPY" for word in rest.split()[:-1]]
    assert "examples/server/server.py" in sources and all((SOURCE / name).is_file() for name in sources if not name.startswith("dist/"))
    assert [step for step, _ in steps].count("USER") == 1 and ["USER", "octavo"] in steps
    assert steps.index(["USER", "octavo"]) < next(i for i, (step, _) in enumerate(steps) if step == "CMD")
    assert "-slim" in steps[0][1] and '"server:app"' in dict(steps)["CMD"]
    told = dict(pair.split("=") for pair in dict(steps)["ENV"].split())
    assert set(re.findall(r'environ\["(\w+)"\]', (SERVER / "server.py").read_text())) <= set(told)
