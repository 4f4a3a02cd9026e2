"""The model card of an exported model: purpose, training data, limits.

Each version holds a copy, `NAME/N/assets.extra/MODEL_CARD.md`, which servers ignore. The newest export's card is also
written beside the contract, `contracts/NAME.md`. Its facts come from the contract and from the run; missing facts are
listed as unknown.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from vsemb.errors import one_line
from vsemb.exporting.contract import Contract, contract_path, written_spec
from vsemb.exporting.reference_outputs import SIDES

CARD = "MODEL_CARD.md"


@dataclass(frozen=True, kw_only=True)
class ModelFacts:
    """Facts about a model's training for its card; empty if unknown.

    Attributes:
        recipe: name of the recipe, e.g. `"tree-twin"`.
        variant: variant of the recipe.
        paper: paper that the recipe follows.
        dataset: name of the training dataset.
        dataset_fingerprint: hex fingerprint of the dataset.
        images: image inputs in training, e.g. `"features of MobileNetV2 at 224 pixels"`.
        features_fingerprint: hex fingerprint of the features.
        selection: selection of the weights, e.g. `"the best recall_sum on the split val, epoch 7"`.
        metrics: metric -> value on the validation split.
        licence: licence of the weights or of the training data.
        notes: further sentences, one line each.

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
    """Write a model card.

    Args:
        contract: contract of the version.
        facts: facts about the training.

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
    # Images other than features have no fingerprint.
    if facts.features_fingerprint or not facts.images:
        trained_on["features fingerprint"] = _code(facts.features_fingerprint)
    made_with = {
        "recipe": ", ".join(filter(None, [facts.recipe, facts.variant and f"variant {facts.variant}"])),
        "paper": facts.paper,
        "run": _code(contract.fingerprint or ""),
        "made with": ", ".join(f"{name} {version}" for name, version in contract.versions.items()),
    }
    selected = f"Selected: {_plain(facts.selection)}." if facts.selection else "Unknown."
    values = [[name, f"{value:.4g}"] for name, value in facts.metrics.items()]
    signatures = [
        [
            _code(name),
            *("; ".join(f"{_code(key)} {written_spec(spec)}" for key, spec in sides[side].items()) for side in SIDES),
        ]
        for name, sides in contract.signatures.items()
    ]
    bad_rows = f"An unreadable row is answered by `valid` false and {about.invalid}; other rows are unaffected."
    unknown = [
        f"Licence: {_plain(facts.licence)}."
        if facts.licence
        else "Licence of the weights and the training data: ask the author of this file.",
        f"Bias: not measured. The {about.made} may reproduce bias of the captions and images.",
        "Accuracy on other data than the validation split.",
    ]
    parts = [
        f"# {_plain(contract.model)}, version {contract.model_version}",
        _plain(about.what),
        _pairs(made_with),
        "## Training data",
        _pairs(trained_on),
        "## Selection of the weights",
        selected,
        *([_table(["validation", "value"], values)] if values else []),
        "## Inputs and outputs",
        _table(["signature", *SIDES], signatures),
        _plain(about.reading),
        "## Limits",
        _lines([*about.limits, bad_rows]),
        "## Not supported",
        _lines(about.cannot),
        "## Unknown",
        _lines(unknown),
        *(["## Notes", _lines(facts.notes)] if facts.notes else []),
        f"The contract, `contracts/{_plain(contract.model)}.json`, holds examples of inputs and outputs; "
        "`vsemb verify` checks the model against them.",
    ]
    return "\n\n".join(parts) + "\n"


def version_card_path(version: Path) -> Path:
    """Return the path of a version's card."""
    return version / "assets.extra" / CARD


def card_path(base: str | os.PathLike[str]) -> Path:
    """Return the path of the card of a model's newest export.

    Example:

    >>> card_path("/models/flickr8k").as_posix()
    '/models/contracts/flickr8k.md'
    """
    contract = contract_path(base)
    # A model's name may contain a dot.
    return contract.with_name(f"{contract.name.removesuffix('.json')}.md")


def _pairs(rows: Mapping[str, str]) -> str:
    return _table(["", ""], [[name, value or "unknown"] for name, value in rows.items()])


def _table(header: list[str], rows: list[list[str]]) -> str:
    written = [[_plain(cell).replace("|", "\\|") for cell in row] for row in [header, *rows]]
    lines = [f"| {' | '.join(row)} |" for row in written]
    return "\n".join([lines[0], f"|{' --- |' * len(header)}", *lines[1:]])


def _lines(sentences: Sequence[str]) -> str:
    return "\n".join(f"- {_plain(sentence)}" for sentence in sentences)


def _code(text: str) -> str:
    return f"`{text}`" if text else ""


def _plain(text: str) -> str:
    """Escape foreign names, such as those of datasets, for lines, tables and HTML."""
    return one_line(text, 2_000).replace("<", "&lt;")
