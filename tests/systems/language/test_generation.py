"""What an SC-NLM's run needs to write captions: prepared whole, opened again, refused where it is broken."""

from __future__ import annotations

import dataclasses
import json
import re
import shutil
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import tensorflow as tf

from tests.raising import raises_argument
from vsemb import Run
from vsemb.errors import DataError, MissingExtraError
from vsemb.systems.language import generation
from vsemb.systems.language.candidates import RankingWeights
from vsemb.systems.language.conditioning import encoder_of
from vsemb.systems.language.generation import (
    CONTENT,
    FOLDER,
    GRID,
    check_generation,
    draw_sequences,
    load_captioner,
    prepare_generation,
    read_stopwords,
    tune_weights,
)

pytest.importorskip("pycocoevalcap", reason="the extra captions is not installed")


@pytest.fixture
def copied(language_run, tmp_path: Path) -> Run:
    """A copy of `language_run` that a test may change."""
    return Run.open(shutil.copytree(language_run.path, tmp_path / "run"))


def rows_of(run: Run, dataset, count: int = 3) -> tf.Tensor:
    source = encoder_of(run).images_of(dataset, dataset.split("test"))
    return source.finish(tf.constant(source.gather(np.arange(count))), None)


@pytest.mark.slow
def test_captions_are_written(language_run, tagged_scenes) -> None:
    captioner = load_captioner(language_run, n_best=3, candidates=6)
    texts, log_probs = captioner(rows_of(language_run, tagged_scenes))
    assert (texts.shape, log_probs.shape) == ((3, 3), (3, 3))
    known = {*language_run.vocabulary.words}
    for text in texts.numpy().ravel():
        words = text.decode().replace("'s", " 's").split()
        assert 4 <= len(words) <= 12
        assert set(words) <= known
    assert (log_probs.numpy() < 0).all()
    # Opened again, the same weights and parts.
    again = load_captioner(Run.open(language_run.path), n_best=3, candidates=6)
    for one, other in zip(again.variables, captioner.variables, strict=True):
        np.testing.assert_array_equal(one, other)


def test_the_recipe_is_followed_unless_told_otherwise(language_run) -> None:
    captioner = load_captioner(language_run)
    recipe = language_run.recipe.model.writing
    assert captioner.candidates == recipe.candidates
    assert (captioner.beam, captioner.neighbours, captioner.n_best) == (recipe.beam, recipe.neighbours, 5)
    other = load_captioner(language_run, candidates=7, beam=2, n_best=1)
    assert (other.candidates, other.beam, other.n_best) == (7, 2, 1)
    with raises_argument("candidates"):
        load_captioner(language_run, candidates=0)


def test_what_is_stored(language_run, tagged_scenes) -> None:
    folder = language_run.path / FOLDER
    content = json.loads((folder / "generation.json").read_text())
    assert content["run"] == language_run.fingerprint
    assert content["tuned_on"] == {"dataset": tagged_scenes.fingerprint, "split": "val", "images": 12}
    tried = {
        RankingWeights(each["translation"], each["language"], each["per_word"]): each["cider"]
        for each in content["tried"]
    }
    assert tuple(tried) == GRID
    assert tried[RankingWeights.from_json(content["weights"])] == max(tried.values())
    assert "a" in (folder / "stopwords.txt").read_text().split()
    encoder = encoder_of(language_run)
    with np.load(folder / "vectors.npz", allow_pickle=False) as arrays:
        captions = set(tagged_scenes.split("train").captions)
        dim = encoder.embedding_dim
        assert arrays["sentences"].shape == (len(captions), dim)
        assert arrays["words"].shape == (len(encoder.vocabulary) - 2, dim)
        # The vector of a word is that of the sentence of this word alone.
        word = encoder.vocabulary.words[3]
        alone = encoder.model.encode_texts(encoder.tokenizer([word]))
        np.testing.assert_allclose(arrays["words"][3], alone[0], rtol=1e-4, atol=1e-5)


def test_prepared_once(copied, tagged_scenes, monkeypatch) -> None:
    monkeypatch.setattr(generation, "tune_weights", None)
    prepare_generation(copied, tagged_scenes)


