"""Functions of `vsemb annotate DATA dependencies`: trees of all captions, from a parser or from CoNLL-U files."""

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

from vsemb.console import progress
from vsemb.data.store import StoredDataset
from vsemb.errors import DataError, invalid_argument, one_line
from vsemb.files import locked, read_json, remove_partial, write_json
from vsemb.systems.trees.matching import match_sentences
from vsemb.systems.trees.parsers import Parser, ParserInfo, open_parser, parser_files
from vsemb.systems.trees.parses import Parses, find, write_parses
from vsemb.systems.trees.trees import Sentence, Tree, read_conllu, write_conllu
from vsemb.unicode import composed

#: Key in the parser's record with the CoNLL-U files, if the trees came from files.
FROM_FILES = "trees_from"

# Captions parsed to compare a parser with trees from a file.
_SAMPLE = 200

#: Captions parsed and stored together.
CHUNK = 512
_PLAN = "plan.json"


@dataclass(frozen=True)
class Parsed:
    """Parses of a dataset, with the cost of parsing.

    Args:
        parses: the parses.
        count: captions parsed in this run, without earlier interrupted runs.
        seconds: duration of parsing, in seconds.
        agreement: share of sampled captions for which the parser gives the tree of the file, in [0, 1]; None without a
            file or parser.
    """

    parses: Parses
    count: int = 0
    seconds: float = 0.0
    agreement: float | None = None


def parse_dataset(
    dataset: StoredDataset,
    parser: Parser,
    *,
    processes: int = 1,
    overwrite: bool = False,
    report: Callable[[str], None] = print,
) -> Parsed:
    """Parse all captions of a dataset and write their trees beside it.

    The next call with the same parser resumes an interrupted run, with any number of processes, and writes the same
    files. If the dataset has the parses of this parser, nothing is written. A parser in a folder is copied, for new
    sentences.

    Args:
        dataset: the dataset.
        parser: the parser.
        processes: parsing processes; each loads the parser. With more than one, a script must do its work under
            `if __name__ == "__main__":`, since processes import it.
        overwrite: whether to parse again if parses exist.
        report: called with progress messages.

    Raises:
        DataError: if other parses exist, a caption cannot be parsed, the parser fails, or writing fails.
        InvalidArgumentError: if `processes` is less than 1.

    Example:

    ```python
    done = parse_dataset(Dataset.open("data/flickr8k"), open_parser("en_core_web_sm"), report=print)
    print(done.parses.count, "trees", done.count / done.seconds, "captions per second")
    ```
    """
    if processes < 1:
        raise invalid_argument("processes", processes, "an integer >= 1")
    present = None if overwrite else _present(dataset, parser.info)
    if present is not None:
        report(f"{dataset.path} already has the parses of this parser; nothing to do.")
        remove_partial(dataset.path / "parses")
        return Parsed(present)
    if parser.folder is not None:
        parser_files(parser.folder)  # Refuse before hours of parsing.
    _refuse_unparsable(dataset, parser)
    work = ParseWork(dataset.path)
    with locked(work.root, f"Another process is parsing {dataset.path}; wait for it or stop it."):
        if work.begin({"dataset": dataset.fingerprint, "parser": parser.info.to_json()}):
            report("The parser or the dataset changed since the interrupted run; starting again.")
        trees, count, seconds = _parse(dataset, parser, processes, work, report)
        parses = write_parses(
            dataset, trees, parser=parser.info.to_json(), parser_folder=parser.folder, overwrite=overwrite
        )
        shutil.rmtree(work.root, ignore_errors=True)
    return Parsed(parses, count, seconds)


def import_conllu(
    dataset: StoredDataset,
    files: Sequence[str | os.PathLike[str]],
    *,
    parser: Parser | None = None,
    overwrite: bool = False,
    report: Callable[[str], None] = print,
) -> Parsed:
    """Read the trees of all captions from CoNLL-U files and write them beside the dataset.

    The files may come from any parser. `match_sentences` matches sentences and captions.

    Args:
        dataset: the dataset.
        files: CoNLL-U files, plain or gzip, which together contain every caption.
        parser: parser for new sentences, such as queries. Use the parser of the files, or one with the same annotation
            scheme. A sample of captions is parsed to measure the agreement.
        overwrite: whether to replace existing parses.
        report: called with progress messages.

    Raises:
        DataError: if a file is broken, a caption has no tree, or other parses exist.
        InvalidArgumentError: if `files` is empty.

    Example:

    ```python
    import_conllu(Dataset.open("data/flickr8k"), ["captions.conllu.gz"], report=print)
    ```
    """
    if not files:
        raise invalid_argument("files", list(files), "at least one CoNLL-U file")
    sentences = itertools.chain.from_iterable(map(read_conllu, files))
    counted = progress(sentences, desc="read", unit="sentence", leave=False)
    trees = match_sentences(dataset, counted, report)
    if parser is None:
        return Parsed(write_parses(dataset, trees, overwrite=overwrite))
    captions = [text for name in dataset.splits for text in dataset.split(name).captions]
    agreement = _agreement(parser, captions, [tree for name in dataset.splits for tree in trees[name]])
    described = parser.info.to_json() | {FROM_FILES: [Path(file).name for file in files]}
    parses = write_parses(dataset, trees, parser=described, parser_folder=parser.folder, overwrite=overwrite)
    return Parsed(parses, agreement=agreement)


