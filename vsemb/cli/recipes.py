"""List the recipes, or print one: its paper, equations and deviations, and every field's value.

Each field can be replaced when training: vsemb train RECIPE --set text.units=512
"""

from __future__ import annotations

import argparse

EXAMPLE = """  vsemb recipes
  vsemb recipes kiros2014 --variant released --json recipe.json"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the command's arguments."""
    parser.add_argument("name", nargs="?", help="the recipe to print")
    parser.add_argument("--variant", help="variant of the recipe (its first)")
    parser.add_argument("--json", metavar="FILE", help="also write the listing, or the recipe, to FILE as JSON")


def run(arguments: argparse.Namespace) -> int:
    """Runs the command."""
    import json
    from typing import Any

    from vsemb import recipes
    from vsemb.cli.tables import table
    from vsemb.errors import invalid_argument
    from vsemb.files import write_json
    from vsemb.recipes.describe import description

    shown: Any
    if arguments.name is None:
        if arguments.variant is not None:
            raise invalid_argument("variant", arguments.variant, "the name of a recipe before it")
        every = [recipe for variants in recipes.RECIPES.values() for recipe in variants.values()]
        shown = [{"name": r.name, "variant": r.variant, "paper": r.paper} for r in every]
        rows = [
            [name, ", ".join(variants), next(iter(variants.values())).paper]
            for name, variants in recipes.RECIPES.items()
        ]
        print(table(["recipe", "variants", "paper"], rows, text=range(3)))
    else:
        shown = recipes.get(arguments.name, arguments.variant).to_json()
        print(f"{description(arguments.name)}\n")
        print(json.dumps(shown, indent=2, ensure_ascii=False))
    if arguments.json:
        write_json(arguments.json, shown)
    return 0
