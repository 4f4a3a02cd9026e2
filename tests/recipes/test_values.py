"""The values of the base's recipes, pinned: the plain recipe, and what each variant sets in it."""

from __future__ import annotations

import pytest

from vsemb import recipes
from vsemb.recipes.describe import fields
from vsemb.recipes.retrieval import Retrieval

#: Every field of a recipe that sets nothing.
PLAIN = {
    "name": '"mine"',
    "variant": '"default"',
    "paper": '""',
    "optimizer": "adam",
    "optimizer.learning_rate": "0.0002",
    "optimizer.schedule": "constant",
    "optimizer.global_clipnorm": "null",
    "optimizer.clipvalue": "null",
    "optimizer.ema_momentum": "null",
    "optimizer.sparse_embedding_updates": "false",
    "training": "",
    "training.epochs": "30",
    "training.keep": "1",
    "training.patience": "null",
    "training.seed": "0",
    "training.precision": '"float32"',
    "training.nonfinite": '"stop"',
    "embedding_dim": "1024",
    "text": "",
    "text.tokenizer": "words",
    "text.tokenizer.min_count": "1",
    "text.tokenizer.vocabulary_size": "null",
    "text.tokenizer.max_length": "64",
    "text.encoder": "recurrent",
    "text.encoder.words": "",
    "text.encoder.words.dim": "300",
    "text.encoder.words.vectors": "null",
    "text.encoder.words.trainable": "true",
    "text.encoder.words.init_scale": "0.1",
    "text.encoder.words.dense_gradient": "false",
    "text.encoder.words.word_dropout": "0.0",
    "text.encoder.words.dropout": "0.0",
    "text.encoder.cell": '"gru"',
    "text.encoder.units": "1024",
    "text.encoder.directions": '"forward"',
    "text.encoder.pooling": '"last"',
    "text.encoder.dropout": "0.0",
    "text.encoder.init_scale": "null",
    "image": "features",
    "image.fingerprint": "null",
    "image.size": "null",
    "image.pooling": "null",
    "image.standardize": "false",
    "image.dropout": "0.0",
    "image.augment": "true",
    "image.projection": "affine",
    "image.projection.use_bias": "true",
    "image.projection.init_scale": "null",
    "similarity": "cosine",
    "loss": "ranking",
    "loss.image_weight": "1.0",
    "loss.text_weight": "1.0",
    "loss.block_size": "null",
    "loss.reduction": "null",
    "loss.margin": "0.2",
    "loss.negatives": "all",
    "batches": "pairs",
    "batches.size": "128",
    "batches.captions_per_image": "null",
    "batches.captions": '"all"',
    "batches.negatives": '"batch"',
    "validation": "recall",
    "initialization": "random",
    "l2": "0.0",
    "chunk_size": "null",
    "hub_bank": "null",
}

# Kiros et al. 2014, sections 3 and 3.1.
_KIROS_SGD = [
    "optimizer=sgd",
    "optimizer.learning_rate=1",
    "optimizer.schedule=exponential",
    "optimizer.schedule.factor=0.9",
    "optimizer.schedule.every=1",
    "optimizer.global_clipnorm=2",
    "training.patience=5",
    "batches.size=40",
    "embedding_dim=300",
    "image.augment=false",
    "image.projection.use_bias=false",
    "image.projection.init_scale=0.08",
    "text.encoder.words.init_scale=0.08",
]
_KIROS_ADAM = ["optimizer.global_clipnorm=2", "training.epochs=15", "training.patience=5", "image.augment=false"]
# What the recipes that were tuned on Flickr8k share.
_COSINE = [
    "optimizer.learning_rate=0.001",
    "optimizer.schedule=cosine",
    "optimizer.global_clipnorm=2",
    "batches.size=256",
]
_TUNED_TEXT = [
    "optimizer.schedule.warmup_epochs=0.6",
    "text.tokenizer.min_count=4",
    "text.encoder=sequence-and-bag",
    "text.encoder.sequence.words.word_dropout=0.15",
    "text.encoder.sequence.words.dropout=0.2",
    "text.encoder.sequence.units=256",
    "text.encoder.sequence.directions=concat",
    "text.encoder.sequence.pooling=mean+max",
    "text.encoder.sequence.dropout=0.3",
    "text.encoder.bag_dropout=0.4",
]
_TUNED = [
    *_COSINE,
    "optimizer.schedule.warmup_epochs=0.6",
    "text.tokenizer.min_count=4",
    "training.epochs=8",
    "training.precision=auto",
    "image.standardize=true",
    "image.dropout=0.5",
    "loss=ranking-infonce",
    "loss.reduction=mean",
    "loss.negatives=hardest",
    "loss.temperature=0.05",
    "initialization=cca",
]
_BEST = [
    *_TUNED,
    "embedding_dim=2048",
    "similarity=mean-cosine",
    "similarity.members=4",
    "batches=groups",
    "batches.size=128",
    "batches.group_size=2",
    "text.encoder=ensemble",
    "text.encoder.members=4",
    "hub_bank=2000",
    *(setting.replace("text.encoder", "text.encoder.encoder") for setting in _TUNED_TEXT[2:]),
]
_ORDER = [
    "optimizer.learning_rate=0.001",
    "training.patience=10",
    "image.augment=false",
    "image.projection.use_bias=false",
    "batches.captions=one",
]
_SHORT_TEXT = ["optimizer.schedule.warmup_epochs=0.5", "training.epochs=15", "embedding_dim=512"]
_AVERAGED_GRU = [
    "text.tokenizer.min_count=2",
    "text.encoder.units=512",
    "text.encoder.directions=average",
    "text.encoder.pooling=mean+max",
]
_SIGMOID = [*_COSINE, *_SHORT_TEXT, *_AVERAGED_GRU, "loss=sigmoid", "loss.text_weight=0", "loss.temperature=0.1"]

