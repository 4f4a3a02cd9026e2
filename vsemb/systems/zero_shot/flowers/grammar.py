"""Descriptions of a flower, each of some of its parts."""

from __future__ import annotations

import random
from collections.abc import Mapping

from vsemb.data.synthetic.world import pick
from vsemb.systems.zero_shot.flowers.world import PARTS

COUNT = 10
"""Descriptions an image, as many as Reed et al. 2016 collected."""

# Words for the values of a part, in their order; repeated words are more likely. "few" and "several" are ambiguous:
# each stands for two values.
_SAID = {
    "petal colour": (
        "white white snowy, yellow yellow golden, orange orange tangerine, red red crimson scarlet, pink pink rosy, "
        "purple purple violet, blue blue azure, burgundy burgundy maroon"
    ),
    "petal number": (
        "three three three few, four four four few, five five five several, six six six several, eight eight eight many"
    ),
    "petal shape": "round rounded, pointed pointy sharp, narrow thin slender, heart-shaped heart-shaped notched",
    "petal marking": "plain unmarked, spotted speckled dotted, striped streaked, bordered rimmed",
    "centre colour": "yellow yellow golden, white white snowy, black black dark, green",
    "centre size": "small small tiny little, large large big wide",
    "leaf shape": "oval smooth, jagged serrated toothed, grass-like grassy blade-like, lobed clover-like",
}
WORDS: Mapping[str, Mapping[str, list[str]]] = {
    part: dict(zip(PARTS[part], map(str.split, said.split(",")), strict=True)) for part, said in _SAID.items()
}

MARKINGS: Mapping[str, tuple[str, ...]] = {
    "plain": ("without any markings", "in a single even tone"),
    "spotted": ("with spots", "covered in dots"),
    "striped": ("with stripes", "with streaks along them"),
    "edged": ("with a contrasting border", "with edges of another colour"),
}
"""Markings as they may stand behind the petals."""

# Probability that a description mentions a part. Draws with fewer than two or more than five parts are repeated.
_TELLING = {
    "petal colour": 0.85,
    "petal number": 0.45,
    "petal shape": 0.5,
    "petal marking": 0.5,
    "centre colour": 0.6,
    "centre size": 0.35,
    "leaf shape": 0.4,
}
_FLOWERS = ("flower", "flower", "flower", "blossom", "bloom", "plant")
_PRAISES = ("pretty", "lovely", "nice", "single", "bright")
_TAILS = ("in full bloom", "seen from the front", "growing on a tall stem", "standing on its own")


def captions(seen: Mapping[str, str], rng: random.Random) -> tuple[str, ...]:
    """Write the descriptions of a flower.

    Args:
        seen: part -> value of the visible parts: all parts, or all but the leaf.
        rng: random generator of content and wording.

    Returns:
        `COUNT` distinct descriptions in lower case, with commas as the only punctuation.

    Example:

    >>> from vsemb.systems.zero_shot.flowers.world import classes
    >>> captions(classes()["train"]["flower 03"], random.Random("3"))[0]
    'a plant with petals in a single even tone and a centre that is green'
    """
    written: dict[str, None] = {}
    while len(written) < COUNT:
        written[_Teller(seen, rng).text()] = None
    return tuple(written)


