"""Pictures as calibration data: octavo.image_batches, and --calib-images of `python -m octavo`."""

import json
import os
import subprocess
import sys
import types

import numpy as np
import octavo
import pytest
from conftest import SOURCE
from onnx import TensorProto, helper
from test_texts import reader

Image = pytest.importorskip("PIL.Image", reason="no Pillow here")

# What transformers 4.57.1 (its processors in numpy and Pillow) gives: settings, sizes of the picture, and some of the numbers.
KNOWN = json.loads((SOURCE / "tests" / "data" / "processors" / "transformers.json").read_text())


def picture(width, height):
    y, x = np.mgrid[0:height, 0:width]
    return Image.fromarray(np.stack([(x * 5 + y * 3) % 256, (x * y) % 251, (x * x // 7 + y * 11) % 256], -1).astype(np.uint8))


def model(shape=("b", 3, "h", "w"), dtype=TensorProto.FLOAT, more=()):
    """Means over pictures, by a Linear that can be quantized."""
    ports = [helper.make_tensor_value_info(name, *what) for name, what in (("pixel_values", (dtype, list(shape))), *more)]
    out = [helper.make_tensor_value_info("y", dtype, None)]
    nodes = [helper.make_node("ReduceMean", ["pixel_values", "axes"], ["m"], keepdims=0), helper.make_node("MatMul", ["m", "w"], ["y"], "fc")]
    weights = np.random.default_rng(0).normal(size=(3, 64)).astype(np.float16 if dtype == TensorProto.FLOAT16 else np.float32)
    constants = [helper.make_tensor("axes", TensorProto.INT64, [2], [2, 3]), helper.make_tensor("w", dtype, [3, 64], weights.tobytes(), raw=True)]
    return helper.make_model(helper.make_graph(nodes, "g", ports, out, constants), opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


@pytest.mark.parametrize("known", KNOWN, ids=lambda known: f"{known['settings']['image_processor_type']} {known['shape']}")
def test_numbers_are_those_of_transformers(known):
    batch = octavo.image_batches([picture(*known["picture"])], known["settings"], model())[0]["pixel_values"]
    assert batch.dtype == np.float32 and list(batch.shape) == [1, *known["shape"]]
    factor = known["settings"].get("rescale_factor", 1) if known["settings"]["do_rescale"] else 1
    deviations = known["settings"].get("image_std", [1] * 3) if known["settings"].get("do_normalize") else [1] * 3
    off = [abs(batch[(0, *at)] - np.float32(value)) / (factor / deviations[at[0]]) for *at, value in known["values"]]
    assert max(off) < 1.01 and sum(one > 0 for one in off) <= 1  # Pillow rounds a code otherwise from version to version


def test_what_older_and_newer_files_say_means_the_same(tmp_path):
    want = octavo.image_batches([picture(60, 97)], KNOWN[4]["settings"], model())[0]["pixel_values"]  # CLIP
    assert KNOWN[4]["settings"]["image_processor_type"] == "CLIPImageProcessor"
    old = {"feature_extractor_type": "CLIPFeatureExtractor", "size": 224, "crop_size": 224, "resample": 3, **{k: KNOWN[4]["settings"][k] for k in ("image_mean", "image_std")}}
    new = {"processor_class": "CLIPProcessor", "image_processor": {**KNOWN[4]["settings"], "image_processor_type": "CLIPImageProcessorFast"}}
    (tmp_path / "new.json").write_text(json.dumps(new))
    for settings in (old, new, tmp_path / "new.json"):
        assert np.array_equal(octavo.image_batches([picture(60, 97)], settings, model())[0]["pixel_values"], want)


def test_batches_of_a_folder(tmp_path):
    (tmp_path / "in").mkdir()
    for number in range(5):
        picture(40 + number, 50).save(tmp_path / ("in" if number % 2 else ".") / f"{number}.png")
    (tmp_path / "notes.txt").write_text("no picture")
    turned = picture(40, 50)
    exif = turned.getexif()
    exif[0x0112] = 6  # to be turned by a quarter
    turned.save(tmp_path / "0.png", exif=exif)
    settings = {"size": {"height": 8, "width": 9}, "image_mean": 0.5, "image_std": 0.25, "resample": 2}
    paths = [tmp_path / name for name in ("0.png", "2.png", "4.png", "in/1.png", "in/3.png")]
    batches = octavo.image_batches(tmp_path, settings, model(), batch_size=2)
    assert [batch["pixel_values"].shape for batch in batches] == [(2, 3, 8, 9), (2, 3, 8, 9), (1, 3, 8, 9)]
    alone = [octavo.image_batches([path], settings, model())[0]["pixel_values"] for path in paths]
    assert np.array_equal(np.concatenate([batch["pixel_values"] for batch in batches]), np.concatenate(alone))
    upright = octavo.image_batches([Image.open(paths[0]).transpose(Image.Transpose.ROTATE_270)], settings, model())[0]["pixel_values"]
    assert np.array_equal(alone[0], upright)
    fixed = octavo.image_batches(paths, settings, model((2, 3, 8, 9), TensorProto.FLOAT16))
    assert [batch["pixel_values"].shape for batch in fixed] == [(2, 3, 8, 9)] * 3 and fixed[0]["pixel_values"].dtype == np.float16
    sizes = octavo.image_batches(tmp_path, {**settings, "do_resize": False}, model())
    assert [batch["pixel_values"].shape for batch in sizes] == [(1, 3, 40, 50), (1, 3, 50, 42), (1, 3, 50, 44), (1, 3, 50, 41), (1, 3, 50, 43)]
    own = octavo.image_batches(paths, lambda one: np.full((3, 2, 2), one.size[0], np.float32), model())
    assert own[0]["pixel_values"][:, 0, 0, 0].tolist() == [50, 42, 44, 41, 43]


SETTINGS = {"size": {"height": 8, "width": 8}, "image_mean": [0.5] * 3, "image_std": [0.5] * 3, "resample": 2}


@pytest.mark.parametrize("settings, words", [
    ({"image_processor_type": "DonutImageProcessor", "size": 3}, "octavo does not know what DonutImageProcessor does with pictures; make the batches by that processor"),
    ({**SETTINGS, "do_pad": True}, "octavo does not know what do_pad does with pictures"),
    ({**SETTINGS, "ensure_multiple_of": 32}, "octavo does not know what ensure_multiple_of does"),
    ({**SETTINGS, "size": 224}, "size is 224, not told to be a square or the shorter side: image_processor_type is missing"),
    ({**SETTINGS, "size": {"longest_edge": 8}}, "size is {'longest_edge': 8}, not a height and a width, or a shortest_edge"),
    ({**SETTINGS, "size": {"height": -1, "width": 8}}, "not a height and a width"),
    ({**SETTINGS, "image_std": [1, 2]}, "image_std is [1, 2], not three numbers"),
    ({**SETTINGS, "resample": "bicubic"}, "resample is 'bicubic', not a number"),
    ({"model_type": "vit"}, "says nothing of pictures (size, image_mean); give the model's preprocessor_config.json"),
    ([1], "says nothing of pictures"),
    ("none.json", "cannot read 'none.json': No such file or directory; give the model's preprocessor_config.json"),
])
def test_processors_that_are_refused(settings, words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(octavo.OctavoError) as error:
        octavo.image_batches([picture(9, 9)], settings, model())
    assert words in str(error.value)


def test_what_is_no_picture_is_refused(tmp_path):
    def refusal(*arguments, **more):
        with pytest.raises(octavo.OctavoError) as error:
            octavo.image_batches(*arguments, **more)
        return str(error.value)

    assert "is no folder; give a folder of pictures" in refusal(tmp_path / "none", SETTINGS, model())
    assert "has no pictures in it that Pillow reads" in refusal(tmp_path, SETTINGS, model())
    (tmp_path / "a.png").write_text("no picture")
    assert "a.png' is no picture that Pillow reads" in refusal(tmp_path, SETTINGS, model())
    (tmp_path / "p.json").write_text("{")
    assert "p.json' is no JSON; give the model's preprocessor_config.json" in refusal([picture(9, 9)], tmp_path / "p.json", model())
    assert "there are no pictures; give some hundred" in refusal([], SETTINGS, model())
    assert "batch_size is 0; it is 1 or more" in refusal([picture(9, 9)], SETTINGS, model(), batch_size=0)
    other = refusal([picture(9, 9)], SETTINGS, model(("b", 3, 224, 224)))
    assert other == "picture 0 becomes 3 x 8 x 8, and axis 2 of the model's input 'pixel_values' is 224; another model's processor?"
    two = model(more=[("n", (TensorProto.INT64, ["b"]))])
    assert "the model has the inputs pixel_values, n; a folder of pictures fills one" in refusal([picture(9, 9)], SETTINGS, two)
    assert octavo.image_batches([picture(9, 9)], SETTINGS, two, without=["n"])
    assert "no pictures of [batch, 3, height, width] in floats" in refusal([picture(9, 9)], SETTINGS, reader(pixel_values=(TensorProto.FLOAT, ["b", 3])))


def module(*arguments, cwd):
    return subprocess.run([sys.executable, "-m", "octavo", *map(str, arguments)], cwd=cwd, env=os.environ, capture_output=True, text=True, timeout=300, check=False)


def test_the_program_takes_pictures(tmp_path):
    (tmp_path / "pictures").mkdir()
    for number in range(3):
        picture(40 + number, 50).save(tmp_path / "pictures" / f"{number}.png")
    (tmp_path / "p.json").write_text(json.dumps(SETTINGS))
    (tmp_path / "m.onnx").write_bytes(model().SerializeToString())
    given = ["--calib-images", "pictures", "--processor", "p.json"]
    done = module("optimize", "m.onnx", "-o", "a.onnx", *given, "--calib-batch", 2, "--calib-keep", "kept", cwd=tmp_path)
    assert done.returncode == 0 and "calibrated on 2 batches from 'kept'" in done.stdout, done.stderr
    want = octavo.image_batches(tmp_path / "pictures", SETTINGS, model(), batch_size=2)
    kept = [dict(np.load(file)) for file in sorted((tmp_path / "kept").iterdir())]
    assert all(np.array_equal(a["pixel_values"], b["pixel_values"]) for a, b in zip(kept, want, strict=True))
    assert (tmp_path / "a.onnx").read_bytes() == octavo.optimize(tmp_path / "m.onnx", calibration=want).model
    done = module("optimize", "m.onnx", "-o", "b.onnx", *given, "--report", "b.html", cwd=tmp_path)
    page = (tmp_path / "b.html").read_text(encoding="utf-8")
    assert done.returncode == 0 and "octavo optimize m.onnx -o b.onnx --calib-images pictures --processor p.json --report b.html" in page
    assert "made of pictures" in page and "octavo-" not in page.replace("octavo-0", "")
    done = module("calibrate", "m.onnx", *given, "--calib-batch=2", "-o", "a.calib", cwd=tmp_path)
    assert done.returncode == 0 and (tmp_path / "a.calib").read_bytes() == octavo.calibrate(tmp_path / "m.onnx", want), done.stderr
    for wrong, words in ((["--calib-images", "pictures"], "--calib-images needs --processor preprocessor_config.json"),
                         ([*given, "--calib", "kept"], "--calib-images and --calib are both data; give one of them"),
                         ([*given, "--calib-text", "t"], "--calib-text and --calib-images are both data; give one of them")):
        done = module("optimize", "m.onnx", "-o", "c.onnx", *wrong, cwd=tmp_path)
        assert done.returncode == 2 and words in done.stderr


def test_arguments_of_the_program_are_passed_on(monkeypatch):
    from octavo import _calib_made

    calls, made = [], []
    monkeypatch.setattr(_calib_made, "run_program", lambda command: calls.append(command) or 3)
    monkeypatch.setattr(octavo, "image_batches", lambda *a, **k: made.append((a, k)) or [])
    given = ["m.onnx", "--calib-images=pictures/", "--processor", "p.json", "--assume", "x=true", "-o", "o.onnx"]
    assert _calib_made.main("octavo", "optimize", given) == 3 and str(calls[0][calls[0].index("--calib") + 1]).endswith("pictures")
    assert made == [(("pictures/", "p.json", "m.onnx"), {"batch_size": 8, "without": ["x"]})]
