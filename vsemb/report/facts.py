"""What the head of a page tells of a run and of the split that it shows."""

from __future__ import annotations

from collections.abc import Sequence

import keras

from vsemb.data.store import Split
from vsemb.presets import display_name
from vsemb.runs.image_run import ImageRun
from vsemb.runs.stored_run import StoredRun


def run_facts(
    run: StoredRun, model: keras.Model, images: ImageRun, part: Split, own: Sequence[tuple[str, str]]
) -> list[tuple[str, str]]:
    """Returns names and values.

    Args:
        run: the run.
        model: its model.
        images: the run that says how images come to it, which may be the same.
        part: the split that is shown.
        own: facts of its task.

    Example:

        run_facts(run, run.model, run, dataset.split("val"), [("Text encoder", "gru over words")])
    """
    recipe, info = run.recipe, run.info
    dataset = "" if part.dataset is None else f"{part.dataset.name}, "
    epoch = f"{info['best_epoch'] + 1} of {recipe.training.epochs}" if "best_epoch" in info else "unknown"
    facts = [
        ("Recipe", f"{recipe.name} ({recipe.variant})"),
        ("Paper", recipe.paper),
        ("Trained on", info.get("dataset_name", "unknown")),
        ("Measured on", f"{dataset}{part.name}: {len(part):,} images, {len(part.captions):,} captions"),
        *own,
        ("Images", display_name(images.recipe.image.backbone or "") or _features(images)),
        ("Parameters", f"{model.count_params():,}"),
        ("Selected epoch", epoch),
        ("Trained with", f"vsemb {info.get('versions', {}).get('vsemb', 'unknown')}"),
        ("Fingerprint", run.fingerprint),
    ]
    return [(name, value) for name, value in facts if value]


def _features(run: ImageRun) -> str:
    found, regions = run.feature_backbone, run.feature_regions
    if found is None:
        return "precomputed features"
    features = f"features of {found[0].get('name', 'a backbone')}"
    if regions is None:
        return features
    count = min(1 + regions.count, run.recipe.image.most_regions or 1 + regions.count)
    return f"{features}, of up to {count} regions ({regions.source})"
