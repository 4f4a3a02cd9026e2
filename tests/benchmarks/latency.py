"""From strings to text embeddings: the SavedModel's `encode_text` beside the same tower in PyTorch.

    python -m tests.benchmarks.latency [--variants tuned paper] [--batches 1 8 64] [--threads 1] [--json FILE]

The recipe `vsepp` at its full sizes, trained on a few generated scenes, since weights do not change the time,
and exported; texts have the lengths of captions. PyTorch's side has the same weights. It splits and looks up words
in plain Python, packs by length and runs in inference mode, in a process of its own. Embeddings must be equal up to
rounding. CPU time, in turns. Where the processor
multiplies bfloat16, what `vsemb export --precision mixed_bfloat16` writes is measured too, beside the same
float32 peer.

    python -m tests.benchmarks.latency --shares [--variants tuned paper] [--rounds 41]

Shares of the time of one text, without a peer: the call, the tokenizer, the loop, and the recurrent products, each
alone. The remainder is in other operations.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import tempfile
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
import tensorflow as tf

from tests.benchmarks.peers import Peer
from tests.benchmarks.timing import beside, cpu_seconds, growth_rows, interleaved, print_rows, row, set_threads
from tests.benchmarks.training import recurrent_part
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
SHARE = "{} / SavedModel {}, batch 1"
_CALLS = {1: 20, 8: 10}
#: Row -> how far an embedding, which is a unit vector, may be from the peer's.
_TOLERANCES = {NAME: 1e-5, ROUNDED: 2e-2}
_FEW = ["training.epochs=1", "text.tokenizer.min_count=1"]


def export(variant: str, folder: Path) -> tuple[dict[str, Path], Run]:
    """Trains a variant for an epoch on few scenes; returns its SavedModels, by their rows, and the run.

    Biases, which begin at 0, are drawn at random afterwards, so that a lost one changes embeddings.
    """
    data = write_dataset(
        scenes.generate({"train": 100, "val": 20, "test": 20}),
        folder / "scenes",
        name="scenes",
        source={"format": "scenes", "path_name": "generated", "sha256": {}, "options": {}},
    )
    recipe = with_backbone(recipes.get("vsepp", variant), data, "SmallConvNet")
    with contextlib.redirect_stdout(io.StringIO()):
        run = train(recipe.with_overrides(_FEW), data, folder / "run")
        generator = np.random.default_rng(0)
        for weight in run.model.text_encoder.weights:
            if weight.name == "bias":
                weight.assign(generator.normal(scale=0.5, size=weight.shape))
        precisions = {NAME: "float32"} | ({ROUNDED: "mixed_bfloat16"} if multiplies_bfloat16() else {})
        models = {}
        for name, precision in precisions.items():
            computed = run.computed_in(precision)
            computed.model.set_weights(run.model.get_weights())
            models[name] = export_run(computed, folder / precision)
    return models, run


def torch_weights(encoder: Any) -> dict[str, np.ndarray]:
    """The weights of a text encoder of `vsepp`, by their names in the `Towers` of PyTorch."""
    sequence = getattr(encoder, "sequence", encoder)
    recurrent = sequence.recurrent
    weights = {"table.weight": sequence.words.table}
    directions = {"": recurrent}
    if sequence is not encoder:
        directions = {"": recurrent.forward_layer, "_reverse": recurrent.backward_layer}
        weights |= {
            "projection.weight": sequence.projection.kernel.numpy().T,
            "projection.bias": sequence.projection.bias,
            "bag.weight": encoder.bag.words.table,
            "rarity.weight": np.append(0, encoder.bag.rarity.numpy()[1:])[:, None],  # padding counts for nothing
            "gain": encoder.gain,
        }
    for suffix, layer in directions.items():
        for side, kernel, bias in zip(
            ("ih", "hh"), (layer.cell.kernel, layer.cell.recurrent_kernel), layer.cell.bias.numpy(), strict=True
        ):
            weights[f"recurrent.weight_{side}_l0{suffix}"] = _reset_first(kernel.numpy()).T
            weights[f"recurrent.bias_{side}_l0{suffix}"] = _reset_first(bias)
    return {name: np.asarray(values) for name, values in weights.items()}


def _reset_first(gates: np.ndarray) -> np.ndarray:
    """Turns Keras' order of gates, update, reset and candidate, into PyTorch's: reset, update, candidate."""
    update, reset, candidate = np.split(gates, 3, axis=-1)
    return np.concatenate([reset, update, candidate], axis=-1)


def random_texts(words: tuple[str, ...], count: int) -> list[str]:
    """Texts of known words, with the lengths of captions: about 11 words, from 5 to 40."""
    generator = np.random.default_rng(count)
    lengths = np.clip(np.rint(generator.lognormal(2.35, 0.33, count)), 5, 40).astype(int)
    return [" ".join(generator.choice(words, length)) for length in lengths]


def embedded(encode: Callable[..., Any], texts: list[str]) -> np.ndarray:
    """What a SavedModel's signature makes of texts."""
    return encode(text=tf.constant(texts))["embedding"].numpy()


