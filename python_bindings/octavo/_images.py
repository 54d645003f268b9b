"""Batches of pictures as a processor of Hugging Face prepares them: calibration data for models that read pictures."""

import json
import os
import pathlib

import numpy as np

from ._octavo import OctavoError
from ._processes import shown
from ._texts import ports_of, text_of
from ._words import takes

# What a processor takes for granted whose file does not say it, by the name of its class: the filter, and whether one number as size means the shorter side.
_KINDS = {
    "": (None, None), "Beit": (3, False), "Bit": (3, True), "Blip": (3, False), "CLIP": (3, True), "ChineseCLIP": (3, True), "ConvNext": (2, True), "DeiT": (3, False),
    "Levit": (3, True), "MobileNetV1": (2, True), "MobileNetV2": (2, True), "MobileViT": (2, True), "Pvt": (2, False),
    "Siglip": (3, False), "ViT": (2, False),
}
_NONE = {"ViT", "ConvNext", "Siglip", "Pvt", "Blip"}  # classes that never cut out the middle
# Settings that change what the model is given, in ways that are not done here.
_OTHERS = ("do_pad", "do_thumbnail", "do_align_long_axis", "do_image_splitting", "do_crop_margin", "keep_aspect_ratio", "max_patches", "max_pixels", "min_pixels", "patch_size")


def _kind(settings):
    name = str(settings.get("image_processor_type") or settings.get("feature_extractor_type") or "")
    for end in ("Fast", "ImageProcessor", "FeatureExtractor"):
        name = name.removesuffix(end)
    return name


_MOST_SIDE = 1 << 14  # of a picture that a model is given


def _is_number(value):
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < 1e30  # nor NaN


class Processor:
    """What the processor's JSON asks for. settings: its path, or a dict."""

    def __init__(self, settings):
        self.place = "the processor"
        if isinstance(settings, (str, os.PathLike)):
            self.place = f"'{settings}'"
            text = text_of(settings, "give the model's preprocessor_config.json")
            try:
                settings = json.loads(text)
            except (ValueError, RecursionError):
                raise OctavoError(f"{self.place} is no JSON; give the model's preprocessor_config.json") from None
        if isinstance(settings, dict) and isinstance(settings.get("image_processor"), dict):  # of a processor of texts and pictures
            settings = settings["image_processor"]
        if not isinstance(settings, dict) or not any(str(key).startswith("do_") or key == "size" for key in settings):
            raise OctavoError(f"{self.place} says nothing of pictures (size, image_mean); give the model's preprocessor_config.json")
        self.settings = settings
        self.kind = _kind(settings)
        unknown = [key for key in _OTHERS if settings.get(key)]
        if settings.get("ensure_multiple_of") not in (None, 1):
            unknown.append("ensure_multiple_of")
        if self.kind not in _KINDS or unknown:
            what = unknown[0] if unknown else f"{self.kind}ImageProcessor"
            raise OctavoError(f"{self.place}: octavo does not know what {shown(what, 80)} does with pictures; make the batches by that processor itself")
        self.resample, self.shorter = _KINDS[self.kind]
        self.resample = self._number("resample", self.resample) if self._does("resize") else None
        if self.resample is not None and self.resample not in range(6):
            self._refuse("resample", "one of Pillow's filters (0 to 5)")
        self.resample = None if self.resample is None else int(self.resample)
        self.scale = self._number("rescale_factor", 1 / 255) if self._does("rescale") else None
        self.mean, self.std = (self._channels(name) for name in ("image_mean", "image_std")) if self._does("normalize") else (None, None)
        if self.std is not None and not self.std.all():
            self._refuse("image_std", "three numbers other than 0")
        self.size = self._size("size") if self._does("resize") else None
        crops = "crop_size" in settings if "do_center_crop" not in settings else settings["do_center_crop"]
        self.crop = self._size("crop_size") if crops and self.kind not in _NONE else None

    def _refuse(self, name, wanted):
        raise OctavoError(f"{self.place}: {name} is {shown(repr(self.settings.get(name)), 80)}, not {wanted}; get the model's preprocessor_config.json again")

    def _does(self, step):
        return bool(self.settings.get(f"do_{step}", step != "normalize" or "image_mean" in self.settings))

    def _number(self, name, default):
        value = self.settings.get(name, default)
        if not _is_number(value):
            self._refuse(name, "a number")
        return value

    def _channels(self, name):
        value = self.settings.get(name)
        value = [value] * 3 if _is_number(value) else value
        if not isinstance(value, list) or len(value) != 3 or not all(map(_is_number, value)):
            self._refuse(name, "three numbers")
        return np.array(value, np.float32)

    def _size(self, name):
        """(height, width), or the shorter side alone."""
        size = self.settings.get(name)
        if type(size) is int and 0 < size <= _MOST_SIDE:
            if name == "size" and self.shorter is None:
                self._refuse(name, "told to be a square or the shorter side: image_processor_type is missing")
            return size if name == "size" and self.shorter else (size, size)
        if isinstance(size, list) and len(size) == 2:
            size = dict(zip(("height", "width"), size, strict=True))
        sides = {key: value for key, value in size.items() if value is not None} if isinstance(size, dict) else {}
        if all(type(value) is int and 0 < value <= _MOST_SIDE for value in sides.values()):
            if set(sides) == {"height", "width"}:
                return sides["height"], sides["width"]
            if set(sides) == {"shortest_edge"}:
                return sides["shortest_edge"] if name == "size" else (sides["shortest_edge"],) * 2
        return self._refuse(name, "a height and a width, or a shortest_edge")

    def _resized(self, picture):
        if self.size is None:
            return np.asarray(picture)
        size, crop = self.size, None
        if isinstance(size, int):
            shorter = size
            if self.kind == "ConvNext":  # small ones are cut out of a larger one
                crop = (size, size)
                share = self._number("crop_pct", 224 / 256)
                if not 0.1 <= share <= 1:
                    self._refuse("crop_pct", "a share from 0.1 to 1")
                shorter = int(size / share) if size < 384 else 0
            elif self.kind == "Levit":
                shorter = int((256 / 224) * size)
            width, height = picture.size
            longer = int(shorter * max(width, height) / min(width, height))
            if longer > _MOST_SIDE:
                raise OctavoError(f"a picture of {width} x {height} becomes {longer} long where its shorter side is {shorter}; take it out of the folder")
            size = crop if shorter == 0 else (longer, shorter) if width <= height else (shorter, longer)
        pixels = np.asarray(picture.resize((size[1], size[0]), resample=self.resample))
        return pixels if crop is None else _middle(pixels, crop)

    def __call__(self, picture):
        """Of a picture of Pillow: [3, height, width]."""
        pixels = self._resized(picture.convert("RGB"))
        if self.crop is not None:
            pixels = _middle(pixels, self.crop)
        values = pixels.astype(np.float32)
        if self.scale is not None:
            values = (pixels.astype(np.float64) * self.scale).astype(np.float32)
        if self.mean is not None:
            values = (values - self.mean) / self.std
        if self.settings.get("do_flip_channel_order", self.kind == "MobileViT"):
            values = values[..., ::-1]
        return np.ascontiguousarray(values.transpose(2, 0, 1))


