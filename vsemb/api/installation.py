"""`vsemb.doctor`: facts about the installation."""

from __future__ import annotations

import os
import platform
import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Annotated, Any

from vsemb import __version__
from vsemb.acts import Option, act
from vsemb.errors import invalid_argument, one_line
from vsemb.printing import table
from vsemb.results import Result

_PACKAGES = ("tensorflow", "tensorflow-text", "keras", "keras-nlp", "numpy", "pillow")
_FLAGS = ("avx2", "avx512f", "avx512_bf16", "amx_bf16")
# Work folders and files that commands remove when they finish, see `vsemb.files` and `vsemb.data.features.files`.
_LEFTOVER = re.compile(r"\..+\.(partial|[0-9a-f]{8}\.(tmp|old))")
_DEPTH = 3


@dataclass(frozen=True, repr=False)
class Installation(Result):
    """Result of `doctor`.

    Attributes:
        facts: name -> text, such as versions.
        missing: extra -> requirements that are missing or have a wrong version.
        leftovers: files and folders of unfinished commands.
        failure: why TensorFlow does not load; None if it does.
    """

    facts: Mapping[str, str]
    missing: Mapping[str, Sequence[str]]
    leftovers: Sequence[str]
    failure: str | None = None

    def to_json(self) -> dict[str, Any]:
        return {**self.facts, "extras": self.missing, "leftovers": self.leftovers}

    def __str__(self) -> str:
        width = max(map(len, self.facts)) + 2
        lines = [f"{name:<{width}}{value}" for name, value in self.facts.items()]
        rows = []
        for name, lacking in self.missing.items():
            if lacking:
                rows.append([name, f"missing {', '.join(lacking)}", f"pip install 'vsemb[{name}]'"])
            else:
                rows.append([name, "installed", ""])
        if rows:
            lines += ["", table(["extra", "state", "to install"], rows, text=(0, 1, 2))]
        if self.leftovers:
            fix = "The same command continues in a `.partial` folder; remove the others."
            lines += ["", f"Left by unfinished commands. {fix}", *(f"  {each}" for each in self.leftovers)]
        return "\n".join(lines)


@act
def doctor(folders: Annotated[Sequence[str | os.PathLike[str]], Option(by_place=True)] = (".",)) -> Installation:
    """Check the installation: versions, processor, GPU, extras, free disk and leftovers of killed commands.

    The command fails if TensorFlow does not load. Include the output in bug reports.

    Args:
        folders: where to look for leftovers; default: the current folder.

    Example:

        print(vsemb.doctor(["runs", "data"]))
    """
    for folder in folders:
        if not os.path.isdir(folder):
            raise invalid_argument("folders", str(folder), "existing folders")
    computing, problem = _computing()
    facts = {
        "python": f"{platform.python_version()}, {platform.platform()}",
        "vsemb": __version__,
        **{name: _version(name) or "not installed" for name in _PACKAGES},
        **computing,
        "free disk": ", ".join(f"{shutil.disk_usage(each).free / 1e9:,.1f} GB at {each}" for each in folders),
    }
    leftovers = [str(each) for folder in folders for each in _leftovers(Path(folder))]
    return Installation(facts, _extras(), leftovers, problem)


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _computing() -> tuple[dict[str, str], str | None]:
    """Return facts about processor and GPU, and why TensorFlow does not load."""
    try:
        import tensorflow as tf

        from vsemb.ops.backend import multiplies_bfloat16, processor_flags

        flags = processor_flags()
        gpus = [tf.config.experimental.get_device_details(each) for each in tf.config.list_physical_devices("GPU")]
        bfloat16 = multiplies_bfloat16()
    except Exception as error:  # Any exception means a broken installation.
        reason = one_line(error, 200)
        return {"tensorflow loads": f"no: {reason}"}, f"TensorFlow does not load: {reason}"
    names = [f"{each.get('device_name')}, compute capability {each.get('compute_capability')}" for each in gpus]
    return {
        "processor": f"{os.cpu_count()} cores, {', '.join(flag for flag in _FLAGS if flag in flags) or 'no AVX2'}",
        "GPU": "; ".join(names) or "none that TensorFlow can use",
        "bfloat16": "fast: training.precision=auto uses it" if bfloat16 else "slow: training.precision=auto is float32",
        "tensorflow loads": "yes",
    }, None


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
    leftovers: list[Path] = []
    for directory, names, files in os.walk(folder):
        leftovers += [Path(directory) / name for name in (*names, *files) if _LEFTOVER.fullmatch(name)]
        deep = len(Path(directory).relative_to(folder).parts) >= _DEPTH
        names[:] = [] if deep else [name for name in names if not name.startswith(".")]
    return sorted(leftovers)
