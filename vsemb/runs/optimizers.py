"""From a recipe to its optimizer and learning-rate schedule."""

from __future__ import annotations

import json
from typing import Any

import keras

from vsemb.errors import invalid_argument, unknown_name
from vsemb.recipes.schema import OptimizerConfig, Recipe
from vsemb.training import Adam, RisingMomentumSGD

OPTIMIZERS = ("sgd", "adam", "rmsprop", "adamw")
SCHEDULES = ("constant", "exponential", "step", "cosine")


def build_schedule(
    config: OptimizerConfig, steps_per_epoch: int, epochs: int
) -> float | keras.optimizers.schedules.LearningRateSchedule:
    """Returns the learning rate over optimizer steps."""
    rate = config.learning_rate
    if config.schedule not in SCHEDULES:
        raise unknown_name("optimizer.schedule", config.schedule, SCHEDULES)
    if config.schedule == "cosine":
        warmup = round(config.warmup_epochs * steps_per_epoch)
        decay = max(epochs * steps_per_epoch - warmup, 1)
        if warmup == 0:
            return keras.optimizers.schedules.CosineDecay(rate, decay)
        return keras.optimizers.schedules.CosineDecay(0.0, decay, warmup_target=rate, warmup_steps=warmup)
    if config.schedule == "constant":
        return rate
    return keras.optimizers.schedules.ExponentialDecay(
        rate,
        config.decay_steps or max(round(config.decay_epochs * steps_per_epoch), 1),
        config.decay_rate,
        staircase=config.schedule == "step",
    )


def build_optimizer(recipe: Recipe, steps_per_epoch: int) -> keras.optimizers.Optimizer:
    """Returns the recipe's optimizer.

    Raises:
        InvalidArgumentError: for one that does not exist, or a field that it does not read.
    """
    config = recipe.optimizer
    if config.clip is not None and config.clip_value is not None:
        raise invalid_argument("optimizer.clip_value", config.clip_value, "null with optimizer.clip")
    options = {
        "learning_rate": build_schedule(config, steps_per_epoch, recipe.training.epochs),
        "global_clipnorm": config.clip,
        "clipvalue": config.clip_value,
        "use_ema": config.ema is not None,
        "ema_momentum": 0.99 if config.ema is None else config.ema,
    }
    if config.name not in OPTIMIZERS:
        raise unknown_name("optimizer.name", config.name, OPTIMIZERS)
    if config.name != "adamw":
        _check_unread(config, "adamw", "weight_decay")
    if config.name not in ("adam", "adamw"):
        _check_unread(config, "adam", "lazy")
    if config.name == "sgd":
        return _sgd(config, options)
    _check_unread(config, "sgd", *_RISE)
    if config.name == "rmsprop":
        return keras.optimizers.RMSprop(**options)
    if config.lazy and recipe.text.dense_gradient:
        raise invalid_argument("optimizer.lazy", True, "false with text.dense_gradient=true")
    weight_decay = config.weight_decay if config.name == "adamw" else None
    return Adam(lazy=config.lazy, weight_decay=weight_decay, **options)


#: What only SGD reads.
_RISE = ("momentum", "momentum_start", "momentum_steps")


def _sgd(config: OptimizerConfig, options: dict[str, Any]) -> keras.optimizers.SGD:
    if config.momentum_start is None:
        if config.momentum_steps != OptimizerConfig().momentum_steps:
            allowed = "the default where momentum does not rise, with optimizer.momentum_start=null"
            raise invalid_argument("optimizer.momentum_steps", config.momentum_steps, allowed)
        return keras.optimizers.SGD(momentum=config.momentum, **options)
    if config.momentum_start > config.momentum:
        allowed = f"null, or a number in [0, {config.momentum}], up to optimizer.momentum"
        raise invalid_argument("optimizer.momentum_start", config.momentum_start, allowed)
    return RisingMomentumSGD(
        momentum=config.momentum,
        momentum_start=config.momentum_start,
        momentum_steps=config.momentum_steps,
        **options,
    )


def _check_unread(config: OptimizerConfig, reader: str, *names: str) -> None:
    """Refuses fields that another optimizer reads."""
    defaults = OptimizerConfig()
    unread = {name: getattr(defaults, name) for name in names}
    unread = {name: value for name, value in unread.items() if getattr(config, name) != value}
    for name, default in unread.items():
        allowed = f"{json.dumps(default)}, the default, or optimizer.name={reader}"
        fix = " ".join(f"--set optimizer.{other}={json.dumps(value)}" for other, value in unread.items())
        raise invalid_argument(f"optimizer.{name}", getattr(config, name), allowed, f"Add {fix}.")
