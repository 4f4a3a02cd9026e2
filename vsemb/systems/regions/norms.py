"""Analysis `norms` of `vsemb.analyze`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from vsemb.errors import invalid_argument
from vsemb.parts import Count, PathName
from vsemb.printing import table
from vsemb.results import Table
from vsemb.runs.analyses import Analysis

if TYPE_CHECKING:
    from vsemb.data.store import StoredDataset
    from vsemb.runs.run import Run
    from vsemb.systems.regions.region_search import WordNorm


@dataclass(frozen=True)
class Norms(Analysis, kind="norms"):
    """Measure norms of words and regions.

    The tables list the words and regions with the largest norms, and the words with the smallest. The run must be on
    regions with a sum of inner products as score, such as the variant paper of the recipe dvsa. The norm of a word is
    the mean norm of its vectors over its places in the captions of a split.

    Attributes:
        k: words and regions per list.
        min_count: minimum count of a word in the split.
        out: contact sheet of the regions, 400 at most, as .png or .jpg.
        all_regions: allow several regions per image.
        parts: exclude whole images.
    """

    k: Count = 40
    min_count: Count = 5
    out: PathName | None = None
    all_regions: bool = False
    parts: bool = False

    def analyze(self, runs: Sequence[Run], data: StoredDataset, split: str) -> Table:
        from vsemb.drawing.pictures import check_picture_path, decimals, save_picture
        from vsemb.systems.regions.region_search import measure_norms, region_sheet, regions_table

        if len(runs) > 1:
            raise invalid_argument("runs", [str(run.path) for run in runs], "one run for norms")
        if self.out is not None:
            check_picture_path(self.out)
        norms = measure_norms(
            runs[0], data, split, k=self.k, min_count=self.min_count, all_regions=self.all_regions, parts=self.parts
        )
        digits = decimals(word.norm for word in norms.largest)

        def cells(word: WordNorm) -> list[str]:
            return [f"{word.norm:.{digits}f}", word.word, str(word.count)]

        pairs = zip(norms.smallest, norms.largest, strict=True)
        rows = [cells(smallest) + cells(largest) for smallest, largest in pairs]
        words = table(["smallest", "word", "places", "largest", "word", "places"], rows, text=(1, 4))
        blocks = [words, regions_table(norms.regions, "norm")]
        if self.out is not None and norms.regions:
            save_picture(region_sheet(data, norms.regions), self.out)
            blocks.append(str(self.out))
        return Table("\n\n".join(blocks), {"split": split, **norms.to_json()})
