"""The program `octavo` that belongs to this package."""

import os
import pathlib


def program():
    """In a wheel beside the package, in a build tree in the folder above; or None."""
    package = pathlib.Path(__file__).resolve().parent
    for path in (package / "bin" / "octavo", package.parents[1] / "bin" / "octavo"):
        if os.access(path, os.X_OK) and path.is_file():
            return path
    return None
