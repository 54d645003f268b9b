"""Batches of token ids from texts: calibration data for models that read text."""

import os
import pathlib
import warnings

import numpy as np

from ._generate import caches_of, empty_cache, ids_in, is_cache, read_tokenizer, tokens_of
from ._octavo import Graph, OctavoError, Session, _read
from ._results import Port
from ._words import takes

_IDS, _MASK, _TYPES, _PLACES = "input_ids", "attention_mask", "token_type_ids", "position_ids"
_MOST_TEXT = 1 << 30  # bytes of a file of texts
_MOST, _BATCHES = 32, 8  # texts of a batch; as many batches at least, of texts of like lengths
_MOST_CACHES = 1 << 28  # bytes of all that are filled
_DTYPES = {"s64": "int64", "s32": "int32", "u8": "uint8", "s8": "int8", "bool": "bool", "f16": "float16", "f32": "float32", "f64": "float64"}


def ports_of(model, without=()):
    """The inputs of a Session, a Graph or whatever is read as a model, by name."""
    if isinstance(model, Session):
        ports = model.inputs
    else:
        graph = model if isinstance(model, Graph) else Graph(model)
        ports = [Port(v.name, v.type, np.dtype(_DTYPES.get(v.dtype, "V1")), v.shape) for v in graph.inputs]
    without = set(without)
    return {port.name: port for port in ports if port.name not in without}


def _ports(model, without):
    """The inputs by name, and how many tokens the model knows (None: not told); inputs of a model that is not given are ids and a mask of any size."""
    if model is None:
        return {name: Port(name, "s64", np.dtype(np.int64), [None, None]) for name in (_IDS, _MASK)}, None
    if isinstance(model, Session):
        return ports_of(model, without), None
    graph = model if isinstance(model, Graph) else Graph(model)
    return ports_of(graph, without), graph._id_limit(_IDS)


def check(ports):
    """Refuses inputs that a text says nothing of."""
    if _IDS not in ports:
        raise OctavoError(f"the model has no input '{_IDS}' ({', '.join(ports)}); texts become batches for models that read token ids")
    for name, port in ports.items():
        of_tokens = name in (_IDS, _MASK, _TYPES, _PLACES) and (port.shape is None or len(port.shape) == 2)
        if not of_tokens and not is_cache(name):
            raise OctavoError(
                f"a text does not tell what the model's input '{name}' of {port.type} is given; make batches by hand, or a constant of it by assume")


def _fixed(port, axis):
    """The size of an axis where the model has a number for it."""
    size = port.shape[axis] if port.shape and len(port.shape) > axis else None
    return size if isinstance(size, int) else None


def text_of(path, way):
    """What a file of UTF-8 says; way: the way out, for the sentence where it cannot be read."""
    try:
        return _read(path, _MOST_TEXT).decode("utf-8").replace("\r\n", "\n").replace("\r", "\n")
    except UnicodeDecodeError as error:
        raise OctavoError(f"'{path}' is no text in UTF-8: byte {error.start} is not; convert it, as by iconv") from None
    except OctavoError as error:
        raise OctavoError(f"{error}; {way}") from None


def lines(texts):
    """The texts that say something; a path is a file with one on each line."""
    if isinstance(texts, (str, os.PathLike)):
        texts = text_of(texts, "give a file with a text on each line").splitlines()
    return [text for text in texts if text.strip()]


def cutting(tokenizer, max_length):
    """The tokenizer with this limit (None: none) and without padding, of which a tokenizer.json says what was for another use; one that is given stays as it is."""
    if isinstance(tokenizer, (str, os.PathLike)):
        tokenizer = read_tokenizer(tokenizer)
    else:
        tokenizer = getattr(tokenizer, "backend_tokenizer", tokenizer)  # of a tokenizer of transformers
        if not hasattr(tokenizer, "enable_truncation"):  # of somebody's own
            return tokenizer
        tokenizer = type(tokenizer).from_str(tokenizer.to_str())
        tokenizer.no_truncation()
        tokenizer.no_padding()
    if max_length is not None:
        tokenizer.enable_truncation(max_length)
    return tokenizer


def _rows(texts, tokenizer, max_length, known):
    """Ids and token types of each text that has tokens; known: rows of the model's table of them, or None."""
    tokenizer = cutting(tokenizer, max_length)
    rows = []
    for text in texts:
        encoded = tokens_of(tokenizer, text)
        ids = list(ids_in(encoded))[:max_length]
        if ids:
            rows.append((ids, list(getattr(encoded, "type_ids", ()))[:max_length] or [0] * len(ids)))
    if not rows:
        raise OctavoError("the texts have no tokens; give some hundred texts as the model will see them, one on each line")
    most, least = max(max(ids) for ids, _ in rows), min(min(ids) for ids, _ in rows)
    if least < 0:
        raise OctavoError(f"the tokenizer gives the id {least}; ids of tokens are 0 or more")
    if known is not None and most >= known:
        raise OctavoError(f"the tokenizer gives the id {most}, and the model knows {known} tokens; another model's tokenizer?")
    return rows


def _joined(rows, length, fixed):
    """Rows that are full, out of all texts one behind another: where no mask can hide what pads a row."""
    ids, types = ([token for row in rows for token in row[part]] for part in (0, 1))
    if len(ids) < length:
        if fixed:
            raise OctavoError(f"the texts have {len(ids)} tokens, and the model reads {length} at once and has no attention_mask; give more texts")
        length = len(ids)
    return [(ids[at : at + length], types[at : at + length]) for at in range(0, len(ids) - length + 1, length)]


