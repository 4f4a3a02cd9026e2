"""From a run to what is served: raw strings and image bytes in, embeddings out."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable
from pathlib import Path

from vsemb.data.feature_files import CLASSIFIER_NAME
from vsemb.export import ClassPrompts, Corpus, ImageInput, ServedModel, export_savedmodel
from vsemb.export.alignment import check_sets
from vsemb.export.card import ModelFacts
from vsemb.image.backbones import BackboneConfig, build_backbone
from vsemb.image.regions import RegionExtractor, build_classifier
from vsemb.recipes import build
from vsemb.recipes.entailment_run import EntailmentRun
from vsemb.recipes.parsing import stored_parser_name
from vsemb.recipes.run import Run
from vsemb.recipes.stored_run import StoredRun
from vsemb.search import SearchIndex, StaleIndexError

_OTHER_NAMES = "A text that is none of the names of classes is valid too, and embedded as an unknown class."


def image_input(run: Run | EntailmentRun) -> ImageInput | None:
    """Returns how a run's model takes image bytes; None where it cannot.

    A run on precomputed features knows no backbone that would make features of a new image, and one for
    entailment takes sentences alone. A run of regions finds them as its cache did, as many as it reads.
    """
    if isinstance(run, EntailmentRun):
        return None
    config = build.backbone_config(run.recipe)
    if config is not None:
        return ImageInput(config)
    if run.feature_backbone is None:
        return None
    described, weights = run.feature_backbone
    config = BackboneConfig.from_json(described)
    backbone = build_backbone(config, weights)
    if not run.sets:
        return ImageInput(config, backbone)
    regions = run.feature_regions
    if regions is None:
        return None
    most = run.recipe.image.most_regions
    if most is not None and most <= regions.count:
        # The best come first, so that fewer are the first of more.
        regions = dataclasses.replace(regions, count=most - 1)
    kept = weights.parent / CLASSIFIER_NAME
    classifier = build_classifier(config, kept) if regions.by_classifier else None
    return ImageInput(config, backbone, RegionExtractor(config, regions, backbone, classifier))


def run_encoders(run: Run | EntailmentRun, images: bool = True) -> ServedModel:
    """Returns the functions that a run is searched and served with.

    Args:
        run: the run.
        images: whether images will be embedded; without, no backbone is built.

    Example:

        encoders = run_encoders(Run.open("runs/vsepp"))
        encoders.encode_text(tf.constant(["a dog on a beach"]))["embedding"]
    """
    parse = run.read if isinstance(run, Run) and run.reads_trees else None
    return ServedModel(run.model, run.tokenizer, image_input(run) if images else None, parse=parse)


def check_run(index: SearchIndex, run: StoredRun) -> None:
    """Refuses a run whose embeddings are not comparable with those of an index.

    Raises:
        StaleIndexError: if the index was made with other weights.
    """
    if index.source.run != run.fingerprint:
        raise StaleIndexError(
            f"The index was made with another run than {run.path} ({index.source.run[:12]}, not "
            f"{run.fingerprint[:12]}), so they are not comparable. Name the run that made it, or make the "
            f"index again with: vsemb index {run.path}"
        )


def export_run(
    run: Run | EntailmentRun,
    out: str | os.PathLike[str],
    version: int | None = None,
    *,
    classes: ClassPrompts | None = None,
    index: SearchIndex | None = None,
    report: Callable[[str], None] = print,
) -> Path:
    """Writes a run as a version of a SavedModel; see `vsemb.export.export_savedmodel`.

    Neither the dataset nor the network is needed.

    Args:
        run: the run.
        out: the model's directory.
        version: its number; None for the next.
        classes: what the signature `classify` tells apart, from `vsemb.recipes.classify.embed_classes`.
        index: what `search_text` and `search_image` search, of this very run; None leaves them out.
        report: called with a line for each thing that clients of the export before will notice.

    Raises:
        StaleIndexError: if the index was made with other weights.
        VsembError: as `export_savedmodel`.

    Example:

        export_run(Run.open("runs/vsepp"), "savedmodels/flickr8k")
    """
    if index is not None:
        if isinstance(run, Run) and run.sets:
            check_sets(run.tokenizer, corpus=f"{len(index)} items")
        check_run(index, run)
    return export_savedmodel(
        run.model,
        run.tokenizer,
        out,
        image_input=image_input(run),
        classes=classes,
        corpus=None if index is None else Corpus.of(index),
        version=version,
        fingerprint=run.fingerprint,
        card=model_facts(run),
        report=report,
    )


def model_facts(run: Run | EntailmentRun) -> ModelFacts:
    """Returns what a run knows of itself, for the model card of its exports."""
    info, recipe = run.info, run.recipe
    best = {name.removeprefix("best_"): info[name] for name in info if name.startswith("best_")}
    epoch = best.pop("epoch", None)
    chosen = "" if epoch is None else f"the best {', '.join(best)} on the split val, after epoch {epoch + 1}"
    names = recipe.text.tokenizer == "classes"
    return ModelFacts(
        recipe=recipe.name,
        variant=recipe.variant,
        paper=recipe.paper,
        dataset=info.get("dataset_name", ""),
        dataset_fingerprint=info["dataset"],
        texts=f"names of {len(run.vocabulary.words)} classes" if names else "",
        images=_image_facts(run),
        features_fingerprint=info.get("features") or "",
        selection=chosen,
        metrics=best,
        parser=stored_parser_name(run.path),
        notes=(_OTHER_NAMES,) if names else (),
    )


def _image_facts(run: Run | EntailmentRun) -> str:
    if isinstance(run, EntailmentRun):
        return "none, pairs of sentences alone"
    trained = build.backbone_config(run.recipe)
    if trained is not None:
        return f"pixels, {trained.size} a side, read by {trained.name}, which was trained too"
    if run.feature_backbone is None:
        return "precomputed features of an unknown network"
    kept = BackboneConfig.from_json(run.feature_backbone[0])
    said = f"features of {kept.name}, images of {kept.size} pixels a side"
    regions = run.feature_regions
    if regions is None:
        return said
    count = min(1 + regions.count, run.recipe.image.most_regions or 1 + regions.count)
    if count == 1:
        return f"{said}, of the whole image alone"
    return f"{said}, of {count} regions at most ({regions.source}), the whole image among them"
