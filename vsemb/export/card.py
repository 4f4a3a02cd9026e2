"""The model card: what an exported model is, was made of, and cannot do, for people to read.

One copy lies in the version, `NAME/N/assets.extra/MODEL_CARD.md`, where servers do not look; the newest
export's also beside the contract, `contracts/NAME.md`. What the model itself tells comes from the contract,
what its training tells from whoever exports it, and what nobody told is said to be unknown.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from vsemb.errors import one_line
from vsemb.export.contract import Contract, contract_path
from vsemb.export.description import written_shape
from vsemb.files import replacing

CARD = "MODEL_CARD.md"

_NO_PARSING = (
    "A SavedModel cannot parse: send tokens and heads (`encode_tree`). The parser used for training was {}. "
    "`vsemb.serving.Client(parser=…)` and `vsemb search` parse before the call."
)
_MISSING = {
    "encode_image": "It embeds no images: it holds no image network.",
    "classify": "It classifies no images: it was exported without classes.",
    "search": "It searches nothing: it was exported without a corpus.",
}
_NOT_BY_CAPTIONS = (
    "It embeds and compares nothing: what it makes are sentences.",
    "It does not know what it has not seen: it says what captions of its training data say of such images, "
    "fluently where it is wrong too.",
    "It reads no text in images and names no one.",
)
_MISSING_OF_SETS = {
    "encode_image": _MISSING["encode_image"],
    "align": "It tells no regions of words, since it has none: see `encode_image`.",
    "classify": "It classifies no images, of which it makes sets of vectors: `vsemb classify RUN` does.",
    "search": "It searches nothing, since a corpus holds one vector an item: `vsemb search RUN` does.",
}


@dataclass(frozen=True, kw_only=True)
class ModelFacts:
    """What is known about a model beside what it tells itself; "" and empty where it is not known.

    Attributes:
        recipe: name of the recipe, e.g. `"tree-twin"`.
        variant: of the recipe.
        paper: whom the recipe follows.
        dataset: name of the dataset that it was trained on.
        dataset_fingerprint: hex.
        texts: what the texts are that it takes, where they are no sentences, e.g. `"names of 200 classes"`.
        images: what an image was in training, e.g. `"features of MobileNetV2 at 224 pixels"`.
        features_fingerprint: hex, of the features.
        selection: how the weights were chosen, e.g. `"the best recall_sum on the split val, epoch 7"`.
        metrics: what the chosen weights reach on the validation split, by metric.
        parser: what parsed the training captions, e.g. `str(ParserInfo)`; of models that take trees.
        licence: of the weights, or of the data that they were made of.
        notes: further sentences, each a line of its own.

    Example:

    >>> ModelFacts(recipe="vsepp", variant="tuned").dataset
    ''
    """

    recipe: str = ""
    variant: str = ""
    paper: str = ""
    dataset: str = ""
    dataset_fingerprint: str = ""
    texts: str = ""
    images: str = ""
    features_fingerprint: str = ""
    selection: str = ""
    metrics: Mapping[str, float] = field(default_factory=dict)
    parser: str = ""
    licence: str = ""
    notes: Sequence[str] = ()


def model_card(contract: Contract, facts: ModelFacts) -> str:
    """Writes a model card.

    Args:
        contract: of the version.
        facts: what else is known.

    Returns:
        Markdown.

    Example:

        print(model_card(Contract.read("savedmodels/contracts/flickr8k.json"), ModelFacts(recipe="vsepp")))
    """
    parts = [
        f"# {_plain(contract.model)}, version {contract.model_version}",
        _what(contract, facts),
        "## What it was trained on",
        _pairs(
            {
                "dataset": facts.dataset,
                "dataset fingerprint": _code(facts.dataset_fingerprint),
                "images": facts.images,
                # Images that are known to be no features have no fingerprint, known or not.
                **(
                    {"features fingerprint": _code(facts.features_fingerprint)}
                    if facts.features_fingerprint or not facts.images
                    else {}
                ),
                **({"parser of the captions": facts.parser} if _trees(contract) else {}),
            }
        ),
        "## How its weights were chosen",
        _chosen(facts),
        "## What it takes and gives",
        _signatures(contract),
        _geometry(contract),
        "## Limits",
        _lines(_limits(contract, facts)),
        "## What it cannot do",
        _lines(_cannot(contract, facts)),
        "## What is not known",
        _lines(_unknown(contract, facts)),
        *(["## Notes", _lines(facts.notes)] if facts.notes else []),
        f"The contract, `contracts/{_plain(contract.model)}.json`, has examples of what it answers; "
        "`vsemb verify` holds it to them.",
    ]
    return "\n\n".join(parts) + "\n"


def version_card_path(version: Path) -> Path:
    """Returns where the card of a version lies."""
    return version / "assets.extra" / CARD


def card_path(base: str | os.PathLike[str]) -> Path:
    """Returns where the card of a model's newest export lies.

    Example:

    >>> card_path("/models/flickr8k").as_posix()
    '/models/contracts/flickr8k.md'
    """
    contract = contract_path(base)
    # A model's name may have a dot in it.
    return contract.with_name(f"{contract.name.removesuffix('.json')}.md")


def write_card(card: str, path: str | os.PathLike[str]) -> None:
    """Writes the file, whole or not at all.

    Raises:
        DataError: if the file system refuses.
    """
    with replacing(path) as temporary:
        temporary.write_text(card, encoding="utf-8")


def _what(contract: Contract, facts: ModelFacts) -> str:
    takes = _plain(facts.texts) or ("dependency trees" if _trees(contract) else "sentences")
    both = f"{takes} and images" if "encode_image" in contract.signatures else takes
    written = contract.captions
    rows = {
        "recipe": ", ".join(filter(None, [facts.recipe, facts.variant and f"variant {facts.variant}"])),
        "paper": facts.paper,
        "run": _code(contract.fingerprint or ""),
        "made with": ", ".join(f"{name} {version}" for name, version in contract.versions.items()),
    }
    if written is not None:
        most = written["n_best"]
        each = "a caption" if most == 1 else f"captions, up to {most} an image, the best first"
        words = f", of {written['words']:,} words that it knows" if "words" in written else ""
        return f"Looks at images and writes {each}{words}.\n\n{_pairs(rows)}"
    each = f"{contract.dim} numbers each"
    if _sets(contract):
        each = f"sets of vectors of {each}, one a word{' or region' if both != takes else ''}"
    return f"Embeds {both} as {each}, which can be compared.\n\n{_pairs(rows)}"


def _chosen(facts: ModelFacts) -> str:
    said = f"Chosen: {_plain(facts.selection)}." if facts.selection else "How they were chosen is not known."
    if not facts.metrics:
        return said
    rows = [[name, f"{value:.4g}"] for name, value in facts.metrics.items()]
    return f"{said}\n\n{_table(['validation', 'value'], rows)}"


def _signatures(contract: Contract) -> str:
    rows = [
        [_code(name), *("; ".join(_spec(*item) for item in sides[side].items()) for side in _SIDES)]
        for name, sides in contract.signatures.items()
    ]
    return _table(["signature", *_SIDES], rows)


_SIDES = ("inputs", "outputs")


def _spec(name: str, spec: Mapping[str, Any]) -> str:
    return f"{_code(name)} {spec['dtype']} {written_shape(spec['shape'])}"


def _geometry(contract: Contract) -> str:
    similarity, geometry = contract.similarity, contract.geometry
    if similarity is None or geometry is None:
        return _writing(contract.captions or {})
    config = ", ".join(f"{name}={value}" for name, value in similarity["config"].items())
    name = f"{_code(similarity['name'])}{f' ({_plain(config)})' if config else ''}"
    return f"Two embeddings are compared by {name}; their geometry is: {_plain(geometry)}."


def _writing(captions: Mapping[str, Any]) -> str:
    found = ["`log_probs` are natural logarithms of the probability of a caption."]
    if "beam" in captions:
        beam = captions["beam"]
        searched = f"a beam of {beam}" if beam > 1 else "taking the likeliest word each time"
        found.insert(0, f"Captions are searched for with {searched}.")
    if captions.get("length_penalty"):
        power = f"{captions['length_penalty']:g}"
        found.append(f"They are ordered by it over the number of words to the power of {power}.")
    if "candidates" in captions:
        candidates = captions["candidates"]
        found.append(f"The best of {candidates:,} candidates are given, by a score of their own.")
    return " ".join(found)


def _limits(contract: Contract, facts: ModelFacts) -> list[str]:
    found = []
    if contract.max_text_bytes is not None:
        found.append(f"Of a text, what is behind {contract.max_text_bytes:,} bytes is not read.")
    if facts.texts:
        found.append(f"A text is one of the {_plain(facts.texts)}, written as in training.")
    elif contract.max_tokens is not None:
        what = "A tree" if _trees(contract) else "A text"
        found.append(f"{what} is read up to {contract.max_tokens} tokens.")
    if contract.max_pixels is not None:
        found.append(f"Images are JPEG or PNG, of {contract.max_pixels:,} pixels at most.")
    if "align" in contract.signatures:
        found.extend(_region_limits(contract.signatures["align"]))
    captions = contract.captions
    if captions is not None and "max_words" in captions:
        found.append(f"A caption has {captions['max_words']} words at most, and is cut there.")
    nothing = "zeros" if captions is None else 'captions that are ""'
    found.append(
        f"A row that cannot be read is answered by `valid` false and {nothing}, and costs its neighbours nothing."
    )
    if captions is None:
        found.append("Embeddings of two versions are not comparable.")
    return found


def _region_limits(align: Mapping[str, Any]) -> list[str]:
    most = align["outputs"]["boxes"]["shape"][1]
    regions = "one region, the whole of it" if most == 1 else f"{most} regions at most, the whole of it first"
    found = [f"An image has {regions}: boxes x, y, w, h, as fractions of it."]
    if "boxes" in align["inputs"]:
        found.append("It proposes no regions: send candidate boxes, best first, and zeros as padding.")
    return found


def _cannot(contract: Contract, facts: ModelFacts) -> list[str]:
    if contract.captions is not None:
        return list(_NOT_BY_CAPTIONS)
    found = [_NO_PARSING.format(_plain(facts.parser) or "not recorded")] if _trees(contract) else []
    for name, said in (_MISSING_OF_SETS if _sets(contract) else _MISSING).items():
        if not any(signature.startswith(name) for signature in contract.signatures):
            found.append(said)
    return [*found, "It makes no captions: it compares what it is given."]


def _unknown(contract: Contract, facts: ModelFacts) -> list[str]:
    made = "embeddings" if contract.captions is None else "captions that are written"
    licence = "The licence of the weights, and of the data behind them: ask whoever made this file."
    return [
        f"Licence: {_plain(facts.licence)}." if facts.licence else licence,
        f"Bias: it was not measured. What captions and images have of it, the {made} may have too.",
        "How it does on other data than that of its validation split.",
    ]


def _trees(contract: Contract) -> bool:
    return "encode_tree" in contract.signatures


def _sets(contract: Contract) -> bool:
    embedding = contract.signatures["serving_default"]["outputs"].get("embedding")
    return embedding is not None and len(embedding["shape"]) == 3


def _pairs(rows: Mapping[str, str]) -> str:
    return _table(["", ""], [[name, value or "not known"] for name, value in rows.items()])


def _table(header: list[str], rows: list[list[str]]) -> str:
    written = [[_plain(cell).replace("|", "\\|") for cell in row] for row in [header, *rows]]
    lines = [f"| {' | '.join(row)} |" for row in written]
    return "\n".join([lines[0], f"|{' --- |' * len(header)}", *lines[1:]])


def _lines(sentences: Sequence[str]) -> str:
    return "\n".join(f"- {_plain(sentence)}" for sentence in sentences)


def _code(text: str) -> str:
    return f"`{text}`" if text else ""


def _plain(text: str) -> str:
    """Keeps what others named, such as datasets, from breaking lines and tables, or being HTML."""
    return one_line(text, 2_000).replace("<", "&lt;")
