"""`vsemb annotate --dependencies` as functions: trees of all captions, from a parser or from CoNLL-U files."""

from __future__ import annotations

import concurrent.futures
import contextlib
import functools
import itertools
import multiprocessing
import os
import shlex
import shutil
import signal
import threading
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tqdm import tqdm

from vsemb.data.caption_index import CaptionIndex
from vsemb.data.store import Dataset
from vsemb.errors import DataError, invalid_argument, one_line
from vsemb.files import locked, read_json, write_json
from vsemb.systems.trees.parsers import Parser, ParserInfo, open_parser, parser_files
from vsemb.systems.trees.parses import Parses, find, write_parses
from vsemb.systems.trees.trees import Sentence, Tree, read_conllu, write_conllu

#: Under this name stands beside a parser that made no trees itself which files they came from.
FROM_FILES = "trees_from"

# So many captions are parsed to tell whether a parser and trees from a file are of one kind.
_SAMPLE = 200

#: Captions that are parsed and kept together.
CHUNK = 512
_PLAN = "plan.json"
_SHOWN = 100
# The Penn Treebank's spellings, which CoreNLP writes; captions are compared with them taken back.
_SPELLINGS = {
    "-LRB-": "(",
    "-RRB-": ")",
    "-LSB-": "[",
    "-RSB-": "]",
    "-LCB-": "{",
    "-RCB-": "}",
    "``": '"',
    "''": '"',
}


@dataclass(frozen=True)
class Parsed:
    """The parses of a dataset, and what making them took.

    Args:
        parses: the parses.
        count: how many captions were parsed now, and not by an interrupted run before or not at all.
        seconds: how long that took.
        agreement: where trees came from a file and a parser was named, the share of sampled captions of which
            it makes the same tree; else None.
    """

    parses: Parses
    count: int = 0
    seconds: float = 0.0
    agreement: float | None = None


def parse_dataset(
    dataset: Dataset,
    parser: Parser,
    *,
    processes: int = 1,
    overwrite: bool = False,
    report: Callable[[str], None] = print,
) -> Parsed:
    """Parses all captions of a dataset and writes their trees beside it.

    An interrupted run is taken up where it was by the next one with the same parser; the files come out as
    if it had not been interrupted, with however many processes. Where the dataset has the parses of this
    parser already, nothing happens. The parser is copied too, unless it is an installed one, so that new
    sentences can be parsed as the captions were.

    Args:
        dataset: the dataset.
        parser: the parser.
        processes: how many processes parse; each loads the parser. With several, a script must do its work
            under `if __name__ == "__main__":`, since they import it too.
        overwrite: whether parses that are there are made anew.
        report: called with lines worth showing.

    Raises:
        DataError: if other parses are there, a caption cannot be parsed, the parser fails, or the file
            system refuses.
        InvalidArgumentError: if `processes` is less than 1.

    Example:

    ```python
    done = parse_dataset(Dataset.open("data/flickr8k"), open_parser("en_core_web_sm"), report=print)
    print(done.parses.count, "trees", done.count / done.seconds, "captions a second")
    ```
    """
    if processes < 1:
        raise invalid_argument("processes", processes, "an integer >= 1")
    if not overwrite and (present := _present(dataset, parser.info)):
        report(f"{dataset.path} has the parses of this parser already; nothing to do.")
        return Parsed(present)
    if parser.folder is not None:
        parser_files(parser.folder)  # What cannot be copied is refused now and not after hours.
    _refuse_unparsable(dataset, parser)
    work = ParseWork(dataset.path)
    with locked(work.root, f"Another process is parsing {dataset.path}; wait for it or stop it."):
        if work.begin({"dataset": dataset.fingerprint, "parser": parser.info.to_json()}):
            report("The parser or the dataset changed since the interrupted run: starting afresh.")
        trees, count, seconds = _parse(dataset, parser, processes, work, report)
        parses = write_parses(
            dataset, trees, parser=parser.info.to_json(), parser_folder=parser.folder, overwrite=overwrite
        )
        shutil.rmtree(work.root, ignore_errors=True)
    return Parsed(parses, count, seconds)


