"""Folders of cached features of whatever kind beside a dataset: found by fingerprint, checked on opening.

DATA/<kind>/<fingerprint>/
  features.npy   (images, ...)
  ids.npy        int64 (images,), ascending: features.npy[i] belongs to image ids[i]
  manifest.json  of which dataset, made how
  .verified.json sizes and times of the arrays when they were last read in full

Reading a cache in full takes as long as the disk needs, which memory-mapping is there to avoid. It is done when a cache
is opened for the first time, and again where an array's size or time of change is another, or when it is asked for.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from vsemb.data.all_images import dataset_ids, name_images
from vsemb.data.features.files import check_ids, not_finite
from vsemb.errors import DataError
from vsemb.files import read_json, sha256_bytes, sha256_file, write_json

if TYPE_CHECKING:
    from vsemb.data.store import Dataset


_VERIFIED = ".verified.json"


@dataclass(frozen=True)
class FolderKind:
    """One kind of cached features.

    Attributes:
        singular: what messages call one of them; with an s, also their folder in a dataset and the command
            that makes them.
        format: the format that manifests name.
        version: of the format.
        keys: what a manifest must have.
    """

    singular: str
    format: str
    version: int
    keys: frozenset[str]

    @property
    def plural(self) -> str:
        """What messages call several; the name of their folder in a dataset."""
        return f"{self.singular}s"

    @property
    def command(self) -> str:
        """The command that makes them."""
        return f"vsemb {self.plural}"

    def called(self, directory: Path) -> str:
        """Returns what messages call those of a folder."""
        return f"{self.plural.capitalize()} in {directory}"

    def find(self, dataset: Dataset, fingerprint: str | None, describe: Callable[[Path], str]) -> Path:
        """Returns the dataset's folder of this fingerprint (or its beginning); the only one, if None.

        Raises:
            DataError: if there is none, or several fit.
        """
        folder, found = dataset.path / self.plural, self.folders(dataset)
        fitting = [path for path in found if path.name.startswith(fingerprint or "")]
        if len(fitting) == 1:
            return fitting[0]
        names = ", ".join(describe(path) for path in (fitting or found))
        if fitting:
            raise DataError(
                f"{len(fitting)} sets of {self.plural} in {folder}: {names}. "
                "Name one by fingerprint: --set image.fingerprint=…"
            )
        if found:
            raise DataError(f"No {self.plural} {fingerprint!r} in {folder}. There are: {names}.")
        raise DataError(f"No {self.plural} in {folder}. Make them first: {self.command} {dataset.path}")

    def read_manifest(self, directory: Path, dataset: Dataset) -> dict[str, Any]:
        """Reads the manifest of a folder and checks that it is of this kind and of `dataset`.

        Raises:
            DataError: if it is not.
        """
        manifest = read_json(directory / "manifest.json", f"{self.singular} manifest")
        if not isinstance(manifest, dict) or manifest.get("format") != self.format:
            raise DataError(f"{directory}/manifest.json is not a {self.singular} manifest (format {self.format!r}).")
        if manifest.get("version") != self.version:
            raise DataError(
                f"{self.called(directory)} have version {manifest.get('version')}, not {self.version}. "
                f"Remove the folder and make them again with `{self.command}`."
            )
        if lacking := sorted(self.keys - set(manifest)):
            raise DataError(
                f"{directory}/manifest.json lacks {lacking[0]!r}. Remove the folder and make them again with "
                f"`{self.command}`."
            )
        if manifest["dataset"] != dataset.fingerprint:
            raise DataError(
                f"{self.called(directory)} belong to another dataset (fingerprint "
                f"{str(manifest['dataset'])[:12]}) than {dataset.path} ({dataset.fingerprint[:12]}). "
                f"Remove the folder and make them again with `{self.command}`."
            )
        return manifest

    def check_rows(
        self,
        directory: Path,
        manifest: dict[str, Any],
        dataset: Dataset,
        ids: np.ndarray,
        features: np.ndarray,
    ) -> None:
        """Checks that ids and features are as many as each other, the dataset's, and the manifest's.

        Raises:
            DataError: if they are not.
        """
        if len(ids) != len(features):
            raise DataError(f"{self.called(directory)} are damaged: {len(ids)} ids, {len(features)} rows.")
        check_ids(ids, dataset_ids(dataset), self.called(directory))
        if sha256_bytes(ids.tobytes()) != manifest["ids_sha256"]:
            raise DataError(f"{self.called(directory)} are damaged: ids.npy is not what the manifest says.")
        if features.shape[-1] != manifest["dim"]:
            raise DataError(f"{self.called(directory)} have dim {features.shape[-1]}, not {manifest['dim']}.")

    def check_preprocessing(self, directory: Path, manifest: dict[str, Any], fingerprint: str) -> None:
        """Checks that the manifest's fingerprint is the one that its contents have today.

        Raises:
            DataError: if it is not.
        """
        if fingerprint != manifest["fingerprint"]:
            raise DataError(
                f"{self.called(directory)} were made with other preprocessing. Remove the folder and "
                f"make them again with `{self.command}`."
            )

    def verify(
        self,
        directory: Path,
        manifest: dict[str, Any],
        check: Callable[[], None],
        arrays: Sequence[str] = ("features",),
        *,
        again: bool = False,
    ) -> None:
        """Checks that the files of arrays are those that were written, unless that was done since they last changed.

        Args:
            directory: the folder.
            manifest: its manifest.
            check: further checks that read the arrays in full.
            arrays: names of the arrays.
            again: whether to check in any case.

        Raises:
            DataError: if they are not, or `check` raises it.
        """
        found = {}
        for array in arrays:
            status = (directory / f"{array}.npy").stat()
            found[array] = [status.st_size, status.st_mtime_ns, manifest[f"{array}_sha256"]]
        if not again and _remembered(directory) == found:
            return
        check()
        for array in arrays:
            if sha256_file(directory / f"{array}.npy") != manifest[f"{array}_sha256"]:
                raise DataError(
                    f"{self.called(directory)} are damaged or reordered: {array}.npy is not what the manifest "
                    f"says. Remove the folder and make them again with `{self.command}`."
                )
        # In a folder that cannot be written to, they are read in full each time.
        with contextlib.suppress(OSError, DataError):
            write_json(directory / _VERIFIED, found)

    def folders(self, dataset: Dataset) -> list[Path]:
        """Returns all folders of this kind of a dataset."""
        return sorted(path.parent for path in (dataset.path / self.plural).glob("[!.]*/manifest.json"))


def _remembered(directory: Path) -> Any:
    try:
        return read_json(directory / _VERIFIED)
    except (OSError, DataError):
        return None


class RowsOfIds:
    """Finds the rows of images by their ids.

    Args:
        ids: int64 (images,), ascending.
        plural: what the rows are, for the message.
        directory: where they lie, for the message.
    """

    def __init__(self, ids: np.ndarray, plural: str, directory: Path) -> None:
        self._ids = ids
        self._plural = plural
        self._directory = directory
        # Ids count from 0 in most datasets: then an id is its own row and needs no search.
        self._dense = len(ids) > 0 and ids[0] == 0 and ids[-1] == len(ids) - 1

    def __call__(self, ids: np.ndarray) -> np.ndarray:
        """Returns the row of each id, int64 (n,).

        Raises:
            DataError: if an id is not there.
        """
        ids = np.asarray(ids, np.int64)
        positions = ids if self._dense else np.searchsorted(self._ids, ids)
        known = (positions >= 0) & (positions < len(self._ids))
        if not self._dense and known.all():
            known = self._ids[positions] == ids
        if not known.all():
            raise DataError(f"No {self._plural} of image id {int(ids[~known][0])} in {self._directory}.")
        return positions


def refuse_not_finite(rows: np.ndarray, ids: np.ndarray, dataset: Dataset, what: str) -> None:
    """Refuses features with NaN or infinity, naming the images.

    Raises:
        DataError: if there are any.
    """
    bad = not_finite(rows)
    if len(bad):
        raise DataError(f"{what}: NaN or infinity in the features of {name_images(dataset, ids[bad])}.")
