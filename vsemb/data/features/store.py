"""Image features on disk: computed once by a frozen backbone, memory-mapped, tied to their dataset.

    DATA/features/<fingerprint>/
      features.npy         float32 (images, dim), or (images, views, dim) where the crops are kept, or
                           each image's mirror image or ten crops stand beside it for training
      ids.npy              int64 (images,), ascending: features.npy[i] belongs to image ids[i]
      manifest.json        of which dataset, by which backbone, weights and preprocessing
      .verified.json       sizes and times of the arrays when they were last read in full
      backbone.weights.h5  the weights that were used (absent for precomputed features)

The fingerprint names backbone, weights and preprocessing. Opening compares the ids of the rows with the dataset's, so
features of another dataset, or in another order, are refused.

Reading a cache in full takes as long as the disk needs, which memory-mapping is there to avoid. It is done when a cache
is opened for the first time, and again where an array's size or time of change is another, or when it is asked for.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np

from vsemb.data.features.files import FORMAT, VERSION, WEIGHTS_NAME, check_ids, load_array, not_finite
from vsemb.data.store import StoredDataset
from vsemb.errors import DataError
from vsemb.files import read_json, reading, remember, sha256_bytes, sha256_file, unchanged
from vsemb.image.backbones import PREPROCESSING_VERSION, BackboneConfig
from vsemb.printing import command_line, facts
from vsemb.results import Result

# Manifests of finished folders.
_FOLDERS = "[!.]*/manifest.json"
_KEYS = frozenset({"dataset", "backbone", "weights_sha256", "dim", "rows", "ids_sha256", "fingerprint"})


class FeatureFolder(Result):
    """Cached features of a dataset's images; base of one class per kind. Made by `open` or `find`.

    Attributes:
        directory: the folder.
        manifest: its manifest, as a dict.
        fingerprint: names backbone, weights and preprocessing.
        ids: int64 (images,), ascending.
        images_computed, seconds: what there was left to do when the folder was made, and how long it took.

    Class attributes:
        singular: what messages call one feature; with an s, also the folder in a dataset and the command that makes it.
        fix: beginning of the fix for a dataset without such a folder; the command follows.
        recipe: recipe that usually is trained on them.
        format: the format that manifests name, and its version.
        keys: keys of this kind's manifests, besides the common ones.
        arrays: name of each array, the features first -> its type and possible numbers of axes. The features are
            memory-mapped.
    """

    singular: ClassVar[str]
    fix: ClassVar[str] = "Make them first:"
    recipe: ClassVar[str]
    format: ClassVar[tuple[str, int]]
    keys: ClassVar[frozenset[str]]
    arrays: ClassVar[Mapping[str, tuple[tuple[str, ...], tuple[int, ...]]]]

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

    @classmethod
    def open(cls, directory: str | Path, dataset: StoredDataset, *, verify: bool = False) -> Self:
        """Open cached features and check that they belong to `dataset`.

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
        arrays = {name: load_array(directory / f"{name}.npy") for name in ("ids", *cls.arrays)}
        for name, (dtypes, ranks) in {"ids": (("int64",), (1,)), **cls.arrays}.items():
            array = arrays[name]
            if array.dtype not in dtypes or array.ndim not in ranks:
                raise cls.unusable(directory, f"are damaged: {name} {array.dtype} {array.shape}")
        store = cls(directory, manifest, **arrays)
        store.check_rows(dataset)
        store._verify(dataset, again=verify)
        return store

    @classmethod
    def find(
        cls,
        dataset: StoredDataset,
        fingerprint: str | None = None,
        *,
        maps: bool = False,
        layer: str | None = None,
        preferred: Mapping[str, Any] | None = None,
    ) -> Self:
        """Open a folder of the dataset.

        Args:
            dataset: the dataset.
            fingerprint: the folder's, or its beginning; None for the only one.
            maps: whether maps of an inner layer are wanted. Not used with a fingerprint.
            layer: the inner layer that the features must be of; None for any.
            preferred: name of a field of `BackboneConfig` -> value, for the choice among several.

        Raises:
            DataError: if none or several fit, or `open` refuses it.
        """
        folder, stored = dataset.path / cls.plural(), cls.folders(dataset)
        fitting = [path for path in stored if path.name.startswith(fingerprint or "")]
        if fingerprint is None:
            networks = {path: cls._network(path) for path in fitting}
            fitting = [path for path in fitting if _gives_map(networks[path]) == maps]
            fitting = [path for path in fitting if not unlike(networks[path], {"layer": layer})]
            if len(fitting) > 1 and preferred:
                fitting = [path for path in fitting if not unlike(networks[path], preferred)] or fitting
        if len(fitting) == 1:
            return cls.open(fitting[0], dataset)
        names = ", ".join(map(cls._describe, fitting or stored))
        if fitting:
            raise DataError(
                f"{len(fitting)} sets of {cls.plural()} in {folder}: {names}. "
                "Name one by fingerprint: --set image.fingerprint=…"
            )
        if stored:
            if fingerprint:
                raise DataError(f"No {cls.plural()} {fingerprint!r} in {folder}. There are: {names}.")
            wanted = layer or ("an inner layer" if maps else "a whole network")
            raise DataError(f"No {cls.plural()} of {wanted} in {folder}. There are: {names}. Train with a `backbone`.")
        raise DataError(f"No {cls.plural()} in {folder}. {cls.fix} vsemb {cls.plural()} {dataset.path}")

    @classmethod
    def _network(cls, directory: Path) -> BackboneConfig | None:
        """Return the network of a folder; None if it is not known."""
        manifest = read_json(directory / "manifest.json", f"{cls.singular} manifest")
        backbone = manifest.get("backbone") if isinstance(manifest, dict) else None
        with reading(directory / "manifest.json", f"{cls.singular} manifest"):
            return BackboneConfig.from_json(backbone) if backbone else None

    @property
    def next_command(self) -> str:
        """The command that trains a recipe on them."""
        data = self.directory.parents[1]
        several = len(list(self.directory.parent.glob(_FOLDERS))) > 1
        # The fingerprint is needed only to choose among several.
        chosen = ["--set", f"image.fingerprint={self.fingerprint}"] if several else []
        return command_line("train", self.recipe, "--data", data, "--out", f"runs/{self.recipe}", *chosen)

    @property
    def speed(self) -> float | None:
        """Images per second of what was computed when the folder was made; None if nothing was."""
        return round(self.images_computed / self.seconds, 1) if self.images_computed else None

    @property
    def details(self) -> dict[str, str]:
        """Further facts about features of this kind, name -> text; for subclasses."""
        return {}

    def to_json(self) -> dict[str, Any]:
        """Return fingerprint, shape, place, and what there was to compute."""
        return {
            "fingerprint": self.fingerprint,
            "shape": list(self.shape),
            "directory": str(self.directory),
            "images_computed": self.images_computed,
            "images_per_second": self.speed,
            "next": self.next_command,
        }

    def __str__(self) -> str:
        return facts(
            {
                "fingerprint": self.fingerprint,
                "shape": " x ".join(map(str, self.shape)),
                "images/s": str(self.speed or "nothing left to compute"),
                "where": str(self.directory),
                **self.details,
                "next": self.next_command,
            }
        )

    @classmethod
    def folders(cls, dataset: StoredDataset) -> list[Path]:
        """Return all folders of this kind of a dataset."""
        return sorted(path.parent for path in (dataset.path / cls.plural()).glob(_FOLDERS))

    @classmethod
    def plural(cls) -> str:
        """Return what messages call several features; the name of their folder in a dataset."""
        return f"{cls.singular}s"

    @classmethod
    def unusable(cls, directory: Path, why: str) -> DataError:
        """Return the error for a folder whose features cannot be used, with the fix."""
        return DataError(
            f"{cls.called(directory)} {why}. Remove the folder and make them again with `vsemb {cls.plural()}`."
        )

    @classmethod
    def called(cls, directory: Path) -> str:
        """Return what messages call the features of a folder."""
        return f"{cls.plural().capitalize()} in {directory}"

    @classmethod
    def _describe(cls, directory: Path) -> str:
        """Return the name of a folder and what is in it, for a list of several."""
        raise NotImplementedError

    def expected_fingerprint(self) -> str | None:
        """Return the fingerprint that the manifest's contents have today; None where that is not known.

        Raises:
            DataError: for contents that have none.
        """
        raise NotImplementedError

    def check(self, dataset: StoredDataset) -> None:
        """Refuse values that cannot be, reading the arrays in full.

        Raises:
            DataError: naming the images.
        """
        raise NotImplementedError

    @property
    def backbone(self) -> BackboneConfig | None:
        """The configuration of the backbone; None for precomputed features."""
        config = self.manifest["backbone"]
        with reading(self.directory / "manifest.json", f"{self.singular} manifest"):
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
        """Return the row of each image id, int64 (n,).

        Raises:
            DataError: if an id is not there.
        """
        ids = np.asarray(ids, np.int64)
        positions = np.searchsorted(self.ids, ids)
        missing = ids[self.ids.take(positions, mode="clip") != ids]
        if len(missing):
            raise DataError(f"No {self.plural()} of image id {int(missing[0])} in {self.directory}.")
        return positions

    @classmethod
    def _read_manifest(cls, directory: Path, dataset: StoredDataset) -> dict[str, Any]:
        """Read the manifest of a folder and check that it is of this kind and of `dataset`."""
        manifest = read_json(directory / "manifest.json", f"{cls.singular} manifest")
        name, version = cls.format
        if not isinstance(manifest, dict) or manifest.get("format") != name:
            raise DataError(f"{directory}/manifest.json is not a {cls.singular} manifest (format {name!r}).")
        if manifest.get("version") != version:
            raise cls.unusable(directory, f"have version {manifest.get('version')}, not {version}")
        digests = {f"{array}_sha256" for array in cls.arrays}
        lacking = sorted((_KEYS | cls.keys | digests) - manifest.keys())
        if lacking:
            raise cls.unusable(directory, f"are damaged: manifest.json lacks {lacking[0]!r}")
        stored, expected = str(manifest["dataset"]), dataset.fingerprint
        if stored != expected:
            other = f"another dataset (fingerprint {stored[:12]}) than {dataset.path} ({expected[:12]})"
            raise cls.unusable(directory, f"belong to {other}")
        return manifest

    def check_rows(self, dataset: StoredDataset) -> None:
        """Check that there is a row for each image of the dataset, made as it would be today.

        Raises:
            DataError: if not.
        """
        if len(self.ids) != len(self._features):
            raise self.unusable(self.directory, f"are damaged: {len(self.ids)} ids, {len(self._features)} rows")
        if self.dim != self.manifest["dim"]:
            raise self.unusable(self.directory, f"have dim {self.dim}, not {self.manifest['dim']}")
        if self.expected_fingerprint() not in (None, self.fingerprint):
            raise self.unusable(self.directory, "were made with other preprocessing")

    def _verify(self, dataset: StoredDataset, again: bool) -> None:
        """Check that the arrays are those that were written, unless that was done since they last changed."""
        digests = {f"{array}.npy": self.manifest[f"{array}_sha256"] for array in ("ids", *self.arrays)}
        if not again and unchanged(self.directory, digests) == digests.keys():
            return
        check_ids(self.ids, dataset.ids, self.called(self.directory))
        if sha256_bytes(self.ids.tobytes()) != self.manifest["ids_sha256"]:
            raise self.unusable(self.directory, "are damaged: ids.npy is not what the manifest says")
        self.check(dataset)
        for array in self.arrays:
            if sha256_file(self.directory / f"{array}.npy") != self.manifest[f"{array}_sha256"]:
                why = f"are damaged or reordered: {array}.npy is not what the manifest says"
                raise self.unusable(self.directory, why)
        remember(self.directory, digests)


