"""Parsers from raw sentences to dependency trees, with pipelines of spaCy."""

from __future__ import annotations

import dataclasses
import hashlib
import importlib.metadata
import importlib.util
import itertools
import os
import shutil
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vsemb.errors import DataError, invalid_argument, needs_extra, one_line, reason_of
from vsemb.files import sha256_file
from vsemb.systems.trees.trees import Tree
from vsemb.unicode import composed

#: Relation of the root of a later sentence to the root of the first (Universal Dependencies).
PARATAXIS = "parataxis"

_CONFIG = "config.cfg"
_META = "meta.json"
# Components of spaCy that leave words, heads and tags unchanged, and components that may change them.
_IDLE = {"ner", "beam_ner", "entity_linker", "entity_ruler", "future_entity_ruler", "span_ruler", "span_finder"}
_IDLE |= {"spancat", "spancat_singlelabel", "textcat", "textcat_multilabel", "lemmatizer"}
_IDLE |= {"trainable_lemmatizer", "morphologizer"}
_WORKING = {"tok2vec", "transformer", "curated_transformer", "tagger", "parser", "beam_parser"}
_WORKING |= {"attribute_ruler", "senter", "sentencizer"}


@dataclass(frozen=True)
class ParserInfo:
    """Identity of a parser.

    Args:
        library: name and version of the library.
        name: name of an installed pipeline, or the name in the metadata of a pipeline folder.
        version: version of the pipeline.
        language: e.g. `"en"`.
        fingerprint: hex SHA-256 of a folder's files; None for an installed pipeline, identified by its version.

    Example:

    >>> info = ParserInfo("spaCy 3.8.7", "en_core_web_sm", "3.8.0", "en", None)
    >>> print(info)
    en_core_web_sm 3.8.0 (spaCy 3.8.7)
    >>> ParserInfo.from_json(info.to_json()) == info
    True
    """

    library: str
    name: str
    version: str
    language: str
    fingerprint: str | None

    def __str__(self) -> str:
        fingerprint = f", fingerprint {self.fingerprint[:16]}" if self.fingerprint else ""
        return f"{self.name} {self.version} ({self.library}{fingerprint})"

    def to_json(self) -> dict[str, Any]:
        """Return the fields as plain values, for `from_json`."""
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, content: Any) -> ParserInfo:
        """Read the output of `to_json`; other keys are ignored.

        Raises:
            DataError: if a field is missing or not a string.
        """
        names = [field.name for field in dataclasses.fields(cls)]
        record = content if isinstance(content, dict) else {}
        values: list[Any] = [record.get(name) for name in names]
        if not all(isinstance(value, str) for value in values[:-1]) or not isinstance(values[-1], str | None):
            raise DataError(f"A parser's record must have {', '.join(names)}; got {one_line(content, 80)}.")
        return cls(*values)


class Parser:
    """A parser from raw sentences to dependency trees; create it with `open_parser`.

    White space is read as single blanks and is never a word. A text of several sentences gives one tree: the
    roots of later sentences become children of the first root. Threads may share a parser; calls are serialized.

    Args:
        pipeline: the loaded `spacy.language.Language`, whose documents have heads.
        info: identity of the parser.
        folder: folder of the pipeline on disk; None for an installed pipeline.

    Attributes:
        info: identity of the parser.
        folder: folder of the pipeline; None for an installed one.
        max_length: maximum characters per text.
    """

    def __init__(self, pipeline: Any, info: ParserInfo, folder: Path | None = None) -> None:
        self.info = info
        self.folder = folder
        self.max_length: int = pipeline.max_length
        self._pipeline = pipeline
        self._turn = threading.Lock()

    def __repr__(self) -> str:
        return f"<Parser {self.info}>"

    def __call__(self, texts: Sequence[str]) -> list[Tree]:
        """Parse texts.

        Args:
            texts: raw texts, each with at least one word.

        Returns:
            One tree per text, with the tags and relations of the pipeline.

        Raises:
            InvalidArgumentError: if a text has no words or is too long.
            DataError: if the pipeline fails.

        Example:

        ```python
        parser = open_parser("en_core_web_sm")
        [tree] = parser(["A dog runs."])
        print(tree.words, tree.heads)
        ```
        """
        return list(self.stream(texts))

    def stream(self, texts: Iterable[str], batch_size: int = 256) -> Iterator[Tree]:
        """Parse texts batch by batch, see `__call__`.

        Args:
            texts: any number of raw texts.
            batch_size: texts per batch; the default 256 is fast on CPUs.

        Yields:
            The tree of each text.

        Raises:
            InvalidArgumentError: if a text has no words or is too long.
            DataError: if the pipeline fails.
        """
        numbered = enumerate(texts)
        while batch := list(itertools.islice(numbered, batch_size)):
            for number, text in batch:
                refusal = self.refusal(text)
                if refusal is not None:
                    raise invalid_argument(f"texts[{number}]", one_line(text, 80), refusal)
            yield from self._parse([_plain(text) for _, text in batch])

    def refusal(self, text: str) -> str | None:
        """Check whether a text can be parsed.

        Returns:
            None if it can; otherwise the requirement that the text does not meet.
        """
        plain = _plain(text)
        if not plain:
            return "a text with at least one word"
        if len(plain) > self.max_length:
            return f"at most {self.max_length:,} characters"
        return None

    def _parse(self, texts: list[str]) -> list[Tree]:
        # The zone frees spaCy's cache of new words. Without it, a server's memory grows with every new word.
        try:
            with self._turn, self._pipeline.memory_zone():
                return [tree_of(document) for document in self._pipeline.pipe(texts)]
        except (MemoryError, DataError):
            raise
        except Exception as error:
            raise DataError(f"The parser {self.info} failed: {one_line(error)}") from error


