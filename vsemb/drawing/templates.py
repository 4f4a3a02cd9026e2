"""Load templates of pages about runs. A template lies beside the module that renders it."""

from __future__ import annotations

from importlib.resources import files
from typing import Any

from vsemb.errors import needs_extra


def page_file(package: str, name: str) -> str:
    """Return the text of a file of a package, such as the script of a page."""
    return (files(package) / name).read_text(encoding="utf-8")


def page_template(package: str, name: str) -> Any:
    """Return a template that escapes the values filled in.

    Args:
        package: package that contains the file. Templates import other templates as `package:name`.
        name: name of the file.

    Raises:
        MissingExtraError: if jinja2 is not installed.

    Example:

        page_template("vsemb.systems.regions", "report.html.jinja").render(alignments=[])
    """
    with needs_extra("jinja2", "report"):
        import jinja2

    def load(template: str) -> str:
        package, _, file = template.partition(":")
        return page_file(package, file)

    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(load),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template(f"{package}:{name}")
