"""Measure runs with the protocols of the field, and on captions of one image with very different lengths.

The analysis of lengths follows Vendrov et al. 2016, section 4.6, figure 3. A symmetric similarity must place a short
and a long caption close to the same image, and therefore close to each other. An order can place the short caption far
above the image. Length is a proxy for the level of detail.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from keras import ops

from vsemb.data.store import StoredDataset
from vsemb.errors import DataError, invalid_argument
from vsemb.evaluation import (
    Embedder,
    PairedDifference,
    RetrievalMetrics,
    compare_ranks,
    evaluate_retrieval,
    retrieval_ranks,
)
from vsemb.evaluation.retrieval import check_protocol
from vsemb.exporting.card import Figures
from vsemb.printing import table
from vsemb.results import Result
from vsemb.runs.indexing import captions_read
from vsemb.runs.run import Run
from vsemb.similarities import Similarity
from vsemb.text.coverage import Coverage, UnknownWords
from vsemb.text.normalize import words_of

# Number of queries scored at once.
_BLOCK = 100


def evaluate_run(run: Run, dataset: StoredDataset, split: str = "val", **protocol: Any) -> RetrievalMetrics:
    """Measure image-sentence retrieval on a split.

    Args:
        run: the run.
        dataset: the dataset.
        split: name of the split.
        **protocol: `folds`, `bootstrap`, `recalls`, `pairs` and `csls` of `evaluate_retrieval`. For pairs, images are
            in the order of the dataset's index; captions are in the order of their image.

    Raises:
        VsembError: if run and dataset do not match, the split is missing, or the protocol does not fit the split.
    """
    part = dataset.split(split)
    check_protocol(len(part), run.recipe.similarity, **protocol)
    images, texts, rows, known = embedded_with_coverage(run, dataset, split)
    ids = part.ids, part.ids[rows]
    return evaluate_retrieval(images, texts, *ids, run.model.similarity, coverage=known, **protocol)


def figures(run: Run, dataset: StoredDataset, split: str) -> Figures:
    """Measure retrieval on a split with 95 % intervals, for a model card.

    Args:
        run: the run.
        dataset: the dataset.
        split: name of the split.

    Raises:
        VsembError: as `evaluate_run`.
    """
    metrics = evaluate_run(run, dataset, split, bootstrap=1000)
    of = f"the split {split} of {dataset.name}: {metrics.images} images, {metrics.texts} texts"
    return Figures(of, metrics.values, metrics.intervals)


def embedded(run: Run, dataset: StoredDataset, split: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Embed the images and texts of a split.

    Returns:
        images: (n, dim) float32, or (n, items, dim) for a run with several vectors per item.
        texts: (m, dim) float32, or (m, items, dim).
        rows: (m,) int64, row of each text's image.

    Raises:
        VsembError: if run and dataset do not match, or the split is missing.
    """
    images, texts, rows, _ = embedded_with_coverage(run, dataset, split)
    return images, texts, rows


def embedded_with_coverage(
    run: Run, dataset: StoredDataset, split: str
) -> tuple[np.ndarray, np.ndarray, np.ndarray, Coverage]:
    """Embed the images and texts of a split as `embedded`, and also return the known words of the texts."""
    part = dataset.split(split)
    embedder = Embedder(run.model)
    images = embedder.images(run.images_of(dataset, part), len(part))
    ids, offsets, rows = run.encoded_texts_of(part)
    return images, embedder.texts(ids, offsets), rows, run.coverage(part, ids, offsets)


def count_unknown_words(run: Run, dataset: StoredDataset, split: str) -> UnknownWords:
    """Count the words of a split's texts that are not in the vocabulary of a run.

    Raises:
        VsembError: if run and dataset do not match, or the split is missing.
    """
    part = dataset.split(split)
    ids, offsets, _ = run.encoded_texts_of(part)
    return run.coverage(part, ids, offsets).counts


def difference_table(
    title: str, differences: Mapping[str, PairedDifference], names: tuple[str, str] = ("first", "second")
) -> str:
    """Format the recalls of two rankings as a table, with the gain of the second.

    Args:
        title: title of the column of the recalls.
        differences: result of `vsemb.evaluation.compare_ranks`.
        names: names of the rankings.
    """
    rows = [
        [
            name.replace("_to_", " → ").replace("_", " "),
            f"{each.first:.1f}",
            f"{each.second:.1f}",
            f"{each.difference:+.1f}",
            "{:+.1f} to {:+.1f}".format(*each.interval_95),
            f"{each.not_better:.3f}",
        ]
        for name, each in differences.items()
    ]
    return table([title, *names, "gain", "95 %", "share <= 0"], rows)


