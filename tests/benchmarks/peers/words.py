"""Captions to ids with NLTK's tokenizer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from nltk.tokenize import word_tokenize

from tests.benchmarks.timing import cpu_seconds


def split(text: str) -> list[str]:
    """Words of a text, without NLTK's cutting into sentences, which needs data and takes longer."""
    return word_tokenize(text, preserve_line=True)


def ids(texts: np.ndarray, words: np.ndarray) -> Callable[[], dict[str, Any]]:
    """Returns what tokenizes and looks up all texts."""
    captions, known = texts.tolist(), {word: number for number, word in enumerate(words.tolist(), 2)}
    return lambda: {
        "seconds": cpu_seconds(lambda: [[known.get(word, 1) for word in split(text.lower())] for text in captions])
    }