def open_parser(name_or_path: str | os.PathLike[str], *, report: Callable[[str], None] | None = None) -> Parser:
    """Open a pipeline of spaCy that has a dependency parser.

    Components that neither parse nor tag, such as named entity recognition, are excluded. This halves the time and
    gives the same trees. Nothing is downloaded.

    Args:
        name_or_path: name of an installed pipeline, such as `"en_core_web_sm"`, or a pipeline's folder.
        report: called with each warning of spaCy, such as a version mismatch.

    Raises:
        InvalidArgumentError: if the pipeline does not exist or has no parser.
        DataError: if the pipeline cannot be loaded.
        MissingExtraError: without spaCy.

    Example:

    ```python
    open_parser("en_core_web_sm")(["Two dogs run after a ball."])[0].text
    ```
    """
    with needs_extra("spacy", "parse"):
        import spacy

    package, folder = _find(name_or_path)
    # An untrusted folder can only name functions that spaCy and installed packages registered; its own files are
    # neither executed nor unpickled.
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            exclude = _idle_components(spacy.util.load_config(folder / _CONFIG))
            if package:
                pipeline: Any = spacy.util.load_model_from_package(package, exclude=exclude)
            else:
                pipeline = spacy.util.load_model_from_path(folder, exclude=exclude)
        except MemoryError:
            raise
        except Exception as error:
            raise DataError(f"The pipeline {name_or_path} cannot be loaded: {one_line(error)}") from error
    for line in dict.fromkeys(one_line(warning.message) for warning in caught):
        if report and line.startswith("[W"):
            report(f"Warning of spaCy for {name_or_path}: {line}")

    if not any("token.head" in pipeline.get_pipe_meta(name).assigns for name in pipeline.pipe_names):
        components = ", ".join(pipeline.pipe_names) or "none"
        allowed = f"a pipeline with the component parser; this pipeline has {components}"
        raise invalid_argument("name_or_path", str(name_or_path), allowed)
    info = ParserInfo(
        library=f"spaCy {importlib.metadata.version('spacy')}",
        name=package or f"{pipeline.meta['lang']}_{pipeline.meta['name']}",
        version=str(pipeline.meta["version"]),
        language=pipeline.lang,
        fingerprint=None if package else _fingerprint(folder),
    )
    return Parser(pipeline, info, None if package else folder)


def tree_of(document: Any) -> Tree:
    """Return the tree of a parsed document of spaCy.

    Args:
        document: a `spacy.tokens.Doc` with at least one token other than white space.
    """
    tokens = [token for token in document if not token.is_space]
    places = {token.i: place for place, token in enumerate(tokens, 1)}
    heads = [places.get(_head(token), 0) for token in tokens]
    heads = [0 if head == place else head for place, head in enumerate(heads, 1)]
    relations = [token.dep_ or "dep" for token in tokens]
    first, *later = [place for place, head in enumerate(heads) if not head]
    # spaCy writes the root in capitals, Universal Dependencies in lower case.
    if relations[first] in ("ROOT", "dep"):
        relations[first] = "root"
    for place in later:
        heads[place], relations[place] = first + 1, PARATAXIS
    tags = [token.tag_ for token in tokens]
    return Tree(
        tuple(token.text for token in tokens),
        tuple(heads),
        tuple(tag or "_" for tag in tags) if any(tags) else (),
        tuple(relations),
    )


def _head(token: Any) -> int:
    """Return the index of a token's head in the document, skipping heads that are white space."""
    head = token.head
    while head.is_space and head.head.i != head.i:
        head = head.head
    return head.i