def import_conllu(
    dataset: Dataset,
    files: Sequence[str | os.PathLike[str]],
    *,
    parser: Parser | None = None,
    overwrite: bool = False,
    report: Callable[[str], None] = print,
) -> Parsed:
    """Takes the trees of all captions from CoNLL-U files and writes them beside the dataset.

    Any parser may have made them; see `match_sentences` for how a sentence finds its caption.

    Args:
        dataset: the dataset.
        files: CoNLL-U, plain or compressed with gzip; together they hold every caption.
        parser: what shall parse new sentences, such as queries. The same parser that made the files, or one
            of the same annotation: some captions are parsed to tell how far they agree.
        overwrite: whether other parses are replaced.
        report: called with lines worth showing.

    Raises:
        DataError: if a file is broken, a caption has no tree, or other parses are there.
        InvalidArgumentError: without a file.

    Example:

    ```python
    import_conllu(Dataset.open("data/flickr8k"), ["captions.conllu.gz"], report=print)
    ```
    """
    if not files:
        raise invalid_argument("files", list(files), "at least one CoNLL-U file")
    sentences = itertools.chain.from_iterable(map(read_conllu, files))
    counted = tqdm(sentences, desc="read", unit="sentence", disable=None, leave=False)
    trees = match_sentences(dataset, counted, report)
    agreement = None
    described: dict[str, Any] | None = None
    if parser is not None:
        captions = [text for name in dataset.splits for text in dataset.split(name).captions]
        agreement = _agreement(parser, captions, [tree for name in dataset.splits for tree in trees[name]])
        described = parser.info.to_json() | {FROM_FILES: [Path(file).name for file in files]}
    folder = None if parser is None else parser.folder
    parses = write_parses(dataset, trees, parser=described, parser_folder=folder, overwrite=overwrite)
    return Parsed(parses, agreement=agreement)


def tree_sizes(heads: Iterable[Sequence[int]]) -> dict[str, float]:
    """Measures trees: their words, and their depth, the words on the longest way from the root down.

    Args:
        heads: of each tree the heads, counted from 1, 0 for the root; at least one tree.

    Returns:
        Means and maxima, as `words_mean`, `words_max`, `depth_mean` and `depth_max`.

    Example:

    >>> tree_sizes([(2, 0), (2, 3, 0, 3)])
    {'words_mean': 3.0, 'words_max': 4, 'depth_mean': 2.5, 'depth_max': 3}
    """
    words, depths = zip(*((len(tree), _depth(tree)) for tree in heads), strict=True)
    return {
        "words_mean": sum(words) / len(words),
        "words_max": max(words),
        "depth_mean": sum(depths) / len(depths),
        "depth_max": max(depths),
    }


def describe(dataset: Dataset, parsed: Parsed) -> dict[str, Any]:
    """Returns what `vsemb annotate --dependencies` shows of a dataset's parses, as plain values."""
    parses = parsed.parses
    texts = [text for name in dataset.splits for text in parses.texts(dataset.split(name))]
    parser = None if parses.parser is None else ParserInfo.from_json(parses.parser)
    return {
        "trees": parses.count,
        "splits": {name: len(dataset.split(name).captions) for name in dataset.splits},
        **tree_sizes(Tree.from_text(text).heads for text in texts),
        "parser": parses.parser,
        "parser_name": parser and str(parser),
        "agreement": parsed.agreement,
        "captions_parsed": parsed.count,
        "captions_per_second": round(parsed.count / parsed.seconds, 1) if parsed.count else None,
        "fingerprint": parses.fingerprint,
        "directory": str(parses.path),
        "next": f"vsemb train tree-twin --data {shlex.quote(str(dataset.path))} --out runs/tree",
    }


def _depth(heads: Sequence[int]) -> int:
    children: dict[int, list[int]] = {}
    for place, head in enumerate(heads, 1):
        children.setdefault(head, []).append(place)
    depth, level = 0, [0]
    while level := [child for place in level for child in children.get(place, ())]:
        depth += 1
    return depth


