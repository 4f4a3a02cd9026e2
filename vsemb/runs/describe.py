"""Describe a run, dataset, index or exported model from its JSON files alone."""

from __future__ import annotations

import os
import shlex
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from vsemb import registry
from vsemb.acts import act
from vsemb.data import scenes
from vsemb.data.manifest import ordered_splits, read_manifest
from vsemb.data.readers import Reader
from vsemb.errors import DataError, counted
from vsemb.files import read_json, read_json_lines, reading
from vsemb.results import Result
from vsemb.runs.inputs import kind_of, model_version, named_run

#: Below this number of images with captions, a pretrained model usually finds more than a trained one.
FEW_IMAGES = 3_000
_PRETRAINED = "hub:clip_vit_base_patch32"


@dataclass(frozen=True, repr=False)
class Description(Result):
    """A description of a directory.

    Attributes:
        path: the directory.
        kind: `run`, `dataset`, `index` or `model`.
        facts: name -> text.
        next: suggested next commands.
    """

    path: str
    kind: str
    facts: dict[str, str]
    next: list[str]

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    def __str__(self) -> str:
        rows = {self.kind: self.path, **self.facts}
        width = max(map(len, rows)) + 2
        lines = [f"{name:<{width}}{value}" for name, value in rows.items()]
        return "\n".join([*lines, "", "next", *(f"  {command}" for command in self.next)])


@act
def info(path: str | os.PathLike[str]) -> Description:
    """Describe a run, dataset, index or exported model on one short page.

    The page shows recipe, dataset, sizes, metrics, dates and suggested next commands. Nothing is loaded or verified.

    Args:
        path: directory of a run, dataset, index or exported model, or a name of a run.

    Raises:
        DataError: if it is another directory, or is damaged.

    Example:

        vsemb.info("runs/vsepp").facts["recipe"]
    """
    path = named_run(path) or Path(path)
    kind = kind_of(path)
    if kind is None:
        state = "it has no recipe.json, manifest.json or saved_model.pb" if path.is_dir() else "no such directory"
        raise DataError(f"{path} must be the directory of a run, dataset, index or exported model; {state}.")
    try:
        marker, facts, following = _READERS[kind](path)
    except (KeyError, TypeError, AttributeError, ValueError, IndexError) as error:
        raise DataError(f"The JSON files of the {kind} {path} are damaged ({error!r}). Make it again.") from error
    modified = time.strftime("%Y-%m-%d %H:%M", time.localtime((path / marker).stat().st_mtime))
    facts = {name: value for name, value in facts.items() if value}
    size = megabytes(size_of(path))
    return Description(str(path), kind, facts | {"modified": modified, "size": size}, following)


def size_of(path: Path) -> int:
    """Return the size of all files below a directory, in bytes."""
    return sum(file.lstat().st_size for file in path.rglob("*") if file.is_file())


def megabytes(size: int) -> str:
    """Return a number of bytes as text in megabytes, or in kilobytes below 0.1 MB.

    Example:

    >>> megabytes(123_456_789), megabytes(5_000)
    ('123.5 MB', '5.0 kB')
    """
    return f"{size / 1e6:,.1f} MB" if size >= 1e5 else f"{size / 1e3:,.1f} kB"


#: File that gives the modification time, facts, and suggested next commands.
_Read = tuple[str, dict[str, str], list[str]]


def _run(path: Path) -> _Read:
    recipe, info = read_json(path / "recipe.json", "recipe"), read_json(path / "run.json", "run status")
    rows = []
    if (path / "metrics.jsonl").exists():
        with reading(path / "metrics.jsonl"):
            rows = read_json_lines(path / "metrics.jsonl")
    best = info.get("best_epoch")
    epochs = recipe.get("training", {}).get("epochs")
    selected: dict[str, Any] = next((row for row in rows if row["epoch"] == best), {})
    facts = {
        "recipe": f"{recipe['name']}, variant {recipe['variant']} ({recipe['kind']})",
        "paper": recipe.get("paper") or "",
        "parts": ", ".join(_parts(recipe)),
        "dataset": f"{info.get('dataset_name') or ''}  {info.get('data') or ''}".strip(),
        "status": f"{info['status']}, {len(rows)}{f' of {epochs}' if epochs else ''} epochs",
        "selected": "" if best is None else f"epoch {best + 1}",
        "validation": _metrics(selected),
        "vocabulary": f"{info['vocabulary_size']:,} entries" if info.get("vocabulary_size") else "",
        "time": f"{info['seconds'] / 60:.1f} min" if info.get("seconds") else "",
        "indexes": ", ".join(sorted(each.name for each in (path / "index").glob("*") if kind_of(each) == "index")),
        "versions": ", ".join(f"{name} {version}" for name, version in info.get("versions", {}).items()),
    }
    name = shlex.quote(str(path))
    if info["status"] != "finished":
        data = shlex.quote(str(info.get("data")))
        return (
            "run.json",
            facts,
            [
                f"vsemb train {recipe['name']} --variant {recipe['variant']} --data {data} --out {name}"
                "   # and its other options; continues the training"
            ],
        )
    following = [f"vsemb evaluate {name}"]
    if recipe["kind"] == "retrieval":
        following += [f'vsemb search {name} "a dog on a beach"', f"vsemb index {name} --images DIR --out INDEX"]
    return "run.json", facts, [*following, f"vsemb report {name}", f"vsemb export {name} savedmodels/NAME"]


