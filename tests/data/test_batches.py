"""Training batches: what is in them, and that (seed, epoch, step) decides it."""

from __future__ import annotations

import gc
import weakref

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.raising import raises_argument
from vsemb.data.batches import (
    IMAGES,
    NEGATIVE_IMAGES,
    NEGATIVES,
    ORDER,
    BatchSource,
    PairBatches,
    image_batches,
    pad_ids,
    stream,
    text_batches,
)
from vsemb.data.features.store import FeatureStore
from vsemb.data.sources import FeatureImages
from vsemb.errors import DataError
from vsemb.text import Vocabulary, WordTokenizer


@pytest.fixture(scope="module")
def split(scenes):
    return scenes.split("train")


class FinishedImages(FeatureImages):
    """Features with a `finish` of their own, so that batches have a seed."""

    def finish(self, images: tf.Tensor, seed: tf.Tensor | None) -> tf.Tensor:
        return images


@pytest.fixture(scope="module")
def make(scenes, split):
    images = FinishedImages(FeatureStore.find(scenes), split)
    tokenizer = WordTokenizer(Vocabulary.from_captions(split.captions))

    def build(**options) -> PairBatches:
        return PairBatches(split, images, tokenizer, **{"batch_size": 7, "seed": 4, **options})

    return build


def read(dataset: tf.data.Dataset) -> list[dict[str, np.ndarray]]:
    return list(dataset.as_numpy_iterator())


def same(one: list[dict[str, np.ndarray]], other: list[dict[str, np.ndarray]]) -> bool:
    return len(one) == len(other) and all(
        set(a) == set(b) and all(np.array_equal(a[name], b[name]) for name in a)
        for a, b in zip(one, other, strict=True)
    )


class Rows(BatchSource):
    """Batches of the numbers of their rows."""

    def gather(self, rows: np.ndarray) -> np.ndarray:
        return rows

    def signature(self) -> tf.TensorSpec:
        return tf.TensorSpec((self.batch_size,), tf.int64)


def rows_of(lengths: list[np.ndarray], **options) -> Rows:
    return Rows(lengths, **{"batch_size": 10, "seed": 4, **options})


def test_a_source_is_freed_with_its_datasets() -> None:
    source = rows_of([np.ones(25)])
    dataset, held = source.dataset().map(lambda rows: rows + 0), weakref.ref(source)
    steps, iterator = source.steps_per_epoch, iter(dataset)
    del source
    gc.collect()
    assert len(list(dataset.as_numpy_iterator())) == steps
    del dataset
    gc.collect()
    # The iterator alone still reads all.
    assert len(list(iterator)) == steps
    del iterator
    gc.collect()
    assert held() is None


def test_a_dataset_that_is_made_in_a_graph() -> None:
    made = tf.data.Dataset.range(2).interleave(lambda _: rows_of([np.ones(25)]).dataset())
    gc.collect()
    assert len(list(made)) == 2 * rows_of([np.ones(25)]).steps_per_epoch


