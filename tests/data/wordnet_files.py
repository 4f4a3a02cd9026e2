"""A miniature WordNet in WNDB's format, for tests of whatever reads one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

LICENCE = "  1 This software and database is being provided to you, the LICENSEE.  \n" * 29

#: word -> its direct hypernyms, of the sort that `edges_of` makes of it.
TINY = {
    "entity": [],
    "animal": ["entity"],
    "pet": ["animal"],
    "canine": ["animal"],
    "dog": ["canine", "pet"],
    "Lassie": ["dog"],
}


def concept_line(offset: str, words: Sequence[str], pointers: Sequence[tuple[str, str, str]]) -> str:
    """Writes one concept; pointers are (symbol, offset, part of speech)."""
    spelled = " ".join(f"{word} 0" for word in words)
    led = "".join(f" {symbol} {target} {kind} 0000" for symbol, target, kind in pointers)
    count = f"{len(words):02x}"
    return f"{offset} 03 n {count} {spelled} {len(pointers):03d}{led} | a gloss, with @ and | in it  \n"


def write_wordnet(folder: Path, hypernyms: Mapping[str, Sequence[str]] = TINY) -> Path:
    """Writes a `data.noun` with one concept a word, an instance if it has a capital; returns the folder."""
    offsets = {word: f"{100 * (number + 1):08d}" for number, word in enumerate(hypernyms)}
    lines = [
        concept_line(
            offsets[word],
            [word, f"{word}_too"],
            # Hyponyms, meronyms and verbs are there to be passed over.
            [("~", "00000100", "n"), ("#p", "00000100", "n"), ("@", "00000007", "v")]
            + [("@i" if word[0].isupper() else "@", offsets[name], "n") for name in above],
        )
        for word, above in hypernyms.items()
    ]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "data.noun").write_text(LICENCE + "".join(lines), encoding="utf-8")
    return folder
