"""A dataset and its embeddings as a dataset of the Hugging Face library `datasets`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from vsemb.data.store import Split, StoredDataset
from vsemb.errors import needs_extra
from vsemb.files import sha256_bytes

if TYPE_CHECKING:
    from vsemb.api.model import Model


def huggingface_splits(dataset: StoredDataset, model: Model | None, batch_size: int) -> Any:
    """Return the splits of a dataset, see `vsemb.Dataset.to_huggingface`."""
    with needs_extra("datasets", "datasets"):
        import datasets
    splits = datasets.DatasetDict()
    for name in dataset.splits:
        split = dataset.split(name)
        columns = _columns(datasets, split)
        content: list[Any] = [dataset.fingerprint, name]
        if model is not None:
            # Both towers name the model: others may share one of them.
            first = next(_rows(_Source(split, model, 1, "")))
            vector = datasets.Value("float32")
            for _ in first["image_embedding"].shape:
                vector = datasets.Sequence(vector)
            columns |= {"image_embedding": vector, "caption_embeddings": datasets.Sequence(vector)}
            content += [first[name].tolist() for name in ("image_embedding", "caption_embeddings")]
        splits[name] = datasets.Dataset.from_generator(
            _rows,
            features=datasets.Features(columns),
            gen_kwargs={"source": _Source(split, model, batch_size, sha256_bytes(json.dumps(content).encode()))},
            split=datasets.NamedSplit(name),
        )
    return splits


@dataclass(frozen=True)
class _Source:
    """What rows are made of.

    The library names its cache by a pickle of it, and a model has none: its content stands for it.
    """

    split: Split
    model: Model | None
    batch_size: int
    content: str

    def __reduce__(self) -> tuple[Any, ...]:
        return str, (self.content,)


def _columns(datasets: Any, split: Split) -> dict[str, Any]:
    text = datasets.Value("string")
    columns = {"key": text, "captions": datasets.Sequence(text)}
    if split.has_images:
        columns["image"] = datasets.Image()
    if split.has_classes:
        columns["class"] = text
    return columns


def _rows(source: _Source) -> Iterator[dict[str, Any]]:
    split, model, batch_size = source.split, source.model, source.batch_size
    for start in range(0, len(split), batch_size):
        places = np.arange(start, min(start + batch_size, len(split)))
        rows: list[dict[str, Any]] = [
            {"key": split.keys[place], "captions": split.captions_of(place)} for place in places.tolist()
        ]
        images = split.read_images(places) if split.has_images or model is not None else []
        for row, image in zip(rows, images, strict=False):
            row["image"] = {"bytes": image, "path": None}
        if split.has_classes:
            for row, place in zip(rows, places.tolist(), strict=True):
                row["class"] = split.class_names[place]
        if model is not None:
            counts = np.cumsum([len(row["captions"]) for row in rows])
            texts = [text for row in rows for text in row["captions"]]
            embedded = model.encode_texts(texts, on_bad="nan", progress=False)
            vectors = model.encode_images(images, progress=False)
            for row, vector, own in zip(rows, vectors, np.split(embedded, counts[:-1]), strict=True):
                row |= {"image_embedding": vector, "caption_embeddings": own}
        yield from rows
