"""Recipes as a whole: by name, parts that do not fit each other, bad values on the command line."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.raising import raises_argument
from tests.tiny import settings
from vsemb import recipes
from vsemb.errors import DataError, InvalidArgumentError
from vsemb.parts import Part, walk
from vsemb.recipes.retrieval import Retrieval
from vsemb.recipes.schema import Recipe, Training


def test_get() -> None:
    for name in recipes.names():
        assert recipes.get(name) is next(iter(recipes.variants(name).values()))
    with pytest.raises(InvalidArgumentError, match="Did you mean 'kiros2014'"):
        recipes.get("kiros14")
    with pytest.raises(InvalidArgumentError, match="Did you mean 'released'"):
        recipes.get("kiros2014", "release")
    with raises_argument("recipe"):
        recipes.get("")


@pytest.mark.parametrize(
    "change",
    [
        {"colour": "red"},
        {"text": {"unit": 5}},
        {"embedding_dim": "many"},
        {"text": 5},
        {"kind": None},
        {"kind": "sorting"},
    ],
)
def test_a_file_of_another_version_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(DataError, match="Recipe cannot be read"):
        Recipe.from_json(Retrieval().to_json() | change)


@pytest.mark.parametrize("value", [[], None, "text", 3, {}])
def test_what_is_no_recipe_is_refused(value: Any) -> None:
    with pytest.raises(DataError):
        Recipe.from_json(value)


#: Choices -> what the error names.
MISFITS = [
    (["image.projection=none"], "`embedding_dim` must be .*null with image.projection=none.*; got 1024"),
    (["embedding_dim=null"], "`embedding_dim` must be .*; got None"),
    (["optimizer.clipvalue=1", "optimizer.global_clipnorm=2"], "optimizer.clipvalue"),
    (["optimizer=rising-momentum-sgd", "optimizer.momentum_start=0.99"], "optimizer.momentum_start"),
    (["optimizer.sparse_embedding_updates=true", "text.encoder.words.dense_gradient=true"], "sparse_embedding_updates"),
]


@pytest.mark.parametrize(("choices", "message"), MISFITS)
def test_parts_that_do_not_fit_are_refused(choices: list[str], message: str) -> None:
    with pytest.raises(InvalidArgumentError, match=message):
        Retrieval().with_overrides(choices)


def with_class_attributes(part: Part, **values: Any) -> Any:
    """A part of a subclass, as a system might bring, whose class attributes are others."""
    changed = type("Other", (type(part),), values, kind=None)
    made = object.__new__(changed)
    vars(made).update(vars(part))
    return made


@pytest.mark.parametrize(
    ("field", "values", "message"),
    [
        ("image", {"produces": "multi_vector"}, "`image` must be .*one vector per item.*; got .*'cosine'"),
        ("similarity", {"accepts": "multi_vector"}, "one multi_vector per item, not one vector"),
        ("validation", {"accepts": "multi_vector"}, "`validation` must be .*similarity='cosine'.*; got "),
        ("loss", {"over_classes": True}, None),
    ],
)
def test_what_parts_produce_and_accept_decides(field: str, values: dict[str, Any], message: str | None) -> None:
    other = with_class_attributes(getattr(Retrieval(), field), **values)
    if message is None:
        assert replace(Retrieval(), **{field: other})
        sampled = Retrieval().with_overrides(["batches.negatives=sampled"])
        with raises_argument("batches.negatives"):
            replace(sampled, **{field: other})
        return
    with pytest.raises(InvalidArgumentError, match=message):
        replace(Retrieval(), **{field: other})


def test_an_encoder_reads_what_its_tokenizer_makes() -> None:
    text = Retrieval().text
    other = with_class_attributes(text.tokenizer, produces="chords")
    with raises_argument("text.encoder"):
        replace(text, tokenizer=other)


def test_precision_is_decided_when_training_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    from vsemb.recipes import schema

    for multiplies, expected in ((True, "mixed_bfloat16"), (False, "float32")):
        monkeypatch.setattr(schema, "multiplies_bfloat16", lambda found=multiplies: found)
        training = Training(precision="auto")
        assert (training.training_dtype, training.dtype) == (expected, "float32")
    assert Training(precision="mixed_bfloat16").dtype == "mixed_bfloat16"


BAD_VALUES = [
    "embedding_dim=0",
    "embedding_dim=-3",
    "similarity=cosin",
    "text.encoder=grru",
    "text.encoder.cell=grru",
    "text.encoder.directions=both",
    "text.encoder.pooling=meanmax",
    "text.encoder.units=0",
    "text.encoder.words.dim=-1",
    "text.encoder.dropout=1.0",
    "text.encoder.words.word_dropout=1.5",
    "text.encoder.words.dropout=2",
    "text.encoder.init_scale=-1",
    "text.encoder.words.init_scale=-1",
    "text.encoder.words.vectors=/nowhere/at/all.txt",
    "text.encoder.layers=2",
    "text.tokenizer=word",
    "text.tokenizer.min_count=0",
    "text.tokenizer.min_count=1000000",
    "text.tokenizer.vocabulary_size=0",
    "text.tokenizer.max_length=0",
    "image.dropout=1.5",
    "image.fingerprint=ffff",
    "image.projection.init_scale=-1",
    "loss=rankin",
    "loss.margin=-1",
    "loss.negatives=some",
    "loss.negatives.warmup_epochs=-1",
    "loss.image_weight=-1",
    "loss.block_size=0",
    "loss.temperature=0",
    "l2=-1",
    "chunk_size=0",
    "chunk_size=1.5",
    "optimizer=adm",
    "optimizer.learning_rate=0",
    "optimizer.learning_rate=-1",
    "optimizer.schedule=cosin",
    "optimizer.schedule.factor=0",
    "optimizer.schedule.every=0",
    "optimizer.schedule.warmup_epochs=1",
    "optimizer.weight_decay=0.1",
    "optimizer.momentum=0.9",
    "optimizer.global_clipnorm=0",
    "optimizer.ema_momentum=1",
    "optimizer.ema_momentum=-0.5",
    "batches.size=1",
    "batches.captions=first",
    "batches.negatives=none",
    "training.epochs=0",
    "training.patience=0",
    "training.seed=-1",
    "training.seed=99999999999",
    "training.precision=float16",
]


@pytest.mark.parametrize("setting", BAD_VALUES)
def test_bad_values_are_one_clear_line_and_leave_nothing(setting: str, scenes_path, tmp_path, capfd) -> None:
    from vsemb.cli.__main__ import main

    out = tmp_path / "run"
    command = ["train", "vsepp", "--variant", "paper", "--data", str(scenes_path), "--out", str(out)]
    small = settings(recipes.get("vsepp", "paper"))
    assert main([*command, *(f"--set={assignment}" for assignment in (*small, setting))]) == 1
    (line,) = capfd.readouterr().err.splitlines()
    assert line.startswith("vsemb train: ")
    path, _, value = setting.partition("=")
    assert value.rstrip(".0") in line or value in line or path in line, "the message says what was received"
    # With the typo mended the same --out must do.
    assert not out.exists()


@pytest.mark.parametrize("name", recipes.names())
def test_parts_of_recipes_are_registered_kinds_or_records(name: str) -> None:
    for recipe in recipes.variants(name).values():
        assert all(part.kind is not None or part.family is None for part in walk(recipe))
