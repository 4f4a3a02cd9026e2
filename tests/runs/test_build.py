"""From recipes to parts: every recipe and variant builds, compiles and runs a step."""

from __future__ import annotations

import dataclasses

import keras
import numpy as np
import pytest

from tests.conftest import FEATURE_DIM
from vsemb import recipes
from vsemb.data.features.compute import cache_features
from vsemb.data.features.store import FeatureStore
from vsemb.errors import InvalidArgumentError
from vsemb.image.backbones import BackboneConfig
from vsemb.losses import InfoNCE, PairwiseRanking, SigmoidLoss
from vsemb.recipes import RECIPES, Recipe
from vsemb.recipes.schema import OptimizerConfig
from vsemb.runs import build, optimizers, texts
from vsemb.training import Adam, RisingMomentumSGD

ALL = [
    (name, variant)
    for name, variants in RECIPES.items()
    for variant, recipe in variants.items()
    # test_sje.py, test_tree_twin.py and test_dvsa.py have the others.
    if recipe.task == "retrieval" and recipe.batches.sampling == "pairs" and recipe.text.tokenizer != "trees"
    if not recipe.image.regions
]


def built(recipe: Recipe, scenes):
    """Vocabulary, batches and the compiled model of a recipe on the tiny features."""
    split, store = scenes.split("train"), FeatureStore.find(scenes)
    vocabulary = texts.build_vocabulary(recipe, split.captions)
    images = build.build_images(recipe, split, store)
    batches = build.build_batches(recipe, split, images, texts.build_tokenizer(recipe, vocabulary))
    model = build.build_model(recipe, len(vocabulary), FEATURE_DIM)
    steps = batches.steps_per_epoch
    optimizer, loss = optimizers.build_optimizer(recipe, steps), build.build_loss(recipe, steps)
    model.compile(optimizer=optimizer, loss=loss, jit_compile=False)
    return vocabulary, batches, model


@pytest.mark.parametrize(("name", "variant"), ALL)
def test_every_recipe_takes_a_step(name: str, variant: str, scenes) -> None:
    recipe = recipes.get(name, variant)
    # Its sizes cut down and nothing else.
    small = {"embedding_dim": 8, "text.word_dim": 8, "text.units": 8, "batches.size": 6}
    recipe = recipe.with_overrides([f"{path}={value}" for path, value in small.items()])
    _, batches, model = built(recipe, scenes)
    assert model.built and model.optimizer is not None
    before = model.get_weights()
    history = model.fit(batches.dataset().take(1), shuffle=False, verbose=0)
    assert np.isfinite(history.history["loss"][0])
    moved = [(a != b).any() for a, b in zip(model.get_weights(), before, strict=True)]
    # The image map at least, even where the schedule starts from zero and takes no step at first.
    assert any(moved) or recipe.optimizer.schedule == "cosine"
    outputs = model(next(iter(batches.dataset())))
    assert outputs["image"].shape == outputs["text"].shape == (6, 8)


def test_weights_follow_from_the_seed(scenes, tiny_recipe) -> None:
    models = [
        built(tiny_recipe.with_overrides([f"training.seed={seed}"]), scenes)[2].get_weights() for seed in (1, 1, 2)
    ]
    assert all(np.array_equal(a, b) for a, b in zip(models[0], models[1], strict=True))
    assert any(not np.array_equal(a, b) for a, b in zip(models[0], models[2], strict=True))


def test_mixed_precision(scenes, tiny_recipe) -> None:
    recipe = tiny_recipe.with_overrides(["training.precision=mixed_bfloat16"])
    _, batches, model = built(recipe, scenes)
    history = model.fit(batches.dataset().take(2), shuffle=False, verbose=0)
    assert np.isfinite(history.history["loss"][0])
    assert all(v.dtype == "float32" for v in model.trainable_variables)
    output = model(next(iter(batches.dataset())))["text"]
    assert output.dtype == "float32"


def test_vocabulary_limits(scenes) -> None:
    captions = scenes.split("train").captions
    assert len(texts.build_vocabulary(Recipe("x"), captions)) > 20
    limited = Recipe("x").with_overrides(["text.max_words=5"])
    assert len(texts.build_vocabulary(limited, captions)) == 7


def test_losses() -> None:
    recipe = Recipe("x").with_overrides(["loss.negatives=hardest", "loss.warmup_epochs=1.5"])
    loss = build.build_loss(recipe, steps_per_epoch=10)
    assert isinstance(loss, PairwiseRanking)
    assert (loss.margin, loss.negatives, loss.warmup_steps) == (0.2, "hardest", 15)
    fixed = Recipe("x").with_overrides(["loss.name=infonce", "loss.learn_temperature=false"])
    loss = build.build_loss(fixed, 10)
    assert isinstance(loss, InfoNCE) and loss.temperature == 0.07
    # Learned: the scale of the model takes the place of the loss' temperature.
    learned = build.build_loss(Recipe("x").with_overrides(["loss.name=infonce"]), 10)
    assert isinstance(learned, InfoNCE) and learned.temperature == 1
    model = build.build_model(Recipe("x").with_overrides(["loss.name=infonce", "text.units=4"]), 9, 4)
    np.testing.assert_allclose(model.logit_scale(np.float32(1.0)), 1 / 0.07, rtol=1e-5)


