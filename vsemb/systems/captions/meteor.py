"""METEOR 1.5 (Denkowski and Lavie 2014), by the Java program that comes with `pycocoevalcap`."""

from __future__ import annotations

import contextlib
import importlib.resources
import shutil
import subprocess
import threading
import time
from collections.abc import Iterator, Sequence

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
    with _program() as process:
        statistics = [
            _ask(process, " ||| ".join(["SCORE", *map(_one_line, texts), _one_line(candidate)]))
            for candidate, texts in zip(candidates, references, strict=True)
        ]
        first = _ask(process, " ||| ".join(["EVAL", *statistics]))
        answers = [first, *(_ask(process) for _ in candidates)]
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
    try:
        jar = importlib.resources.files("pycocoevalcap") / "meteor" / _JAR
    except ModuleNotFoundError as error:
        raise missing_extra("pycocoevalcap", "captions") from error
    java = shutil.which("java")
    if java is None:
        raise DataError("It needs Java, and there is no `java` on the PATH; install a Java runtime.")
    if not jar.is_file():
        raise DataError(f"The installed pycocoevalcap is without {_JAR}; install pycocoevalcap again.")
    return [java, *_JAVA, "-jar", str(jar), *_OPTIONS]


@contextlib.contextmanager
def _program() -> Iterator[subprocess.Popen[bytes]]:
    """Starts the program and ends it, whatever happens in between."""
    try:
        process = subprocess.Popen(_command(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    except OSError as error:
        raise DataError(f"Java does not start: {error.strerror}.") from error
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def _ask(process: subprocess.Popen[bytes], line: str | None = None) -> str:
    """Writes a line to the program, if there is one, and returns the next line it answers."""
    assert process.stdin is not None and process.stdout is not None
    # Reading with a time limit: the end of the program is the end of what is read.
    began, late = time.monotonic(), threading.Timer(_PATIENCE, process.kill)
    late.start()
    try:
        if line is not None:
            process.stdin.write(f"{line}\n".encode())
            process.stdin.flush()
        answer = process.stdout.readline()
    except OSError:
        answer = b""
    finally:
        late.cancel()
    if answer:
        return answer.decode(errors="replace").strip()
    if time.monotonic() - began >= _PATIENCE:
        raise DataError(f"Its Java program gave no answer for {_PATIENCE:g} seconds.")
    raise DataError("Its Java program ended early; it needs 2 GB of memory and Java 8 or later: java -version")
