"""What a model of embeddings is tried with before it is published, and what its contract says of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from vsemb.export.contract import Golden, geometry
from vsemb.export.golden import (
    Arrays,
    golden_alignments,
    golden_images,
    golden_k,
    golden_regions,
    golden_sets,
    golden_texts,
    golden_trees,
)
from vsemb.export.served import Case, tensors
from vsemb.image.decode import MAX_PIXELS
from vsemb.text.normalize import MAX_BYTES

if TYPE_CHECKING:
    from vsemb.export.signatures import ServedModel


def embedding_cases(served: ServedModel) -> list[Case]:
    """Returns the golden rows of each of a model's signatures."""
    images = {"image_bytes": np.array(golden_images(), object)}
    if served.image_input is not None and served.image_input.wants_boxes:
        images = golden_regions()
    encode: Callable[..., Any]
    search_rows: Callable[..., Any]
    if served.encode_tree is None:
        texts = (golden_sets if served.multi_vector else golden_texts)(served.tokenizer)
        sentences = {"text": np.array(texts, object)}
        encode, search, search_rows = served.text_rows, "search_text", served.text_search_rows
    else:
        sentences = golden_trees(served.tokenizer)
        encode, search, search_rows = served.tree_rows, "search_tree", served.tree_search_rows
    cases = [Case(served.default, encode, sentences)]
    if served.image_input is not None:
        cases.append(Case("encode_image", served.image_rows, images))
    if served.align is not None:
        words = encode(**tensors(sentences))["embedding"].numpy()
        rows = golden_alignments(served.tokenizer, boxes="boxes" in images)
        scale = _score_scale(served.image_rows, images, words)
        cases.append(Case("align", served.align_rows, rows, scale))
    if served.classes is not None:
        scale = _score_scale(served.image_rows, images, served.classes.embeddings)
        cases.append(Case("classify", served.class_rows, images, scale))
    if served.corpus is not None:
        items = served.corpus.embeddings
        scale = _score_scale(encode, sentences, items)
        cases.append(Case(search, search_rows, _with_k(sentences), scale))
        if served.image_input is not None:
            scale = _score_scale(served.image_rows, images, items)
            cases.append(Case("search_image", served.image_search_rows, _with_k(images), scale))
    return cases


def embedding_promises(served: ServedModel, golden: Mapping[str, Golden]) -> dict[str, Any]:
    """Returns what a contract says of embeddings: their size, how they compare, what is read at most."""
    from vsemb.systems.entailment.model import COMPARISONS, EntailmentModel

    model = served.model
    similarity = COMPARISONS[model.comparison]() if isinstance(model, EntailmentModel) else model.similarity
    return {
        "dim": golden[served.default].outputs["embedding"].shape[-1],
        "similarity": {"name": type(similarity).__name__, "config": similarity.get_config()},
        "geometry": geometry(similarity),
        "max_text_bytes": MAX_BYTES if served.encode_tree is None else None,
        "max_tokens": getattr(served.tokenizer, "max_length", None),
        "max_pixels": None if served.image_input is None else MAX_PIXELS,
    }


def _with_k(inputs: Arrays) -> Arrays:
    return {**inputs, "k": golden_k(len(next(iter(inputs.values()))))}


def _score_scale(encode: Callable[..., Any], inputs: Arrays, others: np.ndarray) -> float:
    """Returns how large scores may be: rounding grows with the embeddings, even where scores are near 0."""
    embedded = encode(**tensors(inputs))["embedding"].numpy()
    largest = [np.linalg.norm(side, axis=-1).max() for side in (embedded, others)]
    scale = float(np.prod(largest))
    # What is not finite is reported where it is found.
    return max(1.0, scale) if np.isfinite(scale) else 1.0