def test_sigmoid_loss() -> None:
    fixed = Recipe("x").with_overrides(
        ["loss.name=sigmoid", "loss.learn_temperature=false", "loss.bias=-3", "loss.reduction=sum"]
    )
    loss = build.build_loss(fixed, 10)
    assert isinstance(loss, SigmoidLoss)
    assert (loss.temperature, loss.bias, loss.reduction) == (0.07, -3.0, "sum")
    learned = Recipe("x").with_overrides(["loss.name=sigmoid", "loss.temperature=0.1", "text.units=4"])
    loss = build.build_loss(learned, 10)
    assert isinstance(loss, SigmoidLoss) and (loss.temperature, loss.bias) == (1.0, 0.0)
    model = build.build_model(learned, 9, 4)
    # 10 s - 10.
    np.testing.assert_allclose(model.logit_scale(np.float32([1.0, 0.0])), [0.0, -10.0], atol=1e-5)
    assert build.build_model(fixed.with_overrides(["text.units=4"]), 9, 4).logit_scale is None


def test_chunks_and_blocks() -> None:
    recipe = Recipe("x").with_overrides(["training.chunk_size=7", "loss.block_size=5", "text.units=4"])
    model = build.build_model(recipe, 9, 4)
    assert (model.chunk_size, model.block_size) == (7, 5)


def rate_at(config: OptimizerConfig, step: int, steps: int = 10, epochs: int = 4) -> float:
    schedule = optimizers.build_schedule(config, steps, epochs)
    return float(schedule(step)) if callable(schedule) else schedule


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"schedule": "constant"}, {0: 1.0, 39: 1.0}),
        # Times 0.5 every 2 epochs of 10 steps, smoothly: 0.5 ** (step / 20).
        (
            {"schedule": "exponential", "decay_rate": 0.5, "decay_epochs": 2.0},
            {0: 1.0, 10: 0.5**0.5, 20: 0.5},
        ),
        ({"schedule": "step", "decay_rate": 0.1, "decay_epochs": 2.0}, {0: 1.0, 19: 1.0, 20: 0.1, 39: 0.1}),
        # Steps, however many an epoch has.
        ({"schedule": "step", "decay_rate": 0.5, "decay_steps": 7}, {6: 1.0, 7: 0.5, 13: 0.5, 14: 0.25}),
        ({"schedule": "exponential", "decay_rate": 0.5, "decay_steps": 8}, {4: 0.5**0.5, 8: 0.5}),
        # Half a cosine over 40 steps.
        ({"schedule": "cosine"}, {0: 1.0, 20: 0.5, 40: 0.0}),
        # A rise over 10 steps, then half a cosine over 30.
        ({"schedule": "cosine", "warmup_epochs": 1.0}, {0: 0.0, 5: 0.5, 10: 1.0, 25: 0.5, 40: 0.0}),
    ],
)
def test_schedules(options, expected: dict[int, float]) -> None:
    config = OptimizerConfig(learning_rate=1.0, **options)
    for step, rate in expected.items():
        np.testing.assert_allclose(rate_at(config, step), rate, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", ["sgd", "adam", "adamw", "rmsprop"])
def test_optimizers(name: str) -> None:
    fields = {"name": name, "clip": 2, "ema": 0.9, "learning_rate": 0.5}
    overrides = [f"optimizer.{field}={value}" for field, value in fields.items()]
    optimizer = optimizers.build_optimizer(Recipe("x").with_overrides(overrides), 10)
    assert type(optimizer).__name__.lower() == name.removesuffix("w")
    assert optimizer.global_clipnorm == 2 and optimizer.use_ema and optimizer.ema_momentum == 0.9
    assert float(optimizer.learning_rate) == 0.5
    plain = optimizers.build_optimizer(Recipe("x"), 10)
    assert plain.global_clipnorm is None and not plain.use_ema
    none = optimizers.build_optimizer(Recipe("x").with_overrides(["optimizer.ema=0"]), 10)
    assert none.ema_momentum == 0


def test_adamw_decays_weights_and_lazy_is_passed_on() -> None:
    optimizer = optimizers.build_optimizer(with_optimizer(name="adamw", weight_decay=0.1, lazy=True), 10)
    assert isinstance(optimizer, Adam)
    assert (optimizer.weight_decay, optimizer.lazy) == (0.1, True)
    plain = optimizers.build_optimizer(with_optimizer(name="adam"), 10)
    assert (plain.weight_decay, plain.lazy) == (None, False)


def test_lazy_needs_lists_of_rows() -> None:
    recipe = with_optimizer(lazy=True).with_overrides(["text.dense_gradient=true"])
    with pytest.raises(InvalidArgumentError, match="text.dense_gradient=true"):
        optimizers.build_optimizer(recipe, 10)


def with_optimizer(**fields) -> Recipe:
    return dataclasses.replace(Recipe("x"), optimizer=OptimizerConfig(**fields))


def test_momentum() -> None:
    constant = optimizers.build_optimizer(with_optimizer(name="sgd", momentum=0.9), 10)
    assert type(constant) is keras.optimizers.SGD and constant.momentum == 0.9
    assert optimizers.build_optimizer(with_optimizer(name="sgd"), 10).momentum == 0
    rising = with_optimizer(name="sgd", momentum=0.9, momentum_start=0.0, momentum_steps=7.0, clip=2.0, ema=0.5)
    optimizer = optimizers.build_optimizer(rising, 10)
    assert isinstance(optimizer, RisingMomentumSGD)
    assert (optimizer.momentum, optimizer.momentum_start, optimizer.momentum_steps) == (0.9, 0.0, 7.0)
    assert optimizer.global_clipnorm == 2 and optimizer.ema_momentum == 0.5


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"name": "adam", "momentum": 0.9}, "optimizer.name=sgd"),
        ({"name": "adamw", "momentum": 0.9}, "optimizer.momentum"),
        ({"name": "rmsprop", "momentum_start": 0.5}, "optimizer.momentum_start"),
        ({"name": "sgd", "momentum_start": 0.5}, "up to optimizer.momentum"),
        ({"name": "sgd", "momentum": 0.9, "weight_decay": 0.1}, "optimizer.name=adamw"),
        ({"name": "sgd", "lazy": True}, "optimizer.lazy"),
        ({"name": "adam", "momentum_start": 0.0}, "momentum_start=0.0. Expected: null, the default"),
        ({"name": "adam", "momentum_steps": 7.0}, "optimizer.momentum_steps"),
        ({"name": "sgd", "momentum": 0.9, "momentum_steps": 7.0}, "optimizer.momentum_start=null"),
        (
            {"name": "adam", "momentum": 0.9, "momentum_start": 0.5},
            "--set optimizer.momentum=0.0 --set optimizer.momentum_start=null",
        ),
    ],
    ids=[
        "adam",
        "adamw",
        "rmsprop",
        "falling",
        "decay",
        "lazy",
        "from-zero",
        "steps",
        "no-rise",
        "all-at-once",
    ],
)
def test_fields_of_other_optimizers_are_refused(fields, message: str) -> None:
    with pytest.raises(InvalidArgumentError, match=message):
        optimizers.build_optimizer(with_optimizer(**fields), 10)


