"""All captions get their trees, from a parser or from files, also after interruptions."""

from __future__ import annotations

import contextlib
import multiprocessing
import random
import shutil
from pathlib import Path

import pytest

from tests.raising import raises_argument
from tests.systems.trees.spacy_pipeline import captions_of, conllu_of
from vsemb.data.store import StoredDataset
from vsemb.errors import DataError
from vsemb.files import locked
from vsemb.systems.trees import parsing
from vsemb.systems.trees.parsers import Parser, open_parser
from vsemb.systems.trees.parsing import ParseWork, chunks_of, import_conllu, parse_chunks, parse_dataset, tree_sizes
from vsemb.systems.trees.trees import Sentence, Tree, write_conllu


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


def contents(dataset: StoredDataset) -> dict[str, bytes]:
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
    with pytest.raises(DataError, match=r"xx_tiny 0\.0\.0 .*--overwrite"):
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
    dataset = StoredDataset.open(scenes_copy.path)
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
    with locked(ParseWork(scenes_copy.path).root, "busy"), pytest.raises(DataError):
        parse_dataset(scenes_copy, parser)
    assert parse_dataset(scenes_copy, parser).count


def test_a_caption_that_cannot_be_parsed_is_named_before_any_work(scenes_copy, spacy_pipeline):
    parser = open_parser(spacy_pipeline)
    parser.max_length = 3
    with pytest.raises(DataError, match=r"#0'.*'train'.* 3 "):
        parse_dataset(scenes_copy, parser)
    assert not list(scenes_copy.path.glob(".parses*"))


def test_a_parser_that_cannot_be_copied_is_refused_before_any_work(scenes_copy, spacy_pipeline, tmp_path):
    folder = Path(shutil.copytree(spacy_pipeline, tmp_path / "linked"))
    outside = Path(shutil.move(folder / "tokenizer", tmp_path / "tokenizer"))
    (folder / "tokenizer").symlink_to(outside)
    with pytest.raises(DataError, match="tokenizer"):
        parse_dataset(scenes_copy, open_parser(folder))
    assert not list(scenes_copy.path.glob(".parses*"))


def test_a_folder_that_cannot_be_written(scenes_copy, parser):
    (scenes_copy.path / ".parses.partial").write_text("a file")
    with pytest.raises(DataError):
        parse_dataset(scenes_copy, parser)


@pytest.mark.parametrize("processes", [0, -1])
def test_no_processes(scenes_copy, parser, processes):
    with raises_argument("processes"):
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
        pytest.raises(DataError, match="--processes"),
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
    with pytest.raises(DataError, match="--overwrite"):
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
    with raises_argument("files"):
        import_conllu(scenes_copy, [])


def test_a_parser_beside_a_file_is_for_new_sentences(scenes_copy, parser, tmp_path):
    file = conllu_of(scenes_copy, parser, tmp_path / "trees.conllu")
    done = import_conllu(scenes_copy, [file], parser=parser)
    assert done.agreement == 1.0
    assert done.parses.parser == parser.info.to_json() | {"trees_from": ["trees.conllu"]}
    assert open_parser(done.parses.parser_folder).info == parser.info
    # It has not made the trees, so asking it to is no repetition.
    with pytest.raises(DataError, match="--overwrite"):
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
