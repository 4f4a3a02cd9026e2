"""Callbacks that evaluate a validation split during `fit`."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import keras
import numpy as np

from vsemb.data.sources import ImageSource
from vsemb.data.store import Split, StoredDataset
from vsemb.data.tokens import encoded_captions
from vsemb.errors import invalid_argument
from vsemb.evaluation.embed import Embedder
from vsemb.evaluation.retrieval import RetrievalMetrics, evaluate_retrieval
from vsemb.parts import Part
from vsemb.text.tokenizers import Tokenizer
from vsemb.training.callbacks import averaged_weights

if TYPE_CHECKING:
    from vsemb.recipes.info import RunInfo


class Validation(keras.callbacks.Callback):
    """Base of the callbacks that evaluate a model after every epoch and add the metrics to the logs.

    Put it before callbacks that read these metrics, such as `keras.callbacks.TensorBoard`, `ModelCheckpoint` and
    `EarlyStopping`.

    Class attributes:
        measured_by: function of a model that returns a compiled embedder or scorer.
    """

    measured_by: ClassVar[Any]

    _measures: Any = None

    @contextlib.contextmanager
    def measures(self) -> Iterator[Any]:
        """Return the result of `measured_by`, in a context in which the model has the moving average of its weights."""
        if self._measures is None or self._measures.model is not self.model:
            self._measures = self.measured_by(self.model)
        with averaged_weights(self.model):
            yield self._measures

    def metrics(self) -> dict[str, float]:
        """Evaluate the model; return the metrics by their names in the logs."""
        raise NotImplementedError

    def shown(self, logs: dict[str, Any]) -> str:
        """Return the metrics of an epoch as text."""
        raise NotImplementedError

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        metrics = self.metrics()
        if logs is not None:
            logs.update(metrics)


class SplitValidation(Validation):
    """Base of the callbacks that evaluate a dual encoder on a split after every epoch.

    Args:
        split: the validation split.
        images: images of the split.
        tokenizer: the model's tokenizer.
    """

    measured_by = Embedder

    def __init__(self, split: Split, images: ImageSource, tokenizer: Tokenizer) -> None:
        super().__init__()
        if not hasattr(split, "captions"):
            fix = "For arrays: RetrievalValidation.from_arrays(images, texts)."
            raise invalid_argument("split", type(split).__name__, "a split of a vsemb.Dataset", fix)
        self.split = split
        self.images = images
        self._ids, self._offsets = encoded_captions(split, tokenizer)

    def embed(self) -> tuple[np.ndarray, np.ndarray]:
        """Embed the images and texts of the split with the current weights."""
        with self.measures() as embedder:
            return embedder.images(self.images, len(self.split)), embedder.texts(self._ids, self._offsets)


class RetrievalValidation(SplitValidation):
    """Evaluate retrieval on a split after every epoch, and add the metrics to the logs.

    Later callbacks see `val_recall_sum`, `val_i2t_R@1`, `val_t2i_median_rank` and so on, for example
    `keras.callbacks.ModelCheckpoint("best.keras", monitor="val_recall_sum", mode="max", save_best_only=True)`.

    Args:
        split: the validation split.
        images: images of the split.
        tokenizer: the model's tokenizer.

    Example:

        model.fit(batches.dataset(), epochs=5, callbacks=[RetrievalValidation(split, images, tokenizer)])
    """

    @classmethod
    def from_arrays(
        cls, images: Any, texts: Any, text_image_ids: Any = None, *, batch_size: int = 256
    ) -> RetrievalValidation:
        """Return a callback that evaluates retrieval on arrays of model inputs after every epoch.

        Args:
            images: (n, ...) features, pixels or bytes of distinct images.
            texts: (m, steps) token ids, or (m,) strings.
            text_image_ids: (m,) int, row of the image of each text; None if text i describes image i.
            batch_size: rows per batch.

        Returns:
            A callback for `fit`.

        Example:

            validation = RetrievalValidation.from_arrays(images, texts, np.repeat(np.arange(100), 5))
            model.fit(dataset, epochs=5, callbacks=[validation])
        """
        return _ArrayValidation(images, texts, text_image_ids, batch_size)

    def measure(self) -> RetrievalMetrics:
        """Evaluate the model with the current weights."""
        ids = self.split.ids
        return evaluate_retrieval(*self.embed(), ids, ids[self.split.caption_rows], self.model.similarity)

    def shown(self, logs: dict[str, Any]) -> str:
        recalls = f"image→text {logs['val_i2t_R@1']:.1f} text→image {logs['val_t2i_R@1']:.1f}"
        return f"val R@1 {recalls}  recall sum {logs['val_recall_sum']:.1f}"

    def metrics(self) -> dict[str, float]:
        return {f"val_{name}": value for name, value in self.measure().values.items()}


class _ArrayValidation(RetrievalValidation):
    """`RetrievalValidation` on arrays."""

    def __init__(self, images: Any, texts: Any, text_image_ids: Any, batch_size: int) -> None:
        Validation.__init__(self)
        self._inputs = {"image": np.asarray(images), "text": np.asarray(texts)}
        self._text_image_ids = text_image_ids
        self._batch_size = batch_size

    def measure(self) -> RetrievalMetrics:
        with averaged_weights(self.model):
            images, texts = self._embed("image"), self._embed("text")
        ids = self._text_image_ids
        return evaluate_retrieval(images, texts, text_image_ids=ids, similarity=self.model.similarity)

    def _embed(self, side: str) -> np.ndarray:
        return self.model.predict({side: self._inputs[side]}, self._batch_size, verbose=0)[side]


@dataclass(frozen=True)
class ValidationPart(Part, family="validation"):
    """Validation of a retrieval recipe after every epoch; base of the family `validation`.

    Class attributes:
        measures: whether the split `val` is measured; if false, a dataset may lack it.
        monitor: name in the logs that selects the best epoch; higher is better.
        option: option of `vsemb evaluate` with the same metrics.
        accepts: the type of embeddings, see `vsemb.similarities.Similarity.accepts`; None for all.
    """

    measures: ClassVar[bool] = True
    accepts: ClassVar[str | None] = None
    monitor: ClassVar[str]
    option: ClassVar[str] = ""

    def check_data(self, dataset: StoredDataset) -> None:
        """Check that a dataset has the data for this validation.

        Raises:
            DataError: if the dataset lacks it.
        """

    def build(self, split: Split, images: ImageSource, tokenizer: Tokenizer) -> keras.callbacks.Callback:
        """Return the callback that adds `monitor` to an epoch's logs."""
        raise NotImplementedError

    def describe(self, info: RunInfo) -> str:
        """Return the best value as a phrase, from `run.json`."""
        raise NotImplementedError


@dataclass(frozen=True)
class RecallSum(ValidationPart, kind="recall"):
    """Sum of recall at 1, 5 and 10 in both directions."""

    monitor: ClassVar[str] = "val_recall_sum"

    def build(self, split: Split, images: ImageSource, tokenizer: Tokenizer) -> RetrievalValidation:
        return RetrievalValidation(split, images, tokenizer)

    def describe(self, info: RunInfo) -> str:
        return f"recall sum {info['best_recall_sum']:.1f}"


class _EpochCount(keras.callbacks.Callback):
    """Add the number of epochs to the logs, so that the last epoch is the best."""

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        if logs is not None:
            logs["val_epochs"] = float(epoch + 1)


@dataclass(frozen=True)
class LastEpoch(ValidationPart, kind="last"):
    """No measurement: the last epoch is kept.

    For a final training on all data, with the number of epochs that an earlier training selected on validation.
    """

    measures: ClassVar[bool] = False
    monitor: ClassVar[str] = "val_epochs"

    def build(self, split: Split, images: ImageSource, tokenizer: Tokenizer) -> keras.callbacks.Callback:
        return _EpochCount()

    def describe(self, info: RunInfo) -> str:
        return f"not measured: the last of {info['best_epochs']:.0f} epochs"
