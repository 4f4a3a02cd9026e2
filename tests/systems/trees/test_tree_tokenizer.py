"""Trees to ids and heads: lower case, cut, and nothing from what is no tree."""

from __future__ import annotations

import time

import numpy as np
import pytest
import tensorflow as tf

from tests.raising import raises_argument
from tests.systems.trees.random_trees import WORDS, random_tree
from vsemb.errors import DataError
from vsemb.systems.trees.relations import RELATIONS
from vsemb.systems.trees.tree_lstm import valid_trees
from vsemb.systems.trees.tree_tokenizer import LabelledTreeTokenizer, TreeTokenizer, tree_vocabulary
from vsemb.systems.trees.trees import Tree
from vsemb.text import Vocabulary

VOCABULARY = Vocabulary(["a", "dog", "RUNS", "犬", "Don't", "Große", ".", "New York"])
A_DOG_RUNS = "A\t2\nDOG\t3\nruns\t0"

#: What is no tree, in text.
NO_TREES = (
    [
        "",
        "A dog runs",
        "a\t0\n",
        "\na\t0",
        "a\t0\n\nb\t1",
        "a\t",
        "a\t0\t",
        "a\tb\t0",
        "\t0",
        "a\t-1",
        "a\t+0",
    ]
    + ["a\t 0", "a\t0\r\nb\t1", "a\t٠", "a\t0000000000", "a\t4294967296", "a\t1e0", "a\t0x0", "a\t0\nb\t0"]
    + [
        "a\t2\nb\t1",
        "a\t1",
        "a\t0\nb\t2",
        "a\t0\nb\t3",
        "a\t0\nb\t4\nc\t3",
        "a\0\t0",
        "\0",
        "\t",
        "\n",
        "0\na\t0",
    ]
)


def expected(tree: Tree, max_length: int, vocabulary: Vocabulary = VOCABULARY) -> list[list[int]]:
    """Ids and heads of a tree word by word, with Python's own lower case."""
    size = min(len(tree), max_length)
    ids = {word.lower(): number for number, word in enumerate(vocabulary.tokens)}
    heads = []
    for head in tree.heads[:size]:
        while head > size:
            head = tree.heads[head - 1]
        heads.append(head)
    root = heads.index(0) + 1
    heads = [root if head == 0 and place != root else head for place, head in enumerate(heads, 1)]
    return [[ids.get(word.lower(), 1), head] for word, head in zip(tree.words[:size], heads, strict=True)]


def above(heads: tuple[int, ...], place: int) -> set[int]:
    """The ancestors of a word."""
    found = set()
    while place := heads[place - 1]:
        found.add(place)
    return found


def rows_of(tokens: tf.Tensor) -> list[list[list[int]]]:
    """The tokens of each row, without their padding, which must be on the right."""
    rows = []
    for row in tokens.numpy():
        size = int((row[:, 0] != 0).sum())
        assert not row[size:].any()
        rows.append(row[:size].tolist())
    return rows


def arrays(trees: list[Tree], steps: int) -> tuple[np.ndarray, np.ndarray]:
    words = [list(tree.words) + [""] * (steps - len(tree)) for tree in trees]
    heads = [list(tree.heads) + [7] * (steps - len(tree)) for tree in trees]  # 7: padding may hold anything.
    return np.array(words, object), np.array(heads)


def random_trees(seed: int, count: int, longest: int) -> list[Tree]:
    generator = np.random.default_rng(seed)
    return [random_tree(generator, int(size)) for size in generator.integers(1, longest + 1, count)]


def test_ids_and_heads() -> None:
    tokenizer = TreeTokenizer(VOCABULARY)
    tokens = tokenizer([A_DOG_RUNS, "犬\t0", "zebra\t3\ndon't\t3\nnew york\t0"])
    assert tokens.dtype == tf.int32
    assert tokens.numpy().tolist() == [
        [[2, 2], [3, 3], [4, 0]],
        [[5, 0], [0, 0], [0, 0]],
        [[1, 3], [6, 3], [9, 0]],
    ]
    assert TreeTokenizer.token_shape == (2,)
    assert tokenizer.vocabulary is VOCABULARY


def test_pieces_are_the_words_as_written() -> None:
    tokenizer = TreeTokenizer(VOCABULARY, max_length=2)
    assert tokenizer.pieces(tf.constant([A_DOG_RUNS, "a dog"])).to_list() == [[b"A", b"DOG"], []]


