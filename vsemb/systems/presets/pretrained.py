"""Pretrained dual encoders, CLIP, MetaCLIP 2 and SigLIP, as runs.

Such a run supports all commands of trained runs. It has an image tower on pixels, a text tower with its tokenizer,
cosine similarity, and the learned logit scale (and bias).
"""

from __future__ import annotations

import hashlib
import os
import re
from dataclasses import dataclass
from operator import methodcaller
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import keras

from vsemb.console import say
from vsemb.encoders.image import NoProjection
from vsemb.errors import DataError
from vsemb.files import cache_directory, read_json, write_json
from vsemb.losses.contrastive import Contrastive, Sigmoid
from vsemb.losses.in_batch import LossPart
from vsemb.parts import rebuilt
from vsemb.printing import facts
from vsemb.recipes.retrieval import Retrieval
from vsemb.recipes.schema import Training
from vsemb.recipes.towers import Pixels, Text
from vsemb.runs.run import BEST, RECIPE, STATUS, Run, enter_run
from vsemb.runs.sharing import HANDLE, pulled
from vsemb.systems.presets.files import (
    DUAL,
    PREFIX,
    build_network,
    display_name,
    learned_scale,
    load_network,
    source_of,
    text_network,
)
from vsemb.systems.presets.network import ImagePreset, image_network
from vsemb.systems.presets.text_encoder import PresetEncoder
from vsemb.systems.presets.tokenizer import PresetText, PresetTokens
from vsemb.weights import save_weights

if TYPE_CHECKING:
    from vsemb.recipes.info import RunInfo


@dataclass(frozen=True, repr=False)
class PretrainedRun(Run):
    """A run of a pretrained dual encoder. It can do all that a trained run can do."""

    def __str__(self) -> str:
        images, scale = self.recipe.image.config, self.model.logit_scale
        assert scale is not None and images.resizing is not None
        factor, *bias = (float(value) for value in scale.parameters())
        logits = f"{factor:.4g} times the cosine"
        if bias:
            logits += f", and {bias[0]:.4g}"
        values = {
            "run": self.path,
            "space": f"{self.embedding_dim} dimensions, {self.recipe.similarity.kind}",
            "images": f"{images.size} x {images.size} pixels, {images.resizing.describe()}",
            "texts": f"{self.tokenizer.max_length} of {len(self.vocabulary.words):,} subwords",
            "logits": logits,
            "next": f"vsemb evaluate {self.path} --data DATA --split test",
        }
        return facts(values)


def pretrained_run(
    preset: str, out: str | os.PathLike[str], *, weights: Literal["preset"] | None = "preset", seed: int = 0
) -> PretrainedRun:
    """Make a run of a pretrained dual encoder, without training.

    Args:
        preset: preset of CLIP, MetaCLIP 2 or SigLIP, with or without `hub:`: a name, a handle, or a directory, see
            `vsemb.systems.presets.files`. Names and handles are downloaded.
        out: the run directory.
        weights: `"preset"`, or None for random ones; default `"preset"`.
        seed: seed of random weights.

    Returns:
        The run; an existing one is opened.

    Raises:
        DataError: if the preset cannot be loaded or has one tower, or `out` contains another run or other files.

    Example:

        run = pretrained_run("clip_vit_base_patch16", "runs/clip")
        run.model.encode_texts(run.tokenizer(["a dog on a beach"]))
    """
    out, name = Path(out), f"{PREFIX}{source_of(preset)}"
    images = ImagePreset.open(name)
    if images.network.get("class_name") not in DUAL:
        raise DataError(
            f"The preset {name!r} must be a CLIP, MetaCLIP 2 or SigLIP with two towers; got a "
            f"{images.network.get('class_name')}. To use it as an image tower: vsemb features DATA --backbone {name}"
        )
    texts = PresetText.open(name)
    keras.utils.set_random_seed(seed)
    network = load_network(name) if weights else build_network(images.network)
    recipe = pretrained_recipe(name, network, texts, weights, seed)
    info: RunInfo = {"dataset": "", "dataset_name": "", "preset": display_name(name)}
    info |= {"data": None, "features": None, "feature_dim": None}
    there = (out / RECIPE).exists()
    info = enter_run(recipe, info, out, texts.vocabulary, keep=lambda folder: None)
    if there and info["status"] == "finished":
        say(f"{out} already exists and is complete.")
        return PretrainedRun.open(out)
    recipe = rebuilt(rebuilt(recipe, methodcaller("localized", out)), methodcaller("without_downloads"))
    model = recipe.build(len(texts.vocabulary), info, "float32")
    if weights:
        nested = [layer for layer in model.image_encoder.backbone.layers if isinstance(layer, keras.Model)]
        nested[0].set_weights(image_network(network).get_weights())
        model.text_encoder.network.set_weights(text_network(network).get_weights())
    save_weights(model, out / BEST)
    write_json(out / STATUS, {**info, "status": "finished"})
    return PretrainedRun.open(out)