@pytest.mark.slow
def test_what_was_interrupted_is_made_again(copied, tagged_scenes, monkeypatch) -> None:
    before = {path.name: path.read_bytes() for path in (copied.path / FOLDER).iterdir()}
    shutil.rmtree(copied.path / FOLDER)

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(generation, "write_json", stop)
        patched.setattr(generation, "tune_weights", lambda *_: (GRID[0], []))
        with pytest.raises(KeyboardInterrupt):
            prepare_generation(copied, tagged_scenes)
    assert not (copied.path / FOLDER).exists()
    with pytest.raises(DataError, match=re.escape(str(copied.path))):
        load_captioner(copied)
    prepare_generation(copied, tagged_scenes)
    after = {path.name: path.read_bytes() for path in (copied.path / FOLDER).iterdir()}
    assert after["generation.json"] == before["generation.json"]
    for name in ("vectors.npz", "trigrams.npz"):
        with np.load(copied.path / FOLDER / name) as arrays:
            assert arrays.files


def test_what_belongs_to_other_weights_is_refused(copied) -> None:
    path = copied.path / FOLDER / "generation.json"
    content = json.loads(path.read_text())
    path.write_text(json.dumps({**content, "run": "c0ffee"}))
    with pytest.raises(DataError, match=re.escape(str(copied.path))):
        load_captioner(copied)


@pytest.mark.parametrize("name", ["vectors.npz", "trigrams.npz", "stopwords.txt", "generation.json"])
def test_damage_is_refused_in_one_line(copied, name: str) -> None:
    path = copied.path / FOLDER / name
    if name == "generation.json":
        content = json.loads(path.read_text())
        path.write_text(json.dumps({**content, "weights": None}))
    elif name == "stopwords.txt":
        path.unlink()
    else:
        path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(DataError) as caught:
        load_captioner(copied)
    assert "\n" not in str(caught.value)


def test_parts_of_another_size_are_refused(copied) -> None:
    path = copied.path / FOLDER / "vectors.npz"
    with np.load(path) as arrays:
        parts = {name: arrays[name] for name in arrays.files}
    np.savez(path, **{**parts, "words": parts["words"][:, 1:]})
    content = json.loads((path.parent / CONTENT).read_text())
    del content["sha256"]
    (path.parent / CONTENT).write_text(json.dumps(content))
    with pytest.raises(DataError, match="generation"):
        load_captioner(copied)


class TestDrawing:
    sequences = [[1] * 3, *[[1, 2, 3, 4]] * 90, *[[2] * 12] * 9, [3] * 5, [1] * 13]

    def test_lengths_and_order(self) -> None:
        drawn = draw_sequences(self.sequences, 10, seed=1)
        assert drawn.shape == (3, 12)
        assert {tuple(row[row > 0]) for row in drawn} == {(1, 2, 3, 4), (2,) * 12, (3,) * 5}

    def test_frequent_ones_come_first(self) -> None:
        first = [tuple(draw_sequences(self.sequences, 1, seed)[0, :4]) for seed in range(200)]
        # Ninety of a hundred; three standard deviations of 200 draws are thirteen.
        assert abs(first.count((1, 2, 3, 4)) - 180) <= 13

    def test_the_seed_decides(self) -> None:
        turned = self.sequences[::-1]
        np.testing.assert_array_equal(draw_sequences(self.sequences, 3, seed=4), draw_sequences(turned, 3, seed=4))

    def test_none_is_refused(self) -> None:
        with pytest.raises(DataError, match="4 to 12"):
            draw_sequences([[1], [1] * 20], 3, seed=0)


def test_tuning_takes_what_people_would_have_written(language_run, monkeypatch) -> None:
    """Two images of two candidates each: CIDEr, put in its place, wants those that the trigrams prefer."""

    class Scores:
        def __init__(self, ids: list[list[int]]) -> None:
            self.ids = tf.constant(ids)

        def scores(self, weights: RankingWeights) -> tf.Tensor:
            return tf.constant([1.0 - weights.language, weights.language])

    images = np.zeros((2, 3), np.float32)
    captioner = SimpleNamespace(
        write=lambda embedding: Scores([[2, 3], [4, 5]]),
        encoder=SimpleNamespace(encode_images=lambda images: tf.identity(images)),
        vocabulary=SimpleNamespace(tokens=("", "", "a", "dog", "the", "cat")),
    )
    monkeypatch.setattr(generation.tf, "function", lambda function, **_: function)
    monkeypatch.setattr(
        generation, "cider", lambda captions, _: (sum(text == "the cat" for text in captions) / 2, None)
    )
    grid = [RankingWeights(language=value) for value in (0.1, 0.4, 0.6, 0.9)]
    weights, tried = tune_weights(captioner, images, [["the cat"]] * 2, grid)
    assert weights == grid[2]
    assert [each["cider"] for each in tried] == [0, 0, 100, 100]
    assert tried[0]["language"] == 0.1


