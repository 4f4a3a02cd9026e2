"""Fill the bank of a `HubCorrection` after every epoch, before the epoch is measured and stored."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np

from vsemb.data.sources import ImageSource
from vsemb.data.store import Split
from vsemb.data.tokens import encoded_captions
from vsemb.evaluation.embed import Embedder
from vsemb.text.tokenizers import Tokenizer
from vsemb.training.callbacks import averaged_weights


class HubBankValidation(keras.callbacks.Callback):
    """Fill the bank of a model's `HubCorrection` with training items, then call a validation.

    The stored weights of an epoch so have the bank that its metrics were measured with.

    Args:
        validation: the validation, such as `vsemb.training.RetrievalValidation`.
        train: the training split.
        images: images of the split, without random views.
        tokenizer: the model's tokenizer.
        seed: seed of the choice of items.

    Example:

        validation = RetrievalValidation(val, val_images, tokenizer)
        callbacks = [HubBankValidation(validation, train, train_images, tokenizer)]
        model.fit(batches.dataset(), epochs=5, callbacks=callbacks)
    """

    def __init__(
        self,
        validation: keras.callbacks.Callback,
        train: Split,
        images: ImageSource,
        tokenizer: Tokenizer,
        *,
        seed: int = 0,
    ) -> None:
        super().__init__()
        self.validation = validation
        self.shown = getattr(validation, "shown", None)
        self.train = train
        self.images = images
        self.seed = seed
        self._ids, self._offsets = encoded_captions(train, tokenizer)

    def set_model(self, model: keras.Model) -> None:
        """Take the model; called by Keras."""
        super().set_model(model)
        self.validation.set_model(model)

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Fill the bank and measure; called by Keras."""
        size, generator = self.model.hubs.size, np.random.default_rng(self.seed)
        rows, captions = (
            np.sort(generator.choice(count, size, replace=False)) for count in (len(self.train), len(self._offsets) - 1)
        )
        lengths = np.diff(self._offsets)[captions]
        ids = np.concatenate([self._ids[self._offsets[each] : self._offsets[each + 1]] for each in captions])
        embedder = Embedder(self.model)
        with averaged_weights(self.model):
            texts = embedder.texts(ids, np.cumsum([0, *lengths]))
            self.model.hubs.fill(embedder.images(self.images, rows), texts)
        self.validation.on_epoch_end(epoch, logs)
