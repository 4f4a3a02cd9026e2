"""Canonically equal texts are one text on every path: vocabularies, tokenizers, graph, trees, tags, metrics."""

from __future__ import annotations

import functools
import unicodedata
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import tensorflow as tf

from vsemb.systems.captions.caption_tokens import caption_tokens
from vsemb.systems.captions.training_captions import TrainingCaptions
from vsemb.systems.entailment.data import premise_split
from vsemb.systems.language.tags import align_tags
from vsemb.systems.trees.client import TextParser
from vsemb.systems.trees.matching import _reads_as
from vsemb.systems.trees.tree_tokenizer import TreeTokenizer, parsed_texts, tree_vocabulary
from vsemb.systems.trees.trees import Sentence, Tree
from vsemb.systems.zero_shot.class_names import ClassTokenizer
from vsemb.text import CharacterTokenizer, Vocabulary, WordTokenizer
from vsemb.text.normalize import split_in_python, words_of
from vsemb.text.subwords import BPE, SentencePiece, WordPiece
from vsemb.text.tokenizers import Tokenizer, WordReader
from vsemb.text.word_vectors import read_word_vectors

#: Composed texts; French, Vietnamese, Korean, Hindi with nukta, Bengali, vocalized Hebrew and Arabic, Japanese.
TEXTS = {
    "fr": "un café à côté",
    "vi": "một con chó đang chạy",
    "ko": "개가 해변을 달린다",
    "hi": "कुत्ता सड़क पर दौड़ रहा है",
    "bn": "কুকুর দৌড়াচ্ছে ছোটো",
    "he": "כֶּלֶב רָץ שָׁלוֹם",
    "ar": "كَلْبٌ يَجْرِي الشَّاطِئِ آخر",
    "ja": "がぎぐ パン",
}


def other_forms(text: str) -> list[str]:
    """Canonically equal texts: decomposed, with the marks of a letter in another order, with letters not composed."""
    forms = [unicodedata.normalize("NFD", text)]
    letters, reordered = list(forms[0]), []
    while letters:
        start = [letters.pop(0)]
        while letters and unicodedata.combining(letters[0]):
            start.append(letters.pop(0))
        # Marks of different classes may change places.
        marks = sorted(start[1:], key=lambda mark: -unicodedata.combining(mark))
        reordered += [start[0], *marks]
    forms.append("".join(reordered))
    # Letters that composition excludes.
    excluded = {"ड\u093c": "\u095c", "ড\u09bc": "\u09dc", "য\u09bc": "\u09df", "ש\u05c1": "\ufb2a"}
    for pair, letter in excluded.items():
        forms.append(text.replace(pair, letter))
    return sorted({*forms} - {text})


def test_the_texts_have_other_forms() -> None:
    for text in TEXTS.values():
        assert text == unicodedata.normalize("NFC", text)
        assert other_forms(text)
        for other in other_forms(text):
            assert unicodedata.normalize("NFC", other) == text


WORDS = [word for text in TEXTS.values() for word in text.split()]


@functools.cache
def tokenizer(kind: str) -> Tokenizer:
    """A tokenizer that knows the texts in their composed form."""
    captions = [*TEXTS.values()] * 3
    if kind == "words":
        return WordTokenizer(Vocabulary.from_captions(captions))
    if kind == "decomposed":
        return WordTokenizer(Vocabulary([unicodedata.normalize("NFD", word) for word in WORDS]))
    if kind == "characters":
        return CharacterTokenizer(Vocabulary(sorted({*"".join(TEXTS.values()), " "})))
    if kind == "trees":
        return TreeTokenizer(Vocabulary(WORDS))
    if kind == "classes":
        return ClassTokenizer(Vocabulary([*TEXTS.values()]))
    part = {"wordpiece": WordPiece, "sentencepiece": SentencePiece, "bpe": BPE}[kind](vocabulary_size=250)
    return part.build(part.learn(captions))


KINDS = ("words", "decomposed", "characters", "classes", "trees", "wordpiece", "sentencepiece", "bpe")


def given(kind: str, text: str) -> str:
    """A text as the tokenizer takes it."""
    return tree(text).text if kind == "trees" else text


def tree(text: str) -> Tree:
    words = tuple(text.split())
    return Tree(words, (0, *[1] * (len(words) - 1)))


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, str], Any]:
    """A SavedModel of all tokenizers, as TensorFlow Serving loads it."""
    module = tf.Module()
    spec = [tf.TensorSpec([None], tf.string)]
    for kind in KINDS:
        setattr(module, f"of_{kind}", tokenizer(kind))
        setattr(module, kind, tf.function(tokenizer(kind).__call__, spec, autograph=False))
    path = str(tmp_path_factory.mktemp("served") / "model")
    tf.saved_model.save(module, path)
    loaded = tf.saved_model.load(path)
    return lambda kind, text: getattr(loaded, kind)(tf.constant([text])).numpy().tolist()


