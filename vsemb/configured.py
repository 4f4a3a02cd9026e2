"""Keras objects whose config is the arguments of their constructor."""

from __future__ import annotations

import contextlib
import copy
import functools
import importlib
import inspect
import typing
from typing import Any, Self

import keras

from vsemb.parts import require_all

#: What the constructors of Keras' own classes keep themselves.
_OF_KERAS = ("name", "reduction")


class Configured:
    """Check, store and save the arguments of a constructor; listed before the Keras class among the bases.

    A constructor calls `keep_arguments(locals())` after `super().__init__`, or sets the attributes itself. An argument
    may be a Keras object, or a list of them. Arguments that **kwargs passes to a base count as well, if they have a
    default there.

    Example:

    >>> from vsemb.parts import Count
    >>> class Repeat(Configured, keras.layers.Layer):
    ...     def __init__(self, times: Count = 2, **kwargs):
    ...         super().__init__(**kwargs)
    ...         self.keep_arguments(locals())
    >>> Repeat(3).times, Repeat.from_config(Repeat(3).get_config()).times
    (3, 3)
    """

    def keep_arguments(self, arguments: dict[str, Any]) -> None:
        """Store the arguments of a constructor as attributes of the same names.

        Args:
            arguments: `locals()` of a constructor that calls `super()`.

        Raises:
            InvalidArgumentError: for one outside the range or the literals of its type hint.
        """
        hints = _hints(arguments["__class__"])
        require_all(arguments, hints)
        for name in hints:
            setattr(self, name, arguments[name])

    def get_config(self) -> dict[str, Any]:
        """Return the arguments of the constructor, including Keras' own, as plain values."""
        cls: Any = type(self)
        names, takes_more = _arguments(cls)
        config = super().get_config()  # type: ignore[misc]
        return {
            **{name: value for name, value in config.items() if takes_more or name in names},
            **{name: keras.saving.serialize_keras_object(getattr(self, name)) for name in names},
        }

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        """Build an object from the result of `get_config`."""
        this: Any = cls
        names, _ = _arguments(this)
        import_classes(config)
        # Keras takes the config of a functional model apart while it reads it.
        config = copy.deepcopy(config)
        own = {name: keras.saving.deserialize_keras_object(config[name]) for name in names if name in config}
        return cls(**{**config, **own})


@functools.cache
def _hints(cls: type) -> dict[str, Any]:
    """Returns the type hints of the arguments of a class's own constructor, without Keras' own."""
    constructor = vars(cls)["__init__"]
    hints = typing.get_type_hints(constructor, include_extras=True)
    return {p.name: hints[p.name] for p in _named(constructor) if p.name not in _OF_KERAS}


def _named(constructor: Any) -> list[inspect.Parameter]:
    parameters = list(inspect.signature(constructor).parameters.values())[1:]
    return [p for p in parameters if p.kind is not p.VAR_KEYWORD]


@functools.cache
def _arguments(cls: type) -> tuple[tuple[str, ...], bool]:
    """Returns the names of a constructor's arguments, and whether it takes all that Keras' has as well."""
    names: dict[str, None] = {}
    constructors = [vars(each)["__init__"] for each in cls.__mro__ if issubclass(each, Configured) and _own(each)]
    for number, constructor in enumerate(constructors):
        named = _named(constructor)
        names |= {p.name: None for p in named if number == 0 or p.default is not p.empty}
        if len(named) == len(inspect.signature(constructor).parameters) - 1:
            return tuple(names), False
    return tuple(names), True


def _own(cls: type) -> bool:
    return "__init__" in vars(cls)


def import_classes(config: Any) -> None:
    """Imports the modules of this package that a saved config names, since Keras finds only registered classes.

    Args:
        config: the config of a Keras object or model, with the configs of its parts.
    """
    parts = config.values() if isinstance(config, dict) else config if isinstance(config, list | tuple) else ()
    for part in parts:
        import_classes(part)
    if isinstance(config, dict) and str(config.get("module")).startswith("vsemb."):
        # Keras names a class that it does not find.
        with contextlib.suppress(ModuleNotFoundError):
            importlib.import_module(config["module"])


def build_layers(*pairs: tuple[Any, Any], dtype: str = "float32") -> None:
    """Build layers in this order, except None and built ones.

    A layer without a `build` of its own builds its inner layers in a call, so it is called on a symbolic input. Keras
    marks such a layer as built when it loads it, and its inner layers would keep random weights.

    Args:
        pairs: a layer and the shape of its inputs.
        dtype: data type of the inputs.
    """
    for layer, shape in pairs:
        if layer is None:
            continue
        if getattr(layer.build, "_is_default", False):
            if not all(each.built for each in layer._flatten_layers()):
                layer(keras.KerasTensor(tuple(shape), dtype))
        elif not layer.built:
            layer.build(shape)


def uniform(scale: float | None, otherwise: Any) -> Any:
    """Return a new initializer to [-scale, scale]; `otherwise` if the scale is None."""
    return otherwise if scale is None else keras.initializers.RandomUniform(-scale, scale)
