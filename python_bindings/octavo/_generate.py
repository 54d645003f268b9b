"""Text of decoders: Generator, and perplexity of token ids."""

import itertools
import os
import re

import numpy as np

from ._octavo import OctavoError, Session
from ._words import check

_PAST = re.compile(r"past|cache", re.IGNORECASE)


_NOT_OURS = (KeyboardInterrupt, SystemExit, GeneratorExit, MemoryError)
_MOST_GUESSED = 64  # what a state with windows can take back
_GIVEN = ("input_ids", "attention_mask", "position_ids", "use_cache_branch", "num_logits_to_keep", "logits_to_keep")


def _open(model, **options):
    """A session that makes logits of the last tokens alone where it is asked to, if the model allows it."""
    try:
        return Session(model, **options, logits_to_keep=True)
    except OctavoError as error:
        if not str(error).startswith("logits_to_keep:"):
            raise
        return Session(model, **options)


def _refuse_if_open(models, **given):
    """Options of a Session that is opened here, where none is."""
    for name, value in given.items():
        if value not in (0, None, False) and all(isinstance(model, Session) for model in models):
            raise OctavoError(f"{name} is of a Session that is to be opened, and this one is open: give {name} to it, or the model's path here")


class _Decoder:
    """A model whose sequences can be run: logits of tokens that follow those before."""

    def __init__(self, model, threads=0, cache=None, packed=None, progress=None):
        self.cache = cache
        self.session = model if isinstance(model, Session) else _open(model, threads=threads, packed=packed, progress=progress)
        ports = {port.name: port for port in self.session.inputs}
        if "input_ids" not in ports:
            raise OctavoError(f"the model has no input 'input_ids' ({', '.join(ports)}); generation takes decoders that read token ids")
        outputs = [port.name for port in self.session.outputs]
        pasts, presents = caches_of(ports, outputs)
        if len(pasts) != len(presents):
            raise OctavoError(f"the model has {len(pasts)} caches as inputs and {len(presents)} as outputs; generation takes as many of both")
        rest = [name for name in outputs if name not in presents]
        if not rest:
            raise OctavoError(f"the model has no output but its caches ({', '.join(outputs)}); generation takes decoders that give logits")
        self.logits = "logits" if "logits" in rest else rest[0]
        self.present_of = dict(zip(pasts, presents))
        self.ports = ports
        for name in ports:
            if name not in pasts and name not in _GIVEN:
                raise OctavoError(f"generation does not know what the model's input '{name}' is given; make it a constant by optimize's option assume")
        try:  # of no model but one whose caches a session can tell
            self.keeps = set(self.session.state().inputs) == set(pasts)
        except OctavoError:
            self.keeps = False
        if cache is not None and not self.keeps:
            raise OctavoError("the model's caches are none that a session keeps, so they stay what the model has; leave `cache` out")
        _Sequence(self)  # says what caches cannot begin empty

    def run(self, reads):
        """Logits [tokens, vocabulary] of what each sequence reads next: a sequence, its tokens, and of how many of the last ones logits are wanted."""
        feeds = [sequence.feeds(ids, keep) for sequence, ids, keep in reads]
        if not self.keeps:
            return [sequence.run(one) for (sequence, _, _), one in zip(reads, feeds)]
        if len(reads) == 1:
            results = [self.session.run(feeds[0], [self.logits], state=reads[0][0].state)]
        else:
            results = self.session.run_together(feeds, [self.logits], [sequence.state for sequence, _, _ in reads])
        return [self.last_of(logits, keep) for (logits,), (_, _, keep) in zip(results, reads)]

    def last_of(self, logits, keep):
        """Logits of the last tokens that were read."""
        if logits.ndim != 3 or logits.dtype.kind not in "fiu" or logits.shape[0] != 1 or logits.shape[1] < keep or logits.shape[2] == 0:
            raise OctavoError(f"the model's output '{self.logits}' is {logits.dtype} of {list(logits.shape)}, no logits of [1, tokens, vocabulary] with {keep} or more tokens; "
                              "another model, or one that gives the last token's alone where those of all are wanted")
        return logits[0][-keep:].astype(np.float32)


