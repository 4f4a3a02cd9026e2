"""Sentences of a CoNLL-U file find their captions."""

from __future__ import annotations

import contextlib
import multiprocessing
import random
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from tests.systems.trees.spacy_pipeline import captions_of, conllu_of
from vsemb.data.store import Dataset
from vsemb.errors import DataError, InvalidArgumentError
from vsemb.files import locked
from vsemb.systems.trees import parsing
from vsemb.systems.trees.parsers import Parser, open_parser
from vsemb.systems.trees.parsing import (
    ParseWork,
    chunks_of,
    import_conllu,
    match_sentences,
    parse_chunks,
    parse_dataset,
    tree_sizes,
)
from vsemb.systems.trees.trees import Sentence, Tree, write_conllu


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
        (lambda given: [], "must contain the captions of .* got 0 sentences"),
        (
            lambda given: given[:7],
            "No sentence for the caption '21' of the split 'val' of .*'caption 1 of 2', and for 4 more. "
            "The file must hold every caption",
        ),
        (
            lambda given: [replace(s, id=f"s{n}") for n, s in enumerate(given)],
            "the caption '0' .*and for 11 more. Ids in the file look like 's0', those of captions like '0' "
            "or '0.jpg#0'. Sentences without ids are matched in caption order",
        ),
        (lambda given: [*given, replace(given[4], line=99)], "'40' .line 99. is of the same .* of line 15"),
        (
            lambda given: [*given, replace(given[4], line=99, id="4.jpg#0")],
            "'4.jpg#0' .line 99. is of the same caption as the sentence of line 15",
        ),
        (
            change(4, text="caption 0 of 7"),
            "'40' .line 15. is 'caption 0 of 7', and the caption of this id in .* is 'caption 0 of 4'.*this dataset",
        ),
        (change(4, id=None), "A sentence .line 15. has no id, and other sentences have one"),
        (change(0, id=None), "The sentence '10' .line 6. has an id, and other sentences have none"),
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
        (lambda given: given[:-1], "must be the 12 captions .*splits train, val; got 11 sentences"),
        (lambda given: [*given, given[0]], "must be the 12 captions .* got 13 sentences"),
        (
            lambda given: given[1:],
            "A sentence .line 6. has no id and must be caption 1 of .*'0': 'caption 0 of 0'; got 'caption 0 of 1'",
        ),
        (
            change(2, text=None, tree=tree("caption -LRB- of 1")),
            "got 'caption -LRB- of 1'",
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
    assert line.startswith("1 sentences without `# text` differ from their captions: The sentence '30'")
    given = [replace(sentence, tree=tree("something else")) for sentence in given]
    with pytest.raises(DataError, match="Every sentence without `# text` differs from its caption"):
        match_sentences(dataset, given)


def test_a_dataset_from_before_there_were_ids(tiny, tmp_path):
    source = tiny.SOURCE | {"format": "karpathy"}
    dataset = tiny.write(tiny.records(6), tmp_path / "out", source=source)
    with pytest.raises(DataError, match=r"look like '\d+', those of captions like '0.jpg#0'.*with --overwrite"):
        match_sentences(dataset, sentences(dataset, [str(n) for n in range(12)]))


def test_an_id_that_several_captions_have(tiny, tmp_path):
    records = [replace(record, caption_ids=("7",)) for record in tiny.records(7)[::3]]
    dataset = tiny.write(records, tmp_path / "out")
    with pytest.raises(DataError, match="several captions whose id in their source is '7'. Call them 'KEY#0'"):
        match_sentences(dataset, sentences(dataset))
    given = sentences(dataset, ["0.jpg#0", "3.jpg#0", "6.jpg#0"])
    assert match_sentences(dataset, given) == expected(dataset)


pytest.importorskip("spacy")


@pytest.fixture(scope="module")
def parser(spacy_pipeline: Path) -> Parser:
    return open_parser(spacy_pipeline)


@pytest.fixture
def other_parser(spacy_pipeline: Path, tmp_path: Path) -> Parser:
    """The same pipeline in another version."""
    folder = Path(shutil.copytree(spacy_pipeline, tmp_path / "other"))
    meta = (folder / "meta.json").read_text().replace('"version":"0.0.0"', '"version":"0.0.1"')
    (folder / "meta.json").write_text(meta)
    return open_parser(folder)


@pytest.fixture
def small_chunks(monkeypatch):
    monkeypatch.setattr(parsing, "CHUNK", 50)


class Interrupted(Parser):
    """A parser at which someone presses Ctrl-C in the fourth chunk."""

    def __init__(self, parser: Parser) -> None:
        super().__init__(parser._pipeline, parser.info, parser.folder)
        self.calls = 0

    def __call__(self, texts):
        self.calls += 1
        if self.calls == 4:
            raise KeyboardInterrupt
        return super().__call__(texts)


def contents(dataset: Dataset) -> dict[str, bytes]:
    folder = dataset.path / "parses"
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_every_caption_gets_its_tree(scenes_copy, parser):
    lines: list[str] = []
    done = parse_dataset(scenes_copy, parser, report=lines.append)
    assert done.count == done.parses.count == captions_of(scenes_copy)
    assert done.seconds > 0 and lines == []
    for name in scenes_copy.splits:
        split = scenes_copy.split(name)
        assert scenes_copy.annotation("parses").trees(split) == parser(split.captions)
    assert scenes_copy.annotation("parses").parser == parser.info.to_json()
    assert not list(scenes_copy.path.glob(".parses*"))
    # New sentences are parsed as the captions were.
    kept = open_parser(scenes_copy.annotation("parses").parser_folder)
    assert kept.info == parser.info
    assert kept(["Two dogs chase a ball ."]) == parser(["Two dogs chase a ball ."])


def test_a_second_time_there_is_nothing_to_do(scenes_copy, parser):
    parse_dataset(scenes_copy, parser)
    before = contents(scenes_copy)
    # As after a kill between publication and the removal of the work folder.
    (scenes_copy.path / ".parses.partial").mkdir()
    lines: list[str] = []
    again = parse_dataset(scenes_copy, parser, report=lines.append)
    assert again.count == 0 and "nothing to do" in lines[0]
    assert contents(scenes_copy) == before


def test_parses_of_another_parser_stay_unless_overwritten(scenes_copy, parser, other_parser):
    parse_dataset(scenes_copy, parser)
    before = contents(scenes_copy)
    with pytest.raises(DataError, match=r"parses of xx_tiny 0\.0\.0 .* --overwrite"):
        parse_dataset(scenes_copy, other_parser)
    assert contents(scenes_copy) == before
    parse_dataset(scenes_copy, other_parser, overwrite=True)
    assert scenes_copy.annotation("parses").parser["version"] == "0.0.1"
    # By the copy that lies in what is replaced.
    kept = open_parser(scenes_copy.annotation("parses").parser_folder)
    assert parse_dataset(scenes_copy, kept, overwrite=True).count == captions_of(scenes_copy)
    assert open_parser(scenes_copy.annotation("parses").parser_folder).info == kept.info


def test_an_interrupted_run_goes_on(scenes_copy, parser, small_chunks):
    with pytest.raises(KeyboardInterrupt):
        parse_dataset(scenes_copy, Interrupted(parser))
    assert scenes_copy.annotation("parses") is None
    lines: list[str] = []
    # As another process would see it.
    dataset = Dataset.open(scenes_copy.path)
    done = parse_dataset(dataset, parser, report=lines.append)
    assert lines == ["150 captions were parsed before the interruption; resuming."]
    assert done.count == captions_of(dataset) - 150
    assert not list(dataset.path.glob(".parses*"))
    resumed = contents(dataset)
    shutil.rmtree(dataset.path / "parses")
    parse_dataset(dataset, parser)
    assert contents(dataset) == resumed


def test_chunks_of_another_parser_are_left(scenes_copy, parser, other_parser, small_chunks):
    with pytest.raises(KeyboardInterrupt):
        parse_dataset(scenes_copy, Interrupted(parser))
    lines: list[str] = []
    done = parse_dataset(scenes_copy, other_parser, report=lines.append)
    assert "starting again" in lines[0] and len(lines) == 1
    assert done.count == captions_of(scenes_copy)


@pytest.mark.parametrize("content", [b"", b"1\tA\n", None], ids=["empty", "broken", "of another chunk"])
def test_a_damaged_chunk_is_parsed_again(scenes_copy, parser, small_chunks, content):
    with pytest.raises(KeyboardInterrupt):
        parse_dataset(scenes_copy, Interrupted(parser))
    first, second, *_ = sorted((scenes_copy.path / ".parses.partial").glob("*.conllu"))
    if content is None:
        write_conllu([Sentence("0", None, Tree(("A",), (0,)))], second)
    else:
        second.write_bytes(content)
    assert parse_dataset(scenes_copy, parser).count == captions_of(scenes_copy) - 100
    split = scenes_copy.split("train")
    assert scenes_copy.annotation("parses").trees(split) == parser(split.captions)


def test_two_at_once_are_refused(scenes_copy, parser):
    with locked(ParseWork(scenes_copy.path).root, "busy"), pytest.raises(DataError, match="Another process is parsing"):
        parse_dataset(scenes_copy, parser)
    assert parse_dataset(scenes_copy, parser).count


def test_a_caption_that_cannot_be_parsed_is_named_before_any_work(scenes_copy, spacy_pipeline):
    parser = open_parser(spacy_pipeline)
    parser.max_length = 3
    with pytest.raises(DataError, match=r"Caption '.*#0' of split 'train'.*at most 3 characters"):
        parse_dataset(scenes_copy, parser)
    assert not list(scenes_copy.path.glob(".parses*"))


def test_a_parser_that_cannot_be_copied_is_refused_before_any_work(scenes_copy, spacy_pipeline, tmp_path):
    folder = Path(shutil.copytree(spacy_pipeline, tmp_path / "linked"))
    outside = Path(shutil.move(folder / "tokenizer", tmp_path / "tokenizer"))
    (folder / "tokenizer").symlink_to(outside)
    with pytest.raises(DataError, match="cannot be copied"):
        parse_dataset(scenes_copy, open_parser(folder))
    assert not list(scenes_copy.path.glob(".parses*"))


def test_a_folder_that_cannot_be_written(scenes_copy, parser):
    (scenes_copy.path / ".parses.partial").write_text("a file")
    with pytest.raises(DataError, match="Cannot write"):
        parse_dataset(scenes_copy, parser)


@pytest.mark.parametrize("processes", [0, -1])
def test_no_processes(scenes_copy, parser, processes):
    with pytest.raises(InvalidArgumentError, match=f"`processes` must be .*; got {processes}"):
        parse_dataset(scenes_copy, parser, processes=processes)


@pytest.mark.slow
def test_two_processes_write_the_same(scenes_copy, parser, small_chunks):
    parse_dataset(scenes_copy, parser)
    alone = contents(scenes_copy)
    shutil.rmtree(scenes_copy.path / "parses")
    assert parse_dataset(scenes_copy, parser, processes=2).count == captions_of(scenes_copy)
    assert contents(scenes_copy) == alone


@pytest.mark.slow
def test_a_process_that_is_killed_is_one_line(parser, small_chunks):
    chunks = chunks_of("train", ["A black dog runs in the snow ."] * 10_000)
    with (
        contextlib.closing(parse_chunks(chunks, parser, 2)) as parsed,
        pytest.raises(DataError, match="was killed, .* fewer --processes"),
    ):
        next(parsed)
        multiprocessing.active_children()[0].kill()
        list(parsed)
    assert not multiprocessing.active_children()


@pytest.mark.parametrize("name", ["trees.conllu", "trees.conllu.gz"])
def test_trees_from_a_file(scenes_copy, parser, tmp_path, name):
    file = conllu_of(scenes_copy, parser, tmp_path / name)
    done = import_conllu(scenes_copy, [file])
    assert (done.count, done.agreement) == (0, None)
    assert scenes_copy.annotation("parses").parser is None and scenes_copy.annotation("parses").parser_folder is None
    for split in map(scenes_copy.split, scenes_copy.splits):
        assert scenes_copy.annotation("parses").trees(split) == parser(split.captions)
    with pytest.raises(DataError, match="parses from files. Replace them with --overwrite"):
        parse_dataset(scenes_copy, parser)


def test_trees_from_several_files(scenes_copy, parser, tmp_path):
    files = [tmp_path / f"{name}.conllu" for name in scenes_copy.splits]
    for name, file in zip(scenes_copy.splits, files, strict=True):
        split = scenes_copy.split(name)
        rows = zip(split.caption_ids, split.captions, parser(split.captions), strict=True)
        write_conllu((Sentence(*row) for row in rows), file)
    with pytest.raises(DataError):
        import_conllu(scenes_copy, files[:-1])
    assert import_conllu(scenes_copy, files).parses.count == captions_of(scenes_copy)
    with pytest.raises(InvalidArgumentError, match="at least one CoNLL-U file"):
        import_conllu(scenes_copy, [])


def test_a_parser_beside_a_file_is_for_new_sentences(scenes_copy, parser, tmp_path):
    file = conllu_of(scenes_copy, parser, tmp_path / "trees.conllu")
    done = import_conllu(scenes_copy, [file], parser=parser)
    assert done.agreement == 1.0
    assert done.parses.parser == parser.info.to_json() | {"trees_from": ["trees.conllu"]}
    assert open_parser(done.parses.parser_folder).info == parser.info
    # It has not made the trees, so asking it to is no repetition.
    with pytest.raises(DataError, match="from files"):
        parse_dataset(scenes_copy, parser)


def test_a_parser_of_another_kind_shows(scenes_copy, parser, tmp_path):
    class Flat(Parser):
        def stream(self, texts, batch_size=256):
            for tree in super().stream(texts, batch_size):
                yield Tree(tree.words, (0, *[1] * (len(tree) - 1)))

    flat = Flat(parser._pipeline, parser.info)
    file = conllu_of(scenes_copy, flat, tmp_path / "trees.conllu")
    assert import_conllu(scenes_copy, [file], parser=parser).agreement < 0.5


def test_sizes_are_those_of_a_recursion():
    def depth(heads: tuple[int, ...], place: int) -> int:
        return 1 + (depth(heads, heads[place - 1]) if heads[place - 1] else 0)

    draw = random.Random(0)
    trees = []
    for size in range(1, 40):
        # Each word hangs on an earlier one of a random order, the first on nothing.
        order = draw.sample(range(1, size + 1), size)
        heads = {word: draw.choice(order[:at]) if at else 0 for at, word in enumerate(order)}
        trees.append(tuple(heads[word] for word in range(1, size + 1)))
    depths = [max(depth(heads, place) for place in range(1, len(heads) + 1)) for heads in trees]
    sizes = tree_sizes(trees)
    assert (sizes["words_mean"], sizes["words_max"]) == (20.0, 39)
    assert (sizes["depth_mean"], sizes["depth_max"]) == (sum(depths) / len(depths), max(depths))


def test_a_chain_of_many_words_is_measured():
    assert tree_sizes([range(100_000)])["depth_max"] == 100_000