def _present(dataset: Dataset, info: ParserInfo) -> Parses | None:
    present = find(dataset)
    if present is None or present.parser == info.to_json():
        return present
    origin = "from files"
    if present.parser is not None and FROM_FILES not in present.parser:
        with contextlib.suppress(DataError):  # What others wrote of their parser need not be as ours.
            origin = f"of {ParserInfo.from_json(present.parser)}"
    raise DataError(f"{present.path} already holds parses {origin}; replace them with --overwrite.")


def _refuse_unparsable(dataset: Dataset, parser: Parser) -> None:
    for name in dataset.splits:
        split = dataset.split(name)
        for place, text in enumerate(split.captions):
            if refusal := parser.refusal(text):
                raise DataError(
                    f"The caption {split.caption_ids[place]!r} of the split {name!r} of {dataset.path} "
                    f"cannot be parsed: {one_line(text, 80)!r}. Expected: {refusal}."
                )


def _parse(
    dataset: Dataset, parser: Parser, processes: int, work: ParseWork, say: Callable[[str], None]
) -> tuple[dict[str, list[Tree]], int, float]:
    """Returns the trees of all captions, and how many were parsed now in how many seconds."""
    chunks = [chunk for name in dataset.splits for chunk in chunks_of(name, dataset.split(name).captions)]
    found = {chunk.file: work.read(chunk) for chunk in chunks}
    missing = [chunk for chunk in chunks if found[chunk.file] is None]
    total, count = (sum(len(chunk.texts) for chunk in some) for some in (chunks, missing))
    if count < total:
        say(f"{total - count:,} captions were parsed before the interruption; going on behind them.")
    started = time.perf_counter()
    # Closed by itself, so that no process goes on parsing behind an error.
    with (
        contextlib.closing(parse_chunks(missing, parser, processes)) as parsed,
        tqdm(total=total, initial=total - count, desc="parse", unit="caption", disable=None) as bar,
    ):
        for chunk, trees in parsed:
            work.write(chunk, trees)
            found[chunk.file] = trees
            bar.update(len(trees))
    seconds = time.perf_counter() - started
    together: dict[str, list[Tree]] = {name: [] for name in dataset.splits}
    for chunk in chunks:
        together[chunk.split] += found[chunk.file] or []
    return together, count, seconds


