"""Compositional tests: captions that differ in word order, an attribute or a relation.

Winoground (Thrush et al. 2022, arXiv:2204.03162), ARO (Yuksekgonul et al. 2023, arXiv:2210.01936) and SugarCrepe
(Hsieh et al. 2023, arXiv:2306.14610), from their published JSON files.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from vsemb.api.model import load
from vsemb.data.images import ImageLike
from vsemb.errors import DataError
from vsemb.evaluation import Embedder
from vsemb.files import read_json, read_json_lines, require_regular
from vsemb.runs.run import Run
from vsemb.text.coverage import UnknownWords, coverage

# Images embedded per block, and cases scored per block.
_IMAGES, _CASES = 256, 32
# ARO leaves out pairs of attributes with fewer cases.
_FEWEST_ATTRIBUTES = 25

#: File name in the images folder, and the crop (left, upper, right, lower) in pixels; None for the whole image.
Crop = tuple[str, tuple[int, int, int, int] | None]


@dataclass(frozen=True)
class Case:
    """A compositional test case.

    Attributes:
        images: one or two images.
        captions: the caption of each image, in order; further ones are false.
        kind: relation or attributes that it tests; None if unknown.
    """

    images: tuple[Crop, ...]
    captions: tuple[str, ...]
    kind: str | None = None


def _winoground(entry: Mapping[str, Any]) -> Case:
    names = (str(entry["image_0"]), str(entry["image_1"]))
    images = tuple((name if Path(name).suffix else f"{name}.png", None) for name in names)
    return Case(images, (entry["caption_0"], entry["caption_1"]))


def _sugar_crepe(entry: Mapping[str, Any]) -> Case:
    return Case(((entry["filename"], None),), (entry["caption"], entry["negative_caption"]))


def _aro(entry: Mapping[str, Any]) -> Case:
    left, upper = entry["bbox_x"], entry["bbox_y"]
    box = (left, upper, left + entry["bbox_w"], upper + entry["bbox_h"])
    kind = entry.get("relation_name") or " and ".join(entry["attributes"])
    return Case(((entry["image_path"], box),), (entry["true_caption"], entry["false_caption"]), kind)


#: Field that only one format has -> its reader.
_FORMATS = {"caption_0": _winoground, "negative_caption": _sugar_crepe, "false_caption": _aro}


def read_cases(path: str | os.PathLike[str]) -> list[Case]:
    """Read Winoground's `examples.jsonl`, a JSON file of SugarCrepe, or `visual_genome_*.json` of ARO.

    Raises:
        DataError: if the file has another form.

    Example:

        read_cases("sugar-crepe/data/swap_att.json")[0].captions
    """
    path = Path(path)
    if path.suffix == ".jsonl":
        try:
            entries = read_json_lines(path)
        except (OSError, ValueError) as error:
            raise DataError(f"{path} cannot be read as JSON lines: {error}.") from error
    else:
        entries = read_json(path, "file of compositional tests")
        entries = list(entries.values()) if isinstance(entries, dict) else entries
    first = entries[0] if isinstance(entries, list) and entries else None
    fields = first if isinstance(first, dict) else {}
    builds = [build for name, build in _FORMATS.items() if name in fields]
    if not builds:
        raise DataError(
            f"{path} must be Winoground's examples.jsonl, a file of SugarCrepe, or visual_genome_relation.json or "
            "visual_genome_attribution.json of ARO."
        )
    cases = []
    for place, entry in enumerate(entries):
        try:
            cases.append(builds[0](entry))
        except (KeyError, TypeError) as error:
            raise DataError(f"{path}: entry {place} must have the fields of the format; {error} is missing.") from error
    counts = Counter(case.kind for case in cases)
    least = 1 if "relation_name" in fields else _FEWEST_ATTRIBUTES
    return [case if counts[case.kind] >= least else replace(case, kind=None) for case in cases]


@dataclass(frozen=True, eq=False)
class CompositionalMetrics:
    """Scores of compositional tests, in percent.

    Attributes:
        cases: number of cases.
        text: share of cases in which each image has a higher score with its caption than with every other caption.
        image: share of cases in which each caption has a higher score with its image than with the other; None for
            cases of one image.
        group: share of cases with both; None for cases of one image.
        kinds: kind -> number of cases and share with a correct text.
        unknown: numbers of unknown words in the distinct captions, if they were counted.
    """

    cases: int
    text: float
    image: float | None
    group: float | None
    kinds: dict[str, tuple[int, float]]
    unknown: UnknownWords | None = None

    @property
    def by_kind(self) -> float | None:
        """Mean of `text` over kinds; None without kinds."""
        return float(np.mean([text for _, text in self.kinds.values()])) if self.kinds else None

    def to_json(self) -> dict[str, Any]:
        """Return the scores as `vsemb evaluate --json` writes them, without scores that the cases do not have."""
        scores = {"text": self.text, "image": self.image, "group": self.group, "text_by_kind": self.by_kind}
        values: dict[str, Any] = {"cases": self.cases}
        values |= {name: score for name, score in scores.items() if score is not None}
        if self.unknown is not None:
            values["unknown"] = asdict(self.unknown)
        if self.kinds:
            kinds = self.kinds.items()
            values["kinds"] = [{"kind": kind, "cases": cases, "text": text} for kind, (cases, text) in kinds]
        return values


def case_scores(scores: np.ndarray) -> tuple[bool, bool]:
    """Return whether a case's text score and image score are 1.

    Args:
        scores: (images, captions) similarities; caption i belongs to image i, further captions are false. Ties count
            against the model.

    Example: each image prefers its caption; the second caption prefers the first image.

    >>> case_scores(np.array([[0.9, 0.8], [0.1, 0.2]]))
    (True, False)
    """
    own = np.diagonal(scores)
    text = np.count_nonzero(scores >= own[:, None]) == len(own)
    image = np.count_nonzero(scores[:, : len(own)] >= own) == len(own)
    return bool(text), bool(image)


def score_cases(cases: Sequence[Case], results: Sequence[tuple[bool, bool]]) -> CompositionalMetrics:
    """Summarize the scores of cases.

    Args:
        cases: the cases.
        results: `case_scores` of each case.
    """
    text, image = np.array(results).T
    counts = Counter(case.kind for case in cases)
    kinds: dict[str, tuple[int, float]] = {}
    for kind, count in counts.items():
        if kind is not None:
            own = np.array([case.kind == kind for case in cases])
            kinds[kind] = (count, 100 * float(text[own].mean()))
    paired = len(cases[0].images) > 1
    return CompositionalMetrics(
        len(cases),
        100 * float(text.mean()),
        100 * float(image.mean()) if paired else None,
        100 * float((text & image).mean()) if paired else None,
        kinds,
    )


def measure_compositional(run: Run, cases: Sequence[Case], images: str | os.PathLike[str]) -> CompositionalMetrics:
    """Measure a run on compositional tests.

    Args:
        run: a run that embeds image files.
        cases: the cases.
        images: the folder of the images.

    Raises:
        DataError: if an image cannot be read, or the run has no image network.

    Example:

        measure_compositional(Run.open("runs/vsepp"), read_cases("swap_att.json"), "coco/val2017").text
    """
    crops = list(dict.fromkeys(chain.from_iterable(case.images for case in cases)))
    captions = list(dict.fromkeys(chain.from_iterable(case.captions for case in cases)))
    model = load(run)
    embedded = []
    for start in range(0, len(crops), _IMAGES):
        pictures = [_image(Path(images), *crop) for crop in crops[start : start + _IMAGES]]
        embedded.append(model.encode_images(pictures))
    if run.multi_vector:
        # Blocks may differ in the number of vectors per set.
        most = max(block.shape[1] for block in embedded)
        embedded = [np.pad(block, ((0, 0), (0, most - block.shape[1]), (0, 0))) for block in embedded]
    of_crop = dict(zip(crops, np.concatenate(embedded), strict=True))
    ids, offsets = run.encode(captions)
    texts = Embedder(run.model).texts(ids, offsets)
    of_caption = dict(zip(captions, texts, strict=True))
    results = []
    for start in range(0, len(cases), _CASES):
        block = cases[start : start + _CASES]
        rows = [of_crop[crop] for crop in chain.from_iterable(case.images for case in block)]
        columns = [of_caption[caption] for caption in chain.from_iterable(case.captions for case in block)]
        scores = np.asarray(run.model.similarity.scores(np.stack(rows), np.stack(columns)))
        row = column = 0
        for case in block:
            own = scores[row : row + len(case.images), column : column + len(case.captions)]
            results.append(case_scores(own))
            row, column = row + len(case.images), column + len(case.captions)
    return replace(score_cases(cases, results), unknown=coverage(run.tokenizer, ids, offsets, captions).counts)


def _image(folder: Path, name: str, box: tuple[int, int, int, int] | None) -> ImageLike:
    if box is None:
        return folder / name
    try:
        with Image.open(require_regular(folder / name)) as image:
            return image.convert("RGB").crop(box)
    except OSError as error:
        raise DataError(f"Cannot read the image {folder / name}: {error}.") from error
