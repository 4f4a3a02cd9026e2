"""Runs that nobody trained here: pretrained dual encoders of keras-hub, CLIP and SigLIP.

What follows a training takes them as any other run, since they are one: an image tower from pixels, a text
tower with its own tokenizer, cosine similarity, and the scale (and bias) that was learned with them.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import keras

from vsemb.errors import DataError, unknown_name
from vsemb.files import write_json
from vsemb.presets import (
    DUAL,
    PREFIX,
    ImagePreset,
    build_network,
    display_name,
    image_network,
    learned_scale,
    load_network,
    source_of,
    text_network,
)
from vsemb.recipes.schema import ImageConfig, LossConfig, Recipe, TextConfig, TrainingConfig
from vsemb.runs import build
from vsemb.runs.presets import without_downloads
from vsemb.runs.run import Run
from vsemb.runs.run_directory import enter_run
from vsemb.runs.stored_run import BEST, RECIPE, STATUS
from vsemb.text.preset_tokenizers import PresetText
from vsemb.training.selection import save_weights

WEIGHTS = ("preset", "random")
_PAPERS = {
    "CLIP": "Radford et al. 2021, arXiv:2103.00020",
    "SigLIP": "Zhai, Mustafa, Kolesnikov, Beyer 2023, arXiv:2303.15343",
}


def pretrained_run(preset: str, out: str | os.PathLike[str], *, weights: str = "preset", seed: int = 0) -> Run:
    """Makes a run of a pretrained dual encoder, without any training.

    Args:
        preset: a preset of CLIP or SigLIP in keras-hub, with or without `hub:`: its name, a handle, or a
            directory that `save_to_preset` wrote, see `vsemb.presets.directories`. What is no directory is
            downloaded.
        out: the run directory.
        weights: `"preset"`, or `"random"` for the architecture alone.
        seed: of random weights.

    Returns:
        The run. Where it is there already it is opened.

    Raises:
        DataError: if the preset cannot be got or has no two towers, or `out` holds something else.
        InvalidArgumentError: for other weights.

    Example:

        run = pretrained_run("clip_vit_base_patch16", "runs/clip")
        run.model.encode_texts(run.tokenizer(["a dog on a beach"]))
    """
    if weights not in WEIGHTS:
        raise unknown_name("weights", weights, WEIGHTS)
    out, name = Path(out), f"{PREFIX}{source_of(preset)}"
    images = ImagePreset.open(name)
    if images.network.get("class_name") not in DUAL:
        raise DataError(
            f"The preset {name!r} is a {images.network.get('class_name')} and no pair of towers; CLIP's and "
            f"SigLIP's are. As an image tower: vsemb features DATA --backbone {name}"
        )
    texts = PresetText.open(name)
    keras.utils.set_random_seed(seed)
    network = load_network(name) if weights == "preset" else build_network(images.network)
    recipe = pretrained_recipe(name, network, texts, weights, seed)
    vocabulary = texts.vocabulary
    info: dict[str, Any] = {
        "dataset": "",
        "dataset_name": "",
        "data": None,
        "features": None,
        "feature_dim": None,
        "preset": display_name(name),
    }
    there = (out / RECIPE).exists()
    info = enter_run(recipe, info, out, vocabulary)
    if there and info["status"] == "finished":
        print(f"{out} is finished already.", file=sys.stderr)
        return Run.open(out)
    model = build.build_model(without_downloads(Run.as_opened(recipe, out)), len(vocabulary), None)
    if weights == "preset":
        towers = ((model.image_encoder.backbone, image_network), (model.text_encoder, text_network))
        for holder, part in towers:
            inner = getattr(holder, "network", None) or next(
                layer for layer in holder.layers if isinstance(layer, keras.Model)
            )
            inner.set_weights(part(network).get_weights())
    save_weights(model, out / BEST)
    write_json(out / STATUS, {**info, "status": "finished"})
    return Run.open(out)


def pretrained_recipe(
    name: str, network: keras.Model, texts: PresetText, weights: str = "preset", seed: int = 0
) -> Recipe:
    """Returns the recipe that a pretrained dual encoder could have been trained with here.

    Args:
        name: of the preset, with `hub:`.
        network: its whole network.
        texts: how it reads texts.
        weights: `"preset"` or `"random"`.
        seed: of random weights.
    """
    factor, bias = learned_scale(network)
    own = weights if weights == "preset" else None
    return Recipe(
        name="pretrained",
        variant=texts.kind.lower(),
        paper=_PAPERS[texts.kind],
        embedding_dim=int(text_network(network).output_shape[-1]),
        similarity="cosine",
        text=TextConfig(tokenizer=name, encoder=name, weights=own, max_length=texts.most_pieces),
        image=ImageConfig(backbone=name, weights=own, projection=False),
        loss=LossConfig(name="infonce", temperature=1 / factor)
        if bias is None
        else LossConfig(name="sigmoid", temperature=1 / factor, bias=bias),
        training=TrainingConfig(seed=seed),
    )
