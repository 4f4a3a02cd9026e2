"""The templates of the pages, which lie beside the modules that fill them in."""

from __future__ import annotations

from importlib.resources import files
from typing import Any

from vsemb.errors import missing_extra


def page_template(name: str, package: str | None = None) -> Any:
    """Returns a template; whatever is filled in is escaped.

    Args:
        name: its file.
        package: where the file lies; None for this one. Templates elsewhere import those here by their names.

    Raises:
        MissingExtraError: without jinja2.

    Example:

        page_template("report.html.jinja", "vsemb.systems.regions").render(alignments=[])
    """
    try:
        import jinja2
    except ImportError as error:
        raise missing_extra("jinja2", "report") from error

    def load(template: str) -> str:
        package, _, file = template.rpartition(":")
        return (files(package or __package__) / file).read_text(encoding="utf-8")

    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(load),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template(name if package is None else f"{package}:{name}")
