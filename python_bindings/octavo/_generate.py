"""Text of decoders: Generator, and perplexity of token ids."""

import re

import numpy as np

from ._octavo import OctavoError, Session

_PAST = re.compile(r"past|cache", re.IGNORECASE)


class _Decoder:
    """A model and its caches: logits of tokens that follow those before."""

    def __init__(self, model, threads=0):
        self.session = model if isinstance(model, Session) else Session(model, threads=threads)
        ports = {port.name: port for port in self.session.inputs}
        if "input_ids" not in ports:
            raise OctavoError(f"the model has no input 'input_ids' ({', '.join(ports)}); generation takes decoders that read token ids")
        pasts = [name for name in ports if is_cache(name)]
        outputs = [port.name for port in self.session.outputs]
        presents = [name for name in outputs if re.search(r"present|cache", name, re.IGNORECASE)]
        if len(pasts) != len(presents):
            raise OctavoError(f"the model has {len(pasts)} caches as inputs and {len(presents)} as outputs; generation takes as many of both")
        rest = [name for name in outputs if name not in presents]
        self.logits = "logits" if "logits" in rest else rest[0]
        self.present_of = dict(zip(sorted(pasts, key=_in_order), sorted(presents, key=_in_order)))
        self.ports = ports
        for name in ports:
            if name not in pasts and name not in ("input_ids", "attention_mask", "position_ids"):
                raise OctavoError(f"generation does not know what the model's input '{name}' is given; make it a constant by --assume")
        self.state = self._state(set(pasts))
        self.reset()

    def _state(self, pasts):
        """What keeps the caches, or None where the model is none whose caches a session can tell."""
        try:
            state = self.session.state()
        except OctavoError:
            return None
        return state if set(state.inputs) == pasts else None

    def reset(self):
        self.tokens = []
        if self.state is not None:
            self.state.reset()
            self.caches = {}
        else:
            self.caches = {name: empty_cache(self.ports[name]) for name in self.present_of}

    def run(self, ids):
        """Logits [len(ids), vocabulary] of tokens behind those that were run."""
        before = len(self.tokens)
        self.tokens += [int(i) for i in ids]
        if self.state is None and not self.caches:  # everything again
            return self._call(self.tokens, 0)[before:]
        return self._call(ids, before)

    def _call(self, ids, before):
        count = len(ids)
        feeds = {"input_ids": np.asarray(ids, np.int64)[None], **self.caches}
        if "attention_mask" in self.ports:
            feeds["attention_mask"] = np.ones((1, before + count), np.int64)
        if "position_ids" in self.ports:
            feeds["position_ids"] = np.arange(before, before + count, dtype=np.int64)[None]
        for name in ("input_ids", "attention_mask", "position_ids"):
            if name in feeds:
                feeds[name] = feeds[name].astype(self.ports[name].dtype)
        if self.state is not None:
            (logits,) = self.session.run(feeds, [self.logits], state=self.state)
            return logits[0].astype(np.float32)
        wanted = [self.logits, *self.present_of.values()]
        logits, *presents = self.session.run(feeds, outputs=wanted, donate=[n for n, c in self.caches.items() if c.size])
        self.caches = dict(zip(self.present_of, presents))
        return logits[0].astype(np.float32)


def _in_order(name):
    """A key that sorts layers by number, and key before value, whatever is written around them."""
    return [int(n) for n in re.findall(r"\d+", name)], "value" in name.lower() or name.lower().endswith("v"), name


def is_cache(name):
    """Whether an input of this name takes the keys or values of tokens that were."""
    return bool(_PAST.search(name)) and name != "use_cache_branch"


def empty_cache(port, batch=1):
    """A cache of no tokens: the first size that is no number is the batch, the others are of tokens."""
    shape = [size if isinstance(size, int) else 0 for size in port.shape or ()]
    if len(shape) < 3 or 0 not in shape[1:]:
        raise OctavoError(f"the model's input '{port.name}' of {port.type} is no cache that grows by tokens, and none but such a cache begins empty")
    return np.zeros([shape[0] or batch, *shape[1:]], port.dtype)


