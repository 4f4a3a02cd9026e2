"""`vsemb recipes`."""

from __future__ import annotations

import argparse
import itertools
import textwrap
from typing import Any

from vsemb.console import accented
from vsemb.printing import save_json


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("name", nargs="?", metavar="RECIPE", help="recipe to explain, or a Python file with one")
    parser.add_argument("--variant", help="variant of the recipe (the first)")
    parser.add_argument("--json", metavar="FILE", help="also write the names or the recipe as JSON to FILE")


def run(arguments: argparse.Namespace) -> None:
    """List the recipes, or explain one: equations, deviations from the paper, and all fields with their ranges.

    Set a field in training: vsemb train RECIPE --set text.encoder.units=512

    Examples:
      vsemb recipes
      vsemb recipes kiros2014 --variant released --json recipe.json
      vsemb recipes my_recipe.py
    """
    from vsemb import recipes
    from vsemb.errors import invalid_argument
    from vsemb.recipes.describe import description, summary, tree

    shown: Any
    if arguments.name is None:
        if arguments.variant is not None:
            raise invalid_argument("variant", arguments.variant, "given after the name of a recipe")
        shown = [{"name": name, "summary": summary(name)} for name in recipes.names()]
        for about, rows in itertools.groupby(shown, lambda row: row["summary"]):
            print(accented(about))
            names = ", ".join(row["name"] for row in rows)
            print(textwrap.fill(names, 100, initial_indent="  ", subsequent_indent="  ", break_on_hyphens=False))
        print("\nvsemb recipes RECIPE shows the variants, equations, deviations and fields of a recipe.")
    else:
        recipe = recipes.get(arguments.name, arguments.variant)
        variants = recipes.variants(arguments.name)
        shown = recipe.to_json()
        print(f"{description(arguments.name)}\n\nvariants: {', '.join(variants)}\n\n{tree(recipe)}")
    save_json(arguments, shown)
