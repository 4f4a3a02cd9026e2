"""Which words exchange places, and which images show them."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace

from vsemb.report.words import choose_arithmetic, families


def space(captions: list[list[str]], unknown: tuple[str, ...] = ()) -> SimpleNamespace:
    said = [Counter(word for text in texts for word in set(text.split())) for texts in captions]
    entries = [{"captions": texts} for texts in captions]
    keys = [f"image {row}" for row in range(len(captions))]
    part = type("Part", (list,), {})(entries)
    part.entries, part.keys = entries, keys
    return SimpleNamespace(part=part, said=said, knows=lambda word: word not in unknown)


def test_an_image_shows_a_word_that_most_of_its_captions_say() -> None:
    captions = [["a red car"]] * 5 + [["a blue car", "a blue one", "old"]] * 3
    captions += [["a red car on a blue road"], ["a green car"], ["one dog"], ["one dog"], ["one cat"]]
    captions += [["a blue car", "a car", "another car"]]
    (found,) = families(space(captions))
    assert found.name == "colours"
    # Red and blue in one image tell neither; green is too rare; the last says blue once in three times.
    assert found.images == {"red": [0, 1, 2, 3, 4], "blue": [5, 6, 7]}


def test_families_come_by_their_images_and_words_must_be_known() -> None:
    captions = [["red circle"]] * 4 + [["blue circle"]] * 4 + [["square"]] * 4
    assert [family.name for family in families(space(captions))] == ["shapes", "colours"]
    assert [family.name for family in families(space(captions, ("circle",)))] == ["colours"]


def test_other_languages_take_frequent_words() -> None:
    captions = [["ein hund"]] * 3 + [["ein katze"]] * 3 + [["die strasse"]] * 3 + [["nichts"]]
    (found,) = families(space(captions))
    assert found.name == "frequent words"
    assert found.images == {"hund": [0, 1, 2], "katze": [3, 4, 5], "strasse": [6, 7, 8]}
    # Too few images are left without one of them.
    assert families(space(captions, ("katze",))) == []
    assert families(space([["ab"]] * 9)) == []


def test_examples_use_an_image_once_and_families_in_turns() -> None:
    captions = [["red circle"]] * 4 + [["blue circle"]] * 4 + [["square"]] * 4
    here = space(captions)
    found = families(here)
    chosen = choose_arithmetic(found, 6, 0, here)
    assert len(chosen) == len({key for key, _, _ in chosen}) == 6
    assert [minus in ("red", "blue") for _, minus, _ in chosen] == [False, True] * 3
    for key, minus, plus in chosen:
        said = here.said[here.part.keys.index(key)]
        assert said[minus] and not said[plus] and plus != minus
    assert choose_arithmetic(found, 6, 0, here) == chosen != choose_arithmetic(found, 6, 1, here)
    assert len(choose_arithmetic(found, 50, 0, here)) == 12
    assert choose_arithmetic([], 6, 0, here) == []


def test_a_word_is_not_exchanged_for_one_that_says_the_same() -> None:
    captions = [["a small dog"]] * 4 + [["a little dog"]] * 4 + [["a big dog"]] * 4
    part = space(captions)
    chosen = choose_arithmetic(families(part), 9, 0, part)
    assert chosen and all({minus, plus} != {"small", "little"} for _, minus, plus in chosen)
    only = space(captions[:8])
    assert choose_arithmetic(families(only), 9, 0, only) == []