def _softmax(logits):
    e = np.exp(logits - logits.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def _choose(logits, temperature, top_k, top_p, random):
    if temperature == 0:
        return int(np.argmax(logits))
    p = _softmax(logits.astype(np.float64) / temperature)
    order = np.argsort(-p, kind="stable")
    if top_k:
        order = order[:top_k]
    if top_p < 1:
        total = np.cumsum(p[order])
        order = order[: int(np.searchsorted(total, top_p * total[-1])) + 1]
    return int(random.choice(order, p=p[order] / p[order].sum()))


def read_tokenizer(path):
    """A tokenizers.Tokenizer of tokenizer.json that gives all tokens of a text: what the file says of limit and padding was for another use."""
    try:
        import tokenizers
    except ImportError:
        raise OctavoError("the package 'tokenizers' is missing, which reads tokenizer.json; pip install tokenizers") from None
    try:
        tokenizer = tokenizers.Tokenizer.from_file(str(path))
    except Exception as error:  # the package's own errors have no other base
        raise OctavoError(f"'{path}' is no tokenizer.json: {error}") from None
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


class Generator:
    """Writes on behind a prompt, token by token; __init__.pyi says what each argument is."""

    def __init__(self, model, tokenizer=None, *, threads=0, chunk=256):
        if chunk < 1:
            raise OctavoError(f"chunk is {chunk}; a prompt is read in pieces of at least one token")
        self._decoder = _Decoder(model, threads)
        self._chunk = chunk
        named = isinstance(tokenizer, str) or hasattr(tokenizer, "__fspath__")
        self.tokenizer = read_tokenizer(tokenizer) if named else tokenizer

    def tokens(self, prompt, max_tokens=128, *, temperature=0.0, top_k=0, top_p=1.0, seed=0, stop_tokens=()):
        """Token ids behind `prompt` (ids), one after the other as they are made; ends behind one of stop_tokens, which is not given."""
        prompt = list(prompt)
        if not prompt:
            raise OctavoError("the prompt has no tokens; give at least one (a model's first token will do)")
        if temperature < 0 or top_k < 0 or not 0 < top_p <= 1:
            raise OctavoError(f"temperature {temperature}, top_k {top_k}, top_p {top_p}: the first two are 0 or more, the last in (0, 1]")
        random = np.random.default_rng(seed)
        self._decoder.reset()
        logits = None
        for first in range(0, len(prompt), self._chunk):
            logits = self._decoder.run(prompt[first : first + self._chunk])
        for i in range(max_tokens):
            token = _choose(logits[-1], temperature, top_k, top_p, random)
            if token in stop_tokens:
                return
            yield token
            if i + 1 < max_tokens:
                logits = self._decoder.run([token])

    def text(self, prompt, max_tokens=128, *, stop=(), **how):
        """The same as text, in pieces whose characters are whole; ends before the first of the texts `stop`."""
        if self.tokenizer is None:
            raise OctavoError("this Generator has no tokenizer; give one, or use tokens()")
        stop = [stop] if isinstance(stop, str) else list(stop)
        held = max((len(s) for s in stop), default=1) - 1
        ids, given = [], 0
        for token in self.tokens(self.tokenizer.encode(prompt).ids, max_tokens, **how):
            ids.append(token)
            whole = self.tokenizer.decode(ids)
            ends = [at for at in (whole.find(s) for s in stop) if at >= 0]
            if ends:
                yield whole[given : min(ends)]
                return
            ready = len(whole) - held if not whole.endswith("\ufffd") else given
            if ready > given:
                yield whole[given:ready]
                given = ready
        rest = self.tokenizer.decode(ids)[given:]
        if rest:
            yield rest


def perplexity(model, tokens, *, against=None, window=512, threads=0):
    """How well a decoder tells the tokens of a text; __init__.pyi says what is given."""
    tokens = list(tokens)
    if len(tokens) < 2 or window < 2:
        raise OctavoError(f"a text of {len(tokens)} tokens in windows of {window} has nothing to tell; both are 2 or more")
    mine, other = _Decoder(model, threads), None if against is None else _Decoder(against, threads)
    nats, divergence, same, count = 0.0, 0.0, 0, 0
    for first in range(0, len(tokens) - 1, window):
        ids = tokens[first : first + window + 1]
        log = _log_softmax(mine, ids[:-1])
        nats -= log[np.arange(len(ids) - 1), ids[1:]].sum()
        count += len(ids) - 1
        if other is not None:
            reference = _log_softmax(other, ids[:-1])
            divergence += (np.exp(reference) * (reference - log)).sum()
            same += int((reference.argmax(-1) == log.argmax(-1)).sum())
    result = {"tokens": count, "perplexity": float(np.exp(nats / count))}
    if other is not None:
        result |= {"kl": float(divergence / count), "top1": same / count}
    return result


def _log_softmax(decoder, ids):
    decoder.reset()
    logits = decoder.run(ids).astype(np.float64)
    logits -= logits.max(-1, keepdims=True)
    return logits - np.log(np.exp(logits).sum(-1, keepdims=True))