@pytest.mark.parametrize("text", NO_TREES, ids=range(len(NO_TREES)))
def test_what_is_no_tree_has_no_tokens(text: str) -> None:
    with pytest.raises(DataError):
        Tree.from_text(text)
    tokenizer = TreeTokenizer(VOCABULARY)
    assert tokenizer([text]).numpy().tolist() == [[[0, 0]]]
    # And leaves its neighbours as they are, on both sides.
    rows = rows_of(tokenizer([A_DOG_RUNS, text, A_DOG_RUNS, text]))
    assert rows == [[[2, 2], [3, 3], [4, 0]], []] * 2


def test_what_is_a_tree_in_text_is_one_in_graph() -> None:
    generator = np.random.default_rng(5)
    heads = ["0", "0", "1", "2", "3", "4", "", "-1", "x", "03"]
    texts = []
    for _ in range(3000):
        size = generator.integers(1, 5)
        lines = [f"w\t{min(int(generator.integers(0, 5)), size)}" for _ in range(size)]
        if generator.random() < 0.2:
            lines[generator.integers(size)] = generator.choice(["w", "", "\t"]) + generator.choice(heads)
        texts.append("\n".join(lines))
    rows = rows_of(TreeTokenizer(Vocabulary(["w"]))(texts))
    trees = 0
    for text, row in zip(texts, rows, strict=True):
        try:
            tree = Tree.from_text(text)
        except DataError:
            assert row == [], text
        else:
            assert [head for _, head in row] == list(tree.heads)
            trees += 1
    assert 300 < trees < 2700


def test_random_graphs_are_trees_where_the_operation_says_so() -> None:
    generator = np.random.default_rng(6)
    lengths = generator.integers(0, 7, 2000)
    heads = generator.integers(-1, 7, (2000, 6))
    heads = np.where(generator.random((2000, 6)) < 0.7, np.clip(heads, 0, lengths[:, None]), heads)
    inside = np.arange(6) < lengths[:, None]
    tokens = TreeTokenizer(VOCABULARY).from_tokens(np.where(inside, "dog", ""), heads).numpy()
    valid = np.array(valid_trees(heads, inside)[0])
    assert 100 < valid.sum() < 1900
    np.testing.assert_array_equal(tokens[:, 0, 0] > 0, valid)
    np.testing.assert_array_equal(tokens[valid, :, 1], np.where(inside, heads, 0)[valid])


@pytest.mark.parametrize("max_length", [1, 2, 5, 9, 64])
def test_random_trees_and_their_cut(max_length: int) -> None:
    trees = random_trees(max_length, 200, 20)
    tokenizer = TreeTokenizer(VOCABULARY, max_length)
    rows = rows_of(tokenizer([tree.text for tree in trees]))
    assert rows == [expected(tree, max_length) for tree in trees]
    for tree, row in zip(trees, rows, strict=True):
        heads = tuple(head for _, head in row)
        Tree(tree.words[: len(row)], heads).check("What is left")
        for place in range(1, len(row) + 1):  # What was above a word and is kept still is.
            assert above(tree.heads, place) & {*range(1, len(row) + 1)} <= above(heads, place)
    assert (rows == [expected(tree, 99) for tree in trees]) == (max_length > 20)


def test_the_cut_by_hand() -> None:
    # a ← c ← e (root), b ← d ← e: with d and e cut off, a hangs on c; b and c have nothing above them.
    tree = Tree(("a", "b", "c", "d", "e"), (3, 4, 5, 5, 0))
    heads = [TreeTokenizer(VOCABULARY, size)([tree.text]).numpy()[0, :, 1].tolist() for size in (5, 4, 3, 2, 1)]
    assert heads == [
        [3, 4, 5, 5, 0],
        [3, 4, 0, 3],  # e cut: c and d lose their head; c comes first and becomes the root.
        [3, 0, 2],  # d too: b is the first without one, c hangs on it.
        [0, 1],
        [0],
    ]
    # A head that is kept again behind one that is not: b hangs on c, which hangs on a.
    assert TreeTokenizer(VOCABULARY, 2)(["a\t0\nb\t3\nc\t1"]).numpy()[0, :, 1].tolist() == [0, 1]
    # What is cut off must be sound.
    broken = [
        "a\t0\nb\t1\nc\t3",
        "a\t0\nb\t1\nc\t4\nd\t3",
        "a\t0\nb\t1\nc\t0",
        "a\t0\nb\t1\nc",
        "a\t0\nb\t1\n\t1",
    ]
    assert TreeTokenizer(VOCABULARY, 2)(broken).numpy().tolist() == [[[0, 0]]] * 5


