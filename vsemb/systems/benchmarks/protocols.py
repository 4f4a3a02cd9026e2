"""Protocols `positives` and `compositional` of `vsemb.evaluate`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from vsemb.errors import invalid_argument
from vsemb.parts import PathName
from vsemb.printing import table
from vsemb.results import Table
from vsemb.runs.protocols import RETRIEVAL, Protocol

if TYPE_CHECKING:
    from vsemb.data.store import StoredDataset
    from vsemb.runs.run import Run


@dataclass(frozen=True)
class Positives(Protocol, kind="positives"):
    """Retrieval with several positives per query: ECCV Caption, CxC, PMRP.

    R-P is R-Precision. Plausible matches are images whose sets of object classes differ in at most 0, 1 or 2 classes.
    Their R-P is PMRP, the mean over these three limits.

    Attributes:
        files: published files; default: the object classes of the data. Any of: the folder of ECCV Caption's
            NAME_image_to_caption.json and NAME_caption_to_image.json, a file sits_*.csv of CxC, and COCO's
            instances_*.json; for compositional tests, see there.
    """

    files: tuple[PathName, ...] = ()

    tasks: ClassVar[Sequence[str]] = (RETRIEVAL,)

    def measure(self, run: Run, data: StoredDataset, split: str) -> Table:
        import numpy as np

        from vsemb.errors import DataError
        from vsemb.runs.measure import embedded_with_coverage
        from vsemb.systems.benchmarks.positives import METRICS, measure_positives, read_positives

        part = data.split(split)
        positives = read_positives(self.files, part)
        images, texts, rows, coverage = embedded_with_coverage(run, data, split)
        if not np.array_equal(rows, part.caption_rows):
            raise DataError(f"{run.path} must embed captions; it embeds other texts, which have no judged positives.")
        measured = {"": measure_positives(images, texts, rows, run.model.similarity, positives)}
        for name, chosen in (("with_known_word", coverage.share > 0), ("all_words_known", coverage.share == 1)):
            if chosen.any() and not chosen.all():
                metrics = measure_positives(images, texts, rows, run.model.similarity, positives, chosen)
                measured[name] = [own for own in metrics if all(own.queries)]
        lines = []
        for name, metrics in measured.items():
            texts_of = f", {name.replace('_', ' ')}" if name else ""
            for own in metrics:
                sides = own.image_to_text, own.text_to_image
                for title, side, queries in zip(("image → text", "text → image"), sides, own.queries, strict=True):
                    numbers = [f"{side[metric]:.1f}" for metric in METRICS]
                    lines.append([f"{own.name}{texts_of}: {title}", str(queries), *numbers])
        text = table([f"{split}: {len(images)} images, {len(texts)} texts", "queries", *METRICS], lines)
        values = {name: {own.name: own.to_json() for own in metrics} for name, metrics in measured.items()}
        unknown = coverage.counts
        named = {"split": split, **values.pop(""), "unknown": asdict(unknown), **values}
        return Table("\n".join([text, *unknown.notes]), named)


@dataclass(frozen=True)
class Compositional(Protocol, kind="compositional"):
    """Compositional tests: Winoground, ARO, SugarCrepe.

    `text` is the share of tests in which the true caption has a higher score than the false one. Winoground also has an
    image score, and a group score for both. `by kind` is the mean of `text` over relations or pairs of attributes.

    Attributes:
        files: Winoground's examples.jsonl, JSON files of SugarCrepe, or visual_genome_*.json of ARO.
        images: folder of the images of the tests; default: the folder of the file.
    """

    files: tuple[PathName, ...] = ()
    images: PathName | None = None

    tasks: ClassVar[Sequence[str]] = (RETRIEVAL,)

    def check(self) -> None:
        if not self.files:
            raise invalid_argument("files", self.files, "the files of the tests, such as swap_att.json")

    def measure(self, run: Run, data: StoredDataset, split: str) -> Table:
        from vsemb.systems.benchmarks.compositional import measure_compositional, read_cases

        cases = {Path(file): read_cases(file) for file in self.files}
        rows, notes, values = [], [], {}
        for file, own in cases.items():
            metrics = measure_compositional(run, own, self.images or file.parent)
            scores = metrics.text, metrics.image, metrics.group, metrics.by_kind
            percents = ["" if score is None else f"{score:.1f}" for score in scores]
            rows.append([file.stem, str(metrics.cases), *percents])
            if metrics.unknown:
                notes += [f"{file.stem}: {note}" for note in metrics.unknown.notes]
            values[file.stem] = metrics.to_json()
        text = table(["", "tests", "text", "image", "group", "by kind"], rows)
        return Table("\n".join([text, *notes]), values)
