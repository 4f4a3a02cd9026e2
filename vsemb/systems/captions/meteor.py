"""METEOR 1.5 (Denkowski and Lavie 2014), by the Java program that comes with `pycocoevalcap`."""

from __future__ import annotations

import contextlib
import queue
import shutil
import subprocess
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO

import numpy as np

from vsemb.errors import DataError, missing_extra, one_line

_JAR = "meteor-1.5.jar"
_OPTIONS = ("-", "-", "-stdio", "-l", "en", "-norm")  # As the COCO evaluation calls it.
_JAVA = ("-Xmx2G", "-Dfile.encoding=UTF-8", "-Duser.language=en")
# Seconds without an answer: the first one comes when the tables are read, ten seconds on an idle machine.
_PATIENCE = 300.0


def meteor_of_tokens(candidates: Sequence[str], references: Sequence[Sequence[str]]) -> tuple[float, np.ndarray]:
    """Computes METEOR.

    Args:
        candidates: the caption of each image, tokenised (`vsemb.systems.captions.caption_tokens`), words
            joined by single spaces.
        references: the references of each image, the same way.

    Returns:
        corpus: the score of all, in [0, 1], which is not the mean of each.
        each: (images,) float64.

    Raises:
        DataError: without Java, or if the Java program fails or stops answering.
        MissingExtraError: if `pycocoevalcap` is not installed.

    Example:

        score, each = meteor_of_tokens(["a dog runs"], [["a dog is running", "the dog runs"]])
    """
    with _program() as ask:
        statistics = [
            ask(" ||| ".join(["SCORE", *map(_one_line, texts), _one_line(candidate)]))
            for candidate, texts in zip(candidates, references, strict=True)
        ]
        first = ask(" ||| ".join(["EVAL", *statistics]))
        answers = [first, *(ask(None) for _ in candidates)]
    try:
        *each, corpus = map(float, answers)
    except ValueError as error:
        raise DataError(f"METEOR answered no numbers: {one_line(' '.join(answers), 100)}") from error
    return corpus, np.asarray(each, np.float64)


def _one_line(text: str) -> str:
    # What the program takes for the end of a caption or of a line.
    return " ".join(text.replace("|||", " ").encode(errors="replace").decode().split())


def _command() -> list[str]:
    """Returns how the program is started."""
    import importlib.util

    spec = importlib.util.find_spec("pycocoevalcap")
    if spec is None or not spec.submodule_search_locations:
        raise missing_extra("pycocoevalcap", "captions")
    java = shutil.which("java")
    if java is None:
        raise DataError("It needs Java, and there is no `java` on the PATH; install a Java runtime.")
    for folder in spec.submodule_search_locations:
        jar = Path(folder) / "meteor" / _JAR
        if jar.exists():
            return [java, *_JAVA, "-jar", str(jar), *_OPTIONS]
    raise DataError(f"The installed pycocoevalcap is without {_JAR}; install pycocoevalcap again.")


@contextlib.contextmanager
def _program() -> Iterator[_Ask]:
    """Starts the program and ends it, whatever happens in between."""
    try:
        process = subprocess.Popen(_command(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    except OSError as error:
        raise DataError(f"Java does not start: {error.strerror}.") from error
    try:
        yield _Ask(process)
    finally:
        process.kill()
        process.wait()
        for stream in (process.stdin, process.stdout):
            with contextlib.suppress(OSError):
                assert stream is not None
                stream.close()


class _Ask:
    """Writes a line to the program, or nothing for None, and returns the next line it answers."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdin is not None and process.stdout is not None
        self.process = process
        self.stdin: IO[bytes] = process.stdin
        self.lines: queue.Queue[bytes] = queue.Queue()
        # A pipe has no reading with a time limit that works everywhere.
        threading.Thread(target=self._read, args=(process.stdout,), daemon=True).start()

    def _read(self, stdout: IO[bytes]) -> None:
        with contextlib.suppress(OSError, ValueError):  # Closed at the end.
            for line in stdout:
                self.lines.put(line)
        self.lines.put(b"")

    def __call__(self, line: str | None) -> str:
        try:
            if line is not None:
                self.stdin.write(f"{line}\n".encode())
                self.stdin.flush()
            answer = self.lines.get(timeout=_PATIENCE)
        except queue.Empty:
            raise DataError(f"Its Java program gave no answer for {_PATIENCE:g} seconds.") from None
        except OSError:
            answer = b""
        if not answer:
            raise DataError("Its Java program ended early; it needs 2 GB of memory and Java 8 or later: java -version")
        return answer.decode(errors="replace").strip()
