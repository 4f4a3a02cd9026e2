"""Explain a recipe: equations and deviations from its file, and every field with its allowed values."""

from __future__ import annotations

import ast
import importlib.util
import inspect
import itertools
import json
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from vsemb import registry
from vsemb.acts import Option, act
from vsemb.console import accented
from vsemb.errors import invalid_argument
from vsemb.parts import Part, explanations, fields_of, read_hint
from vsemb.recipes.catalogue import get, names, variants
from vsemb.results import Result


@dataclass(frozen=True, repr=False)
class Explanation(Result):
    """Result of `explain`.

    Attributes:
        text: the list of recipes, or the page of one.
        values: names and summaries, or the recipe, as JSON.
    """

    text: str
    values: Any

    def to_json(self) -> Any:
        return self.values

    def __str__(self) -> str:
        return self.text


@act
def explain(name: Annotated[str | None, Option(by_place=True)] = None, *, variant: str | None = None) -> Explanation:
    """List the recipes, or explain one: equations, deviations from the paper, and all fields with their ranges.

    Set a field in training: vsemb train RECIPE --set text.encoder.units=512

    Args:
        name: recipe to explain, or a Python file with one; default: list all recipes.
        variant: variant of the recipe; default: the first.

    Raises:
        InvalidArgumentError: for an unknown name or variant, with the closest name as a suggestion.

    Example:

        vsemb.recipes.explain("kiros2014", variant="released")
    """
    if name is not None:
        recipe = get(name, variant)
        page = f"{description(name)}\n\nvariants: {', '.join(variants(name))}\n\n{tree(recipe)}"
        return Explanation(page, recipe.to_json())
    if variant is not None:
        raise invalid_argument("variant", variant, "given with the name of a recipe")
    rows = [{"name": each, "summary": summary(each)} for each in names()]
    lines = []
    for about, group in itertools.groupby(rows, lambda row: row["summary"]):
        listed = ", ".join(row["name"] for row in group)
        lines.append(accented(about))
        lines.append(textwrap.fill(listed, 100, initial_indent="  ", subsequent_indent="  ", break_on_hyphens=False))
    lines += ["", "vsemb recipes RECIPE shows the variants, equations, deviations and fields of a recipe."]
    return Explanation("\n".join(lines), rows)


def description(name: str) -> str:
    """Return the docstring of a recipe's module: its equation table and every deviation.

    Args:
        name: a recipe, or the path of a Python file that defines one.

    Raises:
        InvalidArgumentError: for an unknown name.
    """
    variants(name)
    if name.endswith(".py"):
        module = registry.load_module(name)
    else:
        module = registry.load(registry.entries("recipes")[name].partition(":")[0])
    return inspect.getdoc(module) or ""


def summary(name: str) -> str:
    """Return the first line of the docstring of a recipe's module, without importing the module.

    Example:

    >>> summary("vsepp")
    'Faghri, Fleet, Kiros, Fidler 2018: VSE++, hardest negatives (arXiv:1707.05612).'
    """
    spec = importlib.util.find_spec(registry.entries("recipes")[name].partition(":")[0])
    assert spec is not None and spec.origin is not None
    doc = ast.get_docstring(ast.parse(Path(spec.origin).read_text(encoding="utf-8"))) or ""
    return doc.partition("\n")[0]


@dataclass(frozen=True)
class Field:
    """One field of a recipe.

    Attributes:
        path: dotted path, as in `vsemb train --set`.
        value: its value; the kind of the part for a field that holds a part.
        explanation: one or two sentences.
        allowed: the allowed values; the other kinds for a field that holds a part.
    """

    path: str
    value: str
    explanation: str
    allowed: str


def fields(part: Part, prefix: str = "") -> Iterator[Field]:
    """Yield the fields of a recipe; after a field that holds a part, the fields of the part follow.

    Example:

        [field.path for field in fields(get("kiros2014"))]
    """
    lines = explanations(type(part))
    for name, hint in fields_of(type(part)).items():
        read, value, path = read_hint(hint), getattr(part, name), f"{prefix}{name}"
        if read.part is None:
            allowed = f"takes {read.allowed}"
        else:
            kind = value.kind if isinstance(value, Part) else None
            others = [] if read.part.family is None else [k for k in _kinds(read.part, path) if k != kind]
            others += ["null"] if type(None) in read.accepted and value is not None else []
            allowed = f"or {', '.join(others)}" if others else ""
        shown = (value.kind or "") if isinstance(value, Part) else json.dumps(value, ensure_ascii=False)
        yield Field(path, shown, lines[name], allowed)
        if isinstance(value, Part):
            yield from fields(value, f"{path}.")


def _kinds(cls: type[Part], path: str) -> list[str]:
    """Return the kinds that a field of this type accepts; it may accept only a part of the family."""
    assert cls.family is not None
    return [k for k in registry.kinds(cls.family) if issubclass(registry.find_part(cls.family, k, path), cls)]


def tree(part: Part) -> str:
    """Return the fields of a recipe as text, each with its value, an explanation and its allowed values.

    Example:

        print(tree(get("vsepp")))
    """
    lines = []
    for field in fields(part):
        lines.append(f"{field.path} = {field.value}" if field.value else field.path)
        said = "; ".join(filter(None, [field.explanation.rstrip("."), field.allowed]))
        lines += textwrap.wrap(said, 116, initial_indent="    ", subsequent_indent="    ")
    return "\n".join(lines)
