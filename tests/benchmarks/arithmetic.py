"""How often arithmetic finds what it names: the image of a red circle, minus "red", plus "blue" (Kiros et al. 2014).

    python -m tests.benchmarks.arithmetic RUN [--data DATASET] [--split test] [--json FILE]

The data are scenes (`vsemb scenes`), whose annotations say what is there. A query is an image with a single object, and
another colour, or another shape, that some other image of one object has with it:

    embedding(image) - embedding("red") + embedding("blue")

It is right if the best image, or one of the best five, apart from the query's own, shows one object, of the new colour
and the old shape. Beside it: the image alone, the new word alone, and the text "a blue circle", which knows the answer.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
import tensorflow as tf

from vsemb.data.store import Split
from vsemb.evaluation import Embedder
from vsemb.files import write_json
from vsemb.printing import table
from vsemb.runs.run import Run
from vsemb.searching.arithmetic import combine

WITHIN = (1, 5)
WAYS = ("image - word + word", "image alone", "new word alone", "text of the answer")


def single_objects(split: Split) -> dict[int, tuple[str, str]]:
    """Return row -> colour and shape of the images with one object."""
    labels = [[each["label"] for each in objects] for objects in split.objects]
    return {row: tuple(own[0].split()) for row, own in enumerate(labels) if len(own) == 1}


def queries_of(shown: dict[int, tuple[str, str]], part: int) -> list[tuple[int, str, str, tuple[str, str]]]:
    """Return row, word to subtract, word to add and the answer of every query.

    Args:
        shown: row -> colour and shape.
        part: 0 to change the colour, 1 to change the shape.

    Example:

    >>> queries_of({0: ("red", "circle"), 3: ("blue", "circle"), 4: ("blue", "star")}, 0)
    [(0, 'red', 'blue', ('blue', 'circle')), (3, 'blue', 'red', ('red', 'circle'))]
    """
    answers = sorted(set(shown.values()))
    found = []
    for row, own in shown.items():
        for other in answers:
            if other[part] != own[part] and other[1 - part] == own[1 - part]:
                found.append((row, own[part], other[part], other))
    return found


def measure(run: Run, split: Split, images: np.ndarray, part: int) -> dict[str, Any]:
    """Measure the queries of one kind; shares are in percent."""
    shown = single_objects(split)
    queries = queries_of(shown, part)
    similarity = run.model.similarity

    def embed(texts: Sequence[str]) -> dict[str, np.ndarray]:
        distinct = sorted(set(texts))
        rows = run.model.encode_texts(run.tokenizer(tf.constant(distinct))).numpy()
        return dict(zip(distinct, rows, strict=True))

    words = embed([word for _, old, new, _ in queries for word in (old, new)])
    answers = embed([f"a {' '.join(answer)}" for *_, answer in queries])
    right = {way: np.zeros(len(WITHIN)) for way in WAYS}
    for row, old, new, answer in queries:
        texts = (words[new], answers[f"a {' '.join(answer)}"])
        targets = np.stack(
            [combine(images[row], [words[old]], [words[new]], similarity.normalize), images[row], *texts]
        )
        scores = np.array(similarity.scores(images, targets)).T
        scores[:, row] = -np.inf
        order = np.argsort(-scores, axis=1, kind="stable")[:, : max(WITHIN)]
        for way, best in zip(WAYS, order.tolist(), strict=True):
            hits = [shown.get(each) == answer for each in best]
            right[way] += [any(hits[:within]) for within in WITHIN]
    shares = {way: (100 * counts / len(queries)).tolist() for way, counts in right.items()}
    chance = np.mean([sum(each == answer for each in shown.values()) for *_, answer in queries]) / (len(images) - 1)
    return {"queries": len(queries), "right": shares, "chance": 100 * float(chance)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run")
    parser.add_argument("--data")
    parser.add_argument("--split", default="test")
    parser.add_argument("--json")
    options = parser.parse_args()
    run = Run.open(options.run, "retrieval")
    dataset = run.open_data(options.data)
    split = dataset.split(options.split)
    images = Embedder(run.model).images(run.images_of(dataset, split), len(split))
    found = {name: measure(run, split, images, part) for part, name in enumerate(("another colour", "another shape"))}
    for name, result in found.items():
        print(f"{name}: {result['queries']:,} queries, chance {result['chance']:.1f} %")
        lines = [[way, *(f"{share:.1f}" for share in shares)] for way, shares in result["right"].items()]
        print(table(["query", *(f"in the best {within}, %" for within in WITHIN)], lines))
    if options.json:
        write_json(options.json, found)


if __name__ == "__main__":
    main()