@pytest.mark.parametrize("max_length", [3, 64])
def test_from_tokens_is_the_same(max_length: int) -> None:
    trees = random_trees(1, 100, 12)
    tokenizer = TreeTokenizer(VOCABULARY, max_length)
    wanted = tokenizer([tree.text for tree in trees]).numpy()
    for steps in (12, 15):
        words, heads = arrays(trees, steps)
        for dtype in (np.int32, np.int64):
            np.testing.assert_array_equal(tokenizer.from_tokens(words, heads.astype(dtype)), wanted)


def test_tokens_that_are_no_tree() -> None:
    tokenizer = TreeTokenizer(VOCABULARY)
    bad = [
        (["a", "", "dog"], [3, 3, 0]),  # a gap
        (["a", "", "dog"], [3, 0, 0]),
        (["", "a", ""], [0, 0, 0]),
        (["", "", ""], [0, 0, 0]),
        (["a", "dog", ""], [2, 3, 0]),  # hangs on padding
        (["a", "dog", ""], [0, -1, 0]),
        (["a", "dog", ""], [0, 2**32, 1]),  # 0 in int32
        (["a", "dog", ""], [0, 2**32 + 1, 1]),
        (["a", "dog", ""], [0, -(2**63), 0]),
        (["a", "dog", ""], [0, 2**63 - 1, 0]),
        (["a", "d\tog", ""], [0, 1, 0]),
        (["a", "d\nog", ""], [0, 1, 0]),
        (["a", "d\0og", ""], [0, 1, 0]),
    ]
    good = (["a", "dog", ""], [0, 1, 0])
    words = [row for pair in bad for row in (pair[0], good[0])]
    heads = [row for pair in bad for row in (pair[1], good[1])]
    rows = rows_of(tokenizer.from_tokens(words, tf.constant(heads, tf.int64)))
    assert rows == [[], [[2, 0], [3, 1]]] * len(bad)
    with pytest.raises((tf.errors.InvalidArgumentError, ValueError)):
        tokenizer.from_tokens(words, tf.constant(heads, tf.int64)[:, :2])


def test_bytes_that_are_no_text() -> None:
    tokenizer = TreeTokenizer(Vocabulary(["a\ufffd", "dog"]))
    assert rows_of(tokenizer([b"a\xff\t2\ndog\t0", b"\xff\xfe", b"do\xffg\t0"])) == [
        [[2, 2], [3, 0]],
        [],
        [[1, 0]],
    ]
    assert rows_of(tokenizer.from_tokens([[b"a\xff", b"dog"]], [[2, 0]])) == [[[2, 2], [3, 0]]]


def test_any_bytes_are_tokenized() -> None:
    generator = np.random.default_rng(8)
    pool = [*"\t\t\t\n\n000112ab\r\0 ", "犬", "\u2028", "İ", "Σ", "\U0010ffff", "\ufeff"]
    texts = ["".join(generator.choice(pool, generator.integers(0, 12))).encode() for _ in range(2000)]
    texts += [generator.bytes(20) for _ in range(200)] + [b"a\t0"]
    tokenizer = TreeTokenizer(VOCABULARY, 4)
    rows = rows_of(tokenizer(texts))
    for text, row in zip(texts, rows, strict=True):
        try:
            tree = Tree.from_text(text.decode(errors="replace"))
        except DataError:
            assert row == [], text
        else:
            assert [head for _, head in row] == [head for _, head in expected(tree, 4)]
    assert len(list(filter(None, rows))) > 5


def test_encode_equals_a_call() -> None:
    texts = [tree.text for tree in random_trees(2, 300, 9)] + ["", "A dog"]
    tokenizer = TreeTokenizer(VOCABULARY, 6)
    ids, offsets = tokenizer.encode(texts)
    assert ids.dtype == np.int32 and offsets.dtype == np.int64
    rows = [ids[a:b].tolist() for a, b in zip(offsets[:-1], offsets[1:], strict=True)]
    assert rows == rows_of(tokenizer(texts))
    for none in ([], [""]):
        ids, offsets = tokenizer.encode(none)
        assert ids.shape == (0, 2) and ids.dtype == np.int32 and offsets.tolist() == [0] * (1 + len(none))