def _middle(pixels, size):
    """The middle of a picture; black around one that is smaller."""
    out = np.zeros((*size, pixels.shape[2]), pixels.dtype)
    here, there = [], []
    for have, want in zip(pixels.shape[:2], size, strict=True):
        first = (have - want) // 2  # below 0: rows of black before the first
        begin, end = max(first, 0), min(first + want, have)
        here.append(slice(begin, end))
        there.append(slice(begin - first, end - first))
    out[tuple(there)] = pixels[tuple(here)]
    return out


def _files(folder):
    try:
        from PIL import Image
    except ImportError:
        raise OctavoError("pictures need the package pillow; install it with pip install pillow") from None
    if isinstance(folder, (str, os.PathLike)):
        if not pathlib.Path(folder).is_dir():
            raise OctavoError(f"'{folder}' is no folder; give a folder of pictures")
        known = Image.registered_extensions()
        found = [path for path in sorted(pathlib.Path(folder).rglob("*")) if path.suffix.lower() in known and path.is_file()]
        if not found:
            raise OctavoError(f"'{folder}' has no pictures in it that Pillow reads; give some hundred as the model will see them")
        return found
    return list(folder)


def _opened(picture):
    from PIL import Image, ImageOps

    if not isinstance(picture, (str, os.PathLike)):
        return picture
    try:
        with Image.open(picture) as file:
            return ImageOps.exif_transpose(file).convert("RGB")
    except MemoryError:
        raise
    except Exception as error:  # its readers of damaged files raise whatever comes
        raise OctavoError(f"'{picture}' is no picture that Pillow reads ({shown(str(error))}); take it out of the folder") from None


def _port(model, without):
    """The one input, which pictures fill."""
    ports = list(ports_of(model, without).values())
    if len(ports) != 1:
        raise OctavoError(f"the model has the inputs {', '.join(port.name for port in ports) or 'none'}; a folder of pictures fills one, and others need batches made by hand, or a constant by assume")
    port = ports[0]
    if port.dtype.kind != "f" or (port.shape is not None and len(port.shape) != 4):
        raise OctavoError(f"the model's input '{port.name}' is {port.type}, no pictures of [batch, 3, height, width] in floats; make batches by hand")
    return port


def _check(port, values, picture):
    if values.ndim != 3 or values.dtype.kind not in "fiub":
        raise OctavoError(f"{picture} becomes {values.dtype} of {list(values.shape)}, no numbers of [channels, height, width]; look at what the processor gives")
    for axis, (want, have) in enumerate(zip((port.shape or [None] * 4)[1:], values.shape, strict=True), 1):
        if isinstance(want, int) and want != have:
            raise OctavoError(f"{picture} becomes {' x '.join(map(str, values.shape))}, and axis {axis} of the model's input '{port.name}' is {want}; another model's processor?")


@takes(images="file|list", batch_size="whole", without="words")
def image_batches(images, processor, model, *, batch_size=8, without=()):
    """Batches for optimize(calibration=...), calibrate and compare; __init__.pyi says what is given."""
    if batch_size < 1:
        raise OctavoError(f"batch_size is {batch_size}; it is 1 or more")
    prepare = processor if callable(processor) else Processor(processor)
    port = _port(model, without)
    rows = []
    for number, picture in enumerate(_files(images)):
        values = np.asarray(prepare(_opened(picture)))
        _check(port, values, f"'{picture}'" if isinstance(picture, (str, os.PathLike)) else f"picture {number}")
        rows.append(values.astype(port.dtype))
    if not rows:
        raise OctavoError("there are no pictures; give some hundred as the model will see them")
    count = port.shape[0] if port.shape and isinstance(port.shape[0], int) else None
    batches, size = [], count or batch_size
    for shape in dict.fromkeys(row.shape for row in rows):  # pictures of one size share a batch
        alike = [row for row in rows if row.shape == shape]
        for at in range(0, len(alike), size):
            part = alike[at : at + size]
            if count:  # the last one is filled up with its own rows
                part = [part[line % len(part)] for line in range(count)]
            batches.append({port.name: np.stack(part)})
    return batches