def _gives_map(network: BackboneConfig | None) -> bool:
    return network is not None and network.inner_map


def unlike(network: BackboneConfig | None, wanted: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a network that differ from the wanted ones; none for an unknown network.

    A wanted None fits every value. A pooling that the network does not have fits, and any fits an inner layer.

    Args:
        network: the network; None if it is not known.
        wanted: name of a field of `BackboneConfig` -> value.

    Example:

    >>> unlike(BackboneConfig("MobileNetV2"), {"size": 224, "pooling": "mean"})
    {'pooling': 'multilevel'}
    """
    if network is None:
        return {}
    named = {name: value for name, value in wanted.items() if value is not None}
    if network.layer is not None or not network.has_pooling(named.get("pooling")):
        named.pop("pooling", None)
    return {name: getattr(network, name) for name, value in named.items() if getattr(network, name) != value}


def refuse_not_finite(rows: np.ndarray, ids: np.ndarray, dataset: StoredDataset, what: str) -> None:
    """Refuse features with NaN or infinity, naming the images.

    Raises:
        DataError: if there are any.
    """
    bad = not_finite(rows)
    if len(bad):
        raise DataError(f"{what}: NaN or infinity in the features of {dataset.name_images(ids[bad])}.")


class FeatureStore(FeatureFolder):
    """The cached features of a dataset's images, see `FeatureFolder`.

    Example:

    >>> store = FeatureStore.find(Dataset.open("data/flickr8k"))  # doctest: +SKIP
    >>> store.rows(np.array([5, 3]))  # doctest: +SKIP
    """

    singular = "feature"
    recipe = "vsepp"
    fix = "Train with a `backbone`, or make them first:"
    format = FORMAT, VERSION
    keys = frozenset({"crops"})
    arrays = {"features": (("float32", "float16"), (2, 3))}

    def expected_fingerprint(self) -> str | None:
        config = self.backbone
        if config is None:
            return None
        kept = views_kept(config.crops, self.views_count)
        return feature_fingerprint(config, self.manifest["weights_sha256"], kept)

    def check(self, dataset: StoredDataset) -> None:
        refuse_not_finite(self._features, self.ids, dataset, self.called(self.directory))

    @classmethod
    def _describe(cls, directory: Path) -> str:
        manifest = read_json(directory / "manifest.json", "feature manifest")
        backbone = manifest.get("backbone")
        if not backbone:
            return f"{directory.name} (precomputed, {manifest.get('dim')} entries)"
        output = backbone.get("layer") or backbone.get("pooling")
        return (
            f"{directory.name} ({backbone['name']} at {backbone.get('size')}, {output}, "
            f"{backbone.get('crops', 1)} crops, {backbone.get('resize', 'squash')}, {manifest.get('dim')} entries)"
        )

    @property
    def itemsize(self) -> int:
        """Bytes of a stored number."""
        return self._features.dtype.itemsize

    @property
    def views_count(self) -> int:
        """Number of stored views per image: 1, or more with crops or mirror images."""
        return self._features.shape[1] if self._features.ndim == 3 else 1

    @property
    def training_views(self) -> range:
        """The views that training samples from; view 0 is used in evaluation and serving.

        They are the image and its mirror image (0 and 1), or ten crops (1 to 10). Empty without either.
        """
        if self.views_count == 1 or self.manifest["crops"] != 1:
            return range(0)
        first = 0 if self.views_count == 2 else 1
        return range(first, self.views_count)

    def rows(self, ids: np.ndarray) -> np.ndarray:
        """Gather the features of images, averaged over crops where those are kept.

        Views that are for training alone take no part.

        Args:
            ids: int64 (n,), in any order, repeats allowed.

        Returns:
            float32 (n, dim).

        Raises:
            DataError: if an id has no features.
        """
        return self.rows_at(self.positions(ids))

    def rows_at(self, positions: np.ndarray) -> np.ndarray:
        """Gather features as `rows`, by their places in the file, see `positions`."""
        features = self._features[positions, 0] if self.training_views else self._features[positions]
        features = features.astype(np.float32, copy=False)
        return features.mean(axis=1) if features.ndim == 3 else features

    def views(self, ids: np.ndarray) -> np.ndarray:
        """Gather all stored views (crops) of images, as they are stored.

        Args:
            ids: int64 (n,).

        Returns:
            (n, views, dim), float16 for maps of an inner layer and float32 for others.

        Raises:
            DataError: if an id has no features.
        """
        rows = self._features[self.positions(ids)]
        return rows if rows.ndim == 3 else rows[:, None]


def views_kept(crops: int, views: int) -> bool | str:
    """Return the entry of a fingerprint for views: whether they are stored, or `"training crops"`."""
    return "training crops" if crops == 1 and views > 2 else views > 1


def feature_fingerprint(backbone: BackboneConfig, weights_sha256: str, keep_views: bool | str = False) -> str:
    """Return the name of the features that a backbone with these weights makes: 16 hex digits.

    Covers the configuration, the values of the weights, the version of the preprocessing, and
    `views_kept`.
    """
    content = {
        "backbone": backbone.identity(),
        "weights": weights_sha256,
        "preprocessing": PREPROCESSING_VERSION,
        "keep_views": keep_views,
    }
    return sha256_bytes(json.dumps(content, sort_keys=True).encode())[:16]