class TestChecking:
    any_encoder = SimpleNamespace(images_of=lambda dataset, split: None)

    def test_all_there(self, language_recipe, tagged_scenes, kiros_run) -> None:
        check_generation(language_recipe, tagged_scenes, kiros_run)

    def test_stop_words(self, language_recipe, tagged_scenes) -> None:
        recipe = language_recipe.with_overrides(["model.writing.stopwords=no-such-file"])
        with pytest.raises(DataError, match="no-such-file"):
            check_generation(recipe, tagged_scenes, self.any_encoder)

    @pytest.mark.parametrize("model", ["sc-nlm", "multiplicative"])
    def test_lengths_in_which_nothing_is_written(self, language_recipe, tagged_scenes, model) -> None:
        stopwords = language_recipe.model.writing.stopwords
        recipe = language_recipe.with_overrides([f"model={model}", f"model.writing.stopwords={stopwords}"])
        check_generation(recipe, tagged_scenes, self.any_encoder)

        def of_words(count: int) -> SimpleNamespace:
            split = tagged_scenes.split("train")
            texts = [[" ".join(["dog"] * count)] for _ in range(len(split))]
            others = {"train": split.with_captions(texts), "val": tagged_scenes.split("val")}
            return SimpleNamespace(split=others.__getitem__)

        for count in (3, 13):
            with pytest.raises(DataError, match="4 to 12"):
                check_generation(recipe, of_words(count), self.any_encoder)
        check_generation(recipe, of_words(4), self.any_encoder)
        # Of a longer caption a model that reads no parts of speech knows what its tokenizer reads.
        cut = recipe.with_overrides(["text.tokenizer.max_length=12"])
        if model == "multiplicative":
            check_generation(cut, of_words(13), self.any_encoder)
        else:
            with pytest.raises(DataError, match="4 to 12"):
                check_generation(cut, of_words(13), self.any_encoder)

    def test_the_extra(self, language_recipe, tagged_scenes, monkeypatch) -> None:
        monkeypatch.setattr(generation.importlib.util, "find_spec", lambda _: None)
        with pytest.raises(MissingExtraError, match="pycocoevalcap"):
            check_generation(language_recipe, tagged_scenes, self.any_encoder)

    def test_images_that_the_encoder_cannot_read(self, language_recipe, tagged_scenes, kiros_run) -> None:
        # Weights are tuned on images, which is found out before and not behind hours of training.
        encoder = dataclasses.replace(kiros_run, info=kiros_run.info | {"features": "c0ffee"})
        with pytest.raises(DataError, match="c0ffee"):
            check_generation(language_recipe, tagged_scenes, encoder)


def test_a_file_of_stop_words_is_split_as_captions_are(tmp_path: Path) -> None:
    path = tmp_path / "words.txt"
    path.write_text("The\n\n  on \ndon't\nthe\nit's\nél\n", encoding="utf-8")
    assert read_stopwords(str(path)) == ("'s", "dont", "it", "on", "the", "él")


def test_stop_words_that_are_none(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"missing\.txt"):
        read_stopwords(str(tmp_path / "missing.txt"))
    (tmp_path / "bytes").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(DataError, match="bytes"):
        read_stopwords(str(tmp_path / "bytes"))
    (tmp_path / "empty").write_text("\n...\n")
    with pytest.raises(DataError, match="empty"):
        read_stopwords(str(tmp_path / "empty"))


def test_stop_words_of_nltk() -> None:
    nltk = pytest.importorskip("nltk", reason="the extra captions is not installed")
    try:
        nltk.data.find("corpora/stopwords.zip")
    except LookupError:
        pytest.skip("NLTK's corpus stopwords is not there")
    words = read_stopwords("nltk")
    assert {"the", "a", "is", "dont", "'s"} <= set(words)
    assert len(words) > 100


def test_without_the_corpus_of_stop_words(monkeypatch: pytest.MonkeyPatch) -> None:
    nltk = pytest.importorskip("nltk", reason="the extra captions is not installed")
    from nltk.corpus.reader import WordListCorpusReader
    from nltk.corpus.util import LazyCorpusLoader

    monkeypatch.setattr(nltk.data, "path", [])
    monkeypatch.setattr(nltk.corpus, "stopwords", LazyCorpusLoader("stopwords", WordListCorpusReader))
    with pytest.raises(DataError, match="nltk.downloader stopwords") as caught:
        read_stopwords("nltk")
    assert "\n" not in str(caught.value)


def test_without_nltk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "nltk.corpus", None)
    with pytest.raises(MissingExtraError, match="nltk"):
        read_stopwords("nltk")
