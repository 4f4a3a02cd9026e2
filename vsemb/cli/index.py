"""`vsemb index`."""

from __future__ import annotations

import argparse
import shlex
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vsemb.errors import DataError, invalid_argument
from vsemb.printing import save_json, say_skipped, table
from vsemb.runs.inputs import image_files

if TYPE_CHECKING:
    from vsemb.searching.comparison import Compared

_BEST = 10
_COLUMNS = """\
bytes         per item that is scanned; exact scores also need the embeddings
MB            of all items, 10^6 bytes
build s       seconds to write the index
ms, 1         milliseconds for a single query
ms, 128       milliseconds per query in a batch of 128
recall@1 @10  % of the exact best 1 and 10 that the backend finds
re-ranked     the same after exact scoring of the candidates, as in a search
R@1 R@10      % of captions that find their image among the best 1 and 10
change        of R@1 and R@10 from exact float32, in points"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("run", metavar="RUN", help="run directory; with --compare, also an index")
    parser.add_argument("--data", help="dataset (the training dataset)")
    parser.add_argument("--split", help="split to embed, or all (all)")
    parser.add_argument("--captions", action="store_true", help="embed captions instead of images")
    images = "image files without captions: directories, globs, files, .txt lists"
    parser.add_argument("--images", nargs="+", metavar="PATH", help=images)
    parser.add_argument("--out", metavar="INDEX", help="directory of the index (below RUN/index)")
    backends = "exact, faiss-flat, faiss-ivf, faiss-int8, faiss-binary, scann or milvus (%(default)s)"
    parser.add_argument("--backend", default="exact", help=backends)
    dtypes = "float32 or float16; int8 or binary with backend exact (%(default)s)"
    parser.add_argument("--dtype", default="float32", help=dtypes)
    parameter = "a parameter of the backend, e.g. nprobe=32; repeatable"
    parser.add_argument("--parameter", action="append", default=[], metavar="NAME=N", help=parameter)
    parser.add_argument("--milvus-uri", metavar="URI", help="Milvus cluster (embedded Milvus inside the index)")
    candidates = "also measure recall with N candidates per query"
    parser.add_argument("--candidates", type=int, nargs="+", default=[], metavar="N", help=candidates)
    parser.add_argument("--compare", action="store_true", help="measure size, time and recall of all backends")
    parser.add_argument("--json", metavar="FILE", help="also write the results as JSON to FILE")


def run(arguments: argparse.Namespace) -> None:
    """Embed image files, or images or captions of a dataset, into an index for `vsemb search`.

    --images takes directories (read with their subdirectories), glob patterns in quotes, image files, and text files
    with one path per line. A dataset and captions are not needed. Unreadable files are listed at the end and omitted.
    An interrupted command resumes where it stopped. If the index exists, only new and changed files are embedded, and
    files that are no longer given are removed.

    The index is written to RUN/index or to --out. It becomes invalid if the weights of the run or the dataset change,
    which search detects. The index contains the names of its items, so search needs the run but not the dataset.

    By default, a search scores every item exactly. --backend finds candidates faster, and --dtype int8 or binary needs
    less memory; the candidates are then scored exactly. --compare measures all backends and changes nothing.

    Runs on regions do not support an index; `vsemb search` scores all their images. An index does not store the address
    of a Milvus cluster: for a search, set the environment variable VSEMB_MILVUS_URI. Its token is read from
    VSEMB_MILVUS_TOKEN.

    Examples:
      vsemb index runs/vsepp --images photos --out indexes/photos
      vsemb index runs/vsepp --images "photos/**/*.jpg" more.txt --out indexes/photos
      vsemb index runs/vsepp --data data/flickr8k --out indexes/flickr8k --backend faiss-ivf
      vsemb index indexes/flickr8k --compare
      vsemb index runs/order --candidates 50 100
    """
    save_json(arguments, _compare(arguments) if arguments.compare else _build(arguments))


def _build(arguments: argparse.Namespace) -> dict[str, Any]:
    files = None if arguments.images is None else _image_files(arguments)

    from vsemb.runs.indexing import build_index, check_indexable, index_directory, index_files, measure_candidates
    from vsemb.runs.run import Run
    from vsemb.searching.index import check_candidates

    settings = IndexSettings(arguments.backend, arguments.dtype, _parameters(arguments))
    opened = Run.open(arguments.run, "retrieval")
    check_indexable(opened)
    kind, split = "text" if arguments.captions else "image", arguments.split or "all"
    of_files: dict[str, Any] = {"kept": 0, "skipped": {}}
    for count in arguments.candidates:  # Checked before embedding starts.
        approximate = settings.candidate_backend is not None
        check_candidates(count, _BEST, opened.recipe.similarity, approximate=approximate)
    if files is not None:
        where = Path(arguments.out or opened.path / "index" / f"{Path(arguments.images[0]).stem or 'images'}-files")
        index, embedded = index_files(opened, files, where, settings)
        of_files = {"kept": embedded.kept, "skipped": embedded.skipped}
    else:
        dataset = opened.open_data(arguments.data)
        where = Path(arguments.out) if arguments.out else index_directory(opened, dataset, split, kind)
        index = build_index(opened, dataset, split, kind, out=where, settings=settings)
    with closing(index):
        report: dict[str, Any] = {
            "items": len(index),
            "kind": kind,
            "dim": int(index.embeddings.shape[1]),
            "splits": list(index.source.splits),
            "backend": settings.backend,
            "dtype": settings.dtype,
            "where": str(where),
            **of_files,
        }
        of = "" if files is not None else f" of {', '.join(index.source.splits)}"
        print(f"items   {len(index):,} {kind}s{of}")
        if report["kept"]:
            print(f"kept    {report['kept']:,} unchanged {kind}s; {len(index) - report['kept']:,} embedded")
        print(f"dim     {report['dim']}")
        print(f"stored  {settings.label}")
        print(f"where   {where}")
        print(f'next    vsemb search {shlex.quote(str(where))} "a dog on a beach"')
        if arguments.candidates:
            recalls = measure_candidates(opened, dataset, index, arguments.candidates, k=_BEST)
            report["recall"] = {str(count): recall for count, recall in recalls.items()}
            for count, recall in recalls.items():
                print(f"recall  {100 * recall:.1f} % of the exact {_BEST} best among {count} candidates")
    say_skipped(report["skipped"])
    return report


def _image_files(arguments: argparse.Namespace) -> list[str]:
    for name in ("data", "split", "captions", "candidates"):
        if value := getattr(arguments, name):
            raise invalid_argument(name, value, "omitted with --images, whose files have no captions")
    return image_files(arguments.images)


def _parameters(arguments: argparse.Namespace) -> dict[str, Any]:
    parameters: dict[str, Any] = {}
    for given in arguments.parameter:
        name, _, value = given.partition("=")
        if not value.isdecimal():
            raise invalid_argument("parameter", given, "NAME=N, N an integer >= 0")
        parameters[name] = int(value)
    if arguments.milvus_uri is not None:
        if arguments.backend != "milvus":
            raise invalid_argument("milvus-uri", arguments.milvus_uri, "omitted without --backend milvus")
        parameters["uri"] = arguments.milvus_uri
    return parameters


def _compare(arguments: argparse.Namespace) -> dict[str, Any]:
    from vsemb.console import progress
    from vsemb.runs.indexing import check_indexable, compare_backends, open_index, open_indexed
    from vsemb.runs.run import Run
    from vsemb.searching.storage import is_index
    from vsemb.searching.comparison import COMPARED, recommended

    if arguments.out or arguments.candidates:
        name = "out" if arguments.out else "candidates"
        raise invalid_argument(name, getattr(arguments, name), "omitted with --compare")
    if is_index(arguments.run):
        index, opened, dataset = open_indexed(arguments.run, data=arguments.data)
        if dataset is None:
            index.close()
            if "data" not in index.recorded:
                raise DataError(
                    f"--compare needs captions as queries; {arguments.run} is an index of image files and has no "
                    "captions. Compare on an index of a dataset."
                )
            raise DataError(
                f"--compare needs the captions of the dataset of {arguments.run}, which is not at its recorded place. "
                "Name it with --data."
            )
    else:
        opened = Run.open(arguments.run, "retrieval")
        check_indexable(opened)
        dataset = opened.open_data(arguments.data)
        kind = "text" if arguments.captions else "image"
        index = open_index(opened, dataset, arguments.split or "all", kind)
    with closing(index):
        compared = compare_backends(opened, dataset, index)
        rows = list(progress(compared, "backends", total=len(COMPARED), unit="backend", leave=False))
        best, why = recommended(rows)
        backend, dtype = best.name.split()
        print(f"{len(index):,} {index.source.kind}s of {', '.join(index.source.splits)}, captions as queries")
        print(f"{_table(rows)}\n\n{_COLUMNS}\n\nRecommended: --backend {backend} --dtype {dtype}. {why}")
        shown = {"rows": [asdict(row) for row in rows], "recommended": best.name}
        return {"items": len(index), "dim": int(index.embeddings.shape[1]), **shown}


def _table(rows: list[Compared]) -> str:
    def pair(values: tuple[float, float] | None, form: str, scale: float = 1) -> list[str]:
        return ["", ""] if values is None else [format(scale * value, form) for value in values]

    lines = []
    for row in rows:
        cells = [
            f"{row.bytes_a_vector or 0:.0f}",
            f"{row.megabytes or 0:.2f}",
            f"{row.build_seconds or 0:.2f}",
            *pair(row.milliseconds, ".2f"),
            *pair(row.recall, ".1f", 100),
            *pair(row.reranked, ".1f", 100),
            *pair(row.retrieval, ".1f"),
            *pair(row.change, "+.1f"),
        ]
        lines.append([row.name, *(cells if row.missing is None else ["not installed", *[""] * 12])])
    header = ["", "bytes", "MB", "build s", "ms, 1", "ms, 128", "recall@1", "@10", "re-ranked@1", "@10"]
    return table([*header, "R@1", "R@10", "change", "change"], lines)
