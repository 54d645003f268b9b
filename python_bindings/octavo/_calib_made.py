"""`octavo optimize MODEL --calib-text texts.txt --tokenizer tokenizer.json` or `--calib-images FOLDER --processor preprocessor_config.json`, and calibrate
alike: texts and pictures become a folder of batches, which the program reads."""

import argparse
import pathlib
import shlex
import sys
import tempfile

from ._help import Parser, section
from ._processes import ended_by_signals, run_program, shown

# The program's own option for such a folder.
_DATA = {"optimize": "--calib", "calibrate": "--data"}
_TITLE = "Calibration data from texts or pictures (MODEL comes first)"
_MADE = ("--calib-text", "--calib-images")


def asked(arguments):
    """Whether these arguments are for this file."""
    return any(a in ("-h", "--help") or a.split("=", 1)[0] in _MADE for a in arguments)


def _parser(command):
    parser = Parser(prog=f"octavo {command}", usage=f"octavo {command} MODEL --calib-text FILE --tokenizer FILE ...", add_help=False, allow_abbrev=False)
    instead = f"instead of {_DATA[command]}: "
    parser.add_argument("--calib-text", metavar="FILE", help=instead + "a file of UTF-8 with a text on each line, some hundred as the model will see them")
    parser.add_argument("--tokenizer", metavar="FILE", help="tokenizer.json of the model (needs the package tokenizers)")
    parser.add_argument("--calib-tokens", metavar="N", type=int, default=128, help="tokens of a text at most")
    parser.add_argument("--calib-images", metavar="FOLDER", help=instead + "a folder of pictures, some hundred as the model will see them (needs the package pillow)")
    parser.add_argument("--processor", metavar="FILE", help="preprocessor_config.json of the model: size, crop, mean and the rest, as Hugging Face's processors mean them")
    parser.add_argument("--calib-batch", metavar="N", type=int, help="texts in a batch [32], fewer where that would make less than eight batches; pictures [8]")
    parser.add_argument("--calib-keep", metavar="FOLDER", help="where the batches stay, as .npz; unless given they are deleted")
    return parser


def _assumed(rest):
    """What --assume says, which the program reads too."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--assume", action="append", default=[])
    return parser.parse_known_args(rest)[0].assume


def _write(batches, folder):
    import numpy as np

    folder.mkdir(parents=True, exist_ok=True)
    for number, batch in enumerate(batches):
        np.savez(folder / f"batch{number:05}.npz", **batch)


def _refusal(command, a, arguments, rest):
    """What is wrong with the arguments, or None."""
    if a.calib_text is not None and a.calib_images is not None:
        return "--calib-text and --calib-images are both data; give one of them"
    name, given = ("--calib-text", a.calib_text) if a.calib_images is None else ("--calib-images", a.calib_images)
    if name == "--calib-text" and a.tokenizer is None:
        return "--calib-text needs --tokenizer tokenizer.json, which makes tokens of the texts"
    if name == "--calib-images" and a.processor is None:
        return "--calib-images needs --processor preprocessor_config.json, which says the size and scale that the model wants"
    if not arguments or arguments[0].startswith("-"):
        return f"with {name} the model comes first, as in octavo {command} model.onnx {name} {given}"
    if any(r.split("=", 1)[0] == _DATA[command] for r in rest):
        return f"{name} and {_DATA[command]} are both data; give one of them"
    if a.calib_keep is not None and pathlib.Path(a.calib_keep).is_dir() and any(pathlib.Path(a.calib_keep).iterdir()):
        return f"'{a.calib_keep}' of --calib-keep has files in it, which would be calibrated on too; name a new folder"
    return None


def _batches(a, model, assumed):
    from . import image_batches, text_batches

    without = [value.split("=", 1)[0] for value in assumed]
    if a.calib_images is not None:
        return image_batches(a.calib_images, a.processor, model, batch_size=8 if a.calib_batch is None else a.calib_batch, without=without)
    return text_batches(a.calib_text, a.tokenizer, model, batch_size=a.calib_batch, max_length=a.calib_tokens, without=without)


def main(program, command, arguments):
    """Runs the program; its exit status."""
    if "-h" in arguments or "--help" in arguments:
        status = run_program([program, command, "--help"])
        print(section(_parser(command), _TITLE), end="")
        return status
    a, rest = _parser(command).parse_known_args(arguments)
    refusal = _refusal(command, a, arguments, rest)
    if refusal:
        print(f"octavo: {refusal}", file=sys.stderr)
        return 2
    with ended_by_signals():
        return _run(program, command, arguments, a, rest)


def _run(program, command, arguments, a, rest):
    from . import OctavoError

    source = a.calib_text if a.calib_images is None else a.calib_images
    at = next(i for i, word in enumerate(arguments) if word.split("=", 1)[0] in _MADE)
    before = len(_parser(command).parse_known_args(arguments[:at])[1])  # of `rest`: the report shows the order that was typed
    try:
        batches = _batches(a, arguments[0], _assumed(rest))
        with tempfile.TemporaryDirectory(prefix="octavo-") as temporary:
            folder = pathlib.Path(a.calib_keep or pathlib.Path(temporary, pathlib.Path(source).name or "data"))
            _write(batches, folder)
            if command == "optimize" and a.calib_keep is None:  # nobody will find that folder again
                rest += ["--calib-name", source, "--typed", shlex.join(["octavo", command, *arguments])]
            return run_program([program, command, *rest[:before], _DATA[command], folder, *rest[before:]])
    except (OctavoError, OSError, MemoryError) as error:
        print(f"octavo: {shown(str(error), 2000) or type(error).__name__}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:  # the program has had it too
        return 130
