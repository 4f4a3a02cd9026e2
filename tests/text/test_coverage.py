"""Known and unknown words: counts, texts without spaces, and unknown words of a query."""

from __future__ import annotations

import numpy as np
import pytest

from vsemb.errors import DataError
from vsemb.recipes.retrieval import Retrieval
from vsemb.text import CharacterTokenizer, Vocabulary, WordTokenizer
from vsemb.text import coverage as module
from vsemb.text.coverage import coverage, unknown_words
from vsemb.text.ngrams import NGrams
from vsemb.text.spaces import SUBWORDS, lacks_spaces
from vsemb.text.subwords import BPE, SentencePiece, WordPiece
from vsemb.text.tokenizers import NGRAMS, Characters, Words

CHINESE = ["一只红色的狗在海滩上奔跑", "两只猫在公园里睡觉。", "一个男孩和一只狗"]
JAPANESE = ["赤い犬が浜辺を走っている", "公園で眠る二匹の猫"]
THAI = ["สุนัขสีแดงวิ่งบนชายหาด", "แมวสองตัวนอนในสวน"]
# The same with spaces between words, and scripts that have them.
SPACED = [
    "一只 红色 的 狗 在 海滩 上 奔跑",
    "สุนัข สีแดง วิ่ง บน ชายหาด",
    "빨간 개가 해변에서 달린다",
    "красная собака",
    "a 犬",
]


def counted(tokenizer, texts):
    return coverage(tokenizer, *tokenizer.encode(texts), texts).counts


def test_unknown_tokens_are_counted_per_text(monkeypatch):
    tokenizer = WordTokenizer(Vocabulary(["a", "dog"]), max_length=3)
    texts = ["a dog", "a shield and more", "zebras", "!?", "dog dog dog"]
    covered = coverage(tokenizer, *tokenizer.encode(texts), texts)
    # The fourth word of the second text is cut off. A text without a word has no known one.
    assert covered.lengths.tolist() == [2, 3, 1, 0, 3] and covered.known.tolist() == [2, 1, 0, 0, 3]
    assert covered.share.tolist() == pytest.approx([1, 1 / 3, 0, 0, 1])
    counts = covered.counts
    assert (counts.tokens, counts.unknown_tokens, counts.unknown_share) == (9, 3, pytest.approx(1 / 3))
    assert (counts.texts_with_unknown, counts.texts_without_known, counts.texts_without_spaces) == (3, 2, 0)
    monkeypatch.setattr(module, "_BLOCK", 2)
    assert np.array_equal(coverage(tokenizer, *tokenizer.encode(texts)).known, covered.known)


def test_no_texts_have_no_unknown_words():
    tokenizer = WordTokenizer(Vocabulary(["a"]))
    counts = counted(tokenizer, [])
    assert (counts.texts, counts.tokens, counts.unknown_share, counts.texts_with_unknown) == (0, 0, 0, 0)


@pytest.mark.parametrize("texts", [CHINESE, JAPANESE, THAI])
def test_texts_without_spaces_are_found_and_subwords_read_them(texts):
    assert all(map(lacks_spaces, texts))
    words = WordTokenizer(Words().learn(texts))
    assert counted(words, texts).texts_without_spaces == len(texts)
    assert SUBWORDS in " ".join(counted(words, texts).warnings())
    assert counted(words, texts).texts_with_unknown == 0  # Each is a known word of its own, which no other text has.
    new = [texts[1][:6] + texts[0][:6], texts[0][2:8] + texts[1][2:6]]
    assert counted(words, new).texts_without_known == 2
    for part in (SentencePiece(), BPE(), WordPiece()):
        known = counted(part.build(part.learn(texts)), new)
        assert known.texts_with_unknown == 0 and known.texts_without_spaces == 0


def test_the_verb_has_the_number_of_texts():
    counts = counted(WordTokenizer(Vocabulary(["a"])), ["a", "b"])
    assert "1 of 2 captions has no known words" in counts.described("captions")


def test_spaces_between_words_are_enough():
    assert not any(map(lacks_spaces, SPACED))


def test_few_texts_without_spaces_are_not_reported():
    words = WordTokenizer(Vocabulary(["a"]))
    assert counted(words, ["a dog"] * 19 + CHINESE[:1]).texts_without_spaces == 0
    assert counted(words, ["a dog"] * 4 + CHINESE[:1]).texts_without_spaces == 1


def test_characters_of_other_scripts_are_unknown():
    counts = counted(CharacterTokenizer(), [CHINESE[0], "a dog"])
    assert counts.texts_without_known == 1 and counts.unit == "characters"


def test_a_vocabulary_knows_how_many_words_it_was_learned_from():
    texts = ["a dog", "a cat", "a shield"]
    assert Words(min_count=2).learn(texts).seen == 4 and Words().learn(texts).words == ("a", "cat", "dog", "shield")
    assert Vocabulary(["a"]).seen is None


def test_no_frequent_word_in_texts_without_spaces_names_subwords():
    with pytest.raises(DataError, match=SUBWORDS):
        Words(min_count=2).learn(CHINESE)
    for texts in (["a dog"], ["one two three four five six seven eight nine ten", CHINESE[0]]):
        with pytest.raises(DataError) as error:
            Words(min_count=2).learn(texts)
        assert SUBWORDS not in str(error.value)


@pytest.mark.parametrize("part", [Words(min_count=4, vocabulary_size=9), Characters(), SentencePiece(min_count=2)])
def test_remedies_are_assignments_to_a_recipe(part):
    recipe = Retrieval().with_overrides([f"text.tokenizer={part.kind}"])
    assert part.remedies
    for change in part.remedies:
        assert recipe.with_overrides([change]).text.tokenizer != part
    assert Words().remedies.keys() == {NGRAMS, SUBWORDS}


def test_unknown_words_of_texts_are_named_once():
    tokenizer = WordTokenizer(Vocabulary(["a", "dog"]))
    assert unknown_words(tokenizer, ["A dog, a zebra", "zebra and dog"]) == (["zebra", "and"], 7, 4)


def test_composed_words_are_neither_whole_nor_unknown():
    texts = ["a dog", "two dogs xyzzy", "xyzzy"]
    tokenizer = NGrams().build(Vocabulary(["a", "dog", "two"]))
    covered = coverage(tokenizer, *tokenizer.encode(texts), texts)
    assert covered.known.tolist() == [2, 2, 0] and covered.whole.tolist() == [2, 1, 0]
    counts = covered.counts
    assert (counts.tokens, counts.composed_tokens, counts.unknown_tokens) == (6, 1, 2)
    assert not counts.all_known and "50.0 % of all words known as a whole, 16.7 % composed" in counts.notes[0]
    assert unknown_words(tokenizer, texts)[0] == ["xyzzy"]
    known = counted(tokenizer, texts[:1])
    assert known.all_known and known.notes == []
    # Composed words alone are told, too, and words of other tokenizers are whole.
    assert len(counted(tokenizer, ["dogs"]).notes) == 1
    assert counted(WordTokenizer(Vocabulary(["a"])), texts).composed_tokens == 0
