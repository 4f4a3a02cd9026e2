"""The act of the system: `import_preset`."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Annotated, Literal

from vsemb.acts import Option, act
from vsemb.parts import Seed

if TYPE_CHECKING:
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
    transformers. The run directory is self-contained. Commands also take `hub:PRESET` in place of a run, which they
    make in the cache.

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
