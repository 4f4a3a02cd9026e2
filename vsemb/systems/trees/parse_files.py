"""The files of a dataset's parses: their names, what their manifest must say, and a parser's own files."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import stat
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from vsemb.errors import DataError
from vsemb.files import read_json, sha256_file
from vsemb.systems.trees.trees import Tree

if TYPE_CHECKING:
    from vsemb.data.store import Dataset

FOLDER = "parses"
"""The folder in a dataset's directory."""
MANIFEST, PARSER = "parses.json", "parser"
FORMAT, VERSION = "vsemb-parses", 1
AGAIN = "Make them again with `vsemb annotate --dependencies --overwrite`."


def conllu_name(split: str) -> str:
    """Returns the name of the file with all sentences of a split."""
    return f"{split}.conllu.gz"


def trees_name(split: str) -> str:
    """Returns the name of the file with the words and heads of a split alone."""
    return f"{split}.trees.gz"


def fingerprint(trees: Mapping[str, Sequence[Tree]]) -> str:
    """Returns the SHA-256 of trees, with their tags and relations.

    Args:
        trees: name of a split -> its trees; the order of splits matters.
    """
    digest = hashlib.sha256()
    for name, some in trees.items():
        for tree in some:
            parts = [name, tree.words, tree.heads, tree.tags, tree.relations]
            digest.update(json.dumps(parts).encode() + b"\n")
    return digest.hexdigest()


def read_list(dataset: Dataset) -> dict[str, Any]:
    """Reads and checks the manifest of a dataset's parses, and the files of the splits against it.

    Raises:
        DataError: if there is none, it or a file is damaged, or it is of another version or dataset.
    """
    path = dataset.path / FOLDER
    if not path.is_dir():
        raise DataError(f"{dataset.path} has no parses. Make them with `vsemb annotate --dependencies`.")
    content = read_json(path / MANIFEST, "list of parses")
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise DataError(f"{path / MANIFEST} is no list of parses. {AGAIN}")
    if content.get("version") != VERSION:
        raise DataError(
            f"The parses at {path} have version {content.get('version')!r}; this vsemb reads version {VERSION}. {AGAIN}"
        )
    try:
        _check_content(content)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise DataError(f"{path / MANIFEST} is damaged ({error!r}). {AGAIN}") from error
    if content["dataset"] != dataset.fingerprint:
        raise DataError(f"The parses at {path} are of another dataset than {dataset.path} is now. {AGAIN}")
    counts = {name: split["captions"] for name, split in dataset.manifest["splits"].items()}
    if {name: record["sentences"] for name, record in content["splits"].items()} != counts:
        raise DataError(f"{path / MANIFEST} is damaged: it counts other captions. {AGAIN}")
    for name, record in content["splits"].items():
        verify(path, {conllu_name(name): record["conllu"], trees_name(name): record["trees"]})
    return content


def _check_content(content: dict[str, Any]) -> None:
    texts = [content["dataset"], content["fingerprint"]]
    for record in content["splits"].values():
        texts += [record["conllu"], record["trees"]]
    files = content["parser_files"]
    if not all(isinstance(item, (dict, type(None))) for item in (content["parser"], files)):
        raise TypeError("parser")
    for name, sha256 in (files or {}).items():
        texts.append(sha256)
        if PurePosixPath(name).is_absolute() or ".." in PurePosixPath(name).parts:
            raise ValueError(name)
    if not all(isinstance(text, str) for text in texts):
        raise TypeError("no text where a checksum should be")


def verify(folder: Path, files: Mapping[str, str]) -> None:
    """Checks files against their checksums.

    Args:
        folder: where they are.
        files: relative name -> hex SHA-256.

    Raises:
        DataError: naming the first that is missing or has other content.
    """
    for name, expected in files.items():
        try:
            found = sha256_file(folder / name)
        except FileNotFoundError as error:
            raise DataError(f"The parses are damaged: {folder / name} is missing. {AGAIN}") from error
        except OSError as error:
            raise DataError(f"{folder / name} cannot be read: {error.strerror or error}.") from error
        if found != expected:
            raise DataError(f"The parses are damaged: {folder / name} has other content. {AGAIN}")


def parser_files(folder: Path) -> dict[str, Path]:
    """Returns the files of a parser that is a folder on disk, such as a spaCy pipeline.

    Args:
        folder: the parser.

    Returns:
        Relative name -> the file that holds the content, by alphabet.

    Raises:
        DataError: if there is none, it cannot be read, or it holds links that lead out of it, links to
            folders or what is no file.
    """
    found: dict[str, Path] = {}
    if not folder.is_dir():
        raise DataError(f"No parser at {folder}: there is no such folder.")
    inside = folder.resolve()

    def refuse(error: OSError) -> None:
        raise DataError(f"The parser {folder} cannot be read: {error.strerror or error}.") from error

    for directory, names, files in os.walk(folder, onerror=refuse):
        names[:] = [name for name in names if name != "__pycache__"]
        for name in [*names, *files]:
            path = Path(directory, name)
            real = path.resolve()
            if path.is_symlink() and (name in names or not real.is_relative_to(inside)):
                raise DataError(
                    f"The parser {folder} cannot be copied: {path} is a link to {real}. Copy the folder with "
                    "`cp -rL` and name the copy."
                )
            if name in names:
                continue
            if not real.exists() or not stat.S_ISREG(real.stat().st_mode):
                raise DataError(f"The parser {folder} cannot be copied: {path} is no file.")
            found[path.relative_to(folder).as_posix()] = real
    if not found:
        raise DataError(f"No parser at {folder}: the folder is empty.")
    return dict(sorted(found.items()))


def copy_parser(files: Mapping[str, Path], folder: Path) -> None:
    """Copies the files of a parser, without the rights of the originals.

    Args:
        files: as `parser_files` returns them.
        folder: where to.
    """
    for relative, file in files.items():
        target = folder / relative
        target.parent.mkdir(parents=True, exist_ok=True)
        # The content alone: a read-only original must not make a copy that cannot be removed.
        shutil.copyfile(file, target)
