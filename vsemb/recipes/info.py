"""The contents of `run.json`, as a typed record."""

from __future__ import annotations

from collections.abc import Mapping
from types import UnionType
from typing import Any, TypedDict, cast, get_origin, get_type_hints

from vsemb.errors import DataError


class RunInfo(TypedDict, total=False):
    """The record of a training, in `run.json` of its run directory.

    A run has the fields that its task needs (`vsemb.recipes.schema.Recipe.run_fields`); systems add fields of their own
    in a subclass. Metrics of the best epoch on validation are further fields, `best_NAME`.

    Attributes:
        dataset: fingerprint of the training data; empty for a preset.
        dataset_name: its name.
        data: its path; None for a preset.
        splits: names of its splits.
        train_images: number of training images.
        train_captions: number of training captions.
        classes: class names of the training images, sorted.
        training_texts: counts of known and unknown words in the training texts.
        vocabulary: fingerprint of the vocabulary.
        vocabulary_size: its number of tokens.
        features: fingerprint of the image features; None from pixels.
        feature_dim: their size; None from pixels.
        backbone: configuration of the network below the image tower.
        transparency: whether images of the training data were transparent.
        status: `running` or `finished`.
        versions: package -> version.
        files: path of a file that the run keeps -> SHA-256.
        preset: name of the preset that the run was made of.
        best_epoch: number of the best epoch, from 0.
        best_epochs: number of epochs, for training without validation.
        best_recall_sum: recall sum of the best epoch on validation.
        validation: all metrics of the best epoch on validation.
        kept_epochs: numbers of the epochs that were kept, the best first.
        seconds: time of the training.
        finished: time of its end, ISO 8601.
    """

    dataset: str
    dataset_name: str
    data: str | None
    splits: list[str]
    train_images: int
    train_captions: int
    classes: list[str]
    training_texts: dict[str, Any]
    vocabulary: str
    vocabulary_size: int
    features: str | None
    feature_dim: int | None
    backbone: dict[str, Any]
    transparency: Any
    status: str
    versions: dict[str, str]
    files: dict[str, str]
    preset: str
    best_epoch: int
    best_epochs: float
    best_recall_sum: float
    validation: dict[str, float]
    kept_epochs: list[int]
    seconds: float
    finished: str


def feature_dim(info: RunInfo) -> int:
    """Return the size of the image features of a run that reads features.

    Raises:
        DataError: if the record has none.
    """
    size = info["feature_dim"]
    if size is None:
        raise DataError("`feature_dim` of run.json must be the size of the image features; got null. Restore the file.")
    return size


def mistyped(info: Mapping[str, Any]) -> list[str]:
    """Return the fields of a record with values of another type than in `RunInfo`, sorted.

    Example:

    >>> mistyped({"dataset": 5, "data": None, "seconds": 1, "best_recall": "a field of a metric"})
    ['dataset']
    """
    wrong = []
    for name, hint in get_type_hints(RunInfo).items():
        kind: Any = hint if isinstance(hint, UnionType) else get_origin(hint) or hint
        kind = {Any: object, float: float | int}.get(kind, kind)
        if name in info and not isinstance(info[name], kind):
            wrong.append(name)
    return sorted(wrong)


def untyped(info: RunInfo) -> dict[str, Any]:
    """Return the record with the fields that systems, parts and metrics add."""
    return cast(dict[str, Any], info)
