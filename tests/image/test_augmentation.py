"""Distortions of training images: the library's operations, drawn statelessly."""

from __future__ import annotations

import functools
import importlib.util
import itertools
import os
import sys

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.raising import raises_argument
from vsemb.errors import MissingExtraError
from vsemb.image import augmentation
from vsemb.image.augmentation import ImageAugmenter

needs_models = pytest.mark.skipif(
    importlib.util.find_spec("official") is None, reason="the extra models is not installed"
)
SIZE = 28
RATIO = SIZE / 224


@pytest.fixture(scope="module")
def library():
    """The library's module as others import it, which draws from a state."""
    pytest.importorskip("official", reason="the extra models is not installed")
    from official.vision.ops import augment

    return augment


@pytest.fixture(scope="module")
def image() -> np.ndarray:
    # Smooth and not symmetric, so that every operation does something of its own.
    down, across = np.mgrid[0:SIZE, 0:SIZE] / SIZE
    waves = [np.sin(3 * down + across), np.cos(5 * across - down), down * across]
    return np.rint(100 + 70 * np.stack(waves, axis=-1)).astype(np.uint8)


def operation(library, name: str, level: float, image: np.ndarray, cutout: float, translate: float) -> list:
    """All that the library's operation may make of an image."""
    arguments = {"Cutout": None, "AutoContrast": (), "Equalize": (), "Invert": ()}
    arguments |= {"Posterize": (int(level / 10 * 4),), "Solarize": (int(level / 10 * 256),)}
    arguments |= {"SolarizeAdd": (int(level / 10 * 110),)}
    arguments |= dict.fromkeys(("Color", "Contrast", "Brightness", "Sharpness"), (level / 10 * 1.8 + 0.1,))
    for names, most in (
        (("Rotate",), 30),
        (("ShearX", "ShearY"), 0.3),
        (("TranslateX", "TranslateY"), translate),
    ):
        arguments |= dict.fromkeys(names, (level / 10 * most,))
    if name == "Cutout":
        return [cut_out(image, y, x, int(level / 10 * cutout)) for y in range(SIZE) for x in range(SIZE)]
    given, function = arguments[name], library.NAME_TO_FUNC[name]
    if name in library.REPLACE_FUNCS:
        signed = [(given[0],), (-given[0],)]
        return [function(tf.constant(image), *each, [128] * 3).numpy() for each in signed]
    return [function(tf.constant(image), *given).numpy()]


def cut_out(image: np.ndarray, y: int, x: int, half: int) -> np.ndarray:
    result = image.copy()
    result[max(0, y - half) : y + half, max(0, x - half) : x + half] = 128
    return result


@functools.cache
def augmenter(policy: str | None = None, **options) -> ImageAugmenter:
    """An augmenter whose graph is traced once."""
    return ImageAugmenter(SIZE, policy, **options)


def distorted(augmenter: ImageAugmenter, image: np.ndarray, count: int, seed: tuple[int, int] = (3, 4)) -> np.ndarray:
    pixels: np.ndarray = augmenter(tf.constant(np.stack([image] * count)), tf.constant(seed)).numpy()
    return pixels


def keys(images) -> set[bytes]:
    return {np.asarray(each).tobytes() for each in images}


@pytest.mark.slow
def test_randaugment_is_the_librarys_operations(library, image) -> None:
    magnitude = 7.0
    names = library.RandAugment().available_ops
    possible = {name: keys(operation(library, name, magnitude, image, 40 * RATIO, 100 * RATIO)) for name in names}
    possible["nothing"] = keys([image])
    drawn = keys(distorted(augmenter("randaugment", magnitude=magnitude, layers=1), image, 300))
    assert drawn <= set().union(*possible.values())
    # One in 17 each: that one of 300 draws misses some has a probability of about 17 exp(-300 / 17) = 4e-7.
    assert all(drawn & each for each in possible.values())
    # Both directions of what has two.
    assert all(len(drawn & possible[name]) == 2 for name in ("Rotate", "ShearX", "TranslateY"))
    assert len(drawn & possible["Cutout"]) > 5


@pytest.mark.slow
def test_two_layers_are_one_after_the_other(library, image) -> None:
    names = [name for name in library.RandAugment().available_ops if name != "Cutout"]

    def once(given: np.ndarray) -> list[np.ndarray]:
        results = [operation(library, name, 9.0, given, 40 * RATIO, 100 * RATIO) for name in names]
        return [given, *itertools.chain(*results)]

    firsts = once(image)
    twice = keys(itertools.chain(*map(once, firsts)))
    drawn = distorted(augmenter("randaugment", magnitude=9.0), image, 300)
    inside = np.mean([each.tobytes() in twice for each in drawn])
    # Cutout, which has too many results to list, is not drawn with a probability of (16 / 17)^2.
    expected = (16 / 17) ** 2
    assert abs(inside - expected) < 4 * np.sqrt(expected * (1 - expected) / 300)
    assert len(keys(drawn) & twice - keys(firsts)) > 50


def check_autoaugment(given: ImageAugmenter, library, image, policy: list, different: int) -> None:
    possible = set()
    for first, second in policy:
        results = [image]
        for name, probability, level in (first, second):
            done = [
                result for each in results for result in operation(library, name, level, each, 100 * RATIO, 250 * RATIO)
            ]
            results = done + (results if probability < 1 else [])
        possible |= keys(results)
    drawn = keys(distorted(given, image, 200))
    assert drawn <= possible
    assert len(drawn) > different


