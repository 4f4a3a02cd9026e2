"""Analyses of `vsemb.analyze`: other questions about trained runs than a protocol answers, as parts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from vsemb.parts import Count, Part, Whole
from vsemb.printing import table
from vsemb.results import Result, Table

if TYPE_CHECKING:
    from vsemb.data.store import StoredDataset
    from vsemb.runs.run import Run

_ROWS = {
    "image_all": "image, by all captions",
    "image_pairs": "image, by captions of the pairs",
    "image_shorter": "  the shorter ones",
    "image_longer": "  the longer ones",
    "longer_by_shorter": "longer caption, by the shorter",
}


@dataclass(frozen=True)
class Analysis(Part, family="analysis"):
    """A question about trained runs.

    Its module imports nothing heavy outside functions, because `--help` shows its fields.
    """

    def analyze(self, runs: Sequence[Run], data: StoredDataset, split: str) -> Result:
        """Analyze runs.

        Args:
            runs: the runs.
            data: the dataset.
            split: name of the split.

        Raises:
            VsembError: if runs, data and options do not match.
        """
        raise NotImplementedError


@dataclass(frozen=True)
class Lengths(Analysis, kind="lengths"):
    """Compare runs on captions of very different lengths.

    The queries are the pairs of captions of one image that differ most in length (Vendrov et al. 2016, section 4.6).
    There are two kinds of mean ranks: of the image by its captions, and of the longer caption by the shorter one.
    Ranks start at 1, and ties count against the model. To see the effect of an order, compare a run with an order and
    the same run with a symmetric similarity.

    Attributes:
        pairs: number of pairs.
        images: use only the first images of the split, this many; default: all.
        examples: number of pairs to show.
    """

    pairs: Count = 100
    images: Count | None = None
    examples: Whole = 3

    def analyze(self, runs: Sequence[Run], data: StoredDataset, split: str) -> Table:
        from vsemb.runs.measure import compare_lengths

        comparison = compare_lengths(runs, data, split, pairs=self.pairs, images=self.images)
        names = [run.path.name for run in runs]
        if len(set(names)) < len(names):
            names = [str(run.path) for run in runs]
        means = [analysis.to_json() for analysis in comparison.runs]
        apart = [int(comparison.differences.min()), int(comparison.differences.max())]
        about = (
            f"{len(comparison.pairs)} pairs of captions of {comparison.split}, {apart[0]} to {apart[1]} words apart; "
            f"{len(comparison.keys):,} images, {len(comparison.captions):,} captions"
        )
        rows = [[title, *(f"{mean[key]:.1f}" for mean in means)] for key, title in _ROWS.items()]
        blocks = [f"{about}\n{table(['mean rank of the', *names], rows)}"]
        examples = comparison.examples(self.examples)
        for example in examples:
            rows = [[*map(str, example[f"{side}_ranks"]), example[side]] for side in ("longer", "shorter")]
            blocks.append(f"{example['key']}\n{table([*names, 'caption'], rows, text=(len(names),))}")
        values = {
            "split": comparison.split,
            "images": len(comparison.keys),
            "captions": len(comparison.captions),
            "pairs": len(comparison.pairs),
            "words_apart": apart,
            "runs": [{"run": str(run.path), **mean} for run, mean in zip(runs, means, strict=True)],
            "examples": examples,
        }
        return Table("\n\n".join(blocks), values)
