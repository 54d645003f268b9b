"""Experts that exporters' files compute one by one (tests/data/experts) run as one step for each kind of weight, which reads the chosen alone."""

import collections
import pathlib

import numpy as np
import octavo
import pytest

DATA = pathlib.Path(__file__).parent.parent / "data/experts"
# Relative to the deviation of the results: what two products in a row lose by steps of 1/7 and 1/127 of a column's range.
NEAR = {"float": ("experts_f32", 1e-5), "dynamic": ("experts_linear_int8", 0.08), "dynamic4": ("experts_linear_int8", 0.8), "weights8": ("experts_blocked8", 0.06)}


@pytest.mark.parametrize("recipe", NEAR)
@pytest.mark.parametrize("file", sorted(f.name for f in DATA.glob("*.onnx")))
def test_each_kind_of_weight_is_one_step(file, recipe):
    step, near = NEAR[recipe]
    session = octavo.Session(octavo.optimize(DATA / file, recipe).model, threads=2)
    kernels = collections.Counter(kernel.split()[0] for kernel in session.kernels)
    assert kernels[step] == (2 if file.startswith("hits") else 3), kernels  # gate and up apart, or in one tensor
    assert not any(name in kernel for kernel in kernels for name in ("NonZero", "Scatter", "OneHot")), kernels
    cases = np.load(DATA / f"{file.split('.')[0]}.npz")
    for i in range(2):
        want = cases[f"{i}/out/y"]
        (y,) = session.run({"x": cases[f"{i}/in/x"]})
        assert np.abs(y - want).max() <= near * want.std() * 4
    one = cases["0/in/x"][:1, :1]  # of which files that count hits know nothing
    (y,), (all_rows,) = session.run({"x": one}), session.run({"x": cases["0/in/x"]})
    assert np.abs(y - all_rows[:1, :1]).max() <= 1e-5 * np.abs(all_rows).max()
