"""BERT and its relatives as text towers: ids and embeddings are those of the transformers library."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import vsemb
from tests.raising import raises_argument
from tests.systems.presets.checkpoint_files import ENCODERS, write_bert_checkpoint
from tests.systems.presets.library import asks_library, outputs_of
from tests.systems.presets.peers import PREFIX, PUBLISHED, TEXTS
from tests.systems.presets.texts import odd_texts
from vsemb import recipes
from vsemb.errors import DataError
from vsemb.recipes.towers import Text
from vsemb.runs.train import train
from vsemb.systems.presets.text_encoder import PresetEncoder, PresetTextEncoder
from vsemb.systems.presets.tokenizer import PresetText, PresetTokens
from vsemb.text.tokenizers import Tokenizer


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("checkpoints")
    return {kind: write(folder / kind) for kind, write in ENCODERS.items()}


def tower(path: Path, dim: int | None = None, **options: Any) -> tuple[Tokenizer, PresetTextEncoder]:
    """The tokenizer and the encoder of a preset, as a run builds them."""
    name = f"hub:{path}"
    part = Text(PresetTokens(name=name, max_length=1000), PresetEncoder(name=name, **{"weights": "preset", **options}))
    vocabulary = part.tokenizer.learn([])
    encoder = part.build(dim, len(vocabulary), {}, "float32")
    assert isinstance(encoder, PresetTextEncoder)
    return part.tokenizer.build(vocabulary), encoder


def embed(parts: tuple[Tokenizer, PresetTextEncoder], texts: list[str]) -> np.ndarray:
    tokenizer, encoder = parts
    return keras.ops.convert_to_numpy(encoder(tokenizer(tf.constant(texts))))


def published_ids(parts: tuple[Tokenizer, PresetTextEncoder], texts: list[str], width: int) -> np.ndarray:
    tokenizer, encoder = parts
    ids = encoder.published_ids(tokenizer(tf.constant(texts))).numpy()
    return np.pad(ids, [(0, 0), (0, width - ids.shape[1])], constant_values=encoder.padding)


@pytest.mark.parametrize("kind", ENCODERS)
def test_embeddings_are_those_of_the_library(kind: str, checkpoints: dict[str, Path]) -> None:
    expected = {name: np.array(value) for name, value in json.loads(PUBLISHED.read_text())[kind].items()}
    mean = tower(checkpoints[kind])
    np.testing.assert_array_equal(published_ids(mean, TEXTS, expected["ids"].shape[1]), expected["ids"])
    np.testing.assert_allclose(embed(mean, TEXTS), expected["mean"], atol=1e-4)
    np.testing.assert_allclose(embed(tower(checkpoints[kind], pooling="first"), TEXTS), expected["first"], atol=1e-4)
    if kind != "roberta":  # It joins a prefix with the next word.
        np.testing.assert_allclose(
            embed(tower(checkpoints[kind], prefix=PREFIX), TEXTS), expected["prefixed"], atol=1e-4
        )


@pytest.mark.parametrize("kind", ENCODERS)
def test_padding_and_neighbours_change_nothing(kind: str, checkpoints: dict[str, Path]) -> None:
    parts = tower(checkpoints[kind])
    together = embed(parts, TEXTS)
    for text, row in zip(TEXTS, together, strict=True):
        np.testing.assert_allclose(embed(parts, [text])[0], row, atol=2e-6)
    tokenizer, encoder = parts
    ids = tokenizer(tf.constant(TEXTS))
    np.testing.assert_allclose(encoder(tf.pad(ids, [[0, 0], [0, 7]])), together, atol=2e-6)
    assert np.isfinite(embed(parts, ["", " \n"])).all()


def test_a_frozen_network_is_not_trained_and_has_no_dropout(checkpoints: dict[str, Path]) -> None:
    tokenizer, encoder = tower(checkpoints["bert"], 5, trainable=False)
    ids = tokenizer(tf.constant(TEXTS))
    np.testing.assert_array_equal(encoder(ids, training=True), encoder(ids))
    assert [variable.path.split("/")[-2] for variable in encoder.trainable_variables] == ["affine", "affine"]
    _, trained = tower(checkpoints["bert"], 5, learning_rate_share=0.1)
    assert not np.allclose(trained(ids, training=True), trained(ids))
    shares = [getattr(variable, "learning_rate_share", 1.0) for variable in trained.trainable_variables]
    assert shares.count(0.1) == len(shares) - 2


def test_it_is_stored_whole(checkpoints: dict[str, Path], tmp_path: Path) -> None:
    tokenizer, encoder = tower(checkpoints["bert"], 5, prefix=PREFIX, trainable=False)
    ids = keras.Input((None,), dtype="int32")
    model = keras.Model(ids, encoder(ids))
    model.save(tmp_path / "model.keras")
    again = keras.models.load_model(tmp_path / "model.keras")
    given = tokenizer(tf.constant(TEXTS))
    np.testing.assert_array_equal(again(given), model(given))
    assert len(again.trainable_variables) == 2


def test_a_preset_of_keras_hub(preset_path: Callable[[str], Path]) -> None:
    """Against its own backbone and tokenizer, on texts that both libraries read alike."""
    import keras_hub

    path = preset_path("bert")
    texts = ["a red circle above a blue square", "Two dogs, running: on the beach!", "日本 a", "unknown ~ % word"]
    theirs = keras_hub.models.Backbone.from_preset(str(path))
    tokenizer = keras_hub.tokenizers.Tokenizer.from_preset(str(path))
    rows = [[tokenizer.cls_token_id, *np.array(tokenizer(text)).tolist(), tokenizer.sep_token_id] for text in texts]
    parts = tower(path)
    ids = published_ids(parts, texts, 24)
    assert [row[: len(wanted)].tolist() for row, wanted in zip(ids, rows, strict=True)] == rows
    mask = ids != tokenizer.pad_token_id
    given = {"token_ids": ids, "segment_ids": np.zeros_like(ids), "padding_mask": mask}
    states = keras.ops.convert_to_numpy(theirs(given)["sequence_output"])
    wanted = (states * mask[:, :, None]).sum(axis=1) / mask.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(embed(parts, texts), wanted, atol=2e-6)


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"pooling": "embedding"}, "text.encoder.pooling"),
        ({"prefix": "un"}, "prefix"),
        ({"prefix": "query: " * 20}, "prefix"),
    ],
)
def test_options_that_do_not_fit_are_refused(options: dict, named: str, checkpoints: dict[str, Path]) -> None:
    with raises_argument(named):
        tower(checkpoints["bert"], **options)


def test_a_prefix_that_roberta_joins_with_the_next_word_is_refused(checkpoints: dict[str, Path]) -> None:
    with raises_argument("prefix"):
        tower(checkpoints["roberta"], prefix=PREFIX)


def test_a_dual_encoder_has_its_own_pooling(preset_path: Callable[[str], Path]) -> None:
    with raises_argument("text.encoder.pooling"):
        tower(preset_path("clip"), pooling="mean")


@pytest.mark.parametrize(
    ("file", "change", "named"),
    [
        ("config.json", {"position_embedding_type": "relative_key"}, "position_embedding_type"),
        ("config.json", {"hidden_act": "relu"}, "hidden_act"),
        ("config.json", {"hidden_size": "x"}, "hidden_size"),
        ("tokenizer_config.json", {"tokenize_chinese_chars": False}, "tokenize_chinese_chars"),
    ],
)
def test_settings_that_cannot_be_honoured_are_refused_by_name(
    file: str, change: dict, named: str, tmp_path: Path
) -> None:
    path = write_bert_checkpoint(tmp_path / "bert") / file
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(DataError, match=named):
        PresetText.open(f"hub:{path.parent}")


def test_the_newer_file_of_a_tokenizer_equals_the_older(tmp_path: Path) -> None:
    older, newer = (write_bert_checkpoint(tmp_path / name) for name in ("older", "newer"))
    pieces = (newer / "vocab.txt").read_text().splitlines()
    model = {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##"}
    model["vocab"] = {piece: number for number, piece in enumerate(pieces)}
    normalizer = {"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True, "strip_accents": None}
    content = {"normalizer": {**normalizer, "lowercase": True}, "model": model}
    (newer / "tokenizer.json").write_text(json.dumps(content))
    (newer / "vocab.txt").unlink()
    np.testing.assert_array_equal(embed(tower(newer), TEXTS), embed(tower(older), TEXTS))


def test_a_network_inside_a_model_with_a_head_and_older_names(checkpoints: dict[str, Path], tmp_path: Path) -> None:
    from safetensors.numpy import load_file, save_file

    path = write_bert_checkpoint(tmp_path / "bert")
    weights = load_file(path / "model.safetensors")
    renamed = {f"bert.{name}": value for name, value in weights.items()}
    for new, old in (("weight", "gamma"), ("bias", "beta")):
        renamed = {name.replace(f"LayerNorm.{new}", f"LayerNorm.{old}"): value for name, value in renamed.items()}
    save_file(renamed, path / "model.safetensors")
    np.testing.assert_array_equal(embed(tower(path), TEXTS), embed(tower(checkpoints["bert"]), TEXTS))


def test_a_text_network_is_no_dual_encoder(checkpoints: dict[str, Path]) -> None:
    with pytest.raises(DataError, match=r"text\.encoder"):
        vsemb.load(checkpoints["bert"])


@pytest.mark.slow
@pytest.mark.parametrize("trainable", [False, True])
def test_a_tower_is_trained_exported_and_opened_without_the_preset(trainable: bool, scenes, tmp_path: Path) -> None:
    path = write_bert_checkpoint(tmp_path / "preset")
    name = f"hub:{path}"
    overrides = {
        "text.tokenizer": "preset",
        "text.tokenizer.name": name,
        "text.encoder": "preset",
        "text.encoder.name": name,
        "text.encoder.weights": "preset",
        "text.encoder.prefix": PREFIX,
        "text.encoder.trainable": str(trainable).lower(),
        "text.encoder.learning_rate_share": "0.1",
        "embedding_dim": "8",
        "batches.size": "8",
        "training.epochs": "1",
        "training.precision": "float32",
    }
    recipe = recipes.get("contrastive").with_overrides([f"{field}={value}" for field, value in overrides.items()])
    run = train(recipe, scenes, tmp_path / "run")
    _, start = tower(path)
    moved = [
        np.abs(weight - before).max()
        for weight, before in zip(
            run.model.text_encoder.network.get_weights(), start.network.get_weights(), strict=True
        )
    ]
    assert (max(moved) > 0) == trainable
    shutil.rmtree(path)
    model = vsemb.load(tmp_path / "run")
    embedded = model.encode_texts(TEXTS)
    assert embedded.shape == (len(TEXTS), 8) and embedded.std(axis=0).max() > 1e-3
    vsemb.export(tmp_path / "run", tmp_path / "model")
    # The prefix makes no text of an empty one.
    served = tf.saved_model.load(str(tmp_path / "model" / "1")).signatures["encode_text"]
    answer = served(text=tf.constant([*TEXTS, " "]))
    np.testing.assert_allclose(answer["embedding"][:-1], embedded, atol=1e-5)
    assert answer["valid"].numpy().tolist() == [True] * len(TEXTS) + [False]


@pytest.mark.slow
@asks_library
@pytest.mark.parametrize("kind", ENCODERS)
def test_checkpoints_saved_by_the_library(kind: str, checkpoints: dict[str, Path], tmp_path: Path) -> None:
    """5,000 odd texts; the library runs in a process of its own."""
    texts = odd_texts(5000)
    saved, expected = outputs_of(checkpoints[kind], texts, tmp_path)
    for pooling in ("mean", "first"):
        parts = tower(saved, pooling=pooling)
        for start in range(0, len(texts), 1000):
            part = slice(start, start + 1000)
            ids = published_ids(parts, texts[part], expected["ids"].shape[1])
            different = np.flatnonzero(np.any(ids != expected["ids"][part], axis=1))
            assert [texts[start + row] for row in different] == []
            np.testing.assert_allclose(embed(parts, texts[part]), expected[pooling][part], atol=1e-4)
