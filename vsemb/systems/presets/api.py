"""The acts of the system: `import_preset` and `interpolate`."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Annotated, Literal

from vsemb.acts import Option, act
from vsemb.parts import Probability, Seed

if TYPE_CHECKING:
    from vsemb.runs.run import Run
    from vsemb.systems.presets.pretrained import PretrainedRun


@act
def import_preset(
    preset: str | os.PathLike[str],
    out: Annotated[str | os.PathLike[str], Option(by_place=False)],
    *,
    weights: Literal["preset", "random"] = "preset",
    seed: Seed = 0,
) -> PretrainedRun:
    """Make a run of a pretrained dual encoder, CLIP, MetaCLIP 2 or SigLIP, without training.

    The run supports all commands of trained runs: evaluate, export, index, search, serve, classify. The preset is a
    name of keras-hub, a handle of Kaggle, or a repository of the Hugging Face Hub (`hf://USER/NAME`). Each is
    downloaded once. For use without a network, it is a directory with a preset of keras-hub or a checkpoint of
    transformers or open_clip. The run directory is self-contained. Commands also take `hub:PRESET` in place of a run,
    which they make in the cache.

    Args:
        preset: preset of CLIP, MetaCLIP 2 or SigLIP: name, handle or directory.
        out: run directory to write.
        weights: published weights, or random ones for the architecture only.
        seed: seed of random weights.

    Returns:
        The run; an existing one is opened.

    Raises:
        DataError: if the preset cannot be loaded or has one tower, or `out` contains another run or other files.

    Example:

        run = import_preset("clip_vit_base_patch16", "runs/clip")
        vsemb.evaluate(run, "data/flickr8k", "test")
    """
    from vsemb.systems.presets.pretrained import pretrained_run

    published = weights if weights == "preset" else None
    return pretrained_run(os.fspath(preset), out, weights=published, seed=seed)


@act
def interpolate(
    start: str | os.PathLike[str],
    run: str | os.PathLike[str],
    out: Annotated[str | os.PathLike[str], Option(by_place=False)],
    *,
    share: Probability = 0.5,
) -> Run:
    """Mix the weights of a run with its initial weights, without training (WiSE-FT, arXiv:2109.01903).

    An adapted model is better on images like its training images, and worse on others. Weights between both keep
    most of both. Evaluate several shares on validation.

    Args:
        start: the model that the run was adapted from: a run, or the name of a preset, `hub:NAME`.
        run: the adapted run; the new run is a copy of it with other weights.
        out: run directory to write.
        share: share of the weights of `run`; 0 gives `start` itself.

    Returns:
        The new run.

    Raises:
        DataError: if a run cannot be opened, or `out` exists.
        InvalidArgumentError: if both have other shapes or vocabularies, or the share is outside 0 to 1.

    Example:

        run = interpolate("hub:clip_vit_base_patch32", "runs/adapted", "runs/mixed", share=0.5)
    """
    from pathlib import Path

    from vsemb.systems.presets.interpolation import interpolated_run

    return interpolated_run(start, run, Path(out), share)
