"""Export of the towers of a run, for formats that run without TensorFlow, and of its weights."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import metadata
from pathlib import Path
from typing import Any

from vsemb.errors import invalid_argument
from vsemb.exporting.card import Figures, run_card
from vsemb.exporting.contract import written_shape
from vsemb.exporting.formats.writing import Conversion, export_towers
from vsemb.exporting.served_inputs import TOKENIZER
from vsemb.files import refuse_foreign
from vsemb.ops.tensorflow import tf
from vsemb.printing import table
from vsemb.results import Result, Table
from vsemb.runs.run import Run
from vsemb.runs.serve import model_facts
from vsemb.weights import named_weights, safetensors_metadata, save_safetensors

_USAGE = """from encode import Encoder  # the file encode.py beside this one

encoder = Encoder()
images = encoder.encode_images(["dog.jpg"])
texts = encoder.encode_texts(["a dog on a beach"])"""


@dataclass(frozen=True, repr=False)
class ExportedTowers(Result):
    """A directory of converted towers; where a path is expected, the directory.

    Attributes:
        path: the directory.
        facts: the content of its `model.json`.
    """

    path: Path
    facts: Mapping[str, Any]

    def __fspath__(self) -> str:
        return str(self.path)

    def to_json(self) -> dict[str, Any]:
        """Return the path, and the facts without tables of the tokenizer."""
        text = {name: value for name, value in self.facts.get("text", {}).items() if name != "ngrams"}
        return {"path": str(self.path), **self.facts, **({"text": text} if text else {})}

    def __str__(self) -> str:
        rows = []
        for tower in self.facts["towers"].values():
            given, embedding = tower["input"], tower["outputs"]["embedding"]
            rows.append(
                [
                    tower["file"],
                    f"{tower['bytes'] / 1e6:,.1f} MB",
                    f"{given['name']} {given['dtype']} {written_shape(given['shape'])}",
                    f"embedding {embedding['dtype']} {written_shape(embedding['shape'])}",
                    f"{tower['difference']:.1e}",
                ]
            )
        header = ["file", "size", "input", "output", "difference"]
        parts = [str(self.path), table(header, rows, text=(0, 2, 3))]
        parts += [f"no tower for {name}: {reason}" for name, reason in self.facts["absent"].items()]
        if (self.path / TOKENIZER).exists():
            parts.append(f'next  python {self.path / "encode.py"} "a dog on a beach"')
        return "\n\n".join(parts)

    def __repr__(self) -> str:
        return f"ExportedTowers({str(self.path)!r})"


def write_towers(
    run: Run,
    out: str | os.PathLike[str],
    name: str,
    conversion: Conversion,
    only: str | None = None,
    measured: Sequence[Figures] = (),
) -> ExportedTowers:
    """Write the towers of a run; see `vsemb.exporting.formats.writing.export_towers`.

    Args:
        run: a run that embeds texts and images.
        out: the directory, which must not exist.
        name: name of the format, for `model.json`.
        conversion: the conversion.
        only: name of the only tower to write; None for all.
        measured: figures for the model card, see `vsemb.runs.measure.figures`.

    Example:

        write_towers(Run.open("runs/vsepp"), "exports/vsepp", "onnx", Onnx().conversion)
    """
    if run.recipe.rounds:
        run = run.computed_in("float32")
    served = run.recipe.served(run)
    versions = {"vsemb": metadata.version("vsemb"), "tensorflow": tf.__version__}
    facts = {"runtime": name, "run": run.fingerprint, "versions": versions}

    def card(written: Mapping[str, Any]) -> str:
        towers = [served.towers[each] for each in written["towers"]]
        size = sum(each["bytes"] for each in written["towers"].values())
        differences = (f"{each} {tower['difference']:.1e}" for each, tower in written["towers"].items())
        limits = [*served.about.limits, *(limit for tower in towers for limit in tower.limits), *conversion.limits]
        limits += [f"No tower for {each}: {reason}." for each, reason in written["absent"].items()]
        limits.append(
            f"The outputs of the files were compared with those of the model. Largest differences, relative to the "
            f"largest entry: {', '.join(differences)}."
        )
        about = replace(served.about, limits=limits)
        spent = [f"The towers have {size / 1e6:,.1f} MB."]
        facts = replace(model_facts(run, measured), costs=spent)
        return run_card(Path(out).name, _USAGE, about, facts, run.fingerprint, versions)

    return ExportedTowers(Path(out), export_towers(served, out, conversion, only=only, facts=facts, card=card))


def write_weights(run: Run, out: str | os.PathLike[str]) -> Table:
    """Write the weights of a run as a file of safetensors; its head holds the recipe and the fingerprint of the run.

    Args:
        run: a run of any task.
        out: the file, ending in `.safetensors`; weights of a run are replaced.

    Raises:
        InvalidArgumentError: for another ending, or an existing file that has no weights of a run.

    Example:

        write_weights(Run.open("runs/vsepp"), "vsepp.safetensors")
    """
    path = Path(out)
    if path.suffix != ".safetensors":
        raise invalid_argument("out", os.fspath(out), "a file ending in .safetensors")
    refuse_foreign(path, lambda file: set(safetensors_metadata(file)) >= {"run", "recipe"})
    weights = {name: tuple(weight.shape) for name, weight in named_weights(run.model).items()}
    save_safetensors(run.model, path, {"run": run.fingerprint, "recipe": json.dumps(run.recipe.to_json())})
    rows = [[name, str(list(shape))] for name, shape in weights.items()]
    lines = table(["weights", "shape"], rows, text=(0, 1))
    size = path.stat().st_size
    values = {"path": str(path), "bytes": size, "weights": {name: list(shape) for name, shape in weights.items()}}
    return Table(f"{path}, {size / 1e6:,.1f} MB\n\n{lines}", values)
