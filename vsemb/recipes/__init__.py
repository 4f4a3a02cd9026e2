"""Recipes: one file a paper, each a frozen configuration with its equations and deviations."""

from __future__ import annotations

import functools
from typing import Any

from vsemb.errors import unknown_name
from vsemb.recipes.contrastive import CONTRASTIVE
from vsemb.recipes.kiros2014 import KIROS2014, KIROS2014_LINEAR
from vsemb.recipes.order_embedding import ORDER_EMBEDDING, ORDER_EMBEDDING_SYMMETRIC
from vsemb.recipes.schema import Recipe
from vsemb.recipes.sigmoid import SIGMOID
from vsemb.recipes.vsepp import VSEPP

__all__ = ["RECIPES", "Recipe", "get"]

#: name -> variant -> recipe; the first variant is the default.
RECIPES: dict[str, dict[str, Recipe]]


@functools.cache
def _recipes() -> dict[str, dict[str, Recipe]]:
    # A recipe of a system imports this room's schema, so it is imported when asked for.
    from vsemb.systems.captions.karpathy2015_captions import MULTIMODAL_RNN, MULTIMODAL_RNN_REGIONS
    from vsemb.systems.entailment.recipe import ENTAILMENT
    from vsemb.systems.language.kiros2014_language import LOG_BILINEAR, MULTIPLICATIVE, SC_NLM
    from vsemb.systems.regions.dvsa import DVSA
    from vsemb.systems.trees.tree_twin import TREE_TWIN
    from vsemb.systems.zero_shot.sje import SJE

    return {
        "kiros2014": KIROS2014,
        "kiros2014-linear": KIROS2014_LINEAR,
        "order-embedding": ORDER_EMBEDDING,
        "order-embedding-symmetric": ORDER_EMBEDDING_SYMMETRIC,
        "entailment": ENTAILMENT,
        "vsepp": VSEPP,
        "contrastive": CONTRASTIVE,
        "sigmoid": SIGMOID,
        "tree-twin": TREE_TWIN,
        "dvsa": DVSA,
        "multimodal-rnn": MULTIMODAL_RNN,
        "multimodal-rnn-regions": MULTIMODAL_RNN_REGIONS,
        "log-bilinear": LOG_BILINEAR,
        "multiplicative": MULTIPLICATIVE,
        "sc-nlm": SC_NLM,
        **SJE,
    }


def __getattr__(name: str) -> Any:
    if name == "RECIPES":
        return _recipes()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def get(name: str, variant: str | None = None) -> Recipe:
    """Returns a recipe.

    Args:
        name: one of `RECIPES`.
        variant: one of the recipe's variants; None takes the first.

    Raises:
        InvalidArgumentError: for an unknown name or variant, with the nearest one suggested.

    Example:

    >>> get("kiros2014").embedding_dim
    300
    """
    found = _recipes()
    if name not in found:
        raise unknown_name("recipe", name, found)
    variants = found[name]
    if variant is None:
        return next(iter(variants.values()))
    if variant not in variants:
        raise unknown_name("variant", variant, variants)
    return variants[variant]
