"""`python -m octavo` is the program octavo, and so is the script `octavo` of a wheel; what needs a tokenizer or pictures (generate, perplexity, --calib-text, --calib-images), other
runtimes (--against) or your own program (tune) is this package's."""

import os
import pathlib
import signal
import sys

from ._program import program


def main():
    try:
        try:
            _main()
        finally:
            sys.stdout.flush()
    except BrokenPipeError:  # `octavo bench --help | head`: whoever reads has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # Python writes what is left when it ends
        sys.exit(128 + signal.SIGPIPE)


def _main():
    if sys.argv[1:2] in (["generate"], ["perplexity"], ["tune"]):
        try:
            from . import _commands

            sys.exit(_commands.main())
        except KeyboardInterrupt:  # while it was loaded
            sys.exit(130)
    path = program()
    if path is None:
        sys.exit(f"octavo: the program is not beside the package in {pathlib.Path(__file__).parent}; install octavo again")
    if sys.argv[1:2] in (["optimize"], ["calibrate"]):
        from . import _calib_made

        if _calib_made.asked(sys.argv[2:]):
            sys.exit(_calib_made.main(path, sys.argv[1], sys.argv[2:]))
    if sys.argv[1:2] == ["bench"]:
        from . import _against

        if _against.asked(sys.argv[2:]):
            sys.exit(_against.main(path, sys.argv[2:]))
    if sys.argv[1:] in (["--help"], ["-h"]):
        from . import _completion

        sys.exit(_completion.help_of(path))
    more = []
    if sys.argv[1:2] in (["completion"], ["man"]):
        from . import _completion

        more = ["--also", _completion.also()]
    sys.stdout.flush()
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # which Python ignores: `octavo inspect M | head` is no error
    os.execv(path, ["octavo", *sys.argv[1:], *more])


if __name__ == "__main__":
    main()