def tree_sizes(heads: Iterable[Sequence[int]]) -> dict[str, float]:
    """Measure words and depth of trees. Depth is the number of words on the longest path from the root.

    Args:
        heads: heads of each tree, 1-based, 0 for the root; at least one tree.

    Returns:
        Means and maxima, as `words_mean`, `words_max`, `depth_mean` and `depth_max`.

    Example:

    >>> tree_sizes([(2, 0), (2, 3, 0, 3)])
    {'words_mean': 3.0, 'words_max': 4, 'depth_mean': 2.5, 'depth_max': 3}
    """
    words, depths = [], []
    for tree in heads:
        words.append(len(tree))
        depths.append(_depth(tree))
    return {
        "words_mean": sum(words) / len(words),
        "words_max": max(words),
        "depth_mean": sum(depths) / len(depths),
        "depth_max": max(depths),
    }


def describe(dataset: StoredDataset, parsed: Parsed) -> dict[str, Any]:
    """Return the summary that `vsemb annotate DATA dependencies` prints.

    Args:
        dataset: the dataset.
        parsed: its parses.

    Returns:
        JSON values by name.
    """
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


def _present(dataset: StoredDataset, info: ParserInfo) -> Parses | None:
    present = find(dataset)
    if present is None or present.parser == info.to_json():
        return present
    origin = "from files"
    if present.parser is not None and FROM_FILES not in present.parser:
        with contextlib.suppress(DataError):  # Records by other programs may have other fields.
            origin = f"of {ParserInfo.from_json(present.parser)}"
    raise DataError(f"{present.path} already holds parses {origin}. Replace them with --overwrite.")


def _refuse_unparsable(dataset: StoredDataset, parser: Parser) -> None:
    for name in dataset.splits:
        split = dataset.split(name)
        for place, text in enumerate(split.captions):
            refusal = parser.refusal(text)
            if refusal is not None:
                raise DataError(
                    f"Caption {split.caption_ids[place]!r} of split {name!r} of {dataset.path} must be {refusal}; "
                    f"got {one_line(text, 80)!r}."
                )


def _parse(
    dataset: StoredDataset, parser: Parser, processes: int, work: ParseWork, say: Callable[[str], None]
) -> tuple[dict[str, list[Tree]], int, float]:
    """Return the trees of all captions, the number parsed in this run, and its seconds."""
    chunks = [chunk for name in dataset.splits for chunk in chunks_of(name, dataset.split(name).captions)]
    stored = {chunk.file: work.read(chunk) for chunk in chunks}
    missing = [chunk for chunk in chunks if stored[chunk.file] is None]
    total = sum(len(chunk.texts) for chunk in chunks)
    count = sum(len(chunk.texts) for chunk in missing)
    if count < total:
        say(f"{total - count:,} captions were parsed before the interruption; resuming.")
    started = time.perf_counter()
    # Closed explicitly, so that processes stop after an error.
    with (
        contextlib.closing(parse_chunks(missing, parser, processes)) as parsed,
        progress(total=total, initial=total - count, desc="parse", unit="caption") as bar,
    ):
        for chunk, trees in parsed:
            work.write(chunk, trees)
            stored[chunk.file] = trees
            bar.update(len(trees))
    seconds = time.perf_counter() - started
    together: dict[str, list[Tree]] = {name: [] for name in dataset.splits}
    for chunk in chunks:
        together[chunk.split] += stored[chunk.file] or []
    return together, count, seconds