@pytest.mark.parametrize("language", TEXTS)
@pytest.mark.parametrize("kind", KINDS)
def test_ids_are_equal_in_training_in_graph_and_served(kind: str, language: str, served: Any) -> None:
    text, known = TEXTS[language], tokenizer(kind)
    ids = known([given(kind, text)]).numpy().tolist()
    assert known.is_known(known([given(kind, text)])).numpy().any()
    for other in [text, *other_forms(text)]:
        assert known([given(kind, other)]).numpy().tolist() == ids
        encoded, _ = known.encode([given(kind, other)])
        assert encoded.tolist() == ids[0]
        assert served(kind, given(kind, other)) == ids


def paths() -> Iterator[tuple[str, Callable[[str], Any]]]:
    """Every other path on which a text becomes words, with a value to compare."""
    yield "vocabulary", lambda text: Vocabulary.from_captions([text]).words
    yield "tree vocabulary", lambda text: tree_vocabulary([tree(text).text]).words
    yield "words", lambda text: [*words_of([text])]
    yield "words in Python", split_in_python
    yield "metrics", caption_tokens
    yield "novelty", lambda text: TrainingCaptions([*TEXTS.values()]).novelty([text])
    yield (
        "tags",
        lambda text: align_tags(
            [(word, str(place)) for place, word in enumerate(text.split())], next(words_of([text]))
        ),
    )
    yield (
        "trees of captions",
        lambda text: [_reads_as(Sentence("1", text, tree(text)), each) for each in TEXTS.values()],
    )
    yield "parsed texts", lambda text: parsed_texts([text], lambda raw: raw)
    yield "the client's parser", lambda text: TextParser(lambda raw: [tree(each) for each in raw])([text.encode()])
    yield "known words", lambda text: [WordReader(Vocabulary(WORDS)).knows(word) for word in text.split()]
    yield "split of a premise", premise_split


@pytest.mark.parametrize("language", TEXTS)
@pytest.mark.parametrize(("name", "path"), [pytest.param(*each, id=each[0]) for each in paths()])
def test_canonically_equal_texts_are_one(name: str, path: Callable[[str], Any], language: str) -> None:
    wanted = path(TEXTS[language])
    assert wanted not in (None, [], ())
    for other in other_forms(TEXTS[language]):
        assert path(other) == wanted, name


def test_a_file_of_word_vectors(tmp_path) -> None:
    for form in ("NFC", "NFD"):
        lines = [f"{unicodedata.normalize(form, word)} {number} 1" for number, word in enumerate(WORDS)]
        (tmp_path / form).write_text("\n".join(lines) + "\n", encoding="utf-8")
    composed, vectors = read_word_vectors(tmp_path / "NFC", Vocabulary(WORDS))
    decomposed, _ = read_word_vectors(tmp_path / "NFD", Vocabulary(WORDS))
    assert vectors == len(WORDS) and (composed == decomposed).all()


def test_a_table_that_mixes_both_forms() -> None:
    captions = [form for text in TEXTS.values() for form in (text, *other_forms(text))]
    assert set(Vocabulary.from_captions(captions).words) == set(Vocabulary.from_captions(TEXTS.values()).words)
    # A vocabulary of an earlier version may hold both forms of a word. Texts then have the first.
    both = Vocabulary(["cafe\u0301", "café", "a"])
    assert WordTokenizer(both)(["café cafe\u0301 a"]).numpy().tolist() == [[2, 2, 4]]
    assert "café" in both and "cafe\u0301" in both


def test_a_long_text_is_cut_where_its_composed_form_is() -> None:
    text = "é" * 2047 + " dog cat"
    known = WordTokenizer(Vocabulary(["é" * 2047, "dog", "d"]))
    assert known([text]).numpy().tolist() == [[2, 4]]
    assert known([unicodedata.normalize("NFD", text)]).numpy().tolist() == [[2, 4]]
    assert split_in_python(unicodedata.normalize("NFD", text)) == split_in_python(text)


#: Text -> its words, for the vocabulary and the metrics.
MARKS = {
    **{text: text.split() for text in TEXTS.values()},
    "❤️": None,
    "3️⃣ dogs": ["3", "dogs"],
    "👨‍👩‍👧 and 👍🏽": ["and"],
    "🇫🇷 🏴\U000e0067\U000e0062\U000e007f": [],
    "#️⃣ *️⃣ 🐶": None,
    # As in the COCO evaluation, joiners and variation selectors end a word.
    "क्\u200dया می\u200cروم": ["क्", "या", "می", "روم"],
    "葛\U000e0100城": ["葛", "城"],
    "soft\u00adhyphen": ["softhyphen"],
    "கடற்கரையில் ஓடும் நாய்": ["கடற்கரையில்", "ஓடும்", "நாய்"],
    "ชายสองคนวิ่งบนชายหาด": ["ชายสองคนวิ่งบนชายหาด"],
}


@pytest.mark.parametrize("text", MARKS)
def test_vocabulary_and_metrics_agree_on_words(text: str) -> None:
    [words] = words_of([text])
    assert split_in_python(text) == words
    counted = caption_tokens(text)
    for word in [*words, *counted]:
        assert not any(0xFE00 <= ord(character) <= 0xFE0F or character in "\u200c\u200d" for character in word)
    if MARKS[text] is not None:
        assert words == counted == MARKS[text]
    assert len(words) <= 1 or MARKS[text] is not None