class _Sequence:
    """Tokens that a decoder was given, and its caches of them."""

    def __init__(self, decoder, room=0):
        self.decoder, self.tokens = decoder, []
        self.state = decoder.session.state(room, cache=decoder.cache) if decoder.keeps else None
        self.caches = {} if decoder.keeps else {name: empty_cache(decoder.ports[name]) for name in decoder.present_of}

    def copy(self, tokens):
        """The first tokens once more, to go on elsewhere."""
        other = _Sequence.__new__(_Sequence)
        other.decoder, other.tokens = self.decoder, list(self.tokens)
        other.state = self.state and self.state.copy()
        other.caches = {name: cache.copy() for name, cache in self.caches.items()}
        if tokens < len(self.tokens):
            other.cut(tokens)
        return other

    def feeds(self, ids, keep):
        """What the model is given for tokens behind those that were run, to make logits of the last `keep` of them."""
        before, ports = len(self.tokens), self.decoder.ports
        self.tokens += [int(i) for i in ids]
        self.keep = keep
        if self.state is None and not self.caches:  # everything again
            ids, before = self.tokens, 0
        count = len(ids)
        feeds = {"input_ids": np.asarray(ids, np.int64)[None], "attention_mask": np.ones((1, before + count), np.int64),
                 "position_ids": np.arange(before, before + count, dtype=np.int64)[None]}
        for name, one in (("use_cache_branch", before > 0), ("num_logits_to_keep", keep), ("logits_to_keep", keep)):
            if name in ports:
                feeds[name] = np.full([1] * len(ports[name].shape or ()), one)
        return {name: array.astype(ports[name].dtype) for name, array in feeds.items() if name in ports}

    def run(self, feeds):
        """Logits where the caches are kept here."""
        wanted = [self.decoder.logits, *self.decoder.present_of.values()]
        donate = [name for name, cache in self.caches.items() if cache.size]
        logits, *presents = self.decoder.session.run({**feeds, **self.caches}, outputs=wanted, donate=donate)
        self.caches = dict(zip(self.decoder.present_of, presents))
        return self.decoder.last_of(logits, self.keep)

    def can_be_cut(self, tokens):
        return self.state is None or tokens == len(self.tokens) or tokens >= self.state.least

    def cut(self, tokens):
        """Forgets all but the first tokens."""
        if self.state is not None:
            self.state.cut(tokens)
        for name, cache in self.caches.items():
            shape = self.decoder.ports[name].shape
            axis = next(d for d in range(1, len(shape)) if not isinstance(shape[d], int))
            self.caches[name] = cache.take(range(tokens), axis)
        del self.tokens[tokens:]


def _in_order(name):
    """A key that sorts layers by number, and key before value, whatever is written around them."""
    return [int(n) for n in re.findall(r"\d+", name)], "value" in name.lower() or name.lower().endswith("v"), name


def is_cache(name):
    """Whether an input of this name takes the keys or values of tokens that were."""
    return bool(_PAST.search(name)) and name != "use_cache_branch"


def caches_of(inputs, outputs):
    """Names of caches among both, in one order."""
    presents = [name for name in outputs if re.search(r"present|cache", name, re.IGNORECASE)]
    return sorted(filter(is_cache, inputs), key=_in_order), sorted(presents, key=_in_order)


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
    best = int(np.argmax(logits))  # NaN is the largest for it
    if temperature > 0 and np.isinf(logits[best]) or np.isnan(logits[best]):
        raise OctavoError(f"the model gives {logits[best]} among its logits, of which no token can be chosen; look at its weights, and at what optimizing it lost (octavo compare)")
    if temperature == 0:
        return best
    with np.errstate(over="ignore"):
        scaled = logits.astype(np.float64) / temperature
    if not np.isfinite(scaled[best]):  # next to 0: nothing but the likeliest
        return best
    p = _softmax(scaled)
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
    path = os.fsdecode(path)
    if os.path.exists(path) and not os.path.isfile(path):  # a pipe may wait for ever, and a device has no end
        raise OctavoError(f"'{path}' is no regular file; give the model's tokenizer.json")
    try:
        tokenizer = tokenizers.Tokenizer.from_file(path)
        tokenizer.no_truncation()
        tokenizer.no_padding()
    except _NOT_OURS:
        raise
    except BaseException as error:  # the package's own errors have no other base, and its panics no base but this
        raise OctavoError(f"'{path}' is no tokenizer.json: {_first_line(error)}") from None
    return tokenizer


def _first_line(error):
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def tokens_of(tokenizer, text):
    """What the tokenizer makes of a text. What one of the package `tokenizers` says against it is told as octavo's; a caller's own raises what it raises."""
    try:
        return tokenizer.encode(text)
    except _NOT_OURS:
        raise
    except BaseException as error:
        if type(tokenizer).__module__.partition(".")[0] != "tokenizers":
            raise
        raise OctavoError(f"the tokenizer makes no tokens of {text[:40]!r}: {_first_line(error)}; another model's tokenizer?") from None


