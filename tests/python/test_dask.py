"""octavo.dask on a cluster of processes: the bytes of one process, also where a worker dies."""

import os
import signal
import threading
import time

import octavo
import pytest
from conftest import BERT, batch as _batch

distributed = pytest.importorskip("distributed", reason="no dask here: ./dev venv dask installs it")
bag = pytest.importorskip("dask.bag", reason="no dask here: ./dev venv dask installs it")
import octavo.dask  # noqa: E402


def batch(seed, **sizes):
    return {name: array for name, array in _batch(seed, **sizes).items() if name != "token_type_ids"}


BATCHES = [batch(seed, rows=2, length=8) for seed in range(12)]


@pytest.fixture(scope="module")
def client():
    with distributed.LocalCluster(n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None) as cluster, distributed.Client(cluster) as made:
        yield made


@pytest.fixture(scope="module")
def whole():
    return octavo.calibrate(BERT, BATCHES, moments=True)


@pytest.mark.parametrize("partitions", [1, 5, 12])
def test_partitions_give_the_bytes_of_one_process(client, whole, partitions):
    told = []
    ranges = octavo.dask.calibrate(BERT, bag.from_sequence(BATCHES, npartitions=partitions), client, moments=True, progress=lambda *step: told.append(step))
    assert ranges == whole
    assert told[-1] == ("calibrate", len(told), len(told))


def test_the_model_may_be_bytes_and_partitions_empty(client, whole):
    batches = bag.from_sequence([*BATCHES, None], npartitions=13).filter(lambda b: b is not None)
    assert octavo.dask.calibrate(BERT.read_bytes(), batches, client, moments=True) == whole
    with pytest.raises(octavo.OctavoError, match="the bag has no batches"):
        octavo.dask.calibrate(BERT, bag.from_sequence([None]).filter(lambda b: b is not None), client)


def test_a_worker_that_dies_loses_nothing(client, whole):
    def slow(arrays):
        time.sleep(0.3)
        return arrays

    pids = list(client.run(os.getpid).values())
    killer = threading.Timer(1.0, os.kill, (pids[0], signal.SIGKILL))
    killer.start()
    ranges = octavo.dask.calibrate(BERT, bag.from_sequence(BATCHES, npartitions=12).map(slow), client, moments=True)
    killer.join()
    assert ranges == whole
    assert octavo.optimize(BERT, calibration=ranges).model == octavo.optimize(BERT, calibration=BATCHES, held_out=0).model, "and so weights are fitted"
    client.wait_for_workers(2, timeout=60)
    assert pids[0] not in client.run(os.getpid).values()


def test_wrong_arguments_are_told_before_any_work(client):
    batches = bag.from_sequence(BATCHES)
    for arguments, said in (((BERT, BATCHES, client), "bag takes a dask.bag, not list"), ((BERT, batches, None), "client takes a dask.distributed.Client, not NoneType"),
                            ((3, batches, client), "model takes a path or bytes, not int")):
        with pytest.raises(TypeError, match=rf"^octavo\.dask\.calibrate\(\): {said}$"):
            octavo.dask.calibrate(*arguments)
    with pytest.raises(octavo.OctavoError, match="'nowhere.onnx': there is no such file"):
        octavo.dask.calibrate("nowhere.onnx", batches, client)
