"""Work on parses that is not finished: captions in chunks, several processes, and what is kept on disk."""

from __future__ import annotations

import concurrent.futures
import contextlib
import fcntl
import json
import multiprocessing
import os
import shutil
import signal
import threading
from collections.abc import Generator, Iterator, Sequence
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vsemb.errors import DataError
from vsemb.files import write_json
from vsemb.systems.trees.parsers import Parser, open_parser
from vsemb.systems.trees.trees import Sentence, Tree, read_conllu, write_conllu

#: Captions that are parsed and kept together.
CHUNK = 512

_PLAN = "plan.json"


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
        self.dataset = dataset
        self.root = dataset / ".parses.partial"

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Holds the work for one process; the lock dies with the process, however it ends.

        Raises:
            DataError: if another process holds it, or the file system refuses.
        """
        try:
            self.root.mkdir(exist_ok=True)
            lock = open(self.root / "lock", "wb")  # noqa: SIM115
        except OSError as error:
            raise DataError(f"Cannot write {self.root}: {error.strerror or error}.") from error
        with lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise DataError(f"Another process is parsing {self.dataset}; wait for it or stop it.") from error
            yield

    def begin(self, plan: dict[str, Any]) -> bool:
        """Makes ready for `plan`.

        Returns:
            Whether chunks of another plan were there, which are gone.
        """
        plan = json.loads(json.dumps(plan | {"chunk": CHUNK}))
        try:
            if json.loads((self.root / _PLAN).read_text(encoding="utf-8")) == plan:
                return False
        except (OSError, ValueError):
            pass
        # The plan goes first and comes last: what is interrupted here is never taken for finished work.
        (self.root / _PLAN).unlink(missing_ok=True)
        outdated = [path for path in self.root.iterdir() if path.name != "lock"]
        for path in outdated:
            path.unlink()
        write_json(self.root / _PLAN, plan)
        return bool(outdated)

    def read(self, chunk: Chunk) -> list[Tree] | None:
        """Returns the trees of a chunk that was parsed before; None if it was not."""
        if not (self.root / chunk.file).exists():
            return None
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

    def remove(self) -> None:
        """Removes it all."""
        shutil.rmtree(self.root, ignore_errors=True)


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
    source = str(parser.folder) if parser.folder else parser.info.name
    pool = concurrent.futures.ProcessPoolExecutor(
        processes, context, initializer=_begin_process, initargs=(source, parser.folder is not None, stop)
    )
    try:
        with _interrupts_ignored():
            waiting = {pool.submit(_parse_here, chunk.texts): chunk for chunk in chunks}
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


# What a process of the pool parses with: how to open it, and once opened the parser itself.
_source: tuple[str, bool] | None = None
_stop: Any = None
_parser: Parser | None = None


def _begin_process(source: str, is_folder: bool, stop: Any) -> None:
    global _source, _stop
    _source, _stop = (source, is_folder), stop
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    # A parent that is killed tells nobody, and the pool's processes would wait for work for ever.
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _parse_here(texts: Sequence[str]) -> list[Tree]:
    global _parser
    assert _source is not None
    if _stop.is_set():
        return []
    if _parser is None:
        name, is_folder = _source
        _parser = open_parser(Path(name) if is_folder else name)
    trees: list[Tree] = []
    for tree in _parser.stream(texts):
        if _stop.is_set():
            break
        trees.append(tree)
    return trees
