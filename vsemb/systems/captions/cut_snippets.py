"""Cutting captions into snippets of regions (Karpathy and Fei-Fei 2015, section 3.1.4).

Each caption is aligned with the regions of its image, neighbouring words preferring the same region
(equations 10 to 12); words in a row on one region are a snippet, and snippets with their regions are what the
multimodal RNN of regions is trained on. All of them are kept, as in the paper: those of one word, of words
that are in every caption, and those of the whole image, which is the first of its regions. Words behind the
longest text that the alignment reads are left out, and so is an 's at the beginning of a snippet, which
belongs to the word before it.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from tqdm import tqdm

from vsemb.data.batches import pad_ids
from vsemb.data.store import Dataset, Split
from vsemb.errors import DataError, invalid_argument
from vsemb.files import sha256_bytes
from vsemb.runs.run import Run
from vsemb.systems.captions.snippets import Snippets
from vsemb.systems.regions.alignment import phrases
from vsemb.systems.regions.image_tower import regions_of, require_regions
from vsemb.systems.regions.pointing import score_spread
from vsemb.systems.regions.region_store import RegionStore
from vsemb.systems.regions.signature import chain_in_graph
from vsemb.systems.regions.similarities import MultiVectorSimilarity, item_mask
from vsemb.text.tokenizers import Words

_VERSION = 1
# Captions whose images are embedded together, and captions of one length that are aligned together.
_BLOCK, _BATCH = 2048, 256
# The split whose scores an affinity is chosen by, and how many of its captions are scored for that.
_CHOOSING, _CHOOSERS = "val", 2048


def find_snippets(alignment: Run, dataset: Dataset, part: Split, affinity: float | None = None) -> Snippets:
    """Cuts the captions of a split into snippets, with a progress bar.

    Args:
        alignment: a run of `dvsa` that read the dataset's regions.
        dataset: the dataset.
        part: the split.
        affinity: what two neighbouring words on one region are worth, the paper's beta; None chooses it.

    Returns:
        The snippets, in the order of the captions.

    Raises:
        InvalidArgumentError: for an affinity that is no number >= 0, or a run that reads no words.
        DataError: if the run has no regions, the dataset has none or others, or a score is not finite.

    Example:

        dataset = Dataset.open("data/flickr8k")
        snippets = find_snippets(Run.open("runs/dvsa"), dataset, dataset.split("train"))
        print(snippets.texts[0], snippets.image_rows[0], snippets.regions[0])
    """
    if affinity is not None and not 0 <= affinity < math.inf:
        raise invalid_argument("affinity", affinity, "a number >= 0, or None to choose one")
    fingerprint = snippets_fingerprint(alignment, dataset, part, affinity)
    aligner = _Aligner(alignment, dataset)
    if affinity is None:
        affinity = _choose_affinity(aligner, dataset)
    rows, regions, texts = [], [], []
    with tqdm(total=len(part.captions), desc="snippets", unit="caption", disable=None) as bar:
        for captions, words, path in aligner.paths(part, affinity):
            for caption, of_caption, chosen in zip(captions.tolist(), words, path, strict=True):
                for region, start, length in phrases(chosen):
                    text = _joined(of_caption[start : start + length])
                    if text:
                        rows.append(part.caption_rows[caption])
                        regions.append(region)
                        texts.append(text)
            bar.update(len(captions))
    image_rows = np.array(rows, np.int64)
    found = Snippets(
        image_rows,
        part.ids[image_rows],
        np.array(regions, np.int64),
        texts,
        affinity,
        aligner.store.fingerprint,
        fingerprint,
    )
    print(
        f"snippets     {len(found):,} of {found.mean_words:.1f} words, "
        f"{100 * found.whole_images:.0f} % of whole images; affinity {found.affinity:g}",
        file=sys.stderr,
    )
    return found


def stored_snippets(
    path: Path, alignment: Run, dataset: Dataset, part: Split, affinity: float | None = None
) -> Snippets:
    """Reads snippets that were stored before, or finds them where there are none; stores nothing.

    Args:
        path: the folder that `Snippets.save` wrote; what was cut with something else does not count.
        alignment, dataset, part, affinity: see `find_snippets`.

    Raises:
        VsembError: as `find_snippets`; `DataError` for a folder that is damaged.
    """
    if path.exists():
        found = Snippets.load(path)
        if found.fingerprint == snippets_fingerprint(alignment, dataset, part, affinity):
            return found
    return find_snippets(alignment, dataset, part, affinity)


def snippets_fingerprint(alignment: Run, dataset: Dataset, split: Split, affinity: float | None) -> str:
    """Returns hex that changes with all that decides a split's snippets."""
    captions = json.dumps([split.captions, split.caption_rows.tolist()])
    parts = [_VERSION, alignment.fingerprint, dataset.fingerprint, split.name, affinity]
    return sha256_bytes(json.dumps([*parts, sha256_bytes(captions.encode())]).encode())


