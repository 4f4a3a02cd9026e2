"""Draws docs/design/architecture.svg from the import order of tests/test_layering.py.

python -m tests.architecture_picture
"""

from __future__ import annotations

from pathlib import Path

from tests.test_layering import BESIDE, ORDER, ROOT, SYSTEMS

FILE = ROOT / "docs" / "design" / "architecture.svg"

#: First subpackage of a row by name -> what the row holds.
CONTENTS = {
    "allocation": "memory; exceptions",
    "console": "notices and progress bars; reading, atomic writing; Unicode",
    "drawing": "pictures, tables, results; systems, found by name; weights files",
    "parts": "typed parts of a recipe, read from JSON and --set",
    "acts": "checked arguments of public functions",
    "configured": "Keras objects that keep their arguments",
    "ops": "pure functions over tensors",
    "image": "strings and bytes to tensors, in the graph",
    "encoders": "Keras layers, similarities and losses",
    "models": "dual encoder, replicas, losses per batch",
    "data": "readers, shards, features, batches",
    "evaluation": "retrieval metrics, batched embedding",
    "searching": "fit, resume, devices; exact and approximate search",
    "exporting": "signatures, SavedModel, contract, verification",
    "recipes": "schema and recipes of the base; server and client",
    "runs": "run directories: train, open, search, export",
    "api": "public functions, which are also commands",
    "demo": "HTML report, demo page",
    "systems": "one folder per system",
    "cli": "the vsemb command: parsers of the public functions",
}
_ROW, _BOX, _LEFT, _WIDTH = 42, 30, 20, 860
_LABELS = 440  # where the right column begins


def _box(x: float, y: float, width: float, name: str, style: str) -> str:
    return (
        f'<rect class="{style}" x="{x:g}" y="{y:g}" width="{width:g}" height="{_BOX}" rx="6"/>'
        f'<text class="name" x="{x + width / 2:g}" y="{y + 20:g}">{name}</text>'
    )


def _row(names: list[str], x: float, y: float, space: float, style: str) -> list[str]:
    width = (space - 8 * (len(names) - 1)) / len(names)
    return [_box(x + each * (width + 8), y, width, name, style) for each, name in enumerate(names)]


def svg() -> str:
    """Returns the picture: highest row first; imports point down."""
    shapes: list[str] = []
    y = 56
    for names in map(sorted, reversed(ORDER)):
        style = "system" if "systems" in names else "base"
        shapes += _row(names, _LEFT, y, 400, style)
        shapes.append(f'<text class="about" x="{_LABELS}" y="{y + 20}">{CONTENTS[names[0]]}</text>')
        if "systems" in names:
            y += _ROW
            shapes += _row(SYSTEMS, _LEFT + 24, y, _WIDTH - 64, "system")
            y += _ROW
            beside = "; ".join(f"{name} imports {', '.join(sorted(others))}" for name, others in BESIDE.items())
            shapes.append(f'<text class="about" x="{_LEFT + 24}" y="{y + 8}">Between systems: {beside}.</text>')
            y -= 16
        y += _ROW
    style = (
        "text{font:13px sans-serif;fill:#1c2b2d}.name{text-anchor:middle;font-weight:600}.about{fill:#41575a}"
        ".title{font-size:15px;font-weight:600}.base{fill:#cfe8e5;stroke:#1f7a72}.system{fill:#fbe3c4;stroke:#a0640f}"
    )
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {y + 10}" role="img">',
            "<title>Subpackages of vsemb in import order</title>",
            f"<style>{style}</style>",
            f'<rect x="0" y="0" width="{_WIDTH}" height="{y + 10}" rx="10" fill="#ffffff"/>',
            f'<text class="title" x="{_LEFT}" y="32">Each subpackage imports only from the rows below it</text>',
            *shapes,
            "</svg>\n",
        ]
    )


if __name__ == "__main__":
    Path(FILE).write_text(svg(), encoding="utf-8")