def _parts(recipe: Mapping[str, Any]) -> Iterator[str]:
    """Yield the kinds of the parts that distinguish recipes."""
    for name, of in (("tokenizer", recipe.get("text")), ("encoder", recipe.get("text")), ("similarity", recipe)):
        if of and isinstance(of.get(name), dict):
            yield of[name]["kind"]
    if isinstance(image := recipe.get("image"), dict):
        yield f"{image['kind']}{' ' + image['backbone'] if image.get('backbone') else ''}"
    for name in ("loss", "optimizer"):
        if isinstance(recipe.get(name), dict):
            yield recipe[name]["kind"]


def _metrics(row: Mapping[str, Any]) -> str:
    metrics = [(name.removeprefix("val_"), value) for name, value in row.items() if name.startswith("val_")]
    shown = [pair for pair in metrics if "rank" not in pair[0]]
    return ", ".join(f"{name.replace('_', ' ')} {value:.4g}" for name, value in shown[:8])


def _dataset(path: Path) -> _Read:
    manifest = read_manifest(path)
    splits = {name: manifest["splits"][name] for name in ordered_splits(manifest["splits"])}
    counts = [f"{name} {split['images']:,} images, {split['captions']:,} captions" for name, split in splits.items()]
    caches = {
        folder: [_cache(each) for each in sorted((path / folder).glob("*/manifest.json"))]
        for folder in registry.entries("caches")
    }
    left_out = len(manifest.get("skipped", ()))
    facts = {
        "name": manifest["name"],
        "source": f"{manifest.get('source', {}).get('format', '')}  {manifest.get('source', {}).get('path_name', '')}",
        "splits": "; ".join(counts),
        "left out": counted(left_out, "image") if left_out else "",
        **{folder: "; ".join(keys) for folder, keys in caches.items()},
        "fingerprint": manifest["fingerprint"][:12],
    }
    format = manifest.get("source", {}).get("format")
    following = _of_reader(format)
    trained_here = following is None and format != scenes.FORMAT
    if following is None:
        following = "vsemb train vsepp --data {data} --out {out}"
        if not caches["features"]:
            pretrained = "vsemb train best --data {data} --out {out} --backbone MobileNetV2"
            following = {scenes.FORMAT: scenes.NEXT}.get(format, pretrained)
    name, out = shlex.quote(str(path)), shlex.quote(f"runs/{manifest['name']}")
    if trained_here and sum(split["images"] for split in splits.values()) < FEW_IMAGES:
        few = f"fits fewer than {FEW_IMAGES:,} images better than training"
        facts["pretrained"] = f"{few}: vsemb evaluate {_PRETRAINED} --data {name}"
    return "manifest.json", facts, [following.format(data=name, out=out)]


def _of_reader(format: str | None) -> str | None:
    """Return the command that usually follows the preparation of a dataset from a format, see `Reader`."""
    if format not in registry.kinds("reader"):
        return None
    reader: type[Reader] = registry.find_part("reader", format, "format")
    return reader.next_command


def _cache(manifest: Path) -> str:
    content = read_json(manifest)
    network = (content.get("backbone") or {}).get("name", "precomputed")
    return f"{network}, {content['dim']} numbers ({manifest.parent.name})"


def _index(path: Path) -> _Read:
    manifest = read_json(path / "manifest.json", "index manifest")
    source, settings, recorded = manifest["source"], manifest["settings"], manifest["recorded"]
    of = recorded.get("data") or f"files below {recorded.get('folder')}"
    facts = {
        "items": f"{manifest['items']:,} {source['kind']}s of {', '.join(source['splits'])}",
        "from": of,
        "run": recorded.get("run", ""),
        "dim": str(manifest["dim"]),
        "similarity": source["similarity"]["kind"],
        "stored": f"{settings['backend']} {settings['dtype']}",
    }
    name = shlex.quote(str(path))
    following = [f'vsemb search {name} "a dog on a beach"']
    return "manifest.json", facts, [*following, *[f"vsemb compare-backends {name}"] * ("data" in recorded)]


def _model(path: Path) -> _Read:
    version = model_version(path)
    assert version is not None
    relative = version.relative_to(path)
    contract = version / "assets.extra" / "contract.json"
    content = read_json(contract) if contract.exists() else {}
    facts = {
        "version": version.name,
        "about": content.get("about", {}).get("what", "" if content else "a SavedModel without a contract of vsemb"),
        "signatures": ", ".join(content.get("signatures", {})),
        "dim": str(content.get("dim") or ""),
        "similarity": (content.get("similarity") or {}).get("kind", ""),
        "needs": ", ".join(content.get("libraries", ())),
        "versions": ", ".join(f"{name} {number}" for name, number in content.get("versions", {}).items()),
    }
    base = shlex.quote(str(path if version != path else path.parent))
    return str(relative / "saved_model.pb"), facts, [f"vsemb verify {base}", f"vsemb serve {base}"]


_READERS: dict[str, Callable[[Path], _Read]] = {"run": _run, "dataset": _dataset, "index": _index, "model": _model}
