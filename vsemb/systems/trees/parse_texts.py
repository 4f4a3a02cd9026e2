"""How a run that reads dependency trees comes by those of new sentences."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from pathlib import Path

from vsemb.data.store import Dataset
from vsemb.errors import DataError
from vsemb.files import read_json, write_json
from vsemb.recipes.schema import Recipe
from vsemb.systems.trees.parse_files import copy_parser, parser_files
from vsemb.systems.trees.parsers import Parser, ParserInfo, open_parser
from vsemb.systems.trees.parses import Parses
from vsemb.systems.trees.trees import Tree, is_parsed
from vsemb.text.normalize import readable_part

#: In a run's directory: which parser it is and, where it is no installed package, the parser itself.
PARSER, _INFO, _PIPELINE = "parser", "parser.json", "pipeline"


def find_parses(recipe: Recipe, dataset: Dataset) -> Parses | None:
    """Opens the dependency trees of a dataset's captions where a recipe reads them, else returns None.

    Raises:
        DataError: if it reads them and there are none, or they are damaged.
    """
    if recipe.text.tokenizer != "trees":
        return None
    if dataset.parses is None:
        raise DataError(
            f"The recipe reads dependency trees and {dataset.path} has none. Make them with: vsemb parse "
            f"{dataset.path} --model en_core_web_sm, or --conllu FILE for those of another parser."
        )
    return dataset.parses


def keep_parser(parses: Parses, run: Path) -> None:
    """Keeps the parser of a dataset's captions in a run's directory, where one is known.

    Args:
        parses: the dataset's parses.
        run: the run's directory, while it is made.
    """
    info = None
    with contextlib.suppress(DataError):  # What others wrote of their parser need not be as ours.
        info = ParserInfo.from_json(parses.parser)
    if info is None:
        return
    folder = run / PARSER
    folder.mkdir()
    if parses.parser_folder is not None:
        copy_parser(parser_files(parses.parser_folder), folder / _PIPELINE)
    write_json(folder / _INFO, parses.parser)


def stored_parser(run: Path) -> Parser | None:
    """Opens the parser that a run's directory names.

    Args:
        run: the run's directory.

    Returns:
        None where the parses of the training captions came from a file and no parser was named, or one that
        is none of spaCy's.

    Raises:
        VsembError: if it is named and cannot be opened.
    """
    info = _stored_info(run)
    if info is None or not info.library.startswith("spaCy "):
        return None
    pipeline = run / PARSER / _PIPELINE
    return open_parser(pipeline if pipeline.is_dir() else info.name)


def stored_parser_name(run: Path) -> str:
    """Returns what the parser in a run's directory is called, with its version; "" where there is none."""
    return str(_stored_info(run) or "")


def _stored_info(run: Path) -> ParserInfo | None:
    path = run / PARSER / _INFO
    return ParserInfo.from_json(read_json(path, "parser")) if path.exists() else None


def parsed_texts(
    texts: Sequence[str], knows: Callable[[str], bool], find_parser: Callable[[], Parser | None], run: Path
) -> list[str]:
    """Parses raw texts.

    Args:
        texts: raw texts, read up to `vsemb.text.normalize.MAX_BYTES`; one that is parsed already stays as it
            is, and so does one without a word.
        knows: whether the run knows a word. It was a word of a tree then, and is a tree by itself.
        find_parser: opens the run's parser, if there is one; called where other texts have to be parsed.
        run: the run's directory, for the error.

    Returns:
        A parsed text for each, see `vsemb.systems.trees.trees`.

    Raises:
        DataError: for a sentence where there is no parser; there, letters and digits alone are one word.

    Example:

    >>> parsed_texts(["dogs", ""], lambda word: word == "dogs", lambda: None, Path("runs/tree"))
    ['dogs\\t0', '']
    """
    result = list(texts)
    sentences: dict[int, str] = {}
    for place, text in enumerate(texts):
        if is_parsed(text) or not (plain := readable_part(text)):
            continue
        if knows(plain):
            result[place] = Tree((plain,), (0,)).text
        else:
            sentences[place] = plain
    parser = find_parser() if sentences else None
    if parser is not None:
        for place, tree in zip(sentences, parser(list(sentences.values())), strict=True):
            result[place] = tree.text
        return result
    for place, plain in sentences.items():
        if not plain.isalnum():
            raise DataError(
                f"{run} reads dependency trees and knows no parser for {plain[:80]!r}, since none of spaCy's "
                "was named with its captions. Name one with --parser, e.g. --parser en_core_web_sm."
            )
        result[place] = Tree((plain,), (0,)).text
    return result
