"""Acts that show runs: `vsemb.write_report` and `vsemb.write_projector`."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from vsemb.acts import Fields, Option, act, additions
from vsemb.parts import Count, Seed, Whole
from vsemb.runs.options import ReportOption

if TYPE_CHECKING:
    from vsemb.data.store import StoredDataset
    from vsemb.report.page import Report
    from vsemb.runs.projector import Projection
    from vsemb.runs.run import Run


@act
def write_report(
    run: Run | str | os.PathLike[str],
    *,
    data: StoredDataset | str | os.PathLike[str] | None = None,
    split: str = "val",
    out: str | os.PathLike[str] | None = None,
    shown: Count = 12,
    arithmetic: Annotated[Sequence[tuple[str, str, str]], Option(names=("KEY", "MINUS", "PLUS"))] = (),
    seed: Seed = 0,
    **options: Annotated[Any, Fields("report option")],
) -> Report:
    """Write the report of a run: metrics, failures, queries with their results, and training curves.

    The report is one self-contained HTML file that sends no request. Its sections depend on the task of the run. The
    same run, dataset and arguments give the same bytes.

    Args:
        run: a run, or its directory.
        data: the dataset; default: the training dataset.
        split: split to show.
        out: HTML file to write; default: report.html in the run directory.
        shown: queries that each group shows at first, or captioned images.
        arithmetic: key of an image, word to subtract, word to add; repeatable; default: six random examples.
        seed: random seed.
        **options: fields of the options that systems add.

    Returns:
        The file and the metrics.

    Raises:
        InvalidArgumentError: for a directory as `out`, or a file of another program; for an impossible example, or an
            option that the run does not read.
        DataError: if the task has no report, run and dataset do not match, the split is missing, or the file cannot be
            written.
        MissingExtraError: without jinja2.

    Example:

        vsemb.write_report("runs/vsepp", split="test", out="report.html")
    """
    from vsemb.report.page import REPORT, report_run
    from vsemb.runs.run import Run

    added = additions(ReportOption, options)
    opened = Run.open(run)
    file = opened.path / REPORT if out is None else Path(out)
    return report_run(opened, opened.open_data(data), split, file, shown, arithmetic, seed, added)


@act
def write_projector(
    run: Run | str | os.PathLike[str],
    *,
    data: StoredDataset | str | os.PathLike[str] | None = None,
    split: str = "val",
    out: str | os.PathLike[str] | None = None,
    images: Whole = 1000,
    sentences: Whole = 1000,
    words: Whole = 500,
    seed: Seed = 0,
) -> Projection:
    """Write the embeddings of images, sentences and words for TensorBoard's projector.

    Images have thumbnails. The tensor `everything` contains images and their sentences together. Each word is embedded
    as a sentence.

    Args:
        run: a run, or its directory.
        data: the dataset; default: the training dataset.
        split: split to show.
        out: folder to write; default: projector in the run directory.
        images: maximum number of images, drawn at random; 0 for none.
        sentences: maximum number of sentences of these images, taken from the images in turn; 0 for none. If `images`
            is 0, the sentences are of images drawn at random.
        words: maximum number of words; 0 for none. They are the most frequent words of the split's captions that are in
            the vocabulary of the run. A run on class names does not have words.
        seed: random seed.

    Returns:
        The folder, and the shapes of the tensors.

    Raises:
        InvalidArgumentError: if a number is too large, or all numbers are 0.
        DataError: if run and dataset do not match, the run has several vectors per item, `out` holds other files, or a
            file cannot be written.

    Example:

        vsemb.write_projector("runs/vsepp", images=200)
    """
    from vsemb.runs.projector import PROJECTOR, project_run
    from vsemb.runs.run import Run

    opened = Run.open(run, "retrieval")
    folder = opened.path / PROJECTOR if out is None else Path(out)
    counts = {"images": images, "sentences": sentences, "words": words}
    return project_run(opened, opened.open_data(data), split, folder, seed=seed, **counts)
