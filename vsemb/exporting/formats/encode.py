"""Embed texts and images with the towers in this directory, without TensorFlow and vsemb.

    pip install numpy pillow tokenizers onnxruntime    # for *.tflite: ai-edge-litert in place of onnxruntime
    python encode.py "a dog on a beach" dog.jpg        # prints the scores of all pairs of arguments

In Python:

    from encode import Encoder

    encoder = Encoder("exports/mine")
    images = encoder.encode_images(["dog.jpg"])
    texts = encoder.encode_texts(["a dog on a beach"])
    scores = images @ texts.T

`model.json` holds the facts that it reads. vsemb writes this file beside the towers and checks them with it.
"""

from __future__ import annotations

import json
import sys
import unicodedata
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np

#: From the input of a tower to its outputs by name.
Function = Callable[[np.ndarray], "dict[str, np.ndarray]"]


def open_onnx(path: Path) -> Function:
    """Open an ONNX file, which takes any number of rows."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    [given] = session.get_inputs()
    names = [output.name for output in session.get_outputs()]
    return lambda values: dict(zip(names, session.run(names, {given.name: values})))  # noqa: B905


def open_litert(path: Path) -> Function:
    """Open a LiteRT file, which takes one row at a time, and texts of one number of steps."""
    from ai_edge_litert.interpreter import Interpreter

    runner = Interpreter(model_path=str(path)).get_signature_runner()
    [(name, given)] = runner.get_input_details().items()

    def run(values: np.ndarray) -> dict[str, np.ndarray]:
        if name == "token_ids":
            steps = given["shape"][1]
            wider = np.zeros((len(values), steps, *values.shape[2:]), np.int32)
            wider[:, : values.shape[1]] = values[:, :steps]
            values = wider
        rows = [{key: value.copy() for key, value in runner(**{name: row[None]}).items()} for row in values]
        return {key: np.concatenate([row[key] for row in rows]) for key in rows[0]}

    return run


#: Ending of a file -> the function that opens it.
RUNTIMES = {".onnx": open_onnx, ".tflite": open_litert}


class Encoder:
    """The towers of a directory.

    Args:
        directory: the directory with `model.json`; None for that of this file.
    """

    def __init__(self, directory: str | Path | None = None) -> None:
        self.directory = Path(__file__).parent if directory is None else Path(directory)
        self.facts = json.loads((self.directory / "model.json").read_text(encoding="utf-8"))
        self._open: dict[str, Any] = {}

    def tower(self, name: str) -> Function:
        """Return the tower `text` or `image` as a function from its input to its outputs by name."""
        if name not in self._open:
            if name not in self.facts["towers"]:
                reason = self.facts["absent"].get(name, "it was not exported")
                raise ValueError(f"{self.directory} must hold a tower for {name}; it does not: {reason}.")
            path = self.directory / self.facts["towers"][name]["file"]
            self._open[name] = RUNTIMES[path.suffix](path)
        function: Function = self._open[name]
        return function

    def encode_texts(self, texts: Iterable[str]) -> np.ndarray:
        """Embed texts: (texts, dim) float32; a text without a known word has zeros."""
        ids = self.token_ids(texts)
        return self.tower("text")(ids)["embedding"] if len(ids) else np.zeros((0, self.facts["dim"]), np.float32)

    def encode_images(self, images: Iterable[Any]) -> np.ndarray:
        """Embed images, paths or images of Pillow: (images, dim) float32."""
        rows = [self.tower("image")(self.pixels(image)[None])["embedding"] for image in images]
        return np.concatenate(rows) if rows else np.zeros((0, self.facts["dim"]), np.float32)

    def token_ids(self, texts: Iterable[str]) -> np.ndarray:
        """Tokenize texts: (texts, steps) int32, 0 as padding; for words with n-grams (texts, steps, 1 + n)."""
        rows = [self._tokens(text) for text in texts]
        steps = max([1, *map(len, rows)])
        ids = np.zeros((len(rows), steps, *self.facts["towers"]["text"]["input"]["shape"][2:]), np.int32)
        for row, tokens in zip(ids, rows):  # noqa: B905
            if len(tokens):
                row[: len(tokens)] = tokens
        return ids

    def _tokens(self, text: str) -> list[Any]:
        if "tokenizer" not in self._open:
            path = self.directory / "tokenizer.json"
            if not path.exists():
                raise ValueError(f"{path} must exist; it does not: {self.facts['text']['tokenizer']}. Give ids.")
            from tokenizers import Tokenizer

            self._open["tokenizer"] = Tokenizer.from_file(str(path))
        tokenizer = self._open["tokenizer"]
        ids: list[int] = tokenizer.encode(text).ids
        ngrams = self.facts["text"].get("ngrams")
        if ngrams is None:
            return ids
        # One word is one id.
        words = tokenizer.normalizer.normalize_str(text).split()
        return [[number, *ngram_ids(word, **ngrams)] for number, word in zip(ids, words)]  # noqa: B905

    def pixels(self, image: Any) -> np.ndarray:
        """Convert a path or an image of Pillow to the input of the image tower, without the batch: float32."""
        from PIL import Image, ImageOps

        facts = self.facts["image"]
        if not isinstance(image, Image.Image):
            image = Image.open(image)
        # Pillow forgets the format and the tags of a file when it turns the image.
        kind, tags = image.format, getattr(image, "tag_v2", {})
        image = ImageOps.exif_transpose(image)
        if 2 in tags.get(339, ()):
            raise ValueError("Pixels must be unsigned; they are signed. Convert the image to 8 bits.")
        if image.mode == "I" or image.mode.startswith("I;16"):
            # Grey of 12 or 16 bits, which Pillow would clip at 255.
            if "transparency" in image.info:
                raise ValueError(
                    "An image of 16 bits must have no transparent colour; it has one. Convert it to 8 bits."
                )
            (depth,) = tags.get(258, (16 if image.mode != "I" or kind in ("PNG", "PPM") else 32,))
            if depth > 16:
                raise ValueError("Pixels must have at most 16 bits; they have 32. Convert the image to 8 bits.")
            values = np.asarray(image) >> (depth - 8)
            # TIFF, whose white is zero unless it says otherwise.
            white_is_zero = tags and tags.get(262, 0) == 0
            image = Image.fromarray((255 - values if white_is_zero else values).astype(np.uint8))
        if image.mode == "F":
            raise ValueError("Pixels must be integers; they are floating-point numbers. Convert the image to 8 bits.")
        if image.has_transparency_data:
            image = image.convert("RGBA")
            white = Image.new("RGBA", image.size, "white")
            image = Image.alpha_composite(white, image)
        image = image.convert("RGB")
        size, filters = facts["size"], {"bilinear": Image.Resampling.BILINEAR, "bicubic": Image.Resampling.BICUBIC}
        resizing = facts["resizing"] or {"interpolation": "bilinear", "antialias": True}
        if facts["crops"] != 1 or resizing["interpolation"] not in filters or resizing.get("pad_to_aspect_ratio"):
            raise ValueError(f"Images must be resized as {facts} says, which Pillow cannot. Give pixels to the tower.")
        resample = filters[resizing["interpolation"]]
        width, height = image.size
        short = min(width, height)
        if resizing.get("crop_to_aspect_ratio"):
            left, top = (width - short) // 2, (height - short) // 2
            image = image.crop((left, top, left + short, top + short))
        shorter = round(size * 256 / 224) if facts["resize"] == "short-side" else size
        if facts["resize"] == "short-side" or resizing.get("crop_after_resize"):
            wide, high = width * shorter // short, height * shorter // short
            image = image.resize((wide, high), resample)
            # `round` takes a half to the even number.
            offset = round if resizing.get("even_offset") else int
            left, top = offset((wide - size) / 2), offset((high - size) / 2)
            image = image.crop((left, top, left + size, top + size))
        if resizing["antialias"]:
            return np.asarray(image.resize((size, size), resample), np.float32)
        stretched = interpolated(np.asarray(image, np.float32), size, resizing["interpolation"] == "bicubic")
        rows = interpolated(stretched.swapaxes(0, 1), size, resizing["interpolation"] == "bicubic")
        return rows.swapaxes(0, 1).astype(np.float32)


def interpolated(values: np.ndarray, size: int, cubic: bool) -> np.ndarray:
    """Resize the first axis by interpolation between neighbours, without smoothing, which Pillow does not have.

    Args:
        values: (old size, ...).
        size: the new size.
        cubic: whether four neighbours have the weights of Keys' cubic convolution; else two have linear weights.

    Example:

    >>> interpolated(np.array([10.0, 20, 30, 40]), 2, cubic=False).tolist()
    [15.0, 35.0]
    """
    places = (np.arange(size) + 0.5) * len(values) / size - 0.5
    taps = np.floor(places)[:, None] + (np.arange(-1, 3) if cubic else np.arange(2))
    distances = np.abs(places[:, None] - taps)
    if cubic:
        near = (1.5 * distances - 2.5) * distances**2 + 1
        far = ((-0.5 * distances + 2.5) * distances - 4) * distances + 2
        weights = np.where(distances <= 1, near, far) * ((taps >= 0) & (taps < len(values)))
        weights /= weights.sum(axis=1, keepdims=True)
    else:
        weights = 1 - distances
    rows = values[np.clip(taps, 0, len(values) - 1).astype(int)]
    resized: np.ndarray = np.einsum("nk,nk...->n...", weights, rows)
    return resized


def ngram_ids(word: str, grams: dict[str, int], shortest: int, longest: int, most: int) -> list[int]:
    """Return the numbers of a word's n-grams of characters, the longest first, padded with 0 to `most`.

    Args:
        word: the word.
        grams: known n-gram -> number.
        shortest: least number of characters, marks of begin and end included.
        longest: greatest number.
        most: number of numbers.

    Example:

    >>> ngram_ids("dogs", {"<do": 7, "gs>": 2, "dogs": 5}, shortest=3, longest=4, most=4)
    [5, 7, 2, 0]
    """
    characters: list[str] = []
    for character in f"<{word[:100]}>":
        if characters and unicodedata.category(character)[0] == "M":
            characters[-1] += character
        else:
            characters.append(character)
    numbers = []
    for size in range(longest, shortest - 1, -1):
        for start in range(len(characters) - size + 1):
            numbers.append(grams.get("".join(characters[start : start + size]), 0))
    known = [number for number in numbers if number][:most]
    return known + [0] * (most - len(known))


def main(arguments: list[str]) -> None:
    """Print the inner products of the embeddings of texts and image files."""
    encoder = Encoder()
    rows = []
    for argument in arguments:
        embed = encoder.encode_images if Path(argument).is_file() else encoder.encode_texts
        rows.append(embed([argument])[0])
    scores = np.stack(rows) @ np.stack(rows).T
    for argument, row in zip(arguments, scores):  # noqa: B905
        print(" ".join(f"{score:7.4f}" for score in row), argument)


if __name__ == "__main__":
    main(sys.argv[1:])
