"""Training batches of snippets: the features of a region, and the words that describe it."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np
import tensorflow as tf

from vsemb.data.batches import bucketed, pad_ids
from vsemb.errors import DataError, invalid_argument
from vsemb.systems.captions.snippets import Snippets
from vsemb.systems.regions.region_store import RegionStore
from vsemb.text.tokenizers import Tokenizer

_IMAGES = 256


def check_same_regions(cut: str, read: str) -> None:
    """Refuses snippets of other regions than those that are read.

    Args:
        cut: fingerprint of the regions that captions were cut by.
        read: fingerprint of those that the features come from.

    Raises:
        DataError: if they are not the same.
    """
    if cut != read:
        raise DataError(
            f"The snippets are of the regions {cut}, not of {read}, so their regions have other numbers. "
            f"Name those that the alignment was trained on: --set image.features={cut}"
        )


class SnippetImages:
    """Features of the regions that snippets describe, from their cache; in memory where they fit.

    Args:
        snippets: the snippets.
        store: the regions of their dataset.
        memory: bytes that the features may take; above, each batch reads its rows from disk.

    Raises:
        DataError: if the snippets are of other regions.
    """

    def __init__(self, snippets: Snippets, store: RegionStore, *, memory: int = 4 << 30) -> None:
        check_same_regions(snippets.store, store.fingerprint)
        self._store, self._ids, self._regions = store, snippets.image_ids, snippets.regions
        self._features: np.ndarray | None = None
        # A region that several snippets describe is held once.
        pairs, places = np.unique(np.stack([snippets.image_ids, snippets.regions]), axis=1, return_inverse=True)
        if pairs.shape[1] * store.dim * 2 <= memory:
            self._features, self._places = self._read(*pairs), places.reshape(-1)

    def _read(self, ids: np.ndarray, regions: np.ndarray) -> np.ndarray:
        # In float16, as they are stored: half of what they take, and nothing is lost.
        features = np.zeros((len(ids), self._store.dim), np.float16)
        for start in range(0, len(ids), _IMAGES):
            part = slice(start, start + _IMAGES)
            images, places = np.unique(ids[part], return_inverse=True)
            features[part] = self._store.rows(images)[places.reshape(-1), regions[part]]
        return features

    def gather(self, snippets: np.ndarray) -> np.ndarray:
        """Returns the features of the regions of some snippets: (n,) numbers to (n, dim) float32."""
        if self._features is None:
            return self._read(self._ids[snippets], self._regions[snippets]).astype(np.float32)
        return self._features[self._places[snippets]].astype(np.float32)


class SnippetBatches:
    """Batches of snippets for `MultimodalRNN.fit`, bucketed by length.

    Everything random in an epoch follows from (seed, epoch), so that training can go on in the middle of one
    exactly where it stopped.

    Args:
        snippets: the snippets, see `vsemb.systems.captions.cut_snippets.find_snippets`.
        store: the regions of their dataset.
        tokenizer: turns snippets into ids, once.
        batch_size: snippets a batch; what is left over in an epoch is dropped, each time another part.
        seed: of the order.
        memory: see `SnippetImages`.

    Raises:
        InvalidArgumentError: for a batch size below 1.
        DataError: if there are fewer snippets than a batch, or they are of other regions.

    Example:

        batches = SnippetBatches(snippets, run.regions_of(dataset), tokenizer, batch_size=100)
        model.fit(batches.dataset(), epochs=10)
    """

    def __init__(
        self,
        snippets: Snippets,
        store: RegionStore,
        tokenizer: Tokenizer,
        batch_size: int = 100,
        seed: int = 0,
        *,
        memory: int = 4 << 30,
    ) -> None:
        if batch_size < 1:
            raise invalid_argument("batch_size", batch_size, "an integer >= 1")
        self.batch_size, self.seed = batch_size, seed
        self.steps_per_epoch = len(snippets) // batch_size
        if self.steps_per_epoch == 0:
            raise DataError(
                f"There are {len(snippets)} snippets, fewer than batch_size={batch_size}. Lower the batch size."
            )
        self._dim = store.dim
        self._images = SnippetImages(snippets, store, memory=memory)
        self._ids, self._offsets = tokenizer.encode(snippets.texts)
        self._lengths = np.diff(self._offsets)

    def plan(self, epoch: int) -> np.ndarray:
        """Returns the numbers of the snippets of an epoch's batches, (steps, batch_size) int64."""
        generator = np.random.default_rng([self.seed, epoch])
        return bucketed(generator.permutation(len(self._lengths)), generator, self.batch_size, self._lengths)

    def dataset(self, epoch: int = 0, step: int = 0) -> tf.data.Dataset:
        """Returns a dataset that gives the next epoch each time it is iterated.

        A batch is {"image": (batch_size, dim) float32, "text": (batch_size, steps) int32}.

        Args:
            epoch: the number of the first epoch.
            step: batches of that epoch to leave out, see `vsemb.data.batches.PairBatches.dataset`.
        """
        epochs, size = itertools.count(epoch), self.batch_size

        def one_epoch() -> Iterator[dict[str, np.ndarray]]:
            for snippets in self.plan(next(epochs))[step:]:
                text = pad_ids(self._ids, self._offsets, snippets)
                yield {"image": self._images.gather(snippets), "text": text}

        signature = {
            "image": tf.TensorSpec((size, self._dim), tf.float32),
            "text": tf.TensorSpec((size, None), tf.int32),
        }
        dataset = tf.data.Dataset.from_generator(one_epoch, output_signature=signature)
        return dataset.apply(tf.data.experimental.assert_cardinality(self.steps_per_epoch - step)).prefetch(2)
