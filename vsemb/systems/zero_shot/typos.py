"""Texts with typing errors, to see what a model of characters stands that one of words does not."""

from __future__ import annotations

import random
import string
from collections.abc import Sequence

from vsemb.errors import invalid_argument


def corrupt(texts: Sequence[str], share: float, seed: int = 0) -> list[str]:
    """Returns the texts with typing errors in them.

    Each character is hit with probability `share`, whatever happens to its neighbours. What is hit is, with
    equal chances, replaced by another lower-case letter, left out, written twice, or swapped with the
    character behind it (the last one with the one before it). A text of which nothing would be left stays
    as it is. What happens to a text depends on the seed, its place and itself alone.

    Args:
        texts: the texts.
        share: of the characters that are hit, from 0 to 1; with 0 the texts stay as they are.
        seed: other seed, other errors.

    Raises:
        InvalidArgumentError: for a share outside [0, 1].

    Example:

    >>> corrupt(["a small bird with a red head"], 0.15, seed=3)
    ['a smmall bird with a red had']
    """
    if not 0 <= share <= 1:
        raise invalid_argument("share", share, "a number from 0 to 1")
    if not share:
        return list(texts)
    return [_corrupted(text, share, random.Random(f"{seed}/{place}")) for place, text in enumerate(texts)]


def _corrupted(text: str, share: float, chance: random.Random) -> str:
    characters = list(text)
    last = len(text) - 1
    # Where the character stands that an earlier swap has moved is of no interest: places are hit.
    for place in range(len(text)):
        if chance.random() >= share:
            continue
        error = chance.choice(("replace", "delete", "double", "swap"))
        now = characters[place]
        if error == "replace":
            characters[place] = chance.choice([letter for letter in string.ascii_lowercase if letter != now])
        elif error == "delete":
            characters[place] = ""
        elif error == "double":
            characters[place] = now + now
        elif last:
            other = place + 1 if place < last else place - 1
            characters[place], characters[other] = characters[other], now
    return "".join(characters) or text