def test_l2() -> None:
    recipe = Recipe("x").with_overrides(["loss.l2=0.5", "text.units=4", "embedding_dim=4"])
    assert build.build_model(recipe, 9, 4).l2 == 0.5
    assert build.build_model(recipe.with_overrides(["loss.l2=0"]), 9, 4).l2 == 0


def test_linear_encoders_need_words_of_the_embeddings_size() -> None:
    with pytest.raises(InvalidArgumentError, match="text.word_dim"):
        build.build_model(Recipe("x").with_overrides(["text.encoder=sum", "text.word_dim=5"]), 9, 4)


def test_names_of_fields_are_in_the_messages() -> None:
    for setting, message in (
        ("training.precision=float16", "training.precision"),
        ("optimizer.name=adm", "Did you mean 'adam'"),
        ("optimizer.schedule=cos", "cosine"),
        ("loss.name=rank", "Did you mean 'ranking'"),
    ):
        recipe = Recipe("x").with_overrides([setting, "text.units=4"])
        with pytest.raises(InvalidArgumentError, match=message):
            build.build_model(recipe, 9, 4)
            build.build_loss(recipe, 10)
            optimizers.build_optimizer(recipe, 10)


def test_fine_tuning_from_pixels(scenes, tiny_pixel_run) -> None:
    model = tiny_pixel_run.model
    assert isinstance(model, keras.Model)
    assert any("backbone" in v.path or "conv" in v.path for v in model.trainable_variables)
    split = scenes.split("val")
    images = tiny_pixel_run.images_of(scenes, split)
    pixels = images.finish(images.gather(np.arange(3)), None)
    assert pixels.shape == (3, 32, 32, 3)
    np.testing.assert_allclose(np.linalg.norm(model.encode_images(pixels), axis=1), 1, rtol=1e-5)
    assert tiny_pixel_run.feature_backbone is None


def test_only_training_batches_see_mirror_images(scenes_copy):
    config = BackboneConfig("SmallConvNet", size=32)
    store = cache_features(scenes_copy, config, weights=None, mirror=True)
    recipe, split = recipes.get("vsepp"), scenes_copy.split("train")
    assert build.build_images(recipe, split, store).spec.shape == (256,)
    assert build.build_images(recipe, split, store, training=True).spec.shape == (2, 256)
