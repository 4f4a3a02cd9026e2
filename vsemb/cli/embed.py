"""`vsemb embed`."""

from __future__ import annotations

import argparse
import os

from vsemb.commands import add_options, apply_options
from vsemb.console import say
from vsemb.errors import counted, invalid_argument
from vsemb.printing import facts, save_json, say_skipped
from vsemb.runs.inputs import check_vectors_path, image_files, texts_and_blanks
from vsemb.unicode import require_unicode

# Numbers of blank lines that are printed.
_LISTED = 20


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("run", metavar="RUN", help="run directory")
    given = parser.add_mutually_exclusive_group(required=True)
    images = "image files: directories, globs, files, .txt lists of paths"
    given.add_argument("--images", nargs="+", metavar="PATH", help=images)
    given.add_argument("--texts", nargs="+", metavar="TEXT", help="texts, or one file with one text per line")
    parser.add_argument("--out", required=True, metavar="FILE", help="vectors.npy or vectors.parquet")
    parser.add_argument("--json", metavar="FILE", help="also write counts and skipped items as JSON to FILE")
    add_options(parser, "run")


def run(arguments: argparse.Namespace) -> None:
    """Embed image files or texts into a file of vectors.

    A .npy file holds (n, dim) float32; the JSON file beside it names the rows. A .parquet file has the columns `image`
    or `text` and `embedding`. Vectors have the geometry of the run's similarity: unit length for cosine and order.
    Unreadable images, texts without a known word and blank lines are listed and omitted; only line feeds end a line.
    An interrupted command resumes where it stopped. If the file exists, only new and changed images are embedded, and
    images that are no longer given are removed.

    Examples:
      vsemb embed runs/vsepp --images photos --out photos.npy
      vsemb embed runs/vsepp --texts captions.txt --out captions.parquet
      vsemb embed runs/vsepp --texts "a dog on a beach" "a cat" --out two.npy
    """
    check_vectors_path(arguments.out)
    kind = "image" if arguments.images else "text"
    blank: list[int] = []
    if arguments.images:
        names = image_files(arguments.images)
    elif len(arguments.texts) == 1 and os.path.exists(arguments.texts[0]) and not os.path.isdir(arguments.texts[0]):
        names, blank = texts_and_blanks(arguments.texts[0])
    else:
        names = arguments.texts
        require_unicode("texts", names)
    if not names:
        raise invalid_argument("texts", arguments.texts[0], "a file with at least one text")

    from vsemb.runs.embedding import discard_work, embed_files, embed_lines, known_in
    from vsemb.runs.indexing import require_single_vector
    from vsemb.runs.run import Run

    opened = Run.open(arguments.run, "retrieval")
    require_single_vector(opened, "A file of vectors", "`vsemb search` compares sets without one.")
    apply_options(arguments, opened, "run")
    if arguments.images:
        embedded = embed_files(opened, names, arguments.out, known_in(opened, arguments.out))
    else:
        embedded = embed_lines(opened, names, arguments.out)
    embedded.write(arguments.out, kind)
    discard_work(arguments.out)
    count, dim = embedded.embeddings.shape
    items = counted(count, kind)
    kept = {"kept": f"{embedded.kept:,} unchanged"} if embedded.kept else {}
    print(facts({"items": items, **kept, "dim": dim, "where": arguments.out}))
    if blank:
        lines = ", ".join(map(str, blank[:_LISTED])) + (" …" if len(blank) > _LISTED else "")
        say(f"{counted(len(blank), 'blank line')} of {arguments.texts[0]} omitted: {lines}")
    say_skipped(embedded.skipped)
    counts = {"items": count, "kept": embedded.kept, "kind": kind, "dim": dim}
    save_json(arguments, {**counts, "skipped": embedded.skipped, "blank_lines": blank})