def _batch(rows, length, ports):
    shape = len(rows), length
    known = {name: np.zeros(shape, np.int64) for name in (_IDS, _MASK, _TYPES)}
    for line, (ids, types) in enumerate(rows):
        for name, values in ((_IDS, ids), (_MASK, 1), (_TYPES, types)):
            known[name][line, : len(ids)] = values
    known[_PLACES] = np.broadcast_to(np.arange(length), shape)
    return {name: np.ascontiguousarray(known[name], port.dtype) if name in known else empty_cache(port, len(rows)) for name, port in ports.items()}


def _halves(rows):
    """What a prompt of the texts' beginnings is given, and what reads on is given behind it: as many last tokens of each, so that padding stands in front."""
    length, now = max(len(ids) for ids, _ in rows), min(len(ids) for ids, _ in rows) // 2
    known = {name: np.zeros((len(rows), length), np.int64) for name in (_IDS, _MASK, _TYPES)}
    for line, (ids, types) in enumerate(rows):
        for name, values in ((_IDS, ids), (_MASK, 1), (_TYPES, types)):
            known[name][line, length - len(ids) :] = values
    known[_PLACES] = np.maximum(known[_MASK].cumsum(1) - 1, 0)
    cut = length - now
    return {name: a[:, :cut] for name, a in known.items()}, {name: a if name == _MASK else a[:, cut:] for name, a in known.items()}


def _read_on(rows, ports, session, present_of):
    """A batch of the later halves of texts, whose caches are what the model makes of the first; None where it does not make them so."""
    halves = _halves(rows)
    first, second = ({name: np.ascontiguousarray(half[name], ports[name].dtype) for name in half if name in ports} for half in halves)
    empty = {past: empty_cache(ports[past], len(rows)) for past in present_of}
    hidden = halves[0][_MASK] == 0
    for past, cache in zip(present_of, session.run({**first, **empty}, outputs=list(present_of.values()))):
        axis = empty[past].shape.index(0, 1)
        if cache.shape != empty[past].shape[:axis] + hidden.shape[1:] + empty[past].shape[axis + 1 :]:
            return None
        np.moveaxis(cache, (0, axis), (0, 1))[hidden] = 0  # what stands there is nothing that calibration should see
        second[past] = cache
    return second


def _fill_caches(batches, parts, ports, model):
    """Every second batch reads on, as a decoder does; the others stay prompts."""
    if any(_fixed(ports[name], 1) for name in (_IDS, _MASK, _TYPES, _PLACES) if name in ports):
        return
    chosen = [i for i, rows in enumerate(parts) if (i + i // _BATCHES) % 2 and min(len(ids) for ids, _ in rows) > 1]  # of long and short texts some and some not
    bytes_of_token = sum(empty_cache(port).dtype.itemsize * int(np.prod([d for d in port.shape[1:] if isinstance(d, int)])) for name, port in ports.items() if is_cache(name))
    whole = sum(len(parts[i]) * max(len(ids) for ids, _ in parts[i]) * bytes_of_token for i in chosen)
    try:
        session = model if isinstance(model, Session) else Session(model)
        pasts, presents = caches_of(ports, [port.name for port in session.outputs])
        for i in chosen[:: 1 + whole // _MOST_CACHES]:
            if len(pasts) == len(presents):
                batches[i] = _read_on(parts[i], ports, session, dict(zip(pasts, presents))) or batches[i]
    except OctavoError as error:
        warnings.warn(f"the caches of calibration stay empty, since the model does not run here: {error}", stacklevel=4)


@takes(texts="file|words", tokenizer="tokenizer", batch_size="whole", max_length="whole", without="words")
def text_batches(texts, tokenizer, model=None, *, batch_size=None, max_length=128, without=()):
    """Batches for optimize(calibration=...), calibrate and compare; __init__.pyi says what is given."""
    if max_length < 1 or batch_size is not None and batch_size < 1:
        raise OctavoError(f"batch_size is {batch_size} and max_length {max_length}; both are 1 or more")
    ports, known = _ports(model, without)
    check(ports)
    count, length = (_fixed(ports[_IDS], axis) for axis in (0, 1))
    if _MASK in ports:
        rows = _rows(lines(texts), tokenizer, min(max_length, length or max_length), known)
    else:
        rows = _joined(_rows(lines(texts), tokenizer, None, known), length or max_length, length is not None)
    rows.sort(key=lambda row: len(row[0]))  # texts of like lengths beside each other: little is padding
    size = count or batch_size or max(1, min(_MOST, len(rows) // _BATCHES))
    parts = [rows[at : at + size] for at in range(0, len(rows), size)]
    if count:  # the last one is filled up with its own rows
        parts[-1] = [parts[-1][line % len(parts[-1])] for line in range(count)]
    if len(parts) < _BATCHES:  # where none is held out, losses are told, and min_db is kept, on the first
        middle = len(parts) // 2
        parts = parts[middle:] + parts[:middle]
    batches = [_batch(part, length or max(len(row[0]) for row in part), ports) for part in parts]
    if any(map(is_cache, ports)) and not without:
        _fill_caches(batches, parts, ports, model)
    return batches
