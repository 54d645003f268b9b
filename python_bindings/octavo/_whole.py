"""Files that are written whole or not at all."""

import os
import secrets

from ._octavo import OctavoError


def write(path, text):
    """The text as UTF-8. A file has its name when it is complete, so that a full disk or an interrupt leaves the one that was there."""
    path = os.fsdecode(path)
    try:
        if os.path.lexists(path) and not os.path.isfile(path):  # a pipe, /dev/stdout
            with open(path, "w", encoding="utf-8") as file:
                file.write(text)
            return
        target = os.path.realpath(path)
        part = f"{target}.{secrets.token_hex(4)}.part"
        try:
            with open(part, "x", encoding="utf-8") as file:
                file.write(text)
            if os.path.exists(target):
                os.chmod(part, os.stat(target).st_mode & 0o777)
            os.replace(part, target)
        except BaseException:
            if os.path.exists(part):
                os.unlink(part)
            raise
    except OSError as error:
        raise OctavoError(f"cannot write '{path}': {error.strerror}") from None