#: Recipe -> variant -> what it sets.
SET = {
    "kiros2014": {
        "paper": [
            *_KIROS_SGD,
            "text.encoder.cell=peephole-lstm",
            "text.encoder.units=300",
            "text.encoder.init_scale=0.08",
        ],
        "released": _KIROS_ADAM,
    },
    "kiros2014-linear": {
        "paper": [*_KIROS_SGD, "text.encoder=linear"],
        "released": [*_KIROS_ADAM, "text.encoder=linear", "text.encoder.words.dim=1024"],
    },
    "order-embedding": {
        "paper": [*_ORDER, "similarity=order", "loss.margin=0.05"],
        "tuned": [
            *_COSINE,
            *_TUNED_TEXT,
            "training.epochs=16",
            "image.dropout=0.2",
            "image.projection.use_bias=false",
            "similarity=order",
            "loss.margin=0.05",
        ],
    },
    "order-embedding-symmetric": {"paper": _ORDER},
    "vsepp": {
        "paper": [
            "optimizer.schedule=step",
            "optimizer.schedule.factor=0.1",
            "optimizer.schedule.every=15",
            "optimizer.global_clipnorm=2",
            "text.tokenizer.min_count=4",
            "loss.negatives=hardest",
            "loss.negatives.warmup_epochs=1",
        ],
        "tuned": [*_TUNED, *_TUNED_TEXT, "embedding_dim=512"],
    },
    "best": {
        "top": [
            *_BEST,
            "training.epochs=4",
            "image=top",
            "image.networks=2",
            "image.size=288",
            "image.standardize=true",
            "image.dropout=0.5",
        ],
        "frozen": [*_BEST, "training.epochs=6", "image.size=288", "image.pooling=regional"],
    },
    "contrastive": {
        "default": [*_COSINE, *_SHORT_TEXT, *_AVERAGED_GRU, "training.precision=auto", "loss=infonce"],
        "transformer": [
            *_COSINE,
            *_SHORT_TEXT,
            "training.precision=auto",
            "loss=infonce",
            "loss.temperature=0.07",
            "text.tokenizer=wordpiece",
            "text.tokenizer.max_length=40",
            "text.encoder=transformer",
            "text.encoder.words.dim=256",
            "text.encoder.units=256",
            "text.encoder.layers=2",
            "text.encoder.heads=4",
            "text.encoder.pooling=mean",
            "text.encoder.dropout=0.1",
        ],
    },
    "sigmoid": {
        "default": [*_SIGMOID, "loss.bias=-5.5"],
        "paper": [*_SIGMOID, "loss.bias=-10"],
    },
}


def test_the_plain_recipe() -> None:
    assert {field.path: field.value for field in fields(Retrieval())} == PLAIN


def test_all_of_the_base_are_pinned() -> None:
    from vsemb import registry

    assert set(SET) == set(registry.BASE.recipes)
    assert {name: list(variants) for name, variants in SET.items()} == {
        name: list(recipes.variants(name)) for name in SET
    }


@pytest.mark.parametrize(("name", "variant"), [(name, variant) for name in SET for variant in SET[name]])
def test_values(name: str, variant: str) -> None:
    recipe = recipes.get(name, variant)
    plain = Retrieval(name=name, variant=variant, paper=recipe.paper)
    assert plain.with_overrides(SET[name][variant]) == recipe


def test_a_way_up_from_images_to_captions() -> None:
    # The reversed ablation of Vendrov et al. is a similarity of its own.
    assert (
        recipes.get("order-embedding").with_overrides(["similarity=order-reversed"]).similarity.kind == "order-reversed"
    )
