"""Recipes as values: overrides, types, suggestions, JSON."""

from __future__ import annotations

import dataclasses
import json
import typing

import pytest
from vsemb.recipes.ranges import RANGES

from vsemb import recipes
from vsemb.errors import DataError, InvalidArgumentError, VsembError
from vsemb.recipes import RECIPES, Recipe

ALL = [(name, variant) for name, variants in RECIPES.items() for variant in variants]
RECIPE = Recipe(name="mine")


@pytest.mark.parametrize(
    ("assignment", "path", "value"),
    [
        ("text.units=512", "text.units", 512),
        (" text.units =512", "text.units", 512),
        ("embedding_dim=8", "embedding_dim", 8),
        ("loss.margin=1", "loss.margin", 1.0),
        ("loss.margin=1e-2", "loss.margin", 0.01),
        ("optimizer.clip=null", "optimizer.clip", None),
        ("optimizer.clip=None", "optimizer.clip", None),
        ("optimizer.clip=2", "optimizer.clip", 2.0),
        ("text.train_words=false", "text.train_words", False),
        ("text.train_words=False", "text.train_words", False),
        ("text.encoder=lstm", "text.encoder", "lstm"),
        ('text.encoder="lstm"', "text.encoder", "lstm"),
        ("text.pooling=mean+max", "text.pooling", "mean+max"),
        ("text.word_vectors=/data/a=b.txt", "text.word_vectors", "/data/a=b.txt"),
        ("training.patience=3", "training.patience", 3),
        # Fields of text keep what reads as a number: a fingerprint may be all digits, or 12e4567.
        ("image.features=1234567812345678", "image.features", "1234567812345678"),
        ("image.features=12e4", "image.features", "12e4"),
        ("text.word_vectors=2024", "text.word_vectors", "2024"),
        ("image.features=null", "image.features", None),
    ],
)
def test_overrides(assignment: str, path: str, value) -> None:
    changed = RECIPE.with_overrides([assignment])
    found = changed
    for name in path.split("."):
        found = getattr(found, name)
    assert found == value and type(found) is type(value)
    # Nothing else changes, the recipe itself neither.
    assert Recipe(name="mine") == RECIPE
    plain, other = RECIPE.to_json(), changed.to_json()
    node, other_node = plain, other
    for name in path.split(".")[:-1]:
        node, other_node = node[name], other_node[name]
    other_node[path.split(".")[-1]] = node[path.split(".")[-1]]
    assert other == plain


def test_the_last_override_wins() -> None:
    assert RECIPE.with_overrides(["text.units=1", "text.units=2"]).text.units == 2
    assert RECIPE.with_overrides([]) == RECIPE


@pytest.mark.parametrize(
    ("assignment", "message"),
    [
        ("text.unit=5", "Did you mean 'text.units'"),
        ("margin=1", "Did you mean 'loss.margin'"),
        ("txt.units=5", "Did you mean 'text.units'"),
        ("text.units.more=5", "Did you mean 'text.units'"),
        ("text=5", "text.units"),
        ("=5", "Expected: one of"),
        ("text.units", "path.to.field=value"),
        ("text.units=many", "text.units='many'. Expected: int"),
        ("text.units=1.5", "Expected: int"),
        ("text.units=true", "Expected: int"),
        ("text.units=null", "Expected: int"),
        ("text.train_words=1", "Expected: bool"),
        ("loss.margin=true", "Expected: float"),
        ("optimizer.clip=much", "Expected: float or null"),
        ("training.epochs=1e3", "Expected: int"),
        ("text.units=[1]", "Expected: int"),
        ("loss.margin=NaN", "finite"),
        ("optimizer.learning_rate=Infinity", "finite"),
    ],
)
def test_bad_overrides(assignment: str, message: str) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        RECIPE.with_overrides([assignment])
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("name", "variant"), ALL)
def test_json_round_trip(name: str, variant: str) -> None:
    recipe = recipes.get(name, variant)
    assert (recipe.name, recipe.variant) == (name, variant)
    assert recipe.paper
    assert Recipe.from_json(json.loads(json.dumps(recipe.to_json()))) == recipe
    with pytest.raises(dataclasses.FrozenInstanceError):
        recipe.name = "other"  # type: ignore[misc]


@pytest.mark.parametrize(
    "change",
    [
        {"colour": "red"},
        {"text": {"unit": 5}},
        {"text": {"units": "many"}},
        {"text": 5},
        {"name": None},
        {"name": 5},
    ],
)
def test_a_file_of_another_version_is_refused(change) -> None:
    plain = RECIPE.to_json() | change
    if plain["name"] is None:
        del plain["name"]
    with pytest.raises(DataError, match="recipe"):
        Recipe.from_json(plain)
    for value in ([], None, "text", 3):
        with pytest.raises(DataError):
            Recipe.from_json(value)


