"""Writes small files of sentence pairs in the forms of SNLI, SICK and plain tables."""

from __future__ import annotations

import json
from pathlib import Path

THINGS = ("dog", "cat", "man", "child", "bird", "girl")
PLACES = ("park", "street", "house", "field")
Row = tuple[str, str, str]


def rows(count: int, start: int = 0) -> list[Row]:
    """Returns (premise, hypothesis, label name)s that follow a rule, three for each premise.

    A hypothesis that leaves words out is entailed, one that adds a word is neutral, one about another
    thing contradicts.
    """
    made: list[Row] = []
    for number in range(start, start + -(-count // 3)):
        thing, place = THINGS[number % 6], PLACES[number // 6 % 4]
        other = THINGS[(number + 1) % 6]
        premise = f"A {thing} runs in the {place} number {number}."
        made.append((premise, f"A {thing} runs.", "entailment"))
        made.append((premise, f"A {thing} runs in the {place} happily.", "neutral"))
        made.append((premise, f"A {other} sleeps.", "contradiction"))
    return made[:count]


def write_jsonl(path: Path, pairs: list[Row]) -> Path:
    """Writes pairs as SNLI's JSON lines."""
    lines = [
        json.dumps({"gold_label": label, "sentence1": a, "sentence2": b, "pairID": f"{number}", "captionID": "x"})
        for number, (a, b, label) in enumerate(pairs)
    ]
    path.write_text("".join(line + "\n" for line in lines), encoding="utf-8")
    return path


def write_table(path: Path, header: list[str], cells: list[list[str]], end: str = "\n") -> Path:
    """Writes a tab-separated table."""
    path.write_bytes("".join("\t".join(row) + end for row in [header, *cells]).encode())
    return path


def write_plain(path: Path, pairs: list[Row]) -> Path:
    """Writes premise, hypothesis, label and no split."""
    return write_table(path, ["premise", "hypothesis", "label"], [list(row) for row in pairs])


def write_snli(folder: Path, train: int = 48, val: int = 12, test: int = 12) -> Path:
    """Writes a folder as SNLI's archive unpacks."""
    folder.mkdir()
    for place, (name, count) in enumerate({"train": train, "dev": val, "test": test}.items()):
        write_jsonl(folder / f"snli_1.0_{name}.jsonl", rows(count, start=100 * place))
    (folder / "README.txt").write_text("The Stanford corpus.\n")
    return folder
