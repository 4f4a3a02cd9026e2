"""Groups of captions: an image once for several of its captions."""

from __future__ import annotations

import numpy as np
import pytest

from tests.data.test_batches import read, same
from tests.raising import raises_argument
from vsemb.data.caption_groups import GroupBatches
from vsemb.data.features.store import FeatureStore
from vsemb.data.sources import FeatureImages
from vsemb.text import Vocabulary, WordTokenizer


@pytest.fixture(scope="module")
def make(scenes):
    split = scenes.split("train")
    images = FeatureImages(FeatureStore.find(scenes), split)
    tokenizer = WordTokenizer(Vocabulary.from_captions(split.captions))

    def build(**options) -> GroupBatches:
        options = {"split": split, "batch_size": 6, "group_size": 2, "seed": 4, **options}
        return GroupBatches(images=images, tokenizer=tokenizer, **options)

    return build


@pytest.mark.parametrize("group", [2, 3, 4])
def test_each_caption_occurs_once_or_where_it_fills_a_group_twice(make, group: int) -> None:
    batches = make(group_size=group)
    split = batches.split
    plan = batches.plan(0)
    assert plan.shape == (batches.steps_per_epoch, 6 * group)
    times = np.bincount(plan.ravel(), minlength=len(split.captions))
    groups = plan.reshape(-1, group)
    images = split.rows_of(groups.ravel()).reshape(groups.shape)
    assert (images == images[:, :1]).all()
    count = np.diff(split.caption_offsets)
    # The rows of the last batch are left out.
    assert times.sum() == plan.size and plan.size > (-(-count // group)).sum() * group - 6 * group
    assert times.max() <= 1 + (count % group > 0).any()
    if (count >= group).all():
        assert (np.sort(groups)[:, 1:] > np.sort(groups)[:, :-1]).all()


def test_a_batch_has_each_image_once_and_its_captions(make) -> None:
    batches = make()
    [batch, *_] = read(batches.dataset())
    assert batch["image"].shape[0] == batch["image_id"].shape[0] == 6 and batch["text"].shape[0] == 12
    assert (batch["text_image_id"] == np.repeat(batch["image_id"], 2)).all()
    rows = batches.split.rows_of(batches.plan(0)[0])[::2]
    assert (batch["image_id"] == batches.split.ids[rows]).all()
    assert (batch["image"] == batches.images.gather(rows)).all()


def test_epochs_differ_and_go_on_at_any_step(make) -> None:
    steps = make().steps_per_epoch
    whole, other = (read(make().dataset(epoch).take(steps)) for epoch in (1, 2))
    assert not same(whole, other) and same(read(make().dataset(1, 2)), whole[2:])


@pytest.mark.parametrize("captions", [1, 2])
def test_a_group_has_at_most_the_captions_of_an_image(make, captions: int) -> None:
    few = make().split.first_captions(captions)
    batches = make(split=few, group_size=4)
    assert batches.group_size == captions and batches.plan(0).shape[1] == batches.batch_size == 6 * captions
    assert np.unique(batches.plan(0)).size == batches.plan(0).size


def test_a_small_training_set_has_smaller_batches(make, capsys) -> None:
    few = make().split.first_captions(3)
    batches = make(split=few, batch_size=10_000)
    assert f"lowered from 20000 to {len(few.captions)}, the number of pairs" in capsys.readouterr().err
    assert batches.units == len(few.captions) // 2 and batches.steps_per_epoch == 1
    assert batches.plan(0).shape == (1, batches.batch_size)


def test_a_group_has_a_caption(make) -> None:
    with raises_argument("group_size"):
        make(group_size=0)
