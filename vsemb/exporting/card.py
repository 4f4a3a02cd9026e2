"""The model card of an exported model or of a run: purpose, training data, figures, costs, limits.

Each version of a model holds a copy, `NAME/N/assets.extra/MODEL_CARD.md`, which servers ignore. The newest export's
card is also written beside the contract, `contracts/NAME.md`. Its facts come from the contract and from the run;
missing facts are listed as unknown. `vsemb push` writes a card as README.md of the repository.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from vsemb.errors import one_line
from vsemb.exporting.contract import About, Contract, contract_path, written_spec
from vsemb.exporting.reference_outputs import SIDES

CARD = "MODEL_CARD.md"


@dataclass(frozen=True)
class Figures:
    """Measured values of a model.

    Attributes:
        of: what they are of, such as `"the split val, epoch 7"`.
        values: metric -> value.
        intervals: metric -> bounds of its 95 % interval; empty if they were not measured.

    Example:

    >>> Figures("the split val", {"recall_sum": 311.2}).intervals
    {}
    """

    of: str
    values: Mapping[str, float]
    intervals: Mapping[str, Sequence[float]] = field(default_factory=dict)

    def rows(self) -> list[list[str]]:
        """Return the rows of a table: metric, value and interval."""
        bounds = {name: f"{low:.4g} to {high:.4g}" for name, (low, high) in self.intervals.items()}
        return [[name, f"{value:.4g}", bounds.get(name, "")] for name, value in self.values.items()]


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
        figures: what was measured.
        costs: sentences about size, memory and time.
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
    figures: Sequence[Figures] = ()
    costs: Sequence[str] = ()
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
    signatures = [
        [
            _code(name),
            *("; ".join(f"{_code(key)} {written_spec(spec)}" for key, spec in sides[side].items()) for side in SIDES),
        ]
        for name, sides in contract.signatures.items()
    ]
    bad_rows = f"An unreadable row is answered by `valid` false and {about.invalid}; other rows are unaffected."
    parts = [
        f"# {_plain(contract.model)}, version {contract.model_version}",
        _plain(about.what),
        *training_sections(facts, contract.fingerprint or "", contract.versions),
        "## Inputs and outputs",
        _table(["signature", *SIDES], signatures),
        _plain(about.reading),
        "## Limits",
        _lines([*about.limits, bad_rows]),
        "## Not supported",
        _lines(about.cannot),
        *closing_sections(facts, about.made),
        f"The contract, `contracts/{_plain(contract.model)}.json`, holds examples of inputs and outputs; "
        "`vsemb verify` checks the model against them.",
    ]
    return "\n\n".join(parts) + "\n"


def run_card(name: str, usage: str, about: About, facts: ModelFacts, run: str, versions: Mapping[str, str]) -> str:
    """Write the card of a run, which is not exported.

    Args:
        name: title.
        usage: Python that uses it.
        about: sentences of its kind of model.
        facts: facts about the training.
        run: fingerprint of the run.
        versions: package -> version.

    Returns:
        Markdown.
    """
    parts = [
        f"# {_plain(name)}",
        _plain(about.what),
        f"```python\n{usage}\n```",
        *training_sections(facts, run, versions),
        "## Limits",
        _lines(about.limits),
        *closing_sections(facts, about.made),
    ]
    return "\n\n".join(parts) + "\n"


def training_sections(facts: ModelFacts, run: str, versions: Mapping[str, str]) -> list[str]:
    """Return the sections of a card about how the weights were made, what was measured, and what they cost.

    Args:
        facts: the facts.
        run: fingerprint of the run.
        versions: package -> version.
    """
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
        "run": _code(run),
        "made with": ", ".join(f"{name} {version}" for name, version in versions.items()),
    }
    selected = f"Selected: {_plain(facts.selection)}." if facts.selection else "Unknown."
    measured = [part for each in facts.figures for part in (f"Measured on {_plain(each.of)}:", _figures(each))]
    return [
        _pairs(made_with),
        "## Training data",
        _pairs(trained_on),
        "## Selection of the weights",
        selected,
        *(["## Figures", *measured] if measured else []),
        *(["## Costs", _lines(facts.costs)] if facts.costs else []),
    ]


def closing_sections(facts: ModelFacts, made: str) -> list[str]:
    """Return the last sections of a card: what is unknown, and notes.

    Args:
        facts: the facts.
        made: what the model makes, a plural noun.
    """
    licence = "Licence of the weights and the training data: ask the author of this file."
    unknown = [
        f"Licence: {_plain(facts.licence)}." if facts.licence else licence,
        f"Bias: not measured. The {made} may reproduce bias of the captions and images.",
        "Accuracy on other data than the figures are of.",
    ]
    return ["## Unknown", _lines(unknown), *(["## Notes", _lines(facts.notes)] if facts.notes else [])]


def _figures(figures: Figures) -> str:
    header = ["metric", "value", "95 % interval"]
    columns = len(header) if figures.intervals else len(header) - 1
    return _table(header[:columns], [row[:columns] for row in figures.rows()])


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