@pytest.mark.parametrize("texts", [[], [""], ["A dog", ""]], ids=["none", "one", "two"])
def test_at_least_one_step(texts) -> None:
    tokenizer = TreeTokenizer(VOCABULARY)
    assert tokenizer(tf.constant(texts, tf.string)).shape == (len(texts), 1, 2)
    for steps in (0, 2):
        words = tf.fill((len(texts), steps), "")
        assert tokenizer.from_tokens(words, tf.zeros((len(texts), steps), tf.int32)).shape == (
            len(texts),
            1,
            2,
        )


def test_neighbours_and_padding_change_nothing() -> None:
    trees = random_trees(4, 40, 9) + random_trees(4, 2, 200)
    texts = [tree.text for tree in trees] + NO_TREES
    tokenizer = TreeTokenizer(VOCABULARY, 7)
    rows = rows_of(tokenizer(texts))
    for text, row in zip(texts, rows, strict=True):
        assert rows_of(tokenizer([text])) == [row]
    order = np.random.default_rng(0).permutation(len(texts))
    assert rows_of(tokenizer([texts[i] for i in order])) == [rows[i] for i in order]


@pytest.mark.slow
def test_the_same_in_graph_and_after_export(tmp_path) -> None:
    trees = random_trees(9, 50, 12)
    texts = [tree.text for tree in trees]
    words, heads = arrays(trees, 12)
    tokenizer = TreeTokenizer(VOCABULARY, 8)
    wanted = tokenizer(texts).numpy()
    module = tf.Module()
    module.tables = [tokenizer.table]
    strings = [tf.TensorSpec([None], tf.string)]
    pairs = [tf.TensorSpec([None, None], tf.string), tf.TensorSpec([None, None], tf.int32)]
    module.texts = tf.function(tokenizer.__call__, autograph=False, input_signature=strings)
    module.words = tf.function(tokenizer.from_tokens, autograph=False, input_signature=pairs)
    assert module.texts.get_concrete_function().output_shapes.as_list() == [None, None, 2]
    tf.saved_model.save(module, str(tmp_path / "saved"))
    loaded = tf.saved_model.load(str(tmp_path / "saved"))
    words, heads = tf.constant(words.tolist()), tf.constant(heads, tf.int32)
    for served in (module, loaded):
        np.testing.assert_array_equal(served.texts(tf.constant(texts)), wanted)
        np.testing.assert_array_equal(served.words(words, heads), wanted)
        assert served.texts(tf.constant([], tf.string)).shape == (0, 1, 2)
        assert served.words(words[:0], heads[:0]).shape == (0, 1, 2)
        assert served.words(words[:, :0], heads[:, :0]).shape == (50, 1, 2)
        with pytest.raises(tf.errors.InvalidArgumentError):
            served.words(words, heads[:, :5])
    rows = tf.data.Dataset.from_tensor_slices(texts).batch(7).map(tokenizer.ragged)
    assert sum((row.to_list() for row in rows), []) == rows_of(tf.constant(wanted))


def test_one_long_row_among_short_ones() -> None:
    size = 100_000
    chain = "\n".join(f"w\t{place}" for place in range(size))
    cycle = "\n".join(f"w\t{(place + 1) % size + 1}" for place in range(size))
    tokenizer = TreeTokenizer(VOCABULARY, 2)
    began = time.process_time()
    rows = rows_of(tokenizer([chain, cycle, *["a\t0"] * 5000, chain + "\nw\t0"]))
    assert rows == [[[1, 0], [1, 1]], [], *[[[2, 0]]] * 5000, []]
    # It takes 0.5 s; padded to a batch it would be 5e8 words.
    assert time.process_time() - began < 20


def test_max_length_and_vocabulary_are_checked() -> None:
    with raises_argument("max_length"):
        TreeTokenizer(VOCABULARY, max_length=0)
    with raises_argument("vocabulary"):
        TreeTokenizer(Vocabulary(["a", "us", "b", "US"]))
    assert TreeTokenizer(Vocabulary([]))(["a\t0"]).numpy().tolist() == [[[1, 0]]]


def words(*names: str) -> list[str]:
    """A parsed text of one word for each name."""
    return [f"{name}\t0" for name in names]


def test_the_vocabulary_votes_for_capitals() -> None:
    texts = words("US", "US", "us", "Dog", "dog", "IT", "It", "a", "a", "A", "A", "a") + ["The\t2\ndog\t0"]
    # a 5 times; dog and us 3 times, dog in lower case twice; it twice, never so, and I-T before I-t.
    assert tree_vocabulary(texts).words == ("a", "dog", "US", "IT", "The")
    assert tree_vocabulary(iter(texts), min_count=3).words == ("a", "dog", "US")
    assert tree_vocabulary(texts, size=1).words == ("a",)


