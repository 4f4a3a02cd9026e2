"""Tables as the commands print them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from vsemb.evaluation.retrieval import RetrievalMetrics
    from vsemb.systems.captions.caption_measure import CaptionTable
    from vsemb.systems.captions.perplexities import PerplexityRow
    from vsemb.systems.entailment.metrics import EntailmentMetrics
    from vsemb.systems.regions.pointing_metrics import PointingMetrics, PointingShare
    from vsemb.systems.regions.region_search import FoundRegion
    from vsemb.systems.zero_shot.metrics import ZeroShotMetrics

_RANKS = {"median_rank": "median", "mean_rank": "mean"}


def table(header: Sequence[str], rows: Sequence[Sequence[str]], text: Collection[int] = (0,)) -> str:
    """Lays out a table.

    Args:
        header: names of the columns.
        rows: cells, as many a row as the header has.
        text: the columns of text, aligned to the left; the others are numbers, to the right.

    Example:

    >>> print(table(["", "R@1"], [["a", "1.0"], ["bc", "10.0"]]))
         R@1
    a    1.0
    bc  10.0
    """
    lines = [list(header), *map(list, rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(header))]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if column in text else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    )


def retrieval_table(metrics: RetrievalMetrics) -> str:
    """Lays out retrieval metrics, with their intervals and, below, those of pairs where they are there."""
    rows = _retrieval_rows(metrics, f"{metrics.images} images, {metrics.texts} texts")
    if metrics.pairs is not None:
        rows.append([""] * len(rows[0]))
        rows += _retrieval_rows(metrics.pairs, f"{metrics.pairs.images} pairs, one text an image")
    return table(rows[0], rows[1:])


def _retrieval_rows(metrics: RetrievalMetrics, title: str) -> list[list[str]]:
    columns = list(metrics.image_to_text)
    rows = [[title, *(_RANKS.get(column, column) for column in columns)]]
    for name in ("image_to_text", "text_to_image"):
        values = getattr(metrics, name)
        rows.append([name.replace("_to_", " → "), *(f"{values[key]:.1f}" for key in columns)])
        if metrics.intervals is not None:
            bounds = metrics.intervals[name]
            rows.append(["  95 %", *(f"{bounds[key][0]:.1f}–{bounds[key][1]:.1f}" for key in columns)])
    return rows


def entailment_table(metrics: EntailmentMetrics, split: str) -> str:
    """Lays out entailment metrics, in percent."""
    measured = {
        "accuracy": metrics.accuracy,
        "majority class": metrics.majority,
        "average precision": metrics.average_precision,
        "area under ROC": metrics.roc_auc,
        **{f"accuracy on {name}": share for name, share in metrics.class_accuracy.items()},
    }
    rows = [[name, f"{100 * value:.1f} %"] for name, value in measured.items()]
    rows.append(["threshold, from val", f"{metrics.threshold:.3g}  "])
    return table([f"{split}: {metrics.pairs} pairs, {metrics.entailed} entailed", ""], rows)


_SEEN = {
    True: "Classes seen in training: ordinary classification, not zero-shot.",
    False: "No class of the split was trained on.",
    None: "The run was trained on images without classes; whether of these is not known.",
}


def zero_shot_table(measured: Mapping[float, ZeroShotMetrics], split: str, seen: bool | None) -> str:
    """Lays out zero-shot metrics, in percent, with their curves where they are there.

    Args:
        measured: share of mistyped characters -> metrics.
        split: its name.
        seen: see `vsemb.systems.zero_shot.recognition.ZeroShotTask`.
    """
    rows = []
    for share, metrics in measured.items():
        name = f"{100 * share:g} % of characters mistyped" if share else "all texts"
        values = (metrics.top1, metrics.top1_images, metrics.average_precision, metrics.chance)
        rows.append([name, *(f"{value:.1f}" for value in values)])
        for point in metrics.curve:
            if point.texts is not None:
                top1 = f"{point.top1:.1f} ± {point.top1_deviation:.1f}"
                precision = f"{point.average_precision:.1f} ± {point.average_precision_deviation:.1f}"
                rows.append([f"  {point.texts} a class", top1, "", precision, ""])
    first = next(iter(measured.values()))
    # All images are looked at where there are fewer than that.
    precision_name = f"AP@{min(first.top, first.images)}"
    header = [
        f"{split}: {first.classes} classes, {first.images} images, {first.texts} texts",
        *("top-1 per class", "top-1", precision_name, "chance"),
    ]
    lines = [table(header, rows), "", _SEEN[seen]]
    if first.average_precision_limit < 100:
        lines.append(f"{precision_name} is at most {first.average_precision_limit:.1f}: classes have fewer images.")
    return "\n".join(lines)


def split_classes_table(counts: Mapping[str, int]) -> str:
    """Lays out how many images were taken for each class, the most frequent first."""
    rows = sorted(counts.items(), key=lambda item: -item[1])
    return table(["class", "images"], [[name, str(count)] for name, count in rows])


def pointing_table(metrics: PointingMetrics, split: str, chosen: float | None) -> str:
    """Lays out pointing metrics, in percent, with their intervals where they are there.

    Args:
        metrics: see `vsemb.systems.regions.pointing_metrics.evaluate_pointing`.
        split: its name.
        chosen: the affinity that is best on the validation split, which is marked; None marks none.
    """
    shares: list[tuple[str, PointingShare]] = [
        ("chance", metrics.chance),
        ("always the whole image", metrics.whole_image),
    ]
    for affinity, share in metrics.accuracy.items():
        notes = ["each word by itself"] if affinity == 0 else []
        notes += ["best on val"] if affinity == chosen else []
        shares.append((f"affinity {affinity:g}" + (f" ({', '.join(notes)})" if notes else ""), share))
    shares.append(("ceiling: a right region exists", metrics.ceiling))
    rows = []
    for name, share in shares:
        rows.append([name, f"{share.words:.1f}", f"{share.nouns:.1f}"])
        if share.intervals is not None:
            bounds = (share.intervals[part] for part in ("words", "nouns"))
            rows.append(["  95 %", *(f"{low:.1f}–{high:.1f}" for low, high in bounds)])
    header = [f"{split}: {metrics.images} images, {metrics.regions:.1f} regions each"]
    header += [f"{metrics.words} words", f"{metrics.nouns} nouns"]
    lines = [table(header, rows)]
    if metrics.undecided:
        lines.append(f"{metrics.undecided} words count as wrong, since the model does not read them.")
    return "\n".join(lines)


def captions_table(found: CaptionTable) -> str:
    """Lays out the scores of captions in percent, a row a run or baseline, with notes below.

    Args:
        found: see `vsemb.systems.captions.caption_measure.measure_captions`.
    """
    columns: dict[str, list[float | None]] = {
        **{f"B-{order}": [row.metrics.bleu[order - 1] for row in found.rows] for order in range(1, 5)},
        "METEOR": [row.metrics.meteor for row in found.rows],
        "ROUGE-L": [row.metrics.rouge_l for row in found.rows],
        "CIDEr": [row.metrics.cider for row in found.rows],
        "true": [row.true for row in found.rows],
        "novel": [row.metrics.novelty for row in found.rows],
    }
    columns = {name: values for name, values in columns.items() if any(v is not None for v in values)}
    rows = [
        [
            row.name,
            *("" if values[number] is None else f"{values[number]:.1f}" for values in columns.values()),
            str(row.metrics.vocabulary),
            f"{row.metrics.words:.1f}",
        ]
        for number, row in enumerate(found.rows)
    ]
    header = [f"{found.split}: {len(found.keys)} images", *columns, "vocabulary", "words"]
    lines = [table(header, rows)]
    known = found.rows[0].metrics.train_vocabulary
    if known is not None:
        lines.append(f"The training captions have {known:,} different words.")
    return "\n".join([*lines, *found.notes])


def perplexity_table(rows: Sequence[PerplexityRow], split: str, difference: str | None) -> str:
    """Lays out perplexities, a row a run or baseline.

    Args:
        rows: see `vsemb.systems.captions.perplexities.measure_perplexities`.
        split: its name.
        difference: why the rows do not compare, if they do not.
    """
    cells = [
        [
            row.name,
            row.decoder,
            f"{row.perplexity:.2f}",
            f"{row.bits:.3f}",
            f"{row.words:,}",
            f"{100 * row.unknown:.1f} %",
        ]
        for row in rows
    ]
    header = [split, "model", "perplexity", "bits a word", "words", "unknown"]
    return "\n".join([table(header, cells, text=(0, 1)), *([difference] if difference else [])])


def regions_table(found: Sequence[FoundRegion], score: str) -> str:
    """Lays out regions that were found, with what they were found by."""
    from vsemb.runs.pictures import decimals

    digits = decimals(region.score for region in found)
    rows = [
        [
            str(region.rank),
            f"{region.score:.{digits}f}",
            region.key,
            region.split,
            str(region.region),
            "{} {} {} {}".format(*region.box),
        ]
        for region in found
    ]
    return table(["rank", score, "key", "split", "region", "box (x y w h)"], rows, text=(2, 3, 5))
