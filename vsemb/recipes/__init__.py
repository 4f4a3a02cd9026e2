"""Recipes: one file a paper, each a frozen configuration with its equations and deviations."""

from __future__ import annotations

from vsemb.errors import unknown_name
from vsemb.recipes.contrastive import CONTRASTIVE
from vsemb.recipes.dvsa import DVSA
from vsemb.recipes.entailment import ENTAILMENT
from vsemb.recipes.kiros2014 import KIROS2014, KIROS2014_LINEAR
from vsemb.recipes.language_models import LOG_BILINEAR, MULTIPLICATIVE, SC_NLM
from vsemb.recipes.multimodal_rnn import MULTIMODAL_RNN, MULTIMODAL_RNN_REGIONS
from vsemb.recipes.order_embedding import ORDER_EMBEDDING, ORDER_EMBEDDING_SYMMETRIC
from vsemb.recipes.schema import Recipe
from vsemb.recipes.sigmoid import SIGMOID
from vsemb.recipes.sje import SJE
from vsemb.recipes.tree_twin import TREE_TWIN
from vsemb.recipes.vsepp import VSEPP

__all__ = ["RECIPES", "Recipe", "get"]

#: name -> variant -> recipe; the first variant is the default.
RECIPES: dict[str, dict[str, Recipe]] = {
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
    if name not in RECIPES:
        raise unknown_name("recipe", name, RECIPES)
    variants = RECIPES[name]
    if variant is None:
        return next(iter(variants.values()))
    if variant not in variants:
        raise unknown_name("variant", variant, variants)
    return variants[variant]
