"""What a run writes with a captioner: captions of a dataset's rows, and of image bytes as they are served."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import tensorflow as tf

from vsemb.data.sources import ImageSource
from vsemb.data.store import Dataset, Split
from vsemb.errors import DataError
from vsemb.runs.images import has_features
from vsemb.runs.run import Run
from vsemb.systems.captions.captioner import Captioner, Captions
from vsemb.systems.captions.signature import ServedCaptioner

#: A caption and the natural logarithm of its probability.
Written: TypeAlias = tuple[str, float]


class CaptionWriter:
    """A run and its captioner, compiled once and asked often.

    Args:
        run: the run.
        captioner: from `vsemb.systems.captions.captioning.captioner_of`.

    Example:

        writer = CaptionWriter(run, captioner_of(run))
        text, log_prob = writer.of_bytes([Path("dog.jpg").read_bytes()])[0][0]
    """

    def __init__(self, run: Run, captioner: Captioner) -> None:
        self.run, self.captioner = run, captioner
        #: The run that says how images become what the captioner reads.
        self.images: Run = run.recipe.image_run(run)
        self._compiled: dict[tuple[Any, ...], Callable[[tf.Tensor], Captions]] = {}
        self._sources: dict[tuple[Path, str], ImageSource] = {}

    def of_rows(self, images: tf.Tensor) -> list[list[Written]]:
        """Writes captions of images as the run takes them from a dataset.

        Args:
            images: (n, ...) as `Run.images_of` gives them.

        Returns:
            For each image its captions, best first.

        Raises:
            DataError: if the model is broken.
        """
        key = (*images.shape[1:], images.dtype)
        if key not in self._compiled:
            signature = [tf.TensorSpec((None, *images.shape[1:]), images.dtype)]
            self._compiled[key] = tf.function(self.captioner, input_signature=signature)
        return written_of(self._compiled[key](images))

    def of_bytes(self, encoded: Sequence[bytes]) -> list[list[Written] | None]:
        """Writes captions of image bytes, with the function that is served.

        Args:
            encoded: JPEG or PNG.

        Returns:
            For each image its captions, best first; None for one that does not decode.

        Raises:
            DataError: if the run cannot look at new images, or its model is broken.
        """
        outputs = self._served.caption(tf.constant(list(encoded), tf.string))
        valid = outputs["valid"].numpy()
        captions = Captions(*(tf.boolean_mask(outputs[name], valid) for name in ("captions", "log_probs")))
        found = iter(written_of(captions))
        return [next(found) if right else None for right in valid]

    @cached_property
    def _served(self) -> ServedCaptioner:
        taken = self.images.image_input
        if taken is None:
            raise DataError(
                f"{self.run.path} was trained on precomputed features, so it cannot look at images; give the "
                "key of an image of a dataset that has the same features."
            )
        return ServedCaptioner(self.captioner, taken)

    def of_split_row(self, dataset: Dataset, split: Split, row: int) -> list[Written]:
        """Writes captions of an image of a dataset, from its cached features where the run reads those.

        Raises:
            DataError: if it does not decode, or run and dataset do not fit.
        """
        if not has_features(self.images, dataset):
            (found,) = self.of_bytes([split.read_image(row)])
            if found is None:
                raise DataError(f"The image {split.keys[row]!r} does not decode as JPEG or PNG.")
            return found
        place = (dataset.path, split.name)
        if place not in self._sources:
            self._sources[place] = self.images.images_of(dataset, split)
        source = self._sources[place]
        return self.of_rows(source.finish(tf.constant(source.gather(np.array([row]))), None))[0]


def written_of(captions: Captions) -> list[list[Written]]:
    """Returns texts with their log-probabilities, image by image; an empty text is none.

    Args:
        captions: what a captioner wrote about images that are some.

    Raises:
        DataError: if a log-probability is not finite, or an image has no caption: where all next words are
            as likely as NaN, a search finds none.
    """
    texts, log_probs = captions.texts.numpy(), captions.log_probs.numpy()
    if not np.isfinite(log_probs).all() or not np.all(texts[:, 0] != b""):
        raise DataError(
            "The probabilities of a caption's words hold NaN or infinity. The model is broken, or the "
            "image's features are."
        )
    return [
        [(text.decode(errors="replace"), float(each)) for text, each in zip(*row, strict=True) if text]
        for row in zip(texts, log_probs, strict=True)
    ]
