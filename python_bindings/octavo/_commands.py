"""The commands generate, perplexity and tune of `python -m octavo`."""

import contextlib
import json
import math
import os
import pathlib
import shlex
import sys
import tempfile
import time
import warnings

from . import Generator, OctavoError, perplexity
from ._generate import read_tokenizer, tokens_of
from ._help import Parser
from ._octavo import _write
from ._processes import ended_by_signals, last_words, shown
from ._texts import text_of
from ._tune import search, table


def _parser():
    parser = Parser(prog="octavo")
    commands = parser.add_subparsers(dest="command", required=True, parser_class=Parser)
    g = commands.add_parser(
        "generate", help="writes on behind a prompt",
        description="Writes on behind a prompt with a decoder in ONNX whose caches are inputs. Several prompts are written on at once, and printed as a line of JSON each when they end.",
        epilog="Example:\n  octavo generate model.int8.onnx --tokenizer tokenizer.json --prompt 'Once upon a time' --max-tokens 64")
    g.add_argument("--prompt", metavar="TEXT", action="append", default=[], help="a text to write on behind; may be given again")
    g.add_argument("--prompts", metavar="FILE", help="a file with a prompt on each line")
    g.add_argument("--at-once", metavar="N", type=int, default=8, help="how many of several prompts are written on side by side")
    g.add_argument("--max-tokens", metavar="N", type=int, default=128, help="tokens to write at most")
    g.add_argument("--temperature", metavar="T", type=float, default=0.0, help="0: the likeliest token each time")
    g.add_argument("--top-k", metavar="K", type=int, default=0, help="draw from the K likeliest tokens alone; 0: from all")
    g.add_argument("--top-p", metavar="P", type=float, default=1.0, help="draw from the likeliest tokens that together have this probability")
    g.add_argument("--seed", metavar="N", type=int, default=0, help="of what is drawn: the same seed draws the same tokens")
    g.add_argument("--lookup", metavar="N", type=int, default=0, help="guess so many tokens where the last ones stood in the text before: faster where a text repeats its prompt; 0: none")
    g.add_argument("--chunk", metavar="N", type=int, default=256, help="tokens of a prompt that are read at once")
    packed = g.add_mutually_exclusive_group()
    packed.add_argument("--packed", action="store_true", help="keep the weights as products read them in MODEL.octavo-packed, from which the next start maps them")
    packed.add_argument("--packed-file", metavar="FILE", help="the same in this file")
    g.add_argument("--stop", metavar="TEXT", action="append", default=[], help="a text before which to end; may be given again")
    p = commands.add_parser(
        "perplexity", help="how well a model tells a text",
        epilog="Example:\n  octavo perplexity model.int8.onnx --tokenizer tokenizer.json --text book.txt --against model.onnx --stride 256")
    p.add_argument("--text", metavar="FILE", required=True, help="a file of UTF-8")
    p.add_argument("--window", metavar="N", type=int, default=512, help="tokens that are read at once, each window anew")
    p.add_argument("--stride", metavar="N", type=int, help="windows begin so many tokens apart, and tokens count that none before told; unless given as --window")
    p.add_argument("--chunk", metavar="N", type=int, help="read so many tokens of a window at once, behind the caches of those before (1: as generate does); without it whole, and no caches")
    p.add_argument("--against", metavar="MODEL.onnx", help="another model: the mean divergence from it, and how often both find the same token likeliest")
    _add_tune(commands)
    for command in (g, p):
        command.add_argument("model", metavar="MODEL.onnx", help="ONNX model")
        command.add_argument("--tokenizer", metavar="FILE", required=True, help="tokenizer.json of the model")
        command.add_argument("--threads", metavar="N", type=int, default=0, help="threads; 0: all")
        command.add_argument("--cache", choices=["int8", "int4"], help="keep the caches as codes of 8 or 4 bits: 0.28 or 0.16 of their memory, and long texts are read faster")
    return parser


def _share(text):
    """"0.5%" or 0.005."""
    return float(text[:-1]) / 100 if text.endswith("%") else float(text)


