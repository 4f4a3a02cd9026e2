"""Search with multi-vector runs: all images or captions of a dataset, scored block by block.

An index holds one vector per item. A set has one vector per region of an image or per word of a sentence. So sets are
embedded again for each search, images from cached regions, with one block in memory at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from keras import ops

from vsemb.console import progress
from vsemb.data.batches import image_batches
from vsemb.data.store import StoredDataset
from vsemb.errors import DataError, InvalidArgumentError, invalid_argument
from vsemb.evaluation import Embedder
from vsemb.ops.geometry import l2_normalize
from vsemb.ops.tensorflow import tf
from vsemb.runs.indexing import DatasetItems, captions_read, index_source
from vsemb.runs.inputs import Query
from vsemb.runs.run import Run
from vsemb.runs.searching import SearchMethod
from vsemb.searching.index import Item, items_are_images
from vsemb.searching.scan import best_of

# Numbers per block of embeddings or of their input features, and captions per block.
_BLOCK, _TEXTS = 1 << 23, 512
_MOST_IMAGES = 256

Block = tuple[np.ndarray, np.ndarray]


class MultiVectorSearch(SearchMethod):
    """Search in a dataset's images or captions, each a set of vectors.

    It replaces `vsemb.searching.index.SearchIndex` for multi-vector runs, see `vsemb.runs.searching.SearchedItems`.

    Args:
        run: a multi-vector run.
        dataset: dataset with cached regions.
        split: name of the split, or `all`.
        kind: `image` or `text`.
        keep: maximum bytes of embeddings to keep in memory after the first search; they are kept only if all of them
            fit. 0 keeps none.

    Attributes:
        source: source of the items.
        items: the items.
        ids: int64 (items,), image id of each item.

    Raises:
        InvalidArgumentError: if the split does not exist.
        DataError: if run and dataset do not fit.

    Example:

        images = MultiVectorSearch(Run.open("runs/dvsa"), Dataset.open("data/flickr8k"), "val", "image")
        rows, scores = images.search(words[None], 10, query_kind="text")
    """

    combines: ClassVar[bool] = False

    def __init__(self, run: Run, dataset: StoredDataset, split: str, kind: str, *, keep: int = 0) -> None:
        self.run = run
        self.source = index_source(run, dataset, split, kind)
        items = DatasetItems(dataset, self.source.splits, kind)
        self.items: Sequence[Item] = items
        self.ids = items.ids
        self._parts = [dataset.split(name) for name in self.source.splits]
        self._similarity = run.model.similarity
        self._keep = keep
        self._kept: list[Block] | None = None
        self._embed: Callable[[], Iterator[Block]] = self._embed_captions
        if kind == "image":
            self._sources = [run.images_of(dataset, part) for part in self._parts]
            dim = self._sources[0].spec.shape[-1]
            spec = tf.TensorSpec((None, None, dim))
            self._encode = tf.function(run.model.encode_images, input_signature=[spec], autograph=False)
            self._embed = self._embed_images

    @classmethod
    def check(
        cls, run: Run, query: Query, index: Path, k: int, resort: int | None = None, candidates: int | None = None
    ) -> None:
        # Options that sets do not support: arithmetic, several texts or images, re-sorting and candidates.
        asked = {**vars(query), "resort": resort, "candidates": candidates}
        for name in _WHY:
            if asked[name] not in (None, ()):
                raise _refused(name, asked[name])

    @classmethod
    def open(
        cls, run: Run, dataset: StoredDataset, split: str, kind: str, *, keep: int = 0, **others: Any
    ) -> MultiVectorSearch:
        return cls(run, dataset, split, kind, keep=keep)

    def __len__(self) -> int:
        return len(self.items)

    @property
    def dim(self) -> int:
        """Size of the vectors."""
        return self.run.embedding_dim

    def embedding(self, row: int) -> np.ndarray:
        """Return the vectors of an image by its row: (regions, dim) float32."""
        starts = np.cumsum([0, *map(len, self._parts)])
        part = int(np.searchsorted(starts, row, "right")) - 1
        source = self._sources[part]
        features = source.finish(tf.constant(source.gather(np.array([row - starts[part]]))), None)
        return self._encode(features)[0].numpy()

    def resorted(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Raise an error, since sets of vectors cannot be re-sorted by their mean.

        Raises:
            InvalidArgumentError: always.
        """
        raise _refused("resort", len(rows))

    def close(self) -> None:
        """Release the embeddings in memory."""
        self._kept = None

    def search(
        self,
        queries: np.ndarray,
        k: int,
        *,
        exclude: Sequence[int] = (),
        query_kind: str | None = None,
        candidates: int | None = None,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Find the k best items for each query, after scoring all items.

        Among items of its own kind a query takes the role of the text, as in
        `vsemb.searching.index.SearchIndex.search`. The regions of an image query then take the role of words, and
        regions are compared by cosine. With inner products, a few images with regions of large norms would be nearest
        to nearly all queries.

        Args:
            queries: (queries, items, dim) float32; a row of zeros is padding.
            k: number of items.
            exclude: rows to leave out.
            query_kind: kind of the queries, `"image"` or `"text"`; None for the other kind than the items.
            candidates: must be None, since all items are scored.

        Returns:
            rows: (queries, k) int64, best first; equal scores keep the order of the rows. With fewer than k items,
                there are fewer columns.
            scores: (queries, k) float32.

        Raises:
            InvalidArgumentError: if k < 1, candidates are given, or queries have a wrong shape or are not finite.
            DataError: if a score is NaN, or run and dataset do not fit.
        """
        if k < 1:
            raise invalid_argument("k", k, "an integer >= 1")
        if candidates is not None:
            raise _refused("candidates", candidates)
        queries = np.asarray(queries, np.float32)
        if queries.ndim != 3 or queries.shape[2] != self.dim or not np.isfinite(queries).all():
            allowed = f"finite numbers of shape (queries, items, {self.dim})"
            raise invalid_argument("queries", queries.shape, allowed)
        scores = self._scores(queries, query_kind)
        kept = np.setdiff1d(np.arange(len(self)), np.asarray(exclude, np.int64))
        where, best = best_of(scores[:, kept], k)
        return kept[where], best

    def _scores(self, queries: np.ndarray, query_kind: str | None) -> np.ndarray:
        """Score all items for each query: (queries, n) float32."""
        as_image = not items_are_images(self.source.kind, query_kind)
        alike = l2_normalize if self.source.kind == query_kind == "image" else ops.convert_to_tensor
        sought = alike(_without_padding(queries))
        scores = np.empty((len(queries), len(self)), np.float32)
        unit = self.source.kind
        with progress(total=len(self), desc=f"{unit}s", unit=unit, leave=False) as bar:
            for rows, vectors in self._blocks():
                items = alike(vectors)
                if as_image:
                    block_scores: Any = self._similarity.scores(sought, items)
                else:
                    block_scores = ops.transpose(self._similarity.scores(items, sought))
                scores[:, rows] = ops.convert_to_numpy(block_scores)
                bar.update(len(rows))
        if np.isnan(scores).any():
            raise DataError("The scores hold NaN. The model or its features are broken; nothing was found.")
        return scores

    def _blocks(self) -> Iterator[Block]:
        """Yield rows of the items and their vectors, (rows, items of a set, dim)."""
        if self._kept is not None:
            yield from self._kept
            return
        kept: list[Block] = []
        room = self._keep
        for block in self._embed():
            room -= block[1].nbytes
            if room >= 0:
                kept.append(block)
            else:
                kept.clear()
            yield block
        if room >= 0 and kept:
            self._kept = kept

    def _embed_images(self) -> Iterator[Block]:
        start = 0
        for part, source in zip(self._parts, self._sources, strict=True):
            regions, features = source.spec.shape
            batch = min(_MOST_IMAGES, max(1, _BLOCK // (regions * max(features, self.dim))))
            for images in image_batches(source, np.arange(len(part)), batch):
                vectors = self._encode(images["image"]).numpy()
                yield np.arange(start, start + len(vectors)), vectors
                start += len(vectors)

    def _embed_captions(self) -> Iterator[Block]:
        embedder = Embedder(self.run.model)
        captions = [caption for part in self._parts for caption in captions_read(self.run, part)]
        # Captions of similar length are in one block, so blocks have little padding.
        order = np.argsort([len(caption.split()) for caption in captions], kind="stable")
        for start in range(0, len(order), _TEXTS):
            rows = order[start : start + _TEXTS]
            yield rows, embedder.texts(*self.run.encode([captions[row] for row in rows]))


def _without_padding(sets: np.ndarray) -> np.ndarray:
    """Return sets without the places where all are padding; at least one place is kept."""
    used = np.flatnonzero(np.any(sets != 0, axis=(0, 2)))
    return sets[:, used if len(used) else [0]]


_SENTENCE = "Say what is wanted in one sentence."
#: Unsupported options of a search with sets -> reason and fix.
_WHY = {
    "minus": f"Sets of vectors cannot be subtracted. {_SENTENCE}",
    "plus": f"Sets of vectors cannot be added. {_SENTENCE}",
    "compose": f"Only an order composes. {_SENTENCE}",
    "abstract": f"Only an order abstracts. {_SENTENCE}",
    "resort": "Sets of vectors have no mean, which re-sorting needs. Leave it out.",
    "candidates": "All items are scored exactly. Leave it out.",
}


def _refused(name: str, value: object) -> InvalidArgumentError:
    allowed = "omitted for a run that embeds images and sentences as sets of vectors"
    return invalid_argument(name, value, allowed, _WHY[name])