def measure(variant: str, batches: list[int], threads: int, rounds: int) -> list[dict[str, Any]]:
    """The rows of one variant."""
    with tempfile.TemporaryDirectory() as folder:
        paths, run = export(variant, Path(folder))
        loaded = {name: tf.saved_model.load(str(path)) for name, path in paths.items()}
        words, weights = run.tokenizer.vocabulary.words, torch_weights(run.model.text_encoder)
    encoders = {name: model.signatures["encode_text"] for name, model in loaded.items()}
    given = {"variant": variant, "words": list(words), "word_dim": recurrent_part(run.recipe).words.dim}
    rows, taken = [], []
    with Peer("torch", "tests.benchmarks.peers.vsepp:encoder", threads=threads, **given, **weights) as peer:
        for batch in batches:
            texts, calls = random_texts(words, batch), _CALLS.get(batch, 3)
            expected = {name: embedded(encode, texts) for name, encode in encoders.items()}

            def ours(encode: Callable[..., Any], texts: list[str] = texts, calls: int = calls) -> float:
                return cpu_seconds(lambda: embedded(encode, texts), calls)

            def theirs(
                texts: list[str] = texts, calls: int = calls, expected: Mapping[str, np.ndarray] = expected
            ) -> float:
                answer = peer(texts=texts, calls=calls)
                for name, embeddings in expected.items():
                    np.testing.assert_allclose(answer["embeddings"], embeddings, atol=_TOLERANCES[name], err_msg=name)
                return answer["seconds"]

            ways = {name: partial(ours, encode) for name, encode in encoders.items()}
            seconds = interleaved(ways | {"peer": theirs}, rounds)
            taken.append(seconds[NAME])
            for name in encoders:
                mine = seconds | {"ours": seconds[name]}
                rows.append(beside(peer, name.format(variant, batch), f"{batch} texts", mine))
    return rows + growth_rows(GROWTH.format(variant), batches, taken)


def shares(variant: str, rounds: int) -> list[dict[str, Any]]:
    """The rows of the shares of one variant: seconds of a part divided by the seconds of all for one text."""
    with tempfile.TemporaryDirectory() as folder:
        paths, run = export(variant, Path(folder))
        loaded = tf.saved_model.load(str(paths[NAME]))
    text = tf.constant(random_texts(run.tokenizer.vocabulary.words, 1))
    steps = int(run.tokenizer(text).shape[1])
    weights = torch_weights(run.model.text_encoder)
    recurrent = [np.ascontiguousarray(values.T) for name, values in weights.items() if "weight_hh" in name]
    units, strings = len(recurrent[0]), [tf.TensorSpec([None], tf.string)]

    def looped(product: Callable[[tf.Tensor, tf.Tensor], tf.Tensor], texts: tf.Tensor) -> Any:
        def step(number: tf.Tensor, *states: tf.Tensor) -> Any:
            return number + 1, *(product(*pair)[:, :units] for pair in zip(states, recurrent, strict=True))

        return tf.while_loop(lambda number, *_: number < steps, step, (0, *[tf.ones((1, units))] * len(recurrent)))

    whole = loaded.signatures["encode_text"]
    functions = {
        "call": lambda texts: tf.identity(texts),  # Named arguments of TensorFlow's own would take longer.
        "tokenizer": lambda texts: run.tokenizer(texts),
        "empty loop": partial(looped, lambda state, _: state),
        "recurrent products": partial(looped, tf.matmul),
    }
    ways = {"whole": lambda: whole(text=text)}
    for name, function in functions.items():
        concrete = tf.function(function, input_signature=strings, autograph=False).get_concrete_function()
        ways[name] = partial(concrete, text)
    # The least, since other programs can only add to the time of a part.
    times = [{name: cpu_seconds(way, 20) for name, way in ways.items()} for _ in range(rounds)]
    seconds = {name: min(each[name] for each in times) for name in ways}
    total = seconds.pop("whole")
    seconds["recurrent products"] -= seconds["empty loop"]
    for name in ("tokenizer", "empty loop"):
        seconds[name] -= seconds["call"]
    seconds["other operations"] = total - sum(seconds.values())
    read = steps * sum(matrix.nbytes for matrix in recurrent)
    rates = {"recurrent products": {"gigabytes_per_second": read / seconds["recurrent products"] / 1e9}}
    return [
        row(SHARE.format(name, variant), f"{steps} words", taken / total, seconds=taken, **rates.get(name, {}))
        for name, taken in seconds.items()
    ]


def main() -> None:
    """Runs the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--variants", nargs="+", default=["tuned", "paper"], choices=["tuned", "paper"])
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 8, 64])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument(
        "--shares", action="store_true", help="where the time of one text goes, without a peer or batches"
    )
    parser.add_argument("--json", metavar="FILE")
    arguments = parser.parse_args()
    set_threads(arguments.threads)
    rows = []
    for variant in arguments.variants:
        if arguments.shares:
            rows += shares(variant, arguments.rounds)
        else:
            rows += measure(variant, arguments.batches, arguments.threads, arguments.rounds)
    print_rows(rows)
    if arguments.json:
        write_json(arguments.json, {"threads": arguments.threads, "rows": rows})


if __name__ == "__main__":
    main()