class _Teller:
    """Writer of one description."""

    def __init__(self, seen: Mapping[str, str], rng: random.Random) -> None:
        self.rng = rng
        self.seen = seen
        self.told: list[str] = []
        while not 2 <= len(self.told) <= 5:
            self.told = [part for part in seen if rng.random() < _TELLING[part]]
        self.words = {part: pick(rng, WORDS[part][seen[part]]) for part in self.told}

    def text(self) -> str:
        """Return the description."""
        nouns = [noun for noun in (self._petals(), self._centre(), self._leaves()) if noun]
        ways = [self._has, self._with, self._can_be_seen]
        if self._tells("petal") and self._tells("centre"):
            ways += [self._surrounded, self._surrounding]
        if self._tells("petal") != ["petal number"]:
            ways += [self._statements, self._statements]
        words = pick(self.rng, ways)(nouns)
        if len(words.split()) < 8 or self.rng.random() < 0.1:
            words = f"{words} {pick(self.rng, _TAILS)}"
        return words

    def _has(self, nouns: list[str]) -> str:
        openers = (f"this {self._flower()} has", f"the {self._flower()} in the picture has", "this one has")
        return f"{pick(self.rng, openers)} {_listed(nouns)}"

    def _with(self, nouns: list[str]) -> str:
        return f"{self._praised()} with {_listed(nouns)}"

    def _can_be_seen(self, nouns: list[str]) -> str:
        ways = ("can be seen on this", "make up this", "are what you notice on this")
        return f"{_listed(nouns)} {pick(self.rng, ways)} {self._flower()}"

    def _surrounded(self, nouns: list[str]) -> str:
        petals, centre, *leaves = nouns
        start = pick(self.rng, ("", f"{self._praised()} showing ", "there is "))
        return f"{start}{centre} surrounded by {petals}{self._above(leaves)}"

    def _surrounding(self, nouns: list[str]) -> str:
        petals, centre, *leaves = nouns
        how = pick(self.rng, ("surround", "grow around", "are arranged around"))
        return f"{petals} {how} {centre}{self._above(leaves)}"

    def _statements(self, nouns: list[str]) -> str:
        """Return sentences about petals, centre and leaves instead of a list."""
        clauses = []
        petals, centre = self._tells("petal"), self._tells("centre")
        if petals:
            number = [self.words[part] for part in petals if part == "petal number"]
            rest = [self.words[part] for part in petals if part != "petal number"]
            clauses.append((" ".join([*number, "petals"]), f"are {_listed(rest)}"))
        if centre:
            noun = pick(self.rng, ("centre", "middle"))
            clauses.append((noun, f"is {_listed([self.words[part] for part in centre])}"))
        if self._tells("leaf"):
            clauses.append(("leaves", f"are {self.words['leaf shape']}"))
        (noun, verb), *others = clauses
        first = f"the {noun} of {pick(self.rng, ('this', 'the'))} {self._flower()} {verb}"
        return _listed([first, *(f"{pick(self.rng, ('the', 'its'))} {noun} {verb}" for noun, verb in others)])

    def _petals(self) -> str:
        """`five round red petals with spots`, in one of many orders."""
        told = self._tells("petal")
        if not told:
            return ""
        before = [part for part in ("petal shape", "petal marking", "petal colour") if part in told]
        after = []
        if len(before) > 1 and self.rng.random() < 0.3:
            after = [before.pop(int(self.rng.random() * len(before)))]
        tail = f" that are {self.words[after[0]]}" if after else ""
        if "petal marking" in before and self.rng.random() < 0.5:
            before.remove("petal marking")
            tail += f" {pick(self.rng, MARKINGS[self.seen['petal marking']])}"
        if self.rng.random() < 0.3:
            before.reverse()
        words = [self.words[part] for part in before]
        if len(words) == 2 and self.rng.random() < 0.3:
            words = [" and ".join(words)]
        number = [self.words["petal number"]] if "petal number" in told else []
        return " ".join([*number, *words, "petals"]) + tail

    def _centre(self) -> str:
        words = [self.words[part] for part in ("centre size", "centre colour") if part in self.words]
        if not words:
            return ""
        noun = pick(self.rng, ("centre", "centre", "middle"))
        if self.rng.random() < 0.25:
            return f"a {noun} that is {_listed(words)}"
        return f"a {' '.join(words)} {noun}"

    def _leaves(self) -> str:
        if "leaf shape" not in self.words:
            return ""
        return f"{self.words['leaf shape']} {pick(self.rng, ('leaves', 'leaves', 'foliage'))}"

    def _above(self, leaves: list[str]) -> str:
        return f" {pick(self.rng, ('above', 'with'))} {leaves[0]}" if leaves else ""

    def _tells(self, group: str) -> list[str]:
        return [part for part in self.told if part.startswith(group)]

    def _flower(self) -> str:
        return pick(self.rng, _FLOWERS)

    def _praised(self) -> str:
        praise = f"{pick(self.rng, _PRAISES)} " if self.rng.random() < 0.4 else ""
        return f"a {praise}{self._flower()}"


def _listed(parts: list[str]) -> str:
    """`a`, `a and b`, `a, b and c`."""
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"
