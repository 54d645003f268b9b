import os
from collections.abc import Callable
from typing import Any

def calibrate(
    model: str | os.PathLike[str] | bytes,
    bag: Any,
    client: Any,
    *,
    threads: int = 1,
    progress: Callable[[str, int, int], None] | None = None,
    moments: bool = False,
) -> bytes:
    """What octavo.calibrate gives for all batches of the bag (a dask.bag of dicts of arrays), byte for byte, however they are cut into partitions.

    model: a path that every worker can read, or bytes. client: dask.distributed.Client. threads: of each task. progress: called with "calibrate",
    partitions done and of how many. moments: as in octavo.calibrate.
    """
