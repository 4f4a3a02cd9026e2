"""Class folders named by WordNet's ids, described by a miniature WordNet."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.data.wordnet_files import LICENCE, concept_line, write_wordnet
from tests.raising import raises_argument
from vsemb.data.readers import read
from vsemb.data.readers.hash_splits import ranked
from vsemb.data.readers.source import BadRows
from vsemb.errors import DataError
from vsemb.systems.zero_shot.readers.wnid import Concept, read_concepts

REAL = os.environ.get("VSEMB_WORDNET")

# offset -> words, gloss, hypernyms; eight levels from the crane up.
CONCEPTS = {
    "00000001": (["entity"], "all there is", []),
    "00000002": (["thing"], "a thing", ["00000001"]),
    "00000003": (["creature"], "a creature", ["00000002"]),
    "00000004": (["animal", "beast"], 'it moves; "the animal moved"', ["00000003"]),
    "00000005": (["pet"], "a pet", ["00000004"]),
    "00000006": (["bird"], "it flies", ["00000004"]),
    "00000007": (["wader", "wading_bird"], "it wades", ["00000006"]),
    "00000008": (["crane"], 'long-legged bird; of marshes; "a crane flew"; "two cranes"', ["00000007"]),
    "00000009": (["crane"], "it lifts", ["00000002"]),
    "00000010": (["heron", "Ardea"], "a heron", ["00000007", "00000005"]),
}


@pytest.fixture
def wordnet(tmp_path) -> Path:
    """Writes the WordNet."""
    lines = [
        concept_line(offset, words, [("@", above, "n") for above in hypernyms]).replace(
            "a gloss, with @ and | in it", gloss
        )
        for offset, (words, gloss, hypernyms) in CONCEPTS.items()
    ]
    folder = tmp_path / "dict"
    folder.mkdir()
    (folder / "data.noun").write_text(LICENCE + "".join(lines))
    return folder


@pytest.fixture
def classes(tmp_path, pictures) -> Path:
    """Writes three class folders, one as Tiny ImageNet has them."""
    root = tmp_path / "images"
    pictures(root, "n00000008/b.JPEG", "n00000008/a.JPEG", "n00000009/images/c.JPEG", "n00000010/d.png")
    (root / "n00000008" / "boxes.txt").write_text("")
    (root / "other").mkdir()
    return root


def test_a_class_is_told_by_its_concept(classes, wordnet):
    source = read("wnid", classes, wordnet=wordnet)
    crane, _, lifter, heron = source.records
    assert [record.key for record in source.records] == [
        "n00000008/a.JPEG",
        "n00000008/b.JPEG",
        "n00000009/c.JPEG",
        "n00000010/d.png",
    ]
    assert crane.captions == source.records[1].captions
    # Five levels up: wader, bird, animal, creature, thing; entity is a sixth.
    assert crane.captions == (
        "long-legged bird; of marshes",
        "a crane flew",
        "two cranes",
        "crane",
        "a kind of wader, wading bird",
        "a kind of bird",
        "a kind of animal, beast",
        "a kind of creature",
        "a kind of thing",
        "a kind of wader, bird, animal, creature, thing",
    )
    # A heron is a pet here too, and either way leads to the animal.
    assert heron.captions == (
        "a heron",
        "heron",
        "Ardea",
        "a kind of wader, wading bird, pet",
        "a kind of bird, animal, beast",
        "a kind of animal, beast, creature",
        "a kind of creature, thing",
        "a kind of thing, entity",
        "a kind of wader, pet, bird, animal, creature, thing, entity",
    )
    assert [record.class_name for record in (crane, lifter, heron)] == [
        "crane (n00000008)",
        "crane (n00000009)",
        "heron",
    ]
    assert source.files == (wordnet / "data.noun",)


def test_splits_share_no_class(classes, wordnet):
    source = read("wnid", classes, wordnet=wordnet)
    order = ranked(["n00000008", "n00000009", "n00000010"])
    split_of = {record.key[:9]: record.split for record in source.records}
    assert [split_of[wnid] for wnid in order] == ["train", "val", "test"]
    assert source.options == {"class_splits": "1/1/1"}


def test_class_splits(classes, wordnet, pictures):
    pictures(classes, "n00000007/x.jpg")
    order = ranked(["n00000007", "n00000008", "n00000009", "n00000010"])
    for given, splits in ((None, "train train val test"), ("1/2/1", "train val val test")):
        source = read("wnid", classes, wordnet=wordnet, class_splits=given)
        split_of = {record.key[:9]: record.split for record in source.records}
        assert [split_of[wnid] for wnid in order] == splits.split()


def test_a_folder_train_is_looked_into(classes, wordnet):
    (classes.parent / "tiny").mkdir()
    classes.rename(classes.parent / "tiny" / "train")
    assert len(read("wnid", classes.parent / "tiny", wordnet=wordnet).records) == 4


@pytest.mark.parametrize("given", ["150/20/30", "1/1", "a/b/c", "1/1/-1", "", "3/0/0", "2/0/1", "0/1/2"])
def test_class_splits_that_do_not_fit(classes, wordnet, given):
    with raises_argument("class_splits"):
        read("wnid", classes, wordnet=wordnet, class_splits=given)


def test_broken_sources(classes, wordnet, tmp_path, pictures):
    with pytest.raises(DataError, match="n01443537"):
        read("wnid", tmp_path, wordnet=wordnet)
    with pytest.raises(DataError, match=r"holds no data\.noun"):
        read("wnid", classes, wordnet=tmp_path)
    (classes / "n00000001").mkdir()
    with pytest.raises(DataError, match="n00000001"):
        read("wnid", classes, wordnet=wordnet)
    pictures(classes, "n00000001/x.jpg", *(f"n000000{number}/x.jpg" for number in range(94, 99)))
    with pytest.raises(DataError, match="'00000098'"):
        read("wnid", classes, wordnet=wordnet)


def test_bad_lines_of_wordnet_are_left_out(classes, wordnet, pictures):
    pictures(classes, "n00000099/x.jpg", "n00000007/x.jpg")
    lines = (wordnet / "data.noun").read_text().replace("00000010 03 n", "00000010 03 v")  # The heron.
    (wordnet / "data.noun").write_text(lines.replace("00000006 03 n", "00000006 03 v"))  # Above the crane.
    source = read("wnid", classes, wordnet=wordnet)
    assert {record.key[:9] for record in source.records} == {f"n0000000{number}" for number in (7, 8, 9)}
    assert len(source.bad) == 3
    # The chain of hypernyms ends below the missing one.
    assert source.records[1].captions[-1] == "a kind of wader, wading bird"


def test_words_and_glosses_of_a_concept_and_its_ancestors(tmp_path):
    concepts = read_concepts(write_wordnet(tmp_path), ["00000500"])
    # The dog (500) is a canine (400) and a pet (300), both animals (200), which are entities (100).
    assert sorted(concepts) == ["00000100", "00000200", "00000300", "00000400", "00000500"]
    assert concepts["00000500"] == Concept(
        words=("dog", "dog too"),
        definition="a gloss, with @ and | in it",
        examples=(),
        hypernyms=("00000400", "00000300"),
    )
    assert concepts["00000100"].hypernyms == ()
    assert read_concepts(tmp_path, []) == {}


@pytest.mark.parametrize(
    ("gloss", "definition", "examples"),
    [
        ("a dog", "a dog", ()),
        ('a dog; "the dog barked"', "a dog", ("the dog barked",)),
        ('a dog; or a wolf; "it barked"; "it ran; away"', "a dog; or a wolf", ("it barked", "it ran; away")),
        ('the "in" crowd; "he is in"', 'the "in" crowd', ("he is in",)),
        ('a saying; "to be" - Shakespeare; "or not"', "a saying", ("to be", "or not")),
        ("", "", ()),
    ],
)
def test_glosses(tmp_path, gloss, definition, examples):
    line = concept_line("00000001", ["x"], []).replace("a gloss, with @ and | in it", gloss)
    (tmp_path / "data.noun").write_text(LICENCE + line)
    concept = read_concepts(tmp_path, ["00000001"])["00000001"]
    assert (concept.definition, concept.examples) == (definition, examples)


def test_concepts_that_are_not_there(tmp_path):
    write_wordnet(tmp_path)
    for offset in ("00000001", "", "1", "  1 This"):
        with pytest.raises(DataError, match=repr(offset)):
            read_concepts(tmp_path, [offset])
    bad = BadRows()
    assert read_concepts(tmp_path, ["00000001", "00000002"], bad) == {} and len(bad) == 2
    (tmp_path / "data.noun").write_text("00000001 03 n 01 x 0 002 @ 00000002 n 0000 | broken\n")
    with pytest.raises(DataError, match=r"line 1\b"):
        read_concepts(tmp_path, ["00000001"])
    with pytest.raises(DataError, match="nowhere"):
        read_concepts(tmp_path / "nowhere", ["00000001"])


@pytest.mark.skipif(not REAL, reason="VSEMB_WORDNET does not name WordNet's folder")
def test_the_real_goldfish():
    concepts = read_concepts(str(REAL), ["01443537"])
    assert concepts["01443537"].words == ("goldfish", "Carassius auratus")
    assert concepts["01443537"].definition.startswith("small golden or orange-red freshwater fishes")
    assert [concepts[above].words[0] for above in concepts["01443537"].hypernyms] == ["cyprinid"]