def test_get() -> None:
    for name, variants in RECIPES.items():
        assert recipes.get(name) is next(iter(variants.values()))
    with pytest.raises(InvalidArgumentError, match="Did you mean 'kiros2014'"):
        recipes.get("kiros14")
    with pytest.raises(InvalidArgumentError, match="Did you mean 'released'"):
        recipes.get("kiros2014", "release")
    with pytest.raises(InvalidArgumentError, match="one of"):
        recipes.get("")


BAD_VALUES = [
    "embedding_dim=0",
    "embedding_dim=-3",
    "similarity=cosin",
    "text.encoder=grru",
    "text.directions=both",
    "text.pooling=meanmax",
    "text.units=0",
    "text.word_dim=-1",
    "text.slots=0",
    "text.slots=99",
    "text.encoder=tree-lstm",
    "text.tokenizer=trees",
    "text.min_count=0",
    "text.min_count=1000000",
    "text.max_words=0",
    "text.max_words=-1",
    "text.max_length=0",
    "text.dropout=1.0",
    "text.dropout=-0.1",
    "text.word_dropout=1.5",
    "text.embedding_dropout=2",
    "text.init_scale=-1",
    "text.word_init_scale=-1",
    "text.word_vectors=/nowhere/at/all.txt",
    "image.dropout=1.5",
    "image.features=ffff",
    "image.init_scale=-1",
    "loss.name=rankin",
    "loss.margin=-1",
    "loss.negatives=some",
    "loss.warmup_epochs=-1",
    "loss.image_weight=-1",
    "loss.temperature=0",
    "loss.label_smoothing=1",
    "loss.l2=-1",
    "loss.block_size=0",
    "training.chunk_size=0",
    "training.chunk_size=1.5",
    "optimizer.name=adm",
    "optimizer.learning_rate=0",
    "optimizer.learning_rate=-1",
    "optimizer.schedule=cosin",
    "optimizer.decay_rate=0",
    "optimizer.decay_epochs=0",
    "optimizer.warmup_epochs=-1",
    "optimizer.weight_decay=-1",
    "optimizer.weight_decay=0.1",
    "optimizer.decay_steps=0",
    "optimizer.momentum=1",
    "optimizer.momentum=0.9",
    "optimizer.momentum_start=-0.1",
    "optimizer.momentum_start=0.5",
    "optimizer.momentum_steps=0",
    "optimizer.clip=0",
    "optimizer.ema=1",
    "optimizer.ema=-0.5",
    "batches.size=1",
    "batches.size=100000",
    "batches.captions=first",
    "batches.negatives=none",
    "training.epochs=0",
    "training.patience=0",
    "training.seed=-1",
    "training.seed=99999999999",
    "training.precision=float16",
]


@pytest.mark.parametrize("setting", BAD_VALUES)
def test_bad_values_are_one_clear_line_and_leave_nothing(setting, scenes_path, tmp_path, capfd) -> None:
    from tests.conftest import TINY
    from vsemb.cli.__main__ import main

    # InfoNCE reads every field of the loss but margin and negatives, which need ranking.
    loss = "ranking" if setting.startswith(("loss.margin", "loss.neg", "loss.warm")) else "infonce"
    arguments = [*TINY, f"loss.name={loss}", "optimizer.schedule=cosine", setting]
    if "decay_" in setting and "weight" not in setting:
        arguments.append("optimizer.schedule=step")
    out = tmp_path / "run"
    command = ["train", "vsepp", "--variant", "paper", "--data", str(scenes_path), "--out", str(out)]
    assert main([*command, *(f"--set={argument}" for argument in arguments)]) == 1
    (line,) = capfd.readouterr().err.splitlines()
    assert line.startswith("vsemb train: ")
    value = setting.partition("=")[2]
    assert value.rstrip(".0") in line or value in line, "the message says what was received"
    # With the typo mended the same --out must do.
    assert not out.exists()


def test_bad_values_are_vsemb_errors() -> None:
    # In Python as on the command line.
    with pytest.raises(VsembError):
        RECIPE.with_overrides(["text.dropout=1.5"])


def test_every_number_has_a_range():
    plain = Recipe(name="x").to_json()
    hints = {
        "": typing.get_type_hints(Recipe),
        **{
            part: typing.get_type_hints(type(getattr(Recipe(name="x"), part)))
            for part in plain
            if isinstance(plain[part], dict)
        },
    }
    numbers = {
        f"{part}.{field}".lstrip(".")
        for part, fields in hints.items()
        for field, hint in fields.items()
        if {int, float} & {hint, *typing.get_args(hint)}
    }
    assert numbers == set(RANGES)