@pytest.fixture
def autoaugment(library, monkeypatch: pytest.MonkeyPatch) -> ImageAugmenter:
    """An augmenter with 5 of the 25 pairs of operations, among them each of a kind; the rest is as it is."""
    policy = library.AutoAugment.policy_v0()[14:19]
    monkeypatch.setattr(augmentation._stateless_module().AutoAugment, "policy_v0", staticmethod(lambda: policy))
    given = augmenter("autoaugment")
    assert given._policy(augmentation._stateless_module()).policies == policy
    return given


def test_autoaugment_is_the_policy_of_the_paper(autoaugment, library, image) -> None:
    policy = library.AutoAugment.policy_v0()[14:19]
    assert {name for each in policy for name, _, _ in each} >= {"Color", "Rotate", "ShearY", "TranslateY", "Solarize"}
    check_autoaugment(autoaugment, library, image, policy, different=8)


@pytest.mark.slow
def test_autoaugment_is_the_whole_policy_of_the_paper(library, image) -> None:
    check_autoaugment(ImageAugmenter(SIZE, "autoaugment"), library, image, library.AutoAugment.policy_v0(), 20)


def test_erasing_makes_noise_of_a_rectangle(library, image) -> None:
    images = distorted(augmenter(erasing=0.5), image, 400)
    changed = (images != image).any(axis=-1)
    erased = changed.any(axis=(1, 2))
    # Four standard deviations of a share of 400.
    assert abs(erased.mean() - 0.5) < 4 * np.sqrt(0.25 / 400)
    noise = []
    for pixels, where in zip(images[erased], changed[erased], strict=True):
        rows, columns = np.flatnonzero(where.any(axis=1)), np.flatnonzero(where.any(axis=0))
        box = np.s_[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1]
        # A pixel of noise may be what was there before, seldom.
        assert where[box].mean() > 0.9
        assert where.sum() / SIZE**2 < 1 / 3 + 0.1
        noise.append(pixels[box].reshape(-1, 3))
    noise = np.concatenate(noise)
    np.testing.assert_allclose(noise.mean(axis=0), augmentation._MEAN, atol=3)
    np.testing.assert_allclose(noise.std(axis=0), augmentation._DEVIATION, atol=6)


#: A policy and erasing, one after the other.
BOTH = {"policy": "randaugment", "magnitude": 7.0, "layers": 1, "erasing": 0.5}


@pytest.mark.slow
@needs_models
def test_the_same_seed_gives_the_same_images(autoaugment, image) -> None:
    for given in (augmenter(**BOTH), autoaugment):
        first = distorted(given, image, 12)
        tf.random.uniform([])
        # Every row has draws of its own, and every step.
        assert len(keys(first)) > 3
        other = distorted(given, image, 12, (3, 5))
        assert (first != other).any(axis=(1, 2, 3)).mean() > 0.5
        np.testing.assert_array_equal(distorted(given, image, 12), first)
    # In a dataset, in parallel, and whichever batch comes first.
    seeds = tf.data.Dataset.from_tensor_slices(np.array([[3, 5], [3, 4]], np.int32))
    batch = tf.cast(np.stack([image] * 12), tf.float32)
    mapped = list(seeds.map(lambda seed: autoaugment(batch, seed), num_parallel_calls=2).as_numpy_iterator())
    assert mapped[0].dtype == np.float32
    np.testing.assert_array_equal(mapped, [other, first])
    # Of a graph that is traced anew.
    again = ImageAugmenter(SIZE, erasing=0.5)
    np.testing.assert_array_equal(distorted(again, image, 12), distorted(augmenter(erasing=0.5), image, 12))


@needs_models
def test_the_graph_has_no_state_and_no_operation_of_python(autoaugment) -> None:
    for given in (augmenter(**BOTH), autoaugment):
        graph = given._graph.get_concrete_function().graph.as_graph_def()
        nodes = [*graph.node, *itertools.chain(*(each.node_def for each in graph.library.function))]
        kinds = {node.op for node in nodes}
        assert any(kind.startswith("StatelessRandom") for kind in kinds)
        assert not [kind for kind in kinds if kind.startswith("Random") or kind.endswith("PyFunc")]


@needs_models
def test_a_draw_that_is_not_known_to_be_stateless_is_an_error() -> None:
    module = augmentation._stateless_module()
    with pytest.raises(AttributeError):
        module.__dict__["tf"].random.shuffle([1, 2])
    assert module.__dict__["tf"].image is tf.image


def test_others_import_the_library_as_it_is(library) -> None:
    ImageAugmenter(SIZE, "randaugment")
    assert library.tf is tf
    assert library is not augmentation._stateless_module()


@needs_models
def test_keras_stays_keras_3() -> None:
    ImageAugmenter(SIZE, "randaugment")
    assert keras.__version__[0] == "3" and tf.keras.__version__[0] == "3", tf.keras.__version__
    assert "TF_USE_LEGACY_KERAS" not in os.environ


@pytest.mark.parametrize(
    ("options", "argument"),
    [
        ({"policy": "randaug"}, "policy"),
        ({}, "policy"),
        ({"erasing": 1.5}, "erasing"),
        ({"policy": "randaugment", "magnitude": 31}, "magnitude"),
        ({"policy": "randaugment", "layers": 0}, "layers"),
    ],
)
def test_refusals(options, argument) -> None:
    with raises_argument(argument):
        ImageAugmenter(SIZE, **options)


def test_without_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(augmentation, "_stateless_module", augmentation._stateless_module.__wrapped__)
    for name in ("official", "official.vision.ops"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(MissingExtraError, match=r"'vsemb\[models\]'"):
        ImageAugmenter(SIZE, "randaugment")