def cached_run(name: str) -> Path:
    """Return the directory of a run of a pretrained dual encoder, which is made in the cache once.

    A directory with other files, or the same files changed, gives another run. A repository that `vsemb push` filled
    gives what it holds.

    Args:
        name: name of the preset, see `vsemb.systems.presets.files`, or of the repository.

    Raises:
        DataError: if the preset cannot be loaded or has one tower.
    """
    source = source_of(name)
    made_of = [source]
    if Path(source).is_dir():
        files = sorted(file for file in Path(source).resolve().rglob("*") if file.is_file())
        made_of = [f"{file} {file.stat().st_size} {file.stat().st_mtime_ns}" for file in files]
    digest = hashlib.sha256("\n".join(made_of).encode()).hexdigest()[:12]
    label = re.sub(r"[^\w.-]+", "-", Path(source).name if Path(source).is_dir() else source).strip("-.")
    # The last part is the name of the run, on pages and in tables.
    path = cache_directory() / "presets" / digest / label
    if (path / STATUS).is_file() and read_json(path / STATUS, "run").get("status") == "finished":
        return path
    if name.startswith(HANDLE) and (own := pulled(name)) is not None:
        return own
    run = pretrained_run(name, path)
    say(f"{display_name(name)} is now a run in {path}.")
    return run.path


def pretrained_recipe(
    name: str, network: keras.Model, texts: PresetText, weights: Literal["preset"] | None, seed: int
) -> Retrieval:
    """Return the recipe equivalent to a pretrained dual encoder.

    Args:
        name: name of the preset, with `hub:`.
        network: network of the preset.
        texts: text preprocessing of the preset.
        weights: `"preset"`, or None for random ones.
        seed: seed of random weights.
    """
    return Retrieval(
        name="pretrained",
        variant=texts.variant,
        paper=texts.paper,
        embedding_dim=None,
        text=pretrained_text(name, weights),
        image=Pixels(backbone=name, weights=weights, projection=NoProjection()),
        loss=pretrained_loss(network),
        training=Training(seed=seed),
    )


def pretrained_text(name: str, weights: Literal["preset"] | None) -> Text:
    """Return the text tower of a preset.

    Args:
        name: name of the preset, with `hub:`.
        weights: `"preset"`, or None for random ones.
    """
    tokenizer = PresetTokens(name=name, max_length=PresetText.open(name).most_pieces)
    return Text(tokenizer=tokenizer, encoder=PresetEncoder(name=name, weights=weights))


def pretrained_loss(network: keras.Model) -> LossPart:
    """Return the loss of a dual encoder's pretraining, at its learned temperature and bias."""
    factor, bias = learned_scale(network)
    temperature = 1 / factor
    return Contrastive(temperature=temperature) if bias is None else Sigmoid(temperature=temperature, bias=bias)