@pytest.mark.parametrize("word", WORDS + ("İstanbul", "ΟΔΟΣ", "ǅ", "ẞ", "K", "Å"), ids=range(len(WORDS) + 6))
def test_every_word_finds_itself(word: str) -> None:
    # Letters whose lower case is longer, depends on its place, or is another letter's.
    tokenizer = TreeTokenizer(tree_vocabulary(words("other", word, word)))
    assert tokenizer(words(word)).numpy().tolist() == [[[2, 0]]]
    lower = tf.strings.lower(word, encoding="utf-8").numpy().decode()
    assert tokenizer(words(lower)).numpy().tolist() == [[[2, 0]]]


def test_all_letters_have_one_lower_case() -> None:
    letters = [chr(code) for code in range(0x250) if chr(code).isalpha()]
    letters += [chr(code) for code in range(0x370, 0x30000, 7) if chr(code).isalpha()]
    ids, _ = TreeTokenizer(tree_vocabulary(words(*letters))).encode(words(*letters))
    assert (ids[:, 0] > 1).all()


def test_words_that_no_vocabulary_takes_stay_unknown() -> None:
    texts = words("<pad>", "<UNK>", " dog", "dog ", "a\u2028b", "cat", "\u3000")
    vocabulary = tree_vocabulary(texts)
    assert vocabulary.words == ("cat",)
    assert [row[0][0] for row in rows_of(TreeTokenizer(vocabulary)(texts))] == [1, 1, 1, 1, 1, 2, 1]


def test_vocabularies_that_cannot_be() -> None:
    with pytest.raises(DataError, match="3 .*min_count"):
        tree_vocabulary(words("a", "a"), min_count=3)
    with pytest.raises(DataError) as raised:
        tree_vocabulary(["A dog", ""])
    assert "min_count" not in str(raised.value)  # It is 1.
    with pytest.raises(DataError):
        tree_vocabulary([])
    with raises_argument("size"):
        tree_vocabulary(words("a"), size=0)


def test_texts_longer_than_a_tokenizer_are_counted_whole() -> None:
    tree = random_tree(np.random.default_rng(2), 300)
    assert set(tree_vocabulary([tree.text]).words) == {word for word in WORDS if word not in ("dog", "Dog")} | {
        "dog" if tree.words.count("dog") >= tree.words.count("Dog") else "Dog"
    }


class TestRelations:
    """The third column of a parsed text."""

    def test_of_each_word(self) -> None:
        tokenizer = LabelledTreeTokenizer(VOCABULARY)
        texts = ["a\t2\tDET\nb\t3\tnmod:poss\nc\t0\tno such label", "a\t2\nb\t0\troot", "a\t0\t", "a\t1\tdet", ""]
        tokens = tokenizer(texts).numpy()
        names = [[RELATIONS[number] for number in row] for row in tokens[:2, :, 2]]
        assert names == [["det", "nmod", "dep"], ["dep", "root", "dep"]]
        assert not tokens[2:].any()

    def test_a_tokenizer_of_heads_passes_over_them(self) -> None:
        tokenizer = TreeTokenizer(VOCABULARY)
        labelled = "A\t2\tdet\nDOG\t3\tnsubj\nruns\t0\troot"
        np.testing.assert_array_equal(tokenizer([labelled]), tokenizer([A_DOG_RUNS]))
        np.testing.assert_array_equal(LabelledTreeTokenizer(VOCABULARY)([labelled])[..., :2], tokenizer([labelled]))
        assert tree_vocabulary([labelled]).words == tree_vocabulary([A_DOG_RUNS]).words

    def test_of_words_that_are_left(self) -> None:
        tokens = LabelledTreeTokenizer(VOCABULARY, max_length=2)(["a\t3\tdet\nb\t3\tamod\nc\t0\troot"]).numpy()
        assert tokens[0, :, 1].tolist() == [0, 1]
        assert [RELATIONS[number] for number in tokens[0, :, 2]] == ["det", "amod"]

    def test_tokens_and_heads_without_them(self) -> None:
        tokens = LabelledTreeTokenizer(VOCABULARY).from_tokens([["a", "dog"]], [[2, 0]])
        assert tokens.numpy().tolist() == [[[2, 2, 0], [3, 0, 0]]]
