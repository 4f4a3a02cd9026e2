"""Texts without spaces between words, as in Chinese, Japanese and Thai, which are one word each to most tokenizers.

Also the fixes for texts without words.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Sequence

import numpy as np

#: The tokenizer for texts without spaces, and for rare words.
SUBWORDS = "text.tokenizer=sentencepiece"

#: The fix for captions of emoji or punctuation alone, of which no tokenizer makes words.
NO_WORDS = "Describe the images in words."

# Letters of scripts without spaces between words, and the fewest letters per word from which a text has none. Words in
# the dictionary have fewer: about two in Chinese and Japanese, and about four in Thai, Lao, Burmese and Khmer.
_SCRIPTS = {
    4: re.compile("[\u3005\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\uff66-\uff9f\U00020000-\U0003ffff]"),
    8: re.compile("[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff]"),
}
# Texts of a sample, and the least share of them without spaces that is reported.
_SAMPLE, _SHARE = 1000, 0.1


def lacks_spaces(text: str) -> bool:
    """Return whether a text has no spaces between its words.

    Example:

    >>> lacks_spaces("一只狗在海滩上奔跑"), lacks_spaces("一只 狗 在 海滩 上 奔跑"), lacks_spaces("a dog")
    (True, False, False)
    """
    if text.isascii():
        return False
    words = max(len(text.split()), 1)
    return any(len(script.findall(text)) >= least * words for least, script in _SCRIPTS.items())


def share_without_spaces(texts: Iterable[str]) -> float:
    """Estimate the share of texts without spaces between words, from a sample of them.

    Args:
        texts: the texts. The sample of a sequence is spread evenly; other texts are read from their start.

    Returns:
        The share from 0 to 1; 0 if it is under a tenth.
    """
    if isinstance(texts, Sequence):
        rows = np.linspace(0, len(texts) - 1, min(len(texts), _SAMPLE)).astype(np.int64).tolist()
        texts = [texts[row] for row in rows]
    lacking = [lacks_spaces(text) for text in itertools.islice(texts, _SAMPLE)]
    share = sum(lacking) / max(len(lacking), 1)
    return share if share >= _SHARE else 0.0
