"""Acts on hyperbolic embeddings."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Annotated

from vsemb.acts import act
from vsemb.parts import at_least

if TYPE_CHECKING:
    from vsemb.data.store import StoredDataset
    from vsemb.runs.run import Run
    from vsemb.systems.hyperbolic.traversal import Traversal


@act
def traverse(
    run: Run | str | os.PathLike[str],
    image: str | os.PathLike[str],
    *,
    data: StoredDataset | str | os.PathLike[str] | None = None,
    split: str = "train",
    texts: str | os.PathLike[str] | None = None,
    steps: Annotated[int, at_least(2)] = 50,
    entailing: bool = False,
    out: str | os.PathLike[str] | None = None,
) -> Traversal:
    """Find texts on the way from an image to the root, with a run in hyperbolic space.

    The run has the similarity lorentz, such as one of the recipe meru. At evenly spaced points on the way, the nearest
    text is found, or the root. In the paper, only texts whose entailment cones contain the point are compared
    (`entailing`). The cone of the root contains everything, so a point without such a text finds the root.

    Args:
        run: a run, or its directory.
        image: an image file, or the key of an image in the dataset.
        data: dataset of captions and image keys; default: the training dataset.
        split: split whose captions are searched.
        texts: search the lines of this file instead of captions.
        steps: number of points on the way.
        entailing: leave out texts whose cones do not contain the point.
        out: draw the traversal: a .png or .jpg file.

    Raises:
        InvalidArgumentError: for a run with another similarity, or an unknown split.
        DataError: if the image or the texts cannot be read.

    Example:

        traversal = traverse("runs/meru", "dog.jpg", out="traversal.png")
        [found.text for found in traversal.texts]
    """
    from vsemb.drawing.pictures import check_picture_path, with_drawing
    from vsemb.runs.images import embed_image, open_keys
    from vsemb.runs.run import Run
    from vsemb.systems.hyperbolic.traversal import cone_radius, picture_of, text_pool, traverse_image

    name = os.fspath(image)
    if out is not None:
        check_picture_path(out, [name])
    opened = Run.open(run, "retrieval")
    radius = cone_radius(opened)
    dataset = opened.open_data(data) if texts is None else open_keys(opened, data, [name])
    picture = picture_of(dataset, name)
    embedding, _ = embed_image(opened, dataset, name)
    pool = text_pool(opened, dataset, split, texts)
    traversal = traverse_image(name, embedding, picture, pool, steps, entailing=entailing, min_radius=radius)
    return with_drawing(traversal, traversal.drawn, out)
