"""Calibration on a cluster: the batches of a dask.bag, each partition where it lies, joined to what one process would have gathered.

>>> import dask.bag, dask.distributed, octavo.dask
>>> client = dask.distributed.Client()
>>> bag = dask.bag.from_sequence(batches, npartitions=40)
>>> ranges = octavo.dask.calibrate("model.onnx", bag, client)
>>> octavo.optimize("model.onnx", calibration=ranges)

A partition is a task: dask gives it to another worker where one dies, and it counts once, since only tasks that end give anything.
"""

import os

from . import OctavoError, calibrate as _calibrate_here, merge_calibrations

_AT_ONCE = 8  # calibrations that one task joins


def _part(model, batches, threads, moments):
    """Of the batches of one partition; none: nothing."""
    batches = list(batches)
    return _calibrate_here(model, batches, threads=threads, moments=moments) if batches else None


def _joined(parts):
    parts = [part for part in parts if part is not None]
    return merge_calibrations(parts) if parts else None


def calibrate(model, bag, client, *, threads=1, progress=None, moments=False):
    """What octavo.calibrate gives for all batches of the bag, byte for byte, however they are cut into partitions.

    model: a path that every worker can read, or bytes. threads: of each task. progress: called with "calibrate", partitions done and of how many.
    moments: as in octavo.calibrate.
    """
    for name, value, wanted, kind in (("bag", bag, "to_delayed", "a dask.bag"), ("client", client, "submit", "a dask.distributed.Client")):
        if not hasattr(value, wanted):
            raise TypeError(f"octavo.dask.calibrate(): {name} takes {kind}, not {type(value).__name__}")
    from dask.distributed import as_completed

    if isinstance(model, (str, os.PathLike)):
        model = os.fspath(model)
    elif isinstance(model, (bytes, bytearray, memoryview)):
        model = client.scatter(bytes(model), broadcast=True)
    else:
        raise TypeError(f"octavo.dask.calibrate(): model takes a path or bytes, not {type(model).__name__}")
    parts = [client.submit(_part, model, future, threads, moments, pure=False) for future in client.compute(bag.to_delayed())]
    total = len(parts)
    if progress is not None:
        for done, _ in enumerate(as_completed(parts), 1):
            progress("calibrate", done, total)
    while len(parts) > 1:
        parts = [client.submit(_joined, parts[at : at + _AT_ONCE], pure=False) for at in range(0, len(parts), _AT_ONCE)]
    result = client.submit(_joined, parts, pure=False).result() if parts else None
    if result is None:
        raise OctavoError("there is no data to calibrate with: the bag has no batches")
    return result
