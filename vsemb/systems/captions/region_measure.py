"""Captions of annotated regions, measured against texts by people (Karpathy and Fei-Fei 2015, section 4.3, table 3).

Each model receives the pixels of the annotated boxes. A captioner of whole images, the paper's "fullframe model",
embeds each box like an image. The ranking baseline takes the training snippet with the best score by the alignment.
Human agreement measures one text of a region against its other texts.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from keras import ops

from vsemb.console import progress
from vsemb.data.store import Split
from vsemb.errors import DataError
from vsemb.evaluation import Embedder
from vsemb.image.backbones import build_backbone
from vsemb.ops.tensorflow import tf
from vsemb.recipes.towers import kept_backbone
from vsemb.runs.run import Run
from vsemb.systems.captions.caption_measure import CaptionTable, MeasuredCaptions
from vsemb.systems.captions.caption_metrics import evaluate_captions
from vsemb.systems.captions.captioner import CaptionOptions
from vsemb.systems.captions.captioning import written_of
from vsemb.systems.captions.recipe import SNIPPETS
from vsemb.systems.captions.region_texts import RegionTexts
from vsemb.systems.captions.snippets import Snippets
from vsemb.systems.regions.extractor import RegionExtractor
from vsemb.systems.regions.image_tower import keeps_network, kept_regions
from vsemb.systems.regions.pointing import box_iou
from vsemb.systems.regions.region_store import RegionConfig

# Regions captioned at once, and snippets scored at once.
_BATCH, _SNIPPETS = 64, 4096


def measure_region_captions(
    runs: Sequence[Run],
    part: Split,
    annotations: RegionTexts,
    *,
    options: CaptionOptions | None = None,
    alignment: Run | None = None,
    limit: int | None = None,
    meteor: bool = True,
) -> CaptionTable:
    """Caption annotated regions by runs and baselines, and measure the captions.

    Args:
        runs: one or more runs that write captions of images or of regions. The ranking baseline reads the training
            snippets of the first, whose recipe must be `multimodal-rnn-regions`.
        part: the split of the images.
        annotations: the texts of the regions. Regions with one text are left out if others have several.
        options: options of the search.
        alignment: run of `dvsa` that ranks snippets; None for no ranking baseline.
        limit: number of regions, the first ones; None for all.
        meteor: see `vsemb.systems.captions.caption_metrics.evaluate_captions`.

    Returns:
        One row per run, then the baselines. Keys are image keys and boxes as percent of the image's sides.

    Raises:
        DataError: if a run has no image network, or no snippets.
        MissingExtraError: without the extra `captions`.
    """
    references, notes = annotations.references(), list(annotations.notes)
    chosen = np.arange(len(references))
    several = np.array([len(texts) > 1 for texts in references])
    if several.any():
        chosen = np.flatnonzero(several)
        notes.append(f"{np.sum(~several):,} of {len(several):,} annotations are the only text of their region.")
    chosen = chosen[:limit]
    rows, boxes = annotations.rows[chosen], annotations.boxes[chosen]
    wanted = [references[place] for place in chosen]
    measured = []

    def measure(name: str, captions: list[str], compared: list[list[str]], **of_run: Any) -> None:
        metrics = evaluate_captions(captions, compared, meteor=meteor)
        notes.extend(note for note in metrics.notes if note not in notes)
        measured.append(MeasuredCaptions(name, captions, metrics, **of_run))

    for run in runs:
        captioner = run.recipe.captioner(run, dataclasses.replace(options or CaptionOptions(), n_best=1))
        images = region_features(run, part, rows, boxes, run.recipe.region_inputs)
        best = []
        for start in range(0, len(images), _BATCH):
            written = written_of(captioner(tf.constant(images[start : start + _BATCH])))
            best += [captions[0] for captions in written]
        texts, log_probs = [text for text, _ in best], [log_prob for _, log_prob in best]
        measure(str(run.path), texts, wanted, recipe=run.recipe.name, log_probs=log_probs)
    if alignment is not None:
        folder = runs[0].path / SNIPPETS / "train"
        if not folder.exists():
            raise DataError(f"{runs[0].path} must be a run of multimodal-rnn-regions, with snippets; it has none.")
        snippets = list(dict.fromkeys(Snippets.load(folder).texts))
        places = best_snippets(alignment, region_features(alignment, part, rows, boxes), snippets)
        measure("best training snippet", [snippets[place] for place in places], wanted)
    if several.any():
        measure("a person", [texts[0] for texts in wanted], [texts[1:] for texts in wanted])
        notes.append("a person: one text of each region against its others, one reference fewer than the other rows.")
    percent = np.round(100 * boxes).astype(int).tolist()
    keys = [f"{part.keys[row]} {box}" for row, box in zip(rows, percent, strict=True)]
    return CaptionTable(part.name, keys, wanted, None, measured, notes)


def region_features(
    run: Run,
    part: Split,
    rows: np.ndarray,
    boxes: np.ndarray,
    inputs: Callable[[np.ndarray], np.ndarray] = lambda regions: regions,
) -> np.ndarray:
    """Compute the features of given boxes with the image network of a run.

    Args:
        run: a run on regions, or on features of whole images. The latter embeds the crop of each box like an image.
        part: the split of the images.
        rows: int64 (n,), row of each box's image, ascending.
        boxes: float32 (n, 4), `[x, y, w, h]` as fractions.
        inputs: function from the features of the regions of one image, the whole image first, (regions, dim), to the
            rows to return; default: the features.

    Returns:
        float32 (n, dim), or as wide as the result of `inputs`.

    Raises:
        DataError: if the run's image network is unknown.
    """
    kept = kept_backbone(run.path)
    if kept is None:
        raise DataError(
            f"{run.path} has no image network, so its regions cannot be computed. Train it on features of one."
        )
    config, weights = kept
    # Boxes are squashed to squares, in whatever way the network sees whole images.
    config = dataclasses.replace(config, resize="squash")
    settings = kept_regions(run.path) if keeps_network(run.path) else RegionConfig(pooling="crops")
    most = int(np.unique(rows, return_counts=True)[1].max())
    settings = dataclasses.replace(settings, source="detections", rank="confidence", overlap=1.0, count=most)
    extract = RegionExtractor(config, settings, build_backbone(config, weights))
    width = inputs(np.zeros((1, extract.dim), np.float32)).shape[-1]
    features = np.zeros((len(rows), width), np.float32)
    for row in progress(np.unique(rows), desc="regions", unit="image", leave=False):
        (places,) = np.nonzero(rows == row)
        proposals = np.zeros((1, most, 4), np.float32)
        proposals[0, : len(places)] = boxes[places]
        regions = extract(tf.constant([part.read_image(int(row))]), tf.constant(proposals))
        # A box that is nearly the whole image is dropped by the extractor; the best match is the first region.
        same = box_iou(boxes[places], regions.boxes.numpy()[0]).argmax(axis=1)
        features[places] = inputs(regions.features.numpy()[0])[same]
    return features


def best_snippets(alignment: Run, features: np.ndarray, snippets: Sequence[str]) -> np.ndarray:
    """Return the snippet with the best score for each region: (n,) int64.

    Args:
        alignment: a run of `dvsa`.
        features: float32 (n, dim) of the regions.
        snippets: the texts.
    """
    similarity = alignment.model.similarity
    regions = alignment.model.encode_images(features[:, None])  # (n, 1, dim)
    texts = Embedder(alignment.model).texts(*alignment.encode(snippets))
    scores = [
        ops.convert_to_numpy(similarity.scores(regions, ops.convert_to_tensor(texts[start : start + _SNIPPETS])))
        for start in range(0, len(texts), _SNIPPETS)
    ]
    return np.concatenate(scores, axis=1).argmax(axis=1)