@dataclass(frozen=True, repr=False)
class RunComparison(Result):
    """The retrieval of two runs on the same images.

    Attributes:
        first: path of the run to compare with.
        second: path of the run whose gain is measured.
        split: name of the split.
        differences: `image_to_text R@1` and so on, and `recall_sum` -> comparison.
        unknown: `first` and `second` -> words of the texts that are not in the vocabulary of the run.
    """

    first: Path
    second: Path
    split: str
    differences: Mapping[str, PairedDifference]
    unknown: Mapping[str, UnknownWords]

    def to_json(self) -> dict[str, Any]:
        """Return the values as `vsemb compare --json` writes them."""
        runs = {"first": str(self.first), "second": str(self.second), "split": self.split}
        measured = {name: each.to_json() for name, each in self.differences.items()}
        return {**runs, **measured, "unknown": {side: asdict(counts) for side, counts in self.unknown.items()}}

    def __str__(self) -> str:
        lines = [difference_table(self.split, self.differences)]
        for side, counts in self.unknown.items():
            lines += [f"{side}: {note}" for note in counts.notes]
        return "\n".join(lines)


def compare_runs(
    first: Run, second: Run, dataset: StoredDataset, split: str, *, bootstrap: int, seed: int
) -> RunComparison:
    """Compare two runs, see `vsemb.compare`."""
    ids = dataset.split(split).ids

    def ranked(run: Run) -> tuple[tuple[np.ndarray, np.ndarray], np.ndarray]:
        images, texts, rows = embedded(run, dataset, split)
        return retrieval_ranks(images, texts, ids, ids[rows], run.model.similarity), rows

    (of_first, rows), (of_second, others) = ranked(first), ranked(second)
    if not np.array_equal(rows, others):
        raise DataError(f"{first.path} and {second.path} must rank the same texts; they read other texts of an image.")
    differences = compare_ranks(of_first, of_second, rows, bootstrap=bootstrap, seed=seed)
    unknown = {
        "first": count_unknown_words(first, dataset, split),
        "second": count_unknown_words(second, dataset, split),
    }
    return RunComparison(first.path, second.path, split, differences, unknown)


@dataclass(frozen=True, eq=False)
class LengthAnalysis:
    """Ranks of one model over pairs of captions. Ranks start at 1, and ties count against the model.

    Attributes:
        pairs: (pairs, 2) int64, rows of the shorter and of the longer caption.
        image_ranks: (captions,) int64, rank of the image with each of its captions as query.
        longer_ranks: (pairs,) int64, rank of the longer caption among all other captions, with the shorter caption as
            query.
    """

    pairs: np.ndarray
    image_ranks: np.ndarray
    longer_ranks: np.ndarray

    def to_json(self) -> dict[str, float]:
        """Return the mean ranks. A caption in several pairs counts once per mean."""
        return {
            "image_all": float(self.image_ranks.mean()),
            "image_pairs": self._mean(self.pairs),
            "image_shorter": self._mean(self.pairs[:, 0]),
            "image_longer": self._mean(self.pairs[:, 1]),
            "longer_by_shorter": float(self.longer_ranks.mean()),
        }

    def _mean(self, captions: np.ndarray) -> float:
        return float(self.image_ranks[np.unique(captions)].mean())


def length_pairs(words: np.ndarray, text_image_ids: np.ndarray, count: int = 100) -> np.ndarray:
    """Find the pairs of captions of one image that differ most in length.

    Args:
        words: (captions,) int, number of words per caption.
        text_image_ids: (captions,) int64, image of each caption; captions of one image are contiguous.
        count: maximum number of pairs.

    Returns:
        (count, 2) int64, rows of the shorter and of the longer caption, by descending difference. Equal differences
        are in the order of the data. There are fewer rows if fewer pairs differ in length.

    Raises:
        InvalidArgumentError: if count < 1.
        DataError: if no two captions of an image differ in length.

    Example: the second image's captions have 9, 2 and 4 words.

    >>> length_pairs(np.array([3, 5, 9, 2, 4]), np.array([7, 7, 8, 8, 8]), 2).tolist()
    [[3, 2], [4, 2]]
    """
    if count < 1:
        raise invalid_argument("pairs", count, "an integer >= 1")
    starts = np.flatnonzero(np.append(True, text_image_ids[1:] != text_image_ids[:-1]))
    candidates = [
        pair
        for start, stop in itertools.pairwise([*starts, len(words)])
        for pair in itertools.combinations(range(start, stop), 2)
        if words[pair[0]] != words[pair[1]]
    ]
    if not candidates:
        raise DataError("An image must have two captions of different lengths, to compare them; got none.")
    pairs = np.array(candidates, np.int64)
    lengths = np.asarray(words)[pairs]
    order = np.argsort(-np.abs(lengths[:, 0] - lengths[:, 1]), kind="stable")[:count]
    pairs, lengths = pairs[order], lengths[order]
    return np.take_along_axis(pairs, np.argsort(lengths, axis=1), axis=1)


