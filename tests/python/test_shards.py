"""One calibration out of parts: shards, interrupts, batches of other sizes, threads: the same bytes."""

import warnings

import numpy as np
import octavo
import pytest
from conftest import BERT, batch as _batch


def batch(seed, **sizes):
    return {name: array for name, array in _batch(seed, **sizes).items() if name != "token_type_ids"}


BATCHES = [batch(seed, rows=1 + seed % 3, length=4 + seed % 5) for seed in range(9)]
WHOLE = octavo.calibrate(BERT, BATCHES, threads=1)


@pytest.fixture
def data(tmp_path):
    folder = tmp_path / "data"
    folder.mkdir()
    for number, arrays in enumerate(BATCHES):
        np.savez(folder / f"{number:02}.npz", **arrays)
    return folder


@pytest.mark.parametrize("count", [1, 4, 40])
def test_shards_join_to_the_bytes_of_one_process(count):
    parts = []
    for i in range(1, count + 1):
        try:
            parts.append(octavo.calibrate(BERT, BATCHES, threads=1 + i % 2, shard=(i, count)))
        except octavo.OctavoError as error:  # more shards than batches
            assert "there is no data to calibrate with: shard" in str(error) and i > len(BATCHES)
    assert len(parts) == min(count, len(BATCHES))
    assert octavo.merge_calibrations(parts[::-1]) == WHOLE


def test_batches_of_other_sizes_give_the_same_model():
    rows = [{name: array[i : i + 1] for name, array in arrays.items()} for arrays in BATCHES for i in range(len(arrays["input_ids"]))]
    one_by_one = octavo.calibrate(BERT, rows, threads=2)
    assert one_by_one == WHOLE
    assert octavo.optimize(BERT, calibration=one_by_one, threads=2).model == octavo.optimize(BERT, calibration=WHOLE, threads=1).model


