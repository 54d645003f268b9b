"""The commands generate and perplexity of `python -m octavo`."""

import argparse
import json
import pathlib
import sys

from . import Generator, OctavoError, perplexity
from ._generate import read_tokenizer


def _parser():
    parser = argparse.ArgumentParser(prog="octavo")
    commands = parser.add_subparsers(dest="command", required=True)
    g = commands.add_parser("generate", help="writes on behind a prompt")
    g.add_argument("--prompt", required=True)
    g.add_argument("--max-tokens", type=int, default=128)
    g.add_argument("--temperature", type=float, default=0.0, help="0: the likeliest token each time")
    g.add_argument("--top-k", type=int, default=0)
    g.add_argument("--top-p", type=float, default=1.0)
    g.add_argument("--seed", type=int, default=0)
    g.add_argument("--stop", action="append", default=[], help="a text before which to end; may be given again")
    p = commands.add_parser("perplexity", help="how well a model tells a text")
    p.add_argument("--text", required=True, help="a file of UTF-8")
    p.add_argument("--window", type=int, default=512, help="tokens that are read at once, each window anew")
    p.add_argument("--against", help="another model: the mean divergence from it, and how often both find the same token likeliest")
    for command in (g, p):
        command.add_argument("model")
        command.add_argument("--tokenizer", required=True, help="tokenizer.json")
        command.add_argument("--threads", type=int, default=0)
    return parser


def main(arguments=None):
    a = _parser().parse_args(arguments)
    try:
        if a.command == "perplexity":
            ids = read_tokenizer(a.tokenizer).encode(pathlib.Path(a.text).read_text(encoding="utf-8")).ids
            print(json.dumps(perplexity(a.model, ids, against=a.against, window=a.window, threads=a.threads)))
            return 0
        how = {"temperature": a.temperature, "top_k": a.top_k, "top_p": a.top_p, "seed": a.seed, "stop": a.stop}
        for piece in Generator(a.model, a.tokenizer, threads=a.threads).text(a.prompt, a.max_tokens, **how):
            print(piece, end="", flush=True)
        print()
        return 0
    except (OctavoError, OSError) as error:
        print(f"octavo: {error}", file=sys.stderr)
        return 1