def analyse_lengths(
    images: np.ndarray,
    texts: np.ndarray,
    image_ids: np.ndarray,
    text_image_ids: np.ndarray,
    pairs: np.ndarray,
    similarity: Similarity,
) -> LengthAnalysis:
    """Rank images and longer captions, with captions of very different lengths as queries.

    The shorter caption finds the longer one as a text finds images. With an order the score is E(candidate, query), so
    the query is the general side.

    Args:
        images: (n, dim) float32 embeddings.
        texts: (m, dim) float32 embeddings.
        image_ids: (n,) int64, distinct.
        text_image_ids: (m,) int64.
        pairs: (pairs, 2) int64 from `length_pairs`.
        similarity: similarity of the embeddings.

    Raises:
        DataError: as `retrieval_ranks`.
    """
    _, image_ranks = retrieval_ranks(images, texts, image_ids, text_image_ids, similarity)
    candidates = ops.convert_to_tensor(texts)
    longer = []
    for start in range(0, len(pairs), _BLOCK):
        queries, wanted = pairs[start : start + _BLOCK].T
        scores: Any = similarity.scores(candidates, ops.convert_to_tensor(texts[queries]))
        scores = np.array(ops.convert_to_numpy(scores))  # (m, queries)
        columns = np.arange(len(queries))
        scores[queries, columns] = -np.inf
        # Number of captions with at least the score of the longer caption, which is one of them.
        longer.append((scores >= scores[wanted, columns]).sum(axis=0))
    return LengthAnalysis(pairs, image_ranks + 1, np.concatenate(longer))


@dataclass(frozen=True, eq=False)
class LengthComparison:
    """Result of `compare_lengths`.

    Attributes:
        split: name of the split.
        keys: (images,) keys of the ranked images.
        captions: (captions,) captions of the images.
        caption_rows: (captions,) int64, row of each caption's image.
        words: (captions,) int64, number of words per caption.
        pairs: (pairs, 2) int64, rows of the shorter and of the longer caption.
        runs: one analysis per run.
    """

    split: str
    keys: list[str]
    captions: list[str]
    caption_rows: np.ndarray
    words: np.ndarray
    pairs: np.ndarray
    runs: list[LengthAnalysis]

    @property
    def differences(self) -> np.ndarray:
        """(pairs,) difference in words between the captions of each pair."""
        return self.words[self.pairs[:, 1]] - self.words[self.pairs[:, 0]]

    def examples(self, count: int) -> list[dict[str, Any]]:
        """Return the pairs with the largest differences in rank, as in figure 3.

        With several runs, the difference is between the runs, in the rank of the image for the shorter caption. With
        one run, it is between the ranks for the two captions. Each image appears once.
        """
        shorter, longer = (np.stack([run.image_ranks[side] for run in self.runs]) for side in self.pairs.T)
        spread = np.ptp(shorter, axis=0) if len(self.runs) > 1 else np.abs(shorter - longer)[0]
        order = np.argsort(-spread, kind="stable")
        rows = self.caption_rows[self.pairs[order, 0]]
        order = order[np.sort(np.unique(rows, return_index=True)[1])]
        return [
            {
                "key": self.keys[self.caption_rows[self.pairs[place, 0]]],
                "longer": self.captions[self.pairs[place, 1]],
                "shorter": self.captions[self.pairs[place, 0]],
                "longer_ranks": longer[:, place].tolist(),
                "shorter_ranks": shorter[:, place].tolist(),
            }
            for place in order[:count]
        ]


def compare_lengths(
    runs: Sequence[Run], dataset: StoredDataset, split: str = "val", *, pairs: int = 100, images: int | None = None
) -> LengthComparison:
    """Measure the ranks of runs on captions of one image with very different lengths.

    Args:
        runs: the runs.
        dataset: a dataset that matches all runs.
        split: name of the split.
        pairs: number of pairs, see `length_pairs`.
        images: number of images, the first of the split, with their captions; None uses all images.

    Raises:
        InvalidArgumentError: if `runs` is empty, pairs < 1, or images < 1 or above the size of the split.
        VsembError: if a run and the dataset do not match, or the split is missing.

    Example:

        order, symmetric = Run.open("runs/order"), Run.open("runs/symmetric")
        comparison = compare_lengths([order, symmetric], Dataset.open("data/flickr8k"), images=1000)
        print(comparison.runs[0].to_json()["image_pairs"], comparison.runs[1].to_json()["image_pairs"])
    """
    if not runs:
        raise invalid_argument("runs", [], "at least one run")
    part = dataset.split(split)
    count = len(part) if images is None else images
    if not 1 <= count <= len(part):
        raise invalid_argument("images", images, f"an integer from 1 to {len(part)}, the images of {split!r}")
    rows = part.caption_rows[part.caption_rows < count]
    captions = list(part.captions[: len(rows)])
    # Words are split as by the tokenizer, and counted for whole captions even if the tokenizer truncates them.
    words = np.array([len(each) for each in words_of(captions)], np.int64)
    ids = part.ids[:count]
    chosen = length_pairs(words, ids[rows], pairs)
    analyses = []
    for run in runs:
        embedder = Embedder(run.model)
        embedded = embedder.images(run.images_of(dataset, part), count)
        texts = embedder.texts(*run.encode(captions_read(run, part)[: len(rows)]))
        analyses.append(analyse_lengths(embedded, texts, ids, ids[rows], chosen, run.model.similarity))
    return LengthComparison(part.name, part.keys[:count], captions, rows, words, chosen, analyses)
