"""Analysis `uncertainty` of `vsemb.analyze`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from vsemb.errors import invalid_argument
from vsemb.parts import Count, Whole
from vsemb.printing import table
from vsemb.results import Table
from vsemb.runs.analyses import Analysis

if TYPE_CHECKING:
    from vsemb.data.store import StoredDataset
    from vsemb.runs.run import Run

# Value of a bin -> digits after the point.
_MEASURES = (("uncertainty", 3), ("R@1", 1), ("R@10", 1))


@dataclass(frozen=True)
class Uncertainty(Analysis, kind="uncertainty"):
    """Rank images and texts by their uncertainty, and measure retrieval per bin of it.

    The run must have the similarity csd, such as one of the recipe pcme. The uncertainty of an item is the sum of its
    variances. Bins have equal sizes, and the least uncertain queries are in the first (Chun 2024).

    Attributes:
        bins: number of bins.
        items: number of the most and of the least uncertain images and texts to show.
    """

    bins: Count = 10
    items: Whole = 3

    def analyze(self, runs: Sequence[Run], data: StoredDataset, split: str) -> Table:
        import numpy as np
        from keras import ops

        from vsemb.evaluation import retrieval_ranks
        from vsemb.runs.measure import embedded
        from vsemb.systems.probabilistic.gaussians import total_variance
        from vsemb.systems.probabilistic.side import Side, rank_correlation
        from vsemb.text.normalize import words_of

        if len(runs) > 1:
            raise invalid_argument("runs", [str(run.path) for run in runs], "one run for uncertainty")
        _require_probabilistic(runs[0])
        part = data.split(split)
        if self.bins > len(part):
            raise invalid_argument("bins", self.bins, f"an integer from 1 to {len(part)}, the images of {split}")
        images, texts, rows = embedded(runs[0], data, split)
        ranks = retrieval_ranks(images, texts, part.ids, part.ids[rows], runs[0].model.similarity)
        sides = {
            name: Side(ops.convert_to_numpy(total_variance(embeddings)), of_side)
            for name, embeddings, of_side in zip(("images", "texts"), (images, texts), ranks, strict=True)
        }
        lengths = np.array([len(words) for words in words_of(part.captions)])
        by_length = rank_correlation(sides["texts"].uncertainty, lengths)
        names: dict[str, Sequence[str]] = {"images": part.keys, "texts": part.captions}
        values: dict[str, Any] = {"split": split, "words_correlation": by_length}
        for name, side in sides.items():
            shown = [_examples(side, names[name], order, self.items) for order in (side.order, side.order[::-1])]
            values[name] = {
                **side.summary(),
                "rank_correlation": side.correlation,
                "bins": side.bins(self.bins),
                "least": shown[0],
                "most": shown[1],
            }
        return Table(_text(values, tuple(sides)), values)


def _require_probabilistic(run: Run) -> None:
    from vsemb.systems.probabilistic.similarity import SampledDistance

    similarity = run.recipe.similarity
    if not isinstance(similarity, SampledDistance):
        received = f"{run.path}, of similarity {similarity.kind!r}"
        fix = "The recipe pcme has it."
        raise invalid_argument("run", received, f"a run with the similarity {SampledDistance.kind!r}", fix)


def _examples(side: Any, names: Sequence[str], order: Any, count: int) -> list[dict[str, Any]]:
    """Return the first items of an order by name, with uncertainty and rank from 1."""
    return [
        {"item": names[row], "uncertainty": float(side.uncertainty[row]), "rank": int(side.ranks[row]) + 1}
        for row in map(int, order[:count])
    ]


def _text(values: dict[str, Any], sides: Sequence[str]) -> str:
    columns = ("count", "mean", "deviation", "p5", "p50", "p95")
    summary = [
        [name, f"{values[name]['count']:,}", *(f"{values[name][column]:.3f}" for column in columns[1:])]
        for name in sides
    ]
    bins = [
        [str(number + 1), *(f"{each[key]:.{digits}f}" for each in both for key, digits in _MEASURES)]
        for number, both in enumerate(zip(*(values[name]["bins"] for name in sides), strict=True))
    ]
    correlations = [
        *([f"{name}, with the rank of the positive", f"{values[name]['rank_correlation']:.3f}"] for name in sides),
        ["texts, with the number of words", f"{values['words_correlation']:.3f}"],
    ]
    titles = [f"{name}: uncertainty" if key == "uncertainty" else key for name in sides for key, _ in _MEASURES]
    blocks = [
        table(["uncertainty", *columns], summary),
        table(["bin", *titles], bins),
        table(["uncertainty of", "rank correlation"], correlations),
    ]
    for name in sides:
        for which in ("least", "most"):
            lines = [[f"{each['uncertainty']:.3f}", str(each["rank"]), each["item"]] for each in values[name][which]]
            if lines:
                blocks.append(table(["uncertainty", "rank", f"{which} uncertain {name}"], lines, text=(2,)))
    return "\n\n".join(blocks)
