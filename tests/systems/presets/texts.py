"""Texts, photographs and tokenizers of tiny presets, written without Keras."""

from __future__ import annotations

import io
import itertools
import random
import unicodedata

import numpy as np
from PIL import Image

CORPUS = [
    "a red circle above a blue square",
    "two dogs are running on the beach",
    "a photo of 12 cats, and a dog's ball!",
    "the quick brown fox jumped over the lazy dog",
]
SIZE = 32


def clip_vocabulary() -> tuple[dict[str, int], list[str]]:
    """All bytes, and the merges of a few words of the corpus, as CLIP's training would find them."""
    letters = sorted(_byte_letters())
    pieces = [*letters, *(f"{letter}</w>" for letter in letters)]
    merges = []
    for word in (
        "the",
        "red",
        "dog",
        "dogs",
        "cat",
        "a",
        "photo",
        "running",
        "beach",
        "circle",
        "square",
        "blue",
    ):
        _merge([*word[:-1], f"{word[-1]}</w>"], pieces, merges)
    pieces += ["<|startoftext|>", "<|endoftext|>"]
    return {piece: number for number, piece in enumerate(pieces)}, merges


def _merge(parts: list[str], pieces: list[str], merges: list[str]) -> None:
    """Adds the subwords and merges that join the parts of a word from its start."""
    while len(parts) > 1:
        merge, joined = f"{parts[0]} {parts[1]}", parts[0] + parts[1]
        if merge not in merges:
            merges.append(merge)
        if joined not in pieces:
            pieces.append(joined)
        parts = [joined, *parts[2:]]


def byte_vocabulary() -> tuple[dict[str, int], list[str]]:
    """Names, all bytes, and the merges of a few words with and without the space before them, as RoBERTa's."""
    pieces, merges = ["<s>", "<pad>", "</s>", "<unk>", *sorted(_byte_letters())], []
    for word in ("the", "Ġthe", "Ġred", "Ġdog", "Ġdogs", "photo", "Ġbeach", "12", "ĠĠ", "...", "Ã©"):
        _merge([*word], pieces, merges)
    return {piece: number for number, piece in enumerate([*pieces, "<mask>"])}, merges


def sentencepiece_model(**options: object) -> bytes:
    """A tiny unigram model with the ids of T5, which SigLIP's has."""
    import sentencepiece

    written = io.BytesIO()
    settings = {
        "vocab_size": 60,
        "model_type": "unigram",
        "pad_id": 0,
        "eos_id": 1,
        "unk_id": 2,
        "bos_id": -1,
    }
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter([line.lower() for line in CORPUS] * 4),
        model_writer=written,
        hard_vocab_limit=False,
        minloglevel=2,
        **{**settings, **options},
    )
    return written.getvalue()


def photographs() -> tuple[list[np.ndarray], list[bytes]]:
    """Images of mixed sizes with smooth and sharp parts: decoded pixels, and bytes of JPEG and PNG."""
    random, images, rows = np.random.default_rng(3), [], []
    for number, sides in enumerate([(150, 100), (90, 161), (300, 70), (64, 64), (41, 40), (20, 28), (333, 250)]):
        coarse = random.integers(0, 256, (6, 8, 3), dtype=np.uint8)
        picture = Image.fromarray(coarse).resize(sides, Image.Resampling.BICUBIC)
        pixels = np.asarray(picture).copy()
        # A colour that is not the mean of the rest, left of the centre and across.
        pixels[:, : sides[0] // 3] //= 3
        pixels[:: 1 + number % 3] //= 2
        written = io.BytesIO()
        Image.fromarray(pixels).save(written, "PNG" if number % 2 else "JPEG", quality=90)
        images.append(np.asarray(Image.open(written).convert("RGB")))
        rows.append(written.getvalue())
    return images, rows


def _byte_letters() -> list[str]:
    seen = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    others = itertools.count(256)
    return [chr(byte if byte in seen else next(others)) for byte in range(256)]


def odd_texts(count: int) -> list[str]:
    """Composed texts with signs, digits, other scripts, long words and runs of white space."""
    drawn = random.Random(0)
    fixed = [
        "a red Circle above a BLUE square",
        "Two dogs aren't running, it's 2024!",
        "a",
        "don't stop'll",
        "naïve café, ½ ① ﬁne",
        "日本語 テキスト",
        "emoji 🙂 👩‍👩‍👧 x",
        "tabs\tand\nlines\n\n",
        "double  spaces   here ",
        "123 45,6.7 under_score-hyphen/slash",
        "<h1> [@BOS@] <H1>",
        "İstanbul ŞEHİR straße",
        "a" * 255,
        "word " * 100,
        "…—“quotes”",
        "नमस्ते दुनिया",
        "한국어 텍스트",
        "مرحبا بالعالم",
        "zero\u200bwidth, no\u00a0break, \u3000wide",
        "x\u0301 combining",
    ]
    letters = "abcdefghij ABC 0123 .,!?'-_()<>/ é ñ ü 日 本 🙂 \t ½ ß"
    words = ["a", "the", "red", "dog", "dogs", "cat", "photo", "running", "beach", "circle", "blue", "over", "12"]
    for _ in range((count - len(fixed)) // 2):
        fixed.append("".join(drawn.choice(letters) for _ in range(drawn.randint(1, 30))))
        fixed.append(
            " ".join(
                drawn.choice([str.upper, str.title, str])(drawn.choice(words)) for _ in range(drawn.randint(1, 12))
            )
        )
    return [unicodedata.normalize("NFC", f"{text.lstrip()}".strip("\0") or "a") for text in fixed[:count]]