def _plain(text: str) -> str:
    """Return a text with single blanks, valid UTF-8, in composed form."""
    # Lone surrogates, which JSON and command lines may contain, become U+FFFD.
    whole = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return composed(" ".join(whole.replace("\0", " ").split()))


def _find(name_or_path: str | os.PathLike[str]) -> tuple[str | None, Path]:
    """Return the name of an installed pipeline, or None, and the folder with its files."""
    folder, name = Path(name_or_path), str(name_or_path)
    # As in spaCy, an installed pipeline has priority over a folder of the same name.
    package = _package_folder(name_or_path) if isinstance(name_or_path, str) else None
    if package is not None:
        return name, package
    allowed = "the folder of a spaCy pipeline"
    if not folder.exists():
        installed = sorted(point.name for point in importlib.metadata.entry_points(group="spacy_models"))
        names = ", ".join(installed) or "none"
        fix = f"Install one with: python -m spacy download {name}" if name.isidentifier() else None
        raise invalid_argument(
            "name_or_path", name, f"{allowed}, or the name of an installed one (installed: {names})", fix
        )
    if not folder.is_dir():
        raise invalid_argument("name_or_path", name, f"{allowed}; this is a file", "Unpack or install it.")
    if not (folder / _CONFIG).is_file() or not (folder / _META).is_file():
        inside = sorted(str(path.parent) for path in folder.glob(f"*/{_CONFIG}"))
        fix = f"Did you mean {' or '.join(inside[:3])}?" if inside else None
        raise invalid_argument("name_or_path", name, f"{allowed} with {_CONFIG} and {_META}", fix)
    return None, folder.resolve()


def _package_folder(name: str) -> Path | None:
    """Return the folder of an installed pipeline, without importing it."""
    if not name.isidentifier():
        return None
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError):
        return None
    if spec is None or not spec.origin:
        return None
    folder = Path(spec.origin).parent
    if not (folder / _META).is_file():
        return None
    return next((path.parent for path in folder.glob(f"{name}-*/{_CONFIG}")), None)


def _idle_components(config: Any) -> list[str]:
    """Return the names of components that do not affect trees."""
    components = config.get("components", {})
    factories = {name: components.get(name, {}).get("factory", "") for name in config["nlp"]["pipeline"]}
    # A component outside both lists may read the output of any other, so all run.
    if not set(factories.values()) <= _IDLE | _WORKING:
        return []
    return [name for name, factory in factories.items() if factory in _IDLE]


def _fingerprint(folder: Path) -> str:
    digest = hashlib.sha256()
    files = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*") if path.is_file()}
    for name, path in sorted(files.items()):
        if "__pycache__" not in name.split("/"):
            digest.update(f"{name}\0{sha256_file(path)}\n".encode())
    return digest.hexdigest()


def parser_files(folder: Path) -> dict[str, Path]:
    """Return the files of a parser in a folder, such as a spaCy pipeline.

    Args:
        folder: the parser.

    Returns:
        Relative name -> file with the content, in alphabetical order.

    Raises:
        DataError: if the folder is missing, empty or unreadable, or contains special files, links to folders, or links
            that lead out of it.
    """
    copied: dict[str, Path] = {}
    if not folder.is_dir():
        raise DataError(f"Parser {folder} must be an existing folder.")
    inside = folder.resolve()

    def refuse(error: OSError) -> None:
        raise DataError(f"The parser {folder} cannot be read: {reason_of(error)}.") from error

    for directory, names, files in os.walk(folder, onerror=refuse):
        names[:] = [name for name in names if name != "__pycache__"]
        for name in [*names, *files]:
            path = Path(directory, name)
            real = path.resolve()
            if path.is_symlink() and (name in names or not real.is_relative_to(inside)):
                raise DataError(
                    f"The parser {folder} cannot be copied: {path} is a link to {real}. Copy the folder with "
                    "`cp -rL` and pass the copy."
                )
            if name in names:
                continue
            if not real.is_file():
                raise DataError(f"The parser {folder} cannot be copied: {path} must be a regular file.")
            copied[path.relative_to(folder).as_posix()] = real
    if not copied:
        raise DataError(f"Parser {folder} must contain files; the folder is empty.")
    return dict(sorted(copied.items()))


def copy_parser(files: Mapping[str, Path], folder: Path) -> None:
    """Copy the files of a parser, without the permissions of the originals.

    Args:
        files: output of `parser_files`.
        folder: destination.
    """
    for relative, file in files.items():
        target = folder / relative
        target.parent.mkdir(parents=True, exist_ok=True)
        # Only the content: the copy of a read-only file must be removable.
        shutil.copyfile(file, target)