def _add_tune(commands):
    t = commands.add_parser(
        "tune", help="the fastest plan that keeps a metric of yours",
        description="Optimizes a model in several ways, times them, and asks your program for the metric of each, from fast to slow, until one keeps it.",
        epilog="Example:\n  octavo tune model.onnx -o model.tuned.onnx --calib batches/ --metric 'python eval.py {model}' --budget 0.5% --plan plan.json")
    t.add_argument("model", metavar="MODEL.onnx", help="ONNX model")
    t.add_argument("-o", "--output", metavar="OUT.onnx", required=True, help="file to write")
    t.add_argument("--metric", metavar="COMMAND", required=True, help="a command that prints the metric as its last word; {model} becomes the path of a model")
    t.add_argument("--calib", metavar="DATA", required=True, help="calibration data as `octavo optimize --calib` takes it; the metric needs other data")
    t.add_argument("--budget", metavar="SHARE", type=_share, default="1%", help="how much of the model's own metric may be lost, as 0.5%% or 0.005")
    t.add_argument("--lower-is-better", action="store_true", help="the metric is an error or a perplexity")
    t.add_argument("--everything", action="store_true", help="ask the metric of all plans, not only until one keeps it")
    t.add_argument("--seconds", metavar="S", type=float, default=1.0, help="for timing each plan")
    t.add_argument("--threads", metavar="N", type=int, default=0, help="threads; 0: all")
    t.add_argument("--plan", metavar="FILE", help="write the plan as JSON, which `octavo optimize --pipeline` takes")
    t.add_argument("--plot", metavar="FILE.svg", help="write an SVG of metric against time")
    t.add_argument("--json", metavar="FILE", help="write all plans as JSON; - for standard output")


def _command_metric(command, folder):
    """What the command says of a model."""
    def ask(model):
        path = model
        if isinstance(model, bytes):
            path = folder / "candidate.onnx"
            path.write_bytes(model)
        status, out, messages = last_words(command.replace("{model}", shlex.quote(str(path))))
        words = out.split()
        if status != 0 or not words:
            last = (messages.strip().splitlines() or ["it printed nothing"])[-1]
            raise OctavoError(f"the metric's command ended with {status}: {shown(last)}")
        try:
            return float(words[-1])
        except ValueError:
            raise OctavoError(f"the last word that the metric's command printed is '{shown(words[-1], 60)}', which is no number") from None
    return ask


def _check_written(model, written):
    """Before long work: all can be written, none over another one. The model that is read may be replaced by -o, which is written when all is done."""
    seen = {os.path.realpath(model): "the model that is read"}
    for flag, path in written.items():
        if not path or path == "-":
            continue
        at = os.path.realpath(path)
        if not os.path.isdir(os.path.dirname(at)):
            raise OctavoError(f"cannot write {path!r} for {flag}: there is no folder {os.path.dirname(at)!r}")
        if at in seen and (flag != "-o" or seen[at] != "the model that is read"):
            raise OctavoError(f"cannot write {path!r} for {flag}: it is {seen[at]} too; give each its own file")
        seen[at] = flag


@contextlib.contextmanager
def _progress():
    """What shows progress in one line of a terminal, which is gone when the work is, as the program's (cli/progress.cc): which stage it is, seconds of the
    whole, the stage's rate, and what is left of it."""
    began, shows, stages = time.monotonic(), sys.stderr.isatty(), {}
    def tell(stage, done, total):
        now = time.monotonic()
        spent = now - stages.setdefault(stage, now)
        each = spent / done if done > 0 and spent > 1 else 0
        rate = "" if not each else f", {each:.1f} s each" if each > 1 else f", {1 / each:.1f}/s"
        left = f", about {each * (total - done):.0f} s left" if each and done < total else ""
        if shows:
            print(f"\r\033[K{list(stages).index(stage) + 1}. {stage} {done}" + f"/{total}" * (total > 0) + f", {now - began:.0f} s{rate}{left}", end="", file=sys.stderr, flush=True)
    try:
        yield tell
    finally:
        if shows:
            print("\r\033[K", end="", file=sys.stderr, flush=True)