def of_the_fit(model, calibration, threads):
    """The model in the recipes that fit weights, from a calibration alone."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return [octavo.optimize(model, calibration=calibration, recipe=recipe, threads=threads).model for recipe in ("int8", "dynamic", "weights4")]


def test_one_four_and_forty_shards_rows_of_one_and_all_threads_give_one_model():
    """Ranges and what weights are fitted to: the same file and the same models as one process makes of the batches themselves."""
    rows = [{name: array[i : i + 1] for name, array in arrays.items()} for arrays in BATCHES for i in range(len(arrays["input_ids"]))]
    whole = octavo.calibrate(BERT, BATCHES, threads=1, moments=True)
    assert len(whole) > 1.5 * len(WHOLE)
    for count, batches in ((1, rows), (4, BATCHES), (4, rows), (40, rows)):
        parts = [octavo.calibrate(BERT, batches, threads=1 + i % 2, shard=(i, count), moments=True) for i in range(1, min(count, len(batches)) + 1)]
        assert octavo.merge_calibrations(parts[::-1]) == whole, count
    models = of_the_fit(BERT, whole, threads=2)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for recipe, model in zip(("int8", "dynamic", "weights4"), models):
            for batches, threads in ((BATCHES, 1), (rows, 2)):
                assert octavo.optimize(BERT, calibration=batches, recipe=recipe, held_out=0, threads=threads).model == model, recipe
            unfitted = octavo.optimize(BERT, calibration=BATCHES, recipe=recipe, held_out=0, fit=False).model
            assert unfitted != model, "nothing was fitted"


def test_calibrators_of_one_file_with_moments():
    """The calibrator is chosen when the file is used: for each of them the model of one process."""
    whole = octavo.calibrate(BERT, BATCHES, moments=True)
    merged = octavo.merge_calibrations([octavo.calibrate(BERT, BATCHES, shard=(i, 3), moments=True) for i in (2, 3, 1)])
    made = set()
    for calibrator in ("minmax", "moving_average", "percentile", "entropy", "mse"):
        one, other = (octavo.optimize(BERT, calibration=file, calibrator=calibrator).model for file in (whole, merged))
        assert one == other, calibrator
        made.add(one)
    assert len(made) > 2


def test_an_interrupted_calibration_goes_on_with_moments(run, data, tmp_path):
    (tmp_path / "out.calib").write_bytes(octavo.calibrate(BERT, BATCHES[:4], moments=True))
    done = run("calibrate", BERT, "--data", data, "-o", "out.calib", "--resume")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "out.calib").read_bytes() == octavo.calibrate(BERT, BATCHES, moments=True)
    (tmp_path / "old.calib").write_bytes(octavo.calibrate(BERT, BATCHES[:4]))
    done = run("calibrate", BERT, "--data", data, "-o", "old.calib", "--resume", "--moments")
    assert done.returncode == 1 and "has no moments" in done.stderr


def test_moments_are_for_all_shards_or_none():
    with pytest.raises(octavo.OctavoError, match=r"gather all of them with moments=True, or none"):
        octavo.merge_calibrations([octavo.calibrate(BERT, BATCHES[:2]), octavo.calibrate(BERT, BATCHES[2:], moments=True)])
    with pytest.raises(TypeError, match="moments takes True or False, not str"):
        octavo.calibrate(BERT, BATCHES, moments="yes")


def test_the_program_takes_shards(run, data, tmp_path):
    for i in (1, 2, 3):
        done = run("calibrate", BERT, "--data", data, "--shard", f"{i}/3", "-o", f"{i}.calib")
        assert done.returncode == 0 and "3 values" not in done.stdout, done.stderr
    assert run("calibrate", "--merge", "3.calib", "1.calib", "2.calib", "-o", "all.calib").returncode == 0
    assert (tmp_path / "all.calib").read_bytes() == WHOLE


def test_an_interrupted_calibration_goes_on(run, data, tmp_path):
    """What an interrupt leaves is what the first batches give."""
    (tmp_path / "out.calib").write_bytes(octavo.calibrate(BERT, BATCHES[:4]))
    done = run("calibrate", BERT, "--data", data, "-o", "out.calib", "--resume")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "out.calib").read_bytes() == WHOLE
    again = run("calibrate", BERT, "--data", data, "-o", "out.calib", "--resume")  # there is nothing left to do
    assert again.returncode == 0 and (tmp_path / "out.calib").read_bytes() == WHOLE
    assert run("calibrate", BERT, "--data", data, "-o", "new.calib", "--resume").returncode == 0
    assert (tmp_path / "new.calib").read_bytes() == WHOLE


def test_an_interrupt_within_a_batch_goes_on_with_its_next_row(run, data, tmp_path):
    """Large batches run in parts of some rows."""
    assert len(BATCHES[1]["input_ids"]) == 2
    (tmp_path / "out.calib").write_bytes(octavo.calibrate(BERT, [BATCHES[0], {n: a[:1] for n, a in BATCHES[1].items()}]))
    done = run("calibrate", BERT, "--data", data, "-o", "out.calib", "--resume")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "out.calib").read_bytes() == WHOLE


def test_a_calibration_goes_on_with_its_own_shard(run, data, tmp_path):
    part = octavo.calibrate(BERT, BATCHES[::2][:2])
    whole = octavo.calibrate(BERT, BATCHES, shard=(1, 2))
    assert run("calibrate", BERT, "--data", data, "-o", "out.calib", "--shard", "1/2").returncode == 0
    assert (tmp_path / "out.calib").read_bytes() == whole
    for shard, words in (("2/2", "of shard 1/2, not of shard 2/2"), ("1/3", "of shard 1/2, not of shard 1/3"), ("1/1", "of shard 1/2, not of all batches")):
        done = run("calibrate", BERT, "--data", data, "-o", "out.calib", "--resume", "--shard", shard)
        assert done.returncode == 1 and f"cannot go on from 'out.calib': it was gathered {words}: go on with the shard that it was begun with" in done.stderr
        assert len(done.stderr.splitlines()) == 1 and (tmp_path / "out.calib").read_bytes() == whole
    (tmp_path / "before.calib").write_bytes(part)  # as files of before, which name no shard
    done = run("calibrate", BERT, "--data", data, "-o", "before.calib", "--resume", "--shard", "1/2")
    assert done.returncode == 1 and "of all batches, not of shard 1/2" in done.stderr
    done = run("calibrate", BERT, "--data", data, "-o", "out.calib", "--resume", "--shard", "1/2")
    assert done.returncode == 0 and (tmp_path / "out.calib").read_bytes() == whole
    assert octavo.merge_calibrations([whole, octavo.calibrate(BERT, BATCHES, shard=(2, 2))]) == WHOLE


@pytest.mark.parametrize("shard", ["0/3", "4/3", "1", "1/0", "a/b", "1/2x", "-1/2", "1/2/3"])
def test_a_shard_is_one_of_n(run, data, shard):
    done = run("calibrate", BERT, "--data", data, f"--shard={shard}", "-o", "x.calib")
    assert done.returncode == 2 and "--shard is I/N, from 1/N to N/N" in done.stderr


@pytest.mark.parametrize("shard", [(0, 3), (4, 3), (1,), 3, "1/3", (1.5, 3), (True, 3)])
def test_python_says_so_too(shard):
    with pytest.raises(octavo.OctavoError, match="it is \\(i, n\\) with i from 1 to n"):
        octavo.calibrate(BERT, BATCHES, shard=shard)


def test_merge_refuses_what_it_would_ignore_or_count_twice(run, tmp_path):
    for shard in "12":
        assert run("calibrate", BERT, "--data", "random:2", "--shard", f"{shard}/2", "-o", f"{shard}.calib").returncode == 0
    (tmp_path / "again.calib").symlink_to("1.calib")
    for twice in ("1.calib", "./1.calib", "again.calib"):
        done = run("calibrate", "--merge", "1.calib", "2.calib", twice, "-o", "all.calib")
        assert done.returncode == 2 and f"--merge: '{twice}' is there twice, and its batches would count twice: name each file once" in done.stderr
        with pytest.raises(octavo.OctavoError, match="is there twice, and its batches would count twice: name each file once"):
            octavo.merge_calibrations([tmp_path / "1.calib", (tmp_path / "2.calib").read_bytes(), tmp_path / twice])
    for ignored in (["--shard", "1/2"], ["--data", "random:2"], ["--moments"], ["--resume"]):
        done = run("calibrate", *ignored, "--merge", "1.calib", "2.calib", "-o", "all.calib")
        assert done.returncode == 2 and "--merge joins files that are there: leave out the model, --data, --shard, --moments and --resume" in done.stderr
    assert run("calibrate", BERT, "--merge", "1.calib", "2.calib", "-o", "all.calib").returncode == 2
    assert not (tmp_path / "all.calib").exists()