def random_lengths(count: int, high: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(1, high, count)


def test_rows_of_a_batch_are_alike_in_length_and_among_equals_in_the_next() -> None:
    first, second = random_lengths(500, 6), random_lengths(500, 40, seed=1)
    plan = rows_of([first, second]).plan(0)
    assert sorted(plan.ravel()) == list(range(500))
    # All in one window: only batches at the borders of a length hold two lengths.
    mixed = np.ptp(first[plan], axis=1) > 0
    assert mixed.sum() <= 4 and np.ptp(second[plan][~mixed], axis=1).mean() < 8
    assert np.ptp(second[rows_of([first]).plan(0)], axis=1).mean() > 20
    # The order of batches is not that of lengths.
    assert (np.diff(first[plan].mean(axis=1)) < 0).any()


def test_windows_keep_the_order_of_an_epoch_random() -> None:
    # 2,000 rows are four windows of 50 batches of 10: short rows are in each of them.
    lengths = random_lengths(2000, 100)
    plan = rows_of([lengths]).plan(0)
    assert (lengths[plan].max(axis=1) < 10).sum() >= 4


@pytest.mark.parametrize("step", [0, 1, 11, 23])
def test_any_source_goes_on_at_any_step(step: int) -> None:
    def read_rows(*position: int) -> list[list[int]]:
        return [rows.numpy().tolist() for rows in rows_of([random_lengths(245, 9)]).dataset(*position)]

    whole = read_rows(3)
    assert len(whole) == 24 and read_rows(3, step) == whole[step:]


class Couples(Rows):
    fewest = 2


def test_the_fewest_rows_are_enough_and_one_less_is_not() -> None:
    assert Couples([np.ones(2)], batch_size=2).steps_per_epoch == 1
    with pytest.raises(DataError):
        Couples([np.ones(1)], batch_size=2)


def test_arrays_begin_with_the_first_epoch(make) -> None:
    (batch,) = next(make().arrays())
    first, second = (next(make().epoch(epoch, 0))["text"] for epoch in (0, 1))
    assert np.array_equal(batch["text"], first) and not np.array_equal(first, second)


def test_no_seed_epoch_or_purpose_shares_draws() -> None:
    draws = {
        tuple(stream(seed, epoch, purpose).integers(1 << 30, size=4))
        for seed in range(4)
        for epoch in range(4)
        for purpose in (ORDER, NEGATIVES, IMAGES, NEGATIVE_IMAGES)
    }
    assert len(draws) == 4 * 4 * 4


def image_seeds(make, seed: int, epoch: int, **options) -> dict[str, list[tuple[int, ...]]]:
    """What augments the images of an epoch: name of the seed -> one a step."""
    batches = make(seed=seed, **options)
    seeds: dict[str, list[tuple[int, ...]]] = {}
    for batch in batches.epoch(epoch, 0):
        for name in ("seed", "negative_seed"):
            if name in batch:
                seeds.setdefault(name, []).append(tuple(batch[name].tolist()))
    return seeds


def test_seed_1_does_not_replay_seed_0_one_epoch_later(make) -> None:
    assert (make(seed=1).plan(0) != make(seed=0).plan(1)).any()
    one, other = image_seeds(make, 1, 0)["seed"], image_seeds(make, 0, 1)["seed"]
    assert not set(one) & set(other)


def test_sampled_negatives_share_no_draws_with_the_pairs(make) -> None:
    seeds = image_seeds(make, 0, 0, negatives="sampled")
    assert len(seeds["seed"]) == len(seeds["negative_seed"]) == 34
    assert not set(seeds["seed"]) & set(seeds["negative_seed"])
    # From the middle of an epoch they are the same.
    tail = [tuple(batch["negative_seed"].tolist()) for batch in make(seed=0, negatives="sampled").epoch(0, 30)]
    assert tail == seeds["negative_seed"][30:]


def test_each_caption_at_most_once_an_epoch(make, split) -> None:
    batches = make()
    # 48 images of 5 captions: 240 = 34 * 7 + 2.
    assert batches.steps_per_epoch == 34
    left_out = set()
    for epoch in range(3):
        plan = batches.plan(epoch)
        assert plan.shape == (34, 7)
        assert len(np.unique(plan)) == 34 * 7
        left_out |= set(range(240)) - set(plan.ravel().tolist())
    # Two are left out each time, and not the same ones.
    assert 2 < len(left_out) <= 6


def test_plans_follow_from_seed_and_epoch(make) -> None:
    np.testing.assert_array_equal(make().plan(3), make().plan(3))
    assert (make().plan(3) != make().plan(4)).any()
    assert (make().plan(3) != make(seed=5).plan(3)).any()


def test_batches_hold_what_the_plan_says(make, split) -> None:
    batches = make()
    tokenizer = WordTokenizer(Vocabulary.from_captions(split.captions))
    features = batches.images.gather(np.arange(len(split)))
    for captions, batch in zip(batches.plan(2), read(batches.dataset(2)), strict=True):
        rows = split.caption_rows[captions]
        assert batch["image_id"].dtype == np.int64
        np.testing.assert_array_equal(batch["image_id"], split.ids[rows])
        np.testing.assert_array_equal(batch["image"], features[rows])
        texts = tokenizer([split.captions[i] for i in captions]).numpy()
        np.testing.assert_array_equal(batch["text"], texts)
        assert set(batch) == {"image", "text", "image_id"}


def test_captions_of_a_batch_have_nearly_one_length(make) -> None:
    batches = make()
    lengths = [(batch["text"] != 0).sum(1) for batch in read(batches.dataset())]
    assert np.mean(np.ptp(lengths, axis=1)) < np.ptp(lengths) / 4
    # ... but the order of the batches is not that of their lengths.
    steps = [batch["text"].shape[1] for batch in read(batches.dataset())]
    assert steps != sorted(steps)


@pytest.mark.parametrize("negatives", ["batch", "sampled"])
@pytest.mark.parametrize("step", [0, 1, 20, 33])
def test_a_late_start_gives_the_tail(make, negatives: str, step: int) -> None:
    whole = read(make(negatives=negatives).dataset(5))
    tail = make(negatives=negatives).dataset(5, step)
    assert int(tail.cardinality()) == 34 - step
    assert same(read(tail), whole[step:])


def test_each_iteration_is_the_next_epoch(make) -> None:
    dataset = make().dataset(1)
    first, second = read(dataset), read(dataset)
    assert same(first, read(make().dataset(1)))
    assert same(second, read(make().dataset(2)))
    assert not same(first, second)


def test_one_caption_an_image(make, split) -> None:
    batches = make(captions="one")
    assert batches.steps_per_epoch == 48 // 7
    chosen = []
    for epoch in range(60):
        captions = batches.plan(epoch).ravel()
        rows = split.caption_rows[captions]
        assert len(np.unique(rows)) == len(rows) == 42
        chosen.append(captions[rows == rows.min()])
    # Over the epochs every caption has its turn.
    seen = np.unique(np.concatenate([batches.plan(epoch).ravel() for epoch in range(60)]))
    assert len(seen) > 235


def test_one_caption_of_images_with_different_numbers(make) -> None:
    class Few:
        name = "few"
        ids = np.array([3, 5, 9])
        captions = ["a", "b b", "c", "d", "e", "f"]
        caption_rows = np.array([0, 1, 1, 1, 2, 2])
        caption_offsets = np.array([0, 1, 4, 6])
        __len__ = lambda self: 3  # noqa: E731

    class Images:
        spec = tf.TensorSpec((1,), tf.float32)

        def gather(self, rows):
            return rows[:, None].astype(np.float32)

        def finish(self, images, seed):
            return images

    batches = PairBatches(Few(), Images(), WordTokenizer(Vocabulary(["a"])), batch_size=3, captions="one")
    drawn = np.concatenate([batches.plan(epoch) for epoch in range(300)])
    assert set(map(len, map(set, Few.caption_rows[drawn]))) == {3}
    share = np.bincount(drawn.ravel(), minlength=6) / 300
    # Evenly within an image: 1; 1/3 each; 1/2 each. 300 draws of 1/3 deviate by 0.027.
    np.testing.assert_allclose(share, [1, 1 / 3, 1 / 3, 1 / 3, 1 / 2, 1 / 2], atol=0.12)


def test_sampled_negatives_come_from_the_whole_split(make, split) -> None:
    batches = make(negatives="sampled")
    first = read(batches.dataset(0))
    assert same(first, read(make(negatives="sampled").dataset(0)))
    assert not same(first, read(batches.dataset(1)))
    features = {int(i): f for i, f in zip(split.ids, batches.images.gather(np.arange(48)), strict=True)}
    tokenizer = WordTokenizer(Vocabulary.from_captions(split.captions))
    texts: dict[int, set[tuple[int, ...]]] = {}
    for row, caption in zip(split.caption_rows, split.captions, strict=True):
        ids = tuple(tokenizer([caption]).numpy()[0].tolist())
        texts.setdefault(int(split.ids[row]), set()).add(ids)
    seen_images, seen_texts = set(), set()
    for batch in first:
        assert len(batch["negative_image"]) == len(batch["negative_text"]) == 7
        for image, number in zip(batch["negative_image"], batch["negative_image_id"], strict=True):
            np.testing.assert_array_equal(image, features[int(number)])
            seen_images.add(int(number))
        for ids, number in zip(batch["negative_text"], batch["negative_text_id"], strict=True):
            assert tuple(ids[ids != 0].tolist()) in texts[int(number)]
            seen_texts.add(int(number))
    # 238 draws from 48 images: each is missed with probability (47/48)**238 = 0.7 %.
    assert len(seen_images) > 43 and len(seen_texts) > 43
    # The pairs themselves are those of in-batch training.
    np.testing.assert_array_equal(first[0]["image_id"], read(make().dataset(0))[0]["image_id"])


@pytest.mark.parametrize(
    ("options", "argument"),
    [
        ({"batch_size": 1}, "batch_size"),
        ({"captions": "first"}, "captions"),
        ({"negatives": "random"}, "negatives"),
    ],
)
def test_bad_options(make, options, argument: str) -> None:
    with raises_argument(argument):
        make(**options)


def test_a_batch_larger_than_the_split_is_made_smaller(make, capsys) -> None:
    assert make(batch_size=240).steps_per_epoch == 1 and capsys.readouterr().err == ""
    batches = make(batch_size=241)
    assert (batches.steps_per_epoch, batches.batch_size) == (1, 240)
    assert "batch size is lowered from 241 to 240, the number of pairs of the split 'train'" in capsys.readouterr().err
    (batch,) = read(make(batch_size=49, captions="one").dataset(0))
    assert len(set(batch["image_id"].tolist())) == 48


def test_pad_ids() -> None:
    ids, offsets = np.array([5, 6, 7, 8], np.int32), np.array([0, 2, 2, 3, 4])
    padded = pad_ids(ids, offsets, np.array([2, 0, 1, 2]))
    assert padded.dtype == np.int32
    assert padded.tolist() == [[7, 0], [5, 6], [0, 0], [7, 0]]
    # A row without tokens has one step of padding; so has no row at all.
    assert pad_ids(ids, offsets, np.array([1])).tolist() == [[0]]
    assert pad_ids(ids, offsets, np.zeros(0, np.int64)).shape == (0, 1)
    assert pad_ids(np.zeros(0, np.int32), np.array([0, 0]), np.array([0])).tolist() == [[0]]
    # An empty row at the very end, whose offset is behind the last token.
    assert pad_ids(ids, np.array([0, 4, 4]), np.array([1, 0])).tolist() == [[0, 0, 0, 0], [5, 6, 7, 8]]


@pytest.mark.parametrize("batch_size", [1, 2, 3, 100])
def test_text_batches_are_a_permutation(batch_size: int) -> None:
    ids = np.arange(1, 11, dtype=np.int32)
    offsets = np.array([0, 4, 4, 5, 10])  # lengths 4, 0, 1, 5
    dataset, order = text_batches(ids, offsets, batch_size)
    rows = [row[row != 0].tolist() for batch in read(dataset) for row in batch["text"]]
    assert order.tolist() == [1, 2, 0, 3]
    assert rows == [[], [5], [1, 2, 3, 4], [6, 7, 8, 9, 10]]
    assert len(read(dataset)) == int(dataset.cardinality()) == -(-4 // batch_size)


def test_texts_may_have_several_numbers_per_token() -> None:
    ids = np.arange(1, 10, dtype=np.int32).reshape(3, 3)
    dataset, order = text_batches(ids, np.array([0, 2, 3]))
    (batch,) = read(dataset)
    assert order.tolist() == [1, 0]
    assert batch["text"].tolist() == [[[7, 8, 9], [0, 0, 0]], [[1, 2, 3], [4, 5, 6]]]


@pytest.mark.parametrize("batch_size", [1, 5, 12, 100])
def test_image_batches_keep_their_order(scenes, batch_size: int) -> None:
    split = scenes.split("val")
    images = FeatureImages(FeatureStore.find(scenes), split)
    dataset = image_batches(images, np.arange(12), batch_size)
    rows = np.concatenate([batch["image"] for batch in read(dataset)])
    np.testing.assert_array_equal(rows, FeatureStore.find(scenes).rows(split.ids))
    assert int(dataset.cardinality()) == -(-12 // batch_size)


class MovedImages(FeatureImages):
    """Features that `finish` moves by the batch's seed."""

    def finish(self, images: tf.Tensor, seed: tf.Tensor | None) -> tf.Tensor:
        return images + tf.cast(seed[1], tf.float32)


@pytest.mark.parametrize("images", [FeatureImages, MovedImages])
@pytest.mark.parametrize("negatives", ["batch", "sampled"])
def test_arrays_are_the_batches_of_the_dataset(scenes, split, negatives: str, images: type[FeatureImages]) -> None:
    tokenizer = WordTokenizer(Vocabulary.from_captions(split.captions))
    source = images(FeatureStore.find(scenes), split)
    batches = PairBatches(split, source, tokenizer, batch_size=7, negatives=negatives)
    expected = read(batches.dataset(2, 30)) + read(batches.dataset(3).take(2))
    for (arrays,), batch in zip(batches.arrays(2, 30), expected, strict=False):
        assert set(arrays) == set(batch)
        for name, values in batch.items():
            if name.endswith("_id"):
                # Smaller numbers, equal where the ids are.
                assert arrays[name].dtype == np.int32
                equal = values[:, None] == batch["image_id"]
                np.testing.assert_array_equal(arrays[name][:, None] == arrays["image_id"], equal)
            else:
                np.testing.assert_array_equal(arrays[name], values)


def test_texts_have_few_lengths_where_each_is_compiled(monkeypatch) -> None:
    monkeypatch.setattr(keras.backend, "backend", lambda: "jax")
    ids, offsets = np.arange(1, 23, dtype=np.int32), np.array([0, 3, 12, 22])
    padded = pad_ids(ids, offsets, np.arange(3))
    assert padded.shape == (3, 16) and (padded[:, 10:] == 0).all()
    assert pad_ids(ids, offsets, np.array([0])).tolist() == [[1, 2, 3, 0, 0, 0, 0, 0]]
