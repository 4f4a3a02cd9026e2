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
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from vsemb.data.features.files import WEIGHTS_NAME, check_ids, load_array, not_finite
from vsemb.errors import DataError
from vsemb.files import read_json, sha256_bytes, sha256_file, write_json

if TYPE_CHECKING:
    from vsemb.data.store import Dataset
    from vsemb.image.backbones import BackboneConfig


_VERIFIED = ".verified.json"
_KEYS = frozenset({"dataset", "backbone", "weights_sha256", "dim", "rows", "ids_sha256", "fingerprint"})


class FeatureFolder:
    """Cached features of a dataset's images; base of one class per kind. Made by `open` or `find`.

    Attributes:
        directory: the folder.
        manifest: its manifest, as a dict.
        fingerprint: names backbone, weights and preprocessing.
        ids: int64 (images,), ascending.
        images_computed, seconds: what there was left to do when the folder was made, and how long it took.

    Class attributes:
        singular: what messages call one feature; with an s, also the folder in a dataset and the command that makes it.
        format: the format that manifests name, and its version.
        keys: what a manifest of this kind has besides what all have.
        arrays: name of each array, the features first -> its type and possible numbers of axes. The features are
            memory-mapped.
    """

    singular: ClassVar[str]
    format: ClassVar[tuple[str, int]]
    keys: ClassVar[frozenset[str]]
    arrays: ClassVar[Mapping[str, tuple[str, tuple[int, ...]]]]

    def __init__(
        self, directory: Path, manifest: dict[str, Any], ids: np.ndarray, features: np.ndarray, **beside: np.ndarray
    ) -> None:
        self.directory = directory
        self.manifest = manifest
        self.fingerprint: str = manifest["fingerprint"]
        self.ids = ids
        self.images_computed = 0
        self.seconds = 0.0
        self._features = features
        self._beside = beside
        # Ids count from 0 in most datasets: then an id is its own row and needs no search.
        self._dense = len(ids) > 0 and ids[0] == 0 and ids[-1] == len(ids) - 1

    @classmethod
    def open(cls, directory: str | Path, dataset: Dataset, *, verify: bool = False) -> Self:
        """Opens cached features and checks that they belong to `dataset`.

        Args:
            directory: a folder of this kind in the dataset.
            dataset: the dataset that they must belong to.
            verify: whether to read them in full, even if that was done since they last changed.

        Raises:
            DataError: if the folder is missing, incomplete or damaged, of another version, of another
                dataset, if its ids are not exactly the dataset's, or `check` finds values that cannot be.
        """
        directory = Path(directory)
        manifest = cls._read_manifest(directory, dataset)
        arrays = {"ids": load_array(directory / "ids.npy")}
        for name in cls.arrays:
            arrays[name] = load_array(directory / f"{name}.npy", mmap=name == "features")
        for name, (dtype, ranks) in {"ids": ("int64", (1,)), **cls.arrays}.items():
            if arrays[name].dtype != dtype or arrays[name].ndim not in ranks:
                found = ", ".join(f"{each} {array.dtype} {array.shape}" for each, array in arrays.items())
                raise DataError(f"{cls.called(directory)} are damaged: {found}.")
        store = cls(directory, manifest, **arrays)
        store.check_rows(dataset)
        store._verify(dataset, again=verify)
        return store

    @classmethod
    def find(cls, dataset: Dataset, fingerprint: str | None = None) -> Self:
        """Opens the dataset's folder of this fingerprint (or its beginning); the only one, if None.

        Raises:
            DataError: if there is none, several fit, or `open` refuses it.
        """
        folder, found = dataset.path / cls.plural(), cls.folders(dataset)
        fitting = [path for path in found if path.name.startswith(fingerprint or "")]
        if len(fitting) == 1:
            return cls.open(fitting[0], dataset)
        names = ", ".join(cls._describe(path) for path in (fitting or found))
        if fitting:
            raise DataError(
                f"{len(fitting)} sets of {cls.plural()} in {folder}: {names}. "
                "Name one by fingerprint: --set image.fingerprint=…"
            )
        if found:
            raise DataError(f"No {cls.plural()} {fingerprint!r} in {folder}. There are: {names}.")
        raise DataError(f"No {cls.plural()} in {folder}. Make them first: {cls.command()} {dataset.path}")

    @classmethod
    def verify_all(cls, dataset: Dataset) -> list[Self]:
        """Opens all folders of a dataset and reads them in full.

        Raises:
            DataError: if `open` refuses one.
        """
        return [cls.open(directory, dataset, verify=True) for directory in cls.folders(dataset)]

    @classmethod
    def folders(cls, dataset: Dataset) -> list[Path]:
        """Returns all folders of this kind of a dataset."""
        return sorted(path.parent for path in (dataset.path / cls.plural()).glob("[!.]*/manifest.json"))

    @classmethod
    def plural(cls) -> str:
        """Returns what messages call several features; the name of their folder in a dataset."""
        return f"{cls.singular}s"

    @classmethod
    def command(cls) -> str:
        """Returns the command that makes them."""
        return f"vsemb {cls.plural()}"

    @classmethod
    def called(cls, directory: Path) -> str:
        """Returns what messages call the features of a folder."""
        return f"{cls.plural().capitalize()} in {directory}"

    @classmethod
    def _describe(cls, directory: Path) -> str:
        """Returns the name of a folder and what is in it, for a list of several."""
        raise NotImplementedError

    def expected_fingerprint(self) -> str | None:
        """Returns the fingerprint that the manifest's contents have today; None where that is not known.

        Raises:
            DataError: for contents that have none.
        """
        raise NotImplementedError

    def check(self, dataset: Dataset) -> None:
        """Refuses values that cannot be, reading the arrays in full.

        Raises:
            DataError: naming the images.
        """
        raise NotImplementedError

    @property
    def backbone(self) -> BackboneConfig | None:
        """The configuration of the backbone; None for precomputed features."""
        from vsemb.image.backbones import BackboneConfig

        config = self.manifest["backbone"]
        return None if config is None else BackboneConfig.from_json(config)

    @property
    def weights_path(self) -> Path | None:
        """The weights that the features were made with; None for precomputed features."""
        path = self.directory / WEIGHTS_NAME
        return path if path.is_file() else None

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the features on disk, images first."""
        return tuple(self._features.shape)

    @property
    def dim(self) -> int:
        """Length of a feature vector."""
        return int(self._features.shape[-1])

    def positions(self, ids: np.ndarray) -> np.ndarray:
        """Returns the row of each image id, int64 (n,).

        Raises:
            DataError: if an id is not there.
        """
        ids = np.asarray(ids, np.int64)
        positions = ids if self._dense else np.searchsorted(self.ids, ids)
        known = (positions >= 0) & (positions < len(self.ids))
        if not self._dense and known.all():
            known = self.ids[positions] == ids
        if not known.all():
            raise DataError(f"No {self.plural()} of image id {int(ids[~known][0])} in {self.directory}.")
        return positions

    @classmethod
    def _read_manifest(cls, directory: Path, dataset: Dataset) -> dict[str, Any]:
        """Reads the manifest of a folder and checks that it is of this kind and of `dataset`."""
        manifest = read_json(directory / "manifest.json", f"{cls.singular} manifest")
        name, version = cls.format
        if not isinstance(manifest, dict) or manifest.get("format") != name:
            raise DataError(f"{directory}/manifest.json is not a {cls.singular} manifest (format {name!r}).")
        again = f"Remove the folder and make them again with `{cls.command()}`."
        if manifest.get("version") != version:
            raise DataError(f"{cls.called(directory)} have version {manifest.get('version')}, not {version}. {again}")
        if lacking := sorted({*_KEYS, *cls.keys, *(f"{array}_sha256" for array in cls.arrays)} - set(manifest)):
            raise DataError(f"{directory}/manifest.json lacks {lacking[0]!r}. {again}")
        if manifest["dataset"] != dataset.fingerprint:
            raise DataError(
                f"{cls.called(directory)} belong to another dataset (fingerprint "
                f"{str(manifest['dataset'])[:12]}) than {dataset.path} ({dataset.fingerprint[:12]}). {again}"
            )
        return manifest

    def check_rows(self, dataset: Dataset) -> None:
        """Checks that there is a row for each image of the dataset, made as it would be today.

        Raises:
            DataError: if not.
        """
        called = self.called(self.directory)
        if len(self.ids) != len(self._features):
            raise DataError(f"{called} are damaged: {len(self.ids)} ids, {len(self._features)} rows.")
        check_ids(self.ids, dataset.ids, called)
        if sha256_bytes(self.ids.tobytes()) != self.manifest["ids_sha256"]:
            raise DataError(f"{called} are damaged: ids.npy is not what the manifest says.")
        if self.dim != self.manifest["dim"]:
            raise DataError(f"{called} have dim {self.dim}, not {self.manifest['dim']}.")
        if self.expected_fingerprint() not in (None, self.fingerprint):
            raise DataError(
                f"{called} were made with other preprocessing. Remove the folder and make them again with "
                f"`{self.command()}`."
            )

    def _verify(self, dataset: Dataset, again: bool) -> None:
        """Checks that the arrays are those that were written, unless that was done since they last changed."""
        found = {}
        for array in self.arrays:
            status = (self.directory / f"{array}.npy").stat()
            found[array] = [status.st_size, status.st_mtime_ns, self.manifest[f"{array}_sha256"]]
        if not again and _remembered(self.directory) == found:
            return
        self.check(dataset)
        for array in self.arrays:
            if sha256_file(self.directory / f"{array}.npy") != self.manifest[f"{array}_sha256"]:
                raise DataError(
                    f"{self.called(self.directory)} are damaged or reordered: {array}.npy is not what the manifest "
                    f"says. Remove the folder and make them again with `{self.command()}`."
                )
        # In a folder that cannot be written to, they are read in full each time.
        with contextlib.suppress(OSError, DataError):
            write_json(self.directory / _VERIFIED, found)


def _remembered(directory: Path) -> Any:
    try:
        return read_json(directory / _VERIFIED)
    except (OSError, DataError):
        return None


def refuse_not_finite(rows: np.ndarray, ids: np.ndarray, dataset: Dataset, what: str) -> None:
    """Refuses features with NaN or infinity, naming the images.

    Raises:
        DataError: if there are any.
    """
    bad = not_finite(rows)
    if len(bad):
        raise DataError(f"{what}: NaN or infinity in the features of {dataset.name_images(ids[bad])}.")
