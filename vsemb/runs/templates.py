"""The templates of pages about runs, which lie beside the modules that fill them in."""

from __future__ import annotations

from importlib.resources import files
from typing import Any

from vsemb.errors import needs_extra


def page_template(package: str, name: str) -> Any:
    """Return a template; whatever is filled in is escaped.

    Args:
        package: where the file lies. Templates import others as `package:name`.
        name: its file.

    Raises:
        MissingExtraError: without jinja2.

    Example:

        page_template("vsemb.systems.regions", "report.html.jinja").render(alignments=[])
    """
    with needs_extra("jinja2", "report"):
        import jinja2

    def load(template: str) -> str:
        package, _, file = template.partition(":")
        return (files(package) / file).read_text(encoding="utf-8")

    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(load),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template(f"{package}:{name}")
