"""From a run to what is served: raw strings and image bytes in, embeddings or captions out."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import keras

from vsemb.data.features.files import CLASSIFIER_NAME
from vsemb.errors import DataError
from vsemb.export import (
    ClassPrompts,
    Corpus,
    ImageInput,
    ServedModel,
    export_captioner,
    export_savedmodel,
)
from vsemb.export.card import ModelFacts
from vsemb.image.backbones import BackboneConfig, build_backbone
from vsemb.presets import display_name
from vsemb.runs import build
from vsemb.runs.image_run import ImageRun
from vsemb.runs.run import Run
from vsemb.runs.stored_run import StoredRun
from vsemb.search import SearchIndex, StaleIndexError

if TYPE_CHECKING:
    from vsemb.systems.captions.captioner import Captioner
    from vsemb.systems.captions.captioning import CaptioningRun, CaptionOptions
    from vsemb.systems.entailment.run import EntailmentRun
    from vsemb.systems.regions.image import RegionConfig, RegionExtractor

_OTHER_NAMES = "A text that is none of the names of classes is valid too, and embedded as an unknown class."


def image_input(run: StoredRun) -> ImageInput | None:
    """Returns how a run's model takes image bytes; None where it cannot.

    A run on precomputed features knows no backbone that would make features of a new image, and one for
    entailment takes sentences alone. A run of regions finds them as its cache did, as many as it reads; one
    that writes captions takes the first, which is the whole image. A language model takes images as its
    encoder does.
    """
    looks = _images_run(run)
    if looks is None:
        return None
    run = looks
    config = build.backbone_config(run.recipe)
    if config is not None:
        return ImageInput(config)
    if run.feature_backbone is None:
        return None
    described, weights = run.feature_backbone
    config = BackboneConfig.from_json(described)
    backbone = build_backbone(config, weights)
    if not run.multi_vector:
        return ImageInput(config, backbone)
    regions = run.feature_regions
    if regions is None:
        return None
    if run.task == "captions":
        whole = dataclasses.replace(regions, source="grid", rank="objectness", count=0)
        return ImageInput(config, backbone, _extractor(config, whole, backbone, weights))
    most = run.recipe.image.most_regions
    if most is not None and most <= regions.count:
        # The best come first, so that fewer are the first of more.
        regions = dataclasses.replace(regions, count=most - 1)
    return ImageInput(config, backbone, _extractor(config, regions, backbone, weights))


def region_extractor(run: ImageRun) -> RegionExtractor:
    """Returns what finds and describes the regions of an image as the run's cache did, all of them.

    Raises:
        DataError: if the run's regions are of a network that is not known.

    Example:

        found = region_extractor(run)(tf.constant([open("dog.jpg", "rb").read()]))
        print(found.boxes.shape, found.features.shape)
    """
    regions = run.feature_regions
    if run.feature_backbone is None or regions is None:
        raise DataError(
            f"{run.path} was trained on regions whose network is not known, so it cannot look at images. "
            "Train it on regions made by `vsemb regions`."
        )
    described, weights = run.feature_backbone
    config = BackboneConfig.from_json(described)
    return _extractor(config, regions, build_backbone(config, weights), weights)


def _extractor(config: BackboneConfig, regions: RegionConfig, backbone: keras.Model, weights: Path) -> RegionExtractor:
    """Returns an extractor with the classifier that is kept beside the backbone's weights, if it asks one."""
    from vsemb.systems.regions.image import RegionExtractor, build_classifier

    kept = weights.parent / CLASSIFIER_NAME
    classifier = build_classifier(config, kept) if regions.by_classifier else None
    return RegionExtractor(config, regions, backbone, classifier)


