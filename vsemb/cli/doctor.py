"""`vsemb doctor`."""

from __future__ import annotations

import argparse
import os
import platform
import re
import shutil
from importlib import metadata
from pathlib import Path

from vsemb import __version__
from vsemb.errors import one_line
from vsemb.printing import save_json, table

_PACKAGES = ("tensorflow", "tensorflow-text", "keras", "keras-nlp", "numpy", "pillow")
_FLAGS = ("avx2", "avx512f", "avx512_bf16", "amx_bf16")
# Work folders and files that commands remove when they finish, see `vsemb.files` and `vsemb.data.features.files`.
_LEFTOVER = re.compile(r"\..+\.(partial|[0-9a-f]{8}\.(tmp|old))")
_DEPTH = 3


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("folders", nargs="*", default=["."], metavar="DIR", help="where to look for leftovers (here)")
    parser.add_argument("--json", metavar="FILE", help="also write the page as JSON to FILE")


def run(arguments: argparse.Namespace) -> int:
    """Check the installation: versions, processor, GPU, extras, free disk and leftovers of killed commands.

    The exit status is 1 if TensorFlow does not load. Include the output in bug reports.

    Examples:
      vsemb doctor
      vsemb doctor runs data --json doctor.json
    """
    computing, healthy = _computing()
    facts = {
        "python": f"{platform.python_version()}, {platform.platform()}",
        "vsemb": __version__,
        **{name: _version(name) or "not installed" for name in _PACKAGES},
        **computing,
        "free disk": ", ".join(f"{shutil.disk_usage(each).free / 1e9:,.1f} GB at {each}" for each in arguments.folders),
    }
    width = max(map(len, facts)) + 2
    for name, value in facts.items():
        print(f"{name:<{width}}{value}")
    missing = _extras()
    if missing:
        states = {
            name: f"missing {', '.join(lacking)}" if lacking else "installed" for name, lacking in missing.items()
        }
        lines = {name: f"pip install 'vsemb[{name}]'" if lacking else "" for name, lacking in missing.items()}
        print(
            f"\n{table(['extra', 'state', 'to install'], [[n, states[n], lines[n]] for n in missing], text=(0, 1, 2))}"
        )
    leftovers = [str(each) for folder in arguments.folders for each in _leftovers(Path(folder))]
    if leftovers:
        print("\nLeft by unfinished commands. The same command continues in a `.partial` folder; remove the others.")
        for each in leftovers:
            print(f"  {each}")
    save_json(arguments, {**facts, "extras": missing, "leftovers": leftovers})
    return 0 if healthy else 1


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _computing() -> tuple[dict[str, str], bool]:
    """Return facts about processor and GPU, and whether TensorFlow loads."""
    try:
        import tensorflow as tf

        from vsemb.ops.backend import multiplies_bfloat16, processor_flags

        flags = processor_flags()
        gpus = [tf.config.experimental.get_device_details(each) for each in tf.config.list_physical_devices("GPU")]
        bfloat16 = multiplies_bfloat16()
    except Exception as error:  # Any exception means a broken installation.
        return {"tensorflow loads": f"no: {one_line(error, 200)}"}, False
    names = [f"{each.get('device_name')}, compute capability {each.get('compute_capability')}" for each in gpus]
    return {
        "processor": f"{os.cpu_count()} cores, {', '.join(flag for flag in _FLAGS if flag in flags) or 'no AVX2'}",
        "GPU": "; ".join(names) or "none that TensorFlow can use",
        "bfloat16": "fast: training.precision=auto uses it" if bfloat16 else "slow: training.precision=auto is float32",
        "tensorflow loads": "yes",
    }, True


def _extras() -> dict[str, list[str]]:
    """Return extra -> requirements that are missing or have a wrong version; empty if vsemb is not installed."""
    from packaging.requirements import Requirement

    if _version("vsemb") is None:
        return {}
    missing: dict[str, list[str]] = {each: [] for each in metadata.metadata("vsemb").get_all("Provides-Extra") or ()}
    for line in metadata.requires("vsemb") or ():
        needed = Requirement(line)
        for extra, lacking in missing.items():
            # Requirements without an extra are skipped, because they apply to every extra.
            if (
                needed.marker is None
                or "extra" not in str(needed.marker)
                or not needed.marker.evaluate({"extra": extra})
            ):
                continue
            version = _version(needed.name)
            if version is None or not needed.specifier.contains(version, prereleases=True):
                lacking.append(f"{needed.name}{needed.specifier if version else ''}")
    return missing


def _leftovers(folder: Path) -> list[Path]:
    found: list[Path] = []
    for directory, names, files in os.walk(folder):
        found += [Path(directory) / name for name in (*names, *files) if _LEFTOVER.fullmatch(name)]
        deep = len(Path(directory).relative_to(folder).parts) >= _DEPTH
        names[:] = [] if deep else [name for name in names if not name.startswith(".")]
    return sorted(found)
