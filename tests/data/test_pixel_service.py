"""Pixels from a tf.data service: a dispatcher and workers in this process, and what becomes of lost ones."""

from __future__ import annotations

import socket

import numpy as np
import pytest
import tensorflow as tf

from tests.raising import raises_argument
from vsemb.data.batches import PairBatches
from vsemb.data.sources import PixelImages, ServicePixels, service_address
from vsemb.data.store import Split
from vsemb.errors import DataError
from vsemb.text import Vocabulary, WordTokenizer

service = tf.data.experimental.service

#: All services of this process. To stop one waits for clients that may never return, so they end with the process.
KEPT = []


class Service:
    """A dispatcher and some workers."""

    def __init__(self, workers: int) -> None:
        self.dispatcher = service.DispatchServer()
        self.address = self.dispatcher.target
        self.workers = [self.worker() for _ in range(workers)]
        KEPT.append(self)

    def worker(self):
        config = service.WorkerConfig(
            dispatcher_address=self.address.removeprefix("grpc://"), heartbeat_interval_ms=200
        )
        return service.WorkerServer(config)


@pytest.fixture(scope="module")
def two_workers():
    return Service(2)


@pytest.fixture(scope="module")
def tokenizer(scenes):
    return WordTokenizer(Vocabulary.from_captions(scenes.split("train").captions))


def read(batches: PairBatches, epoch: int, step: int = 0) -> list[dict[str, np.ndarray]]:
    return list(batches.dataset(epoch, step).as_numpy_iterator())


def assert_same(one: list[dict[str, np.ndarray]], other: list[dict[str, np.ndarray]]) -> None:
    assert len(one) == len(other) > 0
    for first, second in zip(one, other, strict=True):
        assert set(first) == set(second)
        for name in first:
            assert first[name].dtype == second[name].dtype
            np.testing.assert_array_equal(first[name], second[name])


@pytest.mark.slow
def test_batches_are_those_made_here(scenes, tokenizer, two_workers) -> None:
    split = scenes.split("train")
    images = ServicePixels(split, 24, address=two_workers.address)
    here = PairBatches(split, PixelImages(split, 24), tokenizer, batch_size=9, seed=2, captions="one")
    there = PairBatches(split, images, tokenizer, batch_size=9, seed=2, captions="one")
    assert_same(read(here, 1), read(there, 1))
    # What a worker holds that starts late is made here once enough later batches wait.
    assert images.made_here < here.steps_per_epoch // 2


class Noise:
    """Stands for an `ImageAugmenter`, whose graph takes seconds."""

    def __call__(self, pixels: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
        noise = tf.random.stateless_uniform(tf.shape(pixels), seed, 0, 256, tf.int32)
        return tf.cast((tf.cast(pixels, tf.int32) + noise) % 256, pixels.dtype)


@pytest.mark.slow
def test_workers_distort_as_it_is_done_here(scenes, tokenizer, two_workers) -> None:
    split = scenes.split("train")
    images = ServicePixels(split, 24, address=two_workers.address, augment=True, augmenter=Noise())
    own = PixelImages(split, 24, augment=True, augmenter=Noise())
    here, there = (
        PairBatches(split, source, tokenizer, batch_size=9, seed=2, negatives="sampled", captions="one")
        for source in (own, images)
    )
    assert_same(read(here, 1), read(there, 1))
    assert images.made_here < there.steps_per_epoch // 2
    # Never outside training.
    plain = ServicePixels(split, 24, address=two_workers.address, augment=True)
    np.testing.assert_array_equal(images.gather(np.arange(3)), plain.gather(np.arange(3)))


@pytest.mark.slow
def test_a_resumed_epoch(scenes, tokenizer, two_workers) -> None:
    split = scenes.split("train")
    images = ServicePixels(split, 24, address=two_workers.address, augment=True)
    here = PairBatches(split, PixelImages(split, 24, augment=True), tokenizer, batch_size=9, seed=2)
    there = PairBatches(split, images, tokenizer, batch_size=9, seed=2)
    assert_same(read(here, 2, 20), read(there, 2, 20))


@pytest.mark.slow
def test_lost_workers_change_nothing(scenes, tokenizer) -> None:
    split = scenes.split("train")
    lost = Service(1)
    images = ServicePixels(split, 24, address=lost.address, augment=True, patience=120.0)
    here = PairBatches(split, PixelImages(split, 24, augment=True), tokenizer, batch_size=2, seed=2)
    there = PairBatches(split, images, tokenizer, batch_size=2, seed=2)
    received = []
    with pytest.warns(UserWarning, match="has sent nothing for 1 seconds"):
        for batch in there.dataset().as_numpy_iterator():
            received.append(batch)
            if len(received) == 2:
                lost.workers.pop()._stop()
                images._patience = 1.0
    assert_same(read(here, 0), received)
    assert 0 < images.made_here < len(received)


@pytest.mark.slow
def test_a_service_without_workers(scenes, tokenizer) -> None:
    split = scenes.split("val")
    alone = Service(0)
    images = ServicePixels(split, 24, address=alone.address, patience=0.5)
    with pytest.warns(UserWarning, match="decoded here"):
        received = list(images.stream(np.array([[0, 1], [2, 3]]), np.zeros((2, 2), np.int32)))
    wanted = PixelImages(split, 24)
    np.testing.assert_array_equal(received[1], wanted.finish(wanted.gather(np.array([2, 3])), None))
    np.testing.assert_array_equal(images.gather(np.array([2, 3])), received[1])
    assert images.made_here == 2


@pytest.mark.slow
def test_workers_that_do_not_find_the_shards(scenes, two_workers, monkeypatch) -> None:
    split = scenes.split("val")
    images = ServicePixels(split, 24, address=two_workers.address)
    here = images._distributed

    def elsewhere(rows: np.ndarray, seeds: np.ndarray) -> tf.data.Dataset:
        with monkeypatch.context() as patch:
            patch.setattr(Split, "shards", ["/no/such/shard.tfrecord"])
            return here(rows, seeds)

    monkeypatch.setattr(images, "_distributed", elsewhere)
    with pytest.warns(UserWarning, match="has stopped .*no/such/shard"):
        received = list(images.stream(np.array([[0, 1], [2, 3]]), np.zeros((2, 2), np.int32)))
    wanted = PixelImages(split, 24)
    np.testing.assert_array_equal(received[0], wanted.finish(wanted.gather(np.array([0, 1])), None))


def test_addresses(scenes) -> None:
    for wrong in ("localhost:1", "grpc://", "grpc://localhost", "grpc://localhost:http", "grpc://h:99999"):
        with raises_argument("data_service"):
            service_address(wrong)
    with socket.socket() as taken:  # Bound and not listening: nobody answers.
        taken.bind(("localhost", 0))
        with pytest.raises(DataError, match="tf.data"):
            ServicePixels(scenes.split("val"), 24, address=f"grpc://localhost:{taken.getsockname()[1]}")