def image_rows(run: StoredRun) -> ImageInput:
    """Returns how a run that writes captions takes image bytes.

    Raises:
        DataError: if it cannot.
    """
    found = image_input(run)
    if found is None:
        raise DataError(
            f"{run.path} was trained on precomputed features and holds no image network, so it cannot look "
            "at images. Make features with a backbone, and train on them: vsemb features"
        )
    return found


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
        run: the run; `run.computed_in("mixed_bfloat16")` for a model in bfloat16.
        out: the model's directory.
        version: its number; None for the next.
        classes: what the signature `classify` tells apart, from
            `vsemb.systems.zero_shot.classify.embed_classes`.
        index: what `search_text` and `search_image` search, of this very run; None leaves them out.
        report: called with a line for each thing that clients of the export before will notice.

    Raises:
        StaleIndexError: if the index was made with other weights.
        VsembError: as `export_savedmodel`.

    Example:

        export_run(Run.open("runs/vsepp"), "savedmodels/flickr8k")
    """
    from vsemb.systems.regions.signature import check_sets

    if index is not None:
        if isinstance(run, Run) and run.multi_vector:
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


def export_captions(
    run: CaptioningRun,
    out: str | os.PathLike[str],
    version: int | None = None,
    *,
    options: CaptionOptions | None = None,
    report: Callable[[str], None] = print,
) -> Path:
    """Writes a run that writes captions as a version of a SavedModel; see `vsemb.export.export_captioner`.

    Neither the dataset nor the network is needed.

    Args:
        run: from `vsemb.systems.captions.captioning.open_captioning_run`.
        out: the model's directory.
        version: its number; None for the next.
        options: how captions are looked for, fixed from here on; what is None comes from the recipe.
        report: called with a line for each thing that clients of the export before will notice.

    Raises:
        DataError: if the run cannot look at images.
        VsembError: as `export_captioner` and `vsemb.systems.captions.captioning.captioner_of`.

    Example:

        export_captions(open_captioning_run("runs/captions"), "savedmodels/captions")
    """
    from vsemb.systems.captions.captioning import CaptionOptions, captioner_of

    options = CaptionOptions() if options is None else options
    # The image network first: what a captioner needs takes long to read.
    taken = image_rows(run)
    captioner = captioner_of(run, options)
    return export_captioner(
        captioner,
        out,
        image_input=taken,
        facts=caption_facts(run, captioner, options),
        version=version,
        fingerprint=run.fingerprint,
        card=model_facts(run),
        report=report,
    )


def caption_facts(run: CaptioningRun, captioner: Captioner, options: CaptionOptions) -> dict[str, int | float]:
    """Returns how a run writes captions, for a contract; see `ServedCaptioner`.

    Args:
        run: the run.
        captioner: what was made of it.
        options: what was asked for; the recipe's where that is None.
    """
    from vsemb.systems.language.candidates import StructureContentCaptioner

    words = {"words": len(run.vocabulary.words)}
    if isinstance(captioner, StructureContentCaptioner):
        found = {"candidates": captioner.candidates, "beam": captioner.beam, "max_words": captioner.longest}
        return {**words, **found}
    given = {name: getattr(options, name) for name in ("beam", "length_penalty", "max_words")}
    recipe = run.recipe.caption
    read = {name: getattr(recipe, name) if value is None else value for name, value in given.items()}
    return {**words, **read}


def model_facts(run: StoredRun) -> ModelFacts:
    """Returns what a run knows of itself, for the model card of its exports."""
    from vsemb.systems.trees.parse_texts import stored_parser_name

    info, recipe = run.info, run.recipe
    best = {name.removeprefix("best_"): info[name] for name in info if name.startswith("best_")}
    epoch = best.pop("epoch", None)
    chosen = "" if epoch is None else f"the best {', '.join(best)} on the split val, after epoch {epoch + 1}"
    names = recipe.text.tokenizer == "classes"
    looks = _images_run(run)
    notes = [_OTHER_NAMES] if names else []
    if recipe.training.dtype != "float32":
        notes.append(
            f"Texts, and what stands behind an image network, are computed in {recipe.training.dtype}: "
            "embeddings have two digits."
        )
    if "preset" in info:
        own = "with its weights" if recipe.text.weights else "with random weights"
        notes.append(f"It was not trained here: it is the preset {info['preset']} of keras-hub, {own}.")
    if run.task == "language":
        notes.append("Its language model read sentences alone; images are looked at by their encoder.")
    elif run.task == "captions" and recipe.image.regions:
        notes.append("It was trained on phrases of regions; a served caption is of the whole image.")
    return ModelFacts(
        recipe=recipe.name,
        variant=recipe.variant,
        paper=recipe.paper,
        dataset=info.get("dataset_name", ""),
        dataset_fingerprint=info["dataset"],
        texts=f"names of {len(run.vocabulary.words)} classes" if names else "",
        images=_image_facts(looks),
        features_fingerprint="" if looks is None else looks.info.get("features") or "",
        selection=chosen,
        metrics=best,
        parser=stored_parser_name(run.path),
        notes=notes,
    )


def _images_run(run: StoredRun) -> ImageRun | None:
    """Returns the run that looks at images: itself, the encoder that a language model writes for, or none."""
    looks = getattr(run, "encoder", None) if run.task == "language" else run
    return looks if isinstance(looks, ImageRun) else None


def _image_facts(run: ImageRun | None) -> str:
    if run is None:
        return "none, sentences alone"
    trained = build.backbone_config(run.recipe)
    if trained is not None:
        return f"pixels, {trained.size} a side, read by {display_name(trained.name)}, which was trained too"
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
