"""From strings to text embeddings: the SavedModel's `encode_text` beside the same tower in PyTorch.

    python -m tests.benchmarks.latency [--variants tuned paper] [--batches 1 8 64] [--threads 1] [--json FILE]

The recipe `vsepp` at its full sizes, trained on a few generated scenes, since weights do not change the time,
and exported; texts have the lengths of captions. PyTorch's side splits and looks up words in plain Python,
packs by length and runs in inference mode. CPU time, in turns. PyTorch is in the extra `benchmark`. Where the
processor multiplies bfloat16, what `vsemb export --precision mixed_bfloat16` writes is measured too, beside
the same float32 peer.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
import tensorflow as tf

from tests.benchmarks.timing import cpu_seconds, exponent, interleaved, left_out, print_rows, row, set_threads
from vsemb import recipes
from vsemb.data import synthetic as scenes
from vsemb.data.writing.writer import write_dataset
from vsemb.files import write_json
from vsemb.ops.backend import multiplies_bfloat16
from vsemb.runs.fine_tune import with_backbone
from vsemb.runs.run import Run
from vsemb.runs.serve import export_run
from vsemb.runs.train import train

NAME = "SavedModel {}, batch {} / torch eager"
ROUNDED = "SavedModel {} in bfloat16, batch {} / torch eager"
GROWTH = "SavedModel {}, growth with texts"
_CALLS = {1: 20, 8: 10}
_FEW = ["training.epochs=1", "text.tokenizer.min_count=1"]


def export(variant: str, folder: Path) -> tuple[dict[str, Path], Run]:
    """Trains a variant for an epoch on few scenes; returns its SavedModels, by their rows, and the run."""
    data = write_dataset(
        scenes.generate({"train": 100, "val": 20, "test": 20}),
        folder / "scenes",
        name="scenes",
        source={"format": "scenes", "path_name": "generated", "sha256": {}, "options": {}},
    )
    recipe = with_backbone(recipes.get("vsepp", variant), data, "SmallConvNet")
    with contextlib.redirect_stdout(io.StringIO()):
        run = train(recipe.with_overrides(_FEW), data, folder / "run")
        precisions = {NAME: "float32"} | ({ROUNDED: "mixed_bfloat16"} if multiplies_bfloat16() else {})
        models = {
            name: export_run(run.computed_in(precision), folder / precision) for name, precision in precisions.items()
        }
    return models, run


def random_texts(words: tuple[str, ...], count: int) -> list[str]:
    """Texts of known words, with the lengths of captions: about 11 words, from 5 to 40."""
    generator = np.random.default_rng(count)
    lengths = np.clip(np.rint(generator.lognormal(2.35, 0.33, count)), 5, 40).astype(int)
    return [" ".join(generator.choice(words, length)) for length in lengths]


def torch_encoder(variant: str, run: Run) -> Callable[[list[str]], np.ndarray]:
    """The tower of the same sizes in PyTorch, from texts to unit vectors."""
    import torch

    from tests.benchmarks.torch_peers import Towers
    from tests.benchmarks.training import recurrent_part

    known = {word: number for number, word in enumerate(run.tokenizer.vocabulary.words, 2)}
    towers = Towers(variant, len(known) + 2, recurrent_part(run.recipe).words.dim, 1).eval()
    towers.image = torch.nn.Identity()

    def encode(texts: list[str]) -> np.ndarray:
        ids = [[known.get(word, 1) for word in text.lower().split()] for text in texts]
        order = sorted(range(len(ids)), key=lambda place: -len(ids[place]))
        padded = np.zeros((len(ids), len(ids[order[0]])), np.int64)
        for place, number in enumerate(order):
            padded[place, : len(ids[number])] = ids[number]
        lengths = torch.tensor([len(ids[number]) for number in order])
        with torch.inference_mode():
            found, _ = towers(torch.from_numpy(padded), lengths, torch.ones(len(ids), 1))
        embeddings = np.empty(found.shape, np.float32)
        embeddings[order] = found.numpy()
        return embeddings

    return encode


def embedded(encode: Callable[..., Any], texts: list[str]) -> np.ndarray:
    """What a SavedModel's signature makes of texts."""
    return encode(text=tf.constant(texts))["embedding"].numpy()


def measure(variant: str, batches: list[int], threads: int, rounds: int) -> list[dict[str, Any]]:
    """The rows of one variant."""
    with tempfile.TemporaryDirectory() as folder:
        paths, run = export(variant, Path(folder))
        loaded = {name: tf.saved_model.load(str(path)) for name, path in paths.items()}
        words = run.tokenizer.vocabulary.words
    encoders = {name: model.signatures["encode_text"] for name, model in loaded.items()}
    try:
        peer = torch_encoder(variant, run)
        set_threads(threads)
    except ImportError:
        reason = "PyTorch is not installed: pip install 'vsemb[benchmark]'"
        return [left_out(NAME.format(variant, batch), reason) for batch in batches]
    rows, taken = [], []
    for batch in batches:
        texts = random_texts(words, batch)
        calls = _CALLS.get(batch, 3)

        def each(call: Callable[[], Any], calls: int = calls) -> Callable[[], float]:
            return lambda: cpu_seconds(lambda: [call() for _ in range(calls)]) / calls

        calls_of: dict[str, Callable[[], Any]] = {
            name: partial(embedded, encode, texts) for name, encode in encoders.items()
        }
        calls_of["peer"] = partial(peer, texts)
        shapes = {tuple(call().shape) for call in calls_of.values()}
        assert len(shapes) == 1, shapes
        seconds = interleaved({name: each(call) for name, call in calls_of.items()}, rounds)
        taken.append(seconds[NAME])
        for name in encoders:
            ours, theirs = seconds[name], seconds["peer"]
            size = f"{batch} texts"
            rows.append(row(name.format(variant, batch), size, theirs / ours, ours=ours, peer=theirs))
    if len(batches) > 1:
        rows.append(row(GROWTH.format(variant), f"{len(batches)} sizes", exponent(batches, taken)))
    return rows


def main() -> None:
    """Runs the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--variants", nargs="+", default=["tuned", "paper"], choices=["tuned", "paper"])
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 8, 64])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--json", metavar="FILE")
    arguments = parser.parse_args()
    set_threads(arguments.threads)
    rows = []
    for variant in arguments.variants:
        rows += measure(variant, arguments.batches, arguments.threads, arguments.rounds)
    print_rows(rows)
    if arguments.json:
        write_json(arguments.json, {"threads": arguments.threads, "rows": rows})


if __name__ == "__main__":
    main()
