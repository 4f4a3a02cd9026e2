"""Acts that measure runs: `vsemb.evaluate`, `vsemb.compare` and `vsemb.analyze`."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal, overload

from vsemb.acts import Fields, act, chosen
from vsemb.errors import invalid_argument
from vsemb.parts import Count, Seed
from vsemb.results import Result
from vsemb.runs.analyses import Analysis
from vsemb.runs.protocols import Protocol, Retrieval

if TYPE_CHECKING:
    from vsemb.data.store import StoredDataset
    from vsemb.evaluation import RetrievalMetrics
    from vsemb.runs.measure import RunComparison
    from vsemb.runs.run import Run


@overload
def evaluate(
    run: Run | str | os.PathLike[str],
    data: object | str | None = None,
    split: str = "val",
    *,
    protocol: Retrieval | Literal["retrieval"],
    kept: Literal[False] = False,
    **options: Any,
) -> RetrievalMetrics: ...


@overload
def evaluate(
    run: Run | str | os.PathLike[str],
    data: object | str | None = None,
    split: str = "val",
    *,
    protocol: Protocol | str,
    kept: bool = False,
    **options: Any,
) -> Result: ...


@overload
def evaluate(
    run: Run | str | os.PathLike[str],
    data: object | str | None = None,
    split: str = "val",
    *,
    protocol: None = None,
    kept: bool = False,
    **options: Any,
) -> Any: ...


@act
def evaluate(
    run: Run | str | os.PathLike[str],
    data: object | str | None = None,
    split: str = "val",
    *,
    protocol: Protocol | str | None = None,
    kept: bool = False,
    **options: Annotated[Any, Fields("protocol", by="protocol")],
) -> Any:
    """Measure a run with a standard protocol, such as recall at K.

    In every protocol, ties count against the model. For a directory of runs that `vsemb train --seeds` wrote, the
    result has the mean and the standard deviation over its runs.

    Args:
        run: a run, its directory, or a directory of runs.
        data: the dataset, or other data of the run's task; default: the training data.
        split: split to evaluate.
        protocol: a protocol or its name; default: the protocol of the run's recipe.
        kept: average over the epochs that `training.keep` kept.
        **options: fields of the protocol.

    Returns:
        For retrieval, `vsemb.RetrievalMetrics`: recall at 1, 5 and 10 in percent, median and mean rank, in both
        directions. Other protocols, and several runs, have other `vsemb.results.Result`, which show tables; `to_json()`
        returns the numbers.

    Raises:
        InvalidArgumentError: for an unknown split, protocol or option, or a protocol that does not measure the run.
        DataError: if the data does not match.

    Example:

        metrics = vsemb.evaluate(run, split="test", folds=5)
        metrics.text_to_image["R@10"], metrics.recall_sum
        vsemb.evaluate("runs/ds-sje", protocol="zero-shot", split="test", curve=True)
    """
    from vsemb.runs.seeds import open_seeds, over_seeds

    runs = open_seeds(run)
    if kept:
        runs = [each for opened in runs for each in opened.kept]
    measured = {}
    for opened in runs:
        by = chosen(Protocol, "protocol", opened.recipe.evaluation if protocol is None else protocol, options)
        if protocol is not None:
            by.require(opened)
        measured[opened.label] = by.measure(opened, opened.open_data(data), split)
    if len(measured) == 1:
        return next(iter(measured.values()))
    values = {name: result.to_json() for name, result in measured.items()}
    return over_seeds(values, "epochs" if kept else "seeds")


@act
def compare(
    first: Run | str | os.PathLike[str],
    second: Run | str | os.PathLike[str],
    *,
    data: StoredDataset | str | os.PathLike[str] | None = None,
    split: str = "val",
    bootstrap: Count = 1000,
    seed: Seed = 0,
) -> RunComparison:
    """Compare the recalls of two runs by a paired bootstrap over images.

    Each bootstrap sample draws images with replacement, with all their captions, for both runs. The table has the
    recalls of both runs, the gain of the second with its 95 % interval, and the share of samples without a gain.

    Args:
        first: run to compare with, or its directory.
        second: run whose gain is measured, or its directory.
        data: the dataset; default: the training dataset of the first run.
        split: split to evaluate.
        bootstrap: number of bootstrap samples.
        seed: random seed.

    Raises:
        DataError: if the runs do not rank the same texts, or do not match the data.

    Example:

        comparison = vsemb.compare("runs/kiros", "runs/vsepp", split="test")
        comparison.differences["recall_sum"].interval_95
    """
    from vsemb.runs.measure import compare_runs
    from vsemb.runs.run import Run

    one, other = Run.open(first, "retrieval"), Run.open(second, "retrieval")
    return compare_runs(one, other, one.open_data(data), split, bootstrap=bootstrap, seed=seed)


@act
def analyze(
    analysis: Analysis | str,
    runs: Sequence[Run | str | os.PathLike[str]],
    *,
    data: StoredDataset | str | os.PathLike[str] | None = None,
    split: str = "val",
    **options: Annotated[Any, Fields("analysis", by="analysis")],
) -> Result:
    """Analyze trained runs.

    Args:
        analysis: an analysis or its name.
        runs: runs for retrieval, or their directories.
        data: the dataset; default: the training dataset of the first run.
        split: split to analyze.
        **options: fields of the analysis.

    Raises:
        InvalidArgumentError: for an unknown split, analysis or option.
        DataError: if a run or the data does not match.

    Example:

        print(vsemb.analyze("lengths", ["runs/order", "runs/symmetric"], images=1000))
    """
    from vsemb.runs.run import Run

    by = chosen(Analysis, "analysis", analysis, options)
    if not runs:
        raise invalid_argument("runs", runs, "at least one run")
    opened = [Run.open(each, "retrieval") for each in runs]
    return by.analyze(opened, opened[0].open_data(data), split)
