"""Sentences of a CoNLL-U file find their captions."""

from __future__ import annotations

from dataclasses import replace

import pytest

from vsemb.errors import DataError
from vsemb.systems.trees.matching import match_sentences
from vsemb.systems.trees.trees import Sentence, Tree


def tree(text: str) -> Tree:
    """The last word is the root, all others hang on it."""
    words = tuple(text.split())
    return Tree(words, (*[len(words)] * (len(words) - 1), 0))


def sentences(dataset, ids=None, text=True) -> list[Sentence]:
    """All captions as sentences, from line 3 on, three lines each."""
    captions = [caption for name in dataset.splits for caption in dataset.split(name).captions]
    if ids is None:
        ids = [name for split in dataset.splits for name in dataset.split(split).caption_ids]
    return [
        Sentence(name, caption if text else None, tree(caption), 3 * place)
        for place, (name, caption) in enumerate(zip(ids, captions, strict=True), 1)
    ]


def with_ids(records):
    """Caption n of image m has the id 10 m + n in its source."""
    return [
        replace(record, caption_ids=tuple(str(10 * m + n) for n in range(len(record.captions))))
        for m, record in enumerate(records)
    ]


def expected(dataset) -> dict[str, list[Tree]]:
    return {name: [tree(text) for text in dataset.split(name).captions] for name in dataset.splits}


@pytest.fixture
def dataset(tiny, tmp_path):
    """Images 0 to 5 with 1, 2, 3, 1, 2, 3 captions; 2 and 5 are val."""
    return tiny.write(with_ids(tiny.records(6)), tmp_path / "out")


@pytest.mark.parametrize("form", ["source", "key and number", "mixed"])
def test_by_id_in_any_order(dataset, form):
    given = sentences(dataset)
    keys = [
        f"{key}#{number}"
        for name in dataset.splits
        for key, count in zip(dataset.split(name).keys, (1, 2, 1, 2) if name == "train" else (3, 3), strict=True)
        for number in range(count)
    ]
    if form != "source":
        step = 1 if form == "key and number" else 2
        given[::step] = [replace(sentence, id=key) for sentence, key in zip(given[::step], keys[::step], strict=True)]
    assert match_sentences(dataset, reversed(given)) == expected(dataset)


def test_a_file_may_cover_more(dataset):
    lines: list[str] = []
    more = [Sentence("90", "a bird", tree("a bird"), 91), Sentence("9.jpg#0", "x", tree("x"), 94)]
    assert match_sentences(dataset, more + sentences(dataset), lines.append) == expected(dataset)
    assert lines == [
        "2 sentences left out whose ids the dataset does not have, first '90' (line 91).",
    ]


def test_white_space_is_not_compared(dataset):
    given = sentences(dataset)
    given[0] = replace(given[0], text="caption0 of\u00a00")
    assert match_sentences(dataset, given) == expected(dataset)


@pytest.mark.parametrize("text", [True, False], ids=["text", "words"])
def test_without_ids_by_order(dataset, text):
    given = sentences(dataset, [None] * 12, text)
    assert match_sentences(dataset, given) == expected(dataset)


def test_spellings_of_the_treebank(tiny, tmp_path):
    record = replace(tiny.records(1)[0], captions=('a "red" (or blue) ball',))
    dataset = tiny.write([record], tmp_path / "out")
    words = tree("a `` red '' -LRB- or blue -RRB- ball")
    assert match_sentences(dataset, [Sentence(None, None, words)]) == {"train": [words]}


def change(place: int, **changes):
    def apply(given):
        given[place] = replace(given[place], **changes)
        return given

    return apply


# Train's captions are 0, 10, 11, 30, 40, 41, those of val 20, 21, 22, 50, 51, 52; the n-th
# sentence, from 1, has line 3 n.
@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (lambda given: [], "0 sentences"),
        (
            lambda given: given[:7],
            "'21'.*'val'",
        ),
        (
            lambda given: [replace(s, id=f"s{n}") for n, s in enumerate(given)],
            "'0'.*'s0'",
        ),
        (lambda given: [*given, replace(given[4], line=99)], "'40' .line 99.*line 15"),
        (
            lambda given: [*given, replace(given[4], line=99, id="4.jpg#0")],
            "'4.jpg#0' .line 99.*line 15",
        ),
        (
            change(4, text="caption 0 of 7"),
            "'40' .line 15.*'caption 0 of 7'.*'caption 0 of 4'",
        ),
        (change(4, id=None), "line 15"),
        (change(0, id=None), "'10' .line 6"),
    ],
    ids=[
        "empty",
        "cut off",
        "other ids",
        "twice",
        "twice, two forms",
        "other text",
        "one without",
        "one with",
    ],
)
def test_what_does_not_fit(dataset, edit, message):
    with pytest.raises(DataError, match=message):
        match_sentences(dataset, edit(sentences(dataset)))


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (lambda given: given[:-1], "12 captions.*train, val.* 11 "),
        (lambda given: [*given, given[0]], "12 captions.* 13 "),
        (
            lambda given: given[1:],
            "line 6.*'caption 0 of 0'.*'caption 0 of 1'",
        ),
        (
            change(2, text=None, tree=tree("caption -LRB- of 1")),
            "'caption -LRB- of 1'",
        ),
    ],
    ids=["one less", "one more", "shifted", "words"],
)
def test_what_does_not_fit_in_order(dataset, edit, message):
    with pytest.raises(DataError, match=message):
        match_sentences(dataset, edit(sentences(dataset, [None] * 12)))


def test_words_that_a_parser_rewrote(dataset):
    given = sentences(dataset, text=False)
    given[3] = replace(given[3], tree=tree("une légende de le trois"))
    lines: list[str] = []
    assert match_sentences(dataset, given, lines.append)["train"][3] == given[3].tree
    (line,) = lines
    assert line.startswith("1 sentence without `# text` differs from the dataset's captions: The sentence '30'")
    given = [replace(sentence, tree=tree("something else")) for sentence in given]
    with pytest.raises(DataError, match="# text"):
        match_sentences(dataset, given)


def test_a_dataset_from_before_there_were_ids(tiny, tmp_path):
    source = tiny.SOURCE | {"format": "karpathy"}
    dataset = tiny.write(tiny.records(6), tmp_path / "out", source=source)
    with pytest.raises(DataError, match=r"'0\.jpg#0'.*overwrite"):
        match_sentences(dataset, sentences(dataset, [str(n) for n in range(12)]))


def test_an_id_that_several_captions_have(tiny, tmp_path):
    records = [replace(record, caption_ids=("7",)) for record in tiny.records(7)[::3]]
    dataset = tiny.write(records, tmp_path / "out")
    with pytest.raises(DataError, match="'7'.*'KEY#0'"):
        match_sentences(dataset, sentences(dataset))
    given = sentences(dataset, ["0.jpg#0", "3.jpg#0", "6.jpg#0"])
    assert match_sentences(dataset, given) == expected(dataset)


pytest.importorskip("spacy")
