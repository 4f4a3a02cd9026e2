"""The start of a training: which recipe is trained on which data."""

from __future__ import annotations

from typing import Any

import pytest

from vsemb import recipes
from vsemb.runs.start import start


@pytest.mark.parametrize(
    ("values", "tokenizer", "min_count"),
    [
        ({}, "ngrams", 1),
        ({"min_count": 2}, "ngrams", 2),
        ({"text.tokenizer": "words"}, "words", 1),
        ({"ngrams_below": 0}, "words", 4),
        # A field that only the recipe's own tokenizer has.
        ({"vectors": "a.txt", "words_of": "a.txt"}, "words", 4),
    ],
)
def test_a_named_recipe_suits_few_images_unless_its_tokenizer_is_set(
    scenes: Any, values: dict[str, Any], tokenizer: str, min_count: int, capsys: pytest.CaptureFixture[str]
) -> None:
    values = {"text.encoder.sequence.words.vectors" if name == "vectors" else name: values[name] for name in values}
    chosen, _ = start(recipes.get("vsepp", "tuned"), scenes, values, suit=True)
    part = chosen.text.tokenizer
    assert (part.kind, part.min_count) == (tokenizer, min_count)
    assert ("text.tokenizer=ngrams" in capsys.readouterr().err) == (tokenizer == "ngrams")


def test_with_as_many_images_as_it_was_measured_with_a_recipe_is_itself(scenes: Any) -> None:
    recipe = recipes.get("vsepp", "tuned")
    count = len(scenes.split("train"))
    for below, kind in ((count, "words"), (count + 1, "ngrams")):
        chosen, _ = start(recipe, scenes, {"ngrams_below": below}, suit=True)
        assert chosen.text.tokenizer.kind == kind
    # Nor is a recipe that is an object, and recipes that are not named so.
    assert start(recipe, scenes, {})[0] == recipe
    paper = recipes.get("vsepp", "paper")
    assert start(paper, scenes, {}, suit=True)[0] == paper