def _choose_affinity(aligner: _Aligner, dataset: Dataset) -> float:
    """Chooses an affinity by the scores of words and regions on the validation split, or the first one without.

    It is how far the scores of a word's regions lie apart, their standard deviation: a word joins a neighbour
    rather than go to a region that is no better than others by more than chance. Nothing has to be known of
    the right regions. On synthetic scenes, where they are known, more words point right with it than each by
    itself, though some nouns are carried along: see `vsemb evaluate --pointing`, which tries multiples of it.
    """
    known = dataset.manifest["splits"].get(_CHOOSING, {}).get("images")
    spread = aligner.spread(dataset.split(_CHOOSING if known else dataset.splits[0]))
    # Two digits, so that it can be typed.
    return float(f"{spread:.2g}")


# Rows of captions among those of a block; scores (b, T, M); which words there are (b, T), and which regions (b, M).
_Batch = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]


class _Aligner:
    """Aligns captions in bulk, in graph.

    Args:
        alignment: the run.
        dataset: the dataset.
    """

    def __init__(self, alignment: Run, dataset: Dataset) -> None:
        require_regions(alignment)
        tokenizer = alignment.recipe.text.tokenizer
        if not isinstance(tokenizer, Words):
            raise invalid_argument("alignment", tokenizer.kind, "a run that reads words: text.tokenizer='words'")
        self.run = alignment
        self.store: RegionStore = regions_of(alignment, dataset)
        similarity = alignment.model.similarity
        assert isinstance(similarity, MultiVectorSimilarity)  # As `require_regions` has seen to it.
        self._similarity = similarity
        self._embed = tf.function(
            alignment.model.encode_images, [tf.TensorSpec((None, None, self.store.dim), tf.float32)]
        )
        inputs = [
            tf.TensorSpec((None, None, alignment.recipe.embedding_dim), tf.float32),
            tf.TensorSpec((None,), tf.int64),
            tf.TensorSpec((None, None), tf.int32),
            tf.TensorSpec((None,), tf.int64),
        ]
        self._score = tf.function(self._scores, inputs, autograph=False)

    def _scores(self, regions: Any, places: Any, ids: Any, lengths: Any) -> tuple[Any, Any, Any]:
        """Returns (b, T, M) scores, and which words and regions there are: (b, T) and (b, M)."""
        # By their number: a word whose vector is zero is still a word, as the whole image is a region.
        words = tf.range(tf.shape(ids)[1], dtype=tf.int64)[None] < lengths[:, None]
        real = item_mask(regions) | (tf.range(tf.shape(regions)[1]) == 0)[None]
        texts = self.run.model.encode_texts(ids)
        scores = self._similarity.word_region_scores(tf.gather(regions, places), texts)
        return scores, words, tf.gather(real, places)

    def paths(self, part: Split, affinity: float) -> Iterator[tuple[np.ndarray, list[list[str]], list[list[int]]]]:
        """Yields the numbers of captions, a block at a time, their words, and the region of each word."""
        finite = tf.constant(min(affinity, float(np.finfo(np.float32).max)))
        for captions, batches in self._scored(part, np.arange(len(part.captions))):
            found: list[list[int]] = [[] for _ in captions]
            for rows, scores, words, real in batches:
                _refuse_nan(bool(np.isfinite(scores[words[:, :, None] & real[:, None]]).all()))
                path = chain_in_graph(tf.constant(scores), tf.constant(words), tf.constant(real), finite)
                for row, chosen in zip(rows.tolist(), path.numpy().tolist(), strict=True):
                    found[row] = chosen
            pieces = self.run.tokenizer.pieces(tf.constant([part.captions[each] for each in captions]))
            yield captions, [[word.decode() for word in of_caption] for of_caption in pieces.to_list()], found

    def spread(self, part: Split) -> float:
        """Returns how far the scores of a word's regions lie apart: their standard deviation."""
        count = len(part.captions)
        captions = np.unique(np.linspace(0, count - 1, min(count, _CHOOSERS)).astype(np.int64))
        spread = score_spread(batch[1:] for _, batches in self._scored(part, captions) for batch in batches)
        _refuse_nan(math.isfinite(spread))
        return spread

    def _scored(self, part: Split, captions: np.ndarray) -> Iterator[tuple[np.ndarray, list[_Batch]]]:
        """Yields some captions, and their scores in batches of nearly one length."""
        most = self.run.recipe.image.max_regions
        for start in range(0, len(captions), _BLOCK):
            block = captions[start : start + _BLOCK]
            images, places = np.unique(part.caption_rows[block], return_inverse=True)
            regions = self._embed(tf.constant(self.store.rows(part.ids[images], most)))
            ids, offsets = self.run.tokenizer.encode([part.captions[each] for each in block])
            lengths, batches = np.diff(offsets), []
            order = np.argsort(lengths, kind="stable")
            for rows in (order[at : at + _BATCH] for at in range(0, len(order), _BATCH)):
                given = (regions, places.reshape(-1)[rows], pad_ids(ids, offsets, rows), lengths[rows])
                scores, words, real = (each.numpy() for each in self._score(*map(tf.constant, given)))
                batches.append((rows, scores, words, real))
            yield block, batches


def _refuse_nan(fine: bool) -> None:
    if not fine:
        raise DataError(
            "The scores of words and regions hold NaN or infinity. The alignment or its features are broken; "
            "no snippet was cut."
        )


def _joined(words: Sequence[str]) -> str:
    """Returns words as a text that splits into them again: 's follows its word without a gap."""
    while words and words[0].startswith("'"):
        words = words[1:]
    return "".join(word if word.startswith("'") else f" {word}" for word in words).strip()