def _agreement(parser: Parser, captions: Sequence[str], trees: Sequence[Tree]) -> float | None:
    """Return the share of evenly sampled captions for which a parser gives the given tree."""
    drawn = range(0, len(captions), -(-len(captions) // _SAMPLE))
    places = [place for place in drawn if not parser.refusal(captions[place])]
    if not places:
        return None
    parsed = parser([captions[place] for place in places])
    same = sum(_alike(tree, trees[place]) for tree, place in zip(parsed, places, strict=True))
    return same / len(places)


def _alike(tree: Tree, other: Tree) -> bool:
    return tree.heads == other.heads and list(map(composed, tree.words)) == list(map(composed, other.words))


@dataclass(frozen=True)
class Chunk:
    """Consecutive captions of a split.

    Args:
        split: name of the split.
        start: index of the first caption in the split.
        texts: the captions.
    """

    split: str
    start: int
    texts: tuple[str, ...]

    @property
    def file(self) -> str:
        """File name of their trees."""
        return f"{self.split}-{self.start:09d}.conllu"


def chunks_of(split: str, captions: Sequence[str]) -> list[Chunk]:
    """Cut a split's captions into chunks.

    Example:

    >>> [len(chunk.texts) for chunk in chunks_of("val", ["A dog"] * 1000)]
    [512, 488]
    """
    return [Chunk(split, start, tuple(captions[start : start + CHUNK])) for start in range(0, len(captions), CHUNK)]


class ParseWork:
    """The folder `.parses.partial` of a dataset: parsed chunks and the plan that they belong to.

    Args:
        dataset: the dataset's directory.
    """

    def __init__(self, dataset: Path) -> None:
        self.root = dataset / ".parses.partial"

    def begin(self, plan: dict[str, Any]) -> bool:
        """Prepare the folder for `plan`.

        Returns:
            Whether chunks of another plan were deleted.
        """
        plan = plan | {"chunk": CHUNK}
        with contextlib.suppress(DataError):
            if read_json(self.root / _PLAN) == plan:
                return False
        # The plan is deleted first and written last, so an interruption here never leaves a valid plan.
        (self.root / _PLAN).unlink(missing_ok=True)
        outdated = [path for path in self.root.iterdir() if path.name != "lock"]
        for path in outdated:
            path.unlink()
        write_json(self.root / _PLAN, plan)
        return bool(outdated)

    def read(self, chunk: Chunk) -> list[Tree] | None:
        """Return the trees of a parsed chunk; None if it is not parsed yet."""
        try:
            sentences = list(read_conllu(self.root / chunk.file))
        except DataError:
            return None
        if [sentence.id for sentence in sentences] != [str(place) for place in range(len(chunk.texts))]:
            return None
        return [sentence.tree for sentence in sentences]

    def write(self, chunk: Chunk, trees: Sequence[Tree]) -> None:
        """Store the trees of a chunk atomically.

        Args:
            chunk: the chunk.
            trees: one tree per text of the chunk, in order.
        """
        # Without texts: the plan identifies the dataset and its captions.
        sentences = (Sentence(str(place), None, tree) for place, tree in enumerate(trees))
        write_conllu(sentences, self.root / chunk.file)


def parse_chunks(
    chunks: Sequence[Chunk], parser: Parser, processes: int
) -> Generator[tuple[Chunk, list[Tree]], None, None]:
    """Parse chunks in one or more processes, with the same result.

    Args:
        chunks: chunks to parse.
        parser: the parser; other processes open it again.
        processes: number of processes; 1 parses in this process.

    Yields:
        Each chunk with its trees, in order of completion.

    Raises:
        DataError: if the parser fails, or one of its processes is killed.
    """
    processes = min(processes, len(chunks))
    if processes <= 1:
        for chunk in chunks:
            yield chunk, parser(chunk.texts)
        return
    # Forked processes would share the locks of TensorFlow's threads.
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
            "A parsing process was killed, perhaps for lack of memory. Parsed captions are kept. Run the same command "
            "with fewer --processes."
        ) from error
    finally:
        stop.set()
        pool.shutdown(cancel_futures=True)


@contextlib.contextmanager
def _interrupts_ignored() -> Iterator[None]:
    """Start processes that ignore Ctrl-C, which a terminal sends to all of them."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


# In a process of the pool: the stop event, and the parser, which is opened once.
_stop: Any = None
_opened = functools.cache(open_parser)


def _begin_process(stop: Any) -> None:
    global _stop
    _stop = stop
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    # A killed parent sends no signal, and the processes would wait for work forever.
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _parse_here(source: Path | str, texts: Sequence[str]) -> list[Tree]:
    if _stop.is_set():
        return []
    return list(itertools.takewhile(lambda tree: not _stop.is_set(), _opened(source).stream(texts)))
