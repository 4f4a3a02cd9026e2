"""Zero-shot recognition on the validation split during `fit`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from vsemb.data.sources import ImageSource
from vsemb.data.store import Split, StoredDataset
from vsemb.errors import DataError
from vsemb.recipes.info import untyped
from vsemb.systems.zero_shot.class_names import USUAL_SPLITS
from vsemb.systems.zero_shot.metrics import ZeroShotMetrics, evaluate_zero_shot
from vsemb.text.tokenizers import Tokenizer
from vsemb.training.validation import SplitValidation, ValidationPart

if TYPE_CHECKING:
    from vsemb.recipes.info import RunInfo


class ZeroShotValidation(SplitValidation):
    """Measure recognition of unseen classes after every epoch and add it to the logs.

    Later callbacks see `val_top1` (mean of per-class accuracies), `val_average_precision` (AP@50), both in
    percent, and `val_zero_shot`, their mean. Put this callback before callbacks that read them.

    Args:
        split: the validation split; each image has a class.
        images: images of the split.
        tokenizer: the model's tokenizer.

    Raises:
        DataError: for an image without a class.

    Example:

        model.fit(batches.dataset(), epochs=5, callbacks=[ZeroShotValidation(split, images, tokenizer)])
    """

    def __init__(self, split: Split, images: ImageSource, tokenizer: Tokenizer) -> None:
        super().__init__(split, images, tokenizer)
        self._names, self._classes = split.class_ids()

    def measure(self) -> ZeroShotMetrics:
        """Measure the current model."""
        images, texts = self.embed()
        text_classes = self._classes[self.split.caption_rows]
        return evaluate_zero_shot(images, self._classes, texts, text_classes, self.model.similarity, names=self._names)

    def shown(self, logs: dict[str, Any]) -> str:
        metrics = f"top-1 {logs['val_top1']:.1f} %  AP@50 {logs['val_average_precision']:.1f} %"
        return f"val {metrics}  their mean {logs['val_zero_shot']:.1f}"

    def metrics(self) -> dict[str, float]:
        measured = self.measure()
        mean = (measured.top1 + measured.average_precision) / 2
        return {"val_top1": measured.top1, "val_average_precision": measured.average_precision, "val_zero_shot": mean}


@dataclass(frozen=True)
class ZeroShot(ValidationPart, kind="zero-shot"):
    """Mean of top-1 accuracy and AP@50 on unseen classes."""

    monitor: ClassVar[str] = "val_zero_shot"
    option: ClassVar[str] = "--protocol zero-shot"
    accepts: ClassVar[str | None] = "vector"

    def check_data(self, dataset: StoredDataset) -> None:
        owner: dict[str, str] = {}
        for name in dataset.splits:
            if name not in USUAL_SPLITS:
                continue
            for label in dataset.split(name).class_ids()[0]:
                if owner.setdefault(label, name) != name:
                    raise DataError(
                        f"The splits {owner[label]!r} and {name!r} of {dataset.path} must have disjoint classes for "
                        f"zero-shot recognition; they share the class {label!r}. Prepare the data with other splits."
                    )
        if len(dataset.split("val").class_ids()[0]) < 2:
            raise DataError(
                f"The split 'val' of {dataset.path} must have at least two classes to select the best epoch; got one. "
                "Prepare the data with more classes."
            )

    def build(self, split: Split, images: ImageSource, tokenizer: Tokenizer) -> ZeroShotValidation:
        return ZeroShotValidation(split, images, tokenizer)

    def describe(self, info: RunInfo) -> str:
        return f"mean of top-1 and AP@50 {untyped(info)['best_zero_shot']:.1f}"