def ids_in(encoded):
    """The ids of an encoded text: of what `tokenizers` gives, or the list of ids that encode() of transformers' tokenizers gives."""
    ids = getattr(encoded, "ids", encoded)
    if isinstance(ids, (str, bytes)) or not hasattr(ids, "__iter__"):
        raise OctavoError(f"encode() of the tokenizer gives {type(encoded).__name__}; it gives a list of ids, or what has them as .ids")
    return ids


def text_of_ids(tokenizer, ids):
    text = tokenizer.decode(ids)
    if not isinstance(text, str):
        raise OctavoError(f"decode() of the tokenizer gives {type(text).__name__}; it gives a str")
    return text


def ids_of(tokens, place, name):
    """Token ids that a caller gives. A model would take one below 0 for one from the end of its table."""
    if isinstance(tokens, (str, bytes)) or not hasattr(tokens, "__iter__"):
        check(place, name, tokens, "wholes")
    tokens = list(tokens)
    check(place, name, tokens, "wholes")
    odd = next((token for token in tokens if not 0 <= token < 1 << 31), None)
    if odd is not None:
        raise OctavoError(f"{name} has the token {odd}; ids of tokens are 0 or more, and fewer than the model knows")
    return tokens


class _Writing:
    """A sequence on its way: what it reads next, and what becomes of the logits."""

    def __init__(self, decoder, prompt, chunk, max_tokens=128, *, temperature=0.0, top_k=0, top_p=1.0, seed=0, stop_tokens=(), lookup=0):
        for name, value in (("max_tokens", max_tokens), ("top_k", top_k), ("lookup", lookup)):
            check("Generator.tokens", name, value, "whole")
        for name, value in (("temperature", temperature), ("top_p", top_p)):
            check("Generator.tokens", name, value, "number")
        check("Generator.tokens", "stop_tokens", stop_tokens, "wholes")
        self.prompt = ids_of(prompt, "Generator.tokens", "prompt")
        if not self.prompt:
            raise OctavoError("the prompt has no tokens; give at least one (a model's first token will do)")
        if seed < 0:
            raise OctavoError(f"seed is {seed}; give 0 or more")
        if temperature < 0 or top_k < 0 or not 0 < top_p <= 1:
            raise OctavoError(f"temperature {temperature}, top_k {top_k}, top_p {top_p}: the first two are 0 or more, the last in (0, 1]")
        if lookup < 0:
            raise OctavoError(f"lookup is {lookup}; give the number of tokens to guess, or 0")
        self.how = temperature, top_k, top_p, np.random.default_rng(seed)
        self.chunk, self.left, self.stops, self.lookup = chunk, max_tokens, set(stop_tokens), lookup
        self.sequence = _Sequence(decoder, len(self.prompt) + max_tokens + lookup)
        self.written, self.guess = [], []
        self.done = False

    def begin_as(self, others):
        """Takes what another prompt has read that begins as this one does: whole chunks, so that all are read in the same pieces and have the same bits."""
        best, longest = None, len(self.sequence.tokens)
        for other in others:
            length = min(len(self.prompt) - 1, len(other.prompt), len(other.sequence.tokens)) // self.chunk * self.chunk
            while length > longest and self.prompt[:length] != other.prompt[:length]:
                length -= self.chunk
            if length > longest and other.sequence.can_be_cut(length):
                best, longest = other, length
        if best is not None:
            self.sequence = best.sequence.copy(longest)

    def reads(self):
        """The tokens that it reads next, and of how many of the last ones it wants logits."""
        before = len(self.sequence.tokens)
        if before < len(self.prompt):
            return self.prompt[before : before + self.chunk], 1
        self.guess = _seen_before(self.prompt + self.written, min(self.lookup, self.left - 1, _MOST_GUESSED))
        return [self.written[-1], *self.guess], len(self.guess) + 1

    def takes(self, logits):
        """Tokens that the logits of what was read tell; of a guess those that it got right, and one more."""
        if len(self.sequence.tokens) < len(self.prompt):
            return []
        new, guess = [], self.guess
        self.guess = []
        for i, row in enumerate(logits):
            token = _choose(row, *self.how)
            self.left -= 1
            self.done = token in self.stops or self.left == 0
            if token not in self.stops:
                new.append(token)
            if self.done or i == len(guess) or guess[i] != token:
                if not self.done and i < len(guess):
                    self.sequence.cut(len(self.sequence.tokens) - len(guess) + i)
                break
        self.written += new
        return new


