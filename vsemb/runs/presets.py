"""Presets of keras-hub in recipes, and what a run keeps of them so that it opens without a network."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from vsemb.encoders import PresetTextEncoder
from vsemb.errors import invalid_argument
from vsemb.presets import build_network, is_preset, keep_preset, load_network, text_network
from vsemb.recipes.schema import Recipe
from vsemb.runs.stored_presets import IMAGE, PRESETS, TEXT
from vsemb.text.preset_tokenizers import PresetTexts

TEXT_WEIGHTS = ("preset", None)


def build_preset_encoder(recipe: Recipe) -> PresetTextEncoder:
    """Builds the text encoder of a recipe that names a preset.

    Raises:
        InvalidArgumentError: if the tokenizer is another than the preset's, or images are sets of regions.
        DataError: if the preset cannot be opened or downloaded.
    """
    text, dtype = recipe.text, recipe.training.dtype
    if text.tokenizer != text.encoder:
        raise invalid_argument("text.tokenizer", text.tokenizer, f"{text.encoder!r}, the encoder's own")
    if recipe.image.regions:
        raise invalid_argument("text.encoder", text.encoder, "another with image.regions=true")
    if text.bag:
        raise invalid_argument("text.bag", text.bag, f"false with text.encoder={text.encoder!r}")
    texts = PresetTexts.open(text.encoder)
    if text.weights == "preset":
        network = load_network(text.encoder, dtype)
    else:
        network = build_network(texts.network, dtype)
    return PresetTextEncoder(
        text_network(network),
        texts.length,
        recipe.embedding_dim,
        start=texts.start,
        end=texts.end,
        padding=texts.padding,
        # SigLIP adds the positions of all its places, and reads the last.
        fixed=texts.kind == "SigLIP",
        dtype=dtype,
    )


def check_preset_weights(recipe: Recipe) -> None:
    """Refuses weights of a text encoder that has none of its own.

    Raises:
        InvalidArgumentError: if they are asked for.
    """
    weights = recipe.text.weights
    if weights not in TEXT_WEIGHTS or (weights is not None and not is_preset(recipe.text.encoder)):
        allowed = "'preset' where text.encoder names a preset (hub:NAME), or null"
        raise invalid_argument("text.weights", weights, allowed)


def keep_presets(recipe: Recipe, folder: Path) -> None:
    """Keeps what a run reads of presets in its directory: networks and tokenizers, without weights.

    Raises:
        DataError: if a preset cannot be opened.
    """
    if is_preset(recipe.image.backbone):
        assert recipe.image.backbone is not None
        keep_preset(recipe.image.backbone, folder / PRESETS / IMAGE, "image")
    if is_preset(recipe.text.tokenizer):
        keep_preset(recipe.text.tokenizer, folder / PRESETS / TEXT, "text")


def without_downloads(recipe: Recipe) -> Recipe:
    """Returns the recipe with random weights where published ones are named: selected ones replace them."""
    return dataclasses.replace(
        recipe,
        image=dataclasses.replace(recipe.image, weights=None),
        text=dataclasses.replace(recipe.text, weights=None),
    )
