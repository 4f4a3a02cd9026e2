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

from vsemb.errors import one_line
from vsemb.exporting.contract import SIDES, Contract, contract_path, written_spec

CARD = "MODEL_CARD.md"


@dataclass(frozen=True, kw_only=True)
class ModelFacts:
    """What is known about a model beside what it tells itself; "" and empty where it is not known.

    Attributes:
        recipe: name of the recipe, e.g. `"tree-twin"`.
        variant: of the recipe.
        paper: whom the recipe follows.
        dataset: name of the dataset that it was trained on.
        dataset_fingerprint: hex.
        images: what an image was in training, e.g. `"features of MobileNetV2 at 224 pixels"`.
        features_fingerprint: hex, of the features.
        selection: how the weights were chosen, e.g. `"the best recall_sum on the split val, epoch 7"`.
        metrics: what the chosen weights reach on the validation split, by metric.
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
    images: str = ""
    features_fingerprint: str = ""
    selection: str = ""
    metrics: Mapping[str, float] = field(default_factory=dict)
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
    about = contract.about
    trained_on = {
        "dataset": facts.dataset,
        "dataset fingerprint": _code(facts.dataset_fingerprint),
        "images": facts.images,
    }
    # Images that are known to be no features have no fingerprint, known or not.
    if facts.features_fingerprint or not facts.images:
        trained_on["features fingerprint"] = _code(facts.features_fingerprint)
    made_with = {
        "recipe": ", ".join(filter(None, [facts.recipe, facts.variant and f"variant {facts.variant}"])),
        "paper": facts.paper,
        "run": _code(contract.fingerprint or ""),
        "made with": ", ".join(f"{name} {version}" for name, version in contract.versions.items()),
    }
    selected = f"Chosen: {_plain(facts.selection)}." if facts.selection else "How they were chosen is not known."
    values = [[name, f"{value:.4g}"] for name, value in facts.metrics.items()]
    signatures = [
        [
            _code(name),
            *("; ".join(f"{_code(key)} {written_spec(spec)}" for key, spec in sides[side].items()) for side in SIDES),
        ]
        for name, sides in contract.signatures.items()
    ]
    bad_rows = (
        f"A row that cannot be read is answered by `valid` false and {about.invalid}, and costs its neighbours nothing."
    )
    unknown = [
        f"Licence: {_plain(facts.licence)}."
        if facts.licence
        else "The licence of the weights, and of the data behind them: ask whoever made this file.",
        f"Bias: it was not measured. What captions and images have of it, the {about.made} may have too.",
        "How it does on other data than that of its validation split.",
    ]
    parts = [
        f"# {_plain(contract.model)}, version {contract.model_version}",
        _plain(about.what),
        _pairs(made_with),
        "## What it was trained on",
        _pairs(trained_on),
        "## How its weights were chosen",
        selected,
        *([_table(["validation", "value"], values)] if values else []),
        "## What it takes and gives",
        _table(["signature", *SIDES], signatures),
        _plain(about.reading),
        "## Limits",
        _lines([*about.limits, bad_rows]),
        "## What it cannot do",
        _lines(about.cannot),
        "## What is not known",
        _lines(unknown),
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