def _seen_before(tokens, count):
    """What stood behind the last tokens when they stood there before: of the last three, or two, the latest place."""
    for length in (3, 2):
        end = tokens[-length:]
        for at in range(len(tokens) - length - 1, -1, -1) if count > 0 else ():
            if tokens[at : at + length] == end:
                return tokens[at + length : at + length + count]
    return []


class _Pieces:
    """Text out of tokens, in pieces whose characters are whole, up to the first of the texts `stop`."""

    def __init__(self, tokenizer, stop):
        self.tokenizer, self.stop = tokenizer, stop
        self.held = max((len(s) for s in self.stop), default=1) - 1
        self.ids, self.given, self.ended = [], 0, False

    def put(self, token):
        self.ids.append(token)
        whole = text_of_ids(self.tokenizer, self.ids)
        ends = [at for at in (whole.find(s) for s in self.stop) if at >= 0]
        self.ended = bool(ends)
        ready = min(ends) if ends else len(whole) - self.held if not whole.endswith("\ufffd") else self.given
        return self._piece(whole[:ready])

    def rest(self):
        return "" if self.ended else self._piece(text_of_ids(self.tokenizer, self.ids))

    def _piece(self, text):
        piece, self.given = text[self.given :], max(self.given, len(text))
        return piece


class Generator:
    """Writes on behind prompts, token by token; __init__.pyi says what each argument is."""

    def __init__(self, model, tokenizer=None, *, threads=0, chunk=256, cache=None, packed=None, progress=None):
        if chunk < 1:
            raise OctavoError(f"chunk is {chunk}; a prompt is read in pieces of at least one token")
        _refuse_if_open([model], threads=threads, packed=packed)
        self._decoder = _Decoder(model, threads, cache, packed, progress)
        self._chunk = chunk
        named = isinstance(tokenizer, str) or hasattr(tokenizer, "__fspath__")
        self.tokenizer = read_tokenizer(tokenizer) if named else tokenizer

    def _write(self, prompts, max_tokens, at_once, seed=0, **how):
        """(place of a prompt, its _Writing, new tokens), as they are made. Whoever sets done ends one."""
        for name, value in (("at_once", at_once), ("seed", seed)):
            check("Generator.many", name, value, "whole")
        if at_once < 1:
            raise OctavoError(f"at_once is {at_once}; at least one prompt is written on at a time")
        waiting, active, ended = enumerate(prompts), {}, []
        while True:
            ended = [writing for writing in active.values() if writing.done][-1:] or ended  # the next ones may begin as it did
            active = {i: writing for i, writing in active.items() if not writing.done}
            for i, prompt in itertools.islice(waiting, at_once - len(active)):
                active[i] = _Writing(self._decoder, prompt, self._chunk, max_tokens, seed=seed + i, **how)
            if not active or max_tokens < 1:
                return
            turns = self._turns(list(active.values()), ended)
            for writing, logits in zip(turns, self._decoder.run([(w.sequence, *w.reads()) for w in turns])):
                writing.new = writing.takes(logits)
            for i, writing in active.items():
                if writing in turns:
                    yield i, writing, writing.new

    def _turns(self, writings, ended):
        """Those that read now: of several prompts that go on with the same chunk the first, whose caches the others take in the next turn."""
        turns, chunks = [], set()
        for writing in writings:
            before = len(writing.sequence.tokens)
            if before < len(writing.prompt):
                writing.begin_as([*writings, *ended])
                before = len(writing.sequence.tokens)
            chunk = tuple(writing.prompt[: before + self._chunk]) if before + self._chunk < len(writing.prompt) else None
            if chunk is None or chunk not in chunks:
                turns.append(writing)
                chunks.add(chunk)
        return turns

    def tokens(self, prompt, max_tokens=128, *, temperature=0.0, top_k=0, top_p=1.0, seed=0, stop_tokens=(), lookup=0):
        """Token ids behind `prompt` (ids), one after the other as they are made; ends behind one of stop_tokens, which is not given."""
        how = {"temperature": temperature, "top_k": top_k, "top_p": top_p, "seed": seed, "stop_tokens": stop_tokens, "lookup": lookup}
        for _, _, new in self._write([prompt], max_tokens, 1, **how):
            yield from new

    def many_tokens(self, prompts, max_tokens=128, *, at_once=8, **how):
        """The same of many prompts: their place, and a token, or None behind the last."""
        for i, writing, new in self._write(prompts, max_tokens, at_once, **how):
            yield from ((i, token) for token in [*new, *[None] * writing.done])

    def text(self, prompt, max_tokens=128, *, stop=(), **how):
        """The same as text, in pieces whose characters are whole; ends before the first of the texts `stop`."""
        for _, piece in self.many([prompt], max_tokens, at_once=1, stop=stop, **how):
            if piece is not None:
                yield piece

    def many(self, prompts, max_tokens=128, *, at_once=8, stop=(), **how):
        """Place of a prompt, and a piece of its text, or None behind the last."""
        if self.tokenizer is None:
            raise OctavoError("this Generator has no tokenizer; give one, or use tokens()")
        check("Generator.many", "prompts", prompts, "words")
        stop = [stop] if isinstance(stop, str) else list(stop) if hasattr(stop, "__iter__") else stop
        check("Generator.many", "stop", stop, "words")
        if "" in stop:
            raise OctavoError("stop has an empty text, before which every text ends; leave it out")
        texts = {}
        for i, writing, new in self._write((ids_in(tokens_of(self.tokenizer, p)) for p in prompts), max_tokens, at_once, **how):
            pieces = texts.setdefault(i, _Pieces(self.tokenizer, stop))
            told = [pieces.put(token) for token in itertools.takewhile(lambda _: not pieces.ended, new)]
            writing.done |= pieces.ended
            if writing.done:
                told.append(texts.pop(i).rest())
            yield from ((i, piece) for piece in told if piece)
            if writing.done:
                yield i, None


