"""Class folders named by WordNet ids, as in ImageNet and Tiny ImageNet, described by WordNet.

Layout: `n01443537/*.JPEG` or `n01443537/images/*.JPEG`; the digits are an offset in WordNet 3.0's
`data.noun`.
Source: http://www.image-net.org; wndb(5WN).
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from vsemb.data.readers import Reader
from vsemb.data.readers.hash_splits import dealt, shares
from vsemb.data.readers.source import STRICT, BadRows, Source, existing, listed
from vsemb.data.readers.wordnet import NounFile, find_wordnet
from vsemb.data.records import ImageRecord
from vsemb.errors import DataError, invalid_argument
from vsemb.systems.zero_shot.readers import NEXT

_WNID = re.compile(r"n\d{8}")
_QUOTED = re.compile(r'"([^"]*)"')
_SUFFIXES = (".jpeg", ".jpg", ".png")

# Higher hypernyms are common to nearly all classes: "whole", "object", "entity".
_LEVELS = 5


@dataclass(frozen=True)
class Concept:
    """Dictionary entry of a noun concept.

    Attributes:
        words: words of the concept, most common first, with spaces inside compounds.
        definition: gloss without the examples.
        examples: sentences or phrases that use the concept.
        hypernyms: offsets of its hypernyms.
    """

    words: tuple[str, ...]
    definition: str
    examples: tuple[str, ...]
    hypernyms: tuple[str, ...]


@dataclass(frozen=True)
class Wnid(Reader, kind="wnid"):
    """Class folders named by WordNet ids (ImageNet, Tiny ImageNet), directly in the folder or in its `train/`.

    The captions of every image are the texts of its class: the definition of its WordNet concept, its example
    sentences, its words, and the words of its hypernyms up to five levels. The splits share no class. The name of a
    class is the first word of its concept, followed by the id if classes share the word.

    Attributes:
        wordnet: WordNet 3.0's folder with `data.noun`; default: `$WNHOME/dict` or `/usr/share/wordnet`.
        class_splits: number of classes of train, val and test, such as `150/20/30`; default: 75, 10 and 15 %. Classes
            are assigned in the order of a hash of their ids.
    """

    wordnet: str | os.PathLike[str] | None = None
    class_splits: str | None = None

    next_command: ClassVar[str | None] = NEXT

    @classmethod
    def recognizes(cls, path: Path) -> bool:
        return path.is_dir() and bool(_entries((path, path / "train"), _is_class))

    def read(self, source: str | os.PathLike[str]) -> Source:
        root = existing(source)
        folders = _entries((root, root / "train"), _is_class)
        if not folders:
            raise DataError(f"{root} or {root / 'train'} must hold class folders named like n01443537.")
        place = find_wordnet(self.wordnet)
        bad = BadRows()
        concepts = read_concepts(place, [folder.name[1:] for folder in folders], bad)
        described = [folder for folder in folders if folder.name[1:] in concepts]
        if 2 * len(described) < len(folders):  # Probably another version of WordNet.
            raise DataError(listed(bad))
        folders = described
        names = _class_names([folder.name for folder in folders], concepts)
        splits = dealt([folder.name for folder in folders], _counts(self.class_splits, len(folders)))
        records = []
        for folder in folders:
            captions, split = texts(folder.name[1:], concepts), splits[folder.name]
            images = _entries((folder, folder / "images"), _is_image)
            if not images:
                raise DataError(f"{folder} or {folder / 'images'} must hold images (.JPEG, .jpg or .png).")
            records += [
                ImageRecord(f"{folder.name}/{image.name}", captions, split, image, class_name=names[folder.name])
                for image in images
            ]
        sizes = Counter(splits.values())
        train, val, test = sizes["train"], sizes["val"], sizes["test"]
        return Source(
            "wnid",
            root.resolve().name,
            records,
            files=(place / "data.noun",),
            options={"class_splits": f"{train}/{val}/{test}"},
            notes=(f"{train} classes are train, {val} val and {test} test, by a hash of their ids.",),
            bad=tuple(bad),
        )


def texts(offset: str, concepts: dict[str, Concept]) -> tuple[str, ...]:
    """Return the texts of a concept.

    Args:
        offset: the concept.
        concepts: offset -> the concept and its ancestors.

    Example:

    >>> fish = Concept(("fish",), "a cold-blooded animal", (), ())
    >>> goldfish = Concept(("goldfish",), "a small golden fish", (), ("02512053",))
    >>> texts("01443537", {"01443537": goldfish, "02512053": fish})
    ('a small golden fish', 'goldfish', 'a kind of fish')
    """
    concept = concepts[offset]
    lines = [concept.definition, *concept.examples, *concept.words]
    level, chain = concept.hypernyms, []
    for _ in range(_LEVELS):
        level = tuple(above for above in level if above in concepts)
        if not level:
            break
        hypernyms = [concepts[above] for above in level]
        words = dict.fromkeys(word for hypernym in hypernyms for word in hypernym.words)
        lines.append(f"a kind of {', '.join(words)}")
        chain += [hypernym.words[0] for hypernym in hypernyms]
        level = tuple(dict.fromkeys(higher for hypernym in hypernyms for higher in hypernym.hypernyms))
    if len(chain) > 1:
        lines.append(f"a kind of {', '.join(dict.fromkeys(chain))}")
    return tuple(dict.fromkeys(text for text in lines if text))


def read_concepts(
    folder: str | os.PathLike[str], offsets: Iterable[str], bad: AbstractContextManager[None] = STRICT
) -> dict[str, Concept]:
    """Read words and glosses of noun concepts and of all their hypernyms.

    Args:
        folder: a `dict/` folder with `data.noun`.
        offsets: eight digits per concept; ImageNet's ids are WordNet 3.0's offsets after an n.
        bad: `BadRows` to record unknown offsets and malformed lines, which are then left out. By default, the first is
            an error.

    Returns:
        offset -> concept, including ancestors.

    Raises:
        DataError: for an unreadable file, an unknown offset or a malformed line.

    Example:

    ```python
    read_concepts("/usr/share/wordnet", ["01443537"])["01443537"].words  # ("goldfish", "Carassius auratus")
    ```
    """
    file = NounFile(folder)
    places = {line[:8]: number for number, line in file.lines.items()}
    concepts: dict[str, Concept] = {}
    waiting = list(dict.fromkeys(offsets))
    seen = set(waiting)
    while waiting:
        offset = waiting.pop()
        with bad:
            if offset.encode() not in places:
                raise DataError(
                    f"{file.path} must have a concept at {offset!r}. ImageNet's ids are offsets of WordNet 3.0; pass "
                    "its folder."
                )
            synset = file.synset(places[offset.encode()])
            # Form: definition; "example"; "example". A definition may contain semicolons and quotation marks.
            definition, _, examples = synset.gloss.partition('; "')
            concepts[offset] = Concept(
                words=tuple(dict.fromkeys(word.replace("_", " ") for word in synset.words)),
                definition=definition.rstrip("; "),
                examples=tuple(text for text in map(str.strip, _QUOTED.findall(f'"{examples}')) if text),
                hypernyms=tuple(dict.fromkeys(synset.hypernyms)),
            )
            higher = [above for above in concepts[offset].hypernyms if above not in seen]
            seen.update(higher)
            waiting += higher
    return concepts


def _entries(places: Iterable[Path], wanted: Callable[[Path], bool]) -> list[Path]:
    """Return the wanted entries of the first folder that has any."""
    for place in places:
        entries = sorted(filter(wanted, place.iterdir())) if place.is_dir() else []
        if entries:
            return entries
    return []


def _is_class(path: Path) -> bool:
    return bool(_WNID.fullmatch(path.name)) and path.is_dir()


def _is_image(path: Path) -> bool:
    return path.suffix.lower() in _SUFFIXES and path.is_file()


def _class_names(wnids: list[str], concepts: dict[str, Concept]) -> dict[str, str]:
    first = {wnid: concepts[wnid[1:]].words[0] for wnid in wnids}
    counts = Counter(first.values())
    return {wnid: f"{word} ({wnid})" if counts[word] > 1 else word for wnid, word in first.items()}


def _counts(class_splits: str | None, classes: int) -> tuple[int, int, int]:
    if class_splits is None:
        return shares(classes, 0.1, 0.15)
    parts = class_splits.split("/")
    if len(parts) != 3 or not all(part.strip().isdecimal() for part in parts):
        raise invalid_argument("class_splits", class_splits, "three numbers of classes such as 150/20/30")
    train, val, test = (int(part) for part in parts)
    if min(train, val, test) < 1:
        raise invalid_argument("class_splits", class_splits, "three numbers >= 1; no split may be empty")
    if train + val + test != classes:
        raise invalid_argument("class_splits", class_splits, f"numbers that add up to the {classes} classes")
    return train, val, test
