"""The picture of classes: near ones together, thumbnails in their places, what is refused."""

from __future__ import annotations

import builtins
import io

import numpy as np
import pytest
from PIL import Image

from tests.raising import raises_argument
from vsemb.errors import DataError, MissingExtraError
from vsemb.systems.zero_shot.recognition import SIDE, check_picture, class_points, draw_classes


def two_groups(each: int = 6) -> np.ndarray:
    generator = np.random.default_rng(1)
    centres = np.repeat([[3.0, 0, 0, 0], [0, 0, 3.0, 0]], each, axis=0)
    return centres + 0.3 * generator.normal(size=(2 * each, 4))


def png(colour: str, size: tuple[int, int] = (90, 60)) -> bytes:
    buffer = io.BytesIO()
    Image.new("RGB", size, colour).save(buffer, "PNG")
    return buffer.getvalue()


def test_near_classes_lie_near_each_other() -> None:
    points = class_points(two_groups())
    assert points.shape == (12, 2)
    np.testing.assert_allclose((points.min(axis=0), points.max(axis=0)), ((0, 0), (1, 1)))
    distances = np.linalg.norm(points[:, None] - points[None], axis=-1)
    np.fill_diagonal(distances, np.inf)
    assert (distances.argmin(axis=1) // 6 == np.arange(12) // 6).all()


def test_the_seed_decides() -> None:
    first = class_points(two_groups(), seed=3)
    np.testing.assert_array_equal(first, class_points(two_groups(), seed=3))
    assert np.abs(first - class_points(two_groups(), seed=4)).max() > 0.01
    class_points(two_groups(), seed=2**32 - 1)


def test_four_classes_are_enough_even_where_they_coincide() -> None:
    assert np.isfinite(class_points(np.eye(4))).all()
    assert np.isfinite(class_points(np.zeros((5, 3)))).all()
    with pytest.raises(DataError, match=r"\b4\b.*\b3\b"):
        class_points(np.eye(3))
    with pytest.raises(DataError, match="NaN"):
        class_points(np.full((5, 3), np.nan))


def test_images_stand_in_their_places() -> None:
    points = np.array([[0, 0], [1, 0], [0, 1], [1, 1]])
    colours = ["red", "lime", "blue", "black"]
    picture = draw_classes(points, ["a", "b" * 40, "c", "d"], [png(colour) for colour in colours])
    assert picture.size == (SIDE, SIDE) and picture.mode == "RGB"
    pixels = np.asarray(picture)
    for colour, (x, y) in zip([(255, 0, 0), (0, 255, 0), (0, 0, 255), (0, 0, 0)], points, strict=True):
        rows, columns = np.nonzero((pixels == colour).all(axis=-1))
        assert len(rows) > 2000
        assert (abs(columns.mean() / SIDE - x) < 0.1) and (abs(rows.mean() / SIDE - y) < 0.1)


def test_without_scikit_learn(monkeypatch) -> None:
    real = builtins.__import__

    def refuse(name, *args, **kwargs):
        if name.startswith("sklearn"):
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", refuse)
    for attempt in (lambda: class_points(two_groups()), lambda: check_picture("classes.png", 4)):
        with pytest.raises(MissingExtraError, match=r"vsemb\[report\]"):
            attempt()


def test_what_cannot_be_drawn_is_known_before(tmp_path) -> None:
    check_picture(tmp_path / "classes.png", 4)
    check_picture("classes.PNG", 4)
    for name in ("classes.jpg", "png", "classes.png.gz", ""):
        with raises_argument("picture"):
            check_picture(name, 4)
    with pytest.raises(DataError, match=r"\b4\b.*\b3\b"):
        check_picture("classes.png", 3)


@pytest.mark.parametrize("seed", [-1, 2**32])
def test_seeds_have_a_range(seed: int) -> None:
    with raises_argument("seed"):
        class_points(two_groups(), seed=seed)
