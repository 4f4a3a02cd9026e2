"""Measuring a run by both protocols of retrieval."""

from __future__ import annotations

import pytest

from vsemb.evaluation import Embedder, evaluate_retrieval
from vsemb.runs.measure import evaluate_run


def test_pairs_are_the_first_images_with_their_first_captions_embedded_once(tiny_run, scenes, monkeypatch) -> None:
    calls = []
    for name in ("images", "texts"):
        real = getattr(Embedder, name)

        def counted(self, *args, real=real, name=name, **kwargs):
            calls.append(name)
            return real(self, *args, **kwargs)

        monkeypatch.setattr(Embedder, name, counted)
    metrics = evaluate_run(tiny_run, scenes, "test", recalls=(1, 5, 10, 20, 50), pairs=7)
    assert calls == ["images", "texts"]
    assert metrics.pairs is not None and (metrics.pairs.images, metrics.pairs.texts) == (7, 7)
    # By hand: the split's entries are in the order of the index, captions in the order of an entry.
    part = scenes.split("test")
    embedder = Embedder(tiny_run.model)
    images = embedder.images(tiny_run.images_of(scenes, part), 7)
    captions = [entry["captions"][0] for entry in part.entries[:7]]
    texts = embedder.texts(*tiny_run.encode(captions))
    ids = part.ids[:7]
    expected = evaluate_retrieval(images, texts, ids, ids, tiny_run.model.similarity)
    for side in ("image_to_text", "text_to_image"):
        found, by_hand = getattr(metrics.pairs, side), getattr(expected, side)
        # Other batches may round otherwise; ranks among seven do not notice.
        assert {name: found[name] for name in by_hand} == pytest.approx(by_hand, rel=1e-9)
        assert found["R@20"] == found["R@50"] == 100


def test_asking_for_pairs_changes_nothing_else(tiny_run, scenes) -> None:
    alone = evaluate_run(tiny_run, scenes, "val", folds=3, bootstrap=20)
    beside = evaluate_run(tiny_run, scenes, "val", folds=3, bootstrap=20, pairs=12)
    written = beside.to_json()
    assert set(written.pop("pairs")) == set(written) == set(alone.to_json())
    assert written == alone.to_json()
