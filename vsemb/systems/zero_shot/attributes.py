"""Class attributes: a vector of named properties per class of a dataset."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from vsemb.data.readers.source import Source
from vsemb.data.store import StoredDataset
from vsemb.errors import DataError
from vsemb.files import read_json, sha256_bytes, write_json
from vsemb.unicode import composed

FILE = "classes.json"
"""The file in a dataset's directory."""


@dataclass(frozen=True, eq=False)
class ClassAttributes:
    """Attribute vectors of classes (Reed et al. 2016, section 4).

    Args:
        names: names of the attributes, e.g. `("petal colour: red", ...)`.
        values: class name -> (len(names),) numbers, stored as float32; usually in [0, 1].

    Raises:
        DataError: for empty names or classes, or a vector that is not finite or of another length.

    Example:

    >>> birds = ClassAttributes(("wing: black", "bill: hooked"), {"crow": np.array([1, 0.25])})
    >>> birds.matrix(["crow", "crow"]).tolist()
    [[1.0, 0.25], [1.0, 0.25]]
    """

    names: tuple[str, ...]
    values: dict[str, np.ndarray]

    def __post_init__(self) -> None:
        names = tuple(self.names)
        if not names or not all(isinstance(name, str) and name.strip() for name in names):
            raise DataError(f"Class attributes must have one or more non-empty names; got {names!r}.")
        if not self.values:
            raise DataError("Class attributes must have at least one class; got an empty dictionary.")
        values = {}
        for name, vector in self.values.items():
            try:
                row = np.array(vector, np.float32)
            except (TypeError, ValueError, OverflowError) as error:
                raise DataError(f"The attributes of the class {name!r} must be numbers: {error}.") from error
            if row.shape != (len(names),):
                raise DataError(
                    f"The attributes of the class {name!r} must have the shape ({len(names)},), one number per "
                    f"name; got {row.shape}."
                )
            if not np.isfinite(row).all():
                at = names[int(np.argmin(np.isfinite(row)))]
                raise DataError(f"The attribute {at!r} of the class {name!r} must be finite.")
            row.flags.writeable = False
            values[composed(name)] = row
        object.__setattr__(self, "names", names)
        object.__setattr__(self, "values", values)

    @property
    def fingerprint(self) -> str:
        """Hex SHA-256 of the names, classes and values."""
        plain = {name: [float(value) for value in row] for name, row in sorted(self.values.items())}
        return sha256_bytes(json.dumps([self.names, plain]).encode())

    def matrix(self, names: Sequence[str]) -> np.ndarray:
        """Return the vectors of classes as one array.

        Args:
            names: class names; they may repeat.

        Returns:
            (len(names), attributes) float32.

        Raises:
            DataError: for a class without attributes.
        """
        names = [composed(name) for name in names]
        for name in names:
            if name not in self.values:
                raise DataError(
                    f"The class {name!r} must have attributes; {len(self.values)} other classes have them, such as "
                    f"{next(iter(self.values))!r}."
                )
        return np.array([self.values[name] for name in names], np.float32).reshape(-1, len(self.names))


def read_attributes(dataset: StoredDataset | str | os.PathLike[str]) -> ClassAttributes | None:
    """Read the attributes of a dataset's classes.

    Args:
        dataset: the dataset, or its directory.

    Returns:
        The attributes; None for a dataset without attributes.

    Raises:
        DataError: for a malformed file.
    """
    path = (dataset.path if isinstance(dataset, StoredDataset) else Path(dataset)) / FILE
    if not path.exists():
        return None
    content = read_json(path, "attributes of classes")
    record = content if isinstance(content, dict) else {}
    names, values = record.get("attributes"), record.get("classes")
    if not isinstance(names, list) or not isinstance(values, dict):
        raise DataError(
            f'{path} must hold {{"attributes": [names], "classes": {{name: [numbers]}}. Prepare the dataset again.'
        )
    try:
        attributes = ClassAttributes(tuple(names), values)
    except DataError as error:
        raise DataError(f"{path} is broken: {error} Prepare the dataset again.") from error
    # Files of older versions have no fingerprint.
    if record.get("fingerprint") not in (None, attributes.fingerprint):
        raise DataError(f"{path} is damaged: it holds other attributes than were written. Prepare the dataset again.")
    return attributes


def write_attributes(dataset_path: str | os.PathLike[str], attributes: ClassAttributes) -> None:
    """Write the attributes of a dataset's classes atomically.

    Args:
        dataset_path: the dataset's directory.
        attributes: the attributes.

    Raises:
        DataError: if writing fails.

    Example:

    >>> import tempfile
    >>> folder = tempfile.mkdtemp()
    >>> write_attributes(folder, ClassAttributes(("hooked",), {"crow": np.array([0.1])}))
    >>> read_attributes(folder).values["crow"].dtype
    dtype('float32')
    """
    # The shortest decimal of the equal double restores the float32 exactly.
    classes = {name: [float(value) for value in row] for name, row in attributes.values.items()}
    content = {"attributes": list(attributes.names), "classes": classes, "fingerprint": attributes.fingerprint}
    write_json(Path(dataset_path) / FILE, content)


@dataclass(frozen=True)
class ClassSource(Source):
    """Images with classes.

    Attributes:
        attributes: attributes of the classes, if known.
    """

    attributes: ClassAttributes | None = None

    @property
    def knows_more(self) -> bool:
        return super().knows_more or self.attributes is not None

    def finish(self, dataset: StoredDataset) -> None:
        if self.attributes is not None:
            write_attributes(dataset.path, self.attributes)
