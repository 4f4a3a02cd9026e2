"""Runs the notebooks of the documentation and stores what their cells print and draw.

    python -m pipelines.notebooks [docs/notebooks/quickstart.ipynb ...]

Needs the extra `docs`. Outputs are committed, so that the site shows them without training anything; a test runs the
notebooks again.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from pathlib import Path

import nbformat
from nbclient import NotebookClient

FOLDER = Path("docs/notebooks")


def execute(path: Path, folder: Path, timeout: int = 3600) -> nbformat.NotebookNode:
    """Returns a notebook with the outputs of its cells, run in another folder.

    Args:
        path: the notebook.
        folder: where it runs, and leaves its data.
        timeout: seconds per cell.

    Raises:
        nbclient.exceptions.CellExecutionError: if a cell fails.
    """
    # So that cells find the `vsemb` command of this Python.
    os.environ["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
    notebook = nbformat.read(path, as_version=4)
    resources = {"metadata": {"path": str(folder)}}
    NotebookClient(
        notebook,
        timeout=timeout,
        kernel_name="python3",
        record_timing=False,
        coalesce_streams=True,
        resources=resources,
    ).execute()
    return notebook


def main() -> None:
    """Runs notebooks in temporary folders and writes their outputs back."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("notebooks", nargs="*", type=Path, help=f"all of {FOLDER}")
    for path in parser.parse_args().notebooks or sorted(FOLDER.glob("*.ipynb")):
        with tempfile.TemporaryDirectory() as folder:
            notebook = execute(path, Path(folder))
        nbformat.write(notebook, path)
        print(path, f"{path.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    main()
