"""Run the notebooks of the documentation and store the outputs of their cells.

    python -m pipelines.notebooks [docs/notebooks/quickstart.ipynb ...]

Requires the extra `docs`. Outputs are committed, so that the site shows them without training. A test runs the
notebooks again.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

import nbformat
from nbclient import NotebookClient

from pipelines.running import parser_of

FOLDER = Path("docs/notebooks")


def execute(path: Path, folder: Path, timeout: int = 3600) -> nbformat.NotebookNode:
    """Run a notebook in another folder and return it with the outputs of its cells.

    Args:
        path: the notebook.
        folder: working directory, also for its data.
        timeout: seconds per cell.

    Raises:
        nbclient.exceptions.CellExecutionError: if a cell fails.
    """
    # Cells must find the `vsemb` command of this Python.
    os.environ["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
    notebook = nbformat.read(path, as_version=4)
    options = {"record_timing": False, "coalesce_streams": True, "resources": {"metadata": {"path": str(folder)}}}
    NotebookClient(notebook, timeout=timeout, kernel_name="python3", **options).execute()
    return notebook


def main() -> None:
    """Run notebooks in temporary folders and write their outputs back."""
    parser = parser_of("notebooks", __doc__)
    parser.add_argument("notebooks", nargs="*", type=Path, help=f"all of {FOLDER}")
    for path in parser.parse_args().notebooks or sorted(FOLDER.glob("*.ipynb")):
        with tempfile.TemporaryDirectory() as folder:
            notebook = execute(path, Path(folder))
        nbformat.write(notebook, path)
        print(path, f"{path.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    main()
