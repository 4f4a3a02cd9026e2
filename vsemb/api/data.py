"""Acts that make datasets and add to them: `vsemb.prepare`, `vsemb.scenes` and `vsemb.annotate`."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from vsemb.acts import Fields, Option, act, chosen
from vsemb.data.annotating import Annotation
from vsemb.data.readers import Reader
from vsemb.data.scenes import Scenes
from vsemb.parts import Count, Seed, between
from vsemb.results import Result

if TYPE_CHECKING:
    from vsemb.api.dataset import Dataset
    from vsemb.data.store import StoredDataset


@act
def prepare(
    source: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    out: Annotated[str | os.PathLike[str], Option(by_place=False)],
    *,
    format: Reader | str | None = None,
    name: str | None = None,
    on_bad_image: Literal["skip", "fail"] = "skip",
    val_to_train: bool = False,
    max_side: Count | None = None,
    images_per_shard: Count = 1024,
    overwrite: bool = False,
    **options: Annotated[Any, Fields("reader", by="format")],
) -> Dataset:
    """Convert images and captions in a common format into a dataset: TFRecord shards and a manifest.

    Several sources become one dataset: their splits are joined, and keys of images begin with the name of the source.
    To evaluate on one of them, prepare it alone too, and evaluate with it as data.

    Every image is decoded as a check, and stored upright as JPEG or PNG. Unreadable images, images without captions
    and malformed rows are skipped and listed. After an interruption, the same call resumes.

    Args:
        source: files, folders or other names to read.
        out: directory of the dataset to write.
        format: a reader or its name; default: inferred from each source.
        name: name of the dataset; default: the last part of `out`.
        on_bad_image: skip unreadable images, images without captions and malformed rows, or fail.
        val_to_train: put the images of val into train, for a final training with validation=last.
        max_side: shrink images whose longer side exceeds this number of pixels.
        images_per_shard: images per shard.
        overwrite: replace the dataset at `out` and its features.
        **options: fields of the reader.

    Returns:
        The dataset. If `out` already contains it, nothing is written.

    Raises:
        InvalidArgumentError: for an unknown format or option, or one that the format does not have.
        DataError: for a broken source, or if `out` contains something else.

    Example:

        data = vsemb.prepare("flickr8k/dataset_flickr8k.json", "data/flickr8k")
        data = vsemb.prepare("photos.csv", "data/photos", images="photos", split="train")
    """
    from vsemb.api.dataset import Dataset
    from vsemb.data.writing.prepare import open_source, write_source

    opened = open_source(source, format, on_bad_image, options, val_to_train=val_to_train)
    written = write_source(
        opened,
        out,
        name=name or Path(os.path.abspath(out)).name,
        on_bad_image=on_bad_image,
        max_side=max_side,
        images_per_shard=images_per_shard,
        overwrite=overwrite,
    )
    return Dataset.open(written.path)


@act
def scenes(
    out: Annotated[str | os.PathLike[str], Option(by_place=False)],
    *,
    kind: Scenes | str = "shapes",
    seed: Seed = 0,
    size: Annotated[int, between(16, 1024)] = 64,
    overwrite: bool = False,
    **options: Annotated[Any, Fields("scenes", by="kind")],
) -> Dataset:
    """Generate a dataset of synthetic scenes: images, several captions per image, and ground truth.

    Nothing is downloaded. The same seed always gives the same images.

    Args:
        out: directory of the dataset to write.
        kind: scenes or their kind.
        seed: random seed.
        size: width and height of images in pixels.
        overwrite: replace the dataset at `out`.
        **options: fields of the scenes, such as the numbers of images.

    Returns:
        The dataset. If `out` already contains it, nothing is written.

    Raises:
        InvalidArgumentError: for an unknown kind or option.
        DataError: if `out` contains something else.

    Example:

        data = vsemb.scenes("data/scenes", train=400, val=50, test=50)
        birds = vsemb.scenes("data/flowers", kind="flowers")
    """
    from vsemb.api.dataset import Dataset
    from vsemb.data.writing.prepare import write_source

    generated = chosen(Scenes, "kind", kind, options)
    written = write_source(generated.generate(seed, size), out, name=generated.title, overwrite=overwrite)
    return Dataset.open(written.path)


@act
def annotate(
    data: StoredDataset | str | os.PathLike[str],
    annotation: Annotation | str,
    *,
    overwrite: bool = False,
    **options: Annotated[Any, Fields("annotation", by="annotation")],
) -> Result:
    """Annotate the captions of a dataset, for example with dependency trees.

    Annotations are computed, or read from files. In a file, the id of a caption is its id in the dataset's source, or
    KEY#NUMBER: the key of the image and the number of the caption, from 0. Words and tokens are matched by letters and
    digits. Nothing is downloaded.

    Args:
        data: a prepared dataset.
        annotation: an annotation or its name.
        overwrite: replace an existing annotation.
        **options: fields of the annotation.

    Raises:
        InvalidArgumentError: for an unknown annotation or option.
        DataError: if the annotation exists and differs, or does not fit the captions.

    Example:

        vsemb.annotate("data/flickr8k", "dependencies", model="en_core_web_sm")
    """
    from vsemb.data.store import StoredDataset

    return chosen(Annotation, "annotation", annotation, options).annotate(StoredDataset.of(data), overwrite)
