"""How a recipe distorts training images, beyond crops and mirror images."""

from __future__ import annotations

import json

from vsemb.errors import invalid_argument, unknown_name
from vsemb.image.augmentation import POLICIES, Distortion
from vsemb.image.backbones import BackboneConfig
from vsemb.recipes.schema import Recipe
from vsemb.recipes.towers import ImageConfig


def distortion(recipe: Recipe, backbone: BackboneConfig | None) -> Distortion | None:
    """Returns what distorts training images, None where nothing does.

    Args:
        recipe: the recipe.
        backbone: that is trained from pixels, None where features are the input.

    Raises:
        InvalidArgumentError: for fields that do not go together, or an unknown policy.
        MissingExtraError: if the Model Garden is not installed.
    """
    image = recipe.image
    if image.policy not in (None, *POLICIES):
        raise unknown_name("image.policy", str(image.policy), POLICIES)
    if backbone is None:
        where = "with cached features"
        _refuse(image, ("policy", "erasing"), where, "Train from pixels with --fine-tune.")
    if image.policy != "randaugment":
        _refuse(image, ("policy_magnitude", "policy_layers"), f"with image.policy={json.dumps(image.policy)}")
    if backbone is None or (image.policy is None and not image.erasing):
        return None
    return Distortion(
        backbone.size,
        image.policy,
        magnitude=image.policy_magnitude,
        layers=image.policy_layers,
        erasing=image.erasing,
    )


def _refuse(image: ImageConfig, names: tuple[str, ...], where: str, fix: str | None = None) -> None:
    """Refuses fields that are not read there and not at their defaults."""
    for name in names:
        value, default = getattr(image, name), getattr(ImageConfig(), name)
        if value != default:
            allowed = f"{json.dumps(default)}, the default, {where}"
            raise invalid_argument(f"image.{name}", value, allowed, fix)