def perplexity(model, tokens, *, against=None, window=512, stride=None, chunk=None, threads=0, cache=None):
    """How well a decoder tells the tokens of a text; __init__.pyi says what is given."""
    tokens, stride = ids_of(tokens, "perplexity", "tokens"), window if stride is None else stride
    if len(tokens) < 2 or window < 2:
        raise OctavoError(f"a text of {len(tokens)} tokens in windows of {window} has nothing to tell; both are 2 or more")
    if not 1 <= stride <= window or (chunk is not None and chunk < 1):
        raise OctavoError(f"stride {stride}, chunk {chunk}: windows of {window} tokens begin 1 to {window} apart, and are read by at least one token at a time")
    _refuse_if_open([model] if against is None else [model, against], threads=threads)
    mine, other = _Decoder(model, threads, cache), None if against is None else _Decoder(against, threads)
    nats, divergence, same, count = 0.0, 0.0, 0, 0
    for first in range(0, len(tokens) - 1, stride):
        ids = tokens[first : first + window + 1]
        old = first + window - stride if first else first  # told by the window before
        new = slice(old - first, len(ids) - 1)
        if new.start >= new.stop:
            break
        log = _log_softmax(mine, ids[:-1], chunk)[new]
        if max(ids[1:][new]) >= log.shape[1]:
            raise OctavoError(f"the text has the token {max(ids[1:][new])}, and the model knows {log.shape[1]}; another model's tokenizer?")
        nats -= log[np.arange(len(log)), ids[1:][new]].sum()
        count += len(log)
        if other is not None:
            reference = _log_softmax(other, ids[:-1], chunk)[new]
            if reference.shape != log.shape:
                raise OctavoError(f"the models know {log.shape[1]} and {reference.shape[1]} tokens; compare models of one tokenizer")
            p = np.exp(reference)
            divergence += (p * np.subtract(reference, log, where=p > 0, out=np.zeros_like(p))).sum()
            same += int((reference.argmax(-1) == log.argmax(-1)).sum())
    with np.errstate(over="ignore"):
        result = {"tokens": count, "perplexity": float(np.exp(nats / count))}
    if other is not None:
        result |= {"kl": float(divergence / count), "top1": same / count}
    return result


def _log_softmax(decoder, ids, chunk):
    sequence, chunk = _Sequence(decoder, len(ids)), chunk or len(ids)
    pieces = [ids[i : i + chunk] for i in range(0, len(ids), chunk)]
    parts = [decoder.run([(sequence, piece, len(piece))])[0] for piece in pieces]
    logits = np.concatenate(parts).astype(np.float64)
    top = logits.max(-1, keepdims=True)
    if not np.isfinite(top).all():
        raise OctavoError(f"the model gives {top[~np.isfinite(top)][0]} among its logits, which tell nothing of a text; look at its weights, and at what optimizing it lost (octavo compare)")
    logits -= top
    return logits - np.log(np.exp(logits).sum(-1, keepdims=True))
