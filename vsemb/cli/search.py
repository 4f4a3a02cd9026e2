"""`vsemb search`."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import io
import itertools
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vsemb.commands import Mode, Modes, add_options, apply_options, picked
from vsemb.console import say
from vsemb.data.manifest import read_manifest
from vsemb.errors import DataError, VsembError, invalid_argument, one_line, printable, unknown_name
from vsemb.files import read_json
from vsemb.printing import save_json, table
from vsemb.runs.inputs import Query, check_counts, kind_of
from vsemb.runs.pictures import check_picture_path, save_picture

if TYPE_CHECKING:
    from vsemb.runs.searching import Search


# Byte order mark.
_MARK = "\ufeff"


class _Words(argparse.Action):
    """Join the words of a text without quotation marks; None for no words."""

    def __call__(self, parser: Any, namespace: Any, values: Any, option_string: str | None = None) -> None:
        setattr(namespace, self.dest, " ".join(values) if values else None)


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("run", metavar="RUN_OR_INDEX", help="run directory, or directory of an index")
    text = "text to search for; without one, queries are read line by line"
    parser.add_argument("text", nargs="*", action=_Words, help=text)
    parser.add_argument("--data", help="dataset to search (the training dataset)")
    parser.add_argument("--split", help="split to search, or all (all)")
    parser.add_argument("-k", type=int, default=10, metavar="N", help="number of results (%(default)s)")
    parser.add_argument("--json", metavar="FILE", help="also write the results as JSON to FILE")
    parser.add_argument("--out", metavar="FILE", help="contact sheet of the results, 400 at most, as .png or .jpg")
    Modes(parser, "search", Mode(_search, _configure_images))


def _configure_images(parser: argparse._ActionsContainer) -> None:
    parser.add_argument("--image", metavar="FILE", help="query image: a file, or a key in the dataset")
    parser.add_argument("--minus", action="append", default=[], metavar="WORD", help="subtract a word; repeatable")
    parser.add_argument("--plus", action="append", default=[], metavar="WORD", help="add a word; repeatable")
    for name, which in (("compose", "all of"), ("abstract", "what is common to")):
        texts = f"{which} two or more texts or images"
        parser.add_argument(f"--{name}", nargs="+", default=[], metavar="A", help=texts)
    parser.add_argument("--resort", type=int, metavar="N", help="re-sort the best N by distance to their mean")
    parser.add_argument("--captions", action="store_true", help="search captions instead of images")
    candidates = "candidates to score exactly (10 per result, at least 100; all for orders)"
    parser.add_argument("--candidates", type=int, metavar="N", help=candidates)
    parser.add_argument("--keep-query", action="store_true", help="keep the query image in the results")
    parser.add_argument("--run", dest="index_run", metavar="RUN", help="run of the index, if the run was moved")
    add_options(parser, "run")


def run(arguments: argparse.Namespace) -> int:
    """Find the images of a dataset that match a text or an image, with words subtracted and added.

    Without a query, queries are read from the terminal or from standard input, one per line; the model is loaded once.
    The first search with a run embeds its dataset. An index from `vsemb index --out` does not need a dataset.

    --image takes an image file, or the key of an image of the dataset; that image is omitted from the results. --minus
    and --plus are the arithmetic of Kiros et al. 2014: an image of a blue car, minus "blue", plus "red". --compose and
    --abstract follow Vendrov et al. 2016 for order-embeddings: images that show all of several texts or images, or
    the content that they have in common.

    The score of a result is its similarity. After --resort, it is the negative distance to the mean. A run with several
    vectors per image does not support an index or arithmetic; each query is compared with all images.

    Examples:
      vsemb search runs/vsepp "a dog running on a beach" --data data/flickr8k
      vsemb search indexes/photos "a dog running on a beach" --out sheet.png
      vsemb search indexes/photos < queries.txt
      vsemb search runs/order --compose "a dog" "a ball"
      vsemb search runs/vsepp --image blue_car.jpg --minus blue --plus red --resort 20
    """
    return arguments.modes.run(arguments)


def _search(arguments: argparse.Namespace) -> int:
    several: dict[str, Any] = picked(arguments, "minus", "plus", "compose", "abstract")
    several = {name: tuple(values) for name, values in several.items()}
    _check_options(arguments)
    typed = arguments.text is arguments.image is None and not several["compose"] + several["abstract"]
    queries = _typed(several) if typed else iter([Query(arguments.text, arguments.image, **several)])
    if typed and not sys.stdin.isatty():
        # Read the first query before the model is loaded.
        first = next(queries, None)
        if first is None:
            raise invalid_argument("query", None, "a text or an image (--image), or a line of standard input")
        queries = itertools.chain([first], queries)
    elif typed:
        say("Loading the model.")
    found, failed = [], 0
    with _opened(arguments) as search:
        for query in queries:
            try:
                found.append(_answer(arguments, search, query))
            except VsembError as error:
                if not typed:
                    raise
                print(f"vsemb search: {one_line(error)}", file=sys.stderr)
                failed = int(not sys.stdin.isatty())
    save_json(arguments, found if typed else found[0])
    return failed


def _typed(several: dict[str, Any]) -> Iterator[Query]:
    """Yield the queries typed at a prompt, or the lines of standard input."""
    at_terminal, first = sys.stdin.isatty(), True
    if not at_terminal and isinstance(sys.stdin, io.TextIOWrapper):
        # Only line feeds end a line. Queries with invalid UTF-8 are refused one by one, as on a command line.
        sys.stdin.reconfigure(encoding="utf-8", errors="surrogateescape", newline="\n")
    if at_terminal:
        with contextlib.suppress(ImportError):
            import readline  # noqa: F401  Adds arrow keys and a history to `input`.
        say("Type a query, or Ctrl-D to end.")
    while True:
        try:
            line = input("query> ") if at_terminal else sys.stdin.readline()
        except EOFError:
            print()
            return
        if not at_terminal and not line:
            return
        line, first = line.removeprefix(_MARK) if first else line, False
        if line.strip():
            if not at_terminal:
                print(f"query: {printable(line.strip())}")
            yield Query(line.strip(), **several)


def _check_options(arguments: argparse.Namespace) -> None:
    """Check the options before TensorFlow is loaded, which takes seconds.

    Raises:
        VsembError: if an option is invalid; the error names it.
    """
    check_counts(**picked(arguments, "k", "resort", "candidates"))
    if arguments.out is not None:
        check_picture_path(arguments.out)
    path, kind = Path(arguments.run), kind_of(arguments.run)
    if kind == "index":
        source = read_json(path / "manifest.json").get("source", {})
        holds = f"{source.get('kind')}s of {', '.join(source.get('splits', ()))}"
        for name, value in (("split", arguments.split), ("captions", arguments.captions or None)):
            if value is not None:
                fix = "Search the run, or make an index of what is wanted."
                raise invalid_argument(name, value, f"omitted, since the index holds {holds}", fix)
    elif kind != "run":
        found = f"a {kind}" if kind else "another directory" if path.is_dir() else "a missing directory"
        raise DataError(f"{path} must be a run directory or an index; got {found}. `vsemb train` makes a run.")
    elif arguments.index_run is not None:
        raise invalid_argument("run", arguments.index_run, "omitted with a run directory")
    if arguments.data is not None:
        splits = read_manifest(Path(arguments.data))["splits"]
        if arguments.split not in (None, "all", *splits):
            raise unknown_name("split", arguments.split, [*splits, "all"])


@contextlib.contextmanager
def _opened(arguments: argparse.Namespace) -> Iterator[Search]:
    from vsemb.runs.indexing import open_indexed
    from vsemb.runs.run import Run
    from vsemb.runs.searching import Search

    with contextlib.ExitStack() as stack:
        if kind_of(arguments.run) == "index":
            index, opened, dataset = open_indexed(arguments.run, arguments.index_run, arguments.data)
            stack.callback(index.close)
            options: dict[str, Any] = {"index": index}
        else:
            opened = Run.open(arguments.run, "retrieval")
            dataset = opened.open_data(arguments.data)
            options = {"split": arguments.split or "all", "captions": arguments.captions}
        apply_options(arguments, opened, "run")
        yield stack.enter_context(Search(opened, dataset, report=say, **options))


def _answer(arguments: argparse.Namespace, search: Search, query: Query) -> dict[str, Any]:
    """Print the results of a query and return them as values for JSON."""
    results = search.find(query, **picked(arguments, "k", "resort", "keep_query", "candidates"))
    captioned = any(result.item.caption for result in results)
    header = ["rank", "score", "key" if captioned else "file", *["caption"] * captioned]
    rows = [
        [str(each.rank), f"{each.score:.3f}", search.shown(each.item), *[each.item.caption] * captioned]
        for each in results
    ]
    print(table(header, rows, text=(2, 3)))
    if arguments.out is not None:
        save_picture(search.sheet(results), arguments.out)
        print(f"\n{arguments.out}")
    return {"query": dataclasses.asdict(query), "results": [result.to_json() for result in results]}
