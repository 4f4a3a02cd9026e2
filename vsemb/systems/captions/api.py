"""Acts of captions: captions of images and of their regions."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from vsemb.acts import act
from vsemb.console import say
from vsemb.parts import Count, Finite, Positive, Probability, Seed

if TYPE_CHECKING:
    from vsemb.data.store import StoredDataset
    from vsemb.runs.run import Run
    from vsemb.systems.captions.captioning import CaptionedImages
    from vsemb.systems.captions.region_captions import RegionCaptions


@act
def caption(
    run: Run | str | os.PathLike[str],
    images: Sequence[str | os.PathLike[str]],
    *,
    data: StoredDataset | str | os.PathLike[str] | None = None,
    n_best: Count | None = None,
    beam: Count | None = None,
    length_penalty: Finite | None = None,
    max_words: Count | None = None,
    candidates: Count | None = None,
    sample: str | None = None,
    temperature: Positive = 1.0,
    seed: Seed = 0,
) -> CaptionedImages:
    """Write captions of images, best first, with the logarithm of their probability.

    The best caption is the most probable one; a run of `sc-nlm` ranks by its own score.

    The run is of multimodal-rnn or multimodal-rnn-regions, which write word by word, or of sc-nlm, which writes many
    candidates and returns the best.

    Args:
        run: a run, or its directory.
        images: image files, or keys of images in the dataset.
        data: dataset of image keys; default: the training dataset.
        n_best: captions per image; default: 5, at most the beam.
        beam: beam width; default: the recipe's.
        length_penalty: divide log-probabilities by length to this power; default: the recipe's.
        max_words: maximum words per caption; default: the recipe's.
        candidates: candidate captions of sc-nlm; default: the recipe's.
        sample: greedy, random, top-k=5 or top-p=0.9, in place of beam search.
        temperature: sampling temperature.
        seed: random seed of the sampling.

    Returns:
        A result per image. Images that cannot be read have an error.

    Raises:
        InvalidArgumentError: for an option that the run does not support.
        DataError: if the run writes no captions, or its dataset is missing.

    Example:

        images = caption("runs/captions", ["dog.jpg"], n_best=1)
        text, log_prob = images[0].captions[0]
    """
    from vsemb.runs.images import open_keys
    from vsemb.systems.captions.captioner import CaptionOptions
    from vsemb.systems.captions.captioning import caption_images, open_captioning_run

    opened = open_captioning_run(run)
    names = [os.fspath(image) for image in images]
    options = CaptionOptions(beam, n_best, length_penalty, max_words, sample, temperature, seed, candidates)
    return caption_images(opened, names, open_keys(opened, data, names), options)


@act
def caption_regions(
    run: Run | str | os.PathLike[str],
    image: str | os.PathLike[str],
    *,
    data: StoredDataset | str | os.PathLike[str] | None = None,
    most: Count = 5,
    beam: Count | None = None,
    parts: bool = False,
    overlap: Probability = 0.5,
    boxes: str | os.PathLike[str] | None = None,
    out: str | os.PathLike[str] | None = None,
) -> RegionCaptions:
    """Caption each region of one image.

    The run is of multimodal-rnn-regions. Of regions with overlapping boxes or equal captions, the one with the highest
    log-probability per word is kept. The drawn image has the boxes, and their captions beside it.

    Args:
        run: a run, or its directory.
        image: an image file, or the key of an image in the dataset.
        data: dataset of image keys; default: the training dataset.
        most: captions to show.
        beam: beam width; default: the recipe's.
        parts: exclude the whole image.
        overlap: maximum overlap (IoU) of regions.
        boxes: detector results for this image, in COCO format (pixels).
        out: draw the image with boxes: a .png or .jpg file.

    Raises:
        InvalidArgumentError: if boxes are given to a run that proposes its own.
        DataError: if the run does not caption regions, or the image or the boxes cannot be read.

    Example:

        regions = caption_regions("runs/snippets", "dog.jpg", most=3, out="regions.png")
        regions.captions[0].text
    """
    from vsemb.drawing.pictures import check_picture_path, with_drawing
    from vsemb.runs.images import open_keys
    from vsemb.systems.captions import region_captions
    from vsemb.systems.captions.captioning import open_captioning_run

    name = os.fspath(image)
    if out is not None:
        check_picture_path(out, [name])
    opened = open_captioning_run(run)
    regions = region_captions.caption_regions(
        opened,
        name,
        open_keys(opened, data, [name]),
        most=most,
        beam=beam,
        parts=parts,
        overlap=overlap,
        boxes=boxes,
        report=say,
    )
    return with_drawing(regions, regions.drawn, out)
