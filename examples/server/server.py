"""Sentence embeddings over HTTP.

    MODEL=model.int8.onnx TOKENIZER=tokenizer.json uvicorn server:app

POST /embed with {"texts": ["...", "..."]} gives {"embeddings": [[...], [...]]}, each of length 1; GET /health says what runs. MAX_TOKENS (256) cuts a
text, MAX_TEXTS (64) is how many a request may have. OCTAVO_NUM_THREADS says how many threads a request gets.
"""

import json
import os
import pathlib

import numpy as np
import tokenizers
from fastapi import FastAPI
from pydantic import BaseModel, Field

import octavo

SESSION = octavo.Session(os.environ["MODEL"])
PORTS = {port.name: port for port in SESSION.inputs}
OUTPUT = next((port.name for port in SESSION.outputs if port.name == "sentence_embedding"), SESSION.outputs[0].name)
TOKENIZER = tokenizers.Tokenizer.from_file(os.environ["TOKENIZER"])
PADDING = json.loads(pathlib.Path(os.environ["TOKENIZER"]).read_text(encoding="utf-8")).get("padding") or {}
TOKENIZER.enable_truncation(int(os.environ.get("MAX_TOKENS", "256")))
TOKENIZER.enable_padding(pad_id=PADDING.get("pad_id", 0), pad_token=PADDING.get("pad_token", "[PAD]"))

app = FastAPI(title="octavo")


class Texts(BaseModel):
    texts: list[str] = Field(min_length=1, max_length=int(os.environ.get("MAX_TEXTS", "64")))


class Embeddings(BaseModel):
    embeddings: list[list[float]]


def embed(texts):
    encoded = TOKENIZER.encode_batch(texts)
    known = {
        "input_ids": np.array([row.ids for row in encoded]),
        "attention_mask": np.array([row.attention_mask for row in encoded]),
        "token_type_ids": np.array([row.type_ids for row in encoded]),
    }
    values = SESSION.run({name: known[name].astype(port.dtype) for name, port in PORTS.items()}, [OUTPUT])[0].astype(np.float32)
    if values.ndim == 3:  # a vector for each token: their mean is the text's
        mask = known["attention_mask"][..., None]
        values = (values * mask).sum(1) / mask.sum(1)
    return values / np.maximum(np.linalg.norm(values, axis=1, keepdims=True), 1e-12)


@app.get("/health")
def health():
    return {"cpu": octavo.cpu(), "threads": SESSION.threads, "inputs": [f"{port.name} {port.type}" for port in SESSION.inputs], "output": OUTPUT}


@app.post("/embed")
def post_embed(request: Texts) -> Embeddings:  # no async: FastAPI runs it in a thread of a pool, and Session.run lets the others go on
    return Embeddings(embeddings=embed(request.texts).tolist())
