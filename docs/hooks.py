"""What `mkdocs build` does beyond Markdown: equations, notebooks and help texts to pages; no outside request."""

from __future__ import annotations

import re
from html import unescape
from pathlib import Path
from typing import Any

import griffe
import nbformat
from latex2mathml.converter import convert
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File

from vsemb.cli import __main__ as cli

#: What a browser fetches by itself; a link that a reader follows is none of it.
_FETCHED = re.compile(
    r"<(?:script|img|iframe|source|video|audio)\b[^>]*\bsrc=[\"']?(?:https?:)?//[^\"' >]+"
    r"|<link\b(?![^>]*canonical)[^>]*\bhref=[\"']?(?:https?:)?//[^\"' >]+"
    r"|@import\s+[\"']https?://[^\"']+|url\([\"']?https?://[^)]+"
)
_EQUATION = re.compile(r'<(span|div) class="arithmatex">\\[(\[](.*?)\\[)\]]</\1>', re.DOTALL)


class Doctests(griffe.Extension):
    """Shows the doctests of docstrings as code; Markdown takes `>>>` for a quotation."""

    def on_object(self, *, obj: Any, **_: Any) -> None:
        if obj.docstring:
            value = obj.docstring.value
            obj.docstring.value = re.sub(r"^>>> .*\n?(?:.+\n?)*", r"```pycon\n\g<0>\n```\n", value, flags=re.MULTILINE)


def on_files(files: Any, config: Any) -> Any:
    """Adds the pages that are generated: help of commands, notebooks."""
    pages = {"reference/commands.md": _commands()}
    for path in sorted(Path(config.docs_dir).glob("notebooks/*.ipynb")):
        pages[f"notebooks/{path.stem}.md"] = _notebook(path)
    for name, text in pages.items():
        files.append(File.generated(config, name, content=text))
    return files


def on_page_content(html: str, **_: Any) -> str:
    """Turns equations to MathML, which browsers draw without a script."""
    return _EQUATION.sub(
        lambda found: convert(unescape(found[2]), display="block" if found[1] == "div" else "inline"), html
    )


def on_post_build(config: Any) -> None:
    """Refuses a site whose pages would ask another machine for anything."""
    for path in sorted(Path(config.site_dir).rglob("*")):
        if path.suffix in {".html", ".css"} and (found := _FETCHED.search(path.read_text(encoding="utf-8"))):
            raise PluginError(f"{path} must load nothing from other machines; got {found[0]}")


def _commands() -> str:
    parts = [
        "# Commands\n\nThe help of each command, as `vsemb COMMAND --help` prints it. The exit status is 0, 1 (failure "
        "with one line on stderr) or 2 (usage). In scripts, `--quiet` leaves out progress and hints, and `--json -` "
        "writes the results to stdout.\n"
    ]
    for name in cli.commands():
        parts.append(f"## vsemb {name}\n\n```text\n{cli.command_parser(name).format_help().strip()}\n```\n")
    return "\n".join(parts)


def _notebook(path: Path) -> str:
    """Returns a notebook as Markdown: text, code, and what the code printed or drew."""
    title, *cells = nbformat.read(path, as_version=4).cells
    parts = [title.source, f"[Download the notebook]({path.name}){{ download }}"]
    for cell in cells:
        if cell.cell_type == "markdown":
            parts.append(cell.source)
            continue
        parts.append(f"```python\n{cell.source}\n```")
        for output in cell.outputs:
            data = output.get("data", {})
            if output.get("name") == "stderr":
                continue
            if "text/html" in data:
                parts.append(f'<div class="output">{data["text/html"]}</div>')
            elif picture := next((kind for kind in ("image/png", "image/jpeg") if kind in data), None):
                encoded = data[picture].replace("\n", "")
                parts.append(f'<img alt="output of the cell above" src="data:{picture};base64,{encoded}">')
            else:
                parts.append(f"```text\n{(output.get('text') or data.get('text/plain', '')).rstrip()}\n```")
    return "\n\n".join(parts)