def _finite(told):
    """A dict for JSON, which has no infinite numbers, as the error of a plan may be: null."""
    return {key: None if isinstance(value, float) and math.isinf(value) else value for key, value in told.items()}


def _json_of(tuned):
    plans = [_finite(plan) for plan in tuned.plans]
    return json.dumps({"schema": 1, "baseline": tuned.baseline, "chosen": tuned.name, "plans": plans, "layers": tuned.layers}, indent=1)


def _tune(a):
    if "{model}" not in a.metric:
        raise OctavoError("--metric has no {model}, where the path of a model would stand")
    _check_written(a.model, {"-o": a.output, "--plan": a.plan, "--plot": a.plot, "--json": a.json})
    with tempfile.TemporaryDirectory(prefix="octavo-") as temporary, warnings.catch_warnings(record=True) as notes, _progress() as tell:
        tuned = search(a.model, _command_metric(a.metric, pathlib.Path(temporary)), a.calib, budget=a.budget, lower_is_better=a.lower_is_better,
                       threads=a.threads, seconds=a.seconds, everything=a.everything, progress=tell)
    for note in {str(note.message): None for note in notes}:
        print(f"octavo: note: {note}", file=sys.stderr)
    tuned.save(a.output)
    if a.plan:
        tuned.save_plan(a.plan)
    if a.plot:
        _write(a.plot, tuned.svg())
    if a.json:
        text = _json_of(tuned)
        if a.json == "-":
            print(text)
        else:
            _write(a.json, text + "\n")
    if a.json != "-":
        print(table(tuned))
    return 0


def _many(generator, prompts, max_tokens, how):
    """Each text as a line, in the order of the prompts, as soon as it and those before it have ended."""
    texts, ended, shown = [""] * len(prompts), set(), 0
    for i, piece in generator.many(prompts, max_tokens, **how):
        if piece is not None:
            texts[i] += piece
            continue
        ended.add(i)
        while shown in ended:
            print(json.dumps({"prompt": prompts[shown], "text": texts[shown]}, ensure_ascii=False), flush=True)
            shown += 1
    return 0


def main(arguments=None):
    a = _parser().parse_args(arguments)
    with ended_by_signals():
        return _run(a)


def _run(a):
    begun = False  # a line of text, which a sentence must not go on with
    try:
        if a.command == "tune":
            return _tune(a)
        if a.command == "perplexity":
            ids = tokens_of(read_tokenizer(a.tokenizer), text_of(a.text, "give a file of UTF-8")).ids
            told = perplexity(a.model, ids, against=a.against, window=a.window, stride=a.stride, chunk=a.chunk, threads=a.threads, cache=a.cache)
            print(json.dumps(_finite(told)))
            return 0
        how = {"temperature": a.temperature, "top_k": a.top_k, "top_p": a.top_p, "seed": a.seed, "stop": a.stop, "lookup": a.lookup}
        prompts = a.prompt + (text_of(a.prompts, "give a file with a prompt on each line").splitlines() if a.prompts else [])
        if not prompts:
            raise OctavoError("there is no prompt; give --prompt TEXT, or --prompts FILE with one on each line")
        with _progress() as tell:
            generator = Generator(a.model, a.tokenizer, threads=a.threads, chunk=a.chunk, cache=a.cache, packed=a.packed_file or a.packed, progress=tell)
        if len(prompts) > 1:
            return _many(generator, prompts, a.max_tokens, {"at_once": a.at_once, **how})
        for piece in generator.text(prompts[0], a.max_tokens, **how):
            print(piece, end="", flush=True)
            begun = True
        print()
        return 0
    except (OctavoError, OSError, TypeError, MemoryError) as error:  # TypeError: of an option's value, as nan
        print("\n" * begun + f"octavo: {shown(str(error), 2000) or type(error).__name__}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\n" * begun + "octavo: interrupted", file=sys.stderr)
        return 130
