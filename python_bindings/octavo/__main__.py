"""`python -m octavo` is the program octavo, and so is the script `octavo` of a wheel; generate and perplexity are this package's, since they need a tokenizer."""

import os
import pathlib
import sys


def program():
    """The program that belongs to this package: in a wheel beside it, in a build tree in the folder above; or None."""
    package = pathlib.Path(__file__).resolve().parent
    for path in (package / "bin" / "octavo", package.parents[1] / "bin" / "octavo"):
        if os.access(path, os.X_OK) and path.is_file():
            return path
    return None


def main():
    if sys.argv[1:2] in (["generate"], ["perplexity"]):
        from . import _commands

        sys.exit(_commands.main())
    path = program()
    if path is None:
        sys.exit(f"octavo: the program is not beside the package in {pathlib.Path(__file__).parent}; install octavo again")
    sys.stdout.flush()
    os.execv(path, ["octavo", *sys.argv[1:]])


if __name__ == "__main__":
    main()
