"""What the parts of the benchmark are, which of their ratios have a gate, and how they are judged."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tests.benchmarks.timing import left_out


@dataclass(frozen=True)
class Part:
    """A module of this folder.

    Attributes:
        quick: arguments that make it a matter of a minute.
        threads: whether it takes `--threads`.
    """

    quick: tuple[str, ...]
    threads: bool = True


PARTS: dict[str, Part] = {
    "training": Part(("--variants", "tuned", "--rounds", "1")),
    "growth": Part(
        (
            *("--vocabulary", "500", "1000", "--length", "4", "8", "--batch", "16", "32", "--dim", "32", "64"),
            *("--axes", "vocabulary", "batch", "--steps", "5"),
        )
    ),
    "retrieval": Part(("--images", "200", "400", "800", "--rounds", "1", "--few", "20")),
    "order": Part(("--images", "100", "200", "400", "--batch-sizes", "64", "128", "--rounds", "1")),
    "hypernymy": Part(("--pairs", "10000", "20000", "40000", "--rounds", "1")),
    "pipeline": Part(
        (
            *("--images", "32", "64", "128", "--captions", "1000", "2000", "4000"),
            *("--rows", "256", "512", "1024", "--rounds", "1"),
        )
    ),
    "latency": Part(("--variants", "tuned", "--rounds", "2")),
    "search": Part(("--items", "3000", "6000", "12000", "--dim", "256", "--rounds", "1", "--exact-only")),
    "trees": Part(("--units", "150", "--batches", "2", "--rounds", "1")),
    "alignment": Part(("--images", "20", "40", "--dim", "256", "--batch-size", "20")),
    "captioning": Part(("--images", "1", "4", "--rounds", "1")),
    "gradient_caching": Part(("--batches", "256", "512"), threads=False),
    "scale": Part(("--images", "1000", "--rows", "1000", "2000", "--ranked", "200", "400", "--pixels", "64")),
    "serving": Part(("--requests", "200"), threads=False),
    "startup": Part(("--rounds", "1"), threads=False),
}


@dataclass(frozen=True)
class Gate:
    """What a row must reach at its largest size.

    Attributes:
        part: whose row it is.
        row: its name.
        bound: the ratio.
        most: whether the ratio may be so much at most, instead of at least.
    """

    part: str
    row: str
    bound: float
    most: bool = False

    def met(self, ratio: float) -> bool:
        """Whether a ratio passes."""
        return ratio <= self.bound if self.most else ratio >= self.bound

    def __str__(self) -> str:
        return f"{'<=' if self.most else '>='} {self.bound:g}"


#: Cost that grows linearly has the exponent 1; beyond this bound it is something else.
_LINEAR = 1.1

GATES = (
    # 2.1 and 1.5 on an EPYC with AVX-512, 2.4 and 2.4 on a Xeon with AMX.
    Gate("training", "training tuned, default / torch eager float32", 2.0),
    Gate("training", "training tuned, default / torch autocast", 1.4),
    # Of `tuned`, 0.45 is where its many small operations end: no limit that it could meet.
    Gate("training", "training paper, float32, share of its GEMM floor", 0.60),
    # Beyond a constant, all of Adam's rows: a line, whose exponent is between 0 and 1.
    Gate("growth", "training time, growth with vocabulary", _LINEAR, most=True),
    Gate("growth", "training time, growth with vocabulary, sparse updates", 0.2, most=True),
    Gate("growth", "training time, growth with caption length", _LINEAR, most=True),
    # Scores grow with the square of the batch, but take little of the time.
    Gate("growth", "training time, growth with batch", _LINEAR, most=True),
    # Recurrent weights grow with the square of the units.
    Gate("growth", "training time, growth with dimensions", 2.1, most=True),
    *(
        Gate("growth", f"training memory, growth with {axis}", _LINEAR, most=True)
        for axis in ("vocabulary", "vocabulary, sparse updates", "caption length", "batch")
    ),
    Gate("growth", "training memory, growth with dimensions", 2.1, most=True),
    Gate("retrieval", "cosine ranks / papers' loops", 40.0),
    Gate("retrieval", "cosine ranks, in products", 1.2, most=True),
    Gate("retrieval", "cosine ranks, GB", 1.5, most=True),
    Gate("retrieval", "cosine ranks, growth with pairs", _LINEAR, most=True),
    # No gate beside VSE++, whose time is mostly that of new pages of memory, and differs sixfold between runs.
    Gate("order", "order scores, in limits", 2.0, most=True),
    Gate("order", "order ranks, GB", 1.5, most=True),
    Gate("order", "order scores, growth with pairs", _LINEAR, most=True),
    Gate("order", "order loss / VSE++", 60.0),
    Gate("order", "order loss, in limits", 3.0, most=True),
    Gate("hypernymy", "hypernymy epoch / torch SparseAdam", 4.0),
    Gate("hypernymy", "hypernymy epoch, growth with pairs", _LINEAR, most=True),
    Gate("pipeline", "JPEG to pixels / Pillow", 1.0),
    # Both wait for libjpeg's entropy decoding nearly all of the time.
    Gate("pipeline", "JPEG of 12 megapixels to pixels / Pillow", 0.9),
    Gate("pipeline", "captions to ids / NLTK", 22.0),
    # In memory and from disk, as were 157k and 81k rows a second beside 17k of TFRecords.
    Gate("pipeline", "feature rows / TFRecord", 9.0),
    Gate("pipeline", "feature rows from disk / TFRecord", 4.7),
    # Both copy rows of memory once the system has read the file.
    Gate("pipeline", "feature rows / memory map", 0.95),
    Gate("pipeline", "rows to batches / VSE++'s loader", 12.0),
    Gate("latency", "SavedModel tuned, batch 1 / torch eager", 1.0),
    Gate("latency", "SavedModel tuned, batch 64 / torch eager", 1.5),
    Gate("latency", "SavedModel tuned, growth with texts", _LINEAR, most=True),
    Gate("search", "exact top 10, batch 128, dim 1024 / FAISS flat", 1.15),
    Gate("search", "exact top 10, dim 1024, growth with items", _LINEAR, most=True),
    # Of ten million images with 50 million captions.
    Gate("scale", "split opened, seconds", 2.0, most=True),
    Gate("scale", "split opened, MB resident", 300.0, most=True),
    Gate("scale", "split opened by each worker, seconds", 2.0, most=True),
    Gate("scale", "split opened by each worker, MB resident", 300.0, most=True),
    Gate("scale", "epoch planned, bytes a pair", 8.0, most=True),
    # Rows of 256 bytes; places are looked up besides.
    Gate("scale", "feature rows from disk / memory map", 0.8),
    Gate("scale", "index, growth with images", _LINEAR, most=True),
    # Ids and places, but not embeddings, which have 256 bytes here.
    Gate("scale", "index, bytes an image", 128.0, most=True),
    # Memory that grows with the images has the exponent 1.
    Gate("scale", "evaluation, growth of memory with images", 0.5, most=True),
    # Besides pages of files, of 40,000 images and 200,000 captions; scores of all pairs would be 32 GB.
    Gate("scale", "evaluation, GB", 1.0, most=True),
    Gate("scale", "evaluation, growth with pairs", _LINEAR, most=True),
    # In processor time: Python once per batch, and `pread` once per image, beside libjpeg.
    Gate("scale", "pixel batches / decoding alone", 0.85),
    Gate("scale", "images read / by tf.data", 2.0),
    # Merging wins where many requests wait; with 8 clients both are as fast, and noise would decide.
    Gate("serving", "requests/s, 64 clients / plain aiohttp", 1.0),
    # Without TensorFlow, which takes seconds.
    Gate("startup", "import vsemb, seconds", 0.2, most=True),
    Gate("startup", "vsemb --help, seconds", 0.3, most=True),
    Gate("startup", "vsemb recipes, seconds", 0.3, most=True),
    Gate("startup", "vsemb search, first result / import tensorflow", 1.2, most=True),
    Gate("startup", "vsemb serve, ready / import tensorflow", 2.0, most=True),
)


def judged(part: str, rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Adds `gate` and `met` to the rows that have a gate.

    Of rows of one name, sizes ascending, the last is judged. A gate whose row is not there is not met, and a
    row says so.

    Args:
        part: whose rows these are.
        rows: dicts with `name`, `size`, `ratio` and, where the ratio is None, `reason`.

    Example:

    >>> rows = [{"name": "cosine ranks, in products", "size": size, "ratio": 1.1} for size in ("1", "2")]
    >>> [each.get("met") for each in judged("retrieval", rows)][:2]
    [None, True]
    """
    found = [dict(each) for each in rows]
    for gate in GATES:
        if gate.part != part:
            continue
        mine = [each for each in found if each["name"] == gate.row]
        if not mine:
            mine = [left_out(gate.row, "was not measured")]
            found += mine
        ratio = mine[-1]["ratio"]
        mine[-1] |= {"gate": str(gate), "met": ratio is not None and gate.met(ratio)}
    return found
