"""Rows of the parts whose reports have forms of their own."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from statistics import median
from typing import Any

from tests.benchmarks.timing import growth_rows, left_out, row

Report = Mapping[str, Any]
Rows = Iterator[dict[str, Any]]


def training(report: Report) -> Rows:
    for variant in report["variants"]:
        name = f"training {variant['variant']}"
        for way, found in variant["rows"].items():
            size = f"{found['captions_per_second']:.0f} captions/s"
            if way.startswith("vsemb"):
                kind = "float32" if way.endswith(" float32") else "default"
                # The default's type stands in brackets: `mixed_bfloat16` where the processor has it.
                floor = found["of_bfloat16_floor" if "bfloat16" in way else "of_float32_floor"]
                yield row(f"{name}, {kind}, share of its GEMM floor", size, floor)
            else:
                peer = "torch autocast" if way.startswith("torch autocast") else way
                yield row(f"{name}, default / {peer}", size, found["default_is_faster_by"])
        for way, reason in variant["failed"].items():
            yield left_out(f"{name}, default / {way}", reason)


def trees(report: Report) -> Rows:
    for units, ratios in report["ratios_to_lstm"].items():
        for name, ratio in ratios.items():
            yield row(f"{name}, in steps of Keras' LSTM", f"{units} units", ratio)


def alignment(report: Report) -> Rows:
    for images, found in report["sizes"].items():
        for name, figures in found.items():
            if isinstance(figures, dict):
                yield row(f"{name}, times the limit", f"{images} images", figures["times_the_limit"])


def captioning(report: Report) -> Rows:
    for found in report["sizes"]:
        size = f"{found['images']} images"
        yield row("beam search / a loop in Python", size, found["loop_over_graph"])
        yield row("beam search, times the limit", size, found["graph_over_limit"])
    sizes = [found["images"] for found in report["sizes"]]
    seconds = [found["ms_per_image"] * found["images"] / 1000 for found in report["sizes"]]
    yield from growth_rows("beam search, growth with images", sizes, seconds)


def gradient_caching(report: Report) -> Rows:
    for way, found in report["ways"].items():
        for what in ("memory", "time"):
            ratios = zip(report["batches"], found[f"times_the_{what}_of_the_whole"], strict=True)
            for batch, ratio in ratios:
                yield row(f"{way}, {what} of the whole", f"batch {batch}", ratio)


def serving(report: Report) -> Rows:
    for batch, ways in report.get("encode_text", {}).items():
        for name, found in ways.items():
            yield row(f"{name} / SavedModel, signature", f"batch {batch}", found["ratio"])
    modes = report["load"]["modes"]
    rates = {mode: sorted(found["requests_per_second"]) for mode, found in modes.items()}
    merged, single = (values[len(values) // 2] for values in rates.values())
    yield row("requests/s, merged / unmerged", f"{report['load']['requests']} requests", merged / single)
    for clients, servers in report["rest"]["clients"].items():
        middles = {name: median(found) for name, found in servers.items()}
        (_, ours), *peers = middles.items()
        for name, peer in peers:
            size = f"{report['rest']['requests']} requests"
            yield row(f"requests/s, {clients} clients / {name}", size, ours / peer, ours=ours, peer=peer)
        for name, reason in report["rest"]["left_out"].items():
            yield left_out(f"requests/s, {clients} clients / {name}", reason)


FORMS: dict[str, Callable[[Report], Rows]] = {
    "training": training,
    "trees": trees,
    "alignment": alignment,
    "captioning": captioning,
    "gradient_caching": gradient_caching,
    "serving": serving,
}


def rows_of(part: str, report: Report) -> list[dict[str, Any]]:
    """The rows of a part's report; a report that does not have its form becomes a row that says so.

    Args:
        part: whose report it is.
        report: what it wrote.

    Example:

    >>> rows_of("trees", {"ratios_to_lstm": {"150": {"tree_lstm": 3.0}}})[0]["ratio"]
    3.0
    """
    if part not in FORMS:
        return list(report["rows"])
    try:
        return list(FORMS[part](report))
    except (LookupError, TypeError, ValueError) as error:
        return [left_out(f"{part}: its report has another form", error)]
