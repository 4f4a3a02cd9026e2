"""METEOR 1.5, computed by the Java program of `pycocoevalcap`."""

from __future__ import annotations

import contextlib
import importlib.resources
import shutil
import subprocess
import threading
import time
from collections.abc import Iterator, Sequence

import numpy as np

from vsemb.errors import DataError, missing_extra, one_line, reason_of

_METEOR = "meteor-1.5.jar"
_METEOR_OPTIONS = ("-", "-", "-stdio", "-l", "en", "-norm")  # As the COCO evaluation calls it.
_JAVA = ("-Xmx2G", "-Dfile.encoding=UTF-8", "-Duser.language=en")
# Maximum seconds per answer. Before the first, the program loads its tables, in ten seconds on an idle machine.
_PATIENCE = 300.0


def meteor_of_tokens(candidates: Sequence[str], references: Sequence[Sequence[str]]) -> tuple[float, np.ndarray]:
    """Compute METEOR 1.5 (Denkowski and Lavie 2014) with the Java program of `pycocoevalcap`.

    Args:
        candidates: the caption of each image, tokenized (`caption_tokens`), words joined by single spaces.
        references: the references of each image, in the same format.

    Returns:
        corpus: the corpus score, in [0, 1]; it differs from the mean of `each`.
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
    # The program reads ||| and line breaks as separators.
    return " ".join(text.replace("|||", " ").encode(errors="replace").decode().split())


def _command() -> list[str]:
    """Return the command line of the program."""
    try:
        jar = importlib.resources.files("pycocoevalcap") / "meteor" / _METEOR
    except ModuleNotFoundError as error:
        raise missing_extra("pycocoevalcap", "captions") from error
    java = shutil.which("java")
    if java is None:
        raise DataError("METEOR needs `java` on the PATH. Install a Java runtime.")
    if not jar.is_file():
        raise DataError(f"The installed pycocoevalcap is without {_METEOR}; install pycocoevalcap again.")
    return [java, *_JAVA, "-jar", str(jar), *_METEOR_OPTIONS]


@contextlib.contextmanager
def _program() -> Iterator[subprocess.Popen[bytes]]:
    """Start the program, and end it also after errors."""
    try:
        process = subprocess.Popen(_command(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    except OSError as error:
        raise DataError(f"Java does not start: {reason_of(error)}.") from error
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def _ask(process: subprocess.Popen[bytes], line: str | None = None) -> str:
    """Write a line to the program, unless it is None, and return the next line of output."""
    assert process.stdin is not None and process.stdout is not None
    # A time limit for reading: killing the program also ends the read.
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
