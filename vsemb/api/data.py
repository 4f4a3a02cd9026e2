"""Acts on datasets: `vsemb.annotate`."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Annotated, Any

from vsemb.acts import Fields, act, chosen
from vsemb.data.annotating import Annotation
from vsemb.results import Result

if TYPE_CHECKING:
    from vsemb.data.store import Dataset


@act
def annotate(
    data: Dataset | str | os.PathLike[str],
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
    from vsemb.data.store import Dataset

    by = chosen(Annotation, "annotation", annotation, options)
    return by.annotate(data if isinstance(data, Dataset) else Dataset.open(data), overwrite)
