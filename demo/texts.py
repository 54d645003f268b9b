"""Real text for the demo: descriptions of Debian packages, as token ids, in batches."""

import hashlib
import pathlib

import numpy as np

QUERY_TOKENS = 32
DOCUMENT_TOKENS = 128
BATCH = 32


def read_packages(status_files):
    """[(name, short description, long description)], sorted by name; whatever describes itself in the same words is left out."""
    packages = {}
    for path in status_files:
        if not pathlib.Path(path).is_file():
            continue
        for stanza in pathlib.Path(path).read_text(errors="replace").split("\n\n"):
            name, short, long = "", "", []
            field = ""
            for line in stanza.splitlines():
                if not line.startswith(" "):
                    field, _, value = line.partition(":")
                    if field == "Package":
                        name = value.strip()
                    elif field == "Description":
                        short = value.strip()
                elif field == "Description" and line.strip() != ".":
                    long.append(line.strip())
            if name and short and len(" ".join(long)) > 80:
                packages.setdefault(name, (name, short, " ".join(long)))
    unique, seen = [], set()
    for name in sorted(packages):
        _, short, long = packages[name]
        # Libraries and their -dev and -bin siblings share texts: no search could tell them apart.
        keys = {short, long[:200]}
        if not keys & seen:
            unique.append(packages[name])
        seen |= keys
    return unique


def split(packages, calibration_count):
    """(calibration, rest): the same split and order for the same packages, by a hash of the name."""
    ordered = sorted(packages, key=lambda p: hashlib.sha256(p[0].encode()).hexdigest())
    return ordered[:calibration_count], ordered[calibration_count:]


class WordHash:
    """Stands in for a tokenizer where the real one cannot be fetched: a word is a number made of its letters."""

    def __init__(self, vocabulary):
        self.vocabulary = vocabulary

    def __call__(self, text, limit):
        words = [hashlib.sha256(w.encode()).digest() for w in text.lower().split()[: limit - 2]]
        return [1] + [3 + int.from_bytes(w[:4], "little") % (self.vocabulary - 3) for w in words] + [2]


class ModelTokenizer:
    """The tokenizer that the model was trained with."""

    def __init__(self, path):
        from tokenizers import Tokenizer  # pylint: disable=import-outside-toplevel

        self.tokenizer = Tokenizer.from_file(str(path))
        self.tokenizer.no_padding()

    def __call__(self, text, limit):
        self.tokenizer.enable_truncation(limit)
        return self.tokenizer.encode(text).ids


def batches(token_lists, input_names):
    """[(positions, inputs)]: sorted by length, BATCH at a time, padded to the longest of the batch."""
    order = sorted(range(len(token_lists)), key=lambda i: len(token_lists[i]))
    result = []
    for start in range(0, len(order), BATCH):
        positions = order[start : start + BATCH]
        longest = max(len(token_lists[i]) for i in positions)
        ids = np.zeros((len(positions), longest), np.int64)
        mask = np.zeros_like(ids)
        for row, i in enumerate(positions):
            ids[row, : len(token_lists[i])] = token_lists[i]
            mask[row, : len(token_lists[i])] = 1
        known = {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}
        result.append((positions, {name: known[name] for name in input_names}))
    return result