def _agreement(parser: Parser, captions: Sequence[str], trees: Sequence[Tree]) -> float | None:
    """Returns for how many of some captions, drawn evenly, a parser makes the tree that is given."""
    drawn = range(0, len(captions), -(-len(captions) // _SAMPLE))
    places = [place for place in drawn if not parser.refusal(captions[place])]
    same = [
        tree.words == trees[place].words and tree.heads == trees[place].heads
        for tree, place in zip(parser([captions[place] for place in places]), places, strict=True)
    ]
    return sum(same) / len(same) if same else None


@dataclass(frozen=True)
class Chunk:
    """Captions of a split that stand one behind the other.

    Args:
        split: the split's name.
        start: the place of the first of them in the split.
        texts: the captions.
    """

    split: str
    start: int
    texts: tuple[str, ...]

    @property
    def file(self) -> str:
        """The name of the file with their trees."""
        return f"{self.split}-{self.start:09d}.conllu"


def chunks_of(split: str, captions: Sequence[str]) -> list[Chunk]:
    """Cuts a split's captions into chunks.

    Example:

    >>> [len(chunk.texts) for chunk in chunks_of("val", ["A dog"] * 1000)]
    [512, 488]
    """
    return [Chunk(split, start, tuple(captions[start : start + CHUNK])) for start in range(0, len(captions), CHUNK)]


class ParseWork:
    """`.parses.partial` in a dataset's directory: the chunks that are parsed, and what they were parsed with.

    Args:
        dataset: the dataset's directory.
    """

    def __init__(self, dataset: Path) -> None:
        self.root = dataset / ".parses.partial"

    def begin(self, plan: dict[str, Any]) -> bool:
        """Makes ready for `plan`.

        Returns:
            Whether chunks of another plan were there, which are gone.
        """
        plan = plan | {"chunk": CHUNK}
        with contextlib.suppress(DataError):
            if read_json(self.root / _PLAN) == plan:
                return False
        # The plan goes first and comes last: what is interrupted here is never taken for finished work.
        (self.root / _PLAN).unlink(missing_ok=True)
        outdated = [path for path in self.root.iterdir() if path.name != "lock"]
        for path in outdated:
            path.unlink()
        write_json(self.root / _PLAN, plan)
        return bool(outdated)

    def read(self, chunk: Chunk) -> list[Tree] | None:
        """Returns the trees of a chunk that was parsed before; None if it was not."""
        try:
            sentences = list(read_conllu(self.root / chunk.file))
        except DataError:
            return None
        if [sentence.id for sentence in sentences] != [str(place) for place in range(len(chunk.texts))]:
            return None
        return [sentence.tree for sentence in sentences]

    def write(self, chunk: Chunk, trees: Sequence[Tree]) -> None:
        """Keeps the trees of a chunk, whole or not at all."""
        # No text beside them: the plan names the dataset, and so the captions.
        sentences = (Sentence(str(place), None, tree) for place, tree in enumerate(trees))
        write_conllu(sentences, self.root / chunk.file)


def parse_chunks(
    chunks: Sequence[Chunk], parser: Parser, processes: int
) -> Generator[tuple[Chunk, list[Tree]], None, None]:
    """Parses chunks, in one process or several; the trees are the same.

    Args:
        chunks: what to parse.
        parser: the parser; other processes open it again.
        processes: how many; with one, it is this process.

    Yields:
        Each chunk with its trees, as they are finished.

    Raises:
        DataError: if the parser fails, or a process of it is killed.
    """
    processes = min(processes, len(chunks))
    if processes <= 1:
        for chunk in chunks:
            yield chunk, parser(chunk.texts)
        return
    # Processes that are forked would share the locks of TensorFlow's threads.
    context = multiprocessing.get_context("spawn")
    stop = context.Event()
    source = parser.folder or parser.info.name
    pool = concurrent.futures.ProcessPoolExecutor(processes, context, initializer=_begin_process, initargs=(stop,))
    try:
        with _interrupts_ignored():
            waiting = {pool.submit(_parse_here, source, chunk.texts): chunk for chunk in chunks}
        for done in concurrent.futures.as_completed(waiting):
            yield waiting.pop(done), done.result()
    except BrokenProcessPool as error:
        raise DataError(
            "A process that parsed has been killed, perhaps for want of memory. What is parsed is kept; give "
            "the same command with fewer --processes."
        ) from error
    finally:
        stop.set()
        pool.shutdown(cancel_futures=True)


@contextlib.contextmanager
def _interrupts_ignored() -> Iterator[None]:
    """What is started meanwhile takes no notice of Ctrl-C, which reaches all processes of a terminal."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


# In a process of the pool: whether it shall end, and the parser, which is opened once.
_stop: Any = None
_opened = functools.cache(open_parser)


def _begin_process(stop: Any) -> None:
    global _stop
    _stop = stop
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    # A parent that is killed tells nobody, and the pool's processes would wait for work for ever.
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _parse_here(source: Path | str, texts: Sequence[str]) -> list[Tree]:
    if _stop.is_set():
        return []
    return list(itertools.takewhile(lambda tree: not _stop.is_set(), _opened(source).stream(texts)))


def match_sentences(
    dataset: Dataset, sentences: Iterable[Sentence], report: Callable[[str], None] = print
) -> dict[str, list[Tree]]:
    """Finds the tree of every caption of a dataset, whatever parser made the trees.

    A sentence is known by its id: the one that the caption has in the dataset's source (`sentid` of a
    Karpathy file, the id of a COCO annotation), or `KEY#NUMBER` with the image's key and the caption's
    number within the image, from 0. Where no sentence has an id, as CoreNLP writes them, the sentences must
    be all captions in the order of `dataset.splits`. White space apart, a sentence must read as its caption:
    that is how a wrong file shows.

    Args:
        dataset: the dataset.
        sentences: as `vsemb.systems.trees.trees.read_conllu` yields them; read once.
        report: called with lines worth showing about sentences left out.

    Returns:
        Name of a split -> trees in the order of its captions, for all splits.

    Raises:
        DataError: if a caption has no sentence or two, a sentence reads otherwise than its caption, or only
            some sentences have ids.

    Example:

    ```python
    dataset = Dataset.open("data/flickr8k")
    trees = match_sentences(dataset, read_conllu("captions.conllu.gz"), report=print)
    write_parses(dataset, trees)
    ```
    """
    sentences = iter(sentences)
    first = next(sentences, None)
    if first is None:
        raise DataError(f"There is no sentence for the captions of {dataset.path}.")
    captions = CaptionIndex(dataset)
    together = itertools.chain([first], sentences)
    trees = _by_order(captions, together) if first.id is None else _by_id(captions, together, report)
    return captions.by_split(trees)


def _by_id(captions: CaptionIndex, sentences: Iterator[Sentence], report: Callable[[str], None]) -> list[Tree]:
    hint = "Sentences without ids are taken in the order of the captions. "
    found = captions.match(_with_ids(sentences), "sentence", report, hint)
    differing: list[str] = []
    for place, sentence in enumerate(found):
        if _reads_as(sentence, captions.texts[place]):
            continue
        message = (
            f"{_named(sentence)} is {_text(sentence)[:_SHOWN]!r}, and the caption of this id in "
            f"{captions.path} is {captions.texts[place][:_SHOWN]!r}."
        )
        if sentence.text is not None:
            raise DataError(f"{message} Is the file of another dataset?")
        differing.append(message)
    # Words alone may differ, since a parser may rewrite them (`du` is `de le` in French treebanks), but a file of
    # which no sentence reads as its caption is of other texts.
    if differing and len(differing) == sum(sentence.text is None for sentence in found):
        raise DataError(f"{differing[0]} No sentence without `# text` reads as its caption.")
    if differing:
        report(f"{len(differing)} sentences have other words than their captions and no `# text`: {differing[0]}")
    return [sentence.tree for sentence in found]


def _with_ids(sentences: Iterator[Sentence]) -> Iterator[Sentence]:
    for sentence in sentences:
        if sentence.id is None:
            raise DataError(f"{_named(sentence)} has no id and others have; all need one, or none.")
        yield sentence


def _by_order(captions: CaptionIndex, sentences: Iterator[Sentence]) -> list[Tree]:
    trees: list[Tree] = []
    count = 0
    for count, sentence in enumerate(sentences, 1):
        if sentence.id is not None:
            raise DataError(f"{_named(sentence)} has an id and others have none; all need one, or none.")
        if count > len(captions.texts):
            continue
        caption = captions.texts[count - 1]
        if not _reads_as(sentence, caption):
            raise DataError(
                f"{_named(sentence)} has no id, so it should be caption {count} of {captions.path}, "
                f"{captions.ids[count - 1]!r}; it is {_text(sentence)[:_SHOWN]!r} and the caption is "
                f"{caption[:_SHOWN]!r}. Sentences without ids must be all captions of the splits "
                f"{', '.join(split.name for split in captions.splits)}, in this order."
            )
        trees.append(sentence.tree)
    if count != len(captions.texts):
        raise DataError(
            f"{count} sentences without ids for {len(captions.texts)} captions of {captions.path}; there "
            "must be one for each, in the order of the splits "
            f"{', '.join(split.name for split in captions.splits)}."
        )
    return trees


def _reads_as(sentence: Sentence, caption: str) -> bool:
    """Compares without white space."""
    read, caption = ("".join(text.split()) for text in (_text(sentence), caption))
    return read == caption or (sentence.text is None and _respelt(read) == _respelt(caption))


def _respelt(text: str) -> str:
    for spelling, plain in _SPELLINGS.items():
        text = text.replace(spelling, plain)
    return text


def _text(sentence: Sentence) -> str:
    return " ".join(sentence.tree.words) if sentence.text is None else sentence.text


def _named(sentence: Sentence) -> str:
    name = "A sentence" if sentence.id is None else f"The sentence {sentence.id[:_SHOWN]!r}"
    return f"{name} (line {sentence.line})" if sentence.line else name
